//! One line of the log for each happening: a constant message, and values as fields.
//!
//! Invariant: a session's key is often a person's name or address, and so no line has it. What it has is a
//! keyed hash, by which lines of one session are found and nobody who lacks the store's own number can tell
//! whose they are.

use redrive_core::ids::Seed;
use ring::hmac;
use tracing::field::display;
use tracing::{debug, error, info, warn};

use super::{Happening, What};

/// How many bytes of a hash stand for a session.
const SESSION_BYTES: usize = 8;

/// Writes happenings into the log.
#[derive(Clone)]
pub(crate) struct Log {
    sessions: hmac::Key,
}

/// Whether anybody reads lines about such a thing.
pub(crate) fn is_logged(what: What) -> bool {
    match what {
        What::Accepted | What::Delivered => tracing::enabled!(tracing::Level::DEBUG),
        What::Retrying
        | What::Held
        | What::Resumed
        | What::BreakerProbing
        | What::BreakerClosed
        | What::ReplayBegan
        | What::ReplayChanged
        | What::BookRead
        | What::StoreHealed => tracing::enabled!(tracing::Level::INFO),
        What::Unrouted
        | What::Dead
        | What::Paused
        | What::BreakerOpened
        | What::DependencyHeld
        | What::Alert
        | What::SessionHeld
        | What::Security
        | What::ClockStepped => tracing::enabled!(tracing::Level::WARN),
        What::BookRefused | What::StoreFailing => tracing::enabled!(tracing::Level::ERROR),
    }
}

impl Log {
    /// The log of a store.
    pub(crate) fn new(seed: Seed) -> Self {
        Self { sessions: hmac::Key::new(hmac::HMAC_SHA256, &seed.0.to_be_bytes()) }
    }

    /// Writes the line.
    pub(crate) fn write(&self, happening: &Happening) {
        match happening.what {
            What::Accepted | What::Unrouted => self.write_event(happening),
            What::Delivered | What::Retrying | What::Held | What::Dead => self.write_delivery(happening),
            What::SessionHeld => self.write_session(happening),
            What::BreakerOpened | What::BreakerProbing | What::BreakerClosed | What::DependencyHeld => {
                write_dependency(happening);
            }
            What::Paused
            | What::Resumed
            | What::Alert
            | What::ReplayBegan
            | What::ReplayChanged
            | What::BookRead
            | What::BookRefused
            | What::StoreFailing
            | What::StoreHealed
            | What::Security
            | What::ClockStepped => write_other(happening),
        }
    }

    fn write_event(&self, happening: &Happening) {
        let session = self.session(happening);
        let Happening { event_id, event_type, correlation_id, trace_id, .. } = happening;
        if happening.what == What::Unrouted {
            warn!(event_id, event_type, correlation_id, trace_id, session, "accepted, and nobody wants it");
        } else {
            debug!(event_id, event_type, correlation_id, trace_id, session, "accepted");
        }
    }

    #[rustfmt::skip]
    fn write_delivery(&self, happening: &Happening) {
        let session = self.session(happening);
        let Happening { service, delivery: delivery_id, event_id, event_type, correlation_id, .. } = happening;
        let Happening { trace_id, span_id, attempt, category, code, status, took_ms, .. } = happening;
        let error = in_our_words(happening);
        let retry_count = attempt.map(|attempt| attempt.saturating_sub(1));
        let due_at = happening.due_at.map(display);
        match happening.what {
            What::Delivered => debug!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, status, took_ms, "delivered"
            ),
            What::Retrying => info!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, category, code, status, error, took_ms, due_at, "attempt failed, will retry"
            ),
            What::Held => info!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, category, code, status, error, due_at, "held"
            ),
            _ => warn!(
                service, delivery_id, event_id, event_type, correlation_id, trace_id, span_id, session,
                attempt, retry_count, category, code, status, error, took_ms, "dead"
            ),
        }
    }

    fn write_session(&self, happening: &Happening) {
        let session = self.session(happening);
        let Happening { service, delivery: delivery_id, event_type, message: detail, .. } = happening;
        warn!(service, delivery_id, event_type, session, detail, "a dead letter holds its session");
    }

    /// What stands for the session in the log.
    fn session(&self, happening: &Happening) -> Option<String> {
        let hash = hmac::sign(&self.sessions, happening.session.as_ref()?.as_bytes());
        let first = hash.as_ref().first_chunk::<SESSION_BYTES>().expect("a hash has 32 bytes");
        Some(format!("{:016x}", u64::from_be_bytes(*first)))
    }
}

/// What went wrong, without what the other side said about it: it may tell of anybody, in any words, and is kept
/// with the delivery.
fn in_our_words(happening: &Happening) -> Option<&str> {
    let message = happening.message.as_deref()?;
    let status_line = message.split_once(": ").map_or(message, |(status_line, _)| status_line);
    Some(if happening.status.is_some() { status_line } else { message })
}

fn write_dependency(happening: &Happening) {
    let Happening { dependency, failures, message: detail, .. } = happening;
    let due_at = happening.due_at.map(display);
    match happening.what {
        What::BreakerOpened => warn!(dependency, failures, detail, "a breaker has opened"),
        What::BreakerProbing => info!(dependency, failures, detail, "a breaker lets probes through"),
        What::BreakerClosed => info!(dependency, failures, detail, "a breaker has closed"),
        _ => warn!(dependency, due_at, detail, "a dependency asked everybody to wait"),
    }
}

fn write_other(happening: &Happening) {
    let Happening { what, service, delivery: delivery_id, replay, message: detail, .. } = happening;
    match what {
        What::Paused => warn!(service, detail, "a service is paused"),
        What::Resumed => info!(service, detail, "a service goes on"),
        What::Alert => warn!(service, delivery_id, detail, "something needs a person"),
        What::ReplayBegan => info!(replay, detail, "a replay has begun"),
        What::ReplayChanged => info!(replay, detail, "a replay has changed"),
        What::BookRead => info!(detail, "a rule book was read"),
        What::BookRefused => error!(detail, "a rule book is refused: the old one stays"),
        What::StoreFailing => {
            error!(
                error = detail,
                "the store takes no writes; nothing is lost, and nothing starts meanwhile"
            );
        }
        What::StoreHealed => info!("the store takes writes again"),
        What::Security => warn!(detail, "somebody came with a bad signature or a bad key"),
        What::ClockStepped => warn!(detail, "the machine's clock was set"),
        What::Accepted
        | What::Unrouted
        | What::Delivered
        | What::Retrying
        | What::Held
        | What::Dead
        | What::BreakerOpened
        | What::BreakerProbing
        | What::BreakerClosed
        | What::DependencyHeld
        | What::SessionHeld => unreachable!("these have a line of their own"),
    }
}
