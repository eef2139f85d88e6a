//! The costs of looking for deliveries among a million: `cargo bench -p redrive --bench deliveries`.
//!
//! Deliveries lie in a folder on the disk of the system's temporary files; most are delivered, some wait and
//! some are dead. Each question is asked again and again, of other values and from other places; the table
//! tells how long the answers took. A part of a list has 50 ms at the 99th percentile, whatever it finds.

use std::path::Path;
use std::time::{Duration, Instant};

use redrive_core::book::pattern::EventPattern;
use redrive_core::hash;
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;
use redrive_node::store::sqlite::{Options, Sqlite};
use redrive_node::store::{DeliveryFilter, DeliveryStateName, Store};
use rusqlite::Connection;

const DELIVERIES: u64 = 1_000_000;
const SERVICES: u64 = 5;
const SESSIONS: u64 = 200_000;
const EVENT_TYPES: u64 = 20;
const EVENT_BYTES: usize = 1_024;
const SEED: u64 = 7;
const FIRST_AT: u64 = 1_700_000_000_000_000_000;
const PAGE: usize = 50;
const ASKED: u64 = 200;

/// What is asked for, and the filter of each question.
type Ask<'a> = (&'static str, Box<dyn Fn(u64) -> DeliveryFilter + 'a>);

fn main() {
    // Whoever runs the tests of all targets only wants to know that it runs.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let started = Instant::now();
    fill(folder.path());
    println!("{DELIVERIES} deliveries, made in {:.0?}", started.elapsed());
    let reader = Sqlite::open_reader(folder.path()).expect("it opens");
    let all = || DeliveryFilter { rows_max: PAGE, ..DeliveryFilter::default() };
    let pattern = |text: &str| Some(EventPattern::parse(text).expect("a pattern"));
    let named = |text: String| Some(text);
    let asks: Vec<Ask<'_>> = vec![
        ("deliveries", Box::new(|_| all())),
        ("  of a service", Box::new(|n| DeliveryFilter { service: named(service(n)), ..all() })),
        ("  delivered", Box::new(|_| DeliveryFilter { state: Some(DeliveryStateName::Delivered), ..all() })),
        ("  due", Box::new(|_| DeliveryFilter { state: Some(DeliveryStateName::Due), ..all() })),
        (
            "  behind, which none is",
            Box::new(|_| DeliveryFilter { state: Some(DeliveryStateName::Behind), ..all() }),
        ),
        (
            "  closed, which none is",
            Box::new(|_| DeliveryFilter { state: Some(DeliveryStateName::Closed), ..all() }),
        ),
        ("  of a type", Box::new(|n| DeliveryFilter { event_type: pattern(&event_type(n)), ..all() })),
        ("  of no such type", Box::new(|_| DeliveryFilter { event_type: pattern("nothing.*"), ..all() })),
        ("  of a session", Box::new(|n| DeliveryFilter { session: named(session(n)), ..all() })),
        (
            "  of a correlation",
            Box::new(|n| DeliveryFilter { correlation_id: named(correlation(n)), ..all() }),
        ),
        (
            "  due, of no such type",
            Box::new(|_| DeliveryFilter {
                state: Some(DeliveryStateName::Due),
                event_type: pattern("nothing.*"),
                ..all()
            }),
        ),
        (
            "  due, of a session",
            Box::new(|n| DeliveryFilter {
                state: Some(DeliveryStateName::Due),
                session: named(session(n)),
                ..all()
            }),
        ),
    ];
    for (name, ask) in asks {
        let (mut found, mut looked_at) = (0, 0);
        measure(name, |n| {
            // Every other one goes on from somewhere within.
            let before = (n % 2 == 1).then(|| Seq::new(2 * (scattered(n) % DELIVERIES) + 3));
            let listed = reader.list(&DeliveryFilter { before, ..ask(scattered(n)) }).expect("it answers");
            found += listed.deliveries.len();
            looked_at += listed.looked_at;
        });
        let each = |count: f64| count / ASKED as f64;
        println!("{:>8.1} found of {:>8.1}", each(found as f64), each(looked_at as f64));
    }
}

/// Asks again and again, and tells how long it took; the line is left open.
fn measure(name: &str, mut ask: impl FnMut(u64)) {
    let mut took: Vec<Duration> = Vec::new();
    for n in 0..ASKED {
        let started = Instant::now();
        ask(n);
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)].as_secs_f64() * 1_000.0;
    print!("{name:<26} p50 {:>7.2} ms   p99 {:>7.2} ms", at(50), at(99));
}

fn scattered(n: u64) -> u64 {
    hash::stable_64_of(n, SEED)
}

fn service(n: u64) -> String {
    format!("service-{}", n % SERVICES)
}

fn event_type(n: u64) -> String {
    format!("order.event-{}", n % EVENT_TYPES)
}

fn session(n: u64) -> String {
    format!("customer-{}", n % SESSIONS)
}

fn correlation(n: u64) -> String {
    format!("correlation-{}", n % DELIVERIES)
}

/// A number as a column holds it.
fn int(number: u64) -> i64 {
    number.cast_signed()
}

/// Makes a store, and writes deliveries into its file as a store would.
fn fill(folder: &Path) {
    let options = Options { seed: Some(SEED), ..Options::default() };
    let store = Sqlite::open(folder, options).expect("it opens");
    (Box::new(store) as Box<dyn Store>).close(Timestamp::from_nanos(FIRST_AT)).expect("it closes");
    let connection = Connection::open(folder.join("redrive.db")).expect("it opens");
    connection.execute_batch("PRAGMA synchronous = off; BEGIN").expect("it begins");
    write(&connection).expect("they are written");
    connection.execute_batch("COMMIT").expect("it commits");
    connection.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(())).expect("it is copied");
}

fn write(connection: &Connection) -> Result<(), rusqlite::Error> {
    for n in 0..SERVICES {
        let queue = "INSERT INTO queues VALUES (?1, ?2, '', 0, 0, 0, ?3, 0, 0)";
        connection.execute(queue, (int(n + 1), service(n), int(DELIVERIES / SERVICES)))?;
        connection.execute("INSERT INTO subscriptions VALUES (?1, ?2)", (int(n + 1), service(n)))?;
    }
    let mut event = connection.prepare(
        "INSERT INTO events VALUES (?1, ?2, ?3, NULL, 1, 1, ?4, 'https://example.com/shop', ?5, ?6, ?7)",
    )?;
    let mut delivery = connection.prepare(
        "INSERT INTO deliveries VALUES (?1, ?2, ?3, ?3, ?4, ?5, NULL, ?6, 1, ?7, ?7, 0, 7, NULL, NULL, NULL, NULL, NULL, NULL)",
    )?;
    for n in 0..DELIVERIES {
        let (place, at) = (int(2 * n + 1), int(FIRST_AT + n * 1_000_000));
        let attributes = [attribute(4, &session(scattered(n))), attribute(5, &correlation(n))].concat();
        let data = vec![b'x'; EVENT_BYTES];
        event.execute((place, at, int(n), format!("evt-{n}"), event_type(n / 3), attributes, data))?;
        // One in ten waits for its time.
        let state = if n % 10 == 0 { 1 } else { 3 };
        let queue = int(scattered(n) % SERVICES + 1);
        delivery.execute((place + 1, place, queue, int(n), int(EVENT_BYTES as u64), state, at))?;
    }
    Ok(())
}

/// An attribute of an event, as the store writes it.
fn attribute(tag: u8, text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[tag, length], text.as_bytes()].concat()
}
