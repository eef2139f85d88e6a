//! What is taken, what is known, and what is too much.

use std::sync::Arc;

use redrive_core::engine::NextState;
use redrive_core::event::Event;
use redrive_core::event::attribute::{
    CorrelationId, EventSource, EventSubject, ExtensionName, ExtensionText, ExtensionValue, TraceParent,
};
use redrive_core::ids::{Receipt, Seq};
use redrive_core::policy::category::{Category, codes};

use super::Scenario;
use super::bench::{Bench, ROOMY, addressee, at, bounded, event, ids, in_session, service, to};
use crate::store::{
    AcceptedEvent, DeliveryState, EventKey, Occurrence, OverflowPolicy, StateChange, Submission,
    SubmissionRefusal, SubmittedEvent, WaitingBound, WriteBatch,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("an event and its deliveries share one count", places),
    ("an event comes back as it went in", attributes_survive),
    ("the same event again is known, another of its id is refused", duplicates),
    ("what a resend may change makes no conflict", what_may_differ),
    ("equal ids within a batch and within a submission", duplicates_at_once),
    ("an id belongs to its source", sources),
    ("a submission is taken whole or not at all", whole_or_not),
    ("bounds count what waits over all channels, and what a submission adds", bounds),
    ("bounds count bytes", byte_bounds),
    ("a full service may dead-letter instead", overflow),
    ("what ends makes room in the same batch", room_in_the_same_batch),
    ("unrouted events wait for a route", unrouted),
    ("a route without room changes nothing", route_without_room),
    ("an empty batch is fine", empty),
];

fn places(bench: &mut Bench) {
    let taken = bench.take(&[to("a b/c", event("1")), to("", event("2")), to("a", event("3"))]);
    let receipts: Vec<u64> = taken.iter().map(|taken| taken.receipt.seq().get()).collect();
    assert_eq!(receipts, [1, 4, 5]);
    assert_eq!(taken.iter().map(|taken| taken.deliveries).collect::<Vec<_>>(), [2, 0, 1]);
    let places: Vec<u64> = bench.all().iter().map(|view| view.id.seq().get()).collect();
    assert_eq!(places, [2, 3, 6]);
    let views = bench.reader().events(&EventKey::Receipt(taken[0].receipt)).expect("it answers");
    let [view] = &views[..] else { panic!("one event has that receipt: {views:?}") };
    let queues: Vec<String> = view.deliveries.iter().map(|view| view.queue.to_string()).collect();
    assert_eq!(queues, ["a", "b/c"]);
    assert_eq!(view.deliveries[1].subscription, "b/c wants it");
    assert_eq!(bench.counts().events, 3);
}

fn attributes_survive(bench: &mut Bench) {
    let extension = |name: &str| ExtensionName::new(name).expect("a name");
    let full = Event {
        subject: Some(EventSubject::new("наряд 1").expect("a subject")),
        time: Some("2554-01-01T00:00:00.000000001Z".parse().expect("a time")),
        correlation_id: Some(CorrelationId::new("c-1").expect("an id")),
        traceparent: Some(TraceParent::new("00-1-2-01").expect("a trace")),
        extensions: [
            (extension("dataschema"), ExtensionValue::Text(ExtensionText::new("urn:x").expect("a text"))),
            (extension("empty"), ExtensionValue::Text(ExtensionText::new("").expect("a text"))),
            (extension("number"), ExtensionValue::Integer(i32::MIN)),
            (extension("text"), ExtensionValue::Text(ExtensionText::new("-2147483648").expect("a text"))),
            (extension("truth"), ExtensionValue::Boolean(false)),
        ]
        .into(),
        data: vec![0, 255, 10, 0].into(),
        ..in_session("full", "s")
    };
    let bare = Event { time: None, content_type: None, data: bytes::Bytes::new(), ..event("bare") };
    let large = Event { data: vec![7; 100_000].into(), ..event("large") };
    let events = [full, bare, large];
    let waiting: Vec<_> = events.iter().flat_map(|one| bench.accept(to("svc", one.clone()))).collect();
    let loaded = bench.ready("svc");
    assert_eq!(waiting, loaded, "what was accepted loads as the same");
    for ((sent, loaded), number) in events.iter().zip(&loaded).zip(0..) {
        assert_eq!(sent, &*loaded.event);
        assert_eq!(loaded.written_at, bench.now);
        let receipt = Receipt::of(Seq::new(number * 2 + 1));
        let views = bench.reader().events(&EventKey::Receipt(receipt)).expect("it answers");
        assert_eq!(*views[0].event, *sent);
    }
}

fn duplicates(bench: &mut Bench) {
    let first = bench.take(&[to("a b", event("1"))])[0];
    assert_eq!(first.seen, Occurrence::First);
    bench.wait(1);
    let again = AcceptedEvent { seen: Occurrence::Duplicate, ..first };
    assert_eq!(bench.submit(&[to("a", event("1"))]), Ok(vec![again]), "whoever wants it by now");
    let other = Event { data: "other".into(), ..event("1") };
    let refusal = SubmissionRefusal::Conflict { index: 1, first: Some(first.receipt) };
    assert_eq!(bench.submit(&[to("a", event("2")), to("a", other)]), Err(refusal));
    assert_eq!(bench.all().len(), 2);
    let delivery = bench.ready("a")[0].id;
    bench.end(delivery, NextState::Delivered);
    assert_eq!(bench.submit(&[to("a", event("1"))]), Ok(vec![again]), "after it was delivered too");
    bench.crash();
    assert_eq!(bench.submit(&[to("a", event("1"))]), Ok(vec![again]), "and after a crash");
}

fn what_may_differ(bench: &mut Bench) {
    let extension = |name: &str, value: ExtensionValue| (ExtensionName::new(name).expect("a name"), value);
    let text = |text: &str| ExtensionValue::Text(ExtensionText::new(text).expect("a text"));
    bench.take(&[to("a", event("1"))]);
    #[rustfmt::skip]
    let cases = [
        ("the time",        Event { time: None, ..event("1") },                              true),
        ("the trace",       Event { traceparent: TraceParent::new("t").ok(), ..event("1") }, true),
        ("its state",       Event { extensions: [extension("tracestate", text("x"))].into(), ..event("1") }, true),
        ("the correlation", Event { correlation_id: CorrelationId::new("c").ok(), ..event("1") }, true),
        ("the subject",     Event { subject: EventSubject::new("s").ok(), ..event("1") },         false),
        ("the session",     in_session("1", "s"),                                            false),
        ("the content type", Event { content_type: None, ..event("1") },                     false),
        ("an extension",    Event { extensions: [extension("x", text("1"))].into(), ..event("1") }, false),
        ("the data",        Event { data: "x".into(), ..event("1") },                        false),
    ];
    for (name, resent, same) in cases {
        assert_eq!(bench.submit(&[to("a", resent)]).is_ok(), same, "{name}");
    }
    let with = |value| Event { extensions: [extension("n", value)].into(), ..event("2") };
    bench.take(&[to("a", with(ExtensionValue::Integer(1)))]);
    assert!(bench.submit(&[to("a", with(text("1")))]).is_ok(), "a number that came as a header");
}

fn duplicates_at_once(bench: &mut Bench) {
    let one = to("a b", event("1"));
    let taken = bench.submit(&[one.clone(), to("a", event("2")), one.clone()]).expect("it is taken");
    assert_eq!(taken[2], AcceptedEvent { seen: Occurrence::Duplicate, ..taken[0] });
    let submission = |submitted: &SubmittedEvent| Submission { events: vec![submitted.clone()] };
    let three = to("a", event("3"));
    let other = to("a", Event { data: "x".into(), ..event("3") });
    let submissions = vec![submission(&three), submission(&three), submission(&other)];
    let written = bench.write(&WriteBatch { submissions, ..WriteBatch::default() });
    let first = written.submitted[0].as_ref().expect("it is taken")[0];
    assert_eq!(written.submitted[1], Ok(vec![AcceptedEvent { seen: Occurrence::Duplicate, ..first }]));
    assert_eq!(
        written.submitted[2],
        Err(SubmissionRefusal::Conflict { index: 0, first: Some(first.receipt) })
    );
    let other = to("a", Event { data: "x".into(), ..event("4") });
    let refused = bench.submit(&[to("a", event("4")), other]);
    assert_eq!(
        refused,
        Err(SubmissionRefusal::Conflict { index: 1, first: None }),
        "what is refused has no receipt"
    );
    assert_eq!(bench.take(&[to("a", event("4"))])[0].seen, Occurrence::First, "nothing of it was taken");
    assert_eq!(bench.counts().events, 4);
}

fn sources(bench: &mut Bench) {
    let elsewhere =
        |source: &str| Event { source: EventSource::new(source).expect("a source"), ..event("1") };
    let sources = ["/a", "/b", "/c"];
    let events: Vec<_> = sources.iter().map(|source| to("svc", elsewhere(source))).collect();
    let taken = bench.take(&events);
    assert!(taken.iter().all(|taken| taken.seen == Occurrence::First));
    let views = bench.reader().events(&EventKey::Id("1".to_owned())).expect("it answers");
    let found: Vec<&str> = views.iter().map(|view| view.event.source.as_str()).collect();
    assert_eq!(found, sources, "all of that id, the oldest first");
    assert!(bench.reader().events(&EventKey::Id("2".to_owned())).expect("it answers").is_empty());
}

fn whole_or_not(bench: &mut Bench) {
    let tight = WaitingBound { deliveries_max: 1, ..ROOMY };
    let last = bounded(to("b", event("3")), WaitingBound { deliveries_max: 0, ..tight });
    let refusal = SubmissionRefusal::Full { index: 2, service: service("b") };
    assert_eq!(bench.submit(&[to("a", event("1")), to("", event("2")), last]), Err(refusal));
    assert_eq!(bench.counts(), crate::store::StoreCounts::default());
    assert!(bench.ready("a").is_empty());
    let taken = bench.take(&[to("a", event("1"))]);
    assert_eq!(taken[0].receipt.seq(), Seq::new(1), "no place was used up");
}

fn bounds(bench: &mut Bench) {
    let tight = WaitingBound { deliveries_max: 3, ..ROOMY };
    let tight = |names: &str, id: &str| bounded(to(names, event(id)), tight);
    bench.take(&[tight("a", "1"), tight("a/x", "2")]);
    let full = |index| Err(SubmissionRefusal::Full { index, service: service("a") });
    assert_eq!(bench.submit(&[tight("a/y b a", "3")]), full(0), "two for one service");
    assert_eq!(bench.submit(&[tight("b", "3"), tight("a", "4"), tight("a/y", "5")]), full(2));
    assert!(bench.submit(&[tight("a/y", "6")]).is_ok());
    assert_eq!(bench.submit(&[tight("a", "7")]), full(0));
    assert!(bench.submit(&[tight("b", "8")]).is_ok(), "others have room");
    assert!(bench.submit(&[tight("a", "1")]).is_ok(), "what is known needs no room");
    let delivery = bench.ready("a/x")[0].id;
    bench.end(delivery, NextState::Due { at: at(9) });
    assert_eq!(bench.submit(&[tight("a", "7")]), full(0), "what waits for its time waits too");
    bench.end(delivery, NextState::Delivered);
    assert!(bench.submit(&[tight("a", "7")]).is_ok());
}

fn byte_bounds(bench: &mut Bench) {
    let tight = WaitingBound { bytes_max: 10, ..ROOMY };
    let sized =
        |id: &str, bytes: usize| bounded(to("a", Event { data: vec![0; bytes].into(), ..event(id) }), tight);
    let full = |index| Err(SubmissionRefusal::Full { index, service: service("a") });
    assert_eq!(bench.submit(&[sized("1", 11)]), full(0), "too large even alone");
    assert_eq!(bench.submit(&[sized("1", 6), sized("2", 5)]), full(1));
    assert!(bench.submit(&[sized("1", 6), sized("2", 4), sized("3", 0)]).is_ok());
    assert_eq!(bench.submit(&[sized("4", 1)]), full(0));
}

fn overflow(bench: &mut Bench) {
    let tight = WaitingBound { deliveries_max: 1, when_full: OverflowPolicy::DeadLetter, ..ROOMY };
    let sent = |id: &str| bounded(to("ord", in_session(id, "s")), tight);
    bench.take(&[sent("1")]);
    let waiting = bench.accept(sent("2"));
    assert!(waiting.is_empty(), "nothing to start");
    let view = bench.all().pop().expect("two");
    let DeliveryState::Dead { at, death } = view.state else { panic!("{view:?}") };
    assert_eq!((at, view.attempts, view.stories.len()), (bench.now, 0, 0));
    assert_eq!((death.category, death.code.as_str()), (Category::Transient, codes::BACKLOG_FULL));
    assert_eq!(death.failure_code, death.code);
    let first = bench.ready("ord")[0].id;
    assert!(bench.end(first, NextState::Delivered).is_none(), "a dead letter is nobody's next");
    assert_eq!(ids(&bench.accept(sent("3"))), ["3"]);
}

fn room_in_the_same_batch(bench: &mut Bench) {
    let tight = WaitingBound { deliveries_max: 1, ..ROOMY };
    let sent = |id: &str| Submission { events: vec![bounded(to("a", event(id)), tight)] };
    bench.take(&sent("1").events);
    let delivery = bench.ready("a")[0].id;
    let delivered = super::bench::settlement(delivery, 0, NextState::Delivered, bench.now);
    let batch = WriteBatch {
        settlements: vec![Arc::new(delivered)],
        submissions: vec![sent("2"), sent("3")],
        ..WriteBatch::default()
    };
    let written = bench.write(&batch);
    assert!(written.submitted[0].is_ok());
    assert!(
        matches!(written.submitted[1], Err(SubmissionRefusal::Full { .. })),
        "each counts what came before"
    );
    assert_eq!(ids(&written.waiting), ["2"]);
}

fn unrouted(bench: &mut Bench) {
    let taken = bench.take(&[to("", event("1")), to("a", event("2")), to("", in_session("3", "s"))]);
    assert_eq!(bench.counts().unrouted, 2);
    let shown = |bench: &Bench, after: Seq| {
        let views = bench.reader().unrouted(after, 10).expect("it answers");
        views.iter().map(|view| view.event.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(shown(bench, Seq::NONE), ["1", "3"]);
    assert_eq!(shown(bench, taken[0].receipt.seq()), ["3"]);
    assert_eq!(bench.reader().unrouted(Seq::NONE, 1).expect("it answers").len(), 1);
    bench.wait(5);
    let event = taken[2].receipt.seq();
    let routes = vec![addressee("ord"), addressee("a")];
    let waiting = bench.note(StateChange::Route { event, routes: routes.clone() });
    assert_eq!(ids(&waiting), ["3", "3"]);
    assert_eq!((waiting[0].sequence.is_some(), waiting[1].sequence.is_some()), (true, false));
    assert_eq!(shown(bench, Seq::NONE), ["1"]);
    assert!(bench.note(StateChange::Route { event, routes: routes.clone() }).is_empty(), "only once");
    let known = taken[1].receipt.seq();
    assert!(bench.note(StateChange::Route { event: known, routes }).is_empty(), "it had its routes");
    assert!(bench.note(StateChange::Route { event: Seq::new(99), routes: vec![addressee("a")] }).is_empty());
    let view = bench.reader().events(&EventKey::Receipt(taken[2].receipt)).expect("it answers");
    let queues: Vec<String> = view[0].deliveries.iter().map(|view| view.queue.to_string()).collect();
    assert_eq!((queues, view[0].unrouted), (vec!["ord".to_owned(), "a".to_owned()], false));
    let again = bench.submit(&[to("", in_session("3", "s"))]).expect("it is known");
    assert_eq!((again[0].seen, again[0].deliveries), (Occurrence::Duplicate, 2));
    assert_eq!(ids(&bench.ready("a")), ["2", "3"]);
    assert!(bench.accept(to("ord", in_session("4", "s"))).is_empty(), "it is behind the routed one");
}

fn route_without_room(bench: &mut Bench) {
    let taken = bench.take(&[to("", event("1")), to("a", event("2"))]);
    let event = taken[0].receipt.seq();
    for when_full in [OverflowPolicy::Refuse, OverflowPolicy::DeadLetter] {
        let bound = WaitingBound { deliveries_max: 1, when_full, ..ROOMY };
        let mut full = addressee("a");
        full.bound = bound;
        assert!(bench.note(StateChange::Route { event, routes: vec![addressee("b"), full] }).is_empty());
        assert_eq!(bench.counts().unrouted, 1);
    }
    assert!(bench.note(StateChange::Route { event, routes: Vec::new() }).is_empty());
    assert_eq!(ids(&bench.note(StateChange::Route { event, routes: vec![addressee("b")] })), ["1"]);
}

fn empty(bench: &mut Bench) {
    let written = bench.write(&WriteBatch::default());
    assert!(written.settled.is_empty() && written.submitted.is_empty() && written.waiting.is_empty());
    assert_eq!(bench.submit(&[]), Ok(Vec::new()));
    assert_eq!(bench.note(StateChange::Alive).len(), 0);
}
