//! Server status: health, status, metrics, live stream, trend.

pub(crate) mod command;
pub(crate) mod handlers;
pub(crate) mod health;
mod json;
pub(crate) mod live;
pub(crate) mod metrics;
mod text;
pub(crate) mod trend;
mod watch;
