//! Connections are kept, used again, and not for ever.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use redrive_core::event::Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

use super::super::limits::{IDLE_MAX, IDLE_TIME_MAX};
use super::server::{Act, Server, answer, send};
use super::*;

fn is_taken(ending: &Ending) -> bool {
    matches!(ending, Ending::Reply(Reply { seen: Seen::Http { status: 200, .. }, .. }))
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
        let target = target(&server.url(), Form::Binary);
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
        assert!(is_taken(&post(&target_of(&url, Form::Structured, &pool)).await));
    }
    assert_eq!(server.log(|log| log.accepted), 1);
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_used() {
    // It promises to stay, and goes.
    let server = Server::start(vec![answer("200 OK", ""), Act::Close]).await;
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let target = target_of(&server.url(), Form::Binary, &pool);
    for calls in 1..=5 {
        assert!(is_taken(&post(&target).await), "call {calls}");
        until("news of the end", || pool.ready_count() == 0).await;
        assert_eq!(server.log(|log| (log.accepted, log.requests.len())), (calls, calls));
    }
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let heads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Answers the first request of a connection, and hangs up on the second.
            for round in 0..2 {
                let mut bytes = Vec::new();
                while !bytes.ends_with(br#"{"total":12}"#) {
                    bytes.push(stream.read_u8().await.expect("a request"));
                }
                seen.fetch_add(1, Ordering::SeqCst);
                if round == 0 {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
                }
            }
        }
    });
    let target = target(&format!("http://127.0.0.1:{port}/"), Form::Binary);
    assert!(is_taken(&post(&target).await));
    let ending = post(&target).await;
    let expected = "Transport(ClosedEarly), 127.0.0.1:PORT hung up before its answer was whole";
    assert_eq!(told(&ending, port), expected);
    assert_eq!(heads.load(Ordering::SeqCst), 2);
    assert!(is_taken(&post(&target).await), "the next call has a connection of its own");
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
    let target = target_of(&format!("http://127.0.0.1:{port}/"), Form::Binary, &pool);
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
    let options = options(Form::Binary, None, permits);
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
    assert!(is_taken(&post(&target_of(&server.url(), Form::Binary, &pool)).await));
    assert_eq!(pool.count(), 1);
    tokio::time::pause();
    tokio::time::advance(IDLE_TIME_MAX).await;
    tokio::time::resume();
    until("an empty pool", || pool.count() == 0).await;
    until("the end of the connection", || server.log(|log| log.ended) == 1).await;
}
