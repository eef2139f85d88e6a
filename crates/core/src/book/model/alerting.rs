//! Alerts and receivers as they were written.

use std::time::Duration;

use super::At;
use crate::book::connectors::Endpoint;
use crate::book::expression::{Condition, Hours};
use crate::book::problem::BookSpan;
use crate::ids::PolicyName;
use crate::limits;

/// Alerts: conditions and who is notified.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Where it stands.
    pub span: BookSpan,
    /// When.
    pub when: Condition,
    /// What it is called: its own name, or that of the catalog.
    pub name: Option<String>,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// The receivers to notify.
    pub to: Vec<String>,
    /// Who is told next, one after the other, as long as it is not over.
    pub escalate: Vec<String>,
    /// How often it is said again while it lasts.
    pub repeat: Option<Duration>,
    /// What to do about it.
    pub action: Option<String>,
    /// Whether anybody looks at it.
    pub switch: AlertSwitch,
}

/// Whether anybody looks at an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertSwitch {
    /// It is watched.
    #[default]
    On,
    /// It only stands there.
    Off,
}

impl Alert {
    /// What it is called; without a name it is called by its condition.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.when.to_string())
    }

    /// Everybody who may be told of it.
    pub fn receivers(&self) -> impl Iterator<Item = &str> {
        self.to.iter().chain(&self.escalate).map(String::as_str)
    }

    /// How often it is said again while it lasts.
    #[must_use]
    pub fn repeats_every(&self) -> Duration {
        self.repeat.unwrap_or_else(|| self.severity.response_time())
    }
}

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertSeverity {
    /// In business hours.
    Warning,
    /// Within four hours.
    Medium,
    /// Within an hour.
    High,
    /// Within fifteen minutes.
    Critical,
}

impl AlertSeverity {
    /// All of them, the mildest first.
    pub const ALL: [Self; 4] = [Self::Warning, Self::Medium, Self::High, Self::Critical];

    /// Its name in rule books.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }

    /// Within which time somebody is to see to it: by then it is said again, and the next one is told.
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

/// The receivers to notify.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// How.
    pub endpoint: Endpoint,
    /// When only.
    pub hours: Option<Hours>,
    /// From which severity on.
    pub severity: Option<AlertSeverity>,
    /// The policy by which a message that fails is sent again.
    pub retry: Option<At<PolicyName>>,
    /// How long one message may take.
    pub timeout: Option<Duration>,
}

impl Receiver {
    /// Whether it is told of alerts of that severity at all.
    #[must_use]
    pub fn hears(&self, severity: AlertSeverity) -> bool {
        self.severity.is_none_or(|least| severity >= least)
    }
}
