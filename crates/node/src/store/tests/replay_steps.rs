//! Steps of replays: how letters are listed a few at a time, and sent without waiting for long sessions.

use std::sync::Arc;

use redrive_core::engine::NextState;
use redrive_core::event::Event;
use redrive_core::letters::replay::{ReplayId, ReplayState};

use super::Scenario;
use super::bench::{Bench, at, event, ids, in_session, queue, settlement, to};
use super::desk::{canary, events_of, everything, fails, foreign, found_by, named, poison, straight};
use super::replays::tally;
use crate::store::letter::{LetterCommand, LetterFilter, PurgeCommand, PurgeStep, ReplayAct};
use crate::store::{DeliveryStateName, REPLAY_GATHER_MAX, REPLAY_WALK_MAX, Submission, WriteBatch};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("many letters are listed in several steps", gathering),
    ("a text is looked for in a few megabytes at a time", gathering_text),
    ("a gathering replay that is halted goes on gathering", gathering_halted),
    ("a long session keeps no other from being sent", long_session),
    ("a long session that has failed is left alone in small steps", long_failed_session),
    ("letters of a session go in its order, whenever they died", order_of_turns),
    ("a step hands over a few megabytes at most, and one letter at least", large_letters),
];

/// So many letters at once.
fn heap(bench: &mut Bench, count: usize) {
    let sent = (0..count).map(|id| Submission { events: vec![to("svc", event(&id.to_string()))] });
    let waiting = bench.write(&WriteBatch { submissions: sent.collect(), ..WriteBatch::default() }).waiting;
    let dead = waiting.iter().map(|one| Arc::new(settlement(one.id, 0, fails("boom"), bench.now)));
    bench.write(&WriteBatch { settlements: dead.collect(), ..WriteBatch::default() });
}

fn gathering(bench: &mut Bench) {
    let count = REPLAY_GATHER_MAX + 500;
    heap(bench, count);
    bench.wait(1);
    let replay = bench.replay(straight(everything()));
    assert_eq!(replay.state, ReplayState::Gathering);
    assert!(replay.tally.total <= REPLAY_GATHER_MAX as u64, "{replay:?}");
    let late = bench.settled("svc", event("late"), fails("boom"));
    bench.wait(1);
    let mut steps = 0;
    while bench.replay_now(replay.id).state == ReplayState::Gathering {
        assert!(bench.step(replay.id, 100).is_empty(), "nothing is sent while letters are listed");
        bench.crash();
        steps += 1;
        assert!(steps < 100, "it comes to an end");
    }
    let running = bench.replay_now(replay.id);
    // Whether the late one is in depends on how far letters had been looked at; the selection allows it.
    assert_eq!((running.state, running.tally.sent), (ReplayState::Running, 0));
    assert_eq!(running.tally.total, count as u64 + 1);
    assert_eq!(bench.now_at(late).state.name(), DeliveryStateName::Dead);
    assert_eq!(bench.step(replay.id, 256).len(), 256);
    assert_eq!(bench.counts().queues[&*queue("svc")].waiting, 256);
}

fn gathering_text(bench: &mut Bench) {
    for id in ["1", "2", "3"] {
        bench.wait(1);
        let data = vec![b'x'; 3 * 1024 * 1024].into();
        bench.settled("svc", Event { data, ..event(id) }, fails("boom"));
    }
    bench.wait(1);
    bench.settled("svc", event("found"), fails("boom"));
    let filter = LetterFilter { text: Some("found".to_owned()), ..LetterFilter::default() };
    let replay = bench.replay(straight(found_by(filter.clone())));
    assert_eq!((replay.state, replay.tally.total), (ReplayState::Gathering, 0), "two are enough at once");
    bench.step(replay.id, 10);
    let replay = bench.replay_now(replay.id);
    assert_eq!((replay.state, replay.tally.total), (ReplayState::Running, 1));
    bench.change(replay.id, ReplayAct::Cancel).expect("it is open");
    let step = |after| PurgeCommand {
        selection: found_by(filter.clone()),
        what: "some".to_owned(),
        rows_max: 100,
        after,
        note: None,
    };
    let answer = bench.order(|answer| LetterCommand::Purge(Box::new(step(None)), answer));
    let Ok(PurgeStep { deleted: 0, next: next @ Some(_), .. }) = answer else { panic!("{answer:?}") };
    let answer = bench.order(|answer| LetterCommand::Purge(Box::new(step(next)), answer));
    assert!(matches!(answer, Ok(PurgeStep { deleted: 1, next: None, .. })), "{answer:?}");
}

fn gathering_halted(bench: &mut Bench) {
    heap(bench, REPLAY_GATHER_MAX + 1);
    bench.wait(1);
    let replay = bench.replay(canary(everything()));
    assert_eq!(replay.state, ReplayState::Gathering);
    let paused = bench.change(replay.id, ReplayAct::Pause).expect("it gathers");
    assert_eq!(paused.state, ReplayState::Paused);
    assert!(bench.step(replay.id, 1).is_empty());
    assert_eq!(bench.replay_now(replay.id), paused, "it waits");
    assert_eq!(bench.change(replay.id, ReplayAct::Resume).expect("it waits").state, ReplayState::Gathering);
    let unfinished = bench.crash().replays;
    assert_eq!(unfinished.iter().map(|job| job.state).collect::<Vec<_>>(), [ReplayState::Gathering]);
    while bench.replay_now(replay.id).state == ReplayState::Gathering {
        bench.step(replay.id, 1);
    }
    assert_eq!(bench.replay_now(replay.id).tally.total, REPLAY_GATHER_MAX as u64 + 1);
    // However many are passed over, what is meant is found.
    bench.change(replay.id, ReplayAct::Cancel).expect("it is open");
    let filter = LetterFilter { text: Some("late".to_owned()), ..LetterFilter::default() };
    bench.settled("svc", event("late"), fails("boom"));
    let replay = bench.replay(straight(found_by(filter))).id;
    while bench.replay_now(replay).state == ReplayState::Gathering {
        bench.step(replay, 1);
    }
    assert_eq!(ids(&bench.step(replay, 9)), ["late"]);
}

/// So many letters of one session, and then one of another.
fn long(bench: &mut Bench, count: usize) -> ReplayId {
    let letters = (0..count).map(|id| foreign("ord", in_session(&id.to_string(), "s"), at(1)));
    bench.order(|answer| LetterCommand::Import(letters.collect(), answer)).expect("they are taken");
    bench.wait(2);
    bench.settled("ord", in_session("other", "t"), fails("boom"));
    bench.wait(1);
    let replay = bench.replay(straight(everything())).id;
    while bench.replay_now(replay).state == ReplayState::Gathering {
        bench.step(replay, 1);
    }
    replay
}

fn long_session(bench: &mut Bench) {
    let replay = long(bench, REPLAY_WALK_MAX + 10);
    assert_eq!(ids(&bench.step(replay, 10)), ["0", "other"]);
    assert!(bench.step(replay, 10).is_empty());
    for id in 1..5 {
        let first = bench.ready("ord")[0].id;
        bench.end(first, NextState::Delivered);
        assert_eq!(ids(&bench.step(replay, 10)), [id.to_string()]);
    }
}

fn long_failed_session(bench: &mut Bench) {
    let replay = long(bench, REPLAY_WALK_MAX + 10);
    let first = bench.step(replay, 1).remove(0).id;
    bench.end(first, poison("boom"));
    let walked = REPLAY_WALK_MAX as u64;
    assert!(bench.step(replay, 10).is_empty(), "no more are looked at in one step");
    assert_eq!(bench.replay_now(replay).tally, tally(walked + 11, 1, 0, 1, walked));
    assert_eq!(ids(&bench.step(replay, 10)), ["other"]);
    assert_eq!(bench.replay_now(replay).tally, tally(walked + 11, 2, 0, 1, walked + 9));
}

fn order_of_turns(bench: &mut Bench) {
    for id in ["1", "2", "3"] {
        bench.take(&[to("ord", in_session(id, "s"))]);
    }
    for _ in 0..3 {
        bench.wait(1);
        let head = bench.ready("ord")[0].id;
        bench.end(head, fails("boom"));
    }
    let letters = bench.letters(&LetterFilter::default());
    let first = letters.iter().find(|letter| letter.event.id.as_str() == "1").expect("it is there");
    // It is replayed alone and dies again, so that it is found after the others.
    let replay = bench.replay(straight(named(&[first.delivery.id]))).id;
    bench.step(replay, 1);
    bench.wait(1);
    bench.end(first.delivery.id, fails("boom"));
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["1", "3", "2"]);
    let replay = bench.replay(straight(everything())).id;
    for id in ["1", "2", "3"] {
        let sent = bench.step(replay, 10);
        assert_eq!(ids(&sent), [id]);
        bench.end(sent[0].id, NextState::Delivered);
    }
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
}

fn large_letters(bench: &mut Bench) {
    for (id, bytes) in [("1", 3), ("2", 2), ("3", 5), ("4", 1)] {
        bench.wait(1);
        let data = vec![b'x'; bytes * 1024 * 1024].into();
        bench.settled("svc", Event { data, ..event(id) }, fails("boom"));
    }
    let replay = bench.replay(straight(everything())).id;
    for expected in [&["1", "2"][..], &["3"], &["4"]] {
        assert_eq!(ids(&bench.step(replay, 10)), expected);
    }
    assert_eq!(bench.replay_now(replay).tally, tally(4, 4, 0, 0, 0));
}
