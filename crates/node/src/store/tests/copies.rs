//! What each row makes of an event that comes again, and of two events that have one key.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::NextState;
use redrive_core::event::Event;
use redrive_core::event::copy_rule::{CopyKey, CopyRule, IdempotencyBy};

use super::Scenario;
use super::bench::{Bench, event, ids, keep, settlement, to};
use super::desk::{everything, fails, straight};
use crate::store::{AcceptedEvent, Addressee, Occurrence, StateChange, SubmissionRefusal, SubmittedEvent};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("where nothing is remembered each copy is delivered", nothing_remembered),
    ("rows that disagree each have their way", rows_disagree),
    ("a row forgets after its own time, once the event is gone", own_time),
    ("two events with one key are one delivery", one_key),
    ("a key belongs to its row", keys_apart),
    ("an event without the key is known by its id", no_key),
    ("equal keys within a submission", keys_at_once),
    ("keys are forgotten after their time, once the event is gone", keys_forgotten),
    ("a key whose time ended is forgotten together with the event", key_goes_with_its_event),
    ("an event that is routed later has its key too", routed),
    ("what a target has notified outlives a replay", notified),
];

const HOUR: Duration = Duration::from_hours(1);

fn by(by: IdempotencyBy) -> CopyRule {
    CopyRule { by, key: None, ttl: Duration::MAX }
}

fn keyed(key: &str) -> CopyRule {
    CopyRule { key: Some(Arc::new(CopyKey::parse(key).expect("a key"))), ..by(IdempotencyBy::EventId) }
}

/// The same for those who recognise copies in these ways, one after the other.
fn with(submitted: SubmittedEvent, copies: &[CopyRule]) -> SubmittedEvent {
    let routes = submitted.routes.into_iter().zip(copies.iter().cloned());
    let routes = routes.map(|(addressee, copies)| Addressee { copies, ..addressee }).collect();
    SubmittedEvent { routes, ..submitted }
}

fn order(id: &str, order: u32) -> Event {
    Event { data: format!("{{\"order\":{order}}}").into(), ..event(id) }
}

fn queues(bench: &Bench) -> Vec<String> {
    bench.all().iter().map(|view| format!("{} {}", view.queue, view.event_id)).collect()
}

fn nothing_remembered(bench: &mut Bench) {
    let each = |event: Event| with(to("a", event), &[by(IdempotencyBy::Nothing)]);
    let first = bench.take(&[each(event("1"))])[0];
    let second = bench.take(&[each(event("1"))])[0];
    assert_eq!((second.seen, second.deliveries), (Occurrence::First, 1));
    assert_ne!(first.receipt, second.receipt);
    bench.crash();
    let other = Event { data: "other".into(), ..event("1") };
    assert_eq!(bench.take(&[each(other.clone()), each(other)]).len(), 2, "nor is it held against another");
    assert_eq!(queues(bench), ["a 1"; 4]);
    let twice = bench.submit(&[each(event("2")), each(event("2"))]).expect("it is taken");
    assert!(twice.iter().all(|taken| taken.seen == Occurrence::First), "{twice:?}");
    // A row that remembers knows all of them.
    let again = bench.submit(&[to("a", event("1"))]).expect("it is known");
    assert_eq!(again, [AcceptedEvent { seen: Occurrence::Duplicate, ..first }]);
    let third = Event { data: "third".into(), ..event("1") };
    let refusal = SubmissionRefusal::Conflict { index: 0, first: Some(first.receipt) };
    assert_eq!(bench.submit(&[to("a", third)]), Err(refusal));
}

fn rows_disagree(bench: &mut Bench) {
    let ways = [by(IdempotencyBy::Nothing), by(IdempotencyBy::EventId), by(IdempotencyBy::NotificationId)];
    let all = |event: Event| with(to("a b c", event), &ways);
    let first = bench.take(&[all(event("1"))])[0];
    assert_eq!(first.deliveries, 3);
    let again = bench.take(&[all(event("1"))])[0];
    assert_eq!((again.seen, again.deliveries), (Occurrence::First, 1), "for the one that asks for each");
    assert_eq!(queues(bench), ["a 1", "b 1", "c 1", "a 1"]);
    let other = Event { data: "other".into(), ..event("1") };
    let refusal = SubmissionRefusal::Conflict { index: 0, first: Some(first.receipt) };
    assert_eq!(bench.submit(&[all(other)]), Err(refusal), "two of them remember another");
}

fn own_time(bench: &mut Bench) {
    let lasting = |hours: u32| CopyRule { ttl: hours * HOUR, ..by(IdempotencyBy::EventId) };
    let both = || with(to("short long", event("1")), &[lasting(2), lasting(100)]);
    let first = bench.take(&[both()])[0];
    for name in ["short", "long"] {
        let delivery = bench.ready(name)[0].id;
        bench.end(delivery, NextState::Delivered);
    }
    bench.wait(3 * 3_600);
    let again = AcceptedEvent { seen: Occurrence::Duplicate, ..first };
    assert_eq!(bench.submit(&[both()]), Ok(vec![again]), "what is kept is known");
    bench.housekeep(&keep(HOUR, 100 * HOUR));
    bench.crash();
    let second = bench.take(&[both()])[0];
    assert_eq!((second.seen, second.deliveries), (Occurrence::First, 1));
    assert_eq!(ids(&bench.ready("short")), ["1"]);
    assert!(bench.ready("long").is_empty(), "it still remembers");
    assert_eq!(bench.submit(&[both()]), Ok(vec![again]), "and the other does again");
}

fn one_key(bench: &mut Bench) {
    let to_orders = |event: Event| with(to("a b", event), &[keyed("data.order"), by(IdempotencyBy::EventId)]);
    let first = bench.take(&[to_orders(order("1", 7))])[0];
    let second = bench.take(&[to_orders(order("2", 7))])[0];
    assert_eq!((first.deliveries, second.seen, second.deliveries), (2, Occurrence::First, 1));
    assert_eq!(queues(bench), ["a 1", "b 1", "b 2"]);
    let alone = |event: Event| with(to("a", event), &[keyed("data.order")]);
    bench.crash();
    let known = bench.submit(&[alone(order("3", 7))]).expect("it is known");
    assert_eq!(known, [AcceptedEvent { seen: Occurrence::Duplicate, ..first }], "the first one of that key");
    assert_eq!(
        bench.take(&[alone(order("3", 8))])[0].seen,
        Occurrence::First,
        "nothing was remembered of it"
    );
    let refusal = bench.submit(&[alone(order("3", 9))]);
    assert!(
        matches!(refusal, Err(SubmissionRefusal::Conflict { .. })),
        "an id is one event still: {refusal:?}"
    );
    let delivery = bench.ready("a")[0].id;
    bench.end(delivery, NextState::Delivered);
    assert_eq!(bench.submit(&[alone(order("4", 7))]), Ok(known), "after it was delivered too");
}

fn keys_apart(bench: &mut Bench) {
    let key = keyed("data.order");
    let all = |event: Event| with(to("a a/x b", event), &[key.clone(), key.clone(), key.clone()]);
    assert_eq!(bench.take(&[with(to("a", order("1", 7)), std::slice::from_ref(&key))])[0].deliveries, 1);
    assert_eq!(bench.take(&[all(order("2", 7))])[0].deliveries, 2);
    let mut other = all(order("3", 7));
    for addressee in &mut other.routes {
        addressee.subscription = "another row".into();
    }
    assert_eq!(bench.take(&[other])[0].deliveries, 3);
    let long = |id: &str, end: &str| Event {
        data: format!("{{\"order\":\"{}{end}\"}}", "x".repeat(5_000)).into(),
        ..event(id)
    };
    let longs = [long("4", "a"), long("5", "b"), long("6", "a")]
        .map(|event| with(to("b", event), std::slice::from_ref(&key)));
    let seen: Vec<_> = bench.take(&longs).iter().map(|taken| taken.seen).collect();
    assert_eq!(seen, [Occurrence::First, Occurrence::First, Occurrence::Duplicate], "however long they are");
}

fn no_key(bench: &mut Bench) {
    let alone = |event: Event| with(to("a", event), &[keyed("data.order")]);
    let bare = |id: &str| Event { data: "{}".into(), ..event(id) };
    let seen = |bench: &mut Bench, event| bench.take(&[alone(event)])[0].seen;
    assert_eq!(seen(bench, bare("1")), Occurrence::First);
    assert_eq!(seen(bench, bare("2")), Occurrence::First, "what they lack is not what they have in common");
    assert_eq!(seen(bench, bare("1")), Occurrence::Duplicate);
}

fn keys_at_once(bench: &mut Bench) {
    let alone = |event: Event| with(to("a", event), &[keyed("data.order")]);
    let all = [order("1", 7), order("2", 7), order("3", 8), order("1", 7)].map(alone);
    let taken = bench.submit(&all).expect("it is taken");
    let seen: Vec<_> = taken.iter().map(|taken| taken.seen).collect();
    assert_eq!(seen, [Occurrence::First, Occurrence::Duplicate, Occurrence::First, Occurrence::Duplicate]);
    assert_eq!((taken[1].receipt, taken[3].receipt), (taken[0].receipt, taken[0].receipt));
    assert_eq!(queues(bench), ["a 1", "a 3"]);
}

fn keys_forgotten(bench: &mut Bench) {
    let alone = |event: Event| with(to("a", event), &[CopyRule { ttl: 2 * HOUR, ..keyed("data.order") }]);
    let first = bench.take(&[alone(order("1", 7))])[0];
    let keep = keep(5 * HOUR, 9 * HOUR);
    bench.wait(3 * 3_600);
    bench.housekeep(&keep);
    assert_eq!(
        bench.take(&[alone(order("2", 7))]),
        [AcceptedEvent { seen: Occurrence::Duplicate, ..first }],
        "it still waits"
    );
    let delivery = bench.ready("a")[0].id;
    bench.end(delivery, NextState::Delivered);
    bench.wait(4 * 3_600);
    bench.housekeep(&keep);
    assert_eq!(
        bench.take(&[alone(order("2", 7))]),
        [AcceptedEvent { seen: Occurrence::Duplicate, ..first }],
        "it is kept"
    );
    bench.wait(2 * 3_600);
    bench.housekeep(&keep);
    bench.housekeep(&keep);
    let later = bench.take(&[alone(order("2", 7))])[0];
    assert_eq!(later.seen, Occurrence::First, "nothing is left of it");
    assert_eq!(bench.take(&[alone(order("3", 7))]), [AcceptedEvent { seen: Occurrence::Duplicate, ..later }]);
}

fn key_goes_with_its_event(bench: &mut Bench) {
    let alone = |event: Event| with(to("a", event), &[CopyRule { ttl: 2 * HOUR, ..keyed("data.order") }]);
    let first = bench.take(&[alone(order("1", 7))])[0];
    let delivery = bench.ready("a")[0].id;
    bench.end(delivery, NextState::Delivered);
    let keep = keep(3 * HOUR, 9 * HOUR);
    bench.wait(3 * 3_600 - 60);
    bench.housekeep(&keep);
    bench.crash();
    assert_eq!(
        bench.take(&[alone(order("2", 7))]),
        [AcceptedEvent { seen: Occurrence::Duplicate, ..first }],
        "it is kept"
    );
    bench.wait(60);
    assert_eq!(bench.housekeep(&keep), 1);
    let later = bench.take(&[alone(order("2", 7))])[0];
    assert_eq!(later.seen, Occurrence::First, "its time ended an hour ago");
    assert_eq!(bench.take(&[alone(order("3", 7))]), [AcceptedEvent { seen: Occurrence::Duplicate, ..later }]);
}

fn routed(bench: &mut Bench) {
    let taken = bench.take(&[to("", order("1", 7)), to("", order("2", 7))]);
    let routes = with(to("a b", event("x")), &[keyed("data.order"), by(IdempotencyBy::EventId)]).routes;
    let route = |bench: &mut Bench, index: usize, routes: &[Addressee]| {
        let event = taken[index].receipt.seq();
        ids(&bench.note(StateChange::Route { event, routes: routes.to_vec() })).len()
    };
    assert_eq!(route(bench, 0, &routes), 2);
    assert_eq!(route(bench, 1, &routes[..1]), 0, "its key was delivered");
    assert_eq!(bench.counts().unrouted, 1);
    assert_eq!(route(bench, 1, &routes), 1);
    assert_eq!(queues(bench), ["a 1", "b 1", "b 2"]);
}

fn notified(bench: &mut Bench) {
    bench.take(&[to("a", event("1")), to("a", event("2"))]);
    let deliveries: Vec<_> = bench.ready("a").iter().map(|waiting| waiting.id).collect();
    for (delivery, id) in deliveries.into_iter().zip([Some("n-1"), None]) {
        let failed = settlement(delivery, 0, fails("boom"), bench.now);
        let history = failed.history.clone().notified_as(id.map(Box::from));
        bench.settle(redrive_core::engine::Settlement { history, ..failed });
    }
    bench.crash();
    let replay = bench.replay(straight(everything())).id;
    bench.step(replay, 9);
    let ready = bench.ready("a");
    let notified: Vec<_> = ready.iter().map(|waiting| waiting.history.notified()).collect();
    assert_eq!(notified, [Some("n-1"), None]);
    assert_eq!(ready[1].history, redrive_core::policy::decide::History::new(), "and nothing else does");
}
