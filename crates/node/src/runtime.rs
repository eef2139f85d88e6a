//! A node: the engine, the store and the targets in one process.
//!
//! One thread writes (`writer.rs`), one task runs the engine (`engine_task.rs`), and each call is a task of
//! its own; they communicate by messages only. `ARCHITECTURE.md` walks through it.

mod access;
mod active_book;
mod alerting;
mod breakers;
mod engine_task;
mod fatal;
mod hand_over;
mod health;
mod inbox;
mod letters;
mod readers;
mod removed;
mod schedules;
mod sources;
#[cfg(test)]
mod tests;
mod trend;
mod writer;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::engine::{
    CallId, DependencyView, Ending, Engine, EngineBounds, Input, OperatorCommand, QueueName, QueueView,
    RemovedQueue, Setup, Wait, WaitQuery,
};
use redrive_core::figures::Figures;
use redrive_core::ids::{DependencyName, Receipt, Seed, Seq, ServiceName};
use redrive_core::limits;
use redrive_core::time::Timestamp;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use self::access::KeyError;
use self::active_book::{ActiveBook, BookFollowers};
pub use self::active_book::{BookSwitch, BookSwitchAt, ChangeError};
use self::alerting::Alerting;
pub use self::alerting::{AlertsView, NotifyError, SentNotice};
pub use self::breakers::{BreakerChange, BreakerHistory, OperatorNote};
pub use self::fatal::Fatal;
use self::fatal::FatalReporter;
pub use self::hand_over::{HandOverResult, IntakeKind};
use self::health::HealthRecord;
pub use self::health::{DiskShort, NodeHealth};
use self::inbox::{Inbox, NoteJob};
pub use self::letters::{LetterCommandError, PurgeResult, ReplayRequest, SelectError, StartedReplay};
use self::readers::Readers;
pub use self::removed::{Destination, ReassignResult, RemovedPart, RemovedWaiting};
pub use self::schedules::ScheduleView;
use self::schedules::{Schedules, WallClock};
use self::sources::SourceViews;
pub use self::sources::WeakNode;
use self::trend::Trends;
pub use self::trend::{RecentFigures, TrendOf, TrendPoint, TrendSeries, TrendSpan};
use self::writer::{StoreWriter, WriterState};
use crate::activity::{Activity, ActivityFeed, ActivityLine, ServiceFacts, TraceStep};
use crate::store::access_store::{AuditActor, AuditEntry};
use crate::store::{
    AcceptedEvent, Backup, BackupProgress, EventKey, EventView, RecoveredState, StateChange, Store,
    StoreCounts, StoreError, StoreReader, SubmissionRefusal,
};
use crate::target::registry::Targets;
use redrive::clock::{MonotonicClock, wall_clock};

const MESSAGES_MAX: usize = 8_192;
const REPROCESS_MAX: usize = 64;
const REROUTE_PAGE: usize = 256;

pub struct Config {
    pub book: Arc<RuleBook>,
    /// Stored with the attempts that it decided.
    pub book_text: Arc<str>,
    pub targets: Targets,
    pub store: Box<dyn Store>,
    pub bounds: EngineBounds,
}

/// Clones are the same node.
#[derive(Clone)]
pub struct Node {
    shared: Arc<NodeShared>,
}

struct NodeShared {
    clock: MonotonicClock,
    inbox: Arc<Inbox>,
    engine: mpsc::Sender<EngineMessage>,
    feed: ActivityFeed,
    chart: HealthRecord,
    fatal: FatalReporter,
    books: watch::Sender<Arc<ActiveBook>>,
    followers: Arc<BookFollowers>,
    schedules: Schedules,
    sources: SourceViews,
    alerting: Alerting,
    breakers: breakers::HistoryHandle,
    trends: Trends,
    readers: Arc<Readers>,
    /// Prevents a reload from restoring a queue that is being emptied.
    changing_book: tokio::sync::Mutex<()>,
    /// Keys are added one at a time, so that they can be counted.
    changing_keys: tokio::sync::Mutex<()>,
    started_at: Timestamp,
}

enum EngineMessage {
    /// The result of a batch. Callers get their answers before the engine sees the inputs.
    Batch {
        answers: Vec<(AnswerSender, SubmitAnswer)>,
        inputs: Vec<Input>,
        done: Vec<CompletionSender>,
    },
    Ended(CallId, Ending),
    Look(oneshot::Sender<Snapshot>),
    Waits(Vec<WaitQuery>, oneshot::Sender<Vec<Wait>>),
    Removed(QueueName, oneshot::Sender<Option<RemovedQueue>>),
    Stop {
        within: Duration,
        reply: oneshot::Sender<StopReport>,
    },
}

type SubmitAnswer = Result<Vec<AcceptedEvent>, SubmitError>;
type AnswerSender = oneshot::Sender<SubmitAnswer>;
/// Waits until a change is durable and known to the engine.
type CompletionSender = oneshot::Sender<Result<(), SubmitError>>;

#[derive(Clone, Debug)]
pub struct Snapshot {
    pub queues: Vec<QueueView>,
    /// Dependencies called so far.
    pub dependencies: Vec<DependencyView>,
    pub calls: usize,
    pub stale: u64,
    pub figures: Arc<Figures>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Calls cut short; they use no retry.
    pub interrupted: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Refused(SubmissionRefusal),
    #[error("write queue is full")]
    Busy,
    #[error("disk is nearly full: {free_bytes} bytes free, {needed_bytes} required")]
    NoRoom { free_bytes: u64, needed_bytes: u64 },
    #[error("store writes are failing: {reason}")]
    Failing { reason: String },
    /// The commit failed and may or may not be durable. Sending the same ids again is safe.
    #[error("commit failed, events may or may not be durable: {reason}")]
    Unknown { reason: String },
    #[error("the server is shutting down")]
    Stopping,
}

struct BackupJob {
    backup: Backup,
    by: AuditActor,
    progress: mpsc::Sender<Result<BackupProgress, String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the server is shutting down")]
    Stopping,
    #[error("store read failed")]
    Store(#[from] StoreError),
}

impl Node {
    pub fn start(config: Config) -> Result<Self, StoreError> {
        Self::start_by(config, WallClock::Machine)
    }

    fn start_by(config: Config, wall: WallClock) -> Result<Self, StoreError> {
        let Config { book, book_text, targets, mut store, bounds } = config;
        let recovered = store.recover(wall_clock())?;
        // No event is accepted before this is known.
        let room = store.has_room()?;
        let now = recovered.resumes_at;
        let clock = MonotonicClock::starting_at(now);
        let inbox = Arc::new(Inbox::default());
        let (engine_sender, engine_receiver) = mpsc::channel(MESSAGES_MAX);
        let feed = ActivityFeed::new(Seed(recovered.seed));
        let chart = HealthRecord::default();
        let followers = Arc::new(BookFollowers::default());
        inbox.record_book(&book, &book_text);
        let first = ActiveBook::new(1, Arc::clone(&book), book_text, targets, now);
        let (books, active_books) = watch::channel(Arc::new(first));
        let (reprocess, well_again) = reprocessing(&recovered.owed);
        let engine = engine(recovered, book, bounds);
        let readers = Readers::new(store.as_ref())?;
        let mut writer = StoreWriter {
            store,
            inbox: Arc::clone(&inbox),
            engine: engine_sender.clone(),
            clock,
            feed: feed.clone(),
            chart: chart.clone(),
            books: active_books.clone(),
            state: WriterState::new(),
        };
        writer.found_room(room);
        let fatal = FatalReporter::new(Arc::clone(&inbox), chart.clone());
        start_writer(writer, fatal.clone())?;
        let (breakers, keeper) = breakers::desk();
        let onward = engine_task::EngineOutputs {
            reprocess,
            turns: breakers.news(),
            books: active_books.clone(),
            followers: Arc::clone(&followers),
        };
        let own = engine_sender.clone();
        let engine_task =
            engine_task::EngineTask::new(engine, Arc::clone(&inbox), own, clock, feed.clone(), onward);
        start_engine(engine_task, engine_receiver, fatal.clone());
        let (schedules, runner) = Schedules::new(active_books.clone(), wall);
        let (alerting, watching) = Alerting::new(active_books);
        let shared = Arc::new(NodeShared {
            clock,
            inbox,
            engine: engine_sender,
            feed,
            chart,
            fatal,
            books,
            followers,
            schedules,
            sources: SourceViews::default(),
            alerting,
            breakers,
            trends: Trends::new(now),
            readers,
            changing_book: tokio::sync::Mutex::new(()),
            changing_keys: tokio::sync::Mutex::new(()),
            started_at: now,
        });
        let weak = || Arc::downgrade(&shared);
        tokio::spawn(letters::bring_back(weak(), well_again));
        tokio::spawn(breakers::keep(weak(), keeper));
        tokio::spawn(schedules::run(weak(), runner));
        tokio::spawn(alerting::run(weak(), watching));
        start_watching(&shared);
        Ok(Self { shared })
    }

    pub async fn pause(&self, service: ServiceName, by: &AuditActor) -> Result<(), SubmitError> {
        let then = Input::Operator(OperatorCommand::Pause(service.clone()));
        let deed = AuditEntry { act: "pause", what: service.to_string(), by: by.clone(), note: None };
        self.do_and_record(StateChange::Pause(service.clone()), Some(then), deed).await?;
        self.publish(Activity::Paused(ServiceFacts { service: service.to_string(), message: None }));
        Ok(())
    }

    pub async fn resume(&self, service: ServiceName, by: &AuditActor) -> Result<(), SubmitError> {
        let then = Input::Operator(OperatorCommand::Resume(service.clone()));
        let deed = AuditEntry { act: "resume", what: service.to_string(), by: by.clone(), note: None };
        self.do_and_record(StateChange::Resume(service.clone()), Some(then), deed).await?;
        self.publish(Activity::Resumed(ServiceFacts { service: service.to_string(), message: None }));
        Ok(())
    }

    pub fn publish(&self, activity: Activity) {
        self.shared.feed.publish(self.now(), activity);
    }

    /// Publishes an activity that was logged with more detail.
    pub fn publish_logged(&self, activity: Activity) {
        self.shared.feed.publish_logged(ActivityLine { at: self.now(), activity });
    }

    pub fn book_refused(&self, reason: String) {
        let now = self.now();
        self.shared.chart.book_refused(now, &reason);
        self.shared.feed.publish(now, Activity::BookRefused(reason.into()));
    }

    /// Routes unrouted events by the current book; returns how many were checked and how many were routed.
    pub async fn route_unrouted(&self, by: &AuditActor) -> Result<RerouteResult, RerouteError> {
        let active = self.active_book();
        let (mut after, mut rerouted) = (Seq::NONE, RerouteResult::default());
        loop {
            let page = self.read(move |reader| reader.unrouted(after, REROUTE_PAGE)).await?;
            let Some(last) = page.last() else {
                self.record_routing(rerouted, by).await?;
                return Ok(rerouted);
            };
            after = last.receipt.seq();
            rerouted.seen += page.len() as u64;
            rerouted.routed += self.route_page(&active, &page).await?;
        }
    }

    /// Routes a page in one transaction; returns how many were routed.
    async fn route_page(&self, active: &ActiveBook, page: &[EventView]) -> Result<u64, RerouteError> {
        let wanted = page.iter().filter_map(|view| {
            let addressees = active.addressees(&view.event);
            (!addressees.is_empty()).then_some((view.receipt, addressees))
        });
        let (receipts, addressees): (Vec<_>, Vec<_>) = wanted.unzip();
        let routed = receipts.iter().zip(addressees).map(|(receipt, routes)| {
            NoteJob::awaited(StateChange::Route { event: receipt.seq(), routes }, None)
        });
        let (jobs, done): (Vec<_>, Vec<_>) = routed.unzip();
        self.shared.inbox.add(|work| work.notes.extend(jobs));
        for done in done {
            done.await.unwrap_or(Err(SubmitError::Stopping))?;
        }
        // The store skips an event if one of its services is full.
        let is_wanted = move |reader: &dyn StoreReader, receipt: &Receipt| {
            let found = reader.events(&EventKey::Receipt(*receipt))?;
            Ok(found.iter().any(|view| !view.unrouted))
        };
        let answers = self.read(move |reader| {
            receipts.iter().map(|receipt| is_wanted(reader, receipt)).collect::<Result<Vec<bool>, _>>()
        });
        Ok(answers.await?.into_iter().filter(|is_routed| *is_routed).count() as u64)
    }

    /// Copies the store to a folder and reports progress; the last report has nothing remaining.
    #[must_use]
    pub fn back_up(
        &self,
        folder: PathBuf,
        by: &AuditActor,
    ) -> mpsc::Receiver<Result<BackupProgress, String>> {
        let (progress, watch) = mpsc::channel(16);
        let backup = Backup::new(folder, BACKUP_PAGES);
        let job = BackupJob { backup, by: by.clone(), progress };
        self.shared.inbox.add(|work| work.backups.push(job));
        watch
    }

    pub async fn snapshot(&self) -> Option<Snapshot> {
        self.ask_engine(EngineMessage::Look).await
    }

    /// None when the node has stopped.
    async fn ask_engine<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> EngineMessage) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.engine.send(question(reply)).await.ok()?;
        answer.await.ok()
    }

    /// What each delivery waits for; none when the node has stopped.
    pub async fn waits(&self, asked: Vec<WaitQuery>) -> Option<Vec<Wait>> {
        self.ask_engine(|reply| EngineMessage::Waits(asked, reply)).await
    }

    /// Activities by kind since the start.
    pub fn activity_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared.feed.counts()
    }

    #[must_use]
    pub fn activities(&self) -> broadcast::Receiver<Arc<ActivityLine>> {
        self.shared.feed.subscribe()
    }

    /// Every step of every event from now on; costs time while there is a receiver.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Arc<TraceStep>> {
        self.shared.feed.follow()
    }

    /// Runs a query on a read-only connection.
    pub async fn read<T, F>(&self, question: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn StoreReader) -> Result<T, StoreError> + Send + 'static,
    {
        Arc::clone(&self.shared.readers).ask(question).await
    }

    #[must_use]
    pub fn book(&self) -> Arc<RuleBook> {
        Arc::clone(&self.active_book().book)
    }

    /// With its source text, which may not be durable yet.
    #[must_use]
    pub fn book_and_text(&self) -> (Arc<RuleBook>, Arc<str>) {
        let active = self.active_book();
        (Arc::clone(&active.book), Arc::clone(&active.text))
    }

    #[must_use]
    pub fn book_read_at(&self) -> Timestamp {
        self.active_book().read_at
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        self.shared.started_at
    }

    /// Stops accepting events, lets calls end within that time, settles, and closes the store.
    pub async fn stop(&self, within: Duration) -> StopReport {
        self.shared.chart.stops();
        self.shared.inbox.close();
        let stopped = self.ask_engine(|reply| EngineMessage::Stop { within, reply }).await;
        let stopped = stopped.unwrap_or(StopReport { interrupted: 0 });
        self.shared.readers.close();
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.add(|work| work.stop = Some(reply));
        // The writer replies when the store is closed.
        let _ = answer.await;
        stopped
    }

    async fn note(&self, note: StateChange, then: Option<Input>) -> Result<(), SubmitError> {
        let (job, done) = NoteJob::awaited(note, then);
        self.shared.inbox.add(|work| work.notes.push(job));
        done.await.unwrap_or(Err(SubmitError::Stopping))
    }

    /// Writes a change and its audit entry in one transaction.
    async fn do_and_record(
        &self,
        note: StateChange,
        then: Option<Input>,
        deed: AuditEntry,
    ) -> Result<(), SubmitError> {
        let (job, done) = NoteJob::awaited(note, then);
        let (record, recorded) = NoteJob::awaited(StateChange::Audit(Box::new(deed)), None);
        // Notes added together are written in one transaction.
        self.shared.inbox.add(|work| work.notes.extend([job, record]));
        done.await.unwrap_or(Err(SubmitError::Stopping))?;
        recorded.await.unwrap_or(Err(SubmitError::Stopping))
    }

    async fn record_routing(&self, rerouted: RerouteResult, by: &AuditActor) -> Result<(), SubmitError> {
        let RerouteResult { seen, routed } = rerouted;
        if routed == 0 {
            return Ok(());
        }
        let what = format!("{routed} of {seen} unrouted events");
        self.note(
            StateChange::Audit(Box::new(AuditEntry { act: "route", what, by: by.clone(), note: None })),
            None,
        )
        .await
    }
}

const BACKUP_PAGES: u32 = 256;

/// The result of routing unrouted events again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RerouteResult {
    /// Unrouted events checked.
    pub seen: u64,
    /// Events routed to a service.
    pub routed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum RerouteError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] SubmitError),
}

fn engine(recovered: RecoveredState, book: Arc<RuleBook>, bounds: EngineBounds) -> Engine {
    let connectors = book.connectors().clone();
    let older_books =
        recovered.books.iter().filter_map(|text| redrive_core::book::read(text, &connectors).book);
    let suspects_until = suspects(&recovered.crashes, recovered.resumes_at);
    if suspects_until.is_some() {
        tracing::warn!("repeated crashes detected, starting waiting deliveries one by one");
    }
    Engine::new(Setup {
        seed: Seed(recovered.seed),
        book,
        older_books: older_books.map(Arc::new).collect(),
        bounds,
        now: recovered.resumes_at,
        queues: recovered.queues,
        paused: recovered.paused,
        absences: recovered.absences,
        breakers: recovered.breakers,
        replays: recovered.replays,
        suspects_until,
    })
}

fn start_watching(shared: &Arc<NodeShared>) {
    tokio::spawn(trend::watch(Arc::downgrade(shared)));
    tokio::spawn(letters::watch_sessions(Arc::downgrade(shared)));
    tokio::spawn(removed::watch(Arc::downgrade(shared)));
}

/// The queue of recovered dependencies, starting with those owed from an earlier run.
fn reprocessing(
    owed: &BTreeSet<DependencyName>,
) -> (mpsc::Sender<DependencyName>, mpsc::Receiver<DependencyName>) {
    let (reprocess, well_again) = mpsc::channel(REPROCESS_MAX);
    for dependency in owed {
        // If it is full, the dependency is still owed in the next run.
        let _ = reprocess.try_send(dependency.clone());
    }
    (reprocess, well_again)
}

fn start_writer(writer: StoreWriter, fatal: FatalReporter) -> Result<(), StoreError> {
    let write = move || {
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| writer.run())) {
            fatal.panicked("the writer", &*panic);
        }
    };
    let spawned = std::thread::Builder::new().name("redrive-writer".to_owned()).spawn(write);
    spawned.map(drop).map_err(|error| StoreError::NoThread { reason: error.to_string() })
}

fn start_engine(
    engine_task: engine_task::EngineTask,
    messages: mpsc::Receiver<EngineMessage>,
    fatal: FatalReporter,
) {
    let running = tokio::spawn(engine_task.run(messages));
    tokio::spawn(async move {
        // An aborted task belongs to a runtime that is shutting down.
        if let Err(error) = running.await
            && error.is_panic()
        {
            fatal.panicked("the engine", &*error.into_panic());
        }
    });
}

/// The last event before the first of several crashes in a short time.
fn suspects(crashes: &[(Timestamp, Seq)], now: Timestamp) -> Option<Seq> {
    let first = crashes.len().checked_sub(limits::CRASHES_MAX)?;
    let (at, last) = crashes[first];
    (now.since(at) <= limits::CRASHES_WITHIN).then_some(last)
}

/// Deliveries in the store that the engine has missed, in queues that it claims to know completely.
#[must_use]
pub fn stranded(snapshot: &Snapshot, counts: &StoreCounts) -> u64 {
    let of = |queue: &QueueView| {
        let heads =
            counts.queues.get(&queue.name).map_or(0, |counts| counts.waiting.saturating_sub(counts.behind));
        heads.saturating_sub(u64::from(queue.known))
    };
    let explored = |queue: &&QueueView| !queue.more_on_disk && queue.held.is_none();
    snapshot.queues.iter().filter(explored).map(of).sum()
}
