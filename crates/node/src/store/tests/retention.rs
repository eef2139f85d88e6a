//! What is deleted, when, and what never is.

use std::time::Duration;

use redrive_core::engine::NextState;
use redrive_core::ids::Seq;

use super::Scenario;
use super::bench::{BOOK, Bench, addressee, at, dead, event, in_session, keep, to};
use crate::store::{AcceptedEvent, EventKey, Occurrence, RetentionRules, StateChange, SubmissionRefusal};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("what was delivered goes, its id stays for longer", delivered),
    ("ids are forgotten at last", ids_forgotten),
    ("ids that are kept for longer all at once leave nothing behind", longer_ids),
    ("dead letters and what waits are never deleted", kept),
    ("an event goes when the last of its deliveries is old enough", last_delivery),
    ("unrouted events go like delivered ones", unrouted),
    ("a routed event goes when it was delivered", routed),
    ("a great many go in small steps", many),
    ("a book stays while a story names it", books),
];

const HOUR: Duration = Duration::from_secs(3_600);
const SECONDS: u64 = 3_600;

fn a_day() -> RetentionRules {
    keep(HOUR, 24 * HOUR)
}

fn deliver(bench: &mut Bench, name: &str, id: &str) -> AcceptedEvent {
    let taken = bench.take(&[to(name, event(id))])[0];
    let delivery = bench.ready(name).pop().expect("it waits").id;
    bench.end(delivery, NextState::Delivered);
    taken
}

fn delivered(bench: &mut Bench) {
    let taken = deliver(bench, "svc", "1");
    bench.wait(SECONDS - 1);
    assert_eq!(bench.housekeep(&a_day()), 0, "not yet");
    bench.wait(1);
    assert_eq!(bench.housekeep(&a_day()), 1);
    bench.audit();
    assert_eq!((bench.counts().events, bench.all().len()), (0, 0));
    let views = bench.reader().events(&EventKey::Receipt(taken.receipt)).expect("it answers");
    assert_eq!((views.len(), views[0].event.data.len(), views[0].deliveries.len()), (1, 0, 0));
    assert_eq!(views[0].event.id.as_str(), "1");
    assert!(!views[0].unrouted);
    let again = AcceptedEvent { seen: Occurrence::Duplicate, ..taken };
    assert_eq!(bench.submit(&[to("svc", event("1"))]), Ok(vec![again]));
    let other = redrive_core::event::Event { data: "x".into(), ..event("1") };
    let refusal = SubmissionRefusal::Conflict { index: 0, first: Some(taken.receipt) };
    assert_eq!(bench.submit(&[to("svc", other)]), Err(refusal));
    bench.crash();
    assert_eq!(bench.submit(&[to("svc", event("1"))]), Ok(vec![again]));
    assert_eq!(bench.housekeep(&a_day()), 0, "once is enough");
}

fn ids_forgotten(bench: &mut Bench) {
    let taken = deliver(bench, "svc", "1");
    bench.wait(SECONDS);
    bench.housekeep(&a_day());
    bench.wait(23 * SECONDS - 1);
    bench.housekeep(&a_day());
    assert_eq!(bench.take(&[to("svc", event("1"))])[0].seen, Occurrence::Duplicate);
    bench.wait(1);
    bench.housekeep(&a_day());
    assert!(bench.reader().events(&EventKey::Receipt(taken.receipt)).expect("it answers").is_empty());
    assert!(bench.reader().events(&EventKey::Id("1".to_owned())).expect("it answers").is_empty());
    let new = bench.take(&[to("svc", event("1"))])[0];
    assert_eq!((new.seen, new.receipt.seq()), (Occurrence::First, Seq::new(3)), "places are not given twice");
    // Both at once, where ids are not kept for longer.
    let delivery = bench.ready("svc")[0].id;
    bench.end(delivery, NextState::Delivered);
    bench.wait(24 * SECONDS);
    assert_eq!(bench.housekeep(&a_day()), 1);
    assert!(bench.reader().events(&EventKey::Receipt(new.receipt)).expect("it answers").is_empty());
    bench.crash();
    let new = bench.take(&[to("svc", event("1"))])[0];
    assert_eq!((new.seen, new.receipt.seq()), (Occurrence::First, Seq::new(5)), "nor after a crash");
}

fn longer_ids(bench: &mut Bench) {
    let taken = bench.take(&[to("svc", event("1")), to("svc", event("2"))]);
    bench.wait(24 * SECONDS);
    bench.housekeep(&a_day());
    let delivery = bench.ready("svc")[0].id;
    bench.end(delivery, NextState::Delivered);
    bench.wait(SECONDS);
    let longer = RetentionRules { ids: 1_000 * HOUR, ..a_day() };
    assert_eq!(bench.housekeep(&longer), 1);
    assert!(bench.reader().events(&EventKey::Receipt(taken[0].receipt)).expect("it answers").is_empty());
    assert_eq!(
        bench.take(&[to("svc", event("2"))])[0].seen,
        Occurrence::Duplicate,
        "what is kept keeps its id"
    );
}

fn kept(bench: &mut Bench) {
    for id in ["dead", "ready", "due", "half dead"] {
        bench.take(&[to("svc", event(id))]);
    }
    bench.take(&[
        to("svc", event("both")),
        to("svc/x svc", event("mixed")),
        to("ord", in_session("s1", "s")),
    ]);
    bench.take(&[to("ord", in_session("s2", "s"))]);
    let waiting = bench.ready("svc");
    let find = |id: &str| waiting.iter().find(|one| one.event.id.as_str() == id).expect("it waits").id;
    bench.end(find("dead"), dead());
    bench.end(find("due"), NextState::Due { at: at(9) });
    bench.end(find("mixed"), NextState::Delivered);
    bench.end(find("both"), NextState::Delivered);
    bench.wait(1_000 * SECONDS);
    assert_eq!(bench.housekeep(&a_day()), 1, "only the one that was delivered to all who want it");
    bench.audit();
    assert_eq!(bench.all().len(), 8);
    assert_eq!(bench.take(&[to("svc", event("dead"))])[0].seen, Occurrence::Duplicate, "it keeps its id");
    let rest = bench.ready("svc/x")[0].id;
    bench.end(rest, dead());
    bench.wait(1_000 * SECONDS);
    assert_eq!(bench.housekeep(&a_day()), 0);
}

fn last_delivery(bench: &mut Bench) {
    bench.take(&[to("a b", event("1"))]);
    let (a, b) = (bench.ready("a")[0].id, bench.ready("b")[0].id);
    bench.end(a, NextState::Delivered);
    bench.wait(SECONDS / 2);
    bench.end(b, NextState::Delivered);
    bench.wait(SECONDS / 2);
    assert_eq!(bench.housekeep(&a_day()), 0);
    bench.wait(SECONDS / 2);
    assert_eq!(bench.housekeep(&a_day()), 1);
    assert!(bench.all().is_empty());
}

fn unrouted(bench: &mut Bench) {
    let taken = bench.take(&[to("", event("1"))])[0];
    bench.wait(SECONDS - 1);
    assert_eq!(bench.housekeep(&a_day()), 0);
    bench.wait(1);
    assert_eq!(bench.housekeep(&a_day()), 1);
    assert_eq!(bench.counts(), crate::store::StoreCounts::default());
    assert!(bench.reader().unrouted(Seq::NONE, 9).expect("it answers").is_empty());
    let routes = vec![addressee("a")];
    assert!(bench.note(StateChange::Route { event: taken.receipt.seq(), routes }).is_empty(), "too late");
    assert_eq!(bench.take(&[to("", event("1"))])[0], AcceptedEvent { seen: Occurrence::Duplicate, ..taken });
}

fn routed(bench: &mut Bench) {
    let taken = bench.take(&[to("", event("1"))])[0];
    bench.wait(SECONDS / 2);
    bench.note(StateChange::Route { event: taken.receipt.seq(), routes: vec![addressee("a")] });
    bench.wait(SECONDS);
    assert_eq!(bench.housekeep(&a_day()), 0, "it waits");
    let delivery = bench.ready("a")[0].id;
    bench.end(delivery, NextState::Delivered);
    assert_eq!(bench.housekeep(&a_day()), 0);
    bench.wait(SECONDS);
    assert_eq!(bench.housekeep(&a_day()), 1);
}

fn many(bench: &mut Bench) {
    let events: Vec<_> = (0..1_500).map(|id| to("svc", event(&id.to_string()))).collect();
    bench.take(&events);
    let page = bench.page("svc", redrive_core::engine::LoadScope::Ready { after: Seq::NONE });
    let delivered = page
        .rows
        .iter()
        .map(|one| std::sync::Arc::new(super::bench::settlement(one.id, 0, NextState::Delivered, bench.now)));
    let settlements = delivered.collect();
    bench.write(&crate::store::WriteBatch { settlements, ..Default::default() });
    bench.wait(SECONDS);
    let now = bench.now;
    let chores = bench.store().housekeep(&a_day(), now).expect("it can");
    assert!(chores.more && chores.events_deleted > 0, "{chores:?}");
    assert_eq!(chores.events_deleted + bench.housekeep(&a_day()), 1_000);
    bench.audit();
    bench.wait(24 * SECONDS);
    bench.housekeep(&a_day());
    assert_eq!(bench.take(&[to("svc", event("7"))])[0].seen, Occurrence::First);
    assert_eq!(bench.take(&[to("svc", event("1400"))])[0].seen, Occurrence::Duplicate);
}

fn books(bench: &mut Bench) {
    bench.note(StateChange::Book { hash: BOOK, text: "the book".into() });
    deliver(bench, "svc", "1");
    for hash in 0..20 {
        bench.note(StateChange::Book { hash, text: "another".into() });
    }
    bench.housekeep(&a_day());
    assert_eq!(bench.reader().book(BOOK).expect("it answers").as_deref(), Some("the book"));
    assert_eq!(bench.reader().book(3).expect("it answers"), None, "nobody names it any more");
    assert!(bench.reader().book(15).expect("it answers").is_some(), "the latest stay");
    bench.wait(SECONDS);
    bench.housekeep(&a_day());
    assert_eq!(bench.reader().book(BOOK).expect("it answers"), None);
}
