//! The HTTP API.

pub(crate) mod shape;
