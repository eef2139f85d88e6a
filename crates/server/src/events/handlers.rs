//! Event ingress: CloudEvents in three forms, and any JSON under a type.

use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode};
use redrive_core::event::attribute::{
    CorrelationId, EventId, ExtensionName, ExtensionText, ExtensionValue, TraceParent,
};
use redrive_core::event::simple::{SimpleEvent, parse_simple};
use redrive_core::event::{Event, HeaderList, Incoming, Parsed, parse, reserved};
use redrive_core::trace::Context;
use redrive_node::store::{AcceptedEvent, Occurrence};

use crate::access::caller::ApiCaller;
use crate::api::body::read_limited;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::reply::json;
use crate::api::{App, CORRELATION_ID, ids};
use crate::events::json::{Accepted, AcceptedBatch, AcceptedResponse, CloudEvent, CloudEvents};

/// Accepts an event, or a batch of at most 1,000 as a whole.
///
/// Besides the two JSON forms it accepts the binary form of CloudEvents 1.0: attributes in `ce-` headers, and
/// a body of any content type.
#[utoipa::path(
    post, path = "/v1/events", operation_id = "sendEvents", tag = "events",
    request_body(content(
        (CloudEvent = "application/cloudevents+json"),
        (CloudEvents = "application/cloudevents-batch+json"),
    )),
    responses(
        (status = 202, description = "the event is durable", body = AcceptedResponse),
        (status = 200, description = "duplicate with the same content, not delivered again", body = AcceptedResponse),
    )
)]
pub(crate) async fn accept(app: App, caller: ApiCaller, headers: HeaderMap, body: Body) -> ApiResult {
    let body = read_limited(&app, &headers, body).await?;
    match parse(Incoming { headers: &CloudEventHeaders(&headers), body: &body })? {
        Parsed::One(event) => one(&app, &caller, tied(*event, &headers)).await,
        Parsed::Batch(events) => {
            let events = events.into_iter().map(|event| tied(event, &headers));
            batch(&app, &caller, events.collect()).await
        }
    }
}

/// Accepts an event of this type with any JSON as data.
///
/// Its id is the header `Idempotency-Key` or `ce-id`, or else generated; other attributes come from `ce-`
/// headers.
#[utoipa::path(
    post, path = "/v1/events/{name}", operation_id = "sendEvent", tag = "events",
    params(
        ("name" = String, Path, description = "event type: words separated by dots", max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,31}$"),
        ("partitionkey" = Option<String>, Query, description = "the session: its deliveries stay in order; also a header of this name", min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"),
        ("Idempotency-Key" = Option<String>, Header, description = "event id", min_length = 1, max_length = 512, pattern = "^[ -~]*$"),
    ),
    request_body(content = serde_json::Value, content_type = "application/json", description = "event data"),
    responses(
        (
            status = 202, description = "the event is durable", body = Accepted,
            links(("event" = (operation_id = "findEvents", parameters(("name" = "$response.body#/receipt")))))
        ),
        (status = 200, description = "duplicate with the same content, not delivered again", body = Accepted),
    )
)]
pub(crate) async fn accept_easy(
    app: App,
    caller: ApiCaller,
    PathName(event_type): PathName,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    let body = read_limited(&app, &headers, body).await?;
    let text = |name: &'static str| match headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()))
    {
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(ApiError::invalid(name, "is not UTF-8")),
        None => Ok(None),
    };
    let queried = query.as_deref().and_then(|query| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == "partitionkey")
            .map(|(_, value)| value)
    });
    let generated_id = EventId::new(&ids::fresh_id().to_string()).expect("36 plain characters");
    let event = parse_simple(SimpleEvent {
        event_type: &event_type,
        partition_key: queried.as_deref().or(text("partitionkey")?),
        idempotency_key: text("idempotency-key")?,
        generated_id: &generated_id,
        headers: &CloudEventHeaders(&headers),
        body: &body,
    })?;
    one(&app, &caller, tied(event, &headers)).await
}

/// An event without correlation id or trace gets those of its request, so that its deliveries can be found.
fn tied(mut event: Event, headers: &HeaderMap) -> Event {
    if event.correlation_id.is_none() {
        let id = headers.get(CORRELATION_ID).and_then(|id| id.to_str().ok());
        event.correlation_id = id.and_then(|id| CorrelationId::new(id).ok());
    }
    if event.traceparent.is_none() {
        event.traceparent = trace_of(headers);
        if event.traceparent.is_some()
            && let Some(state) = single(headers, "tracestate").and_then(|text| ExtensionText::new(text).ok())
        {
            let name = ExtensionName::new("tracestate").expect("lower-case letters");
            event.extensions.entry(name).or_insert(ExtensionValue::Text(state));
        }
    }
    event
}

/// An invalid trace is dropped rather than the event.
fn trace_of(headers: &HeaderMap) -> Option<TraceParent> {
    if !headers.contains_key("traceparent") {
        return None;
    }
    let text = single(headers, "traceparent").filter(|text| Context::parse(text).is_some());
    if text.is_none() {
        tracing::debug!("invalid traceparent ignored");
    }
    text.and_then(|text| TraceParent::new(text).ok())
}

/// `None` unless the header has exactly one text value.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Refuses sources reserved for schedules and webhooks: their event ids can be guessed, and a forged event
/// would make the real one a duplicate.
fn check_source(caller: &ApiCaller, event: &Event) -> Result<(), ApiError> {
    let source = event.source.as_str();
    if let Some(owner) = reserved::owner_of(source) {
        return Err(ApiError::invalid("source", format!("is reserved for {owner}")));
    }
    caller.check_source(source)
}

async fn one(app: &App, caller: &ApiCaller, event: Event) -> ApiResult {
    check_source(caller, &event)?;
    let id = event.id.to_string();
    let taken = app.node.submit(vec![event]).await.map_err(ApiError::of_event)?;
    let accepted = accepted(id, taken[0]);
    let status = if accepted.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(json(status, &accepted))
}

async fn batch(app: &App, caller: &ApiCaller, events: Vec<Event>) -> ApiResult {
    for event in &events {
        check_source(caller, event)?;
    }
    let ids: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    let taken = app.node.submit(events).await.map_err(ApiError::of_event)?;
    let events: Vec<Accepted> = ids.into_iter().zip(taken).map(|(id, taken)| accepted(id, taken)).collect();
    let is_news = events.iter().any(|event| !event.duplicate);
    let status = if is_news { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(json(status, &AcceptedBatch { events }))
}

fn accepted(id: String, taken: AcceptedEvent) -> Accepted {
    Accepted {
        id,
        receipt: taken.receipt.to_string(),
        duplicate: taken.seen == Occurrence::Duplicate,
        deliveries: taken.deliveries,
    }
}

struct CloudEventHeaders<'a>(&'a HeaderMap);

impl HeaderList for CloudEventHeaders<'_> {
    fn each(&self) -> Box<dyn Iterator<Item = (&str, &[u8])> + '_> {
        Box::new(self.0.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
    }
}
