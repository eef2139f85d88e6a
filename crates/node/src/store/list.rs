//! Queries for lists of deliveries.

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::ids::Seq;

use super::{DeliveryStateName, DeliveryView};

/// Deliveries examined per query; the next query continues from there.
pub const SCANNED_MAX: u64 = 20_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// `service` or `service/channel`.
    pub service: Option<String>,
    pub state: Option<DeliveryStateName>,
    pub event_type: Option<EventPattern>,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
    /// `None` starts with the latest.
    pub before: Option<Seq>,
    pub rows_max: usize,
}

impl DeliveryFilter {
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

    pub(super) const fn asks_for_events(&self) -> bool {
        self.event_type.is_some() || self.session.is_some() || self.correlation_id.is_some()
    }
}

#[derive(Clone, Debug, Default)]
pub struct DeliveryPage {
    pub deliveries: Vec<DeliveryView>,
    /// Pass as `before` to continue; `None` at the end.
    pub next: Option<Seq>,
    pub looked_at: u64,
}
