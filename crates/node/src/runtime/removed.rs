//! Queues that the rule book has no more: warns while deliveries wait for them, and takes those out.
//!
//! Invariant: a queue does not come back into the book between the engine's word on what is running of it and the
//! end of a step, so that nothing is taken out that could start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::book::own_book::is_own;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::ids::ChannelName;
use redrive_core::time::Timestamp;
use tokio::sync::oneshot;

use super::letters::order_of;
use super::{Message, Node, OrderError, ReadError, SelectError, Shared, SubmitError};
use crate::happening::{Happening, What};
use crate::store::door::By;
use crate::store::letter::{Order, Ordered, Reassign, Reassignment, Redirect};

/// Deliveries that one step takes out: whoever writes waits for it.
const STEP: u64 = 500;
/// How often removed queues are looked at, beside after each reload.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// A queue for which deliveries still wait is reported again after this long.
const WARN_AGAIN_AFTER: Duration = Duration::from_hours(1);
/// Held sessions that are read at once.
const SESSIONS_PER_LOOK: usize = 500;

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
    /// Queues that the rule book has no more and that deliveries wait for, with how many do.
    pub async fn removed_waiting(&self) -> Result<BTreeMap<QueueName, u64>, ReadError> {
        let Some(snapshot) = self.snapshot().await else { return Ok(BTreeMap::new()) };
        let counts = self.read(|reader| reader.counts()).await?;
        let removed = snapshot.queues.iter().filter(|view| view.held == Some(HeldQueue::Removed));
        let names = removed.map(|view| &*view.name).filter(|name| !is_own(name.service.as_str()));
        let waiting = names.filter_map(|name| {
            let waiting = counts.queues.get(name).map_or(0, |counts| counts.waiting);
            (waiting > 0).then(|| (name.clone(), waiting))
        });
        Ok(waiting.collect())
    }

    /// Takes what waits out of a queue that the rule book has no more, so many at most, the oldest first and each
    /// session in its order. Each step is a transaction: what is done when it ends early stays done.
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
                    to: to.clone(),
                    rows_max: usize::try_from(left).unwrap_or(usize::MAX),
                    running: BTreeSet::new(),
                    after,
                    audit,
                    note: note.clone(),
                };
                let ordered = self.reassign_step(step, by).await?;
                let Ordered::Reassigned { done, unwanted, busy, next, audit: record } = ordered else {
                    unreachable!("deliveries were to be taken out, not {ordered:?}")
                };
                all.done += done;
                pass.done += done;
                pass.unwanted += unwanted;
                pass.busy += busy;
                (after, audit) = (next, record);
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

    async fn reassign_step(&self, step: Reassign, by: &By) -> Result<Ordered, OrderError> {
        let _unchanged = self.shared.changing_book.lock().await;
        let (reply, answer) = oneshot::channel();
        let message = Message::Removed(QueueName::clone(&step.queue), reply);
        self.shared.engine.send(message).await.map_err(|_| SubmitError::Stopping)?;
        let removed = answer.await.map_err(|_| SubmitError::Stopping)?;
        let Some(removed) = removed else {
            return Err(SelectError::InBook { queue: QueueName::clone(&step.queue) }.into());
        };
        let step = Reassign { running: removed.running, ..step };
        self.order(Order::Reassign(Box::new(step)), by).await
    }

    fn reassignment(&self, destination: &Destination) -> Result<Reassignment, SelectError> {
        let Destination::Queue(to) = destination else { return Ok(Reassignment::DeadLetters) };
        let book = self.book();
        let channel = to.channel.as_ref().map(ChannelName::as_str);
        if book.batch_max(to.service.as_str(), channel).is_none() {
            return Err(SelectError::NoDestination { queue: to.clone() });
        }
        let takes = book.patterns_of(to.service.as_str(), channel);
        let order = order_of(&book, to);
        Ok(Reassignment::Queue { to: Redirect { queue: Arc::new(to.clone()), order }, takes })
    }

    /// Those behind a dead letter of the queue can be taken out only if it holds them no more.
    async fn let_sessions_go(&self, queue: &QueueName) -> Result<(), OrderError> {
        let mut after = None;
        loop {
            let page = self.read(move |reader| reader.held_page(after, SESSIONS_PER_LOOK)).await?;
            for session in page.sessions.iter().filter(|session| session.queue == *queue) {
                let channel = queue.channel.as_ref().map(ChannelName::as_str);
                if self.book().batch_max(queue.service.as_str(), channel).is_none() {
                    self.let_go(session.letter).await?;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Reports queues that deliveries wait for and that the rule book has no more.
    pub(super) async fn look_at_removed(
        &self,
        told: &mut BTreeMap<QueueName, Timestamp>,
    ) -> Result<(), ReadError> {
        let (waiting, now) = (self.removed_waiting().await?, self.now());
        told.retain(|queue, _| waiting.contains_key(queue));
        for (queue, count) in waiting {
            if told.get(&queue).is_some_and(|at| now.since(*at) < WARN_AGAIN_AFTER) {
                continue;
            }
            told.insert(queue.clone(), now);
            // The log has it too, as a warning.
            let message = format!(
                "configuration: deliveries wait for a service that the rule book has no more ({count} waiting); put it back, or use `redrive removed`"
            );
            self.shared.tidings.tell(What::Alert, || Happening {
                service: Some(queue.to_string()),
                ..Happening::told(What::Alert, now, message)
            });
        }
        Ok(())
    }
}

/// Looks at removed queues at the start, after each reload and now and then, for as long as the node lives.
pub(super) async fn watch(node: Weak<Shared>) {
    let mut told = BTreeMap::new();
    loop {
        let Some(shared) = node.upgrade() else { return };
        let changed = Arc::clone(&shared.book_changed);
        let reloaded = changed.notified();
        if let Err(error) = (Node { shared }).look_at_removed(&mut told).await {
            tracing::debug!(%error, "removed services could not be looked at");
        }
        // Whichever comes first.
        let _ = tokio::time::timeout(WATCH_EVERY, reloaded).await;
    }
}
