//! Deliveries and their attempts: JSON, handlers, `redrive show` and `why`.

pub(crate) mod attempt_text;
pub(crate) mod handlers;
pub(crate) mod json;
pub(crate) mod show;
pub(crate) mod text;
pub(crate) mod waits;
pub(crate) mod why;
