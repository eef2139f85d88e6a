//! Short words for what people do with dead letters on the bench.

use std::sync::Arc;

use redrive_core::engine::{Advance, DeadLetterInfo, NextState, PendingDelivery, SessionFollowers};
use redrive_core::event::Event;
use redrive_core::ids::DeliveryId;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::{Manner, ReplayId, ReplayJob, ReplayOrigin, ReplayPace};
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::time::Timestamp;

use super::bench::{Bench, at, service, to};
use crate::store::letter::{
    CommandAnswer, CommandRefusal, ImportedLetter, LetterCommand, LetterFilter, LetterQuery, LetterView,
    NewReplay, Poison, PurgeCommand, PurgeStep, ReplayAct, ReplayView, Selection,
};
use crate::store::{DeliveryView, RetentionRules, WriteBatch};

/// Letters on a page: few, so that cursors are used.
const PAGE: usize = 7;
/// Later than any scenario lasts.
const LATER: Timestamp = at(1_000_000_000);

/// Every letter that is not poison.
pub(super) fn everything() -> Selection {
    Selection { filter: LetterFilter::default(), letters: None, poison: Poison::Left, died_until: LATER }
}

/// The letters that a filter finds.
pub(super) fn found_by(filter: LetterFilter) -> Selection {
    Selection { filter, ..everything() }
}

/// These letters.
pub(super) fn named(letters: &[DeliveryId]) -> Selection {
    Selection { letters: Some(letters.to_vec()), ..everything() }
}

/// A replay that goes straight, as fast as it can.
pub(super) fn straight(selection: Selection) -> NewReplay {
    NewReplay {
        selection,
        what: "some letters".to_owned(),
        pace: ReplayPace { rate: None, concurrency: 1_000, manner: Manner::Straight },
        origin: ReplayOrigin::Operator,
        to: None,
        note: None,
    }
}

/// A replay that feels its way.
pub(super) fn canary(selection: Selection) -> NewReplay {
    let new = straight(selection);
    NewReplay { pace: ReplayPace { manner: Manner::Canary, ..new.pace }, ..new }
}

/// Why a delivery died that failed with that message.
pub(super) fn death_of(cause: &str) -> DeadLetterInfo {
    let failure_code = FailureCode::of(codes::BAD_GATEWAY);
    DeadLetterInfo {
        category: Category::Transient,
        code: FailureCode::of(codes::MAX_RETRIES_EXCEEDED),
        fingerprint: Fingerprint::of(&service("svc"), Category::Transient, &failure_code, cause),
        failure_code,
        tier: Tier::Dead,
        message: cause.to_owned(),
        name: "_q.deadletter".to_owned(),
        consumer_group: "q".to_owned(),
        followers: SessionFollowers::Continue,
    }
}

/// It fails for good, and those behind it go on.
pub(super) fn fails(cause: &str) -> NextState {
    NextState::Dead(Box::new(death_of(cause)))
}

/// It fails for good, and those behind it wait.
pub(super) fn holds(cause: &str) -> NextState {
    NextState::Dead(Box::new(DeadLetterInfo { followers: SessionFollowers::Wait, ..death_of(cause) }))
}

/// It has failed a replay.
pub(super) fn poison(cause: &str) -> NextState {
    NextState::Dead(Box::new(DeadLetterInfo { tier: Tier::Poison, ..death_of(cause) }))
}

/// A letter from elsewhere, known there as its event is here.
pub(super) fn foreign(queue: &str, event: Event, died_at: Timestamp) -> ImportedLetter {
    ImportedLetter {
        key: format!("theirs-{}", event.id),
        queue: super::bench::queue(queue),
        subscription: format!("{queue} wants it").into(),
        order: super::bench::order_of(queue),
        event: Arc::new(event),
        death: death_of("it broke there"),
        died_at,
        attempts: 0,
        stories: Vec::new(),
        replays: 0,
    }
}

/// The event ids of letters, in their order.
pub(super) fn events_of(letters: &[LetterView]) -> Vec<&str> {
    letters.iter().map(|letter| letter.event.id.as_str()).collect()
}

impl Bench {
    /// Sends an event to a queue, where it may start at once, and settles it.
    pub(super) fn settled(&mut self, name: &str, event: Event, next: NextState) -> DeliveryId {
        let waiting = self.accept(to(name, event));
        let [one] = &waiting[..] else { panic!("one may start: {waiting:?}") };
        self.end(one.id, next);
        one.id
    }

    /// One letter in each second, of events of these ids, all of one cause.
    pub(super) fn pile(&mut self, name: &str, ids: impl IntoIterator<Item = u64>) -> Vec<DeliveryId> {
        let mut letters = Vec::new();
        for id in ids {
            self.wait(1);
            letters.push(self.settled(name, super::bench::event(&id.to_string()), fails("boom")));
        }
        letters
    }

    pub(super) fn order<T>(
        &mut self,
        command: impl FnOnce(CommandAnswer<T>) -> LetterCommand,
    ) -> Result<T, CommandRefusal> {
        self.order_and_see(command).0
    }

    /// Carries out a command; gives what may start because of it too.
    pub(super) fn order_and_see<T>(
        &mut self,
        command: impl FnOnce(CommandAnswer<T>) -> LetterCommand,
    ) -> (Result<T, CommandRefusal>, Vec<PendingDelivery>) {
        let answer = CommandAnswer::default();
        let commands = vec![command(answer.clone()).into()];
        let written = self.write(&WriteBatch { commands, ..WriteBatch::default() });
        (answer.take(), written.waiting)
    }

    /// Begins a replay.
    pub(super) fn replay(&mut self, new: NewReplay) -> ReplayView {
        self.try_replay(new).expect("it begins")
    }

    pub(super) fn try_replay(&mut self, new: NewReplay) -> Result<ReplayView, CommandRefusal> {
        self.order(|answer| LetterCommand::Replay(Box::new(new), answer))
    }

    pub(super) fn change(&mut self, replay: ReplayId, act: ReplayAct) -> Result<ReplayView, CommandRefusal> {
        self.order(|answer| LetterCommand::Change { replay, act, answer })
    }

    /// Brings a replay forward by a step.
    pub(super) fn advance(&mut self, advance: Advance) -> Option<(ReplayJob, u32, Vec<PendingDelivery>)> {
        let mut written = self.write(&WriteBatch { advances: vec![advance], ..WriteBatch::default() });
        let advanced = written.advanced.pop().expect("one answer for one step");
        advanced.map(|(job, sent)| (job, sent, written.waiting))
    }

    /// Sends at most so many letters of a replay; gives those that may start.
    pub(super) fn step(&mut self, replay: ReplayId, letters_max: u32) -> Vec<PendingDelivery> {
        let sent_before = self.replay_now(replay).tally.sent;
        let wave = self.replay_now(replay).wave.next();
        let advance = Advance { replay, sent_before, letters_max, wave };
        self.advance(advance).expect("it is there").2
    }

    pub(super) fn replay_now(&self, replay: ReplayId) -> ReplayView {
        self.reader().replay(replay).expect("it answers").expect("it is there")
    }

    /// All letters that a filter finds, page by page.
    pub(super) fn letters(&self, filter: &LetterFilter) -> Vec<LetterView> {
        let mut query = LetterQuery { filter: filter.clone(), before: None, rows_max: PAGE };
        let mut letters = Vec::new();
        loop {
            let page = self.reader().letters(&query).expect("it answers");
            assert!(page.letters.len() <= PAGE, "no page has more than was asked for");
            letters.extend(page.letters);
            query.before = page.next;
            if query.before.is_none() {
                return letters;
            }
        }
    }

    /// All letters of a selection with their data and stories, page by page.
    pub(super) fn export(&self, selection: &Selection) -> Vec<LetterView> {
        let (mut letters, mut after) = (Vec::new(), None);
        loop {
            let page = self.reader().export(selection, after, PAGE).expect("it answers");
            assert!(page.letters.len() <= PAGE, "no page has more than was asked for");
            letters.extend(page.letters);
            after = page.next;
            if after.is_none() {
                return letters;
            }
        }
    }

    /// Purges in steps of so many; gives how many were deleted and how many left as claimed.
    pub(super) fn purge(&mut self, selection: &Selection, rows_max: usize) -> (u64, u64) {
        let (mut sum, mut after) = ((0, 0), None);
        loop {
            let (selection, what) = (selection.clone(), "some letters".to_owned());
            let note = Some("tidying up".to_owned());
            let step = PurgeCommand { selection, what, rows_max, after, note };
            let done = self.order(|answer| LetterCommand::Purge(Box::new(step), answer));
            let PurgeStep { deleted, claimed, next } = done.expect("a purge is never refused");
            assert!(deleted + claimed <= rows_max as u64, "a step is small");
            sum = (sum.0 + deleted, sum.1 + claimed);
            after = next;
            if after.is_none() {
                return sum;
            }
        }
    }

    /// Does all chores; gives how many letters were deleted for their age.
    pub(super) fn letters_deleted(&mut self, keep: &RetentionRules) -> u64 {
        let now = self.now;
        let mut deleted = 0;
        for _ in 0..10_000 {
            let chores = self.store().housekeep(keep, now).expect("it can");
            deleted += chores.letters_deleted;
            if !chores.more {
                return deleted;
            }
        }
        panic!("chores never end");
    }

    /// What is on record: act and number of letters, the first one first.
    pub(super) fn acts(&self) -> Vec<(String, u64)> {
        let mut records = self.reader().audit(None, 1_000).expect("it answers");
        records.reverse();
        records.into_iter().map(|record| (record.act, record.letters)).collect()
    }

    /// The delivery of that id.
    pub(super) fn now_at(&self, delivery: DeliveryId) -> DeliveryView {
        self.view(delivery.seq())
    }
}
