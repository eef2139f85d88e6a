//! The resolved policy for one (service, channel, event type): all that a decision needs to know.
//!
//! A rule is made once, when a rule book is read, and never changes. Values keep the position at which the
//! book states them, so that a verdict can name its line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::book::problem::Position;
use crate::event::copy_rule::CopyRule;
use crate::ids::{Attempt, BreakerName, DependencyName, PolicyName};
use crate::limits;
use crate::policy::answer::{AnswerKind, TargetAnswer, TransportError};
use crate::policy::backoff::{Backoff, grown};
use crate::policy::breaker::BreakerSettings;
use crate::policy::category::{Category, FailureCode};
use crate::policy::classify::{Outcome, classify};

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub classify: Arc<[Override]>,
    pub reactions: Reactions,
    /// Its breaker and throttle are shared by all rules that name it.
    pub dependency: DependencyName,
    pub breaker: Option<NamedBreaker>,
    pub when_open: WhenOpen,
    pub hold_max: Duration,
    /// No attempt starts later than this after the first one, whatever it waited for in between; only time in
    /// which Redrive itself was away does not count.
    pub deadline: Option<Duration>,
    /// A connection that has failed for this long is a configuration error.
    pub fatal_after: Option<Duration>,
    pub timeouts: Timeouts,
    pub copies: CopyRule,
}

impl Rule {
    /// Whether a delivery is sent again after a connection that broke before any answer. Where it is not, as
    /// with `retry: none`, a request that may have arrived is never repeated.
    #[must_use]
    pub fn retries_lost_connections(&self) -> bool {
        let lost = TargetAnswer {
            what: AnswerKind::Transport(TransportError::Reset),
            message: "",
            retry_after: None,
        };
        let category = match classify(&lost, &self.classify, self.timeouts.category) {
            Outcome::Delivered { .. } => return false,
            Outcome::Failed(failure) => failure.category,
        };
        match self.reactions.to(category, None).value {
            Reaction::Retry(PolicyIndex(index)) | Reaction::RetryCautiously(PolicyIndex(index)) => {
                self.reactions.policies()[usize::from(index)].backoff.retries() > 0
            }
            Reaction::Pause => true,
            Reaction::DeadLetter => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct NamedBreaker {
    /// `None` if the settings are the kind's default.
    pub name: Option<BreakerName>,
    pub settings: BreakerSettings,
    pub ignores: Vec<FailureMatch>,
    pub counts: Vec<FailureMatch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenOpen {
    Hold,
    DeadLetter,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reactions {
    policies: Vec<NamedPolicy>,
    retries_total_max: u32,
    by_status: Vec<(StatusRange, Sourced<Reaction>)>,
    by_category: [Sourced<Reaction>; 7],
}

impl Reactions {
    /// `by_status`: the first match wins. `by_category`: in the order of [`Category::ALL`]. Each that retries
    /// points into `policies`.
    #[must_use]
    pub fn new(
        policies: Vec<NamedPolicy>,
        by_status: Vec<(StatusRange, Sourced<Reaction>)>,
        by_category: [Sourced<Reaction>; 7],
    ) -> Self {
        let reactions = by_status.iter().map(|(_, reaction)| reaction).chain(&by_category);
        for reaction in reactions {
            if let Some(PolicyIndex(index)) = reaction.value.policy() {
                assert!(usize::from(index) < policies.len(), "a reaction retries by a policy of the list");
            }
        }
        assert!(policies.len() <= limits::POLICIES_PER_RULE_MAX, "a history counts no more policies");
        let retries_total_max = policies.iter().map(|policy| policy.backoff.retries()).max().unwrap_or(0);
        Self { policies, retries_total_max, by_status, by_category }
    }

    #[must_use]
    pub fn may_pause(&self) -> bool {
        let mut reactions = self.by_status.iter().map(|(_, reaction)| reaction).chain(&self.by_category);
        reactions.any(|reaction| reaction.value == Reaction::Pause)
    }

    #[must_use]
    pub fn policies(&self) -> &[NamedPolicy] {
        &self.policies
    }

    #[must_use]
    pub fn policy(&self, name: &PolicyName) -> Option<&NamedPolicy> {
        self.policies.iter().find(|policy| policy.name == *name)
    }

    #[must_use]
    pub fn by_status(&self) -> &[(StatusRange, Sourced<Reaction>)] {
        &self.by_status
    }

    #[must_use]
    pub fn to(&self, category: Category, status: Option<u16>) -> &Sourced<Reaction> {
        let by_status = status.and_then(|status| {
            self.by_status.iter().find(|(range, _)| range.contains(status)).map(|(_, reaction)| reaction)
        });
        by_status.unwrap_or(&self.by_category[category as usize])
    }

    /// The most retries a delivery gets in all: those of its most generous policy.
    #[must_use]
    pub const fn retries_total_max(&self) -> u32 {
        self.retries_total_max
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct NamedPolicy {
    pub name: PolicyName,
    pub backoff: Backoff,
    pub alert_on_exhaustion: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyIndex(pub u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// By that policy, for as long as it says: the book states it for this very failure.
    Retry(PolicyIndex),
    /// By that policy, which the book states for other failures: an unknown failure or one of our own gets a
    /// few of its retries and no more.
    RetryCautiously(PolicyIndex),
    DeadLetter,
    Pause,
}

impl Reaction {
    #[must_use]
    pub const fn policy(self) -> Option<PolicyIndex> {
        match self {
            Self::Retry(policy) | Self::RetryCautiously(policy) => Some(policy),
            Self::DeadLetter | Self::Pause => None,
        }
    }

    /// The same for a failure that the book does not mention.
    #[must_use]
    pub const fn cautiously(self) -> Self {
        match self {
            Self::Retry(policy) | Self::RetryCautiously(policy) => Self::RetryCautiously(policy),
            Self::DeadLetter => Self::DeadLetter,
            Self::Pause => Self::Pause,
        }
    }
}

/// A value and where the book states it; no position if it is a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    pub value: T,
    pub position: Option<Position>,
}

/// Both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusRange {
    pub first: u16,
    pub last: u16,
}

impl StatusRange {
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}

/// `503`, or `500-599`.
impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMatch {
    Category(Category),
    Status(StatusRange),
}

impl FailureMatch {
    #[must_use]
    pub fn matches(self, category: Category, status: Option<u16>) -> bool {
        match self {
            Self::Category(wanted) => wanted == category,
            Self::Status(range) => status.is_some_and(|status| range.contains(status)),
        }
    }
}

impl fmt::Display for FailureMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Category(category) => category.fmt(f),
            Self::Status(range) => range.fmt(f),
        }
    }
}

/// A row of `classify`: a condition, and what a matching answer means.
#[derive(Clone, Debug)]
pub struct Override {
    /// At least one part is given. Shared, since every rule below a level has its rows.
    pub when: Arc<Matcher>,
    pub meaning: OverrideMeaning,
    pub code: Option<FailureCode>,
    pub because: Option<Arc<str>>,
    pub position: Position,
}

impl PartialEq for Override {
    fn eq(&self, other: &Self) -> bool {
        let pattern = |row: &Self| row.when.message.as_ref().map(|regex| regex.as_str().to_owned());
        (&self.when.statuses, &self.when.code, &self.when.header, pattern(self))
            == (&other.when.statuses, &other.when.code, &other.when.header, pattern(other))
            && (&self.meaning, &self.code, &self.because, self.position)
                == (&other.meaning, &other.code, &other.because, other.position)
    }
}

/// All parts that are given must match.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    pub statuses: Vec<StatusRange>,
    pub code: Option<FailureCode>,
    /// The answer has this header and, if a value is given, with this value.
    pub header: Option<HeaderMatch>,
    pub message: Option<regex::Regex>,
}

/// Names are compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    pub name: String,
    pub value: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideMeaning {
    Failure(Category),
    Delivered,
}

/// Limits on the parts of one call. `whole` may grow with the attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    pub connect: Duration,
    pub tls: Duration,
    pub headers: Duration,
    pub whole: GrowingTimeout,
    pub category: Category,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrowingTimeout {
    pub first: Duration,
    /// The ratio of each attempt's limit to the one before.
    pub factor: f64,
    pub max: Duration,
}

impl GrowingTimeout {
    #[must_use]
    pub const fn fixed(limit: Duration) -> Self {
        Self { first: limit, factor: 1.0, max: limit }
    }

    #[must_use]
    pub fn limit(&self, attempt: Attempt) -> Duration {
        grown(self.first, self.factor, attempt.get() - 1, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book;
    use crate::book::connectors::built_in;

    #[test]
    fn a_lost_connection_is_retried_where_the_rule_would_retry_it() {
        #[rustfmt::skip]
        let cases = [
            ("a policy with retries",       "retry: standard",                                                              true),
            ("a policy without",            "retry: none",                                                                  false),
            ("a policy with none left",     "retry: own",                                                                   false),
            ("dead-lettered at once",       "on_failure: { transient: dead-letter }",                                       false),
            ("paused",                      "on_failure: { transient: pause }",                                             true),
            ("permanent by a row",          "retry: standard, classify: [{ code: CONNECTION_RESET, as: permanent }]",       false),
            ("another code is permanent",   "retry: standard, classify: [{ code: DNS_FAILURE, as: permanent }]",            true),
            ("paused by its own category",  "retry: none, on_failure: { permanent: pause }, classify: [{ code: CONNECTION_RESET, as: permanent }]", true),
        ];
        for (name, keys, expected) in cases {
            let text = format!(
                "version: 1\nretry_policies: {{ own: {{ initial: 1s, retries: 0 }} }}\nservices: {{ s: {{ target: {{ http: \"http://a.test/\" }}, events: [a], {keys} }} }}\n"
            );
            let reading = book::read(&text, built_in());
            let book = reading.book.unwrap_or_else(|| panic!("{name}: {:?}", reading.problems));
            let rule = book.rule("s", None, "a").expect("the book has it");
            assert_eq!(rule.retries_lost_connections(), expected, "{name}");
        }
    }

    #[test]
    fn a_limit_grows_with_the_attempts() {
        let secs = Duration::from_secs;
        let growing = GrowingTimeout { first: secs(5), factor: 2.0, max: secs(30) };
        let odd = GrowingTimeout { first: secs(5), factor: f64::NAN, max: secs(30) };
        #[rustfmt::skip]
        let cases = [
            ("the first",                    growing,                          1,        secs(5)),
            ("the second",                   growing,                          2,        secs(10)),
            ("the third",                    growing,                          3,        secs(20)),
            ("then the longest",             growing,                          4,        secs(30)),
            ("for ever",                     growing,                          u32::MAX, secs(30)),
            ("a fixed one stays",            GrowingTimeout::fixed(secs(7)),   u32::MAX, secs(7)),
            ("a factor that is none stays",  odd,                              9,        secs(5)),
        ];
        for (name, timeout, attempt, expected) in cases {
            let attempt = Attempt::new(attempt).expect("not 0");
            assert_eq!(timeout.limit(attempt), expected, "{name}");
        }
    }
}
