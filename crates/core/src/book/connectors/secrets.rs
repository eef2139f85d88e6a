//! Where secrets come from: the environment, a file, or a command that prints them.

use std::sync::Arc;

use super::{Connector, Edge, Profile, Reader, Settings};
use crate::book::schema::Type;

/// A variable of the environment; its settings are its name, a [`String`].
pub static ENV: Connector =
    Connector::new(Edge::Secret, "env", Type::Text, "A variable of the environment.", read_text);

/// A file; its settings are its path, a [`String`].
pub static FILE: Connector = Connector::new(Edge::Secret, "file", Type::Text, "A file.", read_text);

/// A command; its settings are its words, a [`Vec<String>`].
pub static COMMAND: Connector =
    Connector::new(Edge::Secret, "command", Type::ListOf(&Type::Text), "A command that prints it.", |from| {
        Some((Arc::new(from.texts("command")), Profile::default()))
    });

fn read_text(from: &mut Reader<'_>) -> Option<(Arc<dyn Settings>, Profile)> {
    Some((Arc::new(from.own_text()?), Profile::default()))
}
