//! JSON of replays, built from stored records.

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
    /// Selected letters, in words.
    pub what: String,
    /// Target service, if not the original one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Maximum letters per second.
    #[schema(required)]
    pub rate: Option<f64>,
    /// Maximum letters in flight.
    pub concurrency: u32,
    pub canary: bool,
    /// Progress of the canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<ReplayWave>,
    /// Who started it.
    pub origin: ReplayOriginJson,
    pub total: u64,
    pub sent: u64,
    pub delivered: u64,
    /// Failed again; now poison unless the rule book allows more replays.
    pub failed: u64,
    /// Skipped: an earlier letter of their session failed, or they are no longer dead.
    pub left: u64,
    pub in_flight: u64,
    /// Not sent yet.
    pub waiting: u64,
    /// Matched, but claimed by other replays.
    pub claimed_by_others: u64,
    /// Matched, but skipped as poison; only in the answer that starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poison_left: Option<u64>,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// Why it stopped by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<ReplayStopJson>,
}

/// Who started a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReplayOriginJson {
    /// A person.
    Operator,
    /// The rule book, when a dependency recovered.
    Automatic,
}

/// What stopped a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayStopJson {
    /// Fingerprint of the failure.
    pub fingerprint: String,
    /// The letter that failed.
    pub delivery: String,
}

/// A list of replays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplaysResponse {
    pub replays: Vec<ReplayJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Preview of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplaySurveyJson {
    pub letters: u64,
    /// Sessions of the letters.
    pub sessions: u64,
    pub by_cause: Vec<ReplayCauseJson>,
    pub by_target: Vec<QueueCount>,
    /// At the given rate; null without one.
    #[schema(required)]
    pub estimated_seconds: Option<f64>,
    /// Matching letters claimed by open replays.
    pub claimed: Vec<ReplayClaimJson>,
    /// Matching letters skipped as poison.
    pub poison_left: u64,
    /// Sessions that they block.
    pub holding: u64,
    /// Why it cannot start, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_because: Option<String>,
}

/// A cause among the previewed letters.
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
