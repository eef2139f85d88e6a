//! Polled sources: a queue, a stream, a folder. One small trait, and one runner for all.
//!
//! A source connects, reads messages and acknowledges them. The runner does the rest: it acknowledges a
//! message after its event is durable, a duplicate or recorded as refused; bounds what is read and not
//! acknowledged; reconnects by the rule book's backoff and breaker; reports lag, health and counts; and
//! drains on stop.
//!
//! After a crash between two steps upstream delivers again what was not acknowledged. The event's source and
//! id absorb that: [`SourceMessage::id`] is the same each time.

#[cfg(any(test, feature = "testing"))]
pub mod contract;
pub mod convert;
pub mod folder;
mod handle;
mod reconnect;
mod runner;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::policy::answer::TargetReply;
use redrive_core::time::Timestamp;

pub use self::handle::{SourceOpener, Sources};
use crate::connectors::ConnectorFuture;

/// Upstream errors in the form that targets report, so the rule book classifies both alike.
pub type SourceError = TargetReply;

pub trait Source: Send + Sync {
    /// The future is dropped at the rule's timeout.
    fn connect(&self) -> ConnectorFuture<'_, Result<SourceConnection, SourceError>>;
}

/// One half reads while the other acknowledges.
pub struct SourceConnection {
    pub messages: Box<dyn Messages>,
    pub acks: Box<dyn Acknowledge>,
}

pub trait Messages: Send {
    /// Waits for at least one message, and returns no more than there is room for, except that a single
    /// larger one comes alone. Not called without room. Dropping the future ends the connection.
    ///
    /// Messages of one partition come in order.
    fn next(&mut self, room: ReadRoom) -> ConnectorFuture<'_, Result<SourceRead, SourceError>>;
}

pub trait Acknowledge: Send {
    /// Acknowledges messages in reading order. Those of a revoked partition may be among them; a source that
    /// cannot acknowledge these skips them.
    fn settle(&mut self, settled: Vec<SettledMessage>) -> ConnectorFuture<'_, Result<(), SourceError>>;

    /// Extends the leases of waiting messages; called every 10 seconds.
    fn extend(&mut self, held: Vec<AckToken>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        drop(held);
        Box::pin(async { Ok(()) })
    }

    /// Unacknowledged messages upstream, if known.
    fn lag(&mut self) -> ConnectorFuture<'_, Option<u64>>;

    /// Disconnects, after the last acknowledgement.
    #[must_use]
    fn close(self: Box<Self>) -> ConnectorFuture<'static, ()> {
        Box::pin(async {})
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRoom {
    pub messages: usize,
    /// Of message bodies.
    pub bytes: usize,
}

pub enum SourceRead {
    Messages(Vec<SourceMessage>),
    /// Partitions that were reassigned: their messages that are not yet handed over are dropped without
    /// acknowledgement.
    Revoked(Vec<Partition>),
}

/// A part of a source that keeps its order and can be revoked.
pub type Partition = Arc<str>;

/// Whatever the source needs to acknowledge a message.
pub type AckToken = Arc<dyn Any + Send + Sync>;

pub struct SourceMessage {
    /// Stable across redeliveries, such as topic, partition and offset.
    pub id: String,
    /// None if it cannot be revoked.
    pub partition: Option<Partition>,
    /// `CloudEvents` headers are named `ce-id` and so on, whatever the protocol calls them.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub fault: Option<String>,
    pub token: AckToken,
}

pub struct SettledMessage {
    pub token: AckToken,
    pub verdict: MessageVerdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageVerdict {
    Durable,
    Duplicate,
    /// Recorded with its body; upstream may have a place for such messages.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceView {
    /// Such as `folder`.
    pub kind: &'static str,
    pub state: SourceState,
    pub since: Timestamp,
    /// Unacknowledged messages upstream, if known.
    pub lag: Option<u64>,
    /// Read and not acknowledged.
    pub held: usize,
    pub durable: u64,
    pub duplicates: u64,
    pub refused: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    #[default]
    Connecting,
    Reading,
    /// Paused, since the store accepts nothing: why.
    Held(String),
    Down(String),
}
