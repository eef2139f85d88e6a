//! The JSON of readiness.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether events are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ready`, or `degraded` while something is wrong that keeps no event out.
    #[schema(pattern = "^(ready|degraded)$")]
    pub status: String,
    /// What is wrong; empty when all is well.
    pub degraded: Vec<Degraded>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Degraded {
    /// The kind, for machines: `breaker-open`, `secret-stale`, `book-refused` …
    pub what: String,
    /// In words, with names for whoever may read everything.
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}
