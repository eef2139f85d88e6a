//! Alerts as the API shows them.

use serde::{Deserialize, Serialize};

use super::notice::AlertSubject;
use crate::time::Timestamp;

/// The current state of one alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlertView {
    /// The alert's name.
    pub name: String,
    /// The condition from the rule book.
    pub when: String,
    /// How urgent it is: `warning`, `medium`, `high` or `critical`.
    pub severity: String,
    /// Receivers.
    pub to: Vec<String>,
    /// Receivers notified next while it fires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate: Vec<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The line in the rule book; none if it is on by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Its scope, unless it is everything: `service orders`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// The alert's state.
    pub state: AlertState,
    /// When it became pending or started firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The last measured value; with several subjects, the worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Subjects it is pending or firing for, at most [`crate::limits::ALERT_SUBJECTS_SHOWN_MAX`].
    pub subjects: Vec<AlertSubject>,
    /// Number of subjects beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Notices sent since it started firing.
    pub told: u32,
    /// When the last notice was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_told_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AlertState {
    /// The condition does not hold.
    Quiet,
    /// The condition holds, but not for long enough.
    Pending,
    /// The alert is raised.
    Firing,
}

impl AlertState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}
