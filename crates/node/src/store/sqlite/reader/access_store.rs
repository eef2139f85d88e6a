//! Reads API keys, refused bodies, memos and accepted events.

use std::sync::Arc;

use bytes::Bytes;
use redrive_core::ids::{Receipt, Seq};
use rusqlite::{Connection, Row};

use super::{ROWS_PER_LOOK, ReadView, SqliteReader};
use crate::store::access_store::{KeyRecord, RefusedBody};
use crate::store::sqlite::encode::{place, seq, time};
use crate::store::sqlite::fault::{SqlFault, SqlResult};
use crate::store::sqlite::sql::Sql;
use crate::store::sqlite::{purge, rows};
use crate::store::{EventView, StoreError};

pub(super) const REFUSED: &str = "SELECT number, at, source, reason, headers, body_bytes, x'' FROM refused
    WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
pub(super) const REFUSED_BODY: &str =
    "SELECT number, at, source, reason, headers, body_bytes, body FROM refused WHERE number = ?1";
pub(super) const ACCEPTED: &str = "SELECT id, source, type, attributes, data, received_at, seq, deliveries,
    whole, length(data) FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2";

/// Accepted events so far.
struct EventsPart {
    views: Vec<EventView>,
    bytes: usize,
    next: Option<Seq>,
}

/// Uses as many snapshots as needed, because long ranges may be deleted.
pub(super) fn events_after(
    reader: &SqliteReader,
    after: Seq,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Vec<EventView>, StoreError> {
    let mut part = EventsPart { views: Vec::new(), bytes: 0, next: Some(after) };
    // Sequence numbers only grow, so nothing is missed between snapshots.
    while let Some(beyond) = part.next.filter(|_| part.views.len() < rows_max) {
        part = reader.read(|look| look.events_after(part, beyond, rows_max, bytes_max))?;
    }
    Ok(part.views)
}

pub(super) fn keys(connection: &Connection) -> SqlResult<Vec<KeyRecord>> {
    connection.all("SELECT record FROM keys ORDER BY number", [], |row| {
        serde_json::from_str(rows::text(row, 0)?).map_err(|_| SqlFault::unreadable("a key"))
    })
}

impl ReadView<'_> {
    fn events_after(
        &self,
        mut part: EventsPart,
        beyond: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> SqlResult<EventsPart> {
        let mut statement = self.connection.prepare_cached(ACCEPTED)?;
        let mut rows = statement.query((place(beyond), ROWS_PER_LOOK))?;
        let mut seen = 0;
        part.next = None;
        while let Some(row) = rows.next()? {
            seen += 1;
            let at = seq(row.get(6)?);
            if seen == ROWS_PER_LOOK {
                part.next = Some(at);
            }
            let (deliveries, is_whole): (i64, bool) = (row.get(7)?, row.get(8)?);
            let bytes = usize::try_from(row.get::<_, i64>(9)?).unwrap_or_default();
            if !is_whole || bytes == 0 && deliveries > 0 && self.is_purged(at)? {
                continue;
            }
            part.bytes = part.bytes.saturating_add(bytes);
            if part.bytes > bytes_max && !part.views.is_empty() {
                part.next = None;
                break;
            }
            part.views.push(EventView {
                receipt: Receipt::of(at),
                event: Arc::new(rows::event(row)?),
                received_at: time(row.get(5)?),
                unrouted: deliveries == 0,
                deliveries: Vec::new(),
            });
            if part.views.len() == rows_max {
                break;
            }
        }
        Ok(part)
    }

    fn is_purged(&self, event: Seq) -> SqlResult<bool> {
        self.connection.get(purge::ALL_PURGED, [place(event)])
    }
}

pub(super) fn refused(row: &Row<'_>) -> SqlResult<RefusedBody> {
    let headers = serde_json::from_str(rows::text(row, 4)?);
    Ok(RefusedBody {
        number: row.get::<_, i64>(0)?.cast_unsigned(),
        at: time(row.get(1)?),
        source: row.get(2)?,
        reason: row.get(3)?,
        headers: headers.map_err(|_| SqlFault::unreadable("the headers of a refused body"))?,
        body: Bytes::from(row.get::<_, Vec<u8>>(6)?),
        body_bytes: row.get::<_, i64>(5)?.cast_unsigned(),
    })
}
