//! Interned names, and the counters of queues.
//!
//! Invariant: within a transaction memory runs ahead of the file; after a rollback this is loaded again.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::engine::QueueName;
use redrive_core::hash::Map;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::encode::nanos;
use super::fault::{SqlFault, SqlResult};
use super::rows::text;
use super::schema::state;
use super::sql::Sql;
use crate::store::QueueCounts;
use crate::store::admit::Backlog;

/// Deliveries without a rule are due at [`Timestamp::NEVER`].
pub(super) const PARKED: &str =
    "SELECT count(*) FROM deliveries WHERE queue = ?1 AND state = 1 AND due_at = ?2";
pub(super) const BEHIND_PARKED: &str = "SELECT count(*) FROM
    (SELECT lane FROM deliveries WHERE queue = ?1 AND state = 1 AND due_at = ?2 AND lane IS NOT NULL LIMIT ?3) head
    CROSS JOIN deliveries d ON d.lane = head.lane AND d.state < 3 AND d.state = 2";
const PARKED_SESSIONS_MAX: i64 = 10_000;

/// Index within [`NameTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueIndex(usize);

#[derive(Debug, Default)]
pub(super) struct NameTable {
    queues: Vec<QueueEntry>,
    by_name: Map<Arc<QueueName>, QueueIndex>,
    by_id: BTreeMap<i64, QueueIndex>,
    by_service: Map<ServiceName, Vec<QueueIndex>>,
    subscriptions: Map<Arc<str>, i64>,
}

#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) id: i64,
    pub(super) name: Arc<QueueName>,
    counts: QueueCounts,
    changed: bool,
}

impl NameTable {
    pub(super) fn load(connection: &Connection) -> SqlResult<Self> {
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

    /// `None` if nothing was ever in that queue.
    pub(super) fn find(&self, name: &QueueName) -> Option<&QueueEntry> {
        self.by_name.get(name).map(|index| &self.queues[index.0])
    }

    /// By its id in rows.
    pub(super) fn index_of(&self, id: i64) -> SqlResult<QueueIndex> {
        self.by_id.get(&id).copied().ok_or(SqlFault::unreadable("the name of a queue"))
    }

    pub(super) fn queue(&self, index: QueueIndex) -> &QueueEntry {
        &self.queues[index.0]
    }

    /// Creates the queue if new.
    pub(super) fn queue_for(
        &mut self,
        connection: &Connection,
        name: &Arc<QueueName>,
    ) -> SqlResult<QueueIndex> {
        if let Some(index) = self.by_name.get(name) {
            return Ok(*index);
        }
        let insert = "INSERT INTO queues VALUES (NULL, ?1, ?2, 0, 0, 0, 0, 0, 0)";
        let channel = name.channel.as_ref().map_or("", ChannelName::as_str);
        let id = connection.prepare_cached(insert)?.insert([name.service.as_str(), channel])?;
        let name = Arc::clone(name);
        Ok(self.add(QueueEntry { id, name, counts: QueueCounts::default(), changed: false }))
    }

    /// Creates the subscription if new.
    pub(super) fn subscription(&mut self, connection: &Connection, name: &Arc<str>) -> SqlResult<i64> {
        if let Some(id) = self.subscriptions.get(name) {
            return Ok(*id);
        }
        let id = connection.prepare_cached("INSERT INTO subscriptions VALUES (NULL, ?1)")?.insert([name])?;
        self.subscriptions.insert(Arc::clone(name), id);
        Ok(id)
    }

    pub(super) fn counts(&mut self, index: QueueIndex) -> &mut QueueCounts {
        let queue = &mut self.queues[index.0];
        queue.changed = true;
        &mut queue.counts
    }

    pub(super) fn count_waiting(&mut self, index: QueueIndex, bytes: u64, code: i64) {
        let counts = self.counts(index);
        counts.waiting += 1;
        counts.waiting_bytes += bytes;
        counts.behind += u64::from(code == state::BEHIND);
    }

    /// Returns the queue's counters, to count the result.
    pub(super) fn uncount_waiting(&mut self, queue: i64, bytes: u64) -> SqlResult<&mut QueueCounts> {
        let counts = self.counts(self.index_of(queue)?);
        counts.waiting -= 1;
        counts.waiting_bytes -= bytes;
        Ok(counts)
    }

    pub(super) fn waiting(&self, service: &ServiceName) -> Backlog {
        let mut backlog = Backlog::default();
        for index in self.by_service.get(service).into_iter().flatten() {
            let counts = &self.queues[index.0].counts;
            backlog.deliveries += counts.waiting;
            backlog.bytes += counts.waiting_bytes;
        }
        backlog
    }

    /// Sorted by name.
    pub(super) fn with_waiting(&self) -> Vec<QueueName> {
        let waiting = self.queues.iter().filter(|queue| queue.counts.waiting > 0);
        let mut names: Vec<QueueName> = waiting.map(|queue| (*queue.name).clone()).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn save(&mut self, connection: &Connection) -> SqlResult<()> {
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

/// As stored.
pub(super) fn queues(connection: &Connection) -> SqlResult<Vec<(i64, QueueName, QueueCounts)>> {
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

/// Counts those behind for at most [`PARKED_SESSIONS_MAX`] sessions, to stay fast.
pub(super) fn without_rule(connection: &Connection, queue: i64, counts: &QueueCounts) -> SqlResult<u64> {
    let never = nanos(Timestamp::NEVER);
    let parked: u32 = connection.get(PARKED, (queue, never))?;
    if parked == 0 || counts.behind == 0 {
        return Ok(parked.into());
    }
    let behind: u32 = connection.get(BEHIND_PARKED, (queue, never, PARKED_SESSIONS_MAX))?;
    Ok(u64::from(parked) + u64::from(behind))
}

fn queue_name(service: &str, channel: &str) -> SqlResult<QueueName> {
    let missing = |_| SqlFault::unreadable("the name of a queue");
    let channel = (!channel.is_empty()).then(|| ChannelName::new(channel).map_err(missing));
    Ok(QueueName { service: ServiceName::new(service).map_err(missing)?, channel: channel.transpose()? })
}
