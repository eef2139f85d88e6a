//! Findings of a simulation as text, with candidate changes to the rule book.
//!
//! Each finding is a function in `FINDINGS`. A change is only a candidate until a run with it shows a gain
//! (`Candidate::gain`).

mod candidates;
mod price;
#[cfg(test)]
mod tests;
mod together;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use self::candidates::Callers;
pub(super) use self::candidates::{Candidate, CandidateGain};
use self::together::{DependencyFinding, names, together};
use super::advice::ProvenChange;
use super::report::{DeadLetterCause, DependencyReport, Incident, SimulationReport, ratio};
use redrive_core::book::RuleBook;
use redrive_core::text::{counted, show_count, show_measured, show_per_second, show_rounded};

/// A finding of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SimulatedFinding))]
pub struct SimulationFinding {
    pub code: &'static str,
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^(bad|fair|good)$"))]
    pub weight: Weight,
    pub text: String,
    /// Changes with which the scenario ran better with every seed.
    pub advice: Vec<ProvenChange>,
    /// Changes that may help.
    #[serde(skip)]
    pub(super) candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    Bad,
    Fair,
    Good,
}

#[derive(Clone, Copy)]
struct VerdictInput<'a> {
    report: &'a SimulationReport,
    callers: &'a Callers<'a>,
}

const FINDINGS: [fn(&VerdictInput<'_>) -> Vec<SimulationFinding>; 11] = [
    out_of_order,
    dead_letters,
    still_waiting,
    not_drained,
    growing,
    stampedes,
    amplified,
    waves,
    breakers,
    duplicates,
    well,
];

#[must_use]
pub fn verdict(report: &SimulationReport, book: &RuleBook) -> Vec<SimulationFinding> {
    let case = VerdictInput { report, callers: &Callers::of(book) };
    let mut findings: Vec<SimulationFinding> = FINDINGS.iter().flat_map(|find| find(&case)).collect();
    findings.sort_by_key(|finding| finding.weight);
    findings
}

fn finding(
    code: &'static str,
    weight: Weight,
    text: String,
    candidates: Vec<Candidate>,
) -> SimulationFinding {
    SimulationFinding { code, weight, text, advice: Vec::new(), candidates }
}

fn span(millis: u64) -> String {
    show_rounded(Duration::from_millis(millis))
}

fn deliveries(count: u64) -> String {
    counted(count, "delivery")
}

fn percent(part: u64, whole: u64) -> String {
    let percent = 100.0 * ratio(part, whole);
    if percent < 0.1 { "less than 0.1%".to_owned() } else { format!("{percent:.1}%") }
}

fn out_of_order(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let violations = case.report.order_violations;
    let text = format!("{} out of session order, which must never happen", counted(violations, "call"));
    (violations > 0).then(|| finding("out-of-order", Weight::Bad, text, Vec::new())).into_iter().collect()
}

/// One finding per reason, because each reason needs another change.
fn dead_letters(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let causes = &case.report.dead_letters;
    let is_same = |one: &DeadLetterCause, other: &DeadLetterCause| {
        (&one.code, &one.failure_code) == (&other.code, &other.failure_code)
    };
    let is_first = |place: usize| !causes[..place].iter().any(|known| is_same(known, &causes[place]));
    let firsts = causes.iter().enumerate().filter(|(place, _)| is_first(*place));
    let found = firsts.map(|(_, cause)| {
        let alike = || causes.iter().filter(|other| is_same(cause, other));
        let count: u64 = alike().map(|cause| cause.count).sum();
        let last = if cause.failure_code == cause.code {
            String::new()
        } else {
            format!(" after {}", cause.failure_code)
        };
        let queues: BTreeSet<&str> = alike().map(|cause| cause.queue.as_str()).collect();
        let theirs = case.report.queues.iter().filter(|queue| queues.contains(queue.name.as_str()));
        let theirs: u64 = theirs.map(|queue| queue.deliveries).sum();
        let text = format!(
            "{}: {} of {} {} ({}) became dead letters with {}{last}",
            names(alike().map(|cause| cause.queue.as_str())),
            show_count(count),
            if queues.len() == 1 { "its" } else { "their" },
            deliveries(theirs),
            percent(count, theirs),
            cause.code
        );
        let against = alike().flat_map(|cause| candidates::against_deaths(case.callers, case.report, cause));
        finding("dead-letters", Weight::Bad, text, candidates::merged(against))
    });
    found.collect()
}

fn still_waiting(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let report = case.report;
    if report.waiting == 0 {
        return Vec::new();
    }
    let behind = report.waiting_behind_dead;
    let mut rest = report.waiting - behind;
    let mut reasons = vec![(behind, "behind a dead letter of their session".to_owned())];
    for paused in &report.paused {
        let queues = report.queues.iter().filter(|queue| is_of(&queue.name, &paused.service));
        let open: u64 = queues.map(|queue| queue.deliveries - queue.delivered - queue.dead).sum();
        let held = open.min(rest);
        rest -= held;
        let at = span(paused.at_ms);
        reasons.push((
            held,
            format!("because `{}` paused itself at {at} and must be resumed by hand", paused.service),
        ));
    }
    reasons.push((rest, "still in progress".to_owned()));
    reasons.retain(|(count, _)| *count > 0);
    let why = match reasons.as_slice() {
        [(_, why)] => format!(", {why}"),
        several => {
            let each = several.iter().map(|(count, why)| format!("{} {why}", show_count(*count)));
            format!(": {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    let text = format!("not finished when the run ends: {}{why}", deliveries(report.waiting));
    vec![finding("still-waiting", Weight::Bad, text, Vec::new())]
}

fn is_of(queue: &str, service: &str) -> bool {
    queue.split('/').next() == Some(service)
}

fn troubles<'a>(case: &VerdictInput<'a>) -> impl Iterator<Item = (&'a DependencyReport, &'a Incident)> {
    let dependencies = case.report.dependencies.iter().filter(|dependency| dependency.calls > 0);
    dependencies.flat_map(|dependency| dependency.troubles.iter().map(move |trouble| (dependency, trouble)))
}

/// A backlog is more than twice the level before plus this.
const BACKLOG_MIN: u64 = 10;
/// Slower drains are reported however small the backlog is.
const DRAIN_REPORTED_FROM_MS: u64 = 1_000;

fn not_drained(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let is_backlog = |trouble: &Incident| {
        let is_large = trouble.waiting_max > 2 * trouble.waiting_before + BACKLOG_MIN;
        is_large || trouble.drain_ms.is_none_or(|drain| drain >= DRAIN_REPORTED_FROM_MS)
    };
    // An incident that lasts to the end cannot be judged.
    let ended = troubles(case).filter_map(|(dependency, trouble)| {
        Some((dependency, trouble, trouble.ended_at_ms.filter(|at| *at < case.report.ended_at_ms)?))
    });
    let found = ended.filter(|(_, trouble, _)| is_backlog(trouble));
    let found = found.map(|(dependency, trouble, ended_at_ms)| {
        let most = trouble.waiting_max;
        let lasted = ended_at_ms - trouble.began_at_ms;
        let Some(drain) = trouble.drain_ms else {
            let (well_at, waiting) = (span(ended_at_ms), show_count(most));
            let text =
                format!("recovered at {well_at}, but the backlog never drained (up to {waiting} waiting)");
            let size = most as f64;
            return DependencyFinding {
                code: "never-drained",
                weight: Weight::Bad,
                of: dependency,
                text,
                size,
            };
        };
        let text = format!("drained {} after recovery; up to {} waiting", span(drain), deliveries(most));
        let weight = if drain > lasted { Weight::Fair } else { Weight::Good };
        DependencyFinding { code: "drained", weight, of: dependency, text, size: drain as f64 }
    });
    together(found, |said| match said.code {
        "never-drained" => candidates::against_storms(case.callers, said.of),
        _ => Vec::new(),
    })
}

/// Smaller backlogs are not reported as growing.
const GROWING_MIN: f64 = 100.0;
/// Growth from half of the time to three quarters, and from there to the end.
const GROWING_BY: f64 = 1.1;

/// A backlog that grows while calls succeed: more arrives than is processed.
fn growing(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let report = case.report;
    let steps = usize::try_from(report.duration_ms / report.step_ms.max(1)).unwrap_or(usize::MAX);
    let found = report.dependencies.iter().filter_map(|dependency| {
        let waiting = dependency.series.waiting.get(..steps)?;
        let quarter = steps / 4;
        let width = quarter / 4;
        let around = |end: usize| -> Option<f64> {
            let some = waiting.get(end - width..end).filter(|some| !some.is_empty())?;
            Some(some.iter().sum::<u64>() as f64 / some.len() as f64)
        };
        let (half, later, last) = (around(2 * quarter)?, around(3 * quarter)?, around(4 * quarter)?);
        let does_work = dependency.series.well.get(3 * quarter..steps)?.iter().any(|well| *well > 0);
        let grows = last > GROWING_BY * later && later > GROWING_BY * half && last >= GROWING_MIN;
        (grows && does_work).then(|| {
            let [last_shown, half_shown] = [last, half].map(show_rounded_count);
            let text = format!(
                "the backlog grows while events arrive: about {last_shown} waiting at the end, {half_shown} at \
                 half time"
            );
            DependencyFinding { code: "growing-backlog", weight: Weight::Bad, of: dependency, text, size: last }
        })
    });
    together(found, |said| candidates::against_backlogs(case.callers, case.report, said.of))
}

fn show_rounded_count(count: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of deliveries")]
    let count = count.round() as u64;
    show_count(count)
}

/// Ratio of calls after an incident to the maximum before it.
const STAMPEDE_FROM: f64 = 2.0;

fn multiplied(times: f64) -> String {
    match times {
        ..2.5 => "double the load".to_owned(),
        ..3.5 => "triple the load".to_owned(),
        _ => format!("multiply the load by {times:.1}"),
    }
}

fn stampedes(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let step = |at_ms: u64| usize::try_from(at_ms / case.report.step_ms.max(1)).unwrap_or(usize::MAX);
    let found = case.report.dependencies.iter().filter(|dependency| dependency.calls > 0);
    let found = found.flat_map(|dependency| {
        let over = dependency.troubles.iter().filter_map(|it| Some((it.began_at_ms, it.ended_at_ms?)));
        let steps = over.map(|(began_at_ms, ended_at_ms)| (step(began_at_ms), step(ended_at_ms)));
        let mut steps: Vec<(usize, usize)> = steps.collect();
        // Many incidents may share a step.
        steps.dedup();
        steps.into_iter().filter_map(move |steps| stampede(case, dependency, steps))
    });
    together(found, |said| candidates::against_stampedes(case.callers, said.of))
}

fn stampede<'a>(
    case: &VerdictInput<'_>,
    dependency: &'a DependencyReport,
    (began, ended): (usize, usize),
) -> Option<DependencyFinding<'a>> {
    let step_ms = case.report.step_ms.max(1);
    let calls = &dependency.series.calls;
    let before = calls.get(..began).filter(|steps| !steps.is_empty())?;
    let usual = before.iter().sum::<u64>() as f64 / before.len() as f64;
    let most = calls.get(ended..)?.iter().copied().max()? as f64;
    // The maximum before, not the mean: random peaks below it mean nothing.
    let bar = STAMPEDE_FROM * before.iter().copied().max().unwrap_or(0) as f64;
    if usual <= 0.0 || most < bar {
        return None;
    }
    let is_high = |step: &usize| calls[*step] as f64 >= bar;
    let high: Vec<usize> = (ended..calls.len()).filter(is_high).collect();
    let sum = |series: &[u64]| high.iter().map(|step| series[*step]).sum::<u64>();
    let is_by_retries = sum(&dependency.series.first_attempts) * 2 < sum(calls);
    let who = if is_by_retries { "retries" } else { "held deliveries" };
    let per_second = most * 1_000.0 / step_ms as f64;
    // The report's own peak is per second, which is higher than over a longer step.
    let over = if step_ms > 1_000 { format!(" over {}", span(step_ms)) } else { String::new() };
    let (weight, beside) = match dependency.capacity_per_second {
        Some(capacity) if per_second > capacity => {
            (Weight::Bad, format!(", {:.1} times its capacity", per_second / capacity))
        }
        Some(_) => (Weight::Fair, ", within its capacity".to_owned()),
        None => (Weight::Fair, String::new()),
    };
    let times = most / usual;
    let text = format!(
        "{who} {} for {} after recovery (up to {}/s{over}{beside})",
        multiplied(times),
        span(high.len() as u64 * step_ms),
        show_per_second(per_second)
    );
    Some(DependencyFinding { code: "stampede", weight, of: dependency, text, size: times })
}

const AMPLIFIED_FROM: f64 = 1.5;
const AMPLIFIED_BADLY_FROM: f64 = 3.0;

fn amplified(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let found = case.report.dependencies.iter().filter(|it| it.amplification >= AMPLIFIED_FROM);
    let found = found.map(|dependency| {
        let times = dependency.amplification;
        let weight = if times >= AMPLIFIED_BADLY_FROM { Weight::Bad } else { Weight::Fair };
        let text = format!("each delivery takes {times:.1} attempts");
        DependencyFinding { code: "amplified", weight, of: dependency, text, size: times }
    });
    together(found, |said| candidates::against_calls(case.callers, said.of))
}

/// Retries in one second against the mean rate around it.
const WAVE_FROM: f64 = 3.0;
const WAVE_MIN: f64 = 5.0;
const AROUND_MS: u64 = 16_000;
const RETRIED_FROM: f64 = 1.2;

fn waves(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let against = |dependency: &DependencyReport| candidates::against_waves(case.callers, dependency);
    let found = case.report.dependencies.iter().filter_map(|dependency| {
        let around = busiest_rate(&dependency.series.calls, case.report.step_ms);
        let most = dependency.retry_rate_max;
        let is_wave = most >= (WAVE_FROM * around).max(WAVE_MIN) && dependency.amplification >= RETRIED_FROM;
        (is_wave && !against(dependency).is_empty()).then(|| {
            let rate = show_per_second(most);
            let text = format!("retries without jitter come in waves: up to {rate} in one second");
            DependencyFinding { code: "no-jitter", weight: Weight::Fair, of: dependency, text, size: most }
        })
    });
    together(found, |said| against(said.of))
}

/// Per second, over the busiest [`AROUND_MS`] or one step if that is longer.
fn busiest_rate(calls: &[u64], step_ms: u64) -> f64 {
    let steps = usize::try_from((AROUND_MS / step_ms.max(1)).max(1)).unwrap_or(1).min(calls.len().max(1));
    let most = calls.windows(steps).map(|steps| steps.iter().sum::<u64>()).max().unwrap_or(0);
    most as f64 * 1_000.0 / (steps as f64 * step_ms.max(1) as f64)
}

const FLAPS_FROM: u64 = 6;
/// And more than half of all calls.
const FAILED_MIN: u64 = 50;

fn breakers(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    // Dependencies called only by others have no breaker here.
    let is_called = |it: &&DependencyReport| case.callers.call(&it.name);
    let dependencies = || case.report.dependencies.iter().filter(is_called);
    let flaps = dependencies().filter(|it| it.breaker_opened >= FLAPS_FROM).map(|it| {
        let times = show_count(it.breaker_opened);
        let text = format!("the breaker flaps: it opens {times} times");
        let size = it.breaker_opened as f64;
        DependencyFinding { code: "breaker-flaps", weight: Weight::Fair, of: it, text, size }
    });
    // Permanent failures do not count for breakers.
    let is_bare = |it: &&DependencyReport| {
        let counted = it.calls_failed_counted;
        it.breaker_opened == 0 && counted >= FAILED_MIN && counted * 2 > it.calls
    };
    let in_what_way = |it: &DependencyReport| {
        if it.calls_failed_counted < it.calls_failed { " in a way that breakers count" } else { "" }
    };
    let bare = dependencies().filter(is_bare).map(|it| {
        let (failed, all) = (show_count(it.calls_failed_counted), show_count(it.calls));
        let way = in_what_way(it);
        let text = format!("no breaker opens although {failed} of {all} calls fail{way}");
        let size = it.calls_failed_counted as f64;
        DependencyFinding { code: "breaker-never-opens", weight: Weight::Fair, of: it, text, size }
    });
    let mut found = together(flaps, |_| Vec::new());
    found.extend(together(bare, |said| candidates::against_calls(case.callers, said.of)));
    found
}

fn duplicates(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let report = case.report;
    if report.duplicates == 0 {
        return Vec::new();
    }
    let text = format!(
        "{} duplicate side effects ({}): the answer came too late or was lost",
        show_count(report.duplicates),
        percent(report.duplicates, report.deliveries)
    );
    let slow = report.dependencies.iter().max_by_key(|dependency| dependency.call_latency.p99_ms);
    let candidate = slow.and_then(|slow| candidates::against_duplicates(case.callers, slow));
    vec![finding("duplicates", Weight::Fair, text, candidate.into_iter().collect())]
}

fn well(case: &VerdictInput<'_>) -> Vec<SimulationFinding> {
    let report = case.report;
    let Some(latency) = report.latency.filter(|_| report.delivered == report.deliveries) else {
        return Vec::new();
    };
    if !growing(case).is_empty() {
        // Everything was delivered only because events stopped arriving.
        return Vec::new();
    }
    let text = format!(
        "{}, all delivered, p99 {}",
        deliveries(report.deliveries),
        show_measured(Duration::from_millis(latency.p99_ms))
    );
    vec![finding("all-delivered", Weight::Good, text, Vec::new())]
}
