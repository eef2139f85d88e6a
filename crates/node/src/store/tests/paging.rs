//! What waits is found page by page, in its order and within bounds.

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{LoadRequest, LoadScope, LoadedPage, NextState};
use redrive_core::event::Event;
use redrive_core::ids::{IdPrefix, Seq};
use redrive_core::time::Timestamp;

use super::Scenario;
use super::bench::{Bench, at, dead, event, ids, in_session, queue, to};
use crate::store::{DeliveryFilter, DeliveryStateName, DeliveryView, Oldest, StateChange};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("what may start is paged in the order of the store", ready_pages),
    ("what is due is paged by its time", due_pages),
    ("a page is bounded by bytes, but for its first", byte_pages),
    ("queues do not see each other", queues_apart),
    ("what is parked for ever is released at once", release),
    ("a delivery loads with all that was settled", loads_complete),
    ("deliveries are listed by service and state", lists),
    ("deliveries are told with all their attempts", tells),
    ("a delivery is found by the first digits of its id", by_prefix),
    ("the oldest that wait and the oldest that are dead are known", the_oldest),
];

fn page(bench: &mut Bench, wanted: LoadScope, rows_max: u32, bytes_max: usize) -> LoadedPage {
    let load = LoadRequest { queue: queue("svc"), wanted, rows_max, bytes_max };
    bench.store().load(&load).expect("it loads")
}

fn the_oldest(bench: &mut Bench) {
    let mut places = Vec::new();
    for id in ["1", "2", "3"] {
        places.push(bench.accept(to("svc", event(id))).remove(0).id);
        bench.take(&[to("ord", in_session(&format!("ordered {id}"), "s"))]);
        bench.wait(10);
    }
    let svc = |bench: &Bench| {
        bench.audit();
        let oldest = bench.reader().oldest().expect("it answers");
        let Oldest { waiting_since, dead_since } = oldest.get(&*queue("svc")).copied().unwrap_or_default();
        (waiting_since, dead_since)
    };
    assert_eq!(svc(bench), (Some(at(0)), None), "all may start");
    bench.end(places[0], NextState::Due { at: at(500) });
    assert_eq!(svc(bench), (Some(at(0)), None), "one that waits for its time is older than those that may");
    bench.end(places[0], dead());
    assert_eq!(svc(bench), (Some(at(10)), Some(at(30))), "it is dead since it died");
    bench.wait(10);
    bench.end(places[1], dead());
    bench.end(places[2], NextState::Delivered);
    assert_eq!(svc(bench), (None, Some(at(30))), "nothing waits, and the first death counts");
    let ordered = bench.reader().oldest().expect("it answers")[&*queue("ord")];
    assert_eq!(ordered, Oldest { waiting_since: Some(at(0)), dead_since: None });
    bench.crash();
    assert_eq!(svc(bench), (None, Some(at(30))));
}

fn tells(bench: &mut Bench) {
    let first = bench.accept(to("svc", event("1"))).remove(0).id;
    bench.end(first, NextState::Due { at: at(500) });
    bench.end(first, NextState::Delivered);
    bench.take(&[to("svc", event("2"))]);
    bench.take(&[to("other", event("3"))]);
    let told = |before, rows_max| {
        let filter =
            DeliveryFilter { service: Some("svc".to_owned()), before, rows_max, ..DeliveryFilter::default() };
        let (told, listed) = (bench.reader().deliveries_with_attempts(&filter), bench.reader().list(&filter));
        let (told, listed) = (told.expect("it answers").deliveries, listed.expect("it answers").deliveries);
        let ids = |views: &[DeliveryView]| views.iter().map(|view| view.id).collect::<Vec<_>>();
        assert_eq!(ids(&told), ids(&listed), "the same deliveries");
        told.into_iter().map(|view| (view.event_id, view.stories)).collect::<Vec<_>>()
    };
    let all = told(None, 9);
    assert_eq!(
        all.iter().map(|(id, stories)| (id.as_str(), stories.len())).collect::<Vec<_>>(),
        [("2", 0), ("1", 2)]
    );
    assert_eq!(all[1].1, bench.view(first.seq()).stories);
    assert_eq!(told(None, 1), all[..1]);
    assert_eq!(told(Some(first.seq().next()), 9), all[1..]);
}

fn ready_pages(bench: &mut Bench) {
    for id in 1..=7 {
        bench.take(&[to("svc", event(&id.to_string()))]);
    }
    let mut after = Seq::NONE;
    let mut pages = Vec::new();
    loop {
        let page = page(bench, LoadScope::Ready { after }, 3, usize::MAX);
        assert_eq!((page.next_due_at, page.wanted), (None, LoadScope::Ready { after }));
        pages.push((ids(&page.rows).join(" "), page.more));
        if !page.more {
            break;
        }
        after = page.rows.last().expect("more than the limits allow is more than none").id.seq();
    }
    let expected = [("1 2 3", true), ("4 5 6", true), ("7", false)];
    assert_eq!(pages, expected.map(|(ids, more)| (ids.to_owned(), more)));
    let all = page(bench, LoadScope::Ready { after: Seq::NONE }, 7, usize::MAX);
    assert!(!all.more, "just as many as there are");
}

fn due_pages(bench: &mut Bench) {
    for (id, due) in [("1", 30), ("2", 10), ("3", 20), ("4", 10), ("5", 40)] {
        let delivery = bench.accept(to("svc", event(id))).remove(0).id;
        bench.end(delivery, NextState::Due { at: at(due) });
    }
    let delivery = bench.accept(to("svc", event("6"))).remove(0).id;
    bench.end(delivery, NextState::Due { at: Timestamp::NEVER });
    #[rustfmt::skip]
    let cases = [
        ("none yet",               9,  9, "",        false, Some(10)),
        ("two at once",            10, 9, "2 4",     false, Some(20)),
        ("bounded",                30, 3, "2 4 3",   true,  Some(40)),
        ("the earliest first",     39, 9, "2 4 3 1", false, Some(40)),
        ("what is never due is not next", 40, 9, "2 4 3 1 5", false, None),
    ];
    for (name, until, rows_max, expected, more, next) in cases {
        let page = page(bench, LoadScope::Due { until: at(until) }, rows_max, usize::MAX);
        assert_eq!((ids(&page.rows).join(" "), page.more), (expected.to_owned(), more), "{name}");
        assert_eq!(page.next_due_at, next.map(at), "{name}");
    }
    assert!(bench.ready("svc").is_empty());
}

fn byte_pages(bench: &mut Bench) {
    for (id, bytes) in [("1", 50), ("2", 5), ("3", 5), ("4", 1)] {
        bench.take(&[to("svc", Event { data: vec![0; bytes].into(), ..event(id) })]);
    }
    #[rustfmt::skip]
    let cases = [
        ("always one",   0, 10, "1",     true),
        ("up to that",   2, 10, "2 3",   true),
        ("all the rest", 2, 11, "2 3 4", false),
    ];
    for (name, after, bytes_max, expected, more) in cases {
        let page = page(bench, LoadScope::Ready { after: Seq::new(after) }, 9, bytes_max);
        assert_eq!((ids(&page.rows).join(" "), page.more), (expected.to_owned(), more), "{name}");
    }
}

fn queues_apart(bench: &mut Bench) {
    bench.take(&[to("a a/x b", event("1")), to("a/x", event("2"))]);
    for (name, expected) in [("a", vec!["1"]), ("a/x", vec!["1", "2"]), ("b", vec!["1"]), ("c", vec![])] {
        assert_eq!(ids(&bench.ready(name)), expected, "{name}");
    }
}

fn release(bench: &mut Bench) {
    for (name, id) in [("svc", "1"), ("svc", "2"), ("svc", "3"), ("svc/x", "4")] {
        let delivery = bench.accept(to(name, event(id))).remove(0).id;
        let due_at = if id == "2" { at(99) } else { Timestamp::NEVER };
        bench.end(delivery, NextState::Due { at: due_at });
    }
    bench.wait(50);
    bench.note(StateChange::Release(queue("svc")));
    let ready = bench.ready("svc");
    assert_eq!(ids(&ready), ["1", "3"]);
    assert_eq!(ready[0].attempts, 1, "it is what it was");
    assert_eq!(ready[0].written_at, at(0), "its history was not told anew");
    assert!(bench.ready("svc/x").is_empty());
    bench.note(StateChange::Release(queue("nobody")));
}

fn loads_complete(bench: &mut Bench) {
    let delivery = bench.accept(to("ord", in_session("1", "s"))).remove(0);
    bench.wait(4);
    let settled = super::bench::settlement(delivery.id, 0, NextState::Due { at: at(9) }, bench.now);
    bench.settle(settled.clone());
    bench.crash();
    let page = bench.page("ord", LoadScope::Due { until: at(9) });
    let [loaded] = &page.rows[..] else { panic!("one is due") };
    let expected = redrive_core::engine::PendingDelivery {
        attempts: 1,
        due_at: Some(at(9)),
        history: settled.history,
        book: Some(settled.book),
        written_at: at(4),
        ..delivery
    };
    assert_eq!(*loaded, expected);
}

fn lists(bench: &mut Bench) {
    let ends = [None, Some(NextState::Due { at: at(1) }), Some(NextState::Delivered), Some(dead())];
    for (name, next) in ["a", "a/x", "b"].iter().flat_map(|name| ends.iter().map(move |next| (name, next))) {
        let id = format!("{name} {next:?}");
        let delivery = bench.accept(to(name, event(&id))).remove(0).id;
        if let Some(next) = next {
            bench.end(delivery, next.clone());
        }
    }
    bench.accept(to("ord", in_session("1", "s")));
    bench.accept(to("ord", in_session("2", "s")));
    let listed = |bench: &Bench, filter: &DeliveryFilter| {
        let views = bench.reader().list(filter).expect("it answers").deliveries;
        views.iter().map(|view| view.id.seq().get()).collect::<Vec<_>>()
    };
    let filter = |service: &str, state, rows_max| DeliveryFilter {
        service: (!service.is_empty()).then(|| service.to_owned()),
        state,
        rows_max,
        ..DeliveryFilter::default()
    };
    let of_type = |pattern: &str| Some(EventPattern::parse(pattern).expect("a pattern"));
    let in_s = DeliveryFilter { session: Some("s".to_owned()), ..filter("", None, 99) };
    #[rustfmt::skip]
    let cases = [
        ("the latest",         filter("", None, 3),                            vec![28, 26, 24]),
        ("of a service",       filter("a", None, 99),                          vec![16, 14, 12, 10, 8, 6, 4, 2]),
        ("that nobody has",    filter("c", None, 99),                          vec![]),
        ("ready",              filter("", Some(DeliveryStateName::Ready), 99),         vec![26, 18, 10, 2]),
        ("due",                filter("", Some(DeliveryStateName::Due), 99),           vec![20, 12, 4]),
        ("behind",             filter("", Some(DeliveryStateName::Behind), 99),        vec![28]),
        ("delivered",          filter("a", Some(DeliveryStateName::Delivered), 99),    vec![14, 6]),
        ("dead",               filter("", Some(DeliveryStateName::Dead), 2),           vec![24, 16]),
        ("dead of a service",  filter("a", Some(DeliveryStateName::Dead), 99),         vec![16, 8]),
        ("of a channel",       filter("a/x", None, 99),                        vec![16, 14, 12, 10]),
        ("of a session",       in_s.clone(),                                   vec![28, 26]),
        ("and behind in it",   DeliveryFilter { state: Some(DeliveryStateName::Behind), ..in_s.clone() },                       vec![28]),
        ("of another session", DeliveryFilter { session: Some("t".to_owned()), ..in_s.clone() },                        vec![]),
        ("of a part of its name", DeliveryFilter { session: Some(String::new()), ..in_s },                              vec![]),
        ("of all types",       DeliveryFilter { event_type: of_type("*"), ..filter("b", Some(DeliveryStateName::Dead), 99) },   vec![24]),
        ("of another type",    DeliveryFilter { event_type: of_type("nothing.*"), ..filter("", None, 99) },             vec![]),
        ("with no such correlation", DeliveryFilter { correlation_id: Some("c".to_owned()), ..filter("", None, 99) },   vec![]),
        ("before a place",     DeliveryFilter { before: Some(Seq::new(16)), ..filter("a", Some(DeliveryStateName::Dead), 99) }, vec![8]),
    ];
    for (name, filter, expected) in cases {
        assert_eq!(listed(bench, &filter), expected, "{name}");
    }
}

fn by_prefix(bench: &mut Bench) {
    for id in 0..200 {
        bench.take(&[to("svc", event(&id.to_string()))]);
    }
    for view in bench.all() {
        let digits = view.id.to_string();
        let found = |count: usize, rows_max: usize| {
            let prefix = IdPrefix::parse(&digits[..count]).expect("digits");
            bench.reader().deliveries(&prefix, rows_max).expect("it answers")
        };
        assert_eq!(found(16, 9).iter().map(|view| view.id).collect::<Vec<_>>(), [view.id]);
        let few = found(1, 3);
        assert_eq!(few.len(), 3);
        assert!(few.iter().all(|view| view.id.to_string().starts_with(&digits[..1])));
        assert!(few.is_sorted_by(|one, other| one.id.seq() > other.id.seq()), "the latest first");
    }
}
