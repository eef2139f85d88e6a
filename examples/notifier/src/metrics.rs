//! Figures that are served as well as they can be had: fresh, else as they were, else in part, else not at all.
//!
//! Each part is fetched by itself and kept for a while, so that one that is away takes no other with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::Guard;
use redrive::core::freshness::Lifetimes;
use redrive::guard::BreakerState;
use redrive::stale::{Cached, Missing, StaleCache, StalePlan, timer_clock};
use serde_json::{Value, json};

use crate::api::ApiError;
use crate::message::{MessageError, Messages, Status};
use crate::ntfy::{Ntfy, SendError};

/// How long figures serve that cannot be had anew.
pub const KEPT: Duration = Duration::from_mins(15);
/// Who asks again within this gets the same answer.
const SAME_WITHIN: Duration = Duration::from_millis(200);
/// How long a part may take.
const PART_LIMIT: Duration = Duration::from_secs(2);

/// The figures, part by part.
#[derive(Debug)]
pub struct Metrics {
    guard: Guard,
    messages: StaleCache<BTreeMap<Status, u32>, MessageError>,
    ntfy: StaleCache<bool, SendError>,
}

impl Metrics {
    /// Of these messages, that push service and the guard in front of it; figures are kept for so long.
    #[must_use]
    pub fn new(messages: Messages, ntfy: Ntfy, guard: Guard, kept: Duration) -> Self {
        let plan = || StalePlan {
            lifetimes: Lifetimes { fresh: SAME_WITHIN, kept, failure: SAME_WITHIN },
            limit: PART_LIMIT,
            clock: timer_clock(),
        };
        Self {
            guard,
            messages: StaleCache::new(plan(), move || {
                let messages = messages.clone();
                async move { messages.counts().await }
            }),
            ntfy: StaleCache::new(plan(), move || {
                let ntfy = ntfy.clone();
                async move { ntfy.is_healthy().await }
            }),
        }
    }

    /// What can be had now, or could a while ago.
    pub async fn gather(&self) -> Result<Value, ApiError> {
        let (messages, ntfy) =
            tokio::join!(self.messages.renewed(SAME_WITHIN), self.ntfy.renewed(SAME_WITHIN));
        let (messages, ntfy) = (Part::of(messages), Part::of(ntfy));
        let mut missing = Vec::new();
        let mut told = json!({ "circuit": circuit(self.guard.breaker()) });
        match &messages.value {
            Some(counts) => told["messages"] = json!(**counts),
            None => missing.push("messages"),
        }
        match &ntfy.value {
            Some(healthy) => told["ntfy"] = json!({ "healthy": **healthy }),
            None => missing.push("ntfy"),
        }
        let stale_for = messages.stale_for.max(ntfy.stale_for);
        told["status"] = match (missing.len(), stale_for) {
            (2, _) => return Err(ApiError::unavailable("No figures can be had", &missing)),
            (1, _) => json!("partial"),
            (_, Some(_)) => json!("stale"),
            (_, None) => json!("fresh"),
        };
        if !missing.is_empty() {
            told["missing"] = json!(missing);
        }
        if let Some(age) = stale_for {
            told["age_seconds"] = json!(age.as_secs());
        }
        Ok(told)
    }
}

/// The state of a breaker in a word.
const fn circuit(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed { .. } => "closed",
        BreakerState::Open { .. } => "open",
        BreakerState::HalfOpen { .. } => "half_open",
    }
}

/// One part, as far as it can be had.
struct Part<T> {
    value: Option<Arc<T>>,
    stale_for: Option<Duration>,
}

impl<T> Part<T> {
    fn of<E>(found: Result<Cached<T, E>, Missing<E>>) -> Self {
        match found {
            Ok(Cached { value, age, failure, .. }) => {
                Self { value: Some(value), stale_for: failure.is_some().then_some(age) }
            }
            Err(_) => Self { value: None, stale_for: None },
        }
    }
}
