//! The deliveries of one service or channel that are in memory, and what is known of those on disk.
//!
//! Memory is bounded by a window, not by the backlog. When more waits than fits, arrivals stay on disk,
//! and a cursor goes round over what is ready there, page by page; when a round from the very beginning
//! has found nothing that is not in memory, arrivals come straight from the writer again. Deliveries
//! that wait for their time have a window of their own, the rest of them lie on disk until they are due.
//!
//! Of those that may start, retries have a window and all others have one: retries may have to wait for their
//! budget, and must not keep first attempts out of memory, which need none.
//!
//! Invariant: a delivery of the queue that may start is in memory, or `on_disk` (or `due_on_disk`) says
//! that somebody must look.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::port::{Bounds, Load, Page, QueueName, Waiting, Wanted};
use super::{DependencyPlace, ServicePlace};
use crate::ids::Seq;
use crate::limits;
use crate::policy::rule::Rule;
use crate::time::Timestamp;

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub name: Arc<QueueName>,
    pub service: ServicePlace,
    pub presence: Presence,
    /// What is ready, by the dependency it needs: one that is down holds up nobody else's.
    pub lines: Vec<Line>,
    due: BTreeMap<(Timestamp, Seq), Waiting>,
    first: Taken,
    retries: Taken,
    due_bytes: usize,
    /// Deliveries of this queue that the engine knows: in memory, in flight or being settled.
    pub known: u32,
    /// The bytes of their payloads.
    pub known_bytes: usize,
    on_disk: Option<Cursor>,
    asked: Asked,
    /// One of a page did not fit: there is no use in asking again before something has left.
    cramped: bool,
    cramped_due: bool,
    /// When to look for what is due on disk.
    due_on_disk: Option<Timestamp>,
    loading_due: bool,
    /// The timer that is set for this queue.
    pub timer_at: Option<Timestamp>,
}

/// How much of a window is taken.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    rows: u32,
    bytes: usize,
}

impl Taken {
    fn has_room(self, bytes: usize, bounds: &Bounds) -> bool {
        self.rows < bounds.window && (self.rows == 0 || self.bytes + bytes <= bounds.window_bytes)
    }

    const fn runs_low(self, bounds: &Bounds) -> bool {
        self.rows <= bounds.window / 2
    }
}

/// Whether the rule book knows the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It does, and one call takes so many, and begins so.
    Here { batch_max: u32, starts: Starts },
    /// Its service or channel is gone: all of it is held.
    Removed,
}

/// How calls of a queue begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starts {
    /// At once: a call that we go down with ends by itself.
    AtOnce,
    /// When their start is on record: a worker may outlive us.
    OnRecord,
}

/// Whether a page of what is ready is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It is not.
    Nothing,
    /// It is.
    Page,
    /// It is, and something has stayed on disk since it was asked for.
    OutdatedPage,
}

/// Where the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor(Seq);

/// What is ready and needs the same dependency.
#[derive(Debug)]
pub(super) struct Line {
    pub dependency: DependencyPlace,
    pub ready: VecDeque<Ready>,
    pub status: LineStatus,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineStatus {
    /// It has nothing to send, or may not send.
    Idle,
    /// It is among those that get their turn.
    Runnable,
    /// It waits for its dependency.
    AwaitsDependency,
    /// It has retries alone, and there are too many of them.
    AwaitsBudget,
    /// It waits for a share of the calls.
    AwaitsShare,
}

/// A delivery that may start, and the rule it would start by.
#[derive(Debug)]
pub(super) struct Ready {
    pub waiting: Waiting,
    pub rule: Arc<Rule>,
    /// Since when others have kept it from starting.
    pub blocked_since: Option<Timestamp>,
}

/// What became of a delivery that wanted to come into memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// There is room.
    Fits,
    /// It stays on disk.
    StaysOnDisk,
}

impl Queue {
    /// A queue that has nothing anywhere.
    pub(super) fn empty(name: Arc<QueueName>, service: ServicePlace, presence: Presence) -> Self {
        Self {
            name,
            service,
            presence,
            lines: Vec::new(),
            due: BTreeMap::new(),
            first: Taken::default(),
            retries: Taken::default(),
            due_bytes: 0,
            known: 0,
            known_bytes: 0,
            on_disk: None,
            asked: Asked::Nothing,
            cramped: false,
            cramped_due: false,
            due_on_disk: None,
            loading_due: false,
            timer_at: None,
        }
    }

    /// Whether one that is ready and came from the writer may come into memory.
    pub(super) fn enter(&mut self, row: &Waiting, bounds: &Bounds) -> Entry {
        if self.on_disk.is_none() && self.window_of(row).has_room(row.bytes(), bounds) {
            return Entry::Fits;
        }
        self.left_on_disk();
        Entry::StaysOnDisk
    }

    /// Something that is ready is on disk and not in memory.
    pub(super) fn left_on_disk(&mut self) {
        self.on_disk.get_or_insert(Cursor(Seq::NONE));
        if self.asked == Asked::Page {
            self.asked = Asked::OutdatedPage;
        }
    }

    const fn window_of(&mut self, row: &Waiting) -> &mut Taken {
        if row.is_retry() { &mut self.retries } else { &mut self.first }
    }

    /// The line of that dependency.
    pub(super) fn line(&mut self, dependency: DependencyPlace) -> usize {
        if let Some(place) = self.lines.iter().position(|line| line.dependency == dependency) {
            return place;
        }
        self.lines.push(Line { dependency, ready: VecDeque::new(), status: LineStatus::Idle });
        self.lines.len() - 1
    }

    pub(super) fn push(&mut self, line: usize, ready: Ready, end: PushAt) {
        let window = self.window_of(&ready.waiting);
        window.rows += 1;
        window.bytes += ready.waiting.bytes();
        match end {
            PushAt::Back => self.lines[line].ready.push_back(ready),
            PushAt::Front => self.lines[line].ready.push_front(ready),
        }
    }

    /// Takes the delivery at that place of a line.
    pub(super) fn take(&mut self, line: usize, index: usize) -> Option<Ready> {
        let ready = self.lines[line].ready.remove(index)?;
        let window = self.window_of(&ready.waiting);
        window.rows -= 1;
        window.bytes -= ready.waiting.bytes();
        (self.cramped, self.cramped_due) = (false, false);
        Some(ready)
    }

    /// Takes everything that is ready in memory, to be lined up anew.
    pub(super) fn take_all(&mut self) -> Vec<Ready> {
        (self.first, self.retries) = (Taken::default(), Taken::default());
        (self.cramped, self.cramped_due) = (false, false);
        std::mem::take(&mut self.lines).into_iter().flat_map(|line| line.ready).collect()
    }

    /// Keeps one that waits for its time, in memory if there is room.
    pub(super) fn put_off(&mut self, due_at: Timestamp, waiting: Waiting, bounds: &Bounds) -> Entry {
        let room = self.due.is_empty() || self.due_bytes + waiting.bytes() <= bounds.window_bytes;
        if due_at == Timestamp::NEVER {
            return Entry::StaysOnDisk;
        }
        if self.due.len() >= bounds.window as usize || !room {
            self.due_left_on_disk(due_at);
            return Entry::StaysOnDisk;
        }
        self.due_bytes += waiting.bytes();
        self.due.insert((due_at, waiting.id.seq()), waiting);
        Entry::Fits
    }

    /// Takes everything in memory that waits for its time, with that time.
    pub(super) fn take_all_due(&mut self) -> Vec<(Timestamp, Waiting)> {
        self.due_bytes = 0;
        std::mem::take(&mut self.due).into_iter().map(|((due_at, _), row)| (due_at, row)).collect()
    }

    pub(super) fn due_left_on_disk(&mut self, due_at: Timestamp) {
        self.due_on_disk = Some(self.due_on_disk.map_or(due_at, |at| at.min(due_at)));
    }

    /// Takes one whose time has come.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Waiting> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let waiting = first.remove();
        self.due_bytes -= waiting.bytes();
        Some(waiting)
    }

    /// When something happens here by itself. What is due on disk by now is looked for as soon as there
    /// is room, which no clock can tell.
    pub(super) fn next_due_at(&self, now: Timestamp) -> Option<Timestamp> {
        let in_memory = self.due.keys().next().map(|(at, _)| *at);
        let on_disk = self.due_on_disk.filter(|at| *at > now);
        [in_memory, on_disk].into_iter().flatten().min()
    }

    /// The next page to load, if memory runs low and there may be more on disk.
    pub(super) fn next_load(&mut self, bounds: &Bounds, now: Timestamp) -> Option<Load> {
        let rows = bounds.window.min(limits::LOAD_ROWS_MAX);
        let bytes_max = bounds.window_bytes + self.known_bytes;
        let load = |wanted, rows_max| Load { queue: Arc::clone(&self.name), wanted, rows_max, bytes_max };
        // What is known already comes first; a page may hold all of it, and still some that is not.
        let rows_from_the_first = rows + self.known;
        if self.presence == Presence::Removed {
            return None;
        }
        let takes_due = self.retries.runs_low(bounds) && !self.cramped_due && !self.loading_due;
        if takes_due && self.due_on_disk.is_some_and(|at| at <= now) {
            let due = load(Wanted::Due { until: now }, rows_from_the_first);
            self.loading_due = true;
            self.due_on_disk = None;
            return Some(due);
        }
        let takes_ready = self.first.runs_low(bounds) && !self.cramped && self.asked == Asked::Nothing;
        let Cursor(after) = self.on_disk.filter(|_| takes_ready)?;
        let ready =
            load(Wanted::Ready { after }, if after == Seq::NONE { rows_from_the_first } else { rows });
        self.asked = Asked::Page;
        Some(ready)
    }

    /// A page of what is ready has come; `taken` of its rows are in memory now, or were before.
    pub(super) fn ready_loaded(&mut self, page: &Page, after: Seq, taken: usize) {
        let asked = std::mem::replace(&mut self.asked, Asked::Nothing);
        let is_whole = taken == page.rows.len() && !page.more;
        let last = taken.checked_sub(1).map(|last| page.rows[last].id.seq());
        self.on_disk = if !is_whole {
            Some(Cursor(last.unwrap_or(after)))
        } else if after == Seq::NONE && asked != Asked::OutdatedPage {
            None
        } else {
            Some(Cursor(Seq::NONE))
        };
    }

    /// A page of what is due has come; the first that was not taken is due then.
    pub(super) fn due_loaded(&mut self, page: &Page, not_taken: Option<Timestamp>, now: Timestamp) {
        self.loading_due = false;
        let more = page.more.then_some(now);
        let later = page.next_due_at.filter(|at| *at < Timestamp::NEVER);
        for at in [not_taken, more, later].into_iter().flatten() {
            self.due_left_on_disk(at);
        }
    }

    /// Whether one more may come into memory from a page.
    pub(super) fn may_take(&mut self, row: &Waiting, of: Wanted, bounds: &Bounds) -> bool {
        let has_room = self.window_of(row).has_room(row.bytes(), bounds);
        match of {
            Wanted::Ready { .. } => self.cramped = !has_room,
            Wanted::Due { .. } => self.cramped_due = !has_room,
        }
        has_room
    }

    /// Nobody knows what the store has: look everywhere.
    pub(super) fn explore(&mut self) {
        self.left_on_disk();
        self.due_on_disk = Some(Timestamp::EPOCH);
        // What was asked for may never come.
        self.asked = Asked::Nothing;
        self.loading_due = false;
    }

    /// How many wait in memory: ready, and for their time.
    pub(super) fn in_memory(&self) -> (u32, usize) {
        (self.first.rows + self.retries.rows, self.due.len())
    }

    /// Whether there may be deliveries on disk that could start and are not in memory.
    pub(super) fn has_more_on_disk(&self) -> bool {
        let is_asked = self.loading_due || self.asked != Asked::Nothing;
        self.on_disk.is_some() || self.due_on_disk.is_some() || is_asked
    }
}

/// Which end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushAt {
    /// Behind all others.
    Back,
    /// Before all others: it had its turn and goes back to its place.
    Front,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::book::connectors::built_in;
    use crate::event::Event;
    use crate::event::attribute::{EventId, EventSource, EventType};
    use crate::ids::{DeliveryId, ServiceName};
    use crate::policy::decide::History;

    const BOUNDS: Bounds = Bounds { window: 4, window_bytes: 100, calls: 8 };

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    fn queue() -> Queue {
        let service = ServiceName::new("s").expect("a name");
        let name = Arc::new(QueueName { service, channel: None });
        Queue::empty(name, ServicePlace(0), Presence::Here { batch_max: 1, starts: Starts::AtOnce })
    }

    fn row(seq: u64, bytes: usize) -> Waiting {
        let event = Event {
            id: EventId::new("e").expect("an id"),
            source: EventSource::new("/tests").expect("a source"),
            event_type: EventType::new("t").expect("a type"),
            subject: None,
            time: None,
            content_type: None,
            session: None,
            correlation_id: None,
            traceparent: None,
            extensions: BTreeMap::new(),
            data: Bytes::from(vec![0; bytes]),
        };
        Waiting {
            id: DeliveryId::new(Seq::new(seq), 0),
            queue: queue().name,
            event: Arc::new(event),
            sequence: None,
            replaying: None,
            attempts: 0,
            due_at: None,
            history: History::new(),
            book: None,
            written_at: at(0),
            start_recorded: false,
            damaged: false,
        }
    }

    /// The last page with those rows.
    fn page(wanted: Wanted, seqs: &[u64]) -> Page {
        let rows = seqs.iter().map(|seq| row(*seq, 1)).collect();
        Page { queue: queue().name, wanted, rows, more: false, next_due_at: None }
    }

    fn wanted(queue: &mut Queue, now: Timestamp) -> Option<Wanted> {
        queue.next_load(&BOUNDS, now).map(|load| load.wanted)
    }

    #[test]
    fn a_round_over_what_is_on_disk_ends_when_it_found_all_of_it() {
        let ready = |after| Wanted::Ready { after: Seq::new(after) };
        let nothing: fn(&mut Queue) = |_| {};
        let left: fn(&mut Queue) = Queue::left_on_disk;
        #[rustfmt::skip]
        let cases = [
            ("all of it, from the beginning",      0, vec![1, 2], false, 2, nothing, None),
            ("nothing at all",                     0, vec![],     false, 0, nothing, None),
            ("the end, but not the beginning",     5, vec![6, 7], false, 2, nothing, Some(ready(0))),
            ("there is more",                      0, vec![1, 2], true,  2, nothing, Some(ready(2))),
            ("not all of the page fitted",         0, vec![1, 2], false, 1, nothing, Some(ready(1))),
            ("nothing of the page fitted",         5, vec![6, 7], false, 0, nothing, Some(ready(5))),
            ("something stayed there meanwhile",   0, vec![1, 2], false, 2, left   , Some(ready(0))),
        ];
        for (name, after, seqs, more, taken, meanwhile, expected) in cases {
            let mut queue = queue();
            queue.on_disk = Some(Cursor(Seq::new(after)));
            assert_eq!(wanted(&mut queue, at(0)), Some(ready(after)), "{name}");
            assert_eq!(wanted(&mut queue, at(0)), None, "{name}: one page at a time");
            meanwhile(&mut queue);
            let page = Page { more, ..page(ready(after), &seqs) };
            queue.ready_loaded(&page, Seq::new(after), taken);
            assert_eq!(wanted(&mut queue, at(0)), expected, "{name}");
        }
    }

    #[test]
    fn arrivals_come_through_disk_while_anything_is_there() {
        let mut queue = queue();
        assert_eq!(queue.enter(&row(1, 10), &BOUNDS), Entry::Fits);
        queue.left_on_disk();
        assert_eq!(queue.enter(&row(1, 10), &BOUNDS), Entry::StaysOnDisk, "others were there before it");
    }

    #[test]
    fn a_page_that_did_not_fit_is_not_asked_for_again_before_something_has_left() {
        let mut queue = queue();
        let line = queue.line(DependencyPlace(0));
        let rule = crate::book::read(
            "version: 1\nservices: { s: { target: { log: stdout }, events: [t] } }",
            built_in(),
        );
        let rule = Arc::clone(rule.book.expect("a sound book").rule("s", None, "t").expect("a rule"));
        queue.push(line, Ready { waiting: row(1, 60), rule, blocked_since: None }, PushAt::Back);
        queue.left_on_disk();
        assert!(wanted(&mut queue, at(0)).is_some());
        let ready = Wanted::Ready { after: Seq::NONE };
        assert!(!queue.may_take(&row(2, 60), ready, &BOUNDS), "60 and 60 are more than 100 bytes");
        queue.ready_loaded(&page(ready, &[2]), Seq::NONE, 0);
        assert_eq!(wanted(&mut queue, at(0)), None);
        queue.take(line, 0);
        assert!(wanted(&mut queue, at(0)).is_some());
    }

    #[test]
    fn what_is_due_later_than_memory_has_room_for_is_looked_for_in_time() {
        let mut queue = queue();
        for seq in 1..=4 {
            assert_eq!(queue.put_off(at(10 + seq), row(seq, 1), &BOUNDS), Entry::Fits);
        }
        assert_eq!(queue.put_off(at(5), row(5, 1), &BOUNDS), Entry::StaysOnDisk);
        assert_eq!(queue.put_off(Timestamp::NEVER, row(6, 1), &BOUNDS), Entry::StaysOnDisk);
        #[rustfmt::skip]
        let cases = [
            ("the one on disk comes first", 0,  Some(at(5)),  None),
            ("its time has come",           5,  Some(at(11)), Some(Wanted::Due { until: at(5) })),
        ];
        for (name, now, next_due_at, load) in cases {
            assert_eq!(queue.next_due_at(at(now)), next_due_at, "{name}");
            assert_eq!(wanted(&mut queue, at(now)), load, "{name}");
        }
        let found = Page { more: true, ..page(Wanted::Due { until: at(5) }, &[5]) };
        queue.due_loaded(&found, None, at(6));
        assert_eq!(wanted(&mut queue, at(6)), Some(Wanted::Due { until: at(6) }), "there was more");
    }

    #[test]
    fn a_page_has_room_for_all_that_is_known_and_more() {
        let mut queue = queue();
        (queue.known, queue.known_bytes) = (3, 70);
        queue.left_on_disk();
        let load = queue.next_load(&BOUNDS, at(0)).expect("there is something");
        assert_eq!((load.rows_max, load.bytes_max), (7, 170));
    }
}
