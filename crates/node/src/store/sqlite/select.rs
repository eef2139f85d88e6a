//! Finds the letters of a selection for whoever changes them: in the order of their numbers, a few at a time.
//!
//! Whatever a selection names best decides where to look: the letters that it names, a session, a
//! correlation id, or the letters of a few kinds; only where many kinds fit are all letters looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, SessionKey, Subject};
use redrive_core::ids::{ChannelName, DeliveryId};
use redrive_core::letters::envelope::Tier;
use rusqlite::{Connection, OptionalExtension, Row};

use super::encode::{nanos, place};
use super::fault::Fault;
use super::rows::{self, text};
use super::state::State;
use crate::store::derive;
use crate::store::letter::{KindId, LetterFilter, Poison, STEP_BYTES_MAX, Selection};

/// With more kinds than this, all letters are looked at.
const KINDS_MAX: usize = 64;

pub(super) const ALL: &str = "SELECT number, delivery, kind, claim FROM letters
    WHERE number > ?1 AND number <= ?2 ORDER BY number LIMIT ?3";
pub(super) const OF_KIND: &str = "SELECT number, delivery, kind, claim FROM letters
    WHERE number > ?1 AND number <= ?2 AND kind = ?4 ORDER BY number LIMIT ?3";
pub(super) const OF_SESSION: &str = "SELECT number, delivery, kind, claim FROM letters
    WHERE number > ?1 AND number <= ?2 AND session = ?4 ORDER BY number LIMIT ?3";
pub(super) const OF_CORRELATION: &str = "SELECT number, delivery, kind, claim FROM letters
    WHERE number > ?1 AND number <= ?2 AND correlation = ?4 ORDER BY number LIMIT ?3";
pub(super) const OF_DELIVERY: &str = "SELECT l.number, l.delivery, l.kind, l.claim
    FROM deliveries d CROSS JOIN letters l ON l.delivery = d.seq WHERE d.seq = ?1 AND d.content = ?2";
pub(super) const EVENT_OF: &str = "SELECT e.id, e.source, e.type, e.attributes,
        CASE WHEN ?2 THEN e.data ELSE x'' END, l.message, coalesce(d.replays, 0)
    FROM letters l CROSS JOIN deliveries d ON d.seq = l.delivery CROSS JOIN events e ON e.seq = d.event
    WHERE l.number = ?1";
const KIND_COLUMNS: &str = "SELECT id, queue, subscription, event_type, category, code, failure_code, tier, fingerprint, name FROM kinds";

/// A letter as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) number: i64,
    pub(super) delivery: i64,
    pub(super) kind: i64,
    /// Means something only while that replay is open.
    pub(super) claim: Option<i64>,
}

/// What a step has found.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Letters that are meant.
    pub(super) found: Vec<Letter>,
    /// Letters that would be, were they not poison.
    pub(super) poison: u64,
    /// The last one that was looked at; none if there are no more.
    pub(super) upto: Option<i64>,
}

/// Finds the letters of one selection.
pub(super) struct Finder<'a> {
    connection: &'a Connection,
    selection: &'a Selection,
    /// None is any.
    queues: Option<BTreeSet<i64>>,
    /// The same; empty if there never was one of that name.
    subscriptions: Option<BTreeSet<i64>>,
    source: Source,
    /// The tiers of kinds that were looked at; none for those that do not fit.
    kinds: BTreeMap<i64, Option<Tier>>,
}

enum Source {
    Named(BTreeSet<DeliveryId>),
    Session(i64),
    Correlation(i64),
    Kinds(Vec<i64>),
    All,
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        state: &State,
        selection: &'a Selection,
    ) -> Result<Self, Fault> {
        let filter = &selection.filter;
        let hash = |text: &String| derive::text_hash(state.meta.seed, text);
        let is_queue = filter.service.is_some() || filter.channel.is_some();
        let mut finder = Self {
            connection,
            selection,
            queues: is_queue.then(|| state.names.queue_ids(|name| queue_fits(filter, name))),
            subscriptions: filter
                .subscription
                .as_ref()
                .map(|name| state.names.find_subscription(name).into_iter().collect()),
            source: Source::All,
            kinds: BTreeMap::new(),
        };
        finder.source = match (&selection.letters, &filter.session, &filter.correlation_id) {
            (Some(letters), _, _) => Source::Named(letters.iter().copied().collect()),
            (None, Some(session), _) => Source::Session(hash(session)),
            (None, None, Some(correlation)) => Source::Correlation(hash(correlation)),
            (None, None, None) => finder.few_kinds()?.map_or(Source::All, Source::Kinds),
        };
        Ok(finder)
    }

    /// The kinds that fit, unless they are many.
    fn few_kinds(&self) -> Result<Option<Vec<i64>>, Fault> {
        if self.selection.filter == LetterFilter::default() {
            return Ok(None);
        }
        let select = format!("{KIND_COLUMNS} WHERE count > 0 AND (?1 IS NULL OR fingerprint = ?1)");
        let by_cause = format!("{KIND_COLUMNS} WHERE count > 0 AND fingerprint = ?1");
        let fingerprint = self.selection.filter.fingerprint.map(|cause| cause.0.cast_signed());
        let select = if fingerprint.is_some() { by_cause } else { select };
        let mut statement = self.connection.prepare_cached(&select)?;
        let mut rows = statement.query([fingerprint])?;
        let mut kinds = Vec::new();
        while let Some(row) = rows.next()? {
            if self.kind_fits(row)?.is_some() {
                kinds.push(row.get(0)?);
            }
            if kinds.len() > KINDS_MAX {
                return Ok(None);
            }
        }
        Ok(Some(kinds))
    }

    /// The letters beyond that number; no more than that are looked at, and fewer where a text is looked for
    /// in much data.
    pub(super) fn look(&mut self, after: i64, rows_max: usize) -> Result<Looked, Fault> {
        let filter = &self.selection.filter;
        let mut before = after;
        let after = filter.from.map_or(after, |from| after.max(nanos(from) - 1));
        let died_until = nanos(self.selection.died_until);
        let upto = filter.until.map_or(died_until, |until| died_until.min(nanos(until) - 1));
        // One more, to see whether there are more.
        let mut letters = self.candidates(after, upto, rows_max + 1)?;
        let has_more = letters.len() > rows_max;
        letters.truncate(rows_max);
        let last = letters.last().map(|letter| letter.number);
        let mut looked = Looked { upto: last.filter(|_| has_more), ..Looked::default() };
        let mut bytes = 0;
        for letter in letters {
            if bytes >= STEP_BYTES_MAX {
                looked.upto = Some(before);
                break;
            }
            before = letter.number;
            let Some(tier) = self.tier(letter.kind)? else { continue };
            if !self.letter_fits(&letter, &mut bytes)? {
                continue;
            }
            if tier == Tier::Poison && self.selection.poison == Poison::Left {
                looked.poison += 1;
            } else {
                looked.found.push(letter);
            }
        }
        Ok(looked)
    }

    fn candidates(&self, after: i64, upto: i64, rows_max: usize) -> Result<Vec<Letter>, Fault> {
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let one = |sql: &str, key: i64| -> Result<Vec<Letter>, Fault> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let found = statement.query_map((after, upto, limit, key), read_letter)?;
            Ok(found.collect::<Result<_, _>>()?)
        };
        match &self.source {
            Source::All => {
                let mut statement = self.connection.prepare_cached(ALL)?;
                let found = statement.query_map((after, upto, limit), read_letter)?;
                Ok(found.collect::<Result<_, _>>()?)
            }
            Source::Session(hash) => one(OF_SESSION, *hash),
            Source::Correlation(hash) => one(OF_CORRELATION, *hash),
            Source::Kinds(kinds) => self.merged(kinds, (after, upto), rows_max),
            Source::Named(names) => {
                let mut letters = Vec::new();
                for id in names {
                    letters.extend(find(self.connection, *id)?);
                }
                letters.retain(|letter| letter.number > after && letter.number <= upto);
                letters.sort_unstable_by_key(|letter| letter.number);
                letters.truncate(rows_max);
                Ok(letters)
            }
        }
    }

    /// The letters of several kinds in one order; no more of each are read than are needed.
    fn merged(&self, kinds: &[i64], within: (i64, i64), rows_max: usize) -> Result<Vec<Letter>, Fault> {
        let mut statements = Vec::with_capacity(kinds.len());
        for _ in kinds {
            statements.push(self.connection.prepare_cached(OF_KIND)?);
        }
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let mut cursors = Vec::with_capacity(kinds.len());
        for (statement, kind) in statements.iter_mut().zip(kinds) {
            cursors.push(statement.query((within.0, within.1, limit, kind))?);
        }
        let mut heads: Vec<Option<Letter>> = Vec::with_capacity(kinds.len());
        let mut order = BinaryHeap::with_capacity(kinds.len());
        for (index, cursor) in cursors.iter_mut().enumerate() {
            let head = cursor.next()?.map(read_letter).transpose()?;
            order.extend(head.map(|letter| Reverse((letter.number, index))));
            heads.push(head);
        }
        let mut letters = Vec::new();
        while let Some(Reverse((_, index))) = order.pop() {
            letters.extend(heads[index]);
            if letters.len() == rows_max {
                break;
            }
            heads[index] = cursors[index].next()?.map(read_letter).transpose()?;
            order.extend(heads[index].map(|letter| Reverse((letter.number, index))));
        }
        Ok(letters)
    }

    /// The tier of a kind's letters, if it fits.
    fn tier(&mut self, kind: i64) -> Result<Option<Tier>, Fault> {
        if let Some(known) = self.kinds.get(&kind) {
            return Ok(*known);
        }
        let select = format!("{KIND_COLUMNS} WHERE id = ?1");
        let mut statement = self.connection.prepare_cached(&select)?;
        let mut rows = statement.query([kind])?;
        let row = rows.next()?.ok_or(Fault::unreadable("the kind of a letter"))?;
        let tier = self.kind_fits(row)?;
        self.kinds.insert(kind, tier);
        Ok(tier)
    }

    fn kind_fits(&self, row: &Row<'_>) -> Result<Option<Tier>, Fault> {
        let LetterFilter { name, category, code, fingerprint, event_type, tier, kinds, .. } =
            &self.selection.filter;
        let its_fingerprint: i64 = row.get(8)?;
        let its_tier = rows::tier(text(row, 7)?)?;
        let (its_code, its_failure) = (text(row, 5)?, text(row, 6)?);
        let its_type = text(row, 3)?;
        let id = KindId(row.get::<_, i64>(0)?.cast_unsigned());
        let (queue, subscription): (i64, i64) = (row.get(1)?, row.get(2)?);
        let (its_category, its_name) = (text(row, 4)?, text(row, 9)?);
        let fits = self.queues.as_ref().is_none_or(|queues| queues.contains(&queue))
            && self.subscriptions.as_ref().is_none_or(|wanted| wanted.contains(&subscription))
            && name.as_ref().is_none_or(|name| name == its_name)
            && category.is_none_or(|category| category.as_str() == its_category)
            && code.as_ref().is_none_or(|code| code == its_code || code == its_failure)
            && fingerprint.is_none_or(|cause| cause.0.cast_signed() == its_fingerprint)
            && event_type.as_ref().is_none_or(|pattern| pattern.matches(its_type))
            && tier.is_none_or(|tier| tier == its_tier)
            && kinds.as_ref().is_none_or(|kinds| kinds.contains(&id));
        Ok(fits.then_some(its_tier))
    }

    /// Whether a letter fits in what letters of one kind differ in; adds to the bytes that were looked through.
    fn letter_fits(&self, letter: &Letter, bytes: &mut usize) -> Result<bool, Fault> {
        let LetterFilter { session, correlation_id, text: wanted, replays_below, .. } =
            &self.selection.filter;
        let any = session.is_none() && correlation_id.is_none() && wanted.is_none();
        if any && replays_below.is_none() {
            return Ok(true);
        }
        let mut statement = self.connection.prepare_cached(EVENT_OF)?;
        let mut rows = statement.query((letter.number, wanted.is_some()))?;
        let row = rows.next()?.ok_or(Fault::unreadable("the event of a letter"))?;
        let event = rows::event(row)?;
        *bytes += event.data.len();
        let (message, replays) = (text(row, 5)?, row.get(6)?);
        let is_there = |wanted: &String| {
            let wanted = wanted.to_lowercase();
            has(message, &wanted) || is_in_event(&event, &event.data, &wanted)
        };
        Ok(event_fits(&self.selection.filter, &event, replays) && wanted.as_ref().is_none_or(is_there))
    }
}

/// The letter of a delivery, if that is dead.
pub(super) fn find(connection: &Connection, id: DeliveryId) -> Result<Option<Letter>, Fault> {
    // Anybody may ask for any id.
    if i64::try_from(id.seq().get()).is_err() {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached(OF_DELIVERY)?;
    let key = (place(id.seq()), id.content().cast_signed());
    Ok(statement.query_row(key, read_letter).optional()?)
}

fn read_letter(row: &Row<'_>) -> Result<Letter, rusqlite::Error> {
    Ok(Letter { number: row.get(0)?, delivery: row.get(1)?, kind: row.get(2)?, claim: row.get(3)? })
}

/// Whether a filter means letters of that queue.
pub(super) fn queue_fits(filter: &LetterFilter, name: &QueueName) -> bool {
    let channel = name.channel.as_ref().map(ChannelName::as_str);
    filter.service.as_ref().is_none_or(|wanted| name.service.as_str() == wanted)
        && filter.channel.as_ref().is_none_or(|wanted| channel == Some(wanted))
}

/// Whether a filter means the letter of that event in what letters of one kind differ in, but for its text.
pub(super) fn event_fits(filter: &LetterFilter, event: &Event, replays: u32) -> bool {
    let LetterFilter { session, correlation_id, replays_below, .. } = filter;
    let its_session = event.session.as_ref().map(SessionKey::as_str);
    let its_correlation = event.correlation_id.as_ref().map(CorrelationId::as_str);
    session.as_ref().is_none_or(|wanted| its_session == Some(wanted))
        && correlation_id.as_ref().is_none_or(|wanted| its_correlation == Some(wanted))
        && replays_below.is_none_or(|times| replays < times)
}

/// Whether a text is in an event with those data; it is in small letters.
pub(super) fn is_in_event(event: &Event, data: &[u8], text: &str) -> bool {
    has(event.id.as_str(), text)
        || event.subject.as_ref().map(Subject::as_str).is_some_and(|subject| has(subject, text))
        || has(&String::from_utf8_lossy(data), text)
}

/// Whether a text has another one in it, which is in small letters, whatever its own case.
pub(super) fn has(found: &str, text: &str) -> bool {
    // Nearly all texts are plain, and then there is a quick way.
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
