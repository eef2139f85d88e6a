//! The JSON of status and health, and how it is made from the engine and the store.

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
    /// `closed`, `open`, `half-open`, or `none` without a breaker.
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

/// That it works.
#[derive(Serialize, ToSchema)]
pub(crate) struct HealthJson {
    #[schema(pattern = "^ok$")]
    status: String,
}

/// Replays that are read at once to find the open ones.
pub(crate) const REPLAYS_PAGE: usize = 500;

/// Held sessions that are counted; whether there are more is told.
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

/// What of it concerns some services. Dependencies are theirs if one of their rules needs them, whoever else
/// does; calls are those of all of them together.
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

/// Something that cannot be fetched.
pub(crate) fn unavailable_json((name, ailing): (String, UnavailableValue)) -> UnavailableJson {
    let UnavailableValue { state, since, why } = ailing;
    UnavailableJson { name, state: state.as_str().to_owned(), since, why }
}

/// How the archive is.
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

/// Adds what dead letters are up to, of those that the caller may see.
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

/// How many replays are not over.
pub(crate) fn open_replays_of(reader: &dyn StoreReader) -> Result<u64, StoreError> {
    Ok(open_replays(|before| reader.replays(before, REPLAYS_PAGE))?.len() as u64)
}

/// All replays that are not over, the latest first; the store keeps only so many of the others.
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
