//! What a simulation came to: the same for people, for programs and for expectations.

use std::time::Duration;

use serde::Serialize;

use super::quantiles::Quantiles;
use crate::scenario::expectation::{Expectation, Metric, Value};
use redrive_core::policy::breaker::Phase;
use redrive_core::policy::category::Category;

/// What a simulation came to. Times are milliseconds since its start, and every series has one figure for each
/// step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulationReport {
    /// What the scenario is about.
    pub about: Option<String>,
    /// The seed.
    pub seed: u64,
    /// For how long events arrived.
    pub duration_ms: u64,
    /// How many nodes shared the work.
    pub nodes: u32,
    /// When the last thing happened.
    pub ended_at_ms: u64,
    /// How long a step of the series is.
    pub step_ms: u64,
    /// Events that arrived.
    pub events: u64,
    /// Deliveries that were made of them.
    pub deliveries: u64,
    /// Deliveries that arrived.
    pub delivered: u64,
    /// Deliveries that failed for good.
    pub dead: u64,
    /// Deliveries that had not ended when the run did.
    pub waiting: u64,
    /// Those of them that stand behind a dead letter of their session.
    pub waiting_behind_dead: u64,
    /// Attempts, over all deliveries.
    pub attempts: u64,
    /// Attempts for each first attempt.
    pub amplification: f64,
    /// Deliveries that took effect at their target more than once, each time but the first.
    pub duplicates: u64,
    /// Calls that came out of the order of their session.
    pub order_violations: u64,
    /// From when an event was sent until it was delivered; none if nothing arrived.
    pub latency: Option<Quantiles>,
    /// The most attempts of one delivery, whether or not it has ended.
    pub attempts_max: u32,
    /// How many deliveries had how many attempts.
    pub attempts_per_delivery: Vec<AttemptCount>,
    /// Why deliveries failed for good, the most frequent cause first.
    pub dead_letters: Vec<DeadLetterCause>,
    /// Services that were paused by their rule, and when.
    pub paused: Vec<PausedService>,
    /// Services and channels.
    pub queues: Vec<QueueReport>,
    /// What they call.
    pub dependencies: Vec<DependencyReport>,
    /// What was expected, and whether it came so.
    pub expectations: Vec<ExpectationResult>,
}

/// How many deliveries had so many attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptCount {
    /// So many attempts, with those that a crash cut off; the last of the list stands for all that had more.
    pub attempts: u32,
    /// How many deliveries.
    pub deliveries: u64,
    /// How many of them had not ended when the run did.
    pub waiting: u64,
}

/// Deliveries that failed for good for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterCause {
    /// The service or channel.
    pub queue: String,
    /// The dependency.
    pub dependency: String,
    /// The kind of the last failure.
    pub category: Category,
    /// Why it was given up.
    pub code: String,
    /// The last failure's own code.
    pub failure_code: String,
    /// How many.
    pub count: u64,
}

/// A service that was paused by its rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PausedService {
    /// Which.
    pub service: String,
    /// When.
    pub at_ms: u64,
}

/// A service or channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Deliveries for it.
    pub deliveries: u64,
    /// Those that arrived.
    pub delivered: u64,
    /// Those that failed for good.
    pub dead: u64,
    /// From when an event was sent until it was delivered; none if nothing arrived.
    pub latency: Option<Quantiles>,
    /// The most that had not ended, in each step.
    pub waiting: Vec<u64>,
}

/// A dependency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DependencyReport {
    /// Its name.
    pub name: String,
    /// Dependencies that call it to answer, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<String>,
    /// The calls that it can answer in a second while all is well, if that is limited.
    pub capacity_per_second: Option<f64>,
    /// Calls that were made.
    pub calls: u64,
    /// Calls that did not end well for anything that they carried.
    pub calls_failed: u64,
    /// Calls that carried several deliveries, and failed for some of them.
    pub calls_failed_partly: u64,
    /// Those of them by rules whose failure says that it is unwell: what a breaker counts.
    pub calls_failed_counted: u64,
    /// Attempts for each first attempt; where other dependencies call it, calls for each of those.
    pub amplification: f64,
    /// The most calls that began within one second.
    pub call_rate_max: f64,
    /// The most calls of rules with a retry in them that began within one second.
    pub retry_rate_max: f64,
    /// The most deliveries that needed it and had not ended.
    pub waiting_max: u64,
    /// Deliveries that needed it and failed for good.
    pub dead: u64,
    /// How long its calls took.
    pub call_latency: Quantiles,
    /// How often its breakers opened that were closed; one that opens again after a probe failed was not.
    pub breaker_opened: u64,
    /// For how long they were not closed, over all nodes.
    pub breaker_not_closed_ms: u64,
    /// Its troubles, and how soon they were over.
    pub troubles: Vec<Incident>,
    /// The changes of its breakers; of very many, the first.
    pub transitions: Vec<BreakerChange>,
    /// Its figures over time.
    pub series: DependencySeries,
}

/// A time in which a dependency, or Redrive before it, was not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Incident {
    /// When it began.
    pub began_at_ms: u64,
    /// When it was over; none if it lasted longer than the run.
    pub ended_at_ms: Option<u64>,
    /// The most that waited before it.
    pub waiting_before: u64,
    /// The most that waited from then until it was drained.
    pub waiting_max: u64,
    /// How many waited when it was drained, or else when the run ended.
    pub waiting_after: u64,
    /// How long after its end no more waited than before; none if that never came, or it had no end.
    pub drain_ms: Option<u64>,
}

impl Incident {
    /// How long it took to drain; none of one that lasts, as long as no more waits than before it.
    fn drain(&self) -> Option<Value> {
        match (self.ended_at_ms, self.drain_ms) {
            (_, Some(drain)) => Some(Value::Duration(Duration::from_millis(drain))),
            (None, None) if self.waiting_after <= self.waiting_before => None,
            (_, None) => Some(Value::Never),
        }
    }
}

/// A change of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerChange {
    /// When.
    pub at_ms: u64,
    /// On which node, from 1.
    pub node: u32,
    /// What it was.
    pub from: Phase,
    /// What it is.
    pub to: Phase,
}

/// The figures of a dependency over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DependencySeries {
    /// Calls.
    pub calls: Vec<u64>,
    /// Calls that were the first for all that they carried; of what others call, those that led to them.
    pub first_attempts: Vec<u64>,
    /// Calls that did not end well.
    pub failed: Vec<u64>,
    /// Calls that did.
    pub well: Vec<u64>,
    /// The most calls in flight.
    pub in_flight: Vec<u64>,
    /// The most deliveries that had not ended.
    pub waiting: Vec<u64>,
    /// How long calls took on average.
    pub latency_ms: Vec<u64>,
    /// On how many nodes its breaker was not closed, at most.
    pub breaker_not_closed: Vec<u64>,
}

/// An expectation and what came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectationResult {
    /// As it was written.
    pub expectation: String,
    /// Whether it came so.
    pub met: bool,
    /// What came; shares are from 0 to 1, times in seconds, and what never came is none.
    pub value: Value,
    /// The same as people read it.
    pub shown: String,
}

impl SimulationReport {
    /// A figure, of one dependency or of the worst.
    #[must_use]
    pub fn value(&self, metric: Metric, of: Option<&str>) -> Value {
        let named =
            self.dependencies.iter().filter(|dependency| of.is_none_or(|name| dependency.name == name));
        self.value_over(metric, named)
    }

    /// A figure, of these dependencies together or of the worst of them.
    pub(super) fn value_over<'a>(
        &self,
        metric: Metric,
        named: impl Iterator<Item = &'a DependencyReport> + Clone,
    ) -> Value {
        let most =
            |figure: fn(&DependencyReport) -> u64| Value::Count(named.clone().map(figure).max().unwrap_or(0));
        let sum = |figure: fn(&DependencyReport) -> u64| Value::Count(named.clone().map(figure).sum());
        let largest = |figure: fn(&DependencyReport) -> f64| named.clone().map(figure).fold(0.0, f64::max);
        let millis = |millis| Value::Duration(Duration::from_millis(millis));
        match metric {
            Metric::DeadLetters => sum(|dependency| dependency.dead),
            Metric::Delivered => Value::Share(ratio(self.delivered, self.deliveries)),
            Metric::Waiting => Value::Count(self.waiting),
            Metric::Duplicates => Value::Count(self.duplicates),
            Metric::OrderViolations => Value::Count(self.order_violations),
            Metric::LatencyP50 => self.latency.map_or(Value::Nothing, |latency| millis(latency.p50_ms)),
            Metric::LatencyP99 => self.latency.map_or(Value::Nothing, |latency| millis(latency.p99_ms)),
            Metric::AttemptsMax => Value::Count(u64::from(self.attempts_max)),
            Metric::Amplification => Value::Number(largest(|dependency| dependency.amplification)),
            Metric::Drain => {
                let troubles = named.flat_map(|dependency| &dependency.troubles);
                troubles.filter_map(Incident::drain).fold(millis(0), later)
            }
            Metric::QueueDepth => most(|dependency| dependency.waiting_max),
            Metric::BreakerOpened => sum(|dependency| dependency.breaker_opened),
            Metric::Calls => sum(|dependency| dependency.calls),
            Metric::CallRate => Value::PerSecond(largest(|dependency| dependency.call_rate_max)),
        }
    }

    /// Holds an expectation against it.
    #[must_use]
    pub fn expected(&self, expectation: &Expectation) -> ExpectationResult {
        let value = self.value(expectation.metric, expectation.of.as_deref());
        ExpectationResult {
            expectation: expectation.to_string(),
            met: expectation.is_met_by(value),
            value,
            shown: value.to_string(),
        }
    }
}

fn later(one: Value, other: Value) -> Value {
    if other.as_f64() > one.as_f64() { other } else { one }
}

/// A part of a whole; all of nothing is all.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Three digits behind the point are all that a reader can use.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
