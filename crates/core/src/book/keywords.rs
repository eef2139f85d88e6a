//! Settings that are one of a few keywords: one list serves the schema, the parser and the reports.

use super::model::{
    ConsumerPattern, Criticality, DataLoss, DeliveryOrder, Direction, IdempotencyBy, LetterForm,
    QueueFullAction, Reprocess, ViolationAction,
};
use crate::policy::breaker::CountingUnit;
use crate::policy::rule::WhenOpen;

pub trait Keyword: Copy + PartialEq + 'static {
    const ALL: &'static [Self];
    /// The keywords in rule books, in the order of `ALL`.
    const WORDS: &'static [&'static str];

    fn from_word(word: &str) -> Option<Self> {
        let place = Self::WORDS.iter().position(|known| *known == word)?;
        Self::ALL.get(place).copied()
    }

    #[must_use]
    fn as_word(self) -> &'static str {
        let place = Self::ALL.iter().position(|known| *known == self);
        Self::WORDS[place.expect("every value is in the list")]
    }
}

impl Keyword for WhenOpen {
    const ALL: &'static [Self] = &[Self::Hold, Self::DeadLetter];
    const WORDS: &'static [&'static str] = &["hold", "dead-letter"];
}

impl Keyword for QueueFullAction {
    const ALL: &'static [Self] = &[Self::Refuse, Self::DeadLetter];
    const WORDS: &'static [&'static str] = &["refuse", "dead-letter"];
}

impl Keyword for ViolationAction {
    const ALL: &'static [Self] = &[Self::Refuse, Self::DeadLetter];
    const WORDS: &'static [&'static str] = &["refuse", "dead-letter"];
}

impl Keyword for Criticality {
    const ALL: &'static [Self] = &[Self::Low, Self::Medium, Self::High, Self::Critical];
    const WORDS: &'static [&'static str] = &["low", "medium", "high", "critical"];
}

impl Keyword for DataLoss {
    const ALL: &'static [Self] = &[Self::Acceptable, Self::NotAcceptable];
    const WORDS: &'static [&'static str] = &["acceptable", "not-acceptable"];
}

impl Keyword for IdempotencyBy {
    const ALL: &'static [Self] = &[Self::EventId, Self::NotificationId, Self::Nothing];
    const WORDS: &'static [&'static str] = &["event-id", "notification-id", "none"];
}

impl Keyword for ConsumerPattern {
    const ALL: &'static [Self] =
        &[Self::EventId, Self::Upsert, Self::StateCheck, Self::Outbox, Self::Nothing];
    const WORDS: &'static [&'static str] = &["event-id", "upsert", "state-check", "outbox", "nothing"];
}

impl Keyword for LetterForm {
    const ALL: &'static [Self] = &[Self::Envelope, Self::Redis];
    const WORDS: &'static [&'static str] = &["envelope", "redis"];
}

impl Keyword for Reprocess {
    const ALL: &'static [Self] = &[Self::Manual, Self::Automatic, Self::Filtered];
    const WORDS: &'static [&'static str] = &["manual", "automatic", "filtered"];
}

impl Keyword for DeliveryOrder {
    const ALL: &'static [Self] = &[Self::None, Self::Session, Self::SessionStrict];
    const WORDS: &'static [&'static str] = &["none", "session", "session-strict"];
}

impl Keyword for CountingUnit {
    const ALL: &'static [Self] = &[Self::Attempt, Self::Call];
    const WORDS: &'static [&'static str] = &["attempt", "call"];
}

impl Keyword for Direction {
    const ALL: &'static [Self] = &[Self::Outbound, Self::Inbound];
    const WORDS: &'static [&'static str] = &["outbound", "inbound"];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Keyword + std::fmt::Debug>() {
        assert_eq!(T::ALL.len(), T::WORDS.len(), "{:?}", T::WORDS);
        for (value, word) in T::ALL.iter().zip(T::WORDS) {
            assert_eq!((value.as_word(), T::from_word(word)), (*word, Some(*value)));
        }
        assert_eq!(T::from_word("no such word"), None);
    }

    #[test]
    fn every_value_has_its_word() {
        check::<WhenOpen>();
        check::<QueueFullAction>();
        check::<Criticality>();
        check::<DataLoss>();
        check::<IdempotencyBy>();
        check::<ConsumerPattern>();
        check::<LetterForm>();
        check::<Reprocess>();
        check::<DeliveryOrder>();
        check::<CountingUnit>();
        check::<Direction>();
    }
}
