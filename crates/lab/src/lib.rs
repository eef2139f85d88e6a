//! What a rule book says, would do and did: lints, reports, JSON Schema, simulation, rehearsal, backtest, diagnosis, and
//! the translation to and from other formats.
//!
//! Everything here is pure, like [`redrive_core`], and stands on top of it. The delivery path needs none of it.

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

// The laws that the fuzz targets hold us to name the lab from outside.
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
