//! Diagnoses for failing attempts, transient or permanent.

use std::collections::BTreeMap;

use super::{targets, timeouts};
use crate::doctor::change::{Patch, PatchStep, place_of};
use crate::doctor::evidence::{EvidenceChart, ExaminedDelivery, RowEvidence};
use crate::doctor::proof::{ProofMeasure, ProofWorld, ProposedChange};
use crate::doctor::words::{counted, exceeds, percent, said, tally};
use crate::doctor::{ATTEMPTS_MIN, Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use crate::scenario::{CallFailure, FailureMode};
use redrive_core::book::resolve::RuleLevel;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, BookPosition, RecordedVerdict};
use redrive_core::policy::category::{Category, codes};
use redrive_core::policy::rule::FailureMatch;
use redrive_core::text::{Share, show_duration, show_rounded};

const TRANSIENT_PERCENT: u64 = 20;
const TRANSIENT_PERCENT_CRITICAL: u64 = 50;
const PERMANENT_PERCENT: u64 = 10;
const DOMINANT_PERCENT: u64 = 50;
const HEALED_AFTER: u64 = ATTEMPTS_MIN;
/// Fewer retried answers of a kind prove nothing.
const RETRIED_MIN: u64 = 10;
const HEALED_PERCENT: u64 = 5;
const MESSAGES_SHOWN_MAX: usize = 2;
const MESSAGE_CHARS_MAX: usize = 120;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "transient-failures",
        harm: Harm::High,
        summary: "more than 20% of the attempts fail with transient errors",
        explanation: "A few transient failures are normal; one attempt in five is not. Retries hide them from \
                      consumers and add load to a target that already has problems. The codes show where to \
                      look: timeouts mean slow calls, refused or broken connections mean that the target is \
                      down, 5xx means an error in the target.",
        needs: "30 attempts of a row",
        look: DiagnosisCheck::Row(transient),
    },
    Diagnosis {
        code: "permanent-failures",
        harm: Harm::High,
        summary: "more than 10% of the attempts are rejected permanently",
        explanation: "The target will never accept these events: they do not parse, lack a field, or refer to \
                      something that does not exist. Retries do not help, and each becomes a dead letter that \
                      needs manual work. Fix the sender: validate data before sending, starting with the event \
                      type that is rejected most.",
        needs: "30 attempts of a row",
        look: DiagnosisCheck::Row(permanent),
    },
    Diagnosis {
        code: "client-errors-retried",
        harm: Harm::Medium,
        summary: "4xx answers are retried and retries hardly ever help",
        explanation: "A 4xx means that the request is wrong, and it is still wrong a minute later: except for \
                      408, 425 and 429 a retry is wasted. The book retries these, and hardly any of the retried \
                      deliveries arrived. Make them dead letters at once, where the data can be fixed.",
        needs: "10 retried answers of one status",
        look: DiagnosisCheck::Row(client_errors),
    },
    Diagnosis {
        code: "override-never-heals",
        harm: Harm::Medium,
        summary: "a `classify` row marks answers as transient that never recover",
        explanation: "A `classify` row marks an answer as transient that would be permanent, so it is retried; \
                      but hardly any of the retried deliveries arrived. Classify such answers as permanent, or \
                      match only those that recover.",
        needs: "10 retried answers of one `classify` row",
        look: DiagnosisCheck::Row(never_heals),
    },
];

struct FailureRecency {
    last: String,
    arrived: u64,
}

impl FailureRecency {
    fn of<'a>(
        chart: &EvidenceChart<'_>,
        member: &RowEvidence<'a>,
        failed: impl Iterator<Item = &'a AttemptRecord>,
    ) -> Option<Self> {
        let last_at = failed.map(|story| story.started_at).max()?;
        let has_arrived = |story: &&AttemptRecord| {
            matches!(story.end, AttemptEnd::Delivered { .. }) && story.started_at > last_at
        };
        let arrived = member.attempts().filter(has_arrived).count() as u64;
        Some(Self { last: show_rounded(chart.ago(last_at)), arrived })
    }

    const fn is_over(&self) -> bool {
        self.arrived >= HEALED_AFTER
    }

    fn said(&self) -> String {
        let last = &self.last;
        match self.arrived {
            0 => format!("last failure {last} ago"),
            count => format!("last failure {last} ago, {} delivered since", counted(count, "attempt")),
        }
    }
}

fn transient(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let is_past = |story: &AttemptRecord| timeouts::is_of_another_limit(member, story);
    let attempts = member.attempts().filter(|story| !is_past(story)).count() as u64;
    let failed: Vec<_> =
        member.failed_as(&[Category::Transient]).filter(|(story, _)| !is_past(story)).collect();
    let count = failed.len() as u64;
    if attempts < ATTEMPTS_MIN || !exceeds(count, attempts, TRANSIENT_PERCENT) {
        return None;
    }
    if targets::is_stalled(chart, member) {
        // The other finding says more.
        return None;
    }
    let counts = tally(failed.iter().map(|(_, code)| *code));
    let slow = timeouts::given_up(member);
    let limit = timeouts::first_limit(member);
    let advice = if !exceeds(slow, count, DOMINANT_PERCENT) {
        format!(
            "check `{}` itself: mostly {}, which no rule-book setting fixes",
            member.rule.dependency.value, counts[0].0
        )
    } else if let Some((_, wanted)) = timeouts::cuts_through(member) {
        let (limit, wanted) = (show_duration(limit), show_duration(wanted));
        format!("the timeout is too short: raise it from {limit} to {wanted}")
    } else {
        format!(
            "these calls hang while others are answered quickly, so a longer timeout would not help: find out \
             what `{}` waits for",
            member.rule.dependency.value
        )
    };
    let since = FailureRecency::of(chart, member, failed.iter().map(|(story, _)| *story))?;
    let (share, queue) = (percent(count, attempts), &member.queue);
    let is_critical = exceeds(count, attempts, TRANSIENT_PERCENT_CRITICAL);
    Some(DiagnosisSign {
        title: if since.is_over() {
            format!("{share} of attempts to `{queue}` failed with transient errors and have recovered")
        } else {
            format!("{share} of attempts to `{queue}` fail with transient errors")
        },
        touched: count,
        evidence: vec![
            format!("{count} of {} failed with transient errors", counted(attempts, "attempt")),
            said(&counts),
            since.said(),
        ],
        advice,
        harm: if since.is_over() { Some(Harm::Low) } else { is_critical.then_some(Harm::Critical) },
        ..DiagnosisSign::default()
    })
}

fn permanent(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let attempts = member.attempts_made();
    let failed: Vec<_> = member.failed_as(&[Category::Permanent, Category::Invalid]).collect();
    let count = failed.len() as u64;
    if attempts < ATTEMPTS_MIN || !exceeds(count, attempts, PERMANENT_PERCENT) {
        return None;
    }
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    for delivery in &member.deliveries {
        let refused = delivery.attempts().filter(|story| is_refusal(story)).count() as u64;
        if refused > 0 {
            *types.entry(&delivery.event_type).or_default() += refused;
        }
    }
    let mut types: Vec<_> = types.into_iter().collect();
    types.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut evidence = vec![
        format!("{count} of {} were rejected permanently", counted(attempts, "attempt")),
        said(&tally(failed.iter().map(|(_, code)| *code))),
        format!("by event type: {}", said(&types)),
    ];
    let since = FailureRecency::of(chart, member, failed.iter().map(|(story, _)| *story))?;
    evidence.push(since.said());
    evidence.extend(messages(failed.iter().map(|(story, _)| *story)));
    let (share, queue) = (percent(count, attempts), &member.queue);
    let worst = types.first().map_or("these events", |(event_type, _)| event_type);
    Some(DiagnosisSign {
        title: if since.is_over() {
            format!("`{queue}` rejected {share} of its attempts and has recovered")
        } else {
            format!("`{queue}` rejects {share} of its attempts")
        },
        touched: count,
        evidence,
        advice: format!(
            "validate `{worst}` at the sender (the answers above say what is wrong); `redrive dlq groups` lists \
             every cause with its dead letters"
        ),
        harm: since.is_over().then_some(Harm::Low),
        ..DiagnosisSign::default()
    })
}

fn is_refusal(story: &AttemptRecord) -> bool {
    match &story.end {
        AttemptEnd::Failed { category, .. } => matches!(category, Category::Permanent | Category::Invalid),
        AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => false,
    }
}

pub(super) fn messages<'a>(stories: impl Iterator<Item = &'a AttemptRecord>) -> Vec<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for story in stories {
        if let AttemptEnd::Failed { message, response, .. } = &story.end {
            let text = if response.is_empty() { message } else { response };
            let short: String = text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
            *counts.entry(short).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().take(MESSAGES_SHOWN_MAX).map(|(text, _)| format!("answer: {text}")).collect()
}

#[derive(Default)]
struct RetriedAnswers<'a> {
    deliveries: Vec<&'a ExaminedDelivery>,
    answers: u64,
    at: Option<BookPosition>,
}

impl RetriedAnswers<'_> {
    fn healed(&self) -> u64 {
        self.deliveries.iter().filter(|delivery| delivery.arrived()).count() as u64
    }

    fn is_useless(&self) -> bool {
        let met = self.deliveries.len() as u64;
        self.answers >= RETRIED_MIN && !exceeds(self.healed(), met, HEALED_PERCENT)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RetriedBy {
    Classify,
    Reaction,
}

fn retried<'a>(member: &RowEvidence<'a>, by: RetriedBy) -> Option<(u16, RetriedAnswers<'a>)> {
    let mut found: BTreeMap<u16, RetriedAnswers<'a>> = BTreeMap::new();
    for delivery in &member.deliveries {
        for story in delivery.attempts() {
            let AttemptEnd::Failed { status: Some(status @ 400..500), code, .. } = &story.end else {
                continue;
            };
            let heals = matches!(status, 408 | 425 | 429) || code.as_str() == codes::RATE_LIMITED;
            let is_by = if story.classified_at.is_some() { RetriedBy::Classify } else { RetriedBy::Reaction };
            if heals || is_by != by || !matches!(story.verdict, RecordedVerdict::Retry { .. }) {
                continue;
            }
            let retried = found.entry(*status).or_default();
            retried.answers += 1;
            retried.at = if by == RetriedBy::Classify { story.classified_at } else { story.reaction_at };
            if retried.deliveries.last().is_none_or(|last| !std::ptr::eq(*last, *delivery)) {
                retried.deliveries.push(delivery);
            }
        }
    }
    let useless = found.into_iter().filter(|(_, retried)| retried.is_useless());
    useless.max_by_key(|(_, retried)| retried.answers)
}

fn shown(status: u16, retried: &RetriedAnswers<'_>) -> Vec<String> {
    let met = retried.deliveries.len() as u64;
    vec![
        format!("{} with {status} were retried", counted(retried.answers, "answer")),
        format!(
            "of {} that got it, {} were delivered in the end",
            counted(met, "delivery"),
            retried.healed()
        ),
    ]
}

/// Simulated with a target that always answers this status.
fn answered(change: Patch, status: u16) -> ProposedChange {
    let always = FailureMode::Mixed(vec![(CallFailure::Status(status), Share::ALL)]);
    ProposedChange::new(change, ProofMeasure::Calls, ProofWorld::Alike(always))
}

fn client_errors(_: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let (status, retried) = retried(member, RetriedBy::Reaction)?;
    let rule = &member.rule;
    // Attempts under another book prove nothing.
    let reaction = rule.rule.reactions.to(Category::Permanent, Some(status));
    reaction.value.policy()?;
    let stated = rule.reactions.iter().find(|(kind, _)| kind.matches(Category::Permanent, Some(status)));
    let (key, level) = match stated {
        Some((FailureMatch::Status(range), known)) if range.first == range.last => {
            (range.first.to_string(), known.origin.level)
        }
        Some((FailureMatch::Status(range), known)) => {
            (format!("{}-{}", range.first, range.last), known.origin.level)
        }
        Some((FailureMatch::Category(category), known)) => (category.to_string(), known.origin.level),
        None => (status.to_string(), RuleLevel::Service),
    };
    let mut place = place_of(rule, level);
    place.push(PatchStep::Key("on_failure".to_owned()));
    Some(DiagnosisSign {
        title: format!("`{}` retries {status}, which does not recover", member.queue),
        touched: retried.answers,
        evidence: shown(status, &retried),
        advice: format!("make {key} a dead letter at once: it can be replayed after the data is fixed"),
        change: Some(answered(Patch::new().set(&place, &key, "dead-letter"), status)),
        line: reaction.position.map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

fn never_heals(_: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let (status, retried) = retried(member, RetriedBy::Classify)?;
    let rule = &member.rule;
    let (row, level) = rule.classify.iter().find(|(row, _)| {
        let fits = row.when.statuses.iter().any(|range| range.contains(status));
        fits && row.meaning == redrive_core::policy::rule::OverrideMeaning::Failure(Category::Transient)
    })?;
    // A `classify` row closer to the events is tried first.
    let item = format!("{{ status: {status}, as: permanent, because: it never healed }}");
    let change = (*level != RuleLevel::Row && member.patterns.len() == 1)
        .then(|| Patch::new().add(&place_of(rule, RuleLevel::Row), "classify", item));
    Some(DiagnosisSign {
        title: format!("`{}` classifies {status} as transient, but it never recovers", member.queue),
        touched: retried.answers,
        evidence: shown(status, &retried),
        advice: match change {
            Some(_) => format!("classify {status} as permanent for these events, or remove the row"),
            None => format!("remove or narrow the `classify` row that makes {status} transient"),
        },
        change: change.map(|change| answered(change, status)),
        line: Some(row.position.line),
        ..DiagnosisSign::default()
    })
}
