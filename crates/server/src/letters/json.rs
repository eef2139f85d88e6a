//! The JSON of dead letters.

use clap::ValueEnum;
use redrive_core::letters::envelope::{Envelope, RedisLetter};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A dead letter in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LetterJson {
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
pub(crate) struct LettersResponse {
    pub dead_letters: Vec<LetterJson>,
    /// To go on with; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// In which form letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LetterFormat {
    /// The whole envelope
    Envelope,
    /// The short form of Redis streams
    Redis,
}

impl LetterFormat {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Redis => "redis",
        }
    }
}

/// Letters of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureGroupJson {
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
    pub trend: GroupTrend,
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
pub(crate) struct GroupTrend {
    /// The span of one count.
    pub span_seconds: u64,
    /// The oldest first; the last one still goes on.
    pub counts: Vec<u64>,
}

/// The causes there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureGroupsResponse {
    pub groups: Vec<FailureGroupJson>,
}

/// A letter that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SkipResponse {
    pub id: String,
    /// How many waited behind it and go on now.
    pub released: u64,
}

/// A letter that was sent with other content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EditResponse {
    /// The new event.
    pub event_id: String,
    pub receipt: String,
    pub delivery: String,
    /// The letter whose place it takes.
    pub supersedes: String,
}

/// What a purge came to so far, or would come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PurgeResponse {
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
pub(crate) struct ImportResponse {
    pub imported: u64,
    /// Those that were there already.
    pub known: u64,
}

/// A session that a dead letter holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionJson {
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
pub(crate) struct HeldSessionsResponse {
    pub held_sessions: Vec<HeldSessionJson>,
}

/// A dead letter in one of its forms.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what the store writes")]
pub(crate) enum LetterDocument {
    Envelope(Box<Envelope>),
    Redis(RedisLetter),
}
