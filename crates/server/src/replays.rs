//! Replays of dead letters: JSON, handlers, `redrive dlq replay` and `redrive replays`.

pub(crate) mod command;
pub(crate) mod handlers;
pub(crate) mod json;
pub(crate) mod start;
pub(crate) mod text;
