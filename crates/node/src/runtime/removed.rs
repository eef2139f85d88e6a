//! Queues and rows that the rule book has no more: warns while deliveries wait for them, and takes those out.
//!
//! Invariant: a queue does not come back into the book between the engine's word on what is running of it and the
//! end of a step, so that nothing is taken out that could start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::book::own_book::is_own;
use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::ids::ChannelName;
use redrive_core::time::Timestamp;

use super::letters::order_of;
use super::{Message, Node, OrderError, ReadError, SelectError, Shared, SubmitError};
use crate::activity::{Activity, AlertFacts};
use crate::store::door::By;
use crate::store::letter::{LetterCommand, Reassign, ReassignScope, ReassignStep, Reassignment, Redirect};

/// Deliveries that one step takes out: whoever writes waits for it.
const STEP: u64 = 500;
/// How often removed queues are looked at, beside after each reload.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// After a start or a reload, the engine has put aside what no row takes.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A queue for which deliveries still wait is reported again after this long.
const WARN_AGAIN_AFTER: Duration = Duration::from_hours(1);
/// Held sessions that are read at once.
const SESSIONS_PER_LOOK: usize = 500;

/// Deliveries that no rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedWaiting {
    /// How many wait, with those behind them in their sessions.
    pub waiting: u64,
    /// What the rule book has no more.
    pub removed: RemovedPart,
}

/// What a rule book has no more of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedPart {
    /// The service or the channel.
    Queue,
    /// The rows of the service or the channel that took these events.
    Rows,
}

/// What became of deliveries that waited for a removed queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reassigned {
    /// Dead letters now, or on their way to the other queue.
    pub done: u64,
    /// Left, since the other queue takes no events of their type.
    pub unwanted: u64,
    /// Left, since their attempts are running or an open replay sends them.
    pub busy: u64,
}

/// Where deliveries of a removed queue are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Into the dead letters.
    DeadLetters,
    /// To this queue of the rule book.
    Queue(QueueName),
}

impl Node {
    /// Queues with deliveries that wait though the rule book has the queue no more, or no row that takes them.
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

    /// Takes what waits out of a queue that the rule book has no more, or what no row of it takes, so many at most,
    /// the oldest first and each session in its order. Each step is a transaction: what is done when it ends early stays done.
    pub async fn reassign(
        &self,
        queue: QueueName,
        destination: Destination,
        at_most: Option<u64>,
        note: Option<String>,
        by: &By,
    ) -> Result<Reassigned, OrderError> {
        let queue = Arc::new(queue);
        let to = self.reassignment(&destination)?;
        if self.rows_of(&queue).is_some() && !self.removed_waiting().await?.contains_key(&*queue) {
            return Err(SelectError::InBook { queue: QueueName::clone(&queue) }.into());
        }
        if destination == Destination::DeadLetters {
            self.let_sessions_go(&queue).await?;
        }
        let (mut all, mut audit) = (Reassigned::default(), None);
        loop {
            // One pass over all that may start; those that it lets start are found by the next.
            let (mut after, mut pass) = (None, Reassigned::default());
            loop {
                let left = at_most.map_or(STEP, |most| most.saturating_sub(all.done).min(STEP));
                if left == 0 {
                    return Ok(all);
                }
                let step = Reassign {
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

    async fn reassign_step(&self, step: Reassign, by: &By) -> Result<ReassignStep, OrderError> {
        let _unchanged = self.shared.changing_book.lock().await;
        let queue = QueueName::clone(&step.queue);
        let removed = self.ask_engine(|reply| Message::Removed(queue, reply)).await;
        let removed = removed.ok_or(SubmitError::Stopping)?;
        let step = match (removed, self.rows_of(&step.queue)) {
            (Some(removed), _) => Reassign { running: removed.running, ..step },
            // What no row takes is on disk alone: none of it runs.
            (None, rows) => {
                let scope = ReassignScope::WithoutRule { rows: rows.unwrap_or_default() };
                Reassign { scope, ..step }
            }
        };
        self.command(by, |answer| LetterCommand::Reassign(Box::new(step), answer)).await
    }

    /// The events that a queue of the rule book takes; none if the book has no such queue.
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

    /// Those behind a dead letter of the queue can be taken out only if it holds them no more.
    async fn let_sessions_go(&self, queue: &QueueName) -> Result<(), OrderError> {
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

    /// Reports queues with deliveries that no rule is for.
    pub(super) async fn look_at_removed(
        &self,
        told: &mut BTreeMap<QueueName, (RemovedPart, Timestamp)>,
    ) -> Result<(), ReadError> {
        let (waiting, now) = (self.removed_waiting().await?, self.now());
        told.retain(|queue, (part, _)| waiting.get(queue).is_some_and(|found| found.removed == *part));
        for (queue, RemovedWaiting { waiting, removed }) in waiting {
            if told.get(&queue).is_some_and(|(_, at)| now.since(*at) < WARN_AGAIN_AFTER) {
                continue;
            }
            told.insert(queue.clone(), (removed, now));
            let what = match removed {
                RemovedPart::Queue => "deliveries wait for a service that the rule book has no more",
                RemovedPart::Rows => "deliveries wait that no row of their service takes any more",
            };
            // The log has it too, as a warning.
            let message =
                format!("configuration: {what} ({waiting} waiting); put it back, or use `redrive removed`");
            let facts = AlertFacts { service: Some(queue.to_string()), message, ..AlertFacts::default() };
            self.shared.feed.publish(now, Activity::Alert(facts));
        }
        Ok(())
    }
}

/// Looks at removed queues at the start, after each reload and now and then, for as long as the node lives.
pub(super) async fn watch(node: Weak<Shared>) {
    let Some(mut books) = node.upgrade().map(|shared| shared.books.subscribe()) else { return };
    let (mut told, mut wait) = (BTreeMap::new(), LOOK_AGAIN_AFTER);
    loop {
        let Some(shared) = node.upgrade() else { return };
        books.mark_unchanged();
        if let Err(error) = (Node { shared }).look_at_removed(&mut told).await {
            tracing::debug!(%error, "removed services could not be looked at");
        }
        // Whichever comes first.
        wait = match tokio::time::timeout(wait, books.changed()).await {
            Ok(_) => LOOK_AGAIN_AFTER,
            Err(_) => WATCH_EVERY,
        };
    }
}
