//! A store that an older release wrote opens, and shows what it showed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{Advance, LoadRequest, LoadScope};
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, EventId, EventSource, EventType};
use redrive_core::ids::{IdPrefix, Seq};
use redrive_core::letters::replay::{Manner, ReplayOrigin, ReplayPace, ReplayWave};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use crate::store::access_store::{AuditActor, AuditEntry};
use crate::store::letter::{
    CommandAnswer, LetterCommand, LetterFilter, LetterKey, LetterQuery, LetterView, NewReplay, Poison,
    Selection,
};
use crate::store::sqlite::{Options, Sqlite, letters};
use crate::store::{
    DeliveryFilter, DeliveryState, DeliveryStateName, Occurrence, QueueCounts, StateChange, Store,
    StoreReader, Submission, SubmissionRefusal, SubmittedEvent, WriteBatch,
};

const FORMAT_1: &str = include_str!("../../tests/fixtures/format-1.sql");
const FORMAT_2: &str = include_str!("../../tests/fixtures/format-2.sql");
const FORMAT_4: &str = include_str!("../../tests/fixtures/format-4.sql");

/// A day after the store was left.
const NOW: Timestamp = Timestamp::from_millis((1_700_000_005 + 86_400) * 1_000);

fn opened(folder: &Path) -> Sqlite {
    opened_from(FORMAT_1, folder)
}

fn opened_from(old: &str, folder: &Path) -> Sqlite {
    let connection = Connection::open(folder.join("redrive.db")).expect("it opens");
    connection.execute_batch(old).expect("it is SQL");
    drop(connection);
    let mut store = Sqlite::open(folder, Options::default()).expect("an older format is brought up to date");
    store.recover(NOW).expect("it recovers");
    store
}

fn shown(reader: &dyn StoreReader, filter: LetterFilter) -> Vec<LetterView> {
    reader.letters(&LetterQuery { filter, before: None, rows_max: 10 }).expect("it answers").letters
}

fn ids(letters: &[LetterView]) -> Vec<&str> {
    letters.iter().map(|letter| letter.delivery.event_id.as_str()).collect()
}

#[test]
fn the_first_format_shows_its_dead_letters() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path());
    let reader = store.reader().expect("it has readers");
    let found = shown(&*reader, LetterFilter::default());
    assert_eq!(ids(&found), ["first", "dead"], "the latest first");
    let names: Vec<_> = found.iter().map(|letter| letter.death.name.as_str()).collect();
    assert_eq!(names, ["_ord.deadletter", "_svc.deadletter.mail"], "by the default template");
    assert_eq!(found[1].death.consumer_group, "svc");
    assert_eq!(found[1].death.message, "502 from the shop");
    assert_eq!(found[1].died_at, Timestamp::from_millis(1_700_000_002_000));
    let session = LetterFilter { session: Some("s".to_owned()), ..LetterFilter::default() };
    assert_eq!(ids(&shown(&*reader, session)), ["first"]);
    let trip = LetterFilter { correlation_id: Some("trip-1".to_owned()), ..LetterFilter::default() };
    assert_eq!(ids(&shown(&*reader, trip)), ["dead"]);
    let groups = reader.groups(&LetterFilter::default(), NOW, 10).expect("it answers");
    assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [2]);
    let counts = reader.counts().expect("it answers");
    let dead: u64 = counts.queues.values().map(|queue| queue.dead).sum();
    assert_eq!((counts.events, counts.unrouted, dead), (7, 1, 2));
}

#[test]
fn letters_are_carried_over_one_by_one() {
    let connection = Connection::open_in_memory().expect("it opens");
    connection.execute_batch(FORMAT_1).expect("it is SQL");
    #[rustfmt::skip]
    let cases = [
        (letters::OLD_LETTERS, "SCAN c; SEARCH d USING INTEGER PRIMARY KEY (rowid=?); USE TEMP B-TREE FOR ORDER BY"),
        (letters::OLD_LETTER,  "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH c USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
    ];
    for (sql, expected) in cases {
        assert_eq!(super::plan(&connection, sql), expected);
    }
    let sorted = connection.prepare(letters::OLD_LETTERS).expect("it is SQL");
    assert!(sorted.column_names().eq(["written_at", "seq"]), "what is sorted is kept in memory");
}

#[test]
fn deliveries_of_the_first_format_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = opened(folder.path());
    let reader = store.reader().expect("it has readers");
    let list = |state| {
        let filter = DeliveryFilter { state: Some(state), rows_max: 10, ..DeliveryFilter::default() };
        let found = reader.list(&filter).expect("it answers").deliveries;
        found.into_iter().map(|view| view.event_id).collect::<Vec<_>>()
    };
    assert_eq!(list(DeliveryStateName::Delivered), ["delivered"]);
    assert_eq!(list(DeliveryStateName::Ready), ["second"]);
    assert_eq!(list(DeliveryStateName::Behind), ["third"]);
    assert_eq!(list(DeliveryStateName::Due), ["due"]);
    let queue = shown(&*reader, LetterFilter::default())[0].delivery.queue.clone();
    let load = LoadRequest {
        queue: queue.into(),
        wanted: LoadScope::Ready { after: Seq::NONE },
        rows_max: 9,
        bytes_max: 999,
    };
    let rows = store.load(&load).expect("it loads").rows;
    assert_eq!((rows.len(), rows[0].damaged), (1, false));
}

#[test]
fn a_letter_of_the_first_format_can_be_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = opened(folder.path());
    let filter = LetterFilter { service: Some("svc".to_owned()), ..LetterFilter::default() };
    let selection = Selection { filter, letters: None, poison: Poison::Included, died_until: NOW };
    let pace = ReplayPace { rate: None, concurrency: 10, manner: Manner::Straight };
    let new = NewReplay {
        selection,
        what: "all of svc".to_owned(),
        pace,
        origin: ReplayOrigin::Operator,
        to: None,
        note: None,
    };
    let answer = CommandAnswer::default();
    let commands = vec![LetterCommand::Replay(Box::new(new), answer.clone()).into()];
    store.write(&WriteBatch { commands, ..WriteBatch::default() }, NOW).expect("it is written");
    let view = answer.take().expect("it begins");
    assert_eq!(view.tally.total, 1);
    let advance = Advance { replay: view.id, sent_before: 0, letters_max: 9, wave: ReplayWave::Rest };
    let batch = WriteBatch { advances: vec![advance], ..WriteBatch::default() };
    let written = store.write(&batch, NOW + Duration::from_secs(1)).expect("it is written");
    assert_eq!(written.waiting.len(), 1);
    let waiting = &written.waiting[0];
    assert_eq!((waiting.event.id.as_str(), waiting.attempts, waiting.damaged), ("dead", 2, false));
    let reader = store.reader().expect("it has readers");
    let prefix = IdPrefix::parse(&waiting.id.to_string()).expect("an id");
    let view = &reader.deliveries(&prefix, 1).expect("it answers")[0];
    assert_eq!((view.state.clone(), view.stories.len()), (DeliveryState::Ready, 2), "all is told");
}

#[test]
fn the_second_format_shows_what_it_has_and_what_is_on_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened_from(FORMAT_2, folder.path());
    let reader = store.reader().expect("it has readers");
    assert_eq!(ids(&shown(&*reader, LetterFilter::default())), ["2", "holder", "dead", "imported"]);
    let counts = reader.counts().expect("it answers");
    let waiting: u64 = counts.queues.values().map(|queue| queue.waiting).sum();
    assert_eq!((counts.events, counts.unrouted, waiting), (12, 1, 3));
    let oldest = reader.oldest().expect("it answers");
    let waiting = oldest.values().filter(|oldest| oldest.waiting_since.is_some()).count();
    assert_eq!(waiting, counts.queues.values().filter(|queue| queue.waiting > 0).count());
    assert_eq!(reader.held_sessions(9).expect("it answers").len(), 1);
    let replay = reader.replays(None, 9).expect("it answers").remove(0);
    assert_eq!((replay.tally.total, replay.tally.sent, replay.tally.delivered), (3, 2, 1));
    let audit = reader.audit(None, 9).expect("it answers");
    let acts: Vec<_> = audit.iter().map(|record| (record.act.as_str(), record.by.as_deref())).collect();
    assert_eq!(acts, [("replay", None), ("import", None), ("purge", None), ("skip", None)]);
    assert_eq!(audit[3].note.as_deref(), Some("too late"));
}

#[test]
fn the_second_format_goes_on_and_keeps_what_is_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = opened_from(FORMAT_2, folder.path());
    let reader = store.reader().expect("it has readers");
    let accepted = reader.events_after(Seq::NONE, 99, usize::MAX).expect("it answers");
    assert_eq!(accepted.len(), 11, "all but the one that was purged");
    let replay = reader.replays(None, 9).expect("it answers").remove(0);
    let advance = Advance { replay: replay.id, sent_before: 2, letters_max: 9, wave: ReplayWave::Rest };
    let notes = vec![
        StateChange::Memo { name: "schedule:a".to_owned(), value: Some("1".to_owned()) },
        StateChange::Audit(Box::new(AuditEntry {
            act: "pause",
            what: "svc".to_owned(),
            by: AuditActor::named("ann"),
            note: None,
        })),
    ];
    let batch = WriteBatch { advances: vec![advance], changes: notes, ..WriteBatch::default() };
    let written = store.write(&batch, NOW).expect("it is written");
    assert_eq!((written.waiting[0].event.id.as_str(), written.waiting[0].damaged), ("2", false));
    assert_eq!(reader.memo("schedule:a").expect("it answers").as_deref(), Some("1"));
    assert_eq!(reader.audit(None, 1).expect("it answers")[0].by.as_deref(), Some("ann"));
}

/// A day after the store of format 4 was left.
const NOW_4: Timestamp = Timestamp::from_millis((1_794_845_797 + 86_400) * 1_000);

fn sent(id: &str, source: &str, data: &'static str) -> Submission {
    let event = Event {
        id: EventId::new(id).expect("an id"),
        source: EventSource::new(source).expect("a source"),
        event_type: EventType::new("shop.paid").expect("a type"),
        subject: None,
        time: None,
        content_type: Some(ContentType::json()),
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: data.into(),
    };
    Submission { events: vec![SubmittedEvent { event: Arc::new(event), routes: Vec::new() }] }
}

#[test]
fn the_fourth_format_shows_what_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened_from(FORMAT_4, folder.path());
    let reader = store.reader().expect("it has readers");
    let mut dead = ids(&shown(&*reader, LetterFilter::default())).join(" ");
    dead.push_str(&format!(", {} held", reader.held_sessions(9).expect("it answers").len()));
    assert_eq!(dead, "paid-2 lost-2 lost-1 paid-1 step-1 imported-2, 1 held");
    let counts = reader.counts().expect("it answers");
    let sum = |of: fn(&QueueCounts) -> u64| counts.queues.values().map(of).sum::<u64>();
    assert_eq!((counts.events, counts.unrouted), (10, 1));
    assert_eq!(
        (sum(|queue| queue.waiting), sum(|queue| queue.delivered), sum(|queue| queue.dead)),
        (2, 3, 6)
    );
    let replays = reader.replays(None, 9).expect("it answers");
    let told: Vec<_> = replays.iter().map(|view| (view.tally.delivered, view.tally.failed)).collect();
    assert_eq!(told, [(0, 4), (1, 0)]);
    assert!(reader.memo("schedule:nightly").expect("it answers").is_some());
    let key = LetterKey::Imported("legacy-2".to_owned());
    let letter = reader.letter(&key).expect("it answers").expect("it is there");
    assert_eq!(
        (letter.delivery.event_source.as_str(), letter.delivery.stories.len()),
        ("/v1/hooks/github", 1)
    );
}

#[test]
fn the_fourth_format_knows_what_was_sent_and_what_was_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = opened_from(FORMAT_4, folder.path());
    let submissions = vec![
        sent("paid-1", "/shop", "{\"order\":1}"),
        sent("paid-1", "/shop", "{\"order\":9}"),
        sent("imported-1", "/shop", "{\"order\":7}"),
        sent("imported-2", "/v1/hooks/github", "{\"order\":9}"),
    ];
    let batch = WriteBatch { submissions, ..WriteBatch::default() };
    let written = store.write(&batch, NOW_4).expect("it is written").submitted;
    let seen = |index: usize| written[index].as_ref().map(|taken| taken[0].seen);
    assert_eq!(seen(0), Ok(Occurrence::Duplicate));
    assert!(matches!(seen(1), Err(SubmissionRefusal::Conflict { first: Some(_), .. })), "{:?}", written[1]);
    assert_eq!((seen(2), seen(3)), (Ok(Occurrence::First), Ok(Occurrence::First)), "nobody has sent these");
}
