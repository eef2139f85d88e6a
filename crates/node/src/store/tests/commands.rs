//! What else people and time do with dead letters: skip, purge, edit, import, retention; and the record of it.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::NextState;
use redrive_core::engine::attempt_record::{AttemptEnd, RecordedVerdict};
use redrive_core::event::Event;
use redrive_core::ids::{DeliveryId, Receipt, Seq};

use super::Scenario;
use super::bench::{BOOK, Bench, at, event, ids, in_session, keep, queue, story, to};
use super::desk::{death_of, events_of, everything, fails, foreign, holds, named, poison, straight};
use crate::store::letter::{
    CommandAnswer, CommandRefusal, EditCommand, ImportCounts, ImportedLetter, LetterCommand, LetterFilter,
    LetterKey, LetterNumber, Poison, ReplayAct, Selection, TREND_POINTS, TREND_SPAN,
};
use crate::store::{
    AcceptedEvent, DeliveryState, DeliveryStateName, EventKey, LetterClosure, Occurrence, RetentionRules,
    StateChange, SubmissionRefusal, WriteBatch,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a skipped letter is done with", skip),
    ("a purge deletes what is meant, in small steps, and is on record once", purge_steps),
    ("a purge takes poison where it is meant", purge_poison),
    ("a purge leaves only that there was a letter", purge_leaves),
    ("letters that a replay has claimed are not purged", purge_claimed),
    ("an edited letter goes out as a new event that is linked to the old", edit),
    ("an edit is refused where it makes no sense", edit_refused),
    ("an edited letter of a session goes before younger ones", edit_in_session),
    ("imported letters are letters", import),
    ("importing twice changes nothing", import_twice),
    ("a key that was imported for one service is new for another", import_per_service),
    ("an imported letter keeps its place among the others", import_numbers),
    ("an imported letter is kept for as long as one that died here", import_kept),
    ("an imported letter that was purged may come again", import_again),
    ("an imported event stands beside one of the same id", import_known_event),
    ("an imported event keeps none out that is sent", import_keeps_none_out),
    ("an imported letter holds nobody", import_strict),
    ("old letters are purged, by queue and type", retention),
    ("letters that hold or are claimed outlive their time", retention_spares),
    ("a great many old letters go in small steps", retention_many),
    ("what is done with goes like what was delivered", closed_go),
    ("kinds are forgotten with their trend", kinds_go),
    ("what is on record is listed, the latest first", records),
    ("orders of one batch see what those before them did", one_batch),
];

const HOUR: Duration = Duration::from_hours(1);

/// Keeps letters for so long.
fn letters_for(letters: Duration) -> RetentionRules {
    RetentionRules { letters: Arc::new(move |_, _| letters), ..keep(1_000 * HOUR, 1_000 * HOUR) }
}

fn skip_command(letter: DeliveryId) -> impl FnOnce(CommandAnswer<u64>) -> LetterCommand {
    move |answer| LetterCommand::Skip { letter, note: None, answer }
}

fn skip(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..2);
    let unknown = DeliveryId::new(Seq::new(99), 1);
    let delivered = bench.settled("svc", event("9"), NextState::Delivered);
    for stranger in [unknown, delivered, DeliveryId::new(letters[0].seq(), 0)] {
        assert_eq!(
            bench.order(skip_command(stranger)).expect_err("none"),
            CommandRefusal::NoSuchLetter(stranger)
        );
    }
    let answer = bench.order_and_see(skip_command(letters[0]));
    assert!(matches!(answer, (Ok(0), ref waiting) if waiting.is_empty()));
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["1"]);
    assert_eq!(
        bench.now_at(letters[0]).state,
        DeliveryState::Closed { at: bench.now, how: LetterClosure::Skipped }
    );
    let counts = bench.counts().queues[&*queue("svc")];
    assert_eq!((counts.dead, counts.closed, counts.waiting), (1, 1, 0));
    let late = super::bench::settlement(letters[0], 1, NextState::Delivered, bench.now);
    assert!(matches!(bench.settle(late), crate::store::SettleResult::Stale));
}

fn purge_steps(bench: &mut Bench) {
    bench.pile("svc", 0..10);
    bench.pile("other", 10..13);
    let filter = LetterFilter { service: Some("svc".to_owned()), ..LetterFilter::default() };
    let selection = Selection { filter, died_until: at(8), ..everything() };
    bench.wait(1);
    assert_eq!(bench.purge(&selection, 3), (8, 0), "those that died by then");
    assert_eq!(bench.letters(&LetterFilter::default()).len(), 5);
    let records = bench.reader().audit(None, 9).expect("it answers");
    let [record] = &records[..] else { panic!("one purge is one record: {records:?}") };
    assert_eq!((record.act.as_str(), record.what.as_str(), record.letters), ("purge", "some letters", 8));
    assert_eq!((record.note.as_deref(), record.at), (Some("tidying up"), bench.now));
    assert_eq!(bench.purge(&selection, 3), (0, 0));
    assert_eq!(bench.acts().len(), 1, "a purge that deletes nothing leaves no record");
    assert_eq!(bench.purge(&everything(), 1), (5, 0));
    assert_eq!(bench.acts(), [("purge".to_owned(), 8), ("purge".to_owned(), 5)]);
    let counts = bench.counts().queues[&*queue("svc")];
    assert_eq!((counts.dead, counts.closed), (0, 10));
}

fn purge_poison(bench: &mut Bench) {
    bench.settled("svc", event("1"), poison("boom"));
    bench.settled("svc", event("2"), fails("boom"));
    assert_eq!(bench.purge(&everything(), 9), (1, 0));
    let all = Selection { poison: Poison::Included, ..everything() };
    assert_eq!(bench.purge(&all, 9), (1, 0));
    let letters = bench.pile("svc", 10..13);
    assert_eq!(bench.purge(&named(&letters[1..]), 9), (2, 0), "by id too");
}

fn purge_leaves(bench: &mut Bench) {
    bench.note(StateChange::Book { hash: BOOK, text: "the book".into() });
    for hash in 0..20 {
        bench.note(StateChange::Book { hash, text: "another".into() });
    }
    let taken = bench.take(&[to("a b", event("both"))])[0];
    let (a, b) = (bench.ready("a")[0].id, bench.ready("b")[0].id);
    bench.end(a, NextState::Due { at: at(1) });
    bench.end(a, fails("boom"));
    bench.end(b, fails("boom"));
    bench.wait(2);
    assert_eq!(bench.purge(&named(&[a]), 9), (1, 0));
    let view = bench.now_at(a);
    assert_eq!(view.state, DeliveryState::Closed { at: bench.now, how: LetterClosure::Purged });
    assert!(view.stories.is_empty(), "its story is gone");
    let shown = |bench: &Bench| {
        bench.reader().events(&EventKey::Receipt(taken.receipt)).expect("it answers").remove(0)
    };
    assert_eq!(shown(bench).event.data, "both", "another delivery has need of them");
    bench.housekeep(&letters_for(1_000 * HOUR));
    assert!(bench.reader().book(BOOK).expect("it answers").is_some(), "a story still names it");
    assert_eq!(bench.purge(&everything(), 9), (1, 0));
    assert!(shown(bench).event.data.is_empty(), "now nobody has");
    assert_eq!(shown(bench).deliveries.len(), 2);
    assert_eq!(
        bench.submit(&[to("a", event("both"))]),
        Ok(vec![AcceptedEvent { seen: Occurrence::Duplicate, ..taken }])
    );
    let other = Event { data: "x".into(), ..event("both") };
    let conflict = SubmissionRefusal::Conflict { index: 0, first: Some(taken.receipt) };
    assert_eq!(bench.submit(&[to("a", other)]), Err(conflict), "the id is remembered with its content");
    bench.housekeep(&letters_for(1_000 * HOUR));
    assert!(bench.reader().book(BOOK).expect("it answers").is_none(), "no story names it any more");
    bench.audit();
    // One that was delivered elsewhere keeps its data.
    bench.take(&[to("a b", event("half"))]);
    let (a, b) = (bench.ready("a")[0].id, bench.ready("b")[0].id);
    bench.end(a, fails("boom"));
    bench.end(b, NextState::Delivered);
    bench.purge(&everything(), 9);
    let events = bench.reader().events(&EventKey::Id("half".to_owned())).expect("it answers");
    assert_eq!(events[0].event.data, "half");
}

fn purge_claimed(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..6);
    let replay = bench.replay(straight(named(&letters[1..3]))).id;
    assert_eq!(bench.purge(&everything(), 2), (4, 2));
    assert_eq!(ids(&bench.step(replay, 9)), ["1", "2"], "the replay goes on");
    bench.end(letters[1], fails("boom"));
    assert_eq!(bench.purge(&everything(), 2), (1, 0), "what came back is nobody's");
    bench.end(letters[2], NextState::Delivered);
    bench.audit();
}

fn edit_command(
    letter: DeliveryId,
    event: Event,
) -> impl FnOnce(CommandAnswer<(Receipt, DeliveryId)>) -> LetterCommand {
    let edit = EditCommand { letter, event: Arc::new(event), note: Some("a typo".to_owned()) };
    move |answer| LetterCommand::Edit(Box::new(edit), answer)
}

fn edit(bench: &mut Bench) {
    let old = bench.settled("svc/x", event("old"), fails("boom"));
    let old_receipt = bench.now_at(old).receipt;
    bench.wait(4);
    let changed = Event { data: "corrected".into(), ..event("new") };
    let (answer, waiting) = bench.order_and_see(edit_command(old, changed.clone()));
    let (receipt, delivery) = answer.expect("it is free");
    let [sent] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((sent.id, &*sent.event, &sent.queue), (delivery, &changed, &queue("svc/x")));
    assert_eq!((sent.attempts, sent.replaying, sent.sequence, sent.written_at), (0, None, None, bench.now));
    assert_eq!(bench.ready("svc/x"), waiting);
    let (new, old) = (bench.now_at(delivery), bench.now_at(old));
    let superseded = LetterClosure::Superseded { by: receipt };
    assert_eq!(old.state, DeliveryState::Closed { at: bench.now, how: superseded });
    assert_eq!((new.supersedes, old.supersedes), (Some(old_receipt), None));
    assert_eq!((new.receipt, new.subscription, new.replays), (receipt, old.subscription, 0));
    assert_eq!(old.stories.len(), 1, "the old story stays");
    assert!(bench.letters(&LetterFilter::default()).is_empty());
    let counts = bench.counts().queues[&*queue("svc/x")];
    assert_eq!((counts.dead, counts.closed, counts.waiting, counts.waiting_bytes), (0, 1, 1, 9));
    assert_eq!(bench.counts().events, 2);
    let record = &bench.reader().audit(None, 9).expect("it answers")[0];
    assert_eq!((record.act.as_str(), record.letters, record.note.as_deref()), ("edit", 1, Some("a typo")));
    let again = bench.submit(&[to("svc", changed)]).expect("it is known");
    assert_eq!((again[0].seen, again[0].receipt, again[0].deliveries), (Occurrence::Duplicate, receipt, 1));
    bench.crash();
    bench.end(delivery, fails("boom"));
    assert_eq!(bench.now_at(delivery).supersedes, Some(old_receipt));
    let (answer, _) = bench.order_and_see(edit_command(delivery, event("newer")));
    assert!(answer.is_ok(), "an edited one can be edited");
    let twice = bench.now_at(delivery);
    assert!(matches!(twice.state, DeliveryState::Closed { how: LetterClosure::Superseded { .. }, .. }));
}

fn edit_refused(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..3);
    let unknown = DeliveryId::new(Seq::new(99), 1);
    let refused = bench.order(edit_command(unknown, event("new"))).expect_err("none");
    assert_eq!(refused, CommandRefusal::NoSuchLetter(unknown));
    let first = bench.now_at(letters[1]).receipt;
    let refused = bench.order(edit_command(letters[0], event("1"))).expect_err("it is known");
    assert_eq!(refused, CommandRefusal::EventExists(first));
    let replay = bench.replay(straight(named(&letters[2..]))).id;
    let refused = bench.order(edit_command(letters[2], event("new"))).expect_err("it is claimed");
    assert_eq!(refused, CommandRefusal::Claimed { letter: letters[2], replay });
    assert_eq!((bench.counts().events, bench.acts().len()), (3, 1), "nothing has changed");
    bench.step(replay, 1);
    let refused = bench.order(edit_command(letters[2], event("new"))).expect_err("it is on its way");
    assert_eq!(refused, CommandRefusal::NoSuchLetter(letters[2]));
    assert_eq!(bench.take(&[to("svc", event("new"))])[0].seen, Occurrence::First, "the id is free");
}

fn edit_in_session(bench: &mut Bench) {
    let old = bench.settled("ord", in_session("old", "s"), fails("boom"));
    let live = bench.accept(to("ord", in_session("1", "s"))).remove(0).id;
    bench.accept(to("ord", in_session("2", "s")));
    let (answer, waiting) = bench.order_and_see(edit_command(old, in_session("new", "s")));
    let (_, delivery) = answer.expect("it is free");
    assert!(waiting.is_empty(), "it waits for the one in flight");
    bench.audit();
    bench.crash();
    let next = bench.end(live, NextState::Delivered).expect("the session goes on");
    assert_eq!((next.id, next.sequence), (delivery, Some(old.seq())));
    assert_eq!(bench.end(delivery, fails("boom")).expect("it goes on").event.id.as_str(), "2");
    let replay = bench.replay(straight(everything())).id;
    assert!(bench.step(replay, 9).is_empty());
    bench.accept(to("ord", in_session("3", "s")));
    let two = bench.ready("ord")[0].id;
    assert_eq!(
        bench.end(two, NextState::Delivered).expect("it goes on").id,
        delivery,
        "it keeps the old place"
    );
}

fn imported(bench: &mut Bench, letters: &[ImportedLetter]) -> (u64, u64) {
    let done = bench.order(|answer| LetterCommand::Import(letters.to_vec(), answer));
    let ImportCounts { new, known } = done.expect("it is taken");
    (new, known)
}

fn import(bench: &mut Bench) {
    bench.wait(1_000);
    let failed = |attempt| {
        let end = AttemptEnd::Delivered { status: Some(204), message: String::new() };
        story(attempt, end, RecordedVerdict::Retry { due_at: at(9) })
    };
    let first = ImportedLetter {
        attempts: 5,
        stories: vec![failed(4), failed(5)],
        replays: 2,
        ..foreign("new/x", in_session("1", "s"), at(10))
    };
    let second = foreign("svc", event("2"), at(20));
    assert_eq!(imported(bench, &[first.clone(), second]), (2, 0));
    let key = LetterKey::Imported("theirs-1".to_owned());
    let letter = bench.reader().letter(&key).expect("it answers").expect("it is there");
    assert_eq!((letter.died_at, letter.number, letter.replays), (at(10), LetterNumber(at(10).as_nanos()), 2));
    assert_eq!((&letter.death, letter.imported_as.as_deref()), (&first.death, Some("theirs-1")));
    assert_eq!((&letter.event, letter.holds), (&first.event, None));
    let view = &letter.delivery;
    assert_eq!(
        (view.attempts, &view.stories, view.queue.to_string()),
        (5, &first.stories, "new/x".to_owned())
    );
    assert_eq!((&*view.subscription, view.replays), ("new/x wants it", 2));
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["2", "1"]);
    let counts = bench.counts();
    assert_eq!((counts.events, counts.queues[&*queue("new/x")].dead), (2, 1));
    assert_eq!(bench.acts(), [("import".to_owned(), 2)]);
    bench.audit();
    bench.crash();
    let replay = bench.replay(straight(everything())).id;
    let sent = bench.step(replay, 9);
    assert_eq!(ids(&sent), ["1", "2"]);
    assert_eq!((sent[0].attempts, sent[0].replaying.map(|by| by.times)), (5, Some(3)));
    bench.end(sent[0].id, NextState::Delivered);
    assert_eq!(bench.now_at(sent[0].id).stories.len(), 3);
    assert!(bench.reader().letter(&key).expect("it answers").is_none(), "it is no letter any more");
}

fn import_per_service(bench: &mut Bench) {
    let theirs = foreign("ord", event("1"), at(0));
    let ours = foreign("svc", event("1"), at(0));
    assert_eq!(theirs.key, ours.key);
    assert_eq!(imported(bench, std::slice::from_ref(&theirs)), (1, 0));
    assert_eq!(
        imported(bench, std::slice::from_ref(&ours)),
        (1, 0),
        "another service's import swallows nothing"
    );
    bench.crash();
    assert_eq!(imported(bench, &[theirs, ours]), (0, 2), "each is known within its service");
    let letters = bench.letters(&LetterFilter::default());
    assert!(letters.iter().all(|letter| letter.imported_as.as_deref() == Some("theirs-1")), "{letters:?}");
    bench.audit();
}

fn import_twice(bench: &mut Bench) {
    let letters = [foreign("svc", event("1"), at(0)), foreign("svc", event("2"), at(0))];
    assert_eq!(imported(bench, &letters), (2, 0));
    let before = format!("{:?}", (bench.all(), bench.counts(), bench.acts()));
    assert_eq!(imported(bench, &letters), (0, 2));
    bench.crash();
    assert_eq!(imported(bench, &letters[1..]), (0, 1));
    assert_eq!(format!("{:?}", (bench.all(), bench.counts(), bench.acts())), before);
    let twice = [foreign("svc", event("3"), at(0)), foreign("svc", event("3"), at(0))];
    assert_eq!(imported(bench, &twice), (1, 1), "within one file too");
    let replay = bench.replay(straight(everything())).id;
    for waiting in bench.step(replay, 9) {
        bench.end(waiting.id, NextState::Delivered);
    }
    assert_eq!(imported(bench, &letters), (0, 2), "also when they have been delivered");
    let own = bench.settled("svc", event("own"), fails("boom"));
    let ours = ImportedLetter { key: own.to_string(), ..foreign("svc", event("own"), at(0)) };
    assert_eq!(imported(bench, &[ours]), (0, 1), "our own letters are known by their ids");
    let strange = DeliveryId::new(own.seq(), !own.content()).to_string();
    let strange = ImportedLetter { key: strange, ..foreign("svc", event("else"), at(0)) };
    assert_eq!(imported(bench, &[strange]), (1, 0), "an id that is not ours is a key like any other");
    assert_eq!(imported(bench, &[]), (0, 0));
}

fn import_numbers(bench: &mut Bench) {
    bench.wait(100);
    bench.settled("svc", event("here"), fails("boom"));
    let theirs = [
        foreign("svc", event("a"), at(50)),
        foreign("svc", event("b"), at(50)),
        foreign("svc", event("c"), at(40)),
        foreign("svc", event("d"), at(100)),
    ];
    imported(bench, &theirs);
    bench.settled("svc", event("later"), fails("boom"));
    let letters = bench.letters(&LetterFilter::default());
    assert_eq!(events_of(&letters), ["later", "d", "here", "b", "a", "c"]);
    let then = LetterFilter { from: Some(at(50)), until: Some(at(51)), ..LetterFilter::default() };
    assert_eq!(events_of(&bench.letters(&then)), ["b", "a"]);
    let ids: Vec<_> = letters.iter().filter(|letter| letter.imported_as.is_some()).collect();
    assert_eq!(ids.len(), 4);
}

fn import_kept(bench: &mut Bench) {
    bench.wait(10 * 3_600);
    let theirs = [foreign("svc", event("1"), at(10)), foreign("svc", event("2"), at(20))];
    assert_eq!(imported(bench, &theirs), (2, 0));
    bench.settled("svc", event("here"), fails("it broke there"));
    let keep = letters_for(HOUR);
    assert_eq!(bench.letters_deleted(&keep), 0, "they have just come");
    bench.wait(1_800);
    assert_eq!(imported(bench, &[foreign("svc", event("3"), at(15))]), (1, 0));
    bench.wait(1_799);
    assert_eq!(bench.letters_deleted(&keep), 0, "not yet");
    bench.wait(1);
    assert_eq!(bench.letters_deleted(&keep), 3, "those that came later are passed over");
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["3"]);
    assert_eq!(imported(bench, &theirs[..1]), (1, 0), "what is gone may come again");
    assert_eq!(bench.letters_deleted(&keep), 0, "and stays as long again");
    bench.wait(3_600);
    assert_eq!(bench.letters_deleted(&keep), 2);
}

fn import_again(bench: &mut Bench) {
    let letters = [foreign("svc", event("1"), at(0)), foreign("svc", event("2"), at(0))];
    assert_eq!(imported(bench, &letters), (2, 0));
    let key = LetterKey::Imported("theirs-1".to_owned());
    let shown = |bench: &Bench| bench.reader().letter(&key).expect("it answers");
    let first = shown(bench).expect("it is there").delivery.id;
    assert_eq!(bench.purge(&named(&[first]), 9), (1, 0));
    assert!(shown(bench).is_none());
    assert_eq!(imported(bench, &letters), (1, 1));
    bench.audit();
    let second = shown(bench).expect("it is there again");
    assert!(second.delivery.id != first && second.event.data == "1");
    assert_eq!(imported(bench, &letters), (0, 2), "once");
    // What is left of the first one goes, and the key stays with the second.
    bench.wait(3_600);
    bench.housekeep(&keep(HOUR, HOUR));
    assert_eq!(imported(bench, &letters), (0, 2));
    let own = bench.settled("svc", event("own"), fails("boom"));
    assert_eq!(bench.purge(&named(&[own]), 9), (1, 0));
    let ours = ImportedLetter { key: own.to_string(), ..foreign("svc", event("own"), at(0)) };
    assert_eq!(imported(bench, std::slice::from_ref(&ours)), (1, 0), "our own may come back too");
    assert_eq!(imported(bench, &[ours]), (0, 1));
}

fn import_known_event(bench: &mut Bench) {
    let taken = bench.take(&[to("a", event("1"))])[0];
    let theirs = ImportedLetter {
        event: Arc::new(Event { data: "other".into(), ..event("1") }),
        ..foreign("b", event("1"), at(0))
    };
    assert_eq!(imported(bench, &[theirs]), (1, 0));
    let letter = bench.reader().letter(&LetterKey::Imported("theirs-1".to_owned())).expect("it answers");
    let letter = letter.expect("it is there");
    assert_eq!((letter.event.data.len(), letter.delivery.event_id.as_str()), (5, "1"));
    let events = bench.reader().events(&EventKey::Receipt(letter.delivery.receipt)).expect("it answers");
    assert_eq!(events[0].event, letter.event, "it is found by its receipt");
    let events = bench.reader().events(&EventKey::Id("1".to_owned())).expect("it answers");
    assert_eq!(events.iter().map(|view| view.event.data.len()).collect::<Vec<_>>(), [1, 5], "and by its id");
    assert_eq!(
        bench.submit(&[to("a", event("1"))]),
        Ok(vec![AcceptedEvent { seen: Occurrence::Duplicate, ..taken }])
    );
    bench.audit();
    // The first one keeps its id when the imported one has gone.
    bench.purge(&everything(), 9);
    bench.wait(3_600);
    bench.housekeep(&keep(HOUR, HOUR));
    assert_eq!(
        bench.submit(&[to("a", event("1"))]),
        Ok(vec![AcceptedEvent { seen: Occurrence::Duplicate, ..taken }])
    );
    assert_eq!(bench.reader().events(&EventKey::Id("1".to_owned())).expect("it answers").len(), 1);
    assert_eq!(bench.ready("a")[0].event.id.as_str(), "1");
}

fn import_keeps_none_out(bench: &mut Bench) {
    let theirs = |data: &'static str, key: &str| ImportedLetter {
        event: Arc::new(Event { data: data.into(), ..event("1") }),
        key: key.to_owned(),
        ..foreign("b", event("1"), at(0))
    };
    assert_eq!(imported(bench, &[theirs("forged", "k"), theirs("1", "same")]), (2, 0));
    bench.crash();
    // Its key is given to another letter, and what is left of it still counts for nothing.
    let key = LetterKey::Imported("k".to_owned());
    let first = bench.reader().letter(&key).expect("it answers").expect("it is there").delivery.id;
    assert_eq!(bench.purge(&named(&[first]), 9), (1, 0));
    assert_eq!(
        imported(bench, &[ImportedLetter { key: "k".to_owned(), ..foreign("b", event("2"), at(0)) }]),
        (1, 0)
    );
    let taken = bench.take(&[to("a", event("1"))])[0];
    assert_eq!((taken.seen, taken.deliveries), (Occurrence::First, 1));
    assert_eq!(
        bench.submit(&[to("a", event("1"))]),
        Ok(vec![AcceptedEvent { seen: Occurrence::Duplicate, ..taken }])
    );
    bench.audit();
    // Nor does its id when nothing else is left of it.
    bench.purge(&everything(), 9);
    bench.wait(3_600);
    bench.housekeep(&keep(HOUR, 100 * HOUR));
    let taken = bench.take(&[to("a", event("2"))])[0];
    assert_eq!(taken.seen, Occurrence::First);
    bench.audit();
}

fn import_strict(bench: &mut Bench) {
    let theirs = foreign("strict", in_session("1", "s"), at(0));
    let death = redrive_core::engine::DeadLetterInfo {
        followers: redrive_core::engine::SessionFollowers::Wait,
        ..theirs.death.clone()
    };
    imported(bench, &[ImportedLetter { death, ..theirs }]);
    assert_eq!(bench.letters(&LetterFilter::default())[0].holds, None);
    assert_eq!(ids(&bench.accept(to("strict", in_session("2", "s")))), ["2"], "the session is free");
    let replay = bench.replay(straight(everything())).id;
    assert!(bench.step(replay, 9).is_empty(), "but it has a place there");
    let two = bench.ready("strict")[0].id;
    assert_eq!(bench.end(two, NextState::Delivered).expect("its turn").event.id.as_str(), "1");
}

fn retention(bench: &mut Bench) {
    bench.wait(1);
    bench.settled("svc", event("1"), fails("boom"));
    bench.settled("svc/x", event("2"), fails("boom"));
    bench.settled("svc", event("3"), poison("bang"));
    bench.wait(1_800);
    bench.settled("svc", event("4"), fails("boom"));
    let by_queue = |name: &redrive_core::engine::QueueName, _: &str| match &name.channel {
        Some(_) => 2 * HOUR,
        None => HOUR,
    };
    let keep = RetentionRules { letters: Arc::new(by_queue), ..letters_for(HOUR) };
    bench.wait(1_799);
    bench.housekeep(&keep);
    assert_eq!(bench.letters(&LetterFilter::default()).len(), 4, "not yet");
    bench.wait(1);
    assert_eq!(bench.letters_deleted(&keep), 2);
    bench.audit();
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["4", "2"], "poison goes too");
    let one = bench.reader().events(&EventKey::Id("1".to_owned())).expect("it answers").remove(0);
    assert!(one.event.data.is_empty() && one.deliveries[0].stories.is_empty());
    assert!(matches!(one.deliveries[0].state, DeliveryState::Closed { how: LetterClosure::Purged, .. }));
    let records = bench.reader().audit(None, 9).expect("it answers");
    let told: Vec<_> = records.iter().map(|one| (one.act.as_str(), one.what.as_str(), one.letters)).collect();
    assert_eq!(told, [("retention", "svc", 2)]);
    bench.wait(3_600);
    assert_eq!(bench.letters_deleted(&keep), 2);
    assert!(bench.letters(&LetterFilter::default()).is_empty());
    let mut told: Vec<_> = bench.reader().audit(None, 9).expect("it answers");
    told.sort_by_key(|one| (one.what.clone(), one.number));
    assert_eq!(
        told.iter().map(|one| one.letters).collect::<Vec<_>>(),
        [2, 1, 1],
        "an hour later it is another"
    );
    assert_eq!(bench.take(&[to("svc", event("1"))])[0].seen, Occurrence::Duplicate);
}

fn retention_spares(bench: &mut Bench) {
    let holder = bench.settled("strict", in_session("holds", "s"), holds("boom"));
    bench.take(&[to("strict", in_session("behind", "s"))]);
    let letters = bench.pile("svc", 0..4);
    let replay = bench.replay(straight(named(&letters[..2]))).id;
    bench.wait(10 * 3_600);
    let keep = letters_for(HOUR);
    assert_eq!(bench.letters_deleted(&keep), 2, "those after them go");
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["1", "0", "holds"]);
    assert_eq!(bench.letters_deleted(&keep), 0, "and it comes to an end");
    bench.change(replay, ReplayAct::Cancel).expect("it runs");
    assert_eq!(bench.letters_deleted(&keep), 2);
    bench.order(|answer| LetterCommand::ReleaseSession { letter: holder, answer }).expect("it holds");
    assert_eq!(bench.letters_deleted(&keep), 1);
    bench.audit();
}

fn retention_many(bench: &mut Bench) {
    let sent: Vec<_> = (0..1_300).map(|id| to("svc", event(&id.to_string()))).collect();
    let each = sent.into_iter().map(|one| crate::store::Submission { events: vec![one] });
    let waiting = bench.write(&WriteBatch { submissions: each.collect(), ..WriteBatch::default() }).waiting;
    let settle = |one: &redrive_core::engine::PendingDelivery| {
        Arc::new(super::bench::settlement(one.id, 0, fails("boom"), bench.now))
    };
    let settlements = waiting.iter().map(settle).collect();
    bench.write(&WriteBatch { settlements, ..WriteBatch::default() });
    bench.wait(7_200);
    let (keep, now) = (letters_for(HOUR), bench.now);
    let chores = bench.store().housekeep(&keep, now).expect("it can");
    assert!(chores.more && (1..=512).contains(&chores.letters_deleted), "{chores:?}");
    assert_eq!(chores.letters_deleted + bench.letters_deleted(&keep), 1_300);
    assert_eq!(bench.acts(), [("retention".to_owned(), 1_300)], "one record an hour");
    assert_eq!(bench.counts().queues[&*queue("svc")].closed, 1_300);
}

fn closed_go(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..3);
    bench.order(skip_command(letters[0])).expect("it is free");
    bench.purge(&named(&letters[1..2]), 9);
    bench.order(edit_command(letters[2], event("new"))).expect("it is free");
    let new = bench.ready("svc")[0].id;
    bench.wait(3_599);
    let an_hour = RetentionRules { letters: letters_for(HOUR).letters, ..keep(HOUR, 24 * HOUR) };
    assert_eq!(bench.housekeep(&an_hour), 0, "not yet");
    bench.wait(1);
    assert_eq!(bench.housekeep(&an_hour), 3);
    bench.audit();
    assert_eq!(bench.all().len(), 1);
    let view = bench.now_at(new);
    assert_eq!(
        (view.state.name(), view.supersedes.map(Receipt::seq)),
        (DeliveryStateName::Ready, Some(Seq::new(5)))
    );
    assert_eq!(
        bench.take(&[to("svc", event("0"))])[0].seen,
        Occurrence::Duplicate,
        "its id stays for longer"
    );
    bench.end(new, NextState::Delivered);
    bench.wait(3_600);
    assert_eq!(bench.housekeep(&an_hour), 1);
    bench.wait(24 * 3_600);
    bench.housekeep(&an_hour);
    assert_eq!(bench.take(&[to("svc", event("0"))])[0].seen, Occurrence::First);
}

fn kinds_go(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..2);
    bench.order(skip_command(letters[0])).expect("it is free");
    let day = TREND_SPAN.as_secs() * TREND_POINTS as u64;
    bench.wait(day + TREND_SPAN.as_secs());
    bench.housekeep(&letters_for(1_000 * HOUR));
    let kinds = bench.reader().kinds(&LetterFilter::default()).expect("it answers");
    assert_eq!(kinds.len(), 1, "it has a letter still");
    bench.order(skip_command(letters[1])).expect("it is free");
    bench.housekeep(&letters_for(1_000 * HOUR));
    bench.settled("svc", event("9"), fails("bang"));
    let kinds = bench.reader().kinds(&LetterFilter::default()).expect("it answers");
    assert_eq!(kinds.iter().map(|kind| kind.fingerprint).collect::<Vec<_>>(), [death_of("bang").fingerprint]);
    bench.audit();
}

fn records(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..4);
    for letter in &letters {
        bench.wait(1);
        bench.order(skip_command(*letter)).expect("it is free");
    }
    let shown = |bench: &Bench, before: Option<u64>, rows_max| {
        let records = bench.reader().audit(before, rows_max).expect("it answers");
        records.iter().map(|record| record.number).collect::<Vec<_>>()
    };
    let first = shown(bench, None, 3);
    assert!(first.is_sorted_by(|later, earlier| later > earlier) && first.len() == 3, "{first:?}");
    assert_eq!(shown(bench, Some(first[2]), 3).len(), 1);
    bench.crash();
    assert_eq!(shown(bench, None, 3), first);
    assert_eq!(bench.reader().audit(None, 1).expect("it answers")[0].at, bench.now);
}

fn one_batch(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..3);
    let (replays, skips) =
        ([(); 2].map(|()| CommandAnswer::default()), [(); 2].map(|()| CommandAnswer::default()));
    let commands = [
        LetterCommand::Replay(Box::new(straight(named(&letters[..1]))), replays[0].clone()),
        skip_command(letters[0])(skips[0].clone()),
        skip_command(letters[1])(skips[1].clone()),
        LetterCommand::Replay(Box::new(straight(everything())), replays[1].clone()),
    ];
    let dying = bench.accept(to("svc", event("9"))).remove(0).id;
    let settled = super::bench::settlement(dying, 0, fails("boom"), bench.now);
    let advance = redrive_core::engine::Advance {
        replay: redrive_core::letters::replay::ReplayId(2),
        sent_before: 0,
        letters_max: 9,
        wave: redrive_core::letters::replay::ReplayWave::Rest,
    };
    let batch = WriteBatch {
        settlements: vec![Arc::new(settled)],
        commands: commands.map(Into::into).into(),
        advances: vec![advance],
        ..WriteBatch::default()
    };
    let written = bench.write(&batch);
    assert_eq!(replays.map(|answer| answer.take().is_err()), [false, false]);
    assert_eq!(skips.map(|answer| answer.take().is_err()), [true, false]);
    assert_eq!(ids(&written.waiting), ["2", "9"], "one that died in the same batch is there too");
    assert_eq!(written.advanced[0].as_ref().map(|(job, sent)| (job.tally.total, *sent)), Some((2, 2)));
}
