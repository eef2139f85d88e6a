//! Lints about the time between retries: how long, how spread, and how long in total.
//!
//! Policies of the catalog are not judged by their own numbers, only by the facts of the place that uses them.

use super::ExampleBook::{Service, With};
use super::worst_case::{chosen_policies, is_of_the_catalog, longest_delay, wait_max};
use super::{Findings, Lint, LintScope};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::{Resolved, RuleLevel, ValueOrigin};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::backoff::Jitter;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::rule::{NamedPolicy, OverrideMeaning, PolicyIndex, Rule};
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "jitter-too-small",
        severity: ProblemSeverity::Warning,
        summary: "jitter too small to spread the retries of many processes",
        explanation: "Many processes call the dependency, and their retries arrive within the few milliseconds that \
                      the jitter allows: one burst after every delay. Make jitter at least a tenth of the delay; \
                      `jitter: equal` spreads a retry over half of it. Skipped without the fact `instances`.",
        bad: With(
            &["retry_policies: { narrow: { from: standard, jitter: spread 1% } }"],
            "retry: narrow, facts: { instances: 200 }",
        ),
        fix: &[("jitter: spread 1%", "jitter: equal")],
        scope: LintScope::Row(jitter_too_small),
    },
    Lint {
        code: "retries-within-a-timeout",
        severity: ProblemSeverity::Warning,
        summary: "many retries, closer together than one call may take",
        explanation: "If the dependency refuses at once, all retries are over in less time than one call may take, or \
                      there are ten or more that are never further apart than that. An outage of seconds uses up all \
                      retries, and each delivery multiplies the calls meanwhile. Wait longer instead of retrying more \
                      often: raise `initial` and `factor`, or use a policy of the catalog.",
        bad: With(&["retry_policies: { hasty: { initial: 60ms, factor: 1, retries: 50 } }"], "retry: hasty"),
        fix: &[("initial: 60ms, factor: 1, retries: 50", "from: standard, initial: 2s")],
        scope: LintScope::Row(retries_within_a_timeout),
    },
    Lint {
        code: "retries-shorter-than-rate-limit",
        severity: ProblemSeverity::Warning,
        summary: "retries of a rate limit that end before its window does",
        explanation: "The target counts calls over `rate_limit_window`. Without `Retry-After` in its answers the policy \
                      decides how long to wait, and this one gives up before the window ends: deliveries become dead \
                      letters for no reason. Use a policy that waits longer, or set `rate` to stay below the limit.",
        bad: Service("on_failure: { rate-limited: aggressive }, facts: { rate_limit_window: 1h }"),
        fix: &[
            (
                "services:",
                "retry_policies: { hourly: { initial: 5m, factor: 2, max: 30m, retries: 5 } }\nservices:",
            ),
            ("aggressive", "hourly"),
        ],
        scope: LintScope::Row(retries_shorter_than_rate_limit),
    },
];

/// From so many processes on, retries that arrive together are a burst.
const FLEET: u64 = 10;
/// Jitter should spread retries over at least this part of their delay.
const SPREAD_MIN: f64 = 0.1;

fn jitter_too_small(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    for used in chosen_policies(rule) {
        if used.backoff().jitter() == Jitter::None || is_of_the_catalog(&used) {
            continue;
        }
        let (shortest, longest) = used.backoff().range(0);
        let width = longest.saturating_sub(shortest);
        if width.as_secs_f64() >= longest.as_secs_f64() * SPREAD_MIN {
            continue;
        }
        match &rule.facts.instances {
            None => findings.skip(rule.service.span, "facts.instances"),
            Some(at) if at.value < FLEET => {}
            Some(at) => {
                let (name, width) = (&used.policy.name, show_duration(width));
                let message = format!("{} processes retry by `{name}` within {width}", at.value);
                findings.report(rule.place(used.origin), message, "write `jitter: equal`");
            }
        }
    }
}

/// As many as the quick policies of the catalog have.
const QUICK_RETRIES_MAX: u32 = 5;
/// So many retries are too many where no delay is as long as one call may take.
const CLOSE_RETRIES_MIN: u32 = 10;

fn retries_within_a_timeout(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeout = rule.rule.timeouts.whole.first;
    for used in chosen_policies(rule) {
        let (retries, total) = (used.backoff().retries(), wait_max(used.backoff()));
        if retries <= QUICK_RETRIES_MAX || used.backoff().is_unlimited() || is_of_the_catalog(&used) {
            continue;
        }
        let apart = longest_delay(used.backoff());
        let problem = if total < timeout {
            format!("may be over after {}", show_duration(total))
        } else if retries >= CLOSE_RETRIES_MIN && apart < timeout {
            format!("are at most {} apart", show_duration(apart))
        } else {
            continue;
        };
        let (name, timeout) = (&used.policy.name, show_duration(timeout));
        let message = format!("all {retries} retries of `{name}` {problem}, and one call may take {timeout}");
        findings.report(rule.place(used.origin), message, "use fewer retries with longer delays");
    }
}

fn retries_shorter_than_rate_limit(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(window) = &rule.facts.rate_limit_window else { return };
    for (category, status) in rate_limits(rule) {
        let stated = rule.reactions.iter().find(|(on, _)| on.matches(category, status));
        let origin = stated.map_or(ValueOrigin::BUILT_IN, |(_, known)| known.origin);
        // The built-in reaction to rate limits waits long enough.
        if origin.level == RuleLevel::BuiltIn && category == Category::RateLimited {
            continue;
        }
        let reactions = &rule.rule.reactions;
        let Some(PolicyIndex(index)) = reactions.to(category, status).value.policy() else { continue };
        let NamedPolicy { name, backoff, .. } = &reactions.policies()[usize::from(index)];
        let total = wait_max(backoff);
        // No retry at all is the subject of `rate-limit-ignored`.
        if !backoff.is_unlimited() && backoff.retries() > 0 && total < window.value {
            let [total, window] = [total, window.value].map(show_duration);
            let message =
                format!("`{name}` gives up after {total} at most, and the rate limit counts over {window}");
            let help = format!("use a policy that waits longer than {window}, or set `rate`");
            findings.report(rule.place(origin), message, help);
        }
    }
}

const TOO_MANY: [u16; 2] = [429, 529];

/// The failures that a rate limit may be for the rule: what its rows make of a plain 429, what they make a rate
/// limit, and one without a status.
fn rate_limits(rule: &Resolved<'_>) -> impl Iterator<Item = (Category, Option<u16>)> {
    let Rule { classify: rows, timeouts, .. } = &rule.rule;
    let refused = TOO_MANY.into_iter().filter_map(|status| {
        let what = AnswerKind::Http { status, headers: &(), body: "" };
        let answer = TargetAnswer { what, message: "", retry_after: None };
        match classify(&answer, rows, timeouts.category) {
            Outcome::Failed(failure) => Some((failure.category, failure.status)),
            Outcome::Delivered { .. } => None,
        }
    });
    let limited = rows.iter().filter(|row| row.meaning == OverrideMeaning::Failure(Category::RateLimited));
    let ranges = limited.flat_map(|row| &row.when.statuses);
    let by_row = ranges.flat_map(|range| range.first..=range.last);
    refused
        .chain(by_row.map(|status| (Category::RateLimited, Some(status))))
        .chain([(Category::RateLimited, None)])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{found, skipped};

    fn book(policy: &str, keys: &str) -> String {
        format!(
            "version: 1\nretry_policies: {{ own: {{ {policy} }} }}\n\
             services:\n  s: {{ target: {{ http: \"http://127.0.0.1:9/\" }}, events: [x], {keys} }}\n"
        )
    }

    #[test]
    fn retries_need_time_and_room() {
        const PLAIN: &str = "from: standard";
        #[rustfmt::skip]
        let cases = [
            ("a fleet within 20 ms",            book("from: standard, jitter: spread 1%", "retry: own, facts: { instances: 200 }"), vec!["4:69 jitter-too-small"]),
            ("a few processes",                 book("from: standard, jitter: spread 1%", "retry: own, facts: { instances: 9 }"), vec![]),
            ("a tenth of the delay",            book("from: standard, jitter: spread 6%", "retry: own, facts: { instances: 200 }"), vec![]),
            ("a fixed width",                   book("from: standard, jitter: plus 20ms", "retry: own, facts: { instances: 200 }"), vec!["4:69 jitter-too-small"]),
            ("fifty in half a second",          book("initial: 10ms, factor: 1, retries: 50", "retry: own"), vec!["4:69 retries-within-a-timeout"]),
            ("against a short timeout",         book("initial: 10ms, factor: 1, retries: 50", "retry: own, timeout: 300ms"), vec!["4:69 retries-within-a-timeout"]),
            ("fifty, a second apart",           book("initial: 1s, factor: 1, retries: 50", "retry: own, timeout: 30s"), vec!["4:69 retries-within-a-timeout"]),
            ("listed, two seconds apart",       book("delays: [1s, 2s], retries: 40", "retry: own, timeout: 30s"), vec!["4:69 retries-within-a-timeout"]),
            ("as far apart as a call takes",    book("initial: 1s, factor: 1, retries: 50", "retry: own, timeout: 1s"), vec![]),
            ("not many, a few seconds apart",   book("initial: 5s, factor: 1, retries: 9", "retry: own, timeout: 30s"), vec![]),
            ("many that soon come further apart", book("initial: 1s, factor: 2, max: 1m, retries: 50", "retry: own, timeout: 30s"), vec![]),
            ("few quick ones",                  book("initial: 100ms, retries: 5", "retry: own"), vec![]),
            ("less patience than the limit",    book(PLAIN, "on_failure: { rate-limited: own }, facts: { rate_limit_window: 1h }"), vec!["4:90 retries-shorter-than-rate-limit"]),
            ("enough for a short one",          book(PLAIN, "on_failure: { rate-limited: own }, facts: { rate_limit_window: 10s }"), vec![]),
            ("what is built in",                book(PLAIN, "facts: { rate_limit_window: 1h }"), vec![]),
            ("its status",                      book(PLAIN, "on_failure: { 429: own }, facts: { rate_limit_window: 1h }"), vec!["4:81 retries-shorter-than-rate-limit"]),
            ("its status, of the catalog",      book(PLAIN, "on_failure: { 429: aggressive }, facts: { rate_limit_window: 1h }"), vec!["4:81 retries-shorter-than-rate-limit"]),
            ("a range with its status",         book(PLAIN, "on_failure: { 400-499: own }, facts: { rate_limit_window: 1h }"), vec!["4:85 retries-shorter-than-rate-limit"]),
            ("the other status of a limit",     book(PLAIN, "on_failure: { 529: own }, facts: { rate_limit_window: 1h }"), vec!["4:81 retries-shorter-than-rate-limit"]),
            ("a narrower range waits",          book(&format!("{PLAIN} }}, slow: {{ initial: 1h, retries: 3"), "on_failure: { 400-499: own, 429: slow }, facts: { rate_limit_window: 1h }"), vec![]),
            ("another status",                  book(PLAIN, "on_failure: { 500-528: own }, facts: { rate_limit_window: 1h }"), vec![]),
            ("made transient by its status",    book(PLAIN, "retry: own, classify: [{ status: 429, as: transient, because: b }], facts: { rate_limit_window: 1h }"), vec!["4:69 retries-shorter-than-rate-limit"]),
            ("made transient by its code",      book(PLAIN, "retry: own, classify: [{ code: RATE_LIMITED, as: transient, because: b }], facts: { rate_limit_window: 1h }"), vec!["4:69 retries-shorter-than-rate-limit"]),
            ("made transient, built-in policy", book(PLAIN, "classify: [{ status: 429, as: transient, because: b }], facts: { rate_limit_window: 1h }"), vec!["4:58 retries-shorter-than-rate-limit"]),
            ("made a limit by a row",           book(PLAIN, "on_failure: { 503: own }, classify: [{ status: 503, as: rate-limited, because: b }], facts: { rate_limit_window: 1h }"), vec!["4:81 retries-shorter-than-rate-limit"]),
            ("made a limit by a code",          book(PLAIN, "on_failure: { rate-limited: own }, classify: [{ code: QUOTA, as: rate-limited, because: b }], facts: { rate_limit_window: 1h }"), vec!["4:90 retries-shorter-than-rate-limit"]),
            ("no retry at all",                 book(PLAIN, "on_failure: { 429: none }, facts: { rate_limit_window: 1h }"), vec![]),
        ];
        for (name, book, expected) in cases {
            assert_eq!(found(&book, super::LINTS), expected, "{name}\n{book}");
        }
        let unknown = skipped(&book("from: standard, jitter: spread 1%", "retry: own"), super::LINTS);
        assert_eq!(unknown, ["4:3 jitter-too-small facts.instances"]);
    }
}
