//! Folders: the archive (its settings are the path, a [`String`]), and the source that reads files.

use std::sync::Arc;

use super::{Connector, Edge, Profile};
use crate::book::schema::{ValueType, key};
use crate::policy::catalog::DependencyKind;

pub static ARCHIVE: Connector = Connector {
    dependency: Some(DependencyKind::Blob),
    ..Connector::new(
        Edge::Archive,
        "folder",
        ValueType::Text,
        "A folder; each day has one of its own.",
        |from| {
            let folder = from.own_text()?;
            Some((Arc::new(folder.clone()), Profile { shown: folder, ..Profile::default() }))
        },
    )
};

pub static SOURCE: Connector = Connector {
    beside: &[key(
        "when_done",
        ValueType::Word(&["delete", "keep"]),
        "With `folder`: what happens to a file whose events are durable: `delete` (the default), or `keep` to move it to the subfolder `done`.",
    )],
    dependency: Some(DependencyKind::Blob),
    ..Connector::new(
        Edge::Source,
        "folder",
        ValueType::Text,
        "A folder that files are moved into: a file is an event, a line of an `.ndjson` or `.jsonl` file is one. Without `type` each is a CloudEvent in JSON.",
        |from| {
            let folder = from.own_text()?;
            if from.node("type").is_none() {
                from.exclude(&["id"], "without `type`, each event is a CloudEvent with its own id");
            }
            let settings = FolderSettings { folder: folder.clone(), keeps: from.says("when_done", "keep") };
            Some((Arc::new(settings), Profile { shown: folder, ..Profile::default() }))
        },
    )
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderSettings {
    pub folder: String,
    /// Whether files with durable events are kept.
    pub keeps: bool,
}
