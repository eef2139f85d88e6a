//! The node's health: whether the store accepts events, and whether the latest rule book is in force.
//!
//! Components record what they find; reading never waits.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redrive_core::time::Timestamp;

use super::Node;
use crate::store::DiskRoom;

/// A slower write is reported.
pub(super) const SLOW_WRITE: Duration = Duration::from_secs(1);
const SLOW_REPORTED_FOR: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Since when, and why.
    pub store_failing: Option<(Timestamp, String)>,
    pub disk_short: Option<(Timestamp, DiskShort)>,
    /// When the write happened, and how long it took.
    pub store_slow: Option<(Timestamp, Duration)>,
    /// The previous book is still in force: since when, and why.
    pub book_refused: Option<(Timestamp, String)>,
    pub stopping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskShort {
    pub free_bytes: u64,
    pub needed_bytes: u64,
}

#[derive(Clone, Default)]
pub(super) struct HealthRecord(Arc<Mutex<NodeHealth>>);

impl HealthRecord {
    fn lock(&self) -> MutexGuard<'_, NodeHealth> {
        self.0.lock().expect("lock is not poisoned")
    }

    pub(super) fn store_fails(&self, now: Timestamp, reason: String) {
        self.lock().store_failing.get_or_insert((now, reason));
    }

    pub(super) fn store_heals(&self) {
        self.lock().store_failing = None;
    }

    pub(super) fn wrote(&self, now: Timestamp, took: Duration) {
        if took >= SLOW_WRITE {
            self.lock().store_slow = Some((now, took));
        }
    }

    pub(super) fn has_room(&self, now: Timestamp, room: DiskRoom) {
        let mut health = self.lock();
        health.disk_short = match room {
            DiskRoom::Enough => None,
            DiskRoom::Short { free_bytes, needed_bytes } => {
                let since = health.disk_short.map_or(now, |(since, _)| since);
                Some((since, DiskShort { free_bytes, needed_bytes }))
            }
        };
    }

    pub(super) fn book_refused(&self, now: Timestamp, reason: &str) {
        self.lock().book_refused = Some((now, reason.to_owned()));
    }

    pub(super) fn book_read(&self) {
        self.lock().book_refused = None;
    }

    pub(super) fn stops(&self) {
        self.lock().stopping = true;
    }

    fn look(&self, now: Timestamp) -> NodeHealth {
        let mut health = self.lock().clone();
        health.store_slow = health.store_slow.filter(|(at, _)| now.since(*at) <= SLOW_REPORTED_FOR);
        health
    }
}

impl Node {
    /// Never waits.
    #[must_use]
    pub fn health(&self) -> NodeHealth {
        self.shared.chart.look(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_is_wrong_is_known_since_it_began_and_until_it_is_over() {
        let chart = HealthRecord::default();
        assert_eq!(chart.look(at(1)), NodeHealth::default());
        chart.store_fails(at(1), "disk I/O error".to_owned());
        chart.store_fails(at(2), "another".to_owned());
        let short = DiskRoom::Short { free_bytes: 1, needed_bytes: 2 };
        chart.has_room(at(3), short);
        chart.has_room(at(4), short);
        chart.book_refused(at(5), "line 2");
        chart.wrote(at(6), Duration::from_millis(999));
        chart.wrote(at(7), Duration::from_secs(3));
        let expected = NodeHealth {
            store_failing: Some((at(1), "disk I/O error".to_owned())),
            disk_short: Some((at(3), DiskShort { free_bytes: 1, needed_bytes: 2 })),
            store_slow: Some((at(7), Duration::from_secs(3))),
            book_refused: Some((at(5), "line 2".to_owned())),
            stopping: false,
        };
        assert_eq!(chart.look(at(60)), expected);
        chart.store_heals();
        chart.has_room(at(61), DiskRoom::Enough);
        chart.book_read();
        assert_eq!(chart.look(at(90)), NodeHealth::default(), "a slow write is forgotten after a while");
        chart.stops();
        assert!(chart.look(at(91)).stopping);
    }
}
