//! Lints about classification and the reaction to each category.
//!
//! Most look at each level of the book once, so that a finding points at the cause. A `classify` row that has a reason,
//! or that looks at more than the status, counts as deliberate.

use std::time::Duration;

use super::ExampleBook::{Book, Service, With};
use super::worst_case::longest_delay;
use super::{Findings, Lint, LintScope};
use redrive_core::book::model::{At, Layer, ReactionName, Sections};
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::{Resolved, RuleLevel};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::rule::{FailureMatch, Matcher, Override, OverrideMeaning, StatusRange};
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "retry-of-permanent",
        severity: ProblemSeverity::Warning,
        summary: "retries of permanent failures",
        explanation: "A status such as 400 or 422 is about the request, and the same request fails again. Retries cost \
                      calls, delay the dead letter and block the session behind it. Let `permanent` and `invalid` \
                      become dead letters. For a status that does recover, such as 404 of a lagging index, add a \
                      `classify` row with `because`.",
        bad: Service("on_failure: { permanent: standard }"),
        fix: &[("permanent:", "transient:")],
        scope: LintScope::Level(retry_of_permanent),
    },
    Lint {
        code: "fatal-retried",
        severity: ProblemSeverity::Warning,
        summary: "retries of configuration or credential failures",
        explanation: "Wrong credentials and missing configuration need a person to fix them. Until then every delivery \
                      uses up its retries and becomes a dead letter, and repeated failed logins may lock the account. \
                      Use `fatal: pause`, which keeps deliveries in place and uses no retries, or the default: a dead \
                      letter and an alert at once.",
        bad: Service("on_failure: { fatal: standard }"),
        fix: &[("fatal: standard", "fatal: pause")],
        scope: LintScope::Level(fatal_retried),
    },
    Lint {
        code: "rate-limit-ignored",
        severity: ProblemSeverity::Warning,
        summary: "a rate limit that is not waited for",
        explanation: "A rate-limited target asks callers to wait, and often counts refused calls too. Redrive obeys \
                      `Retry-After`, but many answers have none: delays below 1s then use up all retries within one \
                      limit, and a dead letter gives up a healthy event. Keep `upstream` for `rate-limited`, or use a \
                      policy that waits for seconds.",
        bad: With(
            &["retry_policies: { hasty: { from: webhook, initial: 50ms, max: 500ms } }"],
            "on_failure: { rate-limited: hasty }",
        ),
        fix: &[("initial: 50ms, max: 500ms", "initial: 5s, max: 60s")],
        scope: LintScope::Level(rate_limit_ignored),
    },
    Lint {
        code: "hold-shorter-than-rate-limit",
        severity: ProblemSeverity::Warning,
        summary: "`hold_max` or a deadline shorter than the target's rate limit window",
        explanation: "After a rate limit is used up, a delivery must wait until its window ends. `hold_max` or the \
                      deadline ends sooner here, so a healthy delivery may become a dead letter while it waits. Allow \
                      more than the window, or slow the calls down with `rate`. Skipped without the fact \
                      `rate_limit_window`.",
        bad: Service("hold_max: 10m, facts: { rate_limit_window: 1h }"),
        fix: &[("hold_max: 10m", "hold_max: 3h")],
        scope: LintScope::Row(hold_shorter_than_rate_limit),
    },
    Lint {
        code: "classify-unreachable",
        severity: ProblemSeverity::Warning,
        summary: "a `classify` row that an earlier row always precedes",
        explanation: "The first matching row decides, and an earlier row matches everything that this one would: it is \
                      never used. Usually the general row was written first. Move the specific row above it, or \
                      remove it.",
        bad: Book(&[
            "defaults:",
            "  classify:",
            r#"    - { status: 500-599, as: transient, because: "all of them heal" }"#,
            r#"    - { status: 501, as: permanent, because: "this one does not" }"#,
        ]),
        fix: &[
            ("    - { status: 500-599, as: transient, because: \"all of them heal\" }\n", ""),
            (r#"not" }"#, "not\" }\n    - { status: 500-599, as: transient, because: \"the others heal\" }"),
        ],
        scope: LintScope::Level(classify_unreachable),
    },
    Lint {
        code: "classify-without-because",
        severity: ProblemSeverity::Info,
        summary: "a `classify` row without a reason",
        explanation: "The row changes the category of a failure, and so whether it is retried, alerted or given up. \
                      Without a reason it is unclear later whether the row still applies. Add `because`: it is shown \
                      wherever the row decided.",
        bad: Book(&[r#"defaults: { classify: [{ message: "(?i)quota", as: rate-limited }] }"#]),
        fix: &[(
            "as: rate-limited",
            r#"as: rate-limited, because: "it answers 400 when the quota is used up""#,
        )],
        scope: LintScope::Level(classify_without_because),
    },
    Lint {
        code: "swallows-failures",
        severity: ProblemSeverity::Warning,
        summary: "broad failures that count as delivered",
        explanation: "Failures that this row counts as delivered leave no trace: no retry, no dead letter, no alert. That \
                      is right for one status that means \"already received\", such as 409, but not for server errors, \
                      refused credentials, a whole range or any matching text. Name that one status, or dead-letter \
                      the rest and purge it later.",
        bad: Book(&[
            r#"defaults: { classify: [{ status: 400-599, as: delivered, because: "it works most of the time" }] }"#,
        ]),
        fix: &[
            ("status: 400-599", "status: 409"),
            (r#"because: "it works most of the time""#, r#"because: "it has the event already""#),
        ],
        scope: LintScope::Level(swallows_failures),
    },
];

/// Statuses about the request that may still recover: missing objects, conflicts, locks, limits.
const MAY_RECOVER: [u16; 6] = [404, 408, 409, 423, 425, 429];
const CREDENTIALS: [u16; 2] = [401, 403];
const TOO_MANY_REQUESTS: u16 = 429;
/// Rate limits count over seconds, so shorter delays do not help.
const RATE_LIMIT_WAIT_MIN: Duration = Duration::from_secs(1);

/// The category of a status without `classify` rows; none for a success.
pub(super) fn usual_category(status: u16) -> Option<Category> {
    let what = AnswerKind::Http { status, headers: &(), body: "" };
    match classify(&TargetAnswer { what, message: "", retry_after: None }, &[], Category::Transient) {
        Outcome::Delivered { .. } => None,
        Outcome::Failed(failure) => Some(failure.category),
    }
}

fn is_permanent(status: u16) -> bool {
    (300..=499).contains(&status) && !MAY_RECOVER.contains(&status) && !CREDENTIALS.contains(&status)
}

fn is_about_credentials(status: u16) -> bool {
    CREDENTIALS.contains(&status)
}

fn retries_by<'l>(book: &Sections, reaction: &'l At<ReactionName>) -> Option<&'l str> {
    let ReactionName::Policy(name) = &reaction.value else { return None };
    book.policy(name).is_some_and(|policy| policy.backoff.retries() > 0).then(|| name.as_str())
}

pub(super) fn first_status<T>(
    before: &[(FailureMatch, T)],
    range: StatusRange,
    wanted: impl Fn(u16) -> bool,
) -> Option<u16> {
    let is_taken = |status| {
        before.iter().any(|(kind, _)| matches!(kind, FailureMatch::Status(range) if range.contains(status)))
    };
    (range.first..=range.last).find(|status| wanted(*status) && !is_taken(*status))
}

/// With a reason, this many permanent statuses may be retried by one row.
const REJECTIONS_WITH_A_REASON_MAX: usize = 5;

fn statuses(row: &Override) -> impl Iterator<Item = u16> {
    row.when.statuses.iter().flat_map(|range| range.first..=range.last)
}

/// Whether the row looks at nothing but the status and makes the answer retryable.
fn retries_by_status_alone(row: &Override) -> bool {
    let retried = match row.meaning {
        OverrideMeaning::Failure(Category::Transient | Category::Unknown | Category::Internal) => true,
        OverrideMeaning::Failure(
            Category::RateLimited | Category::Permanent | Category::Invalid | Category::Fatal,
        )
        | OverrideMeaning::Delivered => false,
    };
    retried && is_by_status_alone(row)
}

fn is_by_status_alone(row: &Override) -> bool {
    let Matcher { statuses, code, header, message } = &*row.when;
    !statuses.is_empty() && code.is_none() && header.is_none() && message.is_none()
}

fn retried<'l>(
    book: &Sections,
    layer: &'l Layer,
    categories: &[Category],
    wanted: fn(u16) -> bool,
) -> Vec<(String, &'l str, BookSpan)> {
    let found = layer.reactions.iter().enumerate().filter_map(|(n, (kind, reaction))| {
        let what = match kind {
            FailureMatch::Category(category) => {
                categories.contains(category).then(|| category.as_str().to_owned())?
            }
            FailureMatch::Status(range) => first_status(&layer.reactions[..n], *range, wanted)?.to_string(),
        };
        Some((what, retries_by(book, reaction)?, reaction.span))
    });
    found.collect()
}

fn retry_of_permanent<'a>(layer: &'a Layer, findings: &mut Findings<'a>) {
    let categories = [Category::Permanent, Category::Invalid];
    for (what, policy, span) in retried(findings.book(), layer, &categories, is_permanent) {
        let message = format!("`{policy}` retries `{what}`, which fails again");
        findings.report(span, message, "remove it: such failures become dead letters");
    }
    for row in layer.classify.iter().filter(|row| retries_by_status_alone(&row.value)) {
        let rejections = statuses(&row.value).filter(|status| is_permanent(*status)).count();
        if rejections > REJECTIONS_WITH_A_REASON_MAX {
            let message = format!("{rejections} permanent statuses are retried: most of them never succeed");
            findings.report(row.span, message, "name only the statuses that can recover");
        } else if let Some(status) = statuses(&row.value).find(|status| is_permanent(*status))
            && row.value.because.is_none()
        {
            let message = format!("{status} is made retryable without a reason");
            findings.report(row.span, message, "remove it, or add the reason with `because`");
        }
    }
}

fn fatal_retried<'a>(layer: &'a Layer, findings: &mut Findings<'a>) {
    for (what, policy, span) in retried(findings.book(), layer, &[Category::Fatal], is_about_credentials) {
        let message = format!("`{policy}` retries `{what}`, which needs a person to fix it");
        findings.report(span, message, "write `fatal: pause`, or remove it: the default is a dead letter");
    }
    let unexplained =
        |row: &&At<Override>| retries_by_status_alone(&row.value) && row.value.because.is_none();
    for row in layer.classify.iter().filter(unexplained) {
        if let Some(status) = statuses(&row.value).find(|status| is_about_credentials(*status)) {
            let message = format!("{status} is about credentials, and is made retryable without a reason");
            findings.report(row.span, message, "remove it, or add the reason with `because`");
        }
    }
}

fn rate_limit_ignored<'a>(layer: &'a Layer, findings: &mut Findings<'a>) {
    // The narrowest range that holds 429 comes first, and it wins over the category.
    let by_status = layer
        .reactions
        .iter()
        .find(|(kind, _)| matches!(kind, FailureMatch::Status(range) if range.contains(TOO_MANY_REQUESTS)));
    let wanted = FailureMatch::Category(Category::RateLimited);
    let by_category = layer.reactions.iter().find(|(kind, _)| *kind == wanted);
    for (_, reaction) in by_status.into_iter().chain(by_category) {
        if let Some(problem) = too_short_wait(findings.book(), &reaction.value) {
            let help = "use `upstream`, or a policy that waits for seconds";
            findings.report(reaction.span, format!("a rate limit needs a wait: {problem}"), help);
        }
    }
    for row in &layer.classify {
        let has_429 = statuses(&row.value).any(|status| status == TOO_MANY_REQUESTS);
        let kept = row.value.meaning == OverrideMeaning::Failure(Category::RateLimited);
        if has_429 && !kept && is_by_status_alone(&row.value) && row.value.because.is_none() {
            let message = "429 is a rate limit, and is reclassified without a reason";
            findings.report(row.span, message, "remove 429 from this row, or add the reason with `because`");
        }
    }
}

fn too_short_wait(book: &Sections, reaction: &ReactionName) -> Option<String> {
    match reaction {
        ReactionName::Pause => None,
        ReactionName::DeadLetter => Some("a dead letter does not wait".to_owned()),
        ReactionName::Policy(name) => {
            let backoff = book.policy(name)?.backoff;
            let longest = longest_delay(&backoff);
            if backoff.retries() == 0 {
                Some(format!("`{name}` does not retry"))
            } else {
                let is_short = longest < RATE_LIMIT_WAIT_MIN;
                is_short.then(|| format!("`{name}` waits at most {}", show_duration(longest)))
            }
        }
    }
}

fn hold_shorter_than_rate_limit(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(window) = &rule.facts.rate_limit_window else {
        // The built-in day is longer than most limits.
        if rule.hold_max.origin.level != RuleLevel::BuiltIn || rule.deadline.is_some() {
            findings.skip(rule.service.span, "facts.rate_limit_window");
        }
        return;
    };
    let deadline = rule.deadline.as_ref().map(|known| ("the deadline", known));
    for (name, limit) in std::iter::once(("`hold_max`", &rule.hold_max)).chain(deadline) {
        if limit.value < window.value {
            let [shown, window_shown] = [limit.value, window.value].map(show_duration);
            let message = format!("a rate limit may last {window_shown}, and {name} is {shown}");
            let help = format!("allow more than {window_shown}, or slow the calls down with `rate`");
            findings.report(limit.origin.span.unwrap_or(window.span), message, help);
        }
    }
}

const ROWS_LOOKED_BACK: usize = 200;

fn classify_unreachable<'a>(layer: &'a Layer, findings: &mut Findings<'a>) {
    for (n, row) in layer.classify.iter().enumerate() {
        let mut earlier = layer.classify[..n].iter().rev().take(ROWS_LOOKED_BACK);
        if let Some(first) = earlier.find(|first| covers(&first.value.when, &row.value.when)) {
            let message = format!("the row on line {} matches everything first", first.span.position.line);
            findings.report(row.span, message, "move this row above it, or remove it");
        }
    }
}

/// Whether every answer that matches the second also matches the first.
fn covers(first: &Matcher, second: &Matcher) -> bool {
    let lies_within = |inner: &StatusRange| {
        first.statuses.iter().any(|outer| outer.first <= inner.first && inner.last <= outer.last)
    };
    let is_success = |range: &StatusRange| range.first <= 299 && range.last >= 200;
    let statuses = if first.statuses.is_empty() {
        // A row without a status never matches a success.
        !second.statuses.iter().any(is_success)
    } else {
        !second.statuses.is_empty() && second.statuses.iter().all(lies_within)
    };
    let header = first.header.as_ref().is_none_or(|outer| {
        second.header.as_ref().is_some_and(|inner| {
            outer.name.eq_ignore_ascii_case(&inner.name)
                && (outer.value.is_none() || outer.value == inner.value)
        })
    });
    let message = first
        .message
        .as_ref()
        .is_none_or(|outer| second.message.as_ref().is_some_and(|inner| outer.as_str() == inner.as_str()));
    let code = first.code.is_none() || first.code == second.code;
    statuses && header && message && code
}

fn classify_without_because<'a>(layer: &'a Layer, findings: &mut Findings<'a>) {
    for row in layer.classify.iter().filter(|row| row.value.because.is_none()) {
        findings.report(row.span, "this `classify` row has no reason", "add the reason with `because`");
    }
}

fn swallows_failures<'a>(layer: &'a Layer, findings: &mut Findings<'a>) {
    for row in layer.classify.iter().filter(|row| row.value.meaning == OverrideMeaning::Delivered) {
        if let Some(what) = swallowed(&row.value) {
            let message = format!("{what} counts as delivered and leaves no trace");
            findings.report(row.span, message, "name the one status that means \"already received\"");
        }
    }
}

fn swallowed(row: &Override) -> Option<String> {
    let is_range = |range: &&StatusRange| range.last >= 300 && range.last > range.first;
    if let Some(status) = statuses(row).find(|status| *status >= 500) {
        Some(format!("a server error such as {status}"))
    } else if let Some(status) = statuses(row).find(|status| is_about_credentials(*status)) {
        Some(format!("{status}, a refusal of credentials,"))
    } else if let Some(StatusRange { first, last }) = row.when.statuses.iter().find(is_range) {
        Some(format!("every status from {first} to {last}"))
    } else {
        let is_any = row.when.statuses.is_empty() && row.when.code.is_none() && row.because.is_none();
        is_any.then(|| "any matching failure, timeouts and server errors included,".to_owned())
    }
}
