//! A part of the node that failed for good, and how whoever runs the node hears of it.
//!
//! The writer and the engine live and die together: half a node would take events and never deliver them. So when
//! one of them panics, no more events are taken, and the host is told. What it does then is its own decision; a new
//! process begins with what is durable.

use std::any::Any;
use std::sync::Arc;

use tokio::sync::watch;

use super::Node;
use super::health::Chart;
use super::inbox::Inbox;

/// Why a node cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of the node failed: {message}")]
pub struct Fatal {
    /// Which part failed.
    pub part: &'static str,
    /// What it said when it did.
    pub message: String,
}

/// Tells the host; clones are the same.
#[derive(Clone)]
pub(super) struct Knell {
    told: watch::Sender<Option<Fatal>>,
    inbox: Arc<Inbox>,
    chart: Chart,
}

impl Knell {
    pub(super) fn new(inbox: Arc<Inbox>, chart: Chart) -> Self {
        Self { told: watch::Sender::new(None), inbox, chart }
    }

    /// That part has panicked.
    pub(super) fn panicked(&self, part: &'static str, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let message = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        tracing::error!(
            part,
            panic = message,
            "a part of the node failed, which is a bug: it takes no more events"
        );
        self.chart.stops();
        self.inbox.end();
        let fatal = Fatal { part, message: message.to_owned() };
        // The first failure is the cause of all others.
        self.told.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert(fatal);
            is_first
        });
    }

    async fn rings(&self) -> Fatal {
        let mut told = self.told.subscribe();
        let fatal = told.wait_for(Option::is_some).await.expect("the sender is ours");
        fatal.clone().expect("it was waited for")
    }
}

impl Node {
    /// Waits until the node cannot go on, which is never if all is well. It takes no events any more then, and
    /// what is in hand is tried again by the next process: the host had better end this one.
    pub async fn failed(&self) -> Fatal {
        self.shared.knell.rings().await
    }
}
