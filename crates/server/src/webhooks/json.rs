//! JSON of webhooks: answers to senders, source states, refused calls.

use redrive_core::time::Timestamp;
use redrive_node::source::{SourceState, SourceView};
use redrive_node::webhook::WebhookCounts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An accepted webhook call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptedWebhook {
    /// The event's id.
    pub id: String,
    /// Id to look it up by; of the first event if duplicate.
    pub receipt: String,
    /// Whether an event with this id was accepted before.
    pub duplicate: bool,
    /// Whether that event was different; this one is not delivered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Number of deliveries; 0 means unrouted.
    pub deliveries: u32,
}

/// Calls of a source since the server started, by answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SourceStatus {
    pub name: String,
    pub kind: String,
    #[serde(flatten)]
    pub counts: WebhookCounts,
    /// State of a source that is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<ReadingStatus>,
}

/// State of a source that messages are read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReadingStatus {
    /// `connecting`, `reading`, `held` (nothing is accepted) or `down` (not connected).
    pub state: String,
    pub since: Timestamp,
    /// Why it is held or down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Unacknowledged messages upstream, as last known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Messages read and not acknowledged.
    pub held: usize,
}

impl SourceStatus {
    pub(crate) fn of_webhook(name: String, counts: WebhookCounts) -> Self {
        Self { name, kind: "webhook".to_owned(), counts, reading: None }
    }

    pub(crate) fn of_reading(name: String, view: SourceView) -> Self {
        let SourceView { kind, state, since, lag, held, durable, duplicates, refused } = view;
        let (state, why) = match state {
            SourceState::Connecting => ("connecting", None),
            SourceState::Reading => ("reading", None),
            SourceState::Held(why) => ("held", Some(why)),
            SourceState::Down(why) => ("down", Some(why)),
        };
        let counts =
            WebhookCounts { accepted: durable, duplicates, malformed: refused, ..WebhookCounts::default() };
        let reading = Some(ReadingStatus { state: state.to_owned(), since, why, lag, held });
        Self { name, kind: kind.to_owned(), counts, reading }
    }
}

/// A signed call that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RefusedCallJson {
    pub number: u64,
    pub at: Timestamp,
    pub source: String,
    pub reason: String,
    /// Without those that may contain secrets.
    #[schema(value_type = Vec<Vec<String>>)]
    pub headers: Vec<(String, String)>,
    /// Size of the body; of a large one only the beginning is stored.
    pub body_bytes: u64,
    /// The stored part of the body; only for a single call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// Refused calls, latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RefusedCallsResponse {
    pub refused: Vec<RefusedCallJson>,
    /// Cursor of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}
