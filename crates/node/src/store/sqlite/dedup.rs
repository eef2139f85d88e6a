//! Recognises duplicate events without an index on a random key.
//!
//! Each event has a 63-bit hash keyed by the store's seed: 39 bits of its id, then 24 bits of source and id.
//! Recent hashes live in memory, and on disk as one small row per batch. When there are many, small steps seal
//! them into a sorted run, so that writes stay sequential; a Bloom filter in memory avoids most reads of a run. A
//! hash only says where to look; the event itself decides.
//!
//! Invariants: every event is found through memory or exactly one sealed run. A run counts once its sealing is
//! committed; until then memory and table `recent` have all of it, so a crash during sealing loses and repeats
//! nothing. A run is dropped when none of its events is left; if a few are, such as dead letters, a small run
//! replaces it.

use std::collections::BTreeSet;

use redrive_core::event::idempotency::DedupKey;
use redrive_core::hash;
use redrive_core::ids::Seq;
use rusqlite::Connection;

use super::bloom::{BloomFilter, BloomKey};
use super::encode::{self, place, seq};
use super::fault::{SqlFault, SqlResult};
use super::rows::text;
use super::sql::Sql;

const SOURCE_BITS: u32 = 24;
const HASHES_PER_STEP: usize = 4_096;
/// Sealed rows deleted per step.
const ROWS_PER_STEP: i64 = 256;

/// Values of column `stage`.
const MAKING: i64 = 0;
const SEALED: i64 = 1;
const GOING: i64 = 2;

pub(super) fn key_hash(seed: u64, key: DedupKey<'_>) -> u64 {
    let id = hash::stable_64(key.event_id.as_bytes(), seed);
    let both = hash::stable_64(key.source.as_bytes(), id);
    id_hash(seed, key.event_id) | both >> (u64::BITS - SOURCE_BITS)
}

/// Smallest hash of an id, whatever the source. The top bit stays 0, because SQLite's integers are signed.
pub(super) fn id_hash(seed: u64, id: &str) -> u64 {
    let id = hash::stable_64(id.as_bytes(), seed);
    id >> (SOURCE_BITS + 1) << SOURCE_BITS
}

/// Largest hash of the same id.
pub(super) const fn last_of_id(hash: u64) -> u64 {
    hash | ((1 << SOURCE_BITS) - 1)
}

/// Filters see only the part that depends on the id.
const fn filter_key(hash: u64) -> u64 {
    hash >> SOURCE_BITS
}

#[derive(Debug)]
pub(super) struct Dedup {
    seed: u64,
    run_length: usize,
    recent: RecentHashes,
    /// Added by the current transaction; also in `recent`.
    fresh: Vec<(u64, Seq)>,
    making: Option<UnsealedRun>,
    runs: Vec<HashRun>,
    last_run: i64,
    /// Rows of table `recent` up to here are sealed.
    sealed_upto: Seq,
    /// Whether table `recent` may still have sealed rows.
    sweep: bool,
    going: Vec<i64>,
}

#[derive(Debug, Default)]
struct RecentHashes {
    // Keyed, so senders cannot choose colliding ones.
    firsts: hash::Map<u64, Seq>,
    /// Hash collisions; very rare.
    others: BTreeSet<(u64, Seq)>,
}

impl RecentHashes {
    fn len(&self) -> usize {
        self.firsts.len() + self.others.len()
    }

    fn add(&mut self, hash: u64, seq: Seq) {
        let first = *self.firsts.entry(hash).or_insert(seq);
        if first != seq {
            self.others.insert((hash, seq));
        }
    }

    fn remove(&mut self, hash: u64, seq: Seq) {
        if !self.others.remove(&(hash, seq)) {
            self.firsts.remove(&hash);
        }
    }

    fn find(&self, hash: u64) -> impl Iterator<Item = Seq> {
        let others = self.others.range((hash, Seq::NONE)..(hash + 1, Seq::NONE)).map(|(_, seq)| *seq);
        self.firsts.get(&hash).copied().into_iter().chain(others)
    }

    fn into_sorted(self) -> Vec<(u64, Seq)> {
        let mut hashes: Vec<(u64, Seq)> = self.firsts.into_iter().chain(self.others).collect();
        hashes.sort_unstable();
        hashes
    }
}

#[derive(Debug)]
struct UnsealedRun {
    number: i64,
    upto: Seq,
    hashes: Vec<(u64, Seq)>,
    written: usize,
}

#[derive(Debug)]
pub(super) struct HashRun {
    number: i64,
    upto: Seq,
    filter: BloomFilter,
    /// Whether it was checked since the store opened how many of its events are left.
    weighed: bool,
}

/// A written step of upkeep, to be applied to memory once durable.
#[derive(Debug)]
pub(super) enum DedupStep {
    Wrote(usize),
    Sealed(BloomFilter),
    Swept,
    Dropped(i64),
    Gone(i64),
    /// Too many events are left to replace it.
    Weighed(i64),
    /// Replaced by a smaller run.
    Thinned(i64, Box<HashRun>),
}

impl Dedup {
    pub(super) fn load(connection: &Connection, seed: u64, run_length: usize) -> SqlResult<Self> {
        let mut dedup = Self {
            seed,
            run_length,
            recent: RecentHashes::default(),
            fresh: Vec::new(),
            making: None,
            runs: Vec::new(),
            last_run: 0,
            sealed_upto: Seq::NONE,
            sweep: true,
            going: Vec::new(),
        };
        let mut making = None;
        connection.each("SELECT run, upto, stage, filter FROM runs ORDER BY upto", [], |row| {
            let (run, upto) = (row.get(0)?, seq(row.get(1)?));
            dedup.last_run = dedup.last_run.max(run);
            match row.get(2)? {
                MAKING => {
                    making = Some((run, upto));
                    return Ok(());
                }
                SEALED => {
                    let bytes = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
                    let filter =
                        BloomFilter::from_bytes(bytes).ok_or(SqlFault::unreadable("the filter of a run"))?;
                    dedup.runs.push(HashRun { number: run, upto, filter, weighed: false });
                }
                _ => dedup.going.push(run),
            }
            dedup.sealed_upto = dedup.sealed_upto.max(upto);
            Ok(())
        })?;
        let mut hashes = recent_hashes(connection, dedup.sealed_upto)?;
        if let Some((run, upto)) = making {
            let later = hashes.split_off(hashes.partition_point(|(_, seq)| *seq <= upto));
            let last = last_written(connection, run)?;
            hashes.sort_unstable();
            let written = last.map_or(0, |last| hashes.partition_point(|hash| *hash <= last));
            dedup.making = Some(UnsealedRun { number: run, upto, hashes, written });
            hashes = later;
        }
        for (hash, seq) in hashes {
            dedup.recent.add(hash, seq);
        }
        Ok(dedup)
    }

    pub(super) fn hash(&self, key: DedupKey<'_>) -> u64 {
        key_hash(self.seed, key)
    }

    pub(super) fn candidates(&self, connection: &Connection, hash: u64) -> SqlResult<Vec<Seq>> {
        let mut found: Vec<Seq> = self.recent.find(hash).collect();
        if let Some(making) = &self.making {
            let first = making.hashes.partition_point(|(other, _)| *other < hash);
            let same = making.hashes[first..].iter().take_while(|(other, _)| *other == hash);
            found.extend(same.map(|(_, seq)| *seq));
        }
        if self.runs.is_empty() {
            return Ok(found);
        }
        let key = BloomKey::new(filter_key(hash));
        for run in self.runs.iter().filter(|run| run.filter.may_have(&key)) {
            let select = "SELECT seq FROM dedup WHERE run = ?1 AND hash = ?2";
            connection.each(select, (run.number, hash.cast_signed()), |row| {
                found.push(seq(row.get(0)?));
                Ok(())
            })?;
        }
        Ok(found)
    }

    pub(super) fn add(&mut self, hash: u64, seq: Seq) {
        self.recent.add(hash, seq);
        self.fresh.push((hash, seq));
    }

    pub(super) fn save(&mut self, connection: &Connection) -> SqlResult<()> {
        if let Some((_, first)) = self.fresh.first() {
            let hashes = encode::hashes(&self.fresh);
            connection.run("INSERT INTO recent VALUES (?1, ?2)", (place(*first), hashes))?;
        }
        Ok(())
    }

    pub(super) fn commit(&mut self) {
        self.fresh.clear();
    }

    pub(super) fn roll_back(&mut self) {
        for (hash, seq) in self.fresh.drain(..) {
            self.recent.remove(hash, seq);
        }
    }

    /// Whether memory holds twice its share, because housekeeping did not run.
    pub(super) fn is_overdue(&self) -> bool {
        self.recent.len() >= 2 * self.run_length
    }

    pub(super) fn has_work(&self, ids_checked: Seq) -> bool {
        self.making.is_some()
            || self.recent.len() >= self.run_length
            || self.sweep
            || !self.going.is_empty()
            || self.runs.iter().any(|run| run.upto <= ids_checked && !run.weighed)
    }

    /// Does one step of sealing or dropping within a transaction. Pass the result to [`Dedup::apply`] once
    /// durable.
    pub(super) fn step(&mut self, connection: &Connection, ids_checked: Seq) -> SqlResult<Option<DedupStep>> {
        if self.making.is_none() && self.recent.len() >= self.run_length {
            // Nothing of this run is on disk yet, so a rollback loses nothing.
            let hashes = std::mem::take(&mut self.recent).into_sorted();
            let upto = hashes.iter().map(|(_, seq)| *seq).max().unwrap_or(self.sealed_upto);
            self.making = Some(UnsealedRun { number: self.last_run + 1, upto, hashes, written: 0 });
        }
        if let Some(making) = &self.making {
            return making.step(connection).map(Some);
        }
        if self.sweep {
            return self.sweep(connection).map(Some);
        }
        if let Some(run) = self.going.first() {
            return drop_step(connection, *run).map(Some);
        }
        match self.drop_one(connection, ids_checked)? {
            Some(step) => Ok(Some(step)),
            None => self.weigh_one(connection, ids_checked),
        }
    }

    fn sweep(&self, connection: &Connection) -> SqlResult<DedupStep> {
        let delete = "DELETE FROM recent WHERE first IN
            (SELECT first FROM recent WHERE first <= ?1 ORDER BY first LIMIT ?2)";
        let deleted = connection.change(delete, (place(self.sealed_upto), ROWS_PER_STEP))?;
        let all = i64::try_from(deleted).is_ok_and(|deleted| deleted < ROWS_PER_STEP);
        Ok(if all { DedupStep::Swept } else { DedupStep::Wrote(0) })
    }

    /// A run with no events left.
    pub(super) fn droppable(&self, connection: &Connection, ids_checked: Seq) -> SqlResult<Option<i64>> {
        let mut after = Seq::NONE;
        for run in self.runs.iter().take_while(|run| run.upto <= ids_checked) {
            let exists = "SELECT 1 FROM events WHERE seq > ?1 AND seq <= ?2 LIMIT 1";
            if !connection.has(exists, (place(after), place(run.upto)))? {
                return Ok(Some(run.number));
            }
            after = run.upto;
        }
        Ok(None)
    }

    fn drop_one(&self, connection: &Connection, ids_checked: Seq) -> SqlResult<Option<DedupStep>> {
        let Some(run) = self.droppable(connection, ids_checked)? else { return Ok(None) };
        connection.run("UPDATE runs SET stage = ?2, filter = NULL WHERE run = ?1", (run, GOING))?;
        Ok(Some(DedupStep::Dropped(run)))
    }

    /// Replaces an old run with a small one if few of its events are left.
    fn weigh_one(&self, connection: &Connection, ids_checked: Seq) -> SqlResult<Option<DedupStep>> {
        let index = self.runs.iter().position(|run| run.upto <= ids_checked && !run.weighed);
        let Some(index) = index else { return Ok(None) };
        let run = &self.runs[index];
        let after = index.checked_sub(1).map_or(Seq::NONE, |before| self.runs[before].upto);
        if run.filter.room() <= HASHES_PER_STEP {
            return Ok(Some(DedupStep::Weighed(run.number)));
        }
        let mut left = self.hashes_between(connection, after, run.upto)?;
        if left.len() > HASHES_PER_STEP {
            return Ok(Some(DedupStep::Weighed(run.number)));
        }
        left.sort_unstable();
        let filter = filter_of(&left);
        let number = self.last_run + 1;
        let insert = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4)";
        connection.run(insert, (number, place(run.upto), SEALED, filter.to_bytes()))?;
        insert_hashes(connection, number, &left)?;
        connection.run("UPDATE runs SET stage = ?2, filter = NULL WHERE run = ?1", (run.number, GOING))?;
        let thin = HashRun { number, upto: run.upto, filter, weighed: true };
        Ok(Some(DedupStep::Thinned(run.number, Box::new(thin))))
    }

    /// Hashes of events still stored in a range; at most one more than fit in a step.
    fn hashes_between(&self, connection: &Connection, after: Seq, upto: Seq) -> SqlResult<Vec<(u64, Seq)>> {
        let select = "SELECT seq, source, id FROM events WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3";
        let limit = i64::try_from(HASHES_PER_STEP + 1).expect("a small number");
        connection.all(select, (place(after), place(upto), limit), |row| {
            let key = DedupKey { source: text(row, 1)?, event_id: text(row, 2)? };
            Ok((self.hash(key), seq(row.get(0)?)))
        })
    }

    pub(super) fn apply(&mut self, step: DedupStep) {
        match step {
            DedupStep::Wrote(count) => {
                if let Some(making) = &mut self.making {
                    making.written += count;
                    self.last_run = making.number;
                }
            }
            DedupStep::Sealed(filter) => {
                let UnsealedRun { number, upto, .. } =
                    self.making.take().expect("what was sealed was in the making");
                self.last_run = number;
                self.runs.push(HashRun { number, upto, filter, weighed: false });
                self.sealed_upto = upto;
                self.sweep = true;
            }
            DedupStep::Swept => self.sweep = false,
            DedupStep::Dropped(run) => {
                self.runs.retain(|other| other.number != run);
                self.going.push(run);
            }
            DedupStep::Gone(run) => self.going.retain(|other| *other != run),
            DedupStep::Weighed(run) => {
                let weighed = self.runs.iter_mut().filter(|other| other.number == run);
                weighed.for_each(|run| run.weighed = true);
            }
            DedupStep::Thinned(old, thin) => {
                self.last_run = thin.number;
                for run in self.runs.iter_mut().filter(|run| run.number == old) {
                    self.going.push(run.number);
                    *run = HashRun { filter: thin.filter.clone(), ..*thin };
                }
            }
        }
    }
}

impl UnsealedRun {
    fn step(&self, connection: &Connection) -> SqlResult<DedupStep> {
        if self.written == 0 {
            let insert = "INSERT OR IGNORE INTO runs VALUES (?1, ?2, ?3, NULL)";
            connection.run(insert, (self.number, place(self.upto), MAKING))?;
        }
        let rest = &self.hashes[self.written..];
        if rest.is_empty() {
            let filter = filter_of(&self.hashes);
            let update = "UPDATE runs SET stage = ?2, filter = ?3 WHERE run = ?1";
            connection.run(update, (self.number, SEALED, filter.to_bytes()))?;
            return Ok(DedupStep::Sealed(filter));
        }
        let part = &rest[..rest.len().min(HASHES_PER_STEP)];
        insert_hashes(connection, self.number, part)?;
        Ok(DedupStep::Wrote(part.len()))
    }
}

fn filter_of(hashes: &[(u64, Seq)]) -> BloomFilter {
    let mut filter = BloomFilter::with_room_for(hashes.len());
    for (hash, _) in hashes {
        filter.add(filter_key(*hash));
    }
    filter
}

fn insert_hashes(connection: &Connection, run: i64, hashes: &[(u64, Seq)]) -> SqlResult<()> {
    let mut statement = connection.prepare_cached("INSERT INTO dedup VALUES (?1, ?2, ?3)")?;
    for (hash, seq) in hashes {
        statement.execute((run, hash.cast_signed(), place(*seq)))?;
    }
    Ok(())
}

fn drop_step(connection: &Connection, run: i64) -> SqlResult<DedupStep> {
    let select = "SELECT hash, seq FROM dedup WHERE run = ?1 ORDER BY hash, seq LIMIT 1 OFFSET ?2";
    let offset = i64::try_from(HASHES_PER_STEP).expect("a small number");
    let bound: Option<(i64, i64)> = connection.first(select, (run, offset), |row| Ok(row.try_into()?))?;
    if let Some((hash, seq)) = bound {
        connection.run("DELETE FROM dedup WHERE run = ?1 AND (hash, seq) < (?2, ?3)", (run, hash, seq))?;
        return Ok(DedupStep::Wrote(0));
    }
    connection.run("DELETE FROM dedup WHERE run = ?1", [run])?;
    connection.run("DELETE FROM runs WHERE run = ?1", [run])?;
    Ok(DedupStep::Gone(run))
}

fn last_written(connection: &Connection, run: i64) -> SqlResult<Option<(u64, Seq)>> {
    let select = "SELECT hash, seq FROM dedup WHERE run = ?1 ORDER BY hash DESC, seq DESC LIMIT 1";
    connection.first(select, [run], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), seq(row.get(1)?))))
}

/// Unsealed hashes, by sequence number.
fn recent_hashes(connection: &Connection, sealed_upto: Seq) -> SqlResult<Vec<(u64, Seq)>> {
    let mut hashes = Vec::new();
    let select = "SELECT hashes FROM recent WHERE first > ?1 ORDER BY first";
    connection.each(select, [place(sealed_upto)], |row| {
        let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        Ok(encode::read_hashes(bytes, &mut hashes)?)
    })?;
    Ok(hashes)
}

/// For readers, which have no hashes in memory.
pub(super) fn places_of_id(connection: &Connection, seed: u64, id: &str) -> SqlResult<Vec<Seq>> {
    let first = id_hash(seed, id);
    let last = last_of_id(first);
    let sealed_upto = "SELECT coalesce(max(upto), 0) FROM runs WHERE stage > 0";
    let sealed_upto = seq(connection.get(sealed_upto, [])?);
    let select = "SELECT dedup.seq FROM runs CROSS JOIN dedup ON dedup.run = runs.run
        WHERE runs.stage = 1 AND dedup.hash BETWEEN ?1 AND ?2";
    let mut found: Vec<Seq> =
        connection.all(select, (first.cast_signed(), last.cast_signed()), |row| Ok(seq(row.get(0)?)))?;
    let recent = recent_hashes(connection, sealed_upto)?;
    found.extend(recent.iter().filter(|(hash, _)| (first..=last).contains(hash)).map(|(_, seq)| *seq));
    found.sort_unstable();
    Ok(found)
}
