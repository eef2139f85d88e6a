//! Diagnoses for breakers that open too often, flap, never open, or probe too early.

use std::num::NonZeroU32;
use std::time::Duration;

use super::targets;
use crate::doctor::change;
use crate::doctor::evidence::{BreakerTurn, DependencyEvidence, EvidenceChart, RowEvidence};
use crate::doctor::proof::{ProofMeasure, ProofWorld, ProposedChange};
use crate::doctor::words::{counted, exceeds, percent, rounded_up, said, tally};
use crate::doctor::{Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::policy::breaker::{BreakerPhase, Trip};
use redrive_core::text::{show_duration, show_rounded};
use redrive_core::time::Timestamp;

const RECENTLY: Duration = Duration::from_hours(6);
const OPENINGS_OFTEN: usize = 5;
const OFTEN_WITHIN: Duration = Duration::from_hours(1);
const FLAPS_MIN: usize = 3;
const SOON: Duration = Duration::from_mins(1);
const PROBES_FAILED_MIN: usize = 5;
const ATTEMPTS_MIN: u64 = 50;
const FAILING_PERCENT: u64 = 50;
const FAILING_FOR: Duration = Duration::from_mins(2);
const CONSECUTIVE_ADVISED_MAX: u32 = 10;
const OPEN_ADVISED_MAX: Duration = Duration::from_mins(10);

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "breaker-opens-often",
        harm: Harm::High,
        summary: "a breaker opened five times or more within an hour",
        explanation: "Each opening holds back every delivery to the dependency. Find the root cause first: the \
                      failure codes show it. If failures are few and the dependency is healthy between them, the \
                      breaker is too sensitive: allow more consecutive failures (7 to 10 instead of 5) and a \
                      shorter open time (15 to 20 seconds instead of 30).",
        needs: "breaker history with five openings within an hour",
        look: DiagnosisCheck::Dependency(opens_often),
    },
    Diagnosis {
        code: "breaker-flaps",
        harm: Harm::Medium,
        summary: "a breaker repeatedly opens within a minute of closing",
        explanation: "One successful probe closes the breaker, the backlog is sent at once, and it opens again. \
                      The dependency has not recovered, or cannot take the load. Require several successful \
                      probes in a row before the breaker closes.",
        needs: "breaker history with three openings within a minute of closing",
        look: DiagnosisCheck::Dependency(flaps),
    },
    Diagnosis {
        code: "breaker-never-opens",
        harm: Harm::High,
        summary: "a dependency fails for minutes and its breaker stays closed",
        explanation: "More than half of the calls fail, but the breaker stays closed: successes in between reset \
                      the count of consecutive failures, or there is no breaker. Every delivery uses up its \
                      retries against a dependency that is down. A breaker with a failure rate opens where one \
                      that counts consecutive failures does not.",
        needs: "50 attempts over two minutes",
        look: DiagnosisCheck::Dependency(never_opens),
    },
    Diagnosis {
        code: "probes-keep-failing",
        harm: Harm::Low,
        summary: "probes keep failing: the breaker probes too early",
        explanation: "The dependency is down much longer than the breaker stays open. Each probe uses a retry of \
                      an event and adds load while the dependency recovers. A longer open time probes less \
                      often. If the calls fail in a way that has its own finding (`target-gone`, \
                      `target-too-slow`, `target-failing`), only that finding is reported.",
        needs: "breaker history with five failed probes in a row",
        look: DiagnosisCheck::Dependency(probes_fail),
    },
];

fn recent<'a>(chart: &EvidenceChart<'a>, ward: &DependencyEvidence<'a>) -> &'a [BreakerTurn] {
    let turns = ward.state.map_or(&[][..], |state| &state.turns);
    let first = turns.partition_point(|turn| turn.at + RECENTLY < chart.evidence.now);
    &turns[first..]
}

fn openings(turns: &[BreakerTurn]) -> impl Iterator<Item = Timestamp> {
    turns
        .iter()
        .filter(|turn| turn.from == BreakerPhase::Closed && turn.to == BreakerPhase::Open)
        .map(|turn| turn.at)
}

fn failures<'a>(chart: &EvidenceChart<'a>, ward: &DependencyEvidence<'a>) -> Vec<&'a AttemptRecord> {
    let counts = |story: &&AttemptRecord| match &story.end {
        AttemptEnd::Failed { category, .. } => category.counts_against_dependency(),
        AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => false,
    };
    chart.rows_of(ward).flat_map(RowEvidence::attempts).filter(counts).collect()
}

fn cause(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<String> {
    let failed = failures(chart, ward);
    let codes = failed.iter().filter_map(|story| match &story.end {
        AttemptEnd::Failed { code, .. } => Some(code),
        AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => None,
    });
    let counts = tally(codes);
    (!counts.is_empty()).then(|| format!("failures: {}", said(&counts)))
}

fn line_of(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<u32> {
    change::breaker_line(chart.evidence, &chart.row_of(ward).rule)
}

fn opens_often(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let times: Vec<Timestamp> = openings(recent(chart, ward)).collect();
    let run = times
        .windows(OPENINGS_OFTEN)
        .rev()
        .find(|run| run[OPENINGS_OFTEN - 1].since(run[0]) <= OFTEN_WITHIN)?;
    let rule = &chart.row_of(ward).rule;
    let settings = &rule.rule.breaker.as_ref()?.settings;
    let trip = match settings.trip() {
        Trip::Consecutive(failures) => {
            let more = (failures.get() * 3 / 2 + 1)
                .clamp(failures.get(), CONSECUTIVE_ADVISED_MAX.max(failures.get()));
            Trip::Consecutive(NonZeroU32::new(more).unwrap_or(failures))
        }
        Trip::Failures { count, within } => {
            Trip::Failures { count: count.saturating_mul(NonZeroU32::MIN.saturating_add(1)), within }
        }
        rate @ Trip::FailureRate { .. } => rate,
    };
    let open = rounded_up(settings.open() * 2 / 3);
    let values = [("trip", change::trip(trip)), ("open", show_duration(open))];
    let (within, recently) = (show_rounded(run[OPENINGS_OFTEN - 1].since(run[0])), show_duration(RECENTLY));
    let all = counted(times.len() as u64, "opening");
    let mut evidence = vec![
        format!("opened {OPENINGS_OFTEN} times within {within}"),
        format!("{all} in the last {recently}, without failed probes"),
    ];
    evidence.extend(times.last().map(|last| format!("last opening {} ago", show_rounded(chart.ago(*last)))));
    evidence.extend(cause(chart, ward));
    let change = change::of_breaker(chart.evidence, rule, &values);
    Some(DiagnosisSign {
        title: format!("breaker of `{}` opens often", ward.name),
        touched: times.len() as u64,
        evidence,
        advice: format!(
            "find out why `{}` fails; if it is healthy in between, let the breaker open on {} and only for {}",
            ward.name,
            change::trip(trip).trim_matches(['{', '}', ' ']),
            show_duration(open)
        ),
        change: Some(ProposedChange::new(change, ProofMeasure::Latency, ProofWorld::AsSeen)),
        line: line_of(chart, ward),
        ..DiagnosisSign::default()
    })
}

fn flaps(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let turns = recent(chart, ward);
    let again = turns.windows(2).filter(|pair| {
        let closed = pair[0].to == BreakerPhase::Closed && pair[0].from != BreakerPhase::Closed;
        closed && pair[1].to == BreakerPhase::Open && pair[1].at.since(pair[0].at) <= SOON
    });
    let flaps = again.count();
    if flaps < FLAPS_MIN {
        return None;
    }
    let rule = &chart.row_of(ward).rule;
    let settings = &rule.rule.breaker.as_ref()?.settings;
    let wanted = (settings.close_after().get() * 2).max(3);
    let mut evidence =
        vec![format!("opened again within {} of closing, {flaps} times recently", show_duration(SOON))];
    evidence.push(match settings.close_after().get() {
        1 => "one successful probe closes it".to_owned(),
        successes => format!("{successes} successful probes in a row close it"),
    });
    evidence.extend(cause(chart, ward));
    let change = change::of_breaker(chart.evidence, rule, &[("close_after", wanted.to_string())]);
    Some(DiagnosisSign {
        title: format!("breaker of `{}` flaps", ward.name),
        touched: flaps as u64,
        evidence,
        advice: format!("require {wanted} successful probes in a row before it closes"),
        change: Some(ProposedChange::new(change, ProofMeasure::Openings, ProofWorld::AsSeen)),
        line: line_of(chart, ward),
        ..DiagnosisSign::default()
    })
}

fn never_opens(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let opened = ward.figures.is_some_and(|figures| figures.trips > 0)
        || ward.state.is_some_and(|state| !state.turns.is_empty());
    let held = |story: &AttemptRecord| matches!(story.end, AttemptEnd::Held { .. });
    let was_held = chart
        .rows_of(ward)
        .any(|member| member.deliveries.iter().any(|delivery| delivery.stories.iter().any(held)));
    let rule = &chart.row_of(ward).rule;
    let failed = failures(chart, ward);
    let attempts: u64 = chart.rows_of(ward).map(RowEvidence::attempts_made).sum();
    let started = || failed.iter().map(|story| story.started_at);
    let lasted = started().max()?.since(started().min()?);
    let count = failed.len() as u64;
    let is_failing =
        attempts >= ATTEMPTS_MIN && exceeds(count, attempts, FAILING_PERCENT) && lasted >= FAILING_FOR;
    if opened || was_held || !is_failing {
        return None;
    }
    let all = counted(attempts, "attempt");
    let open = rule.rule.breaker.as_ref().map_or(Duration::from_secs(30), |it| it.settings.open());
    let trip = "{ failure_rate: 50%, of_at_least: 20, within: 1m }".to_owned();
    let values = [("trip", trip), ("open", show_duration(open))];
    let mut evidence = vec![
        format!("{count} of {all} ({}) failed over {}", percent(count, attempts), show_rounded(lasted)),
        match &rule.rule.breaker {
            None => "no breaker is configured".to_owned(),
            Some(breaker) => {
                let trip = change::trip(breaker.settings.trip());
                format!("the breaker opens on {} and never did", trip.trim_matches(['{', '}', ' ']))
            }
        },
    ];
    evidence.extend(cause(chart, ward));
    let change = change::of_breaker(chart.evidence, rule, &values);
    Some(DiagnosisSign {
        title: format!("`{}` fails and no breaker opens", ward.name),
        touched: count,
        evidence,
        advice: "open a breaker when half of the calls fail: held deliveries use no retries".to_owned(),
        change: Some(ProposedChange::new(change, ProofMeasure::FailedCalls, ProofWorld::AsSeen)),
        line: line_of(chart, ward),
        ..DiagnosisSign::default()
    })
}

fn probes_fail(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let turns = recent(chart, ward);
    // Only the latest run of failed probes counts.
    let since_closed =
        turns.iter().rposition(|turn| turn.to == BreakerPhase::Closed).map_or(0, |last| last + 1);
    let failed = turns[since_closed..]
        .iter()
        .filter(|turn| turn.from == BreakerPhase::HalfOpen && turn.to == BreakerPhase::Open);
    let failed = failed.count();
    // Targets that deliver nothing have their own finding.
    if failed < PROBES_FAILED_MIN || targets::is_standstill(chart, ward) {
        return None;
    }
    let rule = &chart.row_of(ward).rule;
    let open = rule.rule.breaker.as_ref()?.settings.open();
    let wanted = rounded_up((open * 3).min(OPEN_ADVISED_MAX));
    if wanted <= open {
        return None;
    }
    let down_since = turns[since_closed..].first().map(|turn| turn.at)?;
    let mut evidence = vec![
        format!("{failed} probes in a row failed, one every {}", show_duration(open)),
        format!("down for {}", show_rounded(chart.ago(down_since))),
    ];
    evidence.extend(cause(chart, ward));
    let change = change::of_breaker(chart.evidence, rule, &[("open", show_duration(wanted))]);
    Some(DiagnosisSign {
        title: format!("probes of `{}` keep failing", ward.name),
        touched: failed as u64,
        evidence,
        advice: format!(
            "find out why probes of `{}` fail; keep the breaker open for {} instead of {}, so that fewer events \
             are used as probes",
            ward.name,
            show_duration(wanted),
            show_duration(open)
        ),
        change: Some(ProposedChange::new(change, ProofMeasure::FailedCalls, ProofWorld::AsSeen)),
        line: line_of(chart, ward),
        ..DiagnosisSign::default()
    })
}
