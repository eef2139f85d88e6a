//! A whole system in virtual time: clients, the engine in its shell, the writer and its store, targets, and
//! a plan of what goes wrong. One list of things to happen, in order; nothing else moves.
//!
//! The clock that the engine sees is the one that the live server has: at the start of a run the wall clock,
//! but never before the last time on record, and from there on the time that passes. So a wall clock that
//! steps while Redrive runs changes nothing, and one that stepped while it was down is met at the next
//! start: an hour ahead looks like an hour's absence, an hour back like none at all.

mod operators;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::checker::{Checker, Seen, Violation};
use super::dice::Dice;
use super::orders::{Order, Ordered};
use super::plan::{Act, ClockStep, FirstCommit, Manner, Plan, RunEnd};
use super::sabotage::{Sabotage, SabotagedEngine};
use super::store::{Addressee, Store};
use super::targets;
use super::writer::{self, Request, Submission, Writer};
use crate::engine::{CallId, Effect, Ending, Input, SettlementResult, Setup};
use crate::ids::Seed;
use crate::letters::replay::ReplayId;
use crate::time::Timestamp;

/// What one seed came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pub events: usize,
    pub crashes: u32,
    pub seen: Seen,
}

/// Whether the world prints what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    Silent,
    Told,
}

/// Everything.
pub(super) struct World {
    plan: Plan,
    sabotage: Option<Sabotage>,
    trace: Trace,
    dice: Dice,
    now: Timestamp,
    agenda: BTreeMap<(Timestamp, u64), PlannedEvent>,
    planned: u64,
    clock: Clock,
    /// By how much the wall clock differs from true time.
    wall: Wall,
    store: Store,
    run: Option<Run>,
    runs: u32,
    crashes: u32,
    ends: VecDeque<RunEnd>,
    clients: Vec<Client>,
    /// What people still mean to do with dead letters.
    letter_acts_left: usize,
    /// How many letters were edited.
    edits: u64,
    checker: Checker,
}

/// Redrive's own clock: what it said at the start of the run, and when that was.
#[derive(Clone, Copy, Debug)]
struct Clock {
    started_at: Timestamp,
    said: Timestamp,
}

impl Clock {
    fn at(self, now: Timestamp) -> Timestamp {
        self.said + now.since(self.started_at)
    }

    fn when_it_says(self, said: Timestamp) -> Timestamp {
        self.started_at + said.since(self.said)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Wall {
    hours_ahead: u32,
    hours_back: u32,
}

impl Wall {
    fn at(self, now: Timestamp) -> Timestamp {
        now + HOUR * self.hours_ahead - HOUR * self.hours_back
    }
}

/// What lives as long as the process.
struct Run {
    number: u32,
    engine: SabotagedEngine,
    writer: Writer,
    disk: Disk,
    book: usize,
    wake_at: Option<Timestamp>,
    calls: BTreeMap<CallId, targets::Answer>,
    /// The last replay that the engine knows.
    last_replay: ReplayId,
    /// Answers of the writer on their way to the engine do not arrive before this.
    told_until: Timestamp,
    ending: Option<RunEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Well,
    Failing,
    /// It may go again; what is in hand is written first.
    Healing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Waits,
    Acknowledged,
}

#[derive(Debug)]
enum PlannedEvent {
    Send(usize),
    Act(Act),
    EndRun,
    Restart,
    Look,
    /// The rest belong to one run.
    Of(u32, InRun),
}

#[derive(Debug)]
enum InRun {
    Alive,
    /// Somebody looks whether a session is held that the book does not hold any more.
    Watch,
    Tick(Timestamp),
    CallEnds(CallId),
    Durable,
    Told(Vec<writer::Answer>),
    StoreFails,
    StoreIsBack,
    Stopped,
}

const HOUR: Duration = Duration::from_hours(1);
const ALIVE_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(300);
const WATCH_EVERY: Duration = Duration::from_secs(2);
const STOPPING_MAX: Duration = Duration::from_secs(1);
/// By then everything has settled after the last fault.
const SETTLES_WITHIN: Duration = Duration::from_mins(40);
/// A delivery that brings Redrive down does so a few times and no more.
const CRASHES_MAX: u32 = 60;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl World {
    pub(super) fn new(plan: Plan, sabotage: Option<Sabotage>, trace: Trace) -> Self {
        let now = Plan::START;
        let mut world = Self {
            dice: Dice::new(plan.seed, 1),
            checker: Checker::new(&plan.books, plan.bounds.calls),
            clients: vec![Client::Waits; plan.arrivals.len()],
            ends: plan.ends.iter().copied().collect(),
            agenda: BTreeMap::new(),
            planned: 0,
            clock: Clock { started_at: now, said: now },
            wall: Wall::default(),
            store: Store::new(plan.behind_max, sabotage),
            letter_acts_left: plan.acts.iter().filter(|(_, act)| matches!(act, Act::Letters(_))).count(),
            edits: 0,
            run: None,
            runs: 0,
            crashes: 0,
            sabotage,
            trace,
            now,
            plan,
        };
        for client in 0..world.plan.arrivals.len() {
            world.later(world.plan.arrivals[client].0, PlannedEvent::Send(client));
        }
        for (at, act) in world.plan.acts.clone() {
            world.later(at, PlannedEvent::Act(act));
        }
        for end in world.plan.ends.clone() {
            world.later(end.at, PlannedEvent::EndRun);
        }
        world.later(now, PlannedEvent::Look);
        world.later(now, PlannedEvent::Restart);
        world
    }

    /// Lets it all happen, until everything has settled or something is broken.
    pub(super) fn play(mut self) -> Result<Summary, Violation> {
        let last_at = self.plan.healed_at + SETTLES_WITHIN;
        while let Some(((at, _), planned)) = self.agenda.pop_first() {
            self.now = at;
            if self.is_over() || at > last_at {
                break;
            }
            self.perform(planned);
            if let Some(violation) = self.checker.violation() {
                return Err(violation.clone());
            }
        }
        let unheard = self.clients.iter().filter(|client| **client == Client::Waits).count();
        let mut open = self.store.show_open();
        if unheard > 0 {
            open.push(format!("{unheard} clients"));
        }
        self.checker.finished(&open);
        match self.checker.violation() {
            Some(violation) => Err(violation.clone()),
            None => Ok(Summary {
                events: self.plan.arrivals.len(),
                crashes: self.crashes,
                seen: self.checker.seen,
            }),
        }
    }

    fn is_over(&self) -> bool {
        self.now > self.plan.healed_at
            && self.run.is_some()
            && self.ends.is_empty()
            && self.letter_acts_left == 0
            && self.store.is_settled()
            && self.run.as_ref().is_some_and(|run| run.writer.is_idle())
            && self.clients.iter().all(|client| *client == Client::Acknowledged)
    }

    fn clock(&self) -> Timestamp {
        self.clock.at(self.now)
    }

    fn later(&mut self, at: Timestamp, planned: PlannedEvent) {
        self.planned += 1;
        self.agenda.insert((at.max(self.now), self.planned), planned);
    }

    fn in_run(&mut self, at: Timestamp, planned: InRun) {
        if let Some(run) = &self.run {
            let number = run.number;
            self.later(at, PlannedEvent::Of(number, planned));
        }
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace == Trace::Told {
            println!("{} {}", self.clock(), text());
        }
    }

    fn perform(&mut self, planned: PlannedEvent) {
        match planned {
            PlannedEvent::Send(client) => self.send(client),
            PlannedEvent::Act(act) => self.act(act),
            PlannedEvent::EndRun => self.end_run(),
            PlannedEvent::Restart => self.start(),
            PlannedEvent::Look => {
                if self.run.is_some() {
                    self.checker.look_for_starving(self.clock());
                }
                self.later(self.now + LOOK_EVERY, PlannedEvent::Look);
            }
            PlannedEvent::Of(number, planned) => {
                if self.run.as_ref().is_some_and(|run| run.number == number) {
                    self.perform_in_run(planned);
                }
            }
        }
    }

    fn perform_in_run(&mut self, planned: InRun) {
        let clock = self.clock();
        let run = self.run.as_mut().expect("asked right before");
        match planned {
            InRun::Alive => {
                if run.disk == Disk::Well {
                    run.writer.ask(Request::Alive);
                }
                self.in_run(self.now + ALIVE_EVERY, InRun::Alive);
                self.write();
            }
            InRun::Watch => {
                let rules = &self.plan.books[run.book].rules;
                if run.disk == Disk::Well && run.ending.is_none() {
                    for letter in self.store.held_for_nothing(rules) {
                        run.writer.ask(Request::Order(Order::LetGo(letter)));
                    }
                }
                self.in_run(self.now + WATCH_EVERY, InRun::Watch);
                self.write();
            }
            InRun::Tick(at) => {
                if run.wake_at == Some(at) {
                    run.wake_at = None;
                    self.tell_engine(Input::Tick);
                }
            }
            InRun::CallEnds(id) => {
                let Some(answer) = run.calls.remove(&id) else { return };
                self.say(|| format!("call {} ends: {:?}", id.0, answer.means));
                self.checker.ended(id, answer.means, clock);
                self.tell_engine(Input::Ended { call: id, ending: Ending::Reply(answer.reply) });
            }
            InRun::Durable => self.durable(),
            InRun::Told(answers) => {
                let number = run.number;
                for answer in answers {
                    // What an answer sets off may be the end of the run.
                    if self.run.as_ref().is_some_and(|run| run.number == number) {
                        self.pass_on(answer);
                    }
                }
            }
            InRun::StoreFails => {
                self.say(|| "the store fails".to_owned());
                self.checker.store_fails(clock);
                self.tell_engine(Input::StoreFailing);
            }
            InRun::StoreIsBack => {
                run.disk = Disk::Healing;
                // The checker's time is at most this long.
                let from = self.checker.away_since().unwrap_or(clock);
                run.writer.ask(Request::Absence { from });
                self.write();
            }
            InRun::Stopped => self.stop(),
        }
    }

    /// A client sends its event, again if it was not acknowledged.
    fn send(&mut self, client: usize) {
        if self.clients[client] == Client::Acknowledged {
            return;
        }
        let again_after = self.dice.span(ms(300), ms(4_000));
        self.later(self.now + again_after, PlannedEvent::Send(client));
        let event = Arc::clone(&self.plan.arrivals[client].1);
        let Some(run) = &mut self.run else { return };
        if run.disk != Disk::Well || run.ending.is_some() {
            return;
        }
        let routes = self.plan.books[run.book].rules.route(event.event_type.as_str());
        let to = routes.iter().map(|route| {
            let channel = route.channel.map(|channel| channel.name.clone());
            let queue = Arc::new(crate::engine::QueueName { service: route.service.name.clone(), channel });
            let session =
                event.session.as_ref().filter(|_| route.order() != crate::book::model::DeliveryOrder::None);
            Addressee { queue, lane: session.map(|key| key.as_str().to_owned()) }
        });
        let to = to.collect();
        run.writer.ask(Request::Submit(Submission { client, event, to }));
        self.write();
    }

    /// Somebody wants something; while Redrive cannot listen, they try again.
    fn act(&mut self, act: Act) {
        let listens = self.run.as_ref().is_some_and(|run| run.disk == Disk::Well && run.ending.is_none());
        if !listens {
            return self.later(self.now + ms(500), PlannedEvent::Act(act));
        }
        let request = match act {
            Act::Letters(act) => {
                self.letter_acts_left -= 1;
                let Some(order) = self.order(act) else { return };
                Request::Order(order)
            }
            act @ (Act::Tell(_) | Act::Read(_)) => Request::Act(act),
        };
        self.ask(request);
    }

    fn ask(&mut self, request: Request) {
        if let Some(run) = &mut self.run {
            run.writer.ask(request);
            self.write();
        }
    }

    /// Sends what waits to disk, if nothing is on its way there.
    fn write(&mut self) {
        let Some(run) = &mut self.run else { return };
        if run.disk == Disk::Failing || run.writer.is_writing() || run.writer.is_idle() {
            return;
        }
        run.writer.begin_round();
        let takes = self.dice.span(Duration::from_micros(100), ms(20));
        self.in_run(self.now + takes, InRun::Durable);
    }

    /// A round has reached the disk, or has not.
    fn durable(&mut self) {
        let clock = self.clock();
        let fault =
            self.plan.faults.iter().find(|fault| fault.from <= self.now && self.now < fault.until).copied();
        let told_after = self.dice.span(Duration::ZERO, ms(5));
        let run = self.run.as_mut().expect("a round belongs to a run");
        let told_at = (self.now + told_after).max(run.told_until);
        run.told_until = told_at;
        let Some(fault) = fault else {
            let answers = run.writer.finish_round(&mut self.store, clock, &mut self.checker);
            self.in_run(told_at, InRun::Told(answers));
            return self.write();
        };
        if run.disk == Disk::Well && fault.first_commit == FirstCommit::HappensUnheard {
            let round = run.writer.round();
            run.writer.finish_round(&mut self.store, clock, &mut self.checker);
            run.writer.set_round(round);
        }
        let refused = run.writer.fail_round();
        if run.disk == Disk::Well {
            self.in_run(told_at, InRun::StoreFails);
        }
        self.run.as_mut().expect("seen above").disk = Disk::Failing;
        for client in refused {
            let again_after = self.dice.span(ms(50), ms(800));
            self.later(self.now + again_after, PlannedEvent::Send(client));
        }
        self.in_run(fault.until.max(told_at) + ms(1), InRun::StoreIsBack);
    }

    fn pass_on(&mut self, answer: writer::Answer) {
        let clock = self.clock();
        match answer {
            writer::Answer::Settled(settlement, fate, promoted) => {
                let delivery = settlement.delivery;
                if let (Some(service), SettlementResult::Written) = (&settlement.pause, fate) {
                    self.checker.paused_by_rule(service, clock);
                }
                self.say(|| format!("settled {delivery}: {fate:?} {:?}", settlement.next));
                self.tell_engine(Input::Settled { delivery, fate, promoted });
            }
            writer::Answer::Accepted(rows) => {
                if !rows.is_empty() {
                    self.tell_engine(Input::Accepted(rows));
                }
            }
            writer::Answer::Taken { client } => {
                self.clients[client] = Client::Acknowledged;
                let event = &self.plan.arrivals[client].1;
                self.checker.acknowledged(event, self.store.deliveries_of(event.id.as_str()));
            }
            writer::Answer::Done(Act::Tell(command)) => {
                self.say(|| format!("{command:?}"));
                self.checker.commanded(&command, clock);
                self.tell_engine(Input::Operator(command));
            }
            writer::Answer::Done(Act::Read(book)) => {
                self.say(|| format!("book {book} holds"));
                self.checker.reads(book);
                let rules = Arc::clone(&self.plan.books[book].rules);
                if let Some(run) = &mut self.run {
                    run.book = book;
                }
                self.tell_engine(Input::Book(rules));
            }
            writer::Answer::Released(queue) => self.tell_engine(Input::Released(queue)),
            writer::Answer::Done(Act::Letters(_)) => unreachable!("it has become an order"),
            writer::Answer::Ordered(ordered) => self.ordered(ordered),
            writer::Answer::Advanced(job, sent) => {
                self.say(|| format!("{sent} letters sent by {job:?}"));
                self.tell_engine(Input::Advanced { job, sent });
            }
            writer::Answer::Healed(replays) => {
                self.say(|| "the store is back".to_owned());
                self.checker.store_is_back(clock);
                if let Some(run) = &mut self.run {
                    run.disk = Disk::Well;
                }
                // One whose start was not reported is reported now.
                for job in replays {
                    if self.run.as_ref().is_some_and(|run| run.last_replay < job.id) {
                        self.ordered(Ordered::Replay(job));
                    }
                }
                self.tell_engine(Input::StoreHealed);
            }
            writer::Answer::Loaded(page) => {
                self.say(|| {
                    format!("{} of {:?} of {}, more: {}", page.rows.len(), page.wanted, page.queue, page.more)
                });
                self.tell_engine(Input::Loaded(page));
            }
        }
    }

    fn tell_engine(&mut self, input: Input) {
        let clock = self.clock();
        if let Some(run) = &mut self.run {
            run.engine.handle(input, clock);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        let clock = self.clock();
        while let Some(run) = &mut self.run
            && let Some(effect) = run.engine.next_effect()
        {
            match effect {
                Effect::Start(call) => {
                    let row = &call.deliveries[0];
                    let script = self.plan.scripts.iter().find(|(queue, _)| *queue == call.queue);
                    let (_, script) = script.expect("every taker has a target");
                    let answer = script.answer(self.plan.seed, row.id, self.now, call.limit);
                    let ends_at = self.now + answer.took;
                    run.calls.insert(call.id, answer);
                    self.checker.started(&call, clock);
                    self.say(|| {
                        format!(
                            "call {} of {} for {}, attempt {}",
                            call.id.0,
                            row.id,
                            call.queue,
                            row.next_attempt().get()
                        )
                    });
                    if self.plan.poison.as_ref() == Some(&row.event) {
                        return self.crash(RunEnd {
                            at: self.now,
                            manner: Manner::Crash,
                            down_for: ms(300),
                            step: ClockStep::None,
                        });
                    }
                    self.in_run(ends_at, InRun::CallEnds(call.id));
                }
                Effect::Settle(settlement) => run.writer.ask(Request::Settle(settlement)),
                Effect::Load(load) => run.writer.ask(Request::Load(load)),
                Effect::Keep(record) => run.writer.ask(Request::Keep(record)),
                Effect::Release(queue) => run.writer.ask(Request::Release(queue)),
                Effect::Advance(advance) => run.writer.ask(Request::Advance(advance)),
                Effect::Reprocess(dependency) => self.reprocess(&dependency),
                Effect::WakeAt(at) => {
                    run.wake_at = Some(at);
                    let true_time = self.clock.when_it_says(at);
                    self.in_run(true_time, InRun::Tick(at));
                }
                Effect::Activity(_) => {}
            }
        }
        self.write();
    }

    fn start(&mut self) {
        // A store that takes nothing cannot be opened.
        let fault = self.plan.faults.iter().find(|fault| fault.from <= self.now && self.now < fault.until);
        if let Some(until) = fault.map(|fault| fault.until) {
            return self.later(until, PlannedEvent::Restart);
        }
        self.runs += 1;
        let said = self.store.last_written_at.max(self.wall.at(self.now));
        self.clock = Clock { started_at: self.now, said };
        let recovered = self.store.recover(said);
        self.say(|| format!("run {} begins: {recovered:?}", self.runs));
        self.checker.came_up(said, recovered.paused.keys());
        let last_replay = recovered.replays.iter().map(|job| job.id).max().unwrap_or(ReplayId(0));
        let book = self.store.book;
        if self.runs > 1 {
            self.checker.reads(book);
        }
        let books = &self.plan.books;
        let older =
            (0..books.len()).filter(|place| *place != book).map(|place| Arc::clone(&books[place].rules));
        let setup = Setup {
            seed: Seed(self.plan.seed),
            book: Arc::clone(&books[book].rules),
            older_books: older.collect(),
            bounds: self.plan.bounds,
            now: said,
            queues: recovered.queues,
            paused: recovered.paused,
            absences: recovered.absences,
            breakers: recovered.breakers,
            replays: recovered.replays,
            suspects_until: recovered.suspects_until,
        };
        self.run = Some(Run {
            number: self.runs,
            engine: SabotagedEngine::new(setup, self.sabotage),
            writer: Writer::default(),
            disk: Disk::Well,
            book,
            wake_at: None,
            calls: BTreeMap::new(),
            last_replay,
            told_until: self.now,
            ending: None,
        });
        self.in_run(self.now, InRun::Alive);
        self.in_run(self.now + WATCH_EVERY, InRun::Watch);
        self.carry_out();
    }

    fn end_run(&mut self) {
        let is_up = self.run.as_ref().is_some_and(|run| run.ending.is_none());
        let Some(end) = self.ends.front().copied().filter(|_| is_up) else {
            return self.later(self.now + ms(500), PlannedEvent::EndRun);
        };
        self.ends.pop_front();
        match end.manner {
            Manner::Crash => self.crash(end),
            Manner::Stop => {
                self.say(|| "asked to stop".to_owned());
                self.run.as_mut().expect("seen above").ending = Some(end);
                self.tell_engine(Input::Stop);
                self.in_run(self.now + STOPPING_MAX, InRun::Stopped);
            }
        }
    }

    /// What is not durable is gone; a round on its way to disk may have made it.
    fn crash(&mut self, end: RunEnd) {
        let Some(mut run) = self.run.take() else { return };
        let made_it = self.dice.chance(50);
        if run.writer.is_writing() && run.disk == Disk::Well && made_it {
            run.writer.finish_round(&mut self.store, self.clock.at(self.now), &mut self.checker);
        }
        self.crashes += 1;
        self.say(|| format!("crash {}, {:?}", self.crashes, end));
        if self.crashes > CRASHES_MAX {
            self.checker
                .broken("a delivery that brings Redrive down does so a few times", format!("{CRASHES_MAX}"));
        }
        self.go_down(end);
    }

    /// What runs is cut short, what is in hand is written, and the store is closed.
    fn stop(&mut self) {
        let calls: Vec<CallId> = self.run.iter().flat_map(|run| run.calls.keys().copied()).collect();
        for call in calls {
            self.tell_engine(Input::Ended { call, ending: Ending::Interrupted });
        }
        let clock = self.clock();
        let Some(mut run) = self.run.take() else { return };
        let end = run.ending.expect("it was asked to stop");
        if run.disk == Disk::Well {
            while !run.writer.is_idle() {
                if !run.writer.is_writing() {
                    run.writer.begin_round();
                }
                for answer in run.writer.finish_round(&mut self.store, clock, &mut self.checker) {
                    if let writer::Answer::Taken { client } = answer {
                        self.clients[client] = Client::Acknowledged;
                    }
                }
            }
            self.store.close(clock);
        }
        self.say(|| "stopped".to_owned());
        self.go_down(end);
    }

    fn go_down(&mut self, end: RunEnd) {
        self.checker.went_down(self.clock());
        match end.step {
            ClockStep::None => {}
            ClockStep::AnHourAhead => self.wall.hours_ahead += 1,
            ClockStep::AnHourBack => self.wall.hours_back += 1,
        }
        self.later(self.now + end.down_for, PlannedEvent::Restart);
    }
}
