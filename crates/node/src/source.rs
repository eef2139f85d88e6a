//! Where events come from: one small trait, and the runner that every source shares.

/// Pulls messages.
pub trait Source: Send {}
