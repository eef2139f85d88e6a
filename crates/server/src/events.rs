//! Events in: ingress handlers, `redrive send`, `tail`, `sink`, `route`.

pub(crate) mod handlers;
pub(crate) mod json;
pub(crate) mod route;
pub(crate) mod send;
pub(crate) mod sink;
pub(crate) mod tail;
