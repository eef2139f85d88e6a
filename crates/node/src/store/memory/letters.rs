//! Dead letters of a store in memory: how a delivery becomes one and ceases to be one, and which are meant.
//!
//! Invariant: a delivery is dead if and only if it has a letter, and a kind counts the letters of it.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::engine::{Death, Followers, QueueName};
use redrive_core::event::attribute::{CorrelationId, SessionKey, Subject};
use redrive_core::ids::{DeliveryId, Seq};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::ReplayId;
use redrive_core::policy::category::{Category, Code};
use redrive_core::time::Timestamp;

use super::world::{Row, World};
use crate::store::letter::{KindId, LetterFilter, LetterNumber, OrderRefusal, Poison, Selection, TREND_SPAN};
use crate::store::{Closed, DeliveryState};

/// Numbers of imported letters keep within this of when they died.
const NUMBER_SPAN: Duration = Duration::from_millis(1);

/// What is known of a letter beside its delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub(super) delivery: Seq,
    pub(super) kind: KindId,
    pub(super) died_at: Timestamp,
    /// The replay that wants to send it; means something only while that is open.
    pub(super) claim: Option<ReplayId>,
}

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
    pub(super) code: Code,
    pub(super) failure_code: Code,
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
    /// Makes a delivery a letter.
    pub(super) fn bury(&mut self, seq: Seq, death: &Death, at: Timestamp) {
        let number = LetterNumber(at.as_nanos().max(self.last_letter.0 + 1));
        self.bury_as(number, seq, death, at);
    }

    /// The same for one that died elsewhere.
    pub(super) fn bury_imported(&mut self, seq: Seq, death: &Death, at: Timestamp) {
        let millis = at.as_millis();
        let first = LetterNumber(Timestamp::from_millis(millis).as_nanos());
        let end = LetterNumber((Timestamp::from_millis(millis) + NUMBER_SPAN).as_nanos());
        let latest = self.letters.range(first..end).next_back();
        let after_latest = latest.map_or(0, |(latest, _)| latest.0 + 1);
        let mut number = LetterNumber(at.as_nanos().max(after_latest));
        while self.letters.contains_key(&number) {
            number.0 += 1;
        }
        self.bury_as(number, seq, death, at);
    }

    fn bury_as(&mut self, number: LetterNumber, seq: Seq, death: &Death, at: Timestamp) {
        let mut death = Box::new(death.clone());
        let row = &self.rows[&seq];
        if row.lane.is_none() {
            death.followers = Followers::GoOn;
        }
        let key = KindKey {
            fingerprint: death.fingerprint,
            queue: (*row.queue).clone(),
            subscription: row.subscription.to_string(),
            event_type: self.events[&row.event].event.event_type.to_string(),
            category: death.category,
            code: death.code.clone(),
            failure_code: death.failure_code.clone(),
            tier: death.tier,
            name: death.name.clone(),
            consumer_group: death.consumer_group.clone(),
        };
        let kind = self.count_death(key, at);
        let letter = Letter { delivery: seq, kind, died_at: at, claim: None };
        assert!(self.letters.insert(number, letter).is_none(), "no two letters have one number");
        self.numbers.insert(seq, number);
        self.last_letter = self.last_letter.max(number);
        self.change(seq, DeliveryState::Dead { at, death });
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

    /// Removes the letter of a delivery, which becomes something else then.
    pub(super) fn unbury(&mut self, number: LetterNumber) -> Seq {
        let letter = self.letters.remove(&number).expect("whoever removes it has seen it");
        self.numbers.remove(&letter.delivery);
        self.kinds.get_mut(&letter.kind).expect("a letter has a kind").count -= 1;
        letter.delivery
    }

    /// Does with a letter for good; those that it held go on.
    pub(super) fn close_letter(&mut self, number: LetterNumber, how: Closed, now: Timestamp) -> Option<Seq> {
        let seq = self.unbury(number);
        self.rows.get_mut(&seq).expect("a letter has a delivery").written_at = now;
        self.change(seq, DeliveryState::Closed { at: now, how });
        self.ending.push_back((now, seq));
        let lane = self.rows[&seq].lane?;
        self.move_on(lane, now)
    }

    /// Deletes a letter and its stories; those that it held go on.
    pub(super) fn purge_letter(&mut self, number: LetterNumber, now: Timestamp) -> Option<Seq> {
        let seq = self.letters[&number].delivery;
        let promoted = self.close_letter(number, Closed::Purged, now);
        let row = self.rows.get_mut(&seq).expect("a letter has a delivery");
        for story in std::mem::take(&mut row.stories) {
            self.books.entry(story.book).and_modify(|book| book.stories -= 1);
        }
        let event = row.event;
        let is_purged = |place: Seq| match &self.rows[&place].state {
            DeliveryState::Closed { how, .. } => *how == Closed::Purged,
            DeliveryState::Ready
            | DeliveryState::Due { .. }
            | DeliveryState::Behind
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. } => false,
        };
        if self.events[&event].deliveries().all(is_purged) {
            self.empty_event(event);
        }
        promoted
    }

    /// The number of a delivery's letter, if it is dead.
    pub(super) fn letter_number(&self, delivery: Seq) -> Option<LetterNumber> {
        self.numbers.get(&delivery).copied()
    }

    /// The letter of that id, whoever has claimed it.
    pub(super) fn find_letter(&self, id: DeliveryId) -> Result<LetterNumber, OrderRefusal> {
        let is_it = self.rows.get(&id.seq()).is_some_and(|row| row.id == id);
        let found = is_it.then(|| self.letter_number(id.seq())).flatten();
        found.ok_or(OrderRefusal::NoSuchLetter(id))
    }

    /// The letter of that id, if no open replay has claimed it.
    pub(super) fn free_letter(&self, id: DeliveryId) -> Result<LetterNumber, OrderRefusal> {
        let number = self.find_letter(id)?;
        match self.claimed_by(&self.letters[&number]) {
            Some(replay) => Err(OrderRefusal::Claimed { letter: id, replay }),
            None => Ok(number),
        }
    }

    /// The open replay that has claimed a letter.
    pub(super) fn claimed_by(&self, letter: &Letter) -> Option<ReplayId> {
        letter.claim.filter(|replay| self.replays.get(replay).is_some_and(|replay| replay.state.is_open()))
    }

    /// What a selection makes of a letter.
    pub(super) fn choice(&self, selection: &Selection, number: LetterNumber) -> Choice {
        let Selection { filter, letters, poison, died_until } = selection;
        let letter = &self.letters[&number];
        let row = &self.rows[&letter.delivery];
        let is_named = letters.as_ref().is_none_or(|letters| letters.contains(&row.id));
        if !is_named || number.0 > died_until.as_nanos() || !self.matches(filter, number) {
            return Choice::Not;
        }
        if self.kinds[&letter.kind].key.tier == Tier::Poison && *poison == Poison::Left {
            return Choice::Poison;
        }
        self.claimed_by(letter).map_or(Choice::Chosen, Choice::Claimed)
    }

    /// Whether a filter finds a letter.
    pub(super) fn matches(&self, filter: &LetterFilter, number: LetterNumber) -> bool {
        let letter = &self.letters[&number];
        let row = &self.rows[&letter.delivery];
        let event = &self.events[&row.event].event;
        let LetterFilter { session, correlation_id, from, until, text, replays_below, .. } = filter;
        let is_session = |wanted: &String| event.session.as_ref().map(SessionKey::as_str) == Some(wanted);
        let is_correlated =
            |wanted: &String| event.correlation_id.as_ref().map(CorrelationId::as_str) == Some(wanted);
        self.kind_matches(filter, letter.kind)
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

    /// The bytes of data that a text is looked for in.
    pub(super) fn bytes_looked_through(&self, selection: &Selection, number: LetterNumber) -> usize {
        let row = &self.rows[&self.letters[&number].delivery];
        selection.filter.text.as_ref().map_or(0, |_| self.events[&row.event].event.data.len())
    }

    fn has_text(&self, row: &Row, wanted: &str) -> bool {
        let event = &self.events[&row.event].event;
        let DeliveryState::Dead { death, .. } = &row.state else {
            unreachable!("a letter's delivery is dead")
        };
        let message = death.message.as_str();
        let subject = event.subject.as_ref().map_or("", Subject::as_str);
        let data = String::from_utf8_lossy(&event.data);
        let texts = [message, event.id.as_str(), subject, &data];
        texts.iter().any(|text| text.to_lowercase().contains(wanted))
    }
}
