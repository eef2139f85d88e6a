//! Future events, ordered by time and then by the order of planning.

use std::collections::BTreeMap;
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
    VisitEnds { visit: u64, said: CallAnswer },
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
    pub said: CallAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallAnswer {
    Done,
    Status(u16),
    TooMany(Option<Duration>),
    Refused,
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// By nanoseconds and the order of planning.
    entries: BTreeMap<(u64, u64), AgendaEvent>,
    planned: u64,
}

impl Agenda {
    pub(super) fn plan(&mut self, at_nanos: u64, event: AgendaEvent) {
        self.planned += 1;
        self.entries.insert((at_nanos, self.planned), event);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn next(&mut self) -> Option<(u64, AgendaEvent)> {
        self.entries.pop_first().map(|((at_nanos, _), event)| (at_nanos, event))
    }
}
