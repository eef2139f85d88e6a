//! Imports dead letters, one JSON object per line: our envelope, the short form of Redis streams, or a plain
//! form.
//!
//! A line is read without a rule book, so that a file can be checked before anything is sent. Invariants: any
//! bytes give a letter or an error text; the same line always has the same key.

use std::sync::Arc;

use bytes::Bytes;
use redrive_core::book::RuleBook;
use redrive_core::book::model::DeliveryOrder;
use redrive_core::book::route::RouteMatch;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, RecordedVerdict};
use redrive_core::engine::{DeadLetterInfo, QueueName, SessionFollowers};
use redrive_core::event::attribute::EventSource;
use redrive_core::event::{Event, Incoming, parse, reserved};
use redrive_core::ids::{Attempt, ChannelName, ServiceName};
use redrive_core::letters::envelope::{Envelope, EnvelopeAttempt, LetterId, RedisLetter, Tier};
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::time::Timestamp;
use redrive_core::{hash, limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::store::letter::ImportedLetter;

const KEY_BYTES_MAX: usize = 512;
const CODE_BYTES_MAX: usize = 200;
const ATTEMPTS_KEPT_MAX: usize = 1_000;
/// The source of events that name none, and the prefix of sources that only Redrive may use.
const SOURCE_DEFAULT: &str = "/imported";
const TYPE_DEFAULT: &str = "imported.message";

/// A letter as read, before the rule book is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportLetter {
    pub key: String,
    pub queue: QueueName,
    pub event: Event,
    subscription: Option<String>,
    consumer_group: Option<String>,
    category: Category,
    tier: Tier,
    fingerprint: Option<Fingerprint>,
    attempts: u32,
    replays: u32,
    history: Vec<EnvelopeAttempt>,
    died_at: Option<Timestamp>,
}

pub fn read(line: &str) -> Result<ImportLetter, String> {
    let members: Value = serde_json::from_str(line).map_err(|error| format!("is not valid JSON: {error}"))?;
    let Value::Object(members) = &members else {
        return Err("is not a JSON object".to_owned());
    };
    let is = |name: &str| members.contains_key(name);
    // Each form has a field that it cannot lack.
    if is("originalMessage") || is("dlqId") {
        let envelope: Envelope =
            serde_json::from_str(line).map_err(|error| format!("is not a valid envelope: {error}"))?;
        return of_envelope(envelope);
    }
    if is("original_message") {
        let letter: RedisLetter = serde_json::from_str(line)
            .map_err(|error| format!("is not a valid Redis stream letter: {error}"))?;
        return of_envelope(letter.into_envelope(LetterId::reported(&key_of(line))));
    }
    if is("service") {
        return of_plain(line);
    }
    Err("has neither `dlqId` (our envelope), `original_message` (Redis) nor `service` (the plain form)"
        .to_owned())
}

fn key_of(line: &str) -> String {
    format!("line-{:032x}", hash::stable_128(line.trim().as_bytes()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainLetter<'a> {
    service: String,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    data_base64: Option<String>,
    content_type: Option<String>,
    id: Option<String>,
    source: Option<String>,
    subject: Option<String>,
    session: Option<String>,
    correlation_id: Option<String>,
    time: Option<String>,
    error: Option<String>,
    code: Option<String>,
    category: Option<String>,
    attempts: Option<u32>,
    failed_at: Option<Timestamp>,
    key: Option<String>,
}

fn of_plain(line: &str) -> Result<ImportLetter, String> {
    let plain: PlainLetter<'_> =
        serde_json::from_str(line).map_err(|error| format!("is not a valid plain letter: {error}"))?;
    let key = plain.key.clone().unwrap_or_else(|| key_of(line));
    let category = match plain.category.as_deref() {
        None => Category::Unknown,
        Some(word) => Category::from_word(word).ok_or_else(|| {
            let known: Vec<&str> = Category::ALL.into_iter().map(Category::as_str).collect();
            format!("has the unknown category `{word}`, expected one of {}", known.join(", "))
        })?,
    };
    let attempts = plain.attempts.unwrap_or(u32::from(plain.error.is_some()));
    let failed = plain.error.is_some() || plain.code.is_some();
    let history =
        Attempt::new(attempts.max(u32::from(failed))).filter(|_| failed).map(|attempt| EnvelopeAttempt {
            attempt,
            timestamp: plain.failed_at.unwrap_or(Timestamp::EPOCH),
            error: plain.error.clone(),
            error_code: plain.code.as_deref().map(FailureCode::reported),
            http_status: None,
        });
    let event = plain_event(&plain, &key)?;
    finish(ImportLetter {
        queue: queue(&plain.service)?,
        key,
        event,
        subscription: None,
        consumer_group: None,
        category,
        tier: Tier::Dead,
        fingerprint: None,
        attempts,
        replays: 0,
        history: history.into_iter().collect(),
        died_at: plain.failed_at,
    })
}

/// The data is kept byte for byte.
fn plain_event(plain: &PlainLetter<'_>, key: &str) -> Result<Event, String> {
    let mut members = json!({
        "specversion": "1.0", "id": plain.id.as_deref().unwrap_or(key), "type": plain.event_type,
        "source": plain.source.as_deref().unwrap_or(SOURCE_DEFAULT),
    });
    let optional = [
        ("subject", &plain.subject),
        ("partitionkey", &plain.session),
        ("correlationid", &plain.correlation_id),
        ("time", &plain.time),
        ("datacontenttype", &plain.content_type),
        ("data_base64", &plain.data_base64),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            members[name] = json!(value);
        }
    }
    let mut text = members.to_string();
    if let Some(data) = plain.data {
        text.truncate(text.len() - 1);
        text.push_str(&format!(",\"data\":{}}}", data.get()));
    }
    event_of(text.into_bytes())
}

fn event_of(structured: Vec<u8>) -> Result<Event, String> {
    let headers = vec![("content-type".to_owned(), "application/cloudevents+json".to_owned())];
    let incoming = Incoming { headers: &headers, body: &Bytes::from(structured) };
    let events = parse(incoming).map_err(|invalid| {
        // Errors use the field names of the plain form.
        let field = match invalid.field.as_str() {
            "partitionkey" => "session",
            "correlationid" => "correlation_id",
            "datacontenttype" => "content_type",
            other => other,
        };
        format!("has an invalid event: `{field}` {}", invalid.reason)
    })?;
    Ok(events.into_events().remove(0))
}

fn of_envelope(envelope: Envelope) -> Result<ImportLetter, String> {
    let event = enveloped_event(&envelope)?;
    let history: Vec<EnvelopeAttempt> = envelope.retry_attempts.into_iter().take(ATTEMPTS_KEPT_MAX).collect();
    let last = history.last().map_or(0, |record| record.attempt.get());
    let counted = if envelope.total_retries > 0 { envelope.total_retries.saturating_add(1) } else { 0 };
    finish(ImportLetter {
        key: envelope.dlq_id.as_str().to_owned(),
        queue: queue(&envelope.consumer_service)?,
        event,
        subscription: envelope.subscription_id,
        consumer_group: envelope.consumer_group,
        category: envelope.category,
        tier: envelope.tier,
        fingerprint: envelope.fingerprint,
        attempts: last.max(counted),
        replays: envelope.replays,
        history,
        died_at: Some(envelope.routed_to_dlq_at),
    })
}

/// The message is a CloudEvent, or anything else that the envelope describes.
fn enveloped_event(envelope: &Envelope) -> Result<Event, String> {
    // Streams carry strings, which often contain JSON.
    let message = match &envelope.original_message {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        other => other.clone(),
    };
    if message.get("specversion").is_some() {
        return event_of(message.to_string().into_bytes());
    }
    let own_type = message.get("type").and_then(Value::as_str);
    let fits = |text: &&str| redrive_core::book::pattern::check_type(text).is_ok();
    let event_type = envelope.original_topic.as_deref().or(own_type).filter(fits).unwrap_or(TYPE_DEFAULT);
    let id = envelope.original_event_id.as_deref().unwrap_or(envelope.dlq_id.as_str());
    let mut event = json!({
        "specversion": "1.0", "id": id, "source": SOURCE_DEFAULT, "type": event_type,
        "datacontenttype": "application/json", "data": message,
    });
    let optional = [("partitionkey", &envelope.session_id), ("correlationid", &envelope.correlation_id)];
    for (name, value) in optional {
        if let Some(value) = value {
            event[name] = json!(value);
        }
    }
    if let Some(time) = envelope.original_timestamp {
        event["time"] = json!(time);
    }
    event_of(event.to_string().into_bytes())
}

/// Parses `service` or `service/channel`.
pub fn queue(text: &str) -> Result<QueueName, String> {
    let (service, channel) = match text.split_once('/') {
        Some((service, channel)) => (service, Some(channel)),
        None => (text, None),
    };
    let wrong = |what: &str, error: &dyn std::fmt::Display| format!("has an invalid {what} name: {error}");
    Ok(QueueName {
        service: ServiceName::new(service).map_err(|error| wrong("service", &error))?,
        channel: channel.map(ChannelName::new).transpose().map_err(|error| wrong("channel", &error))?,
    })
}

fn finish(mut letter: ImportLetter) -> Result<ImportLetter, String> {
    let source = letter.event.source.as_str();
    // Reserved sources are prefixed: only Redrive makes such events.
    if reserved::owner_of(source).is_some() {
        let source = format!("{SOURCE_DEFAULT}/{}", source.trim_start_matches('/'));
        letter.event.source =
            EventSource::new(&source).map_err(|error| format!("has an invalid event: `source` {error}"))?;
    }
    if letter.key.is_empty() || letter.key.len() > KEY_BYTES_MAX {
        return Err(format!("has a key of {} bytes, allowed are 1 to {KEY_BYTES_MAX}", letter.key.len()));
    }
    for record in &mut letter.history {
        if let Some(error) = &mut record.error {
            *error = head(error, limits::MESSAGE_BYTES_MAX).to_owned();
        }
        if let Some(code) = &record.error_code {
            record.error_code = Some(FailureCode::reported(head(code.as_str(), CODE_BYTES_MAX)));
        }
    }
    Ok(letter)
}

fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

impl ImportLetter {
    /// Whether the event has the source of imported events, so it claims to be from no real one.
    #[must_use]
    pub fn has_import_source(&self) -> bool {
        let rest = self.event.source.as_str().strip_prefix(SOURCE_DEFAULT);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    #[must_use]
    pub fn into_letter(self, book: &RuleBook, now: Timestamp) -> ImportedLetter {
        let QueueName { service, channel } = &self.queue;
        let event_type = self.event.event_type.as_str();
        let rule = book.letter_rule(service.as_str(), channel.as_ref().map(ChannelName::as_str), event_type);
        let claimed = |route: &RouteMatch<'_>| {
            route.service.name == *service && route.channel.map(|channel| &channel.name) == channel.as_ref()
        };
        let subscription = self.subscription.clone().unwrap_or_else(|| {
            let routes = book.route(event_type);
            let route = routes.iter().find(|route| claimed(route));
            route.map_or_else(|| format!("{}/{event_type}", self.queue), RouteMatch::subscription)
        });
        // Another machine's clock may be ahead.
        let died_at = self.died_at.unwrap_or(now).min(now);
        let last = self.history.last();
        let code = last
            .and_then(|record| record.error_code.clone())
            .unwrap_or(FailureCode::of(codes::UNKNOWN_ERROR));
        let message = last.and_then(|record| record.error.clone()).unwrap_or_default();
        let death = DeadLetterInfo {
            category: self.category,
            fingerprint: self
                .fingerprint
                .unwrap_or_else(|| Fingerprint::of(service, self.category, &code, &message)),
            failure_code: code.clone(),
            code,
            tier: self.tier,
            message,
            name: rule.map_or_else(|| usual_name(&self.queue), |rule| rule.name(event_type)),
            consumer_group: self
                .consumer_group
                .clone()
                .or_else(|| rule.map(|rule| rule.consumer_group.clone()))
                .unwrap_or_else(|| service.to_string()),
            followers: SessionFollowers::Continue,
        };
        ImportedLetter {
            order: rule.map_or(DeliveryOrder::None, |rule| rule.order),
            stories: stories(&self, &death, died_at),
            key: self.key,
            subscription: subscription.into(),
            queue: Arc::new(self.queue),
            event: Arc::new(self.event),
            death,
            died_at,
            attempts: self.attempts,
            replays: self.replays,
        }
    }
}

/// The default name for services that are not in the book.
fn usual_name(queue: &QueueName) -> String {
    let channel = queue.channel.as_ref().map(|channel| format!(".{channel}")).unwrap_or_default();
    format!("_{}.deadletter{channel}", queue.service)
}

fn stories(letter: &ImportLetter, death: &DeadLetterInfo, died_at: Timestamp) -> Vec<AttemptRecord> {
    let story = |(place, record): (usize, &EnvelopeAttempt)| AttemptRecord {
        attempt: record.attempt,
        started_at: if record.timestamp == Timestamp::EPOCH { died_at } else { record.timestamp },
        took_nanos: 0,
        end: AttemptEnd::Failed {
            category: letter.category,
            code: record.error_code.clone().unwrap_or(FailureCode::of(codes::UNKNOWN_ERROR)),
            status: record.http_status,
            message: record.error.clone().unwrap_or_default(),
            response: String::new(),
        },
        // Not judged by any book of ours.
        book: 0,
        verdict: match letter.history.get(place + 1) {
            Some(next) => RecordedVerdict::Retry { due_at: next.timestamp },
            None => RecordedVerdict::Dead { code: death.code.clone(), tier: death.tier },
        },
        classified_at: None,
        reaction_at: None,
        retry: None,
        held_nanos: 0,
    };
    letter.history.iter().enumerate().map(story).collect()
}

#[cfg(test)]
mod tests;
