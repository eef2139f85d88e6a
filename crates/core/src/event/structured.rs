//! Structured form: an event as a JSON object, a batch as a list of them.
//!
//! JSON data are embedded and extracted byte for byte; other data are a text, if the content type is not JSON,
//! or base64. Data are only embedded if the content type says JSON and they are valid JSON, so that events read
//! back unchanged. White space around them is lost.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::attribute::{ContentType, ExtensionValue};
use super::draft::{AttributePlace, EventDraft, RawAttribute};
use super::refusal::{InvalidEvent, InvalidReason};
use super::{AttributeValue, Event};
use crate::book::source_template::JsonKey;
use crate::limits;

/// More members than any event can have.
const MEMBERS_MAX: usize = limits::EXTENSIONS_MAX + 16;

pub(super) fn read(body: &Bytes) -> Result<Event, InvalidEvent> {
    let members: Members<'_> = serde_json::from_slice(body).map_err(|error| not_json("body", &error))?;
    event_of(&members, body)
}

pub(super) fn read_batch(body: &Bytes) -> Result<Vec<Event>, InvalidEvent> {
    let RawBatch(events) = serde_json::from_slice(body).map_err(|error| not_json("body", &error))?;
    if events.is_empty() {
        return Err(InvalidEvent::new("body", InvalidReason::EmptyBatch));
    }
    if events.len() > limits::BATCH_EVENTS_MAX {
        return Err(InvalidEvent::new("body", InvalidReason::TooManyEvents));
    }
    let read = |(index, raw): (usize, &RawValue)| {
        let members = serde_json::from_str(raw.get()).map_err(|error| not_json("body", &error).at(index))?;
        event_of(&members, body).map_err(|invalid| invalid.at(index))
    };
    events.into_iter().enumerate().map(read).collect()
}

fn not_json(field: &str, error: &serde_json::Error) -> InvalidEvent {
    InvalidEvent::new(field, InvalidReason::not_json(error))
}

fn event_of(members: &Members<'_>, body: &Bytes) -> Result<Event, InvalidEvent> {
    let Members(members) = members;
    if members.len() > MEMBERS_MAX {
        return Err(InvalidEvent::new("extensions", InvalidReason::TooManyExtensions));
    }
    let mut draft = EventDraft::default();
    let (mut json, mut base64) = (None, None);
    for (index, (JsonKey(name), raw)) in members.iter().enumerate() {
        if members[..index].iter().any(|(JsonKey(earlier), _)| earlier == name) {
            return Err(InvalidEvent::new(name, InvalidReason::Twice));
        }
        match &**name {
            "data" => json = Some(*raw),
            // A null attribute counts as absent.
            _ if raw.get() == "null" => {}
            "data_base64" => base64 = Some(*raw),
            _ => {
                let given = given(raw).map_err(|reason| InvalidEvent::new(name, reason))?;
                draft.set(name, &given)?;
            }
        }
    }
    let data = match (json, base64) {
        (None, None) => Bytes::new(),
        (None, Some(text)) => decoded(text).map_err(|reason| InvalidEvent::new("data_base64", reason))?,
        (Some(raw), None) => embedded(raw, &mut draft, body)?,
        (Some(_), Some(_)) => return Err(InvalidEvent::new("data_base64", InvalidReason::DataTwice)),
    };
    draft.finish(data, AttributePlace::Members)
}

/// The bytes of a `data` member.
fn embedded(raw: &RawValue, draft: &mut EventDraft, body: &Bytes) -> Result<Bytes, InvalidEvent> {
    // Data without a content type are JSON.
    let content_type = draft.content_type.get_or_insert_with(ContentType::json);
    if content_type.is_json() || !raw.get().starts_with('"') {
        return Ok(body.slice_ref(raw.get().as_bytes()));
    }
    let text: String = serde_json::from_str(raw.get()).map_err(|error| not_json("data", &error))?;
    Ok(text.into())
}

fn decoded(raw: &RawValue) -> Result<Bytes, InvalidReason> {
    let given = given(raw)?;
    let RawAttribute::Text(text) = given else { return Err(InvalidReason::NotBase64) };
    STANDARD.decode(&*text).map(Bytes::from).map_err(|_| InvalidReason::NotBase64)
}

fn given(raw: &RawValue) -> Result<RawAttribute<'_>, InvalidReason> {
    let text = raw.get();
    let found = |found| InvalidReason::NotAttribute { found };
    match text.as_bytes().first() {
        Some(b'"') => {
            let JsonKey(text) =
                serde_json::from_str(text).map_err(|error| InvalidReason::not_json(&error))?;
            Ok(RawAttribute::Text(text))
        }
        Some(b't') => Ok(RawAttribute::Boolean(true)),
        Some(b'f') => Ok(RawAttribute::Boolean(false)),
        Some(b'n') => Err(found("null")),
        Some(b'{') => Err(found("an object")),
        Some(b'[') => Err(found("a list")),
        Some(_) | None => {
            text.parse().map(RawAttribute::Integer).map_err(|_| found("a number of another kind"))
        }
    }
}

/// In order, including duplicate names.
struct Members<'a>(Vec<(JsonKey<'a>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event as an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while members.len() <= MEMBERS_MAX {
                    let Some(member) = map.next_entry()? else { return Ok(Members(members)) };
                    members.push(member);
                }
                // One too many is refused; the rest need only be JSON.
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

struct RawBatch<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for RawBatch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = RawBatch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch as a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut events = Vec::new();
                while events.len() <= limits::BATCH_EVENTS_MAX {
                    let Some(event) = list.next_element()? else { return Ok(RawBatch(events)) };
                    events.push(event);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(RawBatch(events))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

impl Event {
    /// The structured form for targets.
    #[must_use]
    pub fn to_structured(&self) -> Vec<u8> {
        serde_json::to_vec(&EventDocument { event: self, data: self.written_data() })
            .expect("its keys are texts")
    }

    /// The event as a JSON value, for dead letters.
    ///
    /// Only white space may be lost. Data that a value would change (long numbers, duplicate keys, other
    /// escapes) are written as base64.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let survives = serde_json::from_slice::<Value>(&self.data)
            .ok()
            .and_then(|value| serde_json::to_vec(&value).ok())
            .is_some_and(|again| again == without_space(&self.data));
        let data =
            if survives || self.data.is_empty() { self.written_data() } else { Data::Base64(&self.data) };
        serde_json::to_value(EventDocument { event: self, data }).expect("texts and small numbers are values")
    }

    /// With base64 data in every case: what an archive keeps, byte for byte.
    #[must_use]
    pub fn to_structured_base64(&self) -> Vec<u8> {
        let data = if self.data.is_empty() { Data::None } else { Data::Base64(&self.data) };
        serde_json::to_vec(&EventDocument { event: self, data }).expect("its keys are texts")
    }

    fn written_data(&self) -> Data<'_> {
        if self.data.is_empty() {
            return Data::None;
        }
        let is_json = self.content_type.as_ref().is_some_and(ContentType::is_json);
        match serde_json::from_slice(&self.data) {
            Ok(raw) if is_json && depth(&self.data) <= limits::EMBEDDED_DEPTH_MAX => Data::Json(raw),
            Ok(_) | Err(_) => Data::Base64(&self.data),
        }
    }
}

fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => skip_text(&mut bytes),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
}

struct EventDocument<'a> {
    event: &'a Event,
    data: Data<'a>,
}

enum Data<'a> {
    None,
    Json(&'a RawValue),
    Base64(&'a [u8]),
}

impl Serialize for EventDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.event.attributes() {
            match value {
                AttributeValue::Text(text) => map.serialize_entry(name, text)?,
                AttributeValue::Time(time) => map.serialize_entry(name, &time)?,
                AttributeValue::Extension(ExtensionValue::Text(text)) => {
                    map.serialize_entry(name, text.as_str())?;
                }
                AttributeValue::Extension(ExtensionValue::Integer(number)) => {
                    map.serialize_entry(name, number)?;
                }
                AttributeValue::Extension(ExtensionValue::Boolean(truth)) => {
                    map.serialize_entry(name, truth)?;
                }
            }
        }
        if let Some(content_type) = &self.event.content_type {
            map.serialize_entry("datacontenttype", content_type.as_str())?;
        }
        match self.data {
            Data::None => {}
            Data::Json(raw) => map.serialize_entry("data", raw)?,
            Data::Base64(bytes) => map.serialize_entry("data_base64", &STANDARD.encode(bytes))?,
        }
        map.end()
    }
}

/// JSON without insignificant white space.
fn without_space(json: &[u8]) -> Vec<u8> {
    let (mut in_text, mut escaped) = (false, false);
    let keep = |byte: &&u8| {
        let kept = in_text || !byte.is_ascii_whitespace();
        if in_text {
            in_text = escaped || **byte != b'"';
            escaped = !escaped && **byte == b'\\';
        } else {
            in_text = **byte == b'"';
        }
        kept
    };
    json.iter().filter(keep).copied().collect()
}
