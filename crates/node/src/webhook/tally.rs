//! Counts the responses of a webhook source, and limits how often they are logged.
//!
//! Invariant: senders can fill neither memory nor the log. Senders counted by name are bounded, and each kind
//! of response is logged once a second at most.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Senders counted by name; any beyond this are counted together.
const TOO_LARGE_BY_MAX: usize = 100;
const OTHERS: &str = "others";
const LOG_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookResponse {
    Accepted,
    Duplicate,
    /// A different event with the same id exists.
    Conflict,
    /// The sender checked the endpoint.
    Challenge,
    Unauthorized,
    Malformed,
    TooLarge,
    TooSlow,
    RateLimited,
    /// The secret, the store or memory is unavailable.
    Unavailable,
}

impl WebhookResponse {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "came before",
            Self::Conflict => "another event with its id came before",
            Self::Challenge => "challenge",
            Self::Unauthorized => "unauthorized",
            Self::Malformed => "malformed",
            Self::TooLarge => "too large",
            Self::TooSlow => "too slow",
            Self::RateLimited => "too many",
            Self::Unavailable => "unavailable",
        }
    }
}

const KINDS: usize = WebhookResponse::Unavailable as usize + 1;

#[derive(Debug, Default)]
pub struct WebhookTally {
    kinds: [TallyKind; KINDS],
    no_session: AtomicU64,
    too_large_by: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct TallyKind {
    count: AtomicU64,
    unlogged: AtomicU64,
    /// In nanoseconds.
    logged_at: AtomicU64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = SourceCounts))]
#[serde(default)]
#[expect(missing_docs, reason = "each is the number of its kind of answer")]
pub struct WebhookCounts {
    pub accepted: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    pub challenges: u64,
    pub unauthorized: u64,
    pub malformed: u64,
    pub too_large: u64,
    pub too_slow: u64,
    pub rate_limited: u64,
    pub unavailable: u64,
    /// Events without the session that their source's template should give.
    pub no_session: u64,
    /// Oversized requests by sender, as stated in the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub too_large_by: BTreeMap<String, u64>,
}

impl WebhookTally {
    /// Counts a response. Returns how many of its kind have not been logged, if it is time to log them.
    pub fn count(&self, answered: WebhookResponse, now: Timestamp) -> Option<u64> {
        let kind = &self.kinds[answered as usize];
        kind.count.fetch_add(1, Ordering::Relaxed);
        kind.unlogged.fetch_add(1, Ordering::Relaxed);
        let logged_at = kind.logged_at.load(Ordering::Relaxed);
        let never = logged_at == 0;
        if !never && now.since(Timestamp::from_nanos(logged_at)) < LOG_EVERY {
            return None;
        }
        let logged =
            kind.logged_at.compare_exchange(logged_at, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        logged.ok().map(|_| kind.unlogged.swap(0, Ordering::Relaxed)).filter(|unlogged| *unlogged > 0)
    }

    pub fn lacks_session(&self) {
        self.no_session.fetch_add(1, Ordering::Relaxed);
    }

    pub fn too_large_by(&self, who: &str) {
        let mut counts = self.too_large_by.lock().expect("lock is not poisoned");
        let is_new = !counts.contains_key(who);
        let who = if is_new && counts.len() >= TOO_LARGE_BY_MAX { OTHERS } else { who };
        *counts.entry(who.to_owned()).or_default() += 1;
    }

    #[must_use]
    pub fn counts(&self) -> WebhookCounts {
        let of = |answered: WebhookResponse| self.kinds[answered as usize].count.load(Ordering::Relaxed);
        WebhookCounts {
            accepted: of(WebhookResponse::Accepted),
            duplicates: of(WebhookResponse::Duplicate),
            conflicts: of(WebhookResponse::Conflict),
            challenges: of(WebhookResponse::Challenge),
            unauthorized: of(WebhookResponse::Unauthorized),
            malformed: of(WebhookResponse::Malformed),
            too_large: of(WebhookResponse::TooLarge),
            too_slow: of(WebhookResponse::TooSlow),
            rate_limited: of(WebhookResponse::RateLimited),
            unavailable: of(WebhookResponse::Unavailable),
            no_session: self.no_session.load(Ordering::Relaxed),
            too_large_by: self.too_large_by.lock().expect("lock is not poisoned").clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    #[test]
    fn a_flood_is_told_once_a_second_with_its_number() {
        let tally = WebhookTally::default();
        let logged: Vec<Option<u64>> = [0, 1, 999, 1_000, 1_500, 5_000]
            .map(|now| tally.count(WebhookResponse::Unauthorized, at(now)))
            .into();
        assert_eq!(logged, [Some(1), None, None, Some(3), None, Some(2)]);
        assert_eq!(
            tally.count(WebhookResponse::Malformed, at(1_001)),
            Some(1),
            "each kind has a second of its own"
        );
        let WebhookCounts { unauthorized, malformed, accepted, .. } = tally.counts();
        assert_eq!((unauthorized, malformed, accepted), (6, 1, 0));
    }

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let tally = WebhookTally::default();
        for number in 0..TOO_LARGE_BY_MAX + 5 {
            tally.too_large_by(&format!("repository {number}"));
        }
        tally.too_large_by("repository 3");
        let by = tally.counts().too_large_by;
        assert_eq!(by.len(), TOO_LARGE_BY_MAX + 1);
        assert_eq!((by["repository 3"], by[OTHERS]), (2, 5));
    }
}
