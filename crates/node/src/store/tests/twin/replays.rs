//! Replays: which letters each claims, and how it is shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::engine::{Advance, PendingDelivery};
use redrive_core::ids::Seq;
use redrive_core::letters::replay::{Listing, ReplayId, ReplayJob};
use redrive_core::store_model::Lane;
use redrive_core::time::Timestamp;

use super::letters::Choice;
use super::world::World;
use crate::store::derive;
use crate::store::letter::{CommandRefusal, NewReplay, Redirect, ReplayAct, ReplayView};

/// What is known of a replay beside what the model knows.
#[derive(Clone, Debug)]
pub(super) struct ReplayRecord {
    what: String,
    service: Option<String>,
    note: Option<String>,
    claimed_by_others: u64,
    created_at: Timestamp,
}

impl World {
    pub(super) fn replay_view(&self, id: ReplayId) -> Option<ReplayView> {
        let (replay, record) = (self.model.replays().get(&id)?, &self.replays[&id]);
        let ReplayJob { id, state, pace, origin, wave, tally } = replay.job.clone();
        Some(ReplayView {
            id,
            state,
            what: record.what.clone(),
            service: record.service.clone(),
            pace,
            origin,
            to: replay.to.as_ref().map(|to| (**to).clone()),
            note: record.note.clone(),
            wave,
            tally,
            claimed_by_others: record.claimed_by_others,
            created_at: record.created_at,
            changed_at: replay.changed_at,
            stop: replay.stop,
        })
    }

    fn shown(&self, id: ReplayId) -> ReplayView {
        self.replay_view(id).expect("it is there")
    }

    /// Begins a replay: claims all letters of it.
    pub(super) fn begin_replay(
        &mut self,
        new: &NewReplay,
        now: Timestamp,
    ) -> Result<ReplayView, CommandRefusal> {
        let NewReplay { selection, what, pace, origin, to, note } = new;
        for letter in selection.letters.iter().flatten() {
            self.free_letter(*letter)?;
        }
        let (mut chosen, mut claimed, mut poison) = (Vec::new(), BTreeMap::new(), 0);
        for number in self.numbers() {
            match self.choice(selection, number) {
                Choice::Not => {}
                Choice::Poison => poison += 1,
                Choice::Claimed(by) => *claimed.entry(by).or_default() += 1,
                Choice::Chosen => chosen.push(self.letter_of(number).delivery),
            }
        }
        if chosen.is_empty() {
            return Err(CommandRefusal::NothingMatches { claimed, poison });
        }
        let queue = to.as_ref().map(|to| Arc::clone(&to.queue));
        let id = self.model.begin_replay(*pace, *origin, queue, now);
        for seq in chosen {
            let lane = self.lane_at(seq, to.as_deref());
            self.model.claim(id, seq, lane);
        }
        self.model.listed(id, Listing::Whole, now);
        let record = ReplayRecord {
            what: what.clone(),
            service: selection.filter.service.clone(),
            note: note.clone(),
            claimed_by_others: claimed.values().sum(),
            created_at: now,
        };
        self.replays.insert(id, record);
        let view = self.shown(id);
        self.record("replay", what.clone(), view.tally.total, note.clone(), now);
        Ok(view)
    }

    /// The session that a letter goes in.
    fn lane_at(&self, delivery: Seq, to: Option<&Redirect>) -> Option<Lane> {
        let row = self.row(delivery);
        match to {
            Some(to) => derive::lane_in(self.seed, &to.queue, to.order, &row.waiting.event).map(Lane),
            None => row.lane,
        }
    }

    pub(super) fn change_replay(
        &mut self,
        id: ReplayId,
        act: ReplayAct,
        now: Timestamp,
    ) -> Result<ReplayView, CommandRefusal> {
        let before = self.model.replays().get(&id).ok_or(CommandRefusal::NoSuchReplay(id))?.job.state;
        if self.model.change_replay(id, act, now).is_none() {
            return Err(CommandRefusal::NotPossible { replay: id, state: before });
        }
        let word = match act {
            ReplayAct::Pause => "replay-pause",
            ReplayAct::Resume => "replay-resume",
            ReplayAct::Cancel => "replay-cancel",
        };
        let view = self.shown(id);
        self.record(word, view.what.clone(), view.tally.total, None, now);
        Ok(view)
    }

    /// Brings a replay forward by a step; says how it stands and how many letters were sent.
    pub(super) fn advance(
        &mut self,
        advance: &Advance,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Option<(ReplayJob, u32)> {
        let sent = self.model.advance(advance, now, waiting);
        self.count_kinds();
        let job = self.model.replays().get(&advance.replay)?.job.clone();
        Some((job, u32::try_from(sent.len()).expect("a few")))
    }
}
