//! Diagnoses for timeouts: too short for good calls, or too long for hanging ones.

use std::time::Duration;

use crate::doctor::change::{Patch, place_of};
use crate::doctor::evidence::{EvidenceChart, RowEvidence, SortedTimes};
use crate::doctor::proof::{ProofMeasure, ProofWorld, ProposedChange};
use crate::doctor::words::{counted, exceeds, percent, rounded_up};
use crate::doctor::{ATTEMPTS_MIN, Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use crate::scenario::Latency;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::ids::Attempt;
use redrive_core::policy::category::{Category, codes};
use redrive_core::text::{show_duration, show_rounded};

const TIMEOUTS_MIN: u64 = 5;
const TIMEOUTS_PERCENT: u64 = 2;
const NEAR_LIMIT_PERCENT: u32 = 60;
/// Fewer successes say nothing about the slowest.
const SUCCESSES_MIN: u64 = 10;
const SUCCESSES_MIN_TO_SHORTEN: u64 = 100;
const FAR_ABOVE: u32 = 20;
const LONG_LIMIT: Duration = Duration::from_secs(5);
const HANGS_MIN: u64 = 3;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "timeout-too-short",
        harm: Harm::High,
        summary: "calls time out that would have succeeded",
        explanation: "Some calls time out, and the slowest successful ones come close to the limit: it cuts off \
                      good calls. Each timeout counts against the dependency and the call is repeated while the \
                      first may still be processed, so a slow period doubles the load. Set the limit well above \
                      the slowest good call: one and a half times its p99.",
        needs: "30 attempts, 5 timeouts, and 10 successes",
        look: DiagnosisCheck::Row(too_short),
    },
    Diagnosis {
        code: "timeout-too-long",
        harm: Harm::Medium,
        summary: "a hanging call holds its slot far longer than any good call takes",
        explanation: "Good calls take a small part of the timeout, and some calls hang until it ends. Each of \
                      these holds a slot and a connection, and its retry comes late. A limit of a few times the \
                      slowest good call ends the same calls sooner and no others.",
        needs: "100 successes and 3 hanging calls",
        look: DiagnosisCheck::Row(too_long),
    },
];

pub(super) fn first_limit(member: &RowEvidence<'_>) -> Duration {
    member.rule.answer_limit(Attempt::FIRST)
}

pub(super) fn given_up(member: &RowEvidence<'_>) -> u64 {
    let given_up = member.attempts().filter(|story| is_given_up(member, story));
    given_up.count() as u64
}

pub(super) fn is_given_up(member: &RowEvidence<'_>, story: &AttemptRecord) -> bool {
    is_timeout(story) && is_at_limit(member, story)
}

/// Such an attempt says nothing about the current limit.
pub(in crate::doctor) fn is_of_another_limit(member: &RowEvidence<'_>, story: &AttemptRecord) -> bool {
    is_timeout(story) && !is_at_limit(member, story)
}

fn is_at_limit(member: &RowEvidence<'_>, story: &AttemptRecord) -> bool {
    let took = Duration::from_nanos(story.took_nanos);
    let limit = member.rule.answer_limit(story.attempt);
    took >= limit * 9 / 10 && took <= limit * 3 / 2 + Duration::from_millis(500)
}

fn is_timeout(story: &AttemptRecord) -> bool {
    match &story.end {
        AttemptEnd::Failed { code, category, .. } => {
            let is_ours = matches!(code.as_str(), codes::NETWORK_TIMEOUT | codes::TIME_LIMIT_EXCEEDED);
            is_ours && matches!(category, Category::Transient | Category::Permanent | Category::Unknown)
        }
        AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => false,
    }
}

/// In the form that the book uses.
pub(super) fn set_limit(member: &RowEvidence<'_>, limit: Duration) -> Patch {
    let timeouts = &member.rule.timeouts;
    let whole = &timeouts.whole;
    let place = place_of(&member.rule, whole.origin.level);
    let in_parts = [timeouts.connect.origin, timeouts.tls.origin]
        .iter()
        .any(|part| part.span.is_some() && part.span == whole.origin.span);
    let value = if whole.value.factor > 1.0 {
        let longest = limit.max(whole.value.max);
        let (first, longest) = (show_duration(limit), show_duration(longest));
        format!("{{ first: {first}, factor: {}, max: {longest} }}", whole.value.factor)
    } else if in_parts {
        let (connect, tls) = (timeouts.connect.value.min(limit), timeouts.tls.value.min(limit));
        let (connect, tls, limit) = (show_duration(connect), show_duration(tls), show_duration(limit));
        format!("{{ connect: {connect}, tls: {tls}, whole: {limit} }}")
    } else {
        show_duration(limit)
    };
    Patch::new().set(&place, "timeout", value)
}

pub(super) fn line_of(member: &RowEvidence<'_>) -> Option<u32> {
    member.rule.timeouts.whole.origin.position().map(|position| position.line)
}

/// The p99 of good calls if it is close to the limit, and the limit it needs.
pub(super) fn cuts_through(member: &RowEvidence<'_>) -> Option<(Duration, Duration)> {
    let successes = member.successes();
    let limit = first_limit(member);
    let p99 = successes.p99().filter(|_| successes.count() >= SUCCESSES_MIN)?;
    (p99 * 100 >= limit * NEAR_LIMIT_PERCENT && p99 <= limit * 3 / 2)
        .then(|| (p99, rounded_up(p99.max(limit) * 3 / 2)))
}

fn too_short(_: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let (attempts, given_up) = (member.attempts_made(), given_up(member));
    let is_enough = attempts >= ATTEMPTS_MIN && given_up >= TIMEOUTS_MIN;
    if !is_enough || !exceeds(given_up, attempts, TIMEOUTS_PERCENT) {
        return None;
    }
    let (p99, wanted) = cuts_through(member)?;
    let limit = first_limit(member);
    let of_limit = percent(millis(p99), millis(limit));
    let (given, longer) = (show_duration(limit), show_duration(wanted));
    // Assumes that calls given up would end within the proposed limit.
    let latency = Latency { p50: member.successes().median().unwrap_or(p99), p99: wanted * 9 / 10 };
    let (share, all) = (percent(given_up, attempts), counted(attempts, "attempt"));
    Some(DiagnosisSign {
        title: format!("the timeout of {given} cuts off good calls of `{}`", member.queue),
        touched: given_up,
        evidence: vec![
            format!("{given_up} of {all} ({share}) timed out after {given}"),
            format!("{}, {of_limit} of the limit", slowest(&member.successes(), p99)),
        ],
        advice: format!(
            "raise the timeout from {given} to {longer}, 1.5 times the slowest good calls; if that is too long \
             to wait, make the target faster"
        ),
        change: Some(ProposedChange::new(
            set_limit(member, wanted),
            ProofMeasure::FailedCalls,
            ProofWorld::Well(latency),
        )),
        line: line_of(member),
        ..DiagnosisSign::default()
    })
}

fn too_long(_: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let (successes, hangs) = (member.successes(), given_up(member));
    let limit = first_limit(member);
    let p99 = successes.p99().filter(|_| successes.count() >= SUCCESSES_MIN_TO_SHORTEN)?;
    if hangs < HANGS_MIN || limit < LONG_LIMIT || p99 * FAR_ABOVE >= limit {
        return None;
    }
    let wanted = rounded_up((p99 * 5).max(Duration::from_secs(1)));
    let (given, shorter) = (show_duration(limit), show_duration(wanted));
    let hung = counted(hangs, "attempt");
    Some(DiagnosisSign {
        title: format!("hanging calls of `{}` take {given} to time out", member.queue),
        touched: hangs,
        evidence: vec![
            slowest(&successes, p99),
            format!("{hung} hung until the timeout of {given}, each blocking a slot"),
        ],
        advice: format!("lower the timeout from {given} to {shorter}: five times the slowest good calls"),
        change: Some(ProposedChange::new(
            set_limit(member, wanted),
            ProofMeasure::Latency,
            ProofWorld::AsSeen,
        )),
        line: line_of(member),
        ..DiagnosisSign::default()
    })
}

fn slowest(successes: &SortedTimes, p99: Duration) -> String {
    let arrived = counted(successes.count(), "attempt");
    // Rounding to seconds could hide the distance to the limit.
    let whole = Duration::from_millis(millis(p99));
    let took = if whole.is_zero() { show_rounded(p99) } else { show_duration(whole) };
    format!("p99 of {arrived} that succeeded: {took}")
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
