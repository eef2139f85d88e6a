//! What is worth saying of something cached while its provider is away, so that nobody reads it a thousand
//! times.
//!
//! Invariants: a warning at most once a minute, one alert for each outage, and every end of one is told.

use std::time::Duration;

use redrive_core::time::Timestamp;

use super::{Found, Missing};

/// How often it is said that something cannot be fetched.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// How the thing is, for whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The last fetch went well.
    Well,
    /// The last fetch failed, and what was fetched before serves.
    Failing,
    /// There is nothing to serve.
    Gone,
}

/// What was last said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Nothing.
    None,
    /// That it cannot be fetched.
    Warned {
        /// When.
        at: Timestamp,
    },
    /// That there is nothing to serve.
    Alerted,
}

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nothing that was not said before.
    Nothing,
    /// It cannot be fetched, and serves on.
    Warning,
    /// It cannot be had.
    Alert,
    /// It can be fetched again.
    Recovered,
    /// It can be had again.
    Back,
}

impl Health {
    /// How a thing is of which this was found.
    pub(crate) fn of<T, E>(found: &Result<Found<T, E>, Missing<E>>) -> Self {
        match found {
            Ok(Found { failure: None, .. }) => Self::Well,
            Ok(Found { failure: Some(_), .. }) => Self::Failing,
            Err(_) => Self::Gone,
        }
    }
}

impl Outage {
    /// Hears how the thing is now.
    pub(crate) fn hear(&mut self, health: Health, now: Timestamp) -> Word {
        let (next, word) = match (*self, health) {
            (Self::None, Health::Well) => (Self::None, Word::Nothing),
            (Self::Warned { .. }, Health::Well) => (Self::None, Word::Recovered),
            (Self::Alerted, Health::Well) => (Self::None, Word::Back),
            (Self::Warned { at }, Health::Failing) if now.since(at) < WARN_EVERY => {
                (Self::Warned { at }, Word::Nothing)
            }
            (Self::None | Self::Warned { .. }, Health::Failing) => (Self::Warned { at: now }, Word::Warning),
            // A book that keeps values for longer has brought an old one back.
            (Self::Alerted, Health::Failing) => (Self::Warned { at: now }, Word::Back),
            (Self::None | Self::Warned { .. }, Health::Gone) => (Self::Alerted, Word::Alert),
            (Self::Alerted, Health::Gone) => (Self::Alerted, Word::Nothing),
        };
        *self = next;
        word
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
