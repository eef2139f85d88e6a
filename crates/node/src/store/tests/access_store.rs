//! What is kept for the doors: keys, refused bodies, memos, who did what, and accepted events in their order.

use std::time::Duration;

use bytes::Bytes;
use redrive_core::access::{AccessScope, Role};
use redrive_core::event::Event;
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;

use super::bench::{Bench, at, event, keep, to};
use super::desk::{everything, fails, foreign, named, straight};
use super::{Scenario, folder};
use crate::store::access_store::{
    AuditActor, AuditEntry, KEYS_MAX, KeyRecord, REFUSED_BODY_BYTES_MAX, REFUSED_BYTES_MAX, REFUSED_MAX,
    RefusedBody,
};
use crate::store::letter::{
    CommandAnswer, CommandRequest, EditCommand, LetterCommand, PurgeCommand, ReplayAct,
};
use crate::store::sqlite::{Sqlite, write_once};
use crate::store::{StateChange, StoreError, WriteBatch};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a key replaces the one with its id and keeps its place", keys_replace),
    ("keys are remembered as they were", keys_remembered),
    ("one key too many changes nothing", keys_bounded),
    ("refused bodies are listed without their bytes, the latest first", refused_listed),
    ("no more of a refused body is kept than may be", refused_cut),
    ("the oldest refused bodies go when there are too many", refused_bounded),
    ("refused bodies that are large go earlier", refused_bounded_by_bytes),
    ("a memo is what was said last, over a restart", memos_remembered),
    ("a memo cannot touch what the store remembers for itself", memos_apart),
    ("what was done elsewhere is on record with who did it", deeds),
    ("an order is on record with who gave it, and with nobody else's", orders_by),
    ("what happens by itself is nobody's", automatic),
    ("accepted events come in their order, page by page", accepted_pages),
    ("a page of accepted events is bounded by bytes, but for its first", accepted_bytes),
    ("events whose data are deleted are left out, and empty ones are not", accepted_deleted),
    ("what comes in between two pages is on a later one", accepted_stable),
    ("accepted events are those of letters from elsewhere and of edits too", accepted_all),
];

/// A key of that id.
pub(super) fn key(id: &str, name: &str, created_at: Timestamp) -> KeyRecord {
    KeyRecord {
        id: id.to_owned(),
        name: name.to_owned(),
        hash: [7; 32],
        role: Role::Ingest,
        scope: AccessScope { sources: vec!["shop".to_owned()], services: Vec::new() },
        per_second: Some(2.5),
        created_at,
        expires_at: Some(at(500)),
        revoked_at: None,
    }
}

/// A refused body of so many bytes.
pub(super) fn refused(source: &str, bytes: usize) -> StateChange {
    StateChange::Refused(Box::new(RefusedBody {
        number: 0,
        at: Timestamp::EPOCH,
        source: source.to_owned(),
        reason: "no id".to_owned(),
        headers: vec![("x-kind".to_owned(), "ö".to_owned())],
        body: Bytes::from(vec![7; bytes]),
        body_bytes: bytes as u64,
    }))
}

/// All that a reader can see of what is kept for the doors.
pub(super) fn seen(bench: &Bench) -> Vec<String> {
    let reader = bench.reader();
    let mut seen = vec![
        format!("keys {:?}", reader.keys().expect("it answers")),
        format!("last place {:?}", reader.last_place().expect("it answers")),
        format!("seed {}", reader.seed().expect("it answers")),
        format!("refused {:?}", reader.refused(None, 50).expect("it answers")),
        format!("refused body {:?}", reader.refused_body(2).expect("it answers")),
    ];
    for name in ["0", "1", "2"] {
        seen.push(format!("memo {:?}", reader.memo(name).expect("it answers")));
    }
    for (after, bytes_max) in [(0, usize::MAX), (9, 20)] {
        seen.push(format!(
            "accepted {:?}",
            reader.events_after(Seq::new(after), 9, bytes_max).expect("it answers")
        ));
    }
    seen
}

fn keys_of(bench: &Bench) -> Vec<(String, String)> {
    let keys = bench.reader().keys().expect("it answers");
    keys.into_iter().map(|key| (key.id, key.name)).collect()
}

fn keys_replace(bench: &mut Bench) {
    for (id, name) in [("b", "first"), ("a", "second"), ("b", "third")] {
        bench.note(StateChange::Key(Box::new(key(id, name, bench.now))));
    }
    let expected = [("b", "third"), ("a", "second")];
    assert_eq!(keys_of(bench), expected.map(|(id, name)| (id.to_owned(), name.to_owned())));
}

fn keys_remembered(bench: &mut Bench) {
    let one = key("a", "deploy", at(3));
    let other = KeyRecord {
        role: Role::Admin,
        scope: AccessScope::default(),
        per_second: None,
        expires_at: None,
        revoked_at: Some(at(9)),
        ..key("b", "é \"quoted\"", at(4))
    };
    for key in [&one, &other] {
        bench.note(StateChange::Key(Box::new(key.clone())));
    }
    bench.crash();
    assert_eq!(bench.reader().keys().expect("it answers"), [one, other]);
}

fn keys_bounded(bench: &mut Bench) {
    let notes =
        (0..=KEYS_MAX).map(|number| StateChange::Key(Box::new(key(&number.to_string(), "one", at(0)))));
    bench.write(&WriteBatch { changes: notes.collect(), ..WriteBatch::default() });
    let keys = keys_of(bench);
    assert_eq!((keys.len(), keys[KEYS_MAX - 1].0.as_str()), (KEYS_MAX, "9999"));
    bench.note(StateChange::Key(Box::new(key("5", "changed", at(0)))));
    assert_eq!(keys_of(bench)[5], ("5".to_owned(), "changed".to_owned()), "those there are can still change");
}

fn refused_listed(bench: &mut Bench) {
    for source in ["a", "b", "c"] {
        bench.wait(1);
        bench.note(refused(source, 3));
    }
    let sources = |before, rows_max| {
        let found = bench.reader().refused(before, rows_max).expect("it answers");
        assert!(found.iter().all(|one| one.body.is_empty() && one.body_bytes == 3));
        found.into_iter().map(|one| (one.number, one.source)).collect::<Vec<_>>()
    };
    assert_eq!(sources(None, 2), [(3, "c".to_owned()), (2, "b".to_owned())]);
    assert_eq!(sources(Some(2), 9), [(1, "a".to_owned())]);
    let body = bench.reader().refused_body(2).expect("it answers").expect("it is there");
    assert_eq!((&body.body[..], body.at, body.reason.as_str()), (&[7; 3][..], at(2), "no id"));
    assert_eq!(body.headers, [("x-kind".to_owned(), "ö".to_owned())]);
    for number in [0, 4, u64::MAX] {
        assert_eq!(bench.reader().refused_body(number).expect("it answers"), None);
    }
}

fn refused_cut(bench: &mut Bench) {
    bench.note(refused("a", REFUSED_BODY_BYTES_MAX + 9));
    let body = bench.reader().refused_body(1).expect("it answers").expect("it is there");
    assert_eq!(
        (body.body.len(), body.body_bytes),
        (REFUSED_BODY_BYTES_MAX, REFUSED_BODY_BYTES_MAX as u64 + 9)
    );
}

fn refused_bounded(bench: &mut Bench) {
    let notes = (0..REFUSED_MAX + 7).map(|_| refused("a", 1));
    bench.write(&WriteBatch { changes: notes.collect(), ..WriteBatch::default() });
    let found = bench.reader().refused(None, 2 * REFUSED_MAX).expect("it answers");
    let numbers = (found.first().expect("some").number, found.last().expect("some").number);
    assert_eq!((found.len(), numbers), (REFUSED_MAX, (1_007, 8)));
}

fn refused_bounded_by_bytes(bench: &mut Bench) {
    let fits = REFUSED_BYTES_MAX / REFUSED_BODY_BYTES_MAX;
    bench.note(refused("small", 1));
    for _ in 0..fits {
        bench.note(refused("large", REFUSED_BODY_BYTES_MAX));
    }
    let found = bench.reader().refused(None, 2 * fits).expect("it answers");
    // Headers count too, so one less fits than bodies alone would.
    assert_eq!((found.len(), found[0].number), (fits - 1, fits as u64 + 1));
    assert!(found.iter().all(|one| one.source == "large"));
}

fn memo(name: &str, value: Option<&str>) -> StateChange {
    StateChange::Memo { name: name.to_owned(), value: value.map(str::to_owned) }
}

fn memos_remembered(bench: &mut Bench) {
    let said = |bench: &Bench, name: &str| bench.reader().memo(name).expect("it answers");
    assert_eq!(said(bench, "schedule:a"), None);
    bench.note(memo("schedule:a", Some("1")));
    bench.note(memo("schedule:b", Some("")));
    bench.note(memo("schedule:a", Some("2")));
    bench.crash();
    assert_eq!(said(bench, "schedule:a").as_deref(), Some("2"));
    assert_eq!(said(bench, "schedule:b").as_deref(), Some(""));
    bench.note(memo("schedule:a", None));
    bench.note(memo("never", None));
    bench.restart(1);
    assert_eq!(said(bench, "schedule:a"), None);
}

fn memos_apart(bench: &mut Bench) {
    bench.note(StateChange::Absence { from: bench.now });
    for name in ["absences", "crashes", "owed"] {
        assert_eq!(bench.reader().memo(name).expect("it answers"), None);
        bench.note(memo(name, Some("no list")));
    }
    bench.wait(5);
    let recovered = bench.crash();
    assert_eq!((recovered.crashes.len(), recovered.owed.len()), (1, 0));
    assert_eq!(bench.reader().memo("owed").expect("it answers").as_deref(), Some("no list"));
}

fn deed(act: &'static str, what: &str, by: AuditActor, note: Option<&str>) -> StateChange {
    StateChange::Audit(Box::new(AuditEntry { act, what: what.to_owned(), by, note: note.map(str::to_owned) }))
}

/// What is on record, the first act first: what was done, and by whom.
fn doers(bench: &Bench) -> Vec<(String, Option<String>)> {
    let mut records = bench.reader().audit(None, 100).expect("it answers");
    records.reverse();
    records.into_iter().map(|record| (record.act, record.by)).collect()
}

fn expected_doers(expected: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    expected.iter().map(|(act, by)| ((*act).to_owned(), by.map(str::to_owned))).collect()
}

fn deeds(bench: &mut Bench) {
    bench.note(deed("pause", "svc", AuditActor::named("alice"), Some("too slow")));
    bench.wait(1);
    bench.note(deed("resume", "svc", AuditActor::unknown(), None));
    assert_eq!(doers(bench), expected_doers(&[("pause", Some("alice")), ("resume", None)]));
    let record = bench.reader().audit(Some(2), 1).expect("it answers").remove(0);
    assert_eq!((record.number, record.at, record.what.as_str(), record.letters), (1, at(0), "svc", 0));
    assert_eq!(record.note.as_deref(), Some("too slow"));
}

fn orders_by(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..4);
    let by = |name: &str, command| CommandRequest { command, by: AuditActor::named(name) };
    let purge = PurgeCommand {
        selection: named(&letters[1..2]),
        what: "one".to_owned(),
        rows_max: 9,
        after: None,
        note: None,
    };
    let edit = EditCommand { letter: letters[2], event: event("new").into(), note: None };
    let skip = || LetterCommand::Skip { letter: letters[0], note: None, answer: CommandAnswer::default() };
    let replay = CommandAnswer::default();
    let commands = vec![
        by("ann", skip()),
        by("ben", LetterCommand::Purge(Box::new(purge), CommandAnswer::default())),
        by("cem", LetterCommand::Edit(Box::new(edit), CommandAnswer::default())),
        LetterCommand::Import(vec![foreign("svc", event("theirs"), at(0))], CommandAnswer::default()).into(),
        by("dan", skip()),
        by("eve", LetterCommand::Replay(Box::new(straight(named(&letters[3..]))), replay.clone())),
    ];
    bench.write(&WriteBatch { commands, ..WriteBatch::default() });
    let (replay, act) = (replay.take().expect("it begins").id, ReplayAct::Cancel);
    let change = by("flo", LetterCommand::Change { replay, act, answer: CommandAnswer::default() });
    bench.write(&WriteBatch { commands: vec![change], ..WriteBatch::default() });
    #[rustfmt::skip]
    let expected = [
        ("skip", Some("ann")), ("purge", Some("ben")), ("edit", Some("cem")), ("import", None),
        ("replay", Some("eve")), ("replay-cancel", Some("flo")),
    ];
    assert_eq!(doers(bench), expected_doers(&expected));
}

fn automatic(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..2);
    let command = LetterCommand::Skip { letter: letters[0], note: None, answer: CommandAnswer::default() };
    let commands = vec![CommandRequest { command, by: AuditActor::named("ann") }];
    bench.write(&WriteBatch { commands, ..WriteBatch::default() });
    bench.note(deed("pause", "svc", AuditActor::named("ben"), None));
    bench.wait(7_200);
    let keep = crate::store::RetentionRules {
        letters: std::sync::Arc::new(|_, _| Duration::from_secs(60)),
        ..keep(Duration::from_hours(9), Duration::from_hours(9))
    };
    bench.letters_deleted(&keep);
    assert_eq!(
        doers(bench),
        expected_doers(&[("skip", Some("ann")), ("pause", Some("ben")), ("retention", None)])
    );
}

/// The ids of all accepted events, page by page.
fn events_after(bench: &Bench, rows_max: usize, bytes_max: usize) -> Vec<Vec<String>> {
    let (mut after, mut pages) = (Seq::NONE, Vec::new());
    loop {
        let page = bench.reader().events_after(after, rows_max, bytes_max).expect("it answers");
        let Some(last) = page.last() else { return pages };
        after = last.receipt.seq();
        assert!(page.iter().all(|view| view.deliveries.is_empty()));
        pages.push(page.iter().map(|view| view.event.id.to_string()).collect());
    }
}

fn accepted_pages(bench: &mut Bench) {
    assert!(events_after(bench, 9, 9).is_empty());
    for id in 1..=5 {
        bench.wait(1);
        bench.take(&[to(if id == 3 { "" } else { "svc other" }, event(&id.to_string()))]);
    }
    let last = bench.reader().last_place().expect("it answers");
    assert!(
        bench.reader().events_after(last, 9, 99).expect("it answers").is_empty(),
        "nothing lies beyond it"
    );
    assert_eq!(events_after(bench, 2, usize::MAX), [vec!["1", "2"], vec!["3", "4"], vec!["5"]]);
    let all = bench.reader().events_after(Seq::NONE, 9, usize::MAX).expect("it answers");
    assert_eq!((all[2].unrouted, all[3].unrouted, all[3].received_at), (true, false, at(4)));
    assert_eq!((&all[4].event.data[..], all[4].event.content_type.is_some()), (&b"5"[..], true));
    assert!(bench.reader().events_after(Seq::NONE, 0, 9).expect("it answers").is_empty());
}

fn accepted_bytes(bench: &mut Bench) {
    for id in ["1", "22", "333", "4444", "5"] {
        bench.take(&[to("svc", event(id))]);
    }
    assert_eq!(events_after(bench, 9, 5), [vec!["1", "22"], vec!["333"], vec!["4444", "5"]]);
    assert_eq!(events_after(bench, 9, 0).len(), 5, "one is always given");
}

fn accepted_deleted(bench: &mut Bench) {
    let bare = |id: &str| Event { data: Bytes::new(), ..event(id) };
    bench.settled("svc", event("gone"), redrive_core::engine::NextState::Delivered);
    bench.take(&[to("", event("unrouted and gone"))]);
    let purged = bench.settled("svc", event("purged"), fails("boom"));
    bench.take(&[to("svc", bare("empty")), to("", bare("empty and unrouted"))]);
    bench.settled("svc", event("dead"), fails("boom"));
    bench.purge(&named(&[purged]), 9);
    bench.wait(30);
    bench.take(&[to("", event("late"))]);
    let left = [vec!["empty", "dead", "late"]];
    bench.housekeep(&keep(Duration::from_secs(20), Duration::from_hours(1)));
    assert_eq!(events_after(bench, 9, 99), left, "though ids are remembered");
    bench.wait(30);
    bench.housekeep(&keep(Duration::from_secs(50), Duration::from_secs(50)));
    assert_eq!(events_after(bench, 9, 99), left);
    bench.purge(&everything(), 9);
    assert_eq!(events_after(bench, 1, 99), [vec!["empty"], vec!["late"]]);
}

fn accepted_stable(bench: &mut Bench) {
    bench.take(&[to("svc", event("1")), to("svc", event("2"))]);
    let first = bench.reader().events_after(Seq::NONE, 1, 99).expect("it answers");
    bench.take(&[to("svc other", event("3"))]);
    let rest = bench.reader().events_after(first[0].receipt.seq(), 9, 99).expect("it answers");
    assert_eq!(rest.iter().map(|view| view.event.id.as_str()).collect::<Vec<_>>(), ["2", "3"]);
}

fn accepted_all(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..1);
    let edit = EditCommand { letter: letters[0], event: event("edited").into(), note: None };
    let theirs = vec![foreign("svc", event("theirs"), at(0))];
    bench.order(|answer| LetterCommand::Import(theirs, answer)).expect("it is done");
    bench.order(|answer| LetterCommand::Edit(Box::new(edit), answer)).expect("it is done");
    assert_eq!(events_after(bench, 9, 99), [vec!["0", "theirs", "edited"]]);
}

#[test]
fn a_folder_that_nobody_serves_takes_one_batch() {
    let folder = folder();
    let path = folder.path().join("new");
    let add = |id: &str, now| {
        let notes = vec![
            StateChange::Key(Box::new(key(id, "deploy", now))),
            deed("key-create", id, AuditActor::unknown(), None),
        ];
        write_once(&path, &WriteBatch { changes: notes, ..WriteBatch::default() }, now)
    };
    add("a", at(0)).expect("it makes the store");
    add("b", at(100)).expect("it is there now");
    let mut store = Sqlite::open(&path, crate::store::sqlite::Options::default()).expect("it opens");
    assert!(matches!(add("c", at(100)), Err(StoreError::InUse { .. })), "somebody serves it");
    let recovered = crate::store::Store::recover(&mut store, at(300)).expect("it recovers");
    assert!(recovered.crashes.is_empty(), "each was a run that ended well");
    assert_eq!(recovered.absences.within(at(0), at(300)), Duration::from_secs(300), "nobody was there");
    let reader = crate::store::Store::reader(&store).expect("it reads");
    let ids: Vec<_> = reader.keys().expect("it answers").into_iter().map(|key| key.id).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(reader.audit(None, 9).expect("it answers").len(), 2);
}
