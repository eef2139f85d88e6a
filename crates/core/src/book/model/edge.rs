//! The book's edges as they were written: targets, sources and secrets.

use std::time::Duration;

use super::{At, DeclaredFacts};
use crate::book::connectors::Endpoint;
use crate::book::problem::BookSpan;
use crate::ids::{BreakerName, DependencyName};
use crate::text::Rate;

/// Where events of a service go.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetEntry {
    /// Where it stands.
    pub span: BookSpan,
    /// What it is.
    pub endpoint: Endpoint,
}

/// What the name of a target may resolve to; an address that the book states is trusted as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Addresses of the public internet only.
    #[default]
    Public,
    /// Also those of this machine, of private networks and of their metadata services.
    Private,
}

/// Where events come from.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceEntry {
    /// What it is.
    pub endpoint: Endpoint,
    /// The event type, or a template for it.
    pub event_type: Option<String>,
    /// A template for the subject.
    pub subject: Option<String>,
    /// A template for the session.
    pub session: Option<String>,
    /// A template for the event's id.
    pub id: Option<String>,
    /// The dependency behind it.
    pub depends_on: Option<At<DependencyName>>,
    /// What is known of it.
    pub facts: DeclaredFacts,
}

/// Who may do what, beside those who have a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessEntry {
    /// How many requests one caller may make.
    pub rate: Option<Rate>,
    /// Whose bearer tokens are believed.
    pub jwt: Option<Jwt>,
    /// Where the book says so.
    pub jwt_at: Option<BookSpan>,
}

/// Whose bearer tokens are believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Jwt {
    /// What their signatures are checked with.
    pub keys: JwtKeys,
    /// Who must have issued them.
    pub issuer: String,
    /// Whom they must be meant for.
    pub audience: String,
    /// The claim that names the role.
    pub role_claim: String,
}

/// What the signatures of tokens are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    /// Keys that the issuer publishes at an address.
    Jwks(String),
    /// A secret of the book.
    Secret(String),
}

/// Where raw payloads are kept for audit.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchiveEntry {
    /// Where it stands.
    pub span: BookSpan,
    /// What it is.
    pub endpoint: Endpoint,
    /// How long one write may take.
    pub timeout: Option<Duration>,
    /// When to stop trying for a while.
    pub breaker: Option<At<BreakerName>>,
    /// For how long days are kept.
    pub retention: Option<Duration>,
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretEntry {
    /// From where.
    pub endpoint: Endpoint,
    /// How long it is fresh.
    pub cached: Option<At<Duration>>,
    /// How long it serves when the provider is away.
    pub kept: Option<At<Duration>>,
}
