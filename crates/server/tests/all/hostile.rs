//! Clients and targets that mean no good: nonsense, floods, and patience used as a weapon.
//!
//! Whatever comes, the answer is an error in the one form that errors have, others are served meanwhile,
//! nothing panics and memory stays bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::run::Folder;
use crate::server::{PATIENCE, Server, in_folder, serve, until};
use crate::target::{Say, Target, book, status};

/// More than this the server never has, however hard anybody tries; it is a build without optimisation.
const MEMORY_KB_MAX: u64 = 150_000;

#[track_caller]
fn assert_unharmed(server: &Server) {
    server.assert_calm();
    let peak = server.memory_peak_kb();
    assert!(peak < MEMORY_KB_MAX, "it had {peak} kB");
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn what_is_no_request_is_refused() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let flood: String = "x-more: and more\r\n".repeat(3_000);
    let huge = "h".repeat(300_000);
    let post = "POST /v1/events/a.b HTTP/1.1\r\nhost: localhost\r\n";
    #[rustfmt::skip]
    let cases: [(&str, String, u16, &str); 24] = [
        ("garbage",                 "\x16\x03\x01 not HTTP at all\r\n\r\n".to_owned(),                          400, "BAD_REQUEST"),
        ("half a line",             "POST\r\n\r\n".to_owned(),                                                  400, "BAD_REQUEST"),
        ("another version",         "GET /healthz HTTP/9.9\r\n\r\n".to_owned(),                                 400, "BAD_REQUEST"),
        ("a broken header",         "GET /healthz HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),                     400, "BAD_REQUEST"),
        ("a zero byte in a header", "GET /healthz HTTP/1.1\r\nhost: a\0b\r\n\r\n".to_owned(),                   400, "BAD_REQUEST"),
        ("two lengths",             format!("{post}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"),        400, "BAD_REQUEST"),
        ("a length below nought",   format!("{post}content-length: -1\r\n\r\n"),                                400, "BAD_REQUEST"),
        ("a huge header",           format!("GET /healthz HTTP/1.1\r\nx: {huge}\r\n\r\n"),                      431, "HEADERS_TOO_LARGE"),
        ("a flood of headers",      format!("GET /healthz HTTP/1.1\r\n{flood}\r\n"),                            431, "HEADERS_TOO_LARGE"),
        ("chunks of no length",     format!("{post}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n"), 400, "VALIDATION_ERROR"),
        ("a chunk beyond measure",  format!("{post}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n"),   400, "VALIDATION_ERROR"),
        ("an odd encoding",         format!("{post}transfer-encoding: snail\r\n\r\n"),                          400, "BAD_REQUEST"),
        ("no host",                 "GET /healthz HTTP/1.1\r\n\r\n".to_owned(),                                 400, "BAD_REQUEST"),
        ("another host's address",  "GET http://evil.test/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), 400, "BAD_REQUEST"),
        ("a body in gzip",          format!("{post}content-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x01\x08"), 415, "UNSUPPORTED_ENCODING"),
        ("a body in two codings",   format!("{post}content-encoding: identity\r\ncontent-encoding: br\r\ncontent-length: 0\r\n\r\n"), 415, "UNSUPPORTED_ENCODING"),
        ("a wrong method",          "DELETE /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),                 405, "METHOD_NOT_ALLOWED"),
        ("a method of its own",     "BREW /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),                     405, "METHOD_NOT_ALLOWED"),
        ("nowhere",                 "GET /v1/nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),                   404, "PATH_NOT_FOUND"),
        ("up and away",             "GET /v1/../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),          404, "PATH_NOT_FOUND"),
        ("bytes that are no text",  "GET /v1/events/%ff%fe HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),             400, "VALIDATION_ERROR"),
        ("an escape cut short",     "GET /v1/events/%f HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),                 404, "EVENT_NOT_FOUND"),
        ("a zero byte escaped",     "GET /v1/deliveries/%00 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),            400, "VALIDATION_ERROR"),
        ("a service of junk",       "POST /v1/services/%0a%2f/pause HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".to_owned(), 404, "SERVICE_NOT_FOUND"),
    ];
    for (name, request, status, code) in cases {
        let answer = server.client.ask(&request, "");
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        assert_eq!(answer.error(), (status, code.to_owned()), "{name}");
    }
    // Which of two bounds it meets first depends on how it arrives.
    let (status, _) =
        server.client.ask(&format!("GET /{huge} HTTP/1.1\r\nhost: localhost\r\n\r\n"), "").error();
    assert!(matches!(status, 414 | 431), "{status}");
    assert_unharmed(&server);
    server.stop().assert_calm();
}

/// The statuses of all answers that come on one connection to those bytes, until it is hung up.
#[track_caller]
fn statuses(server: &Server, bytes: &[u8]) -> Vec<u16> {
    let mut stream = TcpStream::connect(&server.client.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(bytes).expect("it reads");
    let mut heard = Vec::new();
    // It may break off what it has heard enough of; what came before that counts.
    let _ = stream.read_to_end(&mut heard);
    let heard = String::from_utf8(heard).expect("it answers in text");
    // Our own words name the version too, without a status behind it.
    heard.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

/// What a proxy before us takes for one request must be one request to us, or none: a second one inside it
/// would be sent in somebody else's name.
#[test]
fn no_request_is_smuggled_inside_another() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let post = "POST /v1/events/a.b HTTP/1.1\r\nhost: localhost\r\n";
    let inner = "POST /v1/events/smuggled HTTP/1.1\r\nhost: localhost\r\nidempotency-key: smuggled\r\ncontent-length: 2\r\n\r\n{}";
    let length = inner.len();
    let chunk = format!("{length:x}\r\n{inner}\r\n0\r\n\r\n");
    #[rustfmt::skip]
    let refused = [
        ("two lengths",                     format!("{post}content-length: 0\r\ncontent-length: {length}\r\n\r\n{inner}")),
        ("the longer one first",            format!("{post}content-length: {length}\r\ncontent-length: 0\r\n\r\n{inner}")),
        ("two lengths in one",              format!("{post}content-length: 0, {length}\r\n\r\n{inner}")),
        ("a length with a sign",            format!("{post}content-length: +0\r\n\r\n{inner}")),
        ("a length in another base",        format!("{post}content-length: 0x0\r\n\r\n{inner}")),
        ("a length beyond all numbers",     format!("{post}content-length: 18446744073709551616\r\n\r\n{inner}")),
        ("a length before its colon",       format!("{post}content-length : 0\r\n\r\n{inner}")),
        ("a length after a tab",            format!("{post}content-length\t: 0\r\n\r\n{inner}")),
        ("a length that is folded",         format!("{post}content-length:\r\n 0\r\n\r\n{inner}")),
        ("a folded header",                 format!("{post}x-more: and\r\n more\r\ncontent-length: 0\r\n\r\n{inner}")),
        ("a header that begins folded",     format!("POST /v1/events/a.b HTTP/1.1\r\n host: localhost\r\ncontent-length: 0\r\n\r\n{inner}")),
        ("a line that ends in its middle",  format!("{post}x-more: and\rtransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n{inner}")),
        ("chunks, but not last",            format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}")),
        ("chunks of another name",          format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{inner}")),
        ("chunks and then not",             format!("{post}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n{inner}")),
        ("chunks before their colon",       format!("{post}transfer-encoding : chunked\r\n\r\n0\r\n\r\n{inner}")),
        ("chunks, with a byte before",      format!("{post}transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n{inner}")),
        ("chunks in an old version",        format!("{}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}", post.replace("1.1", "1.0"))),
        ("a chunk's length with a sign",    format!("{post}transfer-encoding: chunked\r\n\r\n-0\r\n\r\n{inner}")),
        ("a chunk's length in its own way", format!("{post}transfer-encoding: chunked\r\n\r\n0x0\r\n\r\n{inner}")),
        ("a chunk longer than it says",     format!("{post}transfer-encoding: chunked\r\n\r\n2\r\n{{}}xx\r\n0\r\n\r\n{inner}")),
        ("a chunk's line that is half one", format!("{post}transfer-encoding: chunked\r\n\r\n2\n{{}}\r\n0\r\n\r\n{inner}")),
        ("a line inside a chunk's remark",  format!("{post}transfer-encoding: chunked\r\n\r\n2;a\nb\r\n{{}}\r\n0\r\n\r\n{inner}")),
        ("two hosts",                       format!("{post}host: elsewhere.test\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}")),
    ];
    for (name, bytes) in refused {
        assert_eq!(statuses(&server, bytes.as_bytes()), [400], "{name}");
    }
    // Both at once has one meaning in HTTP/1.1, and the connection ends with it, so that nothing follows.
    let both = [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ];
    for framing in both {
        assert_eq!(
            statuses(&server, format!("{post}{framing}\r\n{chunk}").as_bytes()),
            [400],
            "{framing}: no JSON"
        );
        let (empty, rest) = ("2\r\n{}\r\n0\r\n\r\n", inner);
        assert_eq!(
            statuses(&server, format!("{post}{framing}\r\n{empty}{rest}").as_bytes()),
            [202],
            "{framing}"
        );
    }
    // A body is a body, whatever it looks like.
    let quoted = format!("\"{}\"", inner.replace("\r\n", " ").replace('"', "'"));
    let whole = format!("{post}connection: close\r\ncontent-length: {}\r\n\r\n{quoted}", quoted.len());
    assert_eq!(statuses(&server, whole.as_bytes()), [202]);
    assert_eq!(server.get("/v1/events/smuggled").status, 404, "nothing came through");
    // A line may end without its CR, and is then no less a line: its length holds.
    let bare = format!("{post}connection: close\r\ncontent-length: {}\r\n\r\n{quoted}", quoted.len());
    assert_eq!(statuses(&server, bare.replace("\r\n", "\n").as_bytes()), [202]);
    assert_eq!(server.get("/v1/events/smuggled").status, 404, "nothing came through");
    // And what follows one request by right is one more.
    let last = inner.replace("content-length", "connection: close\r\ncontent-length");
    let two = format!("{post}content-length: 2\r\n\r\n{{}}{last}");
    assert_eq!(statuses(&server, two.as_bytes()), [202, 202]);
    assert_eq!(server.get("/v1/events/smuggled").status, 200);
    assert_unharmed(&server);
    server.stop().assert_calm();
}

#[test]
fn ids_of_nobody_and_pages_from_elsewhere_get_plain_answers() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    for digits in ["0", "7", "8", "f"] {
        let id = digits.repeat(32);
        assert_eq!(server.get(&format!("/v1/deliveries?before={id}")).status, 200, "before {id}");
        assert_eq!(
            server.get(&format!("/v1/deliveries/{id}")).error(),
            (404, "DELIVERY_NOT_FOUND".to_owned())
        );
        assert_eq!(
            server.get(&format!("/v1/events/{}", &id[..16])).error(),
            (404, "EVENT_NOT_FOUND".to_owned())
        );
    }
    let pause = "/v1/services/log/pause";
    let from_a_page = server.post(pause, "origin: https://evil.test\r\n", "");
    assert_eq!(from_a_page.error(), (403, "FORBIDDEN".to_owned()));
    assert_eq!(server.post(pause, "", "").status, 200);
    server.stop().assert_calm();
}

#[test]
fn what_is_no_event_is_refused_by_name() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let structured = "content-type: application/cloudevents+json\r\n";
    let batch = "content-type: application/cloudevents-batch+json\r\n";
    let binary = "ce-specversion: 1.0\r\nce-id: a\r\nce-source: /s\r\nce-type: a.b\r\n";
    let whole = json!({ "specversion": "1.0", "id": "a", "source": "/s", "type": "a.b" });
    let with = |key: &str, value: serde_json::Value| {
        let mut event = whole.clone();
        event[key] = value;
        event.to_string()
    };
    let without = |key: &str| {
        let mut event = whole.clone();
        event.as_object_mut().expect("an object").remove(key);
        event.to_string()
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let many = json!(vec![whole.clone(); 1_001]).to_string();
    #[rustfmt::skip]
    let cases: Vec<(&str, &str, String, Vec<u8>)> = vec![
        ("no id",                "/v1/events", structured.to_owned(), without("id").into()),
        ("no type",              "/v1/events", structured.to_owned(), without("type").into()),
        ("no source",            "/v1/events", structured.to_owned(), without("source").into()),
        ("no version",           "/v1/events", structured.to_owned(), without("specversion").into()),
        ("another version",      "/v1/events", structured.to_owned(), with("specversion", json!("9")).into()),
        ("an empty id",          "/v1/events", structured.to_owned(), with("id", json!("")).into()),
        ("an id that is none",   "/v1/events", structured.to_owned(), with("id", json!({})).into()),
        ("a long id",            "/v1/events", structured.to_owned(), with("id", json!("i".repeat(600))).into()),
        ("a type of junk",       "/v1/events", structured.to_owned(), with("type", json!("a b\n")).into()),
        ("a time of nowhere",    "/v1/events", structured.to_owned(), with("time", json!("soon")).into()),
        ("a name in capitals",   "/v1/events", structured.to_owned(), with("Bad-Name", json!("x")).into()),
        ("two kinds of data",    "/v1/events", structured.to_owned(), with("data_base64", json!("!")).into()),
        ("no JSON",              "/v1/events", structured.to_owned(), b"{\"id\":".to_vec()),
        ("no text",              "/v1/events", structured.to_owned(), b"{\"id\":\"\xff\"}".to_vec()),
        ("a list for one",       "/v1/events", structured.to_owned(), b"[]".to_vec()),
        ("JSON without an end",  "/v1/events", structured.to_owned(), deep.clone().into_bytes()),
        ("one for a list",       "/v1/events", batch.to_owned(),      whole.to_string().into()),
        ("a bad one in a list",  "/v1/events", batch.to_owned(),      format!("[{whole},7]").into()),
        ("too long a list",      "/v1/events", batch.to_owned(),      many.into()),
        ("binary without an id", "/v1/events", binary.replace("ce-id: a\r\n", ""), b"x".to_vec()),
        ("a header of no text",  "/v1/events", format!("{binary}ce-subject: %ff\r\n"), b"x".to_vec()),
        ("easy and no JSON",     "/v1/events/a.b", String::new(), b"hello".to_vec()),
        ("an easy type of junk", "/v1/events/a%20b", String::new(), b"{}".to_vec()),
        ("a key too long",       "/v1/events/a.b", format!("idempotency-key: {}\r\n", "k".repeat(600)), b"{}".to_vec()),
        ("a session too long",   "/v1/events/a.b", format!("partitionkey: {}\r\n", "k".repeat(600)), b"{}".to_vec()),
    ];
    for (name, path, headers, body) in cases {
        let answer = server.post(path, &headers, body);
        assert_eq!(answer.error(), (400, "VALIDATION_ERROR".to_owned()), "{name}: {answer:?}");
        let details = answer.json()["error"]["details"].clone();
        assert!(details["field"].is_string() && details["reason"].is_string(), "{name}: {details}");
    }
    assert_eq!(server.status()["events"], 0, "nothing of it was taken");
    // Data are the consumer's own: however deep, they are kept and shown as they came.
    let answer = server.post("/v1/events/a.b", "idempotency-key: deep\r\n", &deep);
    assert_eq!(answer.status, 202, "{answer:?}");
    server.until("deep", "delivered");
    let taken_over = server.post("/v1/events/a.b", "x-correlation-id: mine-7\r\n", "no");
    assert_eq!(taken_over.header("x-correlation-id"), Some("mine-7"));
    let not_fit = server.post("/v1/events/a.b", "x-correlation-id: two words\r\n", "no");
    assert_ne!(not_fit.header("x-correlation-id"), Some("two words"));
    assert_unharmed(&server);
    server.stop().assert_calm();
}

#[test]
fn bodies_beyond_measure_are_refused() {
    const MEGABYTES: usize = 100;
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let megabyte = vec![b'1'; 1 << 20];
    for round in 0..3 {
        for kind in ["content-length", "chunked"] {
            let mut connection = server.client.connect().expect("it listens");
            let framing = match kind {
                "chunked" => "transfer-encoding: chunked".to_owned(),
                _ => format!("content-length: {}", MEGABYTES << 20),
            };
            let head = format!("POST /v1/events/a.b HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n");
            connection.send(head.as_bytes()).expect("it reads");
            for _ in 0..MEGABYTES {
                let sent = match kind {
                    "chunked" => connection
                        .send(b"100000\r\n")
                        .and_then(|()| connection.send(&megabyte))
                        .and_then(|()| connection.send(b"\r\n")),
                    _ => connection.send(&megabyte),
                };
                // It has heard enough and hangs up.
                if sent.is_err() {
                    break;
                }
            }
            let answer = connection.answer().unwrap_or_else(|error| panic!("{kind}, {round}: {error}"));
            assert_eq!(answer.error(), (413, "PAYLOAD_TOO_LARGE".to_owned()), "{kind}");
        }
    }
    // The bound itself is no refusal.
    let body = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    assert_eq!(server.post("/v1/events/a.b", "", body(1 << 20)).status, 202);
    assert_eq!(server.post("/v1/events/a.b", "", body((1 << 20) + 1)).status, 413);
    assert_unharmed(&server);
    server.stop().assert_calm();
}

/// A client that says a byte now and then.
struct Slow {
    stream: TcpStream,
    rest: Vec<u8>,
    heard: Vec<u8>,
    is_over: bool,
}

impl Slow {
    fn new(server: &Server, at_once: &str, rest: &str) -> Self {
        let mut stream = TcpStream::connect(&server.client.address).expect("it listens");
        stream.write_all(at_once.as_bytes()).expect("it reads");
        stream.set_nonblocking(true).expect("a socket");
        Self { stream, rest: rest.bytes().rev().collect(), heard: Vec::new(), is_over: false }
    }

    fn go_on(&mut self) {
        if let Some(byte) = self.rest.pop() {
            // A server that has hung up is noticed when reading.
            let _ = self.stream.write(&[byte]);
        }
        let mut buffer = [0; 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.heard.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.is_over = true,
        }
    }
}

#[test]
fn clients_that_dawdle_keep_nobody_waiting_and_are_cut_off() {
    const EACH: usize = 300;
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let long = "x".repeat(2_000);
    let mut slow: Vec<Slow> = (0..EACH)
        .flat_map(|_| {
            let head = "POST /v1/events/orders.placed HTTP/1.1\r\nhost: localhost\r\n";
            let body = format!("{head}content-length: 5000\r\n\r\n\"");
            [
                Slow::new(&server, "POST ", &long),
                Slow::new(&server, &body, &long),
                Slow::new(&server, head, &format!("x: {long}")),
            ]
        })
        .collect();
    let mut number = 0;
    let mut slowest = Duration::ZERO;
    let started = Instant::now();
    while slow.iter().any(|slow| !slow.is_over) {
        assert!(started.elapsed() < Duration::from_mins(1), "nobody cuts them off");
        slow.iter_mut().filter(|slow| !slow.is_over).for_each(Slow::go_on);
        if number < 200 {
            let asked = Instant::now();
            server.accept("orders.placed", &format!("o-{number}"), "");
            slowest = slowest.max(asked.elapsed());
            number += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(slowest < Duration::from_secs(5), "somebody waited for {slowest:?}");
    for number in 0..number {
        server.until(&format!("o-{number}"), "delivered");
    }
    let told = slow.iter().filter(|slow| slow.heard.starts_with(b"HTTP/1.1 408")).count();
    assert_eq!(told, EACH, "who sends a body slowly is told");
    let told = slow.iter().filter(|slow| String::from_utf8_lossy(&slow.heard).contains("x-correlation-id: "));
    assert_eq!(told.count(), EACH, "and under which id");
    assert_unharmed(&server);
    server.stop().assert_calm();
}

/// Each connection may bring a body as large as any; all of them together may not.
#[test]
fn bodies_that_come_at_once_take_bounded_memory() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let part = vec![b'x'; 1024 * 1024 - 1];
    let head = format!(
        "POST /v1/events/a.b HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        part.len() + 1
    );
    let mut open = Vec::new();
    for _ in 0..500 {
        let mut connection = server.client.connect().expect("it listens");
        // One that is turned away may find the door closed before it has sent everything.
        let _ = connection.send(head.as_bytes()).and_then(|()| connection.send(&part));
        open.push(connection);
    }
    assert_eq!(server.post("/v1/events/a.b", "", "{}").status, 202, "a small one finds room");
    let peak = server.memory_peak_kb();
    assert!(peak < 400_000, "it had {peak} kB");
    drop(open);
    server.stop().assert_calm();
}

#[test]
fn clients_do_not_take_the_last_file_from_calls() {
    // It hangs up after its first answer, so the second call needs a connection of its own.
    let target = Target::start(|call| match call.nth {
        1 => Say::Bytes(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
        _ => status(200),
    });
    let folder = Folder::with("redrive.yaml", &book(&target, &[]).replace("20ms", "1s"));
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -n 160; exec \"$0\" \"$@\""]);
    let server = serve(&folder, &["--rules", "redrive.yaml"]);
    command.arg(server.get_program()).args(server.get_args());
    let server = Server::run(in_folder(command, &folder));
    server.accept("orders.placed", "o-1", "");
    target.until(1);
    // More than the server may have files; they wait, and the retry goes out all the same.
    let idle: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(&server.client.address).expect("it listens")).collect();
    target.until(2);
    drop(idle);
    // They were more than one address may have, and count until the server has noticed that they left.
    until("a place is free again", || answers(&server.client.address).then_some(()));
    let delivery = server.until("o-1", "delivered");
    assert_eq!(delivery["attempts"], 2, "{delivery}");
    assert_unharmed(&server);
    let ended = server.stop();
    ended.assert_calm();
    assert!(!ended.stderr.contains("could not accept"), "{}", ended.stderr);
}

fn answers(address: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map(|_| said.starts_with("HTTP/1.1 200 "))
    };
    ask().unwrap_or(false)
}

#[test]
fn targets_that_answer_nonsense_are_failures_like_others() {
    type Script = fn() -> Say;
    #[rustfmt::skip]
    let cases: [(&str, &str, Script); 9] = [
        ("nothing at all",         "dead",      || Say::Bytes(b"")),
        ("garbage",                "dead",      || Say::Bytes(b"\xff\xfe\x00 nonsense \r\n\r\n")),
        ("half an answer",         "dead",      || Say::Bytes(b"HTTP/1.1 200 O")),
        ("no such status",         "dead",      || Say::Bytes(b"HTTP/1.1 9999 What\r\n\r\n")),
        ("a head without an end",  "dead",      || Say::Endless(b"HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n")),
        ("a line without an end",  "dead",      || Say::Endless(b"HTTP/1.1 200 ", b"OKOKOKOKOKOKOKOK")),
        ("a yes without an end",   "delivered", || Say::Endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'y'; 4096])),
        ("a no without an end",    "dead",      || Say::Endless(b"HTTP/1.1 503 No\r\n\r\n", &[b'n'; 4096])),
        ("a length never kept",    "dead",      || Say::Bytes(b"HTTP/1.1 500 No\r\ncontent-length: 99999999999\r\n\r\nno")),
    ];
    let targets: Vec<Target> = cases
        .iter()
        .map(|(_, _, script)| {
            let script = *script;
            Target::start(move |_| script())
        })
        .collect();
    let mut rules = "version: 1\ndefaults: { timeout: 3s, on_failure: { transient: once, unknown: once } }\nretry_policies: { once: { initial: 10ms, max: 10ms, retries: 1, jitter: none } }\nservices:\n".to_owned();
    for (number, target) in targets.iter().enumerate() {
        rules.push_str(&format!(
            "  s{number}: {{ target: {{ http: \"{}\" }}, breaker: none, events: [\"t{number}\"] }}\n",
            target.url()
        ));
    }
    let folder = Folder::with("redrive.yaml", &rules);
    let server = Server::start(&folder);
    for number in 0..cases.len() {
        for copy in 0..3 {
            server.accept(&format!("t{number}"), &format!("o-{number}-{copy}"), "");
        }
    }
    for (number, (name, state, _)) in cases.iter().enumerate() {
        for copy in 0..3 {
            let id = format!("o-{number}-{copy}");
            let mut delivery = serde_json::Value::Null;
            let started = Instant::now();
            while !matches!(delivery["state"].as_str(), Some("dead" | "delivered")) {
                assert!(started.elapsed() < Duration::from_secs(10), "{name}: {delivery}");
                delivery = server.delivery(&id);
            }
            assert_eq!(delivery["state"], *state, "{name}: {delivery}");
            if *state == "dead" {
                let message = delivery["death"]["message"].as_str().expect("a message");
                assert!(!message.is_empty() && message.len() < 2_000, "{name}: {message}");
            }
        }
    }
    assert_unharmed(&server);
    server.stop().assert_calm();
}
