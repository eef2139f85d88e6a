//! Lints about what a failure is taken for and what follows on it.
//!
//! Most look at each level of the book once and not at each row, so their findings stand where the
//! mistake was written. A row of `classify` that says why, or that looks at more than the status, was
//! thought about: it is taken at its word.

use std::time::Duration;

use super::Example::{Book, Service, With};
use super::worst_case::longest_delay;
use super::{Findings, Lint, Run};
use redrive_core::book::model::{At, Layer, ReactionName, Sections};
use redrive_core::book::problem::{Severity, Span};
use redrive_core::book::resolve::{Level, Resolved};
use redrive_core::policy::answer::{Answer, What};
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::rule::{FailureMatch, Matcher, Meaning, Override, StatusRange};
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "retry-of-permanent",
        severity: Severity::Warning,
        summary: "failures are retried that no retry can help",
        explanation: "A refusal such as 400 or 422 is about the request, and the same request will be refused \
                      again. Retrying it costs the target as many calls as the policy has, delays the dead \
                      letter that somebody should look at, and in a session holds up all that stands behind. \
                      Leave `permanent` and `invalid` to the dead letters. Where a status does heal by \
                      itself, as 404 does with an index that lags, say so in a row of `classify` with \
                      `because`.",
        bad: Service("on_failure: { permanent: standard }"),
        fix: &[("permanent:", "transient:")],
        run: Run::Book(retry_of_permanent),
    },
    Lint {
        code: "fatal-retried",
        severity: Severity::Warning,
        summary: "failures of configuration or credentials are retried",
        explanation: "Wrong credentials and missing configuration do not heal while a policy waits: somebody \
                      must mend them. Until then every delivery burns its retries on them and becomes a dead \
                      letter, and many refused logins may lock the account as well. Use `fatal: pause`, which \
                      keeps deliveries in their place and burns nothing, or leave the default, a dead letter \
                      and an alert at once.",
        bad: Service("on_failure: { fatal: standard }"),
        fix: &[("fatal: standard", "fatal: pause")],
        run: Run::Book(fatal_retried),
    },
    Lint {
        code: "rate-limit-ignored",
        severity: Severity::Warning,
        summary: "the other side asks for patience and gets none",
        explanation: "A rate limit is a request to wait, and those who count requests go on counting while \
                      they refuse. Redrive waits as long as `Retry-After` says, but many answers do not say; \
                      then delays below a second burn all retries inside the same limit, a dead letter gives \
                      up what only had to wait, and taken for another failure the answer no longer holds \
                      back the rest of the calls. Leave `rate-limited` to `upstream`, or name a policy that \
                      waits for seconds.",
        bad: With(
            &["retry_policies: { hasty: { from: webhook, initial: 50ms, max: 500ms } }"],
            "on_failure: { rate-limited: hasty }",
        ),
        fix: &[("initial: 50ms, max: 500ms", "initial: 5s, max: 60s")],
        run: Run::Book(rate_limit_ignored),
    },
    Lint {
        code: "hold-shorter-than-rate-limit",
        severity: Severity::Warning,
        summary: "a delivery may not wait as long as the other side's rate limit lasts",
        explanation: "Who has used up a rate limit is asked to wait until its window is over. `hold_max`, or \
                      the deadline, ends sooner here, so in the worst case such a delivery is given up while \
                      it does what it was asked to, and nothing is wrong with it. Let deliveries be held for \
                      longer than the window, or slow the calls down with `rate` so that the limit is not \
                      met. Without the fact `rate_limit_window` nobody can tell.",
        bad: Service("hold_max: 10m, facts: { rate_limit_window: 1h }"),
        fix: &[("hold_max: 10m", "hold_max: 3h")],
        run: Run::Rule(hold_shorter_than_rate_limit),
    },
    Lint {
        code: "classify-unreachable",
        severity: Severity::Warning,
        summary: "a row of `classify` that an earlier one leaves nothing to",
        explanation: "The first row that fits decides, and an earlier row fits whatever this one would: it is \
                      never used, though it reads as if it were. Usually the general row was written first. \
                      Put the more specific row above it, or remove it.",
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
        run: Run::Book(classify_unreachable),
    },
    Lint {
        code: "classify-without-because",
        severity: Severity::Info,
        summary: "a row of `classify` that does not say why",
        explanation: "The row changes what a failure is taken for, and so whether it is retried, alerted or \
                      given up. In a year nobody will know whether it still applies, and nobody will dare to \
                      remove it. Add `because` with the reason: it is shown wherever the row decided.",
        bad: Book(&[r#"defaults: { classify: [{ message: "(?i)quota", as: rate-limited }] }"#]),
        fix: &[(
            "as: rate-limited",
            r#"as: rate-limited, because: "it answers 400 when the quota is used up""#,
        )],
        run: Run::Book(classify_without_because),
    },
    Lint {
        code: "swallows-failures",
        severity: Severity::Warning,
        summary: "many kinds of failure are taken for a delivery",
        explanation: "Failures that this row takes for a success leave no trace: no retry, no dead letter, no \
                      alert, and an event that nobody ever got counts as delivered. That may be right for one \
                      status that means \"I have it already\", such as 409; it is not for server errors, for \
                      refused credentials, for a whole range, or for any answer whose text happens to match. \
                      Name the one status that is meant, or dead-letter the rest and purge it later.",
        bad: Book(&[
            r#"defaults: { classify: [{ status: 400-599, as: delivered, because: "it works most of the time" }] }"#,
        ]),
        fix: &[
            ("status: 400-599", "status: 409"),
            (r#"because: "it works most of the time""#, r#"because: "it has the event already""#),
        ],
        run: Run::Book(swallows_failures),
    },
];

/// Statuses that are about the request and yet may heal: what is not there yet, conflicts, locks, limits.
const MAY_HEAL: [u16; 6] = [404, 408, 409, 423, 425, 429];
/// Statuses that are about credentials.
const CREDENTIALS: [u16; 2] = [401, 403];
const TOO_MANY_REQUESTS: u16 = 429;
/// A rate limit counts seconds at least, so shorter delays are no patience.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// What a failure of that status is where no row of `classify` says otherwise; none for a success.
pub(super) fn usual_category(status: u16) -> Option<Category> {
    let what = What::Http { status, headers: &(), body: "" };
    match classify(&Answer { what, message: "", retry_after: None }, &[], Category::Transient) {
        Outcome::Delivered { .. } => None,
        Outcome::Failed(failure) => Some(failure.category),
    }
}

fn is_permanent(status: u16) -> bool {
    (300..=499).contains(&status) && !MAY_HEAL.contains(&status) && !CREDENTIALS.contains(&status)
}

fn is_about_credentials(status: u16) -> bool {
    CREDENTIALS.contains(&status)
}

/// Whether the reaction retries at all.
fn retries_by<'l>(book: &Sections, reaction: &'l At<ReactionName>) -> Option<&'l str> {
    match &reaction.value {
        ReactionName::Policy(name) => {
            book.policy(name).is_some_and(|policy| policy.backoff.retries() > 0).then(|| name.as_str())
        }
        ReactionName::DeadLetter | ReactionName::Pause => None,
    }
}

/// The first such status of the n-th reaction that no narrower range before it takes away.
fn first_status(layer: &Layer, n: usize, range: StatusRange, wanted: fn(u16) -> bool) -> Option<u16> {
    let taken = |status| {
        let earlier = layer.reactions.iter().take(n);
        earlier.clone().any(|(kind, _)| matches!(kind, FailureMatch::Status(range) if range.contains(status)))
    };
    (range.first..=range.last).find(|status| wanted(*status) && !taken(*status))
}

/// A reason can explain so many rejections that are retried, and no whole range.
const REJECTIONS_WITH_A_REASON_MAX: usize = 5;

/// How many of the statuses reject a message for good.
fn rejections_in(row: &Override) -> usize {
    row.when
        .statuses
        .iter()
        .flat_map(|range| range.first..=range.last)
        .filter(|status| is_permanent(*status))
        .count()
}

/// Whether the row looks at nothing but the status and lets the answer be tried again.
fn retries_by_status_alone(row: &Override) -> bool {
    let retried = match row.meaning {
        Meaning::Failure(Category::Transient | Category::Unknown | Category::Internal) => true,
        Meaning::Failure(
            Category::RateLimited | Category::Permanent | Category::Invalid | Category::Fatal,
        )
        | Meaning::Delivered => false,
    };
    retried && is_by_status_alone(row)
}

fn is_by_status_alone(row: &Override) -> bool {
    let Matcher { statuses, code, header, message } = &*row.when;
    !statuses.is_empty() && code.is_none() && header.is_none() && message.is_none()
}

fn status_in(row: &Override, wanted: fn(u16) -> bool) -> Option<u16> {
    row.when.statuses.iter().find_map(|range| (range.first..=range.last).find(|status| wanted(*status)))
}

/// The reactions that retry failures of such a category or status: which failures, by which policy, and where.
fn retried<'l>(
    book: &Sections,
    layer: &'l Layer,
    categories: &[Category],
    statuses: fn(u16) -> bool,
) -> Vec<(String, &'l str, Span)> {
    let found = layer.reactions.iter().enumerate().filter_map(|(n, (kind, reaction))| {
        let what = match kind {
            FailureMatch::Category(category) => {
                categories.contains(category).then(|| category.as_str().to_owned())?
            }
            FailureMatch::Status(range) => first_status(layer, n, *range, statuses)?.to_string(),
        };
        Some((what, retries_by(book, reaction)?, reaction.span))
    });
    found.collect()
}

fn retry_of_permanent<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    findings.each_layer(book, |layer, findings| {
        let hopeless = [Category::Permanent, Category::Invalid];
        for (what, policy, span) in retried(book, layer, &hopeless, is_permanent) {
            let message = format!("`{what}` is retried by `{policy}`, and no retry can help it");
            findings.report(span, message, "leave it out: such failures become dead letters");
        }
        for row in layer.classify.iter().filter(|row| retries_by_status_alone(&row.value)) {
            let rejections = rejections_in(&row.value);
            if rejections > REJECTIONS_WITH_A_REASON_MAX {
                let message = format!(
                    "{rejections} statuses that reject a message are retried: most of them never succeed"
                );
                findings.report(row.span, message, "name the few statuses that are meant");
            } else if let Some(status) =
                status_in(&row.value, is_permanent).filter(|_| row.value.because.is_none())
            {
                let message =
                    format!("{status} is taken for a failure that a retry may help, without a reason");
                findings.report(row.span, message, "leave it out, or say why with `because`");
            }
        }
    });
}

fn fatal_retried<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    findings.each_layer(book, |layer, findings| {
        for (what, policy, span) in retried(book, layer, &[Category::Fatal], is_about_credentials) {
            let message = format!("`{what}` is retried by `{policy}`, though somebody must mend it first");
            findings.report(span, message, "write `fatal: pause`, or leave it to the dead letters");
        }
        let unexplained =
            |row: &&At<Override>| retries_by_status_alone(&row.value) && row.value.because.is_none();
        for row in layer.classify.iter().filter(unexplained) {
            if let Some(status) = status_in(&row.value, is_about_credentials) {
                let message =
                    format!("{status} is about credentials and taken for something that heals by itself");
                findings.report(row.span, message, "leave it out, or say why with `because`");
            }
        }
    });
}

fn rate_limit_ignored<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    findings.each_layer(book, |layer, findings| {
        // The narrowest range that holds 429 comes first, and it wins over the category.
        let by_status = layer.reactions.iter().find(
            |(kind, _)| matches!(kind, FailureMatch::Status(range) if range.contains(TOO_MANY_REQUESTS)),
        );
        let wanted = FailureMatch::Category(Category::RateLimited);
        let by_category = layer.reactions.iter().find(|(kind, _)| *kind == wanted);
        for (_, reaction) in by_status.into_iter().chain(by_category) {
            if let Some(impatience) = impatience(book, &reaction.value) {
                let message = format!("a rate limit asks to wait, and {impatience}");
                findings.report(
                    reaction.span,
                    message,
                    "name `upstream`, or a policy that waits for seconds",
                );
            }
        }
        for row in &layer.classify {
            let has_429 = status_in(&row.value, |status| status == TOO_MANY_REQUESTS).is_some();
            let kept = row.value.meaning == Meaning::Failure(Category::RateLimited);
            if has_429 && !kept && is_by_status_alone(&row.value) && row.value.because.is_none() {
                let message = "429 asks to wait, and is taken for something else without a reason";
                findings.report(row.span, message, "leave 429 out of this row, or say why with `because`");
            }
        }
    });
}

/// In which way the reaction to a rate limit does not wait, if it does not.
fn impatience(book: &Sections, reaction: &ReactionName) -> Option<String> {
    match reaction {
        ReactionName::Pause => None,
        ReactionName::DeadLetter => Some("a dead letter does not wait at all".to_owned()),
        ReactionName::Policy(name) => {
            let backoff = book.policy(name)?.backoff;
            let longest = longest_delay(&backoff);
            if backoff.retries() == 0 {
                Some(format!("`{name}` does not retry"))
            } else if longest < PATIENCE_MIN {
                Some(format!("`{name}` waits for {} at most", show_duration(longest)))
            } else {
                None
            }
        }
    }
}

fn hold_shorter_than_rate_limit(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(window) = &rule.facts.rate_limit_window else {
        // The built-in day is longer than most limits; only who shortens it has to think of them.
        if rule.hold_max.origin.level != Level::BuiltIn || rule.deadline.is_some() {
            findings.cannot_tell(rule.service.span, "facts.rate_limit_window");
        }
        return;
    };
    let deadline = rule.deadline.as_ref().map(|known| ("the deadline", known));
    for (name, limit) in std::iter::once(("`hold_max`", &rule.hold_max)).chain(deadline) {
        if limit.value < window.value {
            let (limit_shown, window_shown) = (show_duration(limit.value), show_duration(window.value));
            let message =
                format!("a rate limit may ask for {window_shown} of patience, and {name} is {limit_shown}");
            let help = format!("allow more than {window_shown}, or slow the calls down with `rate`");
            findings.report(limit.origin.span.unwrap_or(window.span), message, help);
        }
    }
}

/// A row is held against so many before it; nobody writes longer lists by hand.
const ROWS_LOOKED_BACK: usize = 200;

fn classify_unreachable<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    findings.each_layer(book, |layer, findings| {
        for (n, row) in layer.classify.iter().enumerate() {
            let earlier = layer.classify[..n].iter().rev().take(ROWS_LOOKED_BACK);
            if let Some(first) = earlier.clone().find(|first| covers(&first.value.when, &row.value.when)) {
                let line = first.span.position.line;
                let message =
                    format!("the row on line {line} fits whatever this one would, and it comes first");
                findings.report(row.span, message, "put this row above it, or remove it");
            }
        }
    });
}

/// Whether every answer that fits the second also fits the first.
fn covers(first: &Matcher, second: &Matcher) -> bool {
    let lies_within = |inner: &StatusRange| {
        first.statuses.iter().any(|outer| outer.first <= inner.first && inner.last <= outer.last)
    };
    let is_success = |range: &StatusRange| range.first <= 299 && range.last >= 200;
    let statuses = if first.statuses.is_empty() {
        // A row without a status never speaks of a success.
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

fn classify_without_because<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    findings.each_layer(book, |layer, findings| {
        for row in layer.classify.iter().filter(|row| row.value.because.is_none()) {
            findings.report(row.span, "this override does not say why", "add `because` with the reason");
        }
    });
}

fn swallows_failures<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    findings.each_layer(book, |layer, findings| {
        for row in layer.classify.iter().filter(|row| row.value.meaning == Meaning::Delivered) {
            if let Some(what) = swallowed(&row.value) {
                let help = "name the one status that means that the target has the event";
                findings.report(
                    row.span,
                    format!("{what} counts as delivered here, and leaves no trace"),
                    help,
                );
            }
        }
    });
}

/// What a row that makes a success of failures takes in too broadly.
fn swallowed(row: &Override) -> Option<String> {
    let is_range = |range: &&StatusRange| range.last >= 300 && range.last > range.first;
    if let Some(status) = status_in(row, |status| status >= 500) {
        Some(format!("a server error such as {status}"))
    } else if let Some(status) = status_in(row, is_about_credentials) {
        Some(format!("a refusal of credentials by {status}"))
    } else if let Some(StatusRange { first, last }) = row.when.statuses.iter().find(is_range) {
        Some(format!("everything from {first} to {last}"))
    } else if row.when.statuses.is_empty() && row.when.code.is_none() && row.because.is_none() {
        Some("any failure that fits, be it a timeout or a server error,".to_owned())
    } else {
        None
    }
}
