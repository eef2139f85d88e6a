//! Questions about letters, asked of rows that were written by hand, and the plans of the queries.

mod letters;
mod plans;

use std::collections::BTreeMap;

use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::event::attribute::{
    CorrelationId, EventId, EventSource, EventSubject, EventType, SessionKey,
};
use redrive_core::ids::{DeliveryId, Seq, ServiceName};
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::Category;
use redrive_core::time::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;

use super::SqliteReader;
use crate::store::derive;
use crate::store::sqlite::{encode, schema};

const SEED: u64 = 7;
/// Letters of the table.
const LETTERS: u64 = 600;
/// Their kinds: more than are merged.
const KINDS: u64 = 200;
const FIRST_AT: u64 = 1_700_000_000_000_000_000;
const STEP: u64 = 1_000_000_000;

/// A file with letters in it.
struct Table {
    connection: Connection,
    reader: SqliteReader,
    _folder: TempDir,
}

/// The letters: the first is number 0. The place of each is twice its number and two.
mod of {
    use super::*;

    pub(super) fn kind(n: u64) -> u64 {
        n % KINDS
    }

    pub(super) fn service(n: u64) -> String {
        format!("service-{}", kind(n) % 2)
    }

    pub(super) fn event_type(n: u64) -> String {
        format!("order.{}", if kind(n) < 5 { "rare" } else { "common" })
    }

    pub(super) fn category(n: u64) -> Category {
        if kind(n).is_multiple_of(3) { Category::Permanent } else { Category::Transient }
    }

    pub(super) fn code(n: u64) -> String {
        format!("HTTP_{}", 500 + kind(n) % 4)
    }

    pub(super) fn tier(n: u64) -> &'static str {
        if kind(n).is_multiple_of(10) { "poison" } else { "dead" }
    }

    /// Two kinds have a cause in common.
    pub(super) fn cause(n: u64) -> Fingerprint {
        Fingerprint(u64::MAX - kind(n) / 2)
    }

    pub(super) fn session(n: u64) -> Option<String> {
        (!n.is_multiple_of(3)).then(|| format!("session-{}", n % 20))
    }

    pub(super) fn correlation(n: u64) -> Option<String> {
        (n.is_multiple_of(2)).then(|| format!("correlation-{}", n % 50))
    }

    pub(super) fn replays(n: u64) -> u32 {
        u32::from(n.is_multiple_of(7))
    }

    pub(super) fn message(n: u64) -> String {
        format!("target answered 503 to call {n}")
    }

    pub(super) fn died_at(n: u64) -> Timestamp {
        Timestamp::from_nanos(FIRST_AT + n * STEP)
    }

    pub(super) fn place(n: u64) -> Seq {
        Seq::new(2 * n + 2)
    }

    pub(super) fn delivery(n: u64) -> DeliveryId {
        DeliveryId::new(place(n), n)
    }

    pub(super) fn queue(n: u64) -> QueueName {
        QueueName { service: ServiceName::new(&service(n)).expect("a name"), channel: None }
    }

    pub(super) fn event(n: u64) -> Event {
        Event {
            id: EventId::new(&format!("evt-{n}")).expect("an id"),
            source: EventSource::new("/shop").expect("a source"),
            event_type: EventType::new(&event_type(n)).expect("a type"),
            subject: Some(EventSubject::new(&format!("Subject {}", n % 9)).expect("a subject")),
            time: None,
            content_type: None,
            session: session(n).map(|key| SessionKey::new(&key).expect("a key")),
            correlation_id: correlation(n).map(|id| CorrelationId::new(&id).expect("an id")),
            traceparent: None,
            extensions: BTreeMap::new(),
            data: format!("{{\"Größe\":\"{}\"}}", n % 30).into_bytes().into(),
        }
    }
}

impl Table {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("letters.db");
        let connection = schema::open(&path, SEED).expect("it opens");
        connection.execute_batch("BEGIN").expect("it begins");
        write_kinds(&connection).expect("kinds are written");
        for n in 0..LETTERS {
            write_letter(&connection, n).expect("a letter is written");
        }
        connection.execute_batch("COMMIT").expect("it commits");
        let reader = SqliteReader::open(&path).expect("it opens");
        Self { connection, reader, _folder: folder }
    }

    fn run(&self, sql: &str) {
        self.connection.execute_batch(sql).expect("it is SQL");
    }
}

fn int(number: u64) -> i64 {
    number.cast_signed()
}

fn nanos(n: u64) -> i64 {
    encode::nanos(of::died_at(n))
}

fn write_kinds(connection: &Connection) -> Result<(), rusqlite::Error> {
    for service in 0..2 {
        let queue = "INSERT INTO queues VALUES (?1 + 1, ?2, '', 0, 0, 0, 0, ?3, 0)";
        connection.execute(queue, (service, format!("service-{service}"), int(LETTERS / 2)))?;
        connection.execute(
            "INSERT INTO subscriptions VALUES (?1 + 1, ?2)",
            (service, format!("claim-{service}")),
        )?;
    }
    let insert =
        "INSERT INTO kinds VALUES (?1, ?2, ?3, ?3, ?4, ?5, 'EXHAUSTED', ?6, ?7, ?8, 'group', ?9, ?10, ?11)";
    for n in 0..KINDS {
        connection.execute(
            insert,
            (
                int(n + 1),
                int(of::cause(n).0),
                int(n % 2 + 1),
                of::event_type(n),
                of::category(n).as_str(),
                of::code(n),
                of::tier(n),
                format!("_{}.deadletter", of::service(n)),
                int(LETTERS / KINDS),
                nanos(n),
                nanos(LETTERS - KINDS + n),
            ),
        )?;
    }
    Ok(())
}

fn write_letter(connection: &Connection, n: u64) -> Result<(), rusqlite::Error> {
    let event = of::event(n);
    let (place, queue) = (encode::place(of::place(n)), int(of::kind(n) % 2 + 1));
    connection.execute(
        "INSERT INTO events VALUES (?1, ?2, 0, NULL, 1, 1, ?3, ?4, ?5, ?6, ?7)",
        (
            place - 1,
            nanos(n),
            event.id.as_str(),
            event.source.as_str(),
            event.event_type.as_str(),
            encode::attributes(&event),
            &event.data[..],
        ),
    )?;
    let hash = |text: String| derive::text_hash(SEED, &text);
    let lane = of::session(n).map(|session| hash(format!("{queue}/{session}")));
    let replays = Some(of::replays(n)).filter(|times| *times > 0);
    connection.execute(
        "INSERT INTO deliveries VALUES
            (?1, ?1 - 1, ?2, ?2, ?3, ?4, ?5, 4, 3, NULL, ?6, 0, 7, NULL, NULL, NULL, ?7, NULL, NULL)",
        (place, queue, int(n), event.data.len().cast_signed(), lane, nanos(n), replays),
    )?;
    connection.execute(
        "INSERT INTO letters VALUES (?1, ?2, ?3, ?1, ?4, ?5, NULL, ?6)",
        (
            nanos(n),
            place,
            int(of::kind(n) + 1),
            of::session(n).map(hash),
            of::correlation(n).map(hash),
            of::message(n),
        ),
    )?;
    Ok(())
}
