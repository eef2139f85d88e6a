//! Values that every store derives alike from an event and its addressee: content hash, session lane, and the dead
//! letter of a delivery without room.
//!
//! Invariant: hashes are stored, so their input never changes.

use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::{DeadLetterInfo, QueueName, SessionFollowers};
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, EventSubject, ExtensionValue, SessionKey};
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::name_template;
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::{hash, limits};

use super::Addressee;
use super::letter::ReassignScope;

/// Belongs to the trace, not to the event.
const TRACE_STATE: &str = "tracestate";

/// Hash of what a sender repeats when it resends an event: type, subject, session, content type, extensions, data.
///
/// Excluded, because they may differ between tries: time (some clients stamp it when sending), correlation id
/// (gateways may generate it) and trace.
pub(super) fn content_hash(event: &Event) -> u64 {
    let Event { event_type, subject, content_type, session, extensions, data, .. } = event;
    let mut parts = HashInput::default();
    parts.text(event_type.as_str());
    parts.maybe(subject.as_ref().map(EventSubject::as_str));
    parts.maybe(session.as_ref().map(SessionKey::as_str));
    parts.maybe(content_type.as_ref().map(ContentType::as_str));
    for (name, value) in extensions.iter().filter(|(name, _)| name.as_str() != TRACE_STATE) {
        parts.text(name.as_str());
        match value {
            ExtensionValue::Text(text) => parts.maybe(Some(text.as_str())),
            // Headers carry only text, so `1` and `"1"` are the same.
            ExtensionValue::Integer(_) | ExtensionValue::Boolean(_) => parts.maybe(Some(&value.to_string())),
        }
    }
    // Data may be large: hash them instead of copying.
    parts.0.extend_from_slice(&hash::stable_64(data, 0).to_le_bytes());
    hash::stable_64(&parts.0, 0)
}

/// Deduplication key of a delivery, if its rule has one; distinct per queue and subscription.
pub(super) fn copy_key(addressee: &Addressee, event: &Event) -> Option<Vec<u8>> {
    let key = addressee.copies.key_of(event)?;
    let QueueName { service, channel } = &*addressee.queue;
    let mut parts = HashInput::default();
    parts.text(service.as_str());
    parts.maybe(channel.as_ref().map(ChannelName::as_str));
    parts.text(&addressee.subscription);
    if key.len() > limits::COPY_KEY_BYTES_MAX {
        parts.maybe(None);
        parts.0.extend_from_slice(&hash::stable_128(key.as_bytes()).to_le_bytes());
    } else {
        parts.maybe(Some(&key));
    }
    Some(parts.0)
}

/// Session lane of a delivery: a hash under the store's seed. Two sessions with the same hash wait for each other;
/// nothing worse.
pub(super) fn lane(seed: u64, addressee: &Addressee, event: &Event) -> Option<u64> {
    lane_in(seed, &addressee.queue, addressee.order, event)
}

/// The lane in a given queue.
pub(super) fn lane_in(seed: u64, queue: &QueueName, order: DeliveryOrder, event: &Event) -> Option<u64> {
    let session = event.session.as_ref().filter(|_| order != DeliveryOrder::None)?;
    let QueueName { service, channel } = queue;
    let mut parts = HashInput::default();
    parts.text(service.as_str());
    parts.maybe(channel.as_ref().map(ChannelName::as_str));
    parts.text(session.as_str());
    Some(hash::stable_64(&parts.0, seed))
}

/// Indexed instead of a text, such as a session key.
pub(super) fn text_hash(seed: u64, text: &str) -> i64 {
    hash::stable_64(text.as_bytes(), seed).cast_signed()
}

pub(super) fn overflow(to: &Addressee) -> DeadLetterInfo {
    let service = &to.queue.service;
    undelivered(to, FailureCode::of(codes::BACKLOG_FULL), format!("backlog of {service} is full"))
}

pub(super) fn session_overflow(to: &Addressee) -> DeadLetterInfo {
    let message = "too many deliveries wait behind a dead letter of the session".to_owned();
    undelivered(to, FailureCode::of(codes::SESSION_FULL), message)
}

/// The event violates the schema of its type.
pub(super) fn violation(to: &Addressee) -> DeadLetterInfo {
    let message = to.violation.as_deref().unwrap_or_default().to_owned();
    let code = FailureCode::of(codes::SCHEMA_VIOLATION);
    let letter = undelivered(to, code.clone(), message.clone());
    let category = Category::Invalid;
    let fingerprint = Fingerprint::of(&to.queue.service, category, &code, &message);
    DeadLetterInfo { category, tier: Tier::Poison, fingerprint, ..letter }
}

/// Dead letter of a delivery whose service or row was removed from the rule book.
pub(super) fn removed(queue: &QueueName, scope: &ReassignScope) -> DeadLetterInfo {
    let QueueName { service, channel } = queue;
    let (code, message) = match scope {
        ReassignScope::All => (codes::SERVICE_REMOVED, "service was removed from the rule book"),
        ReassignScope::WithoutRule { .. } => {
            (codes::RULE_REMOVED, "no row of the service matches this event any longer")
        }
    };
    let name = name_template::default_name(service, channel.as_ref());
    let to = (service, name, service.to_string());
    dead_at_once(to, Category::Fatal, FailureCode::of(code), message.to_owned(), SessionFollowers::Continue)
}

/// In a strict session it holds the deliveries behind it.
fn undelivered(to: &Addressee, code: FailureCode, message: String) -> DeadLetterInfo {
    let followers = match to.order {
        DeliveryOrder::SessionStrict => SessionFollowers::Wait,
        DeliveryOrder::None | DeliveryOrder::Session => SessionFollowers::Continue,
    };
    let to = (&to.queue.service, to.letter_name.to_string(), to.consumer_group.to_string());
    dead_at_once(to, Category::Transient, code, message, followers)
}

/// The dead letter of a delivery that was never attempted.
fn dead_at_once(
    (service, name, consumer_group): (&ServiceName, String, String),
    category: Category,
    code: FailureCode,
    message: String,
    followers: SessionFollowers,
) -> DeadLetterInfo {
    let fingerprint = Fingerprint::of(service, category, &code, &message);
    let (failure_code, tier) = (code.clone(), Tier::Dead);
    DeadLetterInfo {
        category,
        code,
        failure_code,
        tier,
        message,
        fingerprint,
        name,
        consumer_group,
        followers,
    }
}

/// Not part of any name.
const IMPORT_SEPARATOR: char = '\u{1f}';

/// Import keys are scoped to their service.
pub(super) fn import_key(service: &ServiceName, key: &str) -> String {
    format!("{service}{IMPORT_SEPARATOR}{key}")
}

/// The original key. Earlier releases stored it without the service.
pub(super) fn imported_as(remembered: &str) -> &str {
    remembered.split_once(IMPORT_SEPARATOR).map_or(remembered, |(_, key)| key)
}

/// Length-prefixed texts: different lists never give the same bytes.
#[derive(Default)]
struct HashInput(Vec<u8>);

impl HashInput {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn maybe(&mut self, text: Option<&str>) {
        self.0.push(u8::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }
}
