//! What people do with dead letters, and how replays go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::checker::{Checker, Closing};
use super::super::orders::{Choice, NewReplay, Order, Ordered, Poison, Purge};
use super::Store;
use crate::book::RuleBook;
use crate::book::model;
use crate::engine::model_tests::sabotage::Sabotage;
use crate::engine::{Advance, DeadLetterInfo, PendingDelivery, QueueName, SessionFollowers};
use crate::event::Event;
use crate::ids::{ChannelName, DeliveryId, DependencyName, Seq};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::letters::replay::{Listing, ReplayId, ReplayJob, ReplayState};
use crate::letters::reprocess::{self, Occasion};
use crate::policy::category::{Category, FailureCode, codes};
use crate::store_model::{ModelRow, RowState};
use crate::time::Timestamp;

/// Letters that one step of a purge, or of listing those of a replay, looks at: few, so that it takes several.
const STEP: usize = 3;

/// What a replay sends.
#[derive(Debug)]
pub(super) struct Chosen {
    choice: Choice,
    poison: Poison,
    /// The number of the last letter that it may choose.
    until: u64,
    /// The number of the last letter that it has looked at.
    looked_at: u64,
}

impl Store {
    /// Carries out an order, and adds who may start because of it.
    pub(in super::super) fn order(
        &mut self,
        order: &Order,
        now: Timestamp,
        may_start: &mut Vec<PendingDelivery>,
        checker: &mut Checker,
    ) -> Ordered {
        match order {
            Order::Replay(new) => self.begin(new, now, checker),
            Order::Change(replay, act) => match self.model.change_replay(*replay, *act, now) {
                Some(replay) => {
                    checker.replay_changed(replay.job.id, *act);
                    Ordered::Replay(replay.job.clone())
                }
                None => Ordered::Refused,
            },
            Order::Skip(letter) => {
                let Some(seq) = self.free_letter(*letter) else { return Ordered::Refused };
                checker.closed(*letter, Closing::Skipped);
                may_start.extend(self.model.close(seq, now));
                Ordered::Done
            }
            Order::LetGo(letter) => {
                let Some((let_go, next)) = self.model.let_go(letter.seq(), now) else {
                    return Ordered::Refused;
                };
                for seq in let_go {
                    checker.let_go(self.row(seq).waiting.id);
                }
                may_start.extend(next);
                Ordered::Done
            }
            Order::Purge(purge) => self.purge(purge, now, may_start, checker),
            Order::Edit(letter, event) => {
                let seq = self.free_letter(*letter);
                let Some(seq) = seq.filter(|_| !self.events.contains_key(event.id.as_str())) else {
                    return Ordered::Refused;
                };
                may_start.extend(self.edit(seq, event, now, checker));
                Ordered::Done
            }
        }
    }

    fn row(&self, seq: Seq) -> &ModelRow<()> {
        self.model.row(seq).expect("nothing is forgotten here")
    }

    /// The letter, if it is one and no open replay has it.
    fn free_letter(&self, id: DeliveryId) -> Option<Seq> {
        let number = self.model.row(id.seq())?.letter?;
        let letter = self.model.letter(number)?;
        self.model.claimed_by(letter).is_none().then_some(id.seq())
    }

    /// Some letters between two numbers.
    fn some_letters(&self, after: u64, until: u64) -> Vec<(u64, Seq)> {
        let all = self.model.letters().map(|(number, letter)| (number.0, letter.delivery));
        all.filter(|(number, _)| (after + 1..=until).contains(number)).take(STEP).collect()
    }

    fn purge(
        &mut self,
        purge: &Purge,
        now: Timestamp,
        may_start: &mut Vec<PendingDelivery>,
        checker: &mut Checker,
    ) -> Ordered {
        let Purge { service, after, until } = purge;
        let looked_at = self.some_letters(*after, *until);
        for (_, seq) in &looked_at {
            let PendingDelivery { id, queue, .. } = &self.row(*seq).waiting;
            let (id, is_meant) = (*id, queue.service == *service);
            if let Some(seq) = self.free_letter(id).filter(|_| is_meant) {
                checker.closed(id, Closing::Purged);
                let next = self.model.close(seq, now);
                if self.sabotage == Some(Sabotage::ForgetsToPromote)
                    && let Some(next) = next
                {
                    self.model.put(next.id.seq(), RowState::Behind);
                    continue;
                }
                may_start.extend(next);
            }
        }
        match looked_at.last() {
            Some((last, _)) => Ordered::Purging(Purge { after: *last, ..purge.clone() }),
            None => Ordered::Done,
        }
    }

    /// Another event takes the letter's place.
    fn edit(
        &mut self,
        old: Seq,
        event: &Arc<Event>,
        now: Timestamp,
        checker: &mut Checker,
    ) -> Option<PendingDelivery> {
        let row = self.row(old);
        let (id, queue, lane) = (row.waiting.id, Arc::clone(&row.waiting.queue), row.lane);
        let new = self.new_row(event, &queue, lane);
        self.events.insert(event.id.as_str().to_owned(), vec![new.id.seq()]);
        checker.edited(id, new.id, event, now);
        if self.sabotage == Some(Sabotage::EditsGoLast) {
            let next = self.model.close(old, now);
            return next.or(self.model.add(new, now));
        }
        self.model.supersede(old, new, now)
    }

    fn begin(&mut self, new: &NewReplay, now: Timestamp, checker: &mut Checker) -> Ordered {
        let until = now.as_nanos().max(self.last_letter());
        let id = self.model.begin_replay(new.pace, new.origin, None, now);
        let chosen = Chosen { choice: new.choice.clone(), poison: new.poison, until, looked_at: 0 };
        self.chosen.insert(id, chosen);
        checker.replay_begins(id, new, now);
        self.gather(id, now, checker);
        let replay = &self.model.replays()[&id];
        if replay.listing == Listing::Whole && replay.job.tally.total == 0 {
            self.model.replays_mut().remove(&id);
            checker.replay_refused(id);
            return Ordered::Refused;
        }
        Ordered::Replay(replay.job.clone())
    }

    /// Lists a few more letters.
    fn gather(&mut self, id: ReplayId, now: Timestamp, checker: &mut Checker) {
        let chosen = &self.chosen[&id];
        let found = self.some_letters(chosen.looked_at, chosen.until);
        let is_free = |row: &ModelRow<()>| {
            let RowState::Dead(info) = &row.state else { unreachable!("it is among the letters") };
            let is_meant = info.tier == Tier::Dead || chosen.poison == Poison::Included;
            let is_taken = self.free_letter(row.waiting.id).is_none();
            let is_taken = is_taken && self.sabotage != Some(Sabotage::IgnoresClaims);
            is_meant && !is_taken && is_chosen(row, &chosen.choice)
        };
        let free: Vec<Seq> =
            found.iter().map(|(_, seq)| *seq).filter(|seq| is_free(self.row(*seq))).collect();
        for seq in free {
            let (letter, lane) = (self.row(seq).waiting.id, self.row(seq).lane);
            self.model.claim(id, seq, lane);
            checker.claimed(id, letter);
        }
        match found.last() {
            Some((last, _)) if found.len() == STEP => {
                self.chosen.get_mut(&id).expect("seen above").looked_at = *last;
                self.model.listed(id, Listing::InPart, now);
            }
            Some(_) | None => {
                self.model.listed(id, Listing::Whole, now);
                checker.replay_gathered(id);
            }
        }
    }

    /// Takes a step; a step that was taken before, or of a wave whose turn it is not, changes nothing.
    pub(in super::super) fn advance(
        &mut self,
        advance: &Advance,
        now: Timestamp,
        may_start: &mut Vec<PendingDelivery>,
        checker: &mut Checker,
    ) -> Option<(ReplayJob, u32)> {
        let id = advance.replay;
        let before = self.model.replays().get(&id)?.job.state;
        let sent = if before == ReplayState::Gathering {
            self.gather(id, now, checker);
            Vec::new()
        } else {
            self.send_some(advance, now, may_start)
        };
        if !sent.is_empty() {
            let ids: Vec<_> = sent.iter().map(|seq| self.row(*seq).waiting.id).collect();
            checker.sent(id, &ids, now);
        }
        let job = self.model.replays()[&id].job.clone();
        if job.state == ReplayState::Done && before != ReplayState::Done {
            checker.replay_done(id);
        }
        Some((job, u32::try_from(sent.len()).expect("a few")))
    }

    /// Sends letters, as well as the sabotage lets it.
    fn send_some(
        &mut self,
        advance: &Advance,
        now: Timestamp,
        may_start: &mut Vec<PendingDelivery>,
    ) -> Vec<Seq> {
        let mut advance = *advance;
        let replay = self.model.replays_mut().get_mut(&advance.replay).expect("seen before");
        let halted = match replay.job.state {
            ReplayState::Paused | ReplayState::Stopped => Some(replay.job.state),
            ReplayState::Gathering | ReplayState::Running | ReplayState::Cancelled | ReplayState::Done => {
                None
            }
        };
        match self.sabotage {
            Some(Sabotage::ReplaysThroughPause) if halted.is_some() => {
                replay.job.state = ReplayState::Running;
            }
            Some(Sabotage::RepeatsSteps) => advance.sent_before = replay.job.tally.sent,
            Some(Sabotage::SkipsWaves) => replay.job.wave = advance.wave,
            Some(Sabotage::GoesOnInFailedSession) => replay.forget_failures(),
            Some(_) | None => {}
        }
        let sent = self.model.advance(&advance, now, may_start);
        if let Some(halted) = halted {
            self.model.replays_mut().get_mut(&advance.replay).expect("seen above").job.state = halted;
        }
        if self.sabotage == Some(Sabotage::OvertakesHead) {
            for seq in &sent {
                if self.row(*seq).state == RowState::Behind {
                    self.model.put(*seq, RowState::Ready);
                    may_start.push(self.row(*seq).waiting.clone());
                }
            }
        }
        sent
    }

    /// Replays that are open, or whose letters are on their way.
    pub(in super::super) fn replays_to_go_on_with(&self) -> Vec<ReplayJob> {
        self.model.unfinished_replays().cloned().collect()
    }

    /// All that there ever were.
    pub(in super::super) fn replay_ids(&self) -> Vec<ReplayId> {
        self.model.replays().keys().copied().collect()
    }

    /// How often the book brings back letters that are there, now that the dependency is well again: a
    /// replay has one limit.
    pub(in super::super) fn limits(&self, rules: &RuleBook, dependency: &DependencyName) -> BTreeSet<u32> {
        let rows = self.model.letters().map(|(_, letter)| self.row(letter.delivery));
        rows.filter_map(|row| times_max(row, rules, dependency)).collect()
    }

    /// All letters, as a list shows them.
    pub(in super::super) fn letters(&self) -> impl Iterator<Item = (DeliveryId, &Arc<Event>)> {
        let rows = self.model.letters().map(|(_, letter)| self.row(letter.delivery));
        rows.map(|row| (row.waiting.id, &row.waiting.event))
    }

    /// The number of the latest letter.
    pub(in super::super) const fn last_letter(&self) -> u64 {
        self.model.last_letter().0
    }

    /// Letters that hold their session though the book has the service and does not say so any more.
    pub(in super::super) fn held_for_nothing(&self, rules: &RuleBook) -> Vec<DeliveryId> {
        let is_let_go = |queue: &QueueName| {
            let service = rules.service(queue.service.as_str());
            let channel = queue.channel.as_ref().map(ChannelName::as_str);
            service.is_some_and(|service| {
                rules.batch_max(queue.service.as_str(), channel).is_some()
                    && service.order.as_ref().map(|at| at.value) != Some(model::DeliveryOrder::SessionStrict)
            })
        };
        let holders = self.model.held().map(|(_, holder)| &self.row(holder.letter).waiting);
        holders.filter(|holder| is_let_go(&holder.queue)).map(|holder| holder.id).collect()
    }
}

/// Why a delivery is dead at once that comes when too many wait behind a dead letter.
pub(super) fn overflow(queue: &QueueName) -> DeadLetterInfo {
    let (category, code) = (Category::Transient, FailureCode::of(codes::SESSION_FULL));
    let message = "too many wait behind a dead letter".to_owned();
    DeadLetterInfo {
        category,
        code: code.clone(),
        failure_code: code.clone(),
        tier: Tier::Dead,
        fingerprint: Fingerprint::of(&queue.service, category, &code, &message),
        message,
        name: String::new(),
        consumer_group: String::new(),
        followers: SessionFollowers::Wait,
    }
}

fn is_chosen(row: &ModelRow<()>, choice: &Choice) -> bool {
    match choice {
        Choice::Service(service) => row.waiting.queue.service == *service,
        Choice::Book { rules, dependency, times_max: limit } => {
            times_max(row, rules, dependency) == Some(*limit) && row.replays < *limit
        }
    }
}

/// How often the book brings a letter back when that dependency is well again.
fn times_max(row: &ModelRow<()>, rules: &RuleBook, dependency: &DependencyName) -> Option<u32> {
    let RowState::Dead(info) = &row.state else { unreachable!("it is among the letters") };
    let subject = reprocess::LetterSubject {
        queue: &row.waiting.queue,
        event_type: row.waiting.event.event_type.as_str(),
        category: info.category,
        tier: info.tier,
    };
    reprocess::times_max(rules, Occasion::Recovered(dependency), &subject)
}
