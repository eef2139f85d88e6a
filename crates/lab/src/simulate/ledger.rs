//! Counts everything in a simulation and produces the [`SimulationReport`].
//!
//! Invariants: deliveries = delivered + dead + waiting; every attempt belongs to a delivery.

use std::collections::BTreeMap;
use std::time::Duration;

use super::quantiles::LatencySketch;
use super::report::{
    AttemptCount, BreakerChange, DeadLetterCause, DependencyReport, DependencySeries, PausedService,
    QueueReport, SimulationReport, ratio, rounded,
};
use super::series::{StepChange, StepClock, StepPeaks, StepSums};
use super::trouble::IncidentTracker;
use redrive_core::engine::DeadLetterInfo;
use redrive_core::ids::ServiceName;
use redrive_core::limits;
use redrive_core::policy::breaker::{BreakerPhase, Transition};
use redrive_core::policy::category::Category;

const ATTEMPTS_LISTED_MAX: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct SimulationLedger {
    now: u64,
    face: StepClock,
    /// Filled as far as it can be counted directly.
    report: SimulationReport,
    open: u64,
    ended: u64,
    latency: LatencySketch,
    attempts: BTreeMap<u32, AttemptCount>,
    attempts_of_all: u64,
    causes: BTreeMap<CauseKey, u64>,
    queues: Vec<QueueLedger>,
    dependencies: Vec<DependencyLedger>,
}

type CauseKey = (usize, usize, Category, String, String);

#[derive(Debug, Default)]
struct QueueLedger {
    report: QueueReport,
    latency: LatencySketch,
    waiting: StepPeaks,
}

#[derive(Debug, Default)]
struct DependencyLedger {
    report: DependencyReport,
    calls: StepSums,
    first_attempts: StepSums,
    failed: StepSums,
    ended: StepSums,
    took_micros: StepSums,
    in_flight: StepPeaks,
    waiting: StepPeaks,
    not_closed: StepPeaks,
    attempts: u64,
    within: u64,
    /// First attempts of rules that call it, and of rules that call something in front of it.
    first: u64,
    first_before: u64,
    calls_in_second: SecondPeak,
    retries_in_second: SecondPeak,
    latency: LatencySketch,
    not_closed_since: Vec<Option<u64>>,
    not_closed_nanos: u64,
    troubles: IncidentTracker,
}

#[derive(Clone, Copy, Debug, Default)]
struct SecondPeak {
    second: u64,
    count: u64,
    most: u64,
}

impl SecondPeak {
    fn add(&mut self, now: u64, count: u64) {
        let second = now / 1_000_000_000;
        let before = if self.second == second { self.count } else { 0 };
        (self.second, self.count) = (second, before + count);
        self.most = self.most.max(self.count);
    }
}

#[derive(Clone, Debug)]
pub(super) struct TrackedDependency {
    pub name: String,
    pub per_second: Option<f64>,
    pub behind: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallLoad {
    pub deliveries: u64,
    pub first: u64,
}

impl CallLoad {
    /// A batch counts as a first call only if none of its deliveries was tried before.
    fn first_calls(self) -> u64 {
        u64::from(self.first == self.deliveries)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveryRoute {
    pub queue: usize,
    pub dependency: usize,
}

impl SimulationLedger {
    pub(super) fn new(queues: Vec<String>, dependencies: Vec<TrackedDependency>, nodes: usize) -> Self {
        let queue = |name| QueueLedger {
            report: QueueReport { name, ..QueueReport::default() },
            ..QueueLedger::default()
        };
        let dependency = |opened: TrackedDependency| DependencyLedger {
            report: DependencyReport {
                name: opened.name,
                behind: opened.behind,
                capacity_per_second: opened.per_second.map(rounded),
                ..DependencyReport::default()
            },
            not_closed_since: vec![None; nodes],
            ..DependencyLedger::default()
        };
        Self {
            queues: queues.into_iter().map(queue).collect(),
            dependencies: dependencies.into_iter().map(dependency).collect(),
            ..Self::default()
        }
    }

    pub(super) fn advance(&mut self, now: u64) {
        self.now = now;
        let turn = self.face.advance(now);
        if turn != StepChange::Same {
            for queue in &mut self.queues {
                queue.waiting.turn(&self.face, turn);
            }
            for dependency in &mut self.dependencies {
                dependency.turn(&self.face, turn);
            }
        }
    }

    pub(super) const fn event(&mut self) {
        self.report.events += 1;
    }

    pub(super) fn sent(&mut self, belongs: DeliveryRoute) {
        self.queues[belongs.queue].report.deliveries += 1;
        self.open += 1;
        self.waiting(belongs, |waiting| waiting + 1);
    }

    fn waiting(&mut self, belongs: DeliveryRoute, change: fn(u64) -> u64) {
        let level = &mut self.queues[belongs.queue].waiting;
        level.set(&self.face, change(level.now()));
        let dependency = &mut self.dependencies[belongs.dependency];
        let waiting = change(dependency.waiting.now());
        dependency.waiting.set(&self.face, waiting);
        dependency.report.waiting_max = dependency.report.waiting_max.max(waiting);
        dependency.troubles.waiting(self.now, waiting);
    }

    pub(super) const fn open(&self) -> u64 {
        self.open
    }

    pub(super) const fn ended_count(&self) -> u64 {
        self.ended
    }

    pub(super) fn delivered(&mut self, belongs: DeliveryRoute, took: Duration, attempts: u32) {
        let queue = &mut self.queues[belongs.queue];
        queue.report.delivered += 1;
        queue.latency.add(took);
        self.latency.add(took);
        self.ended(belongs, attempts);
    }

    pub(super) fn died(&mut self, belongs: DeliveryRoute, death: &DeadLetterInfo, attempts: u32) {
        self.queues[belongs.queue].report.dead += 1;
        self.dependencies[belongs.dependency].report.dead += 1;
        let (code, failure_code) = (death.code.as_str().to_owned(), death.failure_code.as_str().to_owned());
        let key = (belongs.queue, belongs.dependency, death.category, code, failure_code);
        *self.causes.entry(key).or_default() += 1;
        self.ended(belongs, attempts);
    }

    fn ended(&mut self, belongs: DeliveryRoute, attempts: u32) {
        self.open -= 1;
        self.ended += 1;
        self.attempted(attempts);
        self.waiting(belongs, |waiting| waiting - 1);
    }

    pub(super) fn left_waiting(&mut self, attempts: u32) {
        self.attempted(attempts).waiting += 1;
    }

    fn attempted(&mut self, attempts: u32) -> &mut AttemptCount {
        self.report.attempts_max = self.report.attempts_max.max(attempts);
        self.attempts_of_all += u64::from(attempts);
        let attempts = attempts.min(ATTEMPTS_LISTED_MAX);
        let none = AttemptCount { attempts, deliveries: 0, waiting: 0 };
        let attempted = self.attempts.entry(attempts).or_insert(none);
        attempted.deliveries += 1;
        attempted
    }

    pub(super) fn called(&mut self, dependency: usize, carried: CallLoad) {
        let face = &self.face;
        let dependency = &mut self.dependencies[dependency];
        dependency.first_attempts.add(face, carried.first_calls());
        dependency.first += carried.first;
        dependency.attempts += carried.deliveries;
        dependency.retries_in_second.add(self.now, 1 - carried.first_calls());
        dependency.called(face, self.now);
    }

    pub(super) fn called_before(&mut self, dependency: usize, carried: CallLoad) {
        let dependency = &mut self.dependencies[dependency];
        dependency.first_attempts.add(&self.face, carried.first_calls());
        dependency.first_before += carried.first;
    }

    pub(super) fn called_within(&mut self, dependency: usize) {
        let dependency = &mut self.dependencies[dependency];
        dependency.within += 1;
        dependency.called(&self.face, self.now);
    }

    pub(super) fn answered(&mut self, dependency: usize, took: Duration, how: CallResult) {
        let dependency = &mut self.dependencies[dependency];
        dependency.in_flight.set(&self.face, dependency.in_flight.now() - 1);
        dependency.latency.add(took);
        dependency.ended.add(&self.face, 1);
        dependency.took_micros.add(&self.face, u64::try_from(took.as_micros()).unwrap_or(u64::MAX >> 20));
        match how {
            CallResult::Well => {}
            CallResult::Partly => dependency.report.calls_failed_partly += 1,
            CallResult::Badly => dependency.failed.add(&self.face, 1),
        }
    }

    pub(super) fn failed_counted(&mut self, dependency: usize) {
        self.dependencies[dependency].report.calls_failed_counted += 1;
    }

    pub(super) fn lost(&mut self, dependency: usize, calls: u64) {
        let level = &mut self.dependencies[dependency].in_flight;
        level.set(&self.face, level.now() - calls);
    }

    pub(super) const fn duplicate(&mut self) {
        self.report.duplicates += 1;
    }

    pub(super) fn paused(&mut self, service: &ServiceName) {
        self.report.paused.push(PausedService { service: service.to_string(), at_ms: self.now / 1_000_000 });
    }

    pub(super) fn incident_begins(&mut self, dependency: usize) {
        let dependency = &mut self.dependencies[dependency];
        dependency.troubles.begins(self.now, dependency.waiting.now());
    }

    pub(super) fn incident_ends(&mut self, dependency: usize) {
        let dependency = &mut self.dependencies[dependency];
        dependency.troubles.ends(self.now, dependency.waiting.now());
    }

    pub(super) fn breaker(&mut self, dependency: usize, node: usize, transition: &Transition) {
        let now = self.now;
        let dependency = &mut self.dependencies[dependency];
        if transition.to == BreakerPhase::Open && transition.from == BreakerPhase::Closed {
            dependency.report.breaker_opened += 1;
        }
        let since = &mut dependency.not_closed_since[node];
        match (transition.to, *since) {
            (BreakerPhase::Closed, Some(began)) => {
                dependency.not_closed_nanos += now - began;
                *since = None;
            }
            (BreakerPhase::Open | BreakerPhase::HalfOpen, None) => *since = Some(now),
            (BreakerPhase::Closed, None) | (BreakerPhase::Open | BreakerPhase::HalfOpen, Some(_)) => {}
        }
        let not_closed = dependency.not_closed_since.iter().flatten().count() as u64;
        dependency.not_closed.set(&self.face, not_closed);
        if dependency.report.transitions.len() < limits::SIMULATION_TRANSITIONS_MAX {
            dependency.report.transitions.push(BreakerChange {
                at_ms: now / 1_000_000,
                node: u32::try_from(node + 1).unwrap_or(u32::MAX),
                from: transition.from,
                to: transition.to,
            });
        }
    }

    /// Everything except what only the scenario and the nodes know.
    pub(super) fn into_report(self) -> SimulationReport {
        let mut dead_letters: Vec<DeadLetterCause> =
            self.causes.iter().map(|(key, count)| self.cause(key, *count)).collect();
        dead_letters.sort_by_key(|cause| std::cmp::Reverse(cause.count));
        let (face, now) = (self.face, self.now);
        let attempts: u64 = self.dependencies.iter().map(|it| it.attempts).sum();
        assert_eq!(attempts, self.attempts_of_all, "every attempt is that of a delivery");
        let first: u64 = self.dependencies.iter().map(|it| it.first).sum();
        let sum = |figure: fn(&QueueLedger) -> u64| self.queues.iter().map(figure).sum::<u64>();
        let report = SimulationReport {
            ended_at_ms: now / 1_000_000,
            step_ms: millis(face.step()),
            deliveries: sum(|queue| queue.report.deliveries),
            delivered: sum(|queue| queue.report.delivered),
            dead: sum(|queue| queue.report.dead),
            waiting: sum(|queue| queue.waiting.now()),
            attempts,
            amplification: rounded(ratio(attempts, first)),
            latency: self.latency.quantiles(),
            attempts_per_delivery: self.attempts.into_values().collect(),
            dead_letters,
            queues: self.queues.into_iter().map(|queue| queue.into_report(&face)).collect(),
            dependencies: self.dependencies.into_iter().map(|it| it.into_report(&face, now)).collect(),
            ..self.report
        };
        let ended = report.delivered + report.dead;
        assert_eq!(
            report.deliveries,
            ended + report.waiting,
            "nothing is lost and nothing comes from nowhere"
        );
        report
    }

    fn cause(
        &self,
        (queue, dependency, category, code, failure_code): &CauseKey,
        count: u64,
    ) -> DeadLetterCause {
        DeadLetterCause {
            queue: self.queues[*queue].report.name.clone(),
            dependency: self.dependencies[*dependency].report.name.clone(),
            category: *category,
            code: code.clone(),
            failure_code: failure_code.clone(),
            count,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    Well,
    /// Some deliveries of the batch failed.
    Partly,
    Badly,
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl QueueLedger {
    fn into_report(self, face: &StepClock) -> QueueReport {
        QueueReport { latency: self.latency.quantiles(), waiting: self.waiting.values(face), ..self.report }
    }
}

impl DependencyLedger {
    fn called(&mut self, face: &StepClock, now: u64) {
        self.calls_in_second.add(now, 1);
        self.calls.add(face, 1);
        self.in_flight.set(face, self.in_flight.now() + 1);
    }

    fn turn(&mut self, face: &StepClock, turn: StepChange) {
        for sums in [
            &mut self.calls,
            &mut self.first_attempts,
            &mut self.failed,
            &mut self.ended,
            &mut self.took_micros,
        ] {
            sums.turn(turn);
        }
        for level in [&mut self.in_flight, &mut self.waiting, &mut self.not_closed] {
            level.turn(face, turn);
        }
    }

    fn into_report(self, face: &StepClock, now: u64) -> DependencyReport {
        let (calls, ended, failed) =
            (self.calls.values(face), self.ended.values(face), self.failed.values(face));
        let took = self.took_micros.values(face);
        let latency_ms = took.iter().zip(&ended).map(|(sum, count)| sum.div_ceil(1_000 * count.max(&1)));
        let lasting: u64 = self.not_closed_since.iter().flatten().map(|since| now - since).sum();
        DependencyReport {
            calls: calls.iter().sum(),
            calls_failed: failed.iter().sum(),
            amplification: rounded(ratio(self.attempts + self.within, self.first + self.first_before)),
            call_rate_max: self.calls_in_second.most as f64,
            retry_rate_max: self.retries_in_second.most as f64,
            call_latency: self.latency.quantiles().unwrap_or_default(),
            breaker_not_closed_ms: (self.not_closed_nanos + lasting) / 1_000_000,
            troubles: self.troubles.finish(self.waiting.now()),
            series: DependencySeries {
                first_attempts: self.first_attempts.values(face),
                well: ended.iter().zip(&failed).map(|(all, failed)| all - failed).collect(),
                failed,
                in_flight: self.in_flight.values(face),
                waiting: self.waiting.values(face),
                latency_ms: latency_ms.collect(),
                breaker_not_closed: self.not_closed.values(face),
                calls,
            },
            ..self.report
        }
    }
}
