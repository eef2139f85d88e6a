//! Stable keys of events, deliveries and schedule fires.
//!
//! Invariants: a key depends on its parts alone, so it is the same after a restart, on another machine and in
//! the next release; parts are framed before hashing, so that `("ab", "c")` and `("a", "bc")` never give one
//! key.

use crate::hash;
use crate::ids::{ChannelName, DeliveryId, Seq, ServiceName};
use crate::time::Timestamp;

/// Two events with the same source and id are the same event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DedupKey<'a> {
    pub source: &'a str,
    pub event_id: &'a str,
}

/// The id of an event's delivery to one service, at its place in a store.
#[must_use]
pub fn delivery_id(
    seq: Seq,
    event: DedupKey<'_>,
    service: &ServiceName,
    channel: Option<&ChannelName>,
) -> DeliveryId {
    // No channel has an empty name, so the empty text means "none".
    let channel = channel.map_or("", ChannelName::as_str);
    let parts = framed(&["delivery", event.source, event.event_id, service.as_str(), channel]);
    DeliveryId::new(seq, hash::stable_64(&parts, 0))
}

/// Sent as `webhook-id` and `Idempotency-Key`: the same on every attempt and replay.
#[must_use]
pub fn webhook_id(delivery: DeliveryId) -> String {
    format!("msg_{delivery}")
}

/// The same however often the fire is emitted.
#[must_use]
pub fn schedule_event_id(schedule: &str, fire_at: Timestamp) -> String {
    // A time contains no `@`, so the last one separates the two.
    format!("{schedule}@{fire_at}")
}

/// Each part after its length, so that different lists never give the same bytes.
pub(crate) fn framed(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + size_of::<u64>()).sum());
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key<'a>(source: &'a str, event_id: &'a str) -> DedupKey<'a> {
        DedupKey { source, event_id }
    }

    fn delivery(event: DedupKey<'_>, service: &str, channel: Option<&str>) -> DeliveryId {
        let channel = channel.map(|name| ChannelName::new(name).expect("a name"));
        delivery_id(Seq::new(7), event, &ServiceName::new(service).expect("a name"), channel.as_ref())
    }

    /// These values are stored: a row that no longer fits means that every stored key is lost.
    #[test]
    fn keys_never_change() {
        #[rustfmt::skip]
        let deliveries = [
            ("a service",       key("shop", "1"), "orders-svc", None,          "c92690de482a21ca325d4d7fd6c1423d"),
            ("a channel",       key("shop", "1"), "orders-svc", Some("email"), "c92690de482a21caea26d181fe3e7d6a"),
            ("nothing known",   key("", ""),      "s",          None,          "c92690de482a21ca728d0a4f35a5eb2b"),
            ("another script",  key("магазин", "№1"), "s",      None,          "c92690de482a21cabeeb34c193e1ce63"),
        ];
        for (name, event, service, channel, expected) in deliveries {
            assert_eq!(delivery(event, service, channel).to_string(), expected, "{name}");
        }
        assert_eq!(webhook_id(DeliveryId(0xabc)), "msg_00000000000000000000000000000abc");
        let fire_at = Timestamp::from_millis(1_761_057_000_000);
        assert_eq!(schedule_event_id("nightly", fire_at), "nightly@2025-10-21T14:30:00Z");
    }

    #[test]
    fn a_delivery_id_depends_on_each_part() {
        let ids = [
            delivery(key("a", "b"), "c", None),
            delivery(key("x", "b"), "c", None),
            delivery(key("a", "x"), "c", None),
            delivery(key("a", "b"), "x", None),
            delivery(key("a", "b"), "c", Some("x")),
            delivery(key("b", "a"), "c", None),
        ];
        let distinct: std::collections::BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    proptest! {
        #[test]
        fn a_shifted_boundary_is_another_key(text in "[a-c]{0,8}", one in 0_usize..9, other in 0_usize..9) {
            let (one, other) = (one.min(text.len()), other.min(text.len()));
            let of = |at: usize| key(&text[..at], &text[at..]);
            let framed = |key: DedupKey<'_>| framed(&[key.source, key.event_id]);
            prop_assert_eq!(framed(of(one)) == framed(of(other)), one == other);
            prop_assert_eq!(delivery(of(one), "s", None) == delivery(of(other), "s", None), one == other);
        }

        #[test]
        fn framing_keeps_lists_apart(
            one in prop::collection::vec("[\\x00-\\x02]{0,9}", 0..4),
            other in prop::collection::vec("[\\x00-\\x02]{0,9}", 0..4),
        ) {
            let bytes = |parts: &[String]| framed(&parts.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(bytes(&one) == bytes(&other), one == other);
        }

        #[test]
        fn each_fire_of_each_schedule_has_its_own_id(
            one in "[a@:0-9]{0,5}", one_at in 0_u64..1_000, other in "[a@:0-9]{0,5}", other_at in 0_u64..1_000,
        ) {
            let id = |name: &str, at| schedule_event_id(name, Timestamp::from_millis(at));
            prop_assert_eq!(id(&one, one_at) == id(&other, other_at), (one, one_at) == (other, other_at));
        }
    }
}
