//! JSON types of alerts and receivers.

use redrive_core::alerts::AlertView;
use redrive_core::time::Timestamp;
use redrive_node::runtime::SentNotice;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All alerts and receivers of the rule book.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AlertsResponse {
    /// Last evaluation; absent if the book has no alerts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_at: Option<Timestamp>,
    /// In the order of the book.
    pub alerts: Vec<AlertView>,
    /// By name.
    pub receivers: Vec<ReceiverJson>,
    /// Recent notifications, the latest first.
    pub recent: Vec<SentNotice>,
}

/// A receiver of notifications.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiverJson {
    pub name: String,
    /// `ntfy`, `webhook`, `email`, `slack` or `alertmanager`.
    pub kind: String,
    /// Address without credentials.
    pub address: String,
    /// Only in these hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<String>,
    /// Only from this severity on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Whether it accepts notifications now.
    pub open_now: bool,
    /// Messages waiting to be sent.
    pub waiting: u64,
    /// Messages that failed for good.
    pub dead: u64,
    /// Error of the last message, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_trouble: Option<String>,
}

/// Outcome of a test message.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiverTestResponse {
    pub receiver: String,
    /// The id of the test event.
    pub event: String,
    pub outcome: ReceiverTestOutcome,
    /// The delivery, after the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// Error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Duration of the attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
}

/// Outcome of a message so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReceiverTestOutcome {
    /// Delivered.
    Delivered,
    /// Failed, will be retried.
    Retrying,
    /// Failed for good.
    Dead,
    /// No outcome yet: queued, or the attempt is slow.
    Waiting,
}
