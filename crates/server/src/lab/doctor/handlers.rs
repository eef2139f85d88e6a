//! `GET /v1/doctor`: problems of the server and the rule-book changes that would help.
//!
//! Invariants: one examination runs at a time and its report serves all who ask the same soon after; an
//! examination that panics is an internal error, not a closed connection.

use std::sync::Arc;
use std::time::Duration;

use redrive_lab::doctor::{DoctorReport, examine};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::Query;
use crate::api::{App, run_to_end};
use crate::lab::doctor::evidence::{self, DeliveryEvidence};

const KEPT_FOR: Duration = Duration::from_secs(5);

const KEPT_MAX: usize = 16;

/// What to examine.
#[derive(Deserialize, ToSchema)]
pub(crate) struct DoctorKeys {
    /// Only this service and its channels.
    #[schema(min_length = 1)]
    service: Option<String>,
}

/// Findings, the worst first, each with evidence and the change to make.
///
/// Reads the latest 5,000 deliveries with all attempts, and the server's counters. A report is reused for
/// five seconds, unless the rule book changes.
#[utoipa::path(
    get, path = "/v1/doctor", operation_id = "runDoctor", tag = "operating",
    params(QueryKeys<DoctorKeys>),
    responses((status = 200, description = "the findings; empty if no problems were found", body = DoctorReport))
)]
pub(crate) async fn doctor(
    app: App,
    caller: ApiCaller,
    Query(DoctorKeys { service }): Query<DoctorKeys>,
) -> ApiResult {
    let addresses = VisibleAddresses::for_caller(&caller, &app.node.book());
    // If the caller disconnects, the report still serves the next one.
    let report = run_to_end(async move {
        let question = ReportKey { service: service.clone(), book: app.node.book().hash() };
        app.reports.of(question, examined(&app, service)).await
    });
    addresses.ok(&*report.await?)
}

async fn examined(app: &App, service: Option<String>) -> Result<DoctorReport, ApiError> {
    let mut deliveries = DeliveryEvidence::of(service);
    while let Some(wanted) = deliveries.wanted() {
        deliveries.add(app.node.read(move |reader| reader.deliveries_with_attempts(&wanted)).await?);
    }
    let book = app.node.book();
    let hash = book.hash();
    let rest = app.node.read(move |reader| evidence::rest(reader, Some(hash))).await?;
    let snapshot = app.snapshot().await?;
    let (turns, now) = (app.node.breaker_history(), app.node.now());
    caught(move || {
        let evidence = evidence::evidence(book, deliveries, rest, &turns, Some(&snapshot), now);
        examine(&evidence)
    })
    .await
}

/// Runs blocking work beside the runtime; a panic is an error.
async fn caught<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "doctor failed");
        ApiError::internal()
    })
}

#[derive(Default)]
pub(crate) struct DoctorReports(Mutex<Vec<CachedReport>>);

struct CachedReport {
    question: ReportKey,
    at: Instant,
    report: Arc<DoctorReport>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportKey {
    service: Option<String>,
    /// Hash of the active book: a finding must be gone once its change is made.
    book: u64,
}

impl DoctorReports {
    async fn of(
        &self,
        question: ReportKey,
        examined: impl Future<Output = Result<DoctorReport, ApiError>>,
    ) -> Result<Arc<DoctorReport>, ApiError> {
        let mut kept = self.0.lock().await;
        kept.retain(|kept| kept.at.elapsed() < KEPT_FOR);
        if let Some(found) = kept.iter().find(|kept| kept.question == question) {
            return Ok(Arc::clone(&found.report));
        }
        let report = Arc::new(examined.await?);
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(CachedReport { question, at: Instant::now(), report: Arc::clone(&report) });
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use redrive_lab::doctor::DoctorReport;

    use super::*;

    #[derive(Default)]
    struct Examinations(AtomicUsize);

    impl Examinations {
        async fn one(&self) -> Result<DoctorReport, ApiError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(DoctorReport::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_examination_serves_all_who_ask_the_same_soon_after() {
        let (reports, examinations) = (DoctorReports::default(), Examinations::default());
        let ask = async |service: Option<&str>, book: u64| {
            let question = ReportKey { service: service.map(ToOwned::to_owned), book };
            reports.of(question, examinations.one()).await.expect("a report");
            examinations.0.load(Ordering::Relaxed)
        };
        let all = tokio::join!(ask(None, 1), ask(None, 1), ask(None, 1));
        assert_eq!(all, (1, 1, 1), "those who come while it goes on wait for it");
        assert_eq!(ask(Some("mail"), 1).await, 2, "another question");
        assert_eq!(ask(None, 2).await, 3, "another book");
        assert_eq!(ask(None, 1).await, 3, "it is still kept");
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(ask(None, 1).await, 4, "it is too old");
        for number in 0..2 * KEPT_MAX {
            ask(Some(&format!("service-{number}")), 1).await;
        }
        assert!(reports.0.lock().await.len() <= KEPT_MAX);
    }

    #[tokio::test]
    async fn what_failed_is_not_kept() {
        let reports = DoctorReports::default();
        let question = || ReportKey { service: None, book: 1 };
        let failed = reports.of(question(), async { Err(ApiError::internal()) }).await;
        assert!(failed.is_err());
        assert!(reports.of(question(), async { Ok(DoctorReport::default()) }).await.is_ok());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_ours() {
        let caught = caught(|| -> u32 { panic!("a rule has met what it did not expect") }).await;
        let response = caught.expect_err("it broke off").into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
