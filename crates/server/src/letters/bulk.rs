//! Many dead letters at once: deleted, taken from elsewhere, written out.

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

/// Letters that one request may bring.
pub(crate) const IMPORT_LINES_MAX: usize = 1_000;

/// The largest body of an import, if events may not be larger.
const IMPORT_BYTES_MAX: usize = 16 << 20;

/// Problems of an import that are told; whoever mends these tries again.
const PROBLEMS_MAX: usize = 20;

/// A long purge tells this often how far it is.
const PURGE_TOLD_EVERY: Duration = Duration::from_millis(500);

/// Which letters are deleted.
pub(crate) type PurgeKeys = (FilterKeys, ChosenKeys, AgeKeys);

/// Which letters are deleted. One that names nothing must say `all`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes three types that are read as one object")]
struct PurgeRequest {
    #[serde(flatten)]
    filter: FilterKeys,
    #[serde(flatten)]
    chosen: ChosenKeys,
    #[serde(flatten)]
    age: AgeKeys,
}

/// How old letters must be.
#[derive(Deserialize, ToSchema)]
pub(crate) struct AgeKeys {
    /// Only letters that are at least so old, such as `30d`.
    #[schema(pattern = "^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    older_than: Option<String>,
    /// The moment that a dry run looked at: what died since stays.
    #[schema(value_type = Option<String>, min_length = 20, format = DateTime)]
    died_until: Option<Timestamp>,
}

/// Deletes dead letters.
///
/// One that takes long answers with a line of JSON now and then, each as in the schema `PurgeResponse`; the last
/// has `done`.
#[utoipa::path(
    post, path = "/v1/dead-letters/purge", operation_id = "purgeDeadLetters", tag = "dead letters",
    request_body(content = PurgeRequest, example = json!({ "service": "billing", "older_than": "7d", "dry_run": true })),
    responses((status = 200, description = "what came of it", content(
        (PurgeResponse = "application/json"),
        (String = "application/x-ndjson"),
    )))
)]
pub(crate) async fn purge(
    app: App,
    caller: ApiCaller,
    JsonBody((filter, chosen, wanted)): JsonBody<PurgeKeys>,
) -> ApiResult {
    // What was counted in a dry run is what is deleted: ages are those of that moment too.
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
    // Whether it could begin is known before anything is answered.
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

/// Deletes in a task of its own: whoever asked may go away, and it still ends as it was ordered.
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
        let mut told_at = Instant::now();
        let progress = |purged: PurgeResult| {
            if told_at.elapsed() >= PURGE_TOLD_EVERY {
                told_at = Instant::now();
                // Whoever reads slowly misses some.
                let _ = sender.try_send(Ok(shown(purged)));
            }
        };
        let end = owner.purge(selection, what, note, &by, progress).await;
        let end = end.map(|purged| PurgeResponse { done: true, ..shown(purged) }).map_err(ApiError::from);
        // Nobody waits for it any more, perhaps.
        let _ = sender.send(end).await;
    });
    receiver
}

/// Takes dead letters from elsewhere, all or none.
#[utoipa::path(
    post, path = "/v1/dead-letters/import", operation_id = "importDeadLetters", tag = "dead letters",
    request_body(content((String = "application/x-ndjson"), (String = "application/octet-stream")), description = "an envelope a line, at most 1,000 lines and 16 MiB"),
    responses((status = 200, description = "they are here", body = ImportResponse))
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
                let reason = format!("has more than {IMPORT_LINES_MAX} letters: send them in parts");
                return Err(ApiError::invalid("body", reason));
            }
            Ok(letter) => letters.push(letter),
            Err(problem) => problems.push(format!("line {} {problem}", place + 1)),
        }
    }
    if !problems.is_empty() {
        let message = match problems.len() {
            1 => format!("{}: nothing was imported", problems[0]),
            count => format!("{count} lines are no dead letters: nothing was imported"),
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

/// Dead letters for other systems, a line each, the oldest first.
#[utoipa::path(
    get, path = "/v1/dead-letters/export", operation_id = "exportDeadLetters", tag = "dead letters",
    params(QueryKeys<FilterKeys>, ("form" = inline(Option<LetterFormat>), Query, description = "the rule book's `dead_letter.form` for each letter unless given")),
    responses((status = 200, description = "a line of JSON for each, as in the schema `LetterDocument`; it breaks off if the store fails", body = String, content_type = "application/x-ndjson"))
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
                // The answer breaks off, so that nobody takes a part for the whole.
                Some((Err(error), export))
            }
        }
    });
    let body = Body::new(StreamBody::new(stream));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// An export in the making.
struct LetterExport {
    node: Node,
    caller: ApiCaller,
    selection: Arc<Selection>,
    form: Option<LetterFormat>,
    after: Option<LetterNumber>,
    is_over: bool,
}

impl LetterExport {
    /// The next lines; none at the end.
    async fn page(&mut self) -> Result<Option<String>, std::io::Error> {
        while !self.is_over {
            // Whoever reads slowly may have been let in long ago.
            if !self.caller.is_good(self.node.now()) {
                return Err(std::io::Error::other("the caller would not be let in any more"));
            }
            let (selection, after) = (Arc::clone(&self.selection), self.after);
            let page = self.node.read(move |reader| reader.export(&selection, after, EXPORT_PAGE)).await;
            let page = page.map_err(|error| {
                tracing::error!(%error, "an export breaks off");
                std::io::Error::other("the store could not be read")
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
