//! Future events, ordered by time and then by the order of planning.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use redrive_core::engine::CallId;

#[derive(Clone, Copy, Debug)]
pub(super) enum AgendaEvent {
    Arrive { stream: usize },
    CallEnds(FinishedCall),
    Wake { node: usize, run: u32 },
    FaultBegins { fault: usize },
    FaultEnds { fault: usize },
    CallNext { visit: u64 },
    VisitEnds { visit: u64, said: SimulatedAnswer },
    GivenUp { visit: u64 },
    IncidentBegins { dependency: usize },
    IncidentEnds { dependency: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedCall {
    pub node: usize,
    /// A later run of the node ignores it.
    pub run: u32,
    pub call: CallId,
    pub dependency: usize,
    pub queue: usize,
    pub took: Duration,
    pub said: SimulatedAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulatedAnswer {
    Done,
    Status(u16),
    TooMany(Option<Duration>),
    Refused,
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<AgendaEntry>,
    planned: u64,
}

#[derive(Debug)]
struct AgendaEntry {
    at_nanos: u64,
    order: u64,
    what: AgendaEvent,
}

impl Agenda {
    pub(super) fn plan(&mut self, at_nanos: u64, what: AgendaEvent) {
        self.planned += 1;
        self.heap.push(AgendaEntry { at_nanos, order: self.planned, what });
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn next(&mut self) -> Option<(u64, AgendaEvent)> {
        self.heap.pop().map(|entry| (entry.at_nanos, entry.what))
    }
}

/// Reversed: `BinaryHeap` returns the greatest first.
impl Ord for AgendaEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_nanos, other.order).cmp(&(self.at_nanos, self.order))
    }
}

impl PartialOrd for AgendaEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for AgendaEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for AgendaEntry {}
