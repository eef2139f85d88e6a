//! `redrive status --watch`: one look after the other, until somebody presses Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::run::redrive;
use crate::scripted::{Reply, Scripted};

fn status(delivered: u64) -> Value {
    json!({
        "version": "0.1.0", "started_at": "2025-10-21T14:00:00Z", "book": "00000000000000aa", "calls_in_flight": 0,
        "events": delivered, "unrouted": 0, "stranded": 0, "dependencies": [],
        "services": [{ "service": "billing", "waiting": 0, "delivered": delivered, "dead": 0 }],
    })
}

/// Runs it until so many lines have the word, then presses Ctrl-C; gives back what was printed and said.
fn watch(server: &Scripted, more: &[&str], word: &str, times: usize) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_redrive"))
        .args(["status", "--watch", "--every", "100ms", "--server", server.url()])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut told = String::new();
    while told.lines().filter(|line| line.contains(word)).count() < times {
        assert!(out.read_line(&mut told).expect("it prints text") > 0, "it goes on: {told}");
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("there is a `kill`").success());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "Ctrl-C is how it ends");
    (told, String::from_utf8(ended.stderr).expect("text"))
}

#[test]
fn one_page_follows_the_other_with_rates_where_there_is_no_terminal() {
    let looks = [Reply::json(200, &status(0)), Reply::json(200, &status(5)), Reply::json(200, &status(5))];
    let server = Scripted::new(looks);
    let (told, _) = watch(&server, &[], "SERVICE", 3);
    assert_eq!(told.lines().filter(|line| line.starts_with("— 20")).count(), 3, "{told}");
    assert!(told.contains("–/s accepted"), "nothing is known after one look: {told}");
    assert!(told.contains("█·"), "there were five, and then none: {told}");
    assert!(!told.contains('\u{1b}'), "nothing moves a cursor: {told}");
}

#[test]
fn what_begins_to_be_wrong_is_seen_while_one_watches() {
    let mut wrong = status(0);
    let why = "invalid rule book rejected, the previous one stays active: line 2";
    wrong["degraded"] = json!([{ "what": "book-refused", "why": why }]);
    let server = Scripted::new([Reply::json(200, &status(0)), Reply::json(200, &wrong)]);
    let (told, _) = watch(&server, &[], "SERVICE", 2);
    let verdicts: Vec<char> = told
        .lines()
        .filter(|line| line.contains(" redrive 0.1.0 at "))
        .filter_map(|line| line.chars().next())
        .collect();
    assert_eq!(verdicts, ['✓', '✗'], "{told}");
    assert_eq!(told.lines().filter(|line| *line == format!("✗ {why}")).count(), 1, "{told}");
}

#[test]
fn a_server_that_goes_away_is_waited_for() {
    let looks = [Reply::json(200, &status(1)), Reply::new(503, ""), Reply::json(200, &status(2))];
    let server = Scripted::new(looks);
    let (told, said) = watch(&server, &["--format", "json"], "billing", 2);
    let looks: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(looks[1]["events"], 2, "{told}");
    assert!(
        said.is_empty() || said.contains("connection to the server lost; waiting for http://127.0.0.1:"),
        "{said}"
    );
}

#[test]
fn one_cannot_look_all_the_time_or_every_so_often_without_watching() {
    for (arguments, words) in [
        (&["status", "--watch", "--every", "1ms"][..], "the interval must be at least 100ms"),
        (&["status", "--every", "2s"][..], "--watch"),
    ] {
        let run = redrive(arguments);
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
}
