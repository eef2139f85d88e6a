//! From stored replays to their JSON.

use std::collections::BTreeMap;

use redrive_core::engine::QueueName;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::{Manner, Origin, Wave};
use redrive_core::text::Rate;
use redrive_node::store::letter::{ReplayView, Survey};

use crate::letters::json::QueueCount;
use crate::letters::view::queue_count;
use crate::replays::json::{
    ReplayCauseJson, ReplayClaimJson, ReplayJson, ReplayOriginJson, ReplayStopJson, ReplaySurveyJson,
};

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
        wave: (view.pace.manner == Manner::Canary && view.wave != Wave::None).then_some(view.wave),
        origin: match view.origin {
            Origin::Operator => ReplayOriginJson::Operator,
            Origin::Automatic { .. } => ReplayOriginJson::Automatic,
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
    survey: &Survey,
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
