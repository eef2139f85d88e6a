//! The part of Redrive that decides.
//!
//! Everything here is a pure function of its arguments: the time and the seed come in, a verdict
//! goes out. Nothing in this crate reads a clock, draws a random number, opens a file or waits, so
//! the live engine, the simulator and the tests all run the same code and get the same answers.

pub mod access;
pub mod alert;
pub mod answer;
pub mod archive;
pub mod backoff;
pub mod book;
pub mod breaker;
pub mod budget;
pub mod catalog;
pub mod category;
pub mod classify;
pub mod copies;
pub mod decide;
pub mod engine;
pub mod envelope;
pub mod event;
pub mod figures;
pub mod fingerprint;
pub mod freshness;
pub mod hash;
pub mod history;
pub mod idempotency;
pub mod ids;
pub mod limits;
pub mod mask;
pub mod metric_names;
pub mod name_template;
pub mod position;
pub mod quota;
pub mod redact;
pub mod replay;
pub mod reported;
pub mod reprocess;
pub mod retry_after;
pub mod rule;
pub mod schedule;
pub mod story;
pub mod text;
pub mod throttle;
pub mod time;
pub mod trace;
mod window;
pub mod worker;
