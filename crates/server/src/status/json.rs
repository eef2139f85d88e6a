//! JSON of status and health, built from the engine and the store.

use std::collections::BTreeMap;

use redrive::stale::UnavailableValue;
use redrive_core::alerts::AlertView;
use redrive_core::archive::ArchiveHealth;
use redrive_core::book::RuleBook;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::replay::ReplayId;
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::schedule::plan::ScheduledAction;
use redrive_core::time::Timestamp;
use redrive_node::archive::archivist::ArchiveStatus;
use redrive_node::runtime::{Node, ScheduleView, Snapshot};
use redrive_node::store::letter::{LetterFilter, ReplayView};
use redrive_node::store::{QueueCounts, StoreCounts, StoreError, StoreReader};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::error::ApiError;
use crate::breakers::handlers::declared;
use crate::breakers::json::BreakerState;
use crate::replays;
use crate::replays::json::ReplayJson;
use crate::services::json::HealthWord;
use crate::webhooks::json::SourceStatus;

/// Whether events are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReadinessJson {
    /// `ready`, or `degraded` with problems that do not prevent accepting events.
    #[schema(pattern = "^(ready|degraded)$")]
    pub status: String,
    /// Current problems.
    pub degraded: Vec<DegradedJson>,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DegradedJson {
    /// Its code: `breaker-open`, `secret-stale`, `book-refused` …
    pub what: String,
    /// In words, with names for callers who may read everything.
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// State of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Status {
    pub version: String,
    pub started_at: Timestamp,
    /// Hash of the rule book, 16 hexadecimal digits.
    pub book: String,
    pub services: Vec<ServiceStatus>,
    pub dependencies: Vec<DependencyStatus>,
    pub calls_in_flight: usize,
    /// The services covered, if the key is bound to some; server-wide figures are absent then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_to: Vec<String>,
    /// Events of the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Unrouted events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrouted: Option<u64>,
    /// Deliveries in the store that the engine does not know; always 0.
    pub stranded: u64,
    /// Dead letters that failed a replay, or do not parse.
    #[serde(default)]
    pub poison: u64,
    /// Sessions blocked by a dead letter.
    #[serde(default)]
    pub held_sessions: u64,
    /// Deliveries that wait behind those.
    #[serde(default)]
    pub held_deliveries: u64,
    /// Whether the counts of blocked sessions are lower bounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_at_least: bool,
    /// Open replays.
    #[serde(default)]
    pub replays: Vec<ReplayJson>,
    /// Calls by source and answer.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
    /// State of the archive, if configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveJson>,
    /// State of schedules.
    #[serde(default)]
    pub schedules: Vec<ScheduleStatus>,
    /// Secrets that cannot be fetched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<UnavailableJson>,
    /// The token issuer, if its keys cannot be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<UnavailableJson>,
    /// Current problems, as in `/readyz`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<DegradedJson>,
    /// Firing alerts, in the order of the rule book.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firing: Vec<AlertView>,
}

/// A value that cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct UnavailableJson {
    /// Name of the secret in the rule book, or the token issuer.
    pub name: String,
    /// `stale` while an earlier value is used; `gone` without one.
    pub state: String,
    pub since: Timestamp,
    /// The reason, without the secret.
    pub why: String,
}

/// State of the archive. Counts are since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ArchiveJson {
    /// `well`; `waiting` while writes fail; `open` while its breaker is open and events are skipped.
    pub state: String,
    /// Time of the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// Events written.
    pub archived: u64,
    /// Events skipped.
    pub skipped: u64,
    /// Age of the oldest event not archived yet, in milliseconds; 0 if none.
    pub behind_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
}

/// State of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScheduleStatus {
    /// Name of the source; absent for scheduled replays of dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    pub cron: String,
    pub zone: String,
    /// The latest durable fire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_fire: Option<Timestamp>,
    /// The same in the schedule's time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_fire_local: Option<String>,
    /// Fires due and not durable yet.
    pub waiting: u64,
    /// Missed fires caught up.
    pub caught_up: u64,
    /// Missed fires skipped.
    pub lost: u64,
    /// Error of the last try, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// State of a queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServiceStatus {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub waiting: u64,
    pub delivered: u64,
    pub dead: u64,
    /// When it was paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Removed from the rule book.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Deliveries that no row matches any more, and those behind them.
    #[serde(default)]
    pub without_rule: u64,
    /// Health, as in `/v1/services`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthWord>,
    /// Why it has this health, without times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Start of that condition, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_since: Option<Timestamp>,
    /// End of that condition, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_until: Option<Timestamp>,
}

impl ServiceStatus {
    /// `service` or `service/channel`.
    pub(crate) fn name(&self) -> String {
        match &self.channel {
            Some(channel) => format!("{}/{channel}", self.service),
            None => self.service.clone(),
        }
    }
}

/// State of a dependency.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyStatus {
    pub name: String,
    /// `closed`, `open`, `half-open`, or `none` without a breaker.
    pub breaker: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    pub in_flight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
}

impl DependencyStatus {
    pub(crate) fn is_broken(&self) -> bool {
        !matches!(self.breaker.as_str(), "closed" | "none")
    }
}

/// The server is alive.
#[derive(Serialize, ToSchema)]
pub(crate) struct HealthJson {
    #[schema(pattern = "^ok$")]
    status: String,
}

/// Page size when searching for open replays.
pub(crate) const REPLAYS_PAGE: usize = 500;

/// More are reported as a lower bound.
const SESSIONS_MAX: usize = 10_000;

pub(crate) fn status_json(node: &Node, snapshot: &Snapshot, counts: &StoreCounts) -> Status {
    let mut services: BTreeMap<QueueName, ServiceStatus> = BTreeMap::new();
    let status = |name: &QueueName, counts: QueueCounts| ServiceStatus {
        service: name.service.to_string(),
        channel: name.channel.as_ref().map(ToString::to_string),
        waiting: counts.waiting,
        delivered: counts.delivered,
        dead: counts.dead,
        without_rule: counts.without_rule,
        ..ServiceStatus::default()
    };
    for (name, counts) in &counts.queues {
        services.insert(name.clone(), status(name, *counts));
    }
    for queue in &snapshot.queues {
        let entry = services.entry(QueueName::clone(&queue.name));
        let service = entry.or_insert_with(|| status(&queue.name, QueueCounts::default()));
        match queue.held {
            Some(HeldQueue::Paused { since }) => service.paused_since = Some(since),
            Some(HeldQueue::Removed) => {
                service.removed = true;
                service.without_rule = 0;
            }
            None => {}
        }
    }
    let declared = declared(&node.book());
    let breaker = |view: &redrive_core::engine::DependencyView| {
        let has_none = declared.get(&view.name).is_some_and(|declared| declared.settings.is_none());
        match view.breaker.phase() {
            BreakerPhase::Closed if has_none => BreakerState::None.as_str(),
            phase => phase.as_str(),
        }
    };
    let dependency = |view: &redrive_core::engine::DependencyView| DependencyStatus {
        name: view.name.to_string(),
        breaker: breaker(view).to_owned(),
        open_until: view.breaker.open_until(),
        in_flight: view.in_flight,
        held_until: view.held_until,
    };
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: node.started_at(),
        book: format!("{:016x}", node.book().hash()),
        services: services.into_values().collect(),
        dependencies: snapshot.dependencies.iter().map(dependency).collect(),
        calls_in_flight: snapshot.calls,
        events: Some(counts.events),
        unrouted: Some(counts.unrouted),
        schedules: node.schedules().iter().map(schedule_json).collect(),
        ..Status::default()
    }
}

/// The part that concerns some services: dependencies that their rules need, with the calls of all services.
pub(crate) fn part_of(status: Status, services: &[String], book: &RuleBook) -> Status {
    let is_theirs = |service: &str| services.iter().any(|name| name == service);
    let mut needed = declared(book);
    needed.retain(|_, declared| declared.queues.iter().any(|queue| is_theirs(queue.service.as_str())));
    let mut dependencies = status.dependencies;
    dependencies.retain(|dependency| needed.keys().any(|name| name.as_str() == dependency.name));
    let mut of_theirs = status.services;
    of_theirs.retain(|status| is_theirs(&status.service));
    Status {
        bound_to: services.to_vec(),
        services: of_theirs,
        calls_in_flight: dependencies.iter().map(|dependency| dependency.in_flight as usize).sum(),
        dependencies,
        events: None,
        unrouted: None,
        stranded: 0,
        sources: Vec::new(),
        archive: None,
        schedules: Vec::new(),
        secrets: Vec::new(),
        issuer: None,
        ..status
    }
}

pub(crate) fn unavailable_json((name, problem): (String, UnavailableValue)) -> UnavailableJson {
    let UnavailableValue { state, since, why } = problem;
    UnavailableJson { name, state: state.as_str().to_owned(), since, why }
}

pub(crate) fn archive_json(status: ArchiveStatus) -> ArchiveJson {
    let ArchiveStatus { standing, archived, left_out, behind, last_error, is_stuck } = status;
    let (state, waits_until) = match standing {
        ArchiveHealth::Well if is_stuck => ("waiting", None),
        ArchiveHealth::Well => ("well", None),
        ArchiveHealth::Waiting { until } => ("waiting", Some(until)),
        ArchiveHealth::Open => ("open", None),
    };
    let (last_error_at, last_error) = last_error.unzip();
    ArchiveJson {
        state: state.to_owned(),
        waits_until,
        archived,
        skipped: left_out,
        behind_ms: behind.map_or(0, |behind| u64::try_from(behind.as_millis()).unwrap_or(u64::MAX)),
        last_error,
        last_error_at,
    }
}

fn schedule_json(view: &ScheduleView) -> ScheduleStatus {
    let schedule = &view.plan.schedule;
    let emission = match &view.plan.act {
        ScheduledAction::Emit(emission) => Some(emission),
        ScheduledAction::BringBack => None,
    };
    ScheduleStatus {
        name: emission.map(|emission| emission.name.clone()),
        event_type: emission.map(|emission| emission.event_type.to_string()),
        cron: schedule.cron().to_owned(),
        zone: schedule.zone().to_owned(),
        last_fire: view.last_fire,
        next_fire: view.next_fire,
        next_fire_local: view.next_fire.map(|fire| schedule.local(fire).local),
        waiting: view.waiting,
        caught_up: view.caught_up,
        lost: view.lost,
        trouble: view.trouble.clone(),
    }
}

/// Adds figures of the dead letters that the caller may see.
pub(crate) async fn with_letters(
    node: &Node,
    caller: &ApiCaller,
    status: Status,
) -> Result<Status, ApiError> {
    let (kinds, mut held, mut replays) = node
        .read(|reader| {
            let poison = LetterFilter { tier: Some(Tier::Poison), ..LetterFilter::default() };
            let replays = open_replays(|before| reader.replays(before, REPLAYS_PAGE))?;
            Ok((reader.kinds(&poison)?, reader.held_sessions(SESSIONS_MAX)?, replays))
        })
        .await?;
    let held_at_least = held.len() == SESSIONS_MAX;
    held.retain(|session| caller.sees(session.queue.service.as_str()));
    replays.retain(|replay| replays::handlers::sees(caller, replay));
    let poison = kinds
        .iter()
        .filter(|kind| kind.tier == Tier::Poison && caller.sees(kind.queue.service.as_str()))
        .map(|kind| kind.count);
    Ok(Status {
        poison: poison.sum(),
        held_sessions: held.len() as u64,
        held_deliveries: held.iter().map(|session| session.behind).sum(),
        held_at_least,
        replays: replays.iter().map(replays::json::replay).collect(),
        ..status
    })
}

pub(crate) fn open_replays_of(reader: &dyn StoreReader) -> Result<u64, StoreError> {
    Ok(open_replays(|before| reader.replays(before, REPLAYS_PAGE))?.len() as u64)
}

/// Latest first.
pub(crate) fn open_replays<E>(
    page: impl Fn(Option<ReplayId>) -> Result<Vec<ReplayView>, E>,
) -> Result<Vec<ReplayView>, E> {
    let mut open = Vec::new();
    let mut before = None;
    loop {
        let found = page(before)?;
        before = found.last().map(|last| last.id).filter(|_| found.len() == REPLAYS_PAGE);
        open.extend(found.into_iter().filter(|replay| replay.state.is_open()));
        if before.is_none() {
            return Ok(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use redrive_core::letters::replay::{
        Manner, ReplayOrigin, ReplayPace, ReplayState, ReplayTally, ReplayWave,
    };
    use redrive_core::time::Timestamp;

    use super::*;

    use redrive_core::letters::replay::ReplayId;
    use redrive_node::store::letter::ReplayView;

    #[test]
    fn an_open_replay_is_found_however_many_came_after_it() {
        let replay = |id: u64, state| ReplayView {
            id: ReplayId(id),
            state,
            what: "all dead letters".to_owned(),
            service: None,
            pace: ReplayPace { rate: None, concurrency: 1, manner: Manner::Straight },
            origin: ReplayOrigin::Operator,
            to: None,
            note: None,
            wave: ReplayWave::First,
            tally: ReplayTally::default(),
            claimed_by_others: 0,
            created_at: Timestamp::EPOCH,
            changed_at: Timestamp::EPOCH,
            stop: None,
        };
        let page = REPLAYS_PAGE as u64;
        for count in [0, 1, 2, page - 1, page, page + 1, 2 * page, 2 * page + 2] {
            let all: Vec<ReplayView> = (1..=count)
                .map(|id| replay(id, if id <= 2 { ReplayState::Paused } else { ReplayState::Done }))
                .collect();
            let latest_first = |before: Option<ReplayId>| {
                let earlier =
                    all.iter().rev().filter(|replay| before.is_none_or(|before| replay.id < before));
                Ok::<_, Infallible>(earlier.take(REPLAYS_PAGE).cloned().collect())
            };
            let found = open_replays(latest_first).expect("it can be read");
            let ids: Vec<u64> = found.iter().map(|replay| replay.id.0).collect();
            let expected: Vec<u64> = (1..=count.min(2)).rev().collect();
            assert_eq!(ids, expected, "of {count}");
        }
    }
}
