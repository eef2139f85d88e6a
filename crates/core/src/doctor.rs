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
//! - a change is a part of a rule book which, put into the book, leaves it without errors.

mod change;
mod evidence;
mod rules;
mod words;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::change::Change;
pub use self::evidence::{
    Chart, DependencyState, Evidence, HeldLetter, LetterKind, Member, QueueState, SeenDelivery, SeenState,
    Turn, Unrouted, Ward,
};
use crate::time::Timestamp;

/// Deliveries that are looked at, the latest ones.
pub const DELIVERIES_MAX: usize = 5_000;
/// What a row must have been through before its attempts prove anything.
pub const ATTEMPTS_MIN: u64 = 30;

/// How much harm something does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Harm {
    /// It costs something, and nobody is hurt.
    Low,
    /// It makes things slower or dearer than they need be.
    Medium,
    /// Deliveries fail that need not.
    High,
    /// Deliveries stand still, or most of them fail.
    Critical,
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
    pub look: Look,
}

/// What a diagnosis looks at.
#[derive(Clone, Copy, Debug)]
pub enum Look {
    /// The deliveries of one row of a service or a channel.
    Row(fn(&Chart<'_>, &Member<'_>) -> Option<Sign>),
    /// One dependency, with all the rows that lead to it.
    Dependency(fn(&Chart<'_>, &Ward<'_>) -> Option<Sign>),
    /// What waits for one service or channel, and what died there.
    Queue(fn(&Chart<'_>, &QueueState) -> Option<Sign>),
    /// Everything.
    Whole(fn(&Chart<'_>) -> Option<Sign>),
}

/// What a diagnosis saw.
#[derive(Clone, Debug)]
pub struct Sign {
    /// What is wrong, in a line.
    pub title: String,
    /// How many deliveries, attempts or letters are touched.
    pub touched: u64,
    /// What shows it, in lines.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// The part of the rule book that does it, if one does.
    pub change: Option<Change>,
    /// The line of the book that it is about.
    pub line: Option<u32>,
    /// How much harm it does, where that is not what it usually does.
    pub harm: Option<Harm>,
}

/// Something that ails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The diagnosis.
    pub code: &'static str,
    /// How much harm it does.
    pub harm: Harm,
    /// What is wrong, in a line.
    pub title: String,
    /// The service, or service/channel, if it is about one.
    pub service: Option<String>,
    /// The dependency, if it is about one.
    pub dependency: Option<String>,
    /// What shows it.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// The part of the rule book that does it: YAML to be put into the book.
    pub change: Option<String>,
    /// The line of the book that it is about.
    pub line: Option<u32>,
    /// How many deliveries, attempts or letters are touched.
    pub touched: u64,
}

/// What came of an examination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// What ails, the worst first.
    pub findings: Vec<Finding>,
    /// What there was to look at.
    pub looked_at: LookedAt,
    /// Rows that have seen too little to be judged.
    pub too_little: Vec<TooLittle>,
}

/// What there was to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    /// Deliveries.
    pub deliveries: u64,
    /// Their attempts.
    pub attempts: u64,
    /// When the oldest of them was accepted.
    pub since: Option<Timestamp>,
}

/// A row that has seen too little to be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLittle {
    /// The service, or service/channel.
    pub service: String,
    /// The patterns of its rows.
    pub events: String,
    /// Attempts there were.
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

/// Holds all that is known against every diagnosis.
#[must_use]
pub fn examine(evidence: &Evidence) -> Examined {
    let chart = Chart::of(evidence);
    let mut findings = Vec::new();
    for diagnosis in all() {
        look(diagnosis, &chart, &mut findings);
    }
    findings.sort_by_key(|finding| (Reverse(finding.harm), Reverse(finding.touched)));
    Examined { findings, looked_at: looked_at(evidence), too_little: too_little(&chart) }
}

fn look(diagnosis: &'static Diagnosis, chart: &Chart<'_>, findings: &mut Vec<Finding>) {
    let finding = |sign: Sign, service: Option<String>, dependency: Option<String>| Finding {
        code: diagnosis.code,
        harm: sign.harm.unwrap_or(diagnosis.harm),
        title: sign.title,
        service,
        dependency,
        evidence: sign.evidence,
        advice: sign.advice,
        change: sign.change.map(|change| change.to_string()),
        line: sign.line,
        touched: sign.touched,
    };
    match diagnosis.look {
        Look::Row(run) => findings.extend(chart.members().filter_map(|member| {
            let dependency = member.rule.dependency.value.to_string();
            Some(finding(run(chart, member)?, Some(member.queue.to_string()), Some(dependency)))
        })),
        Look::Dependency(run) => findings.extend(
            chart
                .wards()
                .filter_map(|ward| Some(finding(run(chart, ward)?, None, Some(ward.name.to_string())))),
        ),
        Look::Queue(run) => {
            let queues = chart.evidence.queues.iter();
            let look =
                |queue| run(chart, queue).map(|sign| finding(sign, Some(queue.name.to_string()), None));
            findings.extend(queues.filter_map(look));
        }
        Look::Whole(run) => findings.extend(run(chart).map(|sign| finding(sign, None, None))),
    }
}

fn looked_at(evidence: &Evidence) -> LookedAt {
    let deliveries = &evidence.deliveries;
    let attempts = deliveries.iter().map(|delivery| delivery.attempts().count() as u64);
    LookedAt {
        deliveries: deliveries.len() as u64,
        attempts: attempts.sum(),
        since: deliveries.iter().map(|delivery| delivery.accepted_at).min(),
    }
}

fn too_little(chart: &Chart<'_>) -> Vec<TooLittle> {
    let few = chart.members().filter(|member| member.attempts_made() < ATTEMPTS_MIN);
    let told = few.map(|member| TooLittle {
        service: member.queue.to_string(),
        events: member.patterns.iter().copied().collect::<Vec<_>>().join(", "),
        attempts: member.attempts_made(),
    });
    told.collect()
}
