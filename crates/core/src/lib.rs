//! The part of Redrive that decides.
//!
//! Everything here is a pure function of its arguments: the time and the seed come in, a verdict
//! goes out. Nothing in this crate reads a clock, draws a random number, opens a file or waits, so
//! the live engine, the simulator and the tests all run the same code and get the same answers.

pub mod access;
pub mod alerts;
pub mod archive;
pub mod book;
pub mod engine;
pub mod event;
pub mod figures;
pub mod freshness;
pub mod hash;
pub mod ids;
pub mod letters;
pub mod limits;
pub mod mask;
pub mod metric_names;
pub mod policy;
pub mod quota;
pub mod redact;
pub mod schedule;
#[cfg(feature = "schema")]
mod schema;
pub mod store_model;
pub mod text;
pub mod time;
pub mod trace;
