//! The engine step by step: what it asks for after each input. The simulation next door found most of these.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::book;
use crate::book::connectors::built_in;
use crate::event::Event;
use crate::event::attribute::{EventId, EventSource, EventType};
use crate::event::idempotency;
use crate::ids::DeliveryId;
use crate::letters::replay;
use crate::policy::answer::{HeaderPairs, ReplyKind, TargetReply};
use crate::text::Rate;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

const BOOK: &str = r#"
version: 1
retry_policies:
  thrice: { initial: 1s, factor: 1, max: 1s, retries: 3, window: 10s, jitter: none }
breakers:
  touchy: { trip: { consecutive: 2 }, open: 10s, probes: 1, close_after: 1 }
dependencies:
  narrow: { kind: webhook, breaker: none, in_flight: 1 }
  guarded: { kind: webhook, breaker: touchy }
  returning: { kind: webhook, breaker: touchy }
  stingy: { kind: webhook, breaker: none, retry_budget: { share: 0%, at_least: 1/m } }
  single: { kind: process, in_flight: 1 }
  paced: { kind: webhook, breaker: none, rate: 1/s }
services:
  q: { target: { http: "http://q.test/" }, depends_on: paced, retry: thrice, events: [t] }
  w: { target: { exec: [work] }, depends_on: single, retry: thrice, events: [t] }
  a: { target: { http: "http://a.test/" }, depends_on: narrow, retry: thrice, on_failure: { fatal: pause }, events: [t] }
  b: { target: { http: "http://b.test/" }, depends_on: narrow, retry: thrice, events: [t] }
  c: { target: { http: "http://c.test/" }, depends_on: narrow, retry: thrice, events: [t] }
  d: { target: { http: "http://d.test/" }, depends_on: narrow, retry: thrice, events: [t] }
  s: { target: { http: "http://s.test/" }, depends_on: stingy, retry: thrice, events: [t] }
  o: { target: { http: "http://o.test/" }, retry: thrice, order: session-strict, events: [t] }
  n: { target: { http: "http://n.test/" }, depends_on: guarded, retry: thrice, idempotency: { by: notification-id }, events: [t] }
  p:
    target: { http: "http://p.test/" }
    retry: thrice
    events: [{ type: held, depends_on: guarded }, { type: free, depends_on: narrow }]
  r:
    target: { http: "http://r.test/" }
    depends_on: returning
    retry: thrice
    dead_letter: { reprocess: automatic }
    events: [t]
  g:
    target: { http: "http://g.test/" }
    depends_on: guarded
    retry: thrice
    hold_max: 30s
    events: [t, { type: now-or-never, when_open: dead-letter }]
"#;

/// An engine, the time, and what it asked for last.
struct Bench {
    engine: Engine,
    now: Timestamp,
    last_seq: u64,
    rows: BTreeMap<DeliveryId, PendingDelivery>,
}

fn bench() -> Bench {
    bench_with_suspects(None)
}

fn bench_with_suspects(suspects_until: Option<Seq>) -> Bench {
    bench_of(suspects_until, 64)
}

/// One that makes so many calls at once.
fn bench_of(suspects_until: Option<Seq>, calls: u32) -> Bench {
    let book = book::read(BOOK, built_in()).book.expect("the book is sound");
    let engine = Engine::new(Setup {
        seed: Seed(1),
        book: Arc::new(book),
        older_books: Vec::new(),
        bounds: EngineBounds { window: 4, window_bytes: 1_000, calls },
        now: START,
        queues: Vec::new(),
        paused: BTreeMap::new(),
        absences: Absences::new(),
        breakers: Vec::new(),
        replays: Vec::new(),
        suspects_until,
    });
    Bench { engine, now: START, last_seq: 0, rows: BTreeMap::new() }
}

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).expect("a name")
}

fn answered(status: u16) -> Ending {
    let seen = ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
    Ending::Reply(TargetReply { seen, message: format!("target answered {status}"), retry_after: None })
}

impl Bench {
    /// Hands it over and says what is asked for in return.
    fn tell(&mut self, input: Input) -> Vec<String> {
        self.engine.handle(input, self.now);
        let mut asked = Vec::new();
        while let Some(effect) = self.engine.next_effect() {
            asked.extend(match effect {
                Effect::Start(call) => {
                    let row = &call.deliveries[0];
                    Some(format!("start {} of {}", row.id.seq().get(), call.queue))
                }
                Effect::Settle(settlement) => {
                    let next = match &settlement.next {
                        NextState::Delivered => "delivered".to_owned(),
                        NextState::Ready => "ready".to_owned(),
                        NextState::Due { at } => format!("due in {:?}", at.since(self.now)),
                        NextState::Dead(info) => match info.followers {
                            SessionFollowers::Continue => format!("dead: {}", info.code.as_str()),
                            SessionFollowers::Wait => {
                                format!("dead: {}, and others wait", info.code.as_str())
                            }
                        },
                        NextState::Starting => "starting".to_owned(),
                    };
                    Some(format!("settle {}: {next}", settlement.delivery.seq().get()))
                }
                Effect::Advance(advance) => {
                    let Advance { replay, letters_max, wave, .. } = advance;
                    Some(format!("{letters_max} more of {wave:?} of replay {replay}"))
                }
                Effect::Reprocess(dependency) => Some(format!("{dependency} is well again")),
                Effect::Load(_)
                | Effect::WakeAt(_)
                | Effect::Keep(_)
                | Effect::Release(_)
                | Effect::Activity(_) => None,
            });
        }
        asked
    }

    fn accept(&mut self, name: &str, event_type: &str) -> Vec<String> {
        let row = self.row(name, event_type);
        self.tell(Input::Accepted(vec![row]))
    }

    fn row(&mut self, name: &str, event_type: &str) -> PendingDelivery {
        self.last_seq += 1;
        let event = Event {
            id: EventId::new(&self.last_seq.to_string()).expect("an id"),
            source: EventSource::new("/tests").expect("a source"),
            event_type: EventType::new(event_type).expect("a type"),
            subject: None,
            time: None,
            content_type: None,
            session: None,
            correlation_id: None,
            traceparent: None,
            extensions: BTreeMap::new(),
            data: Bytes::new(),
        };
        let seq = Seq::new(self.last_seq);
        let id = idempotency::delivery_id(seq, event.dedup_key(), &service(name), None);
        let row = PendingDelivery {
            id,
            queue: Arc::new(QueueName { service: service(name), channel: None }),
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
        };
        self.rows.insert(id, row.clone());
        row
    }

    fn end(&mut self, call: u64, status: u16) -> Vec<String> {
        self.tell(Input::Ended { call: CallId(call), ending: answered(status) })
    }

    fn settled(&mut self, seq: u64) -> Vec<String> {
        let delivery = *self.rows.keys().find(|id| id.seq().get() == seq).expect("it was accepted");
        self.tell(Input::Settled { delivery, fate: SettlementResult::Written, promoted: None })
    }

    fn operator(&mut self, command: OperatorCommand) -> Vec<String> {
        self.tell(Input::Operator(command))
    }

    fn pass(&mut self, span: Duration) -> Vec<String> {
        self.now = self.now + span;
        self.tell(Input::Tick)
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_turn_that_a_paused_line_cannot_use_goes_to_the_next() {
    let mut bench = bench();
    assert_eq!(bench.accept("a", "t"), ["start 1 of a"]);
    for name in ["b", "c", "d"] {
        assert_eq!(bench.accept(name, "t"), NOTHING, "one call at a time");
    }
    bench.operator(OperatorCommand::Pause(service("b")));
    bench.operator(OperatorCommand::Pause(service("c")));
    assert_eq!(bench.end(1, 200), ["settle 1: delivered", "start 4 of d"]);
    bench.operator(OperatorCommand::Resume(service("c")));
    assert_eq!(bench.end(2, 200), ["settle 4: delivered", "start 3 of c"]);
}

#[test]
fn a_target_that_told_a_notification_is_not_called_again_and_its_breaker_does_not_matter() {
    let mut bench = bench();
    let told = |status| {
        let headers = HeaderPairs(vec![("notification-id".to_owned(), "n-1".to_owned())]);
        let seen = ReplyKind::Http { status, headers, body: String::new() };
        Ending::Reply(TargetReply { seen, message: String::new(), retry_after: None })
    };
    for (seq, ending) in [(1, told(503)), (2, answered(503))] {
        assert_eq!(bench.accept("n", "t"), [format!("start {seq} of n")]);
        let asked = bench.tell(Input::Ended { call: CallId(seq), ending });
        assert_eq!(asked, [format!("settle {seq}: due in 1s")]);
        bench.settled(seq);
    }
    assert_eq!(bench.pass(secs(1)), ["settle 1: delivered"], "the other waits for the breaker");
    assert_eq!(bench.settled(1), NOTHING);
    assert_eq!(bench.pass(secs(10)), ["start 2 of n"]);
}

#[test]
fn a_retry_beyond_the_budget_waits_and_keeps_nobody_else_waiting() {
    let mut bench = bench();
    for seq in 1..=2 {
        assert_eq!(bench.accept("s", "t"), [format!("start {seq} of s")]);
        assert_eq!(bench.end(seq, 503), [format!("settle {seq}: due in 1s")]);
        assert_eq!(bench.settled(seq), NOTHING);
    }
    assert_eq!(bench.pass(secs(1)), ["start 1 of s"], "one retry in ten seconds");
    assert_eq!(bench.end(3, 200), ["settle 1: delivered"]);
    bench.settled(1);
    assert_eq!(bench.accept("s", "t"), ["start 3 of s"], "no retry, so it does not wait");
    assert_eq!(bench.end(4, 200), ["settle 3: delivered"]);
    bench.settled(3);
    assert_eq!(bench.pass(secs(8)), NOTHING, "the budget is spent");
    assert_eq!(bench.pass(secs(3)), ["start 2 of s"], "it was not lost, and burnt no retry");
    assert_eq!(bench.end(5, 503), ["settle 2: dead: RETRY_WINDOW_EXCEEDED"], "the window ran on meanwhile");
}

#[test]
fn retries_beyond_the_budget_leave_room_in_memory_for_others() {
    let mut bench = bench();
    for (seq, call) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        bench.accept("s", "t");
        bench.end(call, 503);
        bench.settled(seq);
    }
    assert_eq!(bench.pass(secs(1)), ["start 1 of s"], "the others wait for the budget");
    for (seq, call) in [(5, 6), (6, 7)] {
        assert_eq!(bench.accept("s", "t"), [format!("start {seq} of s")]);
        bench.end(call, 503);
        bench.settled(seq);
    }
    assert_eq!(bench.pass(secs(1)), NOTHING, "five wait now, and the window is four");
    assert_eq!(bench.accept("s", "t"), ["start 7 of s"], "who is no retry has a window of its own");
}

#[test]
fn a_breaker_that_no_delivery_has_met_can_be_tripped() {
    let mut bench = bench();
    bench.operator(OperatorCommand::Trip(DependencyName::new("guarded").expect("a name")));
    assert_eq!(bench.accept("g", "t"), NOTHING);
    assert_eq!(bench.pass(secs(9)), NOTHING);
    assert_eq!(bench.pass(secs(1)), ["start 1 of g"]);
}

#[test]
fn a_pause_that_is_written_after_a_resume_holds() {
    let mut bench = bench();
    bench.accept("a", "t");
    assert_eq!(bench.end(1, 401), ["settle 1: ready"]);
    bench.operator(OperatorCommand::Resume(service("a")));
    assert_eq!(bench.settled(1), NOTHING);
    assert_eq!(bench.accept("a", "t"), NOTHING, "paused");
    assert_eq!(bench.operator(OperatorCommand::Resume(service("a"))), ["start 1 of a"]);
}

#[test]
fn who_may_not_wait_behind_an_open_breaker_ends_at_once_though_others_wait() {
    let mut bench = bench();
    bench.operator(OperatorCommand::Trip(DependencyName::new("guarded").expect("a name")));
    assert_eq!(bench.accept("g", "t"), NOTHING);
    assert_eq!(bench.accept("g", "now-or-never"), ["settle 2: dead: CIRCUIT_BREAKER_OPEN"]);
}

#[test]
fn neither_a_pause_nor_an_absence_uses_up_the_time_that_a_delivery_may_be_held() {
    let trip = || OperatorCommand::Trip(DependencyName::new("guarded").expect("a name"));
    let pause: fn(&mut Bench) -> Vec<String> = |bench| {
        bench.operator(OperatorCommand::Pause(service("g")));
        bench.pass(secs(100));
        bench.operator(OperatorCommand::Resume(service("g")))
    };
    let absence: fn(&mut Bench) -> Vec<String> = |bench| {
        bench.tell(Input::StoreFailing);
        bench.pass(secs(100));
        bench.tell(Input::StoreHealed)
    };
    let nothing: fn(&mut Bench) -> Vec<String> = |bench| bench.pass(secs(100));
    #[rustfmt::skip]
    let cases = [
        ("time that just passes", nothing, vec!["settle 1: dead: CIRCUIT_BREAKER_OPEN"]),
        ("a pause",               pause,   vec![]),
        ("an absence",            absence, vec![]),
    ];
    for (name, meanwhile, expected) in cases {
        let mut bench = bench();
        bench.operator(trip());
        bench.accept("g", "t");
        bench.pass(secs(5));
        // Open all the time, whatever happens in between.
        bench.operator(trip());
        bench.engine.dependencies.iter_mut().for_each(|dependency| {
            dependency.control.trip_by_hand(START + secs(200));
        });
        assert_eq!(meanwhile(&mut bench), expected, "{name}");
    }
}

#[test]
fn a_call_that_ran_while_nothing_could_be_written_uses_up_no_window_by_that() {
    let mut bench = bench();
    bench.accept("a", "t");
    assert_eq!(bench.end(1, 503), ["settle 1: due in 1s"]);
    bench.settled(1);
    assert_eq!(bench.pass(secs(1)), ["start 1 of a"]);
    bench.tell(Input::StoreFailing);
    bench.pass(secs(60));
    assert_eq!(bench.end(2, 503), ["settle 1: due in 1s"], "a window of 10 s, of which 1 s has passed");
}

#[test]
fn a_suspect_starts_alone_when_its_start_is_on_record() {
    let mut bench = bench_with_suspects(Some(Seq::new(2)));
    assert_eq!(bench.accept("g", "t"), ["settle 1: starting"]);
    assert_eq!(bench.accept("g", "t"), NOTHING);
    assert_eq!(bench.accept("a", "t"), NOTHING, "not even others start beside it");
    assert_eq!(bench.settled(1), ["start 1 of g"]);
    assert_eq!(bench.end(1, 200), ["settle 1: delivered"]);
    assert_eq!(bench.settled(1), ["settle 2: starting"]);
    bench.operator(OperatorCommand::Pause(service("g")));
    assert_eq!(bench.settled(2), ["settle 2: ready", "start 3 of a"], "something has come up");
    bench.settled(2);
    bench.end(2, 200);
    bench.settled(3);
    assert_eq!(bench.operator(OperatorCommand::Resume(service("g"))), ["settle 2: starting"]);
}

#[test]
fn a_suspect_that_a_stop_cuts_short_does_not_look_like_a_crash() {
    let mut bench = bench_with_suspects(Some(Seq::new(1)));
    bench.accept("g", "t");
    assert_eq!(bench.settled(1), ["start 1 of g"]);
    assert_eq!(bench.tell(Input::Stop), NOTHING);
    let ending = Input::Ended { call: CallId(1), ending: Ending::Interrupted };
    assert_eq!(bench.tell(ending), ["settle 1: ready"], "its start is on record no more");
}

#[test]
fn a_worker_starts_when_its_start_is_on_record() {
    let mut bench = bench();
    assert_eq!(bench.accept("w", "t"), ["settle 1: starting"]);
    assert_eq!(bench.accept("g", "t"), ["start 2 of g"], "others start beside it");
    assert_eq!(bench.accept("w", "t"), NOTHING, "its place is taken already");
    assert_eq!(bench.settled(1), ["start 1 of w"]);
    assert_eq!(bench.tell(Input::Stop), NOTHING);
    let ending = Input::Ended { call: CallId(2), ending: Ending::Interrupted };
    assert_eq!(bench.tell(ending), ["settle 1: ready"], "a stop burns nothing, and is no crash");
}

#[test]
fn a_worker_that_may_not_start_after_all_gives_its_place_back() {
    let mut bench = bench();
    assert_eq!(bench.accept("w", "t"), ["settle 1: starting"]);
    assert_eq!(bench.accept("w", "t"), NOTHING);
    bench.operator(OperatorCommand::Pause(service("w")));
    assert_eq!(bench.settled(1), ["settle 1: ready"]);
    assert_eq!(bench.settled(1), NOTHING);
    assert_eq!(bench.operator(OperatorCommand::Resume(service("w"))), ["settle 1: starting"]);
    assert_eq!(bench.settled(1), ["start 1 of w"]);
    assert_eq!(bench.end(1, 200), ["settle 1: delivered", "settle 2: starting"]);
}

#[test]
fn a_book_that_did_not_change_keeps_the_books_that_counts_go_by() {
    let mut bench = bench();
    let same = Arc::clone(&bench.engine.book);
    bench.tell(Input::Book(same));
    assert!(bench.engine.older_books.is_empty());
}

#[test]
fn a_delivery_that_redrive_went_down_with_counts_as_tried_but_for_the_time_since() {
    let mut bench = bench();
    let row = bench.row("g", "t");
    let (down_from, up_at) = (bench.now, bench.now + secs(60));
    bench.now = up_at;
    bench.engine.absences.add(down_from, up_at);
    assert_eq!(
        bench.tell(Input::Accepted(vec![PendingDelivery { start_recorded: true, ..row }])),
        ["settle 1: due in 1s"]
    );
}

#[test]
fn letters_come_back_when_the_breaker_of_their_dependency_closes() {
    let names = ["returning", "guarded"];
    let closes = |name: &str| {
        let mut bench = bench();
        let name = DependencyName::new(name).expect("a name");
        bench.operator(OperatorCommand::Trip(name.clone()));
        bench.operator(OperatorCommand::Reset(name))
    };
    assert_eq!(names.map(closes), [vec!["returning is well again".to_owned()], vec![]]);
}

#[test]
fn a_dead_letter_of_a_strict_session_has_the_others_wait() {
    #[rustfmt::skip]
    let cases = [
        ("it has a session",       "o", Some(Seq::new(1)), "settle 1: dead: UNPROCESSABLE, and others wait"),
        ("it has none",            "o", None,              "settle 1: dead: UNPROCESSABLE"),
        ("its service lets go on", "b", Some(Seq::new(1)), "settle 1: dead: UNPROCESSABLE"),
    ];
    for (name, service, sequence, expected) in cases {
        let mut bench = bench();
        let row = PendingDelivery { sequence, ..bench.row(service, "t") };
        bench.tell(Input::Accepted(vec![row]));
        assert_eq!(bench.end(1, 422), [expected], "{name}");
    }
}

#[test]
fn a_replay_asks_for_nothing_while_the_store_fails_or_redrive_stops() {
    let pace = replay::ReplayPace { rate: None, concurrency: 4, manner: replay::Manner::Straight };
    let tally = replay::ReplayTally { total: 9, ..replay::ReplayTally::default() };
    let job = replay::ReplayJob {
        id: ReplayId(1),
        state: replay::ReplayState::Running,
        pace,
        origin: replay::ReplayOrigin::Operator,
        wave: replay::ReplayWave::Rest,
        tally,
    };
    let mut bench = bench();
    bench.tell(Input::StoreFailing);
    assert_eq!(bench.tell(Input::Replay(job.clone())), NOTHING);
    assert_eq!(bench.tell(Input::StoreHealed), ["0 more of Rest of replay 1"], "only how it is");
    assert_eq!(bench.tell(Input::Advanced { job: job.clone(), sent: 0 }), ["4 more of Rest of replay 1"]);
    bench.tell(Input::Stop);
    assert_eq!(bench.tell(Input::Advanced { job, sent: 4 }), NOTHING);
}

/// What a delivery waits for, by its number, its service and the state that the store has it in.
fn wait(bench: &Bench, seq: u64, state: StoredState) -> Wait {
    let row = bench.rows.values().find(|row| row.id.seq().get() == seq).expect("it was accepted");
    let event_type = row.event.event_type.to_string();
    let asked = WaitQuery { id: row.id, queue: QueueName::clone(&row.queue), event_type, state };
    let mut waits = bench.engine.waits(&[asked], bench.now);
    assert_eq!(waits.len(), 1);
    waits.remove(0)
}

fn dependency(name: &str) -> DependencyName {
    DependencyName::new(name).expect("a name")
}

#[test]
fn the_engine_says_what_each_delivery_waits_for() {
    use StoredState::{Behind, Due, Ready};
    let mut bench = bench();
    // Two rows of one service with a dependency each, of which one is down.
    bench.operator(OperatorCommand::Trip(dependency("guarded")));
    bench.accept("p", "held");
    bench.accept("p", "free");
    let open = Wait::BreakerOpen { dependency: dependency("guarded"), until: START + secs(10) };
    assert_eq!(wait(&bench, 1, Ready), open);
    assert_eq!(wait(&bench, 2, Ready), Wait::Running);
    bench.accept("p", "free");
    assert_eq!(wait(&bench, 3, Ready), Wait::InFlight { dependency: dependency("narrow"), most: 1 });
    assert_eq!(wait(&bench, 3, Behind), Wait::Session);
    // Of a retry and a hold, the one that ends last counts.
    assert_eq!(wait(&bench, 1, Due { at: START + secs(5) }), open);
    assert_eq!(wait(&bench, 1, Due { at: START + secs(11) }), Wait::Due { at: START + secs(11) });
    assert_eq!(
        wait(&bench, 3, Due { at: START }),
        Wait::InFlight { dependency: dependency("narrow"), most: 1 }
    );
    bench.pass(secs(10));
    assert_eq!(wait(&bench, 1, Ready), Wait::Running, "it is the probe");
    bench.accept("p", "held");
    assert_eq!(wait(&bench, 4, Ready), Wait::Probes { dependency: dependency("guarded") });

    bench.end(1, 200);
    assert_eq!(wait(&bench, 2, Ready), Wait::Settling);
    bench.operator(OperatorCommand::Pause(service("p")));
    assert_eq!(wait(&bench, 4, Ready), Wait::Paused { since: START + secs(10) });
    bench.operator(OperatorCommand::Resume(service("p")));
    bench.row("p", "unwanted");
    assert_eq!(wait(&bench, 5, Due { at: Timestamp::NEVER }), Wait::RuleRemoved);
    bench.tell(Input::StoreFailing);
    assert_eq!(wait(&bench, 4, Ready), Wait::StoreFailing { since: START + secs(10) });
    bench.row("gone", "t");
    assert_eq!(wait(&bench, 6, Ready), Wait::ServiceRemoved);
    bench.tell(Input::StoreHealed);
    bench.tell(Input::Stop);
    assert_eq!(wait(&bench, 4, Ready), Wait::Stopping);
}

#[test]
fn a_retry_says_that_it_waits_for_its_budget() {
    let mut bench = bench();
    for seq in 1..=2 {
        bench.accept("s", "t");
        bench.end(seq, 503);
        bench.settled(seq);
    }
    bench.pass(secs(1));
    bench.end(3, 200);
    bench.settled(1);
    match wait(&bench, 2, StoredState::Ready) {
        Wait::RetryBudget { dependency: name, until } => {
            assert_eq!((name, until > bench.now), (dependency("stingy"), true));
        }
        other => panic!("it waits for {other:?}"),
    }
    bench.accept("s", "t");
    assert_eq!(wait(&bench, 3, StoredState::Ready), Wait::Running, "no retry");
}

#[test]
fn a_delivery_says_that_its_dependency_asked_to_wait() {
    let mut bench = bench();
    bench.accept("g", "t");
    bench.accept("g", "t");
    let seen = ReplyKind::Http { status: 429, headers: HeaderPairs::default(), body: String::new() };
    let reply = TargetReply { seen, message: String::new(), retry_after: Some(secs(5)) };
    bench.tell(Input::Ended { call: CallId(1), ending: Ending::Reply(reply) });
    bench.settled(1);
    bench.accept("g", "t");
    let asked = Wait::RetryAfter { dependency: dependency("guarded"), until: START + secs(5) };
    assert_eq!(wait(&bench, 3, StoredState::Ready), asked);
    assert_eq!(
        wait(&bench, 1, StoredState::Due { at: START + secs(1) }),
        asked,
        "it lasts longer than the retry"
    );
    assert_eq!(wait(&bench, 2, StoredState::Ready), Wait::Running, "it was called before");
    bench.operator(OperatorCommand::Trip(dependency("guarded")));
    let open = Wait::BreakerOpen { dependency: dependency("guarded"), until: START + secs(10) };
    assert_eq!(
        wait(&bench, 3, StoredState::Ready),
        open,
        "the breaker stays open for longer than it asked to wait"
    );
    bench.operator(OperatorCommand::Reset(dependency("guarded")));
    bench.pass(secs(5));
    assert_eq!(wait(&bench, 3, StoredState::Ready), Wait::Running);
}

#[test]
fn a_delivery_says_that_it_waits_for_the_rate() {
    let mut bench = bench();
    bench.accept("q", "t");
    bench.accept("q", "t");
    let rate = Rate::per_second(1.0).expect("a rate");
    assert_eq!(wait(&bench, 2, StoredState::Ready), Wait::Rate { dependency: dependency("paced"), rate });
    bench.pass(secs(1));
    assert_eq!(wait(&bench, 2, StoredState::Ready), Wait::Running);
}

#[test]
fn a_delivery_says_that_calls_come_back_gradually() {
    let mut bench = bench();
    bench.operator(OperatorCommand::Trip(dependency("guarded")));
    bench.accept("g", "t");
    bench.pass(secs(10));
    bench.end(1, 200);
    bench.settled(1);
    while bench.accept("g", "t") != NOTHING {
        assert!(bench.last_seq < 64, "all come back at once");
    }
    let wanted = Wait::RampUp { dependency: dependency("guarded") };
    assert_eq!(wait(&bench, bench.last_seq, StoredState::Ready), wanted);
}

#[test]
fn a_delivery_says_that_others_have_their_share() {
    let mut bench = bench_of(None, 4);
    while bench.accept("o", "t") != NOTHING {}
    assert_eq!(wait(&bench, bench.last_seq, StoredState::Ready), Wait::Share);
    assert_eq!(bench.accept("s", "t").len(), 1, "another service has a share of its own");
}

#[test]
fn a_delivery_says_that_it_waits_for_one_that_is_tried_alone() {
    let mut bench = bench_with_suspects(Some(Seq::new(2)));
    bench.accept("g", "t");
    bench.accept("g", "t");
    bench.accept("a", "t");
    bench.settled(1);
    assert_eq!(wait(&bench, 1, StoredState::Ready), Wait::Running);
    for seq in [2, 3] {
        assert_eq!(wait(&bench, seq, StoredState::Ready), Wait::Alone);
    }
}

#[test]
fn a_delivery_that_nothing_holds_waits_for_its_turn() {
    let mut bench = bench();
    // It is in the store, and has not been loaded.
    bench.row("g", "t");
    assert_eq!(wait(&bench, 1, StoredState::Ready), Wait::Turn);
}

#[test]
fn what_is_damaged_is_a_dead_letter_at_once() {
    let mut bench = bench();
    let row = PendingDelivery { damaged: true, ..bench.row("a", "t") };
    assert_eq!(bench.tell(Input::Accepted(vec![row])), ["settle 1: dead: DAMAGED"]);
    assert_eq!(bench.settled(1), NOTHING);
    assert_eq!(bench.accept("a", "t"), ["start 2 of a"], "others go on");
}
