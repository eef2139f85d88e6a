//! The JSON of the API: what the server answers and what our own commands read, in one place.

pub(crate) mod alerts;
pub(crate) mod book;
pub(crate) mod dependencies;
pub(crate) mod health;
pub(crate) mod hooks;
pub(crate) mod keys;
pub(crate) mod letters;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod removed;
pub(crate) mod services;
pub(crate) mod simulate;
pub(crate) mod wanted;
pub(crate) mod whoami;

use redrive_core::alerts::AlertView;
use redrive_core::engine::story::Story;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One event that is safe, as the sender is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Accepted {
    /// The event's id.
    pub id: String,
    /// To find it again by.
    pub receipt: String,
    /// Whether it came before.
    pub duplicate: bool,
    /// How many services get it; 0 is recorded as unrouted.
    pub deliveries: u32,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptedBatch {
    /// In the order of the batch.
    pub events: Vec<Accepted>,
}

/// An event and its deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventShown {
    pub receipt: String,
    pub received_at: Timestamp,
    /// Nobody wanted it.
    pub unrouted: bool,
    /// The event as CloudEvents JSON.
    pub event: serde_json::Value,
    pub deliveries: Vec<DeliveryShown>,
}

/// The answer to a question for events: several sources may have used one id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventsFound {
    pub events: Vec<EventShown>,
}

/// A delivery.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryShown {
    pub id: String,
    /// What targets know it by.
    pub webhook_id: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub subscription: String,
    pub state: StateShown,
    /// What it waits for; none once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitShown>,
    /// The dead letter that holds its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Another of its session comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<DeathShown>,
    pub event_id: String,
    pub event_source: String,
    pub event_type: String,
    pub receipt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub accepted_at: Timestamp,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Timestamp>,
    /// How many attempts have ended.
    pub attempts: u32,
    /// How often it was replayed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replays: u32,
    /// The replay that sends it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
    /// The receipt of the event whose dead letter was edited to make this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// The receipt of the event that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// The attempts, the first one first; only where one delivery is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stories: Vec<StoryShown>,
}

/// What a delivery waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaitShown {
    /// For programs.
    pub on: WaitCause,
    /// In words, without the times.
    pub because: String,
    /// The dependency that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// Since when it is so, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until when it is so, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl WaitShown {
    pub(crate) const fn new(on: WaitCause, because: String) -> Self {
        Self { on, because, dependency: None, since: None, until: None }
    }
}

/// The kinds of things that a delivery waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WaitCause {
    /// Its service is paused.
    Pause,
    /// The rule book has the service no more.
    ServiceRemoved,
    /// No row of the service takes the event any more.
    RuleRemoved,
    /// A dead letter before it in its session.
    Letter,
    /// Another event of its session.
    Session,
    /// The circuit breaker of a dependency.
    Breaker,
    /// A dependency that asked callers to wait.
    RetryAfter,
    /// The time of its next attempt.
    Retry,
    /// The retry budget of a dependency.
    RetryBudget,
    /// The ramp-up of a dependency.
    RampUp,
    /// The rate of calls to a dependency.
    Rate,
    /// The calls in flight to a dependency.
    InFlight,
    /// The service's share of all calls in flight.
    Share,
    /// The store, which takes no writes.
    Store,
    /// A delivery that is tried alone after a crash.
    CrashCheck,
    /// The server, which is shutting down.
    Shutdown,
    /// Its turn.
    Turn,
    /// The end of an attempt that is running.
    Running,
    /// The record of an attempt that has ended.
    Settling,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An attempt, with the line of the book as it read then.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StoryShown {
    #[serde(flatten)]
    pub story: Story,
    /// The text of the line that said what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaction_line: Option<String>,
    /// The text of the line of `classify` that said what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classified_line: Option<String>,
}

/// Why a delivery was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeathShown {
    pub category: String,
    /// Why it was given up.
    pub code: String,
    /// The last failure's own code.
    pub failure_code: String,
    pub tier: String,
    pub message: String,
    pub fingerprint: String,
}

/// The states of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StateShown {
    Pending,
    Retrying,
    Held,
    /// A dead letter that a replay sends again.
    Replaying,
    Delivered,
    Dead,
    Skipped,
    Purged,
    Superseded,
}

/// A list of deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveriesFound {
    pub deliveries: Vec<DeliveryShown>,
    /// To go on with; none at the end. There may be more, even where nothing was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many deliveries were looked at for it: at most 20,000.
    #[serde(default)]
    pub looked_at: u64,
}

/// What `redrive backup` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub(crate) struct BackupWanted {
    /// A folder of the server's machine, as an absolute path.
    pub folder: String,
}

/// One line of a copy's progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BackupStep {
    pub pages: u64,
    pub remaining: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
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
    pub replays: Vec<letters::ReplayShown>,
    /// How the calls of sources were answered.
    #[serde(default)]
    pub sources: Vec<hooks::SourceStatus>,
    /// How the archive is, if the rule book has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveShown>,
    /// What the rule book wants done at times.
    #[serde(default)]
    pub schedules: Vec<ScheduleStatus>,
    /// Secrets that cannot be fetched; none when all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<AilingShown>,
    /// The issuer of tokens, if its keys cannot be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<AilingShown>,
    /// What is wrong, as `/readyz` says it; empty when all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<health::Degraded>,
    /// Alerts that fire, in the order of the book.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firing: Vec<AlertView>,
}

/// Something that cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AilingShown {
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
pub(crate) struct ArchiveShown {
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
    pub health: Option<services::HealthWord>,
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
    /// `closed`, `open`, `half-open`, or `none` where the rule book has no breaker for it.
    pub breaker: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    pub in_flight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
}

impl DependencyStatus {
    /// Whether its breaker holds calls back.
    pub(crate) fn is_broken(&self) -> bool {
        !matches!(self.breaker.as_str(), "closed" | "none")
    }
}

/// Any error: `{"error":{"code","message","details"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub error: ErrorShown,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorShown {
    pub code: String,
    pub message: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub details: serde_json::Map<String, serde_json::Value>,
}
