//! Runs a source: connects, reads, hands over, acknowledges, and reconnects.
//!
//! Three loops share one task: one reads, one hands over in reading order, one acknowledges. [`Window`]
//! bounds what is between them. A batch is read while the previous one is written and the one before that is
//! acknowledged.
//!
//! Invariants: a message is acknowledged only after its [`MessageVerdict`] is durable; no message is handed over
//! before earlier ones; whatever ends the loops, unacknowledged messages come again.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use redrive::clock::wall_clock;
use redrive_core::event::Event;
use redrive_core::policy::answer::{BrokerError, ReplyKind};
use redrive_core::policy::breaker::{BreakerPhase, Transition};
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::convert::Converter;
use super::reconnect::{Reconnect, ReconnectStep};
use super::{
    AckToken, Acknowledge, MessageVerdict, Messages, Partition, ReadRoom, SettledMessage, Source,
    SourceConnection, SourceError, SourceMessage, SourceRead, SourceState,
};
use crate::activity::Activity;
use crate::runtime::{HandOverResult, Node, SubmitError, WeakNode};
use crate::store::access_store::{REFUSED_BODY_BYTES_MAX, RefusedBody};

/// Messages and body bytes read and not acknowledged.
const WINDOW: ReadRoom = ReadRoom { messages: 1_024, bytes: 8 * 1024 * 1024 };
const BATCH_MAX: usize = 256;
/// The first and the longest delay before messages are handed over again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);
/// How often leases are extended and the lag is read.
const EXTEND_EVERY: Duration = Duration::from_secs(10);
const LAG_EVERY: Duration = Duration::from_secs(2);
/// How long a stop may wait for acknowledgements.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct SourceRunner {
    pub(super) name: String,
    pub(super) node: WeakNode,
    pub(super) source: Arc<dyn Source>,
    pub(super) converter: Converter,
    pub(super) stop: watch::Receiver<bool>,
}

struct PendingMessage {
    event: Result<Arc<Event>, String>,
    body: Bytes,
    headers: Vec<(String, String)>,
    partition: Option<Partition>,
    token: AckToken,
}

enum AckCommand {
    Settle { settled: Vec<SettledMessage>, bytes: usize },
    Extend(Vec<AckToken>),
}

/// The result of a batch; messages that were not accepted are returned with the reason.
struct BatchOutcome {
    settled: Vec<SettledMessage>,
    bytes: usize,
    busy: Vec<PendingMessage>,
    why: Option<SubmitError>,
}

impl SourceRunner {
    pub(super) async fn run(mut self) {
        let mut reconnect = Reconnect::default();
        loop {
            let Some((node, rule)) = self.rule() else { return };
            let now = node.now();
            let permit = match reconnect.turn(&rule, now) {
                ReconnectStep::Connect(permit) => permit,
                ReconnectStep::Wait(until) => {
                    drop(node);
                    tokio::select! {
                        biased;
                        _ = self.stop.wait_for(|stop| *stop) => return,
                        () = tokio::time::sleep(until.since(now)) => continue,
                    }
                }
            };
            let limit = rule.timeouts.whole.first;
            let connected = tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop) => return,
                connected = within(limit, self.source.connect()) => connected,
            };
            let (permit, ended) = match connected {
                Ok(connection) => {
                    let turned = reconnect.connected(permit, &rule, node.now());
                    self.connected(&node, turned);
                    drop(node);
                    (None, self.serve(connection, limit, &mut reconnect).await)
                }
                Err(error) => (permit, Err(error)),
            };
            let Err(error) = ended else { return };
            let Some(node) = self.node.upgrade() else { return };
            let turned = reconnect.failed(permit, &error, &rule, node.now());
            self.lost(&node, &error.message, turned);
        }
    }

    fn rule(&self) -> Option<(Node, Rule)> {
        let node = self.node.upgrade()?;
        let rule = node.book().source_rule(&self.name)?;
        Some((node, rule))
    }

    fn connected(&self, node: &Node, turned: Option<Transition>) {
        let was_down = node.see_source(&self.name, |view| {
            view.since = wall_clock();
            matches!(std::mem::replace(&mut view.state, SourceState::Reading), SourceState::Down(_))
        });
        if was_down || turned.is_some() {
            let source = self.name.as_str();
            tracing::info!(source, "source reconnected");
            node.publish_logged(Activity::alert(format!("source {source} is connected again")));
        }
    }

    fn lost(&self, node: &Node, why: &str, turned: Option<Transition>) {
        let source = self.name.as_str();
        let was_up = node.see_source(source, |view| {
            let was_up = !matches!(view.state, SourceState::Down(_));
            if was_up {
                view.since = wall_clock();
            }
            (view.state, view.held) = (SourceState::Down(why.to_owned()), 0);
            was_up
        });
        if was_up {
            tracing::warn!(source, why, "source disconnected, retrying");
            node.publish_logged(Activity::alert(format!("source {source} is not connected: {why}")));
        }
        if turned.is_some_and(|turned| turned.to == BreakerPhase::Open) {
            tracing::warn!(source, why, "circuit breaker of the source opened");
        }
    }

    async fn serve(
        &mut self,
        SourceConnection { messages, acks }: SourceConnection,
        limit: Duration,
        reconnect: &mut Reconnect,
    ) -> Result<(), SourceError> {
        let window = Window::default();
        let (reads, to_hand_over) = mpsc::channel(1);
        let (orders, to_acknowledge) = mpsc::channel(4);
        let mut stop = self.stop.clone();
        let serving = async {
            tokio::try_join!(
                read(messages, &window, reads, self.stop.clone(), reconnect),
                self.hand_over(to_hand_over, orders, &window),
                self.acknowledge(acks, to_acknowledge, &window, limit),
            )
        };
        let overdue = async {
            let _ = stop.wait_for(|stop| *stop).await;
            tokio::time::sleep(STOP_WITHIN).await;
        };
        tokio::select! {
            served = serving => {
                let ((), (), acks) = served?;
                // A connection that hangs holds nothing of value.
                let _ = tokio::time::timeout(STOP_WITHIN, acks.close()).await;
            }
            () = overdue => tracing::warn!(source = self.name, "source stopped before everything was acknowledged"),
        }
        Ok(())
    }

    async fn hand_over(
        &self,
        mut reads: mpsc::Receiver<SourceRead>,
        orders: mpsc::Sender<AckCommand>,
        window: &Window,
    ) -> Result<(), SourceError> {
        let mut pending: VecDeque<PendingMessage> = VecDeque::new();
        // Revoked while their messages are being handed over.
        let mut revoked: BTreeSet<Partition> = BTreeSet::new();
        let mut handing: Option<Pin<Box<dyn Future<Output = Option<BatchOutcome>> + Send>>> = None;
        let mut in_hand: Vec<AckToken> = Vec::new();
        let (mut again_at, mut again_after) = (Instant::now(), AGAIN_AFTER);
        let mut extend = ticks(EXTEND_EVERY);
        let mut is_reading = true;
        while is_reading || handing.is_some() {
            if handing.is_none() && !pending.is_empty() && again_at <= Instant::now() && is_reading {
                let batch: Vec<PendingMessage> = pending.drain(..pending.len().min(BATCH_MAX)).collect();
                in_hand = batch.iter().map(|held| Arc::clone(&held.token)).collect();
                handing = Some(Box::pin(hand_over(self.node.clone(), self.name.clone(), batch)));
            }
            tokio::select! {
                biased;
                ended = async { handing.as_mut().expect("it is some").await }, if handing.is_some() => {
                    (handing, in_hand) = (None, Vec::new());
                    let Some(ended) = ended else { return Ok(()) };
                    self.saw(&ended);
                    if ended.why.is_some() {
                        again_at = Instant::now() + again_after;
                        again_after = (again_after * 2).min(AGAIN_AFTER_MAX);
                    } else {
                        again_after = AGAIN_AFTER;
                    }
                    let (lost, busy): (Vec<_>, Vec<_>) =
                        ended.busy.into_iter().partition(|held| held.is_of(&revoked));
                    window.release(lost.len(), lost.iter().map(PendingMessage::bytes).sum());
                    busy.into_iter().rev().for_each(|held| pending.push_front(held));
                    revoked.clear();
                    self.see_held(window);
                    if !ended.settled.is_empty() {
                        let act = AckCommand::Settle { settled: ended.settled, bytes: ended.bytes };
                        if orders.send(act).await.is_err() {
                            return Ok(());
                        }
                    }
                }
                read = reads.recv(), if is_reading => match read {
                    Some(SourceRead::Messages(messages)) => {
                        let now = wall_clock();
                        pending.extend(messages.into_iter().map(|message| self.held(message, now)));
                        self.see_held(window);
                    }
                    Some(SourceRead::Revoked(partitions)) => {
                        revoked.extend(partitions);
                        let before = (pending.len(), pending.iter().map(PendingMessage::bytes).sum::<usize>());
                        pending.retain(|held| !held.is_of(&revoked));
                        let after = (pending.len(), pending.iter().map(PendingMessage::bytes).sum::<usize>());
                        window.release(before.0 - after.0, before.1 - after.1);
                        if handing.is_none() {
                            revoked.clear();
                        }
                        self.see_held(window);
                    }
                    None => is_reading = false,
                },
                () = tokio::time::sleep_until(again_at), if handing.is_none() && !pending.is_empty() => {}
                _ = extend.tick() => {
                    let waiting = pending.iter().map(|held| Arc::clone(&held.token));
                    let held: Vec<AckToken> = in_hand.iter().map(Arc::clone).chain(waiting).collect();
                    if !held.is_empty() && orders.send(AckCommand::Extend(held)).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn held(&self, message: SourceMessage, now: Timestamp) -> PendingMessage {
        let event = self.converter.event(&message, now).map(Arc::new);
        let SourceMessage { partition, headers, body, token, .. } = message;
        PendingMessage { event, body, headers, partition, token }
    }

    async fn acknowledge(
        &self,
        mut acks: Box<dyn Acknowledge>,
        mut orders: mpsc::Receiver<AckCommand>,
        window: &Window,
        limit: Duration,
    ) -> Result<Box<dyn Acknowledge>, SourceError> {
        let mut lag = ticks(LAG_EVERY);
        loop {
            tokio::select! {
                biased;
                act = orders.recv() => match act {
                    None => return Ok(acks),
                    Some(AckCommand::Settle { settled, bytes }) => {
                        let count = settled.len();
                        within(limit, acks.settle(settled)).await?;
                        window.release(count, bytes);
                        self.see_held(window);
                    }
                    Some(AckCommand::Extend(held)) => within(limit, acks.extend(held)).await?,
                },
                _ = lag.tick() => {
                    let lag = tokio::time::timeout(limit, acks.lag()).await.unwrap_or_default();
                    if let Some(node) = self.node.upgrade() {
                        node.see_source(&self.name, |view| view.lag = lag.or(view.lag));
                    }
                }
            }
        }
    }

    fn saw(&self, ended: &BatchOutcome) {
        let Some(node) = self.node.upgrade() else { return };
        node.see_source(&self.name, |view| {
            for SettledMessage { verdict, .. } in &ended.settled {
                match verdict {
                    MessageVerdict::Durable => view.durable += 1,
                    MessageVerdict::Duplicate => view.duplicates += 1,
                    MessageVerdict::Refused(_) => view.refused += 1,
                }
            }
            let state = match &ended.why {
                Some(why) => SourceState::Held(why.to_string()),
                None => SourceState::Reading,
            };
            if std::mem::discriminant(&state) != std::mem::discriminant(&view.state) {
                view.since = wall_clock();
            }
            view.state = state;
        });
    }

    fn see_held(&self, window: &Window) {
        if let Some(node) = self.node.upgrade() {
            node.see_source(&self.name, |view| view.held = window.used().messages);
        }
    }
}

impl PendingMessage {
    fn bytes(&self) -> usize {
        self.body.len()
    }

    fn is_of(&self, partitions: &BTreeSet<Partition>) -> bool {
        self.partition.as_ref().is_some_and(|partition| partitions.contains(partition))
    }
}

async fn read(
    mut messages: Box<dyn Messages>,
    window: &Window,
    reads: mpsc::Sender<SourceRead>,
    mut stop: watch::Receiver<bool>,
    reconnect: &mut Reconnect,
) -> Result<(), SourceError> {
    loop {
        let read = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
            read = async { messages.next(window.room().await).await } => read?,
        };
        if let SourceRead::Messages(messages) = &read {
            reconnect.read();
            window.take(messages.len(), messages.iter().map(|message| message.body.len()).sum());
        }
        if reads.send(read).await.is_err() {
            return Ok(());
        }
    }
}

async fn hand_over(node: WeakNode, source: String, batch: Vec<PendingMessage>) -> Option<BatchOutcome> {
    let node = node.upgrade()?;
    let events: Vec<Arc<Event>> = batch.iter().filter_map(|held| held.event.clone().ok()).collect();
    let mut handed = node.hand_over_in_order(&events).await.into_iter();
    let mut ended = BatchOutcome { settled: Vec::new(), bytes: 0, busy: Vec::new(), why: None };
    for held in batch {
        let reason = match &held.event {
            Ok(_) => match handed.next()? {
                HandOverResult::Durable(_) => Ok(MessageVerdict::Durable),
                HandOverResult::Duplicate(_) => Ok(MessageVerdict::Duplicate),
                HandOverResult::Refused { first } => {
                    Err(format!("a different event with this source and id exists: {first}"))
                }
                HandOverResult::Invalid(violation) => Err(violation.to_string()),
                HandOverResult::Busy(error) => {
                    ended.why.get_or_insert(error);
                    ended.busy.push(held);
                    continue;
                }
            },
            Err(reason) => Err(reason.clone()),
        };
        let verdict = match reason {
            Ok(verdict) => verdict,
            // Recorded before upstream forgets it.
            Err(reason) => match node.record_refused(held.refused(&source, &reason)).await {
                Ok(()) => MessageVerdict::Refused(reason),
                Err(error) => {
                    ended.why.get_or_insert(error);
                    ended.busy.push(held);
                    continue;
                }
            },
        };
        ended.bytes += held.bytes();
        ended.settled.push(SettledMessage { token: held.token, verdict });
    }
    Some(ended)
}

impl PendingMessage {
    fn refused(&self, source: &str, reason: &str) -> RefusedBody {
        RefusedBody {
            number: 0,
            at: Timestamp::EPOCH,
            source: source.to_owned(),
            reason: reason.to_owned(),
            headers: self.headers.clone(),
            // A slice of a large body would keep all of it in memory.
            body: Bytes::copy_from_slice(&self.body[..self.body.len().min(REFUSED_BODY_BYTES_MAX)]),
            body_bytes: self.body.len() as u64,
        }
    }
}

#[derive(Default)]
struct Window {
    used: Mutex<WindowUse>,
    freed: Notify,
}

#[derive(Clone, Copy, Default)]
struct WindowUse {
    messages: usize,
    bytes: usize,
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, WindowUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> WindowUse {
        *self.lock()
    }

    async fn room(&self) -> ReadRoom {
        loop {
            let freed = self.freed.notified();
            let WindowUse { messages, bytes } = self.used();
            if messages < WINDOW.messages && bytes < WINDOW.bytes {
                return ReadRoom { messages: WINDOW.messages - messages, bytes: WINDOW.bytes - bytes };
            }
            freed.await;
        }
    }

    fn take(&self, messages: usize, bytes: usize) {
        let mut used = self.lock();
        used.messages += messages;
        used.bytes += bytes;
    }

    fn release(&self, messages: usize, bytes: usize) {
        let mut used = self.lock();
        used.messages = used.messages.saturating_sub(messages);
        used.bytes = used.bytes.saturating_sub(bytes);
        drop(used);
        self.freed.notify_one();
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn within<T>(
    limit: Duration,
    doing: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(limit, doing).await.unwrap_or_else(|_| {
        Err(SourceError::new(ReplyKind::Broker(BrokerError::TimedOut), format!("no answer within {limit:?}")))
    })
}
