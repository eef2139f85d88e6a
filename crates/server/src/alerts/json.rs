//! Alerts and receivers as they are shown.

use redrive_core::alerts::AlertView;
use redrive_core::time::Timestamp;
use redrive_node::runtime::SentNotice;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All alerts and receivers of the rule book.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AlertsResponse {
    /// When the alerts were last held against what there is; never if the book has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_at: Option<Timestamp>,
    /// In the order of the book.
    pub alerts: Vec<AlertView>,
    /// By name.
    pub receivers: Vec<ReceiverJson>,
    /// What was said lately, the latest first.
    pub recent: Vec<SentNotice>,
}

/// Somebody who is told.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiverJson {
    pub name: String,
    /// How: `ntfy`, `webhook`, `email`, `slack` or `alertmanager`.
    pub kind: String,
    /// Where, without credentials.
    pub address: String,
    /// Only in these hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<String>,
    /// Only from this severity on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Whether it may be told now.
    pub open_now: bool,
    /// Messages that are on their way.
    pub waiting: u64,
    /// Messages that could not be delivered.
    pub dead: u64,
    /// Why the last one failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_trouble: Option<String>,
}

/// What became of a message that somebody sent to try out a receiver.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiverTestResponse {
    pub receiver: String,
    /// The id of the event that was sent.
    pub event: String,
    pub outcome: ReceiverTestOutcome,
    /// The delivery, once there was an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// Why it did not arrive, for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// How long the attempt took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
}

/// What became of a message so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReceiverTestOutcome {
    /// It arrived.
    Delivered,
    /// It failed, and is tried again.
    Retrying,
    /// It failed for good.
    Dead,
    /// Nothing yet: it waits for its turn, or the attempt takes long.
    Waiting,
}
