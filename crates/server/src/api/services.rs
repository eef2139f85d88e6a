//! Services: how each is, in a word and in figures, beside what the rule book says of it.

mod condition;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use redrive::core::book::RuleBook;
use redrive::core::book::own_book::is_own;
use redrive::core::book::report::explain;
use redrive::core::book::report::{self, reaction};
use redrive::core::book::resolve::Resolved;
use redrive::core::breaker::State as Breaker;
use redrive::core::category::Category;
use redrive::core::engine::{HeldQueue, QueueName};
use redrive::core::figures::{Histogram, Tally};
use redrive::core::ids::DependencyName;
use redrive::core::time::Timestamp;
use redrive::node::{Lately, Snapshot};
use redrive::store::{Counts, Oldest, QueueCounts};

use self::condition::Signs;
pub(super) use self::condition::judge;
use super::addresses::Addresses;
use super::dependencies::quantile_ms;
use super::error::ApiError;
use super::identity::Caller;
use super::shape::services::{RowShown, ServiceShown, ServicesFound};
use super::{App, book};
use crate::show::moment::moment;

/// All that services are judged by, at one moment.
pub(super) struct Look {
    pub at: Timestamp,
    pub started_at: Timestamp,
    pub snapshot: Snapshot,
    pub counts: Counts,
    pub oldest: BTreeMap<QueueName, Oldest>,
    pub lately: BTreeMap<Arc<QueueName>, Lately>,
}

impl Look {
    pub(super) async fn of(app: &App) -> Result<Self, ApiError> {
        let snapshot = app.snapshot().await?;
        let (counts, oldest) = app.node.read(|reader| Ok((reader.counts()?, reader.oldest()?))).await?;
        let lately = app.node.lately().await;
        let (at, started_at) = (app.node.now(), app.node.started_at());
        Ok(Self { at, started_at, snapshot, counts, oldest, lately })
    }

    /// What a queue is judged by.
    pub(super) fn signs(&self, queue: &QueueName, needs: &BTreeSet<DependencyName>) -> Signs {
        let held = self.snapshot.queues.iter().find(|view| *view.name == *queue).and_then(|view| view.held);
        Signs {
            paused_since: match held {
                Some(HeldQueue::Paused { since }) => Some(since),
                Some(HeldQueue::Removed) | None => None,
            },
            is_removed: held == Some(HeldQueue::Removed),
            held: self.held(needs),
            lately: self.lately.get(queue).copied().unwrap_or_default(),
            waiting: self.counts_of(queue).waiting,
            oldest_waiting_at: self.oldest_waiting_at(queue),
            started_at: self.started_at,
            now: self.at,
        }
    }

    pub(super) fn counts_of(&self, queue: &QueueName) -> QueueCounts {
        self.counts.queues.get(queue).copied().unwrap_or_default()
    }

    pub(super) fn oldest_waiting_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.oldest.get(queue)?.waiting_since
    }

    /// Queues that the book has no more, and that still have something.
    pub(super) fn removed(&self) -> impl Iterator<Item = &QueueName> {
        let removed = self.snapshot.queues.iter().filter(|view| view.held == Some(HeldQueue::Removed));
        removed.map(|view| &*view.name).filter(|name| {
            let counts = self.counts_of(name);
            let has_something = counts.waiting > 0 || counts.dead > 0;
            has_something && !is_own(name.service.as_str())
        })
    }

    /// What keeps all of them waiting, in words; none if one of them flows.
    fn held(&self, needs: &BTreeSet<DependencyName>) -> Option<String> {
        let mut words = None;
        for name in needs {
            let view = self.snapshot.dependencies.iter().find(|view| view.name == *name)?;
            let held = match (view.breaker, view.held_until) {
                (Breaker::Open { until }, _) => {
                    format!("the breaker of {name} is open until {}", moment(until))
                }
                (_, Some(until)) => format!("{name} asked everybody to wait until {}", moment(until)),
                (Breaker::Closed { .. } | Breaker::HalfOpen { .. }, None) => return None,
            };
            words = words.or(Some(held));
        }
        words
    }
}

/// Services and their channels, in the order of the rule book.
#[utoipa::path(
    get, path = "/v1/services", operation_id = "services", tag = "operating",
    responses((status = 200, description = "all that there are, and those that have gone and still have something", body = ServicesFound))
)]
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    let look = Look::of(&app).await?;
    let book = app.node.book();
    let mut services: Vec<ServiceShown> = Vec::new();
    for (queue, rules) in rules(&book) {
        if caller.sees(queue.service.as_str()) {
            services.push(shown(&look, &queue, &rules));
        }
    }
    for queue in look.removed().filter(|queue| caller.sees(queue.service.as_str())) {
        services.push(shown(&look, queue, &[]));
    }
    Ok(Addresses::for_caller(&caller, &book).json(StatusCode::OK, &ServicesFound { services }))
}

/// The rules of every queue, in the order of the book.
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

fn shown(look: &Look, queue: &QueueName, rules: &[Resolved<'_>]) -> ServiceShown {
    let needs: BTreeSet<DependencyName> = rules.iter().map(|rule| rule.rule.dependency.clone()).collect();
    let signs = look.signs(queue, &needs);
    let (health, why) = judge(&signs);
    let counts = look.counts_of(queue);
    let figures = look.snapshot.figures.queues.get(queue);
    let (mut tally, nothing) = (Tally::default(), Histogram::default());
    for of_type in figures.iter().flat_map(|figures| figures.types.values()) {
        tally.add(of_type);
    }
    let took = figures.map_or(&nothing, |figures| &figures.took);
    let first = rules.first();
    let target = first.map(|rule| &rule.target.kind);
    ServiceShown {
        service: queue.service.to_string(),
        channel: queue.channel.as_ref().map(ToString::to_string),
        target: target
            .map_or_else(String::new, |kind| format!("{} {}", kind.as_str(), explain::address(kind))),
        depends_on: needs.iter().map(ToString::to_string).collect(),
        health,
        why,
        waiting: counts.waiting,
        behind: counts.behind,
        oldest_waiting_at: signs.oldest_waiting_at.filter(|_| counts.waiting > 0),
        delivered: tally.delivered,
        dead: counts.dead,
        attempts: tally.attempts,
        failed: tally.failures(),
        retried: tally.retries,
        p50_ms: quantile_ms(took, 0.5),
        p99_ms: quantile_ms(took, 0.99),
        paused_since: signs.paused_since,
        order: first.map_or("none", |rule| report::order(rule.order.value)).to_owned(),
        in_flight_max: rules.iter().map(|rule| rule.in_flight.value).min(),
        rows: rules.iter().map(row_shown).collect(),
    }
}

fn row_shown(rule: &Resolved<'_>) -> RowShown {
    let transient = reaction(&rule.reaction_to(Category::Transient).value);
    RowShown {
        event_type: rule.row.pattern.value.to_string(),
        line: rule.row.pattern.span.position.line,
        retry: match rule.retry_policy() {
            Some(policy) => format!("{}: {}", policy.name, book::summary(&policy.backoff)),
            None => transient.to_owned(),
        },
        timeout_ms: u64::try_from(rule.rule.timeouts.whole.first.as_millis()).unwrap_or(u64::MAX),
        criticality: rule.criticality.as_ref().map(|known| report::criticality(known.value).to_owned()),
        subscription: rule.subscription(),
    }
}

pub(super) fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
