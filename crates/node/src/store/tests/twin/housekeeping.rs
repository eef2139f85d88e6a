//! How the twin forgets: old letters, what was delivered or done with, then its id, then books that
//! no story names, and what is known of old replays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redrive_core::event::Event;
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;

use redrive_core::store_model::{ModelReplay, RowState};

use super::letters::span_of;
use super::world::World;
use crate::store::letter::{AuditRecord, LetterNumber, TREND_POINTS};
use crate::store::{
    AUDIT_RECORDS_MAX, BOOKS_RECOVERED_MAX, HousekeepingStep, REPLAYS_KEPT_MAX, RetentionRules,
};

/// How many places one step looks at.
const PLACES_PER_STEP: usize = 256;
/// How many letters one step deletes.
const LETTERS_PER_STEP: usize = 512;
/// What became of each letter of a replay is remembered for this long after its end.
const LETTERS_OF_REPLAYS_KEPT: Duration = Duration::from_hours(1);
const HOUR_MILLIS: u64 = 3_600_000;
/// The word on record for what was deleted for its age.
const RETENTION: &str = "retention";

impl World {
    pub(super) fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> HousekeepingStep {
        let mut chores = HousekeepingStep::default();
        for _ in 0..PLACES_PER_STEP {
            let Some(&(at, place)) = self.ending.front() else { break };
            if at + keep.delivered > now {
                break;
            }
            self.ending.pop_front();
            chores.events_deleted += u64::from(self.delete_if_over(place, keep, now));
        }
        self.forget_ids(keep, now);
        let events = &self.events;
        let is_kept = |seq: &Seq| events.get(seq).is_some_and(|kept| kept.whole);
        self.keys.retain(|_, (event, until)| *until > now || is_kept(event));
        self.forget_books();
        let (letters_deleted, more_letters) = self.purge_old(keep, now);
        chores.letters_deleted = letters_deleted;
        self.forget_kinds(now);
        self.forget_replays(now);
        let more = |at: Option<Timestamp>, span| at.is_some_and(|at| at + span <= now);
        chores.more = more_letters
            || more(self.ending.front().map(|(at, _)| *at), keep.delivered)
            || more(self.first_unchecked().map(|(_, received_at)| received_at), keep.ids);
        chores
    }

    /// Deletes the event of that place if nothing about it is of use any more.
    fn delete_if_over(&mut self, place: Seq, keep: &RetentionRules, now: Timestamp) -> bool {
        let seq = self.model.row(place).map_or(place, |row| row.extra.event);
        let Some(kept) = self.events.get(&seq).filter(|kept| kept.whole).cloned() else { return false };
        let over = |place: Seq| {
            let row = self.row(place);
            let has_ended = matches!(row.state, RowState::Delivered | RowState::Closed);
            has_ended && row.waiting.written_at + keep.delivered <= now
        };
        if !kept.deliveries().all(over) {
            return false;
        }
        for place in kept.deliveries() {
            let row = self.model.forget(place).expect("an event that is kept whole has its deliveries");
            self.imported.retain(|_, imported| *imported != place);
            for story in &row.extra.stories {
                self.books.entry(story.book).and_modify(|book| book.stories -= 1);
            }
        }
        // Ids up to there are not looked at again, even if they are to be kept for longer by now.
        if kept.imported || kept.received_at + keep.ids <= now || seq <= self.ids_checked {
            self.forget(seq);
        } else {
            let kept = self.events.get_mut(&seq).expect("it was there");
            kept.whole = false;
            kept.event = Arc::new(without_content(&kept.event));
        }
        true
    }

    fn forget_ids(&mut self, keep: &RetentionRules, now: Timestamp) {
        for _ in 0..PLACES_PER_STEP {
            let Some((seq, received_at)) = self.first_unchecked() else { break };
            if received_at + keep.ids > now {
                break;
            }
            self.ids_checked = seq;
            if !self.events[&seq].whole {
                self.forget(seq);
            }
        }
    }

    /// The first event whose age has not been held against that of ids.
    fn first_unchecked(&self) -> Option<(Seq, Timestamp)> {
        let mut later = self.events.range(self.ids_checked.next()..);
        later.next().map(|(seq, kept)| (*seq, kept.received_at))
    }

    fn forget(&mut self, seq: Seq) {
        let kept = self.events.remove(&seq).expect("only what is known is forgotten");
        let id = (kept.event.source.clone(), kept.event.id.clone());
        let places = self.ids.get_mut(&id).expect("an event that is kept is known by its id");
        places.remove(&seq);
        if places.is_empty() {
            self.ids.remove(&id);
        }
    }

    /// Deletes letters that are too old; says how many, and whether there are more.
    fn purge_old(&mut self, keep: &RetentionRules, now: Timestamp) -> (u64, bool) {
        let is_old = |number: &LetterNumber| {
            let key = self.kind(*number);
            // A letter from elsewhere has been here only since its event came.
            let received_at = self.events[&self.dead_row(*number).extra.event].received_at;
            let since = self.letter_of(*number).died_at.max(received_at);
            since + (keep.letters)(&key.queue, &key.event_type) <= now
        };
        let is_free = |number: &LetterNumber| {
            !self.dead_row(*number).state.holds() && self.claimed_by(*number).is_none()
        };
        let old = self.numbers().into_iter().filter(|number| is_old(number) && is_free(number));
        let mut old: Vec<LetterNumber> = old.take(LETTERS_PER_STEP + 1).collect();
        let more = old.len() > LETTERS_PER_STEP;
        old.truncate(LETTERS_PER_STEP);
        for number in &old {
            let queue = self.dead_row(*number).waiting.queue.to_string();
            let promoted = self.purge_letter(*number, now);
            assert!(promoted.is_none(), "a letter that holds nobody lets nobody go on");
            self.record_retention(queue, now);
        }
        (old.len() as u64, more)
    }

    /// Counts a letter that was deleted for its age, by the hour.
    fn record_retention(&mut self, queue: String, now: Timestamp) {
        let hour = |at: Timestamp| at.as_millis() / HOUR_MILLIS;
        let same = |record: &&mut AuditRecord| {
            record.act == RETENTION && record.what == queue && hour(record.at) == hour(now)
        };
        match self.audit.values_mut().rev().find(same) {
            Some(record) => record.letters += 1,
            None => {
                self.record(RETENTION, queue, 1, None, now);
            }
        }
    }

    /// Forgets trends that nobody is shown any more, and kinds of which nothing is left.
    fn forget_kinds(&mut self, now: Timestamp) {
        let first_shown = (span_of(now) + 1).saturating_sub(TREND_POINTS as u64);
        for kind in self.kinds.values_mut() {
            kind.trend.retain(|span, _| *span >= first_shown);
        }
        self.kinds.retain(|_, kind| kind.count > 0 || !kind.trend.is_empty());
    }

    /// Forgets the letters of replays that are long over, the oldest replays and the oldest acts on record.
    fn forget_replays(&mut self, now: Timestamp) {
        let is_over = |replay: &ModelReplay| !replay.job.state.is_open() && replay.job.tally.in_flight() == 0;
        let replays = self.model.replays_mut();
        for replay in replays.values_mut() {
            if is_over(replay) && replay.changed_at + LETTERS_OF_REPLAYS_KEPT <= now {
                replay.forget_letters();
            }
        }
        let too_many = replays.len().saturating_sub(REPLAYS_KEPT_MAX);
        let oldest = replays.iter().filter(|(_, replay)| is_over(replay)).take(too_many);
        for id in oldest.map(|(id, _)| *id).collect::<Vec<_>>() {
            replays.remove(&id);
        }
        while self.audit.len() > AUDIT_RECORDS_MAX {
            self.audit.pop_first();
        }
    }

    /// Deletes the data of an event whose deliveries are all purged; the rest goes when its time has come.
    pub(super) fn empty_event(&mut self, seq: Seq) {
        let kept = self.events.get_mut(&seq).expect("its deliveries are there");
        kept.event = Arc::new(Event { data: Bytes::new(), ..(*kept.event).clone() });
    }

    fn forget_books(&mut self) {
        let newest = self.newest_books();
        self.books.retain(|hash, book| book.stories > 0 || newest.contains(hash));
    }

    /// The hashes of the latest books, the newest last.
    pub(super) fn newest_books(&self) -> Vec<u64> {
        let shown = self.books.iter().filter(|(_, book)| book.text.is_some());
        let by_turn: BTreeMap<u64, u64> = shown.map(|(hash, book)| (book.turn, *hash)).collect();
        let latest = by_turn.into_values().rev().take(BOOKS_RECOVERED_MAX);
        let mut latest: Vec<u64> = latest.collect();
        latest.reverse();
        latest
    }
}

/// What is left of an event when only its id is remembered.
fn without_content(event: &Event) -> Event {
    Event {
        id: event.id.clone(),
        source: event.source.clone(),
        event_type: event.event_type.clone(),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: Bytes::new(),
    }
}
