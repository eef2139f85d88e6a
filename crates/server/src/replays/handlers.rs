//! Replays: begun, looked at, halted and ended.

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

/// Letters that may be named one by one.
const NAMED_MAX: usize = 1_000;

/// Named letters that the record of a replay lists.
const NAMED_SHOWN_MAX: usize = 3;

/// How often a replay is looked at for those who watch it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a stream without news says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Letters that are named, and whether anything is done with them.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ChosenKeys {
    /// Letters one by one: by their ids, the first digits of them, or the ids that they had elsewhere.
    #[schema(min_items = 1, max_items = 1000)]
    letters: Option<Vec<String>>,
    /// That all letters are meant.
    all: Option<bool>,
    /// Only tells what it would come to.
    dry_run: Option<bool>,
    /// Why; for the audit.
    #[serde(default, deserialize_with = "note")]
    #[schema(min_length = 1, max_length = 1000)]
    pub(crate) note: Option<String>,
}

impl ChosenKeys {
    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }
}

/// How letters are sent again.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ReplayKeys {
    /// Poison goes too; it needs a `note`.
    include_poison: Option<bool>,
    /// Letters a second, as a number or as a text such as `20/s`.
    #[schema(value_type = Option<ReplayRateRequest>)]
    rate: Option<Value>,
    /// Letters that may be on their way at once.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    concurrency: Option<u64>,
    /// First one, then ten, then the rest; it stops when letters fail again.
    canary: Option<bool>,
    /// Another service, or `service/channel`, to send them to.
    #[schema(min_length = 1)]
    to: Option<String>,
}

/// Letters a second.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what a rate may be")]
enum ReplayRateRequest {
    Number(f64),
    Text(String),
}

/// Which letters are sent again, and how. One that names nothing must say `all`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes three types that are read as one object")]
struct NewReplayRequest {
    #[serde(flatten)]
    filter: FilterKeys,
    #[serde(flatten)]
    chosen: ChosenKeys,
    #[serde(flatten)]
    how: ReplayKeys,
}

/// Sends dead letters again, in the background.
#[utoipa::path(
    post, path = "/v1/replays", operation_id = "startReplay", tag = "replays",
    request_body(content = NewReplayRequest, example = json!({ "service": "billing", "canary": true, "rate": "20/s" })),
    responses(
        (
            status = 201, description = "it has begun", body = ReplayJson,
            links(
                ("one" = (operation_id = "getReplay", parameters(("id" = "$response.body#/id")))),
                ("change" = (operation_id = "changeReplay", parameters(("id" = "$response.body#/id")))),
            )
        ),
        (status = 200, description = "what it would come to, for a dry run", body = ReplaySurveyJson),
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
        let reason = "must be a number for each second, or a text such as `20/s`";
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

/// The letters that are meant, poison among them, if the caller may see them; and the same in words.
pub(crate) async fn selected(
    app: &App,
    caller: &ApiCaller,
    mut filter: LetterFilter,
    chosen: &ChosenKeys,
    died_until: Timestamp,
) -> Result<(Selection, String), ApiError> {
    if chosen.letters.is_none() && filter::is_empty(&filter) && chosen.all != Some(true) {
        let message = "it is not said which dead letters are meant: name some or a filter, or say `--all` (`\"all\": true`) if you mean all of them";
        return Err(ApiError::wrong("filter", message));
    }
    let mut letters = None;
    if let Some(names) = &chosen.letters {
        let (ids, service) = resolve(app, caller, names).await?;
        letters = Some(ids);
        // Whose letters are meant is told by the filter: by that it is known whose they are.
        if caller.is_bound() && filter.service.is_none() {
            filter.service = service;
        }
    }
    caller.check_list(filter.service.as_deref())?;
    let what = what(&filter, letters.as_deref());
    Ok((Selection { letters, ..everything(filter, died_until) }, what))
}

/// The letters that go by those names, and the service that all of them are of.
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

/// Letters and a filter in words.
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
        count => format!("{}, {} among them", counted(count as u64, "letter"), shown[0]),
    }
}

/// Replays, the latest first.
#[utoipa::path(
    get, path = "/v1/replays", operation_id = "listReplays", tag = "replays",
    params(QueryKeys<BeforeQuery>, QueryKeys<PageQuery>),
    responses((
        status = 200, description = "a part of them", body = ReplaysResponse,
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

/// Whether the caller may see a replay: one of many services concerns more than it is bound to.
pub(crate) fn sees(caller: &ApiCaller, replay: &ReplayView) -> bool {
    let ends_there = replay.to.as_ref().is_none_or(|to| caller.sees(to.service.as_str()));
    caller.check_list(replay.service.as_deref()).is_ok() && ends_there
}

fn id_of(name: &str) -> Result<ReplayId, ApiError> {
    name.parse().map(ReplayId).map_err(|_| ApiError::invalid("id", "is no replay: they are numbered from 1"))
}

async fn look(node: &Node, caller: &ApiCaller, id: ReplayId) -> Result<ReplayView, ApiError> {
    let found = node.read(move |reader| reader.replay(id)).await?;
    found.filter(|replay| sees(caller, replay)).ok_or_else(|| {
        let message = format!("there is no replay {id}");
        ApiError::new(ApiCode::ReplayNotFound, message)
    })
}

/// How a replay stands.
#[utoipa::path(
    get, path = "/v1/replays/{id}", operation_id = "getReplay", tag = "replays",
    params(("id" = u64, Path, description = "its number", example = 1)),
    responses((status = 200, description = "the replay", body = ReplayJson))
)]
pub(crate) async fn one(app: App, caller: ApiCaller, PathName(name): PathName) -> ApiResult {
    let replay = look(&app.node, &caller, id_of(&name)?).await?;
    reply::ok(&json::replay(&replay))
}

/// Halts a replay, lets it go on or ends it.
#[utoipa::path(
    post, path = "/v1/replays/{id}/{act}", operation_id = "changeReplay", tag = "replays",
    params(("id" = u64, Path, description = "its number", example = 1), ("act" = inline(ReplayAct), Path, description = "what is done to it")),
    responses((status = 200, description = "the replay as it is then", body = ReplayJson))
)]
pub(crate) async fn change(
    app: App,
    caller: ApiCaller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> ApiResult {
    let Path((name, act)) =
        path.map_err(|_| ApiError::invalid("path", "is not UTF-8 once its escapes are read"))?;
    let act = match act.as_str() {
        "pause" => ReplayAct::Pause,
        "resume" => ReplayAct::Resume,
        "cancel" => ReplayAct::Cancel,
        _ => {
            let message = format!("a replay can be paused, resumed and cancelled: there is no `{act}`");
            return Err(ApiError::new(ApiCode::PathNotFound, message));
        }
    };
    let id = id_of(&name)?;
    look(&app.node, &caller, id).await?;
    let changed = app.node.change_replay(id, act, &caller.by()).await;
    let replay = changed.map_err(|error| refusal::unchanged(error, act))?;
    reply::ok(&json::replay(&replay))
}

/// Until when a replay is watched.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WatchUntil {
    /// It is done or cancelled.
    #[default]
    End,
    /// Also until it is stopped or paused.
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

/// A replay whenever it has changed, as server-sent events.
#[utoipa::path(
    get, path = "/v1/replays/{id}/progress", operation_id = "streamReplayProgress", tag = "replays",
    params(("id" = u64, Path, description = "its number", example = 1), ("until" = inline(Option<WatchUntil>), Query, description = "its end unless said otherwise")),
    responses((status = 200, description = "the data of each are as in the schema `ReplayJson`", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn progress(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    Query(WatchKeys { until }): Query<WatchKeys>,
) -> ApiResult {
    let id = id_of(&name)?;
    look(&app.node, &caller, id).await?;
    let watching = ReplayWatch {
        node: app.node.clone(),
        closing: app.closing.clone(),
        caller,
        id,
        until,
        last: None,
        told_at: Instant::now(),
        is_over: false,
    };
    let stream = lines(watching, |watching| Box::pin(watching.next()), String::clone);
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, stream).into_response())
}

/// Somebody who watches a replay.
struct ReplayWatch {
    node: Node,
    closing: watch::Receiver<bool>,
    caller: ApiCaller,
    id: ReplayId,
    until: WatchUntil,
    last: Option<ReplayJson>,
    told_at: Instant,
    is_over: bool,
}

impl ReplayWatch {
    /// The next thing to say, but for the empty line that ends it; none when it is over.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            if !self.caller.is_good(self.node.now()) {
                return None;
            }
            // A store that cannot be read ends the stream; whoever cares asks again.
            let shown = json::replay(&look(&self.node, &self.caller, self.id).await.ok()?);
            if self.last.as_ref() != Some(&shown) {
                self.is_over = self.until.is_over(shown.state);
                let json = serde_json::to_string(&shown).expect("numbers and texts are always JSON");
                self.last = Some(shown);
                self.told_at = Instant::now();
                return Some(format!("data: {json}\n"));
            }
            if self.told_at.elapsed() >= KEEP_ALIVE {
                self.told_at = Instant::now();
                return Some(": nothing new\n".to_owned());
            }
            tokio::select! {
                biased;
                _ = self.closing.changed() => return None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}
