//! Samples what alerts are evaluated against: the engine's state each time, the store's only as often as
//! needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::alerts::{
    AlertSample, IncidentSample, LetterSample, QueueSample, SampleNeeds, SourceSample,
};
use redrive_core::book::RuleBook;
use redrive_core::engine::{DependencyView, QueueName};
use redrive_core::figures::Figures;
use redrive_core::time::Timestamp;
use tokio::time::Instant;

use super::super::{Node, ReadError, Snapshot};
use crate::source::SourceView;
use crate::store::letter::{KindView, LetterFilter};
use crate::store::{Oldest, StoreCounts};

const OLDEST_EVERY: Duration = Duration::from_secs(5);
/// How often dead letters are counted by kind; there may be many.
const LETTERS_EVERY: Duration = Duration::from_secs(5);

pub(super) struct SampledFigures {
    pub(super) at: Timestamp,
    figures: Arc<Figures>,
    dependencies: Vec<DependencyView>,
    queues: Vec<QueueSample>,
    letters: Option<Vec<LetterSample>>,
    troubles: Vec<IncidentSample>,
    sources: Vec<SourceSample>,
}

impl SampledFigures {
    pub(super) fn sample<'a>(&'a self, book: &'a RuleBook) -> AlertSample<'a> {
        AlertSample {
            at: self.at,
            book,
            figures: &self.figures,
            dependencies: &self.dependencies,
            queues: &self.queues,
            letters: self.letters.as_deref(),
            incidents: &self.troubles,
            sources: &self.sources,
        }
    }
}

#[cfg(test)]
impl SampledFigures {
    pub(super) fn of_letters(at: Timestamp, dead: u64) -> Self {
        let service = redrive_core::ids::ServiceName::new("shop").expect("a name");
        let name = Arc::new(QueueName { service, channel: None });
        let queue = QueueSample {
            name,
            waiting: 0,
            without_rule: 0,
            oldest_waiting_at: None,
            dead,
            oldest_dead_at: None,
        };
        let (figures, dependencies, troubles, sources) = Default::default();
        Self { at, figures, dependencies, queues: vec![queue], letters: None, troubles, sources }
    }
}

/// Takes samples, and caches what need not be read each time.
#[derive(Default)]
pub(super) struct AlertSampler {
    oldest: BTreeMap<QueueName, Oldest>,
    oldest_at: Option<Instant>,
    letters_at: Option<Instant>,
}

impl AlertSampler {
    /// None if the store does not answer or the node is stopping.
    pub(super) async fn look(&mut self, node: &Node, wants: SampleNeeds) -> Option<SampledFigures> {
        let snapshot = node.snapshot().await?;
        match self.ask(node, wants, snapshot).await {
            Ok(seen) => Some(seen),
            Err(error) => {
                tracing::debug!(%error, "alerts not evaluated");
                None
            }
        }
    }

    async fn ask(
        &mut self,
        node: &Node,
        wants: SampleNeeds,
        snapshot: Snapshot,
    ) -> Result<SampledFigures, ReadError> {
        let counts = node.read(|reader| reader.counts()).await?;
        if wants.oldest && is_due(self.oldest_at, OLDEST_EVERY) {
            self.oldest = node.read(|reader| reader.oldest()).await?;
            self.oldest_at = Some(Instant::now());
        }
        let mut letters = None;
        if wants.letters && is_due(self.letters_at, LETTERS_EVERY) {
            let kinds = node.read(|reader| reader.kinds(&LetterFilter::default())).await?;
            letters = Some(kinds.into_iter().map(letter).collect());
            self.letters_at = Some(Instant::now());
        }
        // What is found from now on belongs to the next sample.
        let at = node.now();
        Ok(SampledFigures {
            at,
            troubles: node.troubles(),
            sources: node.sources().into_iter().filter_map(source).collect(),
            queues: self.queues(&counts),
            figures: snapshot.figures,
            dependencies: snapshot.dependencies,
            letters,
        })
    }

    fn queues(&self, counts: &StoreCounts) -> Vec<QueueSample> {
        let sample = |(name, counts): (&QueueName, &crate::store::QueueCounts)| {
            let oldest = self.oldest.get(name).copied().unwrap_or_default();
            QueueSample {
                name: Arc::new(name.clone()),
                waiting: counts.waiting,
                without_rule: counts.without_rule,
                // The cached oldest may have ended since.
                oldest_waiting_at: oldest.waiting_since.filter(|_| counts.waiting > 0),
                dead: counts.dead,
                oldest_dead_at: oldest.dead_since.filter(|_| counts.dead > 0),
            }
        };
        counts.queues.iter().map(sample).collect()
    }
}

fn is_due(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}

fn source((name, view): (String, SourceView)) -> Option<SourceSample> {
    view.lag.map(|lag| SourceSample { name, lag })
}

fn letter(kind: KindView) -> LetterSample {
    LetterSample {
        queue: Arc::new(kind.queue),
        category: kind.category,
        event_type: kind.event_type.into(),
        fingerprint: kind.fingerprint.to_string().into(),
        count: kind.count,
        oldest_at: Some(kind.first_at),
    }
}
