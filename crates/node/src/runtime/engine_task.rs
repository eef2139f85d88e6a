//! The engine task: feeds the engine with messages and carries out its effects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{CallId, Effect, Ending, Engine, EngineActivity, Input, Settlement, TargetCall};
use redrive_core::figures::Figures;
use redrive_core::ids::DependencyName;
use redrive_core::policy::answer::{CallPart, ReplyKind, TargetReply, TransportError};
use redrive_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::active_book::{ActiveBook, ActiveBooks, BookFollowers};
use super::breakers::HistoryMessage;
use super::inbox::{Inbox, NoteJob, WriterWork};
use super::{EngineMessage, Snapshot, StopReport, SubmitAnswer};
use crate::activity::{Activity, ActivityFeed};
use crate::store::{self, OverflowPolicy, StateChange, Submission, SubmittedEvent};
use redrive::clock::{MonotonicClock, STEP_MIN, wall_clock};

const MESSAGES_AT_ONCE: usize = 256;
/// How often the machine's clock is compared with ours.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct EngineTask {
    engine: Engine,
    active: Arc<ActiveBook>,
    inbox: Arc<Inbox>,
    /// Collects writes until all messages at hand are handled.
    outbox: WriterWork,
    own: mpsc::Sender<EngineMessage>,
    clock: MonotonicClock,
    feed: ActivityFeed,
    onward: EngineOutputs,
    calls: HashMap<CallId, AbortHandle>,
    interrupted: usize,
    wake_at: Option<Timestamp>,
    /// Shared with the last snapshot until something is counted.
    figures: Arc<Figures>,
    stopping: Option<Stopping>,
    /// The offset of the machine's clock at the last check.
    drift: i128,
}

/// Outputs other than the writer's queue, and the active book.
pub(super) struct EngineOutputs {
    /// Recovered dependencies whose letters the book reprocesses.
    pub reprocess: mpsc::Sender<DependencyName>,
    pub turns: mpsc::Sender<HistoryMessage>,
    pub books: ActiveBooks,
    pub followers: Arc<BookFollowers>,
}

struct Stopping {
    until: Instant,
    reply: oneshot::Sender<StopReport>,
}

impl EngineTask {
    pub(super) fn new(
        engine: Engine,
        inbox: Arc<Inbox>,
        own: mpsc::Sender<EngineMessage>,
        clock: MonotonicClock,
        feed: ActivityFeed,
        mut onward: EngineOutputs,
    ) -> Self {
        let drift = drift(&clock);
        let active = Arc::clone(&onward.books.borrow_and_update());
        onward.followers.reach("engine", active.generation);
        Self {
            engine,
            active,
            inbox,
            outbox: WriterWork::default(),
            own,
            clock,
            feed,
            onward,
            calls: HashMap::new(),
            interrupted: 0,
            wake_at: None,
            figures: Arc::default(),
            stopping: None,
            drift,
        }
    }

    pub(super) async fn run(mut self, mut messages: mpsc::Receiver<EngineMessage>) {
        let mut taken = Vec::with_capacity(MESSAGES_AT_ONCE);
        let mut look_at_clock = tokio::time::interval(CLOCK_EVERY);
        self.carry_out();
        self.hand_over();
        loop {
            if self.is_over() {
                return self.end();
            }
            let wake = self.next_wake();
            tokio::select! {
                biased;
                count = messages.recv_many(&mut taken, MESSAGES_AT_ONCE) => {
                    if count == 0 {
                        return;
                    }
                    // Accepted events were routed by this book or an earlier one.
                    self.follow_book();
                    for message in taken.drain(..) {
                        self.take(message);
                    }
                    self.hand_over();
                }
                () = sleep_until(wake), if wake.is_some() => {
                    self.feed(Input::Tick);
                    self.hand_over();
                }
                Ok(()) = self.onward.books.changed() => {
                    self.change_book();
                    self.hand_over();
                }
                _ = look_at_clock.tick() => self.look_at_clock(),
            }
        }
    }

    fn follow_book(&mut self) {
        if self.onward.books.has_changed().unwrap_or(false) {
            self.change_book();
        }
    }

    fn change_book(&mut self) {
        self.active = Arc::clone(&self.onward.books.borrow_and_update());
        self.feed(Input::Book(Arc::clone(&self.active.book)));
        self.onward.followers.reach("engine", self.active.generation);
    }

    fn next_wake(&self) -> Option<Instant> {
        let timer = self.wake_at.map(|at| Instant::from_std(self.clock.instant_of(at)));
        let stop = self.stopping.as_ref().map(|stopping| stopping.until);
        [timer, stop].into_iter().flatten().min()
    }

    fn take(&mut self, message: EngineMessage) {
        match message {
            EngineMessage::Batch { answers, inputs, done } => {
                for (waiter, answer) in answers {
                    self.count(&answer);
                    // A client that disconnected has its event accepted all the same.
                    let _ = waiter.send(answer);
                }
                for input in inputs {
                    self.feed(input);
                }
                for doer in done {
                    let _ = doer.send(Ok(()));
                }
            }
            EngineMessage::Ended(call, ending) => {
                self.calls.remove(&call);
                self.interrupted += usize::from(ending == Ending::Interrupted);
                self.feed(Input::Ended { call, ending });
            }
            EngineMessage::Look(reply) => {
                let _ = reply.send(self.snapshot());
            }
            EngineMessage::Waits(asked, reply) => {
                let _ = reply.send(self.engine.waits(&asked, self.clock.now()));
            }
            EngineMessage::Removed(queue, reply) => {
                let _ = reply.send(self.engine.removed_queue(&queue));
            }
            EngineMessage::Stop { within, reply } => {
                self.stopping = Some(Stopping { until: Instant::now() + within, reply });
                self.active.targets.stop(within);
                self.feed(Input::Stop);
            }
        }
    }

    fn count(&mut self, answer: &SubmitAnswer) {
        let Ok(taken) = answer else { return self.feed.refused() };
        let now = self.clock.now();
        let intake = &mut Arc::make_mut(&mut self.figures).intake;
        for taken in taken {
            match taken.seen {
                store::Occurrence::First => {
                    intake.accepted += 1;
                    intake.unrouted += u64::from(taken.deliveries == 0);
                }
                store::Occurrence::Duplicate => {
                    intake.duplicates += 1;
                    let age = now.since(taken.accepted_at);
                    intake.redelivered.add(age);
                    intake.latest_copies.add(age);
                }
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let intake = self.feed.intake(&self.figures.intake);
        if intake != self.figures.intake {
            let figures = Arc::make_mut(&mut self.figures);
            figures.intake = intake;
            figures.turned_away = self.feed.turned_away();
        }
        let now = self.clock.now();
        Snapshot {
            queues: self.engine.queue_views(now).collect(),
            dependencies: self.engine.dependency_views(now).collect(),
            calls: self.calls.len(),
            stale: self.figures.stale,
            figures: Arc::clone(&self.figures),
        }
    }

    fn feed(&mut self, input: Input) {
        if self.wake_at.is_some_and(|at| at <= self.clock.now()) {
            self.wake_at = None;
        }
        self.engine.handle(input, self.clock.now());
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Start(call) => self.start(call),
                Effect::Settle(settlement) => {
                    self.emit(&settlement);
                    self.outbox.settlements.push(settlement);
                }
                Effect::Load(load) => self.outbox.loads.push(load),
                Effect::WakeAt(at) => self.wake_at = Some(at),
                Effect::Keep(record) => self.note(StateChange::Breaker(record), None),
                Effect::Release(queue) => {
                    self.note(StateChange::Release(Arc::clone(&queue)), Some(Input::Released(queue)));
                }
                Effect::Advance(advance) => self.outbox.advances.push(advance),
                Effect::Reprocess(dependency) => {
                    self.note(StateChange::AutoReplayDue(dependency.clone()), None);
                    // If it is full, the dependency is retried in the next run or at the next recovery.
                    let _ = self.onward.reprocess.try_send(dependency);
                }
                Effect::Activity(signal) => self.report_signal(signal),
            }
        }
    }

    /// Has events about a settlement written with it, if any service subscribes.
    fn emit(&mut self, settlement: &Settlement) {
        for event in &settlement.emits {
            let mut routes = self.active.of_own(event);
            for addressee in &mut routes {
                // No sender could send it again.
                addressee.bound.when_full = OverflowPolicy::DeadLetter;
            }
            if !routes.is_empty() {
                let submitted = SubmittedEvent { event: Arc::clone(event), routes };
                self.outbox.emissions.push(Submission { events: vec![submitted] });
            }
        }
    }

    fn note(&mut self, note: StateChange, then: Option<Input>) {
        self.outbox.notes.push(NoteJob { note, then, reply: None });
    }

    fn hand_over(&mut self) {
        if !self.outbox.is_empty() {
            let outbox = &mut self.outbox;
            self.inbox.add(|work| work.append(outbox));
        }
    }

    fn report_signal(&mut self, signal: Box<EngineActivity>) {
        Arc::make_mut(&mut self.figures).count(&signal);
        if let EngineActivity::Breaker { dependency, transition, by } = &*signal {
            // If it is full, only the history misses the transition.
            let _ = self.onward.turns.try_send(HistoryMessage::turned(dependency, transition, *by));
        }
        if let EngineActivity::Stale(delivery) = &*signal {
            tracing::warn!(delivery_id = %delivery, "stale settlement ignored");
        }
        self.feed.publish_signal(signal, || self.clock.now());
    }

    fn start(&mut self, call: Arc<TargetCall>) {
        let target = self.active.targets.get(&call.queue);
        let (id, own) = (call.id, self.own.clone());
        let limit = target.as_ref().map_or(call.limit, |target| target.ends_within(call.limit));
        let task = tokio::spawn(async move {
            let report = CallReport { own: own.clone(), id, is_made: false };
            let ending = match target {
                Some(target) => {
                    let called = tokio::time::timeout(limit, target.call(call)).await;
                    called.unwrap_or_else(|_| {
                        let seen = ReplyKind::Transport(TransportError::Timeout(CallPart::Whole));
                        Ending::Reply(TargetReply::new(seen, "call exceeded its time limit"))
                    })
                }
                None => Ending::Reply(TargetReply::new(ReplyKind::ConfigMissing, "no target is configured")),
            };
            report.make(ending).await;
        });
        self.calls.insert(id, task.abort_handle());
    }

    fn is_over(&self) -> bool {
        let Some(stopping) = &self.stopping else { return false };
        self.engine.is_quiet() || Instant::now() >= stopping.until
    }

    /// Cuts short running calls; they use no retry, and the next run starts with them.
    fn end(mut self) {
        let interrupted = self.interrupted + self.calls.len();
        for (call, task) in std::mem::take(&mut self.calls) {
            task.abort();
            self.engine.handle(Input::Ended { call, ending: Ending::Interrupted }, self.clock.now());
        }
        self.carry_out();
        self.hand_over();
        if let Some(stopping) = self.stopping {
            let _ = stopping.reply.send(StopReport { interrupted });
        }
    }

    /// Timers are not affected by a changed machine clock, but people compare times.
    fn look_at_clock(&mut self) {
        let drift = drift(&self.clock);
        let step = drift - self.drift;
        if step.unsigned_abs() > STEP_MIN.as_nanos() {
            self.drift = drift;
            let seconds = step / 1_000_000_000;
            let now = self.clock.now();
            let message =
                format!("system clock moved by {seconds} s; redrive's own clock continues unchanged");
            self.feed.publish(now, Activity::ClockStepped(message.into()));
        }
    }
}

fn drift(clock: &MonotonicClock) -> i128 {
    i128::from(wall_clock().as_nanos()) - i128::from(clock.now().as_nanos())
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Reports the end of a call even if its task panics.
struct CallReport {
    own: mpsc::Sender<EngineMessage>,
    id: CallId,
    is_made: bool,
}

impl CallReport {
    async fn make(mut self, ending: Ending) {
        self.is_made = true;
        // The engine is gone only when the node is.
        let _ = self.own.send(EngineMessage::Ended(self.id, ending)).await;
    }
}

impl Drop for CallReport {
    fn drop(&mut self) {
        if self.is_made || !std::thread::panicking() {
            return;
        }
        let reply = TargetReply::new(ReplyKind::Internal, "target panicked");
        let (own, id) = (self.own.clone(), self.id);
        tokio::spawn(async move {
            let _ = own.send(EngineMessage::Ended(id, Ending::Reply(reply))).await;
        });
    }
}
