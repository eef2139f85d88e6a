//! The report of a simulation.

use std::time::Duration;

use serde::Serialize;

use super::quantiles::Quantiles;
use crate::scenario::expectation::{Expectation, MetricValue, RunMetric};
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::policy::category::Category;

/// Times are milliseconds since the start; every series has one value per step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulationReport {
    pub about: Option<String>,
    pub seed: u64,
    pub duration_ms: u64,
    pub nodes: u32,
    pub ended_at_ms: u64,
    pub step_ms: u64,
    pub events: u64,
    pub deliveries: u64,
    pub delivered: u64,
    pub dead: u64,
    pub waiting: u64,
    /// Blocked by a dead letter of their session.
    pub waiting_behind_dead: u64,
    pub attempts: u64,
    pub amplification: f64,
    /// Each effect at a target after the first.
    pub duplicates: u64,
    pub order_violations: u64,
    /// From submission to delivery; `None` if nothing was delivered.
    pub latency: Option<Quantiles>,
    /// Including deliveries that have not ended.
    pub attempts_max: u32,
    pub attempts_per_delivery: Vec<AttemptCount>,
    /// The most frequent first.
    pub dead_letters: Vec<DeadLetterCause>,
    pub paused: Vec<PausedService>,
    pub queues: Vec<QueueReport>,
    pub dependencies: Vec<DependencyReport>,
    pub expectations: Vec<ExpectationResult>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptCount {
    /// Including attempts cut off by a crash. The last entry of the list covers all higher counts.
    pub attempts: u32,
    pub deliveries: u64,
    pub waiting: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterCause {
    pub queue: String,
    pub dependency: String,
    pub category: Category,
    pub code: String,
    pub failure_code: String,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PausedService {
    pub service: String,
    pub at_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueReport {
    pub name: String,
    pub deliveries: u64,
    pub delivered: u64,
    pub dead: u64,
    pub latency: Option<Quantiles>,
    pub waiting: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DependencyReport {
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<String>,
    /// While no incident is active; `None` if unlimited.
    pub capacity_per_second: Option<f64>,
    pub calls: u64,
    /// Calls that failed for everything they carried.
    pub calls_failed: u64,
    /// Batches that failed for some of their deliveries.
    pub calls_failed_partly: u64,
    /// Failed calls that a breaker counts.
    pub calls_failed_counted: u64,
    /// Attempts per first attempt.
    pub amplification: f64,
    /// In one second.
    pub call_rate_max: f64,
    /// In one second, calls that contain a retry.
    pub retry_rate_max: f64,
    pub waiting_max: u64,
    pub dead: u64,
    pub call_latency: Quantiles,
    /// From closed; a failed probe does not count.
    pub breaker_opened: u64,
    /// Summed over all nodes.
    pub breaker_not_closed_ms: u64,
    pub troubles: Vec<Incident>,
    /// Truncated.
    pub transitions: Vec<BreakerChange>,
    pub series: DependencySeries,
}

/// A period in which a dependency or a node was disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Incident {
    pub began_at_ms: u64,
    /// `None` if it lasted longer than the run.
    pub ended_at_ms: Option<u64>,
    pub waiting_before: u64,
    pub waiting_max: u64,
    /// When it was drained, or else at the end of the run.
    pub waiting_after: u64,
    /// From its end until no more waited than before it; `None` if that never happened.
    pub drain_ms: Option<u64>,
}

impl Incident {
    fn drain(&self) -> Option<MetricValue> {
        match (self.ended_at_ms, self.drain_ms) {
            (_, Some(drain)) => Some(MetricValue::Duration(Duration::from_millis(drain))),
            (None, None) if self.waiting_after <= self.waiting_before => None,
            (_, None) => Some(MetricValue::Never),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerChange {
    pub at_ms: u64,
    /// From 1.
    pub node: u32,
    pub from: BreakerPhase,
    pub to: BreakerPhase,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DependencySeries {
    pub calls: Vec<u64>,
    /// Calls without a retry in them; behind another dependency, those that led to them.
    pub first_attempts: Vec<u64>,
    pub failed: Vec<u64>,
    pub well: Vec<u64>,
    pub in_flight: Vec<u64>,
    pub waiting: Vec<u64>,
    pub latency_ms: Vec<u64>,
    pub breaker_not_closed: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectationResult {
    pub expectation: String,
    pub met: bool,
    /// Shares are 0 to 1, durations in seconds, never is `None`.
    pub value: MetricValue,
    pub shown: String,
}

impl SimulationReport {
    #[must_use]
    pub fn value(&self, metric: RunMetric, of: Option<&str>) -> MetricValue {
        let named =
            self.dependencies.iter().filter(|dependency| of.is_none_or(|name| dependency.name == name));
        self.value_over(metric, named)
    }

    /// The sum or the worst over these dependencies, depending on the metric.
    pub(super) fn value_over<'a>(
        &self,
        metric: RunMetric,
        named: impl Iterator<Item = &'a DependencyReport> + Clone,
    ) -> MetricValue {
        let most = |figure: fn(&DependencyReport) -> u64| {
            MetricValue::Count(named.clone().map(figure).max().unwrap_or(0))
        };
        let sum = |figure: fn(&DependencyReport) -> u64| MetricValue::Count(named.clone().map(figure).sum());
        let largest = |figure: fn(&DependencyReport) -> f64| named.clone().map(figure).fold(0.0, f64::max);
        let millis = |millis| MetricValue::Duration(Duration::from_millis(millis));
        match metric {
            RunMetric::DeadLetters => sum(|dependency| dependency.dead),
            RunMetric::Delivered => MetricValue::Share(ratio(self.delivered, self.deliveries)),
            RunMetric::Waiting => MetricValue::Count(self.waiting),
            RunMetric::Duplicates => MetricValue::Count(self.duplicates),
            RunMetric::OrderViolations => MetricValue::Count(self.order_violations),
            RunMetric::LatencyP50 => {
                self.latency.map_or(MetricValue::Nothing, |latency| millis(latency.p50_ms))
            }
            RunMetric::LatencyP99 => {
                self.latency.map_or(MetricValue::Nothing, |latency| millis(latency.p99_ms))
            }
            RunMetric::AttemptsMax => MetricValue::Count(u64::from(self.attempts_max)),
            RunMetric::Amplification => MetricValue::Number(largest(|dependency| dependency.amplification)),
            RunMetric::Drain => {
                let troubles = named.flat_map(|dependency| &dependency.troubles);
                troubles.filter_map(Incident::drain).fold(millis(0), later)
            }
            RunMetric::QueueDepth => most(|dependency| dependency.waiting_max),
            RunMetric::BreakerOpened => sum(|dependency| dependency.breaker_opened),
            RunMetric::Calls => sum(|dependency| dependency.calls),
            RunMetric::CallRate => MetricValue::PerSecond(largest(|dependency| dependency.call_rate_max)),
        }
    }

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

fn later(one: MetricValue, other: MetricValue) -> MetricValue {
    if other.as_f64() > one.as_f64() { other } else { one }
}

/// 1 if `whole` is 0.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

pub(super) fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
