//! What a backtest of a large store costs: `cargo bench -p redrive-server --bench backtest`, with `-- --full` for a
//! million deliveries.
//!
//! Stores of two sizes lie in the system's folder for temporary files. A bare scan reads every delivery with all its
//! attempts once; `redrive backtest` runs as a process of its own, by the book that the record was made by and by two
//! others. Time that grows as the store does, and memory that does not, are what to look for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redrive_core::book::connectors::built_in;
use redrive_core::book::model::DeliveryOrder;
use redrive_core::book::{self, RuleBook};
use redrive_core::engine::attempt_record::{AttemptFacts, AttemptRecord};
use redrive_core::engine::{
    DeadLetterInfo, NextState, PendingDelivery, QueueName, SessionFollowers, Settlement,
};
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, EventId, EventSource, EventType};
use redrive_core::ids::{Attempt, Seed, ServiceName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::answer::{HeaderPairs, ReplyKind, TargetReply};
use redrive_core::policy::category::FailureCode;
use redrive_core::policy::classify::{Failure, Outcome, classify};
use redrive_core::policy::decide::{AttemptResult, History, Moment, Verdict, decide};
use redrive_core::time::Timestamp;
use redrive_node::store::sqlite::{Options, Sqlite};
use redrive_node::store::{
    Addressee, BatchResult, DeliveryFilter, OverflowPolicy, StateChange, Store, Submission, SubmittedEvent,
    WaitingBound, WriteBatch,
};

/// Deliveries of the stores, and of those of `--full`.
const SIZES: [u64; 2] = [10_000, 40_000];
const SIZES_FULL: [u64; 2] = [100_000, 1_000_000];
const EVENTS_PER_BATCH: u64 = 2_000;
const EVENT_BYTES: usize = 200;
const SEED: Seed = Seed(7);
/// How long the record is.
const DAYS: Duration = Duration::from_hours(24 * 6);
/// The target is down for so long in each hour.
const DOWN: Duration = Duration::from_mins(3);
const CALL_TAKES: Duration = Duration::from_millis(20);
/// Deliveries that a page of the scan has, as many as the command reads at once.
const PAGE: usize = 500;

fn main() {
    // Whoever runs the tests of all targets only wants to know that it runs.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let is_full = std::env::args().any(|argument| argument == "--full");
    let sizes = if is_full { SIZES_FULL } else { SIZES };
    println!("deliveries  what               time     CPU  of a scan's    memory");
    for deliveries in sizes {
        measure(deliveries);
    }
}

/// What something took.
struct Cost {
    time: Duration,
    /// On a processor, where the system tells: others may be busy too.
    cpu: Option<Duration>,
    /// The most that it had, where the system tells.
    memory_kb: Option<u64>,
}

fn measure(deliveries: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fill(&data, deliveries);
    let scanned = scan(&data, deliveries);
    tell(deliveries, "a bare scan", &scanned, &scanned);
    for (name, retries) in [("the same book", 3), ("one retry", 1), ("twelve retries", 12)] {
        fs::write(folder.path().join("new.yaml"), text(retries)).expect("it is written");
        tell(deliveries, name, &backtest(folder.path()), &scanned);
    }
}

fn tell(deliveries: u64, name: &str, cost: &Cost, scanned: &Cost) {
    let seconds = |time: Duration| format!("{:.2}s", time.as_secs_f64());
    let cpu = |cost: &Cost| cost.cpu.unwrap_or(cost.time).as_secs_f64();
    let memory = cost.memory_kb.map(|kb| format!("{:.1} MiB", kb as f64 / 1_024.0)).unwrap_or_default();
    println!(
        "{deliveries:>10}  {name:<14}{:>9}{:>8}{:>11.2} ×{memory:>11}",
        seconds(cost.time),
        cost.cpu.map(seconds).unwrap_or_default(),
        cpu(cost) / cpu(scanned),
    );
}

/// Reads everything once, as the command does.
fn scan(data: &Path, deliveries: u64) -> Cost {
    let reader = Sqlite::open_reader(data).expect("it opens");
    let (started, before, mut read) = (Instant::now(), cpu_of("self"), 0);
    let mut filter = DeliveryFilter { rows_max: PAGE, ..DeliveryFilter::default() };
    loop {
        let listed = reader.deliveries_with_attempts(&filter).expect("it is read");
        read += listed.deliveries.len() as u64;
        filter.before = listed.next;
        if listed.next.is_none() {
            break;
        }
    }
    assert_eq!(read, deliveries);
    let cpu = cpu_of("self").zip(before).map(|(after, before)| after.saturating_sub(before));
    Cost { time: started.elapsed(), cpu, memory_kb: None }
}

/// Runs the command.
fn backtest(folder: &Path) -> Cost {
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_redrive"))
        .args(["backtest", "--data", "data", "--rules", "new.yaml", "--format", "json"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary was built for this bench");
    let id = child.id().to_string();
    let (mut cpu, mut memory_kb) = (None, None);
    loop {
        // Of one that has ended, the system tells no more: what was seen last counts.
        cpu = cpu_of(&id).or(cpu);
        memory_kb = memory_peak_kb(&id).or(memory_kb);
        if let Some(ended) = child.try_wait().expect("it is our child") {
            assert!(ended.success(), "{ended}");
            return Cost { time: started.elapsed(), cpu, memory_kb };
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// How long the first thread of a process was on a processor; it does all of the work here.
fn cpu_of(process: &str) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn memory_peak_kb(process: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// A book with so many retries.
fn text(retries: u32) -> String {
    format!(
        "version: 1
retry_policies:
  some: {{ initial: 5s, factor: 2, max: 1m, retries: {retries}, jitter: full }}
services:
  shop:
    target: {{ http: \"http://127.0.0.1:9/\" }}
    retry: some
    breaker: none
    events: [\"orders.*\"]
"
    )
}

/// Makes a store of so many deliveries that have ended, as the book of three retries ends them.
fn fill(data: &Path, deliveries: u64) {
    let text = text(3);
    let book = book::read(&text, built_in()).book.expect("a book without errors");
    let options = Options { seed: Some(SEED.0), ..Options::default() };
    let mut store = Sqlite::open(data, options).expect("it opens");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let first_at = Timestamp::EPOCH + now - DAYS;
    store.recover(first_at).expect("it recovers");
    let note = StateChange::Book { hash: book.hash(), text: text.as_str().into() };
    let mut batch = WriteBatch { changes: vec![note], ..WriteBatch::default() };
    let (addressee, mut sent) = (addressee(), 0);
    while sent < deliveries || !batch.settlements.is_empty() {
        let more = EVENTS_PER_BATCH.min(deliveries - sent);
        batch.submissions = (sent..sent + more).map(|number| submission(number, &addressee)).collect();
        sent += more;
        let at = first_at + DAYS.mul_f64(sent as f64 / deliveries as f64) - Duration::from_secs(1);
        let BatchResult { waiting, .. } = store.write(&batch, at).expect("it is written");
        let lives = waiting.iter().flat_map(|waiting| life(waiting, &book));
        batch = WriteBatch { settlements: lives.map(Arc::new).collect(), ..WriteBatch::default() };
    }
    Box::new(store).close(Timestamp::EPOCH + now).expect("it closes");
}

fn addressee() -> Addressee {
    let service = ServiceName::new("shop").expect("a name");
    Addressee {
        queue: Arc::new(QueueName { service, channel: None }),
        subscription: "shop/orders.*".into(),
        copies: redrive_core::event::copy_rule::CopyRule::default(),
        violation: None,
        order: DeliveryOrder::None,
        letter_name: "_shop.deadletter".into(),
        consumer_group: "shop".into(),
        bound: WaitingBound {
            deliveries_max: u64::MAX,
            bytes_max: u64::MAX,
            per_session_max: u64::MAX,
            when_full: OverflowPolicy::Refuse,
        },
    }
}

fn submission(number: u64, addressee: &Addressee) -> Submission {
    let event = Event {
        id: EventId::new(&format!("order-{number}")).expect("an id"),
        source: EventSource::new("https://example.com/shop").expect("a source"),
        event_type: EventType::new("orders.placed").expect("a type"),
        subject: None,
        time: None,
        content_type: Some(ContentType::json()),
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: vec![b'7'; EVENT_BYTES].into(),
    };
    Submission { events: vec![SubmittedEvent { event: Arc::new(event), routes: vec![addressee.clone()] }] }
}

/// Everything that happens to a delivery until it ends, by the rules that the engine decides by.
fn life(waiting: &PendingDelivery, book: &RuleBook) -> Vec<Settlement> {
    let rule = book.rule("shop", None, "orders.placed").expect("it is wanted");
    let (mut history, mut attempt, mut settlements) = (History::new(), Attempt::FIRST, Vec::new());
    // Deliveries of a batch are accepted at once; here they start one after the other.
    let mut started_at = waiting.written_at + Duration::from_millis(waiting.id.seq().get() % 200_000);
    loop {
        history = history.started(started_at);
        let now = started_at + CALL_TAKES;
        let reply = answer(started_at);
        let outcome = classify(&reply.as_answer(), &rule.classify, rule.timeouts.category);
        let moment = Moment { now, seed: SEED, delivery: waiting.id, attempt };
        let decision = decide(rule, &history, &AttemptResult::Outcome(outcome.clone()), &moment);
        let facts = AttemptFacts {
            attempt,
            started_at,
            ended_at: now,
            book: book.hash(),
            rule,
            outcome: Some(&outcome),
            status: reply.as_answer().what.status(),
            response: "",
            receipt: "",
            held: history.held(now),
        };
        let story = Some(Box::new(AttemptRecord::of(&facts, &decision)));
        history = history.after(&decision, now);
        let (next, again_at) = match (decision.verdict, outcome) {
            (Verdict::Deliver, _) => (NextState::Delivered, None),
            (Verdict::Retry { due_at }, _) => (NextState::Due { at: due_at }, Some(due_at)),
            (Verdict::DeadLetter { tier, .. }, Outcome::Failed(failure)) => {
                (NextState::Dead(Box::new(death(failure, tier))), None)
            }
            (verdict, _) => unreachable!("this book knows no {verdict:?}"),
        };
        settlements.push(Settlement {
            delivery: waiting.id,
            attempts_before: attempt.get() - 1,
            attempts: attempt.get(),
            next,
            history: history.clone(),
            book: book.hash(),
            record: story,
            pause: None,
            stop: None,
            emits: Vec::new(),
            at: now,
        });
        let Some(due_at) = again_at else { return settlements };
        started_at = due_at;
        attempt = attempt.next();
    }
}

fn death(failure: Failure, tier: Tier) -> DeadLetterInfo {
    DeadLetterInfo {
        category: failure.category,
        code: FailureCode::of("MAX_RETRIES_EXCEEDED"),
        failure_code: failure.code,
        tier,
        message: failure.message,
        fingerprint: Fingerprint(1),
        name: "_shop.deadletter".to_owned(),
        consumer_group: "shop".to_owned(),
        followers: SessionFollowers::Continue,
    }
}

/// What the target says: once an hour it is down for a while.
fn answer(at: Timestamp) -> TargetReply {
    let hour = Duration::from_hours(1).as_nanos();
    let is_down = u128::from(at.as_nanos()) % hour < DOWN.as_nanos();
    let status = if is_down { 503 } else { 200 };
    let seen = ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
    TargetReply { seen, message: format!("answered {status}"), retry_after: None }
}
