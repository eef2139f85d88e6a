//! Diagnoses for targets that accept nothing at all.
//!
//! An open breaker lets few attempts through, so one failed attempt is enough where a breaker has opened.

use std::time::Duration;

use super::failing::messages;
use super::timeouts;
use crate::doctor::change::Patch;
use crate::doctor::evidence::{DependencyEvidence, EvidenceChart, RowEvidence};
use crate::doctor::proof::{ProofMeasure, ProofWorld, ProposedChange};
use crate::doctor::words::{counted, exceeds, percent, rounded_up, said, tally, waiting};
use crate::doctor::{Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use crate::scenario::{FailureMode, Latency};
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::policy::category::Category;
use redrive_core::text::{show_count, show_duration, show_rounded};

/// If no breaker has opened.
const FAILED_MIN: usize = 5;
const DOMINANT_PERCENT: u64 = 50;
/// Older failures count only if deliveries wait.
const LATELY: Duration = Duration::from_hours(1);
const TIMEOUT_ADVISED_MAX: Duration = Duration::from_mins(10);

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "target-gone",
        harm: Harm::Critical,
        summary: "every call fails before an answer: connections are refused or break",
        explanation: "The target does not listen, or closes connections: they are refused or reset, a name does \
                      not resolve, or a certificate is not accepted. Nothing is delivered; an open breaker lets \
                      only probes through, so few attempts show it. No rule-book setting fixes that: start the \
                      target, or correct its address. Waiting deliveries are sent once a probe succeeds.",
        needs: "5 failed attempts in a row, or a breaker that opened",
        look: DiagnosisCheck::Dependency(gone),
    },
    Diagnosis {
        code: "target-too-slow",
        harm: Harm::Critical,
        summary: "every call times out: the target is slower than its timeout",
        explanation: "The target accepts connections but does not answer within the timeout. Each call is given \
                      up, though the target may have processed it, and is made again. A longer open time of the \
                      breaker does not help; a longer timeout does. If the target should be faster, find out \
                      what it waits for.",
        needs: "5 timeouts in a row, or a breaker that opened",
        look: DiagnosisCheck::Dependency(slow),
    },
    Diagnosis {
        code: "target-failing",
        harm: Harm::Critical,
        summary: "every call is answered with an error",
        explanation: "The target answers every call with an error of its own. Nothing is delivered; an open \
                      breaker lets only probes through, so few attempts show it. The codes and messages show \
                      where to look. Waiting deliveries are sent once a probe succeeds.",
        needs: "5 failed attempts in a row, or a breaker that opened",
        look: DiagnosisCheck::Dependency(failing),
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum StandstillCause {
    Gone,
    Slow,
    Failing,
}

impl StandstillCause {
    fn of(member: &RowEvidence<'_>, story: &AttemptRecord) -> Option<Self> {
        let AttemptEnd::Failed { category, status, .. } = &story.end else { return None };
        match category {
            Category::RateLimited | Category::Permanent | Category::Invalid | Category::Internal => None,
            Category::Transient | Category::Unknown | Category::Fatal => Some(match status {
                _ if timeouts::is_given_up(member, story) => Self::Slow,
                Some(_) => Self::Failing,
                None => Self::Gone,
            }),
        }
    }
}

struct Standstill<'c, 'a> {
    way: StandstillCause,
    ways: u64,
    rows: Vec<&'c RowEvidence<'a>>,
    failed: Vec<(&'c RowEvidence<'a>, &'a AttemptRecord)>,
    waiting: u64,
}

impl<'c, 'a> Standstill<'c, 'a> {
    fn of(chart: &'c EvidenceChart<'a>, ward: &DependencyEvidence<'a>) -> Option<Self> {
        let turns = ward.state.map_or(&[][..], |state| &state.turns);
        let has_opened = turns.last().is_some_and(|turn| turn.to != BreakerPhase::Closed);
        let mut rows = Vec::new();
        let mut failed = Vec::new();
        for row in chart.rows_of(ward) {
            let since = failed_in_a_row(row);
            let enough = if has_opened { 1 } else { FAILED_MIN };
            if since.len() >= enough {
                rows.push(row);
                failed.extend(since.into_iter().map(|story| (row, story)));
            }
        }
        let mut queues: Vec<_> = rows.iter().map(|row| row.queue).collect();
        queues.dedup();
        let waiting =
            queues.into_iter().filter_map(|queue| chart.queue(queue)).map(|queue| queue.waiting).sum();
        let last = failed.iter().map(|(_, story)| story.started_at).max()?;
        if waiting == 0 && chart.ago(last) > LATELY {
            return None;
        }
        let ways: Vec<StandstillCause> =
            failed.iter().filter_map(|(row, story)| StandstillCause::of(row, story)).collect();
        let of = |way: StandstillCause| ways.iter().filter(|known| **known == way).count() as u64;
        // `max_by_key` returns the last of equals; a longer timeout is the least certain cure.
        let way = [StandstillCause::Slow, StandstillCause::Failing, StandstillCause::Gone]
            .into_iter()
            .max_by_key(|way| of(*way))?;
        Some(Self { way, ways: of(way), rows, failed, waiting })
    }

    fn by(way: StandstillCause, chart: &'c EvidenceChart<'a>, ward: &DependencyEvidence<'a>) -> Option<Self> {
        Self::of(chart, ward).filter(|found| found.way == way)
    }

    /// For example `no call gets an answer` or `3 of 5 calls got no answer`.
    fn title(&self, all: &str, some: &str) -> String {
        match self.failed.len() as u64 {
            count if count == self.ways => all.to_owned(),
            count => format!("{} of {} {some}", show_count(self.ways), counted(count, "call")),
        }
    }

    fn shown(&self, chart: &EvidenceChart<'_>) -> Vec<String> {
        let count = self.failed.len() as u64;
        let codes = self.failed.iter().filter_map(|(_, story)| match &story.end {
            AttemptEnd::Failed { code, .. } => Some(code),
            AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => None,
        });
        let first = self.failed.iter().map(|(_, story)| story.started_at).min();
        let since = first.map_or(Duration::ZERO, |first| chart.ago(first));
        let attempts = match count {
            1 => "the latest attempt failed".to_owned(),
            count => format!("the latest {} all failed", counted(count, "attempt")),
        };
        let mut shown =
            vec![format!("{attempts}; nothing delivered for {}", show_rounded(since)), said(&tally(codes))];
        shown.extend((self.waiting > 0).then(|| waiting(self.waiting)));
        shown
    }

    fn sign(self, title: String, evidence: Vec<String>, advice: String) -> DiagnosisSign {
        let touched = self.waiting.max(self.failed.len() as u64);
        DiagnosisSign { title, touched, evidence, advice, change: None, line: None, harm: None }
    }
}

/// Since the last success or failure that is not the target's fault; timeouts under another limit are ignored.
fn failed_in_a_row<'a>(row: &RowEvidence<'a>) -> Vec<&'a AttemptRecord> {
    let mut attempts: Vec<_> =
        row.attempts().filter(|story| !timeouts::is_of_another_limit(row, story)).collect();
    attempts.sort_by_key(|story| story.started_at);
    let last = attempts.iter().rposition(|story| StandstillCause::of(row, story).is_none());
    attempts.split_off(last.map_or(0, |last| last + 1))
}

pub(super) fn is_stalled(chart: &EvidenceChart<'_>, row: &RowEvidence<'_>) -> bool {
    let mut wards = chart.wards().filter(|ward| ward.name == row.rule.dependency.value);
    wards.any(|ward| {
        let found = Standstill::of(chart, ward);
        found.is_some_and(|found| found.rows.iter().any(|known| std::ptr::eq(*known, row)))
    })
}

pub(super) fn is_standstill(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> bool {
    Standstill::of(chart, ward).is_some()
}

fn gone(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let found = Standstill::by(StandstillCause::Gone, chart, ward)?;
    let mut evidence = found.shown(chart);
    evidence.extend(messages(found.failed.iter().map(|(_, story)| *story)));
    let advice = format!(
        "check that `{}` runs and that its address is correct: no rule-book setting fixes that",
        ward.name
    );
    let title =
        format!("`{}` is unreachable: {}", ward.name, found.title("no call gets an answer", "got no answer"));
    Some(found.sign(title, evidence, advice))
}

fn failing(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let found = Standstill::by(StandstillCause::Failing, chart, ward)?;
    let mut evidence = found.shown(chart);
    evidence.extend(messages(found.failed.iter().map(|(_, story)| *story)));
    let advice = format!("check `{}` itself: no rule-book setting fixes that", ward.name);
    let title = if found.ways == found.failed.len() as u64 {
        format!("`{}` answers every call with an error", ward.name)
    } else {
        format!("`{}` delivers nothing: {}", ward.name, found.title("", "were answered with an error"))
    };
    Some(found.sign(title, evidence, advice))
}

fn slow(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let found = Standstill::by(StandstillCause::Slow, chart, ward)?;
    let limits = found.rows.iter().map(|row| timeouts::first_limit(row));
    let limit = limits.max().unwrap_or_default();
    let wanted = |limit: Duration| rounded_up(limit * 5 / 2).min(TIMEOUT_ADVISED_MAX).max(limit);
    let change = found.rows.iter().try_fold(Patch::new(), |change, row| {
        change.merged(&timeouts::set_limit(row, wanted(timeouts::first_limit(row)))).ok()
    });
    let is_dominant = exceeds(found.ways, found.failed.len() as u64, DOMINANT_PERCENT);
    let change = change.filter(|_| wanted(limit) > limit && is_dominant);
    // No recorded call lasted until the answer, so its latency is assumed.
    let (p50, p99) = (limit * 5 / 4, limit * 3 / 2);
    let line = timeouts::line_of(found.rows[0]);
    let mut evidence = found.shown(chart);
    let quick: Vec<_> = found.rows.iter().filter_map(|row| row.successes().median()).collect();
    evidence.extend(quick.iter().max().map(|took| {
        let part = percent(timeouts::millis(*took), timeouts::millis(limit));
        format!("earlier deliveries had a median of {}, {part} of the limit", show_rounded(*took))
    }));
    evidence.extend(change.as_ref().map(|_| {
        format!(
            "no answer was recorded, so its latency is assumed: p50 {}, p99 {}",
            show_duration(p50),
            show_duration(p99)
        )
    }));
    let longer = match &change {
        Some(_) => {
            let (more, given) = (show_duration(wanted(limit)), show_duration(limit));
            format!(
                "raise the timeout to {more} from {given}, and find out how long `{}` really takes",
                ward.name
            )
        }
        None => format!("find out what `{}` waits for", ward.name),
    };
    let advice = format!("no answers within {}: {longer}", show_duration(limit));
    let title = format!("`{}` is slower than its timeout of {}", ward.name, show_duration(limit));
    let sign = found.sign(title, evidence, advice);
    let world = ProofWorld::Alike(FailureMode::Slow(Latency { p50, p99 }));
    Some(DiagnosisSign {
        change: change.map(|change| ProposedChange::new(change, ProofMeasure::Undelivered, world)),
        line,
        ..sign
    })
}
