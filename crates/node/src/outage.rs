//! What is worth saying of something cached while its provider is away, so that nobody reads it a thousand
//! times.
//!
//! Invariants: a warning at most once a minute, one alert for each outage, and every end of one is told.

use std::fmt::Display;
use std::time::Duration;

use redrive_core::time::Timestamp;

use redrive::clock::wall_clock;
use redrive::stale::{Ailing, Ailment, Found, Missing};

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

/// What was said of a thing, and what is wrong with it for whoever asks later.
#[derive(Debug)]
pub(crate) struct Record {
    outage: Outage,
    ailing: Option<Ailing>,
}

impl Record {
    /// Nothing was said yet.
    pub(crate) const fn new() -> Self {
        Self { outage: Outage::None, ailing: None }
    }

    /// Hears what was found of the thing.
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
            // Of one outage only its beginning is told, whatever is found wrong in the course of it.
            let begun = self.ailing.as_ref().filter(|before| before.state == state);
            let since = begun.map_or_else(wall_clock, |before| before.since);
            Ailing { state, since, why: why.to_string() }
        });
        self.outage.hear(Health::of(found), now)
    }

    /// What is wrong with it, if anything is.
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
