//! Alerts and receivers of the book.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::At;
use crate::book::connectors::Endpoint;
use crate::book::expression::{Condition, Hours};
use crate::book::problem::BookSpan;
use crate::ids::PolicyName;
use crate::limits;

#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    pub span: BookSpan,
    pub when: Condition,
    /// Its own name, or the catalog's.
    pub name: Option<String>,
    pub severity: AlertSeverity,
    pub to: Vec<String>,
    /// Notified next, one after each response time, while the alert fires.
    pub escalate: Vec<String>,
    /// How often a firing alert is repeated.
    pub repeat: Option<Duration>,
    pub action: Option<String>,
    pub switch: AlertSwitch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertSwitch {
    #[default]
    On,
    Off,
}

impl Alert {
    /// The name, or else the condition.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.when.to_string())
    }

    pub fn receivers(&self) -> impl Iterator<Item = &str> {
        self.to.iter().chain(&self.escalate).map(String::as_str)
    }

    /// Defaults to the severity's response time.
    #[must_use]
    pub fn repeats_every(&self) -> Duration {
        self.repeat.unwrap_or_else(|| self.severity.response_time())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertSeverity {
    Warning,
    Medium,
    High,
    Critical,
}

impl AlertSeverity {
    /// From mild to severe.
    pub const ALL: [Self; 4] = [Self::Warning, Self::Medium, Self::High, Self::Critical];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }

    /// After this time the notice repeats, and the next receiver is notified.
    #[must_use]
    pub const fn response_time(self) -> Duration {
        match self {
            Self::Warning => limits::RESPONSE_TIME_WARNING,
            Self::Medium => limits::RESPONSE_TIME_MEDIUM,
            Self::High => limits::RESPONSE_TIME_HIGH,
            Self::Critical => limits::RESPONSE_TIME_CRITICAL,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    pub endpoint: Endpoint,
    pub hours: Option<Hours>,
    pub severity: Option<AlertSeverity>,
    pub retry: Option<At<PolicyName>>,
    pub timeout: Option<Duration>,
}

impl Receiver {
    /// Whether the receiver takes alerts of this severity.
    #[must_use]
    pub fn accepts(&self, severity: AlertSeverity) -> bool {
        self.severity.is_none_or(|least| severity >= least)
    }
}
