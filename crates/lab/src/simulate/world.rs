//! The event loop of a simulation: arrivals, engine decisions, answers and faults in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::agenda::{Agenda, AgendaEvent, CallAnswer, FinishedCall};
use super::answers;
use super::chance::Chance;
use super::checker::{NodeRun, OrderChecker};
use super::layers::{EffectCount, LayerCall, Layers, RuleCall};
use super::ledger::{CallLoad, CallResult, DeliveryRoute, SimulationLedger, TrackedDependency, millis};
use super::report::SimulationReport;
use super::store::{SimulatedStore, SubmittedDelivery};
use super::stream::Stream;
use super::target::{SimulatedCall, SimulatedTarget};
use super::{Cancelled, Go, SimulationPlan, SimulationProgress};
use crate::scenario::{Behaviour, FaultKind, Scenario};
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::{CallProtocol, Endpoint};
use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::{
    CallId, Effect, Ending, Engine, EngineActivity, EngineBounds, Input, NextState, QueueName, Settlement,
    SettlementResult, Setup, TargetCall,
};
use redrive_core::event::Event;
use redrive_core::event::attribute::EventType;
use redrive_core::hash::{Map, stable_64, stable_64_of};
use redrive_core::ids::{DependencyName, Seed};
use redrive_core::policy::backoff::nanos;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::decide::is_counted_by_breakers;
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;

/// The start of virtual time.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Agenda events between two calls of `watch`.
const LOOK_EVERY: u64 = 8_192;

mod purpose {
    pub(super) const POISON: u64 = 1;
    pub(super) const SESSION: u64 = 2;
    pub(super) const TARGETS: u64 = 3;
    pub(super) const CONTENT: u64 = 4;
    pub(super) const STREAMS: u64 = 5;
}

pub(super) struct SimulatedWorld<'a> {
    pub(super) scenario: &'a Scenario,
    plan: &'a SimulationPlan<'a>,
    pub(super) now: u64,
    pub(super) agenda: Agenda,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) streams: Vec<Stream<'a>>,
    pub(super) streams_open: usize,
    pub(super) takers: Vec<Vec<QueueSubscriber>>,
    pub(super) events: Vec<Map<Option<u32>, Arc<Event>>>,
    queues: Vec<SimulatedQueue>,
    dependency_places: BTreeMap<DependencyName, usize>,
    pub(super) targets: Vec<SimulatedTarget>,
    pub(super) layers: Layers,
    pub(super) derived: Map<EventType, Vec<QueueSubscriber>>,
    pub(super) poison: Chance,
    pub(super) sessions: Chance,
    luck: Chance,
    pub(super) content: Chance,
    pub(super) ledger: SimulationLedger,
    checker: OrderChecker,
}

struct SimulatedQueue {
    name: Arc<QueueName>,
    speech: CallProtocol,
}

#[derive(Clone, Copy)]
pub(super) struct QueueSubscriber {
    pub belongs: DeliveryRoute,
    /// Independent of the order in the book.
    pub key: u64,
    pub order: DeliveryOrder,
}

pub(super) struct SimulatedNode {
    engine: Option<Engine>,
    run: u32,
    pub store: SimulatedStore,
    wake_at: Option<Timestamp>,
    pub inbox: VecDeque<Input>,
    pub health: NodeCondition,
    pub rejected: Vec<SubmittedDelivery>,
    unwritten: Vec<Arc<Settlement>>,
    in_flight: Vec<u64>,
    rules: Map<CallId, Arc<Rule>>,
    /// Positions of the failing deliveries in successful batches.
    partly: BTreeMap<CallId, Vec<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeCondition {
    Well,
    Down { since: Timestamp },
    Stalled { since: Timestamp },
}

impl<'a> SimulatedWorld<'a> {
    pub(super) fn new(plan: &'a SimulationPlan<'a>, scenario: &'a Scenario) -> Self {
        let names = plan.book.queues().map(|(service, channel)| {
            Arc::new(QueueName { service: service.clone(), channel: channel.cloned() })
        });
        let names: Vec<Arc<QueueName>> = names.collect();
        let queue = |name: &Arc<QueueName>| {
            let target = target_of(&plan.book, name).expect("a queue of the book");
            SimulatedQueue { name: Arc::clone(name), speech: target.connector.speech }
        };
        let queues: Vec<SimulatedQueue> = names.iter().map(queue).collect();
        let behaviours: Vec<(&DependencyName, &Behaviour)> =
            scenario.dependencies.iter().map(|(name, at)| (name, &at.value)).collect();
        let targets: Vec<SimulatedTarget> =
            behaviours.iter().map(|(_, behaviour)| SimulatedTarget::new(behaviour)).collect();
        let dependency_places: BTreeMap<DependencyName, usize> =
            behaviours.iter().enumerate().map(|(place, (name, _))| ((*name).clone(), place)).collect();
        let opened = behaviours.iter().zip(&targets);
        let opened = opened.map(|((name, _), target)| TrackedDependency {
            name: name.to_string(),
            per_second: target.per_second(),
            behind: callers_of(name, &behaviours),
        });
        let opened = opened.collect();
        let inner = |behaviour: &&Behaviour| {
            let calls = behaviour.calls.iter().map(|call| LayerCall {
                dependency: dependency_places[&call.dependency.value],
                attempts: call.attempts,
                wait: call.wait,
                timeout: call.timeout,
            });
            calls.collect()
        };
        let layers = Layers::new(behaviours.iter().map(|(_, behaviour)| inner(behaviour)).collect());
        let nodes = scenario.nodes as usize;
        let ledger = SimulationLedger::new(names.iter().map(ToString::to_string).collect(), opened, nodes);
        let chance = |purpose| Chance::new(plan.seed, purpose);
        let mut world = Self {
            scenario,
            plan,
            now: 0,
            agenda: Agenda::default(),
            nodes: (0..nodes).map(|_| SimulatedNode::new(&names, targets.len())).collect(),
            streams: Stream::all(&scenario.arrivals, chance(purpose::STREAMS)),
            streams_open: 0,
            takers: Vec::new(),
            events: scenario.arrivals.iter().map(|_| Map::default()).collect(),
            queues,
            dependency_places,
            targets,
            layers,
            derived: Map::default(),
            poison: chance(purpose::POISON),
            sessions: chance(purpose::SESSION),
            luck: chance(purpose::TARGETS),
            content: chance(purpose::CONTENT),
            ledger,
            checker: OrderChecker::default(),
        };
        world.takers =
            scenario.arrivals.iter().map(|arrival| world.takers_of(&arrival.event_type.value)).collect();
        world.plan_ahead();
        world
    }

    pub(super) fn takers_of(&self, event_type: &EventType) -> Vec<QueueSubscriber> {
        let taker = |route: &redrive_core::book::route::RouteMatch<'_>| {
            let channel = route.channel.map(|channel| channel.name.clone());
            let name = QueueName { service: route.service.name.clone(), channel };
            let queue = self.queues.iter().position(|queue| *queue.name == name);
            let belongs = DeliveryRoute {
                queue: queue.expect("every taker has a queue"),
                dependency: self.dependency_places[route.dependency()],
            };
            let key = stable_64(name.to_string().as_bytes(), 0);
            QueueSubscriber { belongs, key, order: route.order() }
        };
        self.plan.book.route(event_type.as_str()).iter().map(taker).collect()
    }

    /// Incidents are planned first: what arrives when one begins was not there before it.
    fn plan_ahead(&mut self) {
        let troubled = |span: (Duration, Duration)| (nanos(span.0), nanos(span.1));
        let behaviours: Vec<&Behaviour> = self.scenario.dependencies.values().map(|at| &at.value).collect();
        for place in 0..behaviours.len() {
            // A dependency is disturbed when one that it calls is.
            let within = std::iter::once(place).chain(self.layers.beneath(place).iter().copied());
            let own = within.flat_map(|place| &behaviours[place].phases);
            let own = own.map(|phase| (phase.at, phase.until()));
            let faults = self.scenario.faults.iter().map(|fault| (fault.at, fault.until()));
            for (from, until) in own.chain(faults).map(troubled) {
                self.agenda.plan(from, AgendaEvent::IncidentBegins { dependency: place });
                self.agenda.plan(until, AgendaEvent::IncidentEnds { dependency: place });
            }
        }
        for stream in 0..self.streams.len() {
            if let Some(at) = self.streams[stream].next(None) {
                self.streams_open += 1;
                self.agenda.plan(at, AgendaEvent::Arrive { stream });
            }
        }
        for (fault, span) in self.scenario.faults.iter().enumerate() {
            self.agenda.plan(nanos(span.at), AgendaEvent::FaultBegins { fault });
            self.agenda.plan(nanos(span.until()), AgendaEvent::FaultEnds { fault });
        }
        for node in 0..self.nodes.len() {
            self.start(node);
        }
    }

    pub(super) fn play(
        mut self,
        watch: &mut dyn FnMut(SimulationProgress) -> Go,
    ) -> Result<SimulationReport, Cancelled> {
        let last = nanos(self.scenario.duration.saturating_add(self.scenario.settle));
        let mut processed = 0_u64;
        let mut open_seen = 0;
        while let Some((at, event)) = self.agenda.next() {
            if at > last {
                break;
            }
            self.now = at;
            self.ledger.advance(at);
            self.apply(event);
            processed += 1;
            // The watcher may bound what waits, and one event may add much.
            let has_grown = self.ledger.open() >= open_seen + LOOK_EVERY;
            if processed.is_multiple_of(LOOK_EVERY) || has_grown {
                open_seen = self.ledger.open();
                if watch(self.progress()) == Go::Stop {
                    return Err(Cancelled);
                }
            }
            if self.streams_open == 0 && self.ledger.open() == 0 {
                break;
            }
        }
        for node in &self.nodes {
            let outside = node.rejected.iter().map(|_| 0);
            node.store.calls_of_open().chain(outside).for_each(|calls| self.ledger.left_waiting(calls));
        }
        let mut report = SimulationReport {
            about: self.scenario.about.clone(),
            seed: self.plan.seed,
            duration_ms: millis(self.scenario.duration),
            nodes: self.scenario.nodes,
            order_violations: self.checker.violations(),
            waiting_behind_dead: self.nodes.iter().map(|node| node.store.behind_dead()).sum(),
            ..self.ledger.into_report()
        };
        let expectations = self.scenario.expectations.iter();
        report.expectations = expectations.map(|at| report.expected(&at.value)).collect();
        Ok(report)
    }

    fn progress(&self) -> SimulationProgress {
        SimulationProgress {
            at: Duration::from_nanos(self.now),
            duration: self.scenario.duration,
            ended: self.ledger.ended_count(),
            open: self.ledger.open(),
            planned: (self.agenda.len() + self.layers.under_way()) as u64,
        }
    }

    pub(super) fn clock(&self) -> Timestamp {
        START + Duration::from_nanos(self.now)
    }

    fn apply(&mut self, event: AgendaEvent) {
        match event {
            AgendaEvent::Arrive { stream } => self.arrive(stream),
            AgendaEvent::CallEnds(end) => self.call_ends(end),
            AgendaEvent::CallNext { visit } => self.call_next(visit),
            AgendaEvent::VisitEnds { visit, said } => self.visit_ends(visit, said),
            AgendaEvent::GivenUp { visit } => self.given_up(visit),
            AgendaEvent::Wake { node, run } => {
                let clock = self.clock();
                let woken = &mut self.nodes[node];
                if woken.run == run && woken.wake_at.is_some_and(|at| at <= clock) {
                    woken.wake_at = None;
                    woken.inbox.push_back(Input::Tick);
                    self.pump(node);
                }
            }
            AgendaEvent::FaultBegins { fault } => self.fault_begins(fault),
            AgendaEvent::FaultEnds { fault } => self.fault_ends(fault),
            AgendaEvent::IncidentBegins { dependency } => self.ledger.incident_begins(dependency),
            AgendaEvent::IncidentEnds { dependency } => self.ledger.incident_ends(dependency),
        }
    }

    /// Alternates effects and inputs until neither is left.
    pub(super) fn pump(&mut self, node: usize) {
        let clock = self.clock();
        let Some(mut engine) = self.nodes[node].engine.take() else { return };
        loop {
            while let Some(effect) = engine.next_effect() {
                self.carry_out(node, effect);
            }
            let Some(input) = self.nodes[node].inbox.pop_front() else { break };
            engine.handle(input, clock);
        }
        self.nodes[node].engine = Some(engine);
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Start(call) => self.call(node, &call),
            Effect::Settle(settlement) => match self.nodes[node].health {
                NodeCondition::Stalled { .. } => self.nodes[node].unwritten.push(settlement),
                NodeCondition::Well | NodeCondition::Down { .. } => self.settle(node, &settlement),
            },
            Effect::Load(load) => {
                let page = self.nodes[node].store.model.load(&load);
                self.nodes[node].inbox.push_back(Input::Loaded(page));
            }
            Effect::WakeAt(at) => {
                let run = self.nodes[node].run;
                self.nodes[node].wake_at = Some(at);
                self.agenda.plan(nanos(at.since(START)), AgendaEvent::Wake { node, run });
            }
            Effect::Keep(record) => {
                self.nodes[node].store.model.breakers.insert(record.service_name.clone(), *record);
            }
            // The book never changes, so nothing waits for a rule.
            Effect::Release(queue) => self.nodes[node].inbox.push_back(Input::Released(queue)),
            // No replays here.
            Effect::Advance(_) | Effect::Reprocess(_) => {}
            Effect::Activity(signal) => self.record_signal(node, &signal),
        }
    }

    fn record_signal(&mut self, node: usize, signal: &EngineActivity) {
        match signal {
            EngineActivity::Breaker { dependency, transition, .. } => {
                if let Some(place) = self.dependency_places.get(dependency) {
                    self.ledger.breaker(*place, node, transition);
                }
            }
            EngineActivity::Paused(service) => self.ledger.paused(service),
            EngineActivity::Settled { .. }
            | EngineActivity::Stale(_)
            | EngineActivity::Replay { .. }
            | EngineActivity::DependencyHeld { .. }
            | EngineActivity::Alert { .. } => {}
        }
    }

    fn call(&mut self, node: usize, call: &TargetCall) {
        let caller = NodeRun { node, run: self.nodes[node].run };
        let store = &mut self.nodes[node].store;
        let queue = store.place(&call.queue);
        let first = &call.deliveries[0];
        let mut failing = Vec::new();
        let mut first_attempts = 0;
        for (place, delivery) in call.deliveries.iter().enumerate() {
            let row = store.row(delivery.id);
            // Counts a call cut off by a crash, which the restarted engine does not know.
            row.calls += 1;
            first_attempts += u64::from(row.calls == 1);
            if row.is_poison {
                failing.push(place);
            }
            if let Some(lane) = row.lane {
                self.checker.begins(lane, delivery.id.seq(), caller);
            }
        }
        let dependency = store.row(first.id).dependency;
        let is_batch = call.deliveries.len() > 1;
        let knock = SimulatedCall {
            at_nanos: self.now,
            limit: call.limit,
            draw: self.luck.draw_of(first.id.content(), u64::from(first.attempts)),
            is_poison: !is_batch && !failing.is_empty(),
        };
        self.nodes[node].in_flight[dependency] += 1;
        self.nodes[node].rules.insert(call.id, Arc::clone(&call.rule));
        let carried = CallLoad { deliveries: call.deliveries.len() as u64, first: first_attempts };
        self.ledger.called(dependency, carried);
        let end = FinishedCall {
            node,
            run: caller.run,
            call: call.id,
            dependency,
            queue,
            took: Duration::ZERO,
            said: CallAnswer::Done,
        };
        if self.layers.is_before_others(dependency) {
            for inner in self.layers.beneath(dependency) {
                self.ledger.called_before(*inner, carried);
            }
            return self.call_through(call, knock, end, failing);
        }
        let store = &mut self.nodes[node].store;
        let outcome = self.targets[dependency].call(knock);
        if outcome.takes_effect {
            for (place, delivery) in call.deliveries.iter().enumerate() {
                let row = store.row(delivery.id);
                if !failing.contains(&place) {
                    row.taken += 1;
                    if row.taken > 1 {
                        self.ledger.duplicate();
                    }
                }
            }
        }
        if is_batch && !failing.is_empty() && outcome.said == CallAnswer::Done {
            self.nodes[node].partly.insert(call.id, failing);
        }
        let end = FinishedCall { took: outcome.took, said: outcome.said, ..end };
        self.agenda.plan(self.now.saturating_add(nanos(outcome.took)), AgendaEvent::CallEnds(end));
    }

    fn call_through(
        &mut self,
        call: &TargetCall,
        knock: SimulatedCall,
        end: FinishedCall,
        failing: Vec<usize>,
    ) {
        let node = &mut self.nodes[end.node];
        let mut carries: Vec<EffectCount> = Vec::new();
        for (place, delivery) in call.deliveries.iter().enumerate() {
            if !failing.contains(&place) {
                carries.push(node.store.row(delivery.id).taken_within.get_or_insert_default().clone());
            }
        }
        if call.deliveries.len() > 1 && !failing.is_empty() {
            node.partly.insert(call.id, failing);
        }
        self.visit_by_rule(RuleCall { end, knock, carries });
    }

    pub(super) fn call_ends(&mut self, end: FinishedCall) {
        let FinishedCall { node, run, call, dependency, queue, took, said } = end;
        if self.nodes[node].run != run {
            return;
        }
        self.nodes[node].in_flight[dependency] -= 1;
        let partly = self.nodes[node].partly.remove(&call).filter(|_| said == CallAnswer::Done);
        let how = match (said, &partly) {
            (CallAnswer::Done, None) => CallResult::Well,
            (CallAnswer::Done, Some(_)) => CallResult::Partly,
            (
                CallAnswer::Status(_) | CallAnswer::TooMany(_) | CallAnswer::Refused | CallAnswer::Nothing,
                _,
            ) => CallResult::Badly,
        };
        self.ledger.answered(dependency, took, how);
        let rule = self.nodes[node].rules.remove(&call).expect("it was kept when the call began");
        let ending = match partly {
            Some(failed) => Ending::Partly { reply: answers::partly(), failed },
            None => Ending::Reply(answers::reply(self.queues[queue].speech, said)),
        };
        if how == CallResult::Badly
            && let Ending::Reply(reply) = &ending
            && let Outcome::Failed(failure) =
                classify(&reply.as_answer(), &rule.classify, rule.timeouts.category)
            && is_counted_by_breakers(&rule, &failure)
        {
            self.ledger.failed_counted(dependency);
        }
        self.nodes[node].inbox.push_back(Input::Ended { call, ending });
        self.pump(node);
    }

    fn settle(&mut self, node: usize, settlement: &Settlement) {
        let clock = self.clock();
        let settled = self.nodes[node].store.settle(settlement, clock);
        #[cfg(test)]
        super::record_test::settled(settlement, settled.fate);
        if settled.fate == SettlementResult::Written
            && settlement.record.is_some()
            && let Some(lane) =
                settled.ended.as_ref().map_or_else(|| self.lane_of(node, settlement), |row| row.lane)
        {
            self.checker.ends(lane, settlement.delivery.seq());
        }
        if let Some(row) = &settled.ended {
            let belongs = DeliveryRoute { queue: row.queue, dependency: row.dependency };
            match &settlement.next {
                NextState::Dead(death) => self.ledger.died(belongs, death, row.calls),
                NextState::Delivered => {
                    self.ledger.delivered(belongs, self.clock().since(row.sent_at), row.calls);
                }
                NextState::Ready | NextState::Due { .. } | NextState::Starting => {
                    unreachable!("it has ended")
                }
            }
        }
        if settled.fate == SettlementResult::Written && !settlement.emits.is_empty() {
            self.derive(settlement);
        }
        let (delivery, fate, promoted) = (settlement.delivery, settled.fate, settled.promoted);
        self.nodes[node].inbox.push_back(Input::Settled { delivery, fate, promoted });
    }

    fn lane_of(&mut self, node: usize, settlement: &Settlement) -> Option<super::store::Lane> {
        self.nodes[node].store.row(settlement.delivery).lane
    }

    fn struck_by(&self, fault: usize) -> std::ops::Range<usize> {
        match self.scenario.faults[fault].node {
            Some(node) => node as usize - 1..node as usize,
            None => 0..self.nodes.len(),
        }
    }

    fn fault_begins(&mut self, fault: usize) {
        let since = self.clock();
        for node in self.struck_by(fault) {
            match self.scenario.faults[fault].kind {
                FaultKind::Restart => self.go_down(node, since),
                FaultKind::StoreStall => {
                    self.nodes[node].health = NodeCondition::Stalled { since };
                    self.nodes[node].inbox.push_back(Input::StoreFailing);
                    self.pump(node);
                }
            }
        }
    }

    /// Loses everything that is not stored; the ends of its calls are ignored.
    fn go_down(&mut self, node: usize, since: Timestamp) {
        let down = &mut self.nodes[node];
        down.engine = None;
        down.run += 1;
        down.wake_at = None;
        down.inbox.clear();
        down.partly.clear();
        down.rules.clear();
        down.unwritten.clear();
        down.health = NodeCondition::Down { since };
        for (dependency, calls) in down.in_flight.iter_mut().enumerate() {
            self.ledger.lost(dependency, std::mem::take(calls));
        }
    }

    fn fault_ends(&mut self, fault: usize) {
        let now = self.clock();
        for node in self.struck_by(fault) {
            let well = &mut self.nodes[node];
            let (NodeCondition::Down { since } | NodeCondition::Stalled { since }) = well.health else {
                continue;
            };
            well.store.model.absences.add(since, now);
            let was_down = well.engine.is_none();
            well.health = NodeCondition::Well;
            if was_down {
                self.start(node);
            } else {
                for settlement in std::mem::take(&mut self.nodes[node].unwritten) {
                    self.settle(node, &settlement);
                }
                self.nodes[node].inbox.push_back(Input::StoreHealed);
                self.pump(node);
            }
            self.accept_rejected(node);
        }
    }

    fn start(&mut self, node: usize) {
        let store = &self.nodes[node].store;
        let engine = Engine::new(Setup {
            seed: Seed(stable_64_of(self.plan.seed, node as u64)),
            book: Arc::clone(&self.plan.book),
            older_books: vec![Arc::clone(&self.plan.book)],
            bounds: EngineBounds::SERVER,
            now: self.clock(),
            queues: store.open_queues(),
            paused: store.model.paused.clone(),
            absences: store.model.absences.clone(),
            breakers: store.model.breakers.values().cloned().collect(),
            replays: Vec::new(),
            suspects_until: None,
        });
        self.nodes[node].engine = Some(engine);
        self.pump(node);
    }
}

impl SimulatedNode {
    fn new(queues: &[Arc<QueueName>], dependencies: usize) -> Self {
        Self {
            engine: None,
            run: 0,
            store: SimulatedStore::new(queues),
            wake_at: None,
            inbox: VecDeque::new(),
            health: NodeCondition::Well,
            rejected: Vec::new(),
            unwritten: Vec::new(),
            in_flight: vec![0; dependencies],
            rules: Map::default(),
            partly: BTreeMap::new(),
        }
    }
}

fn callers_of(name: &DependencyName, behaviours: &[(&DependencyName, &Behaviour)]) -> Vec<String> {
    let calls = |behaviour: &Behaviour| behaviour.calls.iter().any(|call| call.dependency.value == *name);
    let callers = behaviours.iter().filter(|(_, behaviour)| calls(behaviour));
    callers.map(|(caller, _)| caller.to_string()).collect()
}

pub(crate) fn target_of<'a>(book: &'a RuleBook, queue: &QueueName) -> Option<&'a Endpoint> {
    let service = book.service(queue.service.as_str())?;
    let channel = queue.channel.as_ref();
    let channel = channel.and_then(|name| service.channels.iter().find(|channel| channel.name == *name));
    let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
    Some(&target.endpoint)
}
