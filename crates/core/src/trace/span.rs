//! Spans: one for each acceptance, each attempt, and each delivery that has ended.
//!
//! Invariant: a span has names, numbers and codes, and never a target's message or anything of an event's
//! data: traces have other readers.

use std::borrow::Cow;

use super::{EventTrace, Sampled, Sampler, SpanId, TraceId};
use crate::engine::attempt_record::{AttemptEnd, AttemptRecord};
use crate::engine::{CompletedCall, EngineActivity, NextState, PendingDelivery, Settlement};
use crate::event::Event;
use crate::ids::ChannelName;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpan {
    pub trace: TraceId,
    pub id: SpanId,
    /// `None` begins the trace.
    pub parent: Option<SpanId>,
    pub does: SpanKind,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    /// The code of the failure that it ended in, if it did.
    pub failure: Option<String>,
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An event became durable.
    Accept,
    /// From the first attempt to the end.
    Deliver,
    /// A dead letter was sent again, until that ended.
    Replay,
    Attempt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    Text(Cow<'static, str>),
    Number(u64),
}

impl SpanKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Deliver => "deliver",
            Self::Replay => "replay",
            Self::Attempt => "attempt",
        }
    }
}

/// `None` if the trace is not recorded.
#[must_use]
pub fn of_accepted(event: &Event, deliveries: u32, at: Timestamp, sampler: Sampler) -> Option<TraceSpan> {
    let trace = EventTrace::of(event, sampler);
    let mut attributes = about(event);
    attributes.push(("redrive.deliveries", AttributeValue::Number(u64::from(deliveries))));
    (trace.sampled == Sampled::Yes).then(|| TraceSpan {
        trace: trace.id,
        id: trace.accept(),
        parent: trace.sender,
        does: SpanKind::Accept,
        started_at: at,
        ended_at: at,
        failure: None,
        attributes,
    })
}

/// The spans of an ended attempt, of an ended delivery, both or none.
#[must_use]
pub fn of_activity(activity: &EngineActivity, sampler: Sampler) -> Vec<TraceSpan> {
    let EngineActivity::Settled { delivery, settlement, made } = activity else { return Vec::new() };
    let trace = EventTrace::of(&delivery.event, sampler);
    if trace.sampled == Sampled::No {
        return Vec::new();
    }
    let record = settlement.record.as_deref().filter(|_| settlement.attempts > settlement.attempts_before);
    let attempt = record.map(|record| attempt(&trace, delivery, record, settlement, made.as_ref()));
    attempt.into_iter().chain(delivery_span(&trace, delivery, settlement)).collect()
}

/// The parent of a delivery's attempts, and its kind.
fn life(delivery: &PendingDelivery) -> (SpanId, SpanKind) {
    match delivery.replaying {
        Some(replaying) => (SpanId::of_replay(delivery.id, replaying.replay), SpanKind::Replay),
        None => (SpanId::of_delivery(delivery.id), SpanKind::Deliver),
    }
}

fn attempt(
    trace: &EventTrace,
    delivery: &PendingDelivery,
    record: &AttemptRecord,
    settlement: &Settlement,
    made: Option<&CompletedCall>,
) -> TraceSpan {
    let mut attributes = about_delivery(delivery);
    attributes.push(("redrive.attempt", AttributeValue::Number(u64::from(record.attempt.get()))));
    if let Some(made) = made {
        attributes.push(("redrive.dependency", text(made.dependency.as_str())));
    }
    let (status, failure) = match &record.end {
        AttemptEnd::Delivered { status, .. } => (*status, None),
        AttemptEnd::Failed { category, code, status, .. } => {
            attributes.push(("redrive.category", AttributeValue::Text(category.as_str().into())));
            (*status, Some(code.to_string()))
        }
        AttemptEnd::Held { .. } => (None, None),
    };
    if let Some(status) = status {
        attributes.push(("http.response.status_code", AttributeValue::Number(u64::from(status))));
    }
    let next = match settlement.next {
        NextState::Delivered => "delivered",
        NextState::Dead(_) => "dead",
        NextState::Ready | NextState::Due { .. } | NextState::Starting => "again",
    };
    attributes.push(("redrive.next", AttributeValue::Text(next.into())));
    TraceSpan {
        trace: trace.id,
        id: SpanId::of_attempt(delivery.id, record.attempt),
        parent: Some(life(delivery).0),
        does: SpanKind::Attempt,
        started_at: record.started_at,
        ended_at: record.started_at + std::time::Duration::from_nanos(record.took_nanos),
        failure,
        attributes,
    }
}

fn delivery_span(
    trace: &EventTrace,
    delivery: &PendingDelivery,
    settlement: &Settlement,
) -> Option<TraceSpan> {
    let (outcome, info) = match &settlement.next {
        NextState::Delivered => ("delivered", None),
        NextState::Dead(info) => ("dead", Some(info)),
        NextState::Ready | NextState::Due { .. } | NextState::Starting => return None,
    };
    let (id, does) = life(delivery);
    let parent = match does {
        SpanKind::Replay => SpanId::of_delivery(delivery.id),
        SpanKind::Accept | SpanKind::Deliver | SpanKind::Attempt => trace.above_deliveries(),
    };
    let mut attributes = about_delivery(delivery);
    attributes.push(("redrive.attempts", AttributeValue::Number(u64::from(settlement.attempts))));
    attributes.push(("redrive.outcome", AttributeValue::Text(outcome.into())));
    if let Some(info) = info {
        attributes.push(("redrive.category", AttributeValue::Text(info.category.as_str().into())));
        attributes.push(("redrive.failure_code", text(info.failure_code.as_str())));
    }
    // One that was given up before its first attempt began to wait when it was last written.
    let began = settlement.history.first_attempt_at().unwrap_or(delivery.written_at);
    Some(TraceSpan {
        trace: trace.id,
        id,
        parent: Some(parent),
        does,
        started_at: began.min(settlement.at),
        ended_at: settlement.at,
        failure: info.map(|info| info.code.to_string()),
        attributes,
    })
}

fn about(event: &Event) -> Vec<(&'static str, AttributeValue)> {
    let mut attributes = vec![
        ("cloudevents.event_id", text(event.id.as_str())),
        ("cloudevents.event_source", text(event.source.as_str())),
        ("cloudevents.event_type", text(event.event_type.as_str())),
    ];
    if let Some(id) = &event.correlation_id {
        attributes.push(("redrive.correlation_id", text(id.as_str())));
    }
    attributes
}

fn about_delivery(delivery: &PendingDelivery) -> Vec<(&'static str, AttributeValue)> {
    let mut attributes = about(&delivery.event);
    attributes.push(("redrive.service", text(delivery.queue.service.as_str())));
    if let Some(channel) = delivery.queue.channel.as_ref().map(ChannelName::as_str) {
        attributes.push(("redrive.channel", text(channel)));
    }
    attributes.push(("redrive.delivery_id", AttributeValue::Text(delivery.id.to_string().into())));
    attributes
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.to_owned().into())
}
