//! Dead letters: their envelope, the group they belong to, and how they are replayed.

pub mod envelope;
pub mod fingerprint;
pub mod name_template;
pub mod replay;
pub mod reprocess;

use serde::{Deserialize, Serialize};

/// A letter's number: letters that died later have larger ones, and one that dies again gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LetterNumber(pub u64);
