//! The resolved policy for one (service, channel, event type): all that a decision needs to know.
//!
//! A rule is made once, when a rule book is read, and never changes. Values keep the position at
//! which the book states them, so that a verdict can name its line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::copies::Copies;
use crate::ids::{Attempt, BreakerName, DependencyName, PolicyName};
use crate::limits;
use crate::policy::answer::{Answer, TransportError, What};
use crate::policy::backoff::{Backoff, grown};
use crate::policy::breaker::BreakerSettings;
use crate::policy::category::{Category, Code};
use crate::policy::classify::{Outcome, classify};
use crate::position::Position;

/// How failures of one kind of delivery are ruled on.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Overrides of the classification, in the order of the book; the first match wins.
    pub classify: Arc<[Override]>,
    /// What follows on a failure.
    pub reactions: Reactions,
    /// The thing that fails: its breaker and throttle are shared by all rules that name it.
    pub dependency: DependencyName,
    /// The breaker in front of the dependency, if there is one.
    pub breaker: Option<NamedBreaker>,
    /// What an open breaker does to a delivery.
    pub when_open: WhenOpen,
    /// How long a delivery may be held in all.
    pub hold_max: Duration,
    /// No attempt starts later than this after the first one, whatever it waited for in between; only
    /// time in which Redrive itself was away does not count.
    pub deadline: Option<Duration>,
    /// A connection that has failed for this long is a matter of configuration.
    pub fatal_after: Option<Duration>,
    /// Limits on the parts of one call.
    pub timeouts: Timeouts,
    /// How second copies of an event are recognised.
    pub copies: Copies,
}

impl Rule {
    /// Whether a delivery is sent again after a connection that broke before any answer came. Where it is not,
    /// as with `retry: none`, a request that may have arrived is never repeated.
    #[must_use]
    pub fn retries_lost_connections(&self) -> bool {
        let lost = Answer { what: What::Transport(TransportError::Reset), message: "", retry_after: None };
        let category = match classify(&lost, &self.classify, self.timeouts.category) {
            Outcome::Delivered { .. } => return false,
            Outcome::Failed(failure) => failure.category,
        };
        match self.reactions.to(category, None).value {
            Reaction::Retry(PolicyIndex(index)) | Reaction::RetryCautiously(PolicyIndex(index)) => {
                self.reactions.policies()[usize::from(index)].backoff.retries() > 0
            }
            // It goes back to its place, and is sent again when the service is resumed.
            Reaction::Pause => true,
            Reaction::DeadLetter => false,
        }
    }
}

/// A breaker's settings and the name they have in the book or the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedBreaker {
    /// The name, or none if the settings are the kind's own.
    pub name: Option<BreakerName>,
    /// The settings.
    pub settings: BreakerSettings,
    /// Categories and statuses that say nothing about the dependency's health here.
    pub ignores: Vec<FailureMatch>,
    /// Categories and statuses that count as failures of the dependency though they usually do not.
    pub counts: Vec<FailureMatch>,
}

/// What an open breaker does to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenOpen {
    /// It waits, up to `hold_max`.
    Hold,
    /// It ends at once as a dead letter.
    DeadLetter,
}

/// What follows on a failure, by status first and then by category.
#[derive(Clone, Debug, PartialEq)]
pub struct Reactions {
    policies: Vec<NamedPolicy>,
    retries_total_max: u32,
    by_status: Vec<(StatusRange, Sourced<Reaction>)>,
    by_category: [Sourced<Reaction>; 7],
}

impl Reactions {
    /// Reactions by status, the first match wins, and one for each category in the order of
    /// [`Category::ALL`]; each that retries points into the list of policies.
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

    /// Whether some failure pauses the service.
    #[must_use]
    pub fn may_pause(&self) -> bool {
        let mut reactions = self.by_status.iter().map(|(_, reaction)| reaction).chain(&self.by_category);
        reactions.any(|reaction| reaction.value == Reaction::Pause)
    }

    /// The policies in use, each once.
    #[must_use]
    pub fn policies(&self) -> &[NamedPolicy] {
        &self.policies
    }

    /// The policy of that name, if one of the reactions leads to it.
    #[must_use]
    pub fn policy(&self, name: &PolicyName) -> Option<&NamedPolicy> {
        self.policies.iter().find(|policy| policy.name == *name)
    }

    /// Reactions to single statuses or ranges.
    #[must_use]
    pub fn by_status(&self) -> &[(StatusRange, Sourced<Reaction>)] {
        &self.by_status
    }

    /// The reaction to a failure of that category and status.
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

/// A retry policy and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPolicy {
    /// Its name in the book or the catalog.
    pub name: PolicyName,
    /// What it does.
    pub backoff: Backoff,
    /// Whether running out of retries is alerted at once.
    pub alert_on_exhaustion: bool,
}

/// Which of [`Reactions::policies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyIndex(pub u8);

/// What follows on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Try again by that policy, for as long as it says: the book states it for this very failure.
    Retry(PolicyIndex),
    /// Try again by that policy, which the book states for other failures: one that nobody understands
    /// or that is our own fault gets a few of its retries and no more.
    RetryCautiously(PolicyIndex),
    /// No retry: a dead letter at once.
    DeadLetter,
    /// The service is paused; the delivery goes back to its place and waits.
    Pause,
}

impl Reaction {
    /// The policy to retry by, if it does.
    #[must_use]
    pub const fn policy(self) -> Option<PolicyIndex> {
        match self {
            Self::Retry(policy) | Self::RetryCautiously(policy) => Some(policy),
            Self::DeadLetter | Self::Pause => None,
        }
    }

    /// The same for a failure that nobody has stated it for.
    #[must_use]
    pub const fn cautiously(self) -> Self {
        match self {
            Self::Retry(policy) | Self::RetryCautiously(policy) => Self::RetryCautiously(policy),
            Self::DeadLetter => Self::DeadLetter,
            Self::Pause => Self::Pause,
        }
    }
}

/// A value and where the book states it; none if it is a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub position: Option<Position>,
}

/// HTTP statuses from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl StatusRange {
    /// Whether the status lies within.
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

/// A failure of that category or within that range of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMatch {
    /// Any failure of the category.
    Category(Category),
    /// Any answer with such a status.
    Status(StatusRange),
}

impl FailureMatch {
    /// Whether a failure is meant.
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

/// A row of `classify`: what it looks at, and what it makes of it.
#[derive(Clone, Debug)]
pub struct Override {
    /// All of these must fit; at least one is given. Shared, since every rule below a level has its rows.
    pub when: Arc<Matcher>,
    /// What such an answer is.
    pub meaning: Meaning,
    /// The code to give it, in place of the usual one.
    pub code: Option<Code>,
    /// Why, in the words of the book.
    pub because: Option<Arc<str>>,
    /// Where the row stands.
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

/// What an override looks at; what is not given fits everything.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// The answer's status lies in one of these; empty fits everything.
    pub statuses: Vec<StatusRange>,
    /// The failure's code is this.
    pub code: Option<Code>,
    /// The answer has this header and, if a value is given, with this value.
    pub header: Option<HeaderMatch>,
    /// The message matches.
    pub message: Option<regex::Regex>,
}

/// A header that an answer must have; names are compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// Its name.
    pub name: String,
    /// Its value, if that matters.
    pub value: Option<String>,
}

/// What an override makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A failure of that category.
    Failure(Category),
    /// No failure at all: the target has the event.
    Delivered,
}

/// Limits on the parts of one call. The whole may grow with the attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// Making the connection.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// Until the answer's headers are there.
    pub headers: Duration,
    /// The whole call, from start to end.
    pub whole: GrowingTimeout,
    /// What a timeout is, if not transient.
    pub category: Category,
}

/// A limit that may be longer on later attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrowingTimeout {
    /// For the first attempt.
    pub first: Duration,
    /// By how much each attempt's limit exceeds the one before.
    pub factor: f64,
    /// Never longer than this.
    pub max: Duration,
}

impl GrowingTimeout {
    /// A limit that stays the same.
    #[must_use]
    pub const fn fixed(limit: Duration) -> Self {
        Self { first: limit, factor: 1.0, max: limit }
    }

    /// The limit of that attempt, never above `max`.
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
