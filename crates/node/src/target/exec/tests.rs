//! Programs as targets: what they get, what their ends are told as, and what follows when their time is over.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::connectors::Drivers;
use crate::secret::Secrets;
use crate::target::call_test::{book_of, call, delivery, order};
use crate::tls::Roots;

/// The target of a book with that in it.
fn target(words: &[&str], keys: &str) -> WorkerTarget {
    let words = json!(words);
    let book = Arc::new(book_of(&format!(
        "version: 1\nsecrets: {{ s: {{ env: CARGO_PKG_NAME }} }}\nservices:\n  shop:\n    target: {{ exec: {words}, {keys} }}\n    events: [orders.placed]\n"
    )));
    let target = &book.sections().services[0].target;
    let (supervisor, pool) = (Supervisor::new(), Arc::new(Pool::new(Roots::System)));
    let site = Site {
        drivers: Drivers::built_in(),
        sections: book.sections(),
        secrets: &Secrets::new(&book, Drivers::built_in()),
        pool: &pool,
        supervisor: &supervisor,
        permits: 1,
        place: "service shop, line 4".to_owned(),
    };
    let ExecSettings { command, folder, run } = settings(&target.endpoint);
    let launch = Launch::Program { words: command.clone(), folder: folder.clone() };
    WorkerTarget::new(launch, run, &site).expect("a good target")
}

fn sh(script: &str, keys: &str) -> WorkerTarget {
    target(&["sh", "-c", script], keys)
}

async fn ran(target: &WorkerTarget, limit: &str, delivery: PendingDelivery) -> (Exit, String, RunReport) {
    let ending = target.call(call(limit, vec![delivery])).await;
    let Ending::Ran { reply: TargetReply { seen: ReplyKind::Process(exit), message, .. }, report } = ending
    else {
        panic!("{ending:?}")
    };
    (exit, message, *report)
}

#[tokio::test]
async fn what_a_run_came_to_is_told_in_its_own_words() {
    #[rustfmt::skip]
    let cases = [
        ("well",       "exit 0",                                    "60s",   Exit::Code(0),       "process exited with status 0"),
        ("a status",   "echo no disk >&2; exit 3",                  "60s",   Exit::Code(3),       "Process crashed: exit status 3: no disk"),
        ("in silence", "exit 3",                                    "60s",   Exit::Code(3),       "Process crashed: exit status 3"),
        ("a signal",   "kill -SEGV $$",                             "60s",   Exit::Signal(11),    "Process crashed: signal 11"),
        ("a report",   r#"echo '{"status":"error","error":"ValueError: no id"}'; exit 1"#, "60s", Exit::ReportedError, "ValueError: no id"),
        ("too long",   "sleep 1000",                                "300ms", Exit::TimeLimit,     "process exceeded its time limit of 300ms"),
    ];
    for (name, script, limit, exit, message) in cases {
        let (seen, said, _) = ran(&sh(script, "grace: 100ms"), limit, order(7, "e-1")).await;
        assert_eq!((seen, said.as_str()), (exit, message), "{name}");
    }
    let (exit, message, _) =
        ran(&target(&["/nonexistent/worker"], "grace: 1s"), "60s", order(7, "e-1")).await;
    let expected =
        "process could not be started: /nonexistent/worker: No such file or directory (os error 2)";
    assert_eq!((exit, message.as_str()), (Exit::SpawnFailed, expected));
}

#[tokio::test]
async fn a_program_gets_the_event_and_what_tells_the_delivery_apart() {
    let (_, _, whole) = ran(&sh("cat", "grace: 1s"), "60s", order(7, "e-1")).await;
    let event: Value = serde_json::from_str(&whole.output).expect("JSON");
    assert_eq!(
        (&event["id"], &event["type"], &event["data"]),
        (&json!("e-1"), &json!("orders.placed"), &json!({"total": 12}))
    );
    let (_, _, data) = ran(&sh("cat", "format: data"), "60s", order(7, "e-1")).await;
    assert_eq!(data.output, r#"{"total":12}"#);

    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e-2"),
        ("ce-source", "web"),
        ("ce-type", "orders.placed"),
        ("ce-partitionkey", "customer 7"),
        ("ce-correlationid", "c-1"),
        ("ce-traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    let delivery = PendingDelivery { attempts: 2, ..delivery(8, &headers, "") };
    let script = "env | grep -e ^REDRIVE -e ^TRACE -e ^OWN -e ^CARGO_PKG_NAME | sort";
    let keys = "env: { OWN: one }, inherit: [CARGO_PKG_NAME]";
    let (_, _, report) = ran(&sh(script, keys), "60s", delivery.clone()).await;
    let lines: Vec<&str> = report.output.lines().filter(|line| !line.starts_with("REDRIVE_RUN=")).collect();
    let (id, webhook) = (delivery.id.to_string(), webhook_id(delivery.id));
    let expected = [
        "CARGO_PKG_NAME=redrive-node".to_owned(),
        "OWN=one".to_owned(),
        "REDRIVE_ATTEMPT=3".to_owned(),
        "REDRIVE_CORRELATION_ID=c-1".to_owned(),
        format!("REDRIVE_DELIVERY_ID={id}"),
        "REDRIVE_EVENT_ID=e-2".to_owned(),
        "REDRIVE_EVENT_SOURCE=web".to_owned(),
        "REDRIVE_EVENT_TYPE=orders.placed".to_owned(),
        "REDRIVE_SEQUENCE=8".to_owned(),
        "REDRIVE_SERVICE=shop".to_owned(),
        "REDRIVE_SESSION=customer 7".to_owned(),
        format!("REDRIVE_WEBHOOK_ID={webhook}"),
    ];
    assert_eq!(lines[..expected.len()], expected);
    assert!(
        lines[expected.len()].starts_with("TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn what_runs_elsewhere_is_cancelled_when_time_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = folder.path().join("cancelled");
    let read = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
    let cancel = json!(["sh", "-c", format!("echo $REDRIVE_EVENT_ID >{}", seen.display())]);
    let over = "process exceeded its time limit of 300ms";
    let keys = format!("grace: 100ms, on_timeout: {cancel}");
    let (_, message, _) = ran(&sh("sleep 1000", &keys), "300ms", order(7, "e-1")).await;
    assert_eq!((message, read(&seen).as_str()), (format!("{over}; cancelled by `on_timeout`"), "e-1\n"));
    let keys = "grace: 100ms, on_timeout: [sh, -c, 'echo gone >&2; exit 4']";
    let (_, message, _) = ran(&sh("sleep 1000", keys), "300ms", order(7, "e-1")).await;
    let failed = "`on_timeout` failed: Process crashed: exit status 4: gone";
    assert_eq!(message, format!("{over}; {failed}"));

    let (address, asked) = one_call().await;
    let keys = format!("grace: 100ms, on_timeout: [\"http://{address}/cancel\"]");
    let (_, message, _) = ran(&sh("sleep 1000", &keys), "300ms", order(7, "e-1")).await;
    assert_eq!(message, format!("{over}; cancelled by `on_timeout`"));
    let text = asked.await.expect("no panic");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("POST /cancel "), "{head}");
    let told: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&told["event_id"], &told["attempt"]), (&json!("e-1"), &json!("1")));
}

/// Where one call is answered, and what it was.
async fn one_call() -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("it is called");
        let mut text = String::new();
        while !text.ends_with('}') {
            let mut buffer = [0; 4_096];
            let length = stream.read(&mut buffer).await.expect("read");
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
        text
    });
    (address, asked)
}

#[tokio::test]
async fn a_cancelling_call_carries_what_the_book_says() {
    #[rustfmt::skip]
    let cases = [
        ("",                                                          "POST /cancel ",   "content-type: application/json\r\n"),
        (", method: DELETE",                                          "DELETE /cancel ", ""),
        (", headers: { x-tenant: acme }",                             "POST /cancel ",   "x-tenant: acme\r\n"),
        (", headers: { content-type: text/plain }",                   "POST /cancel ",   "content-type: text/plain\r\n"),
        (", auth: { bearer: s }",                                     "POST /cancel ",   "authorization: Bearer redrive-node\r\n"),
        (", auth: { api_key: { header: x-key, secret: s } }",         "POST /cancel ",   "x-key: redrive-node\r\n"),
    ];
    for (more, line, header) in cases {
        let (address, asked) = one_call().await;
        let keys = format!("grace: 100ms, on_timeout: {{ http: \"http://{address}/cancel\"{more} }}");
        let (_, message, _) = ran(&sh("sleep 1000", &keys), "100ms", order(7, "e-1")).await;
        let expected = "process exceeded its time limit of 100ms; cancelled by `on_timeout`";
        assert_eq!(message, expected, "{more}");
        let text = asked.await.expect("no panic");
        assert!(text.starts_with(line) && text.contains(header), "{more}: {text}");
    }
}

#[tokio::test]
async fn a_run_that_our_shutdown_cut_short_says_nothing_of_the_program() {
    let target = sh("sleep 1000", "grace: 100ms");
    let supervisor = target.supervisor.clone();
    let call = tokio::spawn(async move { target.call(call("60s", vec![order(7, "e-1")])).await });
    supervisor.stop(Duration::from_secs(1));
    assert_eq!(call.await.expect("no panic"), Ending::Interrupted);
}
