//! Dependencies and their circuit breakers: JSON, handlers, `redrive breakers`, terminal output.

pub(crate) mod command;
pub(crate) mod handlers;
pub(crate) mod json;
mod text;
