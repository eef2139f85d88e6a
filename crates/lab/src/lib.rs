//! Tools for rule books: lints, reports, JSON Schema, simulation, rehearsal, backtest, diagnosis, import and export.
//!
//! Everything is pure, like [`redrive_core`]. The delivery path uses none of it.

pub mod backtest;
pub mod dapr;
pub mod doctor;
pub mod json_schema;
pub mod lint;
pub mod prometheus_rules;
pub mod rehearse;
pub mod report;
pub mod scenario;
pub mod simulate;

// The laws of the fuzz targets import this crate by name.
#[cfg(test)]
extern crate self as redrive_lab;

#[cfg(test)]
mod corpus_test;
#[cfg(test)]
mod json_schema_test;
#[cfg(test)]
mod key_behaviour_test;
#[cfg(test)]
mod key_explained_test;
