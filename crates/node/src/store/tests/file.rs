//! What only a store in a file can show: torn logs, full disks, failed commits, copies and neighbours.

use std::fs;
use std::path::Path;
use std::time::Duration;

use redrive_core::engine::NextState;
use redrive_core::event::Event;
use redrive_core::ids::Seq;
use tempfile::TempDir;

use super::bench::{Bench, at, event, ids, in_session, keep, queue, settlement, to};
use super::{file, folder};
use crate::store::sqlite::{CompactionResult, Options, Sqlite, WalBounds, compact};
use crate::store::{
    Backup, BatchResult, DiskRoom, EventKey, Occurrence, Store, StoreError, Submission, SubmittedEvent,
    WriteBatch,
};

fn open(folder: &Path) -> Sqlite {
    open_with(folder, Options { seed: Some(7), ..Options::default() })
}

fn open_with(folder: &Path, options: Options) -> Sqlite {
    let mut store = Sqlite::open(folder, options).expect("it opens");
    store.recover(at(0)).expect("it recovers");
    store
}

fn batch(events: &[SubmittedEvent]) -> WriteBatch {
    let submissions = events.iter().map(|one| Submission { events: vec![one.clone()] }).collect();
    WriteBatch { submissions, ..WriteBatch::default() }
}

fn write(store: &mut Sqlite, events: &[SubmittedEvent]) -> BatchResult {
    store.write(&batch(events), at(0)).expect("it is written")
}

fn large(id: &str) -> SubmittedEvent {
    to("svc", Event { data: vec![7; 50_000].into(), ..event(id) })
}

fn bench_on(folder: &Path) -> Bench {
    let folder = folder.to_owned();
    Bench::new(Box::new(move || Box::new(Sqlite::open(&folder, Options::default()).expect("it opens"))))
}

fn copy_files(from: &Path) -> TempDir {
    let copy = folder();
    for name in ["redrive.db", "redrive.db-wal"] {
        fs::copy(from.join(name), copy.path().join(name)).expect("it is copied");
    }
    copy
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_a_store_and_its_copies() {
    use std::os::unix::fs::PermissionsExt;

    let home = folder();
    let (data, copy) = (home.path().join("deep/data"), home.path().join("deep/copy"));
    let mut store = open(&data);
    write(&mut store, &[to("svc", event("a"))]);
    let mut backup = Backup::new(copy.clone(), 1_000);
    while store.back_up(&mut backup).expect("it is copied").remaining > 0 {}
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    for folder in [&data, &copy] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("it is there").path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    drop(store);
    // Whoever gave others a right to it meant that.
    fs::set_permissions(data.join("redrive.db"), fs::Permissions::from_mode(0o640)).expect("it is ours");
    drop(open(&data));
    assert_eq!(mode(&data.join("redrive.db")), 0o640);
}

#[test]
fn a_torn_log_leaves_whole_batches() {
    let original = folder();
    let mut store = open(original.path());
    // Each batch ends what the one before has brought: two halves of one would show.
    let mut waiting = Vec::new();
    for number in 0..12 {
        let ended = waiting.iter().map(|one: &redrive_core::engine::PendingDelivery| {
            std::sync::Arc::new(settlement(one.id, 0, NextState::Delivered, at(number)))
        });
        let events = ["a", "b", "c"].map(|part| to("svc", event(&format!("{number}{part}"))));
        let batch = WriteBatch { settlements: ended.collect(), ..batch(&events) };
        waiting = store.write(&batch, at(number)).expect("it is written").waiting;
    }
    let log = original.path().join("redrive.db-wal");
    let length = fs::metadata(&log).expect("there is a log").len();
    let mut seen = std::collections::BTreeSet::new();
    for cut in (0..=40).map(|part| length * part / 40) {
        let copy = copy_files(original.path());
        let torn =
            fs::OpenOptions::new().write(true).open(copy.path().join("redrive.db-wal")).expect("a log");
        torn.set_len(cut).expect("it is cut");
        drop(torn);
        let Ok(store) = Sqlite::open(copy.path(), Options::default()) else {
            panic!("a log cut at {cut} opens");
        };
        drop(store);
        let mut bench = bench_on(copy.path());
        bench.audit();
        let counts = bench.counts();
        assert_eq!(counts.events % 3, 0, "cut at {cut}");
        let waiting = ids(&bench.ready("svc")).len() as u64;
        assert_eq!(waiting, counts.events.min(3), "what the last batch brought waits, cut at {cut}");
        seen.insert(counts.events / 3);
    }
    assert!(seen.len() > 5 && seen.contains(&12), "{seen:?}");
}

#[test]
fn a_full_disk_changes_nothing() {
    let folder = folder();
    let mut store = open(folder.path());
    write(&mut store, &[to("svc", event("1"))]);
    let pages: i64 =
        store.connection().pragma_query_value(None, "page_count", |row| row.get(0)).expect("a count");
    let limit = |store: &mut Sqlite, pages: i64| {
        store
            .connection()
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
            .expect("it is set");
    };
    limit(&mut store, pages + 1);
    for _ in 0..2 {
        let error = store.write(&batch(&[to("new", event("2")), large("3")]), at(1)).expect_err("full");
        assert!(
            matches!(&error, StoreError::NotWritten(cause) if cause.to_string().contains("full")),
            "{error}"
        );
    }
    let counts = store.reader().expect("it reads").counts().expect("it answers");
    assert_eq!((counts.events, counts.queues.len()), (1, 1));
    limit(&mut store, 1 << 30);
    let written = write(&mut store, &[to("new", event("2")), large("3")]);
    let taken: Vec<_> = written.submitted.into_iter().flat_map(|taken| taken.expect("taken")).collect();
    assert!(taken.iter().all(|taken| taken.seen == Occurrence::First), "{taken:?}");
    assert_eq!(taken[0].receipt.seq(), Seq::new(3), "no place was used up");
    drop(store);
    bench_on(folder.path()).audit();
}

#[test]
fn a_commit_that_fails_is_told_until_the_file_is_opened_anew() {
    let folder = folder();
    let mut store = open(folder.path());
    write(&mut store, &[to("svc", event("1"))]);
    store.connection().commit_hook(Some(|| true)).expect("it is set");
    let is_unknown = |error: StoreError| assert!(matches!(error, StoreError::Unknown(_)), "{error}");
    is_unknown(store.write(&batch(&[to("svc", event("2"))]), at(1)).expect_err("it fails"));
    store.connection().commit_hook(None::<fn() -> bool>).expect("it is set");
    is_unknown(store.write(&batch(&[to("svc", event("2"))]), at(1)).expect_err("nobody knows"));
    let load = redrive_core::engine::LoadRequest {
        queue: queue("svc"),
        wanted: redrive_core::engine::LoadScope::Ready { after: Seq::NONE },
        rows_max: 9,
        bytes_max: 99,
    };
    is_unknown(store.load(&load).expect_err("nobody knows"));
    store.reopen().expect("it opens");
    assert_eq!(ids(&store.load(&load).expect("it loads").rows), ["1"]);
    let written = write(&mut store, &[to("svc", event("2"))]);
    assert_eq!(written.submitted[0].as_ref().expect("taken")[0].seen, Occurrence::First);
}

#[test]
fn a_store_that_went_away_gets_no_other_in_its_place() {
    let (home, stranger) = (folder(), folder());
    let mut store = open(home.path());
    write(&mut store, &[to("svc", event("1"))]);
    drop(open_with(stranger.path(), Options { seed: Some(8), ..Options::default() }));
    let aside = home.path().join("aside");
    let names = ["redrive.db", "redrive.db-wal", "redrive.db-shm"];
    fs::create_dir(&aside).expect("it is made");
    for name in names {
        fs::rename(home.path().join(name), aside.join(name)).expect("it was there");
    }
    let displaced = |error: StoreError| assert!(matches!(error, StoreError::Displaced { .. }), "{error}");
    displaced(store.has_room().expect_err("nothing is there"));
    displaced(store.write(&batch(&[to("svc", event("2"))]), at(1)).expect_err("no start would find it"));
    displaced(store.reopen().expect_err("nothing is there"));
    assert!(!home.path().join("redrive.db").exists(), "and nothing is made");
    fs::copy(stranger.path().join("redrive.db"), home.path().join("redrive.db")).expect("it is copied");
    displaced(store.reopen().expect_err("it is another's"));
    for name in names {
        fs::rename(aside.join(name), home.path().join(name)).expect("it goes back");
    }
    store.reopen().expect("it is the same again");
    let again = write(&mut store, &[to("svc", event("1")), to("svc", event("2"))]);
    for taken in again.submitted {
        assert_eq!(
            taken.expect("taken")[0].seen,
            Occurrence::Duplicate,
            "both are in the files that came back"
        );
    }
    // A log alone is as much of the store as the rest of it.
    fs::remove_file(home.path().join("redrive.db-wal")).expect("it was there");
    displaced(store.write(&batch(&[to("svc", event("3"))]), at(1)).expect_err("no start would find it"));
}

#[test]
fn a_log_that_is_deleted_alone_is_saved_in_the_database() {
    let home = folder();
    let log = home.path().join("redrive.db-wal");
    let mut store = open(home.path());
    let reader = store.reader().expect("it reads");
    write(&mut store, &[to("svc", event("1"))]);
    fs::remove_file(&log).expect("it was there");
    let displaced = |error: StoreError| assert!(matches!(error, StoreError::Displaced { .. }), "{error}");
    displaced(store.has_room().expect_err("the log is gone"));
    // As it would be found if the process ended now.
    let copy = folder();
    fs::copy(home.path().join("redrive.db"), copy.path().join("redrive.db")).expect("it is copied");
    let found = |id: &str| EventKey::Id(id.to_owned());
    assert_eq!(bench_on(copy.path()).reader().events(&found("1")).expect("it answers").len(), 1);
    displaced(store.reopen().expect_err("its readers are on the log that is gone"));
    assert_eq!(reader.events(&found("1")).expect("it answers").len(), 1);
    assert!(!log.exists(), "no other log takes its place");
    drop((reader, store));
    let mut store = open(home.path());
    let again = write(&mut store, &[to("svc", event("1"))]);
    assert_eq!(again.submitted[0].as_ref().expect("taken")[0].seen, Occurrence::Duplicate);
}

#[test]
fn commits_that_a_damaged_log_would_lose_are_not_lost_by_opening_anew() {
    let home = folder();
    let path = home.path().join("redrive.db-wal");
    let mut store = open(home.path());
    let _reader = store.reader().expect("it reads, and keeps the log where it is");
    let first = fs::metadata(&path).expect("a log").len();
    for id in ["1", "2", "3"] {
        write(&mut store, &[to("svc", event(id))]);
    }
    let mut log = fs::read(&path).expect("a log");
    log[usize::try_from(first).expect("a size") + 100] ^= 1;
    fs::write(&path, &log).expect("it is ours");
    for _ in 0..2 {
        let error = store.reopen().expect_err("commits are behind the damage");
        assert!(matches!(error, StoreError::LostCommits { .. }), "{error}");
    }
    assert!(fs::read(&path).expect("a log") == log, "nothing was changed");
}

/// A commit that failed may leave its frames behind, and a shorter one that fails after it leaves both.
#[test]
fn leftovers_of_two_failed_commits_are_no_loss() {
    let home = folder();
    let path = home.path().join("redrive.db-wal");
    let mut store = open(home.path());
    let _reader = store.reader().expect("it reads, and keeps the log where it is");
    let first = usize::try_from(fs::metadata(&path).expect("a log").len()).expect("a size");
    write(&mut store, &[to("svc", event("1"))]);
    let mut log = fs::read(&path).expect("a log");
    let transaction = log[first..].to_vec();
    for _ in 0..2 {
        log.extend(&transaction);
    }
    fs::write(&path, &log).expect("it is ours");
    for id in ["2", "3"] {
        store.reopen().expect("all that was committed is there");
        write(&mut store, &[to("svc", event(id))]);
    }
    let counts = store.reader().and_then(|reader| reader.counts()).expect("it reads");
    assert_eq!(counts.events, 3);
}

#[test]
fn a_copy_that_was_not_finished_is_no_store() {
    let home = folder();
    fs::write(home.path().join("redrive.db.partial"), "half").expect("it is written");
    for error in [
        Sqlite::open(home.path(), Options::default()).expect_err("it is refused"),
        Sqlite::open_reader(home.path()).map(drop).expect_err("it is refused"),
    ] {
        assert!(error.to_string().contains("unfinished backup (redrive.db.partial)"), "{error}");
    }
    let names: Vec<_> = fs::read_dir(home.path()).expect("a folder").collect();
    assert_eq!(names.len(), 1, "nothing is made beside it: {names:?}");
}

/// A process that lost its locks on the file would not keep another from taking the log away.
#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_comes_and_goes_leaves_the_locks_of_the_writer() {
    use std::os::unix::fs::MetadataExt;

    let home = folder();
    let mut store = open(home.path());
    write(&mut store, &[to("svc", event("1"))]);
    let inode = fs::metadata(home.path().join("redrive.db")).expect("it is there").ino();
    let locks = || {
        let all = fs::read_to_string("/proc/locks").expect("Linux says so");
        let ours = |line: &&str| line.contains(" POSIX ") && line.contains(&format!(":{inode} "));
        all.lines().filter(ours).count()
    };
    assert_eq!(locks(), 1, "it holds one for as long as it is open");
    drop(Sqlite::open_reader(home.path()).expect("it reads"));
    assert_eq!(locks(), 1, "and still");
    drop(store);
    assert_eq!(locks(), 0);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let home = folder();
    let file = home.path().join("file");
    fs::write(&file, "").expect("it is written");
    let occupied = home.path().join("occupied");
    fs::create_dir_all(occupied.join("redrive.db")).expect("it is made");
    for path in [&file, &file.join("below"), &occupied] {
        let error = Sqlite::open(path, Options::default()).expect_err("it cannot be opened");
        assert!(matches!(error, StoreError::NotOpened { .. }), "{error}");
    }
    let garbage = home.path().join("garbage");
    fs::create_dir_all(&garbage).expect("it is made");
    fs::write(garbage.join("redrive.db"), vec![7; 10_000]).expect("it is written");
    let error = Sqlite::open(&garbage, Options::default()).expect_err("it is damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(fs::read(garbage.join("redrive.db")).expect("it is there"), vec![7; 10_000]);
}

#[test]
fn what_cannot_be_read_says_what_is_there_instead() {
    let home = folder();
    fs::write(home.path().join("file"), "").expect("it is written");
    #[rustfmt::skip]
    let cases = [
        ("an empty folder", home.path().to_owned(),        "it contains no store"),
        ("no folder",       home.path().join("none"),      "folder not found"),
        ("a file",          home.path().join("file"),      "it is a file, not a data folder"),
    ];
    for (name, path, expected) in cases {
        let Err(error) = Sqlite::open_reader(&path) else { panic!("{name} is no store") };
        assert_eq!(error.to_string(), format!("could not open {}: {expected}", path.display()), "{name}");
    }
    let error = Sqlite::open(&home.path().join("file"), Options::default()).expect_err("it is a file");
    assert!(error.to_string().ends_with(": a file is in the place of the folder"), "{error}");
}

#[test]
fn a_folder_has_one_owner_and_many_readers() {
    let home = folder();
    assert!(
        matches!(Sqlite::open_reader(home.path()), Err(StoreError::NotOpened { .. })),
        "nothing there yet"
    );
    let mut store = open(home.path());
    let reader = Sqlite::open_reader(home.path()).expect("it reads");
    assert!(matches!(Sqlite::open(home.path(), Options::default()), Err(StoreError::InUse { .. })));
    assert!(matches!(compact(home.path()), Err(StoreError::InUse { .. })));
    write(&mut store, &[to("svc", event("1"))]);
    assert_eq!(reader.counts().expect("it answers").events, 1, "it sees what came later");
    Box::new(store).close(at(1)).expect("it closes");
    let late = Sqlite::open_reader(home.path()).expect("it reads without an owner too");
    for reader in [reader, late] {
        assert_eq!(reader.events(&EventKey::Id("1".to_owned())).expect("it answers").len(), 1);
    }
    drop(open(home.path()));
}

#[test]
fn room_is_measured_against_the_mark() {
    let home = folder();
    for (free_bytes_min, is_enough) in [(0, true), (u64::MAX, false)] {
        let mut store = open_with(home.path(), Options { free_bytes_min, ..Options::default() });
        match store.has_room().expect("it answers") {
            DiskRoom::Enough => assert!(is_enough),
            DiskRoom::Short { free_bytes, needed_bytes } => {
                assert!(!is_enough && free_bytes > 0 && needed_bytes == free_bytes_min);
            }
        }
    }
}

/// Copies in steps of few pages, and does something between them.
fn back_up(
    store: &mut Sqlite,
    folder: &Path,
    mut between: impl FnMut(&mut Sqlite, u32),
) -> Result<u32, StoreError> {
    let mut backup = Backup::new(folder.to_owned(), 3);
    for step in 1.. {
        let progress = store.back_up(&mut backup)?;
        if progress.remaining == 0 {
            assert!(store.back_up(&mut backup).is_err(), "it is done");
            return Ok(step);
        }
        between(store, step);
    }
    unreachable!("a copy ends")
}

#[test]
fn a_copy_has_all_that_was_written_while_it_was_made() {
    let home = folder();
    let copies = folder();
    let mut store = open(home.path());
    let events: Vec<_> = (0..40).map(|n| large(&n.to_string())).collect();
    write(&mut store, &events);
    let (copy, mut count) = (copies.path().join("copy"), 40);
    let steps = back_up(&mut store, &copy, |store, step| {
        write(store, &[to("ord", in_session(&format!("late {step}"), "s"))]);
        count += 1;
    });
    assert!(steps.expect("it is copied") > 20, "in steps");
    let mut bench = bench_on(&copy);
    bench.audit();
    assert_eq!(bench.counts().events, count);
    assert_eq!(bench.ready("svc").len(), 40);
    assert!(bench.crash().crashes.len() == 1, "only the one just now: a copy has not crashed");
    write(&mut store, &[to("svc", event("after"))]);
    let error = back_up(&mut store, &copy, |_, _| {}).expect_err("it holds a store");
    assert!(error.to_string().contains("must be empty"), "{error}");
    write(&mut store, &[to("svc", event("after that"))]);
}

#[test]
fn a_copy_that_nobody_wants_leaves_nothing() {
    let home = folder();
    let copies = folder();
    let mut store = open(home.path());
    write(&mut store, &(0..20).map(|n| large(&n.to_string())).collect::<Vec<_>>());
    let backup = |name: &str| Backup::new(copies.path().join(name), 2);
    let is_empty = |name: &str| fs::read_dir(copies.path().join(name)).expect("a folder").next().is_none();

    let mut dropped = backup("dropped");
    assert!(store.back_up(&mut dropped).expect("it begins").remaining > 0);
    drop(dropped);
    write(&mut store, &[to("svc", event("one more"))]);
    assert!(is_empty("dropped"));

    let mut replaced = backup("replaced");
    store.back_up(&mut replaced).expect("it begins");
    back_up(&mut store, &copies.path().join("whole"), |_, _| {}).expect("another may take its place");
    assert!(is_empty("replaced"));
    store.back_up(&mut replaced).expect_err("it was given up");

    let mut reopened = backup("reopened");
    store.back_up(&mut reopened).expect("it begins");
    store.reopen().expect("it opens");
    assert!(is_empty("reopened"));
    store.back_up(&mut reopened).expect_err("it was given up");

    store.back_up(&mut backup("closed")).expect("it begins");
    Box::new(store).close(at(9)).expect("it closes");
    assert!(is_empty("closed"));
    assert_eq!(bench_on(home.path()).counts().events, 21);
}

#[test]
fn a_file_gives_back_what_was_deleted() {
    let (home, mut bench) = file(100);
    bench.take(&(0..60).map(|n| large(&n.to_string())).collect::<Vec<_>>());
    for waiting in bench.ready("svc") {
        bench.end(waiting.id, NextState::Delivered);
    }
    bench.wait(100);
    let keep = keep(Duration::from_secs(10), Duration::from_secs(1_000));
    assert_eq!(bench.housekeep(&keep), 60);
    bench.restart(0);
    drop(bench);
    let CompactionResult { bytes_before, bytes_after } = compact(home.path()).expect("nobody has it");
    assert!(bytes_before > 3_000_000 && bytes_after < 450_000, "{bytes_before} {bytes_after}");
    let mut bench = bench_on(home.path());
    assert_eq!(bench.take(&[large("7")])[0].seen, Occurrence::Duplicate);
}

#[test]
fn the_log_stays_within_its_bounds() {
    let home = folder();
    let wal = WalBounds { copy_from: 1 << 20, restart_at: 4 << 20 };
    let mut store = open_with(home.path(), Options { wal, ..Options::default() });
    let log = || fs::metadata(home.path().join("redrive.db-wal")).map_or(0, |found| found.len());
    let mut written = 0;
    let mut fill = |store: &mut Sqlite| {
        for _ in 0..300 {
            written += 1;
            write(store, &[large(&written.to_string())]);
        }
    };
    fill(&mut store);
    assert!(log() <= 9 << 20, "15 MB were written, and the log has {}", log());
    // One that looks for long keeps the log from starting anew, and nothing worse.
    let slow = rusqlite::Connection::open(home.path().join("redrive.db")).expect("it opens");
    slow.execute_batch("BEGIN; SELECT count(*) FROM meta").expect("it reads");
    fill(&mut store);
    assert!(log() > 12 << 20);
    drop(slow);
    let high = log();
    fill(&mut store);
    fill(&mut store);
    assert!(log() <= high + (9 << 20), "it starts anew again");
}

#[test]
fn sealing_survives_a_crash_at_every_step_and_runs_go_when_their_events_have() {
    let (home, mut bench) = file(500);
    let keep = keep(Duration::from_secs(10), Duration::from_secs(100));
    let events: Vec<_> = (0..3_000).map(|n| to("svc", event(&n.to_string()))).collect();
    for part in events.chunks(250) {
        bench.take(part);
        let now = bench.now;
        bench.store().housekeep(&keep, now).expect("it can");
        bench.crash();
    }
    let known = |bench: &mut Bench| {
        bench.take(&events).iter().filter(|taken| taken.seen == Occurrence::Duplicate).count()
    };
    assert_eq!(known(&mut bench), 3_000);
    bench.housekeep(&keep);
    assert_eq!(known(&mut bench), 3_000);
    assert!(count(home.path(), "runs") >= 4 && count(home.path(), "dedup") >= 2_000);
    for id in ["0", "1500", "2999"] {
        let found = bench.reader().events(&EventKey::Id(id.to_owned())).expect("it answers");
        assert_eq!(found.len(), 1, "{id}");
    }
    // All but one of them go.
    while let [first, ..] = &bench.ready("svc")[..] {
        if first.id.seq() > Seq::new(5_998) {
            break;
        }
        let page = bench.ready("svc");
        let ended = page.iter().filter(|one| one.id.seq() < Seq::new(5_999));
        let settlements =
            ended.map(|one| std::sync::Arc::new(settlement(one.id, 0, NextState::Delivered, at(0))));
        let settlements = settlements.collect();
        bench.write(&WriteBatch { settlements, ..WriteBatch::default() });
    }
    bench.wait(1_000);
    assert_eq!(bench.housekeep(&keep), 2_999);
    assert_eq!(count(home.path(), "events"), 1);
    assert!(count(home.path(), "runs") <= 1 && count(home.path(), "dedup") <= 500);
    assert_eq!(bench.take(&events[2_999..])[0].seen, Occurrence::Duplicate);
    assert_eq!(bench.take(&events[..1])[0].seen, Occurrence::First);
}

#[test]
fn a_run_of_which_little_is_left_becomes_a_small_one() {
    let (home, mut bench) = file(10_000);
    let keep = keep(Duration::from_secs(10), Duration::from_secs(100));
    let events: Vec<_> = (0..20_000).map(|n| to("svc", event(&n.to_string()))).collect();
    for part in events.chunks(10_000) {
        let submissions = part.iter().map(|one| Submission { events: vec![one.clone()] }).collect();
        let waiting = bench.write(&WriteBatch { submissions, ..WriteBatch::default() }).waiting;
        let settlements = waiting
            .iter()
            .filter(|one| one.id.seq().get() % 1_000 != 0)
            .map(|one| std::sync::Arc::new(settlement(one.id, 0, NextState::Delivered, at(0))));
        let settlements = settlements.collect();
        bench.write(&WriteBatch { settlements, ..WriteBatch::default() });
        bench.housekeep(&keep);
    }
    assert_eq!((count(home.path(), "runs"), count(home.path(), "dedup")), (2, 20_000));
    bench.wait(1_000);
    bench.housekeep(&keep);
    assert_eq!((count(home.path(), "runs"), count(home.path(), "dedup")), (2, 40));
    for _ in 0..2 {
        let again = bench
            .take(&events[499..500])
            .iter()
            .chain(&bench.take(&events[19_999..]))
            .copied()
            .collect::<Vec<_>>();
        assert!(again.iter().all(|taken| taken.seen == Occurrence::Duplicate), "{again:?}");
        let found = bench.reader().events(&EventKey::Id("499".to_owned())).expect("it answers");
        assert_eq!(found.len(), 1);
        bench.crash();
    }
}

#[test]
fn a_store_that_nobody_uses_does_not_write() {
    let (home, mut bench) = file(10);
    bench.take(&(0..30).map(|n| to("svc", event(&n.to_string()))).collect::<Vec<_>>());
    let keep = keep(Duration::from_secs(10), Duration::from_secs(100));
    bench.wait(200);
    bench.housekeep(&keep);
    let log = || fs::read(home.path().join("redrive.db-wal")).expect("there is a log");
    let before = log();
    bench.wait(200);
    bench.housekeep(&keep);
    assert!(before == log(), "there is nothing to do");
}

fn count(folder: &Path, table: &str) -> u64 {
    let connection = rusqlite::Connection::open(folder.join("redrive.db")).expect("it opens");
    let count: i64 = connection
        .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
        .expect("there is such a table");
    u64::try_from(count).expect("a count")
}

#[test]
fn what_does_not_read_as_it_was_stored_is_told_and_can_be_buried() {
    #[rustfmt::skip]
    let cases = [
        ("data",                "data = CAST(x'2a' || substr(data, 2) AS BLOB)"),
        ("data of an old file", "attributes = substr(attributes, 1, length(attributes) - 9), data = CAST(x'2a' || substr(data, 2) AS BLOB)"),
        ("no data",             "data = x''"),
        ("attributes",          "attributes = CAST(x'ff' || attributes AS BLOB)"),
        ("the id",              "id = id || 'x'"),
        ("a source of no text", "source = CAST(x'ff' AS TEXT)"),
        ("the type",            "type = 'order.other'"),
        ("the hash",            "content = content + 1"),
    ];
    for (name, change) in cases {
        let home = folder();
        let mut store = open(home.path());
        write(&mut store, &[to("svc", event("bad")), to("svc", event("good"))]);
        let update = format!("UPDATE events SET {change} WHERE id = 'bad'");
        assert_eq!(store.connection().execute(&update, []).expect("it is SQL"), 1, "{name}");
        drop(store);
        let mut bench = bench_on(home.path());
        let damaged: Vec<bool> = bench.ready("svc").iter().map(|row| row.damaged).collect();
        assert_eq!(damaged, [true, false], "{name}");
        let bad = bench.ready("svc")[0].id;
        bench.end(bad, super::bench::dead());
        let filter = crate::store::DeliveryFilter { rows_max: 9, ..crate::store::DeliveryFilter::default() };
        assert_eq!(bench.reader().list(&filter).expect("it answers").deliveries.len(), 2, "{name}");
        let letters = crate::store::letter::LetterQuery {
            filter: crate::store::letter::LetterFilter::default(),
            before: None,
            rows_max: 9,
        };
        assert_eq!(bench.reader().letters(&letters).expect("it answers").letters.len(), 1, "{name}");
    }
}
