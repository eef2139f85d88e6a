//! One dependency in the engine: its admission control and the lines that wait for it.

use std::collections::VecDeque;

use super::LinePlace;
use crate::ids::{DependencyName, Seq};
use crate::policy::admission::{AdmissionControl, AdmissionSettings};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct EngineDependency {
    pub name: DependencyName,
    pub control: AdmissionControl,
    /// The delivery whose failure opened the breaker: it probes last.
    pub opened_by: Option<Seq>,
    /// Lines that have something to send and may not.
    pub waiters: VecDeque<LinePlace>,
    /// Lines with only retries to send, while the retry budget is spent.
    pub retriers: VecDeque<LinePlace>,
    /// When the waiters ask again at the latest.
    pub asks_at: Option<Timestamp>,
}

impl EngineDependency {
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
