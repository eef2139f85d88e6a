//! The request of a delivery as it would be sent, without credentials and without a call.

use std::sync::Arc;

use http::HeaderValue;
use redrive_core::book::connectors::http::{HttpAuth, HttpSettings};
use redrive_core::book::template::TemplateContext;
use redrive_core::engine::{PendingDelivery, QueueName};
use redrive_core::event::Event;
use redrive_core::event::idempotency::{delivery_id, webhook_id};
use redrive_core::ids::Seq;
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;

use super::address::{ConnectionSecurity, HttpAddress};
use super::request::{self, NoRequest, RequestShape, WEBHOOK_SIGNATURE};
use super::secret_path::joined;

const HIDDEN: &str = "[secret]";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPreview {
    pub method: String,
    pub url: String,
    /// Names in lower case; credentials are `[secret]`.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPreview {
    /// Such as `data.user.id`.
    #[error("fields are missing in the event: {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("{0}")]
    Other(String),
}

/// The first attempt at the event.
pub fn preview(
    settings: &HttpSettings,
    queue: QueueName,
    event: Event,
    now: Timestamp,
) -> Result<RequestPreview, NoPreview> {
    let HttpSettings { address, form, secret, method, request, secret_path, auth, network, .. } = settings;
    let other = |error: &dyn std::fmt::Display| NoPreview::Other(error.to_string());
    let address = HttpAddress::parse(address, *network).map_err(|error| other(&error))?;
    let shape = RequestShape::new(*form, *method, request);
    let delivery = first_attempt(queue, event);
    let made = request::make(&address, &shape, None, std::slice::from_ref(&delivery), None, now);
    let made = made.map_err(|none| match none {
        NoRequest::Event(misfit) if misfit.missing().is_some() => {
            let (id, attempt) = (webhook_id(delivery.id), delivery.next_attempt().get());
            NoPreview::Missing(request.missing(&TemplateContext::new(&delivery.event, &id, attempt)))
        }
        NoRequest::Event(_) | NoRequest::Form { .. } | NoRequest::Filled(_) => other(&none),
    })?;
    let (mut head, body) = made.into_parts();
    if let Some(auth) = auth {
        let value = match auth.header() {
            "authorization" if matches!(auth, HttpAuth::Basic { .. }) => "Basic [secret]",
            "authorization" => "Bearer [secret]",
            _ => HIDDEN,
        };
        let name = http::HeaderName::try_from(auth.header()).expect("the book has valid header names");
        head.headers.insert(name, HeaderValue::from_static(value));
    }
    if secret.is_some() {
        head.headers.insert(WEBHOOK_SIGNATURE, HeaderValue::from_static(HIDDEN));
    }
    let target = match secret_path {
        Some(_) => joined(&head.uri, "/[secret]"),
        None => head.uri.to_string(),
    };
    let scheme = match address.origin.security {
        ConnectionSecurity::Plain => "http",
        ConnectionSecurity::Tls => "https",
    };
    let host = String::from_utf8_lossy(address.host.as_bytes());
    let headers = head.headers.iter().map(|(name, value)| {
        let value =
            if value.is_sensitive() { HIDDEN.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        (name.to_string(), value.into_owned())
    });
    Ok(RequestPreview {
        method: head.method.to_string(),
        url: format!("{scheme}://{host}{target}"),
        headers: headers.collect(),
        body: body.to_vec(),
    })
}

fn first_attempt(queue: QueueName, event: Event) -> PendingDelivery {
    let seq = Seq::new(1);
    PendingDelivery {
        id: delivery_id(seq, event.dedup_key(), &queue.service, queue.channel.as_ref()),
        sequence: event.session.as_ref().map(|_| seq),
        queue: Arc::new(queue),
        event: Arc::new(event),
        replaying: None,
        attempts: 0,
        due_at: None,
        history: History::default(),
        book: None,
        written_at: Timestamp::EPOCH,
        start_recorded: false,
        damaged: false,
    }
}
