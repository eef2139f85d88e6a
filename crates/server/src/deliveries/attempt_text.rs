//! Texts shared by all histories of a delivery, simulated or recorded.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::engine::attempt_record::{HoldReason, RecordedRetry, UsedTime};
use redrive_core::letters::envelope::Tier;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::category::Category;
use redrive_core::policy::decide::DeadLetterReason;
use redrive_core::policy::rule::WhenOpen;
use redrive_core::text::{counted, show_duration};

use crate::terminal::moment::show_wait;
use crate::terminal::{self, style};

const INDENT_COLUMNS: usize = 12;

pub(crate) fn field(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "  {} {text}", style::dim(format!("{name:9}")));
}

/// Wrapped lines below a field.
pub(crate) fn note(out: &mut String, text: &str) {
    for line in terminal::wrap(text, terminal::columns().saturating_sub(INDENT_COLUMNS)).lines() {
        field(out, "", &style::dim(line));
    }
}

/// A category, coloured by its meaning for the event.
pub(crate) fn category(category: Category) -> String {
    match category {
        Category::Transient | Category::RateLimited | Category::Unknown => style::warning(category),
        Category::Permanent | Category::Invalid | Category::Fatal | Category::Internal => {
            style::error(category)
        }
    }
}

pub(crate) const fn held_because(by: HoldReason) -> &'static str {
    match by {
        HoldReason::Breaker => "circuit breaker open; waiting uses no retry",
        HoldReason::RetryAfter => "the dependency asked callers to wait; waiting uses no retry",
        HoldReason::RuleRemoved => "no rule matches the event any more",
        HoldReason::Deadline => "the rule's deadline has passed",
        HoldReason::Notified => "the target returned a notification id: it is not called again",
        HoldReason::Damage => "the stored event is damaged",
    }
}

pub(crate) fn paused() -> String {
    style::warning("the service is paused; the delivery keeps its place and waits")
}

pub(crate) fn spent(used: UsedTime) -> String {
    let shown = show_wait(Duration::from_nanos(used.used_nanos));
    match used.limit_nanos {
        Some(limit) => format!("{shown} of {}", show_duration(Duration::from_nanos(limit))),
        None => shown,
    }
}

pub(crate) fn count(max: u32) -> String {
    if max == Backoff::UNLIMITED { "unlimited".to_owned() } else { max.to_string() }
}

/// The retry number, by policy and by category.
pub(crate) fn tallies(weighed: &RecordedRetry) -> Vec<String> {
    let (number, max) = weighed.by_policy;
    let mut parts = vec![format!("retry {number} of {}", count(max))];
    parts.extend(weighed.by_category.map(|(number, max)| format!("{number} of {max} for this category")));
    parts
}

/// The used part of the retry window, if there is one.
pub(crate) fn window_part(weighed: &RecordedRetry) -> Option<String> {
    weighed.window.limit_nanos.map(|_| format!("window {}", spent(weighed.window)))
}

pub(crate) fn asked_for_it(weighed: &RecordedRetry) -> Option<String> {
    weighed.is_held().then(|| {
        format!(
            "requested by the target, so it counts towards `hold_max` ({}), not the window",
            spent(weighed.held)
        )
    })
}

fn exhausted(weighed: &RecordedRetry) -> String {
    let exceeds = |(number, max): &(u32, u32)| number > max;
    let ((_, max), whose) = if let Some(tally) = weighed.by_category.filter(exceeds) {
        (tally, "retries for this category")
    } else if exceeds(&weighed.by_policy) {
        (weighed.by_policy, "retries of the policy")
    } else {
        (weighed.in_total, "retries of the rule in total")
    };
    match max {
        0 => format!("no {whose} allowed"),
        max => format!("the {max} {whose} are used up"),
    }
}

pub(crate) fn death(because: &str, tier: Tier, code: Option<&str>) -> String {
    let tier = match tier {
        Tier::Dead => "",
        Tier::Poison => ", tier poison",
    };
    let code = code.map(|code| format!(" {}", style::dim(code))).unwrap_or_default();
    format!("{}{tier}: {because}{code}", style::error("dead letter"))
}

/// The action on an open breaker may no longer be known.
pub(crate) fn death_because(
    reason: DeadLetterReason,
    weighed: Option<&RecordedRetry>,
    when_open: Option<WhenOpen>,
) -> String {
    match (reason, weighed) {
        (DeadLetterReason::RetriesExceeded, Some(weighed)) => exhausted(weighed),
        (DeadLetterReason::WindowExceeded, Some(weighed)) => {
            format!("the next retry would start {} into the window", spent(weighed.window))
        }
        (DeadLetterReason::DeadlineExceeded, Some(weighed)) => {
            format!("the next retry would start {} into the deadline", spent(weighed.deadline))
        }
        (DeadLetterReason::HoldExpired, Some(weighed)) => {
            let wait =
                Duration::from_nanos(weighed.backoff_nanos.max(weighed.retry_after_nanos.unwrap_or(0)));
            format!("the target asked for {}, which exceeds `hold_max`", show_duration(wait))
        }
        (DeadLetterReason::Refused, _) => "permanent failure, not retried".to_owned(),
        (DeadLetterReason::ConnectionFailing, _) => "the connection has failed for too long".to_owned(),
        (DeadLetterReason::BreakerOpen, _) => match when_open {
            Some(WhenOpen::DeadLetter) => {
                "the breaker is open, and the rule does not hold deliveries".to_owned()
            }
            Some(WhenOpen::Hold) => "the breaker is still open, and `hold_max` is used up".to_owned(),
            None => "the breaker is open, and the rule no longer holds deliveries".to_owned(),
        },
        (
            DeadLetterReason::RetriesExceeded
            | DeadLetterReason::WindowExceeded
            | DeadLetterReason::DeadlineExceeded
            | DeadLetterReason::HoldExpired,
            None,
        ) => "time limit exceeded".to_owned(),
    }
}

pub(crate) fn delivered(attempts: u64, after: &str) -> String {
    format!("{} delivered after {} and {after}", style::good("✓"), counted(attempts, "attempt"))
}

pub(crate) fn dead(attempts: u64, after: &str, kept: &str) -> String {
    format!(
        "{} dead after {} and {after}, kept in {}",
        style::error("✗"),
        counted(attempts, "attempt"),
        style::bold(kept)
    )
}

pub(crate) fn waiting(attempts: u64, for_what: &str) -> String {
    format!("{} waiting after {}: {for_what}", style::warning("…"), counted(attempts, "attempt"))
}
