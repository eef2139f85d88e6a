//! Two processes on one folder: they share what was sent, and what they have learnt of the push service.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::push::{Mood, Push};
use crate::support::{Served, quick_rules};

/// The service in a process of its own.
struct Process {
    child: Child,
    served: Served,
}

impl Process {
    fn start(folder: &Path, push: &Push, rules: &str) -> Self {
        let book = folder.join("rules.yaml");
        std::fs::write(&book, rules).expect("the folder is ours");
        let mut child = Command::new(env!("CARGO_BIN_EXE_notifier"))
            .arg(book)
            .env("LISTEN", "127.0.0.1:0")
            .env("DATA", folder)
            .env("NTFY", &push.address)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it is built with the tests");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut address).expect("it prints where it listens");
        Self { child, served: Served::at(address.trim().to_owned()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn what_one_process_has_learnt_the_other_need_not() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Answers(503)).await);
    // Open for long enough that nobody tries it again while this runs.
    let rules = quick_rules().replace("open: 300ms", "open: 10m");
    let one = Process::start(folder.path(), &push, &rules);
    let two = Process::start(folder.path(), &push, &rules);

    let messages = [one.served.create("first").await, one.served.create("second").await];
    for id in &messages {
        assert_eq!(one.served.deliver(&[id]).await.len(), 1);
    }
    assert_eq!(push.calls(), 5, "the fifth failure within a minute opened the breaker");

    // The other process hears of it, and does not call anybody itself to find out.
    until_open(&two.served).await;
    let id = two.served.create("third").await;
    assert_eq!(two.served.deliver(&[&id]).await, [format!("item-{id}")]);
    let message = two.served.message(&id).await;
    assert_eq!(message["status"], "failed");
    assert_eq!(message["error"], "ntfy.sh service unavailable");
    assert_eq!(push.calls(), 5, "refused at once");
}

async fn until_open(served: &Served) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while served.get("/api/metrics").await.1["circuit"] != "open" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("it hears of the other's breaker");
}

#[tokio::test]
async fn two_processes_send_one_notification() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let one = Process::start(folder.path(), &push, &quick_rules());
    let two = Process::start(folder.path(), &push, &quick_rules());
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(one.served.create(&format!("message {number}")).await);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (first, second) = tokio::join!(one.served.deliver(&ids), two.served.deliver(&ids));
    assert!(first.is_empty() && second.is_empty(), "{first:?} {second:?}");
    assert_eq!(push.calls(), 20);
    for id in ids {
        assert_eq!(two.served.message(id).await["status"], json!("completed"));
    }
}

#[tokio::test]
async fn a_process_that_was_killed_is_followed_by_another() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let mut one = Process::start(folder.path(), &push, &quick_rules());
    let id = one.served.create("before").await;
    assert!(one.served.deliver(&[&id]).await.is_empty());
    one.child.kill().expect("it is ours");
    one.child.wait().expect("it was running");
    let two = Process::start(folder.path(), &push, &quick_rules());
    assert!(two.served.deliver(&[&id]).await.is_empty(), "the queue brings it again");
    assert_eq!(push.calls(), 1);
}
