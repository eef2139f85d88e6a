//! Events about worker processes: the result of each run, and its lifecycle.
//!
//! A run's result is an event of the type that its target's `output` names, with the status `completed`,
//! `failed` or `error`; its lifecycle is events of the type [`LIFECYCLE`], with the status `started`,
//! `succeeded`, `failed` or `timed out`. A delivery that is given up without another run has a last result
//! too.
//!
//! Invariants:
//! - an event is made from its settlement, and written in the same transaction;
//! - the same settlement gives the same event, by id and by content;
//! - a run triggered by an event about its own service produces no events, and one triggered by a lifecycle
//!   event no lifecycle events: no service feeds itself, and lifecycle consumers do not trigger each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::engine::{NextState, PendingDelivery, Settlement};
use crate::event::Event;
use crate::event::attribute::{ContentType, CorrelationId, EventId, EventSource, EventSubject, EventType};
use crate::event::idempotency::webhook_id;
use crate::policy::answer::{Exit, ReplyKind, TargetReply};
use crate::policy::classify::Outcome;
use crate::time::Timestamp;

pub const LIFECYCLE: &str = "worker.lifecycle";
/// The prefix of the source of every event about a worker; the service's name follows.
pub const SOURCE_PREFIX: &str = "/workers/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The type of result events; `None` for no such events.
    pub output: Option<EventType>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Standard output, or its beginning and end.
    pub output: String,
    /// Bytes cut out in between.
    pub left_out: u64,
    /// The end of standard error.
    pub complaint: String,
}

#[derive(Clone, Copy, Debug)]
pub enum WorkerEnd<'a> {
    Run {
        outcome: &'a Outcome,
        reply: &'a TargetReply,
        /// `None` if the process was lost.
        report: Option<&'a RunReport>,
    },
    GivenUp,
}

impl Worker {
    #[must_use]
    pub fn started(&self, delivery: &PendingDelivery, at: Timestamp) -> Vec<Arc<Event>> {
        let task = WorkerRun { delivery, run_at: at, at };
        let fact = task.reports_lifecycle().then(|| task.event(LIFECYCLE, "started", "started", Map::new()));
        fact.into_iter().flatten().collect()
    }

    /// The events for an end; `delivery` is as it was when the run began.
    #[must_use]
    pub fn ended(
        &self,
        delivery: &PendingDelivery,
        end: WorkerEnd<'_>,
        settlement: &Settlement,
    ) -> Vec<Arc<Event>> {
        let task = WorkerRun { delivery, run_at: delivery.written_at, at: settlement.at };
        let (result, fact) = words(&end);
        let mut more = Map::new();
        let is_final = matches!(settlement.next, NextState::Delivered | NextState::Dead(_));
        more.insert("final".to_owned(), is_final.into());
        if let NextState::Due { at } = settlement.next {
            more.insert("next_attempt_at".to_owned(), json!(at));
        }
        match (&end, &settlement.next) {
            (WorkerEnd::Run { outcome: Outcome::Delivered { .. }, .. }, _) => {}
            (WorkerEnd::Run { reply, .. }, _) => {
                drop(more.insert("error".to_owned(), reply.message.as_str().into()));
            }
            (WorkerEnd::GivenUp, NextState::Dead(info)) => {
                drop(more.insert("error".to_owned(), info.message.as_str().into()));
            }
            (WorkerEnd::GivenUp, _) => return Vec::new(),
        }
        let output = self.output.as_ref().map(EventType::as_str).filter(|_| !task.is_self_triggered());
        let result = output.and_then(|output| {
            let mut data = more.clone();
            if let WorkerEnd::Run { report: Some(report), .. } = &end {
                add_report(&mut data, report);
            }
            task.event(output, "result", result, data)
        });
        let fact = fact.filter(|_| task.reports_lifecycle());
        let fact = fact.and_then(|fact| task.event(LIFECYCLE, "ended", fact, more));
        result.into_iter().chain(fact).collect()
    }
}

fn words(end: &WorkerEnd<'_>) -> (&'static str, Option<&'static str>) {
    match end {
        WorkerEnd::GivenUp => ("failed", None),
        WorkerEnd::Run { outcome: Outcome::Delivered { .. }, .. } => ("completed", Some("succeeded")),
        WorkerEnd::Run { reply, .. } => match reply.seen {
            ReplyKind::Process(Exit::ReportedError) => ("error", Some("failed")),
            ReplyKind::Process(Exit::TimeLimit) => ("failed", Some("timed out")),
            _ => ("failed", Some("failed")),
        },
    }
}

/// Adds what a program printed: as JSON if it is that, else as text.
fn add_report(data: &mut Map<String, Value>, report: &RunReport) {
    let printed = report.output.trim();
    if !printed.is_empty() {
        let whole = (report.left_out == 0).then(|| serde_json::from_str(printed).ok()).flatten();
        data.insert("output".to_owned(), whole.unwrap_or_else(|| printed.into()));
    }
    if report.left_out > 0 {
        data.insert("output_bytes_left_out".to_owned(), report.left_out.into());
    }
    if !report.complaint.is_empty() {
        data.insert("stderr".to_owned(), report.complaint.as_str().into());
    }
}

#[derive(Clone, Copy)]
struct WorkerRun<'a> {
    delivery: &'a PendingDelivery,
    /// When its start was recorded: distinguishes the runs of one delivery.
    run_at: Timestamp,
    at: Timestamp,
}

impl WorkerRun<'_> {
    fn is_self_triggered(&self) -> bool {
        let teller = self.delivery.event.source.as_str().strip_prefix(SOURCE_PREFIX);
        teller == Some(self.delivery.queue.service.as_str())
    }

    fn reports_lifecycle(&self) -> bool {
        self.delivery.event.event_type.as_str() != LIFECYCLE && !self.is_self_triggered()
    }

    fn event(
        &self,
        event_type: &str,
        part: &str,
        status: &str,
        more: Map<String, Value>,
    ) -> Option<Arc<Event>> {
        let (cause, queue) = (&self.delivery.event, &self.delivery.queue);
        let run = format!("{}-{:x}", webhook_id(self.delivery.id), self.run_at.as_nanos());
        let mut data = Map::new();
        data.insert("status".to_owned(), status.into());
        data.extend(more);
        data.extend([
            ("service".to_owned(), queue.service.as_str().into()),
            ("event_id".to_owned(), cause.id.as_str().into()),
            ("event_type".to_owned(), cause.event_type.as_str().into()),
            ("webhook_id".to_owned(), webhook_id(self.delivery.id).into()),
            ("attempt".to_owned(), self.delivery.next_attempt().get().into()),
            ("run".to_owned(), run.as_str().into()),
        ]);
        // All of these are short, made of characters that attributes allow, or came with an event themselves.
        Some(Arc::new(Event {
            id: EventId::new(&format!("{run}-{part}")).ok()?,
            source: EventSource::new(&format!("{SOURCE_PREFIX}{}", queue.service)).ok()?,
            event_type: EventType::new(event_type).ok()?,
            subject: cause.subject.clone().or_else(|| EventSubject::new(cause.id.as_str()).ok()),
            time: Some(self.at),
            content_type: Some(ContentType::json()),
            session: cause.session.clone(),
            correlation_id: cause
                .correlation_id
                .clone()
                .or_else(|| CorrelationId::new(cause.id.as_str()).ok()),
            traceparent: cause.traceparent.clone(),
            extensions: BTreeMap::new(),
            data: Bytes::from(Value::Object(data).to_string()),
        }))
    }
}

#[cfg(test)]
mod tests;
