//! The file within one process; several processes share it in the tests beside the crate.

use std::collections::BTreeSet;
use std::fs;
use std::task::Poll;

use redrive_core::policy::breaker::BreakerPhase;
use rusqlite::Connection;
use tokio::task::JoinSet;

use super::*;
use crate::once::contract::{Hands, keeps_the_contract};
use crate::once::{Meanwhile, Once, OnceOutcome};
use crate::shared::contract::record;

const HOUR: Duration = Duration::from_hours(1);

fn key(name: &str) -> OnceKey {
    OnceKey::new(name).expect("a key")
}

fn rows(path: &Path) -> u32 {
    let connection = Connection::open(path).expect("it opens");
    connection.query_row("SELECT count(*) FROM once", [], |row| row.get(0)).expect("it is SQL")
}

#[tokio::test]
async fn a_file_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let hands = Hands::default();
    let file = File::open_by(&folder.path().join("state.db"), hands.clock()).expect("it opens");
    keeps_the_contract(&file, &hands).await;
}

#[tokio::test]
async fn a_file_shares_breakers_as_every_shared_state_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    crate::shared::contract::holds(&File::open(&path).expect("it opens")).await;
}

/// Many openings write on, each from what it has read: no generation is written twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_record_is_lost_to_who_read_before_it_was_written() {
    use redrive_core::policy::breaker::Generation;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let mut writers = JoinSet::new();
    for _ in 0..6 {
        let file = File::open(&path).expect("it opens");
        writers.spawn(async move {
            let mut written = 0;
            while written < 20 {
                let record = record("d", 0, BreakerPhase::Open);
                let stored = file.load(&record.service_name).await.expect("it is there");
                let generation = stored.as_ref().map_or(0, |stored| stored.generation.0) + 1;
                let next = BreakerRecord { generation: Generation(generation), ..record };
                let swap = file.swap(stored.as_ref(), &next).await.expect("it is there");
                written += u64::from(swap == Swap::Written);
            }
            written
        });
    }
    let written: u64 = writers.join_all().await.into_iter().sum();
    let file = File::open(&path).expect("it opens");
    let last = file.load(&record("d", 0, BreakerPhase::Open).service_name).await.expect("it is there");
    assert_eq!(last.map(|last| last.generation), Some(Generation(written)));
}

#[tokio::test]
async fn records_that_have_expired_go_and_unreadable_ones_are_as_good_as_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let hands = Hands::default();
    let file = File::open_by(&path, hands.clock()).expect("it opens");
    let expires_at = (hands.clock())() + HOUR;
    let short = BreakerRecord { expires_at, ..record("short", 1, BreakerPhase::Open) };
    let long = record("long", 1, BreakerPhase::Open);
    for record in [&short, &long] {
        assert_eq!(file.swap(None, record).await.expect("it is there"), Swap::Written);
    }
    hands.forward(HOUR);
    for _ in 0..2 {
        assert_eq!(file.load(&long.service_name).await.expect("it is there").as_ref(), Some(&long));
    }
    assert_eq!(file.load(&short.service_name).await.expect("it is there"), None);
    let spoilt = "UPDATE breakers SET record = '{}'";
    Connection::open(&path).expect("it opens").execute_batch(spoilt).expect("it is SQL");
    assert_eq!(file.load(&long.service_name).await.expect("it is there"), None);
    assert_eq!(file.swap(None, &long).await.expect("it is there"), Swap::Written);
}

#[tokio::test]
async fn results_and_tokens_survive_a_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let mut tokens = BTreeSet::new();
    for round in 0..3_u32 {
        let once = Once::new(File::open(&path).expect("it opens"));
        let work = async || Ok::<_, std::io::Error>(round);
        let outcome = once.call("kept", HOUR, work).await.expect("it goes well");
        assert_eq!(outcome, if round == 0 { OnceOutcome::First(0) } else { OnceOutcome::Replayed(0) });
        let fenced = async |token: FencingToken| Ok::<_, std::io::Error>(token.0);
        let token = once.call_fenced(&format!("round {round}"), HOUR, fenced).await.expect("it goes well");
        assert!(tokens.last() < Some(&token.into_value()), "a later token is higher");
        tokens.insert(token.into_value());
    }
}

#[tokio::test]
async fn tokens_that_were_lost_with_the_machine_are_not_given_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let hands = Hands::default();
    let mut tokens = Vec::new();
    for name in ["a", "b", "c"] {
        let file = File::open_by(&path, hands.clock()).expect("it opens");
        match file.begin(&key(name), HOUR).await {
            Ok(KeyState::Yours(token)) => tokens.push(token),
            other => panic!("it is free: {other:?}"),
        }
        let lost = "UPDATE tokens SET last = 0";
        Connection::open(&path).expect("it opens").execute_batch(lost).expect("it is SQL");
        hands.forward(Duration::from_millis(1));
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[tokio::test]
async fn a_clock_that_was_set_back_keeps_nobody_out_for_longer_than_a_lease() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let lease = Duration::from_secs(30);
    let (early, late) = (Hands::default(), Hands::default());
    late.forward(HOUR);
    let later = File::open_by(&path, late.clock()).expect("it opens");
    assert!(matches!(later.begin(&key("a"), lease).await, Ok(KeyState::Yours(_))));
    let file = File::open_by(&path, early.clock()).expect("it opens");
    for _ in 0..2 {
        assert_eq!(file.begin(&key("a"), lease).await, Ok(KeyState::InProgress { lease_left: lease }));
    }
    early.forward(lease);
    assert!(matches!(file.begin(&key("a"), lease).await, Ok(KeyState::Yours(_))));
}

#[tokio::test]
async fn what_has_expired_is_swept_in_small_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let hands = Hands::default();
    let file = File::open_by(&path, hands.clock()).expect("it opens");
    let once = Once::new(file.clone());
    for number in 0..250 {
        let done = once.call(&format!("short {number}"), HOUR, async || Ok::<_, std::io::Error>(())).await;
        done.expect("it goes well");
    }
    file.begin(&key("a mark"), HOUR).await.expect("it is there");
    once.call("long", HOUR * 9, async || Ok::<_, std::io::Error>(())).await.expect("it goes well");
    hands.forward(HOUR);
    let mut left = Vec::new();
    for _ in 0..4 {
        file.forget(&key("nothing")).await.expect("it is there");
        // The sweep comes after the answer: the next that is answered has waited for it.
        file.begin(&key("long"), HOUR).await.expect("it is there");
        left.push(rows(&path));
    }
    assert!(left.windows(2).all(|pair| pair[0] - pair[1] <= 200), "small steps: {left:?}");
    assert_eq!(left.last(), Some(&2), "what is kept longer stays, and so does a mark for a while: {left:?}");
    hands.forward(HOUR);
    for _ in 0..2 {
        file.begin(&key("long"), HOUR).await.expect("it is there");
    }
    assert_eq!(rows(&path), 1, "and then it goes too");
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = |name: &str, sql: &str| {
        let path = folder.path().join(name);
        Connection::open(&path).expect("it opens").execute_batch(sql).expect("it is SQL");
        path
    };
    let garbage = folder.path().join("garbage.db");
    fs::write(&garbage, "no database ".repeat(1_000)).expect("it is written");
    let newer = folder.path().join("newer.db");
    drop(File::open(&newer).expect("it is made"));
    database("newer.db", "PRAGMA user_version = 99");
    #[rustfmt::skip]
    let cases = [
        (garbage,                                               "file is not a database"),
        (database("theirs.db", "CREATE TABLE theirs (id)"),     "a database of something else"),
        (database("other.db", "PRAGMA application_id = 7"),     "a database of something else"),
        (newer,                                                 "has format 99, and this release knows formats up to 1"),
        (folder.path().join("no folder").join("state.db"),      "cannot be opened"),
    ];
    for (path, expected) in cases {
        let before = fs::read(&path).ok();
        let error = File::open(&path).expect_err("refused");
        assert!(error.to_string().contains(expected), "{}: {error}", path.display());
        assert_eq!(fs::read(&path).ok(), before, "{}", path.display());
    }
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let _file = File::open(&path).expect("it opens");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_away_and_nothing_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let file = File::open(&path).expect("it opens");
    Connection::open(&path).expect("it opens").execute_batch("DROP TABLE tokens").expect("it is SQL");
    let once = Once::new(file);
    let error = once.call("a", HOUR, async || Ok::<(), std::io::Error>(())).await.expect_err("it is away");
    let expected = format!("dedup store unavailable: {}: no such table: tokens", path.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// Many threads of one process, each with the file open: each work is done once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_and_openings_do_each_work_once() {
    const KEYS: u32 = 30;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let mut callers = JoinSet::new();
    for caller in 0..8_u32 {
        let once = Once::new(File::open(&path).expect("it opens"));
        callers.spawn(async move {
            let mut firsts = 0;
            for round in 0..KEYS {
                let work = async || Ok::<_, std::io::Error>((caller, round));
                let key = format!("key {}", (round + caller) % KEYS);
                firsts += u32::from(once.call(&key, HOUR, work).await.expect("it goes well").is_first());
            }
            firsts
        });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<u32>(), KEYS);
}

/// The file was asked and the answer may be on its way: a mark that nobody knows of must not keep the next out.
#[tokio::test]
async fn who_is_dropped_while_it_begins_leaves_no_mark() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = File::open(folder.path().join("state.db")).expect("it opens");
    let patience = Meanwhile::Wait { at_most: Duration::from_secs(60) };
    let once = Once::new(file.clone()).lease(HOUR).meanwhile(patience);
    for number in 0..50 {
        let name = format!("work/{number}");
        let key = key(&name);
        let mut begun = file.begin(&key, HOUR);
        let polled = std::future::poll_fn(|context| Poll::Ready(begun.as_mut().poll(context))).await;
        if let Poll::Ready(Ok(KeyState::Yours(token))) = polled {
            // The thread was so quick that it was heard.
            file.release(&key, token);
        }
        if number % 2 == 0 {
            // The thread has answered by now, and nobody has heard it.
            file.load(&record("d", 0, BreakerPhase::Open).service_name).await.expect("it is there");
        }
        drop(begun);
        let second = once.call(&name, HOUR, || async { Ok::<_, std::io::Error>(7) }).await;
        assert_eq!(second.expect("it is free"), OnceOutcome::First(7), "{name}");
    }
}

/// Others find no file, or another one: whoever wrote on into the one that has gone would do their work again.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_removed_is_made_anew_for_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let one = Once::new(File::open(&path).expect("it opens"));
    let work = async |once: &Once, key: &str| {
        once.call(key, HOUR, || async { Ok::<_, std::io::Error>(7) }).await.expect("it goes well").is_first()
    };
    assert!(work(&one, "before").await);
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        fs::remove_file(folder.path().join(name)).expect("it was there");
    }
    assert!(work(&one, "after").await);
    let two = Once::new(File::open(&path).expect("it opens"));
    assert!(!work(&two, "after").await, "the other has done it");
    assert!(work(&two, "then").await);
    assert!(!work(&one, "then").await, "the other has done it");
}
