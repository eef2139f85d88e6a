//! One dependency of the engine: who may call it, and which lines wait for it.

use std::collections::VecDeque;

use super::LinePlace;
use crate::ids::{DependencyName, Seq};
use crate::policy::admission::{AdmissionControl, AdmissionSettings};
use crate::time::Timestamp;

/// One dependency, for all that call it.
#[derive(Debug)]
pub(super) struct Dependency {
    pub name: DependencyName,
    pub control: AdmissionControl,
    /// The delivery whose failure opened the breaker: it probes last.
    pub opened_by: Option<Seq>,
    /// Lines that have something to send and may not.
    pub waiters: VecDeque<LinePlace>,
    /// Lines that have nothing to send but retries, while those are too many.
    pub retriers: VecDeque<LinePlace>,
    /// When the waiters are to ask again, whatever happens.
    pub asks_at: Option<Timestamp>,
}

impl Dependency {
    /// Calls ramp up from the start: there may be a backlog.
    pub(super) fn new(name: DependencyName, settings: AdmissionSettings, now: Timestamp) -> Self {
        let mut control = AdmissionControl::new(settings);
        control.ramp_up(now);
        Self {
            name,
            control,
            opened_by: None,
            waiters: VecDeque::new(),
            retriers: VecDeque::new(),
            asks_at: None,
        }
    }
}
