//! Where secrets come from: the environment, a file, or a command that prints them.

use std::sync::Arc;

use super::{Connector, Edge, Profile, SettingsReader, ConnectorSettings};
use crate::book::schema::ValueType;

/// A variable of the environment; its settings are its name, a [`String`].
pub static ENV: Connector =
    Connector::new(Edge::Secret, "env", ValueType::Text, "A variable of the environment.", read_text);

/// A file; its settings are its path, a [`String`].
pub static FILE: Connector = Connector::new(Edge::Secret, "file", ValueType::Text, "A file.", read_text);

/// A command; its settings are its words, a [`Vec<String>`].
pub static COMMAND: Connector =
    Connector::new(Edge::Secret, "command", ValueType::ListOf(&ValueType::Text), "A command that prints it.", |from| {
        Some((Arc::new(from.texts("command")), Profile::default()))
    });

fn read_text(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    Some((Arc::new(from.own_text()?), Profile::default()))
}
