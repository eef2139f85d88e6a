//! Alerts as they are shown.

use serde::{Deserialize, Serialize};

use super::notice::AlertSubject;
use crate::time::Timestamp;

/// One alert as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlertView {
    /// Its name.
    pub name: String,
    /// The condition as it stands in the rule book.
    pub when: String,
    /// How urgent it is: `warning`, `medium`, `high` or `critical`.
    pub severity: String,
    /// The receivers to notify.
    pub to: Vec<String>,
    /// Who is told next, as long as it is not over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate: Vec<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The line of the rule book; none is on by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What it looks at, if that is not everything: `service orders`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// Where it stands.
    pub state: AlertState,
    /// Since when it is pending or fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The figure as it was last seen, where there is one for all: of several subjects it is the worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What it is pending or raised for, at most [`crate::limits::ALERT_SUBJECTS_SHOWN_MAX`].
    pub subjects: Vec<AlertSubject>,
    /// How many more there are than are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// How many messages went out since it began.
    pub told: u32,
    /// When the last of them did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_told_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where an alert stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AlertState {
    /// Its condition does not hold.
    Quiet,
    /// It holds, and not yet for as long as it must.
    Pending,
    /// It is raised.
    Firing,
}

impl AlertState {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}
