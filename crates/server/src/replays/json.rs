//! The JSON of replays, and how it is made from stored ones.

use std::collections::BTreeMap;

use redrive_core::engine::QueueName;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::{Manner, ReplayOrigin, ReplayState, ReplayWave};
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;
use redrive_node::store::letter::{ReplayView, SelectionSurvey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::letters::json::{QueueCount, queue_count};

/// A replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayJson {
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
    pub wave: Option<ReplayWave>,
    /// Who began it.
    pub origin: ReplayOriginJson,
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
    pub stop: Option<ReplayStopJson>,
}

/// Who began a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReplayOriginJson {
    /// A person.
    Operator,
    /// The rule book, when a dependency was well again.
    Automatic,
}

/// What made a replay stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayStopJson {
    /// What the letter failed of.
    pub fingerprint: String,
    /// With which letter.
    pub delivery: String,
}

/// A list of replays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplaysResponse {
    pub replays: Vec<ReplayJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a replay would come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplaySurveyJson {
    pub letters: u64,
    /// Sessions that the letters are of.
    pub sessions: u64,
    pub by_cause: Vec<ReplayCauseJson>,
    pub by_target: Vec<QueueCount>,
    /// At the rate that was given; null without one.
    #[schema(required)]
    pub estimated_seconds: Option<f64>,
    /// Letters that match and belong to open replays.
    pub claimed: Vec<ReplayClaimJson>,
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
pub(crate) struct ReplayCauseJson {
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
pub(crate) struct ReplayClaimJson {
    pub replay: u64,
    pub count: u64,
}

pub(crate) fn replay(view: &ReplayView) -> ReplayJson {
    let tally = view.tally;
    ReplayJson {
        id: view.id.0,
        state: view.state,
        what: view.what.clone(),
        to: view.to.as_ref().map(ToString::to_string),
        note: view.note.clone(),
        rate: view.pace.rate.map(Rate::as_per_second),
        concurrency: view.pace.concurrency,
        canary: view.pace.manner == Manner::Canary,
        wave: (view.pace.manner == Manner::Canary && view.wave != ReplayWave::None).then_some(view.wave),
        origin: match view.origin {
            ReplayOrigin::Operator => ReplayOriginJson::Operator,
            ReplayOrigin::Automatic { .. } => ReplayOriginJson::Automatic,
        },
        total: tally.total,
        sent: tally.sent,
        delivered: tally.delivered,
        failed: tally.failed,
        left: tally.left,
        in_flight: tally.in_flight(),
        waiting: tally.waiting(),
        claimed_by_others: view.claimed_by_others,
        poison_left: None,
        created_at: view.created_at,
        changed_at: view.changed_at,
        stop: view.stop.map(|stop| ReplayStopJson {
            fingerprint: stop.fingerprint.to_string(),
            delivery: stop.delivery.to_string(),
        }),
    }
}

/// What a replay would come to.
pub(crate) fn survey(
    survey: &SelectionSurvey,
    messages: &BTreeMap<Fingerprint, String>,
    rate: Option<Rate>,
    to: Option<&QueueName>,
) -> ReplaySurveyJson {
    let mut by_cause: Vec<ReplayCauseJson> = survey
        .by_cause
        .iter()
        .map(|((fingerprint, queue), count)| {
            let QueueCount { service, channel, count } = queue_count(queue, *count);
            let message = messages.get(fingerprint).cloned();
            ReplayCauseJson { fingerprint: fingerprint.to_string(), service, channel, count, message }
        })
        .collect();
    by_cause.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    let mut targets: BTreeMap<&QueueName, u64> = BTreeMap::new();
    for ((queue, _), count) in &survey.by_type {
        *targets.entry(to.unwrap_or(queue)).or_default() += count;
    }
    ReplaySurveyJson {
        letters: survey.letters,
        sessions: survey.sessions,
        by_cause,
        by_target: targets.into_iter().map(|(queue, count)| queue_count(queue, count)).collect(),
        estimated_seconds: rate.map(|rate| survey.letters as f64 / rate.as_per_second()),
        claimed: survey
            .claimed
            .iter()
            .map(|(id, count)| ReplayClaimJson { replay: id.0, count: *count })
            .collect(),
        poison_left: survey.poison_left,
        holding: survey.holding,
        refused_because: None,
    }
}
