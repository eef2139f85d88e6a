//! The JSON of status and health.

use redrive_core::alerts::AlertView;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::replays::json::ReplayJson;
use crate::services::json::HealthWord;
use crate::webhooks::json::SourceStatus;

/// Whether events are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReadinessJson {
    /// `ready`, or `degraded` while something is wrong that keeps no event out.
    #[schema(pattern = "^(ready|degraded)$")]
    pub status: String,
    /// What is wrong; empty when all is well.
    pub degraded: Vec<DegradedJson>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DegradedJson {
    /// The kind, for machines: `breaker-open`, `secret-stale`, `book-refused` …
    pub what: String,
    /// In words, with names for whoever may read everything.
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// How a server is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Status {
    pub version: String,
    pub started_at: Timestamp,
    /// The hash of the rule book, as 16 hexadecimal digits.
    pub book: String,
    pub services: Vec<ServiceStatus>,
    pub dependencies: Vec<DependencyStatus>,
    pub calls_in_flight: usize,
    /// The services that this is about, if the key is bound to some: of the rest of the server nothing is
    /// told then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_to: Vec<String>,
    /// Events of the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Those that nobody wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrouted: Option<u64>,
    /// In the store and unknown to the engine; always 0.
    pub stranded: u64,
    /// Dead letters that have failed a replay, or do not parse.
    #[serde(default)]
    pub poison: u64,
    /// Sessions that a dead letter holds.
    #[serde(default)]
    pub held_sessions: u64,
    /// Deliveries that wait behind those.
    #[serde(default)]
    pub held_deliveries: u64,
    /// Whether there may be more held sessions, and more behind them, than were counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_at_least: bool,
    /// Replays that are not over.
    #[serde(default)]
    pub replays: Vec<ReplayJson>,
    /// How the calls of sources were answered.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
    /// How the archive is, if the rule book has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveJson>,
    /// What the rule book wants done at times.
    #[serde(default)]
    pub schedules: Vec<ScheduleStatus>,
    /// Secrets that cannot be fetched; none when all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<UnavailableJson>,
    /// The issuer of tokens, if its keys cannot be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<UnavailableJson>,
    /// What is wrong, as `/readyz` says it; empty when all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<DegradedJson>,
    /// Alerts that fire, in the order of the book.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firing: Vec<AlertView>,
}

/// Something that cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct UnavailableJson {
    /// The secret's name in the rule book, or who issues the tokens.
    pub name: String,
    /// `stale` while what was fetched before serves; `gone` while there is nothing to serve.
    pub state: String,
    pub since: Timestamp,
    /// Why, in words that show nothing of it.
    pub why: String,
}

/// How the archive is. Counts are since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ArchiveJson {
    /// `well`; `waiting` while it takes nothing; `open` while its breaker is, and events are left out.
    pub state: String,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// Events that were written.
    pub archived: u64,
    /// Events that were left out.
    pub skipped: u64,
    /// How long ago the oldest event was accepted that is not in it yet, in milliseconds; 0 if all are.
    pub behind_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
}

/// How a schedule is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScheduleStatus {
    /// The source's name; none for times at which dead letters are brought back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The type of its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    pub cron: String,
    pub zone: String,
    /// The latest fire that is durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_fire: Option<Timestamp>,
    /// The same as clocks of the zone show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_fire_local: Option<String>,
    /// Fires that are due and not durable.
    pub waiting: u64,
    /// Missed fires that were caught up.
    pub caught_up: u64,
    /// Missed fires that were not.
    pub lost: u64,
    /// Why the last try failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// How a queue is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServiceStatus {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub waiting: u64,
    pub delivered: u64,
    pub dead: u64,
    /// Since when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// The rule book does not know it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Deliveries that wait though no row takes them any more, with those behind them in their sessions.
    #[serde(default)]
    pub without_rule: u64,
    /// How it is, as `/v1/services` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthWord>,
    /// Why it is judged so, without the times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Since when that is so, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_since: Option<Timestamp>,
    /// Until when that is so, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_until: Option<Timestamp>,
}

impl ServiceStatus {
    /// The service, with its channel if it is one's.
    pub(crate) fn name(&self) -> String {
        match &self.channel {
            Some(channel) => format!("{}/{channel}", self.service),
            None => self.service.clone(),
        }
    }
}

/// How a dependency is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyStatus {
    pub name: String,
    /// `closed`, `open` or `half-open`.
    pub breaker: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    pub in_flight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
}

/// That it works.
#[derive(Serialize, ToSchema)]
pub(crate) struct HealthJson {
    #[schema(pattern = "^ok$")]
    status: String,
}
