//! Dependencies: state and history of each breaker, and manual trip and reset.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::book::RuleBook;
use redrive_core::engine::{DependencyView, QueueName};
use redrive_core::figures::{DependencyFigures, Sketch};
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{BreakerPhase, BreakerSettings};
use redrive_core::policy::catalog::DependencyKind;
use redrive_core::text::show_duration;
use redrive_lab::report;
use redrive_node::runtime::{BreakerChange, BreakerHistory, Snapshot};

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::request::{JsonBody, NoteRequest};
use crate::api::{App, run_to_end};
use crate::breakers::json::{BreakerChangeJson, BreakerState, DependenciesResponse, DependencyJson};

/// A dependency as the rule book defines it.
pub(crate) struct DeclaredDependency {
    pub kind: DependencyKind,
    /// `None` without a breaker.
    pub settings: Option<BreakerSettings>,
    /// Queues that need it.
    pub queues: BTreeSet<QueueName>,
}

/// Every dependency of a rule book, declared or implied by a target.
pub(crate) fn declared(book: &RuleBook) -> BTreeMap<DependencyName, DeclaredDependency> {
    let sections = book.sections();
    let mut all: BTreeMap<DependencyName, DeclaredDependency> = BTreeMap::new();
    for (name, entry) in &sections.dependencies {
        let declared = DeclaredDependency { kind: entry.kind, settings: None, queues: BTreeSet::new() };
        all.insert(name.clone(), declared);
    }
    for (service, channel, row) in sections.rows() {
        let resolved = sections.resolve(service, channel, row);
        let kind = resolved.kind;
        let entry = all.entry(resolved.rule.dependency.clone());
        let declared =
            entry.or_insert_with(|| DeclaredDependency { kind, settings: None, queues: BTreeSet::new() });
        let channel = channel.map(|channel| channel.name.clone());
        declared.queues.insert(QueueName { service: service.name.clone(), channel });
        if declared.settings.is_none() {
            declared.settings = resolved.rule.breaker.map(|breaker| breaker.settings);
        }
    }
    all
}

/// An unused breaker is closed.
pub(crate) fn state_of(settings: Option<&BreakerSettings>, view: Option<&DependencyView>) -> BreakerState {
    match settings {
        None => BreakerState::None,
        Some(_) => phase(view.map_or(BreakerPhase::Closed, |view| view.breaker.phase())),
    }
}

/// Milliseconds with three decimals.
pub(crate) fn quantile_ms(took: &Sketch, share: f64) -> Option<f64> {
    took.quantile(share).map(|time| (time.as_secs_f64() * 1e6).round() / 1e3)
}

/// Dependencies and their circuit breakers.
#[utoipa::path(
    get, path = "/v1/dependencies", operation_id = "listDependencies", tag = "operating",
    responses((status = 200, description = "all dependencies in the rule book, by name", body = DependenciesResponse))
)]
pub(crate) async fn list(app: App, caller: ApiCaller) -> ApiResult {
    let snapshot = app.snapshot().await?;
    let (book, turns) = (app.node.book(), app.node.breaker_history());
    let mut dependencies = Vec::new();
    for (name, mut declared) in declared(&book) {
        declared.queues.retain(|queue| caller.sees(queue.service.as_str()));
        // Bound callers see only dependencies of their services.
        if !caller.is_bound() || !declared.queues.is_empty() {
            dependencies.push(shown(&book, &snapshot, &turns, &name, &declared));
        }
    }
    let found = DependenciesResponse { started_at: Some(app.node.started_at()), dependencies };
    VisibleAddresses::for_caller(&caller, &book).ok(&found)
}

/// Opens a breaker for its usual open time; deliveries wait until it lets probes through.
#[utoipa::path(
    post, path = "/v1/dependencies/{name}/trip", operation_id = "tripBreaker", tag = "operating",
    params(("name" = String, Path, description = "a dependency in the rule book", example = "billing")),
    request_body = NoteRequest,
    responses((status = 200, description = "the dependency after the change", body = DependencyJson))
)]
pub(crate) async fn trip(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    JsonBody(NoteRequest { note }): JsonBody<NoteRequest>,
) -> ApiResult {
    turn(app, caller, &name, note, BreakerAction::Trip).await
}

/// Closes a breaker and clears its failure counts; calls resume at once.
#[utoipa::path(
    post, path = "/v1/dependencies/{name}/reset", operation_id = "resetBreaker", tag = "operating",
    params(("name" = String, Path, description = "a dependency in the rule book", example = "billing")),
    request_body = NoteRequest,
    responses((status = 200, description = "the dependency after the change", body = DependencyJson))
)]
pub(crate) async fn reset(
    app: App,
    caller: ApiCaller,
    PathName(name): PathName,
    JsonBody(NoteRequest { note }): JsonBody<NoteRequest>,
) -> ApiResult {
    turn(app, caller, &name, note, BreakerAction::Reset).await
}

#[derive(Clone, Copy)]
enum BreakerAction {
    Trip,
    Reset,
}

async fn turn(
    app: App,
    caller: ApiCaller,
    name: &str,
    note: Option<String>,
    act: BreakerAction,
) -> ApiResult {
    let name = guarded(&app.node.book(), name)?;
    run_to_end(async move {
        match act {
            BreakerAction::Trip => app.node.trip(name.clone(), note, &caller.by()).await?,
            BreakerAction::Reset => app.node.reset(name.clone(), note, &caller.by()).await?,
        }
        dependency_now(&app, &caller, &name).await
    })
    .await
}

fn guarded(book: &RuleBook, name: &str) -> Result<DependencyName, ApiError> {
    let all = declared(book);
    let Some((name, declared)) = all.iter().find(|(known, _)| known.as_str() == name) else {
        let names: Vec<&str> = all.keys().map(DependencyName::as_str).collect();
        let message = format!("no dependency `{name}` in the rule book");
        return Err(ApiError::new(ApiCode::DependencyNotFound, message).with("dependencies", names));
    };
    if declared.settings.is_none() {
        let message = format!("the dependency `{name}` has no circuit breaker");
        return Err(ApiError::new(ApiCode::NoBreaker, message));
    }
    Ok(name.clone())
}

async fn dependency_now(app: &App, caller: &ApiCaller, name: &DependencyName) -> ApiResult {
    let (snapshot, book) = (app.snapshot().await?, app.node.book());
    let all = declared(&book);
    // The rule book may have been reloaded meanwhile.
    let declared = all.get(name).ok_or_else(|| {
        ApiError::new(
            ApiCode::DependencyNotFound,
            format!("the dependency `{name}` was removed from the rule book"),
        )
    })?;
    let shown = shown(&book, &snapshot, &app.node.breaker_history(), name, declared);
    VisibleAddresses::for_caller(caller, &book).ok(&shown)
}

fn shown(
    book: &RuleBook,
    snapshot: &Snapshot,
    turns: &BreakerHistory,
    name: &DependencyName,
    declared: &DeclaredDependency,
) -> DependencyJson {
    let view = snapshot.dependencies.iter().find(|view| view.name == *name);
    let nothing = DependencyFigures::default();
    let figures = snapshot.figures.dependencies.get(name).unwrap_or(&nothing);
    let state = state_of(declared.settings.as_ref(), view);
    let latest = turns.of(name.as_str()).next().map(|turn| turn.at);
    DependencyJson {
        name: name.to_string(),
        kind: declared.kind.to_string(),
        state,
        since: latest.or_else(|| view?.not_closed_since).filter(|_| state != BreakerState::None),
        opens_until: view.and_then(|view| view.breaker.open_until()),
        failures: view.map_or(0, |view| view.failures),
        settings: declared.settings.as_ref().map_or_else(|| "no breaker".to_owned(), settings_in_words),
        tripped_by_hand: matches!(state, BreakerState::Open | BreakerState::HalfOpen)
            && turns.is_tripped_by_hand(name.as_str()),
        in_flight: view.map_or(0, |view| view.in_flight),
        in_flight_max: book.throttle(name).in_flight.get(),
        rate: view.and_then(|view| view.rate).map(|rate| rate.to_string()),
        held_until: view.and_then(|view| view.held_until),
        trips: figures.trips,
        attempts: figures.tally.attempts,
        failed: figures.tally.failures(),
        p50_ms: quantile_ms(&figures.took_finely, 0.5),
        p99_ms: quantile_ms(&figures.took_finely, 0.99),
        services: declared.queues.iter().map(ToString::to_string).collect(),
        history: turns.of(name.as_str()).map(change_json).collect(),
    }
}

fn settings_in_words(settings: &BreakerSettings) -> String {
    let probes = match settings.probes().get() {
        1 => "1 probe".to_owned(),
        probes => format!("{probes} probes"),
    };
    let closes = match settings.close_after().get() {
        1 => String::new(),
        successes => format!(", closes after {successes} successes"),
    };
    let (trip, open) = (report::trip(settings.trip()), show_duration(settings.open()));
    format!("opens after {trip}, for {open}, then {probes} at once{closes}")
}

fn change_json(turn: &BreakerChange) -> BreakerChangeJson {
    let hand = turn.hand.as_ref();
    BreakerChangeJson {
        at: turn.at,
        from: phase(turn.from),
        to: phase(turn.to),
        failures: turn.failures,
        delivery: turn.delivery.clone(),
        by: hand.map(|hand| hand.by.clone().unwrap_or_else(|| "a person on this machine".to_owned())),
        note: hand.and_then(|hand| hand.note.clone()),
    }
}

pub(crate) const fn phase(phase: BreakerPhase) -> BreakerState {
    match phase {
        BreakerPhase::Closed => BreakerState::Closed,
        BreakerPhase::HalfOpen => BreakerState::HalfOpen,
        BreakerPhase::Open => BreakerState::Open,
    }
}
