//! The costs of looking at a million dead letters: `cargo bench -p redrive --bench letters`.
//!
//! Letters lie in a folder on the disk of the system's temporary files, once with few kinds and once with very
//! many. Each question is asked again and again, of other values and from other places; the table tells how
//! long the answers took. A list within a filter and groups have 50 ms at the 99th percentile.

use std::path::Path;
use std::time::{Duration, Instant};

use redrive_core::book::pattern::EventPattern;
use redrive_core::hash;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::Category;
use redrive_core::time::Timestamp;
use redrive_node::store::letter::{LetterFilter, LetterNumber, LetterQuery, Poison, Selection};
use redrive_node::store::sqlite::{Options, Sqlite};
use redrive_node::store::{Store, StoreReader};
use rusqlite::Connection;

const LETTERS: u64 = 1_000_000;
const SERVICES: u64 = 5;
const SESSIONS: u64 = 200_000;
const EVENT_TYPES: u64 = 20;
const EVENT_BYTES: usize = 1_024;
const SEED: u64 = 7;
/// From one death to the next.
const STEP_NANOS: u64 = 50_000_000;
const FIRST_AT: u64 = 1_700_000_000_000_000_000;
const PAGE: usize = 50;
const ASKED: u64 = 200;

fn main() {
    // Whoever runs the tests of all targets only wants to know that it runs.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for kinds in [50, 100_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let started = Instant::now();
        fill(folder.path(), kinds);
        println!("{LETTERS} letters of {kinds} kinds, made in {:.0?}", started.elapsed());
        let reader = Sqlite::open_reader(folder.path()).expect("it opens");
        lists(&*reader, kinds);
        groups(&*reader, kinds);
        surveys(&*reader);
    }
}

/// What is asked for, and the filter of each question.
type Ask<'a> = (&'static str, Box<dyn Fn(u64) -> LetterFilter + 'a>);

fn lists(reader: &dyn StoreReader, kinds: u64) {
    let filter = LetterFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let asks: Vec<Ask<'_>> = vec![
        ("letters", Box::new(|_| filter())),
        ("  of a service", Box::new(|n| LetterFilter { service: Some(service(n)), ..filter() })),
        ("  of a subscription", Box::new(|n| LetterFilter { subscription: Some(service(n)), ..filter() })),
        ("  of a category", Box::new(|n| LetterFilter { category: Some(category(n)), ..filter() })),
        ("  of a code", Box::new(|n| LetterFilter { code: Some(code(n)), ..filter() })),
        ("  of a cause", Box::new(move |n| LetterFilter { fingerprint: Some(cause(n % kinds)), ..filter() })),
        ("  of a type", Box::new(|n| LetterFilter { event_type: Some(pattern(&event_type(n))), ..filter() })),
        ("  of all types", Box::new(|_| LetterFilter { event_type: Some(pattern("order.*")), ..filter() })),
        ("  of a session", Box::new(|n| LetterFilter { session: Some(session(n)), ..filter() })),
        (
            "  of a correlation",
            Box::new(|n| LetterFilter { correlation_id: Some(correlation(n)), ..filter() }),
        ),
        ("  of a tier", Box::new(|_| LetterFilter { tier: Some(Tier::Poison), ..filter() })),
        ("  of an hour", Box::new(|n| hour(n, filter()))),
        ("  of a service, code and type", Box::new(|n| narrow(n, filter()))),
        (
            "  of a service in an hour",
            Box::new(|n| hour(n, LetterFilter { service: Some(service(n)), ..filter() })),
        ),
        ("  never replayed", Box::new(|_| LetterFilter { replays_below: Some(1), ..filter() })),
        ("  of nobody", Box::new(|_| LetterFilter { service: text("nobody"), ..filter() })),
        (
            "  with a text in an hour",
            Box::new(|n| hour(n, LetterFilter { text: text("CUSTOMER-7"), ..filter() })),
        ),
        (
            "  with no such text in an hour",
            Box::new(|n| hour(n, LetterFilter { text: text("absent"), ..filter() })),
        ),
        (
            "  with no such text of a cause",
            Box::new(move |n| LetterFilter {
                text: text("absent"),
                fingerprint: Some(cause(n % kinds)),
                ..filter()
            }),
        ),
    ];
    for (name, ask) in asks {
        let mut found = 0;
        measure(name, ASKED, |n| {
            // Every other one goes on from somewhere within.
            let before = (n % 2 == 1).then(|| LetterNumber(died_at(scattered(n) % LETTERS)));
            let page = reader.letters(&LetterQuery { filter: ask(scattered(n)), before, rows_max: PAGE });
            found += page.expect("it answers").letters.len();
        });
        println!("{:>8.1} found", found as f64 / ASKED as f64);
    }
}

fn groups(reader: &dyn StoreReader, kinds: u64) {
    let filter = LetterFilter::default;
    let now = Timestamp::from_nanos(died_at(LETTERS));
    let asks: Vec<Ask<'_>> = vec![
        ("groups", Box::new(|_| filter())),
        ("  of a service", Box::new(|n| LetterFilter { service: Some(service(n)), ..filter() })),
        ("  of a type", Box::new(|n| LetterFilter { event_type: Some(pattern(&event_type(n))), ..filter() })),
        ("  of a cause", Box::new(move |n| LetterFilter { fingerprint: Some(cause(n % kinds)), ..filter() })),
        ("  of an hour", Box::new(|n| hour(n, filter()))),
        (
            "  of the last third",
            Box::new(|_| LetterFilter {
                from: Some(Timestamp::from_nanos(died_at(LETTERS / 3 * 2))),
                ..filter()
            }),
        ),
        ("  of a session", Box::new(|n| LetterFilter { session: Some(session(n)), ..filter() })),
    ];
    for (name, ask) in asks {
        let mut found = 0;
        measure(name, ASKED / 2, |n| {
            found += reader.groups(&ask(scattered(n)), now, PAGE).expect("it answers").len();
        });
        println!("{:>8.1} found", found as f64 / (ASKED / 2) as f64);
    }
}

fn surveys(reader: &dyn StoreReader) {
    let asks = [
        ("survey", LetterFilter::default()),
        ("  of a service", LetterFilter { service: Some(service(1)), ..LetterFilter::default() }),
        ("  of an hour", hour(1, LetterFilter::default())),
    ];
    for (name, filter) in asks {
        let died_until = Timestamp::from_nanos(died_at(LETTERS));
        let selection = Selection { filter, letters: None, poison: Poison::Left, died_until };
        let mut counted = (0, 0);
        measure(name, 5, |_| {
            let survey = reader.survey(&selection).expect("it answers");
            counted = (survey.letters, survey.sessions);
        });
        println!("{:>8} letters, {} sessions", counted.0, counted.1);
    }
    println!();
}

/// Asks so often, and tells how long it took; the line is left open.
fn measure(name: &str, times: u64, mut ask: impl FnMut(u64)) {
    ask(0);
    let mut took: Vec<Duration> = Vec::new();
    for n in 0..times {
        let started = Instant::now();
        ask(n);
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)].as_secs_f64() * 1_000.0;
    print!("{name:<34} p50 {:>8.2} ms   p99 {:>8.2} ms", at(50), at(99));
}

/// Values as a table of letters has them, for the letter or the question of that number.
fn scattered(n: u64) -> u64 {
    hash::stable_64_of(n, SEED)
}

fn service(n: u64) -> String {
    format!("service-{}", n % SERVICES)
}

fn event_type(n: u64) -> String {
    format!("order.event-{}", n % EVENT_TYPES)
}

fn pattern(text: &str) -> EventPattern {
    EventPattern::parse(text).expect("a pattern")
}

fn category(n: u64) -> Category {
    Category::ALL[(n % 4) as usize]
}

fn code(n: u64) -> String {
    format!("HTTP_{}", 500 + n % 10)
}

fn cause(n: u64) -> Fingerprint {
    Fingerprint(hash::stable_64_of(n, 1))
}

fn session(n: u64) -> String {
    format!("customer-{}", n % SESSIONS)
}

fn correlation(n: u64) -> String {
    format!("correlation-{}", n % (LETTERS / 2))
}

fn died_at(n: u64) -> u64 {
    FIRST_AT + n * STEP_NANOS
}

fn hour(n: u64, filter: LetterFilter) -> LetterFilter {
    let from = Timestamp::from_nanos(died_at(n % LETTERS));
    LetterFilter { from: Some(from), until: Some(from + Duration::from_hours(1)), ..filter }
}

fn narrow(n: u64, filter: LetterFilter) -> LetterFilter {
    let event_type = Some(pattern(&event_type(n)));
    LetterFilter { service: Some(service(n)), code: Some(code(n)), event_type, ..filter }
}

/// A number as a column holds it.
fn int(number: u64) -> i64 {
    number.cast_signed()
}

/// Makes a store, and writes letters into its file as a store would.
fn fill(folder: &Path, kinds: u64) {
    let options = Options { seed: Some(SEED), ..Options::default() };
    let store = Sqlite::open(folder, options).expect("it opens");
    (Box::new(store) as Box<dyn Store>).close(Timestamp::from_nanos(FIRST_AT)).expect("it closes");
    let connection = Connection::open(folder.join("redrive.db")).expect("it opens");
    connection.execute_batch("PRAGMA synchronous = off; BEGIN").expect("it begins");
    write_kinds(&connection, kinds).expect("they are written");
    write_letters(&connection, kinds).expect("they are written");
    connection.execute_batch("COMMIT").expect("it commits");
    let all: i64 = connection.query_row("SELECT sum(count) FROM kinds", [], |row| row.get(0)).expect("a sum");
    assert_eq!(all, int(LETTERS), "every letter is of a kind");
    connection.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(())).expect("it is copied");
}

fn write_kinds(connection: &Connection, kinds: u64) -> Result<(), rusqlite::Error> {
    for n in 0..SERVICES {
        let dead = LETTERS / SERVICES;
        let queue = "INSERT INTO queues VALUES (?1, ?2, '', 0, 0, 0, 0, ?3, 0)";
        connection.execute(queue, (int(n + 1), service(n), int(dead)))?;
        connection.execute("INSERT INTO subscriptions VALUES (?1, ?2)", (int(n + 1), service(n)))?;
    }
    let kind = "INSERT INTO kinds VALUES (?1, ?2, ?3, ?3, ?4, ?5, 'MAX_RETRIES_EXCEEDED', ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let mut kind = connection.prepare(kind)?;
    let mut trend = connection.prepare("INSERT INTO trend VALUES (?1, ?2, ?3)")?;
    for n in 0..kinds {
        let tier = if n % 10 == 9 { Tier::Poison } else { Tier::Dead };
        kind.execute((
            int(n + 1),
            int(cause(n).0),
            int(n % SERVICES + 1),
            event_type(n / SERVICES),
            category(n / 3).as_str(),
            code(n / 7),
            tier.as_str(),
            format!("_{}.deadletter", service(n)),
            service(n),
            int(LETTERS / kinds),
            int(died_at(n)),
            int(died_at(LETTERS - kinds + n)),
        ))?;
        let spans = LETTERS * STEP_NANOS / 300_000_000_000;
        for span in 0..spans.min(5_000 / kinds + 1) {
            trend.execute((int(n + 1), int(FIRST_AT / 300_000_000_000 + spans - span), 1))?;
        }
    }
    Ok(())
}

fn write_letters(connection: &Connection, kinds: u64) -> Result<(), rusqlite::Error> {
    let mut event = connection.prepare(
        "INSERT INTO events VALUES (?1, ?2, ?3, NULL, 1, 1, ?4, 'https://example.com/shop', ?5, ?6, ?7)",
    )?;
    let mut delivery = connection.prepare(
        "INSERT INTO deliveries VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, 4, 3, NULL, ?7, 0, 7, NULL, NULL, NULL, NULL, NULL, NULL)",
    )?;
    let mut letter = connection.prepare("INSERT INTO letters VALUES (?1, ?2, ?3, ?1, ?4, ?5, NULL, ?6)")?;
    let hash = |text: &str| hash::stable_64(text.as_bytes(), SEED).cast_signed();
    for n in 0..LETTERS {
        let (place, kind, at) = (int(2 * n + 1), n % kinds, int(died_at(n)));
        let (session, correlation) = (session(scattered(n)), correlation(n));
        let attributes = [attribute(4, &session), attribute(5, &correlation)].concat();
        let mut data = format!("{{\"order\":{n},\"customer\":\"{session}\",\"note\":\"");
        data.extend(std::iter::repeat_n('x', EVENT_BYTES - data.len() - 2));
        data.push_str("\"}");
        event.execute((
            place,
            at,
            int(n),
            format!("evt-{n}"),
            event_type(kind / SERVICES),
            attributes,
            data.as_bytes(),
        ))?;
        let (queue, lane) = (int(kind % SERVICES + 1), hash(&format!("{}/{session}", kind % SERVICES)));
        delivery.execute((place + 1, place, queue, int(n), int(EVENT_BYTES as u64), lane, at))?;
        let message = format!("target answered 503 to order {n}: upstream connect error or disconnect");
        letter.execute((at, place + 1, int(kind + 1), hash(&session), hash(&correlation), message))?;
    }
    Ok(())
}

/// An attribute of an event, as the store writes it.
fn attribute(tag: u8, text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[tag, length], text.as_bytes()].concat()
}
