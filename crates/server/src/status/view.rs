//! From the engine and the store to the status JSON.

use std::collections::BTreeMap;

use redrive::stale::Ailing;
use redrive_core::archive::Standing;
use redrive_core::book::RuleBook;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::replay::ReplayId;
use redrive_core::schedule::plan::Act;
use redrive_node::archive::archivist::ArchiveStatus;
use redrive_node::runtime::{Node, ScheduleView, Snapshot};
use redrive_node::store::letter::{LetterFilter, ReplayView};
use redrive_node::store::{Counts, QueueCounts, Reader, StoreError};

use crate::access::caller::ApiCaller;
use crate::api::error::ApiError;
use crate::breakers::handlers::declared;
use crate::replays;
use crate::status::json::{
    ArchiveJson, DependencyStatus, ScheduleStatus, ServiceStatus, Status, UnavailableJson,
};

/// Replays that are read at once to find the open ones.
pub(crate) const REPLAYS_PAGE: usize = 500;

/// Held sessions that are counted; whether there are more is told.
const SESSIONS_MAX: usize = 10_000;

pub(crate) fn status_json(node: &Node, snapshot: &Snapshot, counts: &Counts) -> Status {
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
    let dependency = |view: &redrive_core::engine::DependencyView| DependencyStatus {
        name: view.name.to_string(),
        breaker: view.breaker.phase().as_str().to_owned(),
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
pub(crate) fn unavailable_json((name, ailing): (String, Ailing)) -> UnavailableJson {
    let Ailing { state, since, why } = ailing;
    UnavailableJson { name, state: state.as_str().to_owned(), since, why }
}

/// How the archive is.
pub(crate) fn archive_json(status: ArchiveStatus) -> ArchiveJson {
    let ArchiveStatus { standing, archived, left_out, behind, last_error, is_stuck } = status;
    let (state, waits_until) = match standing {
        Standing::Well if is_stuck => ("waiting", None),
        Standing::Well => ("well", None),
        Standing::Waiting { until } => ("waiting", Some(until)),
        Standing::Open => ("open", None),
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
        Act::Emit(emission) => Some(emission),
        Act::BringBack => None,
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
        replays: replays.iter().map(replays::view::replay).collect(),
        ..status
    })
}

/// How many replays are not over.
pub(crate) fn open_replays_of(reader: &dyn Reader) -> Result<u64, StoreError> {
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

    use redrive_core::letters::replay::{Manner, Origin, Pace, ReplayState, Tally, Wave};
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
            pace: Pace { rate: None, concurrency: 1, manner: Manner::Straight },
            origin: Origin::Operator,
            to: None,
            note: None,
            wave: Wave::First,
            tally: Tally::default(),
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
