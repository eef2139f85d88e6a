//! Targets, sources, access, archive and secrets of the book.

use std::time::Duration;

use super::{At, DeclaredFacts};
use crate::book::connectors::Endpoint;
use crate::book::problem::BookSpan;
use crate::ids::{BreakerName, DependencyName};
use crate::text::Rate;

#[derive(Clone, Debug, PartialEq)]
pub struct TargetEntry {
    pub span: BookSpan,
    pub endpoint: Endpoint,
}

/// What a target's name may resolve to; a literal address in the book is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// Addresses of the public internet only.
    #[default]
    Public,
    /// Also this machine, private networks and their metadata services.
    Private,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SourceEntry {
    pub endpoint: Endpoint,
    pub event_type: Option<String>,
    pub subject: Option<String>,
    pub session: Option<String>,
    pub id: Option<String>,
    pub depends_on: Option<At<DependencyName>>,
    pub facts: DeclaredFacts,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessEntry {
    pub rate: Option<Rate>,
    pub jwt: Option<Jwt>,
    pub jwt_at: Option<BookSpan>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Jwt {
    pub keys: JwtKeys,
    pub issuer: String,
    pub audience: String,
    pub role_claim: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    Jwks(String),
    Secret(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ArchiveEntry {
    pub span: BookSpan,
    pub endpoint: Endpoint,
    pub timeout: Option<Duration>,
    pub breaker: Option<At<BreakerName>>,
    /// How long each day's folder is kept.
    pub retention: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SecretEntry {
    pub endpoint: Endpoint,
    pub cached: Option<At<Duration>>,
    /// How long a value is used after it expired, while the provider is down.
    pub kept: Option<At<Duration>>,
}
