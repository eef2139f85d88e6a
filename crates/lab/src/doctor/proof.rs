//! Simulates the recorded traffic with each change before it is proposed.
//!
//! Events arrive as recorded and dependencies answer as recorded; afterwards everything succeeds. Where the record
//! cannot know an answer (a call was given up), the diagnosis states its assumption.
//!
//! Invariants: a change without a gain is not proposed; a change is measured with all earlier proposals applied; the
//! work is bounded and deterministic.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::change::Patch;
use super::evidence::{EvidenceChart, ExaminedDelivery, RowEvidence, SortedTimes};
use super::rules::timeouts::is_of_another_limit;
use super::words::counted;
use crate::scenario::{
    ALL_DEPENDENCIES, Arrival, ArrivalPattern, ArrivalScope, Behaviour, CallFailure, Capacity, FailureMode,
    FailurePhase, Latency, Scenario,
};
use crate::simulate::change::changed;
use crate::simulate::{Go, SimulationPlan, run};
use redrive_core::book::RuleBook;
use redrive_core::book::model::At;
use redrive_core::book::problem::BookSpan;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::event::attribute::EventType;
use redrive_core::ids::DependencyName;
use redrive_core::policy::category::{Category, codes};
use redrive_core::text::{Share, show_count, show_measured};
use redrive_core::time::Timestamp;

const SEEDS: u64 = 2;
/// Changes below this gain are not proposed.
const GAIN_PERCENT: u64 = 5;
/// Gains below this are small.
const LITTLE_PERCENT: u64 = 25;
/// The first change with this gain ends the search.
const ENOUGH_PERCENT: u64 = 90;
const STEPS_MAX: u64 = 500;
/// Deliveries simulated where all behave alike.
const ALIKE_MAX: u32 = 20;
const ALIKE_APART: Duration = Duration::from_secs(1);
/// Simulated time after the last arrival.
const SETTLE: Duration = Duration::from_hours(24);
/// Budget of one examination, in progress callbacks of all its runs.
pub(super) const LOOKS_MAX: u64 = 150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofMeasure {
    Dead,
    Undelivered,
    Calls,
    FailedCalls,
    Latency,
    Openings,
}

impl ProofMeasure {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead letters",
            Self::Undelivered => "not delivered",
            Self::Calls => "calls",
            Self::FailedCalls => "failed calls",
            Self::Latency => "p99 until delivered",
            Self::Openings => "breaker openings",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProofWorld {
    AsSeen,
    Always(FailureMode),
    /// Always in this mode, for deliveries that all behave alike; a few are enough.
    Alike(FailureMode),
    Well(Latency),
    /// A burst of that size to a dependency with this latency and capacity.
    Crowd(u32, Latency, Capacity),
    Unplayed,
}

#[derive(Clone, Debug)]
pub(super) struct ProposedChange {
    tries: Vec<(Patch, Option<String>)>,
    measure: ProofMeasure,
    world: ProofWorld,
}

impl ProposedChange {
    pub(super) fn new(change: Patch, measure: ProofMeasure, world: ProofWorld) -> Self {
        Self { tries: vec![(change, None)], measure, world }
    }

    pub(super) fn unplayed(change: Patch) -> Self {
        Self::new(change, ProofMeasure::Undelivered, ProofWorld::Unplayed)
    }

    /// The next change to try if earlier ones do not help enough.
    pub(super) fn or(mut self, change: Patch, advice: String) -> Self {
        self.tries.push((change, Some(advice)));
        self
    }
}

/// The gain of a change in a simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorGain))]
pub struct ProofGain {
    /// The gain as text.
    pub words: String,
    /// The figure that improved.
    pub figure: Cow<'static, str>,
    /// Its value without the change; durations in milliseconds.
    pub before: u64,
    /// Its value with the change.
    pub after: u64,
    /// The number of simulated deliveries.
    pub deliveries: u64,
}

impl ProofGain {
    fn new(measure: ProofMeasure, before: u64, after: u64, deliveries: u64) -> Self {
        let figure = measure.as_str();
        let [was, is] = [before, after].map(|value| match measure {
            ProofMeasure::Latency => show_measured(Duration::from_millis(value)),
            _ => show_count(value),
        });
        let words = format!("{figure} {was} → {is}, with {}", counted(deliveries, "delivery"));
        Self { words, figure: Cow::Borrowed(figure), before, after, deliveries }
    }

    const fn is_some(&self) -> bool {
        self.takes(GAIN_PERCENT)
    }

    pub(super) const fn is_little(&self) -> bool {
        !self.takes(LITTLE_PERCENT)
    }

    const fn takes(&self, hundredths: u64) -> bool {
        let gained = self.before.saturating_sub(self.after);
        gained > 0 && gained.saturating_mul(100) >= self.before.saturating_mul(hundredths)
    }
}

#[derive(Clone, Debug)]
pub(super) enum ProofResult {
    Helps { change: Patch, advice: Option<String>, gain: Option<ProofGain> },
    HelpedAlready,
    Taken(String),
    HardlyHelps(ProofGain),
    Unknown,
    OutOfBudget,
}

#[derive(Clone, Copy, Debug)]
struct ProofRun {
    deliveries: u64,
    undelivered: u64,
    measured: u64,
}

pub(super) struct Prover<'a> {
    chart: &'a EvidenceChart<'a>,
    looks_left: u64,
    patch: Patch,
}

impl<'a> Prover<'a> {
    pub(super) fn new(chart: &'a EvidenceChart<'a>, looks_max: u64) -> Self {
        Self { chart, looks_left: looks_max, patch: Patch::new() }
    }

    pub(super) fn patch(self) -> Patch {
        self.patch
    }

    /// A change that helps becomes part of the patch.
    pub(super) fn weigh(&mut self, dependency: Option<&str>, proposed: &ProposedChange) -> ProofResult {
        let weighed = self.weighed(dependency, proposed);
        if let ProofResult::Helps { change, .. } = &weighed
            && let Ok(merged) = self.patch.merged(change)
        {
            self.patch = merged;
        }
        weighed
    }

    fn weighed(&mut self, dependency: Option<&str>, proposed: &ProposedChange) -> ProofResult {
        let (change, _) = &proposed.tries[0];
        if let Err(key) = self.patch.merged(change) {
            return ProofResult::Taken(key);
        }
        if proposed.world == ProofWorld::Unplayed {
            return ProofResult::Helps { change: change.clone(), advice: None, gain: None };
        }
        let played = dependency.and_then(|name| ProofScenario::of(self.chart, name, proposed));
        let Some(played) = played else { return ProofResult::Unknown };
        let Some(best) = self.best(&played, proposed) else {
            return if self.looks_left == 0 { ProofResult::OutOfBudget } else { ProofResult::Unknown };
        };
        let (change, advice, gain) = best;
        if gain.is_some() {
            return ProofResult::Helps { change, advice, gain: Some(gain) };
        }
        // It may have helped without the earlier proposals.
        let alone = (!self.patch.is_empty()).then(|| self.gain(&played, &Patch::new(), &change, 0));
        match alone.flatten() {
            Some(alone) if alone.is_some() => ProofResult::HelpedAlready,
            Some(_) | None => ProofResult::HardlyHelps(gain),
        }
    }

    fn best(
        &mut self,
        played: &ProofScenario,
        proposed: &ProposedChange,
    ) -> Option<(Patch, Option<String>, ProofGain)> {
        let patch = self.patch.clone();
        let mut best: Option<(Patch, Option<String>, ProofGain)> = None;
        for (change, advice) in &proposed.tries {
            if patch.merged(change).is_err() {
                continue;
            }
            let Some(gain) = self.gain(played, &patch, change, 0) else { continue };
            let is_enough = gain.takes(ENOUGH_PERCENT);
            if best.as_ref().is_none_or(|(.., known)| gain.after < known.after) {
                best = Some((change.clone(), advice.clone(), gain));
            }
            if is_enough {
                break;
            }
        }
        let (change, advice, gain) = best?;
        // One run may be luck.
        for seed in (1..SEEDS).filter(|_| gain.is_some()) {
            let other = self.gain(played, &patch, &change, seed)?;
            if other.after >= other.before {
                return Some((change, advice, other));
            }
        }
        Some((change, advice, gain))
    }

    /// No gain if fewer are delivered with it.
    fn gain(&mut self, played: &ProofScenario, made: &Patch, change: &Patch, seed: u64) -> Option<ProofGain> {
        let before = self.play(played, &self.changed(made)?, seed)?;
        let after = self.play(played, &self.changed(&made.merged(change).ok()?)?, seed)?;
        let is_worse = after.undelivered > before.undelivered;
        let is = if is_worse { after.measured.max(before.measured) } else { after.measured };
        Some(ProofGain::new(played.measure, before.measured, is, before.deliveries))
    }

    fn changed(&self, change: &Patch) -> Option<Arc<RuleBook>> {
        let evidence = self.chart.evidence;
        if change.is_empty() {
            return Some(Arc::clone(&evidence.book));
        }
        changed(&evidence.book, evidence.text.as_deref()?, change)
    }

    fn play(&mut self, played: &ProofScenario, book: &Arc<RuleBook>, seed: u64) -> Option<ProofRun> {
        let plan = SimulationPlan { scenario: &played.scenario, book: Arc::clone(book), seed: seed + 1 };
        if self.looks_left == 0 {
            return None;
        }
        let looks_left = &mut self.looks_left;
        let report = run(&plan, &mut |_| {
            *looks_left = looks_left.saturating_sub(1);
            if *looks_left == 0 { Go::Stop } else { Go::On }
        });
        let report = report.ok()?;
        let queues = || report.queues.iter().filter(|queue| played.queues.contains(&queue.name));
        let dependencies = || report.dependencies.iter().filter(|it| !played.others.contains(&it.name));
        let undelivered = queues().map(|queue| queue.deliveries - queue.delivered).sum();
        let measured = match played.measure {
            ProofMeasure::Dead => queues().map(|queue| queue.dead).sum(),
            ProofMeasure::Undelivered => undelivered,
            ProofMeasure::Calls => dependencies().map(|it| it.calls).sum(),
            ProofMeasure::FailedCalls => dependencies().map(|it| it.calls_failed).sum(),
            ProofMeasure::Latency => {
                queues().filter_map(|queue| Some(queue.latency?.p99_ms)).max().unwrap_or(0)
            }
            ProofMeasure::Openings => dependencies().map(|it| it.breaker_opened).sum(),
        };
        Some(ProofRun { deliveries: queues().map(|queue| queue.deliveries).sum(), undelivered, measured })
    }
}

struct ProofScenario {
    scenario: Scenario,
    measure: ProofMeasure,
    queues: BTreeSet<String>,
    /// Dependencies to ignore.
    others: BTreeSet<String>,
}

impl ProofScenario {
    /// `None` if there is nothing to simulate.
    fn of(chart: &EvidenceChart<'_>, dependency: &str, proposed: &ProposedChange) -> Option<Self> {
        let world = &proposed.world;
        let ward = chart.wards().find(|ward| ward.name.as_str() == dependency)?;
        let members: Vec<&RowEvidence<'_>> = chart.rows_of(ward).collect();
        let deliveries = || members.iter().flat_map(|member| member.deliveries.iter().copied());
        let start = deliveries().map(|delivery| delivery.accepted_at).min()?;
        let is_alike = matches!(world, ProofWorld::Alike(_));
        let lasted = if is_alike { ALIKE_APART * 2 * ALIKE_MAX } else { chart.evidence.now.since(start) };
        let duration = lasted.max(Duration::from_secs(1));
        let whole = duration.saturating_add(SETTLE);
        let always = |mode: &FailureMode| {
            vec![FailurePhase { at: Duration::ZERO, lasting: whole, mode: mode.clone() }]
        };
        let seen = latency_of(&members);
        let (latency, capacity, phases) = match world {
            ProofWorld::AsSeen | ProofWorld::Unplayed => (seen, None, timeline(&members, start, duration)),
            ProofWorld::Always(mode) | ProofWorld::Alike(mode) => (seen, None, always(mode)),
            ProofWorld::Well(latency) => (*latency, None, Vec::new()),
            ProofWorld::Crowd(_, latency, capacity) => (*latency, Some(*capacity), Vec::new()),
        };
        let behaviour = Behaviour { latency: Some(latency), capacity, phases, calls: Vec::new() };
        let known = chart.evidence.book.sections().resolved().map(|rule| rule.dependency.value);
        let others: BTreeSet<DependencyName> = known.filter(|name| *name != ward.name).collect();
        let at = |value| At { value, span: BookSpan::default() };
        let mut dependencies: BTreeMap<DependencyName, At<Behaviour>> =
            others.iter().map(|name| (name.clone(), at(Behaviour::default()))).collect();
        dependencies.insert(ward.name.clone(), at(behaviour.clone()));
        // The change may rename it.
        dependencies.entry(DependencyName::new(ALL_DEPENDENCIES).ok()?).or_insert_with(|| at(behaviour));
        let mut arrivals = arrivals(deliveries(), start, duration);
        if is_alike {
            for arrival in &mut arrivals {
                arrival.flow = alike(&arrival.flow);
            }
        }
        if let ProofWorld::Crowd(size, ..) = world {
            arrivals.truncate(1);
            let burst = ArrivalPattern::Bursts { size: *size, every: None };
            for arrival in &mut arrivals {
                arrival.flow = burst.clone();
            }
        }
        let scenario = Scenario {
            about: None,
            duration: duration.saturating_add(Duration::from_millis(1)),
            settle: SETTLE,
            nodes: 1,
            arrivals,
            dependencies,
            faults: Vec::new(),
            expectations: Vec::new(),
        };
        Some(Self {
            scenario,
            measure: proposed.measure,
            queues: members.iter().map(|member| member.queue.to_string()).collect(),
            others: others.iter().map(ToString::to_string).collect(),
        })
    }
}

/// Each type as often as the queue with most of them received it; other queues got the same events.
fn arrivals<'a>(
    deliveries: impl Iterator<Item = &'a ExaminedDelivery>,
    start: Timestamp,
    duration: Duration,
) -> Vec<Arrival> {
    let mut times: BTreeMap<&str, BTreeMap<String, Vec<Duration>>> = BTreeMap::new();
    for delivery in deliveries {
        let of_queue = times.entry(&delivery.event_type).or_default();
        of_queue.entry(delivery.queue.to_string()).or_default().push(delivery.accepted_at.since(start));
    }
    let arrival = |(event_type, queues): (&str, BTreeMap<String, Vec<Duration>>)| {
        let mut times = queues.into_values().max_by_key(Vec::len)?;
        times.sort_unstable();
        let at = |value| At { value, span: BookSpan::default() };
        Some(Arrival {
            event_type: at(EventType::new(event_type).ok()?),
            scope: ArrivalScope::OneType,
            sessions: None,
            poison: Share::NONE,
            from: Duration::ZERO,
            until: duration.saturating_add(Duration::from_millis(1)),
            flow: ArrivalPattern::Trace {
                file: At { value: String::new(), span: BookSpan::default() },
                times,
            },
        })
    };
    times.into_iter().filter_map(arrival).collect()
}

fn alike(flow: &ArrivalPattern) -> ArrivalPattern {
    let ArrivalPattern::Trace { file, times } = flow else { return flow.clone() };
    let times = (0..ALIKE_MAX).zip(times).map(|(place, _)| ALIKE_APART * place).collect();
    ArrivalPattern::Trace { file: file.clone(), times }
}

fn latency_of(members: &[&RowEvidence<'_>]) -> Latency {
    let times: Vec<_> = members.iter().map(|member| member.successes()).collect();
    let longest = |of: fn(&SortedTimes) -> Option<Duration>| times.iter().filter_map(of).max();
    let p50 = longest(SortedTimes::median).unwrap_or(Latency::USUAL.p50).max(Duration::from_millis(1));
    let p99 = longest(SortedTimes::p99).unwrap_or(Latency::USUAL.p99).max(p50);
    Latency { p50, p99 }
}

/// A mode lasts until the next recorded answer.
fn timeline(members: &[&RowEvidence<'_>], start: Timestamp, duration: Duration) -> Vec<FailurePhase> {
    let step = Duration::from_secs(duration.as_secs().div_ceil(STEPS_MAX).max(1));
    let mut seen: BTreeMap<u64, (u64, BTreeMap<CallFailure, u64>)> = BTreeMap::new();
    for member in members {
        for story in member.attempts().filter(|story| !is_of_another_limit(member, story)) {
            let place = story.started_at.since(start).as_millis() / step.as_millis();
            let (calls, failed) = seen.entry(u64::try_from(place).unwrap_or(u64::MAX)).or_default();
            *calls += 1;
            if let Some(met) = met(story) {
                *failed.entry(met).or_default() += 1;
            }
        }
    }
    let mut phases: Vec<FailurePhase> = Vec::new();
    let mut places = seen.into_iter().peekable();
    while let Some((place, (calls, failed))) = places.next() {
        let at = step * u32::try_from(place).unwrap_or(u32::MAX);
        let until =
            places.peek().map_or(duration, |(next, _)| step * u32::try_from(*next).unwrap_or(u32::MAX));
        if failed.is_empty() {
            continue;
        }
        let shares = failed
            .into_iter()
            .filter_map(|(met, count)| Some((met, Share::new(count as f64 / calls as f64)?)));
        let mode = FailureMode::Mixed(shares.collect());
        let lasting = until.saturating_sub(at);
        match phases.last_mut() {
            Some(last) if last.mode == mode && last.until() == at => last.lasting += lasting,
            Some(_) | None => phases.push(FailurePhase { at, lasting, mode }),
        }
    }
    phases.retain(|phase| !phase.lasting.is_zero());
    phases
}

fn met(story: &AttemptRecord) -> Option<CallFailure> {
    match &story.end {
        AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => None,
        AttemptEnd::Failed { status: Some(status), .. } => Some(CallFailure::Status(*status)),
        AttemptEnd::Failed { code, category, status: None, .. } => Some(match category {
            _ if matches!(code.as_str(), codes::NETWORK_TIMEOUT | codes::TIME_LIMIT_EXCEEDED) => {
                CallFailure::Nothing
            }
            Category::Permanent | Category::Invalid => CallFailure::Status(422),
            Category::Fatal => CallFailure::Status(401),
            Category::RateLimited => CallFailure::Status(429),
            Category::Transient | Category::Unknown | Category::Internal => CallFailure::Refused,
        }),
    }
}
