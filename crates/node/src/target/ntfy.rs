//! The `ntfy` target: a push notification for each event.
//!
//! A notification carries its delivery's id as a tag. Before an attempt that may repeat one, the topic is asked
//! for that tag: what is already there is not sent again. If the question fails, the notification is sent, so
//! one may come twice but none is lost.

#[cfg(test)]
mod behaviour_test;
mod notification;

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use redrive_core::book::connectors::{self, ntfy::NtfySettings, ntfy::RepeatedNotification};
use redrive_core::engine::{Ending, PendingDelivery, TargetCall};
use redrive_core::event::idempotency::webhook_id;
use redrive_core::ids::Attempt;
use redrive_core::policy::answer::{CallPart, ReplyKind, TargetReply, TransportError};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use serde::Deserialize;
use tokio::time::timeout;

use self::notification::Notification;
use super::Target;
use super::http::{Wire, WireOptions};
use crate::connectors::{ConnectorFuture, Driver, Make, settings};
use crate::credential::Credential;
use redrive::clock::wall_clock;

/// The question must leave time to send.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(5);

pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::ntfy::TARGET,
    make: Make::Target(|endpoint, site| {
        let settings: &NtfySettings = settings(endpoint);
        let (network, place) = (settings.network, site.place.clone());
        let options = WireOptions { permits: site.permits, network, place };
        let secret = settings.secret.as_ref();
        Ok(Arc::new(NtfyTarget {
            wire: Wire::new(&settings.address, options, Arc::clone(site.pool))?,
            token: secret.map(|name| Credential::new(site.secrets, name, "notification not sent")),
            settings: settings.clone(),
            made_at: wall_clock(),
        }))
    }),
};

struct NtfyTarget {
    wire: Wire,
    token: Option<Credential>,
    settings: NtfySettings,
    /// An older delivery may have been sent before a crash, of which nothing is on record.
    made_at: Timestamp,
}

impl NtfyTarget {
    async fn send(&self, call: &TargetCall) -> Result<TargetReply, TargetReply> {
        let [delivery] = call.deliveries.as_slice() else {
            return Err(TargetReply::new(ReplyKind::Internal, "a notification is for one delivery"));
        };
        let Notification { mut headers, body } = Notification::of(delivery, &self.settings)?;
        let bearer = match &self.token {
            Some(token) => Some(token.bearer(call.limit).await?),
            None => None,
        };
        if self.may_repeat(delivery)
            && let Some(id) = self.sent_before(delivery, bearer.as_ref(), call.limit).await
        {
            return Ok(TargetReply::new(
                ReplyKind::Taken,
                format!("notification {id} of an earlier attempt"),
            ));
        }
        headers.extend(bearer.clone().map(|bearer| (AUTHORIZATION, bearer)));
        let reply = taken(self.wire.post(call, headers, body).await);
        Ok(match (&self.token, &bearer) {
            (Some(token), Some(bearer)) => token.hidden_in(reply, bearer),
            _ => reply,
        })
    }

    fn may_repeat(&self, delivery: &PendingDelivery) -> bool {
        let was_tried = delivery.next_attempt() > Attempt::FIRST || delivery.replaying.is_some();
        self.settings.repeats == RepeatedNotification::Avoided
            && (was_tried || delivery.written_at <= self.made_at)
    }

    /// The id of the notification that an earlier attempt sent.
    async fn sent_before(
        &self,
        delivery: &PendingDelivery,
        bearer: Option<&HeaderValue>,
        limit: Duration,
    ) -> Option<String> {
        let tag = webhook_id(delivery.id);
        let mut headers = HeaderMap::new();
        headers.extend(bearer.map(|bearer| (AUTHORIZATION, bearer.clone())));
        // A server that knows no filter returns all that it keeps, which is looked through as well.
        let question = format!("/json?poll=1&since=all&tags={tag}");
        let lines = self.wire.get(&question, headers, QUESTION_TIME_MAX.min(limit / 2)).await?;
        let lines = String::from_utf8_lossy(&lines);
        let mut messages = lines.lines().filter_map(|line| serde_json::from_str::<SentMessage>(line).ok());
        let found = messages.find(|message| message.event == "message" && message.tags.contains(&tag));
        found.map(|message| message.id)
    }
}

/// What a server says of a message, in an answer and in a list.
#[derive(Deserialize)]
struct SentMessage {
    id: String,
    event: String,
    #[serde(default)]
    tags: Vec<String>,
}

impl Target for NtfyTarget {
    fn call(&self, call: Arc<TargetCall>) -> ConnectorFuture<'_, Ending> {
        Box::pin(async move {
            let sent = timeout(call.limit, self.send(&call)).await;
            let reply = sent.unwrap_or_else(|_| {
                let message = format!("notification not sent within {}", show_duration(call.limit));
                let timeout = TransportError::Timeout(CallPart::Whole);
                Err(TargetReply::new(ReplyKind::Transport(timeout), message))
            });
            Ending::Reply(reply.unwrap_or_else(|failed| failed))
        })
    }
}

/// A success names the notification; another server's would not.
fn taken(reply: TargetReply) -> TargetReply {
    let ReplyKind::Http { status: 200..=299, body, .. } = &reply.seen else { return reply };
    if let Ok(sent) = serde_json::from_str::<SentMessage>(body) {
        return TargetReply::new(ReplyKind::Taken, format!("notification {}", sent.id));
    }
    let message = format!("the answer names no notification, so this is no ntfy topic: {}", reply.message);
    TargetReply::new(ReplyKind::Transport(TransportError::Protocol), message)
}
