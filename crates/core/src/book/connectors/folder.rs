//! The archive in a folder; its settings are the path, a [`String`].

use std::sync::Arc;

use super::{Connector, Edge, Profile};
use crate::book::schema::Type;
use crate::policy::catalog::Kind;

/// The connector.
pub static ARCHIVE: Connector = Connector {
    dependency: Some(Kind::Blob),
    ..Connector::new(Edge::Archive, "folder", Type::Text, "A folder; each day has one of its own.", |from| {
        let folder = from.own_text()?;
        Some((Arc::new(folder.clone()), Profile { shown: folder, ..Profile::default() }))
    })
};
