//! `redrive sink`: what it answers, what it prints, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::redrive;

/// Long enough for any machine; nothing here waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// A sink that runs as long as the test does.
pub(crate) struct Sink {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sink {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
        command.env_remove("CLICOLOR_FORCE").env_remove("FORCE_COLOR");
        command.args(["sink", "--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let first = next_line(&mut out);
        let address = match serde_json::from_str::<Value>(&first) {
            Ok(first) => first["listening"].as_str().expect("an address").to_owned(),
            Err(_) => first.strip_prefix("listening on ").expect("the first line says where").to_owned(),
        };
        let address = address.strip_prefix("http://").expect("an address").to_owned();
        Self { child, out, address }
    }

    /// The answer to a request with those headers.
    fn post(&self, headers: &str, body: &str) -> String {
        let mut stream = self.ask(headers, body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn ask(&self, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time above nought");
        let length = body.len();
        let request = format!(
            "POST /hooks?a=b HTTP/1.1\r\nhost: sink\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }

    fn line(&mut self) -> String {
        next_line(&mut self.out)
    }

    /// What it prints last, once it is asked to end.
    fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-INT", &id]).status().expect("kill is everywhere");
        assert!(asked.success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        rest
    }
}

fn next_line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    line.trim_end().to_owned()
}

fn status_of(answer: &str) -> u16 {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.unwrap_or_else(|| panic!("a status line: {answer}"))
}

#[test]
fn every_request_is_a_line() {
    let mut sink = Sink::start(&[]);
    let first = "ce-type: orders.placed\r\nwebhook-id: msg_c92690de482a21ca\r\nredrive-attempt: 2\r\nredrive-sequence: 7\r\n";
    let replayed =
        "ce-type: orders.placed\r\nredrive-attempt: 4\r\nredrive-sequence: 7\r\nredrive-replay: 1\r\n";
    let structured = "content-type: application/cloudevents+json\r\nredrive-attempt: 1\r\n";
    #[rustfmt::skip]
    let cases = [
        (first,                                                     "{}",                   "/hooks?a=b msg_c92690de orders.placed attempt 2 sequence 7 → 200"),
        (replayed,                                                  "{}",                   "/hooks?a=b orders.placed attempt 4 sequence 7 replay 1 → 200"),
        (structured,                                                r#"{"type":"a.b"}"#,    "/hooks?a=b a.b attempt 1 → 200"),
        ("content-type: application/cloudevents-batch+json\r\n",    "[{},{}]",              "/hooks?a=b batch of 2 → 200"),
        ("content-type: text/plain\r\n",                            "hello",                "/hooks?a=b → 200"),
    ];
    for (headers, body, expected) in cases {
        assert_eq!(status_of(&sink.post(headers, body)), 200, "{expected}");
        let line = sink.line();
        let (time, rest) = line.split_once(' ').expect("a time and the rest");
        assert_eq!(rest, expected);
        assert_eq!(time.len(), "14:30:00.250".len(), "{time}");
    }
    assert_eq!(sink.stop(), "5 requests: 5 × 200; 2 of them retries\n");
}

#[test]
fn machines_get_objects() {
    let mut sink = Sink::start(&["--format", "json", "--fail", "100%", "--status", "500"]);
    sink.post("ce-type: a.b\r\nwebhook-id: msg_1\r\nredrive-attempt: 3\r\n", "{}");
    let mut line: Value = serde_json::from_str(&sink.line()).expect("an object");
    let at = line["at"].take();
    assert!(at.as_str().is_some_and(|at| at.ends_with('Z')), "{at}");
    assert_eq!(
        line,
        json!({
            "at": null, "path": "/hooks?a=b", "webhook_id": "msg_1", "type": "a.b", "attempt": 3,
            "sequence": null, "replay": null, "bytes": 2, "status": 500,
        })
    );
    let last: Value = serde_json::from_str(&sink.stop()).expect("an object");
    assert_eq!(last, json!({ "requests": 1, "answers": { "500": 1 }, "retries": 1 }));
}

#[test]
fn a_share_of_the_requests_fails_and_the_seed_says_which() {
    let statuses = |seed: &str| {
        let sink = Sink::start(&[
            "--fail",
            "30%",
            "--status",
            "429",
            "--retry-after",
            "1500ms",
            "--quiet",
            "--seed",
            seed,
        ]);
        let answers: Vec<String> = (0..60).map(|_| sink.post("", "")).collect();
        for answer in &answers {
            assert_eq!(status_of(answer) == 429, answer.contains("\r\nretry-after: 2\r\n"), "{answer}");
        }
        let statuses: Vec<u16> = answers.iter().map(|answer| status_of(answer)).collect();
        let failed = statuses.iter().filter(|status| **status == 429).count();
        assert_eq!(sink.stop(), format!("60 requests: {} × 200, {failed} × 429\n", 60 - failed));
        assert!((9..=27).contains(&failed), "{failed} of 60");
        statuses
    };
    let first = statuses("1");
    assert_eq!(statuses("1"), first);
    assert_ne!(statuses("2"), first);
}

#[test]
fn a_sink_may_be_down_slow_or_silent() {
    let down = Sink::start(&["--down", "1h", "--quiet"]);
    assert_eq!(status_of(&down.post("", "")), 503);
    assert_eq!(down.stop(), "1 request: 1 × 503\n");

    let slow = Sink::start(&["--slow", "300ms", "--quiet"]);
    let started = std::time::Instant::now();
    assert_eq!(status_of(&slow.post("", "")), 200);
    assert!(started.elapsed() >= Duration::from_millis(300));

    let mut silent = Sink::start(&["--hang"]);
    let stream = silent.ask("", "");
    assert!(silent.line().ends_with("/hooks?a=b → no answer"));
    assert_eq!(silent.stop(), "1 request: 1 never answered\n");
    drop(stream);
}

#[test]
fn what_cannot_be_is_refused() {
    insta::assert_snapshot!(redrive(&["sink", "--listen", "0.0.0.0:0"]).refused(), @"error: refusing to listen on 0.0.0.0:0: a sink listens on 127.0.0.1 or [::1] only");
    let first = Sink::start(&["--quiet"]);
    let second = redrive(&["sink", "--listen", &first.address]);
    let refused = second.refused();
    let expected = format!("error: could not listen on {}: the address is in use", first.address);
    assert!(refused.starts_with(&expected) && refused.contains("--listen 127.0.0.1:"), "{refused}");
    for wrong in [["--fail", "30"], ["--status", "99"], ["--slow", "2"], ["--listen", "here"]] {
        let run = redrive(&["sink", wrong[0], wrong[1]]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{wrong:?}");
        assert!(run.stderr.contains(wrong[0]), "{}", run.stderr);
    }
}
