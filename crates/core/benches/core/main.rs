//! The costs of deciding: `cargo bench -p redrive-core`.
//!
//! Every figure stands beside a bare one of the same run (a clock read, a hash, an empty call), since
//! machines differ and are noisy. Budgets are in `docs/performance.md`.

mod large_book;

use std::sync::Arc;
use std::time::Duration;

use divan::{AllocProfiler, Bencher, black_box};
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, RuleBook};
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, RecordedVerdict};
use redrive_core::engine::{
    CompletedCall, EngineActivity, NextState, PendingDelivery, QueueName, Settlement,
};
use redrive_core::event::attribute::EventType;
use redrive_core::event::{self, Event, Incoming};
use redrive_core::figures::Figures;
use redrive_core::ids::{Attempt, DeliveryId, DependencyName, Seed, ServiceName};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::breaker::{Admission, Breaker, BreakerSettings, CallEnd, Observation, RawBreaker};
use redrive_core::policy::catalog;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::decide::{AttemptResult, History, Moment, decide};
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;

/// Counts allocations, which the hot paths must not make.
#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn book() -> RuleBook {
    book::read(&large_book::large_book(1_000, 50), built_in()).book.expect("the generated book is a book")
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the bare limit beside the figures")]
fn bare_clock_read() -> std::time::Instant {
    std::time::Instant::now()
}

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn unavailable() -> TargetAnswer<'static> {
    TargetAnswer {
        what: AnswerKind::Http { status: 503, headers: &(), body: "" },
        message: "",
        retry_after: None,
    }
}

/// The rule of a small book: five reactions, a breaker, one override.
fn rule() -> Rule {
    let text = "version: 1\nservices:\n  s:\n    target: { http: \"http://127.0.0.1/\" }\n    \
                classify: [{ status: 404, as: transient, because: late }]\n    events: [a.b]\n";
    let book = book::read(text, built_in()).book.expect("a sound book");
    Rule::clone(book.rule("s", None, "a.b").expect("wanted"))
}

fn moment() -> Moment {
    Moment { now: NOW, seed: Seed(7), delivery: DeliveryId(42), attempt: Attempt::FIRST }
}

fn breaker_settings() -> BreakerSettings {
    let entry = catalog::breaker("kafkaBreaker").expect("the catalog has it");
    RawBreaker::from(entry).try_into().expect("the catalog is sound")
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn classify_status() -> Outcome {
    classify(black_box(&unavailable()), &[], Category::Transient)
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn classify_past_an_override(bencher: Bencher<'_, '_>) {
    let rule = rule();
    bencher.bench_local(|| classify(black_box(&unavailable()), &rule.classify, Category::Transient));
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn next_delay(bencher: Bencher<'_, '_>) {
    let backoff: &Backoff = &catalog::policy("standard").expect("the catalog has it").backoff;
    bencher.bench_local(|| {
        let draw = Seed(7).draw(black_box(DeliveryId(42)), Attempt::FIRST);
        backoff.delay(black_box(3), draw, None)
    });
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn breaker_success(bencher: Bencher<'_, '_>) {
    let (settings, mut breaker) = (breaker_settings(), Breaker::new());
    bencher.bench_local(|| pass(&mut breaker, &settings, Observation::Success));
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn breaker_failure_then_success(bencher: Bencher<'_, '_>) {
    let (settings, mut breaker) = (breaker_settings(), Breaker::new());
    bencher.bench_local(|| {
        pass(&mut breaker, &settings, Observation::Failure(CallEnd::Final));
        pass(&mut breaker, &settings, Observation::Success);
    });
}

fn pass(breaker: &mut Breaker, settings: &BreakerSettings, seen: Observation) {
    let now = black_box(NOW);
    if let Admission::Allowed(permit) = breaker.admit(settings, Duration::from_secs(30), now) {
        black_box(breaker.settle(permit, seen, settings, now));
    }
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn decide_success(bencher: Bencher<'_, '_>) {
    let (rule, history) = (rule(), History::new());
    let ended = AttemptResult::Outcome(Outcome::Delivered { matched: None });
    bencher.bench_local(|| decide(&rule, black_box(&history), &ended, &moment()));
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn decide_retry(bencher: Bencher<'_, '_>) {
    let (rule, history) = (rule(), History::new());
    let ended = AttemptResult::Outcome(classify(&unavailable(), &[], Category::Transient));
    bencher.bench_local(|| decide(&rule, black_box(&history), &ended, &moment()));
}

/// The guard of a call that succeeds: breaker, decision, breaker.
#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn breaker_and_decision_success(bencher: Bencher<'_, '_>) {
    let ended = AttemptResult::Outcome(Outcome::Delivered { matched: None });
    guarded(bencher, &ended);
}

/// The same when it fails and will be tried again.
#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn breaker_and_decision_retry(bencher: Bencher<'_, '_>) {
    let ended = AttemptResult::Outcome(classify(&unavailable(), &[], Category::Transient));
    guarded(bencher, &ended);
}

fn guarded(bencher: Bencher<'_, '_>, ended: &AttemptResult) {
    let (rule, history) = (rule(), History::new());
    let (settings, mut breaker) = (far_settings(), Breaker::new());
    bencher.bench_local(|| {
        let now = black_box(NOW);
        let Admission::Allowed(permit) = breaker.admit(&settings, Duration::from_secs(30), now) else {
            panic!("the trip lies out of reach")
        };
        let decision = decide(&rule, &history, ended, &moment());
        breaker.settle(permit, decision.observation, &settings, now);
        decision.verdict
    });
}

/// A breaker that no run of failures opens.
fn far_settings() -> BreakerSettings {
    let entry = catalog::breaker("kafkaBreaker").expect("the catalog has it");
    let trip = redrive_core::policy::breaker::Trip::Consecutive(std::num::NonZeroU32::MAX);
    RawBreaker { trip, ..RawBreaker::from(entry) }.try_into().expect("sound settings")
}

/// What the figures cost a delivery that arrives, in a book of so many services of ten events.
#[divan::bench(sample_count = 100, sample_size = 10_000, args = [10, 100])]
fn count_a_delivered_settlement(bencher: Bencher<'_, '_>, services: usize) {
    let signals: Vec<EngineActivity> =
        (0..services * 10).map(|number| delivered(number % services, number / services)).collect();
    let mut figures = Figures::default();
    let mut next = (0..signals.len()).cycle();
    bencher.bench_local(|| figures.count(&signals[next.next().expect("endless") * 7 % signals.len()]));
}

fn delivered(service: usize, event_type: usize) -> EngineActivity {
    let name = format!("service-{service}");
    let event_type = EventType::new(&format!("shop.order.created.{event_type}")).expect("a type");
    let delivery = PendingDelivery {
        id: DeliveryId(42),
        queue: Arc::new(QueueName { service: ServiceName::new(&name).expect("a name"), channel: None }),
        event: Arc::new(Event { event_type, ..event() }),
        sequence: None,
        replaying: None,
        attempts: 0,
        due_at: None,
        history: History::new(),
        book: None,
        written_at: NOW,
        start_recorded: false,
        damaged: false,
    };
    let story = AttemptRecord {
        attempt: Attempt::FIRST,
        started_at: NOW,
        took_nanos: 12_345_678,
        end: AttemptEnd::Delivered { status: Some(200), message: String::new() },
        book: 1,
        verdict: RecordedVerdict::Delivered,
        classified_at: None,
        reaction_at: None,
        retry: None,
        held_nanos: 0,
    };
    let settlement = Settlement {
        delivery: delivery.id,
        attempts_before: 0,
        attempts: 1,
        next: NextState::Delivered,
        history: History::new(),
        book: 1,
        record: Some(Box::new(story)),
        pause: None,
        stop: None,
        emits: Vec::new(),
        at: NOW,
    };
    let dependency = DependencyName::new(&name).expect("a name");
    EngineActivity::Settled {
        delivery,
        settlement: Arc::new(settlement),
        made: Some(CompletedCall { dependency, beside: 3 }),
    }
}

#[divan::bench(sample_count = 100, sample_size = 10_000)]
fn next_jitter_draw() -> u64 {
    Seed(black_box(7)).draw(DeliveryId(black_box(42)), Attempt::FIRST)
}

#[divan::bench(sample_count = 100, sample_size = 2_000)]
fn resolve_exact(bencher: Bencher<'_, '_>) {
    let book = book();
    let services: Vec<(String, String)> =
        (0..1_000).map(|i| (format!("service-{i}"), format!("shop.area-{}.event-{i}", i % 50))).collect();
    let mut next = (0..1_000).cycle();
    bencher.bench_local(|| {
        let (service, event) = &services[next.next().expect("endless") * 7 % 1_000];
        black_box(book.rule(service, None, event).expect("every service has its row"));
    });
}

/// An event of 1 KiB with the attributes that most have.
fn event() -> Event {
    let text = format!(
        r#"{{"specversion":"1.0","id":"0f4c2a7e-1d","source":"/shop","type":"shop.order.created","time":"2026-01-31T12:00:00Z","partitionkey":"customer-7","data":{{"a":"{}"}}}}"#,
        "x".repeat(1_000)
    );
    let headers = vec![("content-type".to_owned(), "application/cloudevents+json".to_owned())];
    let parsed = event::parse(Incoming { headers: &headers, body: &text.into() }).expect("an event");
    parsed.into_events().remove(0)
}

#[divan::bench(sample_count = 100, sample_size = 1_000)]
fn parse_binary_event(bencher: Bencher<'_, '_>) {
    let (event, headers) = (event(), event().binary_headers());
    bencher.bench_local(|| event::parse(black_box(Incoming { headers: &headers, body: &event.data })));
}

#[divan::bench(sample_count = 100, sample_size = 1_000)]
fn parse_structured_event(bencher: Bencher<'_, '_>) {
    let body = event().to_structured().into();
    let headers = vec![("content-type".to_owned(), "application/cloudevents+json".to_owned())];
    bencher.bench_local(|| event::parse(black_box(Incoming { headers: &headers, body: &body })));
}

/// Every type is wanted by one service of the thousand, and nobody else is asked.
#[divan::bench(sample_count = 100, sample_size = 2_000)]
fn route_in_a_book_of_1000_services(bencher: Bencher<'_, '_>) {
    let book = book();
    let types: Vec<String> = (0..1_000).map(|i| format!("shop.area-{}.event-{i}", i % 50)).collect();
    let mut next = (0..1_000).cycle();
    bencher.bench_local(|| {
        let event_type = &types[next.next().expect("endless") * 7 % 1_000];
        assert_eq!(black_box(book.route(event_type)).len(), 1);
    });
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn read_1000_services_of_50_events(bencher: Bencher<'_, '_>) {
    let text = large_book::large_book(1_000, 50);
    bencher.bench_local(|| black_box(book::read(&text, built_in())));
}
