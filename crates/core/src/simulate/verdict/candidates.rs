//! Changes to a rule book that may help against a finding. Whether one does is seen by playing again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::price::Price;
use super::together::names;
use crate::backoff::Jitter;
use crate::book::{RuleBook, overlay};
use crate::catalog;
use crate::ids::{DependencyName, PolicyName};
use crate::limits;
use crate::rule::Rule;
use crate::scenario::expectation::{Metric, Value};
use crate::simulate::change::beside_change;
use crate::simulate::report::{Cause, DependencyReport, Report, ratio};
use crate::text::show_duration;

/// A change that may help.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The part of the rule book that changes, as [`laid_over`](crate::book::overlay::laid_over) takes it.
    pub change: String,
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
                Value::Number(named.map(|it| peak_after(it, report.step_ms, step_ms)).fold(0.0, f64::max))
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
    fn new(book: &RuleBook, place: Place, name: &str, setting: &str, against: Against<'_>) -> Self {
        let section = place.section();
        let beside =
            beside_change(book, section, name).map(|beside| format!("{beside}, ")).unwrap_or_default();
        Self {
            change: format!("{section}: {{ \"{name}\": {{ {beside}{setting} }} }}\n"),
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
    let mut merged: Vec<Candidate> = Vec::new();
    for one in all {
        let alike = |known: &&mut Candidate| {
            (&known.setting, known.place, known.measure) == (&one.setting, one.place, one.measure)
        };
        let Some(known) = merged.iter_mut().find(alike) else {
            merged.push(one);
            continue;
        };
        if known.of != one.of {
            known.of = None;
        }
        if known.names.iter().any(|name| one.names.contains(name)) {
            continue;
        }
        if let Ok(change) = overlay::laid_over(&known.change, &one.change) {
            known.change = change;
            known.names.extend(one.names);
        }
    }
    merged
}

/// The rules that call a dependency.
fn rules_of<'a>(book: &'a RuleBook, dependency: &'a str) -> impl Iterator<Item = Rule> + 'a {
    let sections = book.sections();
    let rules = sections.rows().map(|(service, channel, row)| sections.resolve(service, channel, row).rule);
    rules.filter(move |rule| rule.dependency.as_str() == dependency)
}

/// Whether a rule calls a dependency.
pub(super) fn is_called(book: &RuleBook, dependency: &str) -> bool {
    rules_of(book, dependency).next().is_some()
}

fn breaker(book: &RuleBook, dependency: &str, measure: Measure) -> Option<Candidate> {
    let has_none = rules_of(book, dependency).any(|rule| rule.breaker.is_none());
    let against = Against { measure, of: Some(dependency) };
    has_none.then(|| Candidate::new(book, Place::Dependency, dependency, "breaker: externalBreaker", against))
}

/// Few of the calls may be retries, if that is not limited yet.
fn budget(book: &RuleBook, dependency: &str, measure: Measure) -> Option<Candidate> {
    let name = DependencyName::new(dependency).ok()?;
    let has_none = book.retry_budget(&name).is_none() && is_called(book, dependency);
    let against = Against { measure, of: Some(dependency) };
    has_none.then(|| Candidate::new(book, Place::Dependency, dependency, "retry_budget: 10%", against))
}

/// Every policy that retries calls of the dependency and whose jitter is such. The one for those who ask to wait, which
/// every rule has, counts where nothing else retries.
fn jitter(
    book: &RuleBook,
    dependency: &str,
    measure: Measure,
    could_be_more: fn(Jitter) -> bool,
) -> Vec<Candidate> {
    let mut jitters: BTreeMap<PolicyName, Jitter> = BTreeMap::new();
    for rule in rules_of(book, dependency) {
        let policies = rule.reactions.policies().iter();
        let retrying = policies.filter(|policy| policy.backoff.retries() > 0);
        jitters.extend(retrying.map(|policy| (policy.name.clone(), policy.backoff.jitter())));
    }
    if jitters.len() > 1 {
        jitters.retain(|name, _| name.as_str() != catalog::RATE_LIMITED_POLICY);
    }
    let against = Against { measure, of: Some(dependency) };
    let candidate =
        |name: &PolicyName| Candidate::new(book, Place::Policy, name.as_str(), "jitter: full", against);
    merged(jitters.iter().filter(|(_, jitter)| could_be_more(**jitter)).map(|(name, _)| candidate(name)))
}

/// No more calls in flight than it can work on.
fn in_flight(book: &RuleBook, dependency: &DependencyReport, measure: Measure) -> Option<Candidate> {
    let capacity = dependency.capacity_per_second.filter(|_| is_called(book, &dependency.name))?;
    let busy = capacity * dependency.call_latency.p50_ms.max(1) as f64 / 1_000.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of calls")]
    let count = (busy.ceil() as u32).clamp(1, 10_000);
    let against = Against { measure, of: Some(&dependency.name) };
    let setting = format!("in_flight: {count}");
    Some(Candidate::new(book, Place::Dependency, &dependency.name, &setting, against))
}

/// So many times as long as it is, if that is a time at all.
const RAMP_TIMES: u32 = 6;

/// What a breaker has held back comes back more slowly.
fn ramp(book: &RuleBook, dependency: &str, measure: Measure) -> Option<Candidate> {
    let name = DependencyName::new(dependency).ok()?;
    let is_held = rules_of(book, dependency).any(|rule| rule.breaker.is_some());
    let longer = match book.ramp(&name) {
        Duration::ZERO => limits::RAMP_DEFAULT,
        known => known.saturating_mul(RAMP_TIMES).min(limits::DURATION_MAX),
    };
    let against = Against { measure, of: Some(dependency) };
    let setting = format!("ramp: {}", show_duration(longer));
    is_held.then(|| Candidate::new(book, Place::Dependency, dependency, &setting, against))
}

const DEAD_LETTERS: Measure = Measure::Figure(Metric::DeadLetters);
const DRAIN: Measure = Measure::Figure(Metric::Drain);

/// Against a dependency that does not get well again.
pub(super) fn against_storms(book: &RuleBook, dependency: &DependencyReport) -> Vec<Candidate> {
    let name = &dependency.name;
    let holding = breaker(book, name, DRAIN).into_iter().chain(budget(book, name, DRAIN));
    holding.chain(in_flight(book, dependency, DRAIN)).collect()
}

/// Against more calls after a trouble than before it.
pub(super) fn against_stampedes(book: &RuleBook, dependency: &DependencyReport) -> Vec<Candidate> {
    let (name, measure) = (&dependency.name, Measure::AfterRecovery);
    let parted = jitter(book, name, measure, |it| !matches!(it, Jitter::Full | Jitter::Decorrelated));
    let holding = breaker(book, name, measure).into_iter().chain(budget(book, name, measure));
    let gently = ramp(book, name, measure).into_iter().chain(in_flight(book, dependency, measure));
    parted.into_iter().chain(holding).chain(gently).collect()
}

/// Against retries that come all at once.
pub(super) fn against_waves(book: &RuleBook, dependency: &DependencyReport) -> Vec<Candidate> {
    let measure = Measure::Figure(Metric::CallRate);
    jitter(book, &dependency.name, measure, |jitter| jitter == Jitter::None)
}

/// Against calls that fail in vain.
pub(super) fn against_calls(book: &RuleBook, dependency: &DependencyReport) -> Vec<Candidate> {
    let (name, measure) = (&dependency.name, Measure::Figure(Metric::Amplification));
    breaker(book, name, measure).into_iter().chain(budget(book, name, measure)).collect()
}

/// Against running out of retries: a policy of the catalog that lasts longer, a breaker that holds instead, or more
/// time for a call that takes too long.
pub(super) fn against_deaths(book: &RuleBook, report: &Report, cause: &Cause) -> Vec<Candidate> {
    let is_impatient = matches!(cause.code.as_str(), "MAX_RETRIES_EXCEEDED" | "RETRY_WINDOW_EXCEEDED");
    if !is_impatient {
        return Vec::new();
    }
    let service = cause.queue.split('/').next().unwrap_or_default();
    let against = Against { measure: DEAD_LETTERS, of: Some(&cause.dependency) };
    let longer = Candidate::new(book, Place::Service, service, "retry: critical", against);
    let holding = breaker(book, &cause.dependency, DEAD_LETTERS);
    let slow = report.dependencies.iter().find(|it| it.name == cause.dependency);
    let slow = slow.filter(|_| cause.failure_code.ends_with("TIMEOUT"));
    let patient = slow.map(|slow| timeout(book, slow, 4, against));
    std::iter::once(longer).chain(holding).chain(patient).collect()
}

/// So many times as long as all but one of a hundred calls take.
fn timeout(book: &RuleBook, dependency: &DependencyReport, times: u64, against: Against<'_>) -> Candidate {
    let seconds = (times * dependency.call_latency.p99_ms).div_ceil(1_000).max(1);
    let setting = format!("timeout: {}", show_duration(Duration::from_secs(seconds)));
    Candidate::new(book, Place::Dependency, &dependency.name, &setting, against)
}

/// Against answers that come too late.
pub(super) fn against_duplicates(book: &RuleBook, dependency: &DependencyReport) -> Vec<Candidate> {
    let against = Against { measure: Measure::Figure(Metric::Duplicates), of: None };
    let called = Some(dependency).filter(|dependency| is_called(book, &dependency.name));
    called.map(|dependency| timeout(book, dependency, 2, against)).into_iter().collect()
}
