//! The connectors of this build: the one table that `check`, `schema`, the simulator, `try` and `serve` ask.

use std::sync::LazyLock;

use redrive_core::book::Connectors;
use redrive_node::connectors::{Driver, Drivers};

/// Connectors beside those that are built in: one line each.
const MORE: [Driver; 0] = [];

/// How connectors are made.
pub(crate) fn drivers() -> &'static Drivers {
    static TABLE: LazyLock<Drivers> = LazyLock::new(|| Drivers::built_in().with(&MORE));
    &TABLE
}

/// What books are read with.
pub(crate) fn table() -> &'static Connectors {
    drivers().connectors()
}
