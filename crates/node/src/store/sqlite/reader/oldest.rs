//! Age of the oldest delivery and letter of each queue, from the front of an index.

use std::collections::BTreeMap;

use redrive_core::engine::QueueName;

use super::ReadView;
use crate::store::Oldest;
use crate::store::sqlite::encode::time;
use crate::store::sqlite::fault::SqlResult;
use crate::store::sqlite::sql::Sql;

pub(in super::super) const FIRST_READY: &str =
    "SELECT seq FROM deliveries WHERE queue = ?1 AND state = 0 ORDER BY seq LIMIT 1";
/// Due, or behind another delivery.
pub(in super::super) const FIRST_PATIENT: &str =
    "SELECT seq FROM deliveries WHERE queue = ?1 AND state IN (1, 2) ORDER BY seq LIMIT 1";
pub(in super::super) const ACCEPTED_AT: &str =
    "SELECT e.received_at FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";
/// From the counters of kinds.
const FIRST_DEATHS: &str = "SELECT queue, min(first_at) FROM kinds WHERE count > 0 GROUP BY queue";

pub(super) fn oldest(look: &ReadView<'_>) -> SqlResult<BTreeMap<QueueName, Oldest>> {
    let mut queues: BTreeMap<QueueName, Oldest> = BTreeMap::new();
    for (id, name) in &look.queues {
        let mut first: Option<i64> = None;
        for select in [FIRST_READY, FIRST_PATIENT] {
            let found = look.connection.find(select, [id])?;
            first = [first, found].into_iter().flatten().min();
        }
        let Some(first) = first else { continue };
        let accepted_at = look.connection.get(ACCEPTED_AT, [first])?;
        queues.entry(name.clone()).or_default().waiting_since = Some(time(accepted_at));
    }
    look.connection.each(FIRST_DEATHS, [], |row| {
        let name = look.queue(row.get(0)?)?.clone();
        queues.entry(name).or_default().dead_since = Some(time(row.get(1)?));
        Ok(())
    })?;
    Ok(queues)
}
