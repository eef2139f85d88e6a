//! Lists, shows and exports letters.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use redrive_core::ids::{DeliveryId, ServiceName};
use redrive_core::letters::envelope::Tier;

use super::delivery::Depth;
use super::find::{self, LetterRow, ScanOrder, Search};
use super::{ReadView, SqliteReader};
use crate::store::letter::{
    LetterFilter, LetterKey, LetterNumber, LetterPage, LetterQuery, LetterView, Poison, Selection,
};
use crate::store::sqlite::fault::SqlResult;
use crate::store::sqlite::sql::Sql;
use crate::store::{StoreError, derive};

/// About 20 ms on a slow machine.
pub(super) const STEPS_PER_LOOK: u32 = 10_000;
/// After so many steps, listing the kinds pays off.
const STEPS_WITHOUT_KINDS: u32 = 2_000;
/// Exported letters per snapshot.
const WHOLE_PER_LOOK: usize = 256;
/// Ids looked up per snapshot.
pub(super) const NAMED_PER_LOOK: usize = 2_000;
/// Data bytes after which an export page ends.
const WHOLE_BYTES_MAX: usize = 8 << 20;

struct LetterLines {
    found: Vec<LetterRow>,
    rows_max: usize,
}

impl LetterLines {
    /// One more than requested: the list continues.
    fn are_full(&self) -> bool {
        self.found.len() > self.rows_max
    }

    fn add(&mut self, letter: LetterRow) -> ControlFlow<()> {
        self.found.push(letter);
        if self.are_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn shown(mut self, look: &ReadView<'_>, end: Option<i64>) -> SqlResult<LetterPage> {
        let is_full = self.are_full();
        self.found.truncate(self.rows_max);
        let next = if is_full { self.found.last().map(|letter| letter.number) } else { end };
        let mut letters = Vec::with_capacity(self.found.len());
        for letter in self.found {
            letters.extend(look.letter_at(letter.delivery, Depth::Line)?);
        }
        Ok(LetterPage { letters, next: next.map(|number| LetterNumber(number.cast_unsigned())) })
    }
}

impl ReadView<'_> {
    pub(super) fn letters(&self, query: &LetterQuery) -> SqlResult<LetterPage> {
        let LetterQuery { filter, before, rows_max } = query;
        let numbers = find::numbers(filter);
        let mut lines = LetterLines { found: Vec::new(), rows_max: *rows_max };
        let mut end = before.map(number);
        if let Some(search) = Search::without_kinds(self, filter, numbers.clone())? {
            end = search.part(self, end, STEPS_WITHOUT_KINDS, &mut |letter| Ok(lines.add(letter)))?;
            if end.is_none() || lines.are_full() {
                return lines.shown(self, end);
            }
        }
        let search = Search::new(self, filter, ScanOrder::Back, numbers)?;
        end = search.part(self, end, STEPS_PER_LOOK, &mut |letter| Ok(lines.add(letter)))?;
        lines.shown(self, end)
    }

    pub(super) fn letter(&self, key: &LetterKey) -> SqlResult<Option<LetterView>> {
        match key {
            LetterKey::Delivery(id) => {
                let Ok(at) = i64::try_from(id.seq().get()) else { return Ok(None) };
                Ok(self.letter_at(at, Depth::All)?.filter(|letter| letter.delivery.id == *id))
            }
            LetterKey::Imported(key) => Ok(self.imported_letters(key)?.into_iter().next()),
        }
    }

    pub(super) fn imported_letters(&self, key: &str) -> SqlResult<Vec<LetterView>> {
        let services: BTreeSet<&ServiceName> = self.queues.values().map(|queue| &queue.service).collect();
        let of_services = services.into_iter().map(|service| derive::import_key(service, key));
        let mut letters = Vec::new();
        for key in of_services.chain([key.to_owned()]) {
            let at = self.connection.find("SELECT delivery FROM imported WHERE key = ?1", [key])?;
            letters.extend(at.map_or(Ok(None), |at| self.letter_at(at, Depth::All))?);
        }
        Ok(letters)
    }
}

fn number(number: LetterNumber) -> i64 {
    i64::try_from(number.0).unwrap_or(i64::MAX)
}

struct ExportPage {
    page: LetterPage,
    rows_max: usize,
    bytes: usize,
}

impl ExportPage {
    fn is_full(&self) -> bool {
        self.page.letters.len() >= self.rows_max || self.bytes >= WHOLE_BYTES_MAX
    }

    fn room(&self) -> usize {
        WHOLE_PER_LOOK.min(self.rows_max - self.page.letters.len())
    }

    /// Adds letters until full; returns the last number added if some are left.
    fn add(&mut self, look: &ReadView<'_>, found: &[LetterRow]) -> SqlResult<Option<i64>> {
        for (index, letter) in found.iter().enumerate() {
            let whole = look.letter_at(letter.delivery, Depth::All)?;
            self.bytes += whole.as_ref().map_or(0, |letter| letter.event.data.len());
            self.page.letters.extend(whole);
            if self.is_full() && index + 1 < found.len() {
                return Ok(Some(letter.number));
            }
        }
        Ok(None)
    }
}

/// Uses several snapshots; a letter that leaves between them is left out.
pub(super) fn export(
    reader: &SqliteReader,
    selection: &Selection,
    after: Option<LetterNumber>,
    rows_max: usize,
) -> Result<LetterPage, StoreError> {
    let mut whole = ExportPage { page: LetterPage::default(), rows_max, bytes: 0 };
    let Some(filter) = without_poison(selection) else { return Ok(whole.page) };
    let numbers = find::numbers_until(&filter, selection.died_until);
    let search = reader.read(|look| Search::new(look, &filter, ScanOrder::Forth, numbers))?;
    let mut after = after.map(number);
    if let Some(ids) = &selection.letters {
        return export_named(reader, &search, ids, after, whole);
    }
    while !whole.is_full() {
        after = reader.read(|look| {
            let (mut found, room) = (Vec::new(), whole.room());
            let end = search.part(look, after, STEPS_PER_LOOK, &mut |letter| {
                found.push(letter);
                // One more than fits: this is not the end.
                Ok(if found.len() > room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            let is_more = found.len() > room;
            found.truncate(room);
            let end = if is_more { found.last().map(|letter| letter.number) } else { end };
            Ok(whole.add(look, &found)?.or(end))
        })?;
        whole.page.next = after.map(|number| LetterNumber(number.cast_unsigned()));
        if after.is_none() {
            break;
        }
    }
    Ok(whole.page)
}

fn export_named(
    reader: &SqliteReader,
    search: &Search<'_>,
    ids: &[DeliveryId],
    after: Option<i64>,
    mut whole: ExportPage,
) -> Result<LetterPage, StoreError> {
    let mut found: Vec<LetterRow> = Vec::new();
    for ids in ids.chunks(NAMED_PER_LOOK) {
        reader.read(|look| {
            for id in ids {
                found.extend(search.finds(look, *id)?);
            }
            Ok(())
        })?;
    }
    found.retain(|letter| after.is_none_or(|after| letter.number > after));
    found.sort_unstable_by_key(|letter| letter.number);
    found.dedup_by_key(|letter| letter.number);
    let mut rest = &found[..];
    while let Some(last) = rest.get(..whole.room().min(rest.len())).and_then(<[LetterRow]>::last) {
        let end = reader.read(|look| whole.add(look, &rest[..whole.room().min(rest.len())]))?;
        let end = end.unwrap_or(last.number);
        rest = &rest[rest.partition_point(|letter| letter.number <= end)..];
        if whole.is_full() {
            whole.page.next = (!rest.is_empty()).then_some(LetterNumber(end.cast_unsigned()));
            break;
        }
    }
    Ok(whole.page)
}

/// `None` if nothing can match.
fn without_poison(selection: &Selection) -> Option<LetterFilter> {
    let filter = selection.filter.clone();
    match (selection.poison, filter.tier) {
        (Poison::Included, _) | (Poison::Left, Some(Tier::Dead)) => Some(filter),
        (Poison::Left, None) => Some(LetterFilter { tier: Some(Tier::Dead), ..filter }),
        (Poison::Left, Some(Tier::Poison)) => None,
    }
}
