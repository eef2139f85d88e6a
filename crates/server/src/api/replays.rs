//! Replays: begun, looked at, halted and ended.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::StreamBody;
use redrive_core::ids::DeliveryId;
use redrive_core::letters::replay::{Manner, Pace, ReplayId, ReplayState};
use redrive_core::limits;
use redrive_core::text::{Rate, parse_rate};
use redrive_node::runtime::Node;
use redrive_node::runtime::ReplayWish;
use redrive_node::store::letter::{LetterFilter, Poison, ReplayAct, ReplayView, Selection};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::code::Code;
use super::error::{ApiError, Named};
use super::identity::Caller;
use super::openapi::Keys;
use super::shape::letters::{ReplayShown, ReplaysFound, SurveyShown};
use super::shape::wanted::{NumberedPageKeys, ReplayWanted, WatchUntil};
use super::{App, bulk, events, letters, refusal};
use crate::letters::fields::{Fields, WrongField};
use crate::letters::{filter, view};
use crate::show::counted;

/// Letters that may be named one by one.
const NAMED_MAX: usize = 1_000;
/// Named letters that the record of a replay lists.
const NAMED_SHOWN_MAX: usize = 3;
/// How often a replay is looked at for those who watch it.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a stream without news says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sends dead letters again, in the background.
#[utoipa::path(
    post, path = "/v1/replays", operation_id = "beginReplay", tag = "replays",
    request_body(content = ReplayWanted, example = json!({ "service": "billing", "canary": true, "rate": "20/s" })),
    responses(
        (
            status = 201, description = "it has begun", body = ReplayShown,
            links(
                ("one" = (operation_id = "replay", parameters(("id" = "$response.body#/id")))),
                ("change" = (operation_id = "changeReplay", parameters(("id" = "$response.body#/id")))),
            )
        ),
        (status = 200, description = "what it would come to, for a dry run", body = SurveyShown),
    )
)]
pub(super) async fn begin(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = events::read(&app, &headers, body).await?;
    let mut fields = Fields::of_body(&body)?;
    let names = fields.texts("letters")?;
    let now = app.node.now();
    let mut filter = filter::take(&mut fields, now)?;
    let is_all = fields.is_set("all")?;
    let poison = if fields.is_set("include_poison")? { Poison::Included } else { Poison::Left };
    let pace = pace(&mut fields)?;
    let to = bulk::queue(&mut fields, "to")?;
    let note = fields.note()?;
    let is_dry = fields.is_set("dry_run")?;
    fields.finish()?;
    if names.is_none() && filter::is_empty(&filter) && !is_all {
        let message = "it is not said which dead letters are meant: name some or a filter, or say `--all` (`\"all\": true`) if you mean all of them";
        return Err(ApiError::wrong("filter", message));
    }
    let letters = chosen(&app, &caller, names.as_deref(), &mut filter).await?;
    caller.check_list(filter.service.as_deref())?;
    if let Some(to) = &to {
        caller.check_service(to.service.as_str())?;
    }
    let what = what(&filter, letters.as_deref());
    let selection = Selection { filter, letters, poison, died_until: now };
    if is_dry {
        let survey = app.node.survey(selection).await?;
        let refused = app.node.check_wanted(&survey, to.as_ref()).err();
        let counted = survey.clone();
        let messages = app.node.read(move |reader| view::messages(reader, &counted)).await?;
        let mut shown = view::survey(&survey, &messages, pace.rate, to.as_ref());
        shown.refused_because = refused.map(|error| error.to_string());
        return Ok(events::json(StatusCode::OK, &shown));
    }
    let begun = app.node.replay(ReplayWish { selection, what, pace, to, note }, &caller.by()).await?;
    let shown = ReplayShown { poison_left: Some(begun.poison_left), ..view::replay(&begun.replay) };
    Ok(events::json(StatusCode::CREATED, &shown))
}

fn pace(fields: &mut Fields) -> Result<Pace, WrongField> {
    let wrong = || WrongField::new("rate", "must be a number for each second, or a text such as `20/s`");
    let rate = match fields.value("rate") {
        None => None,
        Some(Value::Number(number)) => Some(number.as_f64().and_then(Rate::per_second).ok_or_else(wrong)?),
        Some(Value::String(text)) => Some(parse_rate(&text).map_err(|_| wrong())?),
        Some(_) => return Err(wrong()),
    };
    let concurrency = match fields.number("concurrency")? {
        None => limits::REPLAY_CONCURRENCY_DEFAULT,
        Some(count) => {
            let fits = u32::try_from(count)
                .ok()
                .filter(|count| (1..=limits::REPLAY_CONCURRENCY_MAX).contains(count));
            fits.ok_or_else(|| {
                let reason = format!("must be a number from 1 to {}", limits::REPLAY_CONCURRENCY_MAX);
                WrongField::new("concurrency", reason)
            })?
        }
    };
    let manner = if fields.is_set("canary")? { Manner::Canary } else { Manner::Straight };
    Ok(Pace { rate, concurrency, manner })
}

/// The letters that go by those names, if some are named.
pub(super) async fn chosen(
    app: &App,
    caller: &Caller,
    names: Option<&[String]>,
    filter: &mut LetterFilter,
) -> Result<Option<Vec<DeliveryId>>, ApiError> {
    let Some(names) = names else { return Ok(None) };
    let (ids, service) = resolve(app, caller, names).await?;
    // Whose letters are meant is told by the filter: by that it is known whose they are.
    if caller.is_bound() && filter.service.is_none() {
        filter.service = service;
    }
    Ok(Some(ids))
}

/// The letters that go by those names, and the service that all of them are of.
async fn resolve(
    app: &App,
    caller: &Caller,
    names: &[String],
) -> Result<(Vec<DeliveryId>, Option<String>), ApiError> {
    if names.is_empty() || names.len() > NAMED_MAX {
        return Err(ApiError::invalid("letters", format!("must name 1 to {NAMED_MAX} letters")));
    }
    let (mut ids, mut services) = (Vec::new(), BTreeSet::new());
    for name in names {
        let delivery = letters::named(app, caller, name).await?.delivery;
        services.insert(delivery.queue.service.to_string());
        if !ids.contains(&delivery.id) {
            ids.push(delivery.id);
        }
    }
    let service = services.pop_first().filter(|_| services.is_empty());
    Ok((ids, service))
}

/// Letters and a filter in words.
pub(super) fn what(filter: &LetterFilter, letters: Option<&[DeliveryId]>) -> String {
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
    get, path = "/v1/replays", operation_id = "replays", tag = "replays",
    params(Keys<NumberedPageKeys>),
    responses((
        status = 200, description = "a part of them", body = ReplaysFound,
        links(("one" = (operation_id = "replay", parameters(("id" = "$response.body#/replays/0/id")))))
    ))
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut fields = Fields::of_query(query.as_deref())?;
    let before = fields.number("before")?.map(ReplayId);
    let rows_max = letters::limit(&mut fields)?;
    fields.finish()?;
    let found = app.node.read(move |reader| reader.replays(before, rows_max)).await?;
    let next = found.last().filter(|_| found.len() == rows_max).map(|last| last.id.to_string());
    let replays = found.iter().filter(|replay| sees(&caller, replay)).map(view::replay).collect();
    Ok(events::json(StatusCode::OK, &ReplaysFound { replays, next }))
}

/// Whether the caller may see a replay: one of many services concerns more than it is bound to.
pub(super) fn sees(caller: &Caller, replay: &ReplayView) -> bool {
    let ends_there = replay.to.as_ref().is_none_or(|to| caller.sees(to.service.as_str()));
    caller.check_list(replay.service.as_deref()).is_ok() && ends_there
}

fn id_of(name: &str) -> Result<ReplayId, ApiError> {
    name.parse().map(ReplayId).map_err(|_| ApiError::invalid("id", "is no replay: they are numbered from 1"))
}

async fn look(node: &Node, caller: &Caller, id: ReplayId) -> Result<ReplayView, ApiError> {
    let found = node.read(move |reader| reader.replay(id)).await?;
    found.filter(|replay| sees(caller, replay)).ok_or_else(|| {
        let message = format!("there is no replay {id}");
        ApiError::new(Code::ReplayNotFound, message)
    })
}

/// How a replay stands.
#[utoipa::path(
    get, path = "/v1/replays/{id}", operation_id = "replay", tag = "replays",
    params(("id" = u64, Path, description = "its number", example = 1)),
    responses((status = 200, description = "the replay", body = ReplayShown))
)]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Named(name): Named,
) -> Result<Response, ApiError> {
    let replay = look(&app.node, &caller, id_of(&name)?).await?;
    Ok(events::json(StatusCode::OK, &view::replay(&replay)))
}

/// Halts a replay, lets it go on or ends it.
#[utoipa::path(
    post, path = "/v1/replays/{id}/{act}", operation_id = "changeReplay", tag = "replays",
    params(("id" = u64, Path, description = "its number", example = 1), ("act" = inline(ReplayAct), Path, description = "what is done to it")),
    responses((status = 200, description = "the replay as it is then", body = ReplayShown))
)]
pub(super) async fn change(
    State(app): State<App>,
    caller: Caller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((name, act)) =
        path.map_err(|_| ApiError::invalid("path", "is not UTF-8 once its escapes are read"))?;
    let act = match act.as_str() {
        "pause" => ReplayAct::Pause,
        "resume" => ReplayAct::Resume,
        "cancel" => ReplayAct::Cancel,
        _ => {
            let message = format!("a replay can be paused, resumed and cancelled: there is no `{act}`");
            return Err(ApiError::new(Code::PathNotFound, message));
        }
    };
    let id = id_of(&name)?;
    look(&app.node, &caller, id).await?;
    let changed = app.node.change_replay(id, act, &caller.by()).await;
    let replay = changed.map_err(|error| refusal::unchanged(error, act))?;
    Ok(events::json(StatusCode::OK, &view::replay(&replay)))
}

/// Until when a replay is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Until it is done or cancelled.
    End,
    /// Until it sends nothing more by itself.
    Halt,
}

impl Watch {
    fn parse(word: &str) -> Result<Self, &'static str> {
        match word {
            "end" => Ok(Self::End),
            "halt" => Ok(Self::Halt),
            _ => Err("it is neither end nor halt"),
        }
    }

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
    get, path = "/v1/replays/{id}/progress", operation_id = "watchReplay", tag = "replays",
    params(("id" = u64, Path, description = "its number", example = 1), ("until" = inline(Option<WatchUntil>), Query, description = "its end unless said otherwise")),
    responses((status = 200, description = "the data of each are as in the schema `ReplayShown`", body = String, content_type = "text/event-stream"))
)]
pub(super) async fn progress(
    State(app): State<App>,
    caller: Caller,
    Named(name): Named,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut fields = Fields::of_query(query.as_deref())?;
    let until = fields.read("until", Watch::parse)?.unwrap_or(Watch::End);
    fields.finish()?;
    let id = id_of(&name)?;
    look(&app.node, &caller, id).await?;
    let watching = Watching {
        node: app.node.clone(),
        closing: app.closing.clone(),
        caller,
        id,
        until,
        last: None,
        told_at: Instant::now(),
        is_over: false,
    };
    let stream = futures_util::stream::unfold(watching, |mut watching| async move {
        let text = watching.next().await?;
        let frame = hyper::body::Frame::data(Bytes::from(text));
        Some((Ok::<_, std::convert::Infallible>(frame), watching))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::new(StreamBody::new(stream))).into_response())
}

/// Somebody who watches a replay.
struct Watching {
    node: Node,
    closing: watch::Receiver<bool>,
    caller: Caller,
    id: ReplayId,
    until: Watch,
    last: Option<ReplayShown>,
    told_at: Instant,
    is_over: bool,
}

impl Watching {
    /// The next thing to say; none when it is over.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            if !self.caller.is_good(self.node.now()) {
                return None;
            }
            // A store that cannot be read ends the stream; whoever cares asks again.
            let shown = view::replay(&look(&self.node, &self.caller, self.id).await.ok()?);
            if self.last.as_ref() != Some(&shown) {
                self.is_over = self.until.is_over(shown.state);
                let json = serde_json::to_string(&shown).expect("numbers and texts are always JSON");
                self.last = Some(shown);
                self.told_at = Instant::now();
                return Some(format!("data: {json}\n\n"));
            }
            if self.told_at.elapsed() >= KEEP_ALIVE {
                self.told_at = Instant::now();
                return Some(": nothing new\n\n".to_owned());
            }
            tokio::select! {
                biased;
                _ = self.closing.changed() => return None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}
