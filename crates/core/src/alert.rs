//! Alerts: conditions of the rule book that are held against what was counted, over windows of time.

pub mod catalog;
pub mod notice;
mod sample;
mod view;

pub use self::sample::{LetterSample, QueueSample, Sample, Wants};
pub use self::view::{AlertState, AlertView};
