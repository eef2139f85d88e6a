//! Alert receivers: a target per receiver of the book, which sends a notice in the receiver's own format.
//!
//! Retries are the engine's; a receiver only reports the outcome. Invariant: no message and no error contains
//! a credential.

mod alertmanager;
mod email;
#[cfg(test)]
mod notice_test;
mod ntfy;
mod slack;
pub(crate) mod text;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use redrive_core::alerts::notice::AlertNotice;
use redrive_core::book::connectors::email::{self as email_settings, EmailSettings};
use redrive_core::book::connectors::{Endpoint, notify};
use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::{MalformedEvent, ReplyKind, TargetReply};

use self::alertmanager::Repeats;
use self::email::Mail;
use crate::connectors::{Driver, Make, MakeError, Site, settings};
use crate::credential::Credential;
use crate::target::Target;
use crate::target::http::{HttpOptions, HttpTarget, RequestShape, Wire, WireOptions, fixed_headers};

const PERMITS: u32 = 4;

/// Posts notices as CloudEvents.
pub(crate) const WEBHOOK: Driver = Driver {
    connector: &notify::WEBHOOK,
    make: Make::Target(|endpoint, site| {
        let notify::NotifySettings { address, network, secret, headers } = settings(endpoint);
        let options = HttpOptions {
            shape: RequestShape::default(),
            auth: site.auth(headers.auth.as_ref(), *network)?,
            secret_path: None,
            expect: None,
            signing: site.signing(secret.as_ref())?,
            permits: PERMITS,
            network: *network,
            place: site.place.clone(),
        };
        let target = HttpTarget::new(address, options, Arc::clone(site.pool))?;
        Ok(Arc::new(target.with_headers(fixed_headers(&headers.fixed))))
    }),
};

pub(crate) const NTFY: Driver = Driver {
    connector: &notify::NTFY,
    make: Make::Target(|endpoint, site| posted(endpoint, site, "", NoticeFormat::Ntfy)),
};

pub(crate) const SLACK: Driver = Driver {
    connector: &notify::SLACK,
    make: Make::Target(|endpoint, site| posted(endpoint, site, "", NoticeFormat::Slack)),
};

pub(crate) const ALERTMANAGER: Driver = Driver {
    connector: &notify::ALERTMANAGER,
    make: Make::Target(|endpoint, site| {
        posted(endpoint, site, alertmanager::PATH, NoticeFormat::Alertmanager(Repeats::of(site.sections)))
    }),
};

pub(crate) const EMAIL: Driver = Driver {
    connector: &email_settings::RECEIVER,
    make: Make::Target(|endpoint, site| {
        let email: &EmailSettings = settings(endpoint);
        let (token, place) = (token(email.secret.as_ref(), site), site.place.clone());
        Ok(Arc::new(Mail::new(email, token, place, Arc::clone(site.pool))?))
    }),
};

fn posted(
    endpoint: &Endpoint,
    site: &Site<'_>,
    path: &str,
    dialect: NoticeFormat,
) -> Result<Arc<dyn Target>, MakeError> {
    let notify::NotifySettings { address, network, secret, .. } = settings(endpoint);
    let address =
        if path.is_empty() { address.clone() } else { address.trim_end_matches('/').to_owned() + path };
    let options = WireOptions { permits: PERMITS, network: *network, place: site.place.clone() };
    let wire = Wire::new(&address, options, Arc::clone(site.pool))?;
    Ok(Arc::new(PostedReceiver { wire, dialect, token: token(secret.as_ref(), site) }))
}

fn token(secret: Option<&String>, site: &Site<'_>) -> Option<Credential> {
    secret.map(|name| Credential::new(site.secrets, name, "notification not sent"))
}

struct ReceiverMessage {
    headers: HeaderMap,
    body: Bytes,
}

enum NoticeFormat {
    Ntfy,
    Slack,
    Alertmanager(Repeats),
}

struct PostedReceiver {
    wire: Wire,
    dialect: NoticeFormat,
    token: Option<Credential>,
}

impl PostedReceiver {
    async fn send(&self, call: &TargetCall) -> Result<TargetReply, TargetReply> {
        let (_, notice) = notice_of(call)?;
        let ReceiverMessage { mut headers, body } = match &self.dialect {
            NoticeFormat::Ntfy => ntfy::message(&notice),
            NoticeFormat::Slack => slack::message(&notice),
            NoticeFormat::Alertmanager(repeats) => alertmanager::message(&notice, repeats),
        };
        let Some(token) = &self.token else { return Ok(self.wire.post(call, headers, body).await) };
        let bearer = token.bearer(call.limit).await?;
        headers.insert(AUTHORIZATION, bearer.clone());
        Ok(token.hidden_in(self.wire.post(call, headers, body).await, &bearer))
    }
}

impl Target for PostedReceiver {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move { Ending::Reply(self.send(&call).await.unwrap_or_else(|failed| failed)) })
    }
}

fn notice_of(call: &TargetCall) -> Result<(String, AlertNotice), TargetReply> {
    let malformed = |why: String| {
        let message = format!("event data is not a notice: {why}");
        TargetReply::new(ReplyKind::Malformed(MalformedEvent::DoesNotParse), message)
    };
    let [delivery] = call.deliveries.as_slice() else {
        return Err(malformed("there are several".to_owned()));
    };
    let notice =
        serde_json::from_slice(&delivery.event.data).map_err(|error| malformed(error.to_string()))?;
    Ok((delivery.event.id.to_string(), notice))
}
