//! `target: { append: FILE }`: appends the data of each event to a file.

use std::io::Write;
use std::sync::Arc;

use redrive_core::book::connectors::{CallProtocol, Connector, Edge, Profile};
use redrive_core::book::schema::ValueType;
use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::{BrokerError, ReplyKind, TargetReply};
use redrive_core::policy::catalog::DependencyKind;
use redrive_node::connectors::{ConnectorFuture, Driver, Make};
use redrive_node::target::Target;

pub(super) const DRIVER: Driver = Driver {
    connector: &CONNECTOR,
    make: Make::Target(|endpoint, _| {
        Ok(Arc::new(Append(endpoint.settings::<String>().cloned().unwrap_or_default())))
    }),
};

static CONNECTOR: Connector = Connector {
    dependency: Some(DependencyKind::Blob),
    speech: CallProtocol::Broker,
    ..Connector::new(Edge::Target, "append", ValueType::Text, "A file that data are appended to.", |from| {
        let path = from.own_text()?;
        Some((Arc::new(path.clone()), Profile { shown: path, ..Profile::default() }))
    })
};

struct Append(String);

impl Target for Append {
    fn call(&self, call: Arc<TargetCall>) -> ConnectorFuture<'_, Ending> {
        Box::pin(async move {
            let data: Vec<u8> =
                call.deliveries.iter().flat_map(|one| [&one.event.data[..], b"\n"].concat()).collect();
            let file = std::fs::OpenOptions::new().append(true).create(true).open(&self.0);
            // A target reports what it observed; the rule book decides what it means.
            let (seen, message) = match file.and_then(|mut file| file.write_all(&data)) {
                Ok(()) => (ReplyKind::Taken, String::new()),
                Err(error) => (ReplyKind::Broker(BrokerError::Unavailable), error.to_string()),
            };
            Ending::Reply(TargetReply { seen, message, retry_after: None })
        })
    }
}
