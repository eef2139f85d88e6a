//! Connections are kept, used again, and not for ever.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use bytes::Bytes;
use redrive_core::event::Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::time::Instant;

use super::super::limits::{IDLE_MAX, IDLE_TIME_MAX, JUST_USED};
use super::super::line::Socket;
use super::server::{Act, Server, answer, send};
use super::*;

fn is_taken(ending: &Ending) -> bool {
    matches!(ending, Ending::Reply(TargetReply { seen: ReplyKind::Http { status: 200, .. }, .. }))
}

#[tokio::test]
async fn a_connection_carries_one_call_after_the_other() {
    #[rustfmt::skip]
    let cases = [
        ("a success",                 vec![answer("200 OK", "ok")],                                1),
        ("a failure",                 vec![answer("500 Oh", "no")],                                1),
        ("in chunks",                 vec![send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n")], 1),
        ("a body longer than kept",   vec![answer("200 OK", &"x".repeat(100_000))],                1),
        ("one that says goodbye",     vec![send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"), Act::Close], 10),
        ("a body too long to read",   vec![answer("200 OK", &"x".repeat(1_000_000))],              10),
        ("one that hangs up",         vec![Act::Close],                                            10),
    ];
    for (name, script, connections) in cases {
        let server = Server::start(script).await;
        let target = target(&server.url(), HttpFormat::Binary);
        for _ in 0..10 {
            post(&target).await;
        }
        assert_eq!(server.log(|log| (log.accepted, log.requests.len())), (connections, 10), "{name}");
    }
}

#[tokio::test]
async fn targets_of_one_host_share_their_connections() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    for path in ["", "/a", "/b"] {
        let url = format!("http://127.0.0.1:{}{path}", server.port());
        assert!(is_taken(&post(&target_of(&url, HttpFormat::Structured, &pool)).await));
    }
    assert_eq!(server.log(|log| log.accepted), 1);
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_used() {
    // It promises to stay, and goes.
    let server = Server::start(vec![answer("200 OK", ""), Act::Close]).await;
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let target = target_of(&server.url(), HttpFormat::Binary, &pool);
    for calls in 1..=5 {
        assert!(is_taken(&post(&target).await), "call {calls}");
        until("news of the end", || pool.ready_count() == 0).await;
        assert_eq!(server.log(|log| (log.accepted, log.requests.len())), (calls, calls));
    }
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_sent_again_only_where_the_rule_would() {
    #[rustfmt::skip]
    let cases = [
        ("a kept connection closes: once more on a new one, in the same attempt", "standard", 0, (2, 3)),
        ("a retry takes a new connection, and nothing is repeated",                "standard", 1, (2, 2)),
        ("a rule without retries sends nothing twice, by the kept one either",     "none",     0, (1, 2)),
    ];
    let _still = stand_still();
    for (name, retry, attempts, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (accepted, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (coming, seen) = (Arc::clone(&accepted), Arc::clone(&heads));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                coming.fetch_add(1, Ordering::SeqCst);
                let seen = Arc::clone(&seen);
                // Answers the first request of all, and hangs up on every other once it has it.
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        bytes.push(byte);
                        if !bytes.ends_with(br#"{"total":12}"#) {
                            continue;
                        }
                        bytes.clear();
                        if seen.fetch_add(1, Ordering::SeqCst) > 0 {
                            return;
                        }
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        stream.write_all(answer).await.expect("sent");
                    }
                });
            }
        });
        let target = target(&format!("http://127.0.0.1:{port}/"), HttpFormat::Binary);
        assert!(is_taken(&post(&target).await), "{name}");
        let delivery = PendingDelivery { attempts, ..order(8, "e-2") };
        let ending = target.call(call_retried(retry, PATIENT, vec![delivery])).await;
        let expected_ending =
            "Transport(ClosedEarly), 127.0.0.1:PORT closed the connection before the response was complete";
        assert_eq!(told(&ending, port), expected_ending, "{name}");
        let (connections, requests) = (accepted.load(Ordering::SeqCst), heads.load(Ordering::SeqCst));
        assert_eq!((connections, requests), expected, "{name}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_ends_before_the_write_is_replaced_by_a_new_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let port = listener.local_addr().expect("it is bound").port();
    let target = target_of(&format!("http://127.0.0.1:{port}/"), HttpFormat::Binary, &pool);
    let _still = stand_still();
    let (first, kept) = tokio::join!(post(&target), answer_next(&listener));
    assert!(is_taken(&first));
    assert_eq!(pool.count(), 1);

    let mut calling = target.call(call_retried("none", PATIENT, vec![order(8, "e-2")]));
    let mut now = Context::from_waker(Waker::noop());
    assert!(calling.as_mut().poll(&mut now).is_pending());
    assert_eq!(pool.count(), 0, "it has taken the kept connection");
    // The request has not been written yet: one task runs at a time, and this one has not let go.
    drop(kept);
    tokio::time::advance(JUST_USED).await;
    let (second, _) = tokio::join!(calling, answer_next(&listener));
    assert!(is_taken(&second), "{second:?}");
}

/// Takes a connection, answers its request, and gives it back open.
async fn answer_next(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut bytes = Vec::new();
    while !bytes.ends_with(br#"{"total":12}"#) {
        bytes.push(stream.read_u8().await.expect("a request"));
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
    stream
}

/// Lets time stand still for as long as the sender lives: while a blocking task runs, a paused clock does not
/// move on by itself when everything else waits for a socket.
fn stand_still() -> std::sync::mpsc::Sender<()> {
    tokio::time::pause();
    let (sender, held) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || held.recv());
    sender
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_takes_no_connection_that_has_rested() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let target = target_of(&server.url(), HttpFormat::Binary, &pool);
    assert!(is_taken(&post(&target).await));
    tokio::time::pause();
    tokio::time::advance(JUST_USED).await;
    tokio::time::resume();
    assert!(is_taken(&target.call(call_retried("none", PATIENT, vec![order(8, "e-2")])).await));
    assert_eq!(server.log(|log| (log.accepted, log.requests.len())), (2, 2));
    assert_eq!(pool.count(), 2, "the other one is still good for calls that may be repeated");
    assert!(is_taken(&post(&target).await));
    assert_eq!(server.log(|log| (log.accepted, log.requests.len())), (2, 3));
}

#[tokio::test]
async fn a_line_shows_whether_the_other_side_has_closed_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let mut socket = Socket::new(TcpStream::connect(address).await.expect("it listens"));
    let line = socket.line();
    let (mut other, _) = listener.accept().await.expect("a connection");
    assert!(line.is_quiet());
    other.write_all(b"!").await.expect("sent");
    until("the byte", || !line.is_quiet()).await;
    assert_eq!(socket.read_u8().await.expect("a byte"), b'!');
    assert!(line.is_quiet());
    let mut counted = line.counted(socket);
    line.arm(Instant::now() + IDLE_TIME_MAX);
    counted.write_all(b"1").await.expect("it is still good");
    line.arm(Instant::now());
    let late = counted.write_all(b"2").await.expect_err("too late");
    assert_eq!((late.kind(), line.passed().written), (ErrorKind::ConnectionAborted, 1));
    counted.write_all(b"3").await.expect("only the next write is checked");
    drop(other);
    until("the end", || !line.is_quiet()).await;
    line.arm(Instant::now() + IDLE_TIME_MAX);
    counted.write_all(b"4").await.expect_err("it has ended");
    assert_eq!(line.passed().written, 2);
    drop(counted);
    assert!(!line.is_quiet(), "there is no connection any more");
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_is_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a call");
        // It looks at the head and reads no further, as those do that refuse large requests.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        let answer = b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("sent");
        std::future::pending::<()>().await;
    });
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let target = target_of(&format!("http://127.0.0.1:{port}/"), HttpFormat::Binary, &pool);
    let mut large = order(7, "e-1");
    let data = Bytes::from(vec![b'x'; 32 * 1024 * 1024]);
    large.event = Arc::new(Event { data, ..Event::clone(&large.event) });
    let ending = target.call(call(PATIENT, vec![large])).await;
    assert_eq!(told(&ending, port), r#"413 "", 413 Payload Too Large"#);
    assert_eq!(pool.count(), 0, "half a request still stands in the way");
}

/// Makes so many calls at once that each needs a connection, and says how many of those are kept.
async fn kept_after(calls: usize, permits: u32) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let all_are_here = Arc::new(Barrier::new(calls));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all_are_here = Arc::clone(&all_are_here);
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                assert_ne!(stream.read(&mut buffer).await.expect("a request"), 0);
                all_are_here.wait().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
                while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
            });
        }
    });
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let options = options(HttpFormat::Binary, None, permits);
    let target = HttpTarget::new(&format!("http://{address}/"), options, Arc::clone(&pool));
    let target = Arc::new(target.expect("an address"));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..calls {
        let target = Arc::clone(&target);
        running.spawn(async move { is_taken(&post(&target).await) });
    }
    assert!(running.join_all().await.into_iter().all(|taken| taken));
    pool.count()
}

#[tokio::test]
async fn so_many_connections_are_kept_and_no_more() {
    assert_eq!(kept_after(5, 64).await, 5, "all of a few");
    assert_eq!(kept_after(5, 3).await, 3, "as many as the dependency has permits");
    assert_eq!(kept_after(120, 1_000).await, IDLE_MAX, "as many as the pool has room for");
}

#[tokio::test]
async fn a_connection_that_nobody_needs_is_closed() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    assert!(is_taken(&post(&target_of(&server.url(), HttpFormat::Binary, &pool)).await));
    assert_eq!(pool.count(), 1);
    tokio::time::pause();
    tokio::time::advance(IDLE_TIME_MAX).await;
    tokio::time::resume();
    until("an empty pool", || pool.count() == 0).await;
    until("the end of the connection", || server.log(|log| log.ended) == 1).await;
}
