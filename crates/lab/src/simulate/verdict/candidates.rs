//! Candidate changes for each finding. A run with the change shows whether it helps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::price::Price;
use super::together::names;
use crate::scenario::expectation::{MetricValue, RunMetric};
use crate::simulate::change::beside_change_of;
use crate::simulate::report::{DeadLetterCause, DependencyReport, SimulationReport, ratio};
use redrive_core::book::RuleBook;
use redrive_core::book::patch::{Patch, keys};
use redrive_core::ids::{DependencyName, PolicyName};
use redrive_core::limits;
use redrive_core::policy::backoff::Jitter;
use redrive_core::policy::catalog::{self, DependencyKind};
use redrive_core::policy::rule::Rule;
use redrive_core::text::show_duration;

#[derive(Clone, Debug, PartialEq)]
pub(in crate::simulate) struct Candidate {
    pub(in crate::simulate) change: Patch,
    pub(in crate::simulate) measure: CandidateMeasure,
    pub(in crate::simulate) of: Option<String>,
    /// For example `breaker: externalBreaker`.
    setting: String,
    place: ChangeSection,
    names: Vec<String>,
}

/// The rules that call each dependency, resolved once: a book may have thousands of rows.
pub(super) struct Callers<'a> {
    book: &'a RuleBook,
    rules: BTreeMap<DependencyName, Vec<Rule>>,
    /// The kind that the first caller gives it.
    kinds: BTreeMap<DependencyName, DependencyKind>,
}

impl<'a> Callers<'a> {
    pub(super) fn of(book: &'a RuleBook) -> Self {
        let mut rules: BTreeMap<DependencyName, Vec<Rule>> = BTreeMap::new();
        let mut kinds = BTreeMap::new();
        for resolved in book.sections().resolved() {
            kinds.entry(resolved.rule.dependency.clone()).or_insert(resolved.kind);
            rules.entry(resolved.rule.dependency.clone()).or_default().push(resolved.rule);
        }
        Self { book, rules, kinds }
    }

    fn rules_of(&self, dependency: &str) -> &[Rule] {
        self.rules.get(dependency).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn call(&self, dependency: &str) -> bool {
        !self.rules_of(dependency).is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeSection {
    Dependency,
    Policy,
    Service,
}

impl ChangeSection {
    const fn section(self) -> &'static str {
        match self {
            Self::Dependency => "dependencies",
            Self::Policy => "retry_policies",
            Self::Service => "services",
        }
    }

    const fn preposition(self) -> &'static str {
        match self {
            Self::Dependency => "on",
            Self::Policy => "in",
            Self::Service => "for",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulate) enum CandidateMeasure {
    Figure(RunMetric),
    /// The peak call rate after an incident.
    AfterRecovery,
}

impl CandidateMeasure {
    pub(in crate::simulate) fn as_str(self) -> &'static str {
        match self {
            Self::Figure(metric) => metric.as_str(),
            Self::AfterRecovery => "calls per second after recovery",
        }
    }

    /// `step_ms` is the width of a peak, a multiple of the report's step.
    fn value(self, report: &SimulationReport, of: Option<&str>, step_ms: u64) -> MetricValue {
        match self {
            Self::Figure(metric) => report.value(metric, of),
            Self::AfterRecovery => {
                let named = report.dependencies.iter().filter(|it| of.is_none_or(|name| it.name == name));
                let peaks = named.map(|it| peak_after(it, report.step_ms, step_ms));
                MetricValue::PerSecond(peaks.fold(0.0, f64::max))
            }
        }
    }
}

fn peak_after(dependency: &DependencyReport, own_ms: u64, step_ms: u64) -> f64 {
    let own_ms = own_ms.max(1);
    let over = dependency.troubles.iter().filter_map(|trouble| trouble.ended_at_ms).min();
    let Some(over) = over.and_then(|at_ms| usize::try_from(at_ms / own_ms).ok()) else { return 0.0 };
    let after = dependency.series.calls.get(over..).unwrap_or_default();
    let each = usize::try_from(step_ms / own_ms).unwrap_or(1).max(1);
    let most = after.chunks(each).map(|steps| steps.iter().sum::<u64>()).max().unwrap_or(0);
    most as f64 * 1_000.0 / step_ms.max(1) as f64
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::simulate) struct CandidateGain {
    pub(in crate::simulate) before: MetricValue,
    pub(in crate::simulate) after: MetricValue,
    pub(in crate::simulate) price: Price,
}

const WORTH_IT: f64 = 0.9;

impl Candidate {
    pub(in crate::simulate) fn words(&self) -> String {
        let names = names(self.names.iter().map(String::as_str));
        format!("`{}` {} {names}", self.setting, self.place.preposition())
    }

    /// The gain, if the measure falls clearly without more dead letters, more waiting or clearly fewer deliveries.
    pub(in crate::simulate) fn gain(
        &self,
        before: &SimulationReport,
        after: &SimulationReport,
    ) -> Option<CandidateGain> {
        let step_ms = before.step_ms.max(after.step_ms);
        let value = |report: &SimulationReport| self.measure.value(report, self.of.as_deref(), step_ms);
        let gain = CandidateGain {
            before: value(before),
            after: value(after),
            price: Price::between(before, after),
        };
        let is_less = gain.after.as_f64() < WORTH_IT * gain.before.as_f64();
        let arrives = |report: &SimulationReport| ratio(report.delivered, report.deliveries);
        let does_no_harm = after.dead <= before.dead
            && after.waiting <= before.waiting
            && arrives(after) >= WORTH_IT * arrives(before);
        (is_less && does_no_harm).then_some(gain)
    }
}

#[derive(Clone, Copy)]
struct Against<'a> {
    callers: &'a Callers<'a>,
    measure: CandidateMeasure,
    of: Option<&'a str>,
}

impl<'a> Against<'a> {
    const fn of(callers: &'a Callers<'a>, dependency: &'a str, measure: CandidateMeasure) -> Self {
        Self { callers, measure, of: Some(dependency) }
    }

    fn by(self, place: ChangeSection, name: &str, setting: &str) -> Candidate {
        let kind = || self.callers.kinds.get(name).copied();
        let beside = beside_change_of(self.callers.book, place.section(), name, kind);
        let at = keys(&[place.section(), name]);
        let patch = beside.map(|(key, value)| Patch::new().set(&at, key, value)).unwrap_or_default();
        let (key, value) = setting.split_once(": ").expect("a setting is a key and its value");
        Candidate {
            change: patch.set(&at, key, value),
            measure: self.measure,
            of: self.of.map(str::to_owned),
            setting: setting.to_owned(),
            place,
            names: vec![name.to_owned()],
        }
    }

    fn dependency(self) -> &'a str {
        self.of.unwrap_or_default()
    }

    fn by_dependency(self, setting: &str) -> Candidate {
        self.by(ChangeSection::Dependency, self.dependency(), setting)
    }

    fn rules(self) -> &'a [Rule] {
        self.callers.rules_of(self.dependency())
    }

    fn breaker(self) -> Option<Candidate> {
        let has_none = self.rules().iter().any(|rule| rule.breaker.is_none());
        has_none.then(|| self.by_dependency("breaker: externalBreaker"))
    }

    fn budget(self) -> Option<Candidate> {
        let name = DependencyName::new(self.dependency()).ok()?;
        let has_none = self.callers.book.retry_budget(&name).is_none() && !self.rules().is_empty();
        has_none.then(|| self.by_dependency("retry_budget: 10%"))
    }

    /// Policies that retry calls of the dependency with such a jitter. The rate-limit policy, which every rule has,
    /// counts only if nothing else retries.
    fn jitter(self, could_be_more: fn(Jitter) -> bool) -> Vec<Candidate> {
        let mut jitters: BTreeMap<PolicyName, Jitter> = BTreeMap::new();
        for rule in self.rules() {
            let policies = rule.reactions.policies().iter();
            let retrying = policies.filter(|policy| policy.backoff.retries() > 0);
            jitters.extend(retrying.map(|policy| (policy.name.clone(), policy.backoff.jitter())));
        }
        if jitters.len() > 1 {
            jitters.retain(|name, _| name.as_str() != catalog::RATE_LIMITED_POLICY);
        }
        jitters.retain(|_, jitter| could_be_more(*jitter));
        merged(jitters.keys().map(|name| self.by(ChangeSection::Policy, name.as_str(), "jitter: full")))
    }

    fn in_flight(self, dependency: &DependencyReport) -> Option<Candidate> {
        let capacity = dependency.capacity_per_second.filter(|_| !self.rules().is_empty())?;
        let busy = capacity * dependency.call_latency.p50_ms.max(1) as f64 / 1_000.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of calls")]
        let count = (busy.ceil() as u32).clamp(1, 10_000);
        Some(self.by_dependency(&format!("in_flight: {count}")))
    }

    fn ramp(self) -> Option<Candidate> {
        let name = DependencyName::new(self.dependency()).ok()?;
        let is_held = self.rules().iter().any(|rule| rule.breaker.is_some());
        let longer = match self.callers.book.ramp(&name) {
            Duration::ZERO => limits::RAMP_DEFAULT,
            known => known.saturating_mul(RAMP_TIMES).min(limits::DURATION_MAX),
        };
        is_held.then(|| self.by_dependency(&format!("ramp: {}", show_duration(longer))))
    }

    /// A multiple of the p99 latency.
    fn timeout(self, dependency: &DependencyReport, times: u64) -> Candidate {
        let seconds = (times * dependency.call_latency.p99_ms).div_ceil(1_000).max(1);
        let setting = format!("timeout: {}", show_duration(Duration::from_secs(seconds)));
        self.by(ChangeSection::Dependency, &dependency.name, &setting)
    }
}

/// The same setting in several places becomes one change.
pub(super) fn merged(all: impl Iterator<Item = Candidate>) -> Vec<Candidate> {
    let mut groups: Vec<(Candidate, BTreeSet<String>)> = Vec::new();
    for one in all {
        let is_like = |(first, _): &&mut (Candidate, BTreeSet<String>)| {
            (&first.setting, first.place, first.measure) == (&one.setting, one.place, one.measure)
        };
        let Some((first, known)) = groups.iter_mut().find(is_like) else {
            let known = one.names.iter().cloned().collect();
            groups.push((one, known));
            continue;
        };
        if first.of != one.of {
            first.of = None;
        }
        first.names.extend(one.names.into_iter().filter(|name| known.insert(name.clone())));
        first.change = std::mem::take(&mut first.change).and(one.change);
    }
    groups.into_iter().map(|(whole, _)| whole).collect()
}

const RAMP_TIMES: u32 = 6;

pub(super) fn against_storms(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let against = Against::of(callers, &dependency.name, CandidateMeasure::Figure(RunMetric::Drain));
    [against.breaker(), against.budget(), against.in_flight(dependency)].into_iter().flatten().collect()
}

const GOES_WELL_FOR_MS: u64 = 10_000;
/// Factor for `in_flight` where it limits throughput.
const IN_FLIGHT_TIMES: u32 = 4;

/// The rate known to succeed, or more `in_flight` if that is the limit.
pub(super) fn against_backlogs(
    callers: &Callers<'_>,
    report: &SimulationReport,
    dependency: &DependencyReport,
) -> Vec<Candidate> {
    let Ok(name) = DependencyName::new(&dependency.name) else { return Vec::new() };
    if !callers.call(&dependency.name) {
        return Vec::new();
    }
    let throttle = callers.book.throttle(&name);
    let step_ms = report.step_ms.max(1);
    let steps = usize::try_from(GOES_WELL_FOR_MS.div_ceil(step_ms)).unwrap_or(usize::MAX);
    let best = dependency.series.well.windows(steps).map(|steps| steps.iter().sum::<u64>()).max();
    let per_second = best.map_or(0, |best| best * 1_000 / (steps as u64 * step_ms));
    let is_full = dependency.series.in_flight.iter().any(|most| *most >= u64::from(throttle.in_flight.get()));
    let rate = (per_second > 0 && !is_full).then(|| format!("rate: {per_second}/s"));
    let more = throttle.in_flight.get().saturating_mul(IN_FLIGHT_TIMES).min(100_000);
    let in_flight = is_full.then(|| format!("in_flight: {more}"));
    let against = Against::of(callers, &dependency.name, CandidateMeasure::Figure(RunMetric::QueueDepth));
    rate.into_iter().chain(in_flight).map(|setting| against.by_dependency(&setting)).collect()
}

pub(super) fn against_stampedes(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let against = Against::of(callers, &dependency.name, CandidateMeasure::AfterRecovery);
    let mut all = against.jitter(|it| !matches!(it, Jitter::Full | Jitter::Decorrelated));
    let others = [against.breaker(), against.budget(), against.ramp(), against.in_flight(dependency)];
    all.extend(others.into_iter().flatten());
    all
}

pub(super) fn against_waves(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let against = Against::of(callers, &dependency.name, CandidateMeasure::Figure(RunMetric::CallRate));
    against.jitter(|jitter| jitter == Jitter::None)
}

pub(super) fn against_calls(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let against = Against::of(callers, &dependency.name, CandidateMeasure::Figure(RunMetric::Amplification));
    against.breaker().into_iter().chain(against.budget()).collect()
}

pub(super) fn against_deaths(
    callers: &Callers<'_>,
    report: &SimulationReport,
    cause: &DeadLetterCause,
) -> Vec<Candidate> {
    let is_impatient = matches!(cause.code.as_str(), "MAX_RETRIES_EXCEEDED" | "RETRY_WINDOW_EXCEEDED");
    if !is_impatient {
        return Vec::new();
    }
    let service = cause.queue.split('/').next().unwrap_or_default();
    let against = Against::of(callers, &cause.dependency, CandidateMeasure::Figure(RunMetric::DeadLetters));
    let slow = report.dependencies.iter().find(|it| it.name == cause.dependency);
    let slow = slow.filter(|_| cause.failure_code.ends_with("TIMEOUT"));
    let others = [against.breaker(), slow.map(|slow| against.timeout(slow, 4))];
    let longer = against.by(ChangeSection::Service, service, "retry: critical");
    std::iter::once(longer).chain(others.into_iter().flatten()).collect()
}

pub(super) fn against_duplicates(callers: &Callers<'_>, dependency: &DependencyReport) -> Option<Candidate> {
    let against = Against { callers, measure: CandidateMeasure::Figure(RunMetric::Duplicates), of: None };
    callers.call(&dependency.name).then(|| against.timeout(dependency, 2))
}
