//! Lists deliveries, latest first, a bounded part at a time.
//!
//! Waiting and dead deliveries have an index per queue, and the queues are merged. Delivered ones are so many that
//! a scan meets them. Events are looked up one by one.
//!
//! Invariant: a part is bounded by what it examines, not by what it finds.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;

use rusqlite::Row;

use super::delivery::Depth;
use super::{ROWS_PER_LOOK, ReadView};
use crate::store::sqlite::encode::seq;
use crate::store::sqlite::fault::{SqlFault, SqlResult};
use crate::store::sqlite::rows;
use crate::store::sqlite::schema::state;
use crate::store::sqlite::sql::Sql;
use crate::store::{DeliveryFilter, DeliveryPage, DeliveryStateName, SCANNED_MAX};

/// Cost of an event lookup, in scanned deliveries.
const EVENT_COST: u64 = 5;
const READ_AHEAD: i64 = 64;

pub(in super::super) const READY: &str =
    "SELECT seq, 0 FROM deliveries WHERE queue = ?1 AND state = 0 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
/// Due, or behind another delivery.
pub(in super::super) const PATIENT: &str = "SELECT seq, state FROM deliveries INDEXED BY patient
    WHERE queue = ?1 AND state IN (1, 2) AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
pub(in super::super) const DEAD: &str =
    "SELECT seq, 4 FROM deliveries WHERE queue = ?1 AND state = 4 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
pub(in super::super) const HOLDING: &str =
    "SELECT seq, -1 FROM deliveries WHERE queue = ?1 AND state = -1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
const ALL: &str = "SELECT seq, state, queue FROM deliveries WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
pub(in super::super) const ALL_WITH_EVENTS: &str =
    "SELECT e.id, e.source, e.type, e.attributes, x'', d.seq, d.state, d.queue
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq < ?1 ORDER BY d.seq DESC LIMIT ?2";
pub(in super::super) const EVENT: &str = "SELECT e.id, e.source, e.type, e.attributes, x''
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";

/// Event lookups all over the file cost several times as much as a scan.
pub(super) const fn looked_at_max(filter: &DeliveryFilter) -> u64 {
    if filter.asks_for_events() && selects(filter.state).is_some() {
        SCANNED_MAX / EVENT_COST
    } else {
        SCANNED_MAX
    }
}

/// Indexed queries for that state, if there are any.
const fn selects(state: Option<DeliveryStateName>) -> Option<&'static [&'static str]> {
    match state {
        Some(DeliveryStateName::Ready) => Some(&[READY]),
        Some(DeliveryStateName::Due | DeliveryStateName::Behind) => Some(&[PATIENT]),
        Some(DeliveryStateName::Dead) => Some(&[DEAD, HOLDING]),
        Some(DeliveryStateName::Delivered | DeliveryStateName::Closed) | None => None,
    }
}

impl ReadView<'_> {
    pub(super) fn list(
        &self,
        filter: &DeliveryFilter,
        looked_at_max: u64,
        depth: Depth,
    ) -> SqlResult<DeliveryPage> {
        let wanted = self.queues.iter().filter(|(_, name)| filter.takes_queue(name));
        let queues: Vec<i64> = wanted.map(|(id, _)| *id).collect();
        if queues.is_empty() {
            return Ok(DeliveryPage::default());
        }
        // Callers may pass any number.
        let before = filter.before.map_or(i64::MAX, |seq| i64::try_from(seq.get()).unwrap_or(i64::MAX));
        let looks_max = i64::try_from(looked_at_max).unwrap_or(i64::MAX).min(ROWS_PER_LOOK);
        let mut found = ListProgress { filter, looks_max, looks: 0, places: Vec::new(), next: None };
        match selects(filter.state) {
            Some(selects) => self.merge(&queues, selects, before, &mut found)?,
            None => self.scan(&queues, before, &mut found)?,
        }
        let ListProgress { looks, places, next, .. } = found;
        let mut deliveries = Vec::with_capacity(places.len());
        for place in places {
            deliveries.extend(self.delivery(seq(place), depth)?);
        }
        Ok(DeliveryPage { deliveries, next: next.map(seq), looked_at: looks.unsigned_abs() })
    }

    fn scan(&self, queues: &[i64], before: i64, found: &mut ListProgress<'_>) -> SqlResult<()> {
        let asks_for_events = found.filter.asks_for_events();
        let (select, first) = if asks_for_events { (ALL_WITH_EVENTS, 5) } else { (ALL, 0) };
        let mut statement = self.connection.prepare_cached(select)?;
        let mut rows = statement.query((before, found.looks_max))?;
        while let Some(row) = rows.next()? {
            let (place, state): (i64, i64) = (row.get(first)?, row.get(first + 1)?);
            let fits = queues.contains(&row.get(first + 2)?)
                && found.takes_state(state)
                && (!asks_for_events || takes_event(found.filter, row)?);
            found.places.extend(fits.then_some(place));
            if found.looked_at(place).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn merge(
        &self,
        queues: &[i64],
        selects: &[&'static str],
        before: i64,
        found: &mut ListProgress<'_>,
    ) -> SqlResult<()> {
        let pairs = queues.iter().flat_map(|queue| selects.iter().map(move |select| (*queue, *select)));
        let mut sources: Vec<QueueCursor> =
            pairs.map(|(queue, select)| QueueCursor { queue, select, ahead: VecDeque::new() }).collect();
        let mut heads = BinaryHeap::new();
        for (index, source) in sources.iter_mut().enumerate() {
            heads.extend(source.next(self, before)?.map(|(place, state)| (place, state, index)));
        }
        while let Some((place, state, index)) = heads.pop() {
            let mut fits = found.takes_state(state);
            if fits && found.filter.asks_for_events() {
                let takes = self.connection.first(EVENT, [place], |row| takes_event(found.filter, row))?;
                fits = takes.ok_or(SqlFault::unreadable("the event of a delivery"))?;
            }
            found.places.extend(fits.then_some(place));
            if found.looked_at(place).is_break() {
                break;
            }
            heads.extend(sources[index].next(self, place)?.map(|(place, state)| (place, state, index)));
        }
        Ok(())
    }
}

struct ListProgress<'a> {
    filter: &'a DeliveryFilter,
    looks_max: i64,
    looks: i64,
    places: Vec<i64>,
    next: Option<i64>,
}

impl ListProgress<'_> {
    fn takes_state(&self, state: i64) -> bool {
        self.filter.state.is_none_or(|wanted| codes(wanted).contains(&state))
    }

    /// Breaks when the part is complete.
    fn looked_at(&mut self, place: i64) -> ControlFlow<()> {
        self.looks += 1;
        if self.places.len() >= self.filter.rows_max || self.looks >= self.looks_max {
            self.next = Some(place);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

struct QueueCursor {
    queue: i64,
    select: &'static str,
    ahead: VecDeque<(i64, i64)>,
}

impl QueueCursor {
    fn next(&mut self, look: &ReadView<'_>, last: i64) -> SqlResult<Option<(i64, i64)>> {
        if self.ahead.is_empty() {
            let values = (self.queue, last, READ_AHEAD);
            self.ahead = look.connection.all(self.select, values, |row| Ok(row.try_into()?))?.into();
        }
        Ok(self.ahead.pop_front())
    }
}

/// Cheapest conditions first: most events do not match and need not be decoded.
fn takes_event(filter: &DeliveryFilter, row: &Row<'_>) -> SqlResult<bool> {
    let event_type = rows::text(row, 2)?;
    if filter.event_type.as_ref().is_some_and(|pattern| !pattern.matches(event_type)) {
        return Ok(false);
    }
    let attributes = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
    let may_have =
        |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| has(attributes, wanted.as_bytes()));
    if !may_have(&filter.session) || !may_have(&filter.correlation_id) {
        return Ok(false);
    }
    Ok(filter.takes_event(&rows::event(row)?))
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    !wanted.is_empty() && bytes.windows(wanted.len()).any(|window| window == wanted)
}

const fn codes(state: DeliveryStateName) -> &'static [i64] {
    match state {
        DeliveryStateName::Ready => &[state::READY],
        DeliveryStateName::Due => &[state::DUE],
        DeliveryStateName::Behind => &[state::BEHIND],
        DeliveryStateName::Delivered => &[state::DELIVERED],
        DeliveryStateName::Dead => &[state::DEAD, state::HOLDING],
        DeliveryStateName::Closed => &[state::SKIPPED, state::SUPERSEDED, state::PURGED],
    }
}
