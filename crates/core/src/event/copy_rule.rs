//! How duplicates of an event are recognised for one rule.
//!
//! An event is identified by its source and id. A rule may also identify its deliveries by a key: a template
//! over the event, such as `data.order` or `{type}/{data.order}`. Two events with the same key are one
//! delivery. If a value of the key is missing, only source and id count, since half a key would tie unrelated
//! events together.
//!
//! Invariant: a key depends on the event and the template alone, so it survives a restart.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::book::source_template::{FieldSelection, SelectedFields};
use crate::event::Event;
use crate::event::attribute::{ContentType, CorrelationId, EventSubject, SessionKey};
use crate::limits;
use crate::policy::answer::TargetAnswer;
use crate::time::Timestamp;

pub const TTL_DEFAULT: Duration = Duration::from_secs(7 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotencyBy {
    /// Source and id, and the rule's key.
    EventId,
    /// Also the notification id that the target returned.
    NotificationId,
    /// Each copy is delivered.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRule {
    pub by: IdempotencyBy,
    pub key: Option<Arc<CopyKey>>,
    /// At least as long as the event is kept.
    pub ttl: Duration,
}

impl Default for CopyRule {
    fn default() -> Self {
        Self { by: IdempotencyBy::EventId, key: None, ttl: TTL_DEFAULT }
    }
}

/// What is known of an earlier event with the same source and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedKeys {
    pub last_at: Timestamp,
    /// Whether more than its id is stored.
    pub kept: bool,
}

impl CopyRule {
    /// Whether another event with the same source and id is a duplicate.
    #[must_use]
    pub fn recall(&self, earlier: RememberedKeys, now: Timestamp) -> bool {
        match self.by {
            IdempotencyBy::EventId | IdempotencyBy::NotificationId => {
                earlier.kept || now.since(earlier.last_at) < self.ttl
            }
            IdempotencyBy::Nothing => false,
        }
    }

    #[must_use]
    pub fn key_of(&self, event: &Event) -> Option<String> {
        match self.by {
            IdempotencyBy::EventId | IdempotencyBy::NotificationId => self.key.as_ref()?.of(event),
            IdempotencyBy::Nothing => None,
        }
    }

    /// Whether a delivery is not sent again once its target returned a notification id.
    #[must_use]
    pub fn keeps_notification_ids(&self) -> bool {
        self.by == IdempotencyBy::NotificationId
    }
}

/// Response header with the notification id; in a JSON answer, the field.
const NOTIFICATION_HEADER: &str = "notification-id";
const NOTIFICATION_FIELD: [&str; 1] = ["notification_id"];

/// The notification id of an answer, whatever its status.
#[must_use]
pub fn notification_id(answer: &TargetAnswer<'_>) -> Option<Box<str>> {
    let cut = |id: &str| Box::from(&id[..id.floor_char_boundary(limits::NOTIFICATION_ID_BYTES_MAX)]);
    let usable = |id: &&str| !id.trim().is_empty();
    if let Some(id) = answer.what.header(NOTIFICATION_HEADER).filter(usable) {
        return Some(cut(id.trim()));
    }
    let body = answer.what.body();
    if !body.contains(NOTIFICATION_FIELD[0]) {
        return None;
    }
    let mut wanted = FieldSelection::default();
    wanted.add(&NOTIFICATION_FIELD.map(str::to_owned));
    let picked = wanted.pick(body.as_bytes()).ok()?;
    picked.get(&NOTIFICATION_FIELD).filter(usable).map(|id| cut(id.trim()))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyKey {
    text: String,
    pieces: Vec<KeyPiece>,
    wanted: FieldSelection,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPiece {
    Text(String),
    Value(KeyField),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyField {
    Id,
    Source,
    Type,
    Subject,
    Session,
    CorrelationId,
    Data(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCopyKey {
    #[error("unmatched `{{` or `}}` in `{text}`")]
    Unpaired { text: String },
    #[error(
        "unknown event field `{name}`: write `data.field`, `id`, `source`, `type`, `subject`, `session` or `correlation_id`, alone or in braces within a text"
    )]
    Unknown { name: String },
    #[error("`{name}` is nested more than {} fields deep", limits::DATA_PATH_WORDS_MAX)]
    TooDeep { name: String },
}

impl CopyKey {
    /// The name of a field, or a text with names in braces.
    pub fn parse(text: &str) -> Result<Self, InvalidCopyKey> {
        let pieces =
            if text.contains(['{', '}']) { pieces_of(text)? } else { vec![KeyField::parse(text)?.into()] };
        let mut wanted = FieldSelection::default();
        for piece in &pieces {
            if let KeyPiece::Value(KeyField::Data(path)) = piece {
                wanted.add(path);
            }
        }
        Ok(Self { text: text.to_owned(), pieces, wanted })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `None` if one of its values is missing.
    #[must_use]
    pub fn of(&self, event: &Event) -> Option<String> {
        let is_json = event.content_type.as_ref().is_none_or(ContentType::is_json);
        let picked = if self.wanted.is_empty() || !is_json {
            SelectedFields::default()
        } else {
            // Other data have no fields.
            self.wanted.pick(&event.data).ok()?
        };
        let mut key = String::new();
        for piece in &self.pieces {
            match piece {
                KeyPiece::Text(text) => key.push_str(text),
                KeyPiece::Value(from) => {
                    key.push_str(from.find(event, &picked).filter(|value| !value.is_empty())?);
                }
            }
        }
        Some(key)
    }
}

fn pieces_of(text: &str) -> Result<Vec<KeyPiece>, InvalidCopyKey> {
    let unpaired = || InvalidCopyKey::Unpaired { text: text.to_owned() };
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(brace);
        if !before.is_empty() {
            pieces.push(KeyPiece::Text(before.to_owned()));
        }
        let after = after.strip_prefix('{').ok_or_else(unpaired)?;
        let (inside, tail) = after.split_once('}').ok_or_else(unpaired)?;
        pieces.push(KeyField::parse(inside)?.into());
        rest = tail;
    }
    if !rest.is_empty() {
        pieces.push(KeyPiece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

impl KeyField {
    fn parse(text: &str) -> Result<Self, InvalidCopyKey> {
        let unknown = || InvalidCopyKey::Unknown { name: text.to_owned() };
        let from = match text {
            "id" => Self::Id,
            "source" => Self::Source,
            "type" => Self::Type,
            "subject" => Self::Subject,
            "session" => Self::Session,
            "correlation_id" => Self::CorrelationId,
            _ => {
                let path = text.strip_prefix("data.").ok_or_else(unknown)?;
                let path: Vec<String> = path.split('.').map(str::to_owned).collect();
                if path.iter().any(|word| word.is_empty() || word.contains(char::is_whitespace)) {
                    return Err(unknown());
                }
                if path.len() > limits::DATA_PATH_WORDS_MAX {
                    return Err(InvalidCopyKey::TooDeep { name: text.to_owned() });
                }
                Self::Data(path)
            }
        };
        Ok(from)
    }

    fn find<'a>(&self, event: &'a Event, picked: &'a SelectedFields<'_>) -> Option<&'a str> {
        match self {
            Self::Id => Some(event.id.as_str()),
            Self::Source => Some(event.source.as_str()),
            Self::Type => Some(event.event_type.as_str()),
            Self::Subject => event.subject.as_ref().map(EventSubject::as_str),
            Self::Session => event.session.as_ref().map(SessionKey::as_str),
            Self::CorrelationId => event.correlation_id.as_ref().map(CorrelationId::as_str),
            Self::Data(path) => picked.get(path),
        }
    }
}

impl From<KeyField> for KeyPiece {
    fn from(from: KeyField) -> Self {
        Self::Value(from)
    }
}

impl fmt::Display for CopyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::attribute::{EventId, EventSource, EventType};

    fn event(content_type: &str, data: &'static str) -> Event {
        Event {
            id: EventId::new("1").expect("an id"),
            source: EventSource::new("/shop").expect("a source"),
            event_type: EventType::new("order.placed").expect("a type"),
            subject: Some(EventSubject::new("basket").expect("a subject")),
            time: None,
            content_type: Some(ContentType::new(content_type).expect("a type")),
            session: None,
            correlation_id: None,
            traceparent: None,
            extensions: BTreeMap::new(),
            data: data.into(),
        }
    }

    #[test]
    fn a_key_is_what_the_event_says() {
        let json = "application/json";
        #[rustfmt::skip]
        let cases = [
            ("data.order",               json,         r#"{"order": 42}"#,            Some("42")),
            ("data.order",               json,         r#"{"order": "42"}"#,          Some("42")),
            ("data.order.id",            json,         r#"{"order": {"id": "x"}}"#,   Some("x")),
            ("{type}/{data.order}",      json,         r#"{"order": 42}"#,            Some("order.placed/42")),
            ("id",                       json,         "{}",                          Some("1")),
            ("{source}#{subject}",       json,         "{}",                          Some("/shop#basket")),
            ("all of it",                json,         "{}",                          None),
            ("data.order",               json,         "{}",                          None),
            ("data.order",               json,         r#"{"order": null}"#,          None),
            ("data.order",               json,         r#"{"order": ""}"#,            None),
            ("data.order",               json,         "no JSON",                     None),
            ("data.order",               "text/plain", r#"{"order": 42}"#,            None),
            ("{data.order}{session}",    json,         r#"{"order": 42}"#,            None),
        ];
        for (text, content_type, data, expected) in cases {
            let key = CopyKey::parse(text).ok().and_then(|key| key.of(&event(content_type, data)));
            assert_eq!(key.as_deref(), expected, "{text} of {data}");
        }
    }

    #[test]
    fn what_no_event_has_is_no_key() {
        for text in
            ["", "order", "data", "data.", "data.a..b", "{data.a", "data.a}", "{}", "event.id", "data.a b"]
        {
            assert!(CopyKey::parse(text).is_err(), "{text}");
        }
        let path = |words: usize| format!("data{}", ".a".repeat(words));
        assert!(CopyKey::parse(&path(limits::DATA_PATH_WORDS_MAX)).is_ok());
        assert!(CopyKey::parse(&path(limits::DATA_PATH_WORDS_MAX + 1)).is_err());
    }

    #[test]
    fn an_answer_tells_the_id_of_its_notification_in_a_header_or_a_field() {
        use crate::policy::answer::{HeaderPairs, ReplyKind, TargetReply};
        let told = |header: Option<&str>, body: &str| {
            let pairs = header.map(|id| ("Notification-Id".to_owned(), id.to_owned()));
            let headers = HeaderPairs(pairs.into_iter().collect());
            let seen = ReplyKind::Http { status: 503, headers, body: body.to_owned() };
            let reply = TargetReply { seen, message: String::new(), retry_after: None };
            notification_id(&reply.as_answer())
        };
        #[rustfmt::skip]
        let cases = [
            (Some("n-1"), "",                                  Some("n-1")),
            (Some(" "),   "{\"notification_id\": \"n-2\"}",  Some("n-2")),
            (Some("n-1"), "{\"notification_id\": \"n-2\"}",  Some("n-1")),
            (None,        "{\"notification_id\": 7}",          Some("7")),
            (None,        "{\"notification_id\": null}",       None),
            (None,        "notification_id: 7",                None),
            (None,        "{\"id\": 7}",                       None),
        ];
        for (header, body, expected) in cases {
            assert_eq!(told(header, body).as_deref(), expected, "{header:?} {body}");
        }
        let long = "x".repeat(limits::NOTIFICATION_ID_BYTES_MAX + 1);
        assert_eq!(told(Some(&long), "").map(|id| id.len()), Some(limits::NOTIFICATION_ID_BYTES_MAX));
    }

    #[test]
    fn a_copy_is_known_for_its_time_and_while_the_event_is_kept() {
        let (at, hour) = (Timestamp::from_millis, 3_600_000);
        let copies = |by| CopyRule { by, key: None, ttl: Duration::from_hours(1) };
        let [id, notification, nothing] =
            [IdempotencyBy::EventId, IdempotencyBy::NotificationId, IdempotencyBy::Nothing].map(copies);
        #[rustfmt::skip]
        let cases = [
            ("at once",                  &id,           0,        false, true),
            ("within its time",          &id,           hour - 1, false, true),
            ("after it",                 &id,           hour,     false, false),
            ("while it is kept",         &id,           hour,     true,  true),
            ("by its notification",      &notification, hour - 1, false, true),
            ("where nothing is known",   &nothing,      0,        true,  false),
        ];
        for (name, copies, after, kept, expected) in cases {
            let earlier = RememberedKeys { last_at: at(5), kept };
            assert_eq!(copies.recall(earlier, at(5 + after)), expected, "{name}");
        }
    }
}
