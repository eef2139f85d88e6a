//! Changes to a rule book that may help against a finding. Whether one does is seen by playing again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::price::Price;
use super::together::names;
use crate::scenario::expectation::{Metric, Value};
use crate::simulate::change::beside_change_of;
use crate::simulate::report::{Cause, DependencyReport, Report, ratio};
use redrive_core::book::RuleBook;
use redrive_core::book::patch::{Patch, keys};
use redrive_core::ids::{DependencyName, PolicyName};
use redrive_core::limits;
use redrive_core::policy::backoff::Jitter;
use redrive_core::policy::catalog::{self, Kind};
use redrive_core::policy::rule::Rule;
use redrive_core::text::show_duration;

/// A change that may help.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The part of the rule book that changes.
    pub change: Patch,
    /// What should become less.
    pub measure: Measure,
    /// Of which dependency, if not of all.
    pub of: Option<String>,
    /// What is set: `breaker: externalBreaker`.
    setting: String,
    /// Where: on dependencies, in policies, for services.
    place: Place,
    /// On which.
    names: Vec<String>,
}

/// A rule book, and which of its rules call what: worked out once, since a book may have thousands of rows.
pub(super) struct Callers<'a> {
    book: &'a RuleBook,
    rules: BTreeMap<DependencyName, Vec<Rule>>,
    /// What those who call it first take a dependency for.
    kinds: BTreeMap<DependencyName, Kind>,
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

    /// The rules that call a dependency.
    fn rules_of(&self, dependency: &str) -> &[Rule] {
        self.rules.get(dependency).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a rule calls a dependency.
    pub(super) fn call(&self, dependency: &str) -> bool {
        !self.rules_of(dependency).is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Dependency,
    Policy,
    Service,
}

impl Place {
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

/// What a change is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A figure of the report.
    Figure(Metric),
    /// The most calls in a second once a trouble is over.
    AfterRecovery,
}

impl Measure {
    /// What it is called.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Figure(metric) => metric.as_str(),
            Self::AfterRecovery => "calls in a second after recovery",
        }
    }

    /// How much there is of it; `step_ms` is what peaks are taken over, a multiple of the report's own steps.
    fn value(self, report: &Report, of: Option<&str>, step_ms: u64) -> Value {
        match self {
            Self::Figure(metric) => report.value(metric, of),
            Self::AfterRecovery => {
                let named = report.dependencies.iter().filter(|it| of.is_none_or(|name| it.name == name));
                let peaks = named.map(|it| peak_after(it, report.step_ms, step_ms));
                Value::PerSecond(peaks.fold(0.0, f64::max))
            }
        }
    }
}

/// Calls in a second, at most, in steps that begin when a trouble is over or later.
fn peak_after(dependency: &DependencyReport, own_ms: u64, step_ms: u64) -> f64 {
    let own_ms = own_ms.max(1);
    let over = dependency.troubles.iter().filter_map(|trouble| trouble.ended_at_ms).min();
    let Some(over) = over.and_then(|at_ms| usize::try_from(at_ms / own_ms).ok()) else { return 0.0 };
    let after = dependency.series.calls.get(over..).unwrap_or_default();
    let each = usize::try_from(step_ms / own_ms).unwrap_or(1).max(1);
    let most = after.chunks(each).map(|steps| steps.iter().sum::<u64>()).max().unwrap_or(0);
    most as f64 * 1_000.0 / step_ms.max(1) as f64
}

/// By how much a change helped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// What it was.
    pub before: Value,
    /// What it is with the change.
    pub after: Value,
    /// What it costs.
    pub price: Price,
}

/// Less than a tenth is not worth a change.
const WORTH_IT: f64 = 0.9;

impl Candidate {
    /// One key of one thing of the book.
    fn new(callers: &Callers<'_>, place: Place, name: &str, setting: &str, against: Against<'_>) -> Self {
        let kind = || callers.kinds.get(name).copied();
        let beside = beside_change_of(callers.book, place.section(), name, kind);
        let at = keys(&[place.section(), name]);
        let patch = beside.map(|(key, value)| Patch::new().set(&at, key, value)).unwrap_or_default();
        let (key, value) = setting.split_once(": ").expect("a setting is a key and its value");
        Self {
            change: patch.set(&at, key, value),
            measure: against.measure,
            of: against.of.map(str::to_owned),
            setting: setting.to_owned(),
            place,
            names: vec![name.to_owned()],
        }
    }

    /// The change in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let names = names(self.names.iter().map(String::as_str));
        format!("`{}` {} {names}", self.setting, self.place.preposition())
    }

    /// What it gained, if it did: clearly less of what it is against, no more dead letters or waiting, and not clearly
    /// fewer that arrive.
    #[must_use]
    pub fn gain(&self, before: &Report, after: &Report) -> Option<Gain> {
        let step_ms = before.step_ms.max(after.step_ms);
        let value = |report: &Report| self.measure.value(report, self.of.as_deref(), step_ms);
        let gain = Gain { before: value(before), after: value(after), price: Price::between(before, after) };
        let is_less = gain.after.as_f64() < WORTH_IT * gain.before.as_f64();
        let arrives = |report: &Report| ratio(report.delivered, report.deliveries);
        let does_no_harm = after.dead <= before.dead
            && after.waiting <= before.waiting
            && arrives(after) >= WORTH_IT * arrives(before);
        (is_less && does_no_harm).then_some(gain)
    }
}

/// What should become less, and of which dependency.
#[derive(Clone, Copy)]
struct Against<'a> {
    measure: Measure,
    of: Option<&'a str>,
}

/// The same setting in many places is one change, which is judged by all of them together.
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

fn breaker(callers: &Callers<'_>, dependency: &str, measure: Measure) -> Option<Candidate> {
    let has_none = callers.rules_of(dependency).iter().any(|rule| rule.breaker.is_none());
    let against = Against { measure, of: Some(dependency) };
    has_none
        .then(|| Candidate::new(callers, Place::Dependency, dependency, "breaker: externalBreaker", against))
}

/// Few of the calls may be retries, if that is not limited yet.
fn budget(callers: &Callers<'_>, dependency: &str, measure: Measure) -> Option<Candidate> {
    let name = DependencyName::new(dependency).ok()?;
    let has_none = callers.book.retry_budget(&name).is_none() && callers.call(dependency);
    let against = Against { measure, of: Some(dependency) };
    has_none.then(|| Candidate::new(callers, Place::Dependency, dependency, "retry_budget: 10%", against))
}

/// Every policy that retries calls of the dependency and whose jitter is such. The one for those who ask to wait, which
/// every rule has, counts where nothing else retries.
fn jitter(
    callers: &Callers<'_>,
    dependency: &str,
    measure: Measure,
    could_be_more: fn(Jitter) -> bool,
) -> Vec<Candidate> {
    let mut jitters: BTreeMap<PolicyName, Jitter> = BTreeMap::new();
    for rule in callers.rules_of(dependency) {
        let policies = rule.reactions.policies().iter();
        let retrying = policies.filter(|policy| policy.backoff.retries() > 0);
        jitters.extend(retrying.map(|policy| (policy.name.clone(), policy.backoff.jitter())));
    }
    if jitters.len() > 1 {
        jitters.retain(|name, _| name.as_str() != catalog::RATE_LIMITED_POLICY);
    }
    let against = Against { measure, of: Some(dependency) };
    let candidate =
        |name: &PolicyName| Candidate::new(callers, Place::Policy, name.as_str(), "jitter: full", against);
    merged(jitters.iter().filter(|(_, jitter)| could_be_more(**jitter)).map(|(name, _)| candidate(name)))
}

/// No more calls in flight than it can work on.
fn in_flight(callers: &Callers<'_>, dependency: &DependencyReport, measure: Measure) -> Option<Candidate> {
    let capacity = dependency.capacity_per_second.filter(|_| callers.call(&dependency.name))?;
    let busy = capacity * dependency.call_latency.p50_ms.max(1) as f64 / 1_000.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of calls")]
    let count = (busy.ceil() as u32).clamp(1, 10_000);
    let against = Against { measure, of: Some(&dependency.name) };
    let setting = format!("in_flight: {count}");
    Some(Candidate::new(callers, Place::Dependency, &dependency.name, &setting, against))
}

/// So many times as long as it is, if that is a time at all.
const RAMP_TIMES: u32 = 6;

/// What a breaker has held back comes back more slowly.
fn ramp(callers: &Callers<'_>, dependency: &str, measure: Measure) -> Option<Candidate> {
    let name = DependencyName::new(dependency).ok()?;
    let is_held = callers.rules_of(dependency).iter().any(|rule| rule.breaker.is_some());
    let longer = match callers.book.ramp(&name) {
        Duration::ZERO => limits::RAMP_DEFAULT,
        known => known.saturating_mul(RAMP_TIMES).min(limits::DURATION_MAX),
    };
    let against = Against { measure, of: Some(dependency) };
    let setting = format!("ramp: {}", show_duration(longer));
    is_held.then(|| Candidate::new(callers, Place::Dependency, dependency, &setting, against))
}

const DEAD_LETTERS: Measure = Measure::Figure(Metric::DeadLetters);
const DRAIN: Measure = Measure::Figure(Metric::Drain);

/// Against a dependency that does not get well again.
pub(super) fn against_storms(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let name = &dependency.name;
    let holding = breaker(callers, name, DRAIN).into_iter().chain(budget(callers, name, DRAIN));
    holding.chain(in_flight(callers, dependency, DRAIN)).collect()
}

/// The time over which a rate that goes well is looked for.
const GOES_WELL_FOR_MS: u64 = 10_000;
/// So many times as many calls in flight, where they are what holds the others back.
const IN_FLIGHT_TIMES: u32 = 4;

/// Against a backlog that grows: the rate that is known to go well, or more calls at once where those are too few.
pub(super) fn against_backlogs(
    callers: &Callers<'_>,
    report: &Report,
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
    let against = Against { measure: Measure::Figure(Metric::QueueDepth), of: Some(&dependency.name) };
    let candidate =
        |setting: String| Candidate::new(callers, Place::Dependency, &dependency.name, &setting, against);
    rate.into_iter().chain(in_flight).map(candidate).collect()
}

/// Against more calls after a trouble than before it.
pub(super) fn against_stampedes(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let (name, measure) = (&dependency.name, Measure::AfterRecovery);
    let parted = jitter(callers, name, measure, |it| !matches!(it, Jitter::Full | Jitter::Decorrelated));
    let holding = breaker(callers, name, measure).into_iter().chain(budget(callers, name, measure));
    let gently = ramp(callers, name, measure).into_iter().chain(in_flight(callers, dependency, measure));
    parted.into_iter().chain(holding).chain(gently).collect()
}

/// Against retries that come all at once.
pub(super) fn against_waves(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let measure = Measure::Figure(Metric::CallRate);
    jitter(callers, &dependency.name, measure, |jitter| jitter == Jitter::None)
}

/// Against calls that fail in vain.
pub(super) fn against_calls(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let (name, measure) = (&dependency.name, Measure::Figure(Metric::Amplification));
    breaker(callers, name, measure).into_iter().chain(budget(callers, name, measure)).collect()
}

/// Against running out of retries: a policy of the catalog that lasts longer, a breaker that holds instead, or more
/// time for a call that takes too long.
pub(super) fn against_deaths(callers: &Callers<'_>, report: &Report, cause: &Cause) -> Vec<Candidate> {
    let is_impatient = matches!(cause.code.as_str(), "MAX_RETRIES_EXCEEDED" | "RETRY_WINDOW_EXCEEDED");
    if !is_impatient {
        return Vec::new();
    }
    let service = cause.queue.split('/').next().unwrap_or_default();
    let against = Against { measure: DEAD_LETTERS, of: Some(&cause.dependency) };
    let longer = Candidate::new(callers, Place::Service, service, "retry: critical", against);
    let holding = breaker(callers, &cause.dependency, DEAD_LETTERS);
    let slow = report.dependencies.iter().find(|it| it.name == cause.dependency);
    let slow = slow.filter(|_| cause.failure_code.ends_with("TIMEOUT"));
    let patient = slow.map(|slow| timeout(callers, slow, 4, against));
    std::iter::once(longer).chain(holding).chain(patient).collect()
}

/// So many times as long as all but one of a hundred calls take.
fn timeout(
    callers: &Callers<'_>,
    dependency: &DependencyReport,
    times: u64,
    against: Against<'_>,
) -> Candidate {
    let seconds = (times * dependency.call_latency.p99_ms).div_ceil(1_000).max(1);
    let setting = format!("timeout: {}", show_duration(Duration::from_secs(seconds)));
    Candidate::new(callers, Place::Dependency, &dependency.name, &setting, against)
}

/// Against answers that come too late.
pub(super) fn against_duplicates(callers: &Callers<'_>, dependency: &DependencyReport) -> Vec<Candidate> {
    let against = Against { measure: Measure::Figure(Metric::Duplicates), of: None };
    let called = Some(dependency).filter(|dependency| callers.call(&dependency.name));
    called.map(|dependency| timeout(callers, dependency, 2, against)).into_iter().collect()
}
