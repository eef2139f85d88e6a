//! Events that are written with the change that causes them, and sent after its commit.
//!
//! Invariants: events are sent one at a time in commit order; one that cannot be sent holds up the ones after
//! it; and it is deleted only after it was sent, so a crash in between sends it again with the same id. Of
//! several relays on one database one works at a time; another takes over when its lease ends.

use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{create_tables, millis};
use crate::clock::wall_clock;

/// How long a relay that died blocks the others.
const LEASE: Duration = Duration::from_secs(30);
/// Renewals per lease.
const RENEWALS_PER_LEASE: u32 = 3;
const BUSY_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// First and longest delay after a failure.
const TRY_AGAIN: Duration = Duration::from_millis(500);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(30);

/// An event to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its id, the same on every repetition.
    pub event_id: String,
    /// Its content.
    pub payload: Vec<u8>,
}

/// Queues an event in the caller's transaction, to be sent after its commit.
pub fn send_later(
    transaction: &Transaction<'_>,
    event_id: &str,
    payload: &[u8],
) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO redrive_outgoing (event_id, payload) VALUES (?1, ?2)";
    transaction.prepare_cached(sql)?.execute(params![event_id, payload]).map(drop)
}

/// Sends queued events.
#[derive(Debug)]
pub struct Relay {
    connection: Arc<Mutex<Connection>>,
    /// Identifies this relay.
    holder: i64,
    lease: Duration,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayPass {
    /// All queued events were sent.
    All {
        /// How many.
        sent: u64,
    },
    /// Another relay is working.
    NotOurs,
}

/// A pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum RelayError<E> {
    /// An event could not be sent; the next pass starts with it.
    #[error("could not send event {event_id}: {error}")]
    NotSent {
        /// Its id.
        event_id: String,
        /// The cause.
        error: E,
    },
    /// The database failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The task panicked, or its runtime shut down.
    #[error("database task was interrupted")]
    BrokenOff,
}

impl Relay {
    /// A relay on its own connection to that database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_MAX)?;
        create_tables(&connection)?;
        // Zero marks a free lease.
        let holder = (RandomState::new().hash_one(std::process::id()) | 1).cast_signed();
        Ok(Self { connection: Arc::new(Mutex::new(connection)), holder, lease: LEASE })
    }

    /// Replaces the lease of 30 seconds, after which another relay takes over from one that died. It is
    /// renewed while an event is sent.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Sends events until dropped; failures are logged and retried.
    pub async fn run<E, F>(&self, mut send: impl FnMut(Outgoing) -> F) -> Infallible
    where
        E: std::fmt::Display,
        F: Future<Output = Result<(), E>>,
    {
        let mut pause = TRY_AGAIN;
        loop {
            match self.pass(&mut send).await {
                Ok(_) => {
                    pause = TRY_AGAIN;
                    sleep(LOOK_EVERY).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "sending queued events failed, retrying");
                    sleep(pause).await;
                    pause = (pause * 2).min(TRY_AGAIN_MAX);
                }
            }
        }
    }

    /// Sends queued events up to the first failure.
    pub async fn pass<E, F>(&self, mut send: impl FnMut(Outgoing) -> F) -> Result<RelayPass, RelayError<E>>
    where
        F: Future<Output = Result<(), E>>,
    {
        let mut done = None;
        let mut count = 0;
        loop {
            let (place, event) = match self.next(done).await? {
                NextEvent::Event(place, event) => (place, event),
                NextEvent::None => return Ok(RelayPass::All { sent: count }),
                NextEvent::NotOurs => return Ok(RelayPass::NotOurs),
            };
            let event_id = event.event_id.clone();
            let outcome = tokio::select! {
                biased;
                outcome = send(event) => outcome,
                never = self.keep_lease() => match never {},
            };
            outcome.map_err(|error| RelayError::NotSent { event_id, error })?;
            (done, count) = (Some(place), count + 1);
        }
    }

    /// Renews the lease while an event is being sent.
    async fn keep_lease(&self) -> Infallible {
        loop {
            sleep(self.lease / RENEWALS_PER_LEASE).await;
            let (connection, holder, lease) = (Arc::clone(&self.connection), self.holder, self.lease);
            let asked = spawn_blocking(move || {
                let connection = connection.lock().expect("nothing panics while it holds the connection");
                renew(&connection, holder, lease, wall_clock())
            });
            if let Ok(Err(error)) = asked.await {
                tracing::warn!(%error, "relay lease renewal failed");
            }
        }
    }

    /// Deletes the event just sent and returns the next, in one transaction that renews the lease.
    async fn next<E>(&self, sent: Option<i64>) -> Result<NextEvent, RelayError<E>> {
        let (connection, holder, lease) = (Arc::clone(&self.connection), self.holder, self.lease);
        let asked = spawn_blocking(move || {
            let mut connection = connection.lock().expect("nothing panics while it holds the connection");
            next(&mut connection, holder, lease, sent, wall_clock())
        });
        Ok(asked.await.map_err(|_| RelayError::BrokenOff)??)
    }
}

fn renew(
    connection: &Connection,
    holder: i64,
    lease: Duration,
    now: Timestamp,
) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE redrive_relay SET since = ?2, lease_ends_at = ?3 WHERE holder = ?1";
    let renewed = params![holder, millis(now), millis(now + lease)];
    connection.prepare_cached(sql)?.execute(renewed).map(drop)
}

enum NextEvent {
    Event(i64, Outgoing),
    None,
    NotOurs,
}

fn next(
    connection: &mut Connection,
    holder: i64,
    lease: Duration,
    sent: Option<i64>,
    now: Timestamp,
) -> Result<NextEvent, rusqlite::Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(place) = sent {
        // It was sent, whichever relay works now.
        transaction.prepare_cached("DELETE FROM redrive_outgoing WHERE place = ?1")?.execute([place])?;
    }
    // A lease from the future dates from before the clock was set back.
    let sql = "UPDATE redrive_relay SET holder = ?1, since = ?2, lease_ends_at = ?3
        WHERE holder = ?1 OR lease_ends_at <= ?2 OR since > ?2";
    let claimed = params![holder, millis(now), millis(now + lease)];
    let is_ours = transaction.prepare_cached(sql)?.execute(claimed)? > 0;
    let next = if is_ours { first(&transaction)? } else { NextEvent::NotOurs };
    transaction.commit()?;
    Ok(next)
}

fn first(transaction: &Transaction<'_>) -> Result<NextEvent, rusqlite::Error> {
    let sql = "SELECT place, event_id, payload FROM redrive_outgoing ORDER BY place LIMIT 1";
    let mut statement = transaction.prepare_cached(sql)?;
    let found = statement.query_row([], |row| {
        Ok(NextEvent::Event(row.get(0)?, Outgoing { event_id: row.get(1)?, payload: row.get(2)? }))
    });
    Ok(found.optional()?.unwrap_or(NextEvent::None))
}
