//! The deliveries of one service or channel that are in memory, and what is known of those on disk.
//!
//! Memory is bounded by a window, not by the backlog. When more waits than fits, arrivals stay on disk, and a
//! cursor goes round over what is ready there, page by page. When a round from the very beginning has found
//! nothing that is not in memory, arrivals come straight from the writer again. Deliveries with a due time
//! have a window of their own; the rest of them stay on disk until they are due.
//!
//! Among those that may start, retries have one window and all others have another: retries may have to wait
//! for their budget, and must not keep first attempts, which need none, out of memory.
//!
//! Invariant: a delivery of the queue that may start is in memory, or `on_disk` (or `due_on_disk`) says that
//! a load is needed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::messages::{EngineBounds, LoadRequest, LoadScope, LoadedPage, PendingDelivery, QueueName};
use super::{DependencyPlace, ServicePlace};
use crate::ids::Seq;
use crate::limits;
use crate::policy::rule::Rule;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct EngineQueue {
    pub name: Arc<QueueName>,
    pub service: ServicePlace,
    pub presence: QueuePresence,
    /// Ready deliveries by the dependency they need: one that is down blocks no other.
    pub lines: Vec<ReadyLine>,
    due: BTreeMap<(Timestamp, Seq), PendingDelivery>,
    first: WindowUse,
    retries: WindowUse,
    due_bytes: usize,
    pub known: u32,
    pub known_bytes: usize,
    on_disk: Option<Cursor>,
    asked: PageRequest,
    /// One of a page did not fit: asking again is useless before something has left.
    cramped: bool,
    cramped_due: bool,
    /// When to look for deliveries that are due on disk.
    due_on_disk: Option<Timestamp>,
    loading_due: bool,
    pub timer_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowUse {
    rows: u32,
    bytes: usize,
}

impl WindowUse {
    fn has_room(self, bytes: usize, bounds: &EngineBounds) -> bool {
        self.rows < bounds.window && (self.rows == 0 || self.bytes + bytes <= bounds.window_bytes)
    }

    const fn runs_low(self, bounds: &EngineBounds) -> bool {
        self.rows <= bounds.window / 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePresence {
    Here {
        batch_max: u32,
        starts: Starts,
    },
    /// Its service or channel was removed from the book: all of it is held.
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starts {
    /// A call that is running when Redrive crashes ends by itself.
    AtOnce,
    /// After the start is durable: a worker may outlive us.
    OnRecord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageRequest {
    Nothing,
    Page,
    /// Requested, and something has stayed on disk since.
    OutdatedPage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor(Seq);

#[derive(Debug)]
pub(super) struct ReadyLine {
    pub dependency: DependencyPlace,
    pub ready: VecDeque<ReadyDelivery>,
    pub status: LineStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineStatus {
    Idle,
    Runnable,
    AwaitsDependency,
    AwaitsBudget,
    AwaitsShare,
}

#[derive(Debug)]
pub(super) struct ReadyDelivery {
    pub waiting: PendingDelivery,
    pub rule: Arc<Rule>,
    pub blocked_since: Option<Timestamp>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum WindowFit {
    Fits,
    StaysOnDisk,
}

impl EngineQueue {
    pub(super) fn empty(name: Arc<QueueName>, service: ServicePlace, presence: QueuePresence) -> Self {
        Self {
            name,
            service,
            presence,
            lines: Vec::new(),
            due: BTreeMap::new(),
            first: WindowUse::default(),
            retries: WindowUse::default(),
            due_bytes: 0,
            known: 0,
            known_bytes: 0,
            on_disk: None,
            asked: PageRequest::Nothing,
            cramped: false,
            cramped_due: false,
            due_on_disk: None,
            loading_due: false,
            timer_at: None,
        }
    }

    pub(super) fn enter(&mut self, row: &PendingDelivery, bounds: &EngineBounds) -> WindowFit {
        if self.on_disk.is_none() && self.window_of(row).has_room(row.bytes(), bounds) {
            return WindowFit::Fits;
        }
        self.left_on_disk();
        WindowFit::StaysOnDisk
    }

    /// A ready delivery is on disk and not in memory.
    pub(super) fn left_on_disk(&mut self) {
        self.on_disk.get_or_insert(Cursor(Seq::NONE));
        if self.asked == PageRequest::Page {
            self.asked = PageRequest::OutdatedPage;
        }
    }

    const fn window_of(&mut self, row: &PendingDelivery) -> &mut WindowUse {
        if row.is_retry() { &mut self.retries } else { &mut self.first }
    }

    pub(super) fn line(&mut self, dependency: DependencyPlace) -> usize {
        if let Some(place) = self.lines.iter().position(|line| line.dependency == dependency) {
            return place;
        }
        self.lines.push(ReadyLine { dependency, ready: VecDeque::new(), status: LineStatus::Idle });
        self.lines.len() - 1
    }

    pub(super) fn push(&mut self, line: usize, ready: ReadyDelivery, end: PushAt) {
        let window = self.window_of(&ready.waiting);
        window.rows += 1;
        window.bytes += ready.waiting.bytes();
        match end {
            PushAt::Back => self.lines[line].ready.push_back(ready),
            PushAt::Front => self.lines[line].ready.push_front(ready),
        }
    }

    pub(super) fn take(&mut self, line: usize, index: usize) -> Option<ReadyDelivery> {
        let ready = self.lines[line].ready.remove(index)?;
        let window = self.window_of(&ready.waiting);
        window.rows -= 1;
        window.bytes -= ready.waiting.bytes();
        (self.cramped, self.cramped_due) = (false, false);
        Some(ready)
    }

    pub(super) fn take_all(&mut self) -> Vec<ReadyDelivery> {
        (self.first, self.retries) = (WindowUse::default(), WindowUse::default());
        (self.cramped, self.cramped_due) = (false, false);
        std::mem::take(&mut self.lines).into_iter().flat_map(|line| line.ready).collect()
    }

    pub(super) fn put_off(
        &mut self,
        due_at: Timestamp,
        waiting: PendingDelivery,
        bounds: &EngineBounds,
    ) -> WindowFit {
        let room = self.due.is_empty() || self.due_bytes + waiting.bytes() <= bounds.window_bytes;
        if due_at == Timestamp::NEVER {
            return WindowFit::StaysOnDisk;
        }
        if self.due.len() >= bounds.window as usize || !room {
            self.due_left_on_disk(due_at);
            return WindowFit::StaysOnDisk;
        }
        self.due_bytes += waiting.bytes();
        self.due.insert((due_at, waiting.id.seq()), waiting);
        WindowFit::Fits
    }

    pub(super) fn take_all_due(&mut self) -> Vec<(Timestamp, PendingDelivery)> {
        self.due_bytes = 0;
        std::mem::take(&mut self.due).into_iter().map(|((due_at, _), row)| (due_at, row)).collect()
    }

    pub(super) fn due_left_on_disk(&mut self, due_at: Timestamp) {
        self.due_on_disk = Some(self.due_on_disk.map_or(due_at, |at| at.min(due_at)));
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<PendingDelivery> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let waiting = first.remove();
        self.due_bytes -= waiting.bytes();
        Some(waiting)
    }

    /// The next time to act without an input. What is already due on disk is excluded: it waits for room, not
    /// for a time.
    pub(super) fn next_due_at(&self, now: Timestamp) -> Option<Timestamp> {
        let in_memory = self.due.keys().next().map(|(at, _)| *at);
        let on_disk = self.due_on_disk.filter(|at| *at > now);
        [in_memory, on_disk].into_iter().flatten().min()
    }

    pub(super) fn next_load(&mut self, bounds: &EngineBounds, now: Timestamp) -> Option<LoadRequest> {
        let rows = bounds.window.min(limits::LOAD_ROWS_MAX);
        let bytes_max = bounds.window_bytes + self.known_bytes;
        let load =
            |wanted, rows_max| LoadRequest { queue: Arc::clone(&self.name), wanted, rows_max, bytes_max };
        // A page from the beginning repeats what is known; it must have room for all of that and more.
        let rows_from_the_first = rows + self.known;
        if self.presence == QueuePresence::Removed {
            return None;
        }
        let takes_due = self.retries.runs_low(bounds) && !self.cramped_due && !self.loading_due;
        if takes_due && self.due_on_disk.is_some_and(|at| at <= now) {
            let due = load(LoadScope::Due { until: now }, rows_from_the_first);
            self.loading_due = true;
            self.due_on_disk = None;
            return Some(due);
        }
        let takes_ready = self.first.runs_low(bounds) && !self.cramped && self.asked == PageRequest::Nothing;
        let Cursor(after) = self.on_disk.filter(|_| takes_ready)?;
        let ready =
            load(LoadScope::Ready { after }, if after == Seq::NONE { rows_from_the_first } else { rows });
        self.asked = PageRequest::Page;
        Some(ready)
    }

    /// A page of ready deliveries has arrived; `taken` of its rows are in memory now, or were before.
    pub(super) fn ready_loaded(&mut self, page: &LoadedPage, after: Seq, taken: usize) {
        let asked = std::mem::replace(&mut self.asked, PageRequest::Nothing);
        let is_whole = taken == page.rows.len() && !page.more;
        let last = taken.checked_sub(1).map(|last| page.rows[last].id.seq());
        self.on_disk = if !is_whole {
            Some(Cursor(last.unwrap_or(after)))
        } else if after == Seq::NONE && asked != PageRequest::OutdatedPage {
            None
        } else {
            Some(Cursor(Seq::NONE))
        };
    }

    /// A page of due deliveries has arrived; `not_taken` is the due time of the first that did not fit.
    pub(super) fn due_loaded(&mut self, page: &LoadedPage, not_taken: Option<Timestamp>, now: Timestamp) {
        self.loading_due = false;
        let more = page.more.then_some(now);
        let later = page.next_due_at.filter(|at| *at < Timestamp::NEVER);
        for at in [not_taken, more, later].into_iter().flatten() {
            self.due_left_on_disk(at);
        }
    }

    pub(super) fn may_take(&mut self, row: &PendingDelivery, of: LoadScope, bounds: &EngineBounds) -> bool {
        let has_room = self.window_of(row).has_room(row.bytes(), bounds);
        match of {
            LoadScope::Ready { .. } => self.cramped = !has_room,
            LoadScope::Due { .. } => self.cramped_due = !has_room,
        }
        has_room
    }

    /// What the store has is unknown: look for everything.
    pub(super) fn explore(&mut self) {
        self.left_on_disk();
        self.due_on_disk = Some(Timestamp::EPOCH);
        // A page that was requested may never arrive.
        self.asked = PageRequest::Nothing;
        self.loading_due = false;
    }

    pub(super) fn in_memory(&self) -> (u32, usize) {
        (self.first.rows + self.retries.rows, self.due.len())
    }

    pub(super) fn has_more_on_disk(&self) -> bool {
        let is_asked = self.loading_due || self.asked != PageRequest::Nothing;
        self.on_disk.is_some() || self.due_on_disk.is_some() || is_asked
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushAt {
    Back,
    /// It had its turn and goes back to its place.
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

    const BOUNDS: EngineBounds = EngineBounds { window: 4, window_bytes: 100, calls: 8 };

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    fn queue() -> EngineQueue {
        let service = ServiceName::new("s").expect("a name");
        let name = Arc::new(QueueName { service, channel: None });
        EngineQueue::empty(
            name,
            ServicePlace(0),
            QueuePresence::Here { batch_max: 1, starts: Starts::AtOnce },
        )
    }

    fn row(seq: u64, bytes: usize) -> PendingDelivery {
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
        PendingDelivery {
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

    fn page(wanted: LoadScope, seqs: &[u64]) -> LoadedPage {
        let rows = seqs.iter().map(|seq| row(*seq, 1)).collect();
        LoadedPage { queue: queue().name, wanted, rows, more: false, next_due_at: None }
    }

    fn wanted(queue: &mut EngineQueue, now: Timestamp) -> Option<LoadScope> {
        queue.next_load(&BOUNDS, now).map(|load| load.wanted)
    }

    #[test]
    fn a_round_over_what_is_on_disk_ends_when_it_found_all_of_it() {
        let ready = |after| LoadScope::Ready { after: Seq::new(after) };
        let nothing: fn(&mut EngineQueue) = |_| {};
        let left: fn(&mut EngineQueue) = EngineQueue::left_on_disk;
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
            let page = LoadedPage { more, ..page(ready(after), &seqs) };
            queue.ready_loaded(&page, Seq::new(after), taken);
            assert_eq!(wanted(&mut queue, at(0)), expected, "{name}");
        }
    }

    #[test]
    fn arrivals_come_through_disk_while_anything_is_there() {
        let mut queue = queue();
        assert_eq!(queue.enter(&row(1, 10), &BOUNDS), WindowFit::Fits);
        queue.left_on_disk();
        assert_eq!(queue.enter(&row(1, 10), &BOUNDS), WindowFit::StaysOnDisk, "others were there before it");
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
        queue.push(line, ReadyDelivery { waiting: row(1, 60), rule, blocked_since: None }, PushAt::Back);
        queue.left_on_disk();
        assert!(wanted(&mut queue, at(0)).is_some());
        let ready = LoadScope::Ready { after: Seq::NONE };
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
            assert_eq!(queue.put_off(at(10 + seq), row(seq, 1), &BOUNDS), WindowFit::Fits);
        }
        assert_eq!(queue.put_off(at(5), row(5, 1), &BOUNDS), WindowFit::StaysOnDisk);
        assert_eq!(queue.put_off(Timestamp::NEVER, row(6, 1), &BOUNDS), WindowFit::StaysOnDisk);
        #[rustfmt::skip]
        let cases = [
            ("the one on disk comes first", 0,  Some(at(5)),  None),
            ("its time has come",           5,  Some(at(11)), Some(LoadScope::Due { until: at(5) })),
        ];
        for (name, now, next_due_at, load) in cases {
            assert_eq!(queue.next_due_at(at(now)), next_due_at, "{name}");
            assert_eq!(wanted(&mut queue, at(now)), load, "{name}");
        }
        let found = LoadedPage { more: true, ..page(LoadScope::Due { until: at(5) }, &[5]) };
        queue.due_loaded(&found, None, at(6));
        assert_eq!(wanted(&mut queue, at(6)), Some(LoadScope::Due { until: at(6) }), "there was more");
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
