//! A dependency that acts out a scenario: an HTTP target that is in one phase of it after the other.
//!
//! What a phase says is what the reader of the product makes of it; what it does is code of its own here, so that
//! a mistake in the simulator's targets is not made twice. Whoever directs the scenario turns it from one phase to
//! the next.
//!
//! Its port is its own from beginning to end: a second socket is bound to it that never listens, so while nobody
//! listens callers are refused, and no other test is given the port.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use redrive_lab::scenario::{Behaviour, FailureMode, Scenario};
use socket2::{Domain, Socket, Type};

use crate::server::{PATIENCE, until};
use crate::target::{Request, request};

/// How often it looks who calls, and whether it is to listen.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A dependency on the stage.
pub(super) struct Actor {
    pub(super) address: SocketAddr,
    part: Arc<Part>,
    is_over: Arc<AtomicBool>,
}

/// What it plays, and what it has seen.
struct Part {
    behaviour: Behaviour,
    /// Types of which every event is rejected.
    poison: BTreeSet<String>,
    /// The phase that it is in, by its place.
    phase: Mutex<Option<usize>>,
    is_listening: AtomicBool,
    seen: Mutex<Seen>,
}

/// What was seen from where a target stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Calls that reached it.
    pub(super) calls: u64,
    /// Of each delivery that took effect more than once, each time but the first.
    pub(super) duplicates: u64,
    /// Calls that came before, or beside, another of their session.
    pub(super) out_of_order: u64,
    /// The most calls that it had at once.
    pub(super) at_once_max: u64,
    at_once: u64,
    /// When each call came.
    called_at: Vec<Instant>,
    /// Calls for each delivery.
    pub(super) calls_for: BTreeMap<String, u64>,
    effects: BTreeMap<String, u64>,
    sessions: BTreeMap<String, Session>,
    throttle_ends_at: Option<Instant>,
    /// When each of the calls that it may work on at once is done.
    done_at: Vec<Instant>,
}

#[derive(Clone, Debug, Default)]
struct Session {
    furthest: String,
    calling: Option<String>,
}

/// What it does with a call.
enum Act {
    Answer { status: u16, headers: String, after: Duration },
    SayNothing,
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

impl Actor {
    /// Plays the only dependency of a scenario.
    pub(super) fn start(scenario: &Scenario) -> Self {
        let behaviour = scenario.dependencies.values().next().expect("a dependency").value.clone();
        let rejected = scenario.arrivals.iter().filter(|arrival| arrival.poison.get() > 0.0);
        let poison = rejected.map(|arrival| arrival.event_type.value.to_string()).collect();
        let (phase, is_listening, seen) = (Mutex::default(), AtomicBool::new(true), Mutex::default());
        let part = Part { behaviour, poison, phase, is_listening, seen };
        let (part, is_over) = (Arc::new(part), Arc::new(AtomicBool::new(false)));
        let holder = bound_to("127.0.0.1:0".parse().expect("an address"));
        let address = holder.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
        let actor = Self { address, part: Arc::clone(&part), is_over: Arc::clone(&is_over) };
        let first = listening(address);
        thread::spawn(move || {
            let mut listener = Some(first);
            while !is_over.load(Ordering::SeqCst) {
                if part.is_to_listen() {
                    take_calls(listener.get_or_insert_with(|| listening(address)), &part);
                } else {
                    listener = None;
                }
                part.is_listening.store(listener.is_some(), Ordering::SeqCst);
                thread::sleep(LOOK_EVERY);
            }
            drop(holder);
        });
        actor
    }

    /// From now on it is in that phase, or well; who calls from now on finds it so.
    pub(super) fn turn(&self, phase: Option<usize>) {
        *self.part.phase.lock().expect("nobody panics while turning") = phase;
        until("it has turned", || {
            let is_listening = self.part.is_listening.load(Ordering::SeqCst);
            (is_listening == self.part.is_to_listen()).then_some(())
        });
    }

    pub(super) fn seen(&self) -> Seen {
        self.part.seen().clone()
    }

    /// Whoever was calling is no more.
    pub(super) fn forget_callers(&self) {
        for session in self.part.seen().sessions.values_mut() {
            session.calling = None;
        }
    }
}

/// A socket at that address, beside which others may be bound to it.
fn bound_to(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be had");
    socket
        .set_reuse_address(true)
        .and_then(|()| socket.set_reuse_port(true))
        .expect("Linux can share a port");
    socket.bind(&address.into()).expect("the port is ours");
    socket
}

fn listening(address: SocketAddr) -> TcpListener {
    let socket = bound_to(address);
    socket.listen(1_024).and_then(|()| socket.set_nonblocking(true)).expect("it can listen");
    socket.into()
}

fn take_calls(listener: &TcpListener, part: &Arc<Part>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let part = Arc::clone(part);
                // Whoever hangs up is no concern of the target.
                thread::spawn(move || part.talk(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("nobody can call any more: {error}"),
        }
    }
}

impl Part {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics while looking on")
    }

    /// What it does, unless it is well.
    fn mode(&self) -> Option<&FailureMode> {
        let phase = *self.phase.lock().expect("nobody panics while turning");
        phase.map(|place| &self.behaviour.phases[place].mode)
    }

    fn is_to_listen(&self) -> bool {
        self.mode() != Some(&FailureMode::Down)
    }

    /// One call in each connection.
    fn talk(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let Some(call) = request(&mut stream)? else { return Ok(()) };
        let act = self.act(&call);
        match act {
            Act::Answer { status, headers, after } => {
                thread::sleep(after);
                self.ends(&call);
                let answer = format!(
                    "HTTP/1.1 {status} Said\r\n{headers}connection: close\r\ncontent-length: 0\r\n\r\n"
                );
                stream.get_mut().write_all(answer.as_bytes())
            }
            Act::SayNothing => {
                stream.get_ref().set_read_timeout(Some(PATIENCE))?;
                let heard = stream.read(&mut [0]).map(drop);
                self.ends(&call);
                heard
            }
        }
    }

    /// Decides what comes of a call, and writes down what there is to see.
    fn act(&self, call: &Request) -> Act {
        let now = Instant::now();
        let mode = self.mode();
        let mut seen = self.seen();
        seen.begins(call);
        let mut took = self.behaviour.latency.expect("the scenario gives one").p50;
        let mut status = 200;
        match mode {
            None => {}
            // It was accepted at the last moment.
            Some(FailureMode::Down) => status = 503,
            Some(FailureMode::Hanging) => return Act::SayNothing,
            Some(FailureMode::Slow(slow)) => took = slow.p50,
            Some(FailureMode::Failing(shares)) => {
                let (failing, share) = shares[0];
                if draw(call) < share.get() {
                    status = failing;
                }
            }
            Some(FailureMode::Throttled { rate, retry_after }) => {
                if seen.throttle_ends_at.is_some_and(|at| now < at) {
                    let seconds = retry_after.expect("the scenario gives one").as_secs();
                    let headers = format!("retry-after: {seconds}\r\n");
                    return Act::Answer { status: 429, headers, after: Duration::ZERO };
                }
                seen.throttle_ends_at = Some(now + Duration::from_secs_f64(1.0 / rate.as_per_second()));
            }
            Some(FailureMode::Mixed(_)) => panic!("no scenario's file can say this"),
        }
        if status == 200 && self.poison.contains(header(call, "ce-type")) {
            status = 422;
        }
        if let Some(slots) = self.behaviour.capacity.and_then(|capacity| capacity.concurrent) {
            took = seen.worked_on(slots as usize, took, now);
        }
        if status == 200 {
            let times = seen.effects.entry(header(call, "webhook-id").to_owned()).or_default();
            *times += 1;
            seen.duplicates += u64::from(*times > 1);
        }
        Act::Answer { status, headers: String::new(), after: took }
    }

    fn ends(&self, call: &Request) {
        let mut seen = self.seen();
        seen.at_once -= 1;
        let (id, key) = (header(call, "ce-id"), header(call, "ce-partitionkey"));
        if let Some(session) = seen.sessions.get_mut(key)
            && session.calling.as_deref() == Some(id)
        {
            session.calling = None;
        }
    }
}

impl Seen {
    /// The most calls within one second, whenever it begins.
    pub(super) fn calls_in_a_second_max(&self) -> usize {
        let within = |first: usize| {
            let ends_at = self.called_at[first] + Duration::from_secs(1);
            self.called_at[first..].iter().take_while(|at| **at < ends_at).count()
        };
        (0..self.called_at.len()).map(within).max().unwrap_or(0)
    }

    /// How long the last so many calls took to come.
    pub(super) fn last_came_within(&self, calls: usize) -> Duration {
        let last = &self.called_at[self.called_at.len().saturating_sub(calls)..];
        last.first().zip(last.last()).map_or(Duration::ZERO, |(first, last)| *last - *first)
    }

    fn begins(&mut self, call: &Request) {
        self.calls += 1;
        self.called_at.push(Instant::now());
        self.at_once += 1;
        self.at_once_max = self.at_once_max.max(self.at_once);
        *self.calls_for.entry(header(call, "webhook-id").to_owned()).or_default() += 1;
        let key = header(call, "ce-partitionkey");
        if key.is_empty() {
            return;
        }
        let id = header(call, "ce-id").to_owned();
        let session = self.sessions.entry(key.to_owned()).or_default();
        let is_beside = session.calling.as_ref().is_some_and(|other| *other != id);
        // Ids are given in the order of sending.
        self.out_of_order += u64::from(id < session.furthest || is_beside);
        session.furthest = session.furthest.clone().max(id.clone());
        session.calling = Some(id);
    }

    /// How long a call is inside that waits for its turn and then takes so long.
    fn worked_on(&mut self, slots: usize, took: Duration, now: Instant) -> Duration {
        self.done_at.retain(|done| *done > now);
        self.done_at.sort_unstable();
        let before = self.done_at.len().checked_sub(slots);
        let begins = before.map_or(now, |place| self.done_at[place]);
        self.done_at.push(begins + took);
        begins + took - now
    }
}

fn header<'a>(call: &'a Request, name: &str) -> &'a str {
    call.headers.get(name).map_or("", String::as_str)
}

/// A number from 0 to 1 that depends on the event and the attempt alone.
fn draw(call: &Request) -> f64 {
    let bytes = header(call, "ce-id").bytes().chain(header(call, "redrive-attempt").bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24)
}
