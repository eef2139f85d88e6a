//! Metrics in the Prometheus text format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::figures::{AttemptTally, Figures, TRIES_MAX, TYPES_MAX};
use redrive_core::ids::ChannelName;
use redrive_core::metric_names as names;
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::policy::category::Category;
use redrive_core::time::Timestamp;
use redrive_node::runtime::Snapshot;
use redrive_node::source::{SourceState, SourceView};

use crate::api::App;
use crate::status::metrics::exposition::{BucketRanges, ExpositionPage};
use crate::status::metrics::gather::{MetricsInput, StoreTotals};
use crate::webhooks::json::SourceStatus;

pub(crate) fn written(app: &App, gathered: &MetricsInput) -> String {
    let mut page = ExpositionPage::default();
    let now = app.node.now();
    let MetricsInput { engine, counts, oldest } = gathered;
    page.family(&names::BUILD_INFO, [(vec![env!("CARGO_PKG_VERSION")], 1.0)]);
    page.single(&names::START_TIME, app.node.started_at().as_millis() as f64 / 1_000.0);
    let ages = [("engine", engine.age), ("counts", counts.age), ("oldest", oldest.age)];
    page.family(
        &names::METRICS_AGE,
        ages.iter().filter_map(|(part, age)| Some((vec![*part], (*age)?.as_secs_f64()))),
    );
    if let Some(snapshot) = &engine.value {
        let figures = from_nothing(&snapshot.figures, &app.node.book());
        intake(&mut page, &figures);
        queues(&mut page, &figures);
        dependencies(&mut page, snapshot);
        let views: Vec<_> = snapshot.queues.iter().map(|view| (labels(&view.name), view)).collect();
        page.each(&names::PAUSED, &views, |view| matches!(view.held, Some(HeldQueue::Paused { .. })).into());
    }
    if let Some(stock) = &counts.value {
        stored(&mut page, stock);
    }
    if let Some(oldest) = &oldest.value {
        let mut names: BTreeSet<&QueueName> = oldest.keys().collect();
        names.extend(counts.value.iter().flat_map(|stock| stock.counts.queues.keys()));
        let age = |since: Option<Timestamp>| since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let rows = || names.iter().map(|name| (labels(name), oldest.get(name).copied().unwrap_or_default()));
        page.family(
            &names::OLDEST_WAITING,
            rows().map(|(labels, oldest)| (labels, age(oldest.waiting_since))),
        );
        page.family(&names::DEAD_LETTER_AGE, rows().map(|(labels, oldest)| (labels, age(oldest.dead_since))));
    }
    page.family(&names::ACTIVITY, app.node.activity_counts().map(|(what, count)| (vec![what], count as f64)));
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

/// Adds zeros for all names in the rule book: a counter that first appears with a burst would show no
/// increase.
fn from_nothing(figures: &Figures, book: &RuleBook) -> Figures {
    let mut figures = figures.clone();
    for (service, channel, row) in book.sections().rows() {
        let channel = channel.map(|channel| channel.name.clone());
        let name = QueueName { service: service.name.clone(), channel };
        let queue = figures.queues.entry(Arc::new(name)).or_default();
        let pattern = &row.pattern.value;
        // Beyond the bound, types are counted as others.
        if pattern.is_exact() && queue.types.len() < TYPES_MAX {
            queue.types.entry(pattern.as_str().into()).or_default();
        }
    }
    figures
}

fn labels(name: &QueueName) -> Vec<&str> {
    vec![name.service.as_str(), name.channel.as_ref().map_or("", ChannelName::as_str)]
}

fn intake(page: &mut ExpositionPage, figures: &Figures) {
    let intake = &figures.intake;
    page.single(&names::EVENTS_ACCEPTED, intake.accepted as f64);
    page.single(&names::EVENTS_DUPLICATES, intake.duplicates as f64);
    page.single(&names::EVENTS_UNROUTED, intake.unrouted as f64);
    page.single(&names::EVENTS_REFUSED, intake.refused as f64);
    page.single(&names::AUTH_REJECTED, intake.unauthorized as f64);
    page.times(&names::REDELIVERED, [(Vec::new(), &intake.redelivered)]);
    page.single(&names::STALE_SETTLEMENTS, figures.stale as f64);
}

fn queues(page: &mut ExpositionPage, figures: &Figures) {
    let queues: Vec<_> = figures.queues.iter().map(|(name, queue)| (labels(name), queue)).collect();
    let sums: Vec<_> = queues.iter().map(|(labels, queue)| (labels.clone(), queue.total())).collect();
    let types = queues.iter().flat_map(|(labels, queue)| {
        let labels = |event_type| [&labels[..], &[event_type]].concat();
        queue.types.iter().map(move |(event_type, tally)| (labels(&**event_type), *tally))
    });
    let types: Vec<_> = types.collect();
    page.split(&names::ATTEMPTS, &types, outcomes);
    page.split(&names::FAILURES, &types, failures);
    page.split(&names::SERVICE_ATTEMPTS, &sums, outcomes);
    page.split(&names::SERVICE_FAILURES, &sums, failures);
    page.split(&names::FAILURES_BY_CODE, &queues, |queue| {
        queue.codes.iter().map(|(code, count)| (&**code, *count)).collect()
    });
    page.times(&names::ATTEMPT_DURATION, queues.iter().map(|(labels, queue)| (labels.clone(), &queue.took)));
    page.times(&names::WAITED, queues.iter().map(|(labels, queue)| (labels.clone(), &queue.waited)));
    page.each(&names::FIRST_ATTEMPTS, &sums, |tally| tally.firsts);
    page.each(&names::RETRIED, &sums, |tally| tally.retried);
    page.each(&names::RETRIES, &sums, |tally| tally.retries);
    page.each(&names::EXHAUSTED, &sums, |tally| tally.exhausted);
    page.split(&names::DELIVERIES, &sums, |tally| vec![("delivered", tally.delivered), ("dead", tally.dead)]);
    page.each(&names::HELD, &queues, |queue| queue.held);
    let bounds: Vec<String> = (1..TRIES_MAX).map(|tries| tries.to_string()).collect();
    page.ranges(
        &names::ATTEMPTS_PER_DELIVERY,
        queues.iter().map(|(labels, queue)| {
            let times = queue.tries.iter().enumerate();
            let sum = times.map(|(index, count)| (index as u64 + 1) * count).sum::<u64>() as f64;
            (labels.clone(), BucketRanges { bounds: &bounds, counts: &queue.tries, sum })
        }),
    );
}

fn outcomes(tally: &AttemptTally) -> Vec<(&'static str, u64)> {
    vec![("delivered", tally.attempts - tally.failures()), ("failed", tally.failures())]
}

/// Including zeros.
fn failures(tally: &AttemptTally) -> Vec<(&'static str, u64)> {
    Category::ALL.map(|category| (category.as_str(), tally.failed_as(category))).to_vec()
}

fn dependencies(page: &mut ExpositionPage, snapshot: &Snapshot) {
    let counted = snapshot.figures.dependencies.iter();
    let counted: Vec<_> = counted.map(|(name, figures)| (vec![name.as_str()], figures)).collect();
    page.split(&names::DEPENDENCY_ATTEMPTS, &counted, |figures| outcomes(&figures.tally));
    page.split(&names::DEPENDENCY_FAILURES, &counted, |figures| failures(&figures.tally));
    page.each(&names::UNAVAILABLE, &counted, |figures| figures.tally.unavailable);
    page.each(&names::AUTH_FAILURES, &counted, |figures| figures.tally.unauthorized);
    page.each(&names::CONFIG_FAILURES, &counted, |figures| figures.tally.misconfigured);
    page.each(&names::BREAKER_TRIPS, &counted, |figures| figures.trips);
    page.each(&names::DEPENDENCY_HOLDS, &counted, |figures| figures.held);
    page.times(
        &names::DEPENDENCY_DURATION,
        counted.iter().map(|(labels, figures)| (labels.clone(), &figures.took)),
    );
    let views: Vec<_> = snapshot.dependencies.iter().map(|view| (vec![view.name.as_str()], view)).collect();
    page.split(&names::BREAKER_STATE, &views, |view| {
        let phases = [BreakerPhase::Closed, BreakerPhase::Open, BreakerPhase::HalfOpen];
        phases.map(|phase| (phase.as_str(), u64::from(phase == view.breaker.phase()))).to_vec()
    });
    page.each(&names::IN_FLIGHT, &views, |view| view.in_flight.into());
}

fn stored(page: &mut ExpositionPage, stock: &StoreTotals) {
    let StoreTotals { counts, stranded, open_replays, bytes } = stock;
    page.single(&names::EVENTS_STORED, counts.events as f64);
    page.single(&names::UNROUTED, counts.unrouted as f64);
    page.single(&names::STRANDED, *stranded as f64);
    page.single(&names::OPEN_REPLAYS, *open_replays as f64);
    page.single(&names::STORE_BYTES, *bytes as f64);
    let queues: Vec<_> = counts.queues.iter().map(|(name, counts)| (labels(name), counts)).collect();
    page.each(&names::WAITING, &queues, |counts| counts.waiting);
    page.each(&names::BEHIND, &queues, |counts| counts.behind);
    page.each(&names::DEAD_LETTERS, &queues, |counts| counts.dead);
}

fn sources(page: &mut ExpositionPage, sources: &BTreeMap<String, SourceView>) {
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

fn hooks(page: &mut ExpositionPage, sources: &[SourceStatus]) {
    let sources: Vec<_> = sources.iter().map(|source| (vec![source.name.as_str()], &source.counts)).collect();
    #[rustfmt::skip]
    page.split(&names::HOOK_ANSWERS, &sources, |counts| vec![
        ("accepted",     counts.accepted),
        ("duplicate",    counts.duplicates),
        ("conflict",     counts.conflicts),
        ("challenge",    counts.challenges),
        ("unauthorized", counts.unauthorized),
        ("malformed",    counts.malformed),
        ("too-large",    counts.too_large),
        ("too-slow",     counts.too_slow),
        ("rate-limited", counts.rate_limited),
        ("unavailable",  counts.unavailable),
    ]);
}
