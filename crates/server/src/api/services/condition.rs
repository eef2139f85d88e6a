//! Judges how a service is, from a few signs: one word for the page, and why.
//!
//! The worst that is true is told: what keeps everything from starting before what fails, and what fails
//! before what only lags.

use std::time::Duration;

use redrive::core::time::Timestamp;
use redrive::node::Lately;

use crate::api::shape::services::HealthWord;
use crate::show::moment::{moment, rough};

/// So few attempts say nothing about how many fail.
const ATTEMPTS_MIN: u64 = 5;
/// One in so many failed attempts is failing.
const FAILING_ONE_IN: u64 = 2;
/// One in so many is degraded.
const DEGRADED_ONE_IN: u64 = 20;
/// What has waited for longer lags.
const BACKLOG_MAX: Duration = Duration::from_mins(1);
/// After so long without an attempt there is nothing to do.
const IDLE_AFTER: Duration = Duration::from_mins(5);

/// What a service is judged by.
#[derive(Clone, Debug)]
pub(in crate::api) struct Signs {
    pub paused_since: Option<Timestamp>,
    pub is_removed: bool,
    /// What keeps it from starting anything, in words.
    pub held: Option<String>,
    pub lately: Lately,
    pub waiting: u64,
    pub oldest_waiting_at: Option<Timestamp>,
    /// When the server started: before that nothing is known.
    pub started_at: Timestamp,
    pub now: Timestamp,
}

/// How it is, and why.
pub(in crate::api) fn judge(signs: &Signs) -> (HealthWord, String) {
    let Signs { paused_since, is_removed, held, lately, waiting, oldest_waiting_at, started_at, now } = signs;
    if let Some(since) = paused_since {
        return (HealthWord::Paused, format!("paused since {}", moment(*since)));
    }
    if *is_removed {
        return (HealthWord::Removed, "the rule book has it no more, and what waits stays".to_owned());
    }
    if let Some(because) = held {
        return (HealthWord::Held, because.clone());
    }
    let Lately { attempts, failed, .. } = *lately;
    let is_told = attempts >= ATTEMPTS_MIN;
    let failures = || format!("{failed} of {attempts} attempts failed in the last minute");
    if is_told && failed * FAILING_ONE_IN >= attempts {
        return (HealthWord::Failing, failures());
    }
    if is_told && failed * DEGRADED_ONE_IN >= attempts {
        return (HealthWord::Degraded, failures());
    }
    let waited = oldest_waiting_at.filter(|_| *waiting > 0).map(|since| now.since(since));
    if let Some(waited) = waited.filter(|waited| *waited > BACKLOG_MAX) {
        return (HealthWord::Degraded, format!("the oldest delivery has waited for {}", rough(waited)));
    }
    // A young server has not been idle for longer than it has been there.
    let active_at = lately.active_at.unwrap_or(*started_at);
    if *waiting == 0 && now.since(active_at) > IDLE_AFTER {
        return (HealthWord::Idle, "nothing was tried for 5 minutes".to_owned());
    }
    let why = match (attempts, failed) {
        (0, _) => "nothing has failed".to_owned(),
        (_, 0) => format!("all attempts of the last minute succeeded, {attempts} in all"),
        (_, _) => failures(),
    };
    (HealthWord::Well, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_worst_that_is_true_is_told() {
        use HealthWord::{Degraded, Failing, Held, Idle, Paused, Removed, Well};
        let lately =
            |attempts, failed| Lately { attempts, failed, active_at: Some(at(995)), ..Lately::default() };
        let well = Signs {
            paused_since: None,
            is_removed: false,
            held: None,
            lately: lately(100, 0),
            waiting: 0,
            oldest_waiting_at: None,
            started_at: at(0),
            now: at(1_000),
        };
        let (paused, held) = (Some(at(900)), Some("the breaker of db is open".to_owned()));
        #[rustfmt::skip]
        let cases = [
            ("all succeeds",                   well.clone(),                                                                   Well),
            ("paused before removed",          Signs { paused_since: paused, is_removed: true, ..well.clone() },               Paused),
            ("removed before held",            Signs { is_removed: true, held: held.clone(), ..well.clone() },                 Removed),
            ("held before failing",            Signs { held, lately: lately(10, 10), ..well.clone() },                         Held),
            ("half of it fails",               Signs { lately: lately(10, 5), ..well.clone() },                                Failing),
            ("nearly half",                    Signs { lately: lately(11, 5), ..well.clone() },                                Degraded),
            ("four failures are too few",      Signs { lately: lately(4, 4), ..well.clone() },                                 Well),
            ("five are enough",                Signs { lately: lately(5, 5), ..well.clone() },                                 Failing),
            ("one in twenty",                  Signs { lately: lately(20, 1), ..well.clone() },                                Degraded),
            ("one in twenty-one",              Signs { lately: lately(21, 1), ..well.clone() },                                Well),
            ("a backlog of a minute",          Signs { waiting: 1, oldest_waiting_at: Some(at(940)), ..well.clone() },         Well),
            ("a second longer",                Signs { waiting: 1, oldest_waiting_at: Some(at(939)), ..well.clone() },         Degraded),
            ("failing before a backlog",       Signs { waiting: 1, oldest_waiting_at: Some(at(1)), lately: lately(9, 9), ..well.clone() }, Failing),
            ("nothing tried for 5 minutes",    Signs { lately: Lately { active_at: Some(at(699)), ..Lately::default() }, ..well.clone() }, Idle),
            ("nothing since an old start",     Signs { lately: Lately::default(), ..well.clone() },                            Idle),
            ("nothing since a recent start",   Signs { lately: Lately::default(), started_at: at(990), ..well.clone() },       Well),
            ("one that waits is not idle",     Signs { waiting: 1, oldest_waiting_at: Some(at(990)), lately: Lately::default(), ..well }, Well),
        ];
        for (name, signs, expected) in cases {
            let (word, why) = judge(&signs);
            assert_eq!(word, expected, "{name}");
            assert!(!why.is_empty(), "{name}");
        }
    }
}
