//! Dead letters: of which kind each is, and which are meant.
//!
//! Invariant: a kind counts the letters of it.

use std::collections::BTreeMap;

use redrive_core::engine::{PendingDelivery, QueueName};
use redrive_core::event::attribute::{CorrelationId, EventSubject, SessionKey};
use redrive_core::ids::{DeliveryId, Seq};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::ReplayId;
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::store_model::{ModelLetter, ModelRow, RowState};
use redrive_core::time::Timestamp;

use super::world::{Extra, World};
use crate::store::LetterClosure;
use crate::store::letter::{
    CommandRefusal, KindId, LetterFilter, LetterNumber, Poison, Selection, TREND_SPAN,
};

/// Letters that agree in all that is counted.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) key: KindKey,
    pub(super) count: u64,
    /// Deaths by span, of letters that have left too.
    pub(super) trend: BTreeMap<u64, u64>,
}

/// What letters of a kind agree in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KindKey {
    pub(super) fingerprint: Fingerprint,
    pub(super) queue: QueueName,
    pub(super) subscription: String,
    pub(super) event_type: String,
    pub(super) category: Category,
    pub(super) code: FailureCode,
    pub(super) failure_code: FailureCode,
    pub(super) tier: Tier,
    pub(super) name: String,
    pub(super) consumer_group: String,
}

/// What a selection makes of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is not meant.
    Not,
    /// It would be, were it not poison.
    Poison,
    /// It is meant, and an open replay has it.
    Claimed(ReplayId),
    /// It is meant.
    Chosen,
}

/// The span of a trend that a moment belongs to.
pub(super) fn span_of(at: Timestamp) -> u64 {
    let span = u64::try_from(TREND_SPAN.as_nanos()).expect("a few minutes");
    at.as_nanos() / span
}

impl World {
    /// Counts letters that there are by now, and those that have gone.
    pub(super) fn count_kinds(&mut self) {
        let gone: Vec<LetterNumber> =
            self.kind_of.keys().copied().filter(|number| self.model.letter(*number).is_none()).collect();
        for number in gone {
            let kind = self.kind_of.remove(&number).expect("it was there");
            self.kinds.get_mut(&kind).expect("a letter has a kind").count -= 1;
        }
        let new: Vec<LetterNumber> =
            self.numbers().into_iter().filter(|number| !self.kind_of.contains_key(number)).collect();
        for number in new {
            let row = self.dead_row(number);
            let RowState::Dead(death) = &row.state else { unreachable!("a letter's delivery is dead") };
            let key = KindKey {
                fingerprint: death.fingerprint,
                queue: (*row.waiting.queue).clone(),
                subscription: row.extra.subscription.to_string(),
                event_type: row.waiting.event.event_type.to_string(),
                category: death.category,
                code: death.code.clone(),
                failure_code: death.failure_code.clone(),
                tier: death.tier,
                name: death.name.clone(),
                consumer_group: death.consumer_group.clone(),
            };
            let kind = self.count_death(key, self.letter_of(number).died_at);
            self.kind_of.insert(number, kind);
        }
    }

    fn count_death(&mut self, key: KindKey, at: Timestamp) -> KindId {
        let known = self.kinds.iter().find(|(_, kind)| kind.key == key).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            let last = self.kinds.last_key_value().map_or(0, |(id, _)| id.0);
            let kind = Kind { key, count: 0, trend: BTreeMap::new() };
            self.kinds.insert(KindId(last + 1), kind);
            KindId(last + 1)
        });
        let kind = self.kinds.get_mut(&id).expect("it is there by now");
        kind.count += 1;
        *kind.trend.entry(span_of(at)).or_default() += 1;
        id
    }

    /// Does with a letter for good; those that it held go on.
    pub(super) fn close_letter(
        &mut self,
        seq: Seq,
        how: LetterClosure,
        now: Timestamp,
    ) -> Option<PendingDelivery> {
        let promoted = self.model.close(seq, now);
        self.model.extra(seq).closed = Some(how);
        self.ending.push_back((now, seq));
        self.count_kinds();
        promoted
    }

    /// Deletes a letter and its stories; those that it held go on.
    pub(super) fn purge_letter(&mut self, number: LetterNumber, now: Timestamp) -> Option<PendingDelivery> {
        let seq = self.letter_of(number).delivery;
        let promoted = self.close_letter(seq, LetterClosure::Purged, now);
        let extra = self.model.extra(seq);
        let (event, stories) = (extra.event, std::mem::take(&mut extra.stories));
        for story in stories {
            self.books.entry(story.book).and_modify(|book| book.stories -= 1);
        }
        if self.events[&event].deliveries().all(|place| self.is_purged(place)) {
            self.empty_event(event);
        }
        promoted
    }

    /// The letter of that id, whoever has claimed it.
    pub(super) fn find_letter(&self, id: DeliveryId) -> Result<LetterNumber, CommandRefusal> {
        let row = self.model.row(id.seq()).filter(|row| row.waiting.id == id);
        row.and_then(|row| row.letter).ok_or(CommandRefusal::NoSuchLetter(id))
    }

    /// The letter of that id, if no open replay has claimed it.
    pub(super) fn free_letter(&self, id: DeliveryId) -> Result<LetterNumber, CommandRefusal> {
        let number = self.find_letter(id)?;
        match self.claimed_by(number) {
            Some(replay) => Err(CommandRefusal::Claimed { letter: id, replay }),
            None => Ok(number),
        }
    }

    /// The open replay that has claimed a letter.
    pub(super) fn claimed_by(&self, number: LetterNumber) -> Option<ReplayId> {
        self.model.claimed_by(self.letter_of(number))
    }

    pub(super) fn letter_of(&self, number: LetterNumber) -> &ModelLetter {
        self.model.letter(number).expect("only a letter that is there is asked for")
    }

    /// The numbers of all letters, the oldest first.
    pub(super) fn numbers(&self) -> Vec<LetterNumber> {
        self.model.letters().map(|(number, _)| number).collect()
    }

    /// The delivery of a letter.
    pub(super) fn dead_row(&self, number: LetterNumber) -> &ModelRow<Extra> {
        self.row(self.letter_of(number).delivery)
    }

    pub(super) fn kind(&self, number: LetterNumber) -> &KindKey {
        &self.kinds[&self.kind_of[&number]].key
    }

    /// What a selection makes of a letter.
    pub(super) fn choice(&self, selection: &Selection, number: LetterNumber) -> Choice {
        let Selection { filter, letters, poison, died_until } = selection;
        let id = self.dead_row(number).waiting.id;
        let is_named = letters.as_ref().is_none_or(|letters| letters.contains(&id));
        if !is_named || number.0 > died_until.as_nanos() || !self.matches(filter, number) {
            return Choice::Not;
        }
        if self.kind(number).tier == Tier::Poison && *poison == Poison::Left {
            return Choice::Poison;
        }
        self.claimed_by(number).map_or(Choice::Chosen, Choice::Claimed)
    }

    /// Whether a filter finds a letter.
    pub(super) fn matches(&self, filter: &LetterFilter, number: LetterNumber) -> bool {
        let row = self.dead_row(number);
        let event = &self.events[&row.extra.event].event;
        let LetterFilter { session, correlation_id, from, until, text, replays_below, .. } = filter;
        let is_session = |wanted: &String| event.session.as_ref().map(SessionKey::as_str) == Some(wanted);
        let is_correlated =
            |wanted: &String| event.correlation_id.as_ref().map(CorrelationId::as_str) == Some(wanted);
        self.kind_matches(filter, self.kind_of[&number])
            && session.as_ref().is_none_or(is_session)
            && correlation_id.as_ref().is_none_or(is_correlated)
            && from.is_none_or(|from| number.0 >= from.as_nanos())
            && until.is_none_or(|until| number.0 < until.as_nanos())
            && replays_below.is_none_or(|times| row.replays < times)
            && text.as_ref().is_none_or(|text| self.has_text(row, &text.to_lowercase()))
    }

    /// Whether a filter may find letters of a kind; what single letters differ in does not count.
    pub(super) fn kind_matches(&self, filter: &LetterFilter, id: KindId) -> bool {
        let LetterFilter { service, channel, subscription, category, code, fingerprint, .. } = filter;
        let LetterFilter { name, event_type, tier, kinds, .. } = filter;
        let key = &self.kinds[&id].key;
        let its_channel = key.queue.channel.as_ref().map(redrive_core::ids::ChannelName::as_str);
        service.as_ref().is_none_or(|name| key.queue.service.as_str() == name)
            && channel.as_ref().is_none_or(|name| its_channel == Some(name.as_str()))
            && name.as_ref().is_none_or(|wanted| key.name == *wanted)
            && subscription.as_ref().is_none_or(|wanted| key.subscription == *wanted)
            && category.is_none_or(|category| key.category == category)
            && code.as_ref().is_none_or(|code| key.code.as_str() == code || key.failure_code.as_str() == code)
            && fingerprint.is_none_or(|fingerprint| key.fingerprint == fingerprint)
            && event_type.as_ref().is_none_or(|pattern| pattern.matches(&key.event_type))
            && tier.is_none_or(|tier| key.tier == tier)
            && kinds.as_ref().is_none_or(|kinds| kinds.contains(&id))
    }

    fn has_text(&self, row: &ModelRow<Extra>, wanted: &str) -> bool {
        let event = &self.events[&row.extra.event].event;
        let RowState::Dead(death) = &row.state else { unreachable!("a letter's delivery is dead") };
        let message = death.message.as_str();
        let subject = event.subject.as_ref().map_or("", EventSubject::as_str);
        let data = String::from_utf8_lossy(&event.data);
        let texts = [message, event.id.as_str(), subject, &data];
        texts.iter().any(|text| text.to_lowercase().contains(wanted))
    }
}
