//! Schedules of a node on a real file, by a clock that is set.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::connectors::built_in;
use redrive_core::engine::{EngineBounds, LoadRequest, LoadedPage};
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;
use tokio::sync::watch;

use super::super::{Config, Node};
use super::{ScheduleView, WallClock};
use crate::connectors::Drivers;
use crate::secret::Secrets;
use crate::store::sqlite::{Options, Sqlite};
use crate::store::{
    Backup, BackupProgress, BatchResult, DiskRoom, HousekeepingStep, RecoveredState, RetentionRules,
    StateChange, Store, StoreError, StoreReader, WriteBatch,
};
use crate::target::registry::Targets;

/// Long enough for any machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the store does.
const WELL: u8 = 0;
const FAILS: u8 = 1;
/// Events are written, and memos are not.
const FORGETS: u8 = 2;

struct Moody {
    inner: Sqlite,
    mood: Arc<AtomicU8>,
}

impl Store for Moody {
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError> {
        self.inner.recover(now)
    }

    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
        let is_memo = |note: &StateChange| matches!(note, StateChange::Memo { .. });
        match self.mood.load(Ordering::SeqCst) {
            FAILS => Err(StoreError::NotWritten("as asked".into())),
            FORGETS if batch.changes.iter().any(is_memo) => Err(StoreError::NotWritten("as asked".into())),
            _ => self.inner.write(batch, now),
        }
    }

    fn load(&mut self, load: &LoadRequest) -> Result<LoadedPage, StoreError> {
        self.inner.load(load)
    }

    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError> {
        self.inner.housekeep(keep, now)
    }

    fn back_up(&mut self, step: &mut Backup) -> Result<BackupProgress, StoreError> {
        self.inner.back_up(step)
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.inner.reopen()
    }

    fn has_room(&mut self) -> Result<DiskRoom, StoreError> {
        self.inner.has_room()
    }

    fn close(self: Box<Self>, now: Timestamp) -> Result<(), StoreError> {
        Box::new(self.inner).close(now)
    }
}

/// A node whose schedules go by a clock of the test's own.
struct Bench {
    node: Node,
    clock: watch::Sender<Timestamp>,
    mood: Arc<AtomicU8>,
}

fn at(time: &str) -> Timestamp {
    format!("2026-01-{time}:00Z").parse().expect("a time")
}

fn book(sources: &str) -> Arc<RuleBook> {
    let text = format!("version: 1\nsources:\n{sources}");
    let reading = redrive_core::book::read(&text, built_in());
    Arc::new(reading.book.unwrap_or_else(|| panic!("{text}\n{:#?}", reading.problems)))
}

fn hourly(more: &str) -> String {
    format!("  hourly: {{ schedule: {{ cron: \"0 * * * *\"{more} }}, type: tick }}\n")
}

fn targets(book: &Arc<RuleBook>) -> Targets {
    Targets::new(book, &Secrets::new(book, Drivers::built_in()), None)
        .expect("no targets, and so none that is wrong")
}

impl Bench {
    fn start(folder: &Path, sources: &str, now: &str) -> Self {
        let (clock, shown) = watch::channel(at(now));
        let mood = Arc::new(AtomicU8::new(WELL));
        let inner = Sqlite::open(folder, Options::default()).expect("a store");
        let book = book(sources);
        let config = Config {
            targets: targets(&book),
            book_text: "".into(),
            book,
            store: Box::new(Moody { inner, mood: Arc::clone(&mood) }),
            bounds: EngineBounds { window: 8, window_bytes: 1024 * 1024, calls: 8 },
        };
        let node = Node::start_by(config, WallClock::Set(shown)).expect("a node");
        Self { node, clock, mood }
    }

    fn now(&self, time: &str) {
        self.clock.send_replace(at(time));
    }

    fn mood(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    async fn change(&self, sources: &str) {
        let book = book(sources);
        let targets = targets(&book);
        self.node.change_book(book, "".into(), targets).await.expect("a new book");
    }

    /// The ids of all events in the order in which they were accepted.
    async fn ids(&self) -> Vec<String> {
        let events = self.node.read(|reader| reader.unrouted(Seq::NONE, 2_000)).await.expect("readable");
        events.iter().map(|view| view.event.id.to_string()).collect()
    }

    /// Waits until the events are exactly these.
    async fn until(&self, expected: &[&str]) {
        let waiting = async {
            while self.ids().await != expected {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "there are {:?}, not {expected:?}", self.ids().await);
    }

    /// Waits until a schedule is seen to be as asked for.
    async fn until_view(&self, what: &str, is_so: impl Fn(&ScheduleView) -> bool) -> ScheduleView {
        let waiting = async {
            loop {
                if let Some(view) = self.node.schedules().iter().find(|view| is_so(view)) {
                    return view.clone();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("{what}: {:?}", self.node.schedules()))
    }

    /// Waits until it is remembered of a schedule that it has come so far.
    async fn until_remembered(&self, name: &str, until: Option<&str>) {
        let expected = until.map(|time| format!("\"until\":\"{}\"", at(time)));
        let waiting = async {
            loop {
                let memo = self.node.memo(name).await.expect("readable");
                let is_so = match (&memo, &expected) {
                    (Some(memo), Some(expected)) => memo.contains(expected),
                    (memo, expected) => memo.is_none() && expected.is_none(),
                };
                if is_so {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{name}: {:?}, not {expected:?}", self.node.memo(name).await);
    }

    async fn stop(self) {
        self.node.stop(PATIENCE).await;
    }
}

#[tokio::test]
async fn a_schedule_begins_when_it_is_first_seen_and_fires_on_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = Bench::start(folder.path(), &hourly(", missed: all"), "01T09:30");
    bench.until_remembered("schedule:hourly", Some("01T09:30")).await;
    let view = bench.until_view("it is watched", |view| view.next_fire.is_some()).await;
    assert_eq!((view.next_fire, view.last_fire), (Some(at("01T10:00")), None));
    bench.now("01T10:00");
    bench.until(&["hourly@2026-01-01T10:00:00Z"]).await;
    bench.until_remembered("schedule:hourly", Some("01T10:00")).await;
    bench.now("01T11:01");
    bench.until(&["hourly@2026-01-01T10:00:00Z", "hourly@2026-01-01T11:00:00Z"]).await;
    let view = bench.until_view("it has fired", |view| view.last_fire == Some(at("01T11:00"))).await;
    assert_eq!((view.next_fire, view.caught_up, view.lost), (Some(at("01T12:00")), 0, 0));
    bench.stop().await;
}

#[tokio::test]
async fn a_fire_carries_the_data_of_the_book() {
    let cases = [("", r#"{"schedule":"hourly""#), (", data: \"[1]\"", "[1]")];
    for (more, expected) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let bench = Bench::start(folder.path(), &hourly(more), "01T09:30");
        bench.until_remembered("schedule:hourly", Some("01T09:30")).await;
        bench.now("01T10:00");
        bench.until(&["hourly@2026-01-01T10:00:00Z"]).await;
        let events = bench.node.read(|reader| reader.unrouted(Seq::NONE, 1)).await.expect("readable");
        let data = String::from_utf8_lossy(&events[0].event.data).into_owned();
        assert!(data.starts_with(expected), "{more}: {data}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn fires_that_were_missed_while_nothing_ran_are_caught_up_as_the_book_says() {
    #[rustfmt::skip]
    let cases = [
        ("one",          ", missed: one",                     vec!["12"],             1, 2),
        ("none",         ", missed: none",                    vec![],                 0, 3),
        ("all",          ", missed: all",                     vec!["10", "11", "12"], 3, 0),
        ("all of a while", ", missed: all, missed_within: 2h", vec!["11", "12"],      2, 1),
    ];
    for (name, more, hours, caught_up, lost) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let bench = Bench::start(folder.path(), &hourly(more), "01T09:30");
        bench.until_remembered("schedule:hourly", Some("01T09:30")).await;
        bench.stop().await;
        let bench = Bench::start(folder.path(), &hourly(more), "01T12:30");
        let hours = hours.into_iter().map(|hour| format!("hourly@2026-01-01T{hour}:00:00Z"));
        let mut expected: Vec<String> = hours.collect();
        bench.until(&expected.iter().map(String::as_str).collect::<Vec<_>>()).await;
        bench.until_remembered("schedule:hourly", Some("01T12:30")).await;
        // And nothing of it comes again.
        bench.now("01T13:00");
        expected.push("hourly@2026-01-01T13:00:00Z".to_owned());
        bench.until(&expected.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let view = bench.until_view(name, |view| view.last_fire == Some(at("01T13:00"))).await;
        assert_eq!((view.caught_up, view.lost), (caught_up, lost), "{name}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_run_that_ends_before_it_is_remembered_emits_the_same_event_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = Bench::start(folder.path(), &hourly(""), "01T09:30");
    bench.until_remembered("schedule:hourly", Some("01T09:30")).await;
    bench.mood(FORGETS);
    bench.now("01T10:00");
    bench.until(&["hourly@2026-01-01T10:00:00Z"]).await;
    let view = bench.until_view("it is tried again", |view| view.trouble.is_some()).await;
    assert_eq!((view.waiting, view.last_fire), (1, None));
    bench.stop().await;

    let bench = Bench::start(folder.path(), &hourly(""), "01T10:01");
    bench.until_remembered("schedule:hourly", Some("01T10:01")).await;
    assert_eq!(bench.ids().await, ["hourly@2026-01-01T10:00:00Z"], "one event, though it came twice");
    bench.stop().await;
}

#[tokio::test]
async fn while_the_store_fails_no_fire_is_skipped() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = Bench::start(folder.path(), &hourly(", missed: none"), "01T09:30");
    bench.until_remembered("schedule:hourly", Some("01T09:30")).await;
    bench.mood(FAILS);
    for (hour, waiting) in ["10", "11", "12"].into_iter().zip(1..) {
        bench.now(&format!("01T{hour}:00"));
        bench.until_view("it waits", |view| view.waiting == waiting).await;
    }
    bench.until_view("it says why", |view| view.trouble.is_some()).await;
    bench.mood(WELL);
    bench
        .until(&["hourly@2026-01-01T10:00:00Z", "hourly@2026-01-01T11:00:00Z", "hourly@2026-01-01T12:00:00Z"])
        .await;
    let view = bench.until_view("all is well", |view| view.waiting == 0 && view.trouble.is_none()).await;
    assert_eq!((view.lost, view.last_fire), (0, Some(at("01T12:00"))));
    bench.stop().await;
}

#[tokio::test]
async fn a_new_book_adds_changes_and_removes_schedules_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let all =
        |cron: &str| format!("  daily: {{ schedule: {{ cron: \"{cron}\", missed: all }}, type: tick }}\n");
    let bench = Bench::start(folder.path(), &all("0 10 * * *"), "01T09:30");
    bench.until_remembered("schedule:daily", Some("01T09:30")).await;
    // Another cron begins now, and not where the first one was.
    bench.now("01T09:59");
    bench.change(&(all("50 9 * * *") + &hourly(""))).await;
    bench.until_remembered("schedule:daily", Some("01T09:59")).await;
    bench.until_remembered("schedule:hourly", Some("01T09:59")).await;
    bench.now("01T10:00");
    bench.until(&["hourly@2026-01-01T10:00:00Z"]).await;
    // One that is taken out is forgotten, and is new when it comes again.
    bench.change(&hourly("")).await;
    bench.until_remembered("schedule:daily", None).await;
    bench.now("03T00:30");
    bench.until(&["hourly@2026-01-01T10:00:00Z", "hourly@2026-01-03T00:00:00Z"]).await;
    bench.change(&(hourly("") + &all("50 9 * * *"))).await;
    bench.until_remembered("schedule:daily", Some("03T00:30")).await;
    bench.now("03T00:31");
    assert_eq!(bench.ids().await.len(), 2);
    bench.stop().await;
    // The same while nothing runs.
    let bench = Bench::start(folder.path(), &all("50 9 * * *"), "03T00:32");
    bench.until_remembered("schedule:hourly", None).await;
    bench.until_remembered("schedule:daily", Some("03T00:30")).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_repeats_nothing_and_one_set_forward_misses_fires() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = Bench::start(folder.path(), &hourly(", missed: one"), "01T09:30");
    bench.until_remembered("schedule:hourly", Some("01T09:30")).await;
    bench.now("01T10:00");
    bench.until(&["hourly@2026-01-01T10:00:00Z"]).await;
    bench.until_remembered("schedule:hourly", Some("01T10:00")).await;
    bench.now("01T09:15");
    bench.until_remembered("schedule:hourly", Some("01T09:15")).await;
    bench.now("01T10:00");
    bench.until_remembered("schedule:hourly", Some("01T10:00")).await;
    bench.now("01T14:30");
    bench.until(&["hourly@2026-01-01T10:00:00Z", "hourly@2026-01-01T14:00:00Z"]).await;
    let view = bench.until_view("it has fired", |view| view.last_fire == Some(at("01T14:00"))).await;
    assert_eq!((view.caught_up, view.lost, view.next_fire), (1, 3, Some(at("01T15:00"))));
    bench.stop().await;
}

#[tokio::test]
async fn fires_that_cannot_be_written_pile_up_to_a_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let minutes =
        "  m: { schedule: { cron: \"* * * * *\", missed: all, missed_within: 100d }, type: tick }\n";
    let bench = Bench::start(folder.path(), minutes, "01T00:30");
    bench.until_remembered("schedule:m", Some("01T00:30")).await;
    bench.mood(FAILS);
    bench.now("02T00:30");
    bench.until_view("they wait", |view| view.waiting == 1_000 && view.lost == 440).await;
    bench.now("02T00:40");
    bench.until_view("the latest wait", |view| view.waiting == 1_000 && view.lost == 450).await;
    bench.mood(WELL);
    bench.until_view("all are durable", |view| view.waiting == 0 && view.trouble.is_none()).await;
    let ids = bench.ids().await;
    assert_eq!(ids.len(), 1_000);
    assert_eq!(ids.last().map(String::as_str), Some("m@2026-01-02T00:40:00Z"));
    bench.stop().await;
}
