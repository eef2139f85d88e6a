//! Gathers the parts of the metrics. Each may fail or time out alone.
//!
//! Each part is in a [`StaleCache`]: the last value is served with its age until it is too old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::stale::{Cached, Missing, StaleCache, StalePlan, timer_clock};
use redrive_core::engine::QueueName;
use redrive_core::freshness::Lifetimes;
use redrive_node::runtime::{Node, ReadError, Snapshot, stranded};
use redrive_node::store::{Oldest, StoreCounts};

use crate::serve::otlp::SpanCounts;
use crate::status::handlers::until_nothing_is_stranded;
use crate::status::json::open_replays_of;

/// Repeated requests within this time share an answer.
const SAME_WITHIN: Duration = Duration::from_millis(200);

const PART_MAX: Duration = Duration::from_secs(2);

/// Maximum age of a stale part.
const KEPT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoPart(pub(crate) String);

/// Store and engine read together.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreTotals {
    pub(crate) counts: StoreCounts,
    pub(crate) stranded: u64,
    pub(crate) open_replays: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) engine: StaleCache<Snapshot, NoPart>,
    pub(crate) counts: StaleCache<StoreTotals, NoPart>,
    pub(crate) oldest: StaleCache<BTreeMap<QueueName, Oldest>, NoPart>,
    /// `None` without tracing.
    pub(crate) spans: Option<Arc<SpanCounts>>,
}

pub(crate) struct MetricsInput {
    pub(crate) engine: MetricsPart<Snapshot>,
    pub(crate) counts: MetricsPart<StoreTotals>,
    pub(crate) oldest: MetricsPart<BTreeMap<QueueName, Oldest>>,
}

pub(crate) struct MetricsPart<T> {
    pub(crate) value: Option<Arc<T>>,
    pub(crate) age: Option<Duration>,
    pub(crate) trouble: Option<String>,
}

impl<T> MetricsPart<T> {
    fn of(found: Result<Cached<T, NoPart>, Missing<NoPart>>) -> Self {
        match found {
            Ok(Cached { value, age, failure, .. }) => {
                let trouble = failure.map(|why| why.to_string());
                Self { value: Some(value), age: Some(age), trouble }
            }
            Err(missing) => Self { value: None, age: None, trouble: Some(missing.to_string()) },
        }
    }
}

impl Metrics {
    pub(crate) fn new(node: &Node, spans: Option<Arc<SpanCounts>>) -> Self {
        let (engine, counts, oldest) = (node.clone(), node.clone(), node.clone());
        Self {
            engine: StaleCache::new(plan(), move || snapshot(engine.clone())),
            counts: StaleCache::new(plan(), move || stock(counts.clone())),
            oldest: StaleCache::new(plan(), move || {
                let node = oldest.clone();
                async move { node.read(|reader| reader.oldest()).await.map_err(|error| in_words(&error)) }
            }),
            spans,
        }
    }

    pub(crate) async fn gather(&self) -> MetricsInput {
        let (engine, counts, oldest) = tokio::join!(
            self.engine.renewed(SAME_WITHIN),
            self.counts.renewed(SAME_WITHIN),
            self.oldest.renewed(SAME_WITHIN)
        );
        MetricsInput {
            engine: MetricsPart::of(engine),
            counts: MetricsPart::of(counts),
            oldest: MetricsPart::of(oldest),
        }
    }
}

pub(crate) fn plan() -> StalePlan {
    let lifetimes = Lifetimes { fresh: SAME_WITHIN, kept: KEPT, failure: SAME_WITHIN };
    StalePlan { lifetimes, limit: PART_MAX, clock: timer_clock() }
}

async fn snapshot(node: Node) -> Result<Snapshot, NoPart> {
    node.snapshot().await.ok_or_else(|| NoPart("the server is shutting down".to_owned()))
}

async fn stock(node: Node) -> Result<StoreTotals, NoPart> {
    let reading = || async {
        let read = node.read(|reader| Ok((reader.counts()?, open_replays_of(reader)?, reader.bytes()?)));
        let (counts, open_replays, bytes) = read.await.map_err(|error| in_words(&error))?;
        // Without an engine nothing is known to be stranded.
        let left = node.snapshot().await.map_or(0, |snapshot| stranded(&snapshot, &counts));
        Ok((StoreTotals { counts, stranded: left, open_replays, bytes }, left))
    };
    let (stock, stranded) = until_nothing_is_stranded(reading).await?;
    Ok(StoreTotals { stranded, ..stock })
}

/// Without paths, which are only for the log.
fn in_words(error: &ReadError) -> NoPart {
    if let ReadError::Store(error) = error {
        tracing::warn!(%error, "metrics unavailable");
    }
    NoPart(error.to_string())
}
