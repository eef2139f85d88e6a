//! Strict order: a dead letter holds its session until it is replayed, edited, skipped, purged or let go.

use std::sync::Arc;

use redrive_core::book::model;
use redrive_core::engine::{NextState, PendingDelivery};
use redrive_core::event::Event;
use redrive_core::ids::DeliveryId;
use redrive_core::letters::replay::ReplayState;
use redrive_core::policy::category::codes;

use super::Scenario;
use super::bench::{Bench, ROOMY, at, bounded, event, ids, in_session, queue, to};
use super::desk::{events_of, everything, fails, holds, named, straight};
use crate::store::letter::{
    CommandAnswer, CommandRefusal, EditCommand, HeldSession, LetterCommand, LetterFilter, LetterKey,
    NewReplay, PurgeCommand, PurgeStep, RELEASED_LETTERS_MAX, Redirect, Selection,
};
use crate::store::{
    DeliveryState, DeliveryStateName, EventKey, LetterClosure, OverflowPolicy, StateChange, SubmittedEvent,
    WaitingBound,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a dead letter holds its session, and those behind it wait", holder),
    ("without a session, or where the book says so, nobody is held", nobody_held),
    ("too many behind a letter are dead too, and hold in their turn", crowd),
    ("a full service's overflow holds its session too", overflow),
    ("a routed event waits behind a letter too", routed),
    ("a letter that is replayed goes before those behind it", replayed),
    ("a letter that fails again goes on holding", fails_again),
    ("a letter that fails again under a milder book lets go", milder_book),
    ("a skipped letter releases those behind it", skipped),
    ("a skipped letter in the middle releases nobody", skipped_in_the_middle),
    ("a letter that is let go stays, and those behind it go on", release_session),
    ("all that hold a session one after the other are let go together", let_go_together),
    ("a purged letter releases those behind it", purged),
    ("a purge lets a few megabytes go on at a time", purged_in_steps),
    ("an edited letter takes the place of the old one", edited),
    ("an edited letter in the middle waits for its turn", edited_in_the_middle),
    ("a letter that is sent elsewhere releases those behind it", sent_elsewhere),
    ("a replay of several letters of a session sends them in order", several),
    ("a letter that took an older one's place does not wait for younger ones", old_turn),
    ("an older letter that comes back goes before the one that holds", older_comes_back),
    ("sessions that are held longest come first", longest_first),
    ("what is held stays so over a crash", crash),
];

fn strict(id: &str) -> SubmittedEvent {
    to("strict", in_session(id, "s"))
}

/// The same, with at most so many behind a letter.
fn crowded(id: &str, per_session_max: u64) -> SubmittedEvent {
    bounded(strict(id), WaitingBound { per_session_max, ..ROOMY })
}

/// A session whose first is dead and whose others wait behind it.
fn held(bench: &mut Bench, followers: &[&str]) -> DeliveryId {
    bench.wait(1);
    let letter = bench.settled("strict", in_session("head", "s"), holds("boom"));
    for id in followers {
        assert!(bench.accept(strict(id)).is_empty());
    }
    bench.audit();
    letter
}

fn held_now(bench: &Bench) -> Vec<(DeliveryId, u64)> {
    let held = bench.reader().held_sessions(100).expect("it answers");
    held.iter().map(|one| (one.letter, one.behind)).collect()
}

fn find(bench: &Bench, id: &str) -> DeliveryId {
    let all = bench.all();
    all.iter().find(|view| view.event_id == id).expect("it is there").id
}

fn released((answer, waiting): (Result<u64, CommandRefusal>, Vec<PendingDelivery>)) -> (u64, Vec<String>) {
    (answer.expect("it is free"), waiting.into_iter().map(|one| one.event.id.to_string()).collect())
}

fn skip(letter: DeliveryId) -> impl FnOnce(CommandAnswer<u64>) -> LetterCommand {
    move |answer| LetterCommand::Skip { letter, note: Some("never mind".to_owned()), answer }
}

fn release(letter: DeliveryId) -> impl FnOnce(CommandAnswer<u64>) -> LetterCommand {
    move |answer| LetterCommand::ReleaseSession { letter, answer }
}

fn holder(bench: &mut Bench) {
    let first = bench.accept(strict("1")).remove(0).id;
    assert!(bench.accept(strict("2")).is_empty());
    bench.wait(5);
    assert!(bench.end(first, holds("boom")).is_none(), "nobody is next");
    bench.audit();
    assert!(bench.accept(strict("3")).is_empty() && bench.ready("strict").is_empty());
    let session = HeldSession {
        queue: (*queue("strict")).clone(),
        session: "s".to_owned(),
        letter: first,
        event_type: "order.placed".to_owned(),
        since: bench.now,
        behind: 2,
    };
    assert_eq!(bench.reader().held_sessions(10).expect("it answers"), [session]);
    let letter = &bench.letters(&LetterFilter::default())[0];
    assert_eq!((letter.delivery.id, letter.holds), (first, Some(2)));
    let counts = bench.counts().queues[&*queue("strict")];
    assert_eq!((counts.dead, counts.waiting, counts.behind), (1, 2, 2));
    assert_eq!(ids(&bench.accept(to("strict", in_session("4", "t")))), ["4"], "other sessions go on");
    assert_eq!(ids(&bench.accept(to("strict/x", in_session("5", "s")))), ["5"], "and other channels");
}

fn nobody_held(bench: &mut Bench) {
    let alone = bench.settled("strict", event("1"), holds("boom"));
    assert_eq!(bench.letters(&LetterFilter::default())[0].holds, None, "{alone} has no session");
    bench.take(&[strict("2"), strict("3")]);
    let head = bench.ready("strict")[0].id;
    assert_eq!(bench.end(head, fails("boom")).expect("it goes on").event.id.as_str(), "3");
    assert!(held_now(bench).is_empty());
}

fn crowd(bench: &mut Bench) {
    let letter = held(bench, &[]);
    for id in ["1", "2", "3", "4"] {
        assert!(bench.accept(crowded(id, 2)).is_empty());
    }
    assert_eq!(held_now(bench), [(letter, 2)]);
    let full = LetterFilter { code: Some(codes::SESSION_FULL.to_owned()), ..LetterFilter::default() };
    let letters = bench.letters(&full);
    assert_eq!(events_of(&letters), ["4", "3"]);
    assert!(letters.iter().all(|letter| letter.holds == Some(0)), "they hold in their turn");
    let counts = bench.counts().queues[&*queue("strict")];
    assert_eq!((counts.dead, counts.waiting, counts.behind), (3, 2, 2));
    bench.audit();
    bench.accept(crowded("5", 3));
    assert_eq!(released(bench.order_and_see(skip(letter))), (3, vec!["1".to_owned()]));
    assert!(held_now(bench).is_empty());
    assert!(bench.accept(crowded("6", 0)).is_empty(), "a session that goes on has no such bound");
    let (one, two) = (find(bench, "1"), find(bench, "2"));
    assert_eq!(bench.end(one, NextState::Delivered).expect("it goes on").id, two);
    bench.wait(9);
    assert!(bench.end(two, NextState::Delivered).is_none(), "now the next letter holds");
    let three = find(bench, "3");
    let now_held = bench.reader().held_sessions(9).expect("it answers");
    assert_eq!((now_held[0].letter, now_held[0].behind, now_held[0].since), (three, 2, bench.now));
    assert_eq!(released(bench.order_and_see(skip(three))), (0, vec![]), "and then the one after it");
    let four = find(bench, "4");
    assert_eq!(released(bench.order_and_see(skip(four))), (2, vec!["5".to_owned()]));
}

fn overflow(bench: &mut Bench) {
    let tight = WaitingBound { deliveries_max: 1, when_full: OverflowPolicy::DeadLetter, ..ROOMY };
    bench.take(&[to("strict", event("fills it"))]);
    bench.wait(2);
    assert!(bench.accept(bounded(strict("1"), tight)).is_empty());
    let first = find(bench, "1");
    assert_eq!(held_now(bench), [(first, 0)], "a free session is held by it");
    assert!(bench.accept(bounded(strict("2"), tight)).is_empty());
    assert!(bench.accept(strict("3")).is_empty());
    bench.audit();
    assert_eq!(held_now(bench), [(first, 1)]);
    let second = find(bench, "2");
    assert_eq!(released(bench.order_and_see(skip(first))), (0, vec![]), "nobody goes on");
    assert_eq!(held_now(bench), [(second, 1)]);
    assert_eq!(released(bench.order_and_see(skip(second))), (1, vec!["3".to_owned()]));
    // Behind one that is tried it waits for its turn to hold.
    let tighter = WaitingBound { deliveries_max: 0, ..tight };
    bench.take(&[bounded(strict("4"), tighter), strict("5")]);
    assert!(held_now(bench).is_empty());
    bench.audit();
    let third = find(bench, "3");
    assert!(bench.end(third, NextState::Delivered).is_none());
    assert_eq!(held_now(bench), [(find(bench, "4"), 1)]);
}

fn routed(bench: &mut Bench) {
    let letter = held(bench, &[]);
    let taken = bench.take(&[to("", in_session("1", "s")), to("", in_session("2", "s"))]);
    for (one, (behind, dead)) in taken.iter().zip([(1, 1), (1, 2)]) {
        let mut addressee = super::bench::addressee("strict");
        addressee.bound = WaitingBound { per_session_max: 1, ..ROOMY };
        let route = StateChange::Route { event: one.receipt.seq(), routes: vec![addressee] };
        assert!(bench.note(route).is_empty());
        assert_eq!(held_now(bench), [(letter, behind)]);
        assert_eq!(bench.counts().queues[&*queue("strict")].dead, dead);
    }
}

fn replayed(bench: &mut Bench) {
    let letter = held(bench, &["1", "2"]);
    let since = bench.now;
    let replay = bench.replay(straight(everything())).id;
    bench.wait(7);
    let sent = bench.step(replay, 10);
    assert_eq!((ids(&sent), sent[0].sequence), (vec!["head"], Some(letter.seq())));
    assert_eq!(held_now(bench), [(letter, 2)], "it is held while the letter is on its way");
    assert_eq!(bench.reader().held_sessions(1).expect("it answers")[0].since, since);
    assert!(bench.accept(strict("3")).is_empty());
    assert_eq!(held_now(bench), [(letter, 3)]);
    bench.audit();
    bench.end(letter, NextState::Due { at: at(30) });
    assert_eq!(held_now(bench), [(letter, 3)]);
    assert_eq!(
        bench.order(release(letter)).expect_err("it is on its way"),
        CommandRefusal::HoldsNothing(letter)
    );
    let next = bench.end(letter, NextState::Delivered).expect("the session goes on");
    assert_eq!(next.event.id.as_str(), "1");
    assert!(held_now(bench).is_empty());
    bench.audit();
    assert_eq!(bench.end(next.id, NextState::Delivered).expect("in order").event.id.as_str(), "2");
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
}

fn fails_again(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    let since = bench.now;
    let replay = bench.replay(straight(everything())).id;
    bench.wait(7);
    bench.step(replay, 10);
    bench.wait(2);
    assert!(bench.end(letter, holds("boom")).is_none());
    let held = &bench.reader().held_sessions(10).expect("it answers")[..];
    assert_eq!(
        held.iter().map(|one| (one.letter, one.since, one.behind)).collect::<Vec<_>>(),
        [(letter, since, 1)]
    );
    assert_eq!((bench.replay_now(replay).state, bench.now_at(letter).replays), (ReplayState::Done, 1));
    bench.audit();
    assert_eq!(released(bench.order_and_see(skip(letter))), (1, vec!["1".to_owned()]));
}

fn milder_book(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    let replay = bench.replay(straight(everything())).id;
    bench.step(replay, 10);
    assert_eq!(bench.end(letter, fails("boom")).expect("it lets go").event.id.as_str(), "1");
    assert!(held_now(bench).is_empty());
    assert_eq!(bench.letters(&LetterFilter::default())[0].holds, None);
}

fn skipped(bench: &mut Bench) {
    let letter = held(bench, &["1", "2"]);
    let replay = bench.replay(straight(named(&[letter]))).id;
    let claimed = CommandRefusal::Claimed { letter, replay };
    assert_eq!(bench.order(skip(letter)).expect_err("it is claimed"), claimed);
    bench.change(replay, crate::store::letter::ReplayAct::Cancel).expect("it runs");
    bench.wait(3);
    assert_eq!(released(bench.order_and_see(skip(letter))), (2, vec!["1".to_owned()]));
    assert_eq!(ids(&bench.ready("strict")), ["1"]);
    let view = bench.now_at(letter);
    assert_eq!(view.state, DeliveryState::Closed { at: bench.now, how: LetterClosure::Skipped });
    assert_eq!((view.stories.len(), view.written_at), (1, bench.now), "its story stays");
    assert!(bench.letters(&LetterFilter::default()).is_empty() && held_now(bench).is_empty());
    let counts = bench.counts().queues[&*queue("strict")];
    assert_eq!((counts.dead, counts.closed, counts.waiting, counts.behind), (0, 1, 2, 1));
    let record = &bench.reader().audit(None, 1).expect("it answers")[0];
    assert_eq!(
        (record.act.as_str(), record.letters, record.note.as_deref()),
        ("skip", 1, Some("never mind"))
    );
    assert!(record.what.contains(&letter.to_string()), "{record:?}");
    assert_eq!(bench.order(skip(letter)).expect_err("once"), CommandRefusal::NoSuchLetter(letter));
    bench.crash();
    assert_eq!(ids(&bench.ready("strict")), ["1"]);
}

fn skipped_in_the_middle(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    bench.take(&[crowded("2", 1), crowded("3", 2)]);
    let middle = find(bench, "2");
    assert_eq!(held_now(bench), [(letter, 2)]);
    assert_eq!(released(bench.order_and_see(skip(middle))), (0, vec![]));
    assert_eq!(held_now(bench), [(letter, 2)]);
    bench.audit();
    assert_eq!(released(bench.order_and_see(skip(letter))), (2, vec!["1".to_owned()]));
    let one = find(bench, "1");
    assert_eq!(bench.end(one, NextState::Delivered).expect("it goes on").event.id.as_str(), "3");
}

fn release_session(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    bench.take(&[crowded("2", 1)]);
    let middle = find(bench, "2");
    let nothing = |letter| CommandRefusal::HoldsNothing(letter);
    assert_eq!(bench.order(release(middle)).expect_err("not yet"), nothing(middle));
    let answer = bench.order_and_see(release(letter));
    assert_eq!(released(answer), (1, vec!["1".to_owned()]));
    assert_eq!(bench.order(release(letter)).expect_err("once"), nothing(letter));
    let shown = bench.reader().letter(&LetterKey::Delivery(letter)).expect("it answers").expect("it stays");
    assert_eq!(shown.holds, None);
    assert_eq!(bench.acts(), [("let-go".to_owned(), 1)]);
    bench.audit();
    let one = find(bench, "1");
    assert!(bench.end(one, NextState::Delivered).is_none(), "the next letter holds");
    assert_eq!(held_now(bench), [(middle, 0)]);
    // What was let go can be replayed, and waits for nobody that is dead and younger.
    let replay = bench.replay(straight(named(&[letter]))).id;
    assert_eq!(ids(&bench.step(replay, 1)), ["head"]);
    assert!(bench.end(letter, NextState::Delivered).is_none());
    assert_eq!(held_now(bench), [(middle, 0)]);
}

fn let_go_together(bench: &mut Bench) {
    let letter = held(bench, &[]);
    let more: Vec<_> = (0..RELEASED_LETTERS_MAX).map(|id| crowded(&id.to_string(), 0)).collect();
    bench.take(&more);
    bench.take(&[strict("live"), crowded("middle", 0)]);
    let last = find(bench, &(RELEASED_LETTERS_MAX - 1).to_string());
    let answer = bench.order_and_see(release(letter));
    assert_eq!(released(answer), (0, vec![]), "one is left, which holds");
    assert_eq!(held_now(bench), [(last, 1)]);
    let answer = bench.order_and_see(release(last));
    assert_eq!(released(answer), (1, vec!["live".to_owned()]));
    assert!(held_now(bench).is_empty());
    assert_eq!(bench.acts(), [("let-go".to_owned(), RELEASED_LETTERS_MAX as u64), ("let-go".to_owned(), 1)]);
    bench.audit();
    let (live, middle) = (find(bench, "live"), find(bench, "middle"));
    assert!(bench.end(live, NextState::Delivered).is_none(), "those further back hold in their turn");
    assert_eq!(held_now(bench), [(middle, 0)]);
}

fn purged(bench: &mut Bench) {
    let letter = held(bench, &["1", "2"]);
    let claimed = bench.replay(straight(named(&[letter]))).id;
    assert_eq!(bench.purge(&everything(), 10), (0, 1), "not while a replay has it");
    bench.change(claimed, crate::store::letter::ReplayAct::Cancel).expect("it runs");
    let (selection, what) = (everything(), "all".to_owned());
    let purge = PurgeCommand { selection, what, rows_max: 10, after: None, note: None };
    let (answer, waiting) = bench.order_and_see(|answer| LetterCommand::Purge(Box::new(purge), answer));
    assert_eq!(answer, Ok(PurgeStep { deleted: 1, claimed: 0, next: None }));
    assert_eq!(ids(&waiting), ["1"]);
    assert!(held_now(bench).is_empty());
    assert_eq!(bench.now_at(letter).state.name(), DeliveryStateName::Closed);
}

fn purged_in_steps(bench: &mut Bench) {
    for key in ["a", "b", "c"] {
        bench.wait(1);
        bench.settled("strict", in_session(key, key), holds("boom"));
        let data = vec![b'x'; 3 * 1024 * 1024].into();
        bench.take(&[to("strict", Event { data, ..in_session(&format!("behind {key}"), key) })]);
    }
    let mut after = None;
    for expected in [&["behind a", "behind b"][..], &["behind c"]] {
        let (selection, what) = (everything(), "all".to_owned());
        let step = PurgeCommand { selection, what, rows_max: 10, after, note: None };
        let (answer, waiting) = bench.order_and_see(|answer| LetterCommand::Purge(Box::new(step), answer));
        let PurgeStep { deleted, next, .. } = answer.expect("a purge is never refused");
        assert_eq!((deleted, ids(&waiting)), (expected.len() as u64, expected.to_vec()));
        after = next;
    }
    assert_eq!(after, None);
    assert_eq!(bench.acts(), [("purge".to_owned(), 3)]);
}

fn edit(bench: &mut Bench, letter: DeliveryId, id: &str) -> (DeliveryId, Vec<PendingDelivery>) {
    let edit = EditCommand { letter, event: Arc::new(in_session(id, "s")), note: None };
    let (answer, waiting) = bench.order_and_see(|answer| LetterCommand::Edit(Box::new(edit), answer));
    let (receipt, delivery) = answer.expect("it is free");
    let events = bench.reader().events(&EventKey::Receipt(receipt)).expect("it answers");
    assert_eq!(events[0].deliveries[0].id, delivery);
    (delivery, waiting)
}

fn edited(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    let since = bench.now;
    bench.wait(5);
    let (new, waiting) = edit(bench, letter, "better");
    assert_eq!((ids(&waiting), waiting[0].sequence), (vec!["better"], Some(letter.seq())));
    let held = bench.reader().held_sessions(9).expect("it answers");
    assert_eq!((held[0].letter, held[0].since, held[0].behind), (new, since, 1), "it holds in its place");
    assert!(bench.accept(strict("2")).is_empty());
    assert_eq!(held_now(bench), [(new, 2)]);
    bench.audit();
    bench.crash();
    assert_eq!(bench.ready("strict"), waiting);
    assert!(bench.end(new, holds("boom")).is_none(), "it may fail like any other");
    assert_eq!(held_now(bench), [(new, 2)]);
    let (newer, waiting) = edit(bench, new, "best");
    assert_eq!(waiting[0].sequence, Some(letter.seq()), "the place is handed on");
    assert_eq!(bench.end(newer, NextState::Delivered).expect("it goes on").event.id.as_str(), "1");
    assert!(held_now(bench).is_empty());
}

fn edited_in_the_middle(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    bench.take(&[crowded("2", 1), crowded("3", 2)]);
    let middle = find(bench, "2");
    let (new, waiting) = edit(bench, middle, "better");
    assert!(waiting.is_empty());
    assert_eq!(bench.now_at(new).state, DeliveryState::Behind);
    assert_eq!(held_now(bench), [(letter, 3)]);
    bench.audit();
    bench.order(skip(letter)).expect("it is free");
    let mut order = Vec::new();
    while let Some(head) = bench.ready("strict").pop() {
        order.push(head.event.id.to_string());
        bench.end(head.id, NextState::Delivered);
        bench.audit();
    }
    assert_eq!(order, ["1", "better", "3"]);
}

fn sent_elsewhere(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    let away = Redirect { queue: queue("svc"), order: model::DeliveryOrder::None };
    let replay = bench.replay(NewReplay { to: Some(Arc::new(away)), ..straight(everything()) }).id;
    let mut sent = bench.step(replay, 10);
    sent.sort_by_key(|waiting| waiting.id.seq());
    assert_eq!(ids(&sent), ["head", "1"], "the session goes on without it");
    assert_eq!(bench.now_at(letter).queue, *queue("svc"));
    assert!(held_now(bench).is_empty());
}

fn several(bench: &mut Bench) {
    let letter = held(bench, &["1"]);
    bench.take(&[crowded("2", 1), crowded("3", 2), crowded("4", 2)]);
    let replay = bench.replay(straight(everything())).id;
    assert_eq!(bench.replay_now(replay).tally.total, 3);
    let mut order = Vec::new();
    for _ in 0..10 {
        bench.step(replay, 10);
        bench.audit();
        let Some(head) = bench.ready("strict").pop() else { continue };
        order.push(head.event.id.to_string());
        bench.end(head.id, NextState::Delivered);
        bench.audit();
    }
    assert_eq!(order, ["head", "1", "2", "3", "4"], "{letter} first");
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
}

fn old_turn(bench: &mut Bench) {
    let letter = held(bench, &[]);
    bench.take(&[crowded("1", 0)]);
    let (new, _) = edit(bench, letter, "better");
    assert!(bench.end(new, holds("boom")).is_none());
    // Its place is before the other's, though it came later.
    let replay = bench.replay(straight(everything())).id;
    let mut order = Vec::new();
    for _ in 0..10 {
        bench.step(replay, 10);
        let Some(head) = bench.ready("strict").pop() else { continue };
        order.push(head.event.id.to_string());
        bench.end(head.id, NextState::Delivered);
        bench.audit();
    }
    assert_eq!(order, ["better", "1"]);
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
}

fn older_comes_back(bench: &mut Bench) {
    // It died while the book was milder.
    let older = bench.settled("strict", in_session("older", "s"), fails("boom"));
    let letter = held(bench, &["1"]);
    let replay = bench.replay(straight(everything())).id;
    let mut sent = Vec::new();
    for _ in 0..10 {
        bench.step(replay, 10);
        bench.audit();
        let Some(head) = bench.ready("strict").pop() else { continue };
        sent.push(head.event.id.to_string());
        bench.end(head.id, NextState::Delivered);
        bench.audit();
    }
    assert_eq!(sent, ["older", "head", "1"], "{older} before {letter}");
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
}

fn longest_first(bench: &mut Bench) {
    for (second, key) in [(1, "b"), (2, "c"), (3, "a")] {
        bench.now = at(second);
        bench.settled("strict", in_session(key, key), holds("boom"));
    }
    let held = bench.reader().held_sessions(2).expect("it answers");
    assert_eq!(held.iter().map(|one| one.session.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

fn crash(bench: &mut Bench) {
    let letter = held(bench, &["1", "2"]);
    bench.crash();
    assert_eq!(held_now(bench), [(letter, 2)]);
    assert!(bench.accept(crowded("3", 2)).is_empty());
    assert_eq!(bench.letters(&LetterFilter::default()).len(), 2);
    bench.restart(60);
    let selection = Selection { died_until: at(1), ..everything() };
    let replay = bench.replay(straight(selection)).id;
    assert_eq!(ids(&bench.step(replay, 10)), ["head"]);
    bench.crash();
    assert_eq!(ids(&bench.ready("strict")), ["head"]);
    assert_eq!(held_now(bench), [(letter, 2)]);
    assert_eq!(bench.end(letter, NextState::Delivered).expect("it goes on").event.id.as_str(), "1");
}
