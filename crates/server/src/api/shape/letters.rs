//! The JSON of dead letters, failure groups, replays and the audit.

use clap::ValueEnum;
use redrive_core::letters::replay::{ReplayState, Wave};
use redrive_core::time::Timestamp;
use redrive_node::store::letter::AuditRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A dead letter in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LetterShown {
    pub id: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub subscription: String,
    /// The dead-letter queue that it belongs to.
    pub name: String,
    pub event_id: String,
    pub event_type: String,
    pub event_source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub category: String,
    /// One of the four words of envelopes.
    pub failure_category: String,
    /// Why it was given up.
    pub code: String,
    /// The last failure's own code.
    pub failure_code: String,
    pub message: String,
    pub tier: String,
    pub fingerprint: String,
    pub attempts: u32,
    pub replays: u32,
    pub died_at: Timestamp,
    pub accepted_at: Timestamp,
    /// The open replay that has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<u64>,
    /// How many wait behind it, if it holds its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// The id that it had elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_as: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LettersFound {
    pub dead_letters: Vec<LetterShown>,
    /// To go on with; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// In which form letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// The whole envelope
    Envelope,
    /// The short form of Redis streams
    Redis,
}

impl Form {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Redis => "redis",
        }
    }
}

/// Letters of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupShown {
    pub fingerprint: String,
    pub count: u64,
    /// Those of them that are poison.
    pub poison: u64,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub category: String,
    pub code: String,
    /// The latest letter's.
    pub message: String,
    /// The latest letter.
    pub sample: String,
    pub services: Vec<QueueCount>,
    pub event_types: Vec<TypeCount>,
    pub trend: Trend,
}

/// How many letters a service or a channel has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueueCount {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub count: u64,
}

/// How many letters an event type has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TypeCount {
    #[serde(rename = "type")]
    pub event_type: String,
    pub count: u64,
}

/// Deaths over the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Trend {
    /// The span of one count.
    pub span_seconds: u64,
    /// The oldest first; the last one still goes on.
    pub counts: Vec<u64>,
}

/// The causes there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupsFound {
    pub groups: Vec<GroupShown>,
}

/// A replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayShown {
    pub id: u64,
    pub state: ReplayState,
    /// Which letters, in words.
    pub what: String,
    /// Where they go, if not where they came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Letters a second, at most.
    #[schema(required)]
    pub rate: Option<f64>,
    /// Letters that may be on their way at once.
    pub concurrency: u32,
    pub canary: bool,
    /// How far the canary has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<Wave>,
    /// Who began it.
    pub origin: OriginShown,
    pub total: u64,
    pub sent: u64,
    pub delivered: u64,
    /// Failed again, and are poison unless the rule book gives them more tries.
    pub failed: u64,
    /// Stay as they are: one before them in their session failed, or they are no longer dead.
    pub left: u64,
    pub in_flight: u64,
    /// Not sent yet.
    pub waiting: u64,
    /// Matched, and belonged to other replays.
    pub claimed_by_others: u64,
    /// Matched, and are left alone for being poison; told to whoever begins it, and not later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poison_left: Option<u64>,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// Why it has stopped by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopShown>,
}

/// Who began a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OriginShown {
    /// A person.
    Operator,
    /// The rule book, when a dependency was well again.
    Automatic,
}

/// What made a replay stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StopShown {
    /// What the letter failed of.
    pub fingerprint: String,
    /// With which letter.
    pub delivery: String,
}

/// A list of replays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplaysFound {
    pub replays: Vec<ReplayShown>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a replay would come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SurveyShown {
    pub letters: u64,
    /// Sessions that the letters are of.
    pub sessions: u64,
    pub by_cause: Vec<CauseShown>,
    pub by_target: Vec<QueueCount>,
    /// At the rate that was given; null without one.
    #[schema(required)]
    pub estimated_seconds: Option<f64>,
    /// Letters that match and belong to open replays.
    pub claimed: Vec<ClaimShown>,
    /// Letters that match but for being poison.
    pub poison_left: u64,
    /// Sessions that they hold.
    pub holding: u64,
    /// Why it could not begin, if it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_because: Option<String>,
}

/// A cause among the letters of a survey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CauseShown {
    pub fingerprint: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Letters of another replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClaimShown {
    pub replay: u64,
    pub count: u64,
}

/// A letter that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Skipped {
    pub id: String,
    /// How many waited behind it and go on now.
    pub released: u64,
}

/// A letter that was sent with other content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Edited {
    /// The new event.
    pub event_id: String,
    pub receipt: String,
    pub delivery: String,
    /// The letter whose place it takes.
    pub supersedes: String,
}

/// What a purge came to so far, or would come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PurgeShown {
    /// Letters that are gone, or would be.
    pub deleted: u64,
    /// Letters that stay since a replay has claimed them.
    pub claimed: u64,
    pub dry_run: bool,
    /// Of a dry run: sessions that would go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<u64>,
    /// Of a dry run: the moment that it looked at. A purge that says it leaves alone what died since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_until: Option<Timestamp>,
    /// Whether that is all; a long purge tells how far it is.
    pub done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Letters that were taken from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Imported {
    pub imported: u64,
    /// Those that were there already.
    pub known: u64,
}

/// A session that a dead letter holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionShown {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub session: String,
    /// The letter that holds it, dead or being replayed.
    pub letter: String,
    pub event_type: String,
    pub since: Timestamp,
    /// How many wait behind it.
    pub behind: u64,
}

/// The sessions that are held, those held for longest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionsFound {
    pub held_sessions: Vec<HeldSessionShown>,
}

/// What was done by hand or by the rule book, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditFound {
    pub audit: Vec<AuditRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
