//! From stored events and deliveries to their JSON.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use redrive_core::book;
use redrive_core::engine::story::Place;
use redrive_core::event::idempotency::webhook_id;
use redrive_core::mask::AddressMask;
use redrive_node::runtime::Node;
use redrive_node::store::{Closed, DeliveryState, DeliveryView, EventView};

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::error::ApiError;
use crate::connectors;
use crate::deliveries::json::{AttemptJson, DeadLetterCauseJson, DeliveryJson, DeliveryStateJson, EventJson};
use crate::deliveries::waits::{DeliveryWaits, QueueHold};

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
        DeliveryState::Closed { at, how: Closed::Skipped } => (DeliveryStateJson::Skipped, None, Some(*at)),
        DeliveryState::Closed { at, how: Closed::Purged } => (DeliveryStateJson::Purged, None, Some(*at)),
        DeliveryState::Closed { at, how: Closed::Superseded { by } } => {
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
    let shown = |story: &redrive_core::engine::story::Story| AttemptJson {
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
        let line = |place: Option<Place>| {
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
