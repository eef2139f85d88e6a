//! Webhook sources: ingress, refused calls, `redrive hooks`.

pub(crate) mod command;
pub(crate) mod handlers;
pub(crate) mod json;
pub(crate) mod refused;
mod sign;
pub(crate) mod text;
