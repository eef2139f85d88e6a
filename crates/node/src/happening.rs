//! What happens, one line each: the facts that `redrive tail`, logs and pages show.
//!
//! Invariants: a happening is told only when it is durable, and every one is logged once, here or by whoever
//! found it and knows more of it.

mod log;

use redrive_core::engine::story::End;
use redrive_core::engine::{Next, Settlement, Signal, Waiting};
use redrive_core::ids::Attempt;
use redrive_core::policy::breaker::Phase;
use redrive_core::policy::decide::AlertKind;
use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use redrive_core::trace::{Sampler, SpanId, Trace};
use serde::{Deserialize, Serialize};

pub(crate) use self::log::{Log, is_logged};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
    /// The service, with its channel if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The delivery's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The event's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The event's type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The event's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What ties the event to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The trace that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The attempt's span in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// Which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Its name for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// How long the attempt took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
    /// The dependency whose breaker it is, or that asked everybody to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// The failures that a breaker has counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The number of a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
}

/// The kinds of happening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// An event is durable.
    Accepted,
    /// An event is durable, and nobody wants it.
    Unrouted,
    /// A delivery has arrived.
    Delivered,
    /// An attempt failed, and there will be another.
    Retrying,
    /// A delivery waits without burning a retry.
    Held,
    /// A delivery has failed for good.
    Dead,
    /// A service is paused.
    Paused,
    /// A service goes on.
    Resumed,
    /// A breaker has opened.
    BreakerOpened,
    /// A breaker lets probes through.
    BreakerProbing,
    /// A breaker has closed.
    BreakerClosed,
    /// A dependency asked everybody to wait.
    DependencyHeld,
    /// Something needs a person.
    Alert,
    /// A dead letter holds its session, and others wait behind it.
    SessionHeld,
    /// A replay has begun.
    ReplayBegan,
    /// Somebody has halted a replay, let it go on or ended it, or it has halted or ended itself.
    ReplayChanged,
    /// A rule book was read.
    BookRead,
    /// A rule book was refused, and the old one stays.
    BookRefused,
    /// The store takes no writes.
    StoreFailing,
    /// It does again.
    StoreHealed,
    /// Somebody came to a door with a bad signature or a bad key.
    Security,
    /// The machine's clock was set.
    ClockStepped,
}

impl What {
    /// Every kind.
    pub const ALL: [Self; 22] = [
        Self::Accepted,
        Self::Unrouted,
        Self::Delivered,
        Self::Retrying,
        Self::Held,
        Self::Dead,
        Self::Paused,
        Self::Resumed,
        Self::BreakerOpened,
        Self::BreakerProbing,
        Self::BreakerClosed,
        Self::DependencyHeld,
        Self::Alert,
        Self::SessionHeld,
        Self::ReplayBegan,
        Self::ReplayChanged,
        Self::BookRead,
        Self::BookRefused,
        Self::StoreFailing,
        Self::StoreHealed,
        Self::Security,
        Self::ClockStepped,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unrouted => "unrouted",
            Self::Delivered => "delivered",
            Self::Retrying => "retrying",
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::BreakerOpened => "breaker-opened",
            Self::BreakerProbing => "breaker-probing",
            Self::BreakerClosed => "breaker-closed",
            Self::DependencyHeld => "dependency-held",
            Self::Alert => "alert",
            Self::SessionHeld => "session-held",
            Self::ReplayBegan => "replay-began",
            Self::ReplayChanged => "replay-changed",
            Self::BookRead => "book-read",
            Self::BookRefused => "book-refused",
            Self::StoreFailing => "store-failing",
            Self::StoreHealed => "store-healed",
            Self::Security => "security",
            Self::ClockStepped => "clock-stepped",
        }
    }
}

impl Happening {
    /// Something about nothing in particular.
    #[must_use]
    pub const fn new(what: What, at: Timestamp) -> Self {
        Self {
            at,
            what,
            service: None,
            delivery: None,
            event_id: None,
            event_type: None,
            session: None,
            correlation_id: None,
            trace_id: None,
            span_id: None,
            attempt: None,
            category: None,
            code: None,
            status: None,
            message: None,
            due_at: None,
            took_ms: None,
            dependency: None,
            failures: None,
            replay: None,
        }
    }

    /// Something with words.
    #[must_use]
    pub fn told(what: What, at: Timestamp, message: String) -> Self {
        Self { message: Some(message), ..Self::new(what, at) }
    }

    /// What a signal of the engine says; none for what only counts.
    #[must_use]
    pub fn of(signal: &Signal, now: Timestamp) -> Option<Self> {
        match signal {
            Signal::Settled { delivery, settlement, .. } => Self::settled(delivery, settlement),
            Signal::Stale(_) => None,
            Signal::Breaker { dependency, transition, .. } => {
                let what = match transition.to {
                    Phase::Open => What::BreakerOpened,
                    Phase::HalfOpen => What::BreakerProbing,
                    Phase::Closed => What::BreakerClosed,
                };
                let message = format!(
                    "the breaker of {dependency}, after {}",
                    counted(u64::from(transition.failures), "failure")
                );
                Some(Self {
                    dependency: Some(dependency.to_string()),
                    failures: Some(transition.failures),
                    ..Self::told(what, transition.at, message)
                })
            }
            Signal::Replay { replay, state } => Some(Self {
                replay: Some(replay.0),
                ..Self::told(What::ReplayChanged, now, format!("replay {replay} is {state}"))
            }),
            Signal::DependencyHeld { dependency, until } => Some(Self {
                dependency: Some(dependency.to_string()),
                due_at: Some(*until),
                ..Self::told(What::DependencyHeld, now, format!("{dependency} asks everybody to wait"))
            }),
            Signal::Paused(service) => Some(Self {
                service: Some(service.to_string()),
                ..Self::told(What::Paused, now, "its rule says so after this failure".to_owned())
            }),
            Signal::Alert { kind, queue, delivery, code } => Some(Self {
                service: Some(queue.to_string()),
                code: Some(code.clone()).filter(|code| !code.is_empty()),
                delivery: Some(delivery.to_string()),
                ..Self::told(What::Alert, now, alert_in_words(*kind).to_owned())
            }),
        }
    }

    fn settled(delivery: &Waiting, settlement: &Settlement) -> Option<Self> {
        let what = match &settlement.next {
            Next::Delivered => What::Delivered,
            Next::Due { .. } if settlement.attempts > settlement.attempts_before => What::Retrying,
            Next::Due { .. } | Next::Ready => What::Held,
            Next::Dead(_) => What::Dead,
            Next::Starting => return None,
        };
        let mut happening = Self {
            service: Some(delivery.queue.to_string()),
            delivery: Some(delivery.id.to_string()),
            attempt: Some(settlement.attempts),
            span_id: Attempt::new(settlement.attempts)
                .map(|attempt| SpanId::of_attempt(delivery.id, attempt).to_string()),
            ..Self::about(what, settlement.at, &delivery.event)
        };
        if let Next::Due { at } = settlement.next {
            happening.due_at = Some(at);
        }
        if let Some(story) = &settlement.story {
            happening.took_ms = Some(story.took_nanos as f64 / 1e6);
            match &story.end {
                End::Delivered { status } => happening.status = *status,
                End::Failed { category, code, status, message, .. } => {
                    happening.category = Some(category.to_string());
                    happening.code = Some(code.to_string());
                    happening.status = *status;
                    happening.message = Some(message.clone());
                }
                End::Held { .. } => {}
            }
        }
        if let Next::Dead(death) = &settlement.next {
            happening.code = Some(death.code.to_string());
            happening.category = Some(death.category.to_string());
            happening.message = Some(death.message.clone());
        }
        Some(happening)
    }

    /// Something about an event.
    #[must_use]
    pub fn about(what: What, at: Timestamp, event: &redrive_core::event::Event) -> Self {
        Self {
            event_id: Some(event.id.to_string()),
            event_type: Some(event.event_type.to_string()),
            session: event.session.as_ref().map(ToString::to_string),
            correlation_id: event.correlation_id.as_ref().map(ToString::to_string),
            trace_id: Some(Trace::of(event, Sampler::USUAL).id.to_string()),
            ..Self::new(what, at)
        }
    }
}

/// What is wrong, the kind of it first.
const fn alert_in_words(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::Security => "security: the target refuses our credentials",
        AlertKind::Configuration => "configuration: something is set up wrongly, here or at the target",
        AlertKind::Exhausted => "exhausted: the retries ran out",
        AlertKind::Internal => "internal: redrive itself failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_word_and_one_place() {
        for (place, what) in What::ALL.into_iter().enumerate() {
            assert_eq!(what as usize, place, "{what:?}");
            let written = serde_json::to_value(what).expect("a word");
            assert_eq!(written, what.as_str(), "the same for programs and for people");
        }
    }
}
