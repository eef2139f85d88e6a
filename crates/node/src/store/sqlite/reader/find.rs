//! Finds letters by number, a bounded part at a time.
//!
//! Session and correlation id have indexes. Otherwise the matching kinds are known: if they are few or rare, their
//! letters are merged through the index of kinds; if not, a scan of all letters meets enough of them.
//!
//! Invariants: no letter is found twice, whatever changes between parts; a part is bounded by what it examines,
//! not by what it finds, so snapshots stay short.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::{ControlFlow, Range};

use redrive_core::hash::{Map, Set};
use redrive_core::ids::DeliveryId;
use redrive_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, Row};

use super::ReadView;
use super::kinds::{KindCache, KindDetail, KindRow, takes_all};
use crate::store::derive;
use crate::store::letter::{LetterFilter, Poison, STEP_BYTES_MAX, Selection};
use crate::store::sqlite::encode::nanos;
use crate::store::sqlite::fault::{SqlFault, SqlResult};
use crate::store::sqlite::rows;
use crate::store::sqlite::select::{LetterRef, event_fits, has, is_delivery, is_in_event};
use crate::store::sqlite::sql::Sql;
use crate::store::sqlite::state::Meta;

/// Always merged, however many letters they have.
const KINDS_FEW: usize = 64;
/// Never merge more: finding each start costs more than scanning a part.
const KINDS_MERGED_MAX: usize = 4_096;
/// Rare: fewer than one of so many letters match.
const RARE: u64 = 16;
const READ_AHEAD: i64 = 16;

/// Cost of examining a letter, in table steps.
mod cost {
    pub(super) const WALKED: u32 = 1;
    pub(super) const MERGED: u32 = 3;
    pub(super) const OPENED: u32 = 6;
    pub(super) const BYTES_PER_STEP: usize = 512;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanOrder {
    Back,
    Forth,
}

impl ScanOrder {
    const fn order(self) -> &'static str {
        match self {
            Self::Back => "ORDER BY number DESC",
            Self::Forth => "ORDER BY number",
        }
    }

    const fn rank(self, number: i64) -> i64 {
        match self {
            Self::Back => number,
            Self::Forth => -number,
        }
    }

    /// Numbers left after that one.
    fn rest(self, numbers: &Range<i64>, seen: i64) -> Range<i64> {
        match self {
            Self::Back => numbers.start..numbers.end.min(seen),
            Self::Forth => numbers.start.max(seen.saturating_add(1))..numbers.end,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LetterRow {
    pub(super) number: i64,
    pub(super) delivery: i64,
    pub(super) kind: i64,
    pub(super) died_at: i64,
    pub(super) session: Option<i64>,
    /// The replay that claimed it, open or not.
    pub(super) claim: Option<i64>,
}

const COLUMNS: &str =
    "SELECT number, delivery, kind, died_at, session, claim, correlation, message FROM letters";
/// Without messages, where no text is searched.
const COLUMNS_WITHOUT_TEXT: &str =
    "SELECT number, delivery, kind, died_at, session, claim, correlation FROM letters";
pub(super) const BY_NUMBER: &str = "SELECT number, delivery, kind, died_at, session, claim, correlation, message FROM letters WHERE number = ?1";
pub(super) const BY_DELIVERY: &str = "SELECT number, delivery, kind, died_at, session, claim, correlation, message FROM letters WHERE delivery = ?1";
pub(super) const OPEN: &str =
    "SELECT e.id, e.source, e.type, e.attributes, x'', CASE WHEN ?2 THEN e.data END, d.replays
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";

pub(super) fn all(way: ScanOrder) -> String {
    format!("{COLUMNS} WHERE number >= ?1 AND number < ?2 {}", way.order())
}

pub(super) fn all_without_text(way: ScanOrder) -> String {
    format!("{COLUMNS_WITHOUT_TEXT} WHERE number >= ?1 AND number < ?2 {}", way.order())
}

pub(super) fn of_session(way: ScanOrder) -> String {
    format!("{COLUMNS} WHERE session = ?3 AND number >= ?1 AND number < ?2 {}", way.order())
}

pub(super) fn of_correlation(way: ScanOrder) -> String {
    format!("{COLUMNS} WHERE correlation = ?3 AND number >= ?1 AND number < ?2 {}", way.order())
}

pub(super) fn of_kind(way: ScanOrder) -> String {
    let order = way.order();
    format!("SELECT number FROM letters WHERE kind = ?3 AND number >= ?1 AND number < ?2 {order} LIMIT ?4")
}

enum LetterSource {
    All,
    /// Statement, and the hash of the session or correlation id.
    Keyed(String, i64),
    Kinds(Vec<i64>),
}

enum KindSet<'a> {
    All,
    Known(Set<i64>),
    /// Checked when a letter of the kind is met.
    Asked(KindCache<'a>),
}

impl KindSet<'_> {
    /// Matching kinds; also as a list if merging is cheaper than scanning.
    fn known(
        look: &ReadView<'_>,
        filter: &LetterFilter,
        way: ScanOrder,
    ) -> SqlResult<(Self, Option<Vec<i64>>)> {
        let (mut kinds, mut letters) = (Vec::new(), 0_u64);
        look.each_kind(filter, KindDetail::Counters, |kind| {
            letters += kind.count()?;
            kinds.push(kind.id()?);
            Ok(())
        })?;
        let is_rare = letters.saturating_mul(RARE) < look.letters && kinds.len() <= KINDS_MERGED_MAX;
        let merges = match way {
            ScanOrder::Back => is_rare || kinds.len() <= KINDS_FEW,
            // This direction is used to read all of them.
            ScanOrder::Forth => is_rare,
        };
        let set = kinds.iter().copied().collect();
        Ok((Self::Known(set), merges.then_some(kinds)))
    }

    fn contain(&self, look: &ReadView<'_>, kind: i64) -> SqlResult<bool> {
        match self {
            Self::All => Ok(true),
            Self::Known(kinds) => Ok(kinds.contains(&kind)),
            Self::Asked(kinds) => kinds.contain(look, kind),
        }
    }
}

/// Range of letter numbers within the filter's time.
pub(super) fn numbers(filter: &LetterFilter) -> Range<i64> {
    filter.from.map_or(0, nanos)..filter.until.map_or(i64::MAX, nanos)
}

pub(super) fn numbers_until(filter: &LetterFilter, died_until: Timestamp) -> Range<i64> {
    let Range { start, end } = numbers(filter);
    start..end.min(nanos(died_until).saturating_add(1))
}

/// Letters found for a command.
#[derive(Debug, Default)]
pub(in super::super) struct SelectedLetters {
    pub(in super::super) found: Vec<LetterRef>,
    /// Matching letters left out as poison.
    pub(in super::super) poison: u64,
    /// Continue after this number; `None` at the end.
    pub(in super::super) upto: Option<i64>,
}

/// Selects letters for a command, oldest first. Finds at most `rows_max` and examines little more.
pub(in super::super) fn select_letters(
    connection: &Connection,
    selection: &Selection,
    after: i64,
    rows_max: usize,
) -> SqlResult<SelectedLetters> {
    let look = ReadView::new(connection)?;
    let Selection { filter, letters, poison, died_until } = selection;
    let search = Search::for_step(&look, filter, numbers_until(filter, *died_until))?;
    let (mut looked, mut poisons) = (SelectedLetters::default(), Map::default());
    let mut add = |letter: LetterRow| -> SqlResult<ControlFlow<()>> {
        let of_poison = match poisons.get(&letter.kind) {
            Some(known) => *known,
            None => look.kind(letter.kind, is_poison)?.unwrap_or_default(),
        };
        poisons.insert(letter.kind, of_poison);
        if of_poison && *poison == Poison::Left {
            looked.poison += 1;
        } else {
            let LetterRow { number, delivery, kind, claim, .. } = letter;
            looked.found.push(LetterRef { number, delivery, kind, claim });
        }
        let is_full = looked.found.len() == rows_max;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let Some(ids) = letters else {
        let for_texts = filter.text.as_ref().map_or(0, |_| STEP_BYTES_MAX / cost::BYTES_PER_STEP);
        let steps_max = rows_max.saturating_mul(cost::MERGED as usize).saturating_add(for_texts);
        let steps_max = u32::try_from(steps_max).unwrap_or(u32::MAX);
        let upto = search.part(&look, Some(after), steps_max, &mut add)?;
        return Ok(SelectedLetters { upto, ..looked });
    };
    let mut named = Vec::new();
    for id in ids {
        named.extend(search.finds(&look, *id)?.filter(|letter| letter.number > after));
    }
    named.sort_unstable_by_key(|letter| letter.number);
    named.dedup_by_key(|letter| letter.number);
    let last = named.last().map(|letter| letter.number);
    let mut upto = None;
    for letter in named {
        if add(letter)?.is_break() {
            upto = Some(letter.number).filter(|number| Some(*number) != last);
            break;
        }
    }
    Ok(SelectedLetters { upto, ..looked })
}

fn is_poison(kind: KindRow<'_, '_>) -> SqlResult<bool> {
    kind.is_poison()
}

pub(super) struct Search<'a> {
    filter: &'a LetterFilter,
    way: ScanOrder,
    numbers: Range<i64>,
    session: Option<i64>,
    correlation: Option<i64>,
    /// Lower case.
    text: Option<String>,
    kinds: KindSet<'a>,
    source: LetterSource,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        look: &ReadView<'_>,
        filter: &'a LetterFilter,
        way: ScanOrder,
        numbers: Range<i64>,
    ) -> SqlResult<Self> {
        let (kinds, merged) =
            if takes_all(filter) { (KindSet::All, None) } else { KindSet::known(look, filter, way)? };
        Self::of_kinds(look, filter, way, numbers, (kinds, merged))
    }

    /// For a single step: with many kinds, listing them costs more than it saves.
    fn for_step(look: &ReadView<'_>, filter: &'a LetterFilter, numbers: Range<i64>) -> SqlResult<Self> {
        let many = i64::try_from(KINDS_MERGED_MAX).expect("a few thousand");
        let are_many = look.connection.has("SELECT 1 FROM kinds LIMIT 1 OFFSET ?1", [many])?;
        if !are_many || filter.kinds.is_some() || takes_all(filter) {
            return Self::new(look, filter, ScanOrder::Forth, numbers);
        }
        let kinds = KindSet::Asked(KindCache::new(look, filter)?);
        Self::of_kinds(look, filter, ScanOrder::Forth, numbers, (kinds, None))
    }

    fn of_kinds(
        look: &ReadView<'_>,
        filter: &'a LetterFilter,
        way: ScanOrder,
        numbers: Range<i64>,
        (kinds, merged): (KindSet<'a>, Option<Vec<i64>>),
    ) -> SqlResult<Self> {
        let seed = Meta::load(look.connection)?.seed;
        let hash = |text: &String| derive::text_hash(seed, text);
        let (session, correlation) =
            (filter.session.as_ref().map(hash), filter.correlation_id.as_ref().map(hash));
        let source = match (session, correlation, merged) {
            (Some(session), _, _) => LetterSource::Keyed(of_session(way), session),
            (None, Some(correlation), _) => LetterSource::Keyed(of_correlation(way), correlation),
            (None, None, Some(merged)) => LetterSource::Kinds(merged),
            (None, None, None) => LetterSource::All,
        };
        let text = filter.text.as_ref().map(|text| text.to_lowercase());
        Ok(Self { filter, way, numbers, session, correlation, text, kinds, source })
    }

    /// Scans the latest letters without listing kinds: faster where kinds are many and matches are frequent.
    /// `None` if an index serves better.
    pub(super) fn without_kinds(
        look: &ReadView<'_>,
        filter: &'a LetterFilter,
        numbers: Range<i64>,
    ) -> SqlResult<Option<Self>> {
        let LetterFilter { session, correlation_id, fingerprint, kinds, .. } = filter;
        let is_named = session.is_some() || correlation_id.is_some();
        if is_named || fingerprint.is_some() || kinds.is_some() || takes_all(filter) {
            return Ok(None);
        }
        let kinds = KindSet::Asked(KindCache::new(look, filter)?);
        Self::of_kinds(look, filter, ScanOrder::Back, numbers, (kinds, None)).map(Some)
    }

    /// Shows matching letters until `show` breaks or the steps are used up; returns the number to continue after,
    /// `None` at the end.
    pub(super) fn part(
        &self,
        look: &ReadView<'_>,
        after: Option<i64>,
        steps_max: u32,
        show: &mut dyn FnMut(LetterRow) -> SqlResult<ControlFlow<()>>,
    ) -> SqlResult<Option<i64>> {
        let numbers = after.map_or(self.numbers.clone(), |seen| self.way.rest(&self.numbers, seen));
        if numbers.is_empty() {
            return Ok(None);
        }
        let mut steps = StepBudget { left: steps_max };
        match &self.source {
            LetterSource::All => {
                let sql = if self.text.is_some() { all(self.way) } else { all_without_text(self.way) };
                self.walk(look, &sql, &[numbers.start, numbers.end], &mut steps, show)
            }
            LetterSource::Keyed(sql, key) => {
                self.walk(look, sql, &[numbers.start, numbers.end, *key], &mut steps, show)
            }
            LetterSource::Kinds(kinds) => self.merge(look, kinds, &numbers, &mut steps, show),
        }
    }

    pub(super) fn finds(&self, look: &ReadView<'_>, id: DeliveryId) -> SqlResult<Option<LetterRow>> {
        let Ok(place) = i64::try_from(id.seq().get()) else { return Ok(None) };
        if !is_delivery(look.connection, id)? {
            return Ok(None);
        }
        let found = look.connection.first(BY_DELIVERY, [place], |row| {
            let found = read(row)?;
            let is_in_time = self.numbers.contains(&found.number);
            let fits = is_in_time && self.fits(look, row, &found, &mut StepBudget { left: u32::MAX })?;
            Ok(fits.then_some(found))
        })?;
        Ok(found.flatten())
    }

    fn walk(
        &self,
        look: &ReadView<'_>,
        sql: &str,
        keys: &[i64],
        steps: &mut StepBudget,
        show: &mut dyn FnMut(LetterRow) -> SqlResult<ControlFlow<()>>,
    ) -> SqlResult<Option<i64>> {
        let mut statement = look.connection.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(keys))?;
        while let Some(row) = rows.next()? {
            let found = read(row)?;
            steps.take(cost::WALKED);
            if self.fits(look, row, &found, steps)? && show(found)?.is_break() || steps.are_over() {
                return Ok(Some(found.number));
            }
        }
        Ok(None)
    }

    fn merge(
        &self,
        look: &ReadView<'_>,
        kinds: &[i64],
        numbers: &Range<i64>,
        steps: &mut StepBudget,
        show: &mut dyn FnMut(LetterRow) -> SqlResult<ControlFlow<()>>,
    ) -> SqlResult<Option<i64>> {
        let mut by_number = look.connection.prepare_cached(BY_NUMBER)?;
        let mut merge = KindMerge::new(look, kinds, self.way, numbers)?;
        while let Some(number) = merge.next()? {
            let mut rows = by_number.query([number])?;
            let row = rows.next()?.ok_or(SqlFault::unreadable("a dead letter"))?;
            let found = read(row)?;
            steps.take(cost::MERGED);
            if self.fits(look, row, &found, steps)? && show(found)?.is_break() || steps.are_over() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Cheapest conditions first.
    fn fits(
        &self,
        look: &ReadView<'_>,
        row: &Row<'_>,
        found: &LetterRow,
        steps: &mut StepBudget,
    ) -> SqlResult<bool> {
        if !self.kinds.contain(look, found.kind)?
            || self.session.is_some() && found.session != self.session
            || self.correlation.is_some() && row.get::<_, Option<i64>>(6)? != self.correlation
        {
            return Ok(false);
        }
        let LetterFilter { session, correlation_id, replays_below, .. } = self.filter;
        // No need to search the data if the message matches.
        let text = self.text.as_ref().filter(|text| rows::text(row, 7).is_ok_and(|found| !has(found, text)));
        if session.is_none() && correlation_id.is_none() && replays_below.is_none() && text.is_none() {
            return Ok(true);
        }
        steps.take(cost::OPENED);
        let mut statement = look.connection.prepare_cached(OPEN)?;
        let mut rows = statement.query((found.delivery, text.is_some()))?;
        let row = rows.next()?.ok_or(SqlFault::unreadable("the delivery of a dead letter"))?;
        let event = rows::event(row)?;
        let replays: u32 = row.get::<_, Option<u32>>(6)?.unwrap_or_default();
        if !event_fits(self.filter, &event, replays) {
            return Ok(false);
        }
        let Some(text) = text else { return Ok(true) };
        let data = row.get_ref(5)?.as_blob_or_null().map_err(rusqlite::Error::from)?.unwrap_or_default();
        steps.take(u32::try_from(data.len() / cost::BYTES_PER_STEP).unwrap_or(u32::MAX));
        Ok(is_in_event(&event, data, text))
    }
}

fn read(row: &Row<'_>) -> SqlResult<LetterRow> {
    Ok(LetterRow {
        number: row.get(0)?,
        delivery: row.get(1)?,
        kind: row.get(2)?,
        died_at: row.get(3)?,
        session: row.get(4)?,
        claim: row.get(5)?,
    })
}

/// Steps left.
struct StepBudget {
    left: u32,
}

impl StepBudget {
    const fn take(&mut self, steps: u32) {
        self.left = self.left.saturating_sub(steps);
    }

    const fn are_over(&self) -> bool {
        self.left == 0
    }
}

/// Merges the letters of several kinds by number.
struct KindMerge<'a> {
    of_kind: CachedStatement<'a>,
    way: ScanOrder,
    numbers: Range<i64>,
    ahead: Vec<ReadAhead>,
    /// Next number of each kind by rank, with its index in `ahead`.
    next: BinaryHeap<(i64, usize)>,
}

struct ReadAhead {
    kind: i64,
    numbers: VecDeque<i64>,
}

impl<'a> KindMerge<'a> {
    fn new(look: &ReadView<'a>, kinds: &[i64], way: ScanOrder, numbers: &Range<i64>) -> SqlResult<Self> {
        let ahead = kinds.iter().map(|kind| ReadAhead { kind: *kind, numbers: VecDeque::new() }).collect();
        let of_kind = look.connection.prepare_cached(&of_kind(way))?;
        let mut merge = Self { of_kind, way, numbers: numbers.clone(), ahead, next: BinaryHeap::new() };
        for index in 0..kinds.len() {
            // Most kinds are not examined further.
            merge.read_ahead(index, &numbers.clone(), 1)?;
            merge.offer(index);
        }
        Ok(merge)
    }

    fn next(&mut self) -> SqlResult<Option<i64>> {
        let Some((rank, index)) = self.next.pop() else { return Ok(None) };
        let number = self.way.rank(rank);
        if self.ahead[index].numbers.is_empty() {
            let rest = self.way.rest(&self.numbers, number);
            self.read_ahead(index, &rest, READ_AHEAD)?;
        }
        self.offer(index);
        Ok(Some(number))
    }

    fn read_ahead(&mut self, index: usize, numbers: &Range<i64>, count: i64) -> SqlResult<()> {
        let ahead = &mut self.ahead[index];
        let mut rows = self.of_kind.query((numbers.start, numbers.end, ahead.kind, count))?;
        while let Some(row) = rows.next()? {
            ahead.numbers.push_back(row.get(0)?);
        }
        Ok(())
    }

    fn offer(&mut self, index: usize) {
        if let Some(number) = self.ahead[index].numbers.pop_front() {
            self.next.push((self.way.rank(number), index));
        }
    }
}
