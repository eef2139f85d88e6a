//! Decides what to log about a cached value while its provider is unavailable.
//!
//! Invariants: one warning a minute at most, one alert per outage, and every recovery is reported.

use std::fmt::Display;
use std::time::Duration;

use redrive_core::time::Timestamp;

use redrive::clock::wall_clock;
use redrive::stale::{Ailing, Ailment, Found, Missing};

/// How often a failing fetch is logged.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// The state of a cached value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    /// The last fetch failed; the old value is still served.
    Failing,
    /// No value can be served.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    None,
    /// Fetches fail.
    Warned {
        at: Timestamp,
    },
    /// No value can be served.
    Alerted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Nothing,
    /// Fetches fail; the old value is still served.
    Warning,
    /// No value can be served.
    Alert,
    /// Fetches succeed again.
    Recovered,
    /// A value can be served again.
    Back,
}

impl Health {
    pub(crate) fn of<T, E>(found: &Result<Found<T, E>, Missing<E>>) -> Self {
        match found {
            Ok(Found { failure: None, .. }) => Self::Well,
            Ok(Found { failure: Some(_), .. }) => Self::Failing,
            Err(_) => Self::Gone,
        }
    }
}

impl Outage {
    pub(crate) fn hear(&mut self, health: Health, now: Timestamp) -> Word {
        let (next, word) = match (*self, health) {
            (Self::None, Health::Well) => (Self::None, Word::Nothing),
            (Self::Warned { .. }, Health::Well) => (Self::None, Word::Recovered),
            (Self::Alerted, Health::Well) => (Self::None, Word::Back),
            (Self::Warned { at }, Health::Failing) if now.since(at) < WARN_EVERY => {
                (Self::Warned { at }, Word::Nothing)
            }
            (Self::None | Self::Warned { .. }, Health::Failing) => (Self::Warned { at: now }, Word::Warning),
            // A reloaded book with a longer lifetime revived an old value.
            (Self::Alerted, Health::Failing) => (Self::Warned { at: now }, Word::Back),
            (Self::None | Self::Warned { .. }, Health::Gone) => (Self::Alerted, Word::Alert),
            (Self::Alerted, Health::Gone) => (Self::Alerted, Word::Nothing),
        };
        *self = next;
        word
    }
}

/// What was reported, and the current problem.
#[derive(Debug)]
pub(crate) struct Record {
    outage: Outage,
    ailing: Option<Ailing>,
}

impl Record {
    pub(crate) const fn new() -> Self {
        Self { outage: Outage::None, ailing: None }
    }

    pub(crate) fn hear<T, E: Display>(
        &mut self,
        found: &Result<Found<T, E>, Missing<E>>,
        now: Timestamp,
    ) -> Word {
        let ailment = match found {
            Ok(Found { failure: None, .. }) => None,
            Ok(Found { failure: Some(why), .. }) => Some((Ailment::Stale, why)),
            Err(Missing { failure: why, .. }) => Some((Ailment::Gone, why)),
        };
        self.ailing = ailment.map(|(state, why)| {
            // An outage keeps the time at which it began, even if the error changes.
            let begun = self.ailing.as_ref().filter(|before| before.state == state);
            let since = begun.map_or_else(wall_clock, |before| before.since);
            Ailing { state, since, why: why.to_string() }
        });
        self.outage.hear(Health::of(found), now)
    }

    /// The current problem, if any.
    pub(crate) fn ailing(&self) -> Option<Ailing> {
        self.ailing.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_said_once() {
        use Health::{Failing, Gone, Well};
        #[rustfmt::skip]
        let steps = [
            ("all is well",              0,   Well,    Word::Nothing),
            ("the provider is away",     10,  Failing, Word::Warning),
            ("which was said",           69,  Failing, Word::Nothing),
            ("a minute ago",             70,  Failing, Word::Warning),
            ("for too long",             80,  Gone,    Word::Alert),
            ("which was said",           999, Gone,    Word::Nothing),
            ("it is back",               999, Well,    Word::Back),
            ("which was said",           999, Well,    Word::Nothing),
            ("a short outage",           999, Failing, Word::Warning),
            ("is over",                  999, Well,    Word::Recovered),
            ("nothing from the start",   999, Gone,    Word::Alert),
            ("kept for longer now",      999, Failing, Word::Back),
        ];
        let mut outage = Outage::None;
        for (name, seconds, health, expected) in steps {
            let now = Timestamp::EPOCH + Duration::from_secs(seconds);
            assert_eq!(outage.hear(health, now), expected, "{name} at {seconds} s");
        }
    }
}
