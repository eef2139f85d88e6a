//! The state of polled sources.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use redrive::clock::wall_clock;

use super::{Node, NodeShared, SubmitError};
use crate::source::{SourceState, SourceView};
use crate::store::StateChange;
use crate::store::access_store::RefusedBody;

pub(super) type SourceViews = Mutex<BTreeMap<String, SourceView>>;

/// Does not keep the node alive.
#[derive(Clone)]
pub struct WeakNode(Weak<NodeShared>);

impl WeakNode {
    #[must_use]
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(|shared| Node { shared })
    }
}

impl Node {
    #[must_use]
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.shared))
    }

    #[must_use]
    pub fn sources(&self) -> BTreeMap<String, SourceView> {
        self.with_sources(|views| views.clone())
    }

    /// Shows a source; existing counts continue.
    pub(crate) fn add_source(&self, name: &str, kind: &'static str) {
        let fresh = || SourceView {
            kind,
            state: SourceState::Connecting,
            since: wall_clock(),
            lag: None,
            held: 0,
            durable: 0,
            duplicates: 0,
            refused: 0,
        };
        self.with_sources(|views| views.entry(name.to_owned()).or_insert_with(fresh).kind = kind);
    }

    pub(crate) fn remove_source(&self, name: &str) {
        self.with_sources(|views| drop(views.remove(name)));
    }

    /// Updates a source, if it is still shown.
    pub(crate) fn see_source<T: Default>(&self, name: &str, see: impl FnOnce(&mut SourceView) -> T) -> T {
        self.with_sources(|views| views.get_mut(name).map(see).unwrap_or_default())
    }

    /// Stores a refused message for inspection; durable when this returns.
    pub(crate) async fn record_refused(&self, refused: RefusedBody) -> Result<(), SubmitError> {
        self.note(StateChange::Refused(Box::new(refused)), None).await
    }

    fn with_sources<T>(&self, with: impl FnOnce(&mut BTreeMap<String, SourceView>) -> T) -> T {
        with(&mut self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
