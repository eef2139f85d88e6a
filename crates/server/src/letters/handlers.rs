//! Handlers for single dead letters: list, show, discard, edit.

use axum::body::Body;
use axum::http::header::CONTENT_LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, EventId};
use redrive_core::ids::{DeliveryId, IdPrefix, Receipt};
use redrive_core::{hash, limits};
use redrive_node::runtime::LetterCommandError;
use redrive_node::store::letter::{CommandRefusal, LetterQuery, LetterView, SelectionSurvey};
use redrive_node::store::{DeliveryState, EventKey, LetterClosure};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::{JsonBody, NoteRequest, PageQuery, Query, note, read};
use crate::api::{App, body, reply};
use crate::letters::filter::{self, FilterKeys};
use crate::letters::find::LetterLookup;
use crate::letters::json::{
    self, EditResponse, FailureGroupsResponse, HeldSessionsResponse, LetterDocument, LetterFormat,
    LettersResponse, SkipResponse,
};
use crate::letters::{GROUPS_MAX, refusal};

/// The longest blocked first.
const SESSIONS_MAX: usize = 1_000;

/// Room of an edit request besides its data.
const EDIT_BYTES_BESIDE: usize = 64 << 10;

/// Position in a list of letters.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CursorKeys {
    /// The `next` of an earlier answer
    #[schema(pattern = "^[0-9a-f]{1,16}$")]
    before: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct FormKeys {
    pub(crate) form: Option<LetterFormat>,
}

/// Dead letters, latest first.
#[utoipa::path(
    get, path = "/v1/dead-letters", operation_id = "listDeadLetters", tag = "dead letters",
    params(QueryKeys<FilterKeys>, QueryKeys<PageQuery>, QueryKeys<CursorKeys>),
    responses((
        status = 200, description = "a page of letters; it may be short and not the last", body = LettersResponse,
        links(
            ("envelope" = (operation_id = "getDeadLetter", parameters(("id" = "$response.body#/dead_letters/0/id")))),
            ("skip" = (operation_id = "skipDeadLetter", parameters(("id" = "$response.body#/dead_letters/0/id")))),
            ("edit" = (operation_id = "editDeadLetter", parameters(("id" = "$response.body#/dead_letters/0/id")))),
        )
    ))
)]
pub(crate) async fn list(
    app: App,
    caller: ApiCaller,
    Query((filter, page, cursor)): Query<(FilterKeys, PageQuery, CursorKeys)>,
) -> ApiResult {
    let filter = filter.filter(app.node.now())?;
    let before = read("before", cursor.before.as_deref(), filter::read_cursor)?;
    caller.check_list(filter.service.as_deref())?;
    let query = LetterQuery { filter, before, rows_max: page.rows_max() };
    let page = app.node.read(move |reader| reader.letters(&query)).await?;
    reply::ok(&json::letters(&page))
}

/// Failure groups: causes of dead letters, the most frequent first.
#[utoipa::path(
    get, path = "/v1/failure-groups", operation_id = "listFailureGroups", tag = "dead letters",
    params(QueryKeys<FilterKeys>),
    responses((status = 200, description = "at most 500 groups", body = FailureGroupsResponse))
)]
pub(crate) async fn groups(app: App, caller: ApiCaller, Query(filter): Query<FilterKeys>) -> ApiResult {
    let now = app.node.now();
    let filter = filter.filter(now)?;
    caller.check_list(filter.service.as_deref())?;
    let groups = app.node.read(move |reader| reader.groups(&filter, now, GROUPS_MAX)).await?;
    reply::ok(&FailureGroupsResponse { groups: groups.iter().map(json::group).collect() })
}

/// Sessions blocked by a dead letter, the longest first.
#[utoipa::path(
    get, path = "/v1/held-sessions", operation_id = "listHeldSessions", tag = "dead letters",
    responses((status = 200, description = "at most 1,000 sessions", body = HeldSessionsResponse))
)]
pub(crate) async fn held_sessions(app: App) -> ApiResult {
    let held = app.node.read(|reader| reader.held_sessions(SESSIONS_MAX)).await?;
    let held_sessions = held.iter().map(json::held_session).collect();
    reply::ok(&HeldSessionsResponse { held_sessions })
}

pub(crate) async fn named(app: &App, caller: &ApiCaller, name: &str) -> Result<LetterView, ApiError> {
    match find(app, caller, name).await? {
        LetterLookup::Letter(view) => Ok(*view),
        other => Err(refusal::missing(other, name)),
    }
}

async fn find(app: &App, caller: &ApiCaller, name: &str) -> Result<LetterLookup, ApiError> {
    let (asked, caller) = (name.to_owned(), caller.clone());
    let sees = move |service: &str| caller.sees(service);
    Ok(app.node.read(move |reader| crate::letters::find::letter(reader, &asked, sees)).await?)
}

/// A dead letter as an envelope.
#[utoipa::path(
    get, path = "/v1/dead-letters/{id}", operation_id = "getDeadLetter", tag = "dead letters",
    params(("id" = String, Path, description = "letter id, id prefix, or original id"), ("form" = inline(Option<LetterFormat>), Query, description = "form of the letter; default: `dead_letter.form` of the rule book")),
    responses((
        status = 200, description = "the letter", body = LetterDocument,
        headers(("Content-Location" = String, description = "canonical address, valid even after the letter is resolved"))
    ))
)]
pub(crate) async fn one(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    Query(FormKeys { form }): Query<FormKeys>,
) -> ApiResult {
    let letter = named(&app, &caller, &name).await?;
    let form = form.unwrap_or_else(|| json::form_by(&app.node.book(), &letter));
    let mut response = reply::json(StatusCode::OK, &json::written(&letter, form));
    // The canonical id still works after the letter is gone.
    let own = HeaderValue::try_from(format!("/v1/dead-letters/{}", letter.delivery.id));
    response.headers_mut().insert(CONTENT_LOCATION, own.expect("an id is digits"));
    Ok(response)
}

/// Discards a dead letter; deliveries behind it in its session resume.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/skip", operation_id = "skipDeadLetter", tag = "dead letters",
    params(("id" = String, Path, description = "letter id, id prefix, or original id")),
    request_body = NoteRequest,
    responses((status = 200, description = "the letter is discarded", body = SkipResponse))
)]
pub(crate) async fn skip(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    JsonBody(NoteRequest { note }): JsonBody<NoteRequest>,
) -> ApiResult {
    let letter = named(&app, &caller, &name).await?;
    let released = app.node.skip(letter.delivery.id, note, &caller.by()).await?;
    reply::ok(&SkipResponse { id: letter.delivery.id.to_string(), released })
}

/// The new content of a letter: `data` or `data_base64`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct EditRequest {
    /// Any JSON; a string if the event's data is not JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    data_base64: Option<String>,
    /// The new content type.
    content_type: Option<String>,
    /// The reason, for the audit log.
    #[serde(default, deserialize_with = "note")]
    #[schema(max_length = 1000)]
    note: Option<String>,
}

/// Resends a dead letter with new data, in its place. Idempotent.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/edit", operation_id = "editDeadLetter", tag = "dead letters",
    params(("id" = String, Path, description = "letter id, id prefix, or original id")),
    request_body(content = EditRequest, example = json!({ "data": { "id": 42 }, "note": "the id was missing" })),
    responses((status = 200, description = "the event that replaces it", body = EditResponse))
)]
pub(crate) async fn edit(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    // Base64 or escaping enlarges the data.
    let bytes_max = app.limits.body_bytes_max.saturating_mul(2).saturating_add(EDIT_BYTES_BESIDE);
    let body = body::read_up_to(&app, &headers, body, bytes_max).await?;
    let wanted: EditRequest = serde_json::from_slice(&body)
        .map_err(|error| ApiError::invalid("body", format!("expected {{\"data\": …}}: {error}")))?;
    let letter = match find(&app, &caller, &name).await? {
        LetterLookup::Letter(letter) => *letter,
        LetterLookup::NotDead { id, state: state @ DeliveryState::Closed { .. } } => {
            let before = edited_before(&app, id, &wanted).await?;
            return before.ok_or_else(|| refusal::missing(LetterLookup::NotDead { id, state }, &name));
        }
        other => return Err(refusal::missing(other, &name)),
    };
    let supersedes = letter.delivery.id;
    let event = edited(supersedes, &letter.event, &wanted)?;
    if event.data.len() > app.limits.body_bytes_max {
        return Err(ApiError::too_large(app.limits.body_bytes_max));
    }
    check_wanted(&app, &letter)?;
    let event_id = event.id.to_string();
    match app.node.edit(supersedes, event, wanted.note.clone(), &caller.by()).await {
        Ok((receipt, delivery)) => Ok(answer(event_id, receipt, delivery, supersedes)),
        Err(error @ LetterCommandError::Refused(CommandRefusal::NoSuchLetter(_))) => {
            // Resolved meanwhile, perhaps by the same edit.
            edited_before(&app, supersedes, &wanted).await?.ok_or_else(|| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn answer(event_id: String, receipt: Receipt, delivery: DeliveryId, supersedes: DeliveryId) -> Response {
    let edited = EditResponse {
        event_id,
        receipt: receipt.to_string(),
        delivery: delivery.to_string(),
        supersedes: supersedes.to_string(),
    };
    reply::json(StatusCode::OK, &edited)
}

/// Makes edits idempotent; `None` if the letter was resolved otherwise or with other data.
async fn edited_before(
    app: &App,
    letter: DeliveryId,
    wanted: &EditRequest,
) -> Result<Option<Response>, ApiError> {
    let found = app
        .node
        .read(move |reader| {
            let Some(prefix) = IdPrefix::parse(&letter.to_string()) else { return Ok(None) };
            let deliveries = reader.deliveries(&prefix, 1)?;
            let Some(old) = deliveries.into_iter().find(|view| view.id == letter) else { return Ok(None) };
            let DeliveryState::Closed { how: LetterClosure::Superseded { by }, .. } = old.state else {
                return Ok(None);
            };
            let old = reader.events(&EventKey::Receipt(old.receipt))?.pop();
            let new = reader.events(&EventKey::Receipt(by))?.pop();
            Ok(old.zip(new))
        })
        .await?;
    let Some((old, new)) = found else { return Ok(None) };
    let (content_type, data) = new_data(&old.event, wanted)?;
    let is_same = new.event.id == edited_id(letter, &old.event.id, content_type.as_ref(), &data);
    let delivery = new.deliveries.first().filter(|_| is_same);
    Ok(delivery.map(|delivery| answer(new.event.id.to_string(), new.receipt, delivery.id, letter)))
}

/// Refuses an edit whose event no rule would match.
fn check_wanted(app: &App, letter: &LetterView) -> Result<(), ApiError> {
    let to = (letter.delivery.queue.clone(), letter.delivery.event_type.clone());
    let survey = SelectionSurvey { letters: 1, by_type: [(to, 1)].into(), ..SelectionSurvey::default() };
    app.node.check_wanted(&survey, None).map_err(|error| refusal::unwanted(&error))
}

fn edited(letter: DeliveryId, old: &Event, wanted: &EditRequest) -> Result<Event, ApiError> {
    let (content_type, data) = new_data(old, wanted)?;
    if data == old.data && content_type == old.content_type {
        return Err(ApiError::invalid("data", "is unchanged: replay the letter instead"));
    }
    let id = edited_id(letter, &old.id, content_type.as_ref(), &data);
    Ok(Event { id, content_type, data, ..old.clone() })
}

/// Derived from letter and content, so that a repeated edit has the same id.
fn edited_id(letter: DeliveryId, old: &EventId, content_type: Option<&ContentType>, data: &[u8]) -> EventId {
    let content_type = content_type.map_or("", ContentType::as_str);
    let mut whole = letter.0.to_be_bytes().to_vec();
    whole.extend(content_type.as_bytes());
    // Separator: content types cannot contain it.
    whole.push(0);
    whole.extend(data);
    let suffix = format!("#edit-{:016x}", hash::stable_64(&whole, 0));
    let room = limits::EVENT_ID_BYTES_MAX - suffix.len();
    let old = old.as_str();
    let id = format!("{}{suffix}", &old[..old.floor_char_boundary(room)]);
    EventId::new(&id).expect("an accepted id plus digits and letters, short enough")
}

fn new_data(old: &Event, wanted: &EditRequest) -> Result<(Option<ContentType>, Bytes), ApiError> {
    let content_type = match &wanted.content_type {
        None => old.content_type.clone(),
        Some(text) => Some(
            ContentType::new(text).map_err(|reason| ApiError::invalid("content_type", reason.to_string()))?,
        ),
    };
    let data = match (&wanted.data, &wanted.data_base64) {
        (Some(data), None) => json_data(data, content_type.as_ref())?,
        (None, Some(text)) => STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|error| ApiError::invalid("data_base64", format!("is not valid base64: {error}")))?,
        (None, None) => return Err(ApiError::invalid("data", "is missing: give the new data")),
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("data_base64", "conflicts with `data`: use one of the two"));
        }
    };
    Ok((content_type, data))
}

fn json_data(data: &RawValue, content_type: Option<&ContentType>) -> Result<Bytes, ApiError> {
    if content_type.is_none_or(ContentType::is_json) {
        return Ok(Bytes::from(data.get().to_owned()));
    }
    let text: Result<String, _> = serde_json::from_str(data.get());
    text.map(Bytes::from).map_err(|_| {
        ApiError::invalid(
            "data",
            "must be a string, since the event's data is not JSON; or use `data_base64`",
        )
    })
}

#[cfg(test)]
mod tests {
    use redrive_core::event::simple::{SimpleEvent, parse_simple};

    use super::*;

    fn event(content_type: Option<&str>) -> Event {
        let id = EventId::new("order-42").expect("an id");
        let body = Bytes::from_static(b"{\"n\":1}");
        let easy = SimpleEvent {
            event_type: "orders.placed",
            partition_key: Some("s"),
            idempotency_key: None,
            generated_id: &id,
            headers: &Vec::new(),
            body: &body,
        };
        let event = parse_simple(easy).expect("an event");
        Event { content_type: content_type.map(|text| ContentType::new(text).expect("a type")), ..event }
    }

    type Case<'a> = (&'a str, Option<&'a str>, &'a str, Result<&'a [u8], &'a str>);

    #[test]
    fn an_edit_changes_the_data_and_nothing_else() {
        let (json, text) = (Some("application/json"), Some("text/plain"));
        #[rustfmt::skip]
        let cases: [Case<'_>; 9] = [
            ("JSON, byte for byte",      json, r#"{"data":{"n": 1e400}}"#,                          Ok(b"{\"n\": 1e400}")),
            ("of an unknown type",       None, r#"{"data":"x"}"#,                                   Ok(b"\"x\"")),
            ("a text",                   text, r#"{"data":"x"}"#,                                   Ok(b"x")),
            ("JSON for a text",          text, r#"{"data":{}}"#,                                    Err("`data` must be a string")),
            ("another type",             text, r#"{"data":{},"content_type":"application/json"}"#,  Ok(b"{}")),
            ("bytes",                    text, r#"{"data_base64":"AP8="}"#,                         Ok(&[0, 255])),
            ("no bytes",                 json, r#"{"data_base64":"?"}"#,                            Err("`data_base64` is not valid base64")),
            ("nothing",                  json, r#"{"note":"x"}"#,                                   Err("`data` is missing")),
            ("the same",                 json, r#"{"data":{"n":1}}"#,                               Err("`data` is unchanged")),
        ];
        for (name, content_type, body, expected) in cases {
            let wanted: EditRequest = serde_json::from_str(body).expect(name);
            let old = event(content_type);
            match (edited(DeliveryId(7), &old, &wanted), expected) {
                (Ok(new), Ok(data)) => {
                    assert_eq!(&new.data[..], data, "{name}");
                    assert!(new.id.as_str().starts_with("order-42#edit-"), "{name}");
                    let back = Event {
                        id: old.id.clone(),
                        content_type: old.content_type.clone(),
                        data: old.data.clone(),
                        ..new
                    };
                    assert_eq!(back, old, "{name}");
                }
                (Err(error), Err(words)) => {
                    assert!(format!("{error:?}").contains(words), "{name}: {error:?}");
                }
                (seen, _) => panic!("{name}: {seen:?}"),
            }
        }
    }
    #[test]
    fn an_edit_is_known_by_the_letter_and_what_it_becomes() {
        let old = event(Some("application/json"));
        let id = |letter: u128, body: &str| {
            let wanted: EditRequest = serde_json::from_str(body).expect(body);
            edited(DeliveryId(letter), &old, &wanted).expect(body).id
        };
        let first = id(7, r#"{"data":{"n":2}}"#);
        #[rustfmt::skip]
        let cases = [
            ("the same",              7, r#"{"data":{"n":2}}"#,                              true),
            ("with another note",     7, r#"{"data":{"n":2},"note":"again"}"#,               true),
            ("the type said aloud",   7, r#"{"data":{"n":2},"content_type":"application/json"}"#, true),
            ("as base64",             7, r#"{"data_base64":"eyJuIjoyfQ=="}"#,                true),
            ("of another letter",     8, r#"{"data":{"n":2}}"#,                              false),
            ("other data",            7, r#"{"data":{"n":3}}"#,                              false),
            ("of another type",       7, r#"{"data":{"n":2},"content_type":"application/x+json"}"#, false),
        ];
        for (name, letter, body, is_same) in cases {
            assert_eq!(id(letter, body) == first, is_same, "{name}");
        }
    }
}
