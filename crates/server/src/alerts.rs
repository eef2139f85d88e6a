//! Alerts and receivers: JSON, handlers, `redrive alerts`, terminal output.

pub(crate) mod command;
pub(crate) mod handlers;
mod json;
mod text;
