//! Diagnoses about targets that take nothing any more: why nothing is delivered, however few attempts show it.
//!
//! An open breaker lets few attempts through, so there is no least number of attempts where all of them failed
//! and a breaker has judged already.

use std::time::Duration;

use super::failing::messages;
use super::timeouts;
use crate::doctor::change::Patch;
use crate::doctor::evidence::{EvidenceChart, RowEvidence, DependencyEvidence};
use crate::doctor::proof::{ProofMeasure, ProposedChange, ProofWorld};
use crate::doctor::words::{counted, exceeds, percent, rounded_up, said, tally, waiting};
use crate::doctor::{Diagnosis, Harm, DiagnosisCheck, DiagnosisSign};
use crate::scenario::{Latency, Mood};
use redrive_core::engine::story::{End, Story};
use redrive_core::policy::breaker::Phase;
use redrive_core::policy::category::Category;
use redrive_core::text::{show_count, show_duration, show_rounded};

/// Attempts that must have failed one after the other where no breaker has judged.
const FAILED_MIN: usize = 5;
/// The hundredths of them that must have run into the timeout for a longer one to be proposed.
const DOMINANT_PERCENT: u64 = 50;
/// What failed longer ago says nothing of now, unless something waits.
const LATELY: Duration = Duration::from_hours(1);
/// No longer timeout is proposed.
const TIMEOUT_ADVISED_MAX: Duration = Duration::from_mins(10);

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "target-gone",
        harm: Harm::Critical,
        summary: "every call fails before an answer comes: connections are refused or break",
        explanation: "Nothing listens where the events are sent, or what listens hangs up: connections are refused or \
                      reset, a name is not found, or a certificate is not accepted. Nothing is delivered, and an \
                      open breaker lets only probes through, so few attempts show it. No setting of the book heals \
                      that: start the target, or correct its address. What waits is delivered once a probe \
                      succeeds.",
        needs: "5 failed attempts in a row, or a breaker that opened",
        look: DiagnosisCheck::Dependency(gone),
    },
    Diagnosis {
        code: "target-too-slow",
        harm: Harm::Critical,
        summary: "every call runs into the timeout: the target is slower than it is given",
        explanation: "The target takes connections, and no answer comes within the timeout. Each call is given up, \
                      though the target may have done its work, and is made again. A breaker that stays open \
                      longer changes nothing about that; a timeout above what the target takes does. If the \
                      target should be quicker, find out what it waits for.",
        needs: "5 timeouts in a row, or a breaker that opened",
        look: DiagnosisCheck::Dependency(slow),
    },
    Diagnosis {
        code: "target-failing",
        harm: Harm::Critical,
        summary: "every call is answered with an error",
        explanation: "The target answers, and every answer is an error of its own. Nothing is delivered, and an open \
                      breaker lets only probes through, so few attempts show it. The codes and messages tell where \
                      to look. What waits is delivered once a probe succeeds.",
        needs: "5 failed attempts in a row, or a breaker that opened",
        look: DiagnosisCheck::Dependency(failing),
    },
];

/// How calls fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureMode {
    /// Before an answer.
    Gone,
    /// By our own limit.
    Slow,
    /// By an answer.
    Failing,
}

impl FailureMode {
    fn of(member: &RowEvidence<'_>, story: &Story) -> Option<Self> {
        let End::Failed { category, status, .. } = &story.end else { return None };
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

/// Rows that lead to a dependency and deliver nothing any more.
struct Standstill<'c, 'a> {
    /// The most frequent one.
    way: FailureMode,
    /// How many failed in that way.
    ways: u64,
    rows: Vec<&'c RowEvidence<'a>>,
    /// What failed at the end, one after the other.
    failed: Vec<(&'c RowEvidence<'a>, &'a Story)>,
    waiting: u64,
}

impl<'c, 'a> Standstill<'c, 'a> {
    fn of(chart: &'c EvidenceChart<'a>, ward: &DependencyEvidence<'a>) -> Option<Self> {
        let turns = ward.state.map_or(&[][..], |state| &state.turns);
        let has_opened = turns.last().is_some_and(|turn| turn.to != Phase::Closed);
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
        let ways: Vec<FailureMode> = failed.iter().filter_map(|(row, story)| FailureMode::of(row, story)).collect();
        let of = |way: FailureMode| ways.iter().filter(|known| **known == way).count() as u64;
        // The last of equals is taken: a longer timeout is the least certain.
        let way = [FailureMode::Slow, FailureMode::Failing, FailureMode::Gone].into_iter().max_by_key(|way| of(*way))?;
        Some(Self { way, ways: of(way), rows, failed, waiting })
    }

    /// The same, if calls fail in that way.
    fn by(way: FailureMode, chart: &'c EvidenceChart<'a>, ward: &DependencyEvidence<'a>) -> Option<Self> {
        Self::of(chart, ward).filter(|found| found.way == way)
    }

    /// How many calls failed in that way, as part of a sentence: `no call gets an answer`, `3 of 5 calls get no answer`.
    fn title(&self, all: &str, some: &str) -> String {
        match self.failed.len() as u64 {
            count if count == self.ways => all.to_owned(),
            count => format!("{} of {} {some}", show_count(self.ways), counted(count, "call")),
        }
    }

    fn shown(&self, chart: &EvidenceChart<'_>) -> Vec<String> {
        let count = self.failed.len() as u64;
        let codes = self.failed.iter().filter_map(|(_, story)| match &story.end {
            End::Failed { code, .. } => Some(code),
            End::Delivered { .. } | End::Held { .. } => None,
        });
        let first = self.failed.iter().map(|(_, story)| story.started_at).min();
        let since = first.map_or(Duration::ZERO, |first| chart.ago(first));
        let attempts = match count {
            1 => "the latest attempt failed".to_owned(),
            count => format!("the latest {} all failed", counted(count, "attempt")),
        };
        let mut shown = vec![
            format!("{attempts}, and nothing was delivered for {}", show_rounded(since)),
            said(&tally(codes)),
        ];
        shown.extend((self.waiting > 0).then(|| waiting(self.waiting)));
        shown
    }

    fn sign(self, title: String, evidence: Vec<String>, advice: String) -> DiagnosisSign {
        let touched = self.waiting.max(self.failed.len() as u64);
        DiagnosisSign { title, touched, evidence, advice, change: None, line: None, harm: None }
    }
}

/// What failed after the last attempt that was delivered, or that failed in a way that says nothing of the target;
/// without what was given up under another limit.
fn failed_in_a_row<'a>(row: &RowEvidence<'a>) -> Vec<&'a Story> {
    let mut attempts: Vec<_> =
        row.attempts().filter(|story| !timeouts::is_of_another_limit(row, story)).collect();
    attempts.sort_by_key(|story| story.started_at);
    let last = attempts.iter().rposition(|story| FailureMode::of(row, story).is_none());
    attempts.split_off(last.map_or(0, |last| last + 1))
}

/// Whether a row delivers nothing any more, which has a finding of its own.
pub(super) fn stands_still(chart: &EvidenceChart<'_>, row: &RowEvidence<'_>) -> bool {
    let mut wards = chart.wards().filter(|ward| ward.name == row.rule.dependency.value);
    wards.any(|ward| {
        let found = Standstill::of(chart, ward);
        found.is_some_and(|found| found.rows.iter().any(|known| std::ptr::eq(*known, row)))
    })
}

/// Whether rows that lead to a dependency deliver nothing any more, which has a finding of its own.
pub(super) fn is_standstill(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> bool {
    Standstill::of(chart, ward).is_some()
}

fn gone(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let found = Standstill::by(FailureMode::Gone, chart, ward)?;
    let mut evidence = found.shown(chart);
    evidence.extend(messages(found.failed.iter().map(|(_, story)| *story)));
    let advice = format!(
        "see to it that `{}` runs and that its address is right: no setting of the book heals that",
        ward.name
    );
    let title =
        format!("`{}` is gone: {}", ward.name, found.title("no call gets an answer", "got no answer"));
    Some(found.sign(title, evidence, advice))
}

fn failing(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let found = Standstill::by(FailureMode::Failing, chart, ward)?;
    let mut evidence = found.shown(chart);
    evidence.extend(messages(found.failed.iter().map(|(_, story)| *story)));
    let advice = format!("look at `{}` itself: no setting of the book heals that", ward.name);
    let title = if found.ways == found.failed.len() as u64 {
        format!("`{}` answers every call with an error", ward.name)
    } else {
        format!("`{}` delivers nothing: {}", ward.name, found.title("", "were answered with an error"))
    };
    Some(found.sign(title, evidence, advice))
}

fn slow(chart: &EvidenceChart<'_>, ward: &DependencyEvidence<'_>) -> Option<DiagnosisSign> {
    let found = Standstill::by(FailureMode::Slow, chart, ward)?;
    let limits = found.rows.iter().map(|row| timeouts::first_limit(row));
    let limit = limits.max().unwrap_or_default();
    let wanted = |limit: Duration| rounded_up(limit * 5 / 2).min(TIMEOUT_ADVISED_MAX).max(limit);
    let change = found.rows.iter().try_fold(Patch::new(), |change, row| {
        change.merged(&timeouts::set_limit(row, wanted(timeouts::first_limit(row)))).ok()
    });
    let is_dominant = exceeds(found.ways, found.failed.len() as u64, DOMINANT_PERCENT);
    let change = change.filter(|_| wanted(limit) > limit && is_dominant);
    // No attempt lasted until the answer came, so the answer is assumed to come soon after the limit.
    let (p50, p99) = (limit * 5 / 4, limit * 3 / 2);
    let line = timeouts::line_of(found.rows[0]);
    let mut evidence = found.shown(chart);
    let quick: Vec<_> = found.rows.iter().filter_map(|row| row.successes().median()).collect();
    evidence.extend(quick.iter().max().map(|took| {
        let part = percent(timeouts::millis(*took), timeouts::millis(limit));
        format!("half of what was delivered before took up to {}, {part} of the limit", show_rounded(*took))
    }));
    evidence.extend(change.as_ref().map(|_| {
        format!(
            "no answer was waited for, so how long one takes is assumed: half within {}, 99 in 100 within {}",
            show_duration(p50),
            show_duration(p99)
        )
    }));
    let longer = match &change {
        Some(_) => {
            let (more, given) = (show_duration(wanted(limit)), show_duration(limit));
            format!("give it {more} instead of {given}, and find out how long `{}` really takes", ward.name)
        }
        None => format!("find out what `{}` waits for", ward.name),
    };
    let advice = format!("nothing is answered within {}: {longer}", show_duration(limit));
    let title = format!("`{}` is slower than its timeout of {}", ward.name, show_duration(limit));
    let sign = found.sign(title, evidence, advice);
    let world = ProofWorld::Alike(Mood::Slow(Latency { p50, p99 }));
    Some(DiagnosisSign {
        change: change.map(|change| ProposedChange::new(change, ProofMeasure::Undelivered, world)),
        line,
        ..sign
    })
}
