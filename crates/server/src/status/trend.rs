//! Trend of the recent past: of everything, one service or one dependency.

use redrive_core::time::Timestamp;
use redrive_node::runtime::{TrendOf, TrendPoint, TrendSpan};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::{Query, read};
use crate::api::{App, reply};
use crate::breakers::handlers::{declared, phase};
use crate::breakers::json::BreakerState;
use crate::deliveries::handlers::service_of;
use crate::services::handlers::millis;

/// Range and subject of a trend.
#[derive(Deserialize, ToSchema)]
pub(crate) struct TrendKeys {
    /// `15m` (default), `3h` or `24h`.
    #[schema(pattern = "^(15m|3h|24h)$")]
    span: Option<String>,
    /// Of this service with its channels, or of `service/channel`.
    #[schema(min_length = 1)]
    service: Option<String>,
    #[schema(min_length = 1)]
    dependency: Option<String>,
}

/// Trend of the recent past: of everything, one service or one dependency.
#[utoipa::path(
    get, path = "/v1/trend", operation_id = "getTrend", tag = "operating",
    params(QueryKeys<TrendKeys>),
    responses((status = 200, description = "the trend, as far back as recorded", body = TrendJson))
)]
pub(crate) async fn trend(app: App, caller: ApiCaller, Query(keys): Query<TrendKeys>) -> ApiResult {
    let span = read("span", keys.span.as_deref(), span_of)?.unwrap_or(TrendSpan::Minutes);
    let of = match (keys.service, keys.dependency) {
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("dependency", "cannot be combined with `service`"));
        }
        (Some(service), None) => {
            caller.check_service(service_of(&service))?;
            TrendOf::Services(vec![service])
        }
        (None, Some(dependency)) => {
            check_needs(&app, &caller, &dependency)?;
            TrendOf::Dependency(dependency)
        }
        // Bound callers see the sum of their services.
        (None, None) => {
            caller.services().map_or(TrendOf::All, |services| TrendOf::Services(services.to_vec()))
        }
    };
    let (since, points) = match app.node.trend(&of, span) {
        Some(trend) => (trend.since, trend.points),
        None => (known(&app, &of)?, Vec::new()),
    };
    let trend = TrendJson {
        span_ms: millis(span.length()),
        step_ms: millis(span.step()),
        since,
        points: points.iter().map(|point| point_json(point, &of)).collect(),
    };
    reply::ok(&trend)
}

fn span_of(word: &str) -> Result<TrendSpan, &'static str> {
    match word {
        "15m" => Ok(TrendSpan::Minutes),
        "3h" => Ok(TrendSpan::Hours),
        "24h" => Ok(TrendSpan::Day),
        _ => Err("expected 15m, 3h or 24h"),
    }
}

/// Start of recording for a subject without data; `Err` if the rule book does not have it.
fn known(app: &App, of: &TrendOf) -> Result<Timestamp, ApiError> {
    let book = app.node.book();
    match of {
        TrendOf::All => {}
        TrendOf::Services(names) => {
            if names.iter().all(|name| book.service(service_of(name)).is_none()) {
                let message = format!("no service `{}`", names.join(", "));
                return Err(ApiError::new(ApiCode::ServiceNotFound, message));
            }
        }
        TrendOf::Dependency(name) => {
            if !declared(&book).keys().any(|known| known.as_str() == name) {
                let message = format!("no dependency `{name}` in the rule book");
                return Err(ApiError::new(ApiCode::DependencyNotFound, message));
            }
        }
    }
    Ok(app.node.started_at())
}

/// Refuses a dependency that none of the caller's services needs.
fn check_needs(app: &App, caller: &ApiCaller, name: &str) -> Result<(), ApiError> {
    if !caller.is_bound() {
        return Ok(());
    }
    let all = declared(&app.node.book());
    let found = all.iter().find(|(known, _)| known.as_str() == name).map(|(_, found)| found);
    let concerns =
        found.is_some_and(|found| found.queues.iter().any(|queue| caller.sees(queue.service.as_str())));
    if concerns { Ok(()) } else { caller.check_list(None) }
}

fn point_json(point: &TrendPoint, of: &TrendOf) -> TrendPointJson {
    let (is_all, is_dependency) = (*of == TrendOf::All, matches!(of, TrendOf::Dependency(_)));
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    TrendPointJson {
        at: point.at,
        accepted: is_all.then_some(point.accepted),
        attempts: point.attempts,
        failed: point.failed,
        retried: point.retried,
        delivered: point.delivered,
        dead: point.dead,
        waiting: (!is_dependency).then_some(point.waiting),
        dead_letters: (!is_dependency).then_some(point.dead_letters),
        in_flight: (is_all || is_dependency).then_some(point.in_flight),
        state: point.breaker.map(phase),
        p50_ms: point.p50.map(ms),
        p99_ms: point.p99.map(ms),
    }
}

/// A trend, step by step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TrendJson {
    pub span_ms: u64,
    pub step_ms: u64,
    /// Start of the recorded data.
    pub since: Timestamp,
    /// Oldest first; the last step may be incomplete.
    pub points: Vec<TrendPointJson>,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TrendPointJson {
    /// End of the step.
    pub at: Timestamp,
    /// Accepted events; only without a subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// Attempts that ended.
    pub attempts: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Failed attempts followed by a retry.
    pub retried: u64,
    /// Successful deliveries.
    pub delivered: u64,
    /// New dead letters.
    pub dead: u64,
    /// Waiting deliveries at its end; not for dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Dead letters at its end; not for dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<u64>,
    /// Calls in flight at its end; not for services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Breaker state at its end; only for dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<BreakerState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}
