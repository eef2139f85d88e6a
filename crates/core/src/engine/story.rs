//! The story of one attempt as it is stored: what was seen, what the rule made of it, and what followed.
//!
//! It says in plain values what a [`Decision`] says in types that belong to one rule book, so that it can
//! still be read when the book has changed: `redrive why` shows the line as it read then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::Attempt;
use crate::letters::envelope::Tier;
use crate::policy::backoff::nanos;
use crate::policy::category::{Category, Code};
use crate::policy::classify::{Failure, Outcome};
use crate::policy::decide::{Decision, HoldCause, RetryNumbers, Spent, Tally, Verdict, Why};
use crate::policy::rule::Rule;
use crate::position::Position;
use crate::time::Timestamp;

/// One attempt, or one that could not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Story {
    /// Its number; that of the attempt that could not start, if there was none.
    pub attempt: Attempt,
    /// When it started.
    pub started_at: Timestamp,
    /// How long it took, in nanoseconds.
    pub took_nanos: u64,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
    /// The hash of the rule book that it was judged by.
    #[serde(with = "hex")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9a-f]{16}$"))]
    pub book: u64,
    /// What followed.
    pub verdict: Told,
    /// The row of `classify` that said what the failure is, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classified_at: Option<Place>,
    /// The line that said what follows, if the book states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaction_at: Option<Place>,
    /// The retry that was weighed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Weighed>,
    /// How long it was held before the attempt, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_nanos: u64,
}

/// Hashes as 16 hexadecimal digits, since many readers of JSON keep no more than 53 bits of a number. Numbers,
/// as they were written before, are read too.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Digits(String),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{hash:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(hash) => Ok(hash),
            Written::Digits(digits) => u64::from_str_radix(&digits, 16).map_err(de::Error::custom),
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum End {
    /// The target has the event.
    Delivered {
        /// The status it answered with, if it speaks HTTP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
    /// It failed.
    Failed {
        /// What kind of failure.
        category: Category,
        /// Its name for machines.
        code: Code,
        /// The HTTP status, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// What happened, in words.
        message: String,
        /// The beginning of what the target answered.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        response: String,
    },
    /// It could not start.
    Held {
        /// What kept it.
        by: HeldBy,
    },
}

/// What kept an attempt from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// The breaker is open.
    Breaker,
    /// The dependency asked all of us to wait.
    RetryAfter,
    /// No rule of the book wants such an event any more.
    RuleRemoved,
    /// The rule's deadline had passed.
    Deadline,
    /// The target had told the id of a notification, and is not called again.
    Notified,
    /// The stored event is damaged.
    Damage,
}

/// A verdict in plain values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = Verdict))]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Told {
    /// It is delivered.
    Delivered,
    /// It is tried again.
    Retry {
        /// When.
        due_at: Timestamp,
    },
    /// It waits without burning a retry.
    Hold {
        /// Until when.
        until: Timestamp,
    },
    /// It has failed for good.
    Dead {
        /// Why, for machines.
        code: Code,
        /// Among which dead letters it is kept.
        tier: Tier,
    },
    /// Its service was paused.
    Paused,
}

/// A line and a column of the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Place {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        Self { line: position.line, column: position.column }
    }
}

/// All that decided on a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Weighed {
    /// The policy's name.
    pub policy: String,
    /// Which retry by this policy, and how many there may be.
    #[cfg_attr(feature = "schema", schema(value_type = [u32; 2]))]
    pub by_policy: (u32, u32),
    /// Which retry in all, and how many there may be.
    #[cfg_attr(feature = "schema", schema(value_type = [u32; 2]))]
    pub in_total: (u32, u32),
    /// Which retry of this category, and how many there may be, where the book states no policy for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<[u32; 2]>))]
    pub by_category: Option<(u32, u32)>,
    /// The policy's delay with its jitter, in nanoseconds.
    pub backoff_nanos: u64,
    /// How long the other side asked us to wait, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_nanos: Option<u64>,
    /// Of the window, when the retry would start.
    pub window: Used,
    /// Of `hold_max`, by then.
    pub held: Used,
    /// Of the deadline, by then.
    pub deadline: Used,
}

/// A time in nanoseconds, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Used {
    /// How much is used.
    pub used_nanos: u64,
    /// How much there is; none is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_nanos: Option<u64>,
}

/// What is told of an attempt, beside the decision on it.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its number.
    pub attempt: Attempt,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The hash of the book it is judged by.
    pub book: u64,
    /// The rule of that book.
    pub rule: &'a Rule,
    /// What came of it; none if it did not start.
    pub outcome: Option<&'a Outcome>,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub response: &'a str,
    /// How long it was held before.
    pub held: Duration,
}

impl Story {
    /// The story of an attempt and the decision on it.
    #[must_use]
    pub fn of(facts: &Facts<'_>, decision: &Decision) -> Self {
        let (classified_at, reaction_at, retry) = match &decision.why {
            Why::Delivered { matched } => (*matched, None, None),
            Why::Failed(ruling) => {
                let retry = ruling.retry.as_ref().map(|numbers| Weighed::of(numbers, facts.rule));
                (ruling.matched, ruling.reaction.position, retry)
            }
            Why::Held(_) | Why::Interrupted => (None, None, None),
        };
        Self {
            attempt: facts.attempt,
            started_at: facts.started_at,
            took_nanos: nanos(facts.ended_at.since(facts.started_at)),
            end: End::of(facts, decision),
            book: facts.book,
            verdict: Told::of(decision, facts.outcome),
            classified_at: classified_at.map(Place::from),
            reaction_at: reaction_at.map(Place::from),
            retry,
            held_nanos: nanos(facts.held),
        }
    }

    /// Whether a call was made.
    #[must_use]
    pub const fn is_attempt(&self) -> bool {
        match self.end {
            End::Delivered { .. } | End::Failed { .. } => true,
            End::Held { .. } => false,
        }
    }
}

impl End {
    fn of(facts: &Facts<'_>, decision: &Decision) -> Self {
        match (facts.outcome, &decision.why) {
            (Some(Outcome::Failed(failure)), why) => {
                // A connection that failed for too long has become a matter of configuration.
                let category = match why {
                    Why::Failed(ruling) => ruling.category,
                    Why::Delivered { .. } | Why::Held(_) | Why::Interrupted => failure.category,
                };
                Self::Failed {
                    category,
                    code: failure.code.clone(),
                    status: failure.status,
                    message: failure.message.clone(),
                    response: facts.response.to_owned(),
                }
            }
            (Some(Outcome::Delivered { .. }), _) => Self::Delivered { status: facts.status },
            (None, Why::Held(holding)) => Self::Held {
                by: match holding.cause {
                    HoldCause::BreakerOpen => HeldBy::Breaker,
                    HoldCause::AskedToWait => HeldBy::RetryAfter,
                },
            },
            (None, Why::Delivered { .. } | Why::Failed(_) | Why::Interrupted) => {
                unreachable!("what did not start was held")
            }
        }
    }
}

impl Told {
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
                let code = reason.code().map(Code::of).or(own);
                Self::Dead { code: code.expect("a refusal has a failure, and each failure a code"), tier }
            }
            Verdict::Pause => Self::Paused,
        }
    }
}

impl Weighed {
    /// The numbers as they are kept, with the name of the policy.
    #[must_use]
    pub fn of(numbers: &RetryNumbers, rule: &Rule) -> Self {
        let pair = |tally: Tally| (tally.number, tally.max);
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

    /// Whether the wait is the other side's wish, and so time held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.retry_after_nanos.is_some_and(|asked| asked > self.backoff_nanos)
    }
}

impl From<Spent> for Used {
    fn from(spent: Spent) -> Self {
        Self { used_nanos: nanos(spent.used()), limit_nanos: spent.limit().map(nanos) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_in_digits_and_read_in_both_ways() {
        let told = |book: &str| {
            format!(
                r#"{{"attempt":1,"started_at":"2025-10-21T14:30:00Z","took_nanos":5,"end":"delivered","book":{book},"verdict":{{"is":"delivered"}}}}"#
            )
        };
        let before: Story =
            serde_json::from_str(&told("11039955474259798102")).expect("as it was written before");
        let now: Story = serde_json::from_str(&told(r#""9935cd02fb626856""#)).expect("as it is written now");
        assert_eq!((before.book, &before), (0x9935_cd02_fb62_6856, &now));
        let written = serde_json::to_value(&now).expect("a story is JSON");
        assert_eq!(written["book"], "9935cd02fb626856");
        assert!(serde_json::from_str::<Story>(&told(r#""no digits""#)).is_err());
    }
}
