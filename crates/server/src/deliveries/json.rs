//! The JSON of events and deliveries, and how it is made from stored ones.

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
    pub story: AttemptRecord,
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
    let shown = |story: &AttemptRecord| AttemptJson {
        story: story.clone(),
        reaction_line: None,
        classified_line: None,
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
        stories: view.stories.iter().map(shown).collect(),
    }
}

/// Adds the lines of the rule book as they read when each attempt was judged.
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

/// A book that held once, with its addresses as the caller may see them.
fn as_seen_by(caller: &ApiCaller, text: &str) -> String {
    let addresses =
        book::read(text, connectors::table()).book.map(|book| VisibleAddresses::for_caller(caller, &book));
    // A later version may not read every book of an earlier one.
    let addresses = addresses
        .unwrap_or_else(|| VisibleAddresses::Masked(AddressMask::of_text(text, connectors::table())));
    addresses.shown_book(text)
}
