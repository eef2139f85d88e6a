//! The JSON of webhooks: what senders hear, how sources are, and what was refused.

use redrive_core::time::Timestamp;
use redrive_node::source::{SourceState, SourceView};
use redrive_node::webhook::WebhookCounts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A webhook that was taken, as its sender is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptedWebhook {
    /// The event's id.
    pub id: String,
    /// To find it again by; the first one's if it came before.
    pub receipt: String,
    /// Whether one with its id came before.
    pub duplicate: bool,
    /// Whether that was another one; this one is not delivered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// How many services get it; 0 is recorded as unrouted.
    pub deliveries: u32,
}

/// How the calls of a source were answered since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SourceStatus {
    pub name: String,
    pub kind: String,
    #[serde(flatten)]
    pub counts: WebhookCounts,
    /// Of a source that is read: how it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<ReadingStatus>,
}

/// How a source is that messages are read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReadingStatus {
    /// `connecting`, `reading`, `held` (nothing is taken) or `down` (not connected).
    pub state: String,
    pub since: Timestamp,
    /// Why it is held or down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Messages upstream that are not acknowledged, as was last known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Messages that were read and are not acknowledged.
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

/// What was signed and could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RefusedCallJson {
    pub number: u64,
    pub at: Timestamp,
    pub source: String,
    pub reason: String,
    /// Without those that could tell a secret.
    #[schema(value_type = Vec<Vec<String>>)]
    pub headers: Vec<(String, String)>,
    /// How large the body was; of a large one the beginning is kept.
    pub body_bytes: u64,
    /// What is kept of the body; only where one is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// A list of those, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RefusedCallsResponse {
    pub refused: Vec<RefusedCallJson>,
    /// To go on with; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}
