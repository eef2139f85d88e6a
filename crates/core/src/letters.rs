//! Dead letters: their envelope, the group they belong to, and how they are replayed.

pub mod envelope;
pub mod fingerprint;
pub mod name_template;
pub mod replay;
pub mod reprocess;

use serde::{Deserialize, Serialize};

/// Later dead letters have larger numbers; one that fails again gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LetterNumber(pub u64);
