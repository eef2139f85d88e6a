//! Who may do what: roles, what each may do, and what a caller is bound to.
//!
//! Invariant: whatever is not allowed is refused; a role that nobody knows may do nothing.

use serde::{Deserialize, Serialize};

/// What somebody is trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends events, and sees nothing.
    Ingest,
    /// Looks, and changes nothing.
    Viewer,
    /// Looks, sends events, and deals with services, dead letters and replays.
    Operator,
    /// May do everything, keys included.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Viewer, Self::Operator, Self::Admin];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// What a caller is bound to; empty lists bind to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Only events of these sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Only these services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}
