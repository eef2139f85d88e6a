//! Dependencies that call other dependencies, with retries of their own.
//!
//! A call to such a dependency is a visit: it does its own work, then calls each of its dependencies until that
//! succeeds or its attempts are used up, then answers. Those calls are visits too, so retries multiply: three
//! attempts at three layers are 27 calls at the innermost.
//!
//! A caller that gives up does not cancel the visit. Only the dependency's own work uses its capacity; waiting for
//! another uses none.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::agenda::{AgendaEvent, CallAnswer, FinishedCall};
use super::ledger::CallResult;
use super::target::SimulatedCall;
use super::world::SimulatedWorld;
use redrive_core::hash::{Map, stable_64_of};
use redrive_core::policy::backoff::nanos;

/// Separates the draws of inner calls from others.
const INNER: u64 = 0x1a7e_0000_0000_0000;

pub(super) type EffectCount = Rc<Cell<u32>>;

#[derive(Clone, Copy, Debug)]
pub(super) struct LayerCall {
    pub dependency: usize,
    pub attempts: u32,
    pub wait: Duration,
    pub timeout: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Layers {
    calls: Vec<Vec<LayerCall>>,
    /// Transitive, without itself, each once.
    beneath: Vec<Vec<usize>>,
    visits: Map<u64, Visit>,
    last: u64,
}

#[derive(Debug)]
struct Visit {
    dependency: usize,
    began_at: u64,
    /// `None` after the caller gave up.
    caller: Option<VisitCaller>,
    draw: u64,
    /// The next inner call, and its attempts so far.
    place: usize,
    tried: u32,
    carries: Vec<EffectCount>,
    hangs: bool,
}

#[derive(Clone, Copy, Debug)]
enum VisitCaller {
    Rule(FinishedCall),
    Visit(u64),
}

#[derive(Debug)]
pub(super) struct RuleCall {
    pub end: FinishedCall,
    pub knock: SimulatedCall,
    pub carries: Vec<EffectCount>,
}

impl Layers {
    pub(super) fn new(calls: Vec<Vec<LayerCall>>) -> Self {
        let beneath = (0..calls.len()).map(|dependency| all_beneath(&calls, dependency)).collect();
        Self { calls, beneath, visits: Map::default(), last: 0 }
    }

    pub(super) fn is_before_others(&self, dependency: usize) -> bool {
        !self.calls[dependency].is_empty()
    }

    pub(super) fn beneath(&self, dependency: usize) -> &[usize] {
        &self.beneath[dependency]
    }

    pub(super) fn under_way(&self) -> usize {
        self.visits.len()
    }

    fn begin(&mut self, visit: Visit) -> u64 {
        self.last += 1;
        self.visits.insert(self.last, visit);
        self.last
    }
}

fn all_beneath(calls: &[Vec<LayerCall>], dependency: usize) -> Vec<usize> {
    let mut found: BTreeSet<usize> = BTreeSet::new();
    let mut open = vec![dependency];
    while let Some(next) = open.pop() {
        open.extend(calls[next].iter().map(|inner| inner.dependency).filter(|inner| found.insert(*inner)));
    }
    found.into_iter().collect()
}

impl SimulatedWorld<'_> {
    pub(super) fn visit_by_rule(&mut self, by: RuleCall) {
        let RuleCall { end, knock, carries } = by;
        self.visit(end.dependency, knock, VisitCaller::Rule(end), carries);
    }

    fn visit(
        &mut self,
        dependency: usize,
        knock: SimulatedCall,
        caller: VisitCaller,
        carries: Vec<EffectCount>,
    ) {
        let (now, draw) = (knock.at_nanos, knock.draw);
        // The caller's timeout is a separate agenda event and does not shorten the work.
        let outcome = self.targets[dependency].call(SimulatedCall { limit: Duration::MAX, ..knock });
        let hangs = outcome.said == CallAnswer::Nothing;
        let caller = Some(caller);
        let visit = Visit { dependency, began_at: now, caller, draw, place: 0, tried: 0, carries, hangs };
        let visit = self.layers.begin(visit);
        self.agenda.plan(now.saturating_add(nanos(knock.limit)), AgendaEvent::GivenUp { visit });
        let at = now.saturating_add(nanos(outcome.took));
        if outcome.takes_effect && self.layers.is_before_others(dependency) {
            self.agenda.plan(at, AgendaEvent::CallNext { visit });
        } else if !hangs {
            self.agenda.plan(at, AgendaEvent::VisitEnds { visit, said: outcome.said });
        }
    }

    pub(super) fn call_next(&mut self, id: u64) {
        let Some(visit) = self.layers.visits.get(&id) else { return };
        let inner = self.layers.calls[visit.dependency][visit.place];
        let turn = ((visit.place as u64) << 32) | u64::from(visit.tried);
        let knock = SimulatedCall {
            at_nanos: self.now,
            limit: inner.timeout,
            draw: stable_64_of(visit.draw, turn ^ INNER),
            is_poison: false,
        };
        self.ledger.called_within(inner.dependency);
        self.visit(inner.dependency, knock, VisitCaller::Visit(id), Vec::new());
    }

    pub(super) fn visit_ends(&mut self, id: u64, said: CallAnswer) {
        let Some(visit) = self.layers.visits.remove(&id) else { return };
        if said == CallAnswer::Done {
            for taken in &visit.carries {
                taken.set(taken.get() + 1);
                if taken.get() > 1 {
                    self.ledger.duplicate();
                }
            }
        }
        let took = Duration::from_nanos(self.now - visit.began_at);
        if let Some(caller) = visit.caller {
            self.deliver_answer(visit.dependency, caller, took, said);
        }
    }

    pub(super) fn given_up(&mut self, id: u64) {
        let Some(visit) = self.layers.visits.get_mut(&id) else { return };
        let (dependency, began_at, caller) = (visit.dependency, visit.began_at, visit.caller.take());
        if visit.hangs {
            self.layers.visits.remove(&id);
        }
        let took = Duration::from_nanos(self.now - began_at);
        if let Some(caller) = caller {
            self.deliver_answer(dependency, caller, took, CallAnswer::Nothing);
        }
    }

    fn deliver_answer(&mut self, dependency: usize, caller: VisitCaller, took: Duration, said: CallAnswer) {
        let how = if said == CallAnswer::Done { CallResult::Well } else { CallResult::Badly };
        match caller {
            VisitCaller::Rule(end) => self.call_ends(FinishedCall { took, said, ..end }),
            VisitCaller::Visit(id) => {
                self.ledger.answered(dependency, took, how);
                self.continue_visit(id, said);
            }
        }
    }

    /// Continues with the next inner call, retries, or fails the visit.
    fn continue_visit(&mut self, id: u64, said: CallAnswer) {
        let visit = self.layers.visits.get_mut(&id).expect("it waits for what it called");
        let calls = &self.layers.calls[visit.dependency];
        let inner = calls[visit.place];
        if said == CallAnswer::Done {
            (visit.place, visit.tried) = (visit.place + 1, 0);
            if visit.place == calls.len() {
                return self.visit_ends(id, CallAnswer::Done);
            }
            return self.call_next(id);
        }
        visit.tried += 1;
        if visit.tried < inner.attempts {
            return self
                .agenda
                .plan(self.now.saturating_add(nanos(inner.wait)), AgendaEvent::CallNext { visit: id });
        }
        let status = if said == CallAnswer::Nothing { 504 } else { 502 };
        self.visit_ends(id, CallAnswer::Status(status));
    }
}
