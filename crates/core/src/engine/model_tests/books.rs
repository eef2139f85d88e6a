//! Rule books by chance: first what they are to say, in types of the test's own, which the checker goes by;
//! then as YAML, which the real reader reads.
//!
//! A seed has one book that knows everybody. Others are made of it by leaving out services or rows and by
//! other numbers, so that in the end, when the first book is back, no service is missing.

use std::sync::Arc;
use std::time::Duration;

use super::dice::Dice;
use crate::book::connectors::built_in;
use crate::book::{self, RuleBook};
use crate::engine::QueueName;
use crate::ids::{ChannelName, DependencyName, ServiceName};

/// The types of all events.
pub(super) const TYPES: [&str; 5] = ["t.a", "t.b", "t.c", "t.d", "t.e"];

/// A book: what it is meant to say, and what was read.
#[derive(Clone, Debug)]
pub(super) struct Book {
    pub spec: Spec,
    pub text: String,
    pub rules: Arc<RuleBook>,
}

/// What a book says.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub takers: Vec<Taker>,
    pub dependencies: Vec<Dependency>,
    pub policies: Vec<Policy>,
}

/// Who gets events: a service or a channel.
#[derive(Clone, Debug)]
pub(super) struct Taker {
    pub queue: Arc<QueueName>,
    pub order: Order,
    pub reprocess: Reprocess,
    pub reprocess_max: u32,
    pub reached: Reached,
    pub claims: Vec<(&'static str, Arc<Claim>)>,
}

/// How a service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    ByCall,
    /// By a program, whose start is put on record.
    ByWorker,
}

/// Whether deliveries of one session keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    None,
    Session,
    /// A dead one holds those behind it.
    Strict,
}

/// Who brings dead letters back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reprocess {
    Manual,
    Automatic,
    /// Those that failed in a passing way.
    Filtered,
}

/// The rule of a taker for one type.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub dependency: usize,
    /// Places among the policies.
    pub transient: usize,
    pub rate_limited: usize,
    pub on_fatal: OnFatal,
    pub when_open: WhenOpen,
    pub hold_max: Duration,
    pub deadline: Option<Duration>,
    pub timeout: Duration,
}

/// What follows on a fatal failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFatal {
    DeadLetter,
    Pause,
}

/// What an open breaker does to deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenOpen {
    Hold,
    DeadLetter,
}

/// How often and how far apart.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub initial: Duration,
    pub max: Duration,
    pub retries: u32,
    pub window: Option<Duration>,
    pub jitter: Jitter,
}

/// How delays are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jitter {
    None,
    Equal,
    Full,
}

impl Policy {
    /// The shortest delay that a first retry may have; later ones are no shorter.
    pub(super) fn delay_min(&self) -> Duration {
        match self.jitter {
            Jitter::None => self.initial,
            Jitter::Equal => self.initial / 2,
            Jitter::Full => Duration::ZERO,
        }
    }
}

/// What is called.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    pub in_flight: u32,
    pub per_second: Option<u32>,
    /// How many of a hundred calls may be retries.
    pub budget_percent: Option<u32>,
    pub breaker: Option<Breaker>,
}

/// What stands in front of it.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    pub trip: Trip,
    pub open: Duration,
    pub probes: u32,
    pub close_after: u32,
}

/// What opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    Consecutive(u32),
    Within(u32, Duration),
}

const POLICIES: usize = 3;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Book {
    /// Has the real reader read it.
    pub(super) fn of(spec: Spec) -> Self {
        let text = spec.to_yaml();
        let reading = book::read(&text, built_in());
        let rules = reading.book.unwrap_or_else(|| panic!("{:?} in\n{text}", reading.problems));
        Self { rules: Arc::new(rules), spec, text }
    }
}

impl Spec {
    /// The book that knows everybody.
    pub(super) fn everybody(dice: &mut Dice) -> Self {
        let services = dice.count(2, 5) as usize;
        let mut takers = Vec::new();
        for service in 0..services {
            let own = taker(dice, service);
            let channel = Some(ChannelName::new("c").expect("a name")).filter(|_| dice.chance(25));
            let queue = QueueName { service: own.queue.service.clone(), channel };
            let of_channel = Taker { queue: Arc::new(queue), ..own.clone() };
            takers.push(own);
            takers.extend(of_channel.queue.channel.is_some().then_some(of_channel));
        }
        for event_type in TYPES {
            let wanted_by = dice.place(takers.len());
            for (place, taker) in takers.iter_mut().enumerate() {
                if place == wanted_by || dice.chance(30) {
                    taker.claims.push((event_type, Arc::new(claim(dice, services, place))));
                }
            }
        }
        takers.retain(|taker| !taker.claims.is_empty());
        let mut spec = Self { takers, dependencies: Vec::new(), policies: Vec::new() };
        spec.roll_numbers(dice, services);
        spec
    }

    /// Another book, in which some may be missing.
    pub(super) fn varied(&self, dice: &mut Dice) -> Self {
        let services = self.dependencies.len();
        let mut takers: Vec<Taker> = self.takers.clone();
        let gone = takers[dice.place(takers.len())].queue.service.clone();
        let some_remain = takers.iter().any(|taker| taker.queue.service != gone);
        if some_remain && dice.chance(60) {
            takers.retain(|taker| taker.queue.service != gone);
        }
        // Now and then dead letters hold no session any more.
        if dice.chance(25) {
            let strict = takers.iter_mut().filter(|taker| taker.order == Order::Strict);
            strict.for_each(|taker| taker.order = Order::Session);
        }
        for (place, taker) in takers.iter_mut().enumerate() {
            if taker.claims.len() > 1 && dice.chance(30) {
                let row = dice.place(taker.claims.len());
                taker.claims.remove(row);
            }
            for (_, row) in &mut taker.claims {
                *row = Arc::new(claim(dice, services, place));
            }
        }
        let mut spec = Self { takers, dependencies: Vec::new(), policies: Vec::new() };
        spec.roll_numbers(dice, services);
        spec
    }

    fn roll_numbers(&mut self, dice: &mut Dice, dependencies: usize) {
        self.policies = (0..POLICIES).map(|_| policy(dice)).collect();
        self.dependencies = (0..dependencies).map(|_| dependency(dice)).collect();
    }

    /// Whether some worker needs the dependency at that place.
    pub(super) fn is_of_worker(&self, dependency: usize) -> bool {
        let workers = self.takers.iter().filter(|taker| taker.reached == Reached::ByWorker);
        workers.flat_map(|taker| &taker.claims).any(|(_, claim)| claim.dependency == dependency)
    }

    /// The rule for an event of that taker; none if it does not want it.
    pub(super) fn claim(&self, queue: &QueueName, event_type: &str) -> Option<&Arc<Claim>> {
        let taker = self.takers.iter().find(|taker| *taker.queue == *queue)?;
        taker.claims.iter().find(|(wanted, _)| *wanted == event_type).map(|(_, claim)| claim)
    }

    fn to_yaml(&self) -> String {
        let mut text = "version: 1\nretry_policies:\n".to_owned();
        for (place, policy) in self.policies.iter().enumerate() {
            let Policy { initial, max, retries, window, jitter } = policy;
            let jitter = match jitter {
                Jitter::None => "none",
                Jitter::Equal => "equal",
                Jitter::Full => "full",
            };
            let window = window.map_or(String::new(), |window| format!(", window: {}", shown(window)));
            let (initial, max) = (shown(*initial), shown(*max));
            text += &format!(
                "  p{place}: {{ initial: {initial}, factor: 2, max: {max}, retries: {retries}, jitter: {jitter}{window} }}\n"
            );
        }
        text += "breakers:\n";
        for (place, dependency) in self.dependencies.iter().enumerate() {
            let Some(Breaker { trip, open, probes, close_after }) = &dependency.breaker else { continue };
            let trip = match trip {
                Trip::Consecutive(count) => format!("consecutive: {count}"),
                Trip::Within(count, within) => format!("failures: {count}, within: {}", shown(*within)),
            };
            let open = shown(*open);
            text += &format!(
                "  b{place}: {{ trip: {{ {trip} }}, open: {open}, probes: {probes}, close_after: {close_after} }}\n"
            );
        }
        text += "dependencies:\n";
        for (place, dependency) in self.dependencies.iter().enumerate() {
            let breaker = dependency.breaker.as_ref().map_or("none".to_owned(), |_| format!("b{place}"));
            let rate = dependency.per_second.map_or(String::new(), |rate| format!(", rate: {rate}/s"));
            let in_flight = dependency.in_flight;
            let budget = dependency.budget_percent.map_or(String::new(), |percent| {
                format!(", retry_budget: {{ share: {percent}%, at_least: 30/m }}")
            });
            text += &format!(
                "  d{place}: {{ kind: webhook, breaker: {breaker}, in_flight: {in_flight}{rate}{budget} }}\n"
            );
        }
        text + &self.services_to_yaml()
    }

    fn services_to_yaml(&self) -> String {
        let mut text = "services:\n".to_owned();
        let mut service = None;
        for taker in &self.takers {
            let name = &taker.queue.service;
            if service != Some(name) {
                let order = match taker.order {
                    Order::None => "none",
                    Order::Session => "session",
                    Order::Strict => "session-strict",
                };
                let reprocess = match taker.reprocess {
                    Reprocess::Manual => "manual",
                    Reprocess::Automatic => "automatic",
                    Reprocess::Filtered => "filtered, reprocess_categories: [transient, unknown]",
                };
                let times = taker.reprocess_max;
                let target = match taker.reached {
                    Reached::ByCall => format!("http: \"http://{name}.example.test/\""),
                    Reached::ByWorker => "exec: [work], output: done".to_owned(),
                };
                text += &format!("  {name}:\n    target: {{ {target} }}\n    timeout: {{ as: transient }}\n");
                text += &format!("    order: {order}\n");
                text += &format!("    dead_letter: {{ reprocess: {reprocess}, reprocess_max: {times} }}\n");
                service = Some(name);
            }
            let rows: String =
                taker.claims.iter().map(|(event_type, claim)| claim.to_yaml(event_type)).collect();
            match &taker.queue.channel {
                None => text += &format!("    events:\n{rows}"),
                Some(channel) => text += &format!("    channels:\n     {channel}:\n      events:\n{rows}"),
            }
        }
        text
    }
}

impl Claim {
    fn to_yaml(&self, event_type: &str) -> String {
        let Self { dependency, transient, rate_limited, on_fatal, when_open, .. } = self;
        let on_fatal = match on_fatal {
            OnFatal::DeadLetter => "dead-letter",
            OnFatal::Pause => "pause",
        };
        let when_open = match when_open {
            WhenOpen::Hold => "hold",
            WhenOpen::DeadLetter => "dead-letter",
        };
        let deadline = self.deadline.map_or(String::new(), |span| format!(", deadline: {}", shown(span)));
        let (timeout, hold_max) = (shown(self.timeout), shown(self.hold_max));
        format!(
            "        - {{ type: {event_type}, depends_on: d{dependency}, retry: p{transient}, \
             on_failure: {{ rate-limited: p{rate_limited}, fatal: {on_fatal} }}, timeout: {timeout}, \
             hold_max: {hold_max}, when_open: {when_open}{deadline} }}\n"
        )
    }
}

/// The name of the dependency at that place.
pub(super) fn dependency_name(place: usize) -> DependencyName {
    DependencyName::new(&format!("d{place}")).expect("a name")
}

fn taker(dice: &mut Dice, service: usize) -> Taker {
    let service = ServiceName::new(&format!("s{service}")).expect("a name");
    let queue = Arc::new(QueueName { service, channel: None });
    let order = match dice.below(20) {
        0..6 => Order::Session,
        6..13 => Order::Strict,
        _ => Order::None,
    };
    let reprocess = match dice.below(10) {
        0 | 1 => Reprocess::Automatic,
        2 => Reprocess::Filtered,
        _ => Reprocess::Manual,
    };
    let reached = if dice.chance(25) { Reached::ByWorker } else { Reached::ByCall };
    Taker { queue, order, reprocess, reprocess_max: dice.count(1, 3), reached, claims: Vec::new() }
}

fn claim(dice: &mut Dice, dependencies: usize, taker: usize) -> Claim {
    let own = taker % dependencies;
    Claim {
        dependency: if dice.chance(80) { own } else { dice.place(dependencies) },
        transient: dice.place(POLICIES),
        rate_limited: dice.place(POLICIES),
        on_fatal: if dice.chance(40) { OnFatal::Pause } else { OnFatal::DeadLetter },
        when_open: if dice.chance(85) { WhenOpen::Hold } else { WhenOpen::DeadLetter },
        hold_max: dice.pick(&[secs(5), secs(20), secs(90), secs(86_400)]),
        deadline: dice.chance(15).then_some(dice.pick(&[secs(3), secs(15), secs(60)])),
        timeout: dice.pick(&[ms(300), secs(1), secs(3), secs(10)]),
    }
}

fn policy(dice: &mut Dice) -> Policy {
    let initial = dice.pick(&[ms(40), ms(200), ms(700), secs(2)]);
    Policy {
        initial,
        max: initial * dice.count(1, 8),
        retries: dice.count(1, 6),
        window: dice.chance(50).then_some(dice.pick(&[secs(3), secs(10), secs(40)])),
        jitter: dice.pick(&[Jitter::None, Jitter::Equal, Jitter::Full]),
    }
}

fn dependency(dice: &mut Dice) -> Dependency {
    let trip = if dice.chance(75) {
        Trip::Consecutive(dice.count(2, 5))
    } else {
        Trip::Within(dice.count(3, 6), dice.pick(&[secs(2), secs(10)]))
    };
    let probes = dice.count(1, 2);
    let breaker = Breaker {
        trip,
        open: dice.pick(&[ms(300), secs(1), secs(4)]),
        probes,
        close_after: dice.count(probes, 3),
    };
    Dependency {
        in_flight: dice.count(1, 8),
        per_second: dice.chance(15).then_some(dice.count(10, 60)),
        budget_percent: dice.chance(25).then_some(dice.count(0, 50)),
        breaker: dice.chance(75).then_some(breaker),
    }
}

/// A time as a book writes it.
fn shown(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}
