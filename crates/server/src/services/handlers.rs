//! Handlers for services: list, pause, resume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redrive_core::book::RuleBook;
use redrive_core::book::alert_rules::is_own;
use redrive_core::book::keywords::Keyword;
use redrive_core::book::resolve::Resolved;
use redrive_core::engine::{HeldQueue, QueueName, RowView};
use redrive_core::figures::{AttemptTally, QueueFigures, Sketch};
use redrive_core::ids::{DependencyName, ServiceName};
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::Category;
use redrive_core::time::Timestamp;
use redrive_lab::report::reaction;
use redrive_node::runtime::{RecentFigures, Snapshot};
use redrive_node::store::letter::LetterFilter;
use redrive_node::store::{Oldest, QueueCounts, StoreCounts};
use serde_json::json;

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::request::EmptyResponse;
use crate::api::{App, reply};
use crate::breakers::handlers::quantile_ms;
use crate::deliveries::waits;
use crate::services::condition::{ServiceSigns, ServiceVerdict, judge};
use crate::services::json::{ServiceJson, ServiceRowJson, ServicesResponse};

/// Pauses a service: no attempt starts, deliveries wait.
#[utoipa::path(
    post, path = "/v1/services/{service}/pause", operation_id = "pauseService", tag = "operating",
    params(("service" = String, Path, description = "a service in the rule book, or one that still has deliveries", example = "billing")),
    responses((status = 200, description = "the service is paused", body = EmptyResponse))
)]
pub(crate) async fn pause(app: App, caller: ApiCaller, PathName(service): PathName) -> ApiResult {
    caller.check_service(&service)?;
    app.node.pause(known(&app, &caller, &service).await?, &caller.by()).await?;
    reply::ok(&json!({}))
}

/// Resumes a paused service.
#[utoipa::path(
    post, path = "/v1/services/{service}/resume", operation_id = "resumeService", tag = "operating",
    params(("service" = String, Path, description = "a service in the rule book, or one that still has deliveries", example = "billing")),
    responses((status = 200, description = "the service is resumed", body = EmptyResponse))
)]
pub(crate) async fn resume(app: App, caller: ApiCaller, PathName(service): PathName) -> ApiResult {
    caller.check_service(&service)?;
    app.node.resume(known(&app, &caller, &service).await?, &caller.by()).await?;
    reply::ok(&json!({}))
}

/// A service of the rule book, or one that still has deliveries.
async fn known(app: &App, caller: &ApiCaller, name: &str) -> Result<ServiceName, ApiError> {
    let book = app.node.book();
    if let Some(service) = book.service(name) {
        return Ok(service.name.clone());
    }
    let snapshot = app.snapshot().await?;
    let gone =
        snapshot.queues.iter().map(|queue| &queue.name.service).find(|service| service.as_str() == name);
    gone.cloned().ok_or_else(|| {
        let names = book.sections().services.iter().map(|service| service.name.to_string());
        let names: Vec<_> = names.filter(|name| caller.sees(name)).collect();
        let message = format!("no service `{name}`");
        ApiError::new(ApiCode::ServiceNotFound, message).with("services", names)
    })
}

/// All figures that services are judged by, at one moment.
pub(crate) struct ServiceFigures {
    pub at: Timestamp,
    pub started_at: Timestamp,
    pub snapshot: Snapshot,
    pub counts: StoreCounts,
    pub oldest: BTreeMap<QueueName, Oldest>,
    pub lately: BTreeMap<Arc<QueueName>, RecentFigures>,
    /// Causes of dead letters by service.
    pub causes: BTreeMap<ServiceName, BTreeSet<Fingerprint>>,
}

impl ServiceFigures {
    pub(crate) async fn of(app: &App) -> Result<Self, ApiError> {
        let snapshot = app.snapshot().await?;
        let none = LetterFilter::default();
        let read =
            app.node.read(move |reader| Ok((reader.counts()?, reader.oldest()?, reader.kinds(&none)?)));
        let (counts, oldest, kinds) = read.await?;
        let mut causes: BTreeMap<ServiceName, BTreeSet<Fingerprint>> = BTreeMap::new();
        for kind in kinds.into_iter().filter(|kind| kind.count > 0) {
            causes.entry(kind.queue.service).or_default().insert(kind.fingerprint);
        }
        let lately = app.node.recent_figures();
        let (at, started_at) = (app.node.now(), app.node.started_at());
        Ok(Self { at, started_at, snapshot, counts, oldest, lately, causes })
    }

    pub(crate) fn signs(&self, queue: &QueueName) -> ServiceSigns {
        let view = self.snapshot.queues.iter().find(|view| *view.name == *queue);
        let held = view.and_then(|view| view.held);
        let (counts, tally) = (self.counts_of(queue), self.tally_of(queue));
        ServiceSigns {
            paused_since: match held {
                Some(HeldQueue::Paused { since }) => Some(since),
                Some(HeldQueue::Removed) | None => None,
            },
            is_removed: held == Some(HeldQueue::Removed),
            rows: view.map(|view| view.rows.clone()).unwrap_or_default(),
            lately: self.lately.get(queue).copied().unwrap_or_default(),
            attempts: tally.attempts,
            failed: tally.failures(),
            waiting: counts.waiting,
            without_rule: counts.without_rule,
            dead: counts.dead,
            oldest_waiting_at: self.oldest_waiting_at(queue),
            started_at: self.started_at,
            now: self.at,
        }
    }

    pub(crate) fn tally_of(&self, queue: &QueueName) -> AttemptTally {
        self.snapshot.figures.queues.get(queue).map(QueueFigures::total).unwrap_or_default()
    }

    pub(crate) fn counts_of(&self, queue: &QueueName) -> QueueCounts {
        self.counts.queues.get(queue).copied().unwrap_or_default()
    }

    pub(crate) fn oldest_waiting_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.oldest.get(queue)?.waiting_since
    }

    /// Queues that left the rule book but still have deliveries or letters.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &QueueName> {
        let removed = self.snapshot.queues.iter().filter(|view| view.held == Some(HeldQueue::Removed));
        removed.map(|view| &*view.name).filter(|name| {
            let counts = self.counts_of(name);
            let has_something = counts.waiting > 0 || counts.dead > 0;
            has_something && !is_own(name.service.as_str())
        })
    }
}

/// Services and their channels, in the order of the rule book.
#[utoipa::path(
    get, path = "/v1/services", operation_id = "listServices", tag = "operating",
    responses((status = 200, description = "all services, including removed ones that still have deliveries or dead letters", body = ServicesResponse))
)]
pub(crate) async fn list(app: App, caller: ApiCaller) -> ApiResult {
    let reading = ServiceFigures::of(&app).await?;
    let book = app.node.book();
    let mut services: Vec<ServiceJson> = Vec::new();
    for (queue, rules) in rules(&book) {
        if caller.sees(queue.service.as_str()) {
            services.push(shown(&reading, &queue, &rules));
        }
    }
    for queue in reading.removed().filter(|queue| caller.sees(queue.service.as_str())) {
        services.push(shown(&reading, queue, &[]));
    }
    VisibleAddresses::for_caller(&caller, &book).ok(&ServicesResponse { services })
}

fn rules(book: &RuleBook) -> Vec<(QueueName, Vec<Resolved<'_>>)> {
    let sections = book.sections();
    let mut all: Vec<(QueueName, Vec<Resolved<'_>>)> = Vec::new();
    for (service, channel, row) in sections.rows() {
        let queue =
            QueueName { service: service.name.clone(), channel: channel.map(|channel| channel.name.clone()) };
        let resolved = sections.resolve(service, channel, row);
        match all.iter_mut().rev().find(|(known, _)| *known == queue) {
            Some((_, rules)) => rules.push(resolved),
            None => all.push((queue, vec![resolved])),
        }
    }
    all
}

fn shown(reading: &ServiceFigures, queue: &QueueName, rules: &[Resolved<'_>]) -> ServiceJson {
    let needs: BTreeSet<DependencyName> = rules.iter().map(|rule| rule.rule.dependency.clone()).collect();
    let signs = reading.signs(queue);
    let ServiceVerdict { word, why, since, until } = judge(&signs);
    let counts = reading.counts_of(queue);
    let figures = reading.snapshot.figures.queues.get(queue);
    let (tally, nothing) = (reading.tally_of(queue), Sketch::default());
    let took = figures.map_or(&nothing, |figures| &figures.took_finely);
    let first = rules.first();
    let target = first.map(|rule| &rule.target.endpoint);
    ServiceJson {
        service: queue.service.to_string(),
        channel: queue.channel.as_ref().map(ToString::to_string),
        target: target
            .map_or_else(String::new, |endpoint| format!("{} {}", endpoint.key(), endpoint.profile.shown)),
        depends_on: needs.iter().map(ToString::to_string).collect(),
        health: word,
        why,
        why_since: since,
        why_until: until,
        waiting: counts.waiting,
        behind: counts.behind,
        without_rule: counts.without_rule,
        oldest_waiting_at: signs.oldest_waiting_at.filter(|_| counts.waiting > 0),
        delivered: tally.delivered,
        dead: counts.dead,
        attempts: tally.attempts,
        failed: tally.failures(),
        retried: tally.retries,
        p50_ms: quantile_ms(took, 0.5),
        p99_ms: quantile_ms(took, 0.99),
        paused_since: signs.paused_since,
        order: first.map_or("none", |rule| rule.order.value.as_word()).to_owned(),
        in_flight_max: rules.iter().map(|rule| rule.in_flight.value).min(),
        rows: rules.iter().map(|rule| row_json(rule, &signs.rows)).collect(),
    }
}

fn row_json(rule: &Resolved<'_>, rows: &[RowView]) -> ServiceRowJson {
    let pattern = rule.row.pattern.value.to_string();
    let hold = rows.iter().find(|row| row.pattern == pattern).and_then(|row| row.hold.as_ref());
    let transient = reaction(&rule.reaction_to(Category::Transient).value);
    ServiceRowJson {
        waits: hold.map(|hold| waits::shown(hold, None)),
        event_type: pattern,
        line: rule.row.pattern.span.position.line,
        retry: match rule.retry_policy() {
            Some(policy) => format!("{}: {}", policy.name, crate::rules::handlers::summary(&policy.backoff)),
            None => transient.to_owned(),
        },
        timeout_ms: u64::try_from(rule.rule.timeouts.whole.first.as_millis()).unwrap_or(u64::MAX),
        criticality: rule.criticality.as_ref().map(|known| known.value.as_word().to_owned()),
        subscription: rule.subscription(),
    }
}

pub(crate) fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
