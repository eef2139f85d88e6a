//! Bulk operations on dead letters: purge, import, export.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::StreamBody;
use redrive_core::text::parse_duration;
use redrive_core::time::Timestamp;
use redrive_node::letters::import;
use redrive_node::runtime::{Node, PurgeResult};
use redrive_node::store::access_store::AuditActor;
use redrive_node::store::letter::{ImportCounts, LetterNumber, Selection};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::reply::{self, lines};
use crate::api::request::{JsonBody, Query, read};
use crate::api::{App, body};
use crate::letters::filter::FilterKeys;
use crate::letters::handlers::FormKeys;
use crate::letters::json::{self, ImportResponse, LetterFormat, PurgeResponse};
use crate::letters::{EXPORT_PAGE, everything};
use crate::replays;
use crate::replays::handlers::ChosenKeys;

/// Per request.
pub(crate) const IMPORT_LINES_MAX: usize = 1_000;

/// Unless events may be larger.
const IMPORT_BYTES_MAX: usize = 16 << 20;

const PROBLEMS_MAX: usize = 20;

const PURGE_PROGRESS_EVERY: Duration = Duration::from_millis(500);

pub(crate) type PurgeKeys = (FilterKeys, ChosenKeys, AgeKeys);

/// Which letters to delete. Without a filter, `all` is required.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes three types that are read as one object")]
struct PurgeRequest {
    #[serde(flatten)]
    filter: FilterKeys,
    #[serde(flatten)]
    chosen: ChosenKeys,
    #[serde(flatten)]
    age: AgeKeys,
}

/// Age of letters.
#[derive(Deserialize, ToSchema)]
pub(crate) struct AgeKeys {
    /// Only letters at least this old, such as `30d`.
    #[schema(pattern = "^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    older_than: Option<String>,
    /// The time of a dry run: letters that died later are kept.
    #[schema(value_type = Option<String>, min_length = 20, format = DateTime)]
    died_until: Option<Timestamp>,
}

/// Deletes dead letters.
///
/// A long purge streams its progress, one JSON line each, as in the schema `PurgeResponse`; the last has `done`.
#[utoipa::path(
    post, path = "/v1/dead-letters/purge", operation_id = "purgeDeadLetters", tag = "dead letters",
    request_body(content = PurgeRequest, example = json!({ "service": "billing", "older_than": "7d", "dry_run": true })),
    responses((status = 200, description = "the result", content(
        (PurgeResponse = "application/json"),
        (String = "application/x-ndjson"),
    )))
)]
pub(crate) async fn purge(
    app: App,
    caller: ApiCaller,
    JsonBody((filter, chosen, wanted)): JsonBody<PurgeKeys>,
) -> ApiResult {
    // Deletes exactly what the dry run counted, so ages are measured at its time as well.
    let moment = wanted.died_until.map_or(app.node.now(), |at| at.min(app.node.now()));
    let mut filter = filter.filter(moment)?;
    if let Some(age) = read("older_than", wanted.older_than.as_deref(), parse_duration)? {
        let until = moment - age;
        filter.until = Some(filter.until.map_or(until, |given| given.min(until)));
    }
    let (selection, what) = replays::handlers::selected(&app, &caller, filter, &chosen, moment).await?;
    if chosen.is_dry() {
        let survey = app.node.survey(selection).await?;
        let shown = PurgeResponse {
            deleted: survey.letters,
            claimed: survey.claimed.values().sum(),
            dry_run: true,
            holding: Some(survey.holding),
            died_until: Some(moment),
            done: true,
            error: None,
        };
        return reply::ok(&shown);
    }
    let mut steps = purging(app.node.clone(), selection, what, chosen.note, caller.by());
    // Errors at the start are answered with their status.
    let first = match steps.recv().await {
        Some(Ok(first)) if first.done => {
            let line = serde_json::to_string(&first).expect("numbers are always JSON") + "\n";
            return Ok(([(header::CONTENT_TYPE, "application/json")], line).into_response());
        }
        Some(Ok(first)) => first,
        Some(Err(error)) => return Err(error),
        None => return Err(ApiError::unavailable("the server is shutting down")),
    };
    let stream = lines(
        (Some(first), steps),
        |(first, steps)| {
            Box::pin(async move {
                match first.take() {
                    Some(first) => Some(Ok(first)),
                    None => steps.recv().await,
                }
            })
        },
        |step: &Result<PurgeResponse, ApiError>| {
            let shown = match step {
                Ok(shown) => shown.clone(),
                Err(error) => {
                    PurgeResponse { error: Some(error.message().to_owned()), ..PurgeResponse::default() }
                }
            };
            serde_json::to_string(&shown).expect("numbers and texts are always JSON")
        },
    );
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], stream).into_response())
}

/// In its own task: it completes even if the caller disconnects.
fn purging(
    owner: Node,
    selection: Selection,
    what: String,
    note: Option<String>,
    by: AuditActor,
) -> mpsc::Receiver<Result<PurgeResponse, ApiError>> {
    let (sender, receiver) = mpsc::channel(1);
    let shown = |purged: PurgeResult| PurgeResponse {
        deleted: purged.deleted,
        claimed: purged.claimed,
        ..PurgeResponse::default()
    };
    tokio::spawn(async move {
        let mut reported_at = Instant::now();
        let progress = |purged: PurgeResult| {
            if reported_at.elapsed() >= PURGE_PROGRESS_EVERY {
                reported_at = Instant::now();
                // A slow reader misses progress lines.
                let _ = sender.try_send(Ok(shown(purged)));
            }
        };
        let end = owner.purge(selection, what, note, &by, progress).await;
        let end = end.map(|purged| PurgeResponse { done: true, ..shown(purged) }).map_err(ApiError::from);
        // The caller may have gone.
        let _ = sender.send(end).await;
    });
    receiver
}

/// Imports dead letters, all or none.
#[utoipa::path(
    post, path = "/v1/dead-letters/import", operation_id = "importDeadLetters", tag = "dead letters",
    request_body(content((String = "application/x-ndjson"), (String = "application/octet-stream")), description = "one envelope per line, at most 1,000 lines and 16 MiB"),
    responses((status = 200, description = "the letters are imported", body = ImportResponse))
)]
pub(crate) async fn import(app: App, caller: ApiCaller, headers: HeaderMap, body: Body) -> ApiResult {
    let bytes_max = app.limits.body_bytes_max.max(IMPORT_BYTES_MAX);
    let body = body::read_up_to(&app, &headers, body, bytes_max).await?;
    let text = std::str::from_utf8(&body).map_err(|_| ApiError::invalid("body", "is not UTF-8"))?;
    let mut letters = Vec::new();
    let mut problems = Vec::new();
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match import::read(line) {
            Ok(_) if letters.len() == IMPORT_LINES_MAX => {
                let reason = format!("has more than {IMPORT_LINES_MAX} letters: split it");
                return Err(ApiError::invalid("body", reason));
            }
            Ok(letter) => letters.push(letter),
            Err(problem) => problems.push(format!("line {} {problem}", place + 1)),
        }
    }
    if !problems.is_empty() {
        let message = match problems.len() {
            1 => format!("{}: nothing was imported", problems[0]),
            count => format!("{count} lines are not valid dead letters: nothing was imported"),
        };
        problems.truncate(PROBLEMS_MAX);
        let error = ApiError::new(ApiCode::Validation, message);
        return Err(error.with("field", "body").with("problems", problems));
    }
    for letter in &letters {
        caller.check_service(letter.queue.service.as_str())?;
        if !letter.has_import_source() {
            caller.check_imported_source(letter.event.source.as_str())?;
        }
    }
    let (book, now) = (app.node.book(), app.node.now());
    let letters = letters.into_iter().map(|letter| letter.into_letter(&book, now)).collect();
    let ImportCounts { new: imported, known } = app.node.import(letters, &caller.by()).await?;
    reply::ok(&ImportResponse { imported, known })
}

/// Exports dead letters, one per line, oldest first.
#[utoipa::path(
    get, path = "/v1/dead-letters/export", operation_id = "exportDeadLetters", tag = "dead letters",
    params(QueryKeys<FilterKeys>, ("form" = inline(Option<LetterFormat>), Query, description = "form of each letter; default: `dead_letter.form` of the rule book")),
    responses((status = 200, description = "one JSON line per letter, as in the schema `LetterDocument`; aborted if the store fails", body = String, content_type = "application/x-ndjson"))
)]
pub(crate) async fn export(
    app: App,
    caller: ApiCaller,
    Query((filter, FormKeys { form })): Query<(FilterKeys, FormKeys)>,
) -> ApiResult {
    let now = app.node.now();
    let filter = filter.filter(now)?;
    caller.check_list(filter.service.as_deref())?;
    let export = LetterExport {
        node: app.node.clone(),
        caller,
        selection: Arc::new(everything(filter, now)),
        form,
        after: None,
        is_over: false,
    };
    let stream = futures_util::stream::unfold(export, |mut export| async move {
        match export.page().await {
            Ok(None) => None,
            Ok(Some(text)) => Some((Ok(hyper::body::Frame::data(Bytes::from(text))), export)),
            Err(error) => {
                export.is_over = true;
                // Aborts the response, so that a part is not taken for the whole.
                Some((Err(error), export))
            }
        }
    });
    let body = Body::new(StreamBody::new(stream));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

struct LetterExport {
    node: Node,
    caller: ApiCaller,
    selection: Arc<Selection>,
    form: Option<LetterFormat>,
    after: Option<LetterNumber>,
    is_over: bool,
}

impl LetterExport {
    /// `None` at the end.
    async fn page(&mut self) -> Result<Option<String>, std::io::Error> {
        while !self.is_over {
            // A long export must not outlive the caller's credential.
            if !self.caller.is_good(self.node.now()) {
                return Err(std::io::Error::other("the caller's credentials have expired"));
            }
            let (selection, after) = (Arc::clone(&self.selection), self.after);
            let page = self.node.read(move |reader| reader.export(&selection, after, EXPORT_PAGE)).await;
            let page = page.map_err(|error| {
                tracing::error!(%error, "export aborted");
                std::io::Error::other("cannot read the store")
            })?;
            self.after = page.next;
            self.is_over = page.next.is_none();
            if !page.letters.is_empty() {
                let book = self.node.book();
                let lines = page.letters.iter().map(|letter| {
                    let form = self.form.unwrap_or_else(|| json::form_by(&book, letter));
                    format!("{}\n", json::written(letter, form))
                });
                return Ok(Some(lines.collect()));
            }
        }
        Ok(None)
    }
}
