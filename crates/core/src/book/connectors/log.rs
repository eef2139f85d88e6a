//! The `log` target: prints each event.

use std::sync::Arc;

use super::{Connector, Edge, Endpoint, Profile};
use crate::book::schema::ValueType;

pub static TARGET: Connector = Connector::new(
    Edge::Target,
    "log",
    ValueType::Word(&["stdout"]),
    "Prints each event on standard output.",
    |_| Some((Arc::new(()), profile())),
);

fn profile() -> Profile {
    Profile { shown: "stdout".to_owned(), ..Profile::default() }
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(&TARGET, Arc::new(()), profile())
}
