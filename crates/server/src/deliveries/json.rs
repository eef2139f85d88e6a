//! JSON of events and deliveries, built from stored records.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use redrive_core::book;
use redrive_core::engine::attempt_record::{AttemptRecord, BookPosition};
use redrive_core::event::idempotency::webhook_id;
use redrive_core::mask::AddressMask;
use redrive_core::time::Timestamp;
use redrive_node::runtime::Node;
use redrive_node::store::{DeliveryState, DeliveryView, EventView, LetterClosure};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::error::ApiError;
use crate::connectors;
use crate::deliveries::waits::{DeliveryWaits, QueueHold};

/// An event and its deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventJson {
    pub receipt: String,
    pub received_at: Timestamp,
    /// No rule matched it.
    pub unrouted: bool,
    /// The event as CloudEvents JSON.
    pub event: serde_json::Value,
    pub deliveries: Vec<DeliveryJson>,
}

/// Events with the requested id: several sources may use the same id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventsResponse {
    pub events: Vec<EventJson>,
}

/// A delivery.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryJson {
    pub id: String,
    /// The id that targets see.
    pub webhook_id: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub subscription: String,
    pub state: DeliveryStateJson,
    /// What it waits for; absent once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitJson>,
    /// The dead letter that blocks its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Another delivery of its session comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it became a dead letter.
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
    /// When it was last stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Timestamp>,
    /// Completed attempts.
    pub attempts: u32,
    /// Number of replays.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replays: u32,
    /// The replay that resends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
    /// Receipt of the event whose dead letter was edited into this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// Receipt of the event that replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// Attempts, oldest first; only in the answer for one delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stories: Vec<AttemptJson>,
}

/// What a delivery waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaitJson {
    /// For programs.
    pub on: WaitCause,
    /// In words, without times.
    pub because: String,
    /// The dependency that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// Start of the wait, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// End of the wait, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl WaitJson {
    pub(crate) const fn new(on: WaitCause, because: String) -> Self {
        Self { on, because, dependency: None, since: None, until: None }
    }
}

/// Kinds of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WaitCause {
    /// Its service is paused.
    Pause,
    /// Its service was removed from the rule book.
    ServiceRemoved,
    /// No row of the service matches the event any more.
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
    /// The rate limit of a dependency.
    Rate,
    /// The in-flight limit of a dependency.
    InFlight,
    /// The service's share of all calls in flight.
    Share,
    /// The store, which accepts no writes.
    Store,
    /// A delivery that is tried alone after a crash.
    CrashCheck,
    /// The server, which is shutting down.
    Shutdown,
    Turn,
    /// A running attempt.
    Running,
    /// An ended attempt that is being stored.
    Settling,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An attempt, with the rule line in force at that time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AttemptJson {
    #[serde(flatten)]
    pub story: AttemptRecord,
    /// Text of the rule line that decided what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaction_line: Option<String>,
    /// Text of the `classify` line that decided the category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classified_line: Option<String>,
}

impl AttemptJson {
    /// Without the lines of the rule book.
    fn new(story: &AttemptRecord) -> Self {
        Self { story: story.clone(), reaction_line: None, classified_line: None }
    }
}

/// Why a delivery became a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeadLetterCauseJson {
    pub category: String,
    /// Code of the reason.
    pub code: String,
    /// Code of the last failure.
    pub failure_code: String,
    pub tier: String,
    pub message: String,
    pub fingerprint: String,
}

/// States of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeliveryStateJson {
    Pending,
    Retrying,
    Held,
    /// A dead letter that a replay resends.
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
    /// Cursor of the next page; absent at the end. An empty page may have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Deliveries scanned for this page: at most 20,000.
    #[serde(default)]
    pub looked_at: u64,
}

pub(crate) fn event_json(view: &EventView, waits: &DeliveryWaits) -> EventJson {
    EventJson {
        receipt: view.receipt.to_string(),
        received_at: view.received_at,
        unrouted: view.unrouted,
        event: view.event.to_json(),
        deliveries: view.deliveries.iter().map(|delivery| delivery_json(delivery, waits)).collect(),
    }
}

pub(crate) fn delivery_json(view: &DeliveryView, waits: &DeliveryWaits) -> DeliveryJson {
    let waiting = waits.shown(view);
    let is_held = matches!(waiting, Some((_, QueueHold::Yes)));
    let (mut death, mut superseded_by) = (None, None);
    let (state, due_at, ended_at) = match &view.state {
        DeliveryState::Delivered { at } => (DeliveryStateJson::Delivered, None, Some(*at)),
        DeliveryState::Dead { at, death: why } => {
            death = Some(DeadLetterCauseJson {
                category: why.category.to_string(),
                code: why.code.to_string(),
                failure_code: why.failure_code.to_string(),
                tier: why.tier.to_string(),
                message: why.message.clone(),
                fingerprint: why.fingerprint.to_string(),
            });
            (DeliveryStateJson::Dead, None, Some(*at))
        }
        DeliveryState::Closed { at, how: LetterClosure::Skipped } => {
            (DeliveryStateJson::Skipped, None, Some(*at))
        }
        DeliveryState::Closed { at, how: LetterClosure::Purged } => {
            (DeliveryStateJson::Purged, None, Some(*at))
        }
        DeliveryState::Closed { at, how: LetterClosure::Superseded { by } } => {
            superseded_by = Some(by.to_string());
            (DeliveryStateJson::Superseded, None, Some(*at))
        }
        DeliveryState::Ready | DeliveryState::Behind | DeliveryState::Due { .. } if is_held => {
            (DeliveryStateJson::Held, None, None)
        }
        DeliveryState::Due { at } if view.replaying.is_some() => {
            (DeliveryStateJson::Replaying, Some(*at), None)
        }
        DeliveryState::Ready | DeliveryState::Behind if view.replaying.is_some() => {
            (DeliveryStateJson::Replaying, None, None)
        }
        DeliveryState::Due { at } => (DeliveryStateJson::Retrying, Some(*at), None),
        DeliveryState::Ready | DeliveryState::Behind => (DeliveryStateJson::Pending, None, None),
    };
    DeliveryJson {
        id: view.id.to_string(),
        webhook_id: webhook_id(view.id),
        service: view.queue.service.to_string(),
        channel: view.queue.channel.as_ref().map(ToString::to_string),
        subscription: view.subscription.clone(),
        state,
        waits: waiting.map(|(shown, _)| shown),
        held_by: waits.letter_before(view).map(|letter| letter.to_string()),
        due_at,
        behind: view.state == DeliveryState::Behind,
        ended_at,
        death,
        event_id: view.event_id.clone(),
        event_source: view.event_source.clone(),
        event_type: view.event_type.clone(),
        receipt: view.receipt.to_string(),
        session: view.session.clone(),
        correlation_id: view.correlation_id.clone(),
        accepted_at: view.accepted_at,
        written_at: Some(view.written_at),
        attempts: view.attempts,
        replays: view.replays,
        replay: view.replaying.map(|replay| replay.0),
        supersedes: view.supersedes.map(|receipt| receipt.to_string()),
        superseded_by,
        stories: view.stories.iter().map(AttemptJson::new).collect(),
    }
}

/// Adds the rule lines in force when each attempt was judged.
pub(crate) async fn with_lines(
    node: &Node,
    caller: &ApiCaller,
    mut shown: DeliveryJson,
) -> Result<DeliveryJson, ApiError> {
    let mut books: BTreeMap<u64, Option<String>> = BTreeMap::new();
    for story in &mut shown.stories {
        let hash = story.story.book;
        let text = match books.entry(hash) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let text = node.read(move |reader| reader.book(hash)).await?;
                place.insert(text.map(|text| as_seen_by(caller, &text)))
            }
        };
        let text = text.as_deref();
        let line = |place: Option<BookPosition>| {
            let number = place?.line.checked_sub(1)?;
            text?.lines().nth(usize::try_from(number).ok()?).map(|line| line.trim().to_owned())
        };
        story.reaction_line = line(story.story.reaction_at);
        story.classified_line = line(story.story.classified_at);
    }
    Ok(shown)
}

/// An old rule book, masked for the caller.
fn as_seen_by(caller: &ApiCaller, text: &str) -> String {
    let addresses =
        book::read(text, connectors::table()).book.map(|book| VisibleAddresses::for_caller(caller, &book));
    // An old rule book may no longer parse.
    let addresses = addresses
        .unwrap_or_else(|| VisibleAddresses::Masked(AddressMask::of_text(text, connectors::table())));
    addresses.shown_book(text)
}
