//! The service's HTTP doors, and the one form that its errors have.
//!
//! - `POST /api/messages` takes a message; `GET /api/messages/{id}` shows what became of it
//! - `POST /batch` is where the queue delivers; the answer names the items that failed
//! - `GET /api/metrics` shows figures, as good as they can be had

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::message::{Draft, Message, MessageError, Stage};
use crate::metrics::Metrics;
use crate::service::{Batch, BatchAnswer, Notifier};

/// What requests share.
pub struct Doors {
    /// Does the work.
    pub notifier: Notifier,
    /// Tells of it.
    pub metrics: Metrics,
}

/// The doors of a service.
pub fn router(doors: Arc<Doors>) -> Router {
    Router::new()
        .route("/api/messages", post(create))
        .route("/api/messages/{id}", get(show))
        .route("/api/metrics", get(metrics))
        .route("/batch", post(batch))
        .with_state(doors)
}

/// What a caller is told when something is wrong.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Value>,
}

impl ApiError {
    fn invalid(field: &str, reason: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "VALIDATION_ERROR",
            message: format!("Invalid {field} parameter"),
            details: Some(json!({ "field": field, "reason": reason })),
        }
    }

    fn not_found() -> Self {
        let message = "Message not found".to_owned();
        Self { status: StatusCode::NOT_FOUND, code: "MESSAGE_NOT_FOUND", message, details: None }
    }

    fn internal() -> Self {
        let message = "Unexpected server error".to_owned();
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "INTERNAL_SERVER_ERROR",
            message,
            details: None,
        }
    }

    /// Nothing can be served now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>, missing: &[&str]) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "SERVICE_UNAVAILABLE",
            message: message.into(),
            details: Some(json!({ "missing": missing })),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(details) = self.details {
            error["details"] = details;
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

impl From<MessageError> for ApiError {
    fn from(error: MessageError) -> Self {
        // What went wrong inside is for the log, not for callers.
        tracing::error!(%error, "the messages could not be reached");
        Self::internal()
    }
}

/// A message as callers send it: every field may be missing, so that the answer can say which.
#[derive(Debug, Deserialize)]
struct Given {
    stage: Option<String>,
    title: Option<String>,
    text: Option<String>,
}

impl TryFrom<Given> for Draft {
    type Error = ApiError;

    fn try_from(given: Given) -> Result<Self, ApiError> {
        let Given { stage, title, text } = given;
        let stage = stage.as_deref().and_then(Stage::from_word);
        Ok(Self {
            stage: stage.ok_or_else(|| ApiError::invalid("stage", "must be one of [dev, stage, prod]"))?,
            title: title.unwrap_or_default(),
            text: text
                .filter(|text| !text.is_empty())
                .ok_or_else(|| ApiError::invalid("text", "must not be empty"))?,
        })
    }
}

async fn create(
    State(doors): State<Arc<Doors>>,
    given: Result<Json<Given>, JsonRejection>,
) -> Result<(StatusCode, Json<Message>), ApiError> {
    let Json(given) = given.map_err(|wrong| ApiError::invalid("body", &wrong.body_text()))?;
    let message = doors.notifier.messages().create(given.try_into()?).await?;
    Ok((StatusCode::CREATED, Json(message)))
}

async fn show(State(doors): State<Arc<Doors>>, Path(id): Path<String>) -> Result<Json<Message>, ApiError> {
    let found = doors.notifier.messages().find(&id).await?;
    found.map(Json).ok_or_else(ApiError::not_found)
}

async fn batch(
    State(doors): State<Arc<Doors>>,
    given: Result<Json<Batch>, JsonRejection>,
) -> Result<Json<BatchAnswer>, ApiError> {
    let Json(batch) = given.map_err(|wrong| ApiError::invalid("body", &wrong.body_text()))?;
    Ok(Json(doors.notifier.take(batch).await))
}

async fn metrics(State(doors): State<Arc<Doors>>) -> Result<Json<Value>, ApiError> {
    doors.metrics.gather().await.map(Json)
}
