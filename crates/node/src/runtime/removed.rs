//! Services, channels and rows that left the rule book: warns while deliveries wait for them, and reassigns
//! those.
//!
//! Invariant: a queue cannot return to the book between the engine's answer about its running deliveries and
//! the end of a step, so nothing is reassigned that could start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::book::alert_rules::is_own;
use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::ids::ChannelName;
use redrive_core::time::Timestamp;

use super::letters::order_of;
use super::{EngineMessage, LetterCommandError, Node, NodeShared, ReadError, SelectError, SubmitError};
use crate::activity::{Activity, AlertFacts};
use crate::store::access_store::AuditActor;
use crate::store::letter::{
    LetterCommand, ReassignCommand, ReassignScope, ReassignStep, Reassignment, Redirect,
};

/// Deliveries per step; writes wait for a step.
const STEP: u64 = 500;
/// How often removed queues are checked, besides after each reload.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// By then the engine has set aside the deliveries without a row.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A queue with waiting deliveries is reported again after this time.
const WARN_AGAIN_AFTER: Duration = Duration::from_hours(1);
const SESSIONS_PER_LOOK: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedWaiting {
    /// Including those behind them in their sessions.
    pub waiting: u64,
    pub removed: RemovedPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedPart {
    Queue,
    /// The rows that took these events.
    Rows,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassignResult {
    /// Moved to dead letters or to the other queue.
    pub done: u64,
    /// Skipped: the other queue does not take their type.
    pub unwanted: u64,
    /// Skipped: an attempt is running, or an open replay sends them.
    pub busy: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    DeadLetters,
    Queue(QueueName),
}

impl Node {
    /// Queues with waiting deliveries whose queue or row left the rule book.
    pub async fn removed_waiting(&self) -> Result<BTreeMap<QueueName, RemovedWaiting>, ReadError> {
        let Some(snapshot) = self.snapshot().await else { return Ok(BTreeMap::new()) };
        let counts = self.read(|reader| reader.counts()).await?;
        let queues = snapshot.queues.iter().filter(|view| !is_own(view.name.service.as_str()));
        let waiting = queues.filter_map(|view| {
            let counts = counts.queues.get(&*view.name).copied().unwrap_or_default();
            let (waiting, removed) = match view.held {
                Some(HeldQueue::Removed) => (counts.waiting, RemovedPart::Queue),
                Some(HeldQueue::Paused { .. }) | None => (counts.without_rule, RemovedPart::Rows),
            };
            (waiting > 0).then(|| (QueueName::clone(&view.name), RemovedWaiting { waiting, removed }))
        });
        Ok(waiting.collect())
    }

    /// Moves waiting deliveries out of a removed queue, or those without a row, oldest first and in session
    /// order. Each step is a transaction: an early end keeps what is done.
    pub async fn reassign(
        &self,
        queue: QueueName,
        destination: Destination,
        at_most: Option<u64>,
        note: Option<String>,
        by: &AuditActor,
    ) -> Result<ReassignResult, LetterCommandError> {
        let queue = Arc::new(queue);
        let to = self.reassignment(&destination)?;
        if self.rows_of(&queue).is_some() && !self.removed_waiting().await?.contains_key(&*queue) {
            return Err(SelectError::InBook { queue: QueueName::clone(&queue) }.into());
        }
        if destination == Destination::DeadLetters {
            self.let_sessions_go(&queue).await?;
        }
        let (mut all, mut audit) = (ReassignResult::default(), None);
        loop {
            // One pass over the ready deliveries; those that become ready are found by the next pass.
            let (mut after, mut pass) = (None, ReassignResult::default());
            loop {
                let left = at_most.map_or(STEP, |most| most.saturating_sub(all.done).min(STEP));
                if left == 0 {
                    return Ok(all);
                }
                let step = ReassignCommand {
                    queue: Arc::clone(&queue),
                    scope: ReassignScope::All,
                    to: to.clone(),
                    rows_max: usize::try_from(left).unwrap_or(usize::MAX),
                    running: BTreeSet::new(),
                    after,
                    audit,
                    note: note.clone(),
                };
                let step = self.reassign_step(step, by).await?;
                all.done += step.done;
                pass.done += step.done;
                pass.unwanted += step.unwanted;
                pass.busy += step.busy;
                (after, audit) = (step.next, step.audit);
                if after.is_none() {
                    break;
                }
            }
            (all.unwanted, all.busy) = (pass.unwanted, pass.busy);
            if pass.done == 0 {
                return Ok(all);
            }
        }
    }

    async fn reassign_step(
        &self,
        step: ReassignCommand,
        by: &AuditActor,
    ) -> Result<ReassignStep, LetterCommandError> {
        let _unchanged = self.shared.changing_book.lock().await;
        let queue = QueueName::clone(&step.queue);
        let removed = self.ask_engine(|reply| EngineMessage::Removed(queue, reply)).await;
        let removed = removed.ok_or(SubmitError::Stopping)?;
        let step = match (removed, self.rows_of(&step.queue)) {
            (Some(removed), _) => ReassignCommand { running: removed.running, ..step },
            // Deliveries without a row are only on disk, so none is running.
            (None, rows) => {
                let scope = ReassignScope::WithoutRule { rows: rows.unwrap_or_default() };
                ReassignCommand { scope, ..step }
            }
        };
        self.command(by, |answer| LetterCommand::Reassign(Box::new(step), answer)).await
    }

    /// The patterns of a queue; none if the book lacks it.
    fn rows_of(&self, queue: &QueueName) -> Option<Vec<EventPattern>> {
        let book = self.book();
        let channel = queue.channel.as_ref().map(ChannelName::as_str);
        book.batch_max(queue.service.as_str(), channel)?;
        Some(book.patterns_of(queue.service.as_str(), channel))
    }

    fn reassignment(&self, destination: &Destination) -> Result<Reassignment, SelectError> {
        let Destination::Queue(to) = destination else { return Ok(Reassignment::DeadLetters) };
        let Some(takes) = self.rows_of(to) else {
            return Err(SelectError::NoDestination { queue: to.clone() });
        };
        let order = order_of(&self.book(), to);
        Ok(Reassignment::Queue { to: Redirect { queue: Arc::new(to.clone()), order }, takes })
    }

    /// A held session must be released before its deliveries can move.
    async fn let_sessions_go(&self, queue: &QueueName) -> Result<(), LetterCommandError> {
        let mut after = None;
        loop {
            let page = self.read(move |reader| reader.held_page(after, SESSIONS_PER_LOOK)).await?;
            for session in page.sessions.iter().filter(|session| session.queue == *queue) {
                if self.rows_of(queue).is_none() {
                    self.let_go(session.letter).await?;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    pub(super) async fn look_at_removed(
        &self,
        reported: &mut BTreeMap<QueueName, (RemovedPart, Timestamp)>,
    ) -> Result<(), ReadError> {
        let (waiting, now) = (self.removed_waiting().await?, self.now());
        reported.retain(|queue, (part, _)| waiting.get(queue).is_some_and(|found| found.removed == *part));
        for (queue, RemovedWaiting { waiting, removed }) in waiting {
            if reported.get(&queue).is_some_and(|(_, at)| now.since(*at) < WARN_AGAIN_AFTER) {
                continue;
            }
            reported.insert(queue.clone(), (removed, now));
            let what = match removed {
                RemovedPart::Queue => "deliveries wait for a service removed from the rule book",
                RemovedPart::Rows => "deliveries wait without a matching row in their service",
            };
            let message =
                format!("configuration: {what} ({waiting} waiting); put it back, or use `redrive removed`");
            let facts = AlertFacts { service: Some(queue.to_string()), message, ..AlertFacts::default() };
            self.shared.feed.publish(now, Activity::Alert(facts));
        }
        Ok(())
    }
}

/// Runs at the start, after each reload and at intervals.
pub(super) async fn watch(node: Weak<NodeShared>) {
    let Some(mut books) = node.upgrade().map(|shared| shared.books.subscribe()) else { return };
    let (mut reported, mut wait) = (BTreeMap::new(), LOOK_AGAIN_AFTER);
    loop {
        let Some(shared) = node.upgrade() else { return };
        books.mark_unchanged();
        if let Err(error) = (Node { shared }).look_at_removed(&mut reported).await {
            tracing::debug!(%error, "removed services not read");
        }
        wait = match tokio::time::timeout(wait, books.changed()).await {
            Ok(_) => LOOK_AGAIN_AFTER,
            Err(_) => WATCH_EVERY,
        };
    }
}
