//! What the doctor found, as it is shown.

use redrive_core::time::Timestamp;
use redrive_lab::doctor::Harm;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What ails, and what was looked at to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoctorReport {
    pub looked_at: DoctorLookedAt,
    /// The worst first.
    pub findings: Vec<DoctorFinding>,
    /// All changes in one: YAML to be put into the book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Rows that have seen too little to be judged.
    pub too_little: Vec<DoctorTooLittle>,
}

/// What there was to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoctorLookedAt {
    pub deliveries: u64,
    pub attempts: u64,
    /// When the oldest of them was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Something that ails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoctorFinding {
    /// The diagnosis: `redrive doctor --explain` tells more of it.
    pub code: String,
    #[schema(value_type = DoctorHarm)]
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
    pub gain: Option<DoctorGain>,
    /// The line of the rule book that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// How many deliveries, attempts or letters are touched.
    pub touched: u64,
}

/// What a change gains when it is simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoctorGain {
    /// All of it in words.
    pub words: String,
    /// What became less.
    pub figure: String,
    /// What it is without the change; times are in milliseconds.
    pub before: u64,
    /// What it is with it.
    pub after: u64,
    /// How many deliveries were simulated.
    pub deliveries: u64,
}

/// How much harm something does.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is there for the description; the core has its own")]
pub(crate) enum DoctorHarm {
    Critical,
    High,
    Medium,
    Low,
}

/// A row that has seen too little to be judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoctorTooLittle {
    /// The service, or service/channel.
    pub service: String,
    /// The patterns of its rows.
    pub events: String,
    pub attempts: u64,
}
