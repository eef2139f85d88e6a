//! What the engine signals is what is counted: deliveries are played through a real engine, and every signal
//! that it gives is counted as a node counts it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::book;
use crate::book::connectors::built_in;
use crate::engine::{
    Absences, Effect, Ending, Engine, EngineBounds, Input, OperatorCommand, SettlementResult, Setup,
};
use crate::event::Event;
use crate::event::attribute::{EventId, EventSource, EventType, TraceParent};
use crate::event::idempotency;
use crate::ids::{DeliveryId, Seed, Seq, ServiceName};
use crate::policy::answer::{HeaderPairs, ReplyKind, TargetReply};
use crate::policy::decide::History;
use crate::time::Timestamp;
use crate::trace::{Sampler, span};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// How long every call takes.
const CALL: Duration = Duration::from_millis(30);

const BOOK: &str = r#"
version: 1
retry_policies:
  twice: { initial: 1s, factor: 1, max: 1s, retries: 2, window: 1h, jitter: none }
breakers:
  touchy: { trip: { consecutive: 2 }, open: 10s, probes: 1, close_after: 1 }
dependencies:
  wide: { kind: webhook, breaker: none, in_flight: 100 }
  guarded: { kind: webhook, breaker: touchy }
services:
  a: { target: { http: "http://a.test/" }, depends_on: wide, retry: twice, events: ["*"] }
  g: { target: { http: "http://g.test/" }, depends_on: guarded, retry: twice, events: ["*"] }
"#;

/// A delivery that is played.
pub(crate) struct Play<'a> {
    pub(crate) service: &'a str,
    pub(crate) event_type: &'a str,
    pub(crate) traceparent: Option<&'a str>,
    /// The statuses that its attempts are answered with.
    pub(crate) answers: &'a [u16],
}

/// An engine, and what came of what it signalled.
pub(crate) struct Stage {
    engine: Engine,
    now: Timestamp,
    last_seq: u64,
    calls: Vec<(DeliveryId, crate::engine::CallId)>,
    unsettled: Vec<Arc<Settlement>>,
    pub(crate) figures: Figures,
    pub(crate) spans: Vec<span::TraceSpan>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let book = book::read(BOOK, built_in()).book.expect("the book is sound");
        let engine = Engine::new(Setup {
            seed: Seed(1),
            book: Arc::new(book),
            older_books: Vec::new(),
            bounds: EngineBounds { window: 1_000, window_bytes: 1_000_000, calls: 1_000 },
            now: START,
            queues: Vec::new(),
            paused: BTreeMap::new(),
            absences: Absences::new(),
            breakers: Vec::new(),
            replays: Vec::new(),
            suspects_until: None,
        });
        Self {
            engine,
            now: START,
            last_seq: 0,
            calls: Vec::new(),
            unsettled: Vec::new(),
            figures: Figures::default(),
            spans: Vec::new(),
        }
    }

    fn tell(&mut self, input: Input) {
        self.engine.handle(input, self.now);
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Start(call) => {
                    self.calls.extend(call.deliveries.iter().map(|delivery| (delivery.id, call.id)));
                }
                Effect::Settle(settlement) => self.unsettled.push(settlement),
                Effect::Activity(activity) => {
                    self.figures.count(&activity);
                    self.spans.extend(span::of_activity(&activity, Sampler::USUAL));
                }
                Effect::Load(_)
                | Effect::WakeAt(_)
                | Effect::Keep(_)
                | Effect::Release(_)
                | Effect::Advance(_)
                | Effect::Reprocess(_) => {}
            }
        }
    }

    fn accept(&mut self, play: &Play<'_>) -> DeliveryId {
        self.last_seq += 1;
        let event = Event {
            id: EventId::new(&self.last_seq.to_string()).expect("an id"),
            source: EventSource::new("/tests").expect("a source"),
            event_type: EventType::new(play.event_type).expect("a type"),
            subject: None,
            time: None,
            content_type: None,
            session: None,
            correlation_id: None,
            traceparent: play.traceparent.map(|text| TraceParent::new(text).expect("it fits")),
            extensions: BTreeMap::new(),
            data: Bytes::new(),
        };
        let service = ServiceName::new(play.service).expect("a name");
        let id = idempotency::delivery_id(Seq::new(self.last_seq), event.dedup_key(), &service, None);
        self.tell(Input::Accepted(vec![PendingDelivery {
            id,
            queue: Arc::new(QueueName { service, channel: None }),
            event: Arc::new(event),
            sequence: None,
            replaying: None,
            attempts: 0,
            due_at: None,
            history: History::new(),
            book: None,
            written_at: self.now,
            start_recorded: false,
            damaged: false,
        }]));
        id
    }

    /// Ends the call that a delivery is in.
    fn answer(&mut self, delivery: DeliveryId, status: u16) {
        let index = self.calls.iter().position(|(id, _)| *id == delivery).expect("it is being called");
        let (_, call) = self.calls.remove(index);
        let seen = ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
        let message = format!("target answered {status}");
        let ending = Ending::Reply(TargetReply { seen, message, retry_after: None });
        self.tell(Input::Ended { call, ending });
    }

    /// Writes all that there is to be written.
    fn write(&mut self) {
        for settlement in std::mem::take(&mut self.unsettled) {
            self.tell(Input::Settled {
                delivery: settlement.delivery,
                fate: SettlementResult::Written,
                promoted: None,
            });
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.tell(Input::Tick);
    }

    /// Plays a delivery to its end.
    pub(crate) fn play(&mut self, play: &Play<'_>) -> DeliveryId {
        let delivery = self.accept(play);
        for status in play.answers {
            if !self.calls.iter().any(|(id, _)| *id == delivery) {
                self.pass(Duration::from_secs(60));
            }
            self.now = self.now + CALL;
            self.answer(delivery, *status);
            self.write();
        }
        delivery
    }
}

fn play<'a>(service: &'a str, event_type: &'a str, answers: &'a [u16]) -> Play<'a> {
    Play { service, event_type, traceparent: None, answers }
}

fn of<'a>(figures: &'a Figures, service: &str) -> &'a QueueFigures {
    figures.queues.iter().find(|(name, _)| name.service.as_str() == service).expect("it has some").1
}

/// The counts of a tally, in the order in which they stand there; failures as one.
fn told(tally: &AttemptTally) -> [u64; 11] {
    let AttemptTally { attempts, unavailable, unauthorized, misconfigured, .. } = *tally;
    let AttemptTally { firsts, retried, retries, delivered, dead, exhausted, .. } = *tally;
    let failures = tally.failures();
    [
        attempts,
        failures,
        unavailable,
        unauthorized,
        misconfigured,
        firsts,
        retried,
        retries,
        delivered,
        dead,
        exhausted,
    ]
}

#[test]
fn a_delivery_counts_as_what_became_of_it() {
    #[rustfmt::skip]
    let cases: [(&str, &[u16], [u64; 11]); 7] = [
        //                                         attempts failed 503 401 config first retried retries delivered dead exhausted
        ("delivered at once",    &[200],           [1,      0,     0,  0,  0,     1,    0,      0,      1,        0,   0]),
        ("delivered at last",    &[503, 500, 200], [3,      2,     1,  0,  0,     1,    1,      2,      1,        0,   0]),
        ("out of retries",       &[503, 503, 503], [3,      3,     3,  0,  0,     1,    1,      2,      0,        1,   1]),
        ("refused for good",     &[422],           [1,      1,     0,  0,  0,     1,    0,      0,      0,        1,   0]),
        ("a retry is refused",   &[500, 422],      [2,      2,     0,  0,  0,     1,    1,      1,      0,        1,   0]),
        ("our key is no good",   &[401],           [1,      1,     0,  1,  0,     1,    0,      0,      0,        1,   0]),
        ("nobody ever answered", &[],              [0,      0,     0,  0,  0,     0,    0,      0,      0,        0,   0]),
    ];
    for (name, answers, expected) in cases {
        let mut stage = Stage::new();
        stage.play(&play("a", "order.placed", answers));
        assert_eq!(told(&stage.figures.total()), expected, "{name}");
        let Some(dependency) = stage.figures.dependencies.values().next() else {
            assert!(answers.is_empty(), "{name}: calls are counted by dependency too");
            continue;
        };
        assert_eq!(told(&dependency.tally), expected, "{name}: and so for the dependency");
        let queue = of(&stage.figures, "a");
        assert_eq!(queue.took.count(), answers.len() as u64, "{name}");
        assert_eq!(queue.took.sum_micros, 30_000 * answers.len() as u64, "{name}");
        assert_eq!(queue.waited.count(), 1, "{name}: it waited for its first attempt once");
        assert_eq!(queue.tries[answers.len() - 1], 1, "{name}: {:?}", queue.tries);
        assert_eq!(queue.tries.iter().sum::<u64>(), 1, "{name}");
    }
}

#[test]
fn failures_are_told_apart_by_category_and_by_code() {
    let mut stage = Stage::new();
    stage.play(&play("a", "order.placed", &[503, 429, 200]));
    stage.play(&play("a", "order.paid", &[422]));
    let total = stage.figures.total();
    let by_category: Vec<_> = Category::ALL.map(|category| total.failed_as(category)).into();
    assert_eq!(by_category.iter().sum::<u64>(), 3);
    assert_eq!((total.failed_as(Category::Transient), total.failed_as(Category::RateLimited)), (1, 1));
    let codes: Vec<_> = of(&stage.figures, "a").codes.iter().map(|(code, count)| (&**code, *count)).collect();
    assert_eq!(codes.len(), 3, "{codes:?}");
    assert!(codes.iter().all(|(_, count)| *count == 1), "{codes:?}");
    let types: Vec<_> = of(&stage.figures, "a").types.keys().map(|name| &**name).collect();
    assert_eq!(types, ["order.paid", "order.placed"]);
}

#[test]
fn what_finds_no_place_of_its_own_is_counted_with_the_others() {
    let mut stage = Stage::new();
    for number in 0..TYPES_MAX + 3 {
        stage.play(&play("a", &format!("type.{number}"), &[200]));
    }
    let types = &of(&stage.figures, "a").types;
    assert_eq!(types.len(), TYPES_MAX + 1);
    assert_eq!(types[OTHER].delivered, 3);
    stage.play(&play("a", "type.0", &[200]));
    stage.play(&play("a", "type.999", &[200]));
    let types = &of(&stage.figures, "a").types;
    assert_eq!((types["type.0"].delivered, types[OTHER].delivered), (2, 4), "who has a place keeps it");
    assert_eq!(stage.figures.total().delivered, (TYPES_MAX + 5) as u64, "and sums stay true");
}

#[test]
fn calls_are_told_apart_by_how_many_were_under_way() {
    let mut stage = Stage::new();
    // A dependency is met with a few calls at first, and with more as it answers them.
    for _ in 0..100 {
        stage.play(&play("a", "t", &[200]));
    }
    stage.figures = Figures::default();
    let all: Vec<_> = (0..70).map(|_| stage.accept(&play("a", "t", &[]))).collect();
    assert_eq!(stage.calls.len(), all.len(), "all are called at once");
    stage.now = stage.now + CALL;
    for (index, delivery) in all.into_iter().enumerate() {
        // Those that began beside more than 64 fail, each in a way of its own.
        stage.answer(delivery, if index < 64 { 200 } else { [503, 422][index % 2] });
    }
    stage.write();
    let beside = &stage.figures.dependencies.values().next().expect("one").beside;
    let calls = beside.map(|beside| beside.calls);
    assert_eq!(calls, [1, 1, 2, 4, 8, 16, 32, 6]);
    let failed = beside.map(|beside| beside.failed);
    assert_eq!(failed, [0, 0, 0, 0, 0, 0, 0, 3], "a rejection says nothing against a dependency");
    assert_eq!(beside[7].took_micros, 6 * 30_000);
}

#[test]
fn a_breaker_that_opens_and_what_it_holds_are_counted() {
    let mut stage = Stage::new();
    let (one, two) = (stage.accept(&play("g", "t", &[])), stage.accept(&play("g", "t", &[])));
    stage.answer(one, 503);
    stage.answer(two, 503);
    stage.write();
    let guarded = DependencyName::new("guarded").expect("a name");
    assert_eq!(stage.figures.dependencies[&guarded].trips, 1);
    stage.tell(Input::Operator(OperatorCommand::Trip(guarded.clone())));
    assert_eq!(stage.figures.dependencies[&guarded].trips, 1, "it was open already");
    let probe = stage.accept(&play("g", "t", &[]));
    stage.pass(Duration::from_secs(10));
    stage.answer(stage.calls[0].0, 503);
    assert_eq!(stage.figures.dependencies[&guarded].trips, 1, "a probe that fails is no trip: {probe}");
}

#[test]
fn what_came_since_is_what_was_played_since() {
    let mut stage = Stage::new();
    stage.play(&play("a", "t", &[503, 200]));
    let before = stage.figures.total();
    stage.play(&play("a", "t", &[422]));
    let since = stage.figures.total().since(&before);
    assert_eq!(told(&since), [1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0]);
    let mut both = before;
    both.add(&since);
    assert_eq!(both, stage.figures.total());
}

#[test]
fn the_longest_times_are_kept_in_their_order() {
    let mut longest = Longest::default();
    let kept = |longest: &Longest| longest.times().map(|time| time.as_secs());
    assert_eq!(kept(&longest), [0, 0, 0]);
    #[rustfmt::skip]
    let cases = [(5, [5, 0, 0]), (7, [7, 5, 0]), (5, [7, 5, 5]), (1, [7, 5, 5]), (6, [7, 6, 5]), (9, [9, 7, 6])];
    for (seconds, expected) in cases {
        longest.add(Duration::from_secs(seconds));
        assert_eq!(kept(&longest), expected, "after {seconds}");
    }
}
