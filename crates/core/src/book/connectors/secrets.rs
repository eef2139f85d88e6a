//! Secret sources: environment, file, or a command that prints the secret.

use std::sync::Arc;

use super::{Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::schema::ValueType;

/// Settings: the variable's name, a [`String`].
pub static ENV: Connector =
    Connector::new(Edge::Secret, "env", ValueType::Text, "A variable of the environment.", read_text);

/// Settings: the path, a [`String`].
pub static FILE: Connector = Connector::new(Edge::Secret, "file", ValueType::Text, "A file.", read_text);

/// Settings: the command line, a [`Vec<String>`].
pub static COMMAND: Connector = Connector::new(
    Edge::Secret,
    "command",
    ValueType::ListOf(&ValueType::Text),
    "A command that prints it.",
    |from| Some((Arc::new(from.texts("command")), Profile::default())),
);

fn read_text(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    Some((Arc::new(from.own_text()?), Profile::default()))
}
