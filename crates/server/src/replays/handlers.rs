//! Handlers for replays.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use redrive_core::ids::DeliveryId;
use redrive_core::letters::replay::{Manner, ReplayId, ReplayPace, ReplayState};
use redrive_core::limits;
use redrive_core::text::{Rate, counted, parse_rate};
use redrive_core::time::Timestamp;
use redrive_node::letters::import;
use redrive_node::runtime::{Node, ReplayRequest};
use redrive_node::store::letter::{LetterFilter, Poison, ReplayAct, ReplayView, Selection};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::App;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::reply::{self, lines};
use crate::api::request::{BeforeQuery, JsonBody, PageQuery, Query, WrongField, note, number, read};
use crate::letters::filter::{self, FilterKeys};
use crate::letters::{self, everything, refusal};
use crate::replays::json::{self, ReplayJson, ReplaySurveyJson, ReplaysResponse};

const NAMED_MAX: usize = 1_000;

/// Named letters listed in the audit log.
const NAMED_SHOWN_MAX: usize = 3;

const READ_EVERY: Duration = Duration::from_millis(250);

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Letters by id, and options of the request.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ChosenKeys {
    /// Letters by id, id prefix, or original id.
    #[schema(min_items = 1, max_items = 1000)]
    letters: Option<Vec<String>>,
    /// Confirms that all letters are selected.
    all: Option<bool>,
    /// Preview only.
    dry_run: Option<bool>,
    /// The reason, for the audit log.
    #[serde(default, deserialize_with = "note")]
    #[schema(min_length = 1, max_length = 1000)]
    pub(crate) note: Option<String>,
}

impl ChosenKeys {
    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }
}

/// How letters are resent.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ReplayKeys {
    /// Includes poison letters; requires a `note`.
    include_poison: Option<bool>,
    /// Letters per second, as a number or a string such as `20/s`.
    #[schema(value_type = Option<ReplayRateRequest>)]
    rate: Option<Value>,
    /// Maximum letters in flight.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    concurrency: Option<u64>,
    /// Sends one, then ten, then the rest; stops when letters fail again.
    canary: Option<bool>,
    /// Another service, or `service/channel`, to send them to.
    #[schema(min_length = 1)]
    to: Option<String>,
}

/// Letters per second.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what a rate may be")]
enum ReplayRateRequest {
    Number(f64),
    Text(String),
}

/// Which letters to replay, and how. Without a filter, `all` is required.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes three types that are read as one object")]
struct NewReplayRequest {
    #[serde(flatten)]
    filter: FilterKeys,
    #[serde(flatten)]
    chosen: ChosenKeys,
    #[serde(flatten)]
    how: ReplayKeys,
}

/// Replays dead letters in the background.
#[utoipa::path(
    post, path = "/v1/replays", operation_id = "startReplay", tag = "replays",
    request_body(content = NewReplayRequest, example = json!({ "service": "billing", "canary": true, "rate": "20/s" })),
    responses(
        (
            status = 201, description = "the replay has started", body = ReplayJson,
            links(
                ("one" = (operation_id = "getReplay", parameters(("id" = "$response.body#/id")))),
                ("change" = (operation_id = "changeReplay", parameters(("id" = "$response.body#/id")))),
            )
        ),
        (status = 200, description = "the preview, for a dry run", body = ReplaySurveyJson),
    )
)]
pub(crate) async fn begin(
    app: App,
    caller: ApiCaller,
    JsonBody((filter, chosen, how)): JsonBody<(FilterKeys, ChosenKeys, ReplayKeys)>,
) -> ApiResult {
    let now = app.node.now();
    let filter = filter.filter(now)?;
    let pace = pace(&how)?;
    let to = read("to", how.to.as_deref(), import::queue)?;
    let (selection, what) = selected(&app, &caller, filter, &chosen, now).await?;
    if let Some(to) = &to {
        caller.check_service(to.service.as_str())?;
    }
    let poison = if how.include_poison == Some(true) { Poison::Included } else { Poison::Left };
    let selection = Selection { poison, ..selection };
    if chosen.is_dry() {
        let survey = app.node.survey(selection).await?;
        let refused = app.node.check_wanted(&survey, to.as_ref()).err();
        let counted = survey.clone();
        let messages = app.node.read(move |reader| letters::json::messages(reader, &counted)).await?;
        let mut shown = json::survey(&survey, &messages, pace.rate, to.as_ref());
        shown.refused_because = refused.map(|error| error.to_string());
        return reply::ok(&shown);
    }
    let begun =
        app.node.replay(ReplayRequest { selection, what, pace, to, note: chosen.note }, &caller.by()).await?;
    let shown = ReplayJson { poison_left: Some(begun.poison_left), ..json::replay(&begun.replay) };
    Ok(reply::json(StatusCode::CREATED, &shown))
}

fn pace(how: &ReplayKeys) -> Result<ReplayPace, WrongField> {
    let rate = how.rate.as_ref().map(|rate| match rate {
        Value::Number(number) => number.as_f64().and_then(Rate::per_second),
        Value::String(text) => parse_rate(text).ok(),
        _ => None,
    });
    if rate == Some(None) {
        let reason = "must be a number per second, or a string such as `20/s`";
        return Err(WrongField::new("rate", reason));
    }
    let concurrency = how.concurrency.map_or(Ok(limits::REPLAY_CONCURRENCY_DEFAULT), u32::try_from);
    let fits = concurrency.ok().filter(|count| (1..=limits::REPLAY_CONCURRENCY_MAX).contains(count));
    let concurrency = fits.ok_or_else(|| {
        let reason = format!("must be a number from 1 to {}", limits::REPLAY_CONCURRENCY_MAX);
        WrongField::new("concurrency", reason)
    })?;
    let manner = if how.canary == Some(true) { Manner::Canary } else { Manner::Straight };
    Ok(ReplayPace { rate: rate.flatten(), concurrency, manner })
}

/// The selected letters, poison included, if the caller may see them, and their description.
pub(crate) async fn selected(
    app: &App,
    caller: &ApiCaller,
    mut filter: LetterFilter,
    chosen: &ChosenKeys,
    died_until: Timestamp,
) -> Result<(Selection, String), ApiError> {
    if chosen.letters.is_none() && filter::is_empty(&filter) && chosen.all != Some(true) {
        let message =
            "no filter given: add one, name letters, or pass `--all` (`\"all\": true`) for all dead letters";
        return Err(ApiError::wrong("filter", message));
    }
    let mut letters = None;
    if let Some(names) = &chosen.letters {
        let (ids, service) = resolve(app, caller, names).await?;
        letters = Some(ids);
        // A bound caller must name a service: the scope is checked by the filter.
        if caller.is_bound() && filter.service.is_none() {
            filter.service = service;
        }
    }
    caller.check_list(filter.service.as_deref())?;
    let what = what(&filter, letters.as_deref());
    Ok((Selection { letters, ..everything(filter, died_until) }, what))
}

/// The named letters and their common service.
async fn resolve(
    app: &App,
    caller: &ApiCaller,
    names: &[String],
) -> Result<(Vec<DeliveryId>, Option<String>), ApiError> {
    if names.is_empty() || names.len() > NAMED_MAX {
        return Err(ApiError::invalid("letters", format!("must name 1 to {NAMED_MAX} letters")));
    }
    let (mut ids, mut services) = (Vec::new(), BTreeSet::new());
    for name in names {
        let delivery = letters::handlers::named(app, caller, name).await?.delivery;
        services.insert(delivery.queue.service.to_string());
        if !ids.contains(&delivery.id) {
            ids.push(delivery.id);
        }
    }
    let service = services.pop_first().filter(|_| services.is_empty());
    Ok((ids, service))
}

fn what(filter: &LetterFilter, letters: Option<&[DeliveryId]>) -> String {
    match letters {
        Some(ids) if filter::is_empty(filter) => describe(ids),
        Some(ids) => format!("{} of {}", filter::describe(filter), describe(ids)),
        None => filter::describe(filter),
    }
}

fn describe(ids: &[DeliveryId]) -> String {
    let shown: Vec<String> = ids.iter().take(NAMED_SHOWN_MAX).map(ToString::to_string).collect();
    match ids.len() {
        1 => format!("letter {}", shown[0]),
        count if count <= NAMED_SHOWN_MAX => format!("letters {}", shown.join(", ")),
        count => format!("{}, including {}", counted(count as u64, "letter"), shown[0]),
    }
}

/// Replays, latest first.
#[utoipa::path(
    get, path = "/v1/replays", operation_id = "listReplays", tag = "replays",
    params(QueryKeys<BeforeQuery>, QueryKeys<PageQuery>),
    responses((
        status = 200, description = "a page of replays", body = ReplaysResponse,
        links(("one" = (operation_id = "getReplay", parameters(("id" = "$response.body#/replays/0/id")))))
    ))
)]
pub(crate) async fn list(
    app: App,
    caller: ApiCaller,
    Query((BeforeQuery { before }, page)): Query<(BeforeQuery, PageQuery)>,
) -> ApiResult {
    let (before, rows_max) = (before.map(ReplayId), page.rows_max());
    let found = app.node.read(move |reader| reader.replays(before, rows_max)).await?;
    let next = found.last().filter(|_| found.len() == rows_max).map(|last| last.id.to_string());
    let replays = found.iter().filter(|replay| sees(&caller, replay)).map(json::replay).collect();
    reply::ok(&ReplaysResponse { replays, next })
}

/// Bound callers see only replays within one of their services.
pub(crate) fn sees(caller: &ApiCaller, replay: &ReplayView) -> bool {
    let ends_there = replay.to.as_ref().is_none_or(|to| caller.sees(to.service.as_str()));
    caller.check_list(replay.service.as_deref()).is_ok() && ends_there
}

fn id_of(name: &str) -> Result<ReplayId, ApiError> {
    name.parse().map(ReplayId).map_err(|_| ApiError::invalid("id", "is not a replay number: they start at 1"))
}

async fn visible_replay(node: &Node, caller: &ApiCaller, id: ReplayId) -> Result<ReplayView, ApiError> {
    let found = node.read(move |reader| reader.replay(id)).await?;
    found.filter(|replay| sees(caller, replay)).ok_or_else(|| {
        let message = format!("no replay {id}");
        ApiError::new(ApiCode::ReplayNotFound, message)
    })
}

/// State of a replay.
#[utoipa::path(
    get, path = "/v1/replays/{id}", operation_id = "getReplay", tag = "replays",
    params(("id" = u64, Path, description = "replay number", example = 1)),
    responses((status = 200, description = "the replay", body = ReplayJson))
)]
pub(crate) async fn one(app: App, caller: ApiCaller, PathName(name): PathName) -> ApiResult {
    let replay = visible_replay(&app.node, &caller, id_of(&name)?).await?;
    reply::ok(&json::replay(&replay))
}

/// Pauses, resumes or cancels a replay.
#[utoipa::path(
    post, path = "/v1/replays/{id}/{act}", operation_id = "changeReplay", tag = "replays",
    params(("id" = u64, Path, description = "replay number", example = 1), ("act" = inline(ReplayAct), Path, description = "the action")),
    responses((status = 200, description = "the replay after the change", body = ReplayJson))
)]
pub(crate) async fn change(
    app: App,
    caller: ApiCaller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> ApiResult {
    let Path((name, act)) =
        path.map_err(|_| ApiError::invalid("path", "is not valid UTF-8 after decoding"))?;
    let act = match act.as_str() {
        "pause" => ReplayAct::Pause,
        "resume" => ReplayAct::Resume,
        "cancel" => ReplayAct::Cancel,
        _ => {
            let message = format!("unknown action `{act}`: expected pause, resume or cancel");
            return Err(ApiError::new(ApiCode::PathNotFound, message));
        }
    };
    let id = id_of(&name)?;
    visible_replay(&app.node, &caller, id).await?;
    let changed = app.node.change_replay(id, act, &caller.by()).await;
    let replay = changed.map_err(|error| refusal::unchanged(error, act))?;
    reply::ok(&json::replay(&replay))
}

/// When watching ends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WatchUntil {
    /// When it is done or cancelled.
    #[default]
    End,
    /// Also when it is stopped or paused.
    Halt,
}

#[derive(Deserialize)]
pub(crate) struct WatchKeys {
    #[serde(default)]
    until: WatchUntil,
}

impl WatchUntil {
    fn is_over(self, state: ReplayState) -> bool {
        match state {
            ReplayState::Gathering | ReplayState::Running => false,
            ReplayState::Paused | ReplayState::Stopped => self == Self::Halt,
            ReplayState::Cancelled | ReplayState::Done => true,
        }
    }
}

/// Streams a replay on each change, as server-sent events.
#[utoipa::path(
    get, path = "/v1/replays/{id}/progress", operation_id = "streamReplayProgress", tag = "replays",
    params(("id" = u64, Path, description = "replay number", example = 1), ("until" = inline(Option<WatchUntil>), Query, description = "default: its end")),
    responses((status = 200, description = "each message is as in the schema `ReplayJson`", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn progress(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    Query(WatchKeys { until }): Query<WatchKeys>,
) -> ApiResult {
    let id = id_of(&name)?;
    visible_replay(&app.node, &caller, id).await?;
    let watching = ReplayWatch {
        node: app.node.clone(),
        closing: app.closing.clone(),
        caller,
        id,
        until,
        last: None,
        sent_at: Instant::now(),
        is_over: false,
    };
    let stream = lines(watching, |watching| Box::pin(watching.next()), String::clone);
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, stream).into_response())
}

struct ReplayWatch {
    node: Node,
    closing: watch::Receiver<bool>,
    caller: ApiCaller,
    id: ReplayId,
    until: WatchUntil,
    last: Option<ReplayJson>,
    sent_at: Instant,
    is_over: bool,
}

impl ReplayWatch {
    /// Without the empty line that ends a message; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            if !self.caller.is_good(self.node.now()) {
                return None;
            }
            // If the store cannot be read, the stream ends and the client reconnects.
            let shown = json::replay(&visible_replay(&self.node, &self.caller, self.id).await.ok()?);
            if self.last.as_ref() != Some(&shown) {
                self.is_over = self.until.is_over(shown.state);
                let json = serde_json::to_string(&shown).expect("numbers and texts are always JSON");
                self.last = Some(shown);
                self.sent_at = Instant::now();
                return Some(format!("data: {json}\n"));
            }
            if self.sent_at.elapsed() >= KEEP_ALIVE {
                self.sent_at = Instant::now();
                return Some(": keep-alive\n".to_owned());
            }
            tokio::select! {
                biased;
                _ = self.closing.changed() => return None,
                () = tokio::time::sleep(READ_EVERY) => {}
            }
        }
    }
}
