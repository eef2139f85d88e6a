//! Dead letters: their envelope, the group they belong to, and how they are replayed.

pub mod envelope;
pub mod fingerprint;
pub mod name_template;
pub mod replay;
pub mod reprocess;
