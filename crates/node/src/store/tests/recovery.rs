//! What is known at the start of a run.

use std::time::Duration;

use redrive_core::engine::NextState;
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{Breaker, BreakerRecord, Generation};

use super::Scenario;
use super::bench::{Bench, at, dead, event, service, settlement, to};
use crate::store::{BOOKS_RECOVERED_MAX, CRASHES_MAX, StateChange};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("queues with something waiting are known", queues),
    ("a run that ends without a word is a crash", crashes),
    ("the latest crashes are remembered", many_crashes),
    ("time away is known, however the run ended", absences),
    ("pauses last until they are resumed", pauses),
    ("breakers are what they last were", breakers),
    ("letters that are to be brought back stay so until somebody begins", owed),
    ("the latest books come back in order", books),
    ("a store's seed is its own and stays", seed),
    ("a clock that was set back does not take a store along", clock_set_back),
];

fn queues(bench: &mut Bench) {
    bench.take(&[to("a/x", event("1")), to("b", event("2")), to("c", event("3")), to("a", event("4"))]);
    let (b, c) = (bench.ready("b")[0].id, bench.ready("c")[0].id);
    bench.end(b, NextState::Delivered);
    bench.end(c, dead());
    let queues = bench.crash().queues;
    assert_eq!(queues.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "a/x"]);
}

fn owed(bench: &mut Bench) {
    let name = |text| DependencyName::new(text).expect("a name");
    for text in ["mail", "shop", "mail"] {
        bench.note(StateChange::AutoReplayDue(name(text)));
    }
    assert_eq!(bench.crash().owed, [name("mail"), name("shop")].into());
    bench.note(StateChange::AutoReplayDone(name("mail")));
    bench.note(StateChange::AutoReplayDone(name("nobody")));
    assert_eq!(bench.restart(1).owed, [name("shop")].into());
}

fn crashes(bench: &mut Bench) {
    assert_eq!(bench.restart(1).crashes, [], "a first run and a run after a good end are no crashes");
    bench.take(&[to("a b", event("1"))]);
    bench.wait(5);
    let recovered = bench.crash();
    let [(noticed_at, last)] = recovered.crashes[..] else { panic!("{recovered:?}") };
    assert_eq!((noticed_at, last.get()), (bench.now, 3));
    assert_eq!(bench.restart(9).crashes.len(), 1, "a good end adds none");
}

fn many_crashes(bench: &mut Bench) {
    for _ in 0..CRASHES_MAX + 3 {
        bench.wait(1);
        bench.crash();
    }
    let crashes = bench.restart(0).crashes;
    let noticed: Vec<_> = crashes.iter().map(|(noticed_at, _)| *noticed_at).collect();
    assert_eq!(noticed, (4..12).map(at).collect::<Vec<_>>());
}

fn absences(bench: &mut Bench) {
    let away = |bench: &mut Bench, seconds| {
        let recovered = bench.restart(seconds);
        recovered.absences.within(at(0), at(10_000))
    };
    let seconds = Duration::from_secs;
    assert_eq!(away(bench, 0), Duration::ZERO);
    assert_eq!(away(bench, 100), seconds(100), "down after a good end");
    bench.wait(10);
    bench.note(StateChange::Alive);
    bench.wait(7);
    let recovered = bench.crash();
    assert_eq!(recovered.absences.within(at(0), at(10_000)), seconds(107), "since the last sign of life");
    bench.wait(10);
    bench.take(&[to("a", event("1"))]);
    bench.wait(3);
    let recovered = bench.crash();
    assert_eq!(recovered.absences.within(at(0), at(10_000)), seconds(110), "any write is one");
    bench.wait(20);
    let from = bench.now;
    bench.wait(5);
    bench.note(StateChange::Absence { from });
    assert_eq!(away(bench, 1), seconds(116), "or when it could not write");
}

fn pauses(bench: &mut Bench) {
    bench.note(StateChange::Pause(service("a")));
    bench.wait(5);
    bench.note(StateChange::Pause(service("a")));
    bench.note(StateChange::Pause(service("b")));
    let delivery = bench.accept(to("a", event("1"))).remove(0).id;
    let mut paused = settlement(delivery, 0, NextState::Ready, bench.now);
    paused.pause = Some(service("a"));
    bench.settle(paused);
    assert_eq!(bench.restart(1).paused, [(service("a"), at(0)), (service("b"), at(5))].into());
    bench.note(StateChange::Resume(service("a")));
    bench.note(StateChange::Resume(service("nobody")));
    assert_eq!(bench.crash().paused, [(service("b"), at(5))].into());
}

fn breakers(bench: &mut Bench) {
    let name = DependencyName::new("smtp").expect("a name");
    let record = |generation, now| BreakerRecord {
        generation: Generation(generation),
        ..Breaker::new().record(&name, now)
    };
    let newer = record(3, bench.now);
    bench.note(StateChange::Breaker(Box::new(newer.clone())));
    bench.note(StateChange::Breaker(Box::new(record(2, bench.now))));
    assert_eq!(bench.crash().breakers, [newer], "an older record changes nothing");
    let later = bench.now + redrive_core::limits::BREAKER_RECORD_KEPT;
    bench.now = later;
    assert_eq!(bench.crash().breakers, [], "and a stale one means nothing");
    let fresh = record(1, later);
    bench.note(StateChange::Breaker(Box::new(fresh.clone())));
    assert_eq!(bench.crash().breakers, [fresh]);
}

fn books(bench: &mut Bench) {
    // The highest bit is set, since hashes use all of theirs.
    let hash = |number: u64| number | 1 << 63;
    let book = |number: u64| StateChange::Book { hash: hash(number), text: number.to_string().into() };
    for number in 0..12 {
        bench.note(book(number));
    }
    bench.note(book(6));
    let books = bench.crash().books;
    assert_eq!(books, ["4", "5", "7", "8", "9", "10", "11", "6"]);
    assert_eq!(books.len(), BOOKS_RECOVERED_MAX);
    assert_eq!(bench.reader().book(hash(2)).expect("it answers").as_deref(), Some("2"));
    assert_eq!(bench.reader().book(99).expect("it answers"), None);
}

fn clock_set_back(bench: &mut Bench) {
    bench.wait(100);
    bench.take(&[to("a", event("1"))]);
    bench.now = at(40);
    let recovered = bench.crash();
    assert_eq!(recovered.resumes_at, at(100), "it goes on where it was");
    assert_eq!(recovered.crashes[0].0, at(100));
    assert_eq!(recovered.absences.within(at(0), at(10_000)), Duration::ZERO);
    bench.now = at(120);
    assert_eq!(bench.crash().resumes_at, at(120));
}

fn seed(bench: &mut Bench) {
    let seed = bench.crash().seed;
    assert_eq!(bench.restart(1).seed, seed);
}
