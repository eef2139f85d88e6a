//! Letters as commands see them, and filter conditions on queues, events and texts.

use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, EventSubject, SessionKey};
use redrive_core::ids::{ChannelName, DeliveryId};
use rusqlite::{Connection, Row};

use super::encode::place;
use super::fault::SqlResult;
use super::sql::Sql;
use crate::store::letter::LetterFilter;

pub(super) const OF_DELIVERY: &str = "SELECT l.number, l.delivery, l.kind, l.claim
    FROM deliveries d CROSS JOIN letters l ON l.delivery = d.seq WHERE d.seq = ?1 AND d.content = ?2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LetterRef {
    pub(super) number: i64,
    pub(super) delivery: i64,
    pub(super) kind: i64,
    /// In force only while that replay is open.
    pub(super) claim: Option<i64>,
}

pub(super) fn find(connection: &Connection, id: DeliveryId) -> SqlResult<Option<LetterRef>> {
    // Callers may pass any id.
    if i64::try_from(id.seq().get()).is_err() {
        return Ok(None);
    }
    connection.first(OF_DELIVERY, (place(id.seq()), id.content().cast_signed()), read_letter)
}

pub(super) fn is_delivery(connection: &Connection, id: DeliveryId) -> SqlResult<bool> {
    let select = "SELECT 1 FROM deliveries WHERE seq = ?1 AND content = ?2";
    connection.has(select, (id.seq().get().cast_signed(), id.content().cast_signed()))
}

pub(super) fn read_letter(row: &Row<'_>) -> SqlResult<LetterRef> {
    Ok(LetterRef { number: row.get(0)?, delivery: row.get(1)?, kind: row.get(2)?, claim: row.get(3)? })
}

pub(super) fn queue_fits(filter: &LetterFilter, name: &QueueName) -> bool {
    let channel = name.channel.as_ref().map(ChannelName::as_str);
    filter.service.as_ref().is_none_or(|wanted| name.service.as_str() == wanted)
        && filter.channel.as_ref().is_none_or(|wanted| channel == Some(wanted))
}

/// Conditions in which letters of one kind differ, except the text.
pub(super) fn event_fits(filter: &LetterFilter, event: &Event, replays: u32) -> bool {
    let LetterFilter { session, correlation_id, replays_below, .. } = filter;
    let its_session = event.session.as_ref().map(SessionKey::as_str);
    let its_correlation = event.correlation_id.as_ref().map(CorrelationId::as_str);
    session.as_ref().is_none_or(|wanted| its_session == Some(wanted))
        && correlation_id.as_ref().is_none_or(|wanted| its_correlation == Some(wanted))
        && replays_below.is_none_or(|times| replays < times)
}

/// `text` is lower case.
pub(super) fn is_in_event(event: &Event, data: &[u8], text: &str) -> bool {
    has(event.id.as_str(), text)
        || event.subject.as_ref().map(EventSubject::as_str).is_some_and(|subject| has(subject, text))
        || has(&String::from_utf8_lossy(data), text)
}

/// `text` is lower case.
pub(super) fn has(found: &str, text: &str) -> bool {
    // Fast path.
    if found.is_ascii() {
        found.to_ascii_lowercase().contains(text)
    } else {
        found.to_lowercase().contains(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_whatever_the_case() {
        #[rustfmt::skip]
        let cases = [
            ("the same",            "card declined", "card declined", true),
            ("in capitals",         "CARD DECLINED", "declined",      true),
            ("not there",           "card declined", "expired",       false),
            ("not plain",           "KARTE ÜBERZOGEN", "überzogen",   true),
            ("plain in not plain",  "Überzogen: KARTE", "karte",      true),
            ("nothing in nothing",  "",              "",              true),
        ];
        for (name, found, text, expected) in cases {
            assert_eq!(has(found, text), expected, "{name}");
        }
    }
}
