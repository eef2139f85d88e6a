//! State of the writer in memory: counters, names, recent hashes.

use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::dedup::Dedup;
use super::encode::{nanos, place, seq, time};
use super::fault::SqlResult;
use super::letters;
use super::names::NameTable;
use super::retention::RetentionCursor;
use super::sql::Sql;

#[derive(Debug)]
pub(super) struct StoreState {
    pub(super) meta: Meta,
    pub(super) names: NameTable,
    pub(super) dedup: Dedup,
    pub(super) last_letter: i64,
    pub(super) round: RetentionCursor,
}

/// Written with every batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) seed: u64,
    pub(super) last: Seq,
    /// Stored with their content.
    pub(super) events: u64,
    pub(super) unrouted: u64,
    /// A run that has not been closed.
    pub(super) running: bool,
    pub(super) alive_at: Option<Timestamp>,
    /// Events up to here are past the retention of ids.
    pub(super) ids_checked: Seq,
    pub(super) books_turn: i64,
}

impl StoreState {
    pub(super) fn load(connection: &Connection, run_length: usize) -> SqlResult<Self> {
        let meta = Meta::load(connection)?;
        let dedup = Dedup::load(connection, meta.seed, run_length)?;
        let last_letter = letters::last_number(connection)?;
        Ok(Self {
            meta,
            names: NameTable::load(connection)?,
            dedup,
            last_letter,
            round: RetentionCursor::default(),
        })
    }

    pub(super) fn save(&mut self, connection: &Connection) -> SqlResult<()> {
        self.names.save(connection)?;
        self.dedup.save(connection)?;
        self.meta.save(connection)
    }

    pub(super) fn roll_back(&mut self, connection: &Connection) -> SqlResult<()> {
        self.dedup.roll_back();
        self.meta = Meta::load(connection)?;
        self.names = NameTable::load(connection)?;
        self.last_letter = letters::last_number(connection)?;
        Ok(())
    }
}

impl Meta {
    pub(super) fn load(connection: &Connection) -> SqlResult<Self> {
        let select =
            "SELECT seed, last_seq, events, unrouted, running, alive_at, ids_checked, books_turn FROM meta";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Self {
                seed: row.get::<_, i64>(0)?.cast_unsigned(),
                last: seq(row.get(1)?),
                events: row.get::<_, i64>(2)?.cast_unsigned(),
                unrouted: row.get::<_, i64>(3)?.cast_unsigned(),
                running: row.get(4)?,
                alive_at: row.get::<_, Option<i64>>(5)?.map(time),
                ids_checked: seq(row.get(6)?),
                books_turn: row.get(7)?,
            })
        };
        Ok(connection.prepare_cached(select)?.query_row([], read)?)
    }

    fn save(&self, connection: &Connection) -> SqlResult<()> {
        let update = "UPDATE meta SET last_seq = ?1, events = ?2, unrouted = ?3, running = ?4, alive_at = ?5,
            ids_checked = ?6, books_turn = ?7";
        connection.run(
            update,
            (
                place(self.last),
                self.events.cast_signed(),
                self.unrouted.cast_signed(),
                self.running,
                self.alive_at.map(nanos),
                place(self.ids_checked),
                self.books_turn,
            ),
        )
    }
}
