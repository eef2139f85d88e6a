//! From the figures to the page that scrapers read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::figures::{Figures, Histogram, QueueFigures, TRIES_MAX, TYPES_MAX, Tally};
use redrive_core::ids::ChannelName;
use redrive_core::metric_names::{self as names, MetricName};
use redrive_core::policy::breaker::State;
use redrive_core::policy::category::Category;
use redrive_core::time::Timestamp;
use redrive_node::runtime::Snapshot;
use redrive_node::source::{SourceState, SourceView};
use redrive_node::store::QueueCounts;

use super::gather::{Gathered, Stock};
use super::page::{Page, Ranges};
use crate::api::App;
use crate::api::shape::hooks::SourceStatus;

/// The states of a breaker.
const STATES: [&str; 3] = ["closed", "open", "half-open"];

/// The word for a state.
pub(super) const fn state_of(state: State) -> &'static str {
    match state {
        State::Closed { .. } => STATES[0],
        State::Open { .. } => STATES[1],
        State::HalfOpen { .. } => STATES[2],
    }
}

/// All event types of a queue together.
pub(super) fn sum(queue: &QueueFigures) -> Tally {
    let mut sum = Tally::default();
    queue.types.values().for_each(|tally| sum.add(tally));
    sum
}

/// The whole page.
pub(super) fn written(app: &App, gathered: &Gathered) -> String {
    let mut page = Page::default();
    let now = app.node.now();
    let Gathered { engine, counts, oldest } = gathered;
    page.family(&names::BUILD_INFO, [(vec![env!("CARGO_PKG_VERSION")], 1.0)]);
    page.single(&names::START_TIME, app.node.started_at().as_millis() as f64 / 1_000.0);
    let ages = [("engine", engine.age()), ("counts", counts.age()), ("oldest", oldest.age())];
    page.family(
        &names::METRICS_AGE,
        ages.iter().filter_map(|(part, age)| Some((vec![*part], (*age)?.as_secs_f64()))),
    );
    if let Some(snapshot) = engine.value() {
        let figures = from_nothing(&snapshot.figures, &app.node.book());
        intake(&mut page, &figures);
        attempts(&mut page, &figures);
        deliveries(&mut page, &figures);
        dependencies(&mut page, snapshot);
        paused(&mut page, snapshot);
    }
    if let Some(stock) = counts.value() {
        stored(&mut page, stock);
    }
    if let Some(oldest) = oldest.value() {
        let mut names: BTreeSet<&QueueName> = oldest.keys().collect();
        names.extend(counts.value().into_iter().flat_map(|stock| stock.counts.queues.keys()));
        let age = |since: Option<Timestamp>| since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let of = |name: &QueueName| oldest.get(name).copied().unwrap_or_default();
        page.family(
            &names::OLDEST_WAITING,
            names.iter().map(|name| (queue(name), age(of(name).waiting_since))),
        );
        page.family(
            &names::DEAD_LETTER_AGE,
            names.iter().map(|name| (queue(name), age(of(name).dead_since))),
        );
    }
    page.family(&names::HAPPENINGS, app.node.happened().map(|(what, count)| (vec![what], count as f64)));
    hooks(&mut page, &app.hooks.status());
    sources(&mut page, &app.node.sources());
    if let Some(archive) = app.archivist.status(now) {
        page.single(&names::ARCHIVED, archive.archived as f64);
        page.single(&names::ARCHIVE_LEFT_OUT, archive.left_out as f64);
        page.single(&names::ARCHIVE_BEHIND, archive.behind.as_ref().map_or(0.0, Duration::as_secs_f64));
    }
    if let Some(spans) = &app.metrics.spans {
        page.single(&names::SPANS_SENT, spans.sent() as f64);
        page.single(&names::SPANS_DROPPED, spans.dropped() as f64);
    }
    page.into_text()
}

/// The figures with a nought for all that the book names and that nothing has happened to yet.
///
/// A counter that comes into sight with the first burst shows no increase: it must have been seen at nothing.
fn from_nothing(figures: &Figures, book: &RuleBook) -> Figures {
    let mut figures = figures.clone();
    for (service, channel, row) in book.sections().rows() {
        let channel = channel.map(|channel| channel.name.clone());
        let name = QueueName { service: service.name.clone(), channel };
        let queue = figures.queues.entry(Arc::new(name)).or_default();
        let pattern = &row.pattern.value;
        // Beyond the bound a type is counted among others, and would stay at nothing.
        if pattern.is_exact() && queue.types.len() < TYPES_MAX {
            queue.types.entry(pattern.as_str().into()).or_default();
        }
    }
    figures
}

fn queue(name: &QueueName) -> Vec<&str> {
    vec![name.service.as_str(), name.channel.as_ref().map_or("", ChannelName::as_str)]
}

fn intake(page: &mut Page, figures: &Figures) {
    let intake = &figures.intake;
    page.single(&names::EVENTS_ACCEPTED, intake.accepted as f64);
    page.single(&names::EVENTS_DUPLICATES, intake.duplicates as f64);
    page.single(&names::EVENTS_UNROUTED, intake.unrouted as f64);
    page.single(&names::EVENTS_REFUSED, intake.refused as f64);
    page.single(&names::DOOR_REFUSALS, intake.unauthorized as f64);
    page.times(&names::REDELIVERED, [(Vec::new(), &intake.redelivered)]);
    page.single(&names::STALE_SETTLEMENTS, figures.stale as f64);
}

fn attempts(page: &mut Page, figures: &Figures) {
    let types = || {
        figures.queues.iter().flat_map(|(name, queue_figures)| {
            let labels = move |event_type| [queue(name), vec![event_type]].concat();
            queue_figures.types.iter().map(move |(event_type, tally)| (labels(&**event_type), tally))
        })
    };
    page.family(
        &names::ATTEMPTS,
        types().flat_map(|(labels, tally)| {
            let delivered = tally.attempts - tally.failures();
            let outcomes = [("delivered", delivered), ("failed", tally.failures())];
            outcomes.map(|(outcome, count)| ([&labels[..], &[outcome]].concat(), count as f64))
        }),
    );
    page.family(
        &names::FAILURES,
        types().flat_map(|(labels, tally)| {
            by_category(tally).map(|(word, count)| ([&labels[..], &[word]].concat(), count))
        }),
    );
    let sums: Vec<_> = figures.queues.iter().map(|(name, figures)| (name, sum(figures))).collect();
    page.family(
        &names::SERVICE_ATTEMPTS,
        sums.iter().flat_map(|(name, tally)| {
            let outcomes = [("delivered", tally.attempts - tally.failures()), ("failed", tally.failures())];
            outcomes.map(|(outcome, count)| ([queue(name), vec![outcome]].concat(), count as f64))
        }),
    );
    page.family(
        &names::SERVICE_FAILURES,
        sums.iter().flat_map(|(name, tally)| {
            by_category(tally).map(|(word, count)| ([queue(name), vec![word]].concat(), count))
        }),
    );
    page.family(
        &names::FAILURES_BY_CODE,
        figures.queues.iter().flat_map(|(name, figures)| {
            let labels = |code| [queue(name), vec![code]].concat();
            figures.codes.iter().map(move |(code, count)| (labels(&**code), *count as f64))
        }),
    );
    page.times(&names::ATTEMPT_DURATION, of_queues(figures, |queue| &queue.took));
    page.times(&names::WAITED, of_queues(figures, |queue| &queue.waited));
}

/// How many failed in which way, those that nobody met too.
fn by_category(tally: &Tally) -> [(&'static str, f64); Category::ALL.len()] {
    Category::ALL.map(|category| (category.as_str(), tally.failed_as(category) as f64))
}

fn of_queues<'a>(
    figures: &'a Figures,
    times: impl Fn(&'a QueueFigures) -> &'a Histogram,
) -> impl Iterator<Item = (Vec<&'a str>, &'a Histogram)> {
    figures.queues.iter().map(move |(name, figures)| (queue(name), times(figures)))
}

fn deliveries(page: &mut Page, figures: &Figures) {
    let sums: Vec<_> = figures.queues.iter().map(|(name, queue)| (name, sum(queue), queue)).collect();
    let mut each = |metric: &MetricName, count: fn(&Tally) -> u64| {
        page.family(metric, sums.iter().map(|(name, tally, _)| (queue(name), count(tally) as f64)));
    };
    each(&names::FIRST_ATTEMPTS, |tally| tally.firsts);
    each(&names::RETRIED, |tally| tally.retried);
    each(&names::RETRIES, |tally| tally.retries);
    each(&names::EXHAUSTED, |tally| tally.exhausted);
    page.family(
        &names::DELIVERIES,
        sums.iter().flat_map(|(name, tally, _)| {
            let outcomes = [("delivered", tally.delivered), ("dead", tally.dead)];
            outcomes.map(|(outcome, count)| ([queue(name), vec![outcome]].concat(), count as f64))
        }),
    );
    page.family(&names::HELD, sums.iter().map(|(name, _, figures)| (queue(name), figures.held as f64)));
    let bounds: Vec<String> = (1..TRIES_MAX).map(|tries| tries.to_string()).collect();
    page.ranges(
        &names::ATTEMPTS_PER_DELIVERY,
        sums.iter().map(|(name, _, figures)| {
            let times = figures.tries.iter().enumerate();
            let sum = times.map(|(index, count)| (index as u64 + 1) * count).sum::<u64>() as f64;
            (queue(name), Ranges { bounds: &bounds, counts: &figures.tries, sum })
        }),
    );
}

fn dependencies(page: &mut Page, snapshot: &Snapshot) {
    let counted = &snapshot.figures.dependencies;
    page.family(
        &names::DEPENDENCY_ATTEMPTS,
        counted.iter().flat_map(|(name, figures)| {
            let failed = figures.tally.failures();
            let outcomes = [("delivered", figures.tally.attempts - failed), ("failed", failed)];
            outcomes.map(|(outcome, count)| (vec![name.as_str(), outcome], count as f64))
        }),
    );
    page.family(
        &names::DEPENDENCY_FAILURES,
        counted.iter().flat_map(|(name, figures)| {
            by_category(&figures.tally).map(|(word, count)| (vec![name.as_str(), word], count))
        }),
    );
    let mut each = |metric: &MetricName, count: fn(&redrive_core::figures::DependencyFigures) -> u64| {
        page.family(
            metric,
            counted.iter().map(|(name, figures)| (vec![name.as_str()], count(figures) as f64)),
        );
    };
    each(&names::UNAVAILABLE, |figures| figures.tally.unavailable);
    each(&names::AUTH_FAILURES, |figures| figures.tally.unauthorized);
    each(&names::CONFIG_FAILURES, |figures| figures.tally.misconfigured);
    each(&names::BREAKER_TRIPS, |figures| figures.trips);
    each(&names::DEPENDENCY_HOLDS, |figures| figures.held);
    page.times(
        &names::DEPENDENCY_DURATION,
        counted.iter().map(|(name, figures)| (vec![name.as_str()], &figures.took)),
    );
    page.family(
        &names::BREAKER_STATE,
        snapshot.dependencies.iter().flat_map(|view| {
            let is_now = state_of(view.breaker);
            STATES.map(|state| (vec![view.name.as_str(), state], f64::from(u8::from(state == is_now))))
        }),
    );
    page.family(
        &names::IN_FLIGHT,
        snapshot.dependencies.iter().map(|view| (vec![view.name.as_str()], f64::from(view.in_flight))),
    );
}

fn paused(page: &mut Page, snapshot: &Snapshot) {
    page.family(
        &names::PAUSED,
        snapshot.queues.iter().map(|view| {
            let is_paused = matches!(view.held, Some(HeldQueue::Paused { .. }));
            (queue(&view.name), f64::from(u8::from(is_paused)))
        }),
    );
}

fn stored(page: &mut Page, stock: &Stock) {
    let Stock { counts, stranded, open_replays, bytes } = stock;
    page.single(&names::EVENTS_STORED, counts.events as f64);
    page.single(&names::UNROUTED, counts.unrouted as f64);
    page.single(&names::STRANDED, *stranded as f64);
    page.single(&names::OPEN_REPLAYS, *open_replays as f64);
    page.single(&names::STORE_BYTES, *bytes as f64);
    let mut each = |metric: &MetricName, count: fn(&QueueCounts) -> u64| {
        page.family(metric, counts.queues.iter().map(|(name, counts)| (queue(name), count(counts) as f64)));
    };
    each(&names::WAITING, |counts| counts.waiting);
    each(&names::BEHIND, |counts| counts.behind);
    each(&names::DEAD_LETTERS, |counts| counts.dead);
}

fn sources(page: &mut Page, sources: &BTreeMap<String, SourceView>) {
    let lags = sources.iter().filter_map(|(source, view)| Some((vec![source.as_str()], view.lag? as f64)));
    page.family(&names::SOURCE_LAG, lags);
    let ups = sources.iter().map(|(source, view)| {
        let is_up = matches!(view.state, SourceState::Reading | SourceState::Held(_));
        (vec![source.as_str()], f64::from(u8::from(is_up)))
    });
    page.family(&names::SOURCE_UP, ups);
    let verdicts = sources.iter().flat_map(|(source, view)| {
        let counts = [("durable", view.durable), ("duplicate", view.duplicates), ("refused", view.refused)];
        counts.map(|(verdict, count)| (vec![source.as_str(), verdict], count as f64))
    });
    page.family(&names::SOURCE_MESSAGES, verdicts);
}

fn hooks(page: &mut Page, sources: &[SourceStatus]) {
    page.family(
        &names::HOOK_ANSWERS,
        sources.iter().flat_map(|source| {
            #[rustfmt::skip]
            let answers = [
                ("accepted",     source.accepted),
                ("duplicate",    source.duplicates),
                ("conflict",     source.conflicts),
                ("challenge",    source.challenges),
                ("unauthorized", source.unauthorized),
                ("malformed",    source.malformed),
                ("too-large",    source.too_large),
                ("too-slow",     source.too_slow),
                ("rate-limited", source.rate_limited),
                ("unavailable",  source.unavailable),
            ];
            answers.map(|(answer, count)| (vec![source.name.as_str(), answer], count as f64))
        }),
    );
}
