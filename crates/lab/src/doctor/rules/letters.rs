//! Diagnoses for dead letters that are old, increasing, or share one cause.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::doctor::change::{Patch, scalar};
use crate::doctor::evidence::{EvidenceChart, LetterKind, QueueState};
use crate::doctor::proof::ProposedChange;
use crate::doctor::words::{counted, exceeds, percent};
use crate::doctor::{Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use redrive_core::book::expression::AlertMetric;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::text::{show_duration, show_rounded};

const UNTOUCHED_FOR: Duration = Duration::from_hours(48);
const INFLOW_MIN: u64 = 20;
const INFLOW_OVER: Duration = Duration::from_hours(1);
const INFLOW_GROWS: u64 = 2;
const LETTERS_MIN: u64 = 10;
const ONE_CAUSE_PERCENT: u64 = 60;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "letters-untouched",
        harm: Harm::Medium,
        summary: "dead letters have been waiting for more than two days",
        explanation: "These dead letters have waited for more than 48 hours without being replayed, skipped or \
                      purged; when their retention ends they are deleted. Check the causes, replay what can be \
                      delivered by now, and skip the rest deliberately.",
        needs: "a dead letter older than 48 hours",
        look: DiagnosisCheck::Queue(untouched),
    },
    Diagnosis {
        code: "letters-come-faster",
        harm: Harm::High,
        summary: "twice as many new dead letters in the last hour as in the hour before",
        explanation: "Something has just broken or is getting worse: the rate of new dead letters has doubled \
                      within an hour. The causes of the latest ones show what.",
        needs: "20 dead letters from the last hour",
        look: DiagnosisCheck::Queue(faster),
    },
    Diagnosis {
        code: "one-cause",
        harm: Harm::Medium,
        summary: "one cause accounts for most of the dead letters",
        explanation: "Most of the dead letters failed in the same way, so one fix resolves nearly all of them. \
                      Fix the cause, then replay the group, first with `--dry-run` to preview it.",
        needs: "10 dead letters",
        look: DiagnosisCheck::Whole(one_cause),
    },
    Diagnosis {
        code: "poison-letters",
        harm: Harm::Medium,
        summary: "some dead letters are skipped by replays",
        explanation: "A dead letter is poison if it does not parse, or if it failed again as many replays as the \
                      book allows. Replays skip it: fix the data with `redrive dlq edit`, or give up with \
                      `redrive dlq skip`.",
        needs: "one poison letter",
        look: DiagnosisCheck::Queue(poison),
    },
    Diagnosis {
        code: "letters-unwatched",
        harm: Harm::High,
        summary: "dead letters exist and no alert watches them",
        explanation: "Deliveries have failed permanently and no alert of the book watches the number, age or \
                      rate of dead letters. The next ones will be found by chance as well.",
        needs: "one dead letter",
        look: DiagnosisCheck::Queue(unwatched),
    },
];

fn kinds<'a>(chart: &EvidenceChart<'a>, queue: &QueueState) -> Vec<&'a LetterKind> {
    chart.evidence.letters.iter().filter(|kind| kind.queue == queue.name && kind.count > 0).collect()
}

fn untouched(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let kinds = kinds(chart, queue);
    let old: Vec<_> = kinds.iter().filter(|kind| chart.ago(kind.first_at) > UNTOUCHED_FOR).collect();
    let oldest = old.iter().map(|kind| kind.first_at).min()?;
    let count: u64 = old.iter().map(|kind| kind.count).sum();
    let (age, limit) = (show_rounded(chart.ago(oldest)), show_duration(UNTOUCHED_FOR));
    Some(DiagnosisSign {
        title: format!("dead letters of `{}` have been waiting for {age}", queue.name),
        touched: count,
        evidence: vec![
            format!("{} with causes older than {limit}", counted(count, "letter")),
            format!("oldest dead letter: {age}"),
        ],
        advice: format!(
            "`redrive dlq groups --service {0}` shows the causes; `redrive dlq replay --service {0} --dry-run` \
             previews a replay",
            queue.name.service
        ),
        ..DiagnosisSign::default()
    })
}

fn faster(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let deaths = chart.evidence.deliveries.iter().filter(|delivery| delivery.queue == queue.name);
    let (mut lately, mut before) = (0_u64, 0_u64);
    let mut seen_since = chart.evidence.now;
    for delivery in deaths {
        seen_since = seen_since.min(delivery.accepted_at);
        if let Some((at, _)) = delivery.death() {
            let age = chart.ago(at);
            lately += u64::from(age <= INFLOW_OVER);
            before += u64::from(age > INFLOW_OVER && age <= 2 * INFLOW_OVER);
        }
    }
    // The sample must cover both hours.
    let is_known = chart.ago(seen_since) >= 2 * INFLOW_OVER;
    if lately < INFLOW_MIN || !is_known || lately < before * INFLOW_GROWS {
        return None;
    }
    Some(DiagnosisSign {
        title: format!("dead letters of `{}` are increasing", queue.name),
        touched: lately,
        evidence: vec![format!("{lately} in the last hour"), format!("{before} in the hour before")],
        advice: format!("`redrive dlq groups --service {}` shows the causes", queue.name.service),
        ..DiagnosisSign::default()
    })
}

fn one_cause(chart: &EvidenceChart<'_>) -> Option<DiagnosisSign> {
    let mut causes: BTreeMap<u64, (Fingerprint, u64, &LetterKind)> = BTreeMap::new();
    for kind in &chart.evidence.letters {
        causes.entry(kind.fingerprint.0).or_insert((kind.fingerprint, 0, kind)).1 += kind.count;
    }
    let all: u64 = causes.values().map(|(_, count, _)| count).sum();
    let (fingerprint, count, kind) = causes.into_values().max_by_key(|(_, count, _)| *count)?;
    if all < LETTERS_MIN || !exceeds(count, all, ONE_CAUSE_PERCENT) {
        return None;
    }
    Some(DiagnosisSign {
        title: format!("one cause accounts for {} of the dead letters", percent(count, all)),
        touched: count,
        evidence: vec![
            format!("{count} of {} are in group {fingerprint}", counted(all, "letter")),
            format!("`{}` failed with {} ({})", kind.queue, kind.failure_code, kind.category),
            format!("latest dead letter {} ago", show_rounded(chart.ago(kind.last_at))),
        ],
        advice: format!(
            "fix the cause, then run `redrive dlq replay --fingerprint {fingerprint} --dry-run`, and without \
             `--dry-run` once the preview is right"
        ),
        ..DiagnosisSign::default()
    })
}

fn poison(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let kinds = kinds(chart, queue);
    let poison: Vec<_> = kinds.iter().filter(|kind| kind.tier == Tier::Poison).collect();
    let count: u64 = poison.iter().map(|kind| kind.count).sum();
    let worst = poison.iter().max_by_key(|kind| kind.count)?;
    let most = if count == 1 { "it is" } else { "most of them are" };
    Some(DiagnosisSign {
        title: format!("`{}` has {} that replays skip", queue.name, counted(count, "poison letter")),
        touched: count,
        evidence: vec![format!("{most} `{}` and failed with {}", worst.event_type, worst.failure_code)],
        advice: format!(
            "`redrive dlq list --service {} --tier poison` lists them; fix the data with `redrive dlq edit`, or \
             give up with `redrive dlq skip`",
            queue.name.service
        ),
        ..DiagnosisSign::default()
    })
}

fn unwatched(chart: &EvidenceChart<'_>, queue: &QueueState) -> Option<DiagnosisSign> {
    let rule = chart.any_row_of(&queue.name)?;
    let sections = chart.evidence.book.sections();
    let looks = |metric: AlertMetric| {
        matches!(
            metric,
            AlertMetric::DeadLetters | AlertMetric::DeadLetterAge | AlertMetric::DeadLetterInflow
        )
    };
    let own = rule.alerts.iter().map(|(alert, _)| *alert);
    let is_watched =
        own.chain(&sections.alerts).any(|alert| looks(alert.when.metric)) || rule.dead_letter.alert.is_some();
    let is_allowed = rule.allow.iter().any(|allow| allow.lint.value == "dead-letters-unwatched");
    if queue.dead == 0 || is_watched || is_allowed {
        return None;
    }
    let receiver = sections.receivers.keys().next();
    let change = receiver.map(|receiver| {
        let to = scalar(receiver);
        let alerts = [("dead_letter_age > 48h", "medium"), ("dead_letter_inflow > 10/m", "high")];
        alerts.iter().fold(Patch::new(), |patch, (when, severity)| {
            patch.add(&[], "alerts", format!("{{ when: {when}, severity: {severity}, to: [{to}] }}"))
        })
    });
    Some(DiagnosisSign {
        title: format!("no alert watches the dead letters of `{}`", queue.name),
        touched: queue.dead,
        evidence: vec![
            format!("it has {}", counted(queue.dead, "dead letter")),
            "no alert of the book watches dead letters".to_owned(),
        ],
        advice: match &change {
            Some(_) => "add alerts on their age and rate".to_owned(),
            None => {
                "add a receiver under `receivers`, and alerts on the age and rate of dead letters".to_owned()
            }
        },
        change: change.map(ProposedChange::unplayed),
        ..DiagnosisSign::default()
    })
}
