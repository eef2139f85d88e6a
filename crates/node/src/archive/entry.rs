//! The archived form of an event, its name in the archive, and reading it back.
//!
//! Invariants: a name consists of a day, a hash and a receipt only; data read back has been checked against
//! its hash.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_core::ids::Receipt;
use redrive_core::time::Timestamp;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::store::EventView;
use crate::webhook::to_hex as hex;

const ENDING: &str = ".json";
const HASH_DIGITS: usize = 16;
/// Digits that name the folder within a day, so that no folder gets too many files.
const BUCKET_DIGITS: usize = 2;

/// A UTC calendar day, such as `2026-01-31`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(String);

impl Day {
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        let text = at.to_string();
        Self(text.split_once('T').map_or(text.as_str(), |(day, _)| day).to_owned())
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let midnight: Timestamp = format!("{name}T00:00:00Z").parse().ok()?;
        // Other spellings of a day are not ours.
        Some(Self::of(midnight)).filter(|day| day.0 == name)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveEntry {
    pub day: Day,
    pub bucket: String,
    pub file: String,
    pub bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct ArchiveDocument {
    receipt: String,
    received_at: Timestamp,
    /// Of the data, in hex.
    sha256: String,
    /// A CloudEvent with base64 data.
    event: Box<RawValue>,
}

#[derive(Deserialize)]
struct EventPart {
    id: String,
    source: String,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(default)]
    data_base64: String,
}

impl ArchiveEntry {
    #[must_use]
    pub fn of(view: &EventView) -> Self {
        let event = String::from_utf8(view.event.to_structured_base64()).expect("JSON is text");
        let document = ArchiveDocument {
            receipt: view.receipt.to_string(),
            received_at: view.received_at,
            sha256: hex(digest(&SHA256, &view.event.data).as_ref()),
            event: RawValue::from_string(event).expect("an event is written as JSON"),
        };
        let hash = hash_of(view.event.id.as_str());
        Self {
            day: Day::of(view.received_at),
            bucket: hash[..BUCKET_DIGITS].to_owned(),
            file: format!("{hash}-{}{ENDING}", view.receipt),
            bytes: serde_json::to_vec(&document).expect("its keys are texts"),
        }
    }
}

/// The hash of an event's id in file names.
///
/// Of the id alone, so that an event can be found without its source.
pub(super) fn hash_of(id: &str) -> String {
    hex(&digest(&SHA256, id.as_bytes()).as_ref()[..HASH_DIGITS / 2])
}

pub(super) fn bucket_of(hash: &str) -> &str {
    &hash[..BUCKET_DIGITS]
}

pub(super) fn is_bucket(name: &str) -> bool {
    name.len() == BUCKET_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn has_hash(file: &str, hash: &str) -> bool {
    file.strip_prefix(hash).is_some_and(|rest| rest.starts_with('-') && rest.ends_with(ENDING))
}

pub(super) fn has_receipt(file: &str, receipt: Receipt) -> bool {
    let digits = file.strip_suffix(ENDING).and_then(|name| name.split_once('-'));
    digits.is_some_and(|(hash, digits)| hash.len() == HASH_DIGITS && digits == receipt.to_string())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedEvent {
    pub id: String,
    pub source: String,
    pub event_type: String,
    pub receipt: String,
    pub received_at: Timestamp,
    /// Checked against the stored hash.
    pub data: Vec<u8>,
    pub json: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    #[error("not a valid archived event: {reason}")]
    Unreadable { reason: String },
    #[error("data does not match its stored hash")]
    Changed,
}

impl ArchivedEvent {
    pub fn read(bytes: Vec<u8>) -> Result<Self, Damaged> {
        let unreadable = |reason: String| Damaged::Unreadable { reason };
        let json = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
        let document: ArchiveDocument =
            serde_json::from_str(&json).map_err(|error| unreadable(error.to_string()))?;
        let event: EventPart =
            serde_json::from_str(document.event.get()).map_err(|error| unreadable(error.to_string()))?;
        let data = STANDARD.decode(&event.data_base64).map_err(|error| unreadable(error.to_string()))?;
        if hex(digest(&SHA256, &data).as_ref()) != document.sha256 {
            return Err(Damaged::Changed);
        }
        let EventPart { id, source, event_type, .. } = event;
        let ArchiveDocument { receipt, received_at, .. } = document;
        Ok(Self { id, source, event_type, receipt, received_at, data, json })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use redrive_core::event::attribute::EventId;
    use redrive_core::event::simple::{SimpleEvent, parse_simple};
    use redrive_core::event::{Event, HeaderList};
    use redrive_core::ids::Seq;

    use super::*;

    /// An event as the store shows it.
    pub(in super::super) fn view(place: u64, id: &str, data: &'static [u8]) -> EventView {
        let headers: Vec<(String, String)> = vec![("ce-tenant".to_owned(), "blue".to_owned())];
        let event = parse_simple(SimpleEvent {
            event_type: "orders.placed",
            partition_key: Some("k"),
            idempotency_key: None,
            generated_id: &EventId::new("made-up").expect("an id"),
            headers: &headers as &dyn HeaderList,
            body: &bytes::Bytes::from_static(b"{}"),
        });
        let event =
            Event { id: EventId::new(id).expect("an id"), data: data.into(), ..event.expect("an event") };
        EventView {
            receipt: Receipt::of(Seq::new(place)),
            event: Arc::new(event),
            received_at: Timestamp::from_millis(1_761_057_000_250),
            unrouted: false,
            deliveries: Vec::new(),
        }
    }

    #[test]
    fn what_is_kept_reads_back_byte_for_byte() {
        for data in [&b"{ \"a\":1.0 }\n"[..], b"", b"\x00\xff \x1b[31m", "ü".as_bytes()] {
            let entry = ArchiveEntry::of(&view(7, "order-1", data));
            let kept = ArchivedEvent::read(entry.bytes.clone()).expect("as it was written");
            assert_eq!((&kept.data[..], kept.id.as_str()), (data, "order-1"));
            assert_eq!(
                (kept.event_type.as_str(), kept.received_at),
                ("orders.placed", view(7, "x", b"").received_at)
            );
            assert_eq!(kept.json.as_bytes(), entry.bytes);
        }
        let entry = ArchiveEntry::of(&view(7, "order-1", b"x"));
        let text = String::from_utf8(entry.bytes).expect("text");
        for part in ["\"specversion\":\"1.0\"", "\"partitionkey\":\"k\"", "\"data_base64\":\"eA==\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_was_changed_is_noticed() {
        let text = String::from_utf8(ArchiveEntry::of(&view(7, "a", b"one")).bytes).expect("text");
        let other = STANDARD.encode("two");
        assert_eq!(
            ArchivedEvent::read(text.replace(&STANDARD.encode("one"), &other).into()),
            Err(Damaged::Changed)
        );
        for torn in [&text[..text.len() / 2], "", "{}", "\u{fffd}"] {
            let found = ArchivedEvent::read(torn.as_bytes().to_vec());
            assert!(matches!(found, Err(Damaged::Unreadable { .. })), "{torn}: {found:?}");
        }
    }

    #[test]
    fn no_name_has_anything_of_a_sender_in_it() {
        let long = "x".repeat(500);
        for id in ["../../etc/passwd", "a/b", "..", "C:\\x", &long, "ünï"] {
            let ArchiveEntry { day, bucket, file, .. } = ArchiveEntry::of(&view(7, id, b"x"));
            assert_eq!(day.as_str(), "2025-10-21");
            assert!(is_bucket(&bucket), "{bucket}");
            let (hash, rest) = file.split_once('-').expect("two parts");
            assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{file}");
            assert_eq!(rest, format!("{}.json", Receipt::of(Seq::new(7))), "{id}");
            assert!(has_hash(&file, &hash_of(id)) && has_receipt(&file, Receipt::of(Seq::new(7))));
            assert_eq!(bucket, bucket_of(&hash_of(id)));
        }
        assert!(!has_receipt("x.json", Receipt::of(Seq::new(7))) && !has_hash("x", &hash_of("x")));
    }

    #[test]
    fn only_days_are_days() {
        assert_eq!(Day::of(Timestamp::EPOCH).as_str(), "1970-01-01");
        for name in ["2026-01-31", "1970-01-01", "2024-02-29"] {
            assert_eq!(Day::parse(name).map(|day| day.to_string()).as_deref(), Some(name));
        }
        let no_days =
            ["", "lost+found", "2026-02-30", "2026-1-1", "20260131", "2026-01-31x", "../2026-01-31"];
        for name in no_days {
            assert_eq!(Day::parse(name), None, "{name}");
        }
        assert!(Day::parse("2026-01-31") < Day::parse("2026-02-01"));
    }
}
