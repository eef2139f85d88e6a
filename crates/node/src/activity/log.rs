//! One log line per activity: a constant message with values as fields.
//!
//! Invariant: a session key is often a name or an address, so no line contains it. Lines carry a keyed hash
//! instead, which links the lines of one session and does not reveal the key without the store's seed.

use redrive_core::ids::Seed;
use ring::hmac;
use tracing::field::display;
use tracing::{debug, error, info, warn};

use super::{Activity, AlertFacts, BreakerFacts, DeliveryFacts, EventFacts, ReplayFacts, ServiceFacts};

const SESSION_BYTES: usize = 8;

#[derive(Clone)]
pub(super) struct ActivityLog {
    sessions: hmac::Key,
}

impl ActivityLog {
    pub(super) fn new(seed: Seed) -> Self {
        Self { sessions: hmac::Key::new(hmac::HMAC_SHA256, &seed.0.to_be_bytes()) }
    }

    #[rustfmt::skip]
    pub(super) fn write(&self, activity: &Activity) {
        match activity {
            Activity::Accepted(EventFacts { event_id, event_type, session, correlation_id, trace_id }) => {
                let session = session.as_deref().map(|session| self.hash(session));
                debug!(event_id, event_type, correlation_id, trace_id, session, "event accepted");
            }
            Activity::Unrouted(EventFacts { event_id, event_type, session, correlation_id, trace_id }) => {
                let session = session.as_deref().map(|session| self.hash(session));
                warn!(event_id, event_type, correlation_id, trace_id, session, "event accepted, no service subscribes");
            }
            Activity::Delivered(facts) | Activity::Retrying(facts) | Activity::Held(facts) | Activity::Dead(facts) => {
                self.write_delivery(activity, facts);
            }
            Activity::SessionHeld { service, delivery: delivery_id, event_type, session, message: detail } => {
                let session = self.hash(session);
                warn!(service, delivery_id, event_type, session, detail, "session held by a dead letter");
            }
            Activity::BreakerOpened(BreakerFacts { dependency, failures, message: detail }) => {
                warn!(dependency, failures, detail, "circuit breaker opened");
            }
            Activity::BreakerProbing(BreakerFacts { dependency, failures, message: detail }) => {
                info!(dependency, failures, detail, "circuit breaker half-open, probing");
            }
            Activity::BreakerClosed(BreakerFacts { dependency, failures, message: detail }) => {
                info!(dependency, failures, detail, "circuit breaker closed");
            }
            Activity::DependencyHeld { dependency, message: detail, due_at } => {
                warn!(dependency, %due_at, detail, "dependency asked callers to wait");
            }
            Activity::Paused(ServiceFacts { service, message: detail }) => warn!(service, detail, "service paused"),
            Activity::Resumed(ServiceFacts { service, message: detail }) => info!(service, detail, "service resumed"),
            Activity::Alert(AlertFacts { service, delivery: delivery_id, message: detail, code: _ }) => {
                warn!(service, delivery_id, detail, "operator attention needed");
            }
            Activity::ReplayBegan(ReplayFacts { message: detail, replay }) => info!(replay, detail, "replay started"),
            Activity::ReplayChanged(ReplayFacts { message: detail, replay }) => info!(replay, detail, "replay changed"),
            Activity::BookRead => info!("rule book loaded"),
            Activity::BookRefused(words) => error!(detail = words.message, "rule book rejected, keeping the old one"),
            Activity::StoreFailing(words) => error!(
                error = words.message,
                "store writes failing, deliveries paused"
            ),
            Activity::StoreHealed => info!("store writes recovered"),
            Activity::Security(words) => warn!(detail = words.message, "authentication failed"),
            Activity::ClockStepped(words) => warn!(detail = words.message, "system clock changed"),
        }
    }

    #[rustfmt::skip]
    fn write_delivery(&self, activity: &Activity, facts: &DeliveryFacts) {
        let DeliveryFacts { service, delivery: delivery_id, span_id, attempt, category, code, status, took_ms, .. } = facts;
        let EventFacts { event_id, event_type, correlation_id, trace_id, session } = &facts.event;
        let session = session.as_deref().map(|session| self.hash(session));
        let error = in_our_words(facts);
        let retry_count = attempt.saturating_sub(1);
        let due_at = facts.due_at.map(display);
        match activity {
            Activity::Delivered(_) => debug!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, status, took_ms, "event delivered"
            ),
            Activity::Retrying(_) => info!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, category, code, status, error, took_ms, due_at, "attempt failed, will retry"
            ),
            Activity::Held(_) => info!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, category, code, status, error, due_at, "delivery held"
            ),
            _ => warn!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, category, code, status, error, took_ms, "delivery dead-lettered"
            ),
        }
    }

    fn hash(&self, session: &str) -> String {
        let hash = hmac::sign(&self.sessions, session.as_bytes());
        let first = hash.as_ref().first_chunk::<SESSION_BYTES>().expect("a hash has 32 bytes");
        format!("{:016x}", u64::from_be_bytes(*first))
    }
}

/// The failure without the target's own text, which may contain personal data and is stored with the
/// delivery.
fn in_our_words(facts: &DeliveryFacts) -> Option<&str> {
    let message = facts.message.as_deref()?;
    let status_line = message.split_once(": ").map_or(message, |(status_line, _)| status_line);
    Some(if facts.status.is_some() { status_line } else { message })
}
