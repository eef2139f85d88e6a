//! The connectors of this build: one table for `check`, `schema`, the simulator, `try` and `serve`.

use std::sync::LazyLock;

use redrive_core::book::Connectors;
use redrive_node::connectors::{Driver, Drivers};

/// Connectors beside the built-in ones: one line each.
const MORE: [Driver; 0] = [];

pub(crate) fn drivers() -> &'static Drivers {
    static TABLE: LazyLock<Drivers> = LazyLock::new(|| Drivers::built_in().with(&MORE));
    &TABLE
}

pub(crate) fn table() -> &'static Connectors {
    drivers().connectors()
}
