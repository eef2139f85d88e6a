//! `GET /v1/doctor`: what ails the server, and which change to the rule book would help.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use redrive::core::doctor::examine;

use super::error::ApiError;
use super::openapi::Keys;
use super::shape::doctor::DoctorReport;
use super::shape::wanted::DoctorKeys;
use super::{App, events};
use crate::doctor::gather::{self, Deliveries, Living};
use crate::doctor::report::report;
use crate::letters::fields::Fields;

/// What ails, the worst first, with what shows it and the change to make.
///
/// The latest 5,000 deliveries are looked at with all their attempts, beside what the server has counted.
#[utoipa::path(
    get, path = "/v1/doctor", operation_id = "doctor", tag = "operating",
    params(Keys<DoctorKeys>),
    responses((status = 200, description = "no findings say that nothing ails, as far as what was looked at can tell", body = DoctorReport))
)]
pub(super) async fn doctor(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let mut fields = Fields::of_query(query.as_deref())?;
    let service = fields.text("service")?;
    fields.finish()?;
    let mut deliveries = Deliveries::of(service);
    while let Some(wanted) = deliveries.wanted() {
        deliveries.add(app.node.read(move |reader| reader.told(&wanted)).await?);
    }
    let book = app.node.book();
    let hash = book.hash();
    let rest = app.node.read(move |reader| gather::rest(reader, Some(hash))).await?;
    let snapshot = app.snapshot().await?;
    let (turns, now) = (app.node.turns(), app.node.now());
    let examined = tokio::task::spawn_blocking(move || {
        let living = Living { snapshot: &snapshot };
        examine(&gather::evidence(book, deliveries, rest, &turns, Some(&living), now))
    });
    let examined = examined.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    Ok(events::json(StatusCode::OK, &report(examined)))
}
