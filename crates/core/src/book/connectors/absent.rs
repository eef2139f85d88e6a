//! Connectors missing from this build: each keeps a row, so that a book that uses it can be read and simulated;
//! serving it is refused.

use std::sync::Arc;

use super::{Availability, CallProtocol, Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::schema::ValueType;
use crate::book::yaml::YamlNode;
use crate::policy::catalog::DependencyKind;
use crate::text::hide_passwords;

/// Accepts any value under its key.
#[must_use]
pub const fn absent(
    edge: Edge,
    name: &'static str,
    presence: Availability,
    about: &'static str,
) -> Connector {
    Connector { presence, ..Connector::new(edge, name, ValueType::Any, about, read) }
}

#[rustfmt::skip]
pub(super) static PLANNED: [Connector; 9] = [
    target("kafka",          DependencyKind::Kafka,      CallProtocol::Broker,  "A Kafka topic. Not available in this version."),
    target("redis-stream",   DependencyKind::Redis,      CallProtocol::Broker,  "A Redis stream. Not available in this version."),
    target("sqs",            DependencyKind::Sqs,        CallProtocol::HttpApi, "The address of an SQS queue. Not available in this version."),
    target("service-bus",    DependencyKind::ServiceBus, CallProtocol::HttpApi, "A Service Bus queue or topic. Not available in this version."),
    planned(Edge::Source, "kafka",        DependencyKind::Kafka,      "Kafka topics. Not available in this version."),
    planned(Edge::Source, "redis-stream", DependencyKind::Redis,      "A Redis stream. Not available in this version."),
    planned(Edge::Source, "sqs",          DependencyKind::Sqs,        "An SQS queue. Not available in this version."),
    planned(Edge::Source, "service-bus",  DependencyKind::ServiceBus, "A Service Bus queue. Not available in this version."),
    planned(Edge::Secret, "key-vault",    DependencyKind::KeyVault,   "The address of a secret in Key Vault. Not available in this version."),
];

const fn target(
    name: &'static str,
    kind: DependencyKind,
    speech: CallProtocol,
    about: &'static str,
) -> Connector {
    Connector { speech, ..planned(Edge::Target, name, kind, about) }
}

const fn planned(edge: Edge, name: &'static str, kind: DependencyKind, about: &'static str) -> Connector {
    Connector { dependency: Some(kind), ..absent(edge, name, Availability::Planned, about) }
}

/// Collects all texts under the key, since any of them may be an address.
fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let mut texts = Vec::new();
    collect(from.own()?, &mut texts);
    let profile = Profile {
        shown: hide_passwords(&texts.join(", ")).into_owned(),
        addresses: texts.clone(),
        ..Profile::default()
    };
    Some((Arc::new(texts), profile))
}

fn collect(node: &YamlNode, texts: &mut Vec<String>) {
    texts.extend(node.text().map(str::to_owned));
    let values = node.entries().iter().map(|(_, value)| value);
    values.chain(node.items()).for_each(|node| collect(node, texts));
}
