//! Sources that are pulled from: a queue, a stream, a folder. One small trait, and one runner for all of them.
//!
//! A source connects, reads messages and acknowledges them. Everything else comes with the runner, once:
//! a message is acknowledged after its event is durable, known as a duplicate, or recorded as refused; what is
//! read and not acknowledged is bounded; a connection that is lost is opened again by the backoff and the breaker
//! of the rule book; lag, health and counts are shown; a stop lets what was handed over end.
//!
//! A crash between any two steps means that upstream delivers again what it was not told of. The event's source
//! and id absorb that: a [`Message::id`] is the same each time.

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
use redrive_core::policy::answer::Reply;
use redrive_core::time::Timestamp;

pub use self::handle::{Open, Sources};
use crate::connectors::Doing;

/// What went wrong upstream, in the words that targets report it in: the rule book classifies both alike.
pub type SourceError = Reply;

/// A place that messages are read from.
pub trait Source: Send + Sync {
    /// Connects. The future is dropped when the rule's timeout has passed.
    fn connect(&self) -> Doing<'_, Result<Connection, SourceError>>;
}

/// A connection: one half reads while the other acknowledges.
pub struct Connection {
    /// The half that reads.
    pub messages: Box<dyn Messages>,
    /// The half that acknowledges.
    pub acks: Box<dyn Acknowledge>,
}

/// Reads messages.
pub trait Messages: Send {
    /// Waits for messages: at least one and no more than there is room for, but one that is larger than the room
    /// comes alone. It is not called while there is no room. Dropping the future ends the connection.
    ///
    /// Messages of one partition come in the order of the source.
    fn next(&mut self, room: Room) -> Doing<'_, Result<Read, SourceError>>;
}

/// Acknowledges messages.
pub trait Acknowledge: Send {
    /// Acknowledges messages, in the order in which they were read. Those of a partition that was revoked may be
    /// among them, if they were handed over before: whoever cannot acknowledge these leaves them out.
    fn settle(&mut self, settled: Vec<Settled>) -> Doing<'_, Result<(), SourceError>>;

    /// Keeps messages for longer that wait here, where a lease would end: called every 10 seconds.
    fn extend(&mut self, held: Vec<Token>) -> Doing<'_, Result<(), SourceError>> {
        drop(held);
        Box::pin(async { Ok(()) })
    }

    /// How many messages upstream are not acknowledged, as far as anybody knows.
    fn lag(&mut self) -> Doing<'_, Option<u64>>;

    /// Leaves, after everything is acknowledged that will be.
    #[must_use]
    fn close(self: Box<Self>) -> Doing<'static, ()> {
        Box::pin(async {})
    }
}

/// How much may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Messages.
    pub messages: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
}

/// What a read brought.
pub enum Read {
    /// Messages.
    Messages(Vec<Message>),
    /// Partitions that are another's from now on: what was read of them and not handed over is dropped, and not
    /// acknowledged. Messages of such a partition that are read later are its new owner's.
    Revoked(Vec<Partition>),
}

/// The name of a part of a source that keeps its order and can be taken away.
pub type Partition = Arc<str>;

/// What a message is acknowledged by: whatever its source needs for it.
pub type Token = Arc<dyn Any + Send + Sync>;

/// A message as it was read.
pub struct Message {
    /// What it is known by upstream, each time it is delivered: topic, partition and offset, or the like.
    pub id: String,
    /// Where it was read, if that can be taken away.
    pub partition: Option<Partition>,
    /// Its headers, those of `CloudEvents` as `ce-id` and the like, whatever the protocol calls them.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Bytes,
    /// Why no event can be made of it, if the connector knows: it is refused.
    pub fault: Option<String>,
    /// What it is acknowledged by.
    pub token: Token,
}

/// A message that is done with.
pub struct Settled {
    /// What it is acknowledged by.
    pub token: Token,
    /// What it came to.
    pub verdict: Verdict,
}

/// What a message came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its event is durable.
    Durable,
    /// Its event came before.
    Duplicate,
    /// No event was made of it, which is on record with its body; upstream may have a place for such messages.
    Refused(String),
}

/// How a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceView {
    /// Its kind, such as `folder`.
    pub kind: &'static str,
    /// Whether it is read.
    pub state: SourceState,
    /// Since when.
    pub since: Timestamp,
    /// Messages upstream that are not acknowledged, as was last known.
    pub lag: Option<u64>,
    /// Messages that were read and are not acknowledged.
    pub held: usize,
    /// Messages whose events are durable.
    pub durable: u64,
    /// Messages whose events came before.
    pub duplicates: u64,
    /// Messages that were refused.
    pub refused: u64,
}

/// Whether a source is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// It was not connected to yet.
    #[default]
    Connecting,
    /// It is.
    Reading,
    /// It is not, since the store takes nothing: why.
    Held(String),
    /// It is not, since the connection is lost: why.
    Down(String),
}
