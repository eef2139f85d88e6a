//! Answers whether a contact is verified.
//!
//! Invariants: a contact is looked up at most once at a time, however many ask; what was found serves for a while,
//! and longer while nobody can be asked; and no failure is an error to the caller: it is an answer with a code.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pkarr::dns::rdata::RData;
use pkarr::{PublicKey, SignedPacket};
use redrive::cache::{Cache, CachePlan};
use redrive::core::freshness::Lifetimes;
use redrive::core::policy::category::codes;
use redrive::guard::{BreakerState, CallError, Cause, UnknownGuard};
use redrive::stale::{Cached, FetchError, Missing, timer_clock};
use redrive::{Book, Guard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::code::ErrorCode;
use crate::counters::{Counters, Ended, ErrorMetrics};
use crate::lookup::{Lookup, LookupError};

/// The dependency of the rule book that lookups go to.
pub const RELAYS: &str = "relays";
/// The record in which owners of keys name their addresses.
pub const RECORD: &str = "_nip05";

/// How long what was found serves, and how long failures are remembered.
pub const LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_mins(5),
    kept: Duration::from_hours(1),
    failure: Duration::from_secs(30),
};
/// Longer than the rule book gives a lookup in all, which ends first.
const LOOKUP_LIMIT: Duration = Duration::from_mins(1);
/// Contacts that are kept.
const CONTACTS_MAX: usize = 10_000;

/// A contact to be verified.
#[derive(Clone, Debug, Deserialize)]
pub struct Contact {
    /// The key, in z-base-32.
    pub public_key: String,
    /// The address: `alice@example.test`.
    pub nip05: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the answer's form is given")]
pub struct Verification {
    /// The question was answered; always so.
    pub success: bool,
    /// Whether the owner of the key says that the address is theirs.
    pub verified: bool,
    /// The same in a word.
    pub verification_level: Level,
    /// Why not, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Why not, for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// What was tried, once all retries were spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Spent>,
    /// How long the answer took.
    pub response_time_ms: u64,
    /// Whether it was known before.
    pub cached: bool,
    /// Whether more than one try was needed.
    pub retried: bool,
}

/// How sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The owner of the key signed it.
    Verified,
    /// Nobody knows.
    Unverified,
}

/// What was tried in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// How many tries were made.
    pub attempts: u32,
    /// How the last of them ended.
    pub last_error_code: ErrorCode,
}

/// What a lookup brought: the addresses that the owner of the key names.
struct Record {
    addresses: Vec<String>,
    attempts: u32,
    looked_up_at: Instant,
}

/// Why a lookup brought nothing.
#[derive(Clone, Copy, Debug)]
struct Failure {
    code: ErrorCode,
    last: ErrorCode,
    attempts: u32,
    looked_up_at: Instant,
}

/// What is known of a contact when it is answered.
struct Known {
    error: Option<ErrorCode>,
    metadata: Option<Spent>,
    attempts: u32,
    looked_up_at: Instant,
}

/// The service.
pub struct Verifier {
    guard: Guard,
    contacts: Cache<PublicKey, Record, Failure>,
    counters: Arc<Counters>,
}

impl Verifier {
    /// Looks contacts up there, by that book, and keeps them for so long.
    pub fn new(book: &Book, lookup: Arc<dyn Lookup>, lifetimes: Lifetimes) -> Result<Self, UnknownGuard> {
        let guard = book.guard(RELAYS)?;
        let counters = Arc::new(Counters::default());
        let plan = CachePlan { lifetimes, limit: LOOKUP_LIMIT, keys_max: CONTACTS_MAX, clock: timer_clock() };
        let contacts = Cache::new(plan, {
            let (guard, counters) = (guard.clone(), Arc::clone(&counters));
            move |key| {
                let (guard, counters, lookup) = (guard.clone(), Arc::clone(&counters), Arc::clone(&lookup));
                async move {
                    let looked_up = look_up(&guard, &*lookup, &key).await;
                    counters.saw_breaker(guard.breaker());
                    looked_up
                }
            }
        });
        Ok(Self { guard, contacts, counters })
    }

    /// Verifies a contact.
    pub async fn verify(&self, contact: &Contact) -> Verification {
        let asked_at = Instant::now();
        let known = match (PublicKey::try_from(contact.public_key.as_str()), is_address(&contact.nip05)) {
            (Err(_), _) => Known::refused(ErrorCode::InvalidPublicKey, asked_at),
            (Ok(_), false) => Known::refused(ErrorCode::InvalidNip05, asked_at),
            (Ok(key), true) => self.known(&key, &contact.nip05).await,
        };
        let cached = known.looked_up_at < asked_at;
        let retried = !cached && known.attempts > 1;
        self.counters.count(Ended { error: known.error, retried });
        if let Some(code) = known.error {
            // Neither the key nor the address: who is verified is nobody's business.
            tracing::warn!(%code, error = code.message(), retried, cached, "contact not verified");
        }
        Verification {
            success: true,
            verified: known.error.is_none(),
            verification_level: if known.error.is_none() { Level::Verified } else { Level::Unverified },
            error: known.error.map(ErrorCode::message),
            error_code: known.error,
            metadata: known.metadata,
            response_time_ms: u64::try_from(asked_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            cached,
            retried,
        }
    }

    /// What was counted.
    #[must_use]
    pub fn metrics(&self) -> ErrorMetrics {
        self.counters.metrics()
    }

    /// What the breaker in front of the relays is now.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.guard.breaker()
    }

    async fn known(&self, key: &PublicKey, address: &str) -> Known {
        match self.contacts.get(key).await {
            // The newest word of the relays is that there is none: then an older one is no longer true.
            Ok(Cached { failure: Some(trouble), .. }) if is_withdrawn(&trouble) => Known::failed(&trouble),
            Ok(Cached { value, .. }) => value.known(address),
            Err(Missing { failure, .. }) => {
                let known = Known::failed(&failure);
                if known.error == Some(ErrorCode::CircuitBreakerOpen) {
                    // Refusing costs nothing, and a memory of it would outlive the outage.
                    self.contacts.forget(key);
                }
                known
            }
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("counters", &self.counters).finish_non_exhaustive()
    }
}

async fn look_up(guard: &Guard, lookup: &dyn Lookup, key: &PublicKey) -> Result<Record, Failure> {
    let looked_up = guard
        .call(|attempt| async move {
            let packet = lookup.lookup(key, attempt.number()).await?;
            Ok((packet, attempt.number()))
        })
        .await;
    let looked_up_at = Instant::now();
    match looked_up {
        Ok((packet, attempts)) => Ok(Record { addresses: addresses(&packet), attempts, looked_up_at }),
        Err(error) => Err(Failure::of(&error, looked_up_at)),
    }
}

/// The addresses that the owner of a key names.
fn addresses(packet: &SignedPacket) -> Vec<String> {
    let texts = packet.resource_records(RECORD).filter_map(|record| match &record.rdata {
        RData::TXT(text) => String::try_from(text.clone()).ok(),
        _ => None,
    });
    texts.collect()
}

/// Whether it has the form `name@domain`.
fn is_address(text: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    text.split_once('@')
        .is_some_and(|(name, domain)| is_name(name) && is_name(domain) && domain.contains('.'))
}

impl Record {
    fn known(&self, address: &str) -> Known {
        let names_it = self.addresses.iter().any(|named| named.eq_ignore_ascii_case(address));
        Known {
            error: (!names_it).then_some(ErrorCode::RecordNotFound),
            metadata: None,
            attempts: self.attempts,
            looked_up_at: self.looked_up_at,
        }
    }
}

impl Failure {
    fn of(error: &CallError<LookupError>, looked_up_at: Instant) -> Self {
        // A lookup that the deadline ended without an answer has waited for one all the time.
        let last = error
            .failure
            .as_ref()
            .map_or(ErrorCode::NetworkTimeout, |failure| ErrorCode::named(failure.code.as_str()));
        let code = match error.cause {
            Cause::BreakerOpen { .. } => ErrorCode::CircuitBreakerOpen,
            Cause::AskedToWait { .. } => ErrorCode::RateLimited,
            _ if error.code.as_str() == codes::MAX_RETRIES_EXCEEDED => ErrorCode::MaxRetriesExceeded,
            _ => last,
        };
        Self { code, last, attempts: error.attempts, looked_up_at }
    }
}

/// Whether a lookup says that there is no record, rather than that it could not be had.
fn is_withdrawn(trouble: &FetchError<Failure>) -> bool {
    matches!(trouble, FetchError::Failed(failure) if failure.code == ErrorCode::RecordNotFound)
}

impl Known {
    /// What was refused without asking anybody.
    const fn refused(code: ErrorCode, at: Instant) -> Self {
        Self { error: Some(code), metadata: None, attempts: 0, looked_up_at: at }
    }

    fn failed(trouble: &FetchError<Failure>) -> Self {
        let FetchError::Failed(failure) = trouble else {
            // The lookup itself broke off: nothing was learned of the contact.
            return Self::refused(ErrorCode::UnknownError, Instant::now());
        };
        let Failure { code, last, attempts, looked_up_at } = *failure;
        let spent = Spent { attempts, last_error_code: last };
        let metadata = (code == ErrorCode::MaxRetriesExceeded).then_some(spent);
        Self { error: Some(code), metadata, attempts, looked_up_at }
    }
}
