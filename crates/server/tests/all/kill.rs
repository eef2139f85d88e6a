//! What survives: the server is ended in the middle of its work again and again, and its clients hang up.
//!
//! Whatever is random here is drawn from a seed. A target knows from the address that it is called by in
//! which round a call was made, so nothing depends on when its threads come to run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::SockRef;

use crate::client::Client;
use crate::run::Folder;
use crate::server::{Server, serve, until, until_within};
use crate::target::{Call, Say, Target, book, status};

/// Numbers that look random and are the same in every run.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// For one try of one delivery.
    fn of(call: &Call) -> Self {
        let bytes = call.webhook_id().bytes().chain(call.nth.to_le_bytes());
        Self(bytes.fold(7, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

/// Calls that each of the two services may have under way.
const IN_FLIGHT: usize = 8;
const CLIENTS: usize = 3;

/// Takes most of it, slowly now and then; some of it later, some of it never.
fn moody(call: &Call) -> Say {
    let mut draw = Draw::of(call);
    if draw.below(4) == 0 {
        thread::sleep(Duration::from_millis(draw.below(25)));
    }
    match draw.below(100) {
        0..3 => status(400),
        3..15 => status(503),
        15..18 => Say::Bytes(b""),
        _ => status(200),
    }
}

fn book_of_round(target: &Target, round: usize, keep: &str) -> String {
    let address = target.address;
    format!(
        "version: 1
defaults: {{ keep_delivered: {keep} }}
retry_policies:
  quick: {{ initial: 10ms, max: 50ms, retries: 30, jitter: full }}
breakers:
  short: {{ trip: {{ consecutive: 4 }}, open: 100ms }}
dependencies:
  ledger: {{ kind: webhook, in_flight: {IN_FLIGHT}, breaker: none }}
  archive: {{ kind: webhook, in_flight: {IN_FLIGHT}, breaker: short }}
services:
  ordered:
    target: {{ http: \"http://{address}/ordered/{round}\" }}
    depends_on: ledger
    retry: quick
    order: session
    events: [\"orders.*\"]
  loose:
    target: {{ http: \"http://{address}/loose/{round}\" }}
    depends_on: archive
    retry: quick
    events: [\"orders.*\"]
"
    )
}

/// Where clients find the server at the moment, and what they were told is safe.
#[derive(Default)]
struct Desk {
    address: Mutex<String>,
    is_over: AtomicBool,
    accepted: Mutex<BTreeSet<String>>,
}

/// Posts one event after the other, each until it is taken.
fn send(desk: &Desk, client: usize) {
    let mut connection = None;
    for number in 0_u32.. {
        let id = format!("{client}-{}-{number:06}", number % 3);
        let path = format!("/v1/events/orders.placed?partitionkey={client}-{}", number % 3);
        loop {
            let address = desk.address.lock().expect("nobody panics here").clone();
            let open = connection.take().or_else(|| Client::new(&address).connect().ok());
            let Some(mut open) = open else { continue };
            let headers = format!("idempotency-key: {id}\r\n");
            if let Ok(answer) = open.post(&path, &headers, format!("{{\"n\":{number}}}").as_bytes()) {
                connection = Some(open);
                if matches!(answer.status, 200 | 202) {
                    break;
                }
            }
        }
        desk.accepted.lock().expect("nobody panics here").insert(id);
        if desk.is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// What all rounds came to.
struct Aftermath {
    target: Target,
    server: Server,
    accepted: BTreeSet<String>,
    /// Deliveries that were seen to be delivered, each with the round in which that was so.
    seen_delivered: BTreeMap<String, usize>,
    rounds: usize,
    _folder: Folder,
}

/// Runs clients against a server that is killed at the end of every round but the last.
fn kill_again_and_again(seed: u64, rounds: usize, keep: &str) -> Aftermath {
    let target = Target::start(moody);
    let folder = Folder::new();
    let desk = Arc::new(Desk::default());
    let mut draw = Draw(seed);
    let mut seen_delivered = BTreeMap::new();
    let mut clients = Vec::new();
    let mut round = 0;
    let server = loop {
        folder.write("redrive.yaml", book_of_round(&target, round, keep));
        let server = Server::start(&folder);
        desk.address.lock().expect("nobody panics here").clone_from(&server.client.address);
        if clients.is_empty() {
            for client in 0..CLIENTS {
                let desk = Arc::clone(&desk);
                clients.push(thread::spawn(move || send(&desk, client)));
            }
        }
        if round == rounds {
            break server;
        }
        // When it is killed is drawn; that it works until then is not luck.
        thread::sleep(Duration::from_millis(100 + draw.below(900)));
        for delivery in listed(&server, "/v1/deliveries?state=delivered&limit=200") {
            let id = delivery["webhook_id"].as_str().expect("an id").to_owned();
            seen_delivered.entry(id).or_insert(round);
        }
        thread::sleep(Duration::from_millis(draw.below(50)));
        let said = server.kill();
        assert!(!said.contains("panicked"), "{said}");
        round += 1;
    };
    desk.is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().expect("no client panics");
    }
    let drained = || {
        let status = server.status();
        assert_eq!(status["stranded"], 0, "{status}");
        let services = status["services"].as_array().expect("a list").clone();
        services.iter().all(|service| service["waiting"] == 0).then_some(())
    };
    until_within(Duration::from_mins(1), "everything has ended", drained);
    let accepted = desk.accepted.lock().expect("nobody panics here").clone();
    Aftermath { target, server, accepted, seen_delivered, rounds, _folder: folder }
}

fn listed(server: &Server, path: &str) -> Vec<Value> {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["deliveries"].as_array().expect("a list").clone()
}

/// All deliveries that there are, page by page.
pub(crate) fn all_deliveries(server: &Server) -> Vec<Value> {
    let mut all = Vec::new();
    let mut path = "/v1/deliveries?limit=500".to_owned();
    loop {
        let page = server.get(&path).json();
        all.extend(page["deliveries"].as_array().expect("a list").iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        path = format!("/v1/deliveries?limit=500&before={next}");
    }
}

/// A call of a round, as a target saw it.
#[derive(Clone, Debug)]
struct Seen {
    round: usize,
    attempt: u32,
    answered: Option<u16>,
    session: String,
    event_id: String,
}

impl Aftermath {
    /// The calls of each service in the order in which they were made, each with its `webhook-id`.
    fn calls(&self) -> BTreeMap<String, Vec<(String, Seen)>> {
        let mut calls: BTreeMap<String, Vec<(String, Seen)>> = BTreeMap::new();
        for call in self.target.calls() {
            let mut parts = call.path.trim_start_matches('/').split('/');
            let service = parts.next().expect("a service").to_owned();
            let seen = Seen {
                round: parts.next().and_then(|round| round.parse().ok()).expect("a round"),
                attempt: call.attempt(),
                answered: call.answered,
                session: call.header("ce-partitionkey").to_owned(),
                event_id: call.event_id().to_owned(),
            };
            calls.entry(service).or_default().push((call.webhook_id().to_owned(), seen));
        }
        for calls in calls.values_mut() {
            // Of one round they are in order already.
            calls.sort_by_key(|(_, seen)| seen.round);
        }
        calls
    }

    /// Sessions go forward only.
    fn assert_order(&self) {
        let mut last: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for (_, seen) in &self.calls()["ordered"] {
            let before = last.insert(seen.session.clone(), (seen.round, seen.event_id.clone()));
            if let Some((round, before)) = before {
                assert!(before <= seen.event_id, "{before} in round {round}, then {seen:?}");
            }
        }
        assert_eq!(last.len(), 3 * CLIENTS);
    }

    /// Only what was in flight at a kill is called again, as the same attempt.
    fn assert_repeats(&self) {
        let mut repeats = 0;
        let mut sent_again = BTreeSet::new();
        for calls in self.calls().into_values() {
            let mut last: BTreeMap<String, Seen> = BTreeMap::new();
            for (id, seen) in calls {
                if let Some(delivered_in) = self.seen_delivered.get(&id) {
                    assert!(seen.round <= *delivered_in, "{id} was delivered in {delivered_in}: {seen:?}");
                }
                let Some(before) = last.insert(id.clone(), seen.clone()) else {
                    assert_eq!(seen.attempt, 1, "{id}");
                    continue;
                };
                if seen.attempt == before.attempt && seen.round == before.round {
                    // A kept connection that closes without an answer: the same attempt goes out once more.
                    assert_eq!(before.answered, None, "{id}: no kill lies between {before:?} and {seen:?}");
                    assert!(
                        sent_again.insert((id, seen.round, seen.attempt)),
                        "once and no more often: {seen:?}"
                    );
                } else if seen.attempt == before.attempt {
                    repeats += 1;
                } else {
                    assert_eq!(seen.attempt, before.attempt + 1, "{id}: {before:?}, then {seen:?}");
                    let has_failed = !matches!(before.answered, Some(200 | 400));
                    let was_killed = seen.round > before.round && self.was_tried_alone(&id, before.attempt);
                    let counts = has_failed || was_killed;
                    assert!(counts, "{id}: it had its answer: {before:?}, then {seen:?}");
                }
            }
        }
        // How many depends on how long the disk takes; but a kill that meets nothing in flight proves little.
        assert!(repeats > 0, "no kill met a call in flight");
    }

    /// After three kills within a minute what was waiting is started alone, with its start on record: a kill
    /// then counts as an attempt, since this delivery may have been the reason.
    fn was_tried_alone(&self, id: &str, attempt: u32) -> bool {
        let answer = self.server.get(&format!("/v1/deliveries/{id}"));
        if answer.status == 404 {
            // Delivered and cleared away: nobody can tell any more.
            return true;
        }
        let delivery = answer.json();
        let stories = delivery["stories"].as_array().expect("its stories").iter();
        let mut of_attempt = stories.filter(|story| story["attempt"] == attempt);
        of_attempt.any(|story| story["code"] == "INTERRUPTED")
    }

    /// Every event that was accepted has one outcome for each service.
    fn assert_outcomes(&self) {
        let deliveries = all_deliveries(&self.server);
        let mut ends: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        let taken = self.taken();
        for delivery in &deliveries {
            let text = |key: &str| delivery[key].as_str().expect("a text");
            let state = text("state");
            assert!(matches!(state, "delivered" | "dead"), "{delivery}");
            if state == "delivered" {
                assert!(taken.contains(text("webhook_id")), "the target has it: {delivery}");
            }
            let before = ends.insert((text("service"), text("event_id")), state);
            assert_eq!(before, None, "one delivery for each service: {delivery}");
        }
        for id in &self.accepted {
            for service in ["ordered", "loose"] {
                assert!(ends.contains_key(&(service, id.as_str())), "{id} is lost to {service}");
            }
        }
        assert!(self.accepted.len() > 10 * self.rounds, "{} in {} rounds", self.accepted.len(), self.rounds);
    }

    /// The deliveries that the target said yes to.
    fn taken(&self) -> BTreeSet<String> {
        let calls = self.target.calls().into_iter().filter(|call| call.answered == Some(200));
        calls.map(|call| call.webhook_id().to_owned()).collect()
    }
}

#[test]
fn nothing_accepted_is_lost_however_often_it_is_killed() {
    let aftermath = kill_again_and_again(1, 14, "7d");
    aftermath.assert_outcomes();
    aftermath.assert_order();
    aftermath.assert_repeats();
    let Aftermath { server, .. } = aftermath;
    server.stop().assert_calm();
}

#[test]
fn nothing_is_lost_while_old_events_are_cleared_away() {
    let aftermath = kill_again_and_again(2, 12, "1s");
    aftermath.assert_order();
    aftermath.assert_repeats();
    // What is gone was delivered to everybody; what was given up somewhere is kept.
    let server = &aftermath.server;
    until("what was delivered is cleared away", || {
        let left = server.status()["events"].as_u64().expect("a number");
        let dead: BTreeSet<String> = all_deliveries(server)
            .iter()
            .filter(|delivery| delivery["state"] == "dead")
            .map(|delivery| delivery["event_id"].as_str().expect("an id").to_owned())
            .collect();
        (left == dead.len() as u64).then_some(())
    });
    let mut ended: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (service, calls) in aftermath.calls() {
        let ends = calls.into_iter().filter(|(_, seen)| matches!(seen.answered, Some(200 | 400)));
        ended.entry(service).or_default().extend(ends.map(|(_, seen)| seen.event_id));
    }
    for id in &aftermath.accepted {
        for service in ["ordered", "loose"] {
            assert!(ended[service].contains(id), "{id} never reached {service}");
        }
    }
    let Aftermath { server, .. } = aftermath;
    server.stop().assert_calm();
}

#[test]
fn a_start_may_be_cut_short_at_any_moment() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let mut draw = Draw(3);
    for _ in 0..40 {
        let mut command = serve(&folder, &["--rules", "redrive.yaml"]);
        let silent = || std::process::Stdio::null();
        let mut child = command.stdout(silent()).stderr(silent()).spawn().expect("it was built");
        thread::sleep(Duration::from_micros(draw.below(30_000)));
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        // Now and then nothing is there yet, as at the very first start.
        if draw.below(3) == 0 {
            let _ = std::fs::remove_dir_all(folder.path("data"));
        }
    }
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}

#[test]
fn clients_that_hang_up_strand_nothing() {
    const CLIENTS: usize = 10_000;
    const THREADS: usize = 4;
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let next = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (next, client) = (Arc::clone(&next), server.client.clone());
            thread::spawn(move || {
                let mut answered = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= CLIENTS {
                        return answered;
                    }
                    answered.extend(hang_up(&client, number));
                }
            })
        })
        .collect();
    let watched = Instant::now();
    while next.load(Ordering::SeqCst) < CLIENTS {
        assert_eq!(server.status()["stranded"], 0, "after {:?}", watched.elapsed());
    }
    let answered: Vec<String> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no client panics")).collect();
    let status = until("everything is delivered", || {
        let status = server.status();
        assert_eq!(status["stranded"], 0, "{status}");
        let orders = &status["services"][0];
        (orders["waiting"] == 0 && orders["delivered"] == status["events"]).then_some(status)
    });
    let reached: BTreeSet<String> = target.calls().iter().map(|call| call.event_id().to_owned()).collect();
    assert_eq!(status["events"].as_u64(), Some(reached.len() as u64));
    assert_eq!(target.count(), reached.len(), "each was called for once");
    for id in &answered {
        assert!(reached.contains(id), "{id} was answered");
    }
    // Of seven ways to hang up, three come after the last byte.
    assert!(
        answered.len() > CLIENTS / 10 && reached.len() > CLIENTS / 4,
        "{} of {}",
        answered.len(),
        reached.len()
    );
    server.stop().assert_calm();
}

/// One client that goes away somewhere on its way; the id of its event, if it stayed for a good answer.
fn hang_up(client: &Client, number: usize) -> Option<String> {
    let mut draw = Draw(number as u64);
    let id = format!("h-{number}");
    let body = format!("{{\"n\":{number}}}");
    let length = body.len();
    let head = format!(
        "POST /v1/events/orders.placed HTTP/1.1\r\nhost: localhost\r\nidempotency-key: {id}\r\ncontent-length: {length}\r\n\r\n"
    );
    let whole = [head.as_bytes(), body.as_bytes()].concat();
    let way = draw.below(7);
    let cut = match way {
        0 => 0,
        1 => usize::try_from(draw.below(head.len() as u64)).expect("it fits"),
        2 => head.len(),
        3 => head.len() + 1 + usize::try_from(draw.below(length as u64 - 1)).expect("it fits"),
        _ => whole.len(),
    };
    let mut connection = client.connect().expect("it listens");
    let mut stream: &TcpStream = connection.stream();
    if draw.below(2) == 0 {
        // It goes away without a word: whatever is on its way to it is void.
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    }
    stream.write_all(&whole[..cut]).expect("it reads");
    match way {
        5 => stream.shutdown(Shutdown::Write).expect("a socket"),
        6 => return (connection.answer().expect("an answer").status == 202).then_some(id),
        _ => {}
    }
    None
}
