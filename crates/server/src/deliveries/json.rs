//! The JSON of events and deliveries.

use redrive_core::engine::story::Story;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event and its deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventJson {
    pub receipt: String,
    pub received_at: Timestamp,
    /// Nobody wanted it.
    pub unrouted: bool,
    /// The event as CloudEvents JSON.
    pub event: serde_json::Value,
    pub deliveries: Vec<DeliveryJson>,
}

/// The answer to a question for events: several sources may have used one id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventsResponse {
    pub events: Vec<EventJson>,
}

/// A delivery.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryJson {
    pub id: String,
    /// What targets know it by.
    pub webhook_id: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub subscription: String,
    pub state: DeliveryStateJson,
    /// What it waits for; none once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitJson>,
    /// The dead letter that holds its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Another of its session comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<DeadLetterCauseJson>,
    pub event_id: String,
    pub event_source: String,
    pub event_type: String,
    pub receipt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub accepted_at: Timestamp,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Timestamp>,
    /// How many attempts have ended.
    pub attempts: u32,
    /// How often it was replayed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replays: u32,
    /// The replay that sends it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
    /// The receipt of the event whose dead letter was edited to make this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// The receipt of the event that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// The attempts, the first one first; only where one delivery is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stories: Vec<AttemptJson>,
}

/// What a delivery waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaitJson {
    /// For programs.
    pub on: WaitCause,
    /// In words, without the times.
    pub because: String,
    /// The dependency that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// Since when it is so, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until when it is so, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl WaitJson {
    pub(crate) const fn new(on: WaitCause, because: String) -> Self {
        Self { on, because, dependency: None, since: None, until: None }
    }
}

/// The kinds of things that a delivery waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WaitCause {
    /// Its service is paused.
    Pause,
    /// The rule book has the service no more.
    ServiceRemoved,
    /// No row of the service takes the event any more.
    RuleRemoved,
    /// A dead letter before it in its session.
    Letter,
    /// Another event of its session.
    Session,
    /// The circuit breaker of a dependency.
    Breaker,
    /// A dependency that asked callers to wait.
    RetryAfter,
    /// The time of its next attempt.
    Retry,
    /// The retry budget of a dependency.
    RetryBudget,
    /// The ramp-up of a dependency.
    RampUp,
    /// The rate of calls to a dependency.
    Rate,
    /// The calls in flight to a dependency.
    InFlight,
    /// The service's share of all calls in flight.
    Share,
    /// The store, which takes no writes.
    Store,
    /// A delivery that is tried alone after a crash.
    CrashCheck,
    /// The server, which is shutting down.
    Shutdown,
    /// Its turn.
    Turn,
    /// The end of an attempt that is running.
    Running,
    /// The record of an attempt that has ended.
    Settling,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An attempt, with the line of the book as it read then.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AttemptJson {
    #[serde(flatten)]
    pub story: Story,
    /// The text of the line that said what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaction_line: Option<String>,
    /// The text of the line of `classify` that said what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classified_line: Option<String>,
}

/// Why a delivery was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeadLetterCauseJson {
    pub category: String,
    /// Why it was given up.
    pub code: String,
    /// The last failure's own code.
    pub failure_code: String,
    pub tier: String,
    pub message: String,
    pub fingerprint: String,
}

/// The states of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeliveryStateJson {
    Pending,
    Retrying,
    Held,
    /// A dead letter that a replay sends again.
    Replaying,
    Delivered,
    Dead,
    Skipped,
    Purged,
    Superseded,
}

/// A list of deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveriesResponse {
    pub deliveries: Vec<DeliveryJson>,
    /// To go on with; none at the end. There may be more, even where nothing was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many deliveries were looked at for it: at most 20,000.
    #[serde(default)]
    pub looked_at: u64,
}
