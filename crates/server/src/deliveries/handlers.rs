//! Handlers for events and deliveries.

use redrive_core::book::pattern::EventPattern;
use redrive_core::ids::{DeliveryId, IdPrefix, Receipt, Seq};
use redrive_node::store::{DeliveryFilter, DeliveryStateName, EventKey};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::{PageQuery, Query, read};
use crate::api::{App, reply};
use crate::deliveries::json::{
    DeliveriesResponse, DeliveryJson, EventsResponse, delivery_json, event_json, with_lines,
};
use crate::deliveries::waits::DeliveryWaits;

/// Deliveries that are listed for an ambiguous id prefix.
const CANDIDATES_MAX: usize = 20;

/// Events with this id or receipt, and their deliveries.
#[utoipa::path(
    get, path = "/v1/events/{name}", operation_id = "findEvents", tag = "events",
    params(("name" = String, Path, description = "event id or receipt")),
    responses((status = 200, description = "the events: several sources may use the same id", body = EventsResponse))
)]
pub(crate) async fn event(app: App, caller: ApiCaller, PathName(name): PathName) -> ApiResult {
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
    // A bound caller does not see events without deliveries to its services.
    found.retain(|view| !caller.is_bound() || !view.deliveries.is_empty());
    if found.is_empty() {
        let message = format!("no event with the id or receipt `{name}`");
        return Err(ApiError::new(ApiCode::EventNotFound, message));
    }
    let waits = DeliveryWaits::of(&app.node, found.iter().flat_map(|view| &view.deliveries)).await;
    let events = found.iter().map(|view| event_json(view, &waits)).collect();
    reply::ok(&EventsResponse { events })
}

/// A delivery with its attempts, by id, `webhook-id` or id prefix.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}", operation_id = "getDelivery", tag = "deliveries",
    params(("id" = String, Path, description = "delivery id or id prefix", pattern = "^(msg_)?[0-9a-fA-F]{1,32}$")),
    responses((status = 200, description = "the delivery", body = DeliveryJson))
)]
pub(crate) async fn delivery(app: App, caller: ApiCaller, PathName(name): PathName) -> ApiResult {
    let digits = name.strip_prefix("msg_").unwrap_or(&name).to_owned();
    let Some(prefix) = IdPrefix::parse(&digits) else {
        let message = format!(
            "`{name}` is not a delivery id: expected 32 hexadecimal digits, or the first few of them"
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
            let message = format!("no delivery with an id that begins with `{name}`");
            Err(ApiError::new(ApiCode::DeliveryNotFound, message))
        }
        [view] => {
            let waits = DeliveryWaits::of(&app.node, [view]).await;
            let shown = with_lines(&app.node, &caller, delivery_json(view, &waits)).await?;
            reply::ok(&shown)
        }
        several => {
            let candidates: Vec<String> = several.iter().map(|view| view.id.to_string()).collect();
            let message = format!("{} deliveries begin with `{name}`: type more digits", candidates.len());
            Err(ApiError::new(ApiCode::AmbiguousId, message).with("candidates", candidates))
        }
    }
}

/// Which deliveries to list.
#[derive(Deserialize, ToSchema)]
pub(crate) struct DeliveryKeys {
    /// A service with its channels, or `service/channel`.
    #[schema(min_length = 1)]
    service: Option<String>,
    #[schema(inline)]
    state: Option<DeliveryStateName>,
    /// An event type, or a pattern such as `orders.*`.
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

/// Deliveries, latest first.
#[utoipa::path(
    get, path = "/v1/deliveries", operation_id = "listDeliveries", tag = "deliveries",
    params(QueryKeys<DeliveryKeys>, QueryKeys<PageQuery>),
    responses((
        status = 200, description = "a page of deliveries", body = DeliveriesResponse,
        links(("one" = (operation_id = "getDelivery", parameters(("id" = "$response.body#/deliveries/0/id")))))
    ))
)]
pub(crate) async fn list(
    app: App,
    caller: ApiCaller,
    Query((keys, page)): Query<(DeliveryKeys, PageQuery)>,
) -> ApiResult {
    caller.check_list(keys.service.as_deref().map(service_of))?;
    let filter = DeliveryFilter {
        event_type: read("type", keys.event_type.as_deref(), EventPattern::parse)?,
        before: read("before", keys.before.as_deref(), place_of)?,
        service: keys.service,
        state: keys.state,
        session: keys.session,
        correlation_id: keys.correlation,
        rows_max: page.rows_max(),
    };
    let found = app.node.read(move |reader| reader.list(&filter)).await?;
    let waits = DeliveryWaits::of(&app.node, &found.deliveries).await;
    let deliveries: Vec<_> = found.deliveries.iter().map(|view| delivery_json(view, &waits)).collect();
    // The cursor also covers scanned deliveries that did not match.
    let last = found.deliveries.last().map(|view| view.id);
    let place = |seq| last.filter(|id| id.seq() == seq).unwrap_or(DeliveryId::new(seq, 0)).to_string();
    let next = found.next.map(place);
    reply::ok(&DeliveriesResponse { deliveries, next, looked_at: found.looked_at })
}

pub(crate) fn service_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(service, _)| service)
}

fn place_of(before: &str) -> Result<Seq, &'static str> {
    DeliveryId::parse(before).map(DeliveryId::seq).ok_or("not a delivery id")
}
