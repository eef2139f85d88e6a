//! The door for webhooks, `POST /v1/hooks/{source}`: a call is answered as soon as its event is durable,
//! whatever its targets do.
//!
//! The checks go from what costs little to what costs much, and from what anybody can send to what only the
//! holder of the secret can: the source, the size, the time that the body takes, the signature, the rate of
//! the source, and only then what the body says.
//!
//! Invariants:
//! - whoever cannot sign learns nothing but that, and makes us keep nothing but counts;
//! - whoever cannot sign uses up nothing of what is for those who can: only calls that are believed count
//!   against the rate of a source, and addresses that send others are slowed down for themselves;
//! - an event that was signed and cannot be taken as one is kept for people to look at;
//! - bodies that are being read have a bound together, and each has one of its own.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Extension;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use redrive::clock::wall_clock;
use redrive::stale::UnavailableValue;
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::webhook::SignatureScheme;
use redrive_core::event::Event;
use redrive_core::quota::Allowed;
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use redrive_node::activity::Activity;
use redrive_node::runtime::{BookSwitch, HandOverResult, IntakeKind};
use redrive_node::secret::{SecretValues, Secrets};
use redrive_node::store;
use redrive_node::store::access_store::{REFUSED_BODY_BYTES_MAX, RefusedBody};
use redrive_node::webhook::{
    MalformedInput, OpenWebhook, SignatureError, WebhookCall, WebhookOutcome, WebhookResponse, WebhookSource,
    WebhookSources,
};

use crate::access::Peer;
use crate::api::body::{self, BodyReadError, BufferedBody};
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, PathName};
use crate::api::limits::failed_logins::{FailedLogins, address_group};
use crate::api::limits::rate::{self, Limiter};
use crate::api::{App, CORRELATION_ID, reply};
use crate::webhooks::json::{AcceptedWebhook, SourceStatus};

/// How long a call waits for a secret of which nothing is known yet: senders give up after a second.
const KNOWN_WITHIN: Duration = Duration::from_millis(500);

/// How long a call waits for a secret that is fetched anew, after the one that is known did not fit.
const RENEWED_WITHIN: Duration = Duration::from_millis(500);

/// Bodies larger than this are judged where nobody else has to wait for it.
const LARGE_BYTES: usize = 256 * 1024;

/// What those wait who come while a secret cannot be had.
const RETRY_AFTER_NO_SECRET_SECONDS: u32 = 10;

/// What the door has; clones are the same.
#[derive(Clone)]
pub(crate) struct Webhooks {
    hooks: WebhookSources,
    secrets: Secrets,
    limiter: Arc<Limiter>,
    strangers: Arc<FailedLogins>,
}

impl Webhooks {
    /// The door for the sources of a book.
    pub(crate) fn new(book: &Arc<RuleBook>, secrets: Secrets, limiter: Arc<Limiter>) -> Self {
        let strangers = Arc::default();
        Self { hooks: WebhookSources::new(book), secrets, limiter, strangers }
    }

    /// What is left of a source's rate, if it has one.
    fn admit(&self, hook: &WebhookSource, now: Timestamp) -> Result<Option<Allowed>, WebhookRefusal> {
        let Some(rate) = hook.rate() else { return Ok(None) };
        let admitted = self.limiter.check(&format!("source {}", hook.name()), rate, now);
        admitted.map(Some).map_err(|too_many| WebhookRefusal {
            answered: WebhookResponse::RateLimited,
            error: rate::refusal(&too_many),
            why: too_many.to_string(),
        })
    }

    /// What one hears who has signed badly: from an address that does so too often, to wait.
    fn slow_down(&self, turned: WebhookRefusal, peer: Peer, now: Timestamp) -> WebhookRefusal {
        if turned.answered != WebhookResponse::Unauthorized {
            return turned;
        }
        match self.strangers.note(&address_group(Some(peer.0)), now) {
            Ok(()) => turned,
            // It counts as what it is, whatever is answered.
            Err(too_many) => WebhookRefusal { error: rate::refusal(&too_many), ..turned },
        }
    }

    /// Builds the sources of another book.
    pub(crate) fn prepare(&self, book: &Arc<RuleBook>) -> BookSwitch {
        self.hooks.prepare(book)
    }

    /// The secrets that cannot be fetched, whatever they are for.
    pub(crate) async fn unavailable_secrets(&self) -> Vec<(String, UnavailableValue)> {
        self.secrets.failing().await
    }

    /// How the calls of each source were answered.
    pub(crate) fn status(&self) -> Vec<SourceStatus> {
        let status = |(name, counts)| SourceStatus::of_webhook(name, counts);
        self.hooks.counts().into_iter().map(status).collect()
    }
}

/// Whether a request is for this door.
pub(crate) fn is_call(method: &Method, uri: &Uri) -> bool {
    method == Method::POST && uri.path().starts_with("/v1/hooks/")
}

/// Takes in a webhook of a source of the rule book.
///
/// Who calls is told by the signature in the header that the source's scheme has, over the body as it came.
/// A call is answered once its event is durable, whatever its targets do.
#[utoipa::path(
    post, path = "/v1/hooks/{source}", operation_id = "receiveWebhook", tag = "events",
    params(("source" = String, Path, description = "a webhook source of the rule book")),
    request_body(content = serde_json::Value, content_type = "application/json", description = "whatever the sender sends"),
    responses(
        (status = 202, description = "it is durable", body = AcceptedWebhook),
        (status = 200, description = "one with its id came before, and it is not delivered again; or the challenge of a sender that checks the address, as text", content(
            (AcceptedWebhook = "application/json"),
            (String = "text/plain"),
        )),
    )
)]
pub(crate) async fn take(
    app: App,
    Extension(peer): Extension<Peer>,
    PathName(source): PathName,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(&app, &source, peer, &headers, body).await
}

/// A call that is not taken.
struct WebhookRefusal {
    answered: WebhookResponse,
    error: ApiError,
    /// For the log.
    why: String,
}

/// A call that is.
enum WebhookResult {
    Event(AcceptedWebhook, WebhookResponse),
    Challenge(String),
}

async fn answer(app: &App, source: &str, peer: Peer, headers: &HeaderMap, body: Body) -> Response {
    let id = headers.get(CORRELATION_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let Some(opened) = app.hooks.hooks.get(source) else { return no_such_source(source).into_response() };
    let (body, allowed) = match believed(app, &opened, peer, headers, body).await {
        Ok(believed) => believed,
        Err(turned) => return said(app, &opened, id, Err(turned)),
    };
    let judged = judge(app, &opened, headers, &body, id).await;
    let mut response = said(app, &opened, id, judged);
    if let Some(allowed) = allowed {
        rate::set_rate_headers(&allowed, response.headers_mut());
    }
    response
}

/// What the sender hears, counted.
fn said(
    app: &App,
    opened: &OpenWebhook,
    correlation_id: &str,
    judged: Result<WebhookResult, WebhookRefusal>,
) -> Response {
    match judged {
        Ok(WebhookResult::Event(taken, answered)) => {
            log_call(app, opened, answered, correlation_id, None);
            let is_news = answered == WebhookResponse::Accepted;
            reply::json(if is_news { StatusCode::ACCEPTED } else { StatusCode::OK }, &taken)
        }
        Ok(WebhookResult::Challenge(text)) => {
            log_call(app, opened, WebhookResponse::Challenge, correlation_id, None);
            // It is the sender's own text: no browser is to take it for anything else.
            let headers = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, text).into_response()
        }
        Err(WebhookRefusal { answered, error, why }) => {
            log_call(app, opened, answered, correlation_id, Some(&why));
            error.into_response()
        }
    }
}

fn no_such_source(name: &str) -> ApiError {
    let message = format!("the rule book has no webhook source `{name}`");
    ApiError::new(ApiCode::SourceNotFound, message)
}

/// Counts an answer, and tells of it: of those that can be had without a signature, not of each.
fn log_call(
    app: &App,
    opened: &OpenWebhook,
    answered: WebhookResponse,
    correlation_id: &str,
    why: Option<&str>,
) {
    let source = opened.hook.name();
    tracing::debug!(source, correlation_id, answered = answered.as_str(), why, "a webhook was answered");
    if answered == WebhookResponse::Unauthorized {
        app.node.count_unauthorized(&format!("/v1/hooks/{source}"));
    }
    let Some(count) = opened.tally.count(answered, app.node.now()) else { return };
    match answered {
        WebhookResponse::Accepted | WebhookResponse::Duplicate | WebhookResponse::Challenge => {}
        WebhookResponse::Unauthorized => {
            tracing::warn!(source, correlation_id, count, why, "webhooks came without a good signature");
            let why = why.unwrap_or("it is not signed");
            let times = if count == 1 { String::new() } else { format!(", {count} times by now") };
            let message = format!("a call to the webhook source {source}: {why}{times}");
            app.node.publish_logged(Activity::security(message));
        }
        WebhookResponse::Conflict
        | WebhookResponse::Malformed
        | WebhookResponse::TooLarge
        | WebhookResponse::TooSlow
        | WebhookResponse::RateLimited
        | WebhookResponse::Unavailable => {
            let answered = answered.as_str();
            tracing::warn!(source, correlation_id, count, answered, why, "webhooks could not be taken");
        }
    }
}

/// A body that the holder of the secret has sent, and what is left of the source's rate.
async fn believed(
    app: &App,
    opened: &OpenWebhook,
    peer: Peer,
    headers: &HeaderMap,
    body: Body,
) -> Result<(BufferedBody, Option<Allowed>), WebhookRefusal> {
    let hook = &opened.hook;
    let body = body::read(&app.reading, headers, body, hook.body_bytes_max(), app.limits.body_time)
        .await
        .map_err(|not_read| unread(opened, headers, not_read))?;
    let now = app.node.now();
    believe(app, hook, headers, &body).await.map_err(|turned| app.hooks.slow_down(turned, peer, now))?;
    Ok((body, app.hooks.admit(hook, now)?))
}

async fn judge(
    app: &App,
    opened: &OpenWebhook,
    headers: &HeaderMap,
    body: &Bytes,
    correlation_id: &str,
) -> Result<WebhookResult, WebhookRefusal> {
    let hook = &opened.hook;
    let call = WebhookCall { headers, body, correlation_id, now: wall_clock() };
    match beside_others(body, || hook.read(call)) {
        Ok(WebhookOutcome::Challenge(text)) => Ok(WebhookResult::Challenge(text)),
        Ok(WebhookOutcome::Event(event)) => submit(app, opened, headers, *event).await,
        Err(malformed) => {
            keep(app, hook, headers, body, &malformed.to_string());
            Err(no_event(&malformed))
        }
    }
}

/// Why a body was not read, and who sent one too large.
fn unread(opened: &OpenWebhook, headers: &HeaderMap, not_read: BodyReadError) -> WebhookRefusal {
    let answered = match not_read {
        BodyReadError::TooLarge => WebhookResponse::TooLarge,
        BodyReadError::TooSlow => WebhookResponse::TooSlow,
        BodyReadError::Broken | BodyReadError::Encoded => WebhookResponse::Malformed,
        BodyReadError::NoRoom => WebhookResponse::Unavailable,
    };
    if not_read == BodyReadError::TooLarge
        && let Some(who) = installation(&opened.hook, headers)
    {
        opened.tally.too_large_by(&who);
    }
    let error = not_read.refusal(opened.hook.body_bytes_max());
    WebhookRefusal { answered, error, why: not_read.to_string() }
}

/// Where a webhook of GitHub is installed, such as `repository 79929171`, as the call says itself.
fn installation(hook: &WebhookSource, headers: &HeaderMap) -> Option<String> {
    const BYTES_MAX: usize = 32;
    let word = |name: &str| {
        let text = headers.get(name)?.to_str().ok()?;
        let is_plain = text.len() <= BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_plain && !text.is_empty()).then_some(text)
    };
    if *hook.scheme() != SignatureScheme::Github {
        return None;
    }
    let kind = word("x-github-hook-installation-target-type")?;
    Some(format!("{kind} {}", word("x-github-hook-installation-target-id")?))
}

/// Whether the holder of the secret has sent it: of the secret that is known, or of a newer one.
async fn believe(
    app: &App,
    hook: &WebhookSource,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<(), WebhookRefusal> {
    let secrets = &app.hooks.secrets;
    let known = secrets.get_within(hook.secret(), KNOWN_WITHIN).await;
    let known = known.map_err(|error| no_secret(&error.to_string()))?;
    let verdict = |values: &SecretValues, now: Timestamp| {
        let values: Vec<&[u8]> = values.iter().collect();
        beside_others(body, || hook.verify(&values, headers, body, now))
    };
    match verdict(&known, wall_clock()) {
        Err(SignatureError::Bad) => {
            let renewed = tokio::time::timeout(RENEWED_WITHIN, secrets.renewed(hook.secret())).await;
            match renewed {
                Ok(Ok(values)) if !values.iter().eq(known.iter()) => verdict(&values, wall_clock()),
                Ok(Ok(_) | Err(_)) | Err(_) => Err(SignatureError::Bad),
            }
        }
        other => other,
    }
    .map_err(|distrust| distrusted(hook, distrust))
}

fn no_secret(why: &str) -> WebhookRefusal {
    let error = ApiError::unavailable("the secret of this source cannot be had at the moment")
        .retry_after(RETRY_AFTER_NO_SECRET_SECONDS);
    WebhookRefusal { answered: WebhookResponse::Unavailable, error, why: why.to_owned() }
}

fn distrusted(hook: &WebhookSource, distrust: SignatureError) -> WebhookRefusal {
    match distrust {
        SignatureError::NoKey => no_secret(&distrust.to_string()),
        SignatureError::Missing | SignatureError::Malformed | SignatureError::Bad => {
            let message = "the signature is missing or does not fit";
            let error = ApiError::new(ApiCode::Unauthorized, message);
            WebhookRefusal { answered: WebhookResponse::Unauthorized, error, why: distrust.to_string() }
        }
        // Only who holds the secret gets here, and should look at the clock and not for another secret.
        SignatureError::TooOld | SignatureError::TooNew => {
            let tolerance = show_duration(hook.tolerance());
            let message = format!("the signed time is more than {tolerance} from ours");
            let error = ApiError::new(ApiCode::Unauthorized, message);
            WebhookRefusal { answered: WebhookResponse::Unauthorized, error, why: distrust.to_string() }
        }
    }
}

fn no_event(malformed: &MalformedInput) -> WebhookRefusal {
    let error = ApiError::invalid(malformed.field, malformed.why.to_string());
    WebhookRefusal { answered: WebhookResponse::Malformed, error, why: malformed.to_string() }
}

async fn submit(
    app: &App,
    opened: &OpenWebhook,
    headers: &HeaderMap,
    event: Event,
) -> Result<WebhookResult, WebhookRefusal> {
    let (id, body) = (event.id.to_string(), event.data.clone());
    let lacks_session = opened.hook.wants_session() && event.session.is_none();
    let taken = |taken: store::AcceptedEvent, answered| {
        let (receipt, duplicate) = (taken.receipt.to_string(), answered == WebhookResponse::Duplicate);
        let taken = AcceptedWebhook {
            id: id.clone(),
            receipt,
            duplicate,
            conflict: false,
            deliveries: taken.deliveries,
        };
        Ok(WebhookResult::Event(taken, answered))
    };
    match app.node.hand_over(event, IntakeKind::Webhook).await {
        HandOverResult::Durable(first) => {
            if lacks_session {
                opened.tally.lacks_session();
            }
            taken(first, WebhookResponse::Accepted)
        }
        HandOverResult::Duplicate(again) => taken(again, WebhookResponse::Duplicate),
        // The sender can do nothing about it, and would only send it again.
        HandOverResult::Refused { first } => {
            let reason = format!("an event with the id `{id}` came before, and was another: {first}");
            keep(app, &opened.hook, headers, &body, &reason);
            let receipt = first.to_string();
            let taken = AcceptedWebhook { id, receipt, duplicate: true, conflict: true, deliveries: 0 };
            Ok(WebhookResult::Event(taken, WebhookResponse::Conflict))
        }
        HandOverResult::Busy(error) => {
            let why = error.to_string();
            Err(WebhookRefusal {
                answered: WebhookResponse::Unavailable,
                error: ApiError::of_event(error),
                why,
            })
        }
    }
}

/// Keeps what was signed and is no event of its own, for people to look at.
fn keep(app: &App, hook: &WebhookSource, headers: &HeaderMap, body: &Bytes, reason: &str) {
    let shown = headers.iter().filter(|(name, _)| !hook.is_secret_header(name));
    let headers = shown.map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let refused = RefusedBody {
        number: 0,
        at: Timestamp::EPOCH,
        source: hook.name().to_owned(),
        reason: reason.to_owned(),
        headers: headers.collect(),
        // A part of a large body would keep all of it in memory.
        body: Bytes::copy_from_slice(&body[..body.len().min(REFUSED_BODY_BYTES_MAX)]),
        body_bytes: body.len() as u64,
    };
    if !app.node.refuse_body(refused) {
        tracing::debug!(source = hook.name(), "too many refused bodies wait to be kept: one is lost");
    }
}

/// Does what takes long for a large body where other requests do not wait for it.
fn beside_others<T>(body: &Bytes, work: impl FnOnce() -> T) -> T {
    if body.len() > LARGE_BYTES { tokio::task::block_in_place(work) } else { work() }
}
