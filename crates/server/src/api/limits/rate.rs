//! Rate limits per caller: keys, tokens, sources, and addresses that fail to authenticate.
//!
//! Callers with an unused quota are forgotten, which loses nothing. If that makes no room, new callers are
//! refused.
//!
//! Invariant: at most [`CALLERS_MAX`] callers are remembered.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use redrive_core::quota::{Allowed, Meter, Quota, TooMany};
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;

use crate::api::code::ApiCode;
use crate::api::error::ApiError;

const CALLERS_MAX: usize = 65_536;

/// Minimum interval between two sweeps, so that a flood of new callers does not cost a full scan per request.
const FORGET_EVERY: Duration = Duration::from_millis(100);

const POLICY: &str = "\"default\"";

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

#[derive(Debug)]
pub(crate) struct Limiter {
    meters: Mutex<Meters>,
    callers_max: usize,
}

#[derive(Debug, Default)]
struct Meters {
    by_name: HashMap<Box<str>, Meter>,
    forgot_at: Option<Timestamp>,
}

impl Default for Limiter {
    fn default() -> Self {
        Self::with_room_for(CALLERS_MAX)
    }
}

impl Limiter {
    fn with_room_for(callers_max: usize) -> Self {
        Self { meters: Mutex::default(), callers_max }
    }

    /// Counts a request. Names are prefixed by kind, such as `key rk_…` or `source github`.
    pub(crate) fn check(&self, name: &str, rate: Rate, now: Timestamp) -> Result<Allowed, TooMany> {
        let quota = Quota::of(rate);
        let mut meters = self.lock();
        if let Some(meter) = meters.by_name.get_mut(name) {
            return meter.take(quota, now);
        }
        if meters.by_name.len() >= self.callers_max && !meters.forget(now) {
            return Err(TooMany { quota, retry_after: FORGET_EVERY });
        }
        let mut meter = Meter::UNUSED;
        let taken = meter.take(quota, now);
        meters.by_name.insert(name.into(), meter);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().expect("never poisoned")
    }
}

impl Meters {
    /// Forgets callers with an unused quota; returns whether there is room.
    fn forget(&mut self, now: Timestamp) -> bool {
        if self.forgot_at.is_some_and(|at| now.since(at) < FORGET_EVERY) {
            return false;
        }
        self.forgot_at = Some(now);
        let before = self.by_name.len();
        self.by_name.retain(|_, meter| !meter.is_at_rest(now));
        self.by_name.len() < before
    }
}

/// Sets the headers of draft-ietf-httpapi-ratelimit-headers.
pub(crate) fn set_rate_headers(allowed: &Allowed, headers: &mut HeaderMap) {
    headers.insert(RATE_LIMIT_POLICY, policy(allowed.quota));
    headers.insert(RATE_LIMIT, left(allowed.remaining, allowed.whole_after));
}

pub(crate) fn refusal(too_many: &TooMany) -> ApiError {
    let TooMany { quota, retry_after } = *too_many;
    let Quota { requests, window_seconds, .. } = quota;
    let message = format!("rate limit exceeded: {requests} requests per {window_seconds} s");
    ApiError::new(ApiCode::RateLimitExceeded, message)
        .retry_after(u32::try_from(whole_seconds(retry_after)).unwrap_or(u32::MAX))
        .with_header(RATE_LIMIT_POLICY, policy(quota))
        .with_header(RATE_LIMIT, left(0, retry_after))
}

fn policy(quota: Quota) -> HeaderValue {
    let text = format!("{POLICY};q={};w={}", quota.requests, quota.window_seconds);
    HeaderValue::try_from(text).expect("plain characters")
}

fn left(remaining: u32, after: Duration) -> HeaderValue {
    let text = format!("{POLICY};r={remaining};t={}", whole_seconds(after));
    HeaderValue::try_from(text).expect("plain characters")
}

/// Rounded up, so that waiting that long is enough.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn rate(per_second: f64) -> Rate {
        Rate::per_second(per_second).expect("a rate")
    }

    #[test]
    fn callers_do_not_use_up_what_is_anothers() {
        let limiter = Limiter::default();
        assert_eq!(limiter.check("key a", rate(2.0), at(0)).map(|left| left.remaining), Ok(1));
        assert_eq!(limiter.check("key b", rate(1.0), at(0)).map(|left| left.remaining), Ok(0));
        assert_eq!(limiter.check("key a", rate(2.0), at(0)).map(|left| left.remaining), Ok(0));
        assert!(limiter.check("key a", rate(2.0), at(0)).is_err());
        assert!(limiter.check("key b", rate(1.0), at(1_000)).is_ok());
    }

    #[test]
    fn a_crowd_takes_a_bounded_room_and_those_at_rest_make_place() {
        let limiter = Limiter::with_room_for(3);
        for name in ["a", "b", "c"] {
            limiter.check(name, rate(1.0), at(0)).expect("there is room");
        }
        assert!(limiter.check("d", rate(1.0), at(10)).is_err(), "no caller is idle");
        assert!(limiter.check("d", rate(1.0), at(20)).is_err(), "no sweep so soon");
        assert!(limiter.check("a", rate(1.0), at(1_000)).is_ok(), "who is known is still counted");
        assert!(limiter.check("d", rate(1.0), at(1_000)).is_ok());
        assert!(limiter.lock().by_name.len() <= 3);
    }

    #[test]
    fn headers_tell_what_is_left() {
        let limiter = Limiter::default();
        let mut headers = HeaderMap::new();
        set_rate_headers(&limiter.check("a", rate(100.0), at(0)).expect("the first"), &mut headers);
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"default\";q=100;w=1");
        assert_eq!(headers[RATE_LIMIT], "\"default\";r=99;t=1");
        let slow = rate(1.0 / 60.0);
        set_rate_headers(&limiter.check("b", slow, at(0)).expect("the first"), &mut headers);
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"default\";q=1;w=60");
        assert_eq!(headers[RATE_LIMIT], "\"default\";r=0;t=60");
    }
}
