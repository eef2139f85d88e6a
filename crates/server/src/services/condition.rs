//! Judges the health of a service: one word and the reason.
//!
//! The worst condition wins: stopped before failing, failing before lagging. A service is healthy only if
//! attempts of the last minute succeeded and it has no dead letters.

use std::time::Duration;

use redrive_core::engine::{RowView, Wait};
use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use redrive_node::runtime::RecentFigures;

use crate::deliveries::json::WaitJson;
use crate::deliveries::waits;
use crate::services::json::HealthWord;
use crate::terminal::moment::rough;

/// With fewer attempts, only a failure of all counts.
const ATTEMPTS_MIN: u64 = 5;

const FAILING_ONE_IN: u64 = 2;

const DEGRADED_ONE_IN: u64 = 20;

/// Longer waits count as lag.
const BACKLOG_MAX: Duration = Duration::from_mins(1);

const MINUTE: Duration = Duration::from_mins(1);

/// The span of [`RecentFigures`].
const RECENT: Duration = Duration::from_mins(15);

#[derive(Clone, Debug)]
pub(crate) struct ServiceSigns {
    pub paused_since: Option<Timestamp>,
    pub is_removed: bool,
    /// Its rows, and what blocks each.
    pub rows: Vec<RowView>,
    pub lately: RecentFigures,
    /// Since the start; the latest are not in `lately` yet.
    pub attempts: u64,
    pub failed: u64,
    pub waiting: u64,
    /// Deliveries that no row matches any more.
    pub without_rule: u64,
    pub dead: u64,
    pub oldest_waiting_at: Option<Timestamp>,
    /// Nothing is known from before.
    pub started_at: Timestamp,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceVerdict {
    pub word: HealthWord,
    /// Without times.
    pub why: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl ServiceVerdict {
    fn new(word: HealthWord, why: impl Into<String>) -> Self {
        Self { word, why: why.into(), since: None, until: None }
    }

    fn waits(word: HealthWord, waits: WaitJson) -> Self {
        Self { word, why: waits.because, since: waits.since, until: waits.until }
    }
}

pub(crate) fn judge(signs: &ServiceSigns) -> ServiceVerdict {
    let stopped = stopped(signs);
    let trouble = stopped.or_else(|| failing(signs)).or_else(|| degraded(signs));
    trouble.unwrap_or_else(|| unconcerned(signs))
}

fn stopped(signs: &ServiceSigns) -> Option<ServiceVerdict> {
    if let Some(since) = signs.paused_since {
        let paused = ServiceVerdict::new(HealthWord::Paused, "paused");
        return Some(ServiceVerdict { since: Some(since), ..paused });
    }
    if signs.is_removed {
        let why = match signs.waiting {
            0 => "no longer in the rule book".to_owned(),
            waiting => {
                let waits = if waiting == 1 { "waits" } else { "wait" };
                format!("no longer in the rule book, {} {waits}", counted(waiting, "delivery"))
            }
        };
        return Some(ServiceVerdict::new(HealthWord::Removed, why));
    }
    let holds: Vec<&Wait> = signs.rows.iter().filter_map(|row| row.hold.as_ref()).collect();
    let first = holds.first().filter(|_| holds.len() == signs.rows.len())?;
    Some(ServiceVerdict::waits(HealthWord::Held, waits::shown(first, None)))
}

/// Of a young server all counts are included.
fn last_minute(signs: &ServiceSigns) -> (u64, u64) {
    let is_young = signs.now.since(signs.started_at) <= MINUTE;
    if is_young { (signs.attempts, signs.failed) } else { (signs.lately.attempts, signs.lately.failed) }
}

fn recent(signs: &ServiceSigns) -> (u64, u64, &'static str) {
    if signs.now.since(signs.started_at) <= RECENT {
        return (signs.attempts, signs.failed, "since the server started");
    }
    (signs.lately.recent_attempts, signs.lately.recent_failed, "in the last 15 minutes")
}

fn failing(signs: &ServiceSigns) -> Option<ServiceVerdict> {
    let (attempts, failed) = last_minute(signs);
    let is_part = attempts >= ATTEMPTS_MIN && failed * FAILING_ONE_IN >= attempts;
    if attempts > 0 && (attempts == failed || is_part) {
        return Some(ServiceVerdict::new(
            HealthWord::Failing,
            failures(attempts, failed, "in the last minute"),
        ));
    }
    let (recent_attempts, recent_failed, when) = recent(signs);
    (attempts == 0 && recent_attempts > 0 && recent_attempts == recent_failed)
        .then(|| ServiceVerdict::new(HealthWord::Failing, failures(recent_attempts, recent_failed, when)))
}

fn degraded(signs: &ServiceSigns) -> Option<ServiceVerdict> {
    let (attempts, failed) = last_minute(signs);
    let is_part = attempts >= ATTEMPTS_MIN && failed * DEGRADED_ONE_IN >= attempts;
    if failed > 0 && (is_part || failed * FAILING_ONE_IN >= attempts) {
        return Some(ServiceVerdict::new(
            HealthWord::Degraded,
            failures(attempts, failed, "in the last minute"),
        ));
    }
    let held = signs.rows.iter().find_map(|row| Some((&row.pattern, row.hold.as_ref()?)));
    if let Some((pattern, hold)) = held {
        let waits = waits::shown(hold, None);
        let because = format!("events of type {pattern} wait: {}", waits.because);
        return Some(ServiceVerdict::waits(HealthWord::Degraded, WaitJson { because, ..waits }));
    }
    if signs.without_rule > 0 {
        let waits = if signs.without_rule == 1 { "waits" } else { "wait" };
        let why = format!("{} {waits} without a matching row", counted(signs.without_rule, "delivery"));
        return Some(ServiceVerdict::new(HealthWord::Degraded, why));
    }
    let waited = signs.oldest_waiting_at.filter(|_| signs.waiting > 0).map(|since| signs.now.since(since));
    if let Some(waited) = waited.filter(|waited| *waited > BACKLOG_MAX) {
        let why = format!("the oldest delivery has waited {}", rough(waited));
        return Some(ServiceVerdict::new(HealthWord::Degraded, why));
    }
    (signs.dead > 0).then(|| {
        let (letters, are) = (counted(signs.dead, "dead letter"), if signs.dead == 1 { "is" } else { "are" });
        ServiceVerdict::new(HealthWord::Degraded, format!("{letters} {are} open"))
    })
}

fn unconcerned(signs: &ServiceSigns) -> ServiceVerdict {
    let (attempts, failed) = last_minute(signs);
    match (attempts, failed) {
        (0, _) => {
            let last = match signs.lately.active_at {
                Some(at) => format!(", the last ended {} ago", rough(signs.now.since(at))),
                None if signs.attempts == 0 => " and none since the server started".to_owned(),
                None => String::new(),
            };
            ServiceVerdict::new(HealthWord::Idle, format!("no attempts in the last minute{last}"))
        }
        (1, 0) => ServiceVerdict::new(HealthWord::Healthy, "the only attempt of the last minute succeeded"),
        (_, 0) => {
            let why = format!("all {attempts} attempts of the last minute succeeded");
            ServiceVerdict::new(HealthWord::Healthy, why)
        }
        (_, _) => ServiceVerdict::new(HealthWord::Healthy, failures(attempts, failed, "in the last minute")),
    }
}

fn failures(attempts: u64, failed: u64, when: &str) -> String {
    match (attempts, failed) {
        (1, 1) => format!("the only attempt {when} failed"),
        _ if attempts == failed => format!("all {attempts} attempts {when} failed"),
        _ => format!("{failed} of {attempts} attempts {when} failed"),
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::ids::DependencyName;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + Duration::from_secs(seconds)
    }

    fn lately(attempts: u64, failed: u64) -> RecentFigures {
        let (recent_attempts, recent_failed) = (attempts, failed);
        RecentFigures {
            attempts,
            failed,
            recent_attempts,
            recent_failed,
            active_at: Some(at(4_995)),
            ..RecentFigures::default()
        }
    }

    fn row(pattern: &str, hold: Option<Wait>) -> RowView {
        RowView { pattern: pattern.to_owned(), hold }
    }

    fn open() -> Wait {
        let dependency = DependencyName::new("db").expect("a name");
        Wait::BreakerOpen { dependency, until: at(5_030) }
    }

    fn good() -> ServiceSigns {
        ServiceSigns {
            paused_since: None,
            is_removed: false,
            rows: vec![row("orders.*", None), row("mail", None)],
            lately: lately(100, 0),
            attempts: 900,
            failed: 1,
            waiting: 0,
            without_rule: 0,
            dead: 0,
            oldest_waiting_at: None,
            started_at: at(0),
            now: at(5_000),
        }
    }

    #[test]
    fn the_worst_that_is_true_is_told() {
        use HealthWord::{Degraded, Failing, Healthy, Held, Paused, Removed};
        let held = || vec![row("orders.*", Some(open())), row("mail", Some(open()))];
        let paused = Some(at(900));
        #[rustfmt::skip]
        let cases = [
            ("all succeeds",             good(),                                                             Healthy,  "all 100 attempts of the last minute succeeded"),
            ("paused before removed",    ServiceSigns { paused_since: paused, is_removed: true, ..good() },         Paused,   "paused"),
            ("removed",                  ServiceSigns { is_removed: true, rows: vec![], ..good() },                 Removed,  "no longer in the rule book"),
            ("removed, one waits",       ServiceSigns { is_removed: true, waiting: 1, ..good() },                   Removed,  "no longer in the rule book, 1 delivery waits"),
            ("held before failing",      ServiceSigns { rows: held(), lately: lately(10, 10), ..good() },           Held,     "the circuit breaker of db is open"),
            ("one row of two is held",   ServiceSigns { rows: vec![row("mail", Some(open())), row("sms", None)], ..good() }, Degraded, "events of type mail wait: the circuit breaker of db is open"),
            ("half of it fails",         ServiceSigns { lately: lately(10, 5), ..good() },                          Failing,  "5 of 10 attempts in the last minute failed"),
            ("nearly half",              ServiceSigns { lately: lately(11, 5), ..good() },                          Degraded, "5 of 11 attempts in the last minute failed"),
            ("one, which failed",        ServiceSigns { lately: lately(1, 1), ..good() },                           Failing,  "the only attempt in the last minute failed"),
            ("three of three",           ServiceSigns { lately: lately(3, 3), ..good() },                           Failing,  "all 3 attempts in the last minute failed"),
            ("two of four are few",      ServiceSigns { lately: lately(4, 2), ..good() },                           Degraded, "2 of 4 attempts in the last minute failed"),
            ("one of four is fewer",     ServiceSigns { lately: lately(4, 1), ..good() },                           Healthy,  "1 of 4 attempts in the last minute failed"),
            ("one in twenty",            ServiceSigns { lately: lately(20, 1), ..good() },                          Degraded, "1 of 20 attempts in the last minute failed"),
            ("one in twenty-one",        ServiceSigns { lately: lately(21, 1), ..good() },                          Healthy,  "1 of 21 attempts in the last minute failed"),
            ("a backlog of a minute",    ServiceSigns { waiting: 1, oldest_waiting_at: Some(at(4_940)), ..good() }, Healthy,  "all 100 attempts of the last minute succeeded"),
            ("a second longer",          ServiceSigns { waiting: 1, oldest_waiting_at: Some(at(4_939)), ..good() }, Degraded, "the oldest delivery has waited 61s"),
            ("no row takes what waits",  ServiceSigns { waiting: 9, without_rule: 2, ..good() },                    Degraded, "2 deliveries wait without a matching row"),
            ("a dead letter",            ServiceSigns { dead: 1, ..good() },                                        Degraded, "1 dead letter is open"),
            ("failing before letters",   ServiceSigns { dead: 9, lately: lately(9, 9), ..good() },                  Failing,  "all 9 attempts in the last minute failed"),
        ];
        for (name, signs, word, why) in cases {
            let judged = judge(&signs);
            assert_eq!((judged.word, judged.why.as_str()), (word, why), "{name}");
        }
    }

    #[test]
    fn without_recent_attempts_a_service_is_idle_unless_the_last_ones_failed() {
        use HealthWord::{Degraded, Failing, Idle};
        let none = |recent_attempts, recent_failed, active_at| RecentFigures {
            recent_attempts,
            recent_failed,
            active_at,
            ..RecentFigures::default()
        };
        let quiet = |lately, attempts, failed| ServiceSigns { lately, attempts, failed, ..good() };
        let young = |signs| ServiceSigns { started_at: at(4_990), ..signs };
        #[rustfmt::skip]
        let cases = [
            ("nothing ever",           quiet(none(0, 0, None), 0, 0),              Idle,     "no attempts in the last minute and none since the server started"),
            ("nothing for an hour",    quiet(none(0, 0, None), 7, 7),              Idle,     "no attempts in the last minute"),
            ("some, of which all good", quiet(none(3, 0, Some(at(4_700))), 3, 0),  Idle,     "no attempts in the last minute, the last ended 5m ago"),
            ("some, of which one good", quiet(none(3, 2, Some(at(4_700))), 3, 2),  Idle,     "no attempts in the last minute, the last ended 5m ago"),
            ("some, and all failed",   quiet(none(3, 3, Some(at(4_700))), 3, 3),   Failing,  "all 3 attempts in the last 15 minutes failed"),
            ("a young server",         young(quiet(none(0, 0, None), 0, 0)),       Idle,     "no attempts in the last minute and none since the server started"),
            ("not looked at yet",      young(quiet(none(0, 0, None), 3, 3)),       Failing,  "all 3 attempts in the last minute failed"),
            ("some minutes old",       ServiceSigns { started_at: at(4_700), ..quiet(none(0, 0, None), 3, 3) }, Failing, "all 3 attempts since the server started failed"),
            ("dead letters only",      ServiceSigns { dead: 23, ..quiet(none(0, 0, None), 0, 0) }, Degraded, "23 dead letters are open"),
        ];
        for (name, signs, word, why) in cases {
            let judged = judge(&signs);
            assert_eq!((judged.word, judged.why.as_str()), (word, why), "{name}");
        }
    }

    #[test]
    fn no_signs_with_failures_only_or_with_dead_letters_are_healthy() {
        for attempts in 0..50 {
            for dead in 0..3 {
                let all_failed = ServiceSigns { lately: lately(attempts, attempts), dead, ..good() };
                assert_ne!(judge(&all_failed).word, HealthWord::Healthy, "{attempts} failed, {dead} dead");
                let with_letters = ServiceSigns { lately: lately(attempts, 0), dead: dead + 1, ..good() };
                assert_ne!(judge(&with_letters).word, HealthWord::Healthy, "{attempts} good, {dead} dead");
            }
        }
    }
}
