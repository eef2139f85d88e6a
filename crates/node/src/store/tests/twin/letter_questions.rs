//! What the twin answers about dead letters, replays and what is on record.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::event::attribute::SessionKey;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::ReplayId;
use redrive_core::store_model::{Holder, Lane, RowState};
use redrive_core::time::Timestamp;

use super::letters::{Choice, Kind, KindKey, span_of};
use super::questions::Stories;
use super::world::World;
use crate::store::derive;
use crate::store::letter::{
    AuditRecord, GroupView, HeldCursor, HeldPage, HeldSession, KindId, KindView, LetterFilter, LetterKey,
    LetterNumber, LetterPage, LetterQuery, LetterView, ReplayView, Selection, SelectionSurvey, TREND_POINTS,
};

impl World {
    pub(super) fn letters(&self, query: &LetterQuery) -> LetterPage {
        let LetterQuery { filter, before, rows_max } = query;
        let is_earlier = |number: &LetterNumber| before.is_none_or(|before| *number < before);
        let earlier = self.numbers().into_iter().rev().filter(is_earlier);
        let mut found = earlier.filter(|number| self.matches(filter, *number));
        let numbers: Vec<LetterNumber> = found.by_ref().take(*rows_max).collect();
        let next = found.next().and(numbers.last().copied());
        let view = |number: &LetterNumber| self.letter_view(*number, Stories::Left);
        LetterPage { letters: numbers.iter().map(view).collect(), next }
    }

    pub(super) fn letter(&self, key: &LetterKey) -> Option<LetterView> {
        match key {
            LetterKey::Delivery(id) => Some(self.letter_view(self.find_letter(*id).ok()?, Stories::Told)),
            LetterKey::Imported(key) => self.imported_letters(key).into_iter().next(),
        }
    }

    pub(super) fn imported_letters(&self, key: &str) -> Vec<LetterView> {
        let named = self.imported.iter().filter(|(of, _)| derive::imported_as(of) == key);
        let numbers = named.filter_map(|(_, seq)| self.model.row(*seq)?.letter);
        numbers.map(|number| self.letter_view(number, Stories::Told)).collect()
    }

    pub(super) fn export(
        &self,
        selection: &Selection,
        after: Option<LetterNumber>,
        rows_max: usize,
    ) -> LetterPage {
        let later = self.numbers().into_iter().filter(|number| after.is_none_or(|after| *number > after));
        let mut found = later.filter(|number| match self.choice(selection, *number) {
            Choice::Chosen | Choice::Claimed(_) => true,
            Choice::Not | Choice::Poison => false,
        });
        let numbers: Vec<LetterNumber> = found.by_ref().take(rows_max).collect();
        let next = found.next().and(numbers.last().copied());
        let view = |number: &LetterNumber| self.letter_view(*number, Stories::Told);
        LetterPage { letters: numbers.iter().map(view).collect(), next }
    }

    fn letter_view(&self, number: LetterNumber, stories: Stories) -> LetterView {
        let letter = self.letter_of(number);
        let row = self.row(letter.delivery);
        let RowState::Dead(death) = &row.state else { unreachable!("a letter's delivery is dead") };
        let event = &self.events[&row.extra.event].event;
        let holds = row.lane.filter(|_| row.state.holds());
        let imported = self.imported.iter().find(|(_, seq)| **seq == letter.delivery);
        LetterView {
            number,
            delivery: self.delivery_view(row, stories),
            death: (**death).clone(),
            died_at: letter.died_at,
            replays: row.replays,
            claimed_by: self.claimed_by(number),
            holds: holds.map(|lane| match self.model.holder(lane) {
                Some(holder) if holder.letter == letter.delivery => self.model.behind(lane),
                Some(_) | None => 0,
            }),
            imported_as: imported.map(|(key, _)| derive::imported_as(key).to_owned()),
            event: match stories {
                Stories::Told => Arc::clone(event),
                Stories::Left => Arc::new(Event { data: Bytes::new(), ..(**event).clone() }),
            },
        }
    }

    pub(super) fn kinds(&self, filter: &LetterFilter) -> Vec<KindView> {
        let found = self.kinds.iter().filter(|(id, kind)| kind.count > 0 && self.kind_matches(filter, **id));
        found.map(|(id, kind)| self.kind_view(*id, kind)).collect()
    }

    fn kind_view(&self, id: KindId, kind: &Kind) -> KindView {
        let letters = self.model.letters().filter(|(number, _)| self.kind_of[number] == id);
        let deaths: BTreeSet<Timestamp> = letters.map(|(_, letter)| letter.died_at).collect();
        let KindKey { fingerprint, queue, subscription, event_type, category, .. } = kind.key.clone();
        let KindKey { code, failure_code, tier, name, .. } = kind.key.clone();
        KindView {
            id,
            queue,
            subscription,
            event_type,
            category,
            code,
            failure_code,
            tier,
            fingerprint,
            name,
            count: kind.count,
            first_at: *deaths.first().expect("a kind that is shown has letters"),
            last_at: *deaths.last().expect("a kind that is shown has letters"),
        }
    }

    pub(super) fn groups(&self, filter: &LetterFilter, now: Timestamp, rows_max: usize) -> Vec<GroupView> {
        let mut causes: BTreeMap<Fingerprint, Vec<LetterNumber>> = BTreeMap::new();
        for number in self.numbers().into_iter().filter(|number| self.matches(filter, *number)) {
            causes.entry(self.kind(number).fingerprint).or_default().push(number);
        }
        let groups = causes.iter().map(|(cause, letters)| self.group(*cause, letters, now));
        let mut groups: Vec<GroupView> = groups.collect();
        groups.sort_by_key(|group| (Reverse(group.count), group.fingerprint));
        groups.truncate(rows_max);
        groups
    }

    /// All about a cause; its trend is that of the whole kinds that its letters are of.
    fn group(&self, fingerprint: Fingerprint, letters: &[LetterNumber], now: Timestamp) -> GroupView {
        let latest = letters.last().expect("a cause was found by its letters");
        let sample = self.letter_view(*latest, Stories::Left);
        let mut group = GroupView {
            fingerprint,
            count: letters.len() as u64,
            poison: 0,
            first_at: sample.died_at,
            last_at: sample.died_at,
            category: sample.death.category,
            code: sample.death.failure_code.clone(),
            sample,
            queues: BTreeMap::new(),
            event_types: BTreeMap::new(),
            trend: vec![0; TREND_POINTS],
        };
        for number in letters {
            let (letter, key) = (self.letter_of(*number), self.kind(*number));
            group.poison += u64::from(key.tier == Tier::Poison);
            group.first_at = group.first_at.min(letter.died_at);
            group.last_at = group.last_at.max(letter.died_at);
            *group.queues.entry(key.queue.clone()).or_default() += 1;
            *group.event_types.entry(key.event_type.clone()).or_default() += 1;
        }
        let oldest = (span_of(now) + 1).saturating_sub(TREND_POINTS as u64);
        let kinds: BTreeSet<KindId> = letters.iter().map(|number| self.kind_of[number]).collect();
        for kind in kinds.iter().map(|id| &self.kinds[id]) {
            for (span, deaths) in (oldest..).zip(&mut group.trend) {
                *deaths += kind.trend.get(&span).copied().unwrap_or_default();
            }
        }
        group
    }

    pub(super) fn survey(&self, selection: &Selection) -> SelectionSurvey {
        let mut survey = SelectionSurvey::default();
        let mut sessions: BTreeSet<(&QueueName, &SessionKey)> = BTreeSet::new();
        for number in self.numbers() {
            match self.choice(selection, number) {
                Choice::Not => continue,
                Choice::Poison => {
                    survey.poison_left += 1;
                    continue;
                }
                Choice::Claimed(by) => {
                    *survey.claimed.entry(by).or_default() += 1;
                    continue;
                }
                Choice::Chosen => {}
            }
            let (row, key) = (self.dead_row(number), self.kind(number));
            survey.letters += 1;
            *survey.by_cause.entry((key.fingerprint, key.queue.clone())).or_default() += 1;
            *survey.by_type.entry((key.queue.clone(), key.event_type.clone())).or_default() += 1;
            let session = self.events[&row.extra.event].event.session.as_ref();
            sessions.extend(row.lane.and(session).map(|session| (&key.queue, session)));
            survey.holding += u64::from(self.model.held_by(row.waiting.id.seq()).is_some());
        }
        survey.sessions = sessions.len() as u64;
        survey
    }

    pub(super) fn replays(&self, before: Option<ReplayId>, rows_max: usize) -> Vec<ReplayView> {
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        let earlier = self.model.replays().range((Bound::Unbounded, before)).rev();
        earlier.take(rows_max).filter_map(|(id, _)| self.replay_view(*id)).collect()
    }

    pub(super) fn held_sessions(&self, rows_max: usize) -> Vec<HeldSession> {
        let mut held: Vec<_> = self.model.held().collect();
        held.sort_by_key(|(lane, holder)| (holder.since, lane.0.cast_signed()));
        held.into_iter().take(rows_max).map(|(lane, holder)| self.held_session(lane, holder)).collect()
    }

    pub(super) fn held_page(&self, after: Option<HeldCursor>, rows_max: usize) -> HeldPage {
        let mut held: Vec<_> = self.model.held().collect();
        held.sort_by_key(|(lane, _)| lane.0.cast_signed());
        held.retain(|(lane, _)| after.is_none_or(|HeldCursor(after)| lane.0.cast_signed() > after));
        held.truncate(rows_max);
        let last = held.last().filter(|_| held.len() == rows_max);
        let next = last.map(|(lane, _)| HeldCursor(lane.0.cast_signed()));
        let shown = held.into_iter().map(|(lane, holder)| self.held_session(lane, holder));
        HeldPage { sessions: shown.collect(), next }
    }

    fn held_session(&self, lane: Lane, holder: Holder) -> HeldSession {
        let row = self.row(holder.letter);
        let event = &self.events[&row.extra.event].event;
        HeldSession {
            queue: (*row.waiting.queue).clone(),
            session: event.session.as_ref().map(SessionKey::to_string).unwrap_or_default(),
            letter: row.waiting.id,
            event_type: event.event_type.to_string(),
            since: holder.since,
            behind: self.model.behind(lane),
        }
    }

    pub(super) fn audit(&self, before: Option<u64>, rows_max: usize) -> Vec<AuditRecord> {
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        let earlier = self.audit.range((Bound::Unbounded, before)).rev();
        earlier.take(rows_max).map(|(_, record)| record.clone()).collect()
    }
}
