//! Notices: the content of one alert message, independent of the receiver's format.

use serde::{Deserialize, Serialize};

use crate::hash;
use crate::time::Timestamp;

/// One message to one receiver about an alert and its subjects.
///
/// It is the data of an event of type [`AlertStage::event_type`], which the engine delivers like any other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNotice {
    /// The alert's name.
    pub alert: String,
    /// The alert's scope, unless it is everything: `service orders`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// How urgent it is: `warning`, `medium`, `high` or `critical`.
    pub severity: String,
    pub stage: AlertStage,
    /// The receiver's name.
    pub receiver: String,
    /// When the alert started firing.
    pub since: Timestamp,
    /// When the notice was made.
    pub at: Timestamp,
    /// Number of earlier notices since the alert started firing.
    pub told_before: u32,
    pub summary: String,
    /// The condition from the rule book.
    pub condition: String,
    /// What the alert fires for.
    pub subjects: Vec<AlertSubject>,
    /// Number of subjects beyond those listed.
    pub more: u64,
    /// Subjects that ended while the alert still fires for others; only for receivers that track each one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<AlertSubject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

impl AlertNotice {
    /// Depends on the notice alone, so a duplicate is recognised.
    #[must_use]
    pub fn id(&self) -> String {
        let covers = self.covers.as_deref().unwrap_or_default();
        let parts = [&self.alert, covers, &self.receiver, self.stage.event_type()];
        let text = format!("{}\n{}\n{}", parts.join("\n"), self.since, self.told_before);
        format!("{:032x}", hash::stable_128(text.as_bytes()))
    }
}

/// One thing that an alert fires for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlertSubject {
    /// `dependency=mail-api`; empty without grouping.
    pub of: String,
    /// `12.5%`, `120`, `50h`; empty once resolved.
    pub value: String,
    /// When it started.
    pub since: Timestamp,
}

/// The stage of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AlertStage {
    /// Started firing.
    Firing,
    /// Still firing.
    Repeated,
    /// No longer firing.
    Resolved,
    /// Sent by hand to test a receiver.
    Test,
}

impl AlertStage {
    /// The event type of the notice.
    #[must_use]
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::Firing => "redrive.alert.firing",
            Self::Repeated => "redrive.alert.repeated",
            Self::Resolved => "redrive.alert.resolved",
            Self::Test => "redrive.alert.test",
        }
    }
}
