//! JSON of API keys.

use redrive_core::access::{AccessScope, Role};
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;
use redrive_node::store::access_store::KeyRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyJson {
    /// The public id.
    pub id: String,
    /// The key's name.
    pub name: String,
    /// `viewer`, `operator`, `admin` or `ingest`.
    #[schema(value_type = String)]
    pub role: Role,
    /// Only events of these sources; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Only these services; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Maximum request rate; default: the rule book's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    pub state: KeyState,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Last use since the server started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyState {
    Good,
    Expired,
    Revoked,
}

impl KeyJson {
    pub(crate) fn new(record: &KeyRecord, last_used_at: Option<Timestamp>, now: Timestamp) -> Self {
        let KeyRecord { id, name, hash: _, role, scope, per_second, created_at, expires_at, revoked_at } =
            record.clone();
        let AccessScope { sources, services } = scope;
        let state = match (revoked_at, expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(at)) if at <= now => KeyState::Expired,
            (None, _) => KeyState::Good,
        };
        let rate = per_second.and_then(Rate::per_second).map(|rate| rate.to_string());
        Self {
            id,
            name,
            role,
            sources,
            services,
            rate,
            state,
            created_at,
            expires_at,
            revoked_at,
            last_used_at,
        }
    }
}

/// All keys, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeysResponse {
    pub keys: Vec<KeyJson>,
}

/// A revoked key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyRevocation {
    #[serde(flatten)]
    pub shown: KeyJson,
    /// A warning, such as that no admin key is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A created key.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CreateKeyResponse {
    /// The key itself, shown only here.
    pub key: String,
    #[serde(flatten)]
    pub shown: KeyJson,
}
