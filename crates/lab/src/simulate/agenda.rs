//! What is to happen, in the order of time; at one moment, in the order in which it was planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use redrive_core::engine::CallId;

/// Something that is to happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum AgendaEvent {
    /// Events of a stream arrive.
    Arrive { stream: usize },
    /// The caller learns how a call ended.
    CallEnds(FinishedCall),
    /// An engine asked to be woken.
    Wake { node: usize, run: u32 },
    /// Something happens to Redrive itself.
    FaultBegins { fault: usize },
    /// It is over.
    FaultEnds { fault: usize },
    /// A dependency calls the next of its own.
    CallsOn { visit: u64 },
    /// A dependency that was called within a call has an answer.
    VisitEnds { visit: u64, said: SimulatedAnswer },
    /// Whoever made a call within layers has waited long enough.
    GivenUp { visit: u64 },
    /// A dependency, or what stands before it, is not well.
    TroubleBegins { dependency: usize },
    /// It is well again.
    TroubleEnds { dependency: usize },
}

/// How a call ends, as its caller sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedCall {
    pub node: usize,
    /// The run of the node that made it; a later one knows nothing of it.
    pub run: u32,
    pub call: CallId,
    pub dependency: usize,
    pub queue: usize,
    pub took: Duration,
    pub said: SimulatedAnswer,
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulatedAnswer {
    /// It is done.
    Done,
    /// A status that is no success.
    Status(u16),
    /// Too many calls, and perhaps when to come back.
    TooMany(Option<Duration>),
    /// Nobody listens.
    Refused,
    /// Nothing, for as long as the caller waited.
    Nothing,
}

/// A list of what is to happen.
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

    /// How much is planned.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// What comes next, and when.
    pub(super) fn next(&mut self) -> Option<(u64, AgendaEvent)> {
        self.heap.pop().map(|entry| (entry.at_nanos, entry.what))
    }
}

/// The earliest is the greatest, so that the heap hands it over first.
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
