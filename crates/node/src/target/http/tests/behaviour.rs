//! Whatever the other side does, a call ends, and says what it was.

use std::time::Duration;

use redrive_core::policy::answer::AnswerHeaders;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::server::{Act, Server, answer, send};
use super::*;

/// Short, for servers that hang.
const HASTY: &str = "{ connect: 300ms, headers: 300ms, whole: 20s }";

async fn check(timeout: &str, form: HttpFormat, cases: Vec<(&str, Vec<Act>, &str)>) {
    for (name, script, expected) in cases {
        let server = Server::start(script).await;
        let ending = target(&server.url(), form).call(call(timeout, vec![order(7, "e-1")])).await;
        assert_eq!(told(&ending, server.port()), expected, "{name}");
        assert_eq!(server.log(|log| log.requests.len()), 1, "{name}: one call is one request");
    }
}

#[tokio::test]
async fn answers_are_told_as_they_are() {
    let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n";
    #[rustfmt::skip]
    let cases = vec![
        ("taken",                     vec![answer("200 OK", "thanks")],                   r#"200 "thanks", 200 OK"#),
        ("taken without a word",      vec![send("HTTP/1.1 204 No Content\r\n\r\n")],      r#"204 "", 204 No Content"#),
        ("HTTP 1.0",                  vec![send("HTTP/1.0 200 OK\r\n\r\nyes"), Act::Close], r#"200 "yes", 200 OK"#),
        ("in chunks",                 vec![send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n1\r\nw\r\n0\r\n\r\n")], r#"200 "now", 200 OK"#),
        ("after a hint",              vec![send("HTTP/1.1 103 Early Hints\r\n\r\n"), answer("201 Created", "")], r#"201 "", 201 Created"#),
        ("a redirect stays one",      vec![send("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")], r#"302 "", 302 Found"#),
        ("gone",                      vec![answer("410 Gone", "no such hook")],           r#"410 "no such hook", 410 Gone: no such hook"#),
        ("away",                      vec![answer("503 Service Unavailable", "")],        r#"503 "", 503 Service Unavailable"#),
        ("wait some seconds",         vec![send(&format!("{head}retry-after: 7\r\n\r\n"))], r#"429 "", 429 Too Many Requests, wait 7s"#),
        ("wait until then",           vec![send(&format!("{head}retry-after: Fri, 31 Dec 2049 23:59:59 GMT\r\n\r\n"))], r#"429 "", 429 Too Many Requests, wait 1d"#),
        ("wait until the past",       vec![send(&format!("{head}retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n\r\n"))], r#"429 "", 429 Too Many Requests, wait 0s"#),
        ("wait for nobody knows what", vec![send(&format!("{head}retry-after: soon\r\n\r\n"))], r#"429 "", 429 Too Many Requests"#),
        ("no text",                   vec![send("HTTP/1.1 400 Bad Request\r\ncontent-length: 3\r\n\r\n"), Act::Send(b"a\xff\0".to_vec())], "400 \"a\u{fffd}\u{fffd}\", 400 Bad Request: a\u{fffd}\u{fffd}"),
        ("an upgrade nobody wants",   vec![send("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")], r#"101 "", 101 Switching Protocols"#),
    ];
    check(PATIENT, HttpFormat::Binary, cases).await;
}

#[tokio::test]
async fn what_is_no_answer_is_told_apart() {
    let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-flood: 1\r\n".repeat(10_000));
    let long = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "x".repeat(200_000));
    #[rustfmt::skip]
    let cases = vec![
        ("hangs up",              vec![Act::Close],                                  "Transport(ClosedEarly), 127.0.0.1:PORT closed the connection before the response was complete"),
        ("hangs up in the head",  vec![send("HTTP/1.1 200 OK\r\ncont"), Act::Close],  "Transport(ClosedEarly), 127.0.0.1:PORT closed the connection before the response was complete"),
        ("breaks off",            vec![Act::Reset],                                  "Transport(Reset), 127.0.0.1:PORT reset the connection"),
        ("breaks off in the head", vec![send("HTTP/1.1 2"), Act::Reset],             "Transport(Reset), 127.0.0.1:PORT reset the connection"),
        ("another protocol",      vec![send("220 mail.test ESMTP\r\n"), Act::Hang],  "Transport(Protocol), response of 127.0.0.1:PORT is not HTTP: invalid HTTP version parsed"),
        ("no status",             vec![send("HTTP/1.1 abc\r\n\r\n")],                "Transport(Protocol), response of 127.0.0.1:PORT is not HTTP: invalid HTTP status-code parsed"),
        ("bytes of any kind",     vec![Act::Send(vec![0, 255, 13, 10, 13, 10])],     "Transport(Protocol), response of 127.0.0.1:PORT is not HTTP: invalid HTTP version parsed"),
        ("a flood of headers",    vec![send(&flood)],                                "Transport(Protocol), response of 127.0.0.1:PORT is not HTTP: message head is too large"),
        ("a header without end",  vec![send(&long)],                                 "Transport(Protocol), response of 127.0.0.1:PORT is not HTTP: message head is too large"),
        ("headers without end",   vec![send("HTTP/1.1 200 OK\r\n"), Act::Repeat(b"x-flood: 1\r\n".to_vec())], "Transport(Protocol), response of 127.0.0.1:PORT is not HTTP: message head is too large"),
    ];
    check(PATIENT, HttpFormat::Binary, cases).await;
}

#[tokio::test]
async fn a_target_that_hangs_meets_the_limit_of_that_part() {
    let slow_head = "HTTP/1.1 200 OK\r\n";
    let (yes, no) = (
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal",
        "HTTP/1.1 500 Oh\r\ncontent-length: 9\r\n\r\nhal",
    );
    #[rustfmt::skip]
    let cases = vec![
        ("no answer",              vec![Act::Hang],                   "Transport(Timeout(Headers)), no answer from 127.0.0.1:PORT within 300ms"),
        ("half a head",            vec![send(slow_head), Act::Hang],  "Transport(Timeout(Headers)), no answer from 127.0.0.1:PORT within 300ms"),
    ];
    check(HASTY, HttpFormat::Binary, cases).await;
    #[rustfmt::skip]
    let cases = vec![
        ("the whole comes first",  vec![Act::Hang],                   "Transport(Timeout(Whole)), no answer from 127.0.0.1:PORT within 200ms"),
    ];
    check("{ headers: 20s, whole: 200ms }", HttpFormat::Binary, cases).await;
    #[rustfmt::skip]
    let cases = vec![
        ("yes, and half a body",   vec![send(yes), Act::Hang],        r#"200 "hal", 200 OK"#),
        ("no, and half a body",    vec![send(no), Act::Hang],         r#"500 "hal", 500 Internal Server Error: hal"#),
    ];
    check("{ headers: 20s, whole: 900ms }", HttpFormat::Binary, cases).await;
}

#[tokio::test]
async fn half_a_body_takes_nothing_back() {
    let (yes, no) = (
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal",
        "HTTP/1.1 500 Oh\r\ncontent-length: 9\r\n\r\nhal",
    );
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\nnonsense\r\n";
    #[rustfmt::skip]
    let cases = vec![
        ("yes, then hangs up",     vec![send(yes), Act::Close],   r#"200 "hal", 200 OK"#),
        ("yes, then hangs",        vec![send(yes), Act::Hang],    r#"200 "hal", 200 OK"#),
        ("yes, then nonsense",     vec![send(chunks)],            r#"200 "no", 200 OK"#),
        ("no, then hangs up",      vec![send(no), Act::Close],    r#"500 "hal", 500 Internal Server Error: hal"#),
    ];
    check(PATIENT, HttpFormat::Binary, cases).await;
}

#[tokio::test]
async fn a_body_is_read_so_far_and_no_further() {
    let large = send("HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n");
    let endless = send("HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat();
    let message = format!("500 Internal Server Error: {}", "x".repeat(173));
    let no = format!("500 with 16384 bytes, {message}");
    let cases = vec![
        ("100 MB", vec![large, Act::Repeat(vec![b'x'; 65_536])], "200 with 16384 bytes, 200 OK"),
        ("without end", vec![endless, Act::Repeat(chunk)], no.as_str()),
    ];
    check(PATIENT, HttpFormat::Binary, cases).await;
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let ending = post(&target(&format!("http://127.0.0.1:{port}/"), HttpFormat::Binary)).await;
    assert_eq!(told(&ending, port), "Transport(Refused), 127.0.0.1:PORT refused the connection");
}

#[tokio::test]
async fn a_name_that_nobody_has() {
    // Names that end so belong to nobody, ever (RFC 6761).
    let ending = post(&target("http://redrive.invalid:80/", HttpFormat::Binary)).await;
    let told = told(&ending, 0);
    assert!(told.starts_with("Transport(Dns), DNS lookup of redrive.invalid failed: "), "{told}");
}

/// A socket whose queue of connections is full answers nothing, like a host behind a silent firewall.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_host_that_stays_silent_meets_the_limit_on_connecting() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&any.into()).and_then(|()| socket.listen(0)).expect("a port is free");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
    let mut queue = Vec::new();
    while let Ok(connection) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queue.push(connection.expect("loopback connects"));
        assert!(queue.len() < 1_000, "a queue has an end");
    }
    let target = target(&format!("http://{address}/"), HttpFormat::Binary);
    let ending = target.call(call(HASTY, vec![order(7, "e-1")])).await;
    let expected = "Transport(Timeout(Connect)), no connection to 127.0.0.1:PORT within 300ms";
    assert_eq!(told(&ending, address.port()), expected);
    let ending = target.call(call("{ connect: 20s, whole: 200ms }", vec![order(7, "e-1")])).await;
    let expected = "Transport(Timeout(Whole)), no connection to 127.0.0.1:PORT within 200ms";
    assert_eq!(told(&ending, address.port()), expected);
}

#[tokio::test]
async fn rules_may_look_at_every_header() {
    let server = Server::start(vec![send(
        "HTTP/1.1 403 Forbidden\r\nX-RateLimit-Remaining: 0\r\nx-odd: \u{e9}\r\ncontent-length: 0\r\n\r\n",
    )])
    .await;
    let Ending::Reply(reply) = post(&target(&server.url(), HttpFormat::Binary)).await else {
        panic!("one answer")
    };
    let ReplyKind::Http { headers, .. } = reply.seen else { panic!("an answer") };
    assert_eq!(headers.get("x-ratelimit-remaining"), Some("0"));
    assert_eq!(headers.get("X-Odd"), Some("\u{e9}"));
}

#[tokio::test]
async fn a_call_that_is_dropped_ends() {
    let server = Server::start(vec![Act::Hang]).await;
    let target = target(&server.url(), HttpFormat::Binary);
    let asked = || server.log(|log| log.requests.len()) == 1;
    tokio::select! {
        ending = post(&target) => panic!("nobody answered, and yet {ending:?}"),
        () = until("a request", asked) => {}
    }
    until("the end of the connection", || server.log(|log| log.ended) == 1).await;
}

#[tokio::test]
async fn what_a_target_cannot_take_is_our_own_fault() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let two = || vec![order(7, "e-1"), order(8, "e-2")];
    for (form, deliveries) in
        [(HttpFormat::Binary, two()), (HttpFormat::Structured, two()), (HttpFormat::Batch, Vec::new())]
    {
        let ending = target(&server.url(), form).call(call(PATIENT, deliveries)).await;
        assert!(told(&ending, 0).starts_with("Internal, "), "{form:?}");
    }
    assert_eq!(server.log(|log| log.accepted), 0);
}

#[tokio::test]
async fn a_batch_is_delivered_failed_or_both() {
    let failures = |ids: &[&str]| {
        let items: Vec<_> = ids.iter().map(|id| format!(r#"{{"itemIdentifier":"{id}"}}"#)).collect();
        answer("200 OK", &format!(r#"{{"batchItemFailures":[{}]}}"#, items.join(",")))
    };
    let own = redrive_core::event::idempotency::webhook_id(order(8, "e-2").id);
    let some = |places: &str, count: u32| {
        format!("{places} Broker(Other), the target reported {count} of 3 in the batch as failed")
    };
    let unclear = |why: &str| format!("Transport(Protocol), response of 127.0.0.1:PORT is invalid: {why}");
    let not_json = |why: &str| unclear(&format!("not a valid batch response: {why}"));
    #[rustfmt::skip]
    let cases = vec![
        ("nothing failed",        vec![failures(&[])],                        r#"200 "{\"batchItemFailures\":[]}", 200 OK"#.to_owned()),
        ("no list",               vec![answer("200 OK", r#"{"ok":1}"#)],      r#"200 "{\"ok\":1}", 200 OK"#.to_owned()),
        ("null",                  vec![answer("200 OK", "null")],             r#"200 "null", 200 OK"#.to_owned()),
        ("no list either",        vec![answer("200 OK", r#"{"batchItemFailures":null}"#)], r#"200 "{\"batchItemFailures\":null}", 200 OK"#.to_owned()),
        ("no body",               vec![send("HTTP/1.1 204 No Content\r\n\r\n")], r#"204 "", 204 No Content"#.to_owned()),
        ("one, by its event",     vec![failures(&["e-3"])],                   some("[2]", 1)),
        ("one, by its delivery",  vec![failures(&[&own])],                    some("[1]", 1)),
        ("two, in any order",     vec![failures(&["e-3", "e-1", "e-3"])],     some("[0, 2]", 2)),
        ("all",                   vec![failures(&["e-1", "e-2", "e-3"])],     some("[0, 1, 2]", 3)),
        ("a stranger",            vec![failures(&["e-1", "e-9"])],            unclear(r#"unknown identifier "e-9""#)),
        ("nobody",                vec![failures(&[""])],                      unclear(r#"unknown identifier """#)),
        ("no JSON",               vec![answer("200 OK", "ok")],               not_json("expected value at line 1 column 1")),
        ("half of it",            vec![answer("200 OK", "{")],                not_json("EOF while parsing an object at line 1 column 1")),
        ("another shape",         vec![answer("200 OK", "[]")],               not_json("invalid length 0, expected an object with `batchItemFailures` at line 1 column 2")),
        ("a refusal of it all",   vec![answer("500 Oh", "no")],               r#"500 "no", 500 Internal Server Error: no"#.to_owned()),
        ("broken off",            vec![send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), Act::Close], "Transport(ClosedEarly), 127.0.0.1:PORT closed the connection before the response was complete".to_owned()),
        ("far too long",          vec![send("HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n"), Act::Repeat(vec![b' '; 65_536])], unclear("it is too long")),
    ];
    for (name, script, expected) in cases {
        let server = Server::start(script).await;
        let deliveries = vec![order(7, "e-1"), order(8, "e-2"), order(9, "e-3")];
        let ending = target(&server.url(), HttpFormat::Batch).call(call(PATIENT, deliveries)).await;
        assert_eq!(told(&ending, server.port()), expected, "{name}");
    }
    let server = Server::start(vec![send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), Act::Hang]).await;
    let limits = "{ headers: 20s, whole: 900ms }";
    let ending = target(&server.url(), HttpFormat::Batch).call(call(limits, vec![order(7, "e-1")])).await;
    let expected = "Transport(Timeout(Whole)), response of 127.0.0.1:PORT not complete within 900ms";
    assert_eq!(told(&ending, server.port()), expected);
}
