//! Groups letters by cause.
//!
//! Counters of kinds answer filters on kinds. With a time range, only kinds that cross its borders are counted
//! letter by letter. Other filters scan letters, in several snapshots. A trend covers whole kinds, including
//! letters that have left.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use redrive_core::hash::Map;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::time::Timestamp;

use super::delivery::Depth;
use super::find::{self, ScanOrder, Search};
use super::kinds::{KindDetail, KindRow};
use super::{ReadView, SqliteReader};
use crate::store::StoreError;
use crate::store::letter::{GroupView, KindId, LetterFilter, LetterView, TREND_POINTS};
use crate::store::sqlite::encode::time;
use crate::store::sqlite::fault::SqlResult;
use crate::store::sqlite::letters;
use crate::store::sqlite::sql::Sql;

/// With more kinds on the border, a scan is faster.
const KINDS_COUNTED_MAX: usize = 4_096;
const COUNTED_PER_LOOK: u64 = 500_000;
/// Kinds searched for the latest letter of a cause.
const SAMPLED_MAX: usize = 64;
/// A letter's number exceeds its time of death by at most so many nanoseconds.
const NUMBERS_LATE: i64 = 1_000_000;

pub(super) const COUNT: &str = "SELECT count(*), min(number), max(number) FROM letters
    WHERE kind = ?1 AND number >= ?2 AND number < ?3";
pub(super) const LATEST: &str = "SELECT max(number) FROM letters WHERE kind = ?1";
pub(super) const TREND: &str = "SELECT span, deaths FROM trend WHERE kind = ?1 AND span > ?2 AND span <= ?3";

#[derive(Clone, Copy, Debug)]
struct KindShare {
    letters: u64,
    first_at: i64,
    last_at: i64,
    /// `None` if only counters were read.
    latest: Option<i64>,
}

impl KindShare {
    fn whole(kind: KindRow<'_, '_>) -> SqlResult<Self> {
        let (first_at, last_at) = (kind.first_at()?, kind.last_at()?);
        Ok(Self { letters: kind.count()?, first_at, last_at, latest: None })
    }

    fn and(self, other: Self) -> Self {
        Self {
            letters: self.letters + other.letters,
            first_at: self.first_at.min(other.first_at),
            last_at: self.last_at.max(other.last_at),
            latest: self.latest.max(other.latest),
        }
    }
}

/// Matching letters by kind.
enum KindShares {
    Whole,
    /// Kinds that are absent have none.
    Part(Map<i64, KindShare>),
}

impl KindShares {
    fn of(&self, kind: KindRow<'_, '_>) -> SqlResult<Option<KindShare>> {
        let share = match self {
            Self::Whole => Some(KindShare::whole(kind)?),
            Self::Part(shares) => shares.get(&kind.id()?).copied(),
        };
        Ok(share.filter(|share| share.letters > 0))
    }
}

pub(super) fn groups(
    reader: &SqliteReader,
    filter: &LetterFilter,
    now: Timestamp,
    rows_max: usize,
) -> Result<Vec<GroupView>, StoreError> {
    let LetterFilter { session, correlation_id, text, replays_below, from, until, .. } = filter;
    let by_letter =
        session.is_some() || correlation_id.is_some() || text.is_some() || replays_below.is_some();
    let shares = if by_letter {
        walk(reader, filter)?
    } else if from.is_some() || until.is_some() {
        count(reader, filter)?
    } else {
        KindShares::Whole
    };
    reader.read(|look| look.groups(filter, &shares, now, rows_max))
}

fn walk(reader: &SqliteReader, filter: &LetterFilter) -> Result<KindShares, StoreError> {
    let search = reader.read(|look| Search::new(look, filter, ScanOrder::Forth, find::numbers(filter)))?;
    let mut shares: Map<i64, KindShare> = Map::default();
    search.each(reader, |_, found| {
        let (first_at, last_at) = (found.died_at, found.died_at);
        let share = KindShare { letters: 1, first_at, last_at, latest: Some(found.number) };
        shares.entry(found.kind).and_modify(|known| *known = known.and(share)).or_insert(share);
        Ok(())
    })?;
    Ok(KindShares::Part(shares))
}

/// Counts letters within the filter's time; kinds entirely within it use their counters.
fn count(reader: &SqliteReader, filter: &LetterFilter) -> Result<KindShares, StoreError> {
    let numbers = find::numbers(filter);
    let mut shares = Map::default();
    let mut on_border: Vec<(i64, u64)> = Vec::new();
    reader.read(|look| {
        look.each_kind(filter, KindDetail::Counters, |kind| {
            let (id, whole) = (kind.id()?, KindShare::whole(kind)?);
            if whole.last_at + NUMBERS_LATE < numbers.start || whole.first_at >= numbers.end {
                return Ok(());
            }
            if whole.first_at >= numbers.start && whole.last_at + NUMBERS_LATE < numbers.end {
                shares.insert(id, whole);
            } else {
                on_border.push((id, whole.letters));
            }
            Ok(())
        })
    })?;
    if on_border.len() > KINDS_COUNTED_MAX {
        return walk(reader, filter);
    }
    let mut rest = on_border.into_iter().peekable();
    while rest.peek().is_some() {
        reader.read(|look| {
            let mut counted = 0;
            while counted < COUNTED_PER_LOOK
                && let Some((id, letters)) = rest.next()
            {
                counted += letters;
                shares.extend(look.share(id, &numbers)?.map(|share| (id, share)));
            }
            Ok(())
        })?;
    }
    Ok(KindShares::Part(shares))
}

impl ReadView<'_> {
    fn share(&self, kind: i64, numbers: &Range<i64>) -> SqlResult<Option<KindShare>> {
        let values = (kind, numbers.start, numbers.end);
        let counted: Option<(i64, Option<i64>, Option<i64>)> =
            self.connection.first(COUNT, values, |row| Ok(row.try_into()?))?;
        let Some((letters, Some(first), Some(last))) = counted else { return Ok(None) };
        let died_at = "SELECT died_at FROM letters WHERE number = ?1";
        Ok(Some(KindShare {
            letters: letters.cast_unsigned(),
            first_at: self.connection.get(died_at, [first])?,
            last_at: self.connection.get(died_at, [last])?,
            latest: Some(last),
        }))
    }

    fn groups(
        &self,
        filter: &LetterFilter,
        shares: &KindShares,
        now: Timestamp,
        rows_max: usize,
    ) -> SqlResult<Vec<GroupView>> {
        let mut causes: Vec<(Fingerprint, u64)> =
            self.letters_by_cause(filter, shares)?.into_iter().collect();
        let rank = |(cause, letters): &(Fingerprint, u64)| (Reverse(*letters), *cause);
        if causes.len() > rows_max && rows_max > 0 {
            causes.select_nth_unstable_by_key(rows_max - 1, rank);
        }
        causes.truncate(rows_max);
        causes.sort_unstable_by_key(rank);
        let mut groups = Vec::with_capacity(causes.len());
        for (cause, _) in causes {
            let filter = LetterFilter { fingerprint: Some(cause), ..filter.clone() };
            groups.extend(self.group(&filter, cause, shares, now)?);
        }
        Ok(groups)
    }

    fn letters_by_cause(
        &self,
        filter: &LetterFilter,
        shares: &KindShares,
    ) -> SqlResult<Map<Fingerprint, u64>> {
        let mut by_cause: Map<Fingerprint, u64> = Map::default();
        match shares {
            KindShares::Whole => self.each_kind(filter, KindDetail::Cause, |kind| {
                *by_cause.entry(kind.fingerprint()?).or_default() += kind.count()?;
                Ok(())
            })?,
            KindShares::Part(parts) => {
                // These kinds match; a few are faster to read one by one.
                let kinds = || parts.keys().map(|id| KindId(id.cast_unsigned())).collect();
                let found = LetterFilter { kinds: Some(kinds()), ..LetterFilter::default() };
                let filter = if parts.len() <= KINDS_COUNTED_MAX { &found } else { filter };
                self.each_kind(filter, KindDetail::Counters, |kind| {
                    if let Some(share) = shares.of(kind)? {
                        *by_cause.entry(kind.fingerprint()?).or_default() += share.letters;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(by_cause)
    }

    /// `None` if its latest letter cannot be found.
    fn group(
        &self,
        filter: &LetterFilter,
        fingerprint: Fingerprint,
        shares: &KindShares,
        now: Timestamp,
    ) -> SqlResult<Option<GroupView>> {
        let (mut queues, mut event_types) = (BTreeMap::new(), BTreeMap::new());
        let (mut poison, mut trend) = (0, TrendPoints::until(now));
        let mut kinds: Vec<(i64, KindShare)> = Vec::new();
        let mut whole: Option<KindShare> = None;
        self.each_kind(filter, KindDetail::All, |kind| {
            let Some(share) = shares.of(kind)? else { return Ok(()) };
            let id = kind.id()?;
            kinds.push((id, share));
            whole = Some(whole.map_or(share, |known| known.and(share)));
            *queues.entry(self.queue(kind.queue()?)?.clone()).or_default() += share.letters;
            *event_types.entry(kind.event_type()?.to_owned()).or_default() += share.letters;
            poison += if kind.is_poison()? { share.letters } else { 0 };
            self.add_trend(id, &mut trend)
        })?;
        let Some(share) = whole else { return Ok(None) };
        let Some(sample) = self.latest(kinds)?.map_or(Ok(None), |number| self.letter_of(number))? else {
            return Ok(None);
        };
        Ok(Some(GroupView {
            fingerprint,
            count: share.letters,
            poison,
            first_at: time(share.first_at),
            last_at: time(share.last_at),
            category: sample.death.category,
            code: sample.death.failure_code.clone(),
            sample,
            queues,
            event_types,
            trend: trend.points,
        }))
    }

    fn latest(&self, mut kinds: Vec<(i64, KindShare)>) -> SqlResult<Option<i64>> {
        kinds.sort_unstable_by_key(|(id, share)| Reverse((share.last_at, *id)));
        let mut latest: Option<i64> = None;
        for (id, share) in kinds.into_iter().take(SAMPLED_MAX) {
            if latest.is_some_and(|number| number > share.last_at + NUMBERS_LATE) {
                break;
            }
            let of_kind = match share.latest {
                Some(number) => Some(number),
                None => self.connection.get(LATEST, [id])?,
            };
            latest = latest.max(of_kind);
        }
        Ok(latest)
    }

    fn letter_of(&self, number: i64) -> SqlResult<Option<LetterView>> {
        let delivery = self.connection.find("SELECT delivery FROM letters WHERE number = ?1", [number])?;
        delivery.map_or(Ok(None), |delivery| self.letter_at(delivery, Depth::Line))
    }

    fn add_trend(&self, kind: i64, trend: &mut TrendPoints) -> SqlResult<()> {
        self.connection.each(TREND, (kind, trend.before, trend.last()), |row| {
            let index = usize::try_from(row.get::<_, i64>(0)? - trend.before - 1);
            let point = index.ok().and_then(|index| trend.points.get_mut(index));
            let point = point.expect("only spans of the trend were asked for");
            *point += row.get::<_, i64>(1)?.cast_unsigned();
            Ok(())
        })
    }
}

struct TrendPoints {
    before: i64,
    points: Vec<u64>,
}

impl TrendPoints {
    fn until(now: Timestamp) -> Self {
        let last = letters::span(now);
        let points = i64::try_from(TREND_POINTS).expect("a few hundred");
        Self { before: last - points, points: vec![0; TREND_POINTS] }
    }

    fn last(&self) -> i64 {
        self.before + i64::try_from(self.points.len()).expect("a few hundred")
    }
}
