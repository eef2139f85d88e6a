//! What is told of worker processes: the result of each run, and the facts of its life, as events.
//!
//! A run's result is an event of the type that its target's `output` names, with the status `completed`, `failed`
//! or `error`; what happens to it is an event of the type [`LIFECYCLE`], with the status `started`, `succeeded`,
//! `failed` or `timed out`. A delivery that is given up without another run has a last result too, so that
//! whoever waits for one is not left waiting.
//!
//! Invariants:
//! - an event is made of the settlement that it goes with, and written in the same transaction: it is there once,
//!   or the settlement is not there either;
//! - the same settlement gives the same event, by id and by content;
//! - nothing is told of a run that was started by what is told of its own service, and nothing of the life of one
//!   that was started by a life: no service feeds itself, and those who look after lives do not wake each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::engine::{Next, Settlement, Waiting};
use crate::event::Event;
use crate::event::attribute::{ContentType, CorrelationId, EventId, EventSource, EventType, Subject};
use crate::event::idempotency::webhook_id;
use crate::policy::answer::{Exit, Reply, Seen};
use crate::policy::classify::Outcome;
use crate::time::Timestamp;

/// The type of events that tell what happens to runs.
pub const LIFECYCLE: &str = "worker.lifecycle";
/// What the source of every event about a worker begins with; the name of its service follows.
pub const SOURCE_PREFIX: &str = "/workers/";

/// A target that runs a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The type of the events that tell its results, if anybody is to hear of them.
    pub output: Option<EventType>,
}

/// What a run left behind beside how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it printed, or the beginning and the end of that.
    pub output: String,
    /// How many bytes are missing in between.
    pub left_out: u64,
    /// The last that it complained of.
    pub complaint: String,
}

/// How a run, or the delivery without another one, ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// A run ended.
    Run {
        /// What that means.
        outcome: &'a Outcome,
        /// What was seen.
        reply: &'a Reply,
        /// What it left behind; none if nobody could ask it.
        report: Option<&'a Report>,
    },
    /// The delivery was given up without another run.
    GivenUp,
}

impl Worker {
    /// What is told of a run that is about to start.
    #[must_use]
    pub fn started(&self, delivery: &Waiting, at: Timestamp) -> Vec<Arc<Event>> {
        let task = Task { delivery, run_at: at, at };
        let fact = task.tells_life().then(|| task.event(LIFECYCLE, "started", "started", Map::new()));
        fact.into_iter().flatten().collect()
    }

    /// What is told of an end, which that settlement makes durable; the delivery is as it was when the run began.
    #[must_use]
    pub fn ended(&self, delivery: &Waiting, end: End<'_>, settlement: &Settlement) -> Vec<Arc<Event>> {
        let task = Task { delivery, run_at: delivery.written_at, at: settlement.at };
        let (result, fact) = words(&end);
        let mut more = Map::new();
        let is_final = matches!(settlement.next, Next::Delivered | Next::Dead(_));
        more.insert("final".to_owned(), is_final.into());
        if let Next::Due { at } = settlement.next {
            more.insert("next_attempt_at".to_owned(), json!(at));
        }
        match (&end, &settlement.next) {
            (End::Run { outcome: Outcome::Delivered { .. }, .. }, _) => {}
            (End::Run { reply, .. }, _) => {
                drop(more.insert("error".to_owned(), reply.message.as_str().into()));
            }
            (End::GivenUp, Next::Dead(death)) => {
                drop(more.insert("error".to_owned(), death.message.as_str().into()));
            }
            (End::GivenUp, _) => return Vec::new(),
        }
        let output = self.output.as_ref().map(EventType::as_str).filter(|_| !task.is_told_of_itself());
        let result = output.and_then(|output| {
            let mut data = more.clone();
            if let End::Run { report: Some(report), .. } = &end {
                add_report(&mut data, report);
            }
            task.event(output, "result", result, data)
        });
        let fact = fact.filter(|_| task.tells_life());
        let fact = fact.and_then(|fact| task.event(LIFECYCLE, "ended", fact, more));
        result.into_iter().chain(fact).collect()
    }
}

/// The status of the result, and of the fact if a run ended.
fn words(end: &End<'_>) -> (&'static str, Option<&'static str>) {
    match end {
        End::GivenUp => ("failed", None),
        End::Run { outcome: Outcome::Delivered { .. }, .. } => ("completed", Some("succeeded")),
        End::Run { reply, .. } => match reply.seen {
            Seen::Process(Exit::ReportedError) => ("error", Some("failed")),
            Seen::Process(Exit::TimeLimit) => ("failed", Some("timed out")),
            _ => ("failed", Some("failed")),
        },
    }
}

/// What a program printed: as JSON if it is that, else as text.
fn add_report(data: &mut Map<String, Value>, report: &Report) {
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

/// One run, or the end of a delivery that has none.
#[derive(Clone, Copy)]
struct Task<'a> {
    delivery: &'a Waiting,
    /// When its start was put on record: what tells it from other runs of the same delivery.
    run_at: Timestamp,
    at: Timestamp,
}

impl Task<'_> {
    /// Whether it was started by what is told of its own service.
    fn is_told_of_itself(&self) -> bool {
        let teller = self.delivery.event.source.as_str().strip_prefix(SOURCE_PREFIX);
        teller == Some(self.delivery.queue.service.as_str())
    }

    /// Whether anything is told of its life.
    fn tells_life(&self) -> bool {
        self.delivery.event.event_type.as_str() != LIFECYCLE && !self.is_told_of_itself()
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
        // All of these are short, made of letters that attributes may have, or came with an event themselves.
        Some(Arc::new(Event {
            id: EventId::new(&format!("{run}-{part}")).ok()?,
            source: EventSource::new(&format!("{SOURCE_PREFIX}{}", queue.service)).ok()?,
            event_type: EventType::new(event_type).ok()?,
            subject: cause.subject.clone().or_else(|| Subject::new(cause.id.as_str()).ok()),
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
