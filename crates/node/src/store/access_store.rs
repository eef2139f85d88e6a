//! Stored for access control: API keys, refused webhook bodies, audit entries.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::access::{AccessScope, Role};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Revoked ones included.
pub const KEYS_MAX: usize = 10_000;
/// The oldest go first.
pub const REFUSED_MAX: usize = 1_000;
/// Bodies and headers together; the oldest go first.
pub const REFUSED_BYTES_MAX: usize = 64 * 1024 * 1024;
pub const REFUSED_BODY_BYTES_MAX: usize = 1024 * 1024;

/// An API key. Only its hash is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Public first part of the key.
    pub id: String,
    pub name: String,
    /// SHA-256 of the whole key, which is long and random: a slower hash would add nothing.
    pub hash: [u8; 32],
    pub role: Role,
    pub scope: AccessScope,
    /// Overrides the rule book's rate limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// A webhook body with a valid signature that was not a valid event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBody {
    /// Ascending; the store assigns it.
    pub number: u64,
    pub at: Timestamp,
    pub source: String,
    pub reason: String,
    /// Without those that may hold secrets.
    pub headers: Vec<(String, String)>,
    /// First [`REFUSED_BODY_BYTES_MAX`] bytes; empty in lists.
    pub body: Bytes,
    pub body_bytes: u64,
}

impl RefusedBody {
    /// The stored form: numbered, timed and truncated.
    pub(super) fn as_kept(&self, number: u64, at: Timestamp) -> Self {
        let body = self.body.slice(..self.body.len().min(REFUSED_BODY_BYTES_MAX));
        Self { number, at, body, ..self.clone() }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.source.len() + self.reason.len() + headers + self.body.len()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditActor(Option<Arc<str>>);

impl AuditActor {
    /// No key was required, or the rule book acted.
    #[must_use]
    pub const fn unknown() -> Self {
        Self(None)
    }

    /// Such as `key rk_3f (deploy)` or `alice@example.test`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(Some(name.into()))
    }

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

/// An action to record in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// For machines: `pause`, `resume`, `route`, `backup`, `key-create`, `key-revoke`, `test-receiver` …
    pub act: &'static str,
    pub what: String,
    pub by: AuditActor,
    pub note: Option<String>,
}
