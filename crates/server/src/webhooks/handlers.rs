//! Webhook ingress, `POST /v1/hooks/{source}`: a call is answered once its event is durable, whatever its
//! targets do.
//!
//! Cheap checks come first, and checks that any sender can trigger before those that need the secret: source,
//! size, body timeout, signature, rate of the source, and then the content.
//!
//! Invariants:
//! - a sender without the secret learns nothing else, and costs no memory but counters;
//! - it uses none of the source's rate: only signed calls count, and addresses with bad signatures are
//!   limited separately;
//! - a signed event that cannot be accepted is stored for inspection;
//! - bodies being read are bounded, together and each.

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
use redrive_node::runtime::{BookSwitch, HandOverResult, IntakeKind, SubmitError};
use redrive_node::secret::{SecretValues, Secrets};
use redrive_node::store::access_store::{REFUSED_BODY_BYTES_MAX, RefusedBody};
use redrive_node::store::{self, SubmissionRefusal};
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

/// For a secret not fetched yet: senders time out after a second.
const KNOWN_WITHIN: Duration = Duration::from_millis(500);

/// For a renewed secret, after the known one did not match.
const RENEWED_WITHIN: Duration = Duration::from_millis(500);

/// Larger bodies are verified off the async threads.
const LARGE_BYTES: usize = 256 * 1024;

/// While a secret is unavailable.
const RETRY_AFTER_NO_SECRET_SECONDS: u32 = 10;

/// Clones share state.
#[derive(Clone)]
pub(crate) struct Webhooks {
    hooks: WebhookSources,
    secrets: Secrets,
    limiter: Arc<Limiter>,
    bad_signatures: Arc<FailedLogins>,
}

impl Webhooks {
    pub(crate) fn new(book: &Arc<RuleBook>, secrets: Secrets, limiter: Arc<Limiter>) -> Self {
        let bad_signatures = Arc::default();
        Self { hooks: WebhookSources::new(book), secrets, limiter, bad_signatures }
    }

    fn admit(&self, hook: &WebhookSource, now: Timestamp) -> Result<Option<Allowed>, WebhookRefusal> {
        let Some(rate) = hook.rate() else { return Ok(None) };
        let admitted = self.limiter.check(&format!("source {}", hook.name()), rate, now);
        admitted.map(Some).map_err(|too_many| WebhookRefusal {
            answered: WebhookResponse::RateLimited,
            error: rate::refusal(&too_many),
            why: too_many.to_string(),
        })
    }

    /// After too many bad signatures from an address: wait.
    fn slow_down(&self, turned: WebhookRefusal, peer: Peer, now: Timestamp) -> WebhookRefusal {
        if turned.answered != WebhookResponse::Unauthorized {
            return turned;
        }
        match self.bad_signatures.note(&address_group(Some(peer.0)), now) {
            Ok(()) => turned,
            // Counted by its real cause, whatever is answered.
            Err(too_many) => WebhookRefusal { error: rate::refusal(&too_many), ..turned },
        }
    }

    pub(crate) fn prepare(&self, book: &Arc<RuleBook>) -> BookSwitch {
        self.hooks.prepare(book)
    }

    /// Secrets that cannot be fetched, for any use.
    pub(crate) async fn unavailable_secrets(&self) -> Vec<(String, UnavailableValue)> {
        self.secrets.failing().await
    }

    pub(crate) fn status(&self) -> Vec<SourceStatus> {
        let status = |(name, counts)| SourceStatus::of_webhook(name, counts);
        self.hooks.counts().into_iter().map(status).collect()
    }
}

pub(crate) fn is_call(method: &Method, uri: &Uri) -> bool {
    method == Method::POST && uri.path().starts_with("/v1/hooks/")
}

/// Accepts a webhook call of a source in the rule book.
///
/// The sender is authenticated by a signature over the raw body, in the header of the source's scheme. A call
/// is answered once its event is durable, whatever its targets do.
#[utoipa::path(
    post, path = "/v1/hooks/{source}", operation_id = "receiveWebhook", tag = "events",
    params(("source" = String, Path, description = "a webhook source in the rule book")),
    request_body(content = serde_json::Value, content_type = "application/json", description = "the sender's body"),
    responses(
        (status = 202, description = "the event is durable", body = AcceptedWebhook),
        (status = 200, description = "duplicate id, not delivered again; or the answer to a sender's address check, as text", content(
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

struct WebhookRefusal {
    answered: WebhookResponse,
    error: ApiError,
    /// For the log.
    why: String,
}

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
            // The text is the sender's: browsers must not interpret it.
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
    let message = format!("no webhook source `{name}` in the rule book");
    ApiError::new(ApiCode::SourceNotFound, message)
}

/// Answers that need no signature are logged at a limited rate.
fn log_call(
    app: &App,
    opened: &OpenWebhook,
    answered: WebhookResponse,
    correlation_id: &str,
    why: Option<&str>,
) {
    let source = opened.hook.name();
    tracing::debug!(source, correlation_id, answered = answered.as_str(), why, "webhook answered");
    if answered == WebhookResponse::Unauthorized {
        app.node.count_unauthorized(&format!("/v1/hooks/{source}"));
    }
    let Some(count) = opened.tally.count(answered, app.node.now()) else { return };
    match answered {
        WebhookResponse::Accepted | WebhookResponse::Duplicate | WebhookResponse::Challenge => {}
        WebhookResponse::Unauthorized => {
            tracing::warn!(source, correlation_id, count, why, "webhook signature invalid");
            let why = why.unwrap_or("missing signature");
            let times = if count == 1 { String::new() } else { format!(", {count} times") };
            let message = format!("webhook source {source}: {why}{times}");
            app.node.publish_logged(Activity::security(message));
        }
        WebhookResponse::Conflict
        | WebhookResponse::Malformed
        | WebhookResponse::TooLarge
        | WebhookResponse::TooSlow
        | WebhookResponse::RateLimited
        | WebhookResponse::Unavailable => {
            let answered = answered.as_str();
            tracing::warn!(source, correlation_id, count, answered, why, "webhook rejected");
        }
    }
}

/// A verified body, and the rest of the source's rate.
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

/// The GitHub installation, such as `repository 79929171`, as claimed by the call.
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

/// With the known secret, or a renewed one.
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
    let error = ApiError::unavailable("the secret of this source is unavailable")
        .retry_after(RETRY_AFTER_NO_SECRET_SECONDS);
    WebhookRefusal { answered: WebhookResponse::Unavailable, error, why: why.to_owned() }
}

fn distrusted(hook: &WebhookSource, distrust: SignatureError) -> WebhookRefusal {
    match distrust {
        SignatureError::NoKey => no_secret(&distrust.to_string()),
        SignatureError::Missing | SignatureError::Malformed | SignatureError::Bad => {
            let message = "the signature is missing or invalid";
            let error = ApiError::new(ApiCode::Unauthorized, message);
            WebhookRefusal { answered: WebhookResponse::Unauthorized, error, why: distrust.to_string() }
        }
        // Only the holder of the secret gets here; its clock is wrong, not the secret.
        SignatureError::TooOld | SignatureError::TooNew => {
            let tolerance = show_duration(hook.tolerance());
            let message = format!("the signed time differs by more than {tolerance} from the server's clock");
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
        // The sender cannot fix it and would only retry.
        HandOverResult::Refused { first } => {
            let reason = format!("an event with the id `{id}` and other content exists: {first}");
            keep(app, &opened.hook, headers, &body, &reason);
            let receipt = first.to_string();
            let taken = AcceptedWebhook { id, receipt, duplicate: true, conflict: true, deliveries: 0 };
            Ok(WebhookResult::Event(taken, WebhookResponse::Conflict))
        }
        HandOverResult::Invalid(violation) => {
            let why = violation.to_string();
            keep(app, &opened.hook, headers, &body, &why);
            let error = SubmitError::Refused(SubmissionRefusal::Invalid { index: 0, violation });
            Err(WebhookRefusal {
                answered: WebhookResponse::Malformed,
                error: ApiError::of_event(error),
                why,
            })
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

/// Stores a signed call that is no valid event, for inspection.
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
        // Copied: a slice would keep the whole body in memory.
        body: Bytes::copy_from_slice(&body[..body.len().min(REFUSED_BODY_BYTES_MAX)]),
        body_bytes: body.len() as u64,
    };
    if !app.node.refuse_body(refused) {
        tracing::debug!(source = hook.name(), "too many refused calls waiting to be stored: one dropped");
    }
}

/// Runs long work on a large body off the async threads.
fn beside_others<T>(body: &Bytes, work: impl FnOnce() -> T) -> T {
    if body.len() > LARGE_BYTES { tokio::task::block_in_place(work) } else { work() }
}
