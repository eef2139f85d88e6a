//! The service's HTTP doors: `POST /verify`, `GET /metrics` and `GET /alerts`.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use redrive::clock::wall_clock;
use redrive::guard::BreakerState;
use serde::Serialize;

use crate::counters::{ErrorMetrics, Monitor};
use crate::verify::{Contact, Verification, Verifier};

/// What requests share.
#[derive(Debug)]
pub struct Service {
    /// Answers.
    pub verifier: Verifier,
    /// Watches how that goes.
    pub monitor: Mutex<Monitor>,
}

/// The doors of a service.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/verify", post(verify))
        .route("/metrics", get(metrics))
        .route("/alerts", get(alerts))
        .with_state(service)
}

async fn verify(State(service): State<Arc<Service>>, Json(contact): Json<Contact>) -> Json<Verification> {
    Json(service.verifier.verify(&contact).await)
}

/// The counters, and what people make of them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    #[serde(flatten)]
    counted: ErrorMetrics,
    error_rate: f64,
    retry_rate: f64,
    circuit_state: &'static str,
}

async fn metrics(State(service): State<Arc<Service>>) -> Json<Metrics> {
    let counted = service.verifier.metrics();
    let percent = |part: u64| part as f64 / counted.total_requests.max(1) as f64 * 100.0;
    let (error_rate, retry_rate) = (percent(counted.total_errors), percent(counted.retried_errors));
    let circuit_state = match service.verifier.breaker() {
        BreakerState::Closed { .. } => "CLOSED",
        BreakerState::Open { .. } => "OPEN",
        BreakerState::HalfOpen { .. } => "HALF_OPEN",
    };
    Json(Metrics { counted, error_rate, retry_rate, circuit_state })
}

/// An alert as it stands.
#[derive(Serialize)]
struct Alert {
    when: String,
    severity: String,
    state: &'static str,
    value: Option<String>,
    action: Option<String>,
}

async fn alerts(State(service): State<Arc<Service>>) -> Json<Vec<Alert>> {
    let views = service.look();
    let shown = views.into_iter().map(|view| Alert {
        when: view.when,
        severity: view.severity,
        state: view.state.as_str(),
        value: view.value,
        action: view.action,
    });
    Json(shown.collect())
}

impl Service {
    /// Holds the counts against the alerts; what somebody is to be told is logged.
    pub fn look(&self) -> Vec<redrive::core::alerts::AlertView> {
        let mut monitor = self.monitor.lock().expect("nothing panics while it watches");
        for notice in monitor.look(&self.verifier.metrics(), self.verifier.breaker(), wall_clock()) {
            tracing::error!(alert = notice.alert, severity = notice.severity, "{}", notice.summary);
        }
        monitor.views()
    }
}
