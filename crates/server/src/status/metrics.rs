//! Metrics: `GET /metrics` in the Prometheus text format, `GET /v1/metrics` as JSON.
//!
//! Both have three parts: `engine` (counters since the start, engine state), `counts` (sizes in the store)
//! and `oldest` (ages). A part that cannot be read is served from its last value and marked stale, or left
//! out and named; the request fails only when no part is available.

mod exposition;
pub(crate) mod gather;
mod json;
mod prometheus;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::header;
use axum::response::IntoResponse;
use redrive_core::engine::QueueName;
use redrive_core::figures::{AttemptTally, QueueFigures};
use redrive_core::policy::category::Category;
use redrive_core::time::Timestamp;
use redrive_node::runtime::Snapshot;
use redrive_node::store::{Oldest, QueueCounts};

use crate::api::error::{ApiError, ApiResult};
use crate::api::{App, reply};
use crate::breakers::handlers::quantile_ms;
use crate::status::metrics::gather::{Metrics, MetricsInput, StoreTotals};
use crate::status::metrics::json::{
    CountsJson, DependencyMetrics, EngineJson, MetricsJson, MetricsState, OldestOfService, ServiceCounts,
    ServiceMetrics,
};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics in the Prometheus text format.
#[utoipa::path(
    get, path = "/metrics", operation_id = "scrapeMetrics", tag = "operating",
    responses((status = 200, description = "the metrics in `docs/reference/metrics.md`; unavailable parts are left out, and `redrive_metrics_age_seconds` gives the age of the others", body = String, content_type = "text/plain"))
)]
pub(crate) async fn scrape(app: App) -> ApiResult {
    let text = prometheus::written(&app, &gathered(&app.metrics).await?);
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response())
}

/// Metrics as JSON.
#[utoipa::path(
    get, path = "/v1/metrics", operation_id = "getMetrics", tag = "operating",
    responses((status = 200, description = "current or last known values of all available parts", body = MetricsJson))
)]
pub(crate) async fn figures(app: App) -> ApiResult {
    answer(&app.metrics, app.node.now()).await
}

async fn answer(metrics: &Metrics, now: Timestamp) -> ApiResult {
    reply::ok(&shown(&gathered(metrics).await?, now))
}

/// Fails if no part is available.
async fn gathered(metrics: &Metrics) -> Result<MetricsInput, ApiError> {
    let gathered = metrics.gather().await;
    let MetricsInput { engine, counts, oldest } = &gathered;
    if engine.value.is_none() && counts.value.is_none() && oldest.value.is_none() {
        return Err(ApiError::unavailable("neither the engine nor the store is available"));
    }
    Ok(gathered)
}

fn shown(gathered: &MetricsInput, now: Timestamp) -> MetricsJson {
    let MetricsInput { engine, counts, oldest } = gathered;
    #[rustfmt::skip]
    let parts = [
        ("engine", engine.age, &engine.trouble),
        ("counts", counts.age, &counts.trouble),
        ("oldest", oldest.age, &oldest.trouble),
    ];
    let missing = parts.iter().filter(|(_, age, _)| age.is_none()).map(|(name, ..)| (*name).to_owned());
    let missing: Vec<String> = missing.collect();
    let trouble = parts.iter().filter_map(|(name, _, why)| Some(((*name).to_owned(), Option::clone(why)?)));
    let trouble: BTreeMap<String, String> = trouble.collect();
    let age = parts.iter().filter_map(|(_, age, _)| *age).max().unwrap_or_default();
    let state = match (missing.is_empty(), trouble.is_empty()) {
        (true, true) => MetricsState::Fresh,
        (true, false) => MetricsState::Stale,
        (false, _) => MetricsState::Partial,
    };
    MetricsJson {
        state,
        at: before(now, age),
        age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        missing,
        trouble,
        engine: engine.value.as_deref().map(engine_json),
        counts: counts.value.as_deref().map(counts_json),
        oldest: oldest.value.as_deref().map(|queues| queues.iter().map(oldest_json).collect()),
    }
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(span))
}

fn engine_json(snapshot: &Snapshot) -> EngineJson {
    let figures = &snapshot.figures;
    let total = figures.total();
    let mut codes: BTreeMap<String, u64> = BTreeMap::new();
    for (code, count) in figures.queues.values().flat_map(|queue| &queue.codes) {
        *codes.entry(code.to_string()).or_default() += count;
    }
    let dependencies = snapshot.dependencies.iter().map(|view| {
        let counted = figures.dependencies.get(&view.name).cloned().unwrap_or_default();
        DependencyMetrics {
            name: view.name.to_string(),
            state: view.breaker.phase().as_str().to_owned(),
            in_flight: view.in_flight,
            trips: counted.trips,
            attempts: counted.tally.attempts,
            failed: counted.tally.failures(),
            p50_ms: quantile_ms(&counted.took_finely, 0.5),
            p99_ms: quantile_ms(&counted.took_finely, 0.99),
        }
    });
    EngineJson {
        accepted: figures.intake.accepted,
        duplicates: figures.intake.duplicates,
        unrouted: figures.intake.unrouted,
        refused: figures.intake.refused,
        unauthorized: figures.intake.unauthorized,
        attempts: total.attempts,
        failed: total.failures(),
        by_category: by_category(&total),
        by_code: codes,
        retried: total.retried,
        retries: total.retries,
        delivered: total.delivered,
        dead: total.dead,
        exhausted: total.exhausted,
        trips: figures.dependencies.values().map(|dependency| dependency.trips).sum(),
        stale_settlements: figures.stale,
        calls_in_flight: snapshot.calls,
        services: figures.queues.iter().map(|(name, queue)| service_json(name, queue)).collect(),
        dependencies: dependencies.collect(),
    }
}

fn by_category(tally: &AttemptTally) -> BTreeMap<String, u64> {
    Category::ALL.map(|category| (category.to_string(), tally.failed_as(category))).into()
}

fn service_json(name: &QueueName, queue: &QueueFigures) -> ServiceMetrics {
    let tally = queue.total();
    ServiceMetrics {
        service: name.service.to_string(),
        channel: name.channel.as_ref().map(ToString::to_string),
        attempts: tally.attempts,
        failed: tally.failures(),
        retried: tally.retried,
        delivered: tally.delivered,
        dead: tally.dead,
        held: queue.held,
        p50_ms: quantile_ms(&queue.took_finely, 0.5),
        p99_ms: quantile_ms(&queue.took_finely, 0.99),
    }
}

fn counts_json(stock: &StoreTotals) -> CountsJson {
    let StoreTotals { counts, stranded, open_replays, bytes } = stock;
    let service = |(name, counts): (&QueueName, &QueueCounts)| ServiceCounts {
        service: name.service.to_string(),
        channel: name.channel.as_ref().map(ToString::to_string),
        waiting: counts.waiting,
        behind: counts.behind,
        dead: counts.dead,
    };
    CountsJson {
        events: counts.events,
        unrouted: counts.unrouted,
        stranded: *stranded,
        open_replays: *open_replays,
        store_bytes: *bytes,
        services: counts.queues.iter().map(service).collect(),
    }
}

fn oldest_json((name, oldest): (&QueueName, &Oldest)) -> OldestOfService {
    OldestOfService {
        service: name.service.to_string(),
        channel: name.channel.as_ref().map(ToString::to_string),
        waiting_since: oldest.waiting_since,
        dead_since: oldest.dead_since,
    }
}
