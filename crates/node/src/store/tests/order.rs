//! Sessions keep their order, and settlements that come too late change nothing.

use redrive_core::engine::{LoadScope, NextState, PendingDelivery};
use redrive_core::ids::{DeliveryId, Seq};

use super::Scenario;
use super::bench::{Bench, at, dead, death, event, ids, in_session, service, settlement, to};
use crate::store::{DeliveryState, DeliveryStateName, SettleResult};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("the next of a session starts when the one before has ended", promotion_chain),
    ("a session waits for its head, whatever becomes of it but an end", head_stays),
    ("sessions, channels and services have orders of their own", lanes_apart),
    ("without `ordered` or a session there is no order", no_lane),
    ("a settlement of another attempt is stale", stale_attempts),
    ("a settlement of what has ended is stale", stale_ended),
    ("a settlement of what is behind, or of nothing, is stale", stale_behind),
    ("every attempt is told", stories),
    ("a recorded start is seen until something is settled", start_recorded),
    ("a settlement may pause", pausing),
];

fn end_all(bench: &mut Bench, first: PendingDelivery, next: &dyn Fn(usize) -> NextState) -> Vec<String> {
    let mut order = Vec::new();
    let mut head = Some(first);
    while let Some(waiting) = head {
        assert!(waiting.sequence.is_some() && waiting.due_at.is_none());
        order.push(waiting.event.id.to_string());
        head = bench.end(waiting.id, next(order.len()));
        bench.audit();
    }
    order
}

fn promotion_chain(bench: &mut Bench) {
    let first = bench.accept(to("ord", in_session("1", "s")));
    assert_eq!(ids(&first), ["1"]);
    for id in ["2", "3", "4"] {
        assert!(bench.accept(to("ord", in_session(id, "s"))).is_empty());
    }
    assert_eq!(ids(&bench.ready("ord")), ["1"]);
    bench.crash();
    assert_eq!(bench.ready("ord"), first, "a crash changes nothing about it");
    let first = first.into_iter().next().expect("one");
    let ends = |n: usize| if n == 2 { dead() } else { NextState::Delivered };
    assert_eq!(end_all(bench, first, &ends), ["1", "2", "3", "4"]);
    assert_eq!(ids(&bench.accept(to("ord", in_session("5", "s")))), ["5"], "the session is free again");
}

fn head_stays(bench: &mut Bench) {
    let first = bench.accept(to("ord", in_session("1", "s"))).remove(0).id;
    bench.accept(to("ord", in_session("2", "s")));
    for next in
        [NextState::Ready, NextState::Due { at: at(60) }, NextState::Starting, NextState::Due { at: at(70) }]
    {
        assert!(bench.end(first, next).is_none());
        bench.audit();
    }
    assert!(bench.ready("ord").is_empty());
    let page = bench.page("ord", LoadScope::Due { until: at(70) });
    assert_eq!((ids(&page.rows), page.rows[0].due_at), (vec!["1"], Some(at(70))));
    assert_eq!(bench.end(first, NextState::Delivered).expect("it is free").event.id.as_str(), "2");
}

fn lanes_apart(bench: &mut Bench) {
    for (name, session) in [("ord", "s"), ("ord", "t"), ("ord/c", "s"), ("ord2", "s")] {
        let id = format!("{name} {session}");
        assert_eq!(bench.accept(to(name, in_session(&id, session))).len(), 1, "{id}");
    }
    let both = bench.accept(to("ord ord/x", in_session("both", "s")));
    assert_eq!(both.iter().map(|one| one.queue.to_string()).collect::<Vec<_>>(), ["ord/x"]);
}

fn no_lane(bench: &mut Bench) {
    for id in ["1", "2"] {
        let waiting = bench.accept(to("svc", in_session(id, "s")));
        assert_eq!((ids(&waiting), waiting[0].sequence), (vec![id], None));
    }
    assert_eq!(bench.accept(to("ord", event("3"))).len(), 1);
    assert_eq!(bench.accept(to("ord", event("4"))).len(), 1);
    let first = bench.ready("svc")[0].id;
    assert!(bench.end(first, NextState::Delivered).is_none());
}

fn is_stale(bench: &mut Bench, delivery: DeliveryId, attempts: u32) {
    for next in
        [NextState::Ready, NextState::Due { at: at(9) }, NextState::Delivered, dead(), NextState::Starting]
    {
        let before = format!("{:?}", (bench.all(), bench.view(Seq::new(2)), bench.counts()));
        let mut late = settlement(delivery, attempts, next.clone(), bench.now);
        late.pause = Some(service("svc"));
        assert!(matches!(bench.settle(late), SettleResult::Stale), "{next:?}");
        let after = format!("{:?}", (bench.all(), bench.view(Seq::new(2)), bench.counts()));
        assert_eq!(before, after, "{next:?}");
    }
    assert!(bench.crash().paused.is_empty());
}

fn stale_attempts(bench: &mut Bench) {
    let delivery = bench.accept(to("svc", event("1"))).remove(0).id;
    is_stale(bench, delivery, 1);
    bench.end(delivery, NextState::Due { at: at(5) });
    is_stale(bench, delivery, 0);
    is_stale(bench, delivery, 2);
}

fn stale_ended(bench: &mut Bench) {
    let one = bench.accept(to("svc", event("1"))).remove(0).id;
    let two = bench.accept(to("svc", event("2"))).remove(0).id;
    bench.end(one, NextState::Delivered);
    bench.end(two, dead());
    for delivery in [one, two] {
        is_stale(bench, delivery, 0);
        is_stale(bench, delivery, 1);
    }
}

fn stale_behind(bench: &mut Bench) {
    bench.accept(to("ord", in_session("1", "s")));
    bench.accept(to("ord", in_session("2", "s")));
    let behind = bench.all().pop().expect("two");
    assert_eq!(behind.state, DeliveryState::Behind);
    is_stale(bench, behind.id, 0);
    is_stale(bench, DeliveryId::new(Seq::new(99), 1), 0);
    is_stale(bench, DeliveryId::new(Seq::new(1), 1), 0);
    let head = bench.ready("ord")[0].id;
    is_stale(bench, DeliveryId::new(head.seq(), !head.content()), 0);
}

fn stories(bench: &mut Bench) {
    let once = bench.accept(to("svc", event("1"))).remove(0).id;
    bench.end(once, NextState::Delivered);
    let often = bench.accept(to("svc", event("2"))).remove(0).id;
    let ends =
        [NextState::Due { at: at(1) }, NextState::Ready, NextState::Starting, NextState::Due { at: at(2) }];
    let mut told = Vec::new();
    for next in ends.into_iter().chain([dead()]) {
        bench.wait(1);
        let attempts = bench.view(often.seq()).attempts;
        told.extend(settlement(often, attempts, next.clone(), bench.now).record.map(|story| *story));
        bench.end(often, next);
    }
    let view = bench.view(often.seq());
    assert_eq!((view.stories, view.attempts), (told, 4));
    assert_eq!(view.state, DeliveryState::Dead { at: bench.now, death: Box::new(death()) });
    assert_eq!(view.written_at, bench.now);
    let view = bench.view(once.seq());
    let expected = settlement(once, 0, NextState::Delivered, at(0)).record.expect("it was told");
    assert_eq!((&view.stories[..], view.attempts), (&[*expected][..], 1));
    assert_eq!(view.state, DeliveryState::Delivered { at: at(0) });
    assert!(bench.all().iter().all(|view| view.stories.is_empty()), "lists tell no stories");
}

fn start_recorded(bench: &mut Bench) {
    let delivery = bench.accept(to("svc", event("1"))).remove(0).id;
    bench.end(delivery, NextState::Starting);
    bench.crash();
    assert!(bench.ready("svc")[0].start_recorded);
    bench.end(delivery, NextState::Ready);
    assert!(!bench.ready("svc")[0].start_recorded);
    bench.end(delivery, NextState::Starting);
    bench.end(delivery, NextState::Due { at: at(1) });
    assert!(!bench.page("svc", LoadScope::Due { until: at(1) }).rows[0].start_recorded);
}

fn pausing(bench: &mut Bench) {
    let delivery = bench.accept(to("svc", event("1"))).remove(0).id;
    bench.wait(3);
    let mut paused = settlement(delivery, 0, NextState::Ready, bench.now);
    paused.pause = Some(service("svc"));
    assert!(matches!(bench.settle(paused), SettleResult::Written { promoted: None }));
    assert_eq!(bench.view(delivery.seq()).state.name(), DeliveryStateName::Ready);
    assert_eq!(bench.crash().paused, [(service("svc"), at(3))].into());
}
