//! Column formats: signed 64-bit integers, and compact bytes for attributes and attempt records.
//!
//! Invariants: values round-trip. Foreign bytes give [`UnreadableValue`] or, for an event, what can be read of it,
//! never a panic. A format once written is readable forever.

use std::collections::BTreeMap;

use bytes::Bytes;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, RecordedVerdict};
use redrive_core::event::Event;
use redrive_core::event::attribute::{
    ContentType, CorrelationId, EventId, EventSource, EventSubject, EventType, ExtensionName, ExtensionText,
    ExtensionValue, SessionKey, Text, TextBounds, TraceParent,
};
use redrive_core::event::refusal::InvalidReason;
use redrive_core::hash;
use redrive_core::ids::{Attempt, Seq};
use redrive_core::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read")]
pub(super) struct UnreadableValue {
    what: &'static str,
}

impl UnreadableValue {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what }
    }
}

pub(super) fn place(seq: Seq) -> i64 {
    i64::try_from(seq.get()).expect("a store that gives a million places a second is full in 290,000 years")
}

/// Negative is read as none.
pub(super) fn seq(place: i64) -> Seq {
    Seq::new(u64::try_from(place).unwrap_or_default())
}

/// Nanoseconds since 1970; later than 2262 is never.
pub(super) fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn time(nanos: i64) -> Timestamp {
    match nanos {
        i64::MAX => Timestamp::NEVER,
        nanos => Timestamp::from_nanos(u64::try_from(nanos).unwrap_or_default()),
    }
}

/// Attributes without a column of their own, each with a tag and its length.
pub(super) fn attributes(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    let texts = [
        (tag::SUBJECT, event.subject.as_ref().map(EventSubject::as_str)),
        (tag::CONTENT_TYPE, event.content_type.as_ref().map(ContentType::as_str)),
        (tag::SESSION, event.session.as_ref().map(SessionKey::as_str)),
        (tag::CORRELATION, event.correlation_id.as_ref().map(CorrelationId::as_str)),
        (tag::TRACE, event.traceparent.as_ref().map(TraceParent::as_str)),
    ];
    for (tag, text) in texts {
        if let Some(text) = text {
            bytes.push(tag);
            put_text(&mut bytes, text);
        }
    }
    if let Some(at) = event.time {
        bytes.push(tag::TIME);
        put_number(&mut bytes, at.as_nanos());
    }
    for (name, value) in &event.extensions {
        bytes.push(match value {
            ExtensionValue::Text(_) => tag::EXTENSION_TEXT,
            ExtensionValue::Integer(_) => tag::EXTENSION_INTEGER,
            ExtensionValue::Boolean(true) => tag::EXTENSION_TRUE,
            ExtensionValue::Boolean(false) => tag::EXTENSION_FALSE,
        });
        put_text(&mut bytes, name.as_str());
        match value {
            ExtensionValue::Text(text) => put_text(&mut bytes, text.as_str()),
            ExtensionValue::Integer(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            ExtensionValue::Boolean(_) => {}
        }
    }
    bytes.push(tag::CHECK);
    let columns = EventColumns {
        id: event.id.as_str().as_bytes(),
        source: event.source.as_str().as_bytes(),
        event_type: event.event_type.as_str().as_bytes(),
        attributes: &bytes,
        data: &event.data,
    };
    let check = columns.check();
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

/// Stored: a number never changes its meaning.
mod tag {
    pub(super) const SUBJECT: u8 = 1;
    pub(super) const TIME: u8 = 2;
    pub(super) const CONTENT_TYPE: u8 = 3;
    pub(super) const SESSION: u8 = 4;
    pub(super) const CORRELATION: u8 = 5;
    pub(super) const TRACE: u8 = 6;
    pub(super) const EXTENSION_TEXT: u8 = 7;
    pub(super) const EXTENSION_INTEGER: u8 = 8;
    pub(super) const EXTENSION_TRUE: u8 = 9;
    pub(super) const EXTENSION_FALSE: u8 = 10;
    /// Last tag: a hash of all columns before it. Absent before format 5.
    pub(super) const CHECK: u8 = 11;
}

#[derive(Clone, Copy)]
pub(super) struct EventColumns<'a> {
    pub(super) id: &'a [u8],
    pub(super) source: &'a [u8],
    pub(super) event_type: &'a [u8],
    pub(super) attributes: &'a [u8],
    pub(super) data: &'a [u8],
}

impl EventColumns<'_> {
    fn check(&self) -> u64 {
        let columns = [self.data, self.attributes, self.event_type, self.source, self.id];
        columns.into_iter().fold(0, |check, column| hash::stable_64(column, check))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integrity {
    Intact,
    Damaged,
}

/// Replaces an unreadable text of an event.
const UNREADABLE: &str = "damaged";

/// Skips what cannot be read.
pub(super) fn event(columns: &EventColumns<'_>) -> (Event, Integrity) {
    let id = text(columns.id).and_then(|text| EventId::new(text).ok());
    let source = text(columns.source).and_then(|text| EventSource::new(text).ok());
    let event_type = text(columns.event_type).and_then(|text| EventType::new(text).ok());
    let mut integrity = match (&id, &source, &event_type) {
        (Some(_), Some(_), Some(_)) => Integrity::Intact,
        (None, _, _) | (_, None, _) | (_, _, None) => Integrity::Damaged,
    };
    let mut event = Event {
        id: id.unwrap_or_else(|| EventId::new(UNREADABLE).expect("letters")),
        source: source.unwrap_or_else(|| EventSource::new(UNREADABLE).expect("letters")),
        event_type: event_type.unwrap_or_else(|| EventType::new(UNREADABLE).expect("letters")),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: Bytes::copy_from_slice(columns.data),
    };
    let mut rest = ByteReader(columns.attributes);
    while let Some(tag) = rest.byte() {
        let is_read = match tag {
            tag::CHECK => is_checked(columns, &mut rest),
            tag => take(&mut event, tag, &mut rest).is_some(),
        };
        if !is_read {
            integrity = Integrity::Damaged;
            break;
        }
    }
    (event, integrity)
}

fn is_checked(columns: &EventColumns<'_>, rest: &mut ByteReader<'_>) -> bool {
    let before = &columns.attributes[..columns.attributes.len() - rest.0.len()];
    let check = EventColumns { attributes: before, ..*columns }.check();
    rest.bytes(size_of::<u64>()) == Some(&check.to_le_bytes()) && rest.0.is_empty()
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn take(event: &mut Event, tag: u8, rest: &mut ByteReader<'_>) -> Option<()> {
    match tag {
        tag::SUBJECT => event.subject = Some(attribute(rest)?),
        tag::TIME => event.time = Some(Timestamp::from_nanos(rest.number()?)),
        tag::CONTENT_TYPE => event.content_type = Some(ContentType::new(rest.text()?).ok()?),
        tag::SESSION => event.session = Some(attribute(rest)?),
        tag::CORRELATION => event.correlation_id = Some(attribute(rest)?),
        tag::TRACE => event.traceparent = Some(attribute(rest)?),
        tag::EXTENSION_TEXT => {
            let name = extension(rest)?;
            let text: Result<ExtensionText, InvalidReason> = ExtensionText::new(rest.text()?);
            event.extensions.insert(name, ExtensionValue::Text(text.ok()?));
        }
        tag::EXTENSION_INTEGER => {
            let name = extension(rest)?;
            let number = i32::from_le_bytes(rest.bytes(size_of::<i32>())?.try_into().ok()?);
            event.extensions.insert(name, ExtensionValue::Integer(number));
        }
        tag::EXTENSION_TRUE => {
            event.extensions.insert(extension(rest)?, ExtensionValue::Boolean(true));
        }
        tag::EXTENSION_FALSE => {
            event.extensions.insert(extension(rest)?, ExtensionValue::Boolean(false));
        }
        _ => return None,
    }
    Some(())
}

fn attribute<Of: TextBounds>(rest: &mut ByteReader<'_>) -> Option<Text<Of>> {
    Text::new(rest.text()?).ok()
}

fn extension(rest: &mut ByteReader<'_>) -> Option<ExtensionName> {
    ExtensionName::new(rest.text()?).ok()
}

/// A delivered attempt, as a few numbers.
const PLAIN: u8 = 1;
const JSON: u8 = 2;

/// Nearly all records are of a delivered first attempt: 30 bytes instead of 200.
pub(super) fn story(story: &AttemptRecord) -> Vec<u8> {
    plain(story).unwrap_or_else(|| {
        let mut bytes = vec![JSON];
        serde_json::to_writer(&mut bytes, story).expect("a story has nothing that JSON has not");
        bytes
    })
}

/// `None` if the short form would lose something.
fn plain(story: &AttemptRecord) -> Option<Vec<u8>> {
    let AttemptRecord { attempt, started_at, took_nanos, end, book, verdict, .. } = story;
    let AttemptRecord { classified_at: None, reaction_at: None, retry: None, held_nanos, .. } = story else {
        return None;
    };
    let (AttemptEnd::Delivered { status, message }, RecordedVerdict::Delivered) = (end, verdict) else {
        return None;
    };
    if !message.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(32);
    bytes.push(PLAIN);
    bytes.extend_from_slice(&book.to_le_bytes());
    // 0 stands for no status.
    let numbers = [
        u64::from(attempt.get()),
        started_at.as_nanos(),
        *took_nanos,
        u64::from(status.unwrap_or_default()),
        *held_nanos,
    ];
    if *status == Some(0) {
        return None;
    }
    for number in numbers {
        put_number(&mut bytes, number);
    }
    Some(bytes)
}

pub(super) fn read_story(bytes: &[u8]) -> Result<AttemptRecord, UnreadableValue> {
    let read = match bytes.split_first() {
        Some((&PLAIN, rest)) => read_plain(rest),
        Some((&JSON, rest)) => serde_json::from_slice(rest).ok(),
        Some(_) | None => None,
    };
    read.ok_or(UnreadableValue::new("an attempt record"))
}

fn read_plain(bytes: &[u8]) -> Option<AttemptRecord> {
    let mut rest = ByteReader(bytes);
    let book = u64::from_le_bytes(rest.bytes(size_of::<u64>())?.try_into().ok()?);
    let attempt = Attempt::new(u32::try_from(rest.number()?).ok()?)?;
    let (started_at, took_nanos) = (Timestamp::from_nanos(rest.number()?), rest.number()?);
    let status = u16::try_from(rest.number()?).ok()?;
    Some(AttemptRecord {
        attempt,
        started_at,
        took_nanos,
        end: AttemptEnd::Delivered { status: (status > 0).then_some(status), message: String::new() },
        book,
        verdict: RecordedVerdict::Delivered,
        classified_at: None,
        reaction_at: None,
        retry: None,
        held_nanos: rest.number()?,
    })
}

/// Delta-encoded.
pub(super) fn places(mut places: Vec<Seq>) -> Vec<u8> {
    places.sort_unstable();
    let mut bytes = Vec::with_capacity(2 * places.len());
    let mut before = 0;
    for place in places {
        put_number(&mut bytes, place.get() - before);
        before = place.get();
    }
    bytes
}

pub(super) fn read_places(bytes: &[u8]) -> Result<Vec<Seq>, UnreadableValue> {
    let (mut rest, mut places, mut before) = (ByteReader(bytes), Vec::new(), 0_u64);
    while !rest.0.is_empty() {
        let step = rest.number().ok_or(UnreadableValue::new("a list of sequence numbers"))?;
        before = before.checked_add(step).ok_or(UnreadableValue::new("a list of sequence numbers"))?;
        places.push(Seq::new(before));
    }
    Ok(places)
}

/// Each with its sequence number, delta-encoded.
pub(super) fn hashes(events: &[(u64, Seq)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10 * events.len());
    let mut before = 0;
    for (hash, seq) in events {
        put_number(&mut bytes, seq.get() - before);
        bytes.extend_from_slice(&hash.to_le_bytes());
        before = seq.get();
    }
    bytes
}

pub(super) fn read_hashes(bytes: &[u8], into: &mut Vec<(u64, Seq)>) -> Result<(), UnreadableValue> {
    let (mut rest, mut before) = (ByteReader(bytes), 0_u64);
    while !rest.0.is_empty() {
        let (hash, seq) = read_hash(&mut rest, before).ok_or(UnreadableValue::new("a list of hashes"))?;
        before = seq;
        into.push((hash, Seq::new(seq)));
    }
    Ok(())
}

fn read_hash(rest: &mut ByteReader<'_>, before: u64) -> Option<(u64, u64)> {
    let seq = before.checked_add(rest.number()?)?;
    Some((u64::from_le_bytes(rest.bytes(size_of::<u64>())?.try_into().ok()?), seq))
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// LEB128.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_read_back(number: u64, tail: u8) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            bytes.push(tail);
            let mut rest = ByteReader(&bytes);
            prop_assert_eq!((rest.number(), rest.byte(), rest.byte()), (Some(number), Some(tail), None));
        }

        #[test]
        fn places_and_hashes_read_back(numbers in prop::collection::btree_set(1_u64..1 << 40, 0..50)) {
            let seqs: Vec<Seq> = numbers.iter().copied().map(Seq::new).collect();
            prop_assert_eq!(read_places(&places(seqs.clone())), Ok(seqs.clone()));
            let pairs: Vec<(u64, Seq)> = seqs.iter().map(|seq| (!seq.get(), *seq)).collect();
            let mut read = Vec::new();
            prop_assert_eq!(read_hashes(&hashes(&pairs), &mut read), Ok(()));
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let columns = EventColumns { id: b"1", source: b"/", event_type: b"a", attributes: &bytes, data: &[] };
            let (read, _) = event(&columns);
            let again = attributes(&read);
            let columns = EventColumns { attributes: &again, ..columns };
            prop_assert_eq!(event(&columns), (read, Integrity::Intact));
            let (read, _) = event(&EventColumns { id: &bytes, source: &bytes, event_type: &bytes, ..columns });
            prop_assert!(!read.id.as_str().is_empty());
            if let Ok(read) = read_story(&bytes) {
                prop_assert_eq!(read_story(&story(&read)), Ok(read));
            }
            let _ = read_places(&bytes);
            let _ = read_hashes(&bytes, &mut Vec::new());
        }

        #[test]
        fn plain_stories_read_back(attempt in 1_u32.., started: u64, took: u64, status: Option<u16>, held: u64, book: u64) {
            let told = AttemptRecord {
                attempt: Attempt::new(attempt).expect("not 0"),
                started_at: Timestamp::from_nanos(started),
                took_nanos: took,
                end: AttemptEnd::Delivered { status, message: String::new() },
                book,
                verdict: RecordedVerdict::Delivered,
                classified_at: None,
                reaction_at: None,
                retry: None,
                held_nanos: held,
            };
            let bytes = story(&told);
            prop_assert!(bytes[0] == PLAIN || status == Some(0));
            prop_assert_eq!(read_story(&bytes), Ok(told));
        }
    }

    /// These bytes are in people's stores.
    #[test]
    fn the_plain_form_never_changes() {
        let told =
            read_story(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0x01, 5, 0xc8, 0x01, 0]).expect("a story");
        assert_eq!((told.book, told.attempt, told.started_at.as_nanos()), (2, Attempt::FIRST, 128));
        assert_eq!(
            (told.took_nanos, told.end),
            (5, AttemptEnd::Delivered { status: Some(200), message: String::new() })
        );
    }

    #[test]
    fn a_bit_that_has_changed_shows_wherever_it_is() {
        let original = Event {
            time: Some(Timestamp::from_millis(7)),
            session: SessionKey::new("s").ok(),
            ..event(&EventColumns {
                id: b"id-1",
                source: b"/shop",
                event_type: b"a.b",
                attributes: &[],
                data: b"{}",
            })
            .0
        };
        let stored =
            [b"id-1".to_vec(), b"/shop".to_vec(), b"a.b".to_vec(), attributes(&original), b"{}".to_vec()];
        let read = |columns: &[Vec<u8>; 5]| {
            let [id, source, event_type, attributes, data] = columns.each_ref().map(Vec::as_slice);
            event(&EventColumns { id, source, event_type, attributes, data })
        };
        assert_eq!(read(&stored), (original, Integrity::Intact));
        for (column, bytes) in stored.iter().enumerate() {
            for bit in 0..bytes.len() * 8 {
                let mut columns = stored.clone();
                columns[column][bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&columns).1, Integrity::Damaged, "column {column}, bit {bit}");
            }
        }
    }

    #[test]
    fn times_keep_their_order_and_never_stays_never() {
        let times = [0, 1, i64::MAX.cast_unsigned() - 1].map(Timestamp::from_nanos);
        for at in times {
            assert_eq!(time(nanos(at)), at);
        }
        assert_eq!(time(nanos(Timestamp::NEVER)), Timestamp::NEVER);
        assert!(times.iter().all(|at| nanos(*at) < nanos(Timestamp::NEVER)));
    }
}
