//! The rule book as it is shown: its text, what is wrong with it, and what follows from it.

use redrive_core::book::problem::Problem;
use redrive_core::text::hide_passwords;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The rule book that holds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BookJson {
    /// As it was written, but for the passwords of addresses. Below admin, their query values and the paths
    /// of webhooks are masked too.
    pub text: String,
    /// What tells it from another.
    pub hash: String,
    /// The file it was read from; none is the built-in book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Since when it holds.
    pub read_at: Timestamp,
    /// What is wrong with it, or may be.
    pub findings: Vec<FindingJson>,
    /// Its own retry policies, and those of the catalog that it uses.
    pub policies: Vec<PolicyJson>,
    pub services: Vec<BookServiceJson>,
}

/// Something that is wrong with a rule book or a scenario, or may be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct FindingJson {
    #[schema(pattern = "^(error|warning|info)$")]
    pub severity: String,
    pub code: String,
    /// 0 where it stands in no line.
    pub line: u32,
    pub column: u32,
    pub message: String,
    pub help: String,
}

impl From<Problem> for FindingJson {
    fn from(problem: Problem) -> Self {
        Self {
            severity: problem.severity.to_string(),
            code: problem.code.to_owned(),
            line: problem.span.position.line,
            column: problem.span.position.column,
            message: hide_passwords(&problem.message).into_owned(),
            help: problem.help,
        }
    }
}

/// A retry policy with its delays.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PolicyJson {
    pub name: String,
    /// Where it stands; none is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The rows that retry by it: the service and the event type.
    pub used_by: Vec<String>,
    /// In words.
    pub summary: String,
    pub steps: Vec<RetryStepJson>,
    /// After how long it gives up at the latest, leaving out how long attempts take; none is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up_after_ms: Option<u64>,
}

/// One retry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RetryStepJson {
    /// Which, from 1.
    pub retry: u32,
    /// The delay before jitter.
    pub delay_ms: f64,
    /// The shortest it may be.
    pub min_ms: f64,
    /// The longest it may be.
    pub max_ms: f64,
    /// When it starts at the earliest, after the first attempt.
    pub at_min_ms: f64,
    /// When it starts at the latest.
    pub at_max_ms: f64,
}

/// A service and what it takes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BookServiceJson {
    pub service: String,
    pub channels: Vec<String>,
    /// Event types or patterns, those of its channels too.
    pub types: Vec<String>,
}

/// What holds for one type of event of one service.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RuleJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(rename = "type")]
    pub event_type: String,
    /// Where its row stands in the rule book.
    pub line: u32,
    pub values: Vec<RuleValueJson>,
}

/// A value and where it came from.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RuleValueJson {
    /// What it belongs to.
    pub group: String,
    pub name: String,
    pub value: String,
    /// What else helps to understand it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Where it came from, in words.
    pub from: String,
    /// Where it is stated; none is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
