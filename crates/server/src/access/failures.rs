//! Failed authentications: counted, logged and reported at a bounded rate.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use redrive_node::activity::Activity;
use redrive_node::runtime::Node;
use redrive_node::token::TokenError;

use crate::api::error::ApiError;
use crate::api::limits::failed_logins::{FailedLogins, address_group};
use crate::api::limits::rate;

const METRIC_LABEL: &str = "api";

const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Why authentication failed; never contains the credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialProblem {
    /// Deliberately does not say which.
    #[error("the key is unknown, revoked or expired")]
    Key,
    #[error("{0}")]
    Token(TokenError),
    #[error("not an API key, and the rule book accepts no tokens")]
    NoTokens,
    #[error("more than one credential, or an unreadable one")]
    Unreadable,
}

#[derive(Debug, Default)]
pub(crate) struct FailedLoginLog {
    addresses: FailedLogins,
    report: Mutex<FailedLoginReport>,
}

/// Reports many failures as one.
#[derive(Debug, Default)]
struct FailedLoginReport {
    reported_at: Option<Timestamp>,
    unreported: u64,
}

impl FailedLoginLog {
    /// `Err` if the address failed too often.
    pub(crate) fn note(
        &self,
        node: &Node,
        peer: Option<IpAddr>,
        doubt: &CredentialProblem,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        node.count_unauthorized(METRIC_LABEL);
        let address = address_group(peer);
        if let Some(count) = self.report.lock().expect("no panic while counting").count(now) {
            tracing::warn!(count, address, last = %doubt, "authentication failed");
            let attempts = counted(count, "failed authentication");
            node.publish_logged(Activity::security(format!("{attempts}, last from {address}")));
        }
        self.addresses.note(&address, now).map_err(|too_many| rate::refusal(&too_many))
    }
}

impl FailedLoginReport {
    /// Returns the count since the last report if one is due.
    fn count(&mut self, now: Timestamp) -> Option<u64> {
        self.unreported += 1;
        if self.reported_at.is_some_and(|at| now.since(at) < REPORT_EVERY) {
            return None;
        }
        self.reported_at = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_reported_as_one_with_their_number() {
        let at = |millis: u64| Timestamp::from_millis(10_000 + millis);
        let mut report = FailedLoginReport::default();
        let cases = [(0, Some(1)), (1, None), (999, None), (1_000, Some(3)), (5_000, Some(1))];
        for (millis, expected) in cases {
            assert_eq!(report.count(at(millis)), expected, "after {millis} ms");
        }
    }
}
