//! The archivist: copies accepted events from the store to the archive, one after the other.
//!
//! It is a task beside the node, which does not depend on it. Its position is a memo in the store, written
//! once per page and only when the page is durable in the archive. So a crash repeats one page, and after an
//! outage the archive catches up for as long as the store keeps the events.
//!
//! Invariants: the memo never runs ahead of the archive, except for events left out on purpose, each of which
//! is counted; a rule book without an archive clears the memo, so a later archive starts with events accepted
//! from then on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive_core::alerts::Incident;
use redrive_core::archive::{
    ArchiveAction, ArchiveChange, ArchiveControl, ArchiveHealth, ArchiveRule, WriteOutcome,
};
use redrive_core::book::RuleBook;
use redrive_core::ids::{Receipt, Seq};
use redrive_core::time::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Archive, ArchiveEntry, ArchiveFailure, Day};
use crate::activity::{Activity, BreakerFacts};
use crate::connectors::Drivers;
use crate::runtime::{Node, ReadError, SubmitError};
use crate::store::EventView;

/// The memo with the position.
const UPTO: &str = "archive:upto";
/// Events and payload bytes of one page: what a crash repeats at most.
const PAGE_ROWS: usize = 256;
const PAGE_BYTES: usize = 16 * 1024 * 1024;
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SYNC_WITHIN: Duration = Duration::from_mins(1);
const PAGE_AGAIN_AFTER: Duration = Duration::from_secs(5);
const FORGET_EVERY: Duration = Duration::from_hours(1);
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub type ArchiveOpener = dyn Fn(&ArchiveRule) -> Result<Arc<dyn Archive>, ArchiveFailure> + Send + Sync;

/// Clones are the same archivist. It ends when the last is dropped.
#[derive(Clone)]
pub struct Archivist {
    shared: Arc<ArchivistShared>,
}

struct ArchivistShared {
    wishes: watch::Sender<ArchivistGoal>,
    progress: Arc<Mutex<ArchiveProgress>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Debug, PartialEq)]
enum ArchivistGoal {
    Nothing,
    Keep(Arc<ArchiveRule>),
    Stop,
}

impl ArchivistGoal {
    fn of(book: &RuleBook) -> Self {
        ArchiveRule::of(book).map_or(Self::Nothing, |rule| Self::Keep(Arc::new(rule)))
    }
}

/// Since the process started.
#[derive(Clone, Debug)]
struct ArchiveProgress {
    standing: ArchiveHealth,
    archived: u64,
    left_out: u64,
    /// When the oldest unarchived event was accepted; none if all are archived.
    waiting_since: Option<Timestamp>,
    last_error: Option<(Timestamp, String)>,
    is_stuck: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveStatus {
    pub standing: ArchiveHealth,
    pub archived: u64,
    pub left_out: u64,
    /// The age of the oldest unarchived event; none if all are archived.
    pub behind: Option<Duration>,
    pub last_error: Option<(Timestamp, String)>,
    /// Whether the last page failed other than by a write.
    pub is_stuck: bool,
}

impl Archivist {
    /// Starts beside a node, by its rule book. When this returns, the start of a new archive is fixed: every
    /// event accepted from then on will be in it.
    pub async fn start(node: &Node, drivers: &Drivers) -> Self {
        let drivers = drivers.clone();
        Self::with(node, Box::new(move |rule| drivers.archive(&rule.endpoint))).await
    }

    pub async fn with(node: &Node, open: Box<ArchiveOpener>) -> Self {
        let wish = ArchivistGoal::of(&node.book());
        if let ArchivistGoal::Keep(_) = &wish
            && let Err(error) = place(node).await
        {
            tracing::warn!(%error, "archive position not stored, retrying");
        }
        let (wishes, receiver) = watch::channel(wish);
        let progress = Arc::new(Mutex::new(ArchiveProgress::new()));
        let task =
            ArchivistTask { node: node.clone(), wishes: receiver, progress: Arc::clone(&progress), open };
        let task = Mutex::new(Some(tokio::spawn(task.run())));
        Self { shared: Arc::new(ArchivistShared { wishes, progress, task }) }
    }

    pub fn change(&self, book: &RuleBook) {
        let wish = ArchivistGoal::of(book);
        // An unchanged rule does not interrupt the work.
        self.shared.wishes.send_if_modified(|now| {
            let is_new = *now != wish && *now != ArchivistGoal::Stop;
            if is_new {
                *now = wish;
            }
            is_new
        });
    }

    #[must_use]
    pub fn status(&self, now: Timestamp) -> Option<ArchiveStatus> {
        if *self.shared.wishes.borrow() == ArchivistGoal::Nothing {
            return None;
        }
        let ArchiveProgress { standing, archived, left_out, waiting_since, last_error, is_stuck } =
            locked(&self.shared.progress).clone();
        let behind = waiting_since.map(|since| now.since(since));
        Some(ArchiveStatus { standing, archived, left_out, behind, last_error, is_stuck })
    }

    /// Stops; unfinished work is repeated after the next start.
    pub async fn stop(&self) {
        self.shared.wishes.send_replace(ArchivistGoal::Stop);
        let task = self.shared.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = tokio::time::timeout(STOP_WITHIN, task).await;
        }
    }
}

fn locked(progress: &Mutex<ArchiveProgress>) -> MutexGuard<'_, ArchiveProgress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ArchiveProgress {
    const fn new() -> Self {
        Self {
            standing: ArchiveHealth::Well,
            archived: 0,
            left_out: 0,
            waiting_since: None,
            last_error: None,
            is_stuck: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] SubmitError),
}

/// The position up to which all events are archived; a new archive starts at the end.
async fn place(node: &Node) -> Result<Seq, PlaceError> {
    let (memo, last) = node.read(|reader| Ok((reader.memo(UPTO)?, reader.last_place()?))).await?;
    if let Some(upto) = memo.and_then(|memo| memo.parse().ok()) {
        // A position beyond the end belongs to another store.
        return Ok(Seq::new(upto).min(last));
    }
    node.set_memo(UPTO, Some(last.get().to_string())).await?;
    Ok(last)
}

struct ArchivistTask {
    node: Node,
    wishes: watch::Receiver<ArchivistGoal>,
    progress: Arc<Mutex<ArchiveProgress>>,
    open: Box<ArchiveOpener>,
}

impl ArchivistTask {
    async fn run(mut self) {
        loop {
            let wish = self.wishes.borrow_and_update().clone();
            // The alert was about the previous rule.
            self.node.clear_trouble(Incident::ArchiveStuck, "");
            let work = async {
                match wish {
                    ArchivistGoal::Stop => {}
                    ArchivistGoal::Nothing => self.forget_place().await,
                    ArchivistGoal::Keep(ref rule) => self.keep(rule).await,
                }
            };
            let mut wishes = self.wishes.clone();
            tokio::select! {
                biased;
                changed = wishes.changed() => if changed.is_err() { return },
                () = work => match wish {
                    ArchivistGoal::Stop => return,
                    ArchivistGoal::Nothing | ArchivistGoal::Keep(_) => if wishes.changed().await.is_err() { return },
                },
            }
        }
    }

    /// An archive that is added again later starts anew.
    async fn forget_place(&self) {
        loop {
            let memo = self.node.memo(UPTO).await;
            let forgotten = match memo {
                Ok(None) => return,
                Ok(Some(_)) => self.node.set_memo(UPTO, None).await.is_ok(),
                Err(_) => false,
            };
            if forgotten {
                return;
            }
            tokio::time::sleep(PAGE_AGAIN_AFTER).await;
        }
    }

    async fn keep(&self, rule: &ArchiveRule) {
        let archive = loop {
            match (self.open)(rule) {
                Ok(archive) => break archive,
                Err(error) => self.is_stuck(&error.to_string()),
            }
            tokio::time::sleep(PAGE_AGAIN_AFTER).await;
        };
        let mut upto = loop {
            match place(&self.node).await {
                Ok(upto) => break upto,
                Err(error) => self.is_stuck(&error.to_string()),
            }
            tokio::time::sleep(PAGE_AGAIN_AFTER).await;
        };
        let mut care = ArchiveControl::new();
        let mut forgetting = Forgetting::default();
        loop {
            forgetting.look(&self.node, rule, &archive);
            match self.keep_page(rule, &archive, &mut care, upto).await {
                Ok(Some(last)) => {
                    self.gets_on();
                    upto = last;
                }
                Ok(None) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => {
                    self.is_stuck(&error);
                    tokio::time::sleep(PAGE_AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Writes the page after a position; returns its end, or none if there is nothing to write.
    async fn keep_page(
        &self,
        rule: &ArchiveRule,
        archive: &Arc<dyn Archive>,
        care: &mut ArchiveControl,
        upto: Seq,
    ) -> Result<Option<Seq>, String> {
        let page = self.node.read(move |reader| reader.events_after(upto, PAGE_ROWS, PAGE_BYTES)).await;
        let page = page.map_err(|error| error.to_string())?;
        let Some(last) = page.last().map(|view| view.receipt.seq()) else {
            locked(&self.progress).waiting_since = None;
            return Ok(None);
        };
        // Hashing large payloads would block other tasks.
        let packing =
            tokio::task::spawn_blocking(move || page.iter().map(PendingEntry::of).collect::<Vec<_>>());
        let page = packing.await.map_err(|error| error.to_string())?;
        let (mut archived, mut left_out) = (0, 0);
        for event in &page {
            locked(&self.progress).waiting_since = Some(event.received_at);
            match self.keep_one(rule, archive, care, event).await {
                WriteResult::Kept => archived += 1,
                WriteResult::LeftOut => left_out += 1,
            }
        }
        if archived > 0 {
            let synced = tokio::time::timeout(SYNC_WITHIN, archive.sync()).await;
            synced
                .unwrap_or(Err(ArchiveFailure::TimedOut { within: SYNC_WITHIN }))
                .map_err(|error| error.to_string())?;
        }
        let noted = self.node.set_memo(UPTO, Some(last.get().to_string())).await;
        noted.map_err(|error| error.to_string())?;
        let mut progress = locked(&self.progress);
        progress.archived += archived;
        progress.left_out += left_out;
        Ok(Some(last))
    }

    /// Writes an event, retrying as long as the rule allows, or leaves it out.
    async fn keep_one(
        &self,
        rule: &ArchiveRule,
        archive: &Arc<dyn Archive>,
        care: &mut ArchiveControl,
        event: &PendingEntry,
    ) -> WriteResult {
        loop {
            let now = self.node.now();
            let turn = care.next_action(rule, now);
            locked(&self.progress).standing = care.standing(now);
            match turn {
                ArchiveAction::Wait(until) => tokio::time::sleep(until.since(now)).await,
                ArchiveAction::LeaveOut => return WriteResult::LeftOut,
                ArchiveAction::Write { permit, within } => {
                    let written = tokio::time::timeout(within, archive.put(Arc::clone(&event.entry))).await;
                    let written = written.unwrap_or(Err(ArchiveFailure::TimedOut { within }));
                    let outcome = written.as_ref().copied().map_err(ArchiveFailure::failure);
                    let (fate, news) = care.settle(permit, outcome, rule, self.node.now());
                    let error = written.err().map(|error| error.to_string());
                    if let Some(error) = &error {
                        self.note_error(error);
                    }
                    if let Some(news) = news {
                        self.report(news, event.receipt, error.as_deref().unwrap_or_default());
                    }
                    locked(&self.progress).standing = care.standing(self.node.now());
                    match fate {
                        WriteOutcome::Kept => return WriteResult::Kept,
                        WriteOutcome::LeftOut => return WriteResult::LeftOut,
                        WriteOutcome::Again => {}
                    }
                }
            }
        }
    }

    fn note_error(&self, error: &str) {
        tracing::debug!(error, "archive write failed");
        locked(&self.progress).last_error = Some((self.node.now(), error.to_owned()));
    }

    /// Reports a failure that the breaker does not count, once while it lasts.
    fn is_stuck(&self, error: &str) {
        self.note_error(error);
        self.node.raise_trouble(Incident::ArchiveStuck, "", error);
        if !std::mem::replace(&mut locked(&self.progress).is_stuck, true) {
            tracing::warn!(error, "archive write failed, retrying");
            let message = format!("archive write failed, retrying; events wait in the store: {error}");
            self.node.publish_logged(Activity::alert(message));
        }
    }

    fn gets_on(&self) {
        if std::mem::take(&mut locked(&self.progress).is_stuck) {
            tracing::info!("archive writes recovered");
            self.node.clear_trouble(Incident::ArchiveStuck, "");
        }
    }

    fn report(&self, news: ArchiveChange, receipt: Receipt, error: &str) {
        match news {
            ArchiveChange::LockedOut => {
                let message = format!("archive unavailable: {error}; events wait in the store");
                tracing::warn!(error, "archive access denied, events wait in the store");
                self.node.raise_trouble(Incident::ArchiveStuck, "", error);
                self.node.publish_logged(Activity::alert(message));
            }
            ArchiveChange::LetIn => {
                tracing::info!("archive access restored");
                self.node.clear_trouble(Incident::ArchiveStuck, "");
            }
            ArchiveChange::Opened => {
                tracing::warn!(error, "circuit breaker of the archive opened, events are skipped");
                let message = format!("circuit breaker of the archive, events are skipped: {error}");
                self.node.raise_trouble(Incident::ArchiveIncomplete, "", error);
                self.node.publish_logged(Activity::BreakerOpened(breaker(message)));
            }
            ArchiveChange::Closed { left_out } => {
                tracing::warn!(left_out, "circuit breaker of the archive closed");
                let message = format!("circuit breaker of the archive, {left_out} events were skipped");
                self.node.publish_logged(Activity::BreakerClosed(breaker(message)));
            }
            ArchiveChange::TooSlow => {
                tracing::warn!(%receipt, error, "event not archived");
                let message = format!("event {receipt} not archived: {error}, twice");
                self.node.raise_trouble(Incident::ArchiveIncomplete, "", &format!("{receipt}: {error}"));
                self.node.publish_logged(Activity::alert(message));
            }
        }
    }
}

struct PendingEntry {
    entry: Arc<ArchiveEntry>,
    receipt: Receipt,
    received_at: Timestamp,
}

impl PendingEntry {
    fn of(view: &EventView) -> Self {
        let entry = Arc::new(ArchiveEntry::of(view));
        Self { entry, receipt: view.receipt, received_at: view.received_at }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteResult {
    Kept,
    LeftOut,
}

/// Deletes old days in the background, one run at a time.
#[derive(Default)]
struct Forgetting {
    looked_at: Option<Timestamp>,
    under_way: Option<JoinHandle<()>>,
}

impl Forgetting {
    fn look(&mut self, node: &Node, rule: &ArchiveRule, archive: &Arc<dyn Archive>) {
        let (Some(retention), now) = (rule.retention, node.now()) else { return };
        let is_due = self.looked_at.is_none_or(|at| now.since(at) >= FORGET_EVERY);
        let is_idle = self.under_way.as_ref().is_none_or(JoinHandle::is_finished);
        if !is_due || !is_idle {
            return;
        }
        self.looked_at = Some(now);
        let (archive, before) = (Arc::clone(archive), Day::of(now - retention));
        self.under_way = Some(tokio::spawn(async move {
            match archive.forget(before.clone()).await {
                Ok(0) => {}
                Ok(days) => tracing::info!(days, %before, "archive days deleted"),
                Err(error) => tracing::warn!(%error, "archive days not deleted"),
            }
        }));
    }
}

fn breaker(message: String) -> BreakerFacts {
    BreakerFacts { message, dependency: None, failures: None }
}

#[cfg(test)]
mod tests;
