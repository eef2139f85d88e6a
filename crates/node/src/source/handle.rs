//! The polled sources of the active rule book.
//!
//! Invariant: a reload does not disturb unchanged sources; a changed one ends before its successor connects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::book::RuleBook;
use redrive_core::book::connectors::Endpoint;
use redrive_core::book::model;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Source;
use super::convert::Converter;
use super::runner::{STOP_WITHIN, SourceRunner};
use crate::connectors::{Drivers, MakeError, SourceSite};
use crate::runtime::{BookSwitch, BookSwitchAt, Node, WeakNode};
use crate::secret::Secrets;

/// Clones are the same sources. They stop when the last is dropped.
#[derive(Clone)]
pub struct Sources(Arc<SourcesShared>);

/// None if the source is served elsewhere.
pub type SourceOpener = dyn Fn(&str, &Endpoint) -> Option<Result<Arc<dyn Source>, MakeError>> + Send + Sync;

struct SourcesShared {
    node: WeakNode,
    open: Box<SourceOpener>,
    running: Mutex<BTreeMap<String, RunningSource>>,
}

struct RunningSource {
    from: model::SourceEntry,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningSource {
    fn is_for(&self, source: &model::SourceEntry) -> bool {
        fn templates(source: &model::SourceEntry) -> [&Option<String>; 4] {
            [&source.event_type, &source.subject, &source.session, &source.id]
        }
        self.from.endpoint == source.endpoint && templates(&self.from) == templates(source)
    }

    async fn stopped(self) {
        self.stop.send_replace(true);
        let mut task = self.task;
        if tokio::time::timeout(STOP_WITHIN * 3, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Sources {
    /// Runs the sources of a node's book and follows its reloads; an error names the source that cannot be
    /// made.
    pub fn start(node: &Node, drivers: &Drivers, secrets: &Secrets) -> Result<Self, String> {
        let (drivers, secrets) = (drivers.clone(), secrets.clone());
        let open = move |name: &str, endpoint: &Endpoint| {
            drivers.source(endpoint, &SourceSite { name, secrets: &secrets })
        };
        Self::with(node, Box::new(open))
    }

    pub fn with(node: &Node, open: Box<SourceOpener>) -> Result<Self, String> {
        let shared = SourcesShared { node: node.downgrade(), open, running: Mutex::default() };
        let sources = Self(Arc::new(shared));
        sources.prepare(&node.book())?();
        let weak = Arc::downgrade(&sources.0);
        // Events of a new source are routed by the book that has it.
        node.follow_book("sources", BookSwitchAt::AfterNode, move |book| match weak.upgrade() {
            Some(shared) => Self(shared).prepare(book),
            None => Ok(Box::new(|| {})),
        });
        Ok(sources)
    }

    /// Makes new and changed sources; the switch starts them.
    fn prepare(&self, book: &Arc<RuleBook>) -> Result<BookSwitch, String> {
        let mut made = BTreeMap::new();
        let wanted = &book.sections().sources;
        for (name, at) in wanted {
            let is_running = self.0.running().get(name).is_some_and(|running| running.is_for(&at.value));
            if is_running {
                continue;
            }
            if let Some(source) = (self.0.open)(name, &at.value.endpoint) {
                let source = source.map_err(|error| format!("source {name}: {error}"))?;
                made.insert(name.clone(), (source, at.value.clone()));
            }
        }
        let shared = Arc::clone(&self.0);
        let keep: Vec<String> = wanted.keys().filter(|name| !made.contains_key(*name)).cloned().collect();
        Ok(Box::new(move || shared.switch(made, &keep)))
    }

    /// Stops reading, acknowledges what was handed over, and disconnects.
    pub async fn stop(&self) {
        let running = std::mem::take(&mut *self.0.running());
        for one in running.values() {
            one.stop.send_replace(true);
        }
        for one in running.into_values() {
            one.stopped().await;
        }
    }
}

impl SourcesShared {
    fn running(&self) -> MutexGuard<'_, BTreeMap<String, RunningSource>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn switch(&self, made: BTreeMap<String, (Arc<dyn Source>, model::SourceEntry)>, keep: &[String]) {
        let Some(node) = self.node.upgrade() else { return };
        let mut running = self.running();
        let (kept, mut gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut *running).into_iter().partition(|(name, _)| keep.contains(name));
        *running = kept;
        for (name, (source, from)) in made {
            let (stop, stopping) = watch::channel(false);
            node.add_source(&name, from.endpoint.key());
            let runner = SourceRunner {
                name: name.clone(),
                node: self.node.clone(),
                source,
                converter: Converter::new(&name, &from),
                stop: stopping,
            };
            let old = gone.remove(&name);
            let task = tokio::spawn(async move {
                if let Some(old) = old {
                    old.stopped().await;
                }
                runner.run().await;
            });
            running.insert(name, RunningSource { from, stop, task });
        }
        for (name, old) in gone {
            node.remove_source(&name);
            tokio::spawn(old.stopped());
        }
    }
}
