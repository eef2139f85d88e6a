//! Gathers what metrics are made of, part by part: each part may fail or take too long by itself, and the
//! others are told all the same.
//!
//! Every part is kept in a [`StaleCache`]: what cannot be had now is served as it was, with its age, until it
//! is too old.

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

/// Whoever asks again within this gets the same answer.
const SAME_WITHIN: Duration = Duration::from_millis(200);

/// How long a part may take.
const PART_MAX: Duration = Duration::from_secs(2);

/// How long figures are told that cannot be had anew.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// Why a part cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoPart(pub(crate) String);

/// How much there is, as the store and the engine say at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreTotals {
    pub(crate) counts: StoreCounts,
    pub(crate) stranded: u64,
    pub(crate) open_replays: u64,
    pub(crate) bytes: u64,
}

/// The parts by name, each in a cache of its own.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) engine: StaleCache<Snapshot, NoPart>,
    pub(crate) counts: StaleCache<StoreTotals, NoPart>,
    pub(crate) oldest: StaleCache<BTreeMap<QueueName, Oldest>, NoPart>,
    /// What became of spans, if traces are told of.
    pub(crate) spans: Option<Arc<SpanCounts>>,
}

/// What could be had.
pub(crate) struct MetricsInput {
    pub(crate) engine: MetricsPart<Snapshot>,
    pub(crate) counts: MetricsPart<StoreTotals>,
    pub(crate) oldest: MetricsPart<BTreeMap<QueueName, Oldest>>,
}

/// One part: as it is, as it was, or not at all.
pub(crate) struct MetricsPart<T> {
    pub(crate) value: Option<Arc<T>>,
    pub(crate) age: Option<Duration>,
    /// Why it is not as it should be.
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
    /// The figures of a node.
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

    /// Everything that can be had now, or could a while ago.
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

/// How each part is kept.
pub(crate) fn plan() -> StalePlan {
    let lifetimes = Lifetimes { fresh: SAME_WITHIN, kept: KEPT, failure: SAME_WITHIN };
    StalePlan { lifetimes, limit: PART_MAX, clock: timer_clock() }
}

async fn snapshot(node: Node) -> Result<Snapshot, NoPart> {
    node.snapshot().await.ok_or_else(|| NoPart("the server is shutting down".to_owned()))
}

async fn stock(node: Node) -> Result<StoreTotals, NoPart> {
    let look = || async {
        let read = node.read(|reader| Ok((reader.counts()?, open_replays_of(reader)?, reader.bytes()?)));
        let (counts, open_replays, bytes) = read.await.map_err(|error| in_words(&error))?;
        // Without an engine nothing can be said to be stranded.
        let left = node.snapshot().await.map_or(0, |snapshot| stranded(&snapshot, &counts));
        Ok((StoreTotals { counts, stranded: left, open_replays, bytes }, left))
    };
    let (stock, stranded) = until_nothing_is_stranded(look).await?;
    Ok(StoreTotals { stranded, ..stock })
}

/// What is told: where the store lies is nobody's business but the log's.
fn in_words(error: &ReadError) -> NoPart {
    if let ReadError::Store(error) = error {
        tracing::warn!(%error, "figures could not be read");
    }
    NoPart(error.to_string())
}
