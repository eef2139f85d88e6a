//! Alerts: conditions of the rule book that are held against what was counted, over windows of time.

pub mod notice;
