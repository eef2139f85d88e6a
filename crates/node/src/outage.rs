//! Decides what to log about a cached value while its provider is unavailable.
//!
//! Invariants: one warning a minute at most, one alert per outage, and every recovery is reported.

use std::fmt::Display;
use std::time::Duration;

use redrive_core::time::Timestamp;

use redrive::clock::wall_clock;
use redrive::stale::{Cached, Missing, Unavailability, UnavailableValue};

const WARN_EVERY: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchHealth {
    Well,
    /// The last fetch failed; the old value is still served.
    Failing,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderOutage {
    None,
    Warned { at: Timestamp },
    Alerted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageReport {
    Nothing,
    /// Fetches fail; the old value is still served.
    Warning,
    Alert,
    Recovered,
    Back,
}

impl FetchHealth {
    pub(crate) fn of<T, E>(found: &Result<Cached<T, E>, Missing<E>>) -> Self {
        match found {
            Ok(Cached { failure: None, .. }) => Self::Well,
            Ok(Cached { failure: Some(_), .. }) => Self::Failing,
            Err(_) => Self::Gone,
        }
    }
}

impl ProviderOutage {
    pub(crate) fn observe(&mut self, health: FetchHealth, now: Timestamp) -> OutageReport {
        let (next, report) = match (*self, health) {
            (Self::None, FetchHealth::Well) => (Self::None, OutageReport::Nothing),
            (Self::Warned { .. }, FetchHealth::Well) => (Self::None, OutageReport::Recovered),
            (Self::Alerted, FetchHealth::Well) => (Self::None, OutageReport::Back),
            (Self::Warned { at }, FetchHealth::Failing) if now.since(at) < WARN_EVERY => {
                (Self::Warned { at }, OutageReport::Nothing)
            }
            (Self::None | Self::Warned { .. }, FetchHealth::Failing) => {
                (Self::Warned { at: now }, OutageReport::Warning)
            }
            // A reloaded book with a longer lifetime revived an old value.
            (Self::Alerted, FetchHealth::Failing) => (Self::Warned { at: now }, OutageReport::Back),
            (Self::None | Self::Warned { .. }, FetchHealth::Gone) => (Self::Alerted, OutageReport::Alert),
            (Self::Alerted, FetchHealth::Gone) => (Self::Alerted, OutageReport::Nothing),
        };
        *self = next;
        report
    }
}

/// What was reported, and the current problem.
#[derive(Debug)]
pub(crate) struct OutageRecord {
    outage: ProviderOutage,
    failing: Option<UnavailableValue>,
}

impl OutageRecord {
    pub(crate) const fn new() -> Self {
        Self { outage: ProviderOutage::None, failing: None }
    }

    pub(crate) fn observe<T, E: Display>(
        &mut self,
        found: &Result<Cached<T, E>, Missing<E>>,
        now: Timestamp,
    ) -> OutageReport {
        let problem = match found {
            Ok(Cached { failure: None, .. }) => None,
            Ok(Cached { failure: Some(why), .. }) => Some((Unavailability::Stale, why)),
            Err(Missing { failure: why, .. }) => Some((Unavailability::Gone, why)),
        };
        self.failing = problem.map(|(state, why)| {
            // An outage keeps the time at which it began, even if the error changes.
            let begun = self.failing.as_ref().filter(|before| before.state == state);
            let since = begun.map_or_else(wall_clock, |before| before.since);
            UnavailableValue { state, since, why: why.to_string() }
        });
        self.outage.observe(FetchHealth::of(found), now)
    }

    pub(crate) fn failing(&self) -> Option<UnavailableValue> {
        self.failing.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_said_once() {
        use FetchHealth::{Failing, Gone, Well};
        #[rustfmt::skip]
        let steps = [
            ("all is well",              0,   Well,    OutageReport::Nothing),
            ("the provider is away",     10,  Failing, OutageReport::Warning),
            ("which was said",           69,  Failing, OutageReport::Nothing),
            ("a minute ago",             70,  Failing, OutageReport::Warning),
            ("for too long",             80,  Gone,    OutageReport::Alert),
            ("which was said",           999, Gone,    OutageReport::Nothing),
            ("it is back",               999, Well,    OutageReport::Back),
            ("which was said",           999, Well,    OutageReport::Nothing),
            ("a short outage",           999, Failing, OutageReport::Warning),
            ("is over",                  999, Well,    OutageReport::Recovered),
            ("nothing from the start",   999, Gone,    OutageReport::Alert),
            ("kept for longer now",      999, Failing, OutageReport::Back),
        ];
        let mut outage = ProviderOutage::None;
        for (name, seconds, health, expected) in steps {
            let now = Timestamp::EPOCH + Duration::from_secs(seconds);
            assert_eq!(outage.observe(health, now), expected, "{name} at {seconds} s");
        }
    }
}
