//! Lists of deliveries: what is asked for, and what is found.

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::ids::Seq;

use super::{DeliveryView, DeliveryStateName};

/// Deliveries that one list looks at, at most: it goes on where it stopped when it is asked to.
pub const SCANNED_MAX: u64 = 20_000;

/// Which deliveries to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Only of that service, or of that `service/channel`.
    pub service: Option<String>,
    /// Only in that state.
    pub state: Option<DeliveryStateName>,
    /// Only of events of such a type.
    pub event_type: Option<EventPattern>,
    /// Only of that session.
    pub session: Option<String>,
    /// Only with that correlation id.
    pub correlation_id: Option<String>,
    /// Only before that place; none begins with the latest.
    pub before: Option<Seq>,
    /// At most so many.
    pub rows_max: usize,
}

impl DeliveryFilter {
    /// Whether a queue is one that is asked for.
    pub(super) fn takes_queue(&self, queue: &QueueName) -> bool {
        let is_meant = |wanted: &String| match wanted.split_once('/') {
            None => queue.service.as_str() == wanted,
            Some((service, channel)) => {
                queue.service.as_str() == service
                    && queue.channel.as_ref().is_some_and(|name| name.as_str() == channel)
            }
        };
        self.service.as_ref().is_none_or(is_meant)
    }

    /// Whether an event is one that is asked for.
    pub(super) fn takes_event(&self, event: &Event) -> bool {
        self.event_type.as_ref().is_none_or(|pattern| pattern.matches(event.event_type.as_str()))
            && self
                .session
                .as_ref()
                .is_none_or(|wanted| event.session.as_ref().is_some_and(|session| session.as_str() == wanted))
            && self.correlation_id.as_ref().is_none_or(|wanted| {
                event.correlation_id.as_ref().is_some_and(|correlation| correlation.as_str() == wanted)
            })
    }

    /// Whether events have to be looked at.
    pub(super) const fn asks_for_events(&self) -> bool {
        self.event_type.is_some() || self.session.is_some() || self.correlation_id.is_some()
    }
}

/// Deliveries that were found.
#[derive(Clone, Debug, Default)]
pub struct DeliveryPage {
    /// The latest first.
    pub deliveries: Vec<DeliveryView>,
    /// Before which place to go on, if there may be more.
    pub next: Option<Seq>,
    /// How many were looked at.
    pub looked_at: u64,
}
