//! Dead letters as rows, and what people do with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::checker::{Checker, Closing};
use super::super::orders::{Choice, Order, Ordered, Purge};
use super::{Lane, Row, State, Store};
use crate::book::RuleBook;
use crate::book::model;
use crate::engine::simulation::sabotage::Sabotage;
use crate::engine::{Death, Followers, Waiting};
use crate::event::Event;
use crate::ids::{ChannelName, DeliveryId, DependencyName, Seq};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::letters::replay::ReplayId;
use crate::letters::reprocess::{self, Occasion};
use crate::policy::category::{Category, Code, codes};
use crate::time::Timestamp;

/// Letters that one step of a purge looks at.
const PURGE_STEP: usize = 3;

/// What a row has while it is dead.
#[derive(Debug)]
pub(super) struct Letter {
    pub number: u64,
    pub category: Category,
    pub tier: Tier,
    pub claim: Option<ReplayId>,
}

impl Store {
    /// Carries out an order, and adds who may start because of it.
    pub(in super::super) fn order(
        &mut self,
        order: &Order,
        now: Timestamp,
        may_start: &mut Vec<Waiting>,
        checker: &mut Checker,
    ) -> Ordered {
        match order {
            Order::Replay(new) => self.begin(new, now, checker),
            Order::Change(replay, act) => self.change(*replay, *act, checker),
            Order::Skip(letter) => {
                let Some(seq) = self.free_letter(*letter) else { return Ordered::Refused };
                checker.closed(*letter, Closing::Skipped);
                may_start.extend(self.close_letter(seq));
                Ordered::Done
            }
            Order::LetGo(letter) => {
                let seq = letter.seq();
                let lane = self.rows[&seq].lane.clone();
                let holds = lane.is_some_and(|lane| self.held.get(&lane) == Some(&seq));
                if !holds || self.rows[&seq].state != State::Holding {
                    return Ordered::Refused;
                }
                checker.let_go(*letter);
                self.put(seq, State::Dead);
                may_start.extend(self.leave(seq));
                Ordered::Done
            }
            Order::Purge(purge) => self.purge(purge, may_start, checker),
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

    /// The letter, if it is one and no open replay has it.
    fn free_letter(&self, id: DeliveryId) -> Option<Seq> {
        let row = self.rows.get(&id.seq())?;
        let letter = row.letter.as_ref()?;
        (!self.is_claimed(letter)).then_some(id.seq())
    }

    pub(super) fn is_claimed(&self, letter: &Letter) -> bool {
        letter.claim.is_some_and(|replay| self.replays[&replay].job.state.is_open())
    }

    /// It is over with the letter; hands back who goes on in its session.
    fn close_letter(&mut self, seq: Seq) -> Option<Waiting> {
        self.remove_letter(seq);
        self.put(seq, State::Ended);
        self.leave(seq)
    }

    pub(super) fn write_letter(&mut self, seq: Seq, death: &Death, at: Timestamp) {
        self.last_letter = at.as_nanos().max(self.last_letter + 1);
        self.letters.insert(self.last_letter, seq);
        self.rows.get_mut(&seq).expect("whoever dies was there").letter = Some(Letter {
            number: self.last_letter,
            category: death.category,
            tier: death.tier,
            claim: None,
        });
    }

    pub(super) fn remove_letter(&mut self, seq: Seq) {
        let letter = self.rows.get_mut(&seq).expect("seen before").letter.take().expect("it is dead");
        self.letters.remove(&letter.number);
    }

    /// Too many wait behind a dead letter: this one dies at once, in its place.
    pub(super) fn overflow(&mut self, seq: Seq, now: Timestamp, checker: &mut Checker) {
        let row = &self.rows[&seq];
        let (category, code) = (Category::Transient, Code::of(codes::SESSION_FULL));
        let message = "too many wait behind a dead letter".to_owned();
        let death = Death {
            category,
            code: code.clone(),
            failure_code: code.clone(),
            tier: Tier::Dead,
            fingerprint: Fingerprint::of(&row.queue.service, category, &code, &message),
            message,
            name: String::new(),
            consumer_group: String::new(),
            followers: Followers::Wait,
        };
        checker.overflowed(row.id, now);
        self.write_letter(seq, &death, now);
        self.put(seq, State::Holding);
    }

    fn purge(&mut self, purge: &Purge, may_start: &mut Vec<Waiting>, checker: &mut Checker) -> Ordered {
        let Purge { service, after, until } = purge;
        if after >= until {
            return Ordered::Done;
        }
        let looked_at: Vec<(u64, Seq)> =
            self.letters.range(after + 1..=*until).take(PURGE_STEP).map(|(at, seq)| (*at, *seq)).collect();
        for (_, seq) in &looked_at {
            let row = &self.rows[seq];
            let is_meant = row.queue.service == *service;
            if let Some(seq) = self.free_letter(row.id).filter(|_| is_meant) {
                checker.closed(row.id, Closing::Purged);
                let next = self.close_letter(seq);
                if self.sabotage == Some(Sabotage::ForgetsToPromote)
                    && let Some(next) = next
                {
                    self.put(next.id.seq(), State::Behind);
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
    ) -> Option<Waiting> {
        let Row { id, queue, lane, turn, state, .. } = &self.rows[&old];
        let (id, queue, lane, was) = (*id, Arc::clone(queue), lane.clone(), *state);
        let goes_last = self.sabotage == Some(Sabotage::EditsGoLast);
        let turn = Some(*turn).filter(|_| !goes_last);
        let new = self.insert(event, &queue, lane.clone(), turn, now);
        self.events.insert(event.id.as_str().to_owned(), vec![new]);
        checker.edited(id, self.rows[&new].id, event, now);
        if was == State::Holding && !goes_last {
            self.remove_letter(old);
            self.put(old, State::Ended);
            return self.take_over(old, new, &lane.expect("it stands in a session"));
        }
        let next = self.close_letter(old);
        let starts = self.line_up(new);
        next.or(starts)
    }

    /// The new one stands where the old one stood.
    fn take_over(&mut self, old: Seq, new: Seq, lane: &Lane) -> Option<Waiting> {
        let turn = self.rows[&new].turn;
        let members = self.lanes.get_mut(lane).expect("the letter stands there");
        members.remove(&(turn, old));
        members.insert((turn, new));
        (self.held.get(lane) == Some(&old)).then(|| {
            self.held.insert(lane.clone(), new);
            self.put(new, State::Ready);
            self.waiting(new)
        })
    }

    pub(super) fn is_chosen(row: &Row, letter: &Letter, choice: &Choice) -> bool {
        match choice {
            Choice::Service(service) => row.queue.service == *service,
            Choice::Book { rules, dependency, times_max } => {
                let subject = reprocess::Subject {
                    queue: &row.queue,
                    event_type: row.event.event_type.as_str(),
                    category: letter.category,
                    tier: letter.tier,
                };
                reprocess::times_max(rules, Occasion::WellAgain(dependency), &subject) == Some(*times_max)
                    && row.replays < *times_max
            }
        }
    }

    /// How often the book brings back letters that are there, now that the dependency is well again: a
    /// replay has one limit.
    pub(in super::super) fn limits(&self, rules: &RuleBook, dependency: &DependencyName) -> BTreeSet<u32> {
        let limit = |seq: &Seq| {
            let row = &self.rows[seq];
            let letter = row.letter.as_ref().expect("it is among the letters");
            let subject = reprocess::Subject {
                queue: &row.queue,
                event_type: row.event.event_type.as_str(),
                category: letter.category,
                tier: letter.tier,
            };
            reprocess::times_max(rules, Occasion::WellAgain(dependency), &subject)
        };
        self.letters.values().filter_map(limit).collect()
    }

    /// All letters, as a list shows them.
    pub(in super::super) fn letters(&self) -> impl Iterator<Item = (DeliveryId, &Arc<Event>)> {
        self.letters.values().map(|seq| (self.rows[seq].id, &self.rows[seq].event))
    }

    /// The number of the latest letter.
    pub(in super::super) const fn last_letter(&self) -> u64 {
        self.last_letter
    }

    /// Letters that hold their session though the book has the service and does not say so any more.
    pub(in super::super) fn held_for_nothing(&self, rules: &RuleBook) -> Vec<DeliveryId> {
        let is_let_go = |(lane, _): &(&Lane, &Seq)| {
            let (queue, _) = lane;
            let service = rules.service(queue.service.as_str());
            let channel = queue.channel.as_ref().map(ChannelName::as_str);
            service.is_some_and(|service| {
                rules.batch_max(queue.service.as_str(), channel).is_some()
                    && service.order.as_ref().map(|at| at.value) != Some(model::Order::SessionStrict)
            })
        };
        self.held.iter().filter(is_let_go).map(|(_, seq)| self.rows[seq].id).collect()
    }
}
