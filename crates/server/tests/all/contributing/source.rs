//! `sources: { in: { memory: true } }`: reads a queue of this process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::book::connectors::{Connector, Edge, Profile};
use redrive_core::book::schema::ValueType;
use redrive_core::policy::catalog::DependencyKind;
use redrive_node::connectors::{ConnectorFuture, Driver, Make};
use redrive_node::source::{
    Acknowledge, Messages, ReadRoom, SettledMessage, Source, SourceConnection, SourceError, SourceMessage,
    SourceRead,
};

pub(super) const DRIVER: Driver =
    Driver { connector: &CONNECTOR, make: Make::Source(|_, _| Ok(Arc::new(Memory))) };

static CONNECTOR: Connector = Connector {
    dependency: Some(DependencyKind::Redis),
    ..Connector::new(Edge::Source, "memory", ValueType::Bool, "The queue of this process.", |_| {
        Some((Arc::new(()), Profile::default()))
    })
};

/// Waiting messages, and the number of unacknowledged ones. A real source delivers these again after a crash.
pub(super) static QUEUE: Mutex<(VecDeque<String>, usize)> = Mutex::new((VecDeque::new(), 0));

struct Memory;

impl Source for Memory {
    fn connect(&self) -> ConnectorFuture<'_, Result<SourceConnection, SourceError>> {
        Box::pin(async { Ok(SourceConnection { messages: Box::new(Memory), acks: Box::new(Memory) }) })
    }
}

impl Messages for Memory {
    fn next(&mut self, _: ReadRoom) -> ConnectorFuture<'_, Result<SourceRead, SourceError>> {
        Box::pin(async {
            loop {
                let read = QUEUE.lock().ok().and_then(|mut queue| {
                    let body = queue.0.pop_front()?;
                    queue.1 += 1;
                    Some(body)
                });
                if let Some(body) = read {
                    // The same id every time the message is read, so that repetitions are deduplicated.
                    let id = body.clone();
                    let (partition, headers, fault, token) = (None, Vec::new(), None, Arc::new(()));
                    let message = SourceMessage { id, partition, headers, body: body.into(), fault, token };
                    return Ok(SourceRead::Messages(vec![message]));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    }
}

impl Acknowledge for Memory {
    fn settle(&mut self, settled: Vec<SettledMessage>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        if let Ok(mut queue) = QUEUE.lock() {
            queue.1 -= settled.len();
        }
        Box::pin(async { Ok(()) })
    }

    fn lag(&mut self) -> ConnectorFuture<'_, Option<u64>> {
        let lag = QUEUE.lock().ok().map(|queue| (queue.0.len() + queue.1) as u64);
        Box::pin(async move { lag })
    }
}
