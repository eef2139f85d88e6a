//! Looks up one letter by id, id prefix or original id.

use redrive_core::ids::{DeliveryId, IdPrefix};
use redrive_node::store::letter::{LetterKey, LetterView};
use redrive_node::store::{DeliveryState, DeliveryView, LetterClosure, StoreError, StoreReader};

/// Letters listed for an ambiguous prefix.
const CANDIDATES_MAX: usize = 20;

#[derive(Debug)]
pub(crate) enum LetterLookup {
    Letter(Box<LetterView>),
    /// The prefix matches deliveries, none of them dead.
    NotDead {
        id: DeliveryId,
        state: DeliveryState,
    },
    /// Several letters match the prefix or original id.
    Several(Vec<String>),
    Nothing,
}

/// Letters of hidden services are not found.
pub(crate) fn letter(
    reader: &dyn StoreReader,
    name: &str,
    sees: impl Fn(&str) -> bool,
) -> Result<LetterLookup, StoreError> {
    let is_seen = |view: &DeliveryView| sees(view.queue.service.as_str());
    let mut imported = reader.imported_letters(name)?;
    imported.retain(|view| is_seen(&view.delivery));
    if imported.len() > 1 {
        return Ok(LetterLookup::Several(imported.iter().map(|view| view.delivery.id.to_string()).collect()));
    }
    if let Some(view) = imported.pop() {
        return Ok(LetterLookup::Letter(Box::new(view)));
    }
    let digits = name.strip_prefix("msg_").unwrap_or(name).to_lowercase();
    if let Some(id) = DeliveryId::parse(&digits)
        && let Some(view) = reader.letter(&LetterKey::Delivery(id))?.filter(|view| is_seen(&view.delivery))
    {
        return Ok(LetterLookup::Letter(Box::new(view)));
    }
    let Some(prefix) = IdPrefix::parse(&digits) else { return Ok(LetterLookup::Nothing) };
    let mut found = reader.deliveries(&prefix, CANDIDATES_MAX)?;
    found.retain(|view| view.id.to_string().starts_with(&digits) && is_seen(view));
    let is_dead = |state: &DeliveryState| matches!(state, DeliveryState::Dead { .. });
    let dead: Vec<DeliveryId> =
        found.iter().filter(|view| is_dead(&view.state)).map(|view| view.id).collect();
    match (dead.as_slice(), found.first()) {
        ([], None) => Ok(LetterLookup::Nothing),
        ([], Some(other)) => Ok(LetterLookup::NotDead { id: other.id, state: other.state.clone() }),
        ([id], _) => match reader.letter(&LetterKey::Delivery(*id))? {
            Some(view) => Ok(LetterLookup::Letter(Box::new(view))),
            // Removed meanwhile.
            None => Ok(LetterLookup::Nothing),
        },
        (several, _) => Ok(LetterLookup::Several(several.iter().map(ToString::to_string).collect())),
    }
}

pub(crate) fn not_dead(id: DeliveryId, state: &DeliveryState) -> String {
    let word = match state {
        DeliveryState::Delivered { .. } => "is delivered",
        DeliveryState::Closed { how: LetterClosure::Skipped, .. } => "was skipped",
        DeliveryState::Closed { how: LetterClosure::Purged, .. } => "was purged",
        DeliveryState::Closed { how: LetterClosure::Superseded { by }, .. } => {
            return format!("the delivery {id} was edited and resent, as the event with the receipt {by}");
        }
        DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => "is still pending",
        DeliveryState::Dead { .. } => "is dead",
    };
    format!("the delivery {id} {word}: it is not a dead letter")
}
