//! Answers to a batch: which of its deliveries failed.
//!
//! `{"batchItemFailures":[{"itemIdentifier":"…"}]}`, where an identifier is the `webhookid` that the event
//! had in the batch, or the event's own id. No list, an empty one, `null` or no body at all: nobody failed.
//!
//! Invariant: what cannot be understood delivers nothing. The target may have taken some of it, but which,
//! nobody knows; the promise is "at least once", so all of it is sent again.

use redrive_core::engine::Waiting;
use redrive_core::event::idempotency::webhook_id;
use redrive_core::policy::answer::{BrokerError, Reply, Seen};
use serde::Deserialize;

/// The most of an unknown identifier that a message repeats, in characters.
const SHOWN_MAX: usize = 80;

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "batchItemFailures")]
    failures: Option<Vec<ItemFailure>>,
}

#[derive(Deserialize)]
struct ItemFailure {
    #[serde(rename = "itemIdentifier")]
    identifier: String,
}

/// The places of those that failed, in order and each once; else what cannot be understood.
pub(super) fn failed(body: &[u8], deliveries: &[Waiting]) -> Result<Vec<usize>, String> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let answer: Option<Answer> = serde_json::from_slice(body)
        .map_err(|error| format!("it is not the JSON that answers a batch: {error}"))?;
    let mut places = Vec::new();
    for ItemFailure { identifier } in answer.and_then(|answer| answer.failures).unwrap_or_default() {
        let is_meant = |delivery: &Waiting| {
            webhook_id(delivery.id) == identifier || delivery.event.id.as_str() == identifier
        };
        let before = places.len();
        // Events of two sources may have one id: then both are meant, for once more is better than never.
        places.extend(deliveries.iter().enumerate().filter(|(_, one)| is_meant(one)).map(|(place, _)| place));
        if places.len() == before {
            let shown: String = identifier.chars().take(SHOWN_MAX).collect();
            return Err(format!("it names {shown:?}, which is not in the batch"));
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// What is known of those that failed: that the target could not take them, and not why.
///
/// The status of the answer is a success, so it is no part of this: it would make them delivered. As for
/// any failure that nobody explains, a rule's `unknown` decides, by default with two more retries; as a
/// queue that hands out a message three times would.
pub(super) fn item_failure(failed: usize, of: usize) -> Reply {
    Reply {
        seen: Seen::Broker(BrokerError::Other),
        message: format!("the target reported {failed} of {of} in the batch as failed"),
        retry_after: None,
    }
}
