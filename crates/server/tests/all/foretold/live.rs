//! A scenario in earnest: a real server, a real target, and somebody who sends, kills and turns as the file says.
//!
//! The clock of the stage waits for the server. Before the target turns, or the server is killed, all that was
//! foretold to have happened by then must have happened: so a phase never ends before the calls that belong into
//! it were made, however slow the machine is. What the server does by its own clock meanwhile may then fall into the
//! wrong phase: so a run says whether the machine was late. That is seen by a thread that does nothing else, and by
//! how long the server's threads waited for a core; a server that is slow by itself is no part of it. Something that
//! never happens is waited for with a limit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redrive_lab::scenario::{
    self, Arrival, ArrivalPattern, FailureMode, FaultKind, NodeFault, Scenario, Spacing,
};
use serde_json::{Value, json};

use super::actor::{Actor, Seen};
use crate::kill::all_deliveries;
use crate::run::Folder;
use crate::server::{Server, until};

/// How often it is looked whether the machine is late.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// After a machine was late by so much, the stage may turn when what is due after that is due already: half a second
/// lies between.
const LATE_MS: u64 = 350;

/// What both sides can tell of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) delivered: u64,
    pub(super) waiting: u64,
    /// How many deliveries ended after how many attempts.
    pub(super) attempts: BTreeMap<u64, u64>,
    /// How many died of which category, by which code, after which failure.
    pub(super) dead: BTreeMap<[String; 3], u64>,
    pub(super) breaker: Vec<String>,
    pub(super) duplicates: u64,
    pub(super) out_of_order: u64,
}

/// A scenario that was played in earnest.
pub(super) struct Played {
    pub(super) came: Came,
    pub(super) seen: Seen,
    pub(super) machine: Machine,
}

/// What the machine did while a scenario was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Ran,
    WasLate,
}

/// A book and a scenario, as both sides read them.
pub(super) struct Stage {
    folder: Folder,
    scenario: Scenario,
    actor: Actor,
}

/// What is done to the server.
enum Cue<'a> {
    Turn(Option<usize>),
    Kill,
    Start,
    Send(&'a Arrival, u32),
}

/// What was foretold to have happened in each second.
struct Pace {
    begun: Vec<u64>,
    ended: Vec<u64>,
}

impl Pace {
    fn of(report: &Value) -> Self {
        assert_eq!(report["step_ms"], 1_000, "so short a scenario is told of second by second");
        let series = &report["dependencies"][0]["series"];
        let steps = |name: &str| -> Vec<u64> {
            series[name].as_array().expect("a series").iter().filter_map(Value::as_u64).collect()
        };
        let ended = steps("well").iter().zip(steps("failed")).map(|(well, failed)| well + failed).collect();
        Self { begun: steps("calls"), ended }
    }

    /// So many by then.
    fn by(steps: &[u64], at: Duration) -> u64 {
        let seconds = usize::try_from(at.as_secs()).expect("short");
        steps.iter().take(seconds).sum()
    }
}

impl Stage {
    /// Writes both files; `TARGET` in the book is where the dependency is.
    pub(super) fn set(book: &str, text: &str) -> Self {
        let reading = scenario::read(text);
        let scenario = reading.scenario.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems));
        let actor = Actor::start(&scenario);
        let folder = Folder::quick();
        folder.write("scenario.yaml", text);
        folder.write("redrive.yaml", book.replace("TARGET", &format!("http://{}/", actor.address)));
        Self { folder, scenario, actor }
    }

    /// What `redrive simulate` says will come.
    pub(super) fn foretold(&self) -> (Came, Value) {
        let arguments = ["simulate", "scenario.yaml", "--no-advice", "--format", "json"];
        let report: Value = serde_json::from_str(&self.folder.run(&arguments).printed()).expect("JSON");
        let count = |value: &Value| value.as_u64().expect("a count");
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let attempts = list(&report["attempts_per_delivery"]);
        let came = Came {
            delivered: count(&report["delivered"]),
            waiting: count(&report["waiting"]),
            attempts: attempts
                .iter()
                .map(|row| (count(&row["attempts"]), count(&row["deliveries"])))
                .collect(),
            dead: list(&report["dead_letters"])
                .iter()
                .map(|cause| (cause_of(cause), count(&cause["count"])))
                .collect(),
            breaker: list(&report["dependencies"][0]["transitions"]).iter().map(turn_of).collect(),
            duplicates: count(&report["duplicates"]),
            out_of_order: count(&report["order_violations"]),
        };
        (came, report)
    }

    /// What comes, and whether the machine was late.
    pub(super) fn play(&self) -> Played {
        let (is_over, late_ms) = (AtomicBool::new(false), AtomicU64::new(0));
        let played = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let before = Instant::now();
                    std::thread::sleep(LOOK_EVERY);
                    let late = before.elapsed().saturating_sub(LOOK_EVERY);
                    let late = u64::try_from(late.as_millis()).expect("short");
                    late_ms.fetch_max(late, Ordering::SeqCst);
                }
            });
            let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.play_once()));
            is_over.store(true, Ordering::SeqCst);
            played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let (came, seen, waited) = played;
        let late = Duration::from_millis(late_ms.load(Ordering::SeqCst)).max(waited);
        let machine = if late.as_millis() < LATE_MS.into() { Machine::Ran } else { Machine::WasLate };
        Played { came, seen, machine }
    }

    /// What comes, what the target saw, and how long the server's threads waited for a core.
    fn play_once(&self) -> (Came, Seen, Duration) {
        let (foretold, report) = self.foretold();
        let pace = Pace::of(&report);
        let mut server = Some(Server::start(&self.folder));
        let (mut sent, mut waited) = (0, Duration::ZERO);
        let mut began_at = Instant::now();
        for (at, cue) in self.cues() {
            wait_until(began_at + at);
            if let (Some(server), Cue::Turn(_) | Cue::Kill) = (&server, &cue) {
                self.keep_pace(&pace, server, at);
                began_at = began_at.max(Instant::now().checked_sub(at).expect("the machine ran before"));
            }
            match cue {
                Cue::Turn(phase) => self.actor.turn(phase),
                Cue::Send(arrival, count) => {
                    let serving = server.get_or_insert_with(|| Server::start(&self.folder));
                    send(serving, arrival, count, &mut sent);
                }
                Cue::Kill => {
                    let server = server.take().expect("it runs");
                    waited += server.waited_for_a_core();
                    let said = server.kill();
                    assert!(!said.contains("panicked"), "{said}");
                    self.actor.forget_callers();
                }
                Cue::Start => {
                    server.get_or_insert_with(|| Server::start(&self.folder));
                }
            }
        }
        let server = server.expect("every fault ends");
        until("nothing happens any more", || {
            let rest = all_deliveries(&server).iter().filter(|delivery| !has_ended(delivery)).count() as u64;
            (rest <= foretold.waiting).then_some(())
        });
        let came = self.came(&server);
        waited += server.waited_for_a_core();
        server.stop().assert_calm();
        (came, self.actor.seen(), waited)
    }

    /// Whether the target is down at some time, so that its calls are not seen.
    fn has_unseen_calls(&self) -> bool {
        let mut phases = self.scenario.dependencies.values().flat_map(|behaviour| &behaviour.value.phases);
        phases.any(|phase| phase.mode == FailureMode::Down)
    }

    /// Waits until all has happened that was foretold by then.
    fn keep_pace(&self, pace: &Pace, server: &Server, at: Duration) {
        let (begun, ended) = (Pace::by(&pace.begun, at), Pace::by(&pace.ended, at));
        let is_seen = !self.has_unseen_calls();
        until(&format!("{ended} attempts have ended by {at:?}, and {begun} have begun"), || {
            let have_begun = !is_seen || self.actor.seen().calls >= begun;
            (attempts_ended(server) >= ended && have_begun).then_some(())
        });
    }

    /// What is done, and when. Who sends while the server is down sends as soon as it is up.
    fn cues(&self) -> Vec<(Duration, Cue<'_>)> {
        let mut cues = Vec::new();
        let phases = &self.scenario.dependencies.values().next().expect("a dependency").value.phases;
        for (place, phase) in phases.iter().enumerate() {
            cues.push((phase.at, Cue::Turn(Some(place))));
            // One that lasts longer than events arrive lasts for ever here.
            let ends = phase.until() <= self.scenario.duration;
            if ends && phases.get(place + 1).is_none_or(|next| next.at > phase.until()) {
                cues.push((phase.until(), Cue::Turn(None)));
            }
        }
        for fault in &self.scenario.faults {
            assert_eq!(fault.kind, FaultKind::Restart, "nobody can stall a real store");
            cues.push((fault.at, Cue::Kill));
            cues.push((fault.until(), Cue::Start));
        }
        for arrival in &self.scenario.arrivals {
            match &arrival.flow {
                ArrivalPattern::Bursts { size, every: None } => {
                    let down = self.scenario.faults.iter();
                    let mut down =
                        down.filter(|fault| fault.at <= arrival.from && arrival.from < fault.until());
                    let at = down.next().map_or(arrival.from, NodeFault::until);
                    cues.push((at, Cue::Send(arrival, *size)));
                }
                ArrivalPattern::Steady { rate, spacing: Spacing::Even } => {
                    let moments = (0..).map(|number| {
                        arrival.from + Duration::from_secs_f64(f64::from(number) / rate.as_per_second())
                    });
                    let moments = moments.take_while(|at| *at < arrival.until);
                    cues.extend(moments.map(|at| (at, Cue::Send(arrival, 1))));
                }
                other => panic!("nobody sends like this here: {other:?}"),
            }
        }
        cues.sort_by_key(|(at, _)| *at);
        cues
    }

    fn came(&self, server: &Server) -> Came {
        let mut came = Came::default();
        let seen = self.actor.seen();
        for delivery in all_deliveries(server) {
            if !has_ended(&delivery) {
                came.waiting += 1;
                continue;
            }
            // The server knows of no call whose end it has not heard, and the target of none while it is down.
            let told = delivery["attempts"].as_u64().expect("a count");
            let called =
                seen.calls_for.get(delivery["webhook_id"].as_str().expect("an id")).copied().unwrap_or(0);
            *came.attempts.entry(told.max(called)).or_default() += 1;
            match delivery.get("death") {
                Some(death) => *came.dead.entry(cause_of(death)).or_default() += 1,
                None => came.delivered += 1,
            }
        }
        let dependencies = server.get("/v1/dependencies").json();
        let history = dependencies["dependencies"][0]["history"].as_array().expect("a history");
        came.breaker = history.iter().rev().map(turn_of).collect();
        (came.duplicates, came.out_of_order) = (seen.duplicates, seen.out_of_order);
        came
    }
}

fn attempts_ended(server: &Server) -> u64 {
    all_deliveries(server).iter().filter_map(|row| row["attempts"].as_u64()).sum()
}

fn wait_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

fn has_ended(delivery: &Value) -> bool {
    matches!(delivery["state"].as_str(), Some("delivered" | "dead"))
}

fn cause_of(cause: &Value) -> [String; 3] {
    ["category", "code", "failure_code"].map(|key| cause[key].as_str().expect("a word").to_owned())
}

fn turn_of(turn: &Value) -> String {
    let word = |key: &str| turn[key].as_str().expect("a phase").to_owned();
    format!("{} → {}", word("from"), word("to"))
}

/// Events that belong together are sent together, so that they are accepted at one moment.
fn send(server: &Server, arrival: &Arrival, count: u32, sent: &mut u32) {
    let event = |number: u32| {
        let mut event = json!({
            "specversion": "1.0",
            "id": format!("{number:06}"),
            "source": "/scenario",
            "type": arrival.event_type.value.as_str(),
        });
        if arrival.sessions.is_some() {
            event["partitionkey"] = json!("session-0");
        }
        event
    };
    let events: Vec<Value> = (*sent..*sent + count).map(event).collect();
    *sent += count;
    let headers = "content-type: application/cloudevents-batch+json\r\n";
    let answer = server.post("/v1/events", headers, json!(events).to_string());
    assert_eq!(answer.status, 202, "{answer:?}");
}
