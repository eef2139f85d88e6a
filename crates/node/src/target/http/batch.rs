//! Responses to a batch: which of its deliveries failed.
//!
//! `{"batchItemFailures":[{"itemIdentifier":"…"}]}`, where an identifier is the event's `webhookid` in the
//! batch, or its own id. No list, an empty one, `null` or an empty body means that none failed.
//!
//! Invariant: an invalid response delivers nothing. The target may have accepted some, but delivery is at
//! least once, so all are sent again.

use redrive_core::engine::PendingDelivery;
use redrive_core::event::idempotency::webhook_id;
use redrive_core::policy::answer::{BrokerError, ReplyKind, TargetReply};
use serde::Deserialize;

const SHOWN_MAX: usize = 80;

#[derive(Deserialize)]
#[serde(expecting = "an object with `batchItemFailures`")]
struct BatchAnswer {
    #[serde(rename = "batchItemFailures")]
    failures: Option<Vec<ItemFailure>>,
}

#[derive(Deserialize)]
struct ItemFailure {
    #[serde(rename = "itemIdentifier")]
    identifier: String,
}

/// The indices of failed deliveries, sorted and unique.
pub(super) fn failed(body: &[u8], deliveries: &[PendingDelivery]) -> Result<Vec<usize>, String> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let answer: Option<BatchAnswer> =
        serde_json::from_slice(body).map_err(|error| format!("not a valid batch response: {error}"))?;
    let mut places = Vec::new();
    for ItemFailure { identifier } in answer.and_then(|answer| answer.failures).unwrap_or_default() {
        let is_meant = |delivery: &PendingDelivery| {
            webhook_id(delivery.id) == identifier || delivery.event.id.as_str() == identifier
        };
        let before = places.len();
        // Events of two sources may share an id: both are sent again.
        places.extend(deliveries.iter().enumerate().filter(|(_, one)| is_meant(one)).map(|(place, _)| place));
        if places.len() == before {
            let shown: String = identifier.chars().take(SHOWN_MAX).collect();
            return Err(format!("unknown identifier {shown:?}"));
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// The failure of single deliveries, whose reason is unknown.
///
/// The status is left out: being a success it would make them delivered. The rule's `unknown` reaction
/// decides, by default with two more retries.
pub(super) fn item_failure(failed: usize, of: usize) -> TargetReply {
    TargetReply::new(
        ReplyKind::Broker(BrokerError::Other),
        format!("the target reported {failed} of {of} in the batch as failed"),
    )
}
