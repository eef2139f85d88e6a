//! Freshness of a fetched value: fresh, stale but usable, or gone.
//!
//! Invariants: a value is used no longer than `kept` after its last successful fetch, unless it is still fresh;
//! while a failure is remembered, no fetch is attempted.

use std::time::Duration;

use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// After a successful fetch: no new fetch for this long.
    pub fresh: Duration,
    /// After the last successful fetch: usable for this long.
    pub kept: Duration,
    /// After a failed fetch: no new attempt for this long.
    pub failure: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Last successful fetch.
    pub fetched_at: Option<Timestamp>,
    /// Last failed fetch, if none has succeeded since.
    pub failed_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    Fresh,
    /// Use it, and fetch in the background.
    Refresh,
    /// Use it and mark it as stale: a fetch failed recently.
    Stale,
    /// Nothing to use: fetch and wait.
    Gone,
    /// Nothing to use, and a fetch failed recently.
    NotYet,
}

#[must_use]
pub fn freshness(past: Past, lifetimes: &Lifetimes, now: Timestamp) -> Freshness {
    let is_within = |at: Option<Timestamp>, span| at.is_some_and(|at| now.since(at) < span);
    if is_within(past.fetched_at, lifetimes.fresh) {
        return Freshness::Fresh;
    }
    let serves = is_within(past.fetched_at, lifetimes.kept);
    let has_just_failed = is_within(past.failed_at, lifetimes.failure);
    match (serves, has_just_failed) {
        (true, false) => Freshness::Refresh,
        (true, true) => Freshness::Stale,
        (false, false) => Freshness::Gone,
        (false, true) => Freshness::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes {
        fresh: Duration::from_mins(5),
        kept: Duration::from_mins(30),
        failure: Duration::from_secs(5),
    };

    /// So many seconds after the clock began.
    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    #[test]
    fn what_was_fetched_is_fresh_then_past_its_time_then_gone() {
        use Freshness::{Fresh, Gone, NotYet, Refresh, Stale};
        #[rustfmt::skip]
        let cases = [
            ("nothing was ever fetched",              None,    None,         0,     Gone),
            ("the first fetch has just failed",       None,    Some(0),      4,     NotYet),
            ("a failure is forgotten in time",        None,    Some(0),      5,     Gone),
            ("it has just come",                      Some(0), None,         0,     Fresh),
            ("fresh to the last",                     Some(0), None,         299,   Fresh),
            ("and not longer",                        Some(0), None,         300,   Refresh),
            ("nobody asked for a long time",          Some(0), None,         1_799, Refresh),
            ("nobody asked for too long",             Some(0), None,         1_800, Gone),
            ("a failure does not spoil what is fresh", Some(0), Some(100),   101,   Fresh),
            ("past its time, and a fetch failed",     Some(0), Some(300),    304,   Stale),
            ("it is tried again",                     Some(0), Some(300),    305,   Refresh),
            ("to the last",                           Some(0), Some(1_799),  1_799, Stale),
            ("and not longer",                        Some(0), Some(1_799),  1_800, NotYet),
            ("tried again with nothing in hand",      Some(0), Some(1_799),  1_804, Gone),
        ];
        for (name, fetched_at, failed_at, now, expected) in cases {
            let past = Past { fetched_at: fetched_at.map(at), failed_at: failed_at.map(at) };
            assert_eq!(freshness(past, &LIFETIMES, at(now)), expected, "{name} at {now} s");
        }
    }

    #[test]
    fn odd_lifetimes_have_a_meaning_too() {
        let short = Lifetimes { kept: Duration::ZERO, ..LIFETIMES };
        let past = Past { fetched_at: Some(at(0)), failed_at: None };
        assert_eq!(freshness(past, &short, at(299)), Freshness::Fresh, "what is fresh is not dropped");
        assert_eq!(freshness(past, &short, at(300)), Freshness::Gone);
        let eager = Lifetimes { failure: Duration::ZERO, ..LIFETIMES };
        let failed = Past { fetched_at: None, failed_at: Some(at(0)) };
        assert_eq!(freshness(failed, &eager, at(0)), Freshness::Gone, "no failure is remembered");
        assert_eq!(freshness(past, &LIFETIMES, Timestamp::EPOCH), Freshness::Fresh, "a clock that was set");
    }
}
