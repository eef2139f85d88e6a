//! How deliveries enter memory: from the writer, from pages of the store, or when they are due.

use std::sync::Arc;

use super::messages::{Effect, LoadScope, LoadedPage, PendingDelivery};
use super::queue::{LineStatus, PushAt, ReadyDelivery, WindowFit};
use super::{Engine, LinePlace, QueuePlace, QueuePresence, RunState, ServicePlace, Timer};
use crate::ids::Seq;
use crate::time::Timestamp;

impl Engine {
    pub(super) fn arrive(&mut self, row: PendingDelivery, now: Timestamp) {
        if self.known.contains_key(&row.id.seq()) {
            return;
        }
        let place = self.queue(&row.queue);
        let bounds = self.bounds;
        if row.replaying.is_some() && self.rule(&row).is_none() {
            // A queue whose service was removed loads nothing from disk: dead-letter it now.
            self.learn(place, row.id.seq(), row.bytes());
            return self.dead_letter_unrouted(place, row, now);
        }
        if let Some(due_at) = row.due_at.filter(|due_at| *due_at > now) {
            self.wait_for(place, due_at, row, now);
        } else if self.queues[place.0].enter(&row, &bounds) == WindowFit::Fits {
            self.learn(place, row.id.seq(), row.bytes());
            self.line_up(place, row, PushAt::Back, now);
        } else {
            self.look_for_more(place, now);
        }
    }

    pub(super) fn wait_for(
        &mut self,
        place: QueuePlace,
        due_at: Timestamp,
        row: PendingDelivery,
        now: Timestamp,
    ) {
        if self.queues[place.0].presence == QueuePresence::Removed {
            return self.line_up(place, row, PushAt::Back, now);
        }
        let (bounds, seq, bytes) = (self.bounds, row.id.seq(), row.bytes());
        match self.queues[place.0].put_off(due_at, row, &bounds) {
            WindowFit::Fits => self.learn(place, seq, bytes),
            WindowFit::StaysOnDisk => self.forget(place, seq),
        }
        self.set_queue_timer(place, now);
    }

    pub(super) fn learn(&mut self, place: QueuePlace, seq: Seq, bytes: usize) {
        if self.known.insert(seq, bytes).is_none() {
            self.queues[place.0].known += 1;
            self.queues[place.0].known_bytes += bytes;
        }
    }

    pub(super) fn forget(&mut self, place: QueuePlace, seq: Seq) {
        if let Some(bytes) = self.known.remove(&seq) {
            self.queues[place.0].known -= 1;
            self.queues[place.0].known_bytes -= bytes;
        }
    }

    pub(super) fn loaded(&mut self, page: &LoadedPage, now: Timestamp) {
        let place = self.queue(&page.queue);
        let bounds = self.bounds;
        let mut taken = 0;
        for row in &page.rows {
            if !self.known.contains_key(&row.id.seq()) {
                if !self.queues[place.0].may_take(row, page.wanted, &bounds) {
                    break;
                }
                self.learn(place, row.id.seq(), row.bytes());
                self.line_up(place, row.clone(), PushAt::Back, now);
            }
            taken += 1;
        }
        let queue = &mut self.queues[place.0];
        match page.wanted {
            LoadScope::Ready { after } => queue.ready_loaded(page, after, taken),
            LoadScope::Due { .. } => {
                let not_taken = page.rows.get(taken).map(|row| row.due_at.unwrap_or(now));
                queue.due_loaded(page, not_taken, now);
            }
        }
        self.look_for_more(place, now);
    }

    pub(super) fn look_for_more(&mut self, place: QueuePlace, now: Timestamp) {
        if self.store_failing_since.is_none() && self.running == RunState::Running {
            let bounds = self.bounds;
            while let Some(load) = self.queues[place.0].next_load(&bounds, now) {
                self.effects.push_back(Effect::Load(load));
            }
        }
        self.set_queue_timer(place, now);
    }

    pub(super) fn make_due_ready(&mut self, place: QueuePlace, now: Timestamp) {
        while let Some(row) = self.queues[place.0].take_due(now) {
            self.line_up(place, row, PushAt::Back, now);
        }
    }

    /// Puts it into the line of its rule's dependency. Without a rule it is parked; a damaged one is
    /// dead-lettered.
    pub(super) fn line_up(&mut self, place: QueuePlace, row: PendingDelivery, at: PushAt, now: Timestamp) {
        if row.damaged {
            return self.dead_letter_damaged(place, row, now);
        }
        let Some(rule) = self.rule(&row).map(Arc::clone) else {
            if row.replaying.is_some() {
                return self.dead_letter_unrouted(place, row, now);
            }
            if self.queues[place.0].presence == QueuePresence::Removed {
                return self.hold_removed(place, &row);
            }
            return self.park_without_rule(place, row, now);
        };
        if row.start_recorded {
            return self.interrupted_by_crash(place, row, &rule, now);
        }
        let dependency = self.dependency(&rule.dependency, now);
        self.attach_breaker(dependency, &rule, now);
        let barrier = self.dependencies[dependency.0].control.barrier(&rule, now);
        let queue = &mut self.queues[place.0];
        let line = queue.line(dependency);
        queue.push(line, ReadyDelivery { waiting: row, rule, blocked_since: None }, at);
        let index = match at {
            PushAt::Back => queue.lines[line].ready.len() - 1,
            PushAt::Front => 0,
        };
        let (status, line) = (queue.lines[line].status, LinePlace { queue: place, line });
        match (status, barrier) {
            // The rest of the line was held already, and is not asked again before the barrier ends.
            (LineStatus::AwaitsDependency, Some((cause, until))) => {
                self.hold(line, index, cause, until, now);
            }
            (LineStatus::AwaitsBudget, _) => self.wake_retrier(line),
            (
                LineStatus::Idle
                | LineStatus::Runnable
                | LineStatus::AwaitsDependency
                | LineStatus::AwaitsShare,
                _,
            ) => {
                self.make_runnable(line);
            }
        }
    }

    /// A removed queue keeps nothing in memory: when the service is back, it loads again.
    fn hold_removed(&mut self, place: QueuePlace, row: &PendingDelivery) {
        self.forget(place, row.id.seq());
        self.queues[place.0].left_on_disk();
        self.queues[place.0].due_left_on_disk(Timestamp::EPOCH);
    }

    pub(super) fn make_runnable(&mut self, place: LinePlace) {
        let line = &mut self.queues[place.queue.0].lines[place.line];
        if line.status == LineStatus::Idle && !line.ready.is_empty() {
            line.status = LineStatus::Runnable;
            self.runnable.push_back(place);
        }
    }

    pub(super) fn wake_lines(&mut self, queue: QueuePlace) {
        for line in 0..self.queues[queue.0].lines.len() {
            self.make_runnable(LinePlace { queue, line });
        }
    }

    pub(super) fn wake_service(&mut self, service: ServicePlace, now: Timestamp) {
        for place in (0..self.queues.len()).map(QueuePlace) {
            if self.queues[place.0].service == service {
                for line in 0..self.queues[place.0].lines.len() {
                    let dependency = self.queues[place.0].lines[line].dependency;
                    self.dependencies[dependency.0].control.ramp_up(now);
                }
                self.wake_lines(place);
                self.look_for_more(place, now);
            }
        }
    }

    fn set_queue_timer(&mut self, place: QueuePlace, now: Timestamp) {
        let queue = &mut self.queues[place.0];
        let next = queue.next_due_at(now);
        if next != queue.timer_at {
            if let Some(set) = queue.timer_at {
                self.timers.remove(&(set, Timer::Queue(place)));
            }
            queue.timer_at = next;
            self.timers.extend(next.map(|at| (at, Timer::Queue(place))));
        }
    }
}
