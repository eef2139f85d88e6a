//! What people do with dead letters when they see them, and what the rule book does by itself.

use std::sync::Arc;

use super::super::orders::{Choice, NewReplay, Order, Ordered, Poison, Purge};
use super::super::plan::LetterAct;
use super::super::writer::Request;
use super::{Disk, World};
use crate::engine::Input;
use crate::event::Event;
use crate::event::attribute::EventId;
use crate::ids::DependencyName;
use crate::letters::replay::{Manner, ReplayOrigin, ReplayPace};

impl World {
    /// A command of an operator who sees the current letters and replays; none if there are none.
    pub(super) fn order(&mut self, act: LetterAct) -> Option<Order> {
        let any = |pick: u64, length: usize| usize::try_from(pick.checked_rem(length as u64)?).ok();
        Some(match act {
            LetterAct::Replay { service, pace, poison } => {
                let choice = Choice::Service(service);
                Order::Replay(Box::new(NewReplay { choice, pace, origin: ReplayOrigin::Operator, poison }))
            }
            LetterAct::Change { pick, act } => {
                // Mostly one of the last few: those are open.
                let ids = self.store.replay_ids();
                let latest = &ids[ids.len().saturating_sub(3)..];
                Order::Change(latest[any(pick, latest.len())?], act)
            }
            LetterAct::Skip { pick } => {
                let letters: Vec<_> = self.store.letters().collect();
                Order::Skip(letters[any(pick, letters.len())?].0)
            }
            LetterAct::Edit { pick } => {
                let letters: Vec<_> = self.store.letters().collect();
                let (letter, event) = letters[any(pick, letters.len())?];
                self.edits += 1;
                let id = EventId::new(&format!("edited{}", self.edits)).expect("an id");
                Order::Edit(letter, Arc::new(Event { id, ..(**event).clone() }))
            }
            LetterAct::Purge { service } => {
                Order::Purge(Purge { service, after: 0, until: self.store.last_letter() })
            }
        })
    }

    /// A dependency is well again: letters come back as the book says.
    pub(super) fn reprocess(&mut self, dependency: &DependencyName) {
        let Some(run) = &mut self.run else { return };
        if run.disk != Disk::Well || run.ending.is_some() {
            return;
        }
        let rules = &self.plan.books[run.book].rules;
        for times_max in self.store.limits(rules, dependency) {
            let (rules, dependency) = (Arc::clone(rules), dependency.clone());
            let new = NewReplay {
                choice: Choice::Book { rules, dependency, times_max },
                pace: ReplayPace { rate: None, concurrency: 4, manner: Manner::Canary },
                origin: ReplayOrigin::Automatic { times_max },
                poison: Poison::Left,
            };
            run.writer.ask(Request::Order(Order::Replay(Box::new(new))));
        }
    }

    /// An order was carried out, or refused.
    pub(super) fn ordered(&mut self, ordered: Ordered) {
        self.say(|| format!("{ordered:?}"));
        match ordered {
            Ordered::Replay(job) => {
                if let Some(run) = &mut self.run {
                    run.last_replay = run.last_replay.max(job.id);
                }
                self.tell_engine(Input::Replay(job));
            }
            Ordered::Purging(purge) => self.ask(Request::Order(Order::Purge(purge))),
            Ordered::Done | Ordered::Refused => {}
        }
    }
}
