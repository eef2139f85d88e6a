//! What ails a server, and the change to the rule book that would help: `redrive doctor`.
//!
//! A diagnosis is data, as a lint is: a code that never changes, how much harm it does, a paragraph for
//! people, and a function that looks. What lints know from the book alone, diagnoses know from what has
//! happened: attempts with their stories, breakers, queues, dead letters.
//!
//! Invariants:
//! - a diagnosis that has seen too little says so and finds nothing; the least that it needs has a name;
//! - attempts are held against the rule as it reads now: what happened under another limit or another policy
//!   proves nothing, so that a finding goes away once its change is made;
//! - a change is a part of a rule book which, put into the book, leaves it without errors;
//! - a change to how deliveries go is simulated before it is proposed, and says what it gains.

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

use self::evidence::{EvidenceChart, RowEvidence, DependencyEvidence};
pub use self::evidence::{
    DependencyState, DoctorEvidence, HeldLetter, LetterKind, QueueState, ExaminedDelivery, ExaminedState, BreakerTurn, Unrouted,
};
pub use self::proof::ProofGain;
use self::proof::{ProposedChange, Prover, ProofResult};
use redrive_core::book::patch::Patch;
use redrive_core::time::Timestamp;

/// Deliveries that are looked at, the latest ones.
pub const DELIVERIES_MAX: usize = 5_000;
/// What a row must have been through before its attempts prove anything.
pub const ATTEMPTS_MIN: u64 = 30;

/// How much harm something does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorHarm))]
#[serde(rename_all = "lowercase")]
pub enum Harm {
    // Deliveries stand still, or most of them fail.
    Critical,
    // Deliveries fail that need not.
    High,
    // Things are slower or dearer than they need be.
    Medium,
    Low,
}

impl Harm {
    /// All four, the worst first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// What is left of it where a change to the book hardly helps: failures that need not be are what is high.
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

/// Something to look for.
#[derive(Debug)]
pub struct Diagnosis {
    /// Its name, for searching.
    pub code: &'static str,
    /// How much harm it does, unless what was seen says otherwise.
    pub harm: Harm,
    /// What it finds, in half a line.
    pub summary: &'static str,
    /// Why that hurts and what to do, in a paragraph.
    pub explanation: &'static str,
    /// The least that it must have seen, in words.
    pub needs: &'static str,
    /// How it looks.
    look: DiagnosisCheck,
}

/// What a diagnosis looks at.
#[derive(Clone, Copy, Debug)]
enum DiagnosisCheck {
    /// The deliveries of one row of a service or a channel.
    Row(fn(&EvidenceChart<'_>, &RowEvidence<'_>) -> Option<DiagnosisSign>),
    /// One dependency, with all the rows that lead to it.
    Dependency(fn(&EvidenceChart<'_>, &DependencyEvidence<'_>) -> Option<DiagnosisSign>),
    /// What waits for one service or channel, and what died there.
    Queue(fn(&EvidenceChart<'_>, &QueueState) -> Option<DiagnosisSign>),
    /// Everything.
    Whole(fn(&EvidenceChart<'_>) -> Option<DiagnosisSign>),
}

/// What a diagnosis saw.
#[derive(Clone, Debug, Default)]
struct DiagnosisSign {
    /// What is wrong, in a line.
    title: String,
    /// How many deliveries, attempts or letters are touched.
    touched: u64,
    /// What shows it, in lines.
    evidence: Vec<String>,
    /// What to do.
    advice: String,
    /// The part of the rule book that may do it, if one does.
    change: Option<ProposedChange>,
    /// The line of the book that it is about.
    line: Option<u32>,
    /// How much harm it does, where that is not what it usually does.
    harm: Option<Harm>,
}

/// Something that ails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorFinding))]
pub struct DoctorFinding {
    /// The diagnosis: `redrive doctor --explain` tells more of it.
    pub code: Cow<'static, str>,
    pub harm: Harm,
    /// What is wrong, in a line.
    pub title: String,
    /// The service, or service/channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// What shows it, in lines.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// The part of the rule book that does it: YAML to be put into the book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// What the change gains when what was seen is simulated with it, and with the changes of findings before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<ProofGain>,
    /// The line of the rule book that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// How many deliveries, attempts or letters are touched.
    pub touched: u64,
}

/// What ails, and what was looked at to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorReport))]
pub struct DoctorReport {
    pub looked_at: ExaminedScope,
    /// The worst first.
    pub findings: Vec<DoctorFinding>,
    /// All changes in one: YAML to be put into the book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Rows that have seen too little to be judged.
    pub too_little: Vec<SparseRow>,
}

/// What there was to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorLookedAt))]
pub struct ExaminedScope {
    pub deliveries: u64,
    pub attempts: u64,
    /// When the oldest of them was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A row that has seen too little to be judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DoctorTooLittle))]
pub struct SparseRow {
    /// The service, or service/channel.
    pub service: String,
    /// The patterns of its rows.
    pub events: String,
    pub attempts: u64,
}

/// Every diagnosis, in the order of their families.
pub fn all() -> impl Iterator<Item = &'static Diagnosis> {
    rules::FAMILIES.iter().copied().flatten()
}

/// The diagnosis of that code.
#[must_use]
pub fn find(code: &str) -> Option<&'static Diagnosis> {
    all().find(|diagnosis| diagnosis.code == code)
}

/// Holds all that is known against every diagnosis. No two findings say something of the same key of the book.
#[must_use]
pub fn examine(evidence: &DoctorEvidence) -> DoctorReport {
    examine_within(evidence, proof::LOOKS_MAX)
}

/// Plays no more changes than fit into so many looks of their runs.
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

/// The worst comes first; of equals a cause before what follows from it.
fn rank(finding: &DoctorFinding) -> (Harm, bool, Reverse<u64>) {
    (finding.harm, !rules::is_cause(&finding.code), Reverse(finding.touched))
}

/// Plays every change, and leaves those that help; where two speak of the same keys, the first has both.
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
                    Some(code) => add(&mut finding.advice, &format!("the change of `{code}` has it")),
                    None => changes.push((findings.len(), change)),
                }
            }
            Some(ProofResult::HelpedAlready) => {
                add(&mut finding.advice, "simulated, the changes that are proposed above help here too");
            }
            Some(ProofResult::Taken(key)) => {
                let later = format!("make the other change of `{key}` first, and look again");
                add(&mut finding.advice, &later);
            }
            Some(ProofResult::OutOfBudget) => {
                let why = "not simulated, so no change is proposed: the budget of simulations is spent; make \
                           the other changes first, or look at one service";
                add(&mut finding.advice, why);
            }
            Some(ProofResult::HardlyHelps(gain)) => {
                let why =
                    format!("not proposed as a change, since simulated it hardly helps: {}", gain.words);
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

fn look(diagnosis: &'static Diagnosis, chart: &EvidenceChart<'_>, findings: &mut Vec<(DoctorFinding, Option<ProposedChange>)>) {
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
    let told = few.map(|member| SparseRow {
        service: member.queue.to_string(),
        events: member.patterns.iter().copied().collect::<Vec<_>>().join(", "),
        attempts: member.attempts_made(),
    });
    told.collect()
}
