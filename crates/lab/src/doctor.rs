//! Finds problems of a running server and the rule-book change that would help: `redrive doctor`.
//!
//! A diagnosis is data, like a lint: a stable code, a severity, an explanation and a check. Lints look at the book,
//! diagnoses at recorded attempts, breakers, queues and dead letters.
//!
//! Invariants:
//! - a diagnosis with too little evidence reports nothing; its minimum is a named constant;
//! - attempts count only if they were made under the current limit and policy, so a finding disappears once its
//!   change is made;
//! - a change merged into the book leaves it without errors;
//! - a change that affects deliveries is simulated before it is proposed.

mod change;
mod evidence;
mod proof;
mod rules;
mod words;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::evidence::{
    BreakerTurn, DependencyState, DoctorEvidence, ExaminedDelivery, ExaminedState, HeldLetter, LetterKind,
    QueueState, Unrouted,
};
use self::evidence::{DependencyEvidence, EvidenceChart, RowEvidence};
pub use self::proof::ProofGain;
use self::proof::{ProofResult, ProposedChange, Prover};
use redrive_core::book::patch::Patch;
use redrive_core::time::Timestamp;

pub const DELIVERIES_MAX: usize = 5_000;
/// Rows with fewer attempts are not judged.
pub const ATTEMPTS_MIN: u64 = 30;

/// How much harm a problem does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorHarm))]
#[serde(rename_all = "lowercase")]
pub enum Harm {
    // Deliveries are stuck, or most of them fail.
    Critical,
    // Deliveries fail that could succeed.
    High,
    // Deliveries are slower or more expensive than necessary.
    Medium,
    Low,
}

impl Harm {
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The severity if no change to the book helps: high means that failures are avoidable.
    const fn without_a_cure(self) -> Self {
        match self {
            Self::High => Self::Medium,
            Self::Low | Self::Medium | Self::Critical => self,
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug)]
pub struct Diagnosis {
    pub code: &'static str,
    /// The default; evidence may change it.
    pub harm: Harm,
    pub summary: &'static str,
    pub explanation: &'static str,
    pub needs: &'static str,
    look: DiagnosisCheck,
}

#[derive(Clone, Copy, Debug)]
enum DiagnosisCheck {
    Row(fn(&EvidenceChart<'_>, &RowEvidence<'_>) -> Option<DiagnosisSign>),
    Dependency(fn(&EvidenceChart<'_>, &DependencyEvidence<'_>) -> Option<DiagnosisSign>),
    Queue(fn(&EvidenceChart<'_>, &QueueState) -> Option<DiagnosisSign>),
    Whole(fn(&EvidenceChart<'_>) -> Option<DiagnosisSign>),
}

#[derive(Clone, Debug, Default)]
struct DiagnosisSign {
    title: String,
    touched: u64,
    evidence: Vec<String>,
    advice: String,
    change: Option<ProposedChange>,
    line: Option<u32>,
    harm: Option<Harm>,
}

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorFinding))]
pub struct DoctorFinding {
    /// The code of the diagnosis, for `redrive doctor --explain`.
    pub code: Cow<'static, str>,
    pub harm: Harm,
    /// The problem in one line.
    pub title: String,
    /// The service, or service/channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// The evidence, one line each.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// YAML to merge into the rule book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// The gain in a simulation of the recorded traffic, with the changes of earlier findings applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<ProofGain>,
    /// The line of the rule book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The number of affected deliveries, attempts or dead letters.
    pub touched: u64,
}

/// The result of an examination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorReport))]
pub struct DoctorReport {
    pub looked_at: ExaminedScope,
    /// The worst first.
    pub findings: Vec<DoctorFinding>,
    /// All changes together: YAML to merge into the rule book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Rows with too few attempts to judge.
    pub too_little: Vec<SparseRow>,
}

/// What was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorLookedAt))]
pub struct ExaminedScope {
    pub deliveries: u64,
    pub attempts: u64,
    /// When the oldest delivery was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A row with too few attempts to judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorTooLittle))]
pub struct SparseRow {
    /// The service, or service/channel.
    pub service: String,
    /// The patterns of its rows.
    pub events: String,
    pub attempts: u64,
}

pub fn all() -> impl Iterator<Item = &'static Diagnosis> {
    rules::FAMILIES.iter().copied().flatten()
}

#[must_use]
pub fn find(code: &str) -> Option<&'static Diagnosis> {
    all().find(|diagnosis| diagnosis.code == code)
}

/// Runs every diagnosis. No two findings change the same key of the book.
#[must_use]
pub fn examine(evidence: &DoctorEvidence) -> DoctorReport {
    examine_within(evidence, proof::LOOKS_MAX)
}

/// `looks_max` bounds the simulations, in progress callbacks.
fn examine_within(evidence: &DoctorEvidence, looks_max: u64) -> DoctorReport {
    let chart = EvidenceChart::of(evidence);
    let mut found = Vec::new();
    for diagnosis in all() {
        look(diagnosis, &chart, &mut found);
    }
    found.sort_by_key(|(finding, _)| rank(finding));
    let (mut findings, change) = proven(&chart, found, looks_max);
    findings.sort_by_key(rank);
    let change = (!change.is_empty()).then(|| change.to_string());
    DoctorReport { findings, change, looked_at: looked_at(evidence), too_little: too_little(&chart) }
}

/// The worst first; among equals, causes before consequences.
fn rank(finding: &DoctorFinding) -> (Harm, bool, Reverse<u64>) {
    (finding.harm, !rules::is_cause(&finding.code), Reverse(finding.touched))
}

/// Simulates every change and keeps those that help; changes to the same keys are merged into the first.
fn proven(
    chart: &EvidenceChart<'_>,
    found: Vec<(DoctorFinding, Option<ProposedChange>)>,
    looks_max: u64,
) -> (Vec<DoctorFinding>, Patch) {
    let mut prover = Prover::new(chart, looks_max);
    let mut findings: Vec<DoctorFinding> = Vec::new();
    let mut changes: Vec<(usize, Patch)> = Vec::new();
    for (mut finding, proposed) in found {
        let weighed = proposed.map(|proposed| prover.weigh(finding.dependency.as_deref(), &proposed));
        match weighed {
            None | Some(ProofResult::Unknown) => {}
            Some(ProofResult::Helps { change, advice, gain }) => {
                finding.advice = advice.unwrap_or(finding.advice);
                if gain.as_ref().is_some_and(ProofGain::is_little) {
                    finding.harm = finding.harm.without_a_cure();
                }
                finding.gain = gain;
                let same = changes.iter_mut().find(|(_, known)| known.overlaps(&change));
                let merged = same.and_then(|(place, known)| {
                    *known = known.merged(&change).ok()?;
                    Some(&findings[*place].code)
                });
                match merged {
                    Some(code) => add(&mut finding.advice, &format!("included in the change of `{code}`")),
                    None => changes.push((findings.len(), change)),
                }
            }
            Some(ProofResult::HelpedAlready) => {
                add(&mut finding.advice, "in a simulation, the changes proposed above help here too");
            }
            Some(ProofResult::Taken(key)) => {
                let later = format!("apply the other change of `{key}` first, then run doctor again");
                add(&mut finding.advice, &later);
            }
            Some(ProofResult::OutOfBudget) => {
                let why = "no change proposed: the simulation budget is used up; apply the other changes first, \
                           or examine one service";
                add(&mut finding.advice, why);
            }
            Some(ProofResult::HardlyHelps(gain)) => {
                let why = format!("no change proposed: it hardly helps in a simulation: {}", gain.words);
                add(&mut finding.advice, &why);
                finding.harm = finding.harm.without_a_cure();
            }
        }
        findings.push(finding);
    }
    for (place, change) in changes {
        findings[place].change = Some(change.to_string());
    }
    (findings, prover.patch())
}

fn add(advice: &mut String, more: &str) {
    advice.push_str(" (");
    advice.push_str(more);
    advice.push(')');
}

fn look(
    diagnosis: &'static Diagnosis,
    chart: &EvidenceChart<'_>,
    findings: &mut Vec<(DoctorFinding, Option<ProposedChange>)>,
) {
    let finding = |sign: DiagnosisSign, service: Option<String>, dependency: Option<String>| {
        let finding = DoctorFinding {
            code: Cow::Borrowed(diagnosis.code),
            harm: sign.harm.unwrap_or(diagnosis.harm),
            title: sign.title,
            service,
            dependency,
            evidence: sign.evidence,
            advice: sign.advice,
            change: None,
            gain: None,
            line: sign.line,
            touched: sign.touched,
        };
        (finding, sign.change)
    };
    match diagnosis.look {
        DiagnosisCheck::Row(run) => findings.extend(chart.members().filter_map(|member| {
            let dependency = member.rule.dependency.value.to_string();
            Some(finding(run(chart, member)?, Some(member.queue.to_string()), Some(dependency)))
        })),
        DiagnosisCheck::Dependency(run) => findings.extend(
            chart
                .wards()
                .filter_map(|ward| Some(finding(run(chart, ward)?, None, Some(ward.name.to_string())))),
        ),
        DiagnosisCheck::Queue(run) => {
            let queues = chart.evidence.queues.iter();
            let look =
                |queue| run(chart, queue).map(|sign| finding(sign, Some(queue.name.to_string()), None));
            findings.extend(queues.filter_map(look));
        }
        DiagnosisCheck::Whole(run) => findings.extend(run(chart).map(|sign| finding(sign, None, None))),
    }
}

fn looked_at(evidence: &DoctorEvidence) -> ExaminedScope {
    let deliveries = &evidence.deliveries;
    let attempts = deliveries.iter().map(|delivery| delivery.attempts().count() as u64);
    ExaminedScope {
        deliveries: deliveries.len() as u64,
        attempts: attempts.sum(),
        since: deliveries.iter().map(|delivery| delivery.accepted_at).min(),
    }
}

fn too_little(chart: &EvidenceChart<'_>) -> Vec<SparseRow> {
    let few = chart.members().filter(|member| member.attempts_made() < ATTEMPTS_MIN);
    let sparse = few.map(|member| SparseRow {
        service: member.queue.to_string(),
        events: member.patterns.iter().copied().collect::<Vec<_>>().join(", "),
        attempts: member.attempts_made(),
    });
    sparse.collect()
}
