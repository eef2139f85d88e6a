//! Handling of failed archive writes: wait, retry or skip.
//!
//! Events never wait for the archive. It is filled from the store, one event after the other, and the store
//! keeps what is not archived yet. Most failures are waited out, and nothing is missing afterwards:
//!
//! | the archive | then |
//! | --- | --- |
//! | throttles | wait, longer each time; the event is written later |
//! | denies access | raise an alert; wait as above |
//! | times out | retry once with twice the timeout; then skip the event |
//! | fails otherwise | wait as above, until the breaker opens |
//! | has an open breaker | skip events until a probe succeeds |
//!
//! Events are skipped because an archive that waiting does not fix must not hold up everything after them.
//! Alerts report when that begins, and how many were skipped when it ends.
//!
//! Invariants: no write without a permit of the breaker; [`ArchiveControl`] reads no clock, and the same calls
//! at the same times give the same results.

use std::time::Duration;

use crate::book::RuleBook;
use crate::book::connectors::Endpoint;
use crate::limits;
use crate::policy::breaker::{
    Admission, Breaker, BreakerPhase, BreakerSettings, BreakerState, CallEnd, Observation, Permit, RawBreaker,
};
use crate::policy::catalog::{self, DependencyKind};
use crate::time::Timestamp;

/// The catalog policy whose delays are used.
const WAITS_LIKE: &str = "webhook";

#[derive(Clone, Debug, PartialEq)]
pub struct ArchiveRule {
    pub endpoint: Endpoint,
    pub timeout: Duration,
    pub breaker: BreakerSettings,
    /// `None`: forever.
    pub retention: Option<Duration>,
}

impl ArchiveRule {
    /// `None` without an archive.
    #[must_use]
    pub fn of(book: &RuleBook) -> Option<Self> {
        let sections = book.sections();
        let archive = sections.archive.as_ref()?;
        let named = archive.breaker.as_ref().and_then(|at| sections.breaker_named(&at.value));
        Some(Self {
            endpoint: archive.endpoint.clone(),
            timeout: archive.timeout.unwrap_or(limits::ARCHIVE_TIMEOUT_DEFAULT),
            breaker: named.map_or_else(|| breaker_of(&archive.endpoint), |entry| entry.settings),
            retention: archive.retention,
        })
    }
}

fn breaker_of(endpoint: &Endpoint) -> BreakerSettings {
    let own = endpoint.connector.dependency.and_then(DependencyKind::breaker);
    let entry = own
        .or_else(|| DependencyKind::Blob.breaker())
        .expect("the catalog has a breaker for stores of files");
    BreakerSettings::try_from(RawBreaker::from(entry)).expect("the catalog's breakers are sound")
}

/// Why a write failed, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveWriteFailure {
    /// With the wait it asked for, if any.
    Throttled {
        retry_after: Option<Duration>,
    },
    TimedOut,
    /// Access denied: needs an operator.
    LockedOut,
    Other,
}

/// What to do with the current event.
#[derive(Debug)]
pub enum ArchiveAction {
    Write {
        permit: Permit,
        within: Duration,
    },
    Wait(Timestamp),
    /// Skip it: the breaker is open.
    LeaveOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Written; continue with the next.
    Kept,
    /// Not written yet.
    Again,
    /// Skipped; continue with the next.
    LeftOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveChange {
    LockedOut,
    LetIn,
    /// The breaker opened: events are skipped from now on.
    Opened,
    Closed {
        /// Skipped while it was open.
        left_out: u64,
    },
    /// An event was skipped after two timeouts.
    TooSlow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveHealth {
    /// No known problem.
    Well,
    /// Not tried before then.
    Waiting {
        until: Timestamp,
    },
    Open,
}

/// State of the archive from the writes so far.
#[derive(Debug, Default)]
pub struct ArchiveControl {
    breaker: Breaker,
    /// Consecutive failures that were waited out.
    waits: u32,
    wait_until: Option<Timestamp>,
    write_try: WriteTry,
    is_locked_out: bool,
    /// Skipped since the breaker opened.
    left_out: u64,
}

/// The timeout of the current event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WriteTry {
    #[default]
    First,
    /// After one timeout.
    Second,
}

impl ArchiveControl {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Each [`ArchiveAction::LeaveOut`] counts as one skipped event.
    pub fn next_action(&mut self, rule: &ArchiveRule, now: Timestamp) -> ArchiveAction {
        if let Some(until) = self.wait_until.filter(|until| now < *until) {
            return ArchiveAction::Wait(until);
        }
        let within = match self.write_try {
            WriteTry::First => rule.timeout,
            WriteTry::Second => rule.timeout.saturating_mul(2),
        };
        match self.breaker.admit(&rule.breaker, within, now) {
            Admission::Allowed(permit) => ArchiveAction::Write { permit, within },
            Admission::WaitUntil(_) => {
                self.write_try = WriteTry::First;
                self.left_out += 1;
                ArchiveAction::LeaveOut
            }
        }
    }

    /// Returns the permit with the write's result; decides about the event and reports changes.
    pub fn settle(
        &mut self,
        permit: Permit,
        outcome: Result<(), ArchiveWriteFailure>,
        rule: &ArchiveRule,
        now: Timestamp,
    ) -> (WriteOutcome, Option<ArchiveChange>) {
        let (observation, fate, news) = match outcome {
            Ok(()) => (Observation::Success, WriteOutcome::Kept, self.went_well()),
            // A throttling archive is alive.
            Err(ArchiveWriteFailure::Throttled { retry_after }) => {
                self.wait(retry_after, now);
                (Observation::Answered, WriteOutcome::Again, None)
            }
            // Denied access says nothing about the archive's health.
            Err(ArchiveWriteFailure::LockedOut) => {
                self.wait(None, now);
                let is_news = !std::mem::replace(&mut self.is_locked_out, true);
                (Observation::Silent, WriteOutcome::Again, is_news.then_some(ArchiveChange::LockedOut))
            }
            Err(ArchiveWriteFailure::TimedOut) => match std::mem::take(&mut self.write_try) {
                WriteTry::First => {
                    self.write_try = WriteTry::Second;
                    (Observation::Failure(CallEnd::WillRetry), WriteOutcome::Again, None)
                }
                WriteTry::Second => (
                    Observation::Failure(CallEnd::Final),
                    WriteOutcome::LeftOut,
                    Some(ArchiveChange::TooSlow),
                ),
            },
            Err(ArchiveWriteFailure::Other) => {
                self.wait(None, now);
                (Observation::Failure(CallEnd::Final), WriteOutcome::Again, None)
            }
        };
        let transition = self.breaker.settle(permit, observation, &rule.breaker, now);
        let change = transition.and_then(|transition| match transition.to {
            BreakerPhase::Open => {
                // Nothing is waited for any more: events are skipped.
                self.wait_until = None;
                // A failed probe is not reported.
                (transition.from == BreakerPhase::Closed).then_some(ArchiveChange::Opened)
            }
            BreakerPhase::Closed => {
                Some(ArchiveChange::Closed { left_out: std::mem::take(&mut self.left_out) })
            }
            BreakerPhase::HalfOpen => None,
        });
        (fate, change.or(news))
    }

    #[must_use]
    pub fn standing(&self, now: Timestamp) -> ArchiveHealth {
        match (self.wait_until.filter(|until| now < *until), self.breaker.state(now)) {
            (_, BreakerState::Open { .. } | BreakerState::HalfOpen { .. }) => ArchiveHealth::Open,
            (Some(until), BreakerState::Closed { .. }) => ArchiveHealth::Waiting { until },
            (None, BreakerState::Closed { .. }) => ArchiveHealth::Well,
        }
    }

    fn went_well(&mut self) -> Option<ArchiveChange> {
        self.waits = 0;
        self.wait_until = None;
        self.write_try = WriteTry::First;
        std::mem::take(&mut self.is_locked_out).then_some(ArchiveChange::LetIn)
    }

    /// Waits as the policy says, or as long as the archive asked if that is longer.
    fn wait(&mut self, asked_for: Option<Duration>, now: Timestamp) {
        let policy = catalog::policy(WAITS_LIKE).expect("the catalog has it");
        let asked_for = asked_for.unwrap_or_default().min(limits::RETRY_AFTER_MAX);
        self.wait_until = Some(now + policy.backoff.nominal(self.waits).max(asked_for));
        self.waits = self.waits.saturating_add(1);
        self.write_try = WriteTry::First;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book;
    use crate::book::connectors::built_in;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    fn rule_of(archive: &str) -> Option<ArchiveRule> {
        let text = format!(
            "version: 1\nservices:\n  a:\n    target: {{ log: stdout }}\n    events: [x.y]\n{archive}"
        );
        let reading = book::read(&text, built_in());
        ArchiveRule::of(&reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems)))
    }

    /// What a write comes to.
    type CameTo = Result<(), ArchiveWriteFailure>;

    /// Plays turns at these times: each line is a time, what a write would come to, and what is expected.
    fn play(steps: &[(u64, CameTo, &str)]) {
        let rule = rule_of("archive: { folder: /a }\n").expect("it has one");
        let mut care = ArchiveControl::new();
        for (number, (millis, outcome, expected)) in steps.iter().enumerate() {
            let now = at(*millis);
            let came_to = match care.next_action(&rule, now) {
                ArchiveAction::Wait(until) => format!("wait {}", until.since(now).as_millis()),
                ArchiveAction::LeaveOut => "leave out".to_owned(),
                ArchiveAction::Write { permit, within } => {
                    let (fate, news) = care.settle(permit, *outcome, &rule, now);
                    let news = news.map(|news| format!(", {news:?}")).unwrap_or_default();
                    format!("{}s {fate:?}{news}", within.as_secs())
                }
            };
            assert_eq!(came_to, *expected, "step {number} at {millis}");
        }
    }

    const OK: CameTo = Ok(());
    /// Nobody writes then.
    const NONE: CameTo = Ok(());
    const SLOW: CameTo = Err(ArchiveWriteFailure::TimedOut);
    const LOCKED: CameTo = Err(ArchiveWriteFailure::LockedOut);
    const OTHER: CameTo = Err(ArchiveWriteFailure::Other);
    const THROTTLED: CameTo = Err(ArchiveWriteFailure::Throttled { retry_after: None });

    const fn throttled(seconds: u64) -> CameTo {
        Err(ArchiveWriteFailure::Throttled { retry_after: Some(Duration::from_secs(seconds)) })
    }

    #[test]
    fn a_book_says_where_it_is_or_that_there_is_none() {
        assert_eq!(rule_of(""), None);
        let rule = rule_of("archive: { folder: /a }\n").expect("it has one");
        assert_eq!((rule.timeout, rule.retention), (Duration::from_secs(5), None));
        assert_eq!(rule.breaker.open(), Duration::from_secs(10), "that of its kind");
        let rule = rule_of("archive: { folder: /a, timeout: 1s, breaker: stateBreaker, retention: 90d }\n");
        let rule = rule.expect("it has one");
        assert_eq!((rule.timeout, rule.breaker.open()), (Duration::from_secs(1), Duration::from_secs(30)));
        assert_eq!(rule.retention, Some(Duration::from_hours(90 * 24)));
    }

    #[test]
    fn an_archive_that_asks_to_slow_down_is_waited_for_and_longer_each_time() {
        #[rustfmt::skip]
        play(&[
            (0,     THROTTLED,        "5s Again"),
            (0,     NONE,             "wait 100"),
            (100,   THROTTLED,        "5s Again"),
            (100,   NONE,             "wait 200"),
            (300,   throttled(7), "5s Again"),
            (300,   NONE,             "wait 7000"),
            (7_300, OK,               "5s Kept"),
            (7_300, THROTTLED,        "5s Again"),
            (7_300, NONE,             "wait 100"),
        ]);
        let many: Vec<_> = (0..20).map(|n| (n * 20_000, THROTTLED, "5s Again")).collect();
        play(&[&many[..], &[(380_000, NONE, "wait 16000"), (400_000, OK, "5s Kept")]].concat());
    }

    #[test]
    fn asking_to_slow_down_for_ever_is_cut_short() {
        play(&[(0, throttled(u64::MAX), "5s Again"), (0, NONE, "wait 86400000")]);
    }

    #[test]
    fn an_event_that_is_too_slow_gets_twice_the_time_and_is_then_left_out() {
        #[rustfmt::skip]
        play(&[
            (0,  SLOW, "5s Again"),
            (5,  OK,   "10s Kept"),
            (6,  SLOW, "5s Again"),
            (11, SLOW, "10s LeftOut, TooSlow"),
            (21, OK,   "5s Kept"),
        ]);
    }

    #[test]
    fn an_archive_that_lets_nobody_in_is_told_of_once_and_waited_for() {
        #[rustfmt::skip]
        play(&[
            (0,      LOCKED, "5s Again, LockedOut"),
            (0,      NONE,   "wait 100"),
            (100,    LOCKED, "5s Again"),
            (1_000,  LOCKED, "5s Again"),
            (2_000,  LOCKED, "5s Again"),
            (3_000,  OK,     "5s Kept, LetIn"),
            (3_000,  LOCKED, "5s Again, LockedOut"),
        ]);
    }

    #[test]
    fn an_open_breaker_leaves_events_out_and_says_how_many_at_the_end() {
        #[rustfmt::skip]
        play(&[
            (0,      OTHER, "5s Again"),
            (0,      NONE,  "wait 100"),
            (100,    OTHER, "5s Again"),
            (300,    OTHER, "5s Again, Opened"),
            (300,    NONE,  "leave out"),
            (300,    NONE,  "leave out"),
            (10_299, NONE,  "leave out"),
            (10_300, OTHER, "5s Again"),
            (10_300, NONE,  "leave out"),
            (20_300, OK,    "5s Kept"),
            (20_300, OK,    "5s Kept, Closed { left_out: 4 }"),
            (20_300, OK,    "5s Kept"),
        ]);
    }

    #[test]
    fn a_breaker_that_opens_while_an_event_is_tried_again_leaves_it_out() {
        #[rustfmt::skip]
        play(&[
            (0, OTHER, "5s Again"),
            (1_000, OTHER, "5s Again"),
            (2_000, SLOW,  "5s Again, Opened"),
            (2_000, NONE,  "leave out"),
            (12_000, SLOW, "5s Again"),
            (12_000, NONE, "leave out"),
            (22_000, OK,   "5s Kept"),
        ]);
    }

    #[test]
    fn how_it_is_can_be_seen() {
        let rule = rule_of("archive: { folder: /a }\n").expect("it has one");
        let mut care = ArchiveControl::new();
        assert_eq!(care.standing(at(0)), ArchiveHealth::Well);
        for millis in [0, 1_000, 2_000] {
            let ArchiveAction::Write { permit, .. } = care.next_action(&rule, at(millis)) else {
                panic!("it is closed")
            };
            care.settle(permit, Err(ArchiveWriteFailure::Other), &rule, at(millis));
            if millis == 0 {
                assert_eq!(care.standing(at(0)), ArchiveHealth::Waiting { until: at(100) });
            }
        }
        assert_eq!(care.standing(at(2_000)), ArchiveHealth::Open);
        assert_eq!(care.standing(at(99_000)), ArchiveHealth::Open, "until a probe gets through");
    }
}
