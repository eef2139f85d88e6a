//! Jobs that a rule book schedules: events to emit, and dead letters to replay.
//!
//! Invariant: the event of a fire depends on the book and the fire time alone, so a repeated emission (after a
//! crash, or a clock set back) is recognised as a duplicate.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::{CatchUp, CronSchedule};
use crate::book::RuleBook;
use crate::book::connectors::schedule::{self, Missed};
use crate::book::model::SourceEntry;
use crate::event::Event;
use crate::event::attribute::{
    ContentType, CorrelationId, EventId, EventSource, EventSubject, EventType, SessionKey,
};
use crate::event::idempotency::schedule_event_id;
use crate::limits;
use crate::time::Timestamp;

/// Prefix of the source of emitted events; the schedule's name follows.
pub const SOURCE_PREFIX: &str = "/schedules/";

#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledJob {
    pub schedule: CronSchedule,
    pub catch_up: CatchUp,
    pub act: ScheduledAction,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ScheduledAction {
    Emit(Arc<Emission>),
    /// Replays the dead letters whose rule names this cron.
    BringBack,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emission {
    pub name: String,
    pub event_type: EventType,
    source: EventSource,
    subject: Option<EventSubject>,
    session: Option<SessionKey>,
    data: Option<Bytes>,
}

impl ScheduledJob {
    /// The key under which the job's progress is stored.
    #[must_use]
    pub fn memo_name(&self) -> String {
        match &self.act {
            ScheduledAction::Emit(emission) => format!("schedule:{}", emission.name),
            ScheduledAction::BringBack => format!("reprocess:{}", self.schedule.cron()),
        }
    }

    fn of_source(name: &str, source: &SourceEntry) -> Option<Self> {
        let schedule = source.endpoint.settings::<schedule::ScheduleSettings>()?;
        let emission = Emission {
            name: name.to_owned(),
            event_type: EventType::new(source.event_type.as_deref()?).ok()?,
            source: EventSource::new(&format!("{SOURCE_PREFIX}{name}")).ok()?,
            subject: source.subject.as_deref().and_then(|text| EventSubject::new(text).ok()),
            session: source.session.as_deref().and_then(|text| SessionKey::new(text).ok()),
            data: schedule.data.clone().map(Bytes::from),
        };
        Some(Self {
            schedule: CronSchedule::new(&schedule.cron, schedule.zone.as_deref().unwrap_or("UTC")).ok()?,
            catch_up: CatchUp {
                missed: schedule.missed,
                within: schedule.missed_within.unwrap_or(limits::FIRES_CAUGHT_UP_WITHIN),
            },
            act: ScheduledAction::Emit(Arc::new(emission)),
        })
    }
}

impl Emission {
    #[must_use]
    pub fn event(&self, fire_at: Timestamp) -> Event {
        let told = || Bytes::from(json!({ "schedule": self.name, "fire_at": fire_at }).to_string());
        let id = schedule_event_id(&self.name, fire_at);
        Event {
            id: EventId::new(&id).expect("a name and a time are short"),
            source: self.source.clone(),
            event_type: self.event_type.clone(),
            subject: self.subject.clone(),
            time: Some(fire_at),
            content_type: Some(ContentType::new("application/json").expect("a content type of our own")),
            session: self.session.clone(),
            // A fire has no cause, so it starts its own correlation.
            correlation_id: CorrelationId::new(&id).ok(),
            traceparent: None,
            extensions: std::collections::BTreeMap::new(),
            data: self.data.clone().unwrap_or_else(told),
        }
    }
}

#[must_use]
pub fn plans(book: &RuleBook) -> Vec<ScheduledJob> {
    let sources = &book.sections().sources;
    // A book without errors has no unreadable schedules.
    let emissions = sources.iter().filter_map(|(name, source)| ScheduledJob::of_source(name, &source.value));
    let bring_back = book.reprocess_crons().into_values().map(|cron| ScheduledJob {
        schedule: CronSchedule::utc(cron.clone()),
        catch_up: CatchUp { missed: Missed::One, within: limits::FIRES_CAUGHT_UP_WITHIN },
        act: ScheduledAction::BringBack,
    });
    emissions.chain(bring_back).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::book::connectors::built_in;

    fn plans_of(text: &str) -> Vec<ScheduledJob> {
        let reading = crate::book::read(text, built_in());
        plans(&reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems)))
    }

    #[test]
    fn a_book_says_what_is_to_be_done_when() {
        let book = "version: 1
sources:
  nightly: { schedule: { cron: \"0 3 * * *\" }, type: report.nightly }
  daily:
    schedule: { cron: \"0  9 * * 1-5\", zone: europe/berlin, missed: all, missed_within: 2d, data: '{\"a\":1}' }
    type: report.daily
    subject: all
    session: reports
services:
  s: { target: { log: stdout }, dead_letter: { reprocess: automatic, reprocess_cron: \"0 4 * * *\" }, events: [a, b, { type: c, dead_letter: { reprocess_cron: \"0 5 * * *\" } }] }
  t: { target: { log: stdout }, dead_letter: { reprocess: automatic, reprocess_cron: \"0 4  * * *\" }, events: [a] }
  u: { target: { log: stdout }, dead_letter: { reprocess_cron: \"0 6 * * *\" }, events: [a] }
";
        let plans = plans_of(book);
        let shown: Vec<_> = plans
            .iter()
            .map(|plan| format!("{} {} {}", plan.memo_name(), plan.schedule.cron(), plan.schedule.zone()))
            .collect();
        assert_eq!(
            shown,
            [
                "schedule:daily 0 9 * * 1-5 Europe/Berlin",
                "schedule:nightly 0 3 * * * UTC",
                "reprocess:0 4 * * * 0 4 * * * UTC",
                "reprocess:0 5 * * * 0 5 * * * UTC",
            ]
        );
        let within = Duration::from_hours(48);
        assert_eq!(plans[0].catch_up, CatchUp { missed: Missed::All, within });
        assert_eq!(plans[1].catch_up, CatchUp { missed: Missed::One, within: Duration::from_hours(24) });
        let event = |plan: &ScheduledJob| match &plan.act {
            ScheduledAction::Emit(emission) => {
                emission.event("2026-01-02T08:00:00Z".parse().expect("a time"))
            }
            ScheduledAction::BringBack => panic!("a schedule emits"),
        };
        let daily = event(&plans[0]);
        assert_eq!(daily.id.as_str(), "daily@2026-01-02T08:00:00Z");
        assert_eq!(daily.source.as_str(), "/schedules/daily");
        assert_eq!(daily.event_type.as_str(), "report.daily");
        assert_eq!(daily.subject.as_ref().map(EventSubject::as_str), Some("all"));
        assert_eq!(daily.session.as_ref().map(SessionKey::as_str), Some("reports"));
        assert_eq!(daily.time.map(|time| time.to_string()).as_deref(), Some("2026-01-02T08:00:00Z"));
        assert_eq!(daily.data, "{\"a\":1}");
        let told = "{\"schedule\":\"nightly\",\"fire_at\":\"2026-01-02T08:00:00Z\"}";
        assert_eq!(event(&plans[1]).data, told);
        assert_eq!(event(&plans[1]), event(&plans[1]));
    }
}
