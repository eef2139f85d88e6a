//! Names that repeat in every row stand there as small numbers; each queue's counters stand with its name.
//!
//! Invariant: within a transaction memory runs ahead of the file. Who rolls one back loads this anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::engine::QueueName;
use redrive_core::hash::Map;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::encode::nanos;
use super::fault::SqliteFault;
use super::rows::text;
use super::schema::state;
use super::sql::Sql;
use crate::store::QueueCounts;
use crate::store::admit::Backlog;

/// What no rule wants waits for a time that never comes.
pub(super) const PARKED: &str =
    "SELECT count(*) FROM deliveries WHERE queue = ?1 AND state = 1 AND due_at = ?2";
pub(super) const BEHIND_PARKED: &str = "SELECT count(*) FROM
    (SELECT lane FROM deliveries WHERE queue = ?1 AND state = 1 AND due_at = ?2 AND lane IS NOT NULL LIMIT ?3) head
    CROSS JOIN deliveries d ON d.lane = head.lane AND d.state < 3 AND d.state = 2";
const PARKED_SESSIONS_MAX: i64 = 10_000;

/// Which queue, within [`NameTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueIndex(usize);

/// Queues and subscriptions.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    queues: Vec<QueueEntry>,
    by_name: Map<Arc<QueueName>, QueueIndex>,
    by_id: BTreeMap<i64, QueueIndex>,
    by_service: Map<ServiceName, Vec<QueueIndex>>,
    subscriptions: Map<Arc<str>, i64>,
}

/// A queue and what there is of it.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) id: i64,
    pub(super) name: Arc<QueueName>,
    counts: QueueCounts,
    /// Whether the counters differ from those in the file.
    changed: bool,
}

impl NameTable {
    pub(super) fn load(connection: &Connection) -> Result<Self, SqliteFault> {
        let mut names = Self::default();
        for (id, name, counts) in queues(connection)? {
            names.add(QueueEntry { id, name: Arc::new(name), counts, changed: false });
        }
        connection.each("SELECT id, name FROM subscriptions", [], |row| {
            names.subscriptions.insert(row.get(1)?, row.get(0)?);
            Ok(())
        })?;
        Ok(names)
    }

    fn add(&mut self, queue: QueueEntry) -> QueueIndex {
        let index = QueueIndex(self.queues.len());
        self.by_name.insert(Arc::clone(&queue.name), index);
        self.by_id.insert(queue.id, index);
        self.by_service.entry(queue.name.service.clone()).or_default().push(index);
        self.queues.push(queue);
        index
    }

    /// The queue of that name, if anything was ever there.
    pub(super) fn find(&self, name: &QueueName) -> Option<&QueueEntry> {
        self.by_name.get(name).map(|index| &self.queues[index.0])
    }

    /// The queue that stands in rows as that number.
    pub(super) fn index_of(&self, id: i64) -> Result<QueueIndex, SqliteFault> {
        self.by_id.get(&id).copied().ok_or(SqliteFault::unreadable("the name of a queue"))
    }

    pub(super) fn queue(&self, index: QueueIndex) -> &QueueEntry {
        &self.queues[index.0]
    }

    /// The queue of that name, new if need be.
    pub(super) fn queue_for(
        &mut self,
        connection: &Connection,
        name: &Arc<QueueName>,
    ) -> Result<QueueIndex, SqliteFault> {
        if let Some(index) = self.by_name.get(name) {
            return Ok(*index);
        }
        let insert = "INSERT INTO queues VALUES (NULL, ?1, ?2, 0, 0, 0, 0, 0, 0)";
        let channel = name.channel.as_ref().map_or("", ChannelName::as_str);
        let id = connection.prepare_cached(insert)?.insert([name.service.as_str(), channel])?;
        let name = Arc::clone(name);
        Ok(self.add(QueueEntry { id, name, counts: QueueCounts::default(), changed: false }))
    }

    /// The number of a subscription, new if need be.
    pub(super) fn subscription(&mut self, connection: &Connection, name: &Arc<str>) -> Result<i64, SqliteFault> {
        if let Some(id) = self.subscriptions.get(name) {
            return Ok(*id);
        }
        let id = connection.prepare_cached("INSERT INTO subscriptions VALUES (NULL, ?1)")?.insert([name])?;
        self.subscriptions.insert(Arc::clone(name), id);
        Ok(id)
    }

    /// The counters of a queue, to be changed.
    pub(super) fn counts(&mut self, index: QueueIndex) -> &mut QueueCounts {
        let queue = &mut self.queues[index.0];
        queue.changed = true;
        &mut queue.counts
    }

    /// Counts a delivery that waits from now on, in that state.
    pub(super) fn count_waiting(&mut self, index: QueueIndex, bytes: u64, code: i64) {
        let counts = self.counts(index);
        counts.waiting += 1;
        counts.waiting_bytes += bytes;
        counts.behind += u64::from(code == state::BEHIND);
    }

    /// A delivery of a queue waits no more; gives the queue's counters, to count what became of it.
    pub(super) fn uncount_waiting(&mut self, queue: i64, bytes: u64) -> Result<&mut QueueCounts, SqliteFault> {
        let counts = self.counts(self.index_of(queue)?);
        counts.waiting -= 1;
        counts.waiting_bytes -= bytes;
        Ok(counts)
    }

    /// What waits for a service, over all its channels.
    pub(super) fn waiting(&self, service: &ServiceName) -> Backlog {
        let mut backlog = Backlog::default();
        for index in self.by_service.get(service).into_iter().flatten() {
            let counts = &self.queues[index.0].counts;
            backlog.deliveries += counts.waiting;
            backlog.bytes += counts.waiting_bytes;
        }
        backlog
    }

    /// Queues with something that has not ended, in the order of their names.
    pub(super) fn with_waiting(&self) -> Vec<QueueName> {
        let waiting = self.queues.iter().filter(|queue| queue.counts.waiting > 0);
        let mut names: Vec<QueueName> = waiting.map(|queue| (*queue.name).clone()).collect();
        names.sort_unstable();
        names
    }

    /// Writes the counters that have changed.
    pub(super) fn save(&mut self, connection: &Connection) -> Result<(), SqliteFault> {
        let update =
            "UPDATE queues SET waiting = ?2, waiting_bytes = ?3, behind = ?4, delivered = ?5, dead = ?6, closed = ?7
            WHERE id = ?1";
        for queue in self.queues.iter_mut().filter(|queue| queue.changed) {
            let QueueCounts { waiting, waiting_bytes, behind, without_rule: _, delivered, dead, closed } =
                queue.counts;
            let counts = [waiting, waiting_bytes, behind, delivered, dead, closed].map(u64::cast_signed);
            let [waiting, waiting_bytes, behind, delivered, dead, closed] = counts;
            connection.run(update, (queue.id, waiting, waiting_bytes, behind, delivered, dead, closed))?;
            queue.changed = false;
        }
        Ok(())
    }
}

/// Every queue with its number and its counters, as the file has them.
pub(super) fn queues(connection: &Connection) -> Result<Vec<(i64, QueueName, QueueCounts)>, SqliteFault> {
    let select =
        "SELECT id, service, channel, waiting, waiting_bytes, behind, delivered, dead, closed FROM queues";
    connection.all(select, [], |row| {
        let name = queue_name(text(row, 1)?, text(row, 2)?)?;
        let count = |column| Ok::<u64, rusqlite::Error>(row.get::<_, i64>(column)?.cast_unsigned());
        let counts = QueueCounts {
            waiting: count(3)?,
            waiting_bytes: count(4)?,
            behind: count(5)?,
            // Counted by readers.
            without_rule: 0,
            delivered: count(6)?,
            dead: count(7)?,
            closed: count(8)?,
        };
        Ok((row.get(0)?, name, counts))
    })
}

/// How many deliveries of a queue no row takes, with those behind them. Those behind are counted for so many
/// sessions at most, so that the look stays short.
pub(super) fn without_rule(connection: &Connection, queue: i64, counts: &QueueCounts) -> Result<u64, SqliteFault> {
    let never = nanos(Timestamp::NEVER);
    let parked: u32 = connection.get(PARKED, (queue, never))?;
    if parked == 0 || counts.behind == 0 {
        return Ok(parked.into());
    }
    let behind: u32 = connection.get(BEHIND_PARKED, (queue, never, PARKED_SESSIONS_MAX))?;
    Ok(u64::from(parked) + u64::from(behind))
}

fn queue_name(service: &str, channel: &str) -> Result<QueueName, SqliteFault> {
    let missing = |_| SqliteFault::unreadable("the name of a queue");
    let channel = (!channel.is_empty()).then(|| ChannelName::new(channel).map_err(missing));
    Ok(QueueName { service: ServiceName::new(service).map_err(missing)?, channel: channel.transpose()? })
}
