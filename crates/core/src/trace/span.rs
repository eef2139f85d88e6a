//! What a trace tells: a span for each acceptance, each attempt, and each delivery that has ended.
//!
//! Invariant: a span has names, numbers and codes, and never the words of a target or anything of an event's
//! data: traces go to people who need not know them.

use std::borrow::Cow;

use super::{Sampled, Sampler, SpanId, Trace, TraceId};
use crate::engine::story::{End, Story};
use crate::engine::{Made, Next, Settlement, Signal, Waiting};
use crate::event::Event;
use crate::ids::ChannelName;
use crate::time::Timestamp;

/// Something that took its time, or happened at one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// What it is a part of; none begins the trace.
    pub parent: Option<SpanId>,
    /// What was done.
    pub does: Does,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was over.
    pub ended_at: Timestamp,
    /// The code of the failure that it ended in, if it did.
    pub failure: Option<String>,
    /// What else is known of it.
    pub attributes: Vec<(&'static str, Value)>,
}

/// What a span tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// An event became durable.
    Accept,
    /// A delivery, from its first attempt to its end.
    Deliver,
    /// A dead letter was sent again, until that ended.
    Replay,
    /// An attempt.
    Attempt,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(u64),
}

impl Does {
    /// The word for it.
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

/// What tells that an event became durable, if its trace is recorded.
#[must_use]
pub fn of_accepted(event: &Event, deliveries: u32, at: Timestamp, sampler: Sampler) -> Option<Span> {
    let trace = Trace::of(event, sampler);
    let mut attributes = about(event);
    attributes.push(("redrive.deliveries", Value::Number(u64::from(deliveries))));
    (trace.sampled == Sampled::Yes).then(|| Span {
        trace: trace.id,
        id: trace.accept(),
        parent: trace.sender,
        does: Does::Accept,
        started_at: at,
        ended_at: at,
        failure: None,
        attributes,
    })
}

/// What a signal tells: an attempt that has ended, a delivery that has, both or neither.
#[must_use]
pub fn of_signal(signal: &Signal, sampler: Sampler) -> Vec<Span> {
    let Signal::Settled { delivery, settlement, made } = signal else { return Vec::new() };
    let trace = Trace::of(&delivery.event, sampler);
    if trace.sampled == Sampled::No {
        return Vec::new();
    }
    let story = settlement.story.as_deref().filter(|_| settlement.attempts > settlement.attempts_before);
    let attempt = story.map(|story| attempt(&trace, delivery, story, settlement, made.as_ref()));
    attempt.into_iter().chain(delivery_span(&trace, delivery, settlement)).collect()
}

/// What the attempts of a delivery are parts of, and what that is.
fn life(delivery: &Waiting) -> (SpanId, Does) {
    match delivery.replaying {
        Some(replaying) => (SpanId::of_replay(delivery.id, replaying.replay), Does::Replay),
        None => (SpanId::of_delivery(delivery.id), Does::Deliver),
    }
}

fn attempt(
    trace: &Trace,
    delivery: &Waiting,
    story: &Story,
    settlement: &Settlement,
    made: Option<&Made>,
) -> Span {
    let mut attributes = about_delivery(delivery);
    attributes.push(("redrive.attempt", Value::Number(u64::from(story.attempt.get()))));
    if let Some(made) = made {
        attributes.push(("redrive.dependency", text(made.dependency.as_str())));
    }
    let (status, failure) = match &story.end {
        End::Delivered { status } => (*status, None),
        End::Failed { category, code, status, .. } => {
            attributes.push(("redrive.category", Value::Text(category.as_str().into())));
            (*status, Some(code.to_string()))
        }
        End::Held { .. } => (None, None),
    };
    if let Some(status) = status {
        attributes.push(("http.response.status_code", Value::Number(u64::from(status))));
    }
    let next = match settlement.next {
        Next::Delivered => "delivered",
        Next::Dead(_) => "dead",
        Next::Ready | Next::Due { .. } | Next::Starting => "again",
    };
    attributes.push(("redrive.next", Value::Text(next.into())));
    Span {
        trace: trace.id,
        id: SpanId::of_attempt(delivery.id, story.attempt),
        parent: Some(life(delivery).0),
        does: Does::Attempt,
        started_at: story.started_at,
        ended_at: story.started_at + std::time::Duration::from_nanos(story.took_nanos),
        failure,
        attributes,
    }
}

fn delivery_span(trace: &Trace, delivery: &Waiting, settlement: &Settlement) -> Option<Span> {
    let (outcome, death) = match &settlement.next {
        Next::Delivered => ("delivered", None),
        Next::Dead(death) => ("dead", Some(death)),
        Next::Ready | Next::Due { .. } | Next::Starting => return None,
    };
    let (id, does) = life(delivery);
    let parent = match does {
        Does::Replay => SpanId::of_delivery(delivery.id),
        Does::Accept | Does::Deliver | Does::Attempt => trace.above_deliveries(),
    };
    let mut attributes = about_delivery(delivery);
    attributes.push(("redrive.attempts", Value::Number(u64::from(settlement.attempts))));
    attributes.push(("redrive.outcome", Value::Text(outcome.into())));
    if let Some(death) = death {
        attributes.push(("redrive.category", Value::Text(death.category.as_str().into())));
        attributes.push(("redrive.failure_code", text(death.failure_code.as_str())));
    }
    // One that was given up before its first attempt began to wait when it was last written.
    let began = settlement.history.first_attempt_at().unwrap_or(delivery.written_at);
    Some(Span {
        trace: trace.id,
        id,
        parent: Some(parent),
        does,
        started_at: began.min(settlement.at),
        ended_at: settlement.at,
        failure: death.map(|death| death.code.to_string()),
        attributes,
    })
}

fn about(event: &Event) -> Vec<(&'static str, Value)> {
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

fn about_delivery(delivery: &Waiting) -> Vec<(&'static str, Value)> {
    let mut attributes = about(&delivery.event);
    attributes.push(("redrive.service", text(delivery.queue.service.as_str())));
    if let Some(channel) = delivery.queue.channel.as_ref().map(ChannelName::as_str) {
        attributes.push(("redrive.channel", text(channel)));
    }
    attributes.push(("redrive.delivery_id", Value::Text(delivery.id.to_string().into())));
    attributes
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned().into())
}
