//! Replays: which letters they claim, how they send them, and what they count.

use std::sync::Arc;

use redrive_core::book::model;
use redrive_core::engine::{Advance, NextState};
use redrive_core::ids::{DeliveryId, Seq};
use redrive_core::letters::replay::{
    Manner, ReplayId, ReplayOrigin, ReplayState, ReplayStop, ReplayTally, ReplayWave, Replaying,
};
use redrive_core::policy::decide::History;
use redrive_core::text::Rate;

use super::Scenario;
use super::bench::{Bench, at, event, ids, in_session, queue, settlement, to};
use super::desk::{canary, death_of, events_of, everything, fails, found_by, named, poison, straight};
use crate::store::letter::{CommandRefusal, LetterFilter, NewReplay, Poison, Redirect, ReplayAct, Selection};
use crate::store::{DeliveryStateName, SettleResult};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a replay begins with all that is known of it", begins),
    ("a selection is frozen when its replay begins", frozen),
    ("a letter belongs to one open replay, and the second is told", claims),
    ("letters that are named must be there and free", named_letters),
    ("poison is left alone unless it is meant", poison_left),
    ("a replay that finds nothing is none", nothing),
    ("a letter that is sent is a delivery with fresh tries and its old story", fresh),
    ("a step that was taken already does nothing", taken_already),
    ("a canary's waves are written with the letters", waves),
    ("of a session one letter is on its way at a time", one_of_a_session),
    ("a letter that fails leaves the rest of its session dead", failed_session),
    ("a letter goes before younger ones, and overtakes none in flight", live_head),
    ("letters can be sent elsewhere", redirect),
    ("a replay can be halted, go on and end, where that makes sense", changes),
    ("a replay that is cancelled frees its letters, and what is on its way still counts", cancelled),
    ("a replay is done when every letter is answered for", done),
    ("a replay stops in the transaction that settles its letter", stops),
    ("replays survive a crash", recovery),
    ("replays are listed, the latest first", listed),
    ("a retry within a replay stays one of it", retries),
];

pub(super) fn tally(total: u64, sent: u64, delivered: u64, failed: u64, left: u64) -> ReplayTally {
    ReplayTally { total, sent, delivered, failed, left }
}

/// A letter of each id in one session of `ord`.
fn session(bench: &mut Bench, ids: &[&str], key: &str) -> Vec<DeliveryId> {
    let letter = |id: &&str| {
        bench.wait(1);
        bench.settled("ord", in_session(id, key), fails("boom"))
    };
    ids.iter().map(letter).collect()
}

fn begins(bench: &mut Bench) {
    bench.pile("svc", 0..3);
    bench.wait(5);
    let new = NewReplay {
        what: "of svc".to_owned(),
        note: Some("they mended it".to_owned()),
        origin: ReplayOrigin::Automatic { times_max: 3 },
        pace: redrive_core::letters::replay::ReplayPace {
            rate: Rate::per_second(12.5),
            concurrency: 9,
            manner: Manner::Canary,
        },
        ..straight(everything())
    };
    let view = bench.replay(new.clone());
    assert_eq!((view.id, view.state, view.wave), (ReplayId(1), ReplayState::Running, ReplayWave::None));
    assert_eq!((view.what.as_str(), view.note.as_deref()), ("of svc", Some("they mended it")));
    assert_eq!((view.pace, view.origin, &view.to), (new.pace, new.origin, &None));
    assert_eq!((view.tally, view.claimed_by_others, view.stop), (tally(3, 0, 0, 0, 0), 0, None));
    assert_eq!((view.created_at, view.changed_at), (bench.now, bench.now));
    assert_eq!(bench.replay_now(view.id), view);
    assert!(bench.ready("svc").is_empty(), "nothing is sent yet");
    let record = &bench.reader().audit(None, 10).expect("it answers")[0];
    assert_eq!((record.act.as_str(), record.what.as_str(), record.letters), ("replay", "of svc", 3));
    assert_eq!((record.note.as_deref(), record.at), (Some("they mended it"), bench.now));
    bench.crash();
    assert_eq!(bench.replay_now(view.id), view);
    let second = bench.pile("svc", 10..11);
    let second = bench.replay(straight(named(&second)));
    assert_eq!(
        (second.id, second.wave),
        (ReplayId(2), ReplayWave::Rest),
        "straight ahead from the beginning"
    );
}

fn frozen(bench: &mut Bench) {
    bench.pile("svc", 0..4);
    let selection = Selection { died_until: at(3), ..everything() };
    let replay = bench.replay(straight(selection));
    assert_eq!(replay.tally.total, 3, "those that died by then");
    bench.pile("svc", 10..12);
    let sent = bench.step(replay.id, 100);
    assert_eq!(ids(&sent), ["0", "1", "2"]);
    for waiting in &sent {
        bench.end(waiting.id, poison("boom"));
    }
    let replay = bench.replay_now(replay.id);
    assert_eq!((replay.state, replay.tally), (ReplayState::Done, tally(3, 3, 0, 3, 0)), "none is sent twice");
}

fn claims(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..4);
    let first = bench.replay(straight(named(&letters[..2])));
    let second = bench.replay(straight(everything()));
    assert_eq!((second.tally.total, second.claimed_by_others), (2, 2));
    let claimed = [(first.id, 2), (second.id, 2)].into();
    let refused = bench.try_replay(straight(everything()));
    assert_eq!(refused, Err(CommandRefusal::NothingMatches { claimed, poison: 0 }));
    let shown = bench.letters(&LetterFilter::default());
    let claimed: Vec<_> = shown.iter().map(|letter| letter.claimed_by.map(|replay| replay.0)).collect();
    assert_eq!(claimed, [Some(2), Some(2), Some(1), Some(1)]);
    bench.change(first.id, ReplayAct::Pause).expect("it runs");
    assert!(bench.try_replay(straight(everything())).is_err(), "a halted replay keeps its letters");
    bench.change(first.id, ReplayAct::Cancel).expect("it is open");
    let third = bench.replay(straight(everything()));
    assert_eq!((third.id.0, third.tally.total, third.claimed_by_others), (3, 2, 2));
    let sent = bench.step(second.id, 10);
    assert_eq!(ids(&sent), ["2", "3"]);
    for waiting in sent {
        bench.end(waiting.id, poison("boom"));
    }
    let with_poison = Selection { poison: Poison::Included, ..everything() };
    let fourth = bench.replay(straight(with_poison));
    assert_eq!((fourth.tally.total, fourth.claimed_by_others), (2, 2), "what is done frees its letters");
}

fn named_letters(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..3);
    let unknown = DeliveryId::new(Seq::new(999), 1);
    let impostor = DeliveryId::new(letters[0].seq(), !letters[0].content());
    let delivered = bench.settled("svc", event("9"), NextState::Delivered);
    for stranger in [unknown, impostor, delivered] {
        let refused = bench.try_replay(straight(named(&[letters[0], stranger])));
        assert_eq!(refused, Err(CommandRefusal::NoSuchLetter(stranger)));
    }
    let replay = bench.replay(straight(named(&letters[1..2]))).id;
    let refused = bench.try_replay(straight(named(&letters)));
    assert_eq!(refused, Err(CommandRefusal::Claimed { letter: letters[1], replay }));
    let twice = bench.replay(straight(named(&[letters[2], letters[0], letters[2]])));
    assert_eq!(twice.tally.total, 2, "named twice is once");
    assert_eq!(ids(&bench.step(twice.id, 10)), ["0", "2"], "in their order, however they were named");
}

fn poison_left(bench: &mut Bench) {
    let bad = bench.settled("svc", event("bad"), poison("boom"));
    let refused = |poison| Err(CommandRefusal::NothingMatches { claimed: [].into(), poison });
    assert_eq!(bench.try_replay(straight(everything())), refused(1));
    assert_eq!(bench.try_replay(straight(named(&[bad]))), refused(1), "even if it is named");
    bench.wait(1);
    let good = bench.settled("svc", event("good"), fails("boom"));
    let replay = bench.replay(straight(named(&[bad, good])));
    assert_eq!(ids(&bench.step(replay.id, 10)), ["good"]);
    let meant = Selection { poison: Poison::Included, ..named(&[bad]) };
    let replay = bench.replay(straight(meant));
    assert_eq!(ids(&bench.step(replay.id, 10)), ["bad"]);
}

fn nothing(bench: &mut Bench) {
    let refusal = Err(CommandRefusal::NothingMatches { claimed: [].into(), poison: 0 });
    assert_eq!(bench.try_replay(straight(everything())), refusal);
    bench.pile("svc", 0..2);
    let nobody = LetterFilter { service: Some("nobody".to_owned()), ..LetterFilter::default() };
    assert_eq!(bench.try_replay(straight(found_by(nobody))), refusal);
    assert_eq!(bench.try_replay(straight(named(&[]))), refusal);
    assert_eq!((bench.reader().replays(None, 9).expect("it answers"), bench.acts()), (vec![], vec![]));
    assert_eq!(bench.replay(straight(everything())).id, ReplayId(1), "no number was used up");
}

fn fresh(bench: &mut Bench) {
    let waiting = bench.accept(to("ord", in_session("1", "s"))).remove(0);
    bench.end(waiting.id, NextState::Due { at: at(2) });
    bench.wait(3);
    bench.end(waiting.id, fails("boom"));
    let replay = bench.replay(straight(everything())).id;
    bench.wait(7);
    let sent = bench.step(replay, 10);
    let [again] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((again.id, &again.event, again.attempts), (waiting.id, &waiting.event, 2));
    assert_eq!((&again.history, again.book, again.due_at), (&History::new(), None, None));
    assert_eq!((again.written_at, again.start_recorded), (bench.now, false));
    assert_eq!(again.sequence, waiting.sequence, "it keeps its place");
    assert_eq!(again.replaying, Some(Replaying { replay, times: 1 }));
    assert_eq!(bench.ready("ord"), sent, "and loads as the same");
    let view = bench.now_at(waiting.id);
    assert_eq!((view.replaying, view.replays, view.stories.len()), (Some(replay), 1, 2));
    assert_eq!((view.state.name(), view.written_at), (DeliveryStateName::Ready, bench.now));
    let counts = bench.counts().queues[&*queue("ord")];
    assert_eq!((counts.dead, counts.waiting, counts.waiting_bytes), (0, 1, 1));
    assert!(bench.letters(&LetterFilter::default()).is_empty());
    bench.wait(1);
    bench.end(waiting.id, poison("bang"));
    let view = bench.now_at(waiting.id);
    assert_eq!((view.replaying, view.replays, view.stories.len(), view.attempts), (None, 1, 3, 3));
    let selection = Selection { poison: Poison::Included, ..everything() };
    let replay = bench.replay(straight(selection)).id;
    let again = bench.step(replay, 10).remove(0);
    assert_eq!(again.replaying, Some(Replaying { replay, times: 2 }));
    bench.end(waiting.id, NextState::Delivered);
    let view = bench.now_at(waiting.id);
    assert_eq!(
        (view.state.name(), view.replaying, view.stories.len()),
        (DeliveryStateName::Delivered, None, 4)
    );
    bench.audit();
}

fn taken_already(bench: &mut Bench) {
    bench.pile("svc", 0..5);
    let replay = bench.replay(straight(everything())).id;
    let step = Advance { replay, sent_before: 0, letters_max: 2, wave: ReplayWave::Rest };
    let (job, sent, waiting) = bench.advance(step).expect("it is there");
    assert_eq!((job.tally, sent, ids(&waiting)), (tally(5, 2, 0, 0, 0), 2, vec!["0", "1"]));
    bench.crash();
    for sent_before in [0, 1, 3] {
        let again = Advance { sent_before, wave: ReplayWave::First, ..step };
        let (job, sent, waiting) = bench.advance(again).expect("it is there");
        assert_eq!((job.tally, sent, waiting.len()), (tally(5, 2, 0, 0, 0), 0, 0));
        assert_eq!(job.wave, ReplayWave::Rest);
    }
    let (job, sent, _) = bench.advance(Advance { sent_before: 2, ..step }).expect("it is there");
    assert_eq!((job.tally.sent, sent), (4, 2));
    assert!(bench.advance(Advance { replay: ReplayId(9), ..step }).is_none(), "no such replay");
}

fn waves(bench: &mut Bench) {
    let letters = session(bench, &["1", "2"], "s");
    bench.pile("svc", 10..30);
    let replay = bench.replay(canary(everything())).id;
    let step = |bench: &mut Bench, sent_before, letters_max, wave| {
        let advance = Advance { replay, sent_before, letters_max, wave };
        bench.advance(advance).expect("it is there")
    };
    let (job, sent, waiting) = step(bench, 0, 1, ReplayWave::First);
    assert_eq!((job.wave, sent, ids(&waiting)), (ReplayWave::First, 1, vec!["1"]));
    bench.end(letters[0], NextState::Delivered);
    let (job, sent, waiting) = step(bench, 1, 10, ReplayWave::Second);
    assert_eq!((job.wave, sent), (ReplayWave::Second, 10));
    assert_eq!(ids(&waiting), ["2", "10", "11", "12", "13", "14", "15", "16", "17", "18"]);
    bench.crash();
    assert_eq!(bench.replay_now(replay).wave, ReplayWave::Second);
    let (job, sent, _) = step(bench, 11, 100, ReplayWave::Rest);
    assert_eq!((job.wave, sent, job.tally.waiting()), (ReplayWave::Rest, 11, 0));
}

fn one_of_a_session(bench: &mut Bench) {
    let one = session(bench, &["1", "2", "3"], "s");
    let other = session(bench, &["4", "5"], "t");
    let replay = bench.replay(straight(everything())).id;
    assert_eq!(ids(&bench.step(replay, 10)), ["1", "4"]);
    assert!(bench.step(replay, 10).is_empty(), "they are on their way");
    assert_eq!(bench.replay_now(replay).tally, tally(5, 2, 0, 0, 0));
    bench.audit();
    assert!(bench.end(one[0], NextState::Delivered).is_none(), "the next is dead, and sent in its time");
    assert_eq!(ids(&bench.step(replay, 10)), ["2"]);
    bench.end(one[1], NextState::Due { at: at(99) });
    assert!(bench.step(replay, 10).is_empty(), "one that is tried again is on its way");
    bench.end(other[0], NextState::Delivered);
    bench.crash();
    assert_eq!(ids(&bench.step(replay, 10)), ["5"]);
    bench.end(one[1], NextState::Delivered);
    assert_eq!(ids(&bench.step(replay, 10)), ["3"]);
}

fn failed_session(bench: &mut Bench) {
    let letters = session(bench, &["1", "2", "3"], "s");
    session(bench, &["4"], "t");
    let replay = bench.replay(straight(everything())).id;
    assert_eq!(ids(&bench.step(replay, 1)), ["1"]);
    bench.end(letters[0], poison("boom"));
    assert_eq!(bench.replay_now(replay).tally, tally(4, 1, 0, 1, 0));
    assert_eq!(ids(&bench.step(replay, 10)), ["4"]);
    let now = bench.replay_now(replay);
    assert_eq!((now.state, now.tally), (ReplayState::Running, tally(4, 2, 0, 1, 2)));
    let dead = bench.letters(&LetterFilter::default());
    assert_eq!(events_of(&dead), ["1", "3", "2"]);
    assert!(dead.iter().all(|letter| letter.claimed_by.is_none()), "what is left is free");
    let four = bench.ready("ord")[0].id;
    bench.end(four, NextState::Delivered);
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
    let next = bench.replay(straight(everything()));
    assert_eq!(ids(&bench.step(next.id, 10)), ["2"], "another replay may send them");
}

fn live_head(bench: &mut Bench) {
    let letters = session(bench, &["1", "2"], "s");
    let live = bench.accept(to("ord", in_session("3", "s"))).remove(0).id;
    bench.take(&[to("ord", in_session("4", "s"))]);
    let replay = bench.replay(straight(everything())).id;
    assert!(bench.step(replay, 10).is_empty(), "it waits for the one in flight");
    assert_eq!(bench.replay_now(replay).tally.sent, 1, "but it is on its way");
    assert_eq!(bench.now_at(letters[0]).state.name(), DeliveryStateName::Behind);
    let counts = bench.counts().queues[&*queue("ord")];
    assert_eq!((counts.waiting, counts.behind, counts.dead), (3, 2, 1));
    bench.audit();
    bench.crash();
    assert!(bench.end(live, NextState::Due { at: at(50) }).is_none(), "also while that one is tried again");
    let next = bench.end(live, NextState::Delivered).expect("its turn has come");
    assert_eq!((next.event.id.as_str(), next.replaying.map(|by| by.replay)), ("1", Some(replay)));
    assert_eq!(next.sequence, Some(letters[0].seq()));
    let live = bench.end(letters[0], NextState::Delivered).expect("the session goes on");
    assert_eq!(live.event.id.as_str(), "4", "live traffic does not wait for letters that are still dead");
    assert!(bench.step(replay, 10).is_empty());
    bench.take(&[to("ord", in_session("5", "s"))]);
    assert_eq!(bench.end(live.id, NextState::Delivered).expect("the session goes on").event.id.as_str(), "2");
    assert_eq!(bench.end(letters[1], fails("boom")).expect("the session goes on").event.id.as_str(), "5");
}

fn redirect(bench: &mut Bench) {
    let letters = session(bench, &["1", "2"], "s");
    bench.settled("svc", in_session("3", "s"), fails("boom"));
    let elsewhere = |name: &str, order| Some(Arc::new(Redirect { queue: queue(name), order }));
    let to_ord =
        NewReplay { to: elsewhere("ord/new", model::DeliveryOrder::Session), ..straight(everything()) };
    let replay = bench.replay(to_ord);
    assert_eq!(replay.to.as_ref(), Some(&*queue("ord/new")));
    let sent = bench.step(replay.id, 10);
    assert_eq!(ids(&sent), ["1"], "they keep the order that they have there");
    assert_eq!((sent[0].id, &sent[0].queue), (letters[0], &queue("ord/new")), "the id stays");
    assert_eq!(bench.ready("ord/new"), sent);
    assert_eq!(bench.now_at(letters[0]).queue, *queue("ord/new"));
    let counts = bench.counts().queues;
    assert_eq!((counts[&*queue("ord")].dead, counts[&*queue("ord/new")].waiting), (1, 1));
    bench.audit();
    bench.crash();
    bench.accept(to("ord/new", in_session("live", "s")));
    let next = bench.end(letters[0], NextState::Delivered).expect("the session goes on");
    assert_eq!(next.event.id.as_str(), "live", "it came into that session");
    bench.change(replay.id, ReplayAct::Cancel).expect("it is open");
    let to_svc = NewReplay { to: elsewhere("free", model::DeliveryOrder::None), ..straight(everything()) };
    let replay = bench.replay(to_svc).id;
    let sent = bench.step(replay, 10);
    assert_eq!(ids(&sent), ["2", "3"], "there is no order");
    assert!(sent.iter().all(|waiting| waiting.sequence.is_none()));
    bench.end(letters[1], fails("boom"));
    let letter = &bench.letters(&LetterFilter::default())[0];
    assert_eq!((letter.delivery.queue.to_string(), letter.replays), ("free".to_owned(), 1));
}

fn changes(bench: &mut Bench) {
    use ReplayAct::{Cancel, Pause, Resume};
    use ReplayState::{Cancelled, Done, Paused, Running, Stopped};
    #[rustfmt::skip]
    let cases = [
        (Running,   Pause,  Some(Paused)),
        (Running,   Resume, None),
        (Running,   Cancel, Some(Cancelled)),
        (Paused,    Pause,  None),
        (Paused,    Resume, Some(Running)),
        (Paused,    Cancel, Some(Cancelled)),
        (Stopped,   Pause,  None),
        (Stopped,   Resume, Some(Running)),
        (Stopped,   Cancel, Some(Cancelled)),
        (Cancelled, Pause,  None),
        (Cancelled, Resume, None),
        (Cancelled, Cancel, None),
        (Done,      Pause,  None),
        (Done,      Resume, None),
        (Done,      Cancel, None),
    ];
    for (number, (state, act, expected)) in (0..).zip(cases) {
        let letters = bench.pile("svc", number * 10..number * 10 + 3);
        let replay = bench.replay(canary(named(&letters))).id;
        into_state(bench, replay, &letters, state);
        bench.wait(1);
        let before = (bench.replay_now(replay), bench.acts());
        let changed = bench.change(replay, act);
        if let Some(next) = expected {
            let view = changed.expect("it is possible");
            assert_eq!((view.state, view.changed_at), (next, bench.now), "{act:?} of {state}");
            assert_eq!(bench.acts().len(), before.1.len() + 1, "{act:?} of {state} is on record");
            if act == Resume {
                assert_eq!((view.wave, view.stop), (ReplayWave::None, None), "it begins with one again");
            }
        } else {
            assert_eq!(changed, Err(CommandRefusal::NotPossible { replay, state }), "{act:?} of {state}");
            assert_eq!((bench.replay_now(replay), bench.acts()), before);
        }
        let is_running = bench.replay_now(replay).state == Running;
        assert_eq!(bench.step(replay, 1).len(), usize::from(is_running), "only a running one sends");
        bench.audit();
        if bench.replay_now(replay).state.is_open() {
            bench.change(replay, Cancel).expect("it is open");
        }
    }
    let nobody = ReplayId(999);
    assert_eq!(bench.change(nobody, Pause), Err(CommandRefusal::NoSuchReplay(nobody)));
    let acts: std::collections::BTreeSet<String> = bench.acts().into_iter().map(|(act, _)| act).collect();
    let words = ["replay", "replay-cancel", "replay-pause", "replay-resume"];
    assert_eq!(acts, words.map(str::to_owned).into());
}

/// Brings a replay of three letters, none of which was sent, to where it is wanted.
fn into_state(bench: &mut Bench, replay: ReplayId, letters: &[DeliveryId], state: ReplayState) {
    match state {
        ReplayState::Gathering | ReplayState::Running => {}
        ReplayState::Paused => {
            bench.change(replay, ReplayAct::Pause).expect("it runs");
        }
        ReplayState::Cancelled => {
            bench.change(replay, ReplayAct::Cancel).expect("it runs");
        }
        ReplayState::Stopped => {
            bench.step(replay, 1);
            stop(bench, replay, letters[0]);
        }
        ReplayState::Done => {
            bench.step(replay, 3);
            for letter in letters {
                bench.end(*letter, NextState::Delivered);
            }
        }
    }
    assert_eq!(bench.replay_now(replay).state, state);
}

/// A letter fails, and its replay stops because of it.
fn stop(bench: &mut Bench, replay: ReplayId, delivery: DeliveryId) -> ReplayStop {
    let attempts = bench.now_at(delivery).attempts;
    let stop = ReplayStop { replay, fingerprint: death_of("boom").fingerprint, delivery };
    let mut failed = settlement(delivery, attempts, poison("boom"), bench.now);
    failed.stop = Some(stop);
    assert!(matches!(bench.settle(failed), SettleResult::Written { .. }));
    stop
}

fn cancelled(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..4);
    let replay = bench.replay(straight(everything())).id;
    bench.step(replay, 2);
    bench.change(replay, ReplayAct::Cancel).expect("it runs");
    assert!(bench.letters(&LetterFilter::default()).iter().all(|letter| letter.claimed_by.is_none()));
    let jobs = bench.crash().replays;
    assert_eq!(
        jobs.iter().map(|job| (job.id, job.state)).collect::<Vec<_>>(),
        [(replay, ReplayState::Cancelled)]
    );
    bench.end(letters[0], NextState::Delivered);
    bench.end(letters[1], poison("boom"));
    let view = bench.replay_now(replay);
    assert_eq!((view.state, view.tally), (ReplayState::Cancelled, tally(4, 2, 1, 1, 0)));
    assert!(bench.crash().replays.is_empty(), "nothing of it is on its way");
    assert_eq!(bench.replay(straight(everything())).tally.total, 2);
}

fn done(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..3);
    let replay = bench.replay(straight(everything())).id;
    bench.step(replay, 2);
    bench.end(letters[0], NextState::Delivered);
    bench.end(letters[1], poison("boom"));
    assert_eq!(bench.replay_now(replay).state, ReplayState::Running, "one has not been sent");
    bench.step(replay, 2);
    assert_eq!(bench.replay_now(replay).state, ReplayState::Running, "it is on its way");
    bench.wait(9);
    bench.end(letters[2], NextState::Delivered);
    let view = bench.replay_now(replay);
    assert_eq!((view.state, view.tally), (ReplayState::Done, tally(3, 3, 2, 1, 0)));
    assert_eq!(view.changed_at, bench.now);
    let (job, sent, waiting) = bench
        .advance(Advance { replay, sent_before: 3, letters_max: 9, wave: ReplayWave::Rest })
        .expect("it is remembered");
    assert_eq!((job.state, sent, waiting.len()), (ReplayState::Done, 0, 0));
    // A paused one is not done by itself, but as soon as it goes on.
    let more = bench.pile("svc", 10..11);
    let replay = bench.replay(straight(named(&more))).id;
    bench.step(replay, 1);
    bench.change(replay, ReplayAct::Pause).expect("it runs");
    bench.end(more[0], NextState::Delivered);
    assert_eq!(bench.replay_now(replay).state, ReplayState::Paused);
    bench.change(replay, ReplayAct::Resume).expect("it waits");
    bench.step(replay, 1);
    assert_eq!(bench.replay_now(replay).state, ReplayState::Done);
}

fn stops(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..3);
    let replay = bench.replay(canary(everything())).id;
    bench.step(replay, 2);
    bench.wait(2);
    let why = stop(bench, replay, letters[0]);
    let view = bench.replay_now(replay);
    assert_eq!((view.state, view.stop, view.tally.failed), (ReplayState::Stopped, Some(why), 1));
    assert_eq!(view.changed_at, bench.now);
    bench.crash();
    assert_eq!(bench.replay_now(replay), view);
    assert!(bench.step(replay, 2).is_empty());
    stop(bench, replay, letters[1]);
    assert_eq!(bench.replay_now(replay).stop, Some(why), "the first reason is the one that counts");
    let resumed = bench.change(replay, ReplayAct::Resume).expect("it has stopped");
    assert_eq!((resumed.state, resumed.stop, resumed.wave), (ReplayState::Running, None, ReplayWave::None));
    assert_eq!(ids(&bench.step(replay, 2)), ["2"]);
    let mut late = settlement(letters[0], 7, poison("boom"), bench.now);
    late.stop = Some(why);
    assert!(matches!(bench.settle(late), SettleResult::Stale));
    assert_eq!(bench.replay_now(replay).state, ReplayState::Running, "what is stale stops nothing");
}

fn recovery(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..6);
    let finished = bench.replay(straight(named(&letters[..1]))).id;
    bench.step(finished, 1);
    bench.end(letters[0], NextState::Delivered);
    let running = bench.replay(canary(named(&letters[1..4]))).id;
    bench.advance(Advance { replay: running, sent_before: 0, letters_max: 1, wave: ReplayWave::First });
    let paused = bench.replay(straight(named(&letters[4..5]))).id;
    bench.change(paused, ReplayAct::Pause).expect("it runs");
    let expected = [running, paused].map(|id| bench.replay_now(id).job());
    assert_eq!(bench.crash().replays, expected);
    assert_eq!(bench.restart(10).replays, expected);
    let waiting = bench.ready("svc");
    assert_eq!((ids(&waiting), waiting[0].replaying.map(|by| by.replay)), (vec!["1"], Some(running)));
    bench.end(letters[1], NextState::Delivered);
    assert_eq!(bench.replay_now(running).tally, tally(3, 1, 1, 0, 0));
    assert_eq!(ids(&bench.step(running, 10)), ["2", "3"]);
}

fn listed(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..5);
    for letter in &letters {
        bench.replay(straight(named(&[*letter])));
    }
    let shown = |before: Option<u64>, rows_max| {
        let replays = bench.reader().replays(before.map(ReplayId), rows_max).expect("it answers");
        replays.iter().map(|replay| replay.id.0).collect::<Vec<_>>()
    };
    assert_eq!(shown(None, 2), [5, 4]);
    assert_eq!(shown(Some(4), 2), [3, 2]);
    assert_eq!(shown(Some(2), 2), [1]);
    assert_eq!(shown(Some(1), 2), [0_u64; 0]);
    assert!(bench.reader().replay(ReplayId(9)).expect("it answers").is_none());
}

fn retries(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..1);
    let replay = bench.replay(straight(everything())).id;
    bench.step(replay, 1);
    for next in [NextState::Due { at: at(5) }, NextState::Starting, NextState::Ready] {
        bench.end(letters[0], next);
        assert_eq!(bench.now_at(letters[0]).replaying, Some(replay));
        assert_eq!(bench.replay_now(replay).tally, tally(1, 1, 0, 0, 0));
    }
    let waiting = bench.ready("svc").remove(0);
    assert_eq!((waiting.attempts, waiting.replaying.map(|by| by.times)), (3, Some(1)));
}
