//! The rule book: read, checked, resolved.

pub mod expression;
pub mod pattern;
pub mod problem;
pub mod yaml;
