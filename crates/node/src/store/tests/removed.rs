//! What waits for a queue that is gone: into dead letters, or to another queue, a bounded part at a time.

use std::collections::BTreeSet;

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{NextState, PendingDelivery};
use redrive_core::event::Event;
use redrive_core::event::attribute::EventType;
use redrive_core::ids::Seq;
use redrive_core::letters::replay::ReplayTally;
use redrive_core::policy::category::codes;
use redrive_core::time::Timestamp;

use super::Scenario;
use super::bench::{Bench, at, event, ids, in_session, order_of, queue, to};
use super::desk::{events_of, named, straight};
use crate::store::letter::{
    LetterCommand, LetterFilter, ReassignCommand, ReassignCursor, ReassignScope, ReassignStep, Reassignment,
    Redirect, ReplayAct,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("what waits for a removed queue becomes dead letters, a few at a time", dead_letters),
    ("what waits for a removed queue goes to another in the order of its sessions", moved),
    ("only what no row takes leaves a queue that the book has", without_rule),
    ("what is running, or the other queue does not take, stays", stays),
    ("what a cancelled replay has sent is answered for when it is taken out", of_a_replay),
];

fn reassign(from: &str, to: Option<&str>, rows_max: usize) -> ReassignCommand {
    let to = match to {
        None => Reassignment::DeadLetters,
        Some(name) => Reassignment::Queue {
            to: Redirect { queue: queue(name), order: order_of(name) },
            takes: EventPattern::parse("order.*").into_iter().collect(),
        },
    };
    let (running, after, audit, note) = (BTreeSet::new(), None, None, None);
    ReassignCommand {
        queue: queue(from),
        scope: ReassignScope::All,
        to,
        rows_max,
        running,
        after,
        audit,
        note,
    }
}

/// One step: how many were taken, left as unwanted and as busy, where the next begins, and what may start.
struct Stepped {
    counts: (u64, u64, u64),
    next: Option<ReassignCursor>,
    audit: Option<u64>,
    started: Vec<PendingDelivery>,
}

fn step(bench: &mut Bench, order: ReassignCommand) -> Stepped {
    let (answer, started) = bench.order_and_see(|answer| LetterCommand::Reassign(Box::new(order), answer));
    let ReassignStep { done, unwanted, busy, next, audit } = answer.expect("it is never refused");
    bench.audit();
    Stepped { counts: (done, unwanted, busy), next, audit, started }
}

/// All steps of one pass.
fn pass(bench: &mut Bench, order: &ReassignCommand) -> (u64, Vec<PendingDelivery>) {
    let (mut done, mut started) = (0, Vec::new());
    let (mut after, mut audit) = (None, None);
    loop {
        let stepped = step(bench, ReassignCommand { after, audit, ..order.clone() });
        done += stepped.counts.0;
        started.extend(stepped.started);
        (after, audit) = (stepped.next, stepped.audit);
        if after.is_none() {
            return (done, started);
        }
    }
}

/// Five deliveries of which three are one session and one is due later.
fn backlog(bench: &mut Bench, name: &str) {
    bench.wait(1);
    for id in ["s1", "s2", "s3"] {
        bench.accept(to(name, in_session(id, "s")));
    }
    let due = bench.accept(to(name, event("due")));
    bench.end(due[0].id, NextState::Due { at: at(1_000_000) });
    bench.accept(to(name, event("free")));
}

fn dead_letters(bench: &mut Bench) {
    backlog(bench, "strict");
    let first = step(bench, reassign("strict", None, 2));
    assert_eq!((first.counts, ids(&first.started)), ((2, 0, 0), vec!["s3"]));
    assert_eq!(bench.counts().queues[&*queue("strict")].waiting, 3);
    bench.crash();
    let (done, _) = pass(bench, &reassign("strict", None, 2));
    assert_eq!(done, 3, "the rest, after a crash");
    let counts = bench.counts().queues[&*queue("strict")];
    assert_eq!((counts.waiting, counts.behind, counts.dead), (0, 0, 5));
    let letters = bench.letters(&LetterFilter::default());
    let code = |code: &str| code == codes::SERVICE_REMOVED;
    assert!(letters.iter().all(|letter| code(letter.death.code.as_str())), "{letters:?}");
    let mut events = events_of(&letters);
    events.reverse();
    assert_eq!(events, ["s1", "s2", "s3", "free", "due"], "in the order in which they ended");
    assert!(bench.reader().held_sessions(9).expect("it answers").is_empty(), "none holds its session");
    assert_eq!(bench.acts(), [("dead-letter".to_owned(), 2), ("dead-letter".to_owned(), 3)]);
}

fn moved(bench: &mut Bench) {
    backlog(bench, "strict");
    let (done, started) = pass(bench, &reassign("strict", Some("ord"), 2));
    assert_eq!(
        (done, ids(&started)),
        (5, vec!["s1", "s3", "free", "due"]),
        "one of them for the old queue yet"
    );
    assert_eq!(bench.counts().queues[&*queue("strict")].waiting, 0);
    let counts = bench.counts().queues[&*queue("ord")];
    assert_eq!((counts.waiting, counts.behind), (5, 2), "the session waits in its order");
    let ready = bench.ready("ord");
    assert_eq!(ids(&ready), ["s1", "due", "free"]);
    let next = bench.end(ready[0].id, NextState::Delivered).expect("the next of the session");
    assert_eq!(next.event.id.as_str(), "s2");
    let next = bench.end(next.id, NextState::Delivered).expect("the last of the session");
    assert_eq!(next.event.id.as_str(), "s3");
    assert_eq!(bench.acts(), [("move".to_owned(), 5)]);
}

fn stays(bench: &mut Bench) {
    backlog(bench, "ord");
    let running: BTreeSet<Seq> = bench.ready("ord").iter().map(|row| row.id.seq()).take(1).collect();
    let order = ReassignCommand { running, ..reassign("ord", None, 100) };
    let stepped = step(bench, order);
    assert_eq!(stepped.counts, (1, 0, 1), "the first of the session runs, and those behind it wait for it");
    let takes = EventPattern::parse("mail.*").into_iter().collect();
    let to = Redirect { queue: queue("strict"), order: order_of("strict") };
    let order = ReassignCommand { to: Reassignment::Queue { to, takes }, ..reassign("ord", None, 100) };
    assert_eq!(step(bench, order).counts, (0, 1, 0), "such events are not taken there");
    assert_eq!(bench.counts().queues[&*queue("ord")].waiting, 4);
}

fn of_a_replay(bench: &mut Bench) {
    for (first, to) in [(0, None), (10, Some("ord"))] {
        let letters = bench.pile("svc", first..first + 3);
        let replay = bench.replay(straight(named(&letters))).id;
        let before = bench.replay_now(replay).tally;
        assert_eq!(bench.step(replay, 2).len(), 2);
        assert_eq!(
            step(bench, reassign("svc", to, 100)).counts,
            (0, 0, 2),
            "while it is open they are its own"
        );
        bench.change(replay, ReplayAct::Cancel).expect("it is open");
        assert_eq!(step(bench, reassign("svc", to, 100)).counts, (2, 0, 0));
        assert_eq!(bench.replay_now(replay).tally, ReplayTally { sent: 2, failed: 2, ..before });
    }
}

/// Two sessions whose first has no rule: one goes on with an event that a row takes, one does not.
fn without_rule(bench: &mut Bench) {
    bench.wait(1);
    let typed = |id: &str, session: &str, event_type: &str| Event {
        event_type: EventType::new(event_type).expect("a type"),
        ..in_session(id, session)
    };
    let events = [
        ("a1", "a", "order.gone"),
        ("a2", "a", "order.gone"),
        ("a3", "a", "order.kept"),
        ("b1", "b", "order.gone"),
        ("b2", "b", "order.gone"),
        ("c1", "c", "order.kept"),
    ];
    for (id, session, event_type) in events {
        bench.accept(to("ord", typed(id, session, event_type)));
    }
    for row in bench.ready("ord") {
        if row.event.event_type.as_str() == "order.gone" {
            bench.end(row.id, NextState::Due { at: Timestamp::NEVER });
        }
    }
    bench.audit();
    assert_eq!(bench.counts().queues[&*queue("ord")].without_rule, 5, "with those behind them");
    let rows = EventPattern::parse("order.kept").into_iter().collect();
    let order = ReassignCommand { scope: ReassignScope::WithoutRule { rows }, ..reassign("ord", None, 3) };
    let first = step(bench, order.clone());
    assert_eq!((first.counts, ids(&first.started)), ((3, 0, 0), vec!["a3"]), "its session goes on");
    assert_eq!(bench.counts().queues[&*queue("ord")].without_rule, 1, "b2 waits for a rule, too");
    let (done, started) = pass(bench, &order);
    assert_eq!((done, started.len()), (1, 0));
    let counts = bench.counts().queues[&*queue("ord")];
    assert_eq!((counts.waiting, counts.without_rule, counts.dead), (2, 0, 4));
    let letters = bench.letters(&LetterFilter::default());
    assert!(letters.iter().all(|letter| letter.death.code.as_str() == codes::RULE_REMOVED), "{letters:?}");
    assert_eq!(pass(bench, &order).0, 0, "what a row takes stays");
}
