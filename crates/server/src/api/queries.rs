//! Answers questions: events, deliveries with their stories, and how the server is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::StreamBody;
use redrive_core::book::own_book::is_own;
use redrive_core::book::pattern::EventPattern;
use redrive_core::ids::{DeliveryId, IdPrefix, Receipt, Seq};
use redrive_node::activity::ActivityLine;
use redrive_node::runtime::{Node, stranded};
use redrive_node::store::{EventKey, Filter, StateName};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::addresses::Addresses;
use super::code::Code;
use super::error::{Answer, ApiError, Named};
use super::identity::{Caller, Peer};
use super::live::Place;
use super::openapi::Keys;
use super::request::{Page, Query, read};
use super::services::{Judgement, Look, judge};
use super::shape::hooks::SourceStatus;
use super::shape::{DeliveriesFound, DeliveryShown, EventsFound, ServiceStatus, Status};
use super::views::{
    ailing_shown, archive_shown, delivery_shown, event_shown, part_of, status_shown, with_letters, with_lines,
};
use super::waits::Waits;
use super::{App, alerts, events, health};

/// Deliveries that may begin with the same digits before it is no use to list them.
const CANDIDATES_MAX: usize = 20;
/// How often the figures are looked at until nothing seems stranded, and how long apart.
const LOOKS_MAX: usize = 10;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How often a stream without news says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events by their id or receipt, with their deliveries.
#[utoipa::path(
    get, path = "/v1/events/{name}", operation_id = "event", tag = "events",
    params(("name" = String, Path, description = "the id or the receipt")),
    responses((status = 200, description = "several sources may have used one id", body = EventsFound))
)]
pub(super) async fn event(app: App, caller: Caller, Named(name): Named) -> Answer {
    let mut found = Vec::new();
    if let Some(receipt) = Receipt::parse(&name) {
        found = app.node.read(move |reader| reader.events(&EventKey::Receipt(receipt))).await?;
    }
    if found.is_empty() {
        let id = name.clone();
        found = app.node.read(move |reader| reader.events(&EventKey::Id(id))).await?;
    }
    for view in &mut found {
        view.deliveries.retain(|delivery| caller.sees(delivery.queue.service.as_str()));
    }
    // Of an event that concerns others only, one who is bound to services hears nothing.
    found.retain(|view| !caller.is_bound() || !view.deliveries.is_empty());
    if found.is_empty() {
        let message = format!("there is no event with the id or receipt `{name}`");
        return Err(ApiError::new(Code::EventNotFound, message));
    }
    let waits = Waits::of(&app.node, found.iter().flat_map(|view| &view.deliveries)).await;
    let events = found.iter().map(|view| event_shown(view, &waits)).collect();
    events::ok(&EventsFound { events })
}

/// A delivery with all its attempts, by its id, its `webhook-id`, or the first digits of it.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}", operation_id = "delivery", tag = "deliveries",
    params(("id" = String, Path, description = "the id, or enough of its first digits", pattern = "^(msg_)?[0-9a-fA-F]{1,32}$")),
    responses((status = 200, description = "the delivery", body = DeliveryShown))
)]
pub(super) async fn delivery(app: App, caller: Caller, Named(name): Named) -> Answer {
    let digits = name.strip_prefix("msg_").unwrap_or(&name).to_owned();
    let Some(prefix) = IdPrefix::parse(&digits) else {
        let message = format!(
            "`{name}` is no delivery's id: that has 32 hexadecimal digits, of which the first few will do"
        );
        return Err(ApiError::wrong("id", message));
    };
    let whole = DeliveryId::parse(&digits);
    let mut found = app.node.read(move |reader| reader.deliveries(&prefix, CANDIDATES_MAX)).await?;
    found.retain(|view| {
        whole.is_none_or(|id| view.id == id)
            && view.id.to_string().starts_with(&digits.to_lowercase())
            && caller.sees(view.queue.service.as_str())
    });
    match found.as_slice() {
        [] => {
            let message = format!("there is no delivery whose id begins with `{name}`");
            Err(ApiError::new(Code::DeliveryNotFound, message))
        }
        [view] => {
            let waits = Waits::of(&app.node, [view]).await;
            let shown = with_lines(&app.node, &caller, delivery_shown(view, &waits)).await?;
            events::ok(&shown)
        }
        several => {
            let candidates: Vec<String> = several.iter().map(|view| view.id.to_string()).collect();
            let message = format!("{} deliveries begin with `{name}`: type more digits", candidates.len());
            Err(ApiError::new(Code::AmbiguousId, message).with("candidates", candidates))
        }
    }
}

/// Which deliveries are meant.
#[derive(Deserialize, ToSchema)]
pub(super) struct DeliveryKeys {
    /// The service with its channels, or `service/channel`.
    #[schema(min_length = 1)]
    service: Option<String>,
    #[schema(inline)]
    state: Option<StateName>,
    /// The event's type, or a pattern such as `orders.*`.
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,30}(\\.\\*)?$")]
    event_type: Option<String>,
    #[schema(min_length = 1)]
    session: Option<String>,
    /// The correlation id.
    #[schema(min_length = 1)]
    correlation: Option<String>,
    /// The `next` of an earlier answer.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    before: Option<String>,
}

/// Deliveries, the latest first.
#[utoipa::path(
    get, path = "/v1/deliveries", operation_id = "deliveries", tag = "deliveries",
    params(Keys<DeliveryKeys>, Keys<Page>),
    responses((
        status = 200, description = "a part of them", body = DeliveriesFound,
        links(("one" = (operation_id = "delivery", parameters(("id" = "$response.body#/deliveries/0/id")))))
    ))
)]
pub(super) async fn list(
    app: App,
    caller: Caller,
    Query((keys, page)): Query<(DeliveryKeys, Page)>,
) -> Answer {
    caller.check_list(keys.service.as_deref().map(service_of))?;
    let filter = Filter {
        event_type: read("type", keys.event_type.as_deref(), EventPattern::parse)?,
        before: read("before", keys.before.as_deref(), place_of)?,
        service: keys.service,
        state: keys.state,
        session: keys.session,
        correlation_id: keys.correlation,
        rows_max: page.rows_max(),
    };
    let found = app.node.read(move |reader| reader.list(&filter)).await?;
    let waits = Waits::of(&app.node, &found.deliveries).await;
    let deliveries: Vec<_> = found.deliveries.iter().map(|view| delivery_shown(view, &waits)).collect();
    // Where the last one that was looked at does not fit, its place is known and nothing else of it.
    let last = found.deliveries.last().map(|view| view.id);
    let place = |seq| last.filter(|id| id.seq() == seq).unwrap_or(DeliveryId::new(seq, 0)).to_string();
    let next = found.next.map(place);
    events::ok(&DeliveriesFound { deliveries, next, looked_at: found.looked_at })
}

/// The service of `service/channel`.
pub(super) fn service_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(service, _)| service)
}

fn place_of(before: &str) -> Result<Seq, &'static str> {
    DeliveryId::parse(before).map(DeliveryId::seq).ok_or("it is no delivery's id")
}

/// How the server is, or the services that the key is bound to.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "status", tag = "operating",
    responses((status = 200, description = "services, dependencies and what needs a hand", body = Status))
)]
pub(super) async fn status(app: App, caller: Caller) -> Answer {
    let status = with_letters(&app.node, &caller, looked(&app).await?).await?;
    let status = with_health(&Look::of(&app).await?, status);
    let shown = match caller.services() {
        None => {
            let degraded = health::degraded(&app, &status);
            let read =
                app.node.sources().into_iter().map(|(name, view)| SourceStatus::of_reading(name, view));
            let sources = app.hooks.status().into_iter().chain(read).collect();
            Status { sources, degraded, firing: alerts::firing(&app.node), ..status }
        }
        // What is of the whole server is not told to a key for a part of it.
        Some(services) => part_of(status, services, &app.node.book()),
    };
    Addresses::for_caller(&caller, &app.node.book()).ok(&shown)
}

/// Adds how each service is, in the words of the list of services.
fn with_health(look: &Look, status: Status) -> Status {
    let judged = |service: ServiceStatus| {
        let view = look.snapshot.queues.iter().find(|view| view.name.to_string() == service.name());
        let judgement = view.filter(|view| !is_own(view.name.service.as_str()));
        let Some(Judgement { word, why, since, until }) =
            judgement.map(|view| judge(&look.signs(&view.name)))
        else {
            return service;
        };
        ServiceStatus { health: Some(word), why: Some(why), why_since: since, why_until: until, ..service }
    };
    Status { services: status.services.into_iter().map(judged).collect(), ..status }
}

/// How the server is, without what dead letters and sources are up to.
pub(super) async fn looked(app: &App) -> Result<Status, ApiError> {
    let (status, stranded) = until_nothing_is_stranded(|| look(app)).await?;
    Ok(Status {
        stranded,
        archive: app.archivist.status(app.node.now()).map(archive_shown),
        secrets: app.hooks.ailing_secrets().await.into_iter().map(ailing_shown).collect(),
        issuer: app.access.ailing_issuer().await.map(ailing_shown),
        ..status
    })
}

async fn look(app: &App) -> Result<(Status, u64), ApiError> {
    let counts = app.node.read(|reader| reader.counts()).await?;
    let snapshot = app.snapshot().await?;
    Ok((status_shown(&app.node, &snapshot, &counts), stranded(&snapshot, &counts)))
}

/// The last of some looks, with how many deliveries are stranded.
///
/// The store and the engine are asked one after the other, and what happens in between looks stranded for a
/// moment. What really is stays so: it is in every look, and a look without it is right.
pub(super) async fn until_nothing_is_stranded<T, E, Look>(look: impl Fn() -> Look) -> Result<(T, u64), E>
where
    Look: Future<Output = Result<(T, u64), E>>,
{
    let (mut seen, mut stranded) = look().await?;
    for _ in 1..LOOKS_MAX {
        if stranded == 0 {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        let (again, left) = look().await?;
        (seen, stranded) = (again, stranded.min(left));
    }
    Ok((seen, stranded))
}

/// What happens, as it happens.
#[utoipa::path(
    get, path = "/v1/happenings", operation_id = "happenings", tag = "operating",
    responses((status = 200, description = "one line of JSON for each, as in the schema `Happening`; an empty line is a sign of life", body = String, content_type = "application/x-ndjson"))
)]
pub(super) async fn happenings(app: App, Extension(peer): Extension<Peer>, caller: Caller) -> Answer {
    let listener = Listener {
        _place: app.live.tail_place(&caller, peer)?,
        receiver: app.node.activities(),
        closing: app.closing.clone(),
        node: app.node.clone(),
        caller,
    };
    let stream = lines(
        listener,
        |listener| Box::pin(next_happening(listener)),
        |happening| match happening {
            Some(happening) => {
                serde_json::to_string(&**happening).expect("texts and numbers are always JSON")
            }
            None => String::new(),
        },
    );
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], stream).into_response())
}

/// Somebody who listens to what happens.
struct Listener {
    receiver: broadcast::Receiver<Arc<ActivityLine>>,
    closing: watch::Receiver<bool>,
    node: Node,
    caller: Caller,
    _place: Place,
}

/// Whether somebody may hear of it: what is of no service may be of any.
pub(super) fn hears(caller: &Caller, line: &ActivityLine) -> bool {
    !caller.is_bound() || line.activity.service().is_some_and(|name| caller.sees(service_of(name)))
}

/// The next one, or nothing but a sign of life; none when the server stops, or would not let the listener in
/// any more.
async fn next_happening(listener: &mut Listener) -> Option<Option<Arc<ActivityLine>>> {
    // Others may hear of much while this one hears of nothing.
    let alive_at = Instant::now() + KEEP_ALIVE;
    loop {
        let happening = tokio::select! {
            biased;
            _ = listener.closing.changed() => return None,
            happening = listener.receiver.recv() => Some(happening),
            () = tokio::time::sleep_until(alive_at) => None,
        };
        if !listener.caller.is_good(listener.node.now()) {
            return None;
        }
        match happening {
            None => return Some(None),
            Some(Ok(happening)) if hears(&listener.caller, &happening) => return Some(Some(happening)),
            // Whoever reads too slowly misses some; it is a view, not a record.
            Some(Ok(_) | Err(RecvError::Lagged(_))) => {}
            Some(Err(RecvError::Closed)) => return None,
        }
    }
}

/// The next item of a source, when it comes.
type Coming<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// A body of lines, each made when something comes.
pub(super) fn lines<S, T>(
    source: S,
    next: for<'a> fn(&'a mut S) -> Coming<'a, T>,
    show: fn(&T) -> String,
) -> Body
where
    S: Send + 'static,
    T: Send + 'static,
{
    let stream = futures_util::stream::unfold(source, move |mut source| async move {
        let item = next(&mut source).await?;
        let mut line = show(&item);
        line.push('\n');
        let frame = hyper::body::Frame::data(Bytes::from(line));
        Some((Ok::<_, std::convert::Infallible>(frame), source))
    });
    Body::new(StreamBody::new(stream))
}
