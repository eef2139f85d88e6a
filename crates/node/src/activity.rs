//! What happens on a node, for `redrive tail`, the log, the page, figures and traces.
//!
//! Invariant: an activity is published only when it is durable.

mod feed;
mod log;

use redrive_core::engine::attempt_record::AttemptEnd;
use redrive_core::engine::{EngineActivity, NextState, PendingDelivery, Settlement};
use redrive_core::event::Event;
use redrive_core::ids::Attempt;
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::policy::decide::AlertKind;
use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use redrive_core::trace::{EventTrace, Sampler, SpanId};
use serde::{Deserialize, Serialize};

pub(crate) use self::feed::ActivityFeed;
pub use self::feed::TraceStep;

/// An activity and its time: one line of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ActivityLine {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub activity: Activity,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Activity {
    /// An event is durable.
    Accepted(EventFacts),
    /// An event is durable, and no service takes it.
    Unrouted(EventFacts),
    /// A delivery has arrived.
    Delivered(DeliveryFacts),
    /// An attempt failed, and there will be another.
    Retrying(DeliveryFacts),
    /// A delivery waits without using up a retry.
    Held(DeliveryFacts),
    /// A delivery has failed for good.
    Dead(DeliveryFacts),
    /// A service is paused.
    Paused(ServiceFacts),
    /// A service is resumed.
    Resumed(ServiceFacts),
    /// A circuit breaker opened.
    BreakerOpened(BreakerFacts),
    /// A circuit breaker lets probes through.
    BreakerProbing(BreakerFacts),
    /// A circuit breaker closed.
    BreakerClosed(BreakerFacts),
    /// A dependency asked all callers to wait.
    DependencyHeld {
        /// The dependency.
        dependency: String,
        /// In words.
        message: String,
        /// Until when.
        due_at: Timestamp,
    },
    /// An alert for the operator.
    Alert(AlertFacts),
    /// A dead letter holds its session, and others wait behind it.
    SessionHeld {
        /// The service, with its channel if it has one.
        service: String,
        /// The dead letter's delivery.
        delivery: String,
        /// Its event's type.
        event_type: String,
        /// The session.
        session: String,
        /// In words.
        message: String,
    },
    /// A replay has begun.
    ReplayBegan(ReplayFacts),
    /// A replay was halted, resumed or ended, by a person or by itself.
    ReplayChanged(ReplayFacts),
    /// A rule book was loaded.
    BookRead,
    /// A rule book was refused, and the old one stays.
    BookRefused(ActivityMessage),
    /// The store takes no writes.
    StoreFailing(ActivityMessage),
    /// The store takes writes again.
    StoreHealed,
    /// A request had an invalid signature or API key.
    Security(ActivityMessage),
    /// The machine's clock was set.
    ClockStepped(ActivityMessage),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventFacts {
    /// Its id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Correlates related events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The trace that it belongs to.
    #[serde(default)]
    pub trace_id: String,
}

/// A delivery after an attempt, or on hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeliveryFacts {
    /// The service, with its channel if it has one.
    pub service: String,
    /// Its id.
    pub delivery: String,
    /// Its event.
    #[serde(flatten)]
    pub event: EventFacts,
    /// The attempt's span in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// Attempts so far.
    pub attempt: u32,
    /// The category of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The failure in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// How long the attempt took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServiceFacts {
    /// Its name.
    pub service: String,
    /// Why, in words, if no person did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BreakerFacts {
    /// In words.
    pub message: String,
    /// The dependency; none for the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// The failures that it has counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
}

/// An alert for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlertFacts {
    /// The service, with its channel if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The delivery that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The code of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    pub message: String,
}

/// A replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReplayFacts {
    /// In words.
    pub message: String,
    /// Its number.
    pub replay: u64,
}

/// A message without further data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ActivityMessage {
    /// The words.
    #[serde(default)]
    pub message: String,
}

impl From<String> for ActivityMessage {
    fn from(message: String) -> Self {
        Self { message }
    }
}

impl Activity {
    /// In the order of [`Self::place`].
    const NAMES: [&str; 22] = [
        "accepted",
        "unrouted",
        "delivered",
        "retrying",
        "held",
        "dead",
        "paused",
        "resumed",
        "breaker-opened",
        "breaker-probing",
        "breaker-closed",
        "dependency-held",
        "alert",
        "session-held",
        "replay-began",
        "replay-changed",
        "book-read",
        "book-refused",
        "store-failing",
        "store-healed",
        "security",
        "clock-stepped",
    ];
    /// Places of the kinds that are only counted while there is no listener.
    const ACCEPTED: usize = 0;
    const DELIVERED: usize = 2;

    #[must_use]
    pub fn alert(message: String) -> Self {
        Self::Alert(AlertFacts { message, ..AlertFacts::default() })
    }

    #[must_use]
    pub fn security(message: String) -> Self {
        Self::Security(message.into())
    }

    const fn place(&self) -> usize {
        match self {
            Self::Accepted(_) => Self::ACCEPTED,
            Self::Unrouted(_) => 1,
            Self::Delivered(_) => Self::DELIVERED,
            Self::Retrying(_) => 3,
            Self::Held(_) => 4,
            Self::Dead(_) => 5,
            Self::Paused(_) => 6,
            Self::Resumed(_) => 7,
            Self::BreakerOpened(_) => 8,
            Self::BreakerProbing(_) => 9,
            Self::BreakerClosed(_) => 10,
            Self::DependencyHeld { .. } => 11,
            Self::Alert(_) => 12,
            Self::SessionHeld { .. } => 13,
            Self::ReplayBegan(_) => 14,
            Self::ReplayChanged(_) => 15,
            Self::BookRead => 16,
            Self::BookRefused(_) => 17,
            Self::StoreFailing(_) => 18,
            Self::StoreHealed => 19,
            Self::Security(_) => 20,
            Self::ClockStepped(_) => 21,
        }
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        Self::NAMES[self.place()]
    }

    #[must_use]
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Delivered(facts) | Self::Retrying(facts) | Self::Held(facts) | Self::Dead(facts) => {
                Some(&facts.service)
            }
            Self::Paused(facts) | Self::Resumed(facts) => Some(&facts.service),
            Self::SessionHeld { service, .. } => Some(service),
            Self::Alert(facts) => facts.service.as_deref(),
            _ => None,
        }
    }

    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        match self {
            Self::Accepted(event) | Self::Unrouted(event) => Some(&event.event_type),
            Self::Delivered(facts) | Self::Retrying(facts) | Self::Held(facts) | Self::Dead(facts) => {
                Some(&facts.event.event_type)
            }
            Self::SessionHeld { event_type, .. } => Some(event_type),
            _ => None,
        }
    }
}

impl EventFacts {
    pub(crate) fn of(event: &Event) -> Self {
        Self {
            event_id: event.id.to_string(),
            event_type: event.event_type.to_string(),
            session: event.session.as_ref().map(ToString::to_string),
            correlation_id: event.correlation_id.as_ref().map(ToString::to_string),
            trace_id: EventTrace::of(event, Sampler::USUAL).id.to_string(),
        }
    }
}

impl ActivityLine {
    /// The activity that a signal reports; none for signals that are only counted.
    pub(crate) fn of(signal: &EngineActivity, now: Timestamp) -> Option<Self> {
        let at_once = |activity| Some(Self { at: now, activity });
        match signal {
            EngineActivity::Settled { delivery, settlement, .. } => {
                settled(delivery, settlement).map(|activity| Self { at: settlement.at, activity })
            }
            EngineActivity::Stale(_) => None,
            EngineActivity::Breaker { dependency, transition, .. } => {
                let failures = counted(u64::from(transition.failures), "failure");
                let facts = BreakerFacts {
                    message: format!("circuit breaker of {dependency}, after {failures}"),
                    dependency: Some(dependency.to_string()),
                    failures: Some(transition.failures),
                };
                let activity = match transition.to {
                    BreakerPhase::Open => Activity::BreakerOpened(facts),
                    BreakerPhase::HalfOpen => Activity::BreakerProbing(facts),
                    BreakerPhase::Closed => Activity::BreakerClosed(facts),
                };
                Some(Self { at: transition.at, activity })
            }
            EngineActivity::Replay { replay, state } => at_once(Activity::ReplayChanged(ReplayFacts {
                message: format!("replay {replay} is {state}"),
                replay: replay.0,
            })),
            EngineActivity::DependencyHeld { dependency, until } => at_once(Activity::DependencyHeld {
                dependency: dependency.to_string(),
                message: format!("{dependency} asked callers to wait"),
                due_at: *until,
            }),
            EngineActivity::Paused(service) => at_once(Activity::Paused(ServiceFacts {
                service: service.to_string(),
                message: Some("paused by its rule after this failure".to_owned()),
            })),
            EngineActivity::Alert { kind, queue, delivery, code } => at_once(Activity::Alert(AlertFacts {
                service: Some(queue.to_string()),
                delivery: Some(delivery.to_string()),
                code: Some(code.clone()).filter(|code| !code.is_empty()),
                message: alert_in_words(*kind).to_owned(),
            })),
        }
    }
}

fn settled(delivery: &PendingDelivery, settlement: &Settlement) -> Option<Activity> {
    let mut facts = DeliveryFacts {
        service: delivery.queue.to_string(),
        delivery: delivery.id.to_string(),
        event: EventFacts::of(&delivery.event),
        span_id: Attempt::new(settlement.attempts)
            .map(|attempt| SpanId::of_attempt(delivery.id, attempt).to_string()),
        attempt: settlement.attempts,
        category: None,
        code: None,
        status: None,
        message: None,
        due_at: None,
        took_ms: None,
    };
    if let Some(story) = &settlement.record {
        facts.took_ms = Some(story.took_nanos as f64 / 1e6);
        match &story.end {
            AttemptEnd::Delivered { status, .. } => facts.status = *status,
            AttemptEnd::Failed { category, code, status, message, .. } => {
                facts.category = Some(category.to_string());
                facts.code = Some(code.to_string());
                facts.status = *status;
                facts.message = Some(message.clone());
            }
            AttemptEnd::Held { .. } => {}
        }
    }
    match &settlement.next {
        NextState::Delivered => Some(Activity::Delivered(facts)),
        NextState::Due { at } => {
            facts.due_at = Some(*at);
            let is_retry = settlement.attempts > settlement.attempts_before;
            Some(if is_retry { Activity::Retrying(facts) } else { Activity::Held(facts) })
        }
        NextState::Ready => Some(Activity::Held(facts)),
        NextState::Dead(death) => {
            facts.code = Some(death.code.to_string());
            facts.category = Some(death.category.to_string());
            facts.message = Some(death.message.clone());
            Some(Activity::Dead(facts))
        }
        NextState::Starting => None,
    }
}

const fn alert_in_words(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::Security => "security: the target rejected our credentials",
        AlertKind::Configuration => "configuration: invalid setup, here or at the target",
        AlertKind::Exhausted => "exhausted: no retries left",
        AlertKind::Internal => "internal: internal error in redrive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of every kind, with its JSON fields.
    #[rustfmt::skip]
    fn every_kind() -> Vec<(Activity, &'static str)> {
        let event = || EventFacts { event_id: "e".into(), event_type: "t".into(), session: None, correlation_id: Some("c".into()), trace_id: "f".into() };
        let delivery = || DeliveryFacts {
            service: "s/c".into(), delivery: "d".into(), event: event(), span_id: None, attempt: 2, category: Some("transient".into()),
            code: None, status: Some(503), message: Some("m".into()), due_at: Some(Timestamp::from_millis(2_000)), took_ms: Some(1.5),
        };
        let service = |message: Option<&str>| ServiceFacts { service: "s".into(), message: message.map(Into::into) };
        let breaker = || BreakerFacts { message: "m".into(), dependency: Some("x".into()), failures: Some(3) };
        let replay = || ReplayFacts { message: "m".into(), replay: 7 };
        let words = || ActivityMessage { message: "m".into() };
        let of_delivery = r#""service":"s/c","delivery":"d","event_id":"e","event_type":"t","correlation_id":"c","trace_id":"f","attempt":2,"category":"transient","status":503,"message":"m","due_at":"1970-01-01T00:00:02Z","took_ms":1.5"#;
        let of_event = r#""event_id":"e","event_type":"t","correlation_id":"c","trace_id":"f""#;
        let of_breaker = r#""message":"m","dependency":"x","failures":3"#;
        vec![
            (Activity::Accepted(event()),                 of_event),
            (Activity::Unrouted(event()),                 of_event),
            (Activity::Delivered(delivery()),             of_delivery),
            (Activity::Retrying(delivery()),              of_delivery),
            (Activity::Held(delivery()),                  of_delivery),
            (Activity::Dead(delivery()),                  of_delivery),
            (Activity::Paused(service(Some("m"))),        r#""service":"s","message":"m""#),
            (Activity::Resumed(service(None)),            r#""service":"s""#),
            (Activity::BreakerOpened(breaker()),          of_breaker),
            (Activity::BreakerProbing(breaker()),         of_breaker),
            (Activity::BreakerClosed(breaker()),          of_breaker),
            (Activity::DependencyHeld { dependency: "x".into(), message: "m".into(), due_at: Timestamp::from_millis(2_000) },
                                                          r#""dependency":"x","message":"m","due_at":"1970-01-01T00:00:02Z""#),
            (Activity::alert("m".into()),                 r#""message":"m""#),
            (Activity::SessionHeld { service: "s".into(), delivery: "d".into(), event_type: "t".into(), session: "k".into(), message: "m".into() },
                                                          r#""service":"s","delivery":"d","event_type":"t","session":"k","message":"m""#),
            (Activity::ReplayBegan(replay()),             r#""message":"m","replay":7"#),
            (Activity::ReplayChanged(replay()),           r#""message":"m","replay":7"#),
            (Activity::BookRead,                          ""),
            (Activity::BookRefused(words()),              r#""message":"m""#),
            (Activity::StoreFailing(words()),             r#""message":"m""#),
            (Activity::StoreHealed,                       ""),
            (Activity::Security(words()),                 r#""message":"m""#),
            (Activity::ClockStepped(words()),             r#""message":"m""#),
        ]
    }

    #[test]
    fn every_kind_has_one_name_and_one_place_and_comes_back_from_its_line() {
        for (place, (activity, fields)) in every_kind().into_iter().enumerate() {
            let name = Activity::NAMES[place];
            assert_eq!((activity.place(), activity.name()), (place, name));
            let line = ActivityLine { at: Timestamp::from_millis(1_000), activity };
            let comma = if fields.is_empty() { "" } else { "," };
            let written = format!(r#"{{"at":"1970-01-01T00:00:01Z","what":"{name}"{comma}{fields}}}"#);
            assert_eq!(serde_json::to_string(&line).expect("texts and numbers"), written);
            assert_eq!(serde_json::from_str::<ActivityLine>(&written).expect("our own line"), line);
        }
        assert_eq!(every_kind().len(), Activity::NAMES.len());
    }
}
