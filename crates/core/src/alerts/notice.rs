//! What somebody is told of an alert, before it takes the form that a receiver wants.

use serde::{Deserialize, Serialize};

use crate::hash;
use crate::time::Timestamp;

/// One message to one receiver: an alert that has begun, lasts or is over, with everything it is raised for.
///
/// It is the data of an event of type [`AlertStage::event_type`], which the engine delivers like any other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNotice {
    /// The alert's name.
    pub alert: String,
    /// What the alert looks at, if that is not everything: `service orders`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// How urgent it is: `warning`, `medium`, `high` or `critical`.
    pub severity: String,
    /// Whether it has begun, lasts or is over.
    pub stage: AlertStage,
    /// The receivers to notify.
    pub receiver: String,
    /// When it began.
    pub since: Timestamp,
    /// When this was said.
    pub at: Timestamp,
    /// How often it was said before since it began.
    pub told_before: u32,
    /// One line for people.
    pub summary: String,
    /// The condition as it stands in the rule book.
    pub condition: String,
    /// What it is raised for: one thing, or each of several.
    pub subjects: Vec<AlertSubject>,
    /// How many more there are than are listed.
    pub more: u64,
    /// What it was raised for and is no more while it lasts for the rest; only receivers that keep a record of
    /// each are told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<AlertSubject>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

impl AlertNotice {
    /// What tells this message from all others: the same message has the same id, however often it is sent.
    #[must_use]
    pub fn id(&self) -> String {
        let covers = self.covers.as_deref().unwrap_or_default();
        let parts = [&self.alert, covers, &self.receiver, self.stage.event_type()];
        let text = format!("{}\n{}\n{}", parts.join("\n"), self.since, self.told_before);
        format!("{:032x}", hash::stable_128(text.as_bytes()))
    }
}

/// One thing that an alert is raised for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = AlertSubject))]
pub struct AlertSubject {
    /// Which: `dependency=mail-api`; empty if the alert is about everything.
    pub of: String,
    /// The figure, as people write it: `12.5%`, `120`, `50h`; nothing once it is over.
    pub value: String,
    /// Since when.
    pub since: Timestamp,
}

/// Where an alert stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = AlertStage))]
#[serde(rename_all = "kebab-case")]
pub enum AlertStage {
    /// It has begun.
    Firing,
    /// It lasts.
    Repeated,
    /// It is over.
    Resolved,
    /// There is none: somebody tries out whether they would be told.
    Test,
}

impl AlertStage {
    /// The type of the event that tells it.
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
