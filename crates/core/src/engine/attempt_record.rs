//! The stored record of one attempt: its end, the verdict and the numbers behind it.
//!
//! It holds in plain values what a [`Decision`] holds in types of one rule book, so that it can still be read
//! when the book has changed: `redrive why` shows the line as it was then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::book::problem::Position;
use crate::ids::Attempt;
use crate::letters::envelope::Tier;
use crate::policy::backoff::nanos;
use crate::policy::category::{Category, FailureCode};
use crate::policy::classify::{Failure, Outcome};
use crate::policy::decide::{
    Decision, HoldCause, RetryCount, RetryNumbers, SpentTime, Verdict, VerdictBasis,
};
use crate::policy::history::is_zero;
use crate::policy::rule::Rule;
use crate::time::Timestamp;

/// One attempt, or one that could not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttemptRecord {
    /// Its number; if it could not start, the number it would have had.
    pub attempt: Attempt,
    /// When it started.
    pub started_at: Timestamp,
    /// How long it took, in nanoseconds.
    pub took_nanos: u64,
    /// How it ended.
    #[serde(flatten)]
    pub end: AttemptEnd,
    /// The hash of the rule book that it was judged by.
    #[serde(with = "hex")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9a-f]{16}$"))]
    pub book: u64,
    /// What followed.
    pub verdict: RecordedVerdict,
    /// Where the rule book defines the `classify` row that applied, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classified_at: Option<BookPosition>,
    /// Where the rule book defines the reaction, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaction_at: Option<BookPosition>,
    /// The retry that was considered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RecordedRetry>,
    /// How long it was held before the attempt, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_nanos: u64,
}

/// Hashes as 16 hexadecimal digits, since many JSON readers keep only 53 bits of a number. Older records have
/// numbers; both are read.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StoredHash {
        Number(u64),
        Digits(String),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{hash:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        match StoredHash::deserialize(deserializer)? {
            StoredHash::Number(hash) => Ok(hash),
            StoredHash::Digits(digits) => u64::from_str_radix(&digits, 16).map_err(de::Error::custom),
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum AttemptEnd {
    /// The target has the event.
    Delivered {
        /// The HTTP status, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// What the target said of it, such as the id of a notification or of a queued mail.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// It failed.
    Failed {
        /// The failure's category.
        category: Category,
        /// The failure's code.
        code: FailureCode,
        /// The HTTP status, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// The failure's message.
        message: String,
        /// The beginning of the target's response body.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        response: String,
    },
    /// It could not start.
    Held {
        /// What prevented it.
        by: HoldReason,
    },
}

/// What prevented an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HoldReason {
    /// The breaker is open.
    Breaker,
    /// The dependency asked callers to wait.
    RetryAfter,
    /// No rule matches the event any more.
    RuleRemoved,
    /// The rule's deadline had passed.
    Deadline,
    /// The target had returned a notification id, and is not called again.
    Notified,
    /// The stored event is damaged.
    Damage,
}

/// What followed an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = Verdict))]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum RecordedVerdict {
    /// It is delivered.
    Delivered,
    /// It is retried.
    Retry {
        /// When the retry is due.
        due_at: Timestamp,
    },
    /// It waits without using a retry.
    Hold {
        /// Until when it waits.
        until: Timestamp,
    },
    /// It has failed for good.
    Dead {
        /// Why it was given up.
        code: FailureCode,
        /// The tier of its dead letter.
        tier: Tier,
    },
    /// Its service was paused.
    Paused,
}

/// A line and a column of the rule book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BookPosition {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<Position> for BookPosition {
    fn from(position: Position) -> Self {
        Self { line: position.line, column: position.column }
    }
}

/// The numbers that decided on a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RecordedRetry {
    /// The retry policy's name.
    pub policy: String,
    /// The number of this retry by the policy, and the limit.
    #[cfg_attr(feature = "schema", schema(value_type = [u32; 2]))]
    pub by_policy: (u32, u32),
    /// The number of this retry in all, and the limit.
    #[cfg_attr(feature = "schema", schema(value_type = [u32; 2]))]
    pub in_total: (u32, u32),
    /// The number of this retry for the category, and the limit, where the book states no policy for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<[u32; 2]>))]
    pub by_category: Option<(u32, u32)>,
    /// The policy's delay with jitter, in nanoseconds.
    pub backoff_nanos: u64,
    /// The wait that the target asked for, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_nanos: Option<u64>,
    /// Use of the retry window when the retry would start.
    pub window: UsedTime,
    /// Use of `hold_max` by then.
    pub held: UsedTime,
    /// Use of the deadline by then.
    pub deadline: UsedTime,
}

/// A time used, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UsedTime {
    /// The time used, in nanoseconds.
    pub used_nanos: u64,
    /// The limit in nanoseconds; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_nanos: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct AttemptFacts<'a> {
    pub attempt: Attempt,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub book: u64,
    pub rule: &'a Rule,
    /// `None` if it did not start.
    pub outcome: Option<&'a Outcome>,
    pub status: Option<u16>,
    pub response: &'a str,
    /// What a target said of what it has taken.
    pub receipt: &'a str,
    pub held: Duration,
}

impl AttemptRecord {
    #[must_use]
    pub fn of(facts: &AttemptFacts<'_>, decision: &Decision) -> Self {
        let (classified_at, reaction_at, retry) = match &decision.why {
            VerdictBasis::Delivered { matched } => (*matched, None, None),
            VerdictBasis::Failed(ruling) => {
                let retry = ruling.retry.as_ref().map(|numbers| RecordedRetry::of(numbers, facts.rule));
                (ruling.matched, ruling.reaction.position, retry)
            }
            VerdictBasis::Held(_) | VerdictBasis::Interrupted => (None, None, None),
        };
        Self {
            attempt: facts.attempt,
            started_at: facts.started_at,
            took_nanos: nanos(facts.ended_at.since(facts.started_at)),
            end: AttemptEnd::of(facts, decision),
            book: facts.book,
            verdict: RecordedVerdict::of(decision, facts.outcome),
            classified_at: classified_at.map(BookPosition::from),
            reaction_at: reaction_at.map(BookPosition::from),
            retry,
            held_nanos: nanos(facts.held),
        }
    }

    #[must_use]
    pub const fn is_attempt(&self) -> bool {
        match self.end {
            AttemptEnd::Delivered { .. } | AttemptEnd::Failed { .. } => true,
            AttemptEnd::Held { .. } => false,
        }
    }
}

impl AttemptEnd {
    fn of(facts: &AttemptFacts<'_>, decision: &Decision) -> Self {
        match (facts.outcome, &decision.why) {
            (Some(Outcome::Failed(failure)), why) => {
                // A connection that failed for too long has become a configuration error.
                let category = match why {
                    VerdictBasis::Failed(ruling) => ruling.category,
                    VerdictBasis::Delivered { .. } | VerdictBasis::Held(_) | VerdictBasis::Interrupted => {
                        failure.category
                    }
                };
                Self::Failed {
                    category,
                    code: failure.code.clone(),
                    status: failure.status,
                    message: failure.message.clone(),
                    response: facts.response.to_owned(),
                }
            }
            (Some(Outcome::Delivered { .. }), _) => {
                Self::Delivered { status: facts.status, message: facts.receipt.to_owned() }
            }
            (None, VerdictBasis::Held(holding)) => Self::Held {
                by: match holding.cause {
                    HoldCause::BreakerOpen => HoldReason::Breaker,
                    HoldCause::AskedToWait => HoldReason::RetryAfter,
                },
            },
            (None, VerdictBasis::Delivered { .. } | VerdictBasis::Failed(_) | VerdictBasis::Interrupted) => {
                unreachable!("what did not start was held")
            }
        }
    }
}

impl RecordedVerdict {
    fn of(decision: &Decision, outcome: Option<&Outcome>) -> Self {
        match decision.verdict {
            Verdict::Deliver => Self::Delivered,
            Verdict::Retry { due_at } => Self::Retry { due_at },
            Verdict::Hold { until } => Self::Hold { until },
            Verdict::DeadLetter { reason, tier } => {
                let own = match outcome {
                    Some(Outcome::Failed(Failure { code, .. })) => Some(code.clone()),
                    Some(Outcome::Delivered { .. }) | None => None,
                };
                let code = reason.code().map(FailureCode::of).or(own);
                Self::Dead { code: code.expect("a refusal has a failure, and each failure a code"), tier }
            }
            Verdict::Pause => Self::Paused,
        }
    }
}

impl RecordedRetry {
    #[must_use]
    pub fn of(numbers: &RetryNumbers, rule: &Rule) -> Self {
        let pair = |tally: RetryCount| (tally.number, tally.max);
        Self {
            policy: rule.reactions.policies()[usize::from(numbers.policy.0)].name.to_string(),
            by_policy: pair(numbers.by_policy),
            in_total: pair(numbers.in_total),
            by_category: numbers.by_category.map(pair),
            backoff_nanos: nanos(numbers.backoff()),
            retry_after_nanos: numbers.retry_after().map(nanos),
            window: numbers.window.into(),
            held: numbers.held.into(),
            deadline: numbers.deadline.into(),
        }
    }

    /// Whether the target asked for the wait, which makes it time held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.retry_after_nanos.is_some_and(|asked| asked > self.backoff_nanos)
    }
}

impl From<SpentTime> for UsedTime {
    fn from(spent: SpentTime) -> Self {
        Self { used_nanos: nanos(spent.used()), limit_nanos: spent.limit().map(nanos) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_in_digits_and_read_in_both_ways() {
        let json = |book: &str| {
            format!(
                r#"{{"attempt":1,"started_at":"2025-10-21T14:30:00Z","took_nanos":5,"end":"delivered","book":{book},"verdict":{{"is":"delivered"}}}}"#
            )
        };
        let before: AttemptRecord =
            serde_json::from_str(&json("11039955474259798102")).expect("as it was written before");
        let now: AttemptRecord =
            serde_json::from_str(&json(r#""9935cd02fb626856""#)).expect("as it is written now");
        assert_eq!((before.book, &before), (0x9935_cd02_fb62_6856, &now));
        let written = serde_json::to_value(&now).expect("a record is JSON");
        assert_eq!(written["book"], "9935cd02fb626856");
        assert!(serde_json::from_str::<AttemptRecord>(&json(r#""no digits""#)).is_err());
    }
}
