//! What a store keeps for the doors: keys, bodies that were refused, and what was done by whom.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::access::{Role, Scope};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Keys that there may be, revoked ones included.
pub const KEYS_MAX: usize = 10_000;
/// Refused bodies that are kept; the oldest go when there are more.
pub const REFUSED_MAX: usize = 1_000;
/// Bytes that refused bodies may take together with their headers; the oldest go when there are more.
pub const REFUSED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How much of one refused body is kept.
pub const REFUSED_BODY_BYTES_MAX: usize = 1024 * 1024;

/// A key that somebody may come in with; the key itself is known to its owner only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// What it is called by: the first part of the key, which is no secret.
    pub id: String,
    /// Whose it is, in words.
    pub name: String,
    /// The SHA-256 of the whole key, which is long and random: no slower hash would add anything.
    pub hash: [u8; 32],
    /// What its owner is trusted with.
    pub role: Role,
    /// What its owner is bound to.
    pub scope: Scope,
    /// How many requests a second its owner may make, if it is not what the book says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Since when it is not good any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// A body that came in by a door, with a good signature, and was no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBody {
    /// Its number; later ones have larger ones. The store gives it.
    pub number: u64,
    /// When it came. The store fills it in.
    pub at: Timestamp,
    /// By which source.
    pub source: String,
    /// What was wrong with it.
    pub reason: String,
    /// Its headers, without those that could hold a secret.
    pub headers: Vec<(String, String)>,
    /// Its beginning, at most [`REFUSED_BODY_BYTES_MAX`]; empty in lists.
    pub body: Bytes,
    /// How large it was.
    pub body_bytes: u64,
}

impl RefusedBody {
    /// As a store keeps it: with its number and time, and no more of its body than may be kept.
    pub(super) fn as_kept(&self, number: u64, at: Timestamp) -> Self {
        let body = self.body.slice(..self.body.len().min(REFUSED_BODY_BYTES_MAX));
        Self { number, at, body, ..self.clone() }
    }

    /// The bytes that it takes of what refused bodies may take together.
    pub(super) fn kept_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.source.len() + self.reason.len() + headers + self.body.len()
    }
}

/// Who did something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditActor(Option<Arc<str>>);

impl AuditActor {
    /// Nobody who is known by name: the server asks nobody for a key, or the rule book did it.
    #[must_use]
    pub const fn unknown() -> Self {
        Self(None)
    }

    /// Somebody, such as `key rk_3f (deploy)` or `alice@example.test`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Display for AuditActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("unknown"))
    }
}

/// An act to put on record that is none of the store's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// What was done, for machines: `pause`, `resume`, `route`, `backup`, `key-create`, `key-revoke`,
    /// `test-receiver` …
    pub act: &'static str,
    /// On what, in words.
    pub what: String,
    /// By whom.
    pub by: AuditActor,
    /// Why, if somebody said so.
    pub note: Option<String>,
}
