//! Makes the request of a call: the event in the target's form or what the book has in its place, and the
//! headers that identify the delivery. With a body of the book there are no `ce-` headers, and templates that
//! the event does not fit give no request.
//!
//! | header | meaning |
//! | --- | --- |
//! | `webhook-id`, `idempotency-key` | which delivery; the same on every attempt and every replay |
//! | `webhook-timestamp` | when this attempt started, in seconds since 1970 |
//! | `webhook-signature` | `v1,…` for each secret, if the target has any |
//! | `redrive-attempt` | the number of the attempt, from 1 |
//! | `redrive-sequence` | in a session: the position in its order |
//! | `redrive-replay` | of a replayed dead letter: the number of replays, this one included |
//! | `x-correlation-id` | the event's |
//! | `traceparent`, `tracestate` | the attempt's span in the event's trace, or in a new one if traces are exported |
//!
//! Sequence numbers grow from delivery to delivery, but a replayed letter keeps its own, and an edited one is
//! sent with the old one's, so it may follow higher ones. Only the id identifies a repetition.
//!
//! In a batch each event carries id, attempt, sequence, replays and trace context itself, as the attributes
//! `webhookid`, `redriveattempt`, `redrivesequence`, `redrivereplay` and `redrivetraceparent`; its
//! `traceparent` stays the sender's. The headers then describe the batch: its id is a hash of the deliveries'
//! ids in order, so the same batch has the same id, and its attempt is the highest in it. In the structured
//! form a replayed event has `redrivereplay` too, since events may be forwarded without headers. Attributes
//! of these names that came with an event are removed in every form.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use redrive_core::book::connectors::http::request::{
    EventMisfit, FilledRequest, RequestContent, RequestTemplates,
};
use redrive_core::book::connectors::http::{HttpFormat, HttpMethod};
use redrive_core::book::template::{TemplateContext, TemplateNeeds};
use redrive_core::engine::PendingDelivery;
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, ExtensionName, ExtensionText, ExtensionValue};
use redrive_core::event::idempotency::webhook_id;
use redrive_core::hash::stable_128;
use redrive_core::time::Timestamp;
use redrive_core::trace::{Context, EventTrace, Sampler};

use super::address::HttpAddress;
use super::sign::Signer;

pub(super) const USER_AGENT_VALUE: &str = concat!("redrive/", env!("CARGO_PKG_VERSION"));
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
pub(super) const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const REDRIVE_ATTEMPT: HeaderName = HeaderName::from_static("redrive-attempt");
const REDRIVE_SEQUENCE: HeaderName = HeaderName::from_static("redrive-sequence");
const REDRIVE_REPLAY: HeaderName = HeaderName::from_static("redrive-replay");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const X_CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// What all requests of a target have in common.
#[derive(Clone, Debug, Default)]
pub struct RequestShape {
    pub form: HttpFormat,
    method: Method,
    /// Further headers of the book that are the same in every call.
    fixed: Vec<(HeaderName, HeaderValue)>,
    /// The names of the templates' headers, in their order.
    names: Vec<HeaderName>,
    /// With the other headers.
    templates: RequestTemplates,
    needs: TemplateNeeds,
}

impl RequestShape {
    #[must_use]
    pub fn new(form: HttpFormat, method: HttpMethod, request: &RequestTemplates) -> Self {
        let method = super::method_of(method);
        let name = |name: &String| HeaderName::try_from(name).expect("the book has valid header names");
        let mut templates = request.clone();
        let mut fixed = Vec::new();
        templates.headers.retain(|header, template| {
            let literal = template.literal().map(|value| (name(header), text(value.to_owned())));
            let is_made = literal.is_none();
            fixed.extend(literal);
            is_made
        });
        let names = templates.headers.keys().map(name).collect();
        let needs = templates.needs();
        Self { form, method, fixed, names, templates, needs }
    }

    /// `None` if every request is the same but for the event.
    fn fill(
        &self,
        path: &PathAndQuery,
        deliveries: &[PendingDelivery],
    ) -> Result<Option<FilledRequest>, EventMisfit> {
        if self.templates == RequestTemplates::default() {
            return Ok(None);
        }
        let [delivery, ..] = deliveries else { return Ok(None) };
        let (id, attempt) = (webhook_id(delivery.id), delivery.next_attempt().get());
        let context = TemplateContext::with(self.needs, &delivery.event, &id, attempt);
        self.templates.fill(path.as_str(), &context).map(Some)
    }
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRequest {
    /// The call does not fit the target's form, which is a bug.
    #[error("call of {deliveries} deliveries does not fit the form {form:?}")]
    Form { deliveries: usize, form: HttpFormat },
    /// Filled in, it would be no request; the book and the client disagree, which is a bug.
    #[error("call not made: invalid {0}")]
    Filled(&'static str),
    #[error(transparent)]
    Event(#[from] EventMisfit),
}

pub(super) fn make(
    address: &HttpAddress,
    shape: &RequestShape,
    signer: Option<&Signer>,
    deliveries: &[PendingDelivery],
    sampler: Option<Sampler>,
    now: Timestamp,
) -> Result<Request<Bytes>, NoRequest> {
    let filled = shape.fill(&address.path, deliveries)?.unwrap_or_default();
    let mut headers = HeaderMap::with_capacity(24);
    headers.insert(HOST, address.host.clone());
    headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
    if let Some(authorization) = &address.authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    let (id, body) = match (shape.form, deliveries, filled.body) {
        (HttpFormat::Binary, [delivery], Some(body)) => {
            if let Some(media_type) = shape.templates.content.media_type().filter(|_| !body.is_empty()) {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            }
            (one(&mut headers, delivery, sampler), body.into())
        }
        (HttpFormat::Binary, [delivery], None) => {
            for (name, value) in delivery.event.binary_headers() {
                if name.strip_prefix("ce-").is_some_and(is_ours) {
                    continue;
                }
                let name = HeaderName::try_from(name).expect("attributes have names of letters and digits");
                headers.insert(name, text(value));
            }
            (one(&mut headers, delivery, sampler), delivery.event.data.clone())
        }
        (HttpFormat::Structured, [delivery], None) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/cloudevents+json"));
            (one(&mut headers, delivery, sampler), structured(delivery))
        }
        (HttpFormat::Batch, deliveries @ [_, ..], None) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/cloudevents-batch+json"));
            (several(&mut headers, deliveries), list(deliveries, sampler))
        }
        (form, deliveries, _) => return Err(NoRequest::Form { deliveries: deliveries.len(), form }),
    };
    let timestamp = now.as_millis() / 1_000;
    let signature = signer.map(|signer| signer.sign(&id, timestamp, &body));
    let id = text(id);
    headers.insert(WEBHOOK_ID, id.clone());
    headers.insert(IDEMPOTENCY_KEY, id);
    headers.insert(WEBHOOK_TIMESTAMP, timestamp.into());
    if let Some(signature) = signature {
        headers.insert(WEBHOOK_SIGNATURE, text(signature));
    }
    for (name, value) in &shape.fixed {
        headers.insert(name, value.clone());
    }
    for (name, value) in shape.names.iter().zip(filled.headers) {
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| NoRequest::Filled("header"))?);
    }
    if shape.templates.content != RequestContent::Nothing {
        // Some servers require it even without a body.
        headers.insert(CONTENT_LENGTH, body.len().into());
    }
    let path = match filled.target {
        None => address.path.clone(),
        Some(target) => PathAndQuery::try_from(target).map_err(|_| NoRequest::Filled("path"))?,
    };

    let mut request = Request::new(body);
    *request.method_mut() = shape.method.clone();
    *request.uri_mut() = Uri::from(path);
    *request.headers_mut() = headers;
    Ok(request)
}

fn one(headers: &mut HeaderMap, delivery: &PendingDelivery, sampler: Option<Sampler>) -> String {
    headers.insert(REDRIVE_ATTEMPT, delivery.next_attempt().get().into());
    if let Some(sequence) = delivery.sequence {
        headers.insert(REDRIVE_SEQUENCE, sequence.get().into());
    }
    if let Some(replaying) = delivery.replaying {
        headers.insert(REDRIVE_REPLAY, replaying.times.into());
    }
    if let Some(place) = place_in_trace(delivery, sampler) {
        headers.insert(TRACEPARENT, text(place.to_string()));
        put(headers, TRACESTATE, trace_state(&delivery.event));
    }
    put(headers, X_CORRELATION_ID, delivery.event.correlation_id.as_ref().map(CorrelationId::as_str));
    webhook_id(delivery.id)
}

/// The attempt's trace context. None if traces are not exported and no sender began one: the target may start
/// its own.
pub(in crate::target) fn place_in_trace(
    delivery: &PendingDelivery,
    sampler: Option<Sampler>,
) -> Option<Context> {
    let trace = EventTrace::of(&delivery.event, sampler.unwrap_or(Sampler::USUAL));
    (trace.sender.is_some() || sampler.is_some())
        .then(|| trace.at_attempt(delivery.id, delivery.next_attempt()))
}

pub(in crate::target) fn trace_state(event: &Event) -> Option<&str> {
    match event.extensions.iter().find(|(name, _)| name.as_str() == "tracestate") {
        Some((_, ExtensionValue::Text(state))) => Some(state.as_str()),
        Some((_, ExtensionValue::Integer(_) | ExtensionValue::Boolean(_))) | None => None,
    }
}

/// Only printable ASCII; the event's attributes have the value all the same, encoded.
fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(value) = value.filter(|value| value.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
        headers.insert(name, text(value.to_owned()));
    }
}

fn several(headers: &mut HeaderMap, deliveries: &[PendingDelivery]) -> String {
    let highest = deliveries.iter().map(|delivery| delivery.next_attempt().get()).max();
    headers.insert(REDRIVE_ATTEMPT, highest.expect("a batch is not empty").into());
    let ids: Vec<u8> = deliveries.iter().flat_map(|delivery| delivery.id.0.to_be_bytes()).collect();
    format!("batch_{:032x}", stable_128(&ids))
}

/// A replayed event carries its replay count.
pub(in crate::target) fn structured(delivery: &PendingDelivery) -> Bytes {
    let says_so = delivery.event.extensions.keys().any(|name| is_ours(name.as_str()));
    if delivery.replaying.is_none() && !says_so {
        return delivery.event.to_structured().into();
    }
    let mut event = Event::clone(&delivery.event);
    event.extensions.retain(|name, _| !is_ours(name.as_str()));
    set(&mut event, REPLAY, delivery.replaying.map(|replaying| whole(replaying.times)));
    event.to_structured().into()
}

fn list(deliveries: &[PendingDelivery], sampler: Option<Sampler>) -> Bytes {
    let mut body = vec![b'['];
    for (place, delivery) in deliveries.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend(identified(delivery, sampler).to_structured());
    }
    body.push(b']');
    body.into()
}

/// The event with what would be in headers; the data is not copied.
fn identified(delivery: &PendingDelivery, sampler: Option<Sampler>) -> Event {
    let mut event = Event::clone(&delivery.event);
    let short =
        |text: &str| ExtensionValue::Text(ExtensionText::new(text).expect("a few letters and digits"));
    set(&mut event, ID, Some(short(&webhook_id(delivery.id))));
    set(&mut event, ATTEMPT, Some(whole(delivery.next_attempt().get())));
    // CloudEvents integers have 32 bits.
    let sequence = delivery.sequence.map(|sequence| short(&sequence.get().to_string()));
    set(&mut event, SEQUENCE, sequence);
    set(&mut event, REPLAY, delivery.replaying.map(|replaying| whole(replaying.times)));
    set(&mut event, TRACE, place_in_trace(delivery, sampler).map(|place| short(&place.to_string())));
    event
}

/// Attributes that identify a delivery.
const ID: &str = "webhookid";
const ATTEMPT: &str = "redriveattempt";
const SEQUENCE: &str = "redrivesequence";
const REPLAY: &str = "redrivereplay";
const TRACE: &str = "redrivetraceparent";

fn is_ours(name: &str) -> bool {
    [ID, ATTEMPT, SEQUENCE, REPLAY, TRACE].contains(&name)
}

fn set(event: &mut Event, name: &str, value: Option<ExtensionValue>) {
    let name = ExtensionName::new(name).expect("letters only");
    match value {
        Some(value) => drop(event.extensions.insert(name, value)),
        None => drop(event.extensions.remove(&name)),
    }
}

fn whole(number: u32) -> ExtensionValue {
    ExtensionValue::Integer(i32::try_from(number).unwrap_or(i32::MAX))
}

fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("what is encoded, checked or made here is printable ASCII")
}
