//! Diagnoses for waiting deliveries: too many, too long, blocked, or without a rule.

use std::time::Duration;

use super::load;
use crate::doctor::change::{Patch, keys, scalar};
use crate::doctor::evidence::{EvidenceChart, QueueState, RowEvidence, SortedTimes};
use crate::doctor::proof::ProposedChange;
use crate::doctor::words::{counted, exceeds, percent, waiting};
use crate::doctor::{Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use redrive_core::book::model::ServiceEntry;
use redrive_core::engine::HeldQueue;
use redrive_core::text::{show_duration, show_rounded};

const WAITING_MIN: u64 = 100;
const STARTED_MIN: u64 = 40;
const WAIT_FELT: Duration = Duration::from_secs(5);
const WAITS_LONGER: u32 = 2;
const PAUSE_MAX: Duration = Duration::from_hours(1);
const HELD_MAX: Duration = Duration::from_hours(1);
const BEHIND_MIN: u64 = 50;
const BEHIND_PERCENT: u64 = 50;
const TYPES_SHOWN_MAX: usize = 5;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "queue-grows",
        harm: Harm::High,
        summary: "deliveries wait longer and longer for their first attempt",
        explanation: "More events arrive than are delivered: later deliveries waited longer for their first \
                      attempt. Unless the inflow drops, the backlog grows until its limit is reached. Make the \
                      target faster, raise its concurrency, or send less to it.",
        needs: "40 started deliveries and 100 waiting ones",
        look: DiagnosisCheck::Row(grows),
    },
    Diagnosis {
        code: "sla-missed",
        harm: Harm::Critical,
        summary: "the oldest delivery has waited longer than the book's `sla`",
        explanation: "The fact `sla` in the book says how soon a delivery must be made, and the oldest waiting \
                      one is older. `redrive why` shows what holds it up; see also the other findings.",
        needs: "the fact `sla`, and when the oldest delivery was accepted",
        look: DiagnosisCheck::Queue(sla_missed),
    },
    Diagnosis {
        code: "paused-and-forgotten",
        harm: Harm::Critical,
        summary: "a service has been paused for more than an hour while deliveries wait",
        explanation: "A pause is set by hand or by a rule, and only a person ends it. Until then every delivery \
                      to the service waits. If the reason is gone, resume the service; if the pause will last, \
                      check the limits for waiting deliveries.",
        needs: "a pause of more than an hour",
        look: DiagnosisCheck::Queue(paused),
    },
    Diagnosis {
        code: "removed-with-waiting",
        harm: Harm::Critical,
        summary: "deliveries wait for a service or a row that is no longer in the rule book",
        explanation: "The service, or its row for these events, was removed or renamed while deliveries were \
                      waiting. They will wait forever. Restore it until they are delivered, send them to another \
                      service, or make them dead letters: see `redrive removed`.",
        needs: "one waiting delivery",
        look: DiagnosisCheck::Queue(removed),
    },
    Diagnosis {
        code: "session-blocked",
        harm: Harm::Medium,
        summary: "most waiting deliveries are behind the head of their session",
        explanation: "The service keeps order within a session, and a few sessions are so long that nearly \
                      everything waits for the delivery before it. More concurrency does not help, because each \
                      session makes one call at a time. Use finer sessions (by order instead of by customer), or \
                      `order: none` if order does not matter.",
        needs: "50 deliveries behind others",
        look: DiagnosisCheck::Queue(blocked),
    },
    Diagnosis {
        code: "session-held",
        harm: Harm::High,
        summary: "a dead letter has blocked its session for more than an hour",
        explanation: "With `order: session-strict` a dead letter blocks its session until it is replayed, \
                      skipped or purged. That has not happened, and all later deliveries of the session wait.",
        needs: "a session blocked for more than an hour",
        look: DiagnosisCheck::Queue(held),
    },
    Diagnosis {
        code: "unrouted-events",
        harm: Harm::Medium,
        summary: "events arrive that match no row",
        explanation: "The events were accepted and stored, but no row of the book matches them: a type was \
                      renamed or misspelt, or a row is missing. Add a row and run `redrive route --unrouted` to \
                      deliver the stored events, or stop sending them.",
        needs: "one unrouted event",
        look: DiagnosisCheck::Whole(unrouted),
    },
];

fn grows(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let state =
        chart.queue(member.queue).filter(|state| state.waiting >= WAITING_MIN && state.held.is_none())?;
    let mut waits: Vec<_> = member
        .deliveries
        .iter()
        .filter_map(|delivery| {
            let first = delivery.stories.first()?;
            Some((delivery.accepted_at, first.started_at.since(delivery.accepted_at)))
        })
        .collect();
    // A throttled target has its own finding.
    if (waits.len() as u64) < STARTED_MIN || load::is_throttled(chart, member) {
        return None;
    }
    waits.sort_unstable();
    let (earlier, later) = waits.split_at(waits.len() / 2);
    let median = |part: &[(_, Duration)]| SortedTimes::of(part.iter().map(|(_, wait)| *wait)).median();
    let (before, after) = (median(earlier)?, median(later)?);
    if after < WAIT_FELT || after < before * WAITS_LONGER {
        return None;
    }
    let (before, after) = (show_rounded(before), show_rounded(after));
    Some(DiagnosisSign {
        title: format!("`{}` receives more than it can process", member.queue),
        touched: state.waiting,
        evidence: vec![
            waiting(state.waiting),
            format!(
                "median wait for the first attempt: {before} for earlier deliveries, {after} for later ones"
            ),
        ],
        advice: format!(
            "make `{}` faster, raise its concurrency (now {}), or send less to it",
            member.rule.dependency.value, member.rule.in_flight.value
        ),
        line: member.rule.in_flight.origin.position().map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

fn sla_missed(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let rule = chart.any_row_of(&queue.name)?;
    let sla = rule.facts.sla.as_ref()?;
    let age = chart.ago(queue.oldest_waiting_at?);
    (queue.waiting > 0 && age > sla.value).then(|| DiagnosisSign {
        title: format!("`{}` is late: its oldest delivery has waited {}", queue.name, show_rounded(age)),
        touched: queue.waiting,
        evidence: vec![
            format!("oldest waiting delivery accepted {} ago", show_rounded(age)),
            format!("deliveries must be made within {}", show_duration(sla.value)),
            format!("{} in all", waiting(queue.waiting)),
        ],
        advice: format!("`redrive status` shows what holds up `{}`; see also the other findings", queue.name),
        line: Some(sla.span.position.line),
        ..DiagnosisSign::default()
    })
}

fn paused(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let Some(HeldQueue::Paused { since }) = queue.held else { return None };
    let (paused_for, service) = (chart.ago(since), &queue.name.service);
    (paused_for > PAUSE_MAX && queue.waiting > 0).then(|| DiagnosisSign {
        title: format!("`{}` has been paused for {}", queue.name, show_rounded(paused_for)),
        touched: queue.waiting,
        evidence: vec![format!("{} for it", waiting(queue.waiting))],
        advice: format!("`redrive resume {service}` ends the pause, if its reason is gone"),
        ..DiagnosisSign::default()
    })
}

fn removed(_: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    if queue.held != Some(HeldQueue::Removed) && queue.without_rule > 0 {
        return Some(DiagnosisSign {
            title: format!("deliveries of `{}` wait without a matching row", queue.name),
            touched: queue.without_rule,
            evidence: vec![format!("{} without a row and will never start", waiting(queue.without_rule))],
            advice: "restore the row until they are delivered, or use `redrive removed`".to_owned(),
            ..DiagnosisSign::default()
        });
    }
    (queue.held == Some(HeldQueue::Removed) && queue.waiting > 0).then(|| DiagnosisSign {
        title: format!("deliveries wait for `{}`, which is not in the rule book", queue.name),
        touched: queue.waiting,
        evidence: vec![format!("{} for it and will never start", waiting(queue.waiting))],
        advice: format!("restore `{}` in the book until they are delivered", queue.name),
        ..DiagnosisSign::default()
    })
}

fn blocked(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let rule = chart.any_row_of(&queue.name)?;
    let is_held = chart.evidence.held.iter().any(|held| held.queue == queue.name);
    if queue.behind < BEHIND_MIN || !exceeds(queue.behind, queue.waiting, BEHIND_PERCENT) || is_held {
        return None;
    }
    let (behind, share) = (queue.behind, percent(queue.behind, queue.waiting));
    let all = counted(queue.waiting, "delivery");
    Some(DiagnosisSign {
        title: format!("long sessions of `{}`: most waiting deliveries are behind another", queue.name),
        touched: queue.behind,
        evidence: vec![format!("{behind} of {all} waiting ({share}) are behind another of their session")],
        advice: "use finer sessions at the sender, or `order: none` if the target accepts any order"
            .to_owned(),
        line: rule.order.origin.position().map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

fn held(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let mut held: Vec<_> = chart
        .evidence
        .held
        .iter()
        .filter(|held| held.queue == queue.name && chart.ago(held.since) > HELD_MAX)
        .collect();
    held.sort_by_key(|held| held.since);
    let oldest = held.first()?;
    let behind: u64 = held.iter().map(|held| held.behind).sum();
    Some(DiagnosisSign {
        title: match held.len() as u64 {
            1 => format!("1 session of `{}` is blocked by a dead letter", queue.name),
            count => format!("{count} sessions of `{}` are blocked by dead letters", queue.name),
        },
        touched: behind.max(1),
        evidence: vec![
            format!(
                "session `{}` has been blocked for {}",
                oldest.session,
                show_rounded(chart.ago(oldest.since))
            ),
            format!("{} behind them", waiting(behind)),
        ],
        advice: format!(
            "`redrive dlq show {0}` shows the failure; replay it, or give up with `redrive dlq skip {0}`",
            oldest.letter
        ),
        line: chart.any_row_of(&queue.name)?.order.origin.position().map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

/// `None` if several services exist and none has a similar pattern.
fn likely_taker<'a>(services: &'a [ServiceEntry], event_type: &str) -> Option<&'a ServiceEntry> {
    let alike = |pattern: &str| {
        let pairs = pattern.split('.').zip(event_type.split('.'));
        pairs.take_while(|(own, other)| own == other).count()
    };
    let likeness = |service: &ServiceEntry| {
        service.rows.iter().map(|row| alike(row.pattern.value.as_str())).max().unwrap_or(0)
    };
    let takers = || services.iter().filter(|service| !service.rows.is_empty());
    // Of equals, the first in the book.
    let best = takers().rev().max_by_key(|service| likeness(service))?;
    (likeness(best) > 0 || takers().count() == 1).then_some(best)
}

fn unrouted(chart: &EvidenceChart<'_>) -> Option<DiagnosisSign> {
    // Types with a row by now only need routing.
    let sections = chart.evidence.book.sections();
    let wanted = |event_type: &str| !chart.evidence.book.subscribers(event_type).is_empty();
    let mut types: Vec<_> = chart.evidence.unrouted.iter().filter(|kind| kind.count > 0).collect();
    types.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    let count: u64 = types.iter().map(|kind| kind.count).sum();
    let first = types.first()?;
    let unmatched: Vec<_> = types.iter().filter(|kind| !wanted(&kind.event_type)).collect();
    let mut change = None;
    let advice = if unmatched.is_empty() {
        "all types have a row by now: run `redrive route --unrouted` to deliver them".to_owned()
    } else {
        for kind in unmatched.iter().take(TYPES_SHOWN_MAX) {
            let Some(service) = likely_taker(&sections.services, &kind.event_type) else { continue };
            let place = keys(&["services", service.name.as_str()]);
            let known = change.unwrap_or_else(Patch::new);
            change = Some(known.add(&place, "events", scalar(&kind.event_type)));
        }
        let guess =
            if change.is_some() { " (the change picks the one with the most similar events)" } else { "" };
        format!(
            "add a row to the service that should receive them{guess}, then run `redrive route --unrouted`; or \
             stop sending them"
        )
    };
    let others = if types.len() > 1 { " and others" } else { "" };
    let shown = types.iter().take(TYPES_SHOWN_MAX);
    Some(DiagnosisSign {
        title: format!("no row matches `{}`{others}", first.event_type),
        touched: count,
        evidence: shown
            .map(|kind| format!("{}: {}", kind.event_type, counted(kind.count, "event")))
            .collect(),
        advice,
        change: change.map(ProposedChange::unplayed),
        ..DiagnosisSign::default()
    })
}
