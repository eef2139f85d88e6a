//! JSON types of the rule book: its text, findings, policies and rules.

use redrive_core::book::problem::Problem;
use redrive_core::text::hide_passwords;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The active rule book.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BookJson {
    /// As written, without passwords in addresses. For roles below admin, query values of addresses and
    /// webhook paths are masked too.
    pub text: String,
    /// Identifies this version.
    pub hash: String,
    /// The file it was read from; absent for the built-in book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When it became active.
    pub read_at: Timestamp,
    /// Problems and warnings.
    pub findings: Vec<FindingJson>,
    /// Its own retry policies, and those of the catalog that it uses.
    pub policies: Vec<PolicyJson>,
    pub services: Vec<BookServiceJson>,
}

/// A problem or warning about a rule book or a scenario.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct FindingJson {
    #[schema(pattern = "^(error|warning|info)$")]
    pub severity: String,
    pub code: String,
    /// 0 if there is no line.
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
    /// The line that defines it; absent if built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The rows that use it: service and event type.
    pub used_by: Vec<String>,
    /// One-line summary.
    pub summary: String,
    pub steps: Vec<RetryStepJson>,
    /// Latest time at which it gives up, without the duration of attempts; absent if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up_after_ms: Option<u64>,
}

/// One retry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RetryStepJson {
    /// Number of the retry, from 1.
    pub retry: u32,
    /// Delay before jitter.
    pub delay_ms: f64,
    /// Shortest delay.
    pub min_ms: f64,
    /// Longest delay.
    pub max_ms: f64,
    /// Earliest start, counted from the first attempt.
    pub at_min_ms: f64,
    /// Latest start.
    pub at_max_ms: f64,
}

/// A service and its subscriptions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BookServiceJson {
    pub service: String,
    pub channels: Vec<String>,
    /// Event types or patterns, including those of its channels.
    pub types: Vec<String>,
}

/// The rule that applies to one event type of a service.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RuleJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(rename = "type")]
    pub event_type: String,
    /// The line of its row in the rule book.
    pub line: u32,
    pub values: Vec<RuleValueJson>,
}

/// A value and its origin.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RuleValueJson {
    pub group: String,
    pub name: String,
    pub value: String,
    /// More detail on the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Origin, in words.
    pub from: String,
    /// Where it is defined; absent if built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
