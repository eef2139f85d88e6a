//! Several real processes share one file: each work is done once, who is killed in the middle of it is replaced,
//! what a breaker has learnt is known to all, and events that wait to be sent survive their relay.
//!
//! The other processes are this one, started again: [`another_process`] is what they run. It does nothing
//! unless it is told what to do by the environment.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redrive::embedded::File;
use redrive::guard::{BreakerState, Cause};
use redrive::once::{Meanwhile, Once, OnceError, OnceOutcome};
use redrive::outbox::{self, Outgoing, Relay};
use redrive::{Book, Guard};
use tokio::time::{sleep, timeout};

const HOUR: Duration = Duration::from_hours(1);
/// Long enough for a busy machine to renew it in time.
const LEASE: Duration = Duration::from_secs(3);
/// Marks the lines that are meant for who started the process.
const WORD: &str = "word: ";
/// Short, so that another relay need not wait for long; nothing depends on its being kept.
const RELAY_LEASE: Duration = Duration::from_millis(500);
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const PROCESSES: usize = 4;
const KEYS: usize = 50;

/// What another process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Holds a key and never ends.
    Hold,
    /// Does a key's work, says so, and never ends.
    Finish,
    /// Does all keys, in an order of its own.
    All { offset: usize },
    /// Calls a dependency that is down until its breaker opens, and never ends.
    Trip,
    /// Hands over events, and never ends.
    Relay,
}

impl Role {
    fn as_text(self) -> String {
        match self {
            Self::Hold => "hold".to_owned(),
            Self::Finish => "finish".to_owned(),
            Self::All { offset } => offset.to_string(),
            Self::Trip => "trip".to_owned(),
            Self::Relay => "relay".to_owned(),
        }
    }

    fn of_text(text: &str) -> Self {
        match text {
            "hold" => Self::Hold,
            "finish" => Self::Finish,
            "trip" => Self::Trip,
            "relay" => Self::Relay,
            offset => Self::All { offset: offset.parse().expect("an offset") },
        }
    }
}

/// Another process, and what it says.
struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Other {
    fn start(folder: &Path, role: Role) -> Self {
        let itself = std::env::current_exe().expect("it knows where it is");
        let mut child = Command::new(itself)
            .args(["--exact", "another_process", "--nocapture"])
            .env("REDRIVE_TEST_FOLDER", folder)
            .env("REDRIVE_TEST_ROLE", role.as_text())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let says = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, says }
    }

    /// The next word that it says.
    fn word(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.says.read_line(&mut line).expect("it can be heard") == 0 {
                return None;
            }
            // The harness may have begun the line.
            if let Some((_, word)) = line.trim_end().split_once(WORD) {
                return Some(word.to_owned());
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("it is there");
        let status = self.child.wait().expect("it has ended");
        assert_eq!(status.signal(), Some(9), "it had no time to clean up");
    }
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

fn once(folder: &Path) -> Once {
    Once::new(File::open(state(folder)).expect("it opens")).lease(LEASE)
}

fn say(word: &str) {
    println!("{WORD}{word}");
}

/// What the other processes run.
#[tokio::test]
async fn another_process() {
    let Ok(folder) = std::env::var("REDRIVE_TEST_FOLDER") else { return };
    let (folder, role) = (PathBuf::from(folder), std::env::var("REDRIVE_TEST_ROLE").expect("a role"));
    let once = once(&folder);
    match Role::of_text(&role) {
        Role::Hold => {
            let endless = async || {
                say("holding");
                std::future::pending::<Result<u32, std::io::Error>>().await
            };
            once.call("key", HOUR, endless).await.expect("it never ends");
        }
        Role::Finish => {
            let work = async || Ok::<_, std::io::Error>(std::process::id());
            once.call("key", HOUR, work).await.expect("it goes well");
            say("done");
            std::future::pending::<()>().await;
        }
        Role::All { offset } => {
            for number in 0..KEYS {
                let key = format!("key {}", (number + offset) % KEYS);
                let value = once.call(&key, HOUR, async || note(&folder, &key)).await;
                say(&format!("{key} = {}", value.expect("it goes well").into_value()));
            }
        }
        Role::Trip => {
            let guard = shared_guard(&folder);
            while !is_open(&guard) {
                let down =
                    async |_| Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                guard.call(down).await.expect_err("it is down");
            }
            say("open");
            std::future::pending::<()>().await;
        }
        Role::Relay => {
            let relay = Relay::open(folder.join("ledger.db")).expect("it opens").lease(RELAY_LEASE);
            relay.run(async |event: Outgoing| note(&folder, &event.event_id).map(|_| say("sent"))).await;
        }
    }
}

/// The guard of a dependency whose breaker all processes share.
fn shared_guard(folder: &Path) -> Guard {
    let rules = "version: 1\nbreakers: { two: { trip: { consecutive: 2 }, open: 10m } }\n\
        dependencies: { d: { kind: webhook, retry: none, breaker: two } }\n";
    let guard = Book::parse(rules).expect("a book").guard("d").expect("it is there");
    guard.shared(Arc::new(File::open(state(folder)).expect("it opens")))
}

fn is_open(guard: &Guard) -> bool {
    matches!(guard.breaker(), BreakerState::Open { .. })
}

/// Work that can be seen afterwards: a line for each time that it is done.
fn note(folder: &Path, key: &str) -> Result<String, std::io::Error> {
    let by = std::process::id().to_string();
    let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log"))?;
    log.write_all(format!("{key} = {by}\n").as_bytes())?;
    Ok(by)
}

#[tokio::test]
async fn who_is_killed_in_the_middle_is_replaced_when_the_lease_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut holder = Other::start(folder.path(), Role::Hold);
    assert_eq!(holder.word().as_deref(), Some("holding"));
    let once = once(folder.path());
    let work = async || Ok::<_, std::io::Error>(7);

    let patient = once.clone().meanwhile(Meanwhile::Wait { at_most: LEASE + LEASE / 2 });
    let told = patient.call("key", HOUR, work).await;
    assert!(matches!(told, Err(OnceError::InProgress { .. })), "it lives, and renews its lease: {told:?}");

    holder.kill();
    assert_eq!(once.call("key", HOUR, work).await.expect("it takes over"), OnceOutcome::First(7));
    assert_eq!(once.call("key", HOUR, work).await.expect("it is done"), OnceOutcome::Replayed(7));
}

#[tokio::test]
async fn what_was_done_survives_who_did_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut other = Other::start(folder.path(), Role::Finish);
    assert_eq!(other.word().as_deref(), Some("done"));
    let by = other.child.id();
    other.kill();
    let again = once(folder.path()).call("key", HOUR, async || Ok::<_, std::io::Error>(0)).await;
    assert_eq!(again.expect("it is done"), OnceOutcome::Replayed(by));
}

#[test]
fn many_processes_do_each_work_once_and_all_hear_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = [0, 1, 2, 3].map(|number| Role::All { offset: number * KEYS / PROCESSES });
    let mut others = all.map(|role| Other::start(folder.path(), role));
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    for other in &mut others {
        while let Some(word) = other.word() {
            *heard.entry(word).or_default() += 1;
        }
        assert!(other.child.wait().expect("it ends").success());
    }
    let log = std::fs::read_to_string(folder.path().join("log")).expect("work was done");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), KEYS, "each once");
    let heard_by_all: BTreeSet<&str> =
        heard.iter().filter(|(_, times)| **times == PROCESSES).map(|(word, _)| word.as_str()).collect();
    assert_eq!(heard_by_all, lines.into_iter().collect(), "all heard what came of the one time");
}

#[tokio::test]
async fn a_breaker_that_opens_in_one_process_is_open_in_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let guard = shared_guard(folder.path());
    assert!(!is_open(&guard));
    let mut other = Other::start(folder.path(), Role::Trip);
    assert_eq!(other.word().as_deref(), Some("open"));
    let heard = timeout(PATIENCE, async {
        while !is_open(&guard) {
            sleep(Duration::from_millis(20)).await;
        }
    });
    heard.await.expect("it hears of it");
    let error = guard.call(async |_| Ok::<_, std::io::Error>(())).await.expect_err("it is open here too");
    assert!(error.is_untried(), "{error}");
    assert!(matches!(error.cause, Cause::BreakerOpen { .. }), "{error}");
    other.kill();
}

#[tokio::test]
async fn events_that_wait_to_be_sent_survive_their_relay() {
    const EVENTS: usize = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let mut ledger = rusqlite::Connection::open(folder.path().join("ledger.db")).expect("it opens");
    ledger.busy_timeout(PATIENCE).expect("it can wait");
    outbox::create_tables(&ledger).expect("the tables are made");
    let ids: Vec<String> = (0..EVENTS).map(|number| format!("event {number}")).collect();
    for id in &ids {
        let transaction = ledger.transaction().expect("it begins");
        outbox::send_later(&transaction, id, b"").expect("it is written");
        transaction.commit().expect("it is kept");
    }
    for _ in 0..3 {
        let mut relay = Other::start(folder.path(), Role::Relay);
        for _ in 0..10 {
            assert_eq!(relay.word().as_deref(), Some("sent"));
        }
        relay.kill();
    }
    let last = Relay::open(folder.path().join("ledger.db")).expect("it opens").lease(RELAY_LEASE);
    let run = last.run(async |event: Outgoing| note(folder.path(), &event.event_id).map(drop));
    let left = "SELECT count(*) FROM redrive_outgoing";
    let emptied = async {
        while ledger.query_row(left, [], |row| row.get::<_, i64>(0)).expect("it is SQL") > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = run => unreachable!("a relay never ends"),
        done = timeout(PATIENCE, emptied) => done.expect("all are sent"),
    }
    let log = std::fs::read_to_string(folder.path().join("log")).expect("events were sent");
    let mut sent: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(sent.len() <= EVENTS + 3, "only what was under way at a kill is sent again: {}", sent.len());
    sent.dedup();
    assert_eq!(sent, ids, "in order, and none is lost");
}
