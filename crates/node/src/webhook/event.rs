//! Makes the event of a webhook request by the templates of its source.
//!
//! The event's id is the book's `id` template, else the scheme's own id, else the SHA-256 of the body: for
//! senders without ids the same body is the same event for as long as ids are remembered. Senders that repeat
//! themselves, such as heartbeats, need an `id` in the book.
//!
//! The event's time is the signed one, else that of arrival.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use redrive_core::book::connectors::webhook::SignatureScheme;
use redrive_core::book::source_template::{SelectedFields, TemplateInput};
use redrive_core::event::Event;
use redrive_core::event::attribute::{
    ContentType, CorrelationId, EventId, ExtensionName, ExtensionText, ExtensionValue, TraceParent,
};
use redrive_core::event::refusal::InvalidReason;
use redrive_core::time::Timestamp;
use redrive_core::trace::Context;
use ring::digest::{SHA256, digest};

use super::WebhookSource;
use super::claim::to_hex;
use super::scheme::WEBHOOK_ID;
use crate::source::convert::{MalformedInput, MalformedReason, Templates, filled, filled_type, unfit};

pub(super) const GITHUB_EVENT: &str = "x-github-event";
pub(super) const GITHUB_DELIVERY: &str = "x-github-delivery";
const FORM: &str = "application/x-www-form-urlencoded";
/// The type of the request by which Slack checks an endpoint.
const SLACK_CHALLENGE: &str = "url_verification";

#[derive(Clone, Copy, Debug)]
pub struct WebhookCall<'a> {
    pub headers: &'a HeaderMap,
    pub body: &'a Bytes,
    /// Ties the request to its response and its event.
    pub correlation_id: &'a str,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    Event(Box<Event>),
    /// No event: the text to send back, by which the sender checks the endpoint.
    Challenge(String),
}

pub(super) const fn fields_of(scheme: &SignatureScheme) -> &'static [&'static str] {
    match scheme {
        SignatureScheme::Stripe => &["id"],
        SignatureScheme::Slack => &["event_id", "type", "challenge"],
        SignatureScheme::Github | SignatureScheme::StandardWebhooks | SignatureScheme::Hmac(_) => &[],
    }
}

/// What the templates are filled from.
struct WebhookMaterial<'a> {
    headers: &'a HeaderMap,
    data: SelectedFields<'a>,
}

impl TemplateInput for WebhookMaterial<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.headers.get(name)?.as_bytes()).ok().map(str::trim)
    }

    fn data(&self, path: &[String]) -> Option<&str> {
        self.data.get(path)
    }
}

impl WebhookSource {
    /// Makes the event; the signature must have been verified.
    pub fn read(&self, call: WebhookCall<'_>) -> Result<WebhookOutcome, MalformedInput> {
        let content_type = content_type_of(call.headers)?;
        self.refuse_forms(content_type.as_ref())?;
        if *self.scheme() == SignatureScheme::Github {
            required(call.headers, GITHUB_EVENT)?;
        }
        let found = WebhookMaterial { headers: call.headers, data: self.picked(call.body)? };
        if let Some(challenge) = self.challenge(&found) {
            return Ok(WebhookOutcome::Challenge(challenge));
        }
        let Templates { event_type, subject, session, .. } = &self.templates;
        let event_type = event_type.as_ref().expect("the book wants one of webhooks");
        let signed_at = self.claim(call.headers).ok().and_then(|claim| claim.signed_at);
        Ok(WebhookOutcome::Event(Box::new(Event {
            id: self.id_of(&found, call.body)?,
            source: self.event_source.clone(),
            event_type: filled_type(event_type, &found)?,
            subject: filled("subject", subject.as_ref(), &found)?,
            time: Some(signed_at.unwrap_or(call.now)),
            content_type,
            session: filled("session", session.as_ref(), &found)?,
            correlation_id: CorrelationId::new(call.correlation_id).ok(),
            traceparent: traceparent(call.headers),
            extensions: trace_state(call.headers),
            data: call.body.clone(),
        })))
    }

    /// GitHub sends forms by default, but readers of its events expect JSON.
    fn refuse_forms(&self, content_type: Option<&ContentType>) -> Result<(), MalformedInput> {
        let is_form =
            content_type.is_some_and(|content_type| content_type.media_type().eq_ignore_ascii_case(FORM));
        if is_form && (self.needs_data || *self.scheme() == SignatureScheme::Github) {
            return Err(MalformedInput { field: "content-type", why: MalformedReason::Form });
        }
        Ok(())
    }

    /// The data fields that are used; a body that is not JSON has none, unless a template needs one.
    fn picked<'a>(&self, body: &'a [u8]) -> Result<SelectedFields<'a>, MalformedInput> {
        if self.templates.wanted.is_empty() {
            return Ok(SelectedFields::default());
        }
        match self.templates.wanted.pick(body) {
            Ok(picked) => Ok(picked),
            Err(reason) if self.needs_data => Err(unfit("body", reason)),
            Err(_) => Ok(SelectedFields::default()),
        }
    }

    fn challenge(&self, found: &WebhookMaterial<'_>) -> Option<String> {
        let is_asked =
            *self.scheme() == SignatureScheme::Slack && found.data.get(&["type"]) == Some(SLACK_CHALLENGE);
        // It is sent back verbatim, so control characters are refused.
        let is_plain = |text: &&str| !text.chars().any(char::is_control);
        found.data.get(&["challenge"]).filter(is_plain).filter(|_| is_asked).map(str::to_owned)
    }

    fn id_of(&self, found: &WebhookMaterial<'_>, body: &[u8]) -> Result<EventId, MalformedInput> {
        let fit = |field, text: &str| EventId::new(text).map_err(|reason| unfit(field, reason));
        // The scheme's required headers must be there even if the book states an id.
        let of_scheme = match self.scheme() {
            SignatureScheme::Github => Some((GITHUB_DELIVERY, required(found.headers, GITHUB_DELIVERY)?)),
            SignatureScheme::StandardWebhooks => Some((WEBHOOK_ID, required(found.headers, WEBHOOK_ID)?)),
            SignatureScheme::Stripe => found.data.get(&["id"]).map(|id| ("id", id)),
            SignatureScheme::Slack => found.data.get(&["event_id"]).map(|id| ("event_id", id)),
            SignatureScheme::Hmac(_) => None,
        };
        if let Some(id) = self.templates.id.as_ref().and_then(|template| template.fill(found)) {
            return fit("id", &id);
        }
        match of_scheme.filter(|(_, id)| !id.is_empty()) {
            Some((field, id)) => fit(field, id),
            None => fit("id", &format!("sha256:{}", to_hex(digest(&SHA256, body).as_ref()))),
        }
    }
}

fn required<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, MalformedInput> {
    match single(headers, name)? {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) | None => Err(unfit(name, InvalidReason::Missing)),
    }
}

fn single<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>, MalformedInput> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(unfit(name, InvalidReason::Twice));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| unfit(name, InvalidReason::NotUtf8))?;
    Ok(Some(text.trim()))
}

fn content_type_of(headers: &HeaderMap) -> Result<Option<ContentType>, MalformedInput> {
    const FIELD: &str = "content-type";
    let text = single(headers, FIELD)?.filter(|text| !text.is_empty());
    let content_type = text.map(ContentType::new).transpose().map_err(|reason| unfit(FIELD, reason))?;
    Ok(content_type.map(|content_type| {
        // Targets would take this content type for the layout of the whole request.
        let is_event = content_type.media_type().to_ascii_lowercase().starts_with("application/cloudevents");
        if is_event && content_type.is_json() { ContentType::json() } else { content_type }
    }))
}

/// An invalid trace is ignored, so that no event is lost for it.
fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    let text = single(headers, "traceparent").ok()??;
    Context::parse(text).and_then(|_| TraceParent::new(text).ok())
}

fn trace_state(headers: &HeaderMap) -> BTreeMap<ExtensionName, ExtensionValue> {
    let state = traceparent(headers).and_then(|_| single(headers, "tracestate").ok()?);
    let text = state.and_then(|text| ExtensionText::new(text).ok());
    let name = ExtensionName::new("tracestate").expect("lower-case letters");
    text.map(|text| (name, ExtensionValue::Text(text))).into_iter().collect()
}
