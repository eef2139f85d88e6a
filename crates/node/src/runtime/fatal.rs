//! Reports a fatal failure of the node to its host.
//!
//! The writer and the engine depend on each other: half a node would accept events and never deliver them. So
//! when one of them panics, no more events are accepted and the host is notified, which decides what to do. A
//! new process starts with what is durable.

use std::any::Any;
use std::sync::Arc;

use tokio::sync::watch;

use super::Node;
use super::health::HealthRecord;
use super::inbox::Inbox;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of the node failed: {message}")]
pub struct Fatal {
    pub part: &'static str,
    pub message: String,
}

/// Notifies the host; clones share one channel.
#[derive(Clone)]
pub(super) struct FatalReporter {
    sender: watch::Sender<Option<Fatal>>,
    inbox: Arc<Inbox>,
    chart: HealthRecord,
}

impl FatalReporter {
    pub(super) fn new(inbox: Arc<Inbox>, chart: HealthRecord) -> Self {
        Self { sender: watch::Sender::new(None), inbox, chart }
    }

    pub(super) fn panicked(&self, part: &'static str, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let message = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        tracing::error!(part, panic = message, "node component panicked, no more events are accepted");
        self.chart.stops();
        self.inbox.end();
        let fatal = Fatal { part, message: message.to_owned() };
        // The first failure is the cause of the others.
        self.sender.send_if_modified(|sent| {
            let is_first = sent.is_none();
            sent.get_or_insert(fatal);
            is_first
        });
    }

    async fn wait(&self) -> Fatal {
        let mut sender = self.sender.subscribe();
        let fatal = sender.wait_for(Option::is_some).await.expect("the sender is ours");
        fatal.clone().expect("it was waited for")
    }
}

impl Node {
    /// Waits until the node fails, which is normally never. It accepts no events afterwards, and the next
    /// process retries what is in flight, so the host should exit.
    pub async fn failed(&self) -> Fatal {
        self.shared.fatal.wait().await
    }
}
