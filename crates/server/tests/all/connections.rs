//! Kept connections to targets: what one costs that the target closes between two calls.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Request, Say, Target, request};

/// How long a connection rests before the target closes it, and about how far events are apart.
const IDLE: Duration = Duration::from_millis(15);
/// Services with a target each, half of them without retries: 1,500 events of each kind.
const LANES: usize = 20;
const EVENTS_PER_LANE: u32 = 150;

/// A target that closes connections that have rested, and answers every request that it reads.
struct Hasty {
    address: SocketAddr,
    /// The attempts by event.
    calls: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl Hasty {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a free port");
        let address = listener.local_addr().expect("it is bound");
        let calls = Arc::<Mutex<BTreeMap<String, Vec<String>>>>::default();
        let kept = Arc::clone(&calls);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                thread::spawn(move || talk(stream, &kept));
            }
        });
        Self { address, calls }
    }
}

fn talk(stream: TcpStream, kept: &Mutex<BTreeMap<String, Vec<String>>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        match stream.fill_buf() {
            Ok([]) => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(());
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        stream.get_ref().set_read_timeout(None)?;
        let Some(Request { headers, .. }) = request(&mut stream)? else { return Ok(()) };
        let mut kept = kept.lock().expect("nobody panics while adding a call");
        kept.entry(headers["ce-id"].clone()).or_default().push(headers["redrive-attempt"].clone());
        drop(kept);
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        stream.get_ref().set_read_timeout(Some(IDLE))?;
    }
}

#[test]
fn a_connection_that_the_target_closed_costs_no_attempt() {
    let targets: Vec<Hasty> = (0..LANES).map(|_| Hasty::start()).collect();
    let mut book = "version: 1
retry_policies: { quick: { initial: 20ms, max: 20ms, retries: 3, jitter: none } }
services:
"
    .to_owned();
    for (lane, target) in targets.iter().enumerate() {
        let retry = if lane % 2 == 0 { "none" } else { "quick" };
        let address = target.address;
        book += &format!(
            "  lane{lane}: {{ target: {{ http: \"http://{address}/\" }}, retry: {retry}, breaker: none, events: [lane{lane}.tick] }}\n"
        );
    }
    let folder = Folder::with("redrive.yaml", &book);
    let server = Server::start(&folder);
    thread::scope(|scope| {
        for lane in 0..LANES {
            let client = server.client.clone();
            scope.spawn(move || {
                let mut connection = client.connect().expect("it listens");
                for event in 0..EVENTS_PER_LANE {
                    let headers = format!("idempotency-key: {lane}-{event}\r\n");
                    let answer = connection.post(&format!("/v1/events/lane{lane}.tick"), &headers, b"{}");
                    assert_eq!(answer.expect("an answer").status, 202);
                    // The pace of the traffic: some events come just before the target hangs up, some after.
                    thread::sleep(
                        IDLE.saturating_sub(Duration::from_millis(2))
                            + Duration::from_micros(100) * (event % 40),
                    );
                }
            });
        }
    });
    until("everything has ended", || {
        let status = server.status();
        let services = status["services"].as_array().expect("a list").iter();
        let waiting: u64 = services.map(|service| service["waiting"].as_u64().expect("a count")).sum();
        (waiting == 0).then_some(())
    });
    let letters = server.get("/v1/dead-letters").json();
    assert_eq!(letters["dead_letters"].as_array().map(Vec::len), Some(0), "{letters}");
    for (lane, target) in targets.iter().enumerate() {
        let calls = target.calls.lock().expect("nobody panics while adding a call");
        assert_eq!(calls.len(), EVENTS_PER_LANE as usize, "lane {lane}");
        let odd: Vec<_> = calls.iter().filter(|(_, attempts)| attempts.as_slice() != ["1"]).collect();
        assert!(odd.is_empty(), "lane {lane}: each event comes once, and at once: {odd:?}");
    }
    server.assert_calm();
}

#[test]
fn a_target_that_acts_and_hangs_up_is_called_once_without_retries() {
    let target = Target::start(|_| Say::Bytes(b""));
    let book = format!(
        "version: 1\nservices:\n  orders: {{ target: {{ http: \"{}\" }}, retry: none, events: [\"orders.*\"] }}\n",
        target.url()
    );
    let folder = Folder::with("redrive.yaml", &book);
    let server = Server::start(&folder);
    for id in ["a", "b", "c"] {
        server.accept("orders.placed", id, "");
        server.until(id, "dead");
    }
    assert_eq!(target.count(), 3);
    assert!(target.calls().iter().all(|call| call.nth == 1));
}
