//! Diagnoses for concurrency and rate: too much, too little, too fast.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::doctor::change;
use crate::doctor::evidence::{DependencyEvidence, EvidenceChart, RowEvidence, SortedTimes};
use crate::doctor::proof::{ProofMeasure, ProofWorld, ProposedChange};
use crate::doctor::words::{self, counted, exceeds, percent};
use crate::doctor::{ATTEMPTS_MIN, Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use crate::scenario::{Capacity, FailureMode, Latency};
use redrive_core::book::resolve::Resolved;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::figures::{BESIDE_BOUNDS, ConcurrencyFigures};
use redrive_core::policy::category::Category;
use redrive_core::text::{Rate, Share, show_rounded};

/// Fewer calls at a concurrency level are not compared.
const CALLS_MIN: u64 = 50;
/// Percentage points.
const FAILS_MORE_PERCENT: u64 = 10;
const SLOWER: u64 = 3;
/// Below this, a slowdown is irrelevant.
const SLOW_MICROS_MIN: u64 = 20_000;
const CALLS_MIN_TO_RAISE: u64 = 200;
const FULL_PERCENT: u64 = 80;
const WAITING_MIN: u64 = 100;
const WELL_PERCENT: u64 = 2;
const THROTTLED_MIN: u64 = 10;
const THROTTLED_PERCENT: u64 = 5;
/// Size of the simulated burst: this many times `in_flight`.
const CROWD_TIMES: u32 = 4;
const CROWD_MAX: u32 = 2_000;
const SPAN_SECS: u64 = 10;
/// Recent only, because limits change.
const SPANS_MAX: usize = 6;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "too-many-at-once",
        harm: Harm::High,
        summary: "a dependency fails or slows down at high concurrency",
        explanation: "The dependency works with few concurrent calls and fails or slows down with many: it has a \
                      limit that is exceeded. More concurrency does not make it faster; calls fail, are retried, \
                      and add load. Limit `in_flight` to the highest concurrency that worked.",
        needs: "a running server, and 50 calls each at low and at high concurrency",
        look: DiagnosisCheck::Dependency(too_many),
    },
    Diagnosis {
        code: "too-few-at-once",
        harm: Harm::Medium,
        summary: "`in_flight` is always used up while deliveries wait, and the dependency could take more",
        explanation: "Nearly every call was made with all slots in use, deliveries wait for a slot, and the \
                      dependency answers as fast as with fewer calls: `in_flight` is the bottleneck. Raise it, \
                      then run doctor again.",
        needs: "a running server, 200 calls, and 100 waiting deliveries",
        look: DiagnosisCheck::Dependency(too_few),
    },
    Diagnosis {
        code: "rate-limited-often",
        harm: Harm::Medium,
        summary: "the target often answers 429",
        explanation: "A target that answers 429 does work to reject a call, and may block the sender. Redrive \
                      slows down when asked and then approaches the limit again. With the limit configured as \
                      `rate`, calls keep to it from the start and none is rejected.",
        needs: "10 answers with 429: one in twenty of all, or while 100 deliveries wait",
        look: DiagnosisCheck::Row(rate_limited),
    },
];

fn mean_micros(beside: &ConcurrencyFigures) -> u64 {
    beside.took_micros.checked_div(beside.calls).unwrap_or(0)
}

fn range(place: usize) -> String {
    let from = place.checked_sub(1).map_or(1, |before| BESIDE_BOUNDS[before] + 1);
    match BESIDE_BOUNDS.get(place) {
        Some(to) if *to == from => format!("at concurrency {to}"),
        Some(to) => format!("at concurrency {from} to {to}"),
        None => format!("at concurrency {from} or more"),
    }
}

fn shown(place: usize, beside: &ConcurrencyFigures) -> String {
    let (failed, calls) = (percent(beside.failed, beside.calls), counted(beside.calls, "call"));
    let each = show_rounded(Duration::from_micros(mean_micros(beside)));
    format!("{}: {failed} of {calls} failed, {each} each", range(place))
}

fn too_many(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let ranges = &ward.figures?.beside;
    let base = ranges.iter().position(|beside| beside.calls >= CALLS_MIN)?;
    let calm = &ranges[base];
    let is_worse = |beside: &ConcurrencyFigures| {
        let allowed = calm.failed * 100 / calm.calls + FAILS_MORE_PERCENT;
        let fails = exceeds(beside.failed, beside.calls, allowed)
            && beside.failed * calm.calls > 2 * calm.failed * beside.calls;
        let mean = mean_micros(beside);
        fails || mean >= SLOW_MICROS_MIN && mean > SLOWER * mean_micros(calm)
    };
    let crowd = (base + 1..ranges.len())
        .find(|place| ranges[*place].calls >= CALLS_MIN && is_worse(&ranges[*place]))?;
    let good = BESIDE_BOUNDS[crowd - 1];
    let rule = &chart.row_of(ward).rule;
    if good >= rule.in_flight.value {
        return None;
    }
    Some(DiagnosisSign {
        title: format!("`{}` cannot take more than {good} concurrent calls", ward.name),
        touched: ranges[crowd..].iter().map(|beside| beside.calls).sum(),
        evidence: vec![shown(base, calm), shown(crowd, &ranges[crowd])],
        advice: format!("limit `in_flight` to {good} instead of {}", rule.in_flight.value),
        change: Some(fewer_at_once(chart, rule, good, calm, &ranges[crowd])),
        line: rule.in_flight.origin.position().map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

fn fewer_at_once(
    chart: &EvidenceChart<'_>,
    rule: &Resolved<'_>,
    good: u32,
    calm: &ConcurrencyFigures,
    crowd: &ConcurrencyFigures,
) -> ProposedChange {
    let change = change::of_dependency(chart.evidence, rule, "in_flight", good);
    let fails = exceeds(crowd.failed, crowd.calls, calm.failed * 100 / calm.calls + FAILS_MORE_PERCENT);
    let (measure, queue) =
        if fails { (ProofMeasure::FailedCalls, Some(0)) } else { (ProofMeasure::Latency, None) };
    let collapse = if fails { None } else { Some(Share::ALL) };
    let capacity = Capacity { rate: None, concurrent: Some(good), queue, collapse };
    let at_once = rule.in_flight.value.saturating_mul(CROWD_TIMES).min(CROWD_MAX);
    ProposedChange::new(change, measure, ProofWorld::Crowd(at_once, latency_of(calm), capacity))
}

fn latency_of(beside: &ConcurrencyFigures) -> Latency {
    let mean = Duration::from_micros(mean_micros(beside)).max(Duration::from_millis(1));
    Latency { p50: mean, p99: mean }
}

fn too_few(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let figures = ward.figures?;
    let rule = &chart.row_of(ward).rule;
    let limit = rule.in_flight.value;
    let ranges = &figures.beside;
    let full = BESIDE_BOUNDS.iter().position(|bound| limit <= *bound)?;
    let calls: u64 = ranges.iter().map(|beside| beside.calls).sum();
    let (crowd, calm) = (&ranges[full], &ranges[..full]);
    let mut fewer = ConcurrencyFigures::default();
    for beside in calm {
        fewer.calls += beside.calls;
        fewer.took_micros += beside.took_micros;
    }
    // A configured rate is intended.
    let is_paced = rule.rate.is_some() || figures.held > 0;
    // A dependency that answers 429 cannot take more.
    let is_asked_to_wait =
        chart.rows_of(ward).any(|row| row.failed_as(&[Category::RateLimited]).next().is_some());
    let is_slower = fewer.calls > 0 && mean_micros(crowd) > mean_micros(&fewer) * 3 / 2;
    let waiting: u64 = chart
        .rows_of(ward)
        .filter_map(|member| chart.queue(member.queue))
        .map(|queue| queue.waiting - queue.behind.min(queue.waiting))
        .max()?;
    let is_full =
        exceeds(crowd.calls, calls, FULL_PERCENT) && ward.state.is_some_and(|state| state.in_flight >= limit);
    let is_well = !exceeds(crowd.failed, crowd.calls, WELL_PERCENT);
    let is_limited = is_slower || is_paced || is_asked_to_wait;
    if calls < CALLS_MIN_TO_RAISE || !is_full || !is_well || is_limited || waiting < WAITING_MIN {
        return None;
    }
    let more = limit * 2;
    let (share, all) = (percent(crowd.calls, calls), counted(calls, "call"));
    let ready = counted(waiting, "delivery");
    let at_once = u32::try_from(waiting).unwrap_or(CROWD_MAX).min(CROWD_MAX);
    let crowded = ProofWorld::Crowd(at_once, latency_of(crowd), Capacity::default());
    let change = change::of_dependency(chart.evidence, rule, "in_flight", more);
    Some(DiagnosisSign {
        title: format!("`{}` could take more than {limit} concurrent calls", ward.name),
        touched: waiting,
        evidence: vec![
            format!("{share} of {all} were made with nearly all slots in use"),
            format!("{ready} ready to start, {limit} calls in flight"),
            shown(full, crowd),
        ],
        advice: format!("raise `in_flight` to {more}, then check that latency stays the same"),
        change: Some(ProposedChange::new(change, ProofMeasure::Latency, crowded)),
        line: rule.in_flight.origin.position().map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

fn backlog(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> u64 {
    chart.queue(member.queue).map_or(0, |queue| queue.waiting)
}

pub(super) fn is_throttled(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> bool {
    let attempts = member.attempts_made();
    let throttled = member.failed_as(&[Category::RateLimited]).count() as u64;
    let is_much = exceeds(throttled, attempts, THROTTLED_PERCENT) || backlog(chart, member) >= WAITING_MIN;
    attempts >= ATTEMPTS_MIN && throttled >= THROTTLED_MIN && is_much
}

fn rate_limited(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let attempts = member.attempts_made();
    let throttled = member.failed_as(&[Category::RateLimited]).count() as u64;
    if !is_throttled(chart, member) {
        return None;
    }
    let waiting = backlog(chart, member);
    let rule = &member.rule;
    let taken = taken_per_second(member);
    let rate = taken.and_then(|taken| as_written(taken * 0.9));
    // Attempts before the rate was configured prove nothing.
    let stated = rule.rate.as_ref().map(|known| known.value.as_per_second());
    if stated.zip(taken).is_some_and(|(stated, taken)| stated <= taken) {
        return None;
    }
    let asked = |story: &AttemptRecord| story.retry.as_ref().and_then(|retry| retry.retry_after_nanos);
    let waits: Vec<Duration> = member.attempts().filter_map(asked).map(Duration::from_nanos).collect();
    let retry_after = SortedTimes::of(waits.iter().copied()).median();
    let mut evidence = vec![
        format!(
            "{throttled} of {} ({}) were rate limited",
            counted(attempts, "attempt"),
            percent(throttled, attempts)
        ),
        format!("{} had a Retry-After, which was respected", counted(waits.len() as u64, "answer")),
    ];
    evidence.extend(taken.map(|taken| format!("it accepted {taken:.1} calls per second meanwhile")));
    evidence.extend((waiting > 0).then(|| words::waiting(waiting)));
    Some(DiagnosisSign {
        title: format!("`{}` is often rate limited", member.queue),
        touched: throttled,
        evidence,
        advice: match &rate {
            Some(rate) => format!("set `rate` to {rate}, slightly below what the target accepts"),
            None => {
                format!("ask the operator of `{}` for its limit, and set it as `rate`", rule.dependency.value)
            }
        },
        change: rate.zip(taken.and_then(Rate::per_second)).map(|(rate, limit)| {
            let change = change::of_dependency(chart.evidence, rule, "rate", rate);
            let mode = FailureMode::Throttled { rate: limit, retry_after };
            ProposedChange::new(change, ProofMeasure::FailedCalls, ProofWorld::Always(mode))
        }),
        line: rule.rate.as_ref().and_then(|known| known.origin.position()).map(|position| position.line),
        harm: (waiting >= WAITING_MIN).then_some(Harm::High),
    })
}

/// The highest delivered rate in recent spans that had 429 answers.
fn taken_per_second(member: &RowEvidence<'_>) -> Option<f64> {
    let span = |story: &AttemptRecord| story.started_at.as_millis() / 1_000 / SPAN_SECS;
    let mut spans: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for story in member.attempts() {
        let (taken, throttled) = spans.entry(span(story)).or_default();
        match &story.end {
            AttemptEnd::Delivered { .. } => *taken += 1,
            AttemptEnd::Failed { category: Category::RateLimited, .. } => *throttled += 1,
            AttemptEnd::Failed { .. } | AttemptEnd::Held { .. } => {}
        }
    }
    spans.retain(|_, (_, throttled)| *throttled > 0);
    let taken = spans.values().rev().take(SPANS_MAX).map(|(taken, _)| *taken).max()?;
    (taken > 0).then(|| taken as f64 / SPAN_SECS as f64)
}

/// Whole numbers per second, minute or hour.
fn as_written(per_second: f64) -> Option<Rate> {
    let units = [1.0, 60.0, 3_600.0];
    let whole =
        units.into_iter().map(|unit| ((per_second * unit).floor(), unit)).find(|(count, _)| *count >= 1.0);
    whole.and_then(|(count, unit)| Rate::per_second(count / unit))
}
