//! Lints about the time that retries leave a dependency: how far apart, how spread, and for how long in all.
//!
//! The catalog's policies are not judged by their own numbers, only by the facts of the place that uses them.

use std::time::Duration;

use super::Example::{Service, With};
use super::worst_case::{chosen_policies, is_of_the_catalog, longest_delay};
use super::{Findings, Lint, Run};
use redrive_core::book::problem::Severity;
use redrive_core::book::resolve::{Level, Origin, Resolved};
use redrive_core::policy::answer::{Answer, What};
use redrive_core::policy::backoff::{Backoff, Jitter};
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::rule::{Meaning, NamedPolicy, PolicyIndex, Rule};
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "jitter-too-small",
        severity: Severity::Warning,
        summary: "the jitter is too small to spread the retries of many processes",
        explanation: "Many processes call the dependency, and what fails for all of them at once is retried within \
                      the few milliseconds that the jitter allows: the calls of the whole fleet arrive in one burst \
                      after every delay. Jitter should be at least a tenth of the delay; `jitter: equal` spreads a \
                      retry over half of it. The lint uses the fact `instances`.",
        bad: With(
            &["retry_policies: { narrow: { from: standard, jitter: spread 1% } }"],
            "retry: narrow, facts: { instances: 200 }",
        ),
        fix: &[("jitter: spread 1%", "jitter: equal")],
        run: Run::Rule(jitter_too_small),
    },
    Lint {
        code: "retries-within-a-timeout",
        severity: Severity::Warning,
        summary: "many retries, closer together than a single call may take",
        explanation: "Where the dependency refuses at once, all retries of the policy are over in less time than one \
                      call may take before it times out, or there are ten or more and no two are further apart than \
                      that: an outage of seconds uses up all of them, or they are too many for it, and while it lasts \
                      each delivery multiplies the calls. Patience comes from longer delays, not from more retries. \
                      Raise `initial` and `factor`, or name a policy of the catalog.",
        bad: With(&["retry_policies: { hasty: { initial: 60ms, factor: 1, retries: 50 } }"], "retry: hasty"),
        fix: &[("initial: 60ms, factor: 1, retries: 50", "from: standard, initial: 2s")],
        run: Run::Rule(retries_within_a_timeout),
    },
    Lint {
        code: "retries-shorter-than-rate-limit",
        severity: Severity::Warning,
        summary: "retries of a rate limit that are over before its window is",
        explanation: "The other side counts calls over `rate_limit_window`. Where its answers carry no `Retry-After`, \
                      the policy alone decides how long to wait, and this one gives up before the window is over: \
                      deliveries become dead letters though waiting would have helped. Name a policy that waits \
                      longer, or set `rate` so that the limit is not met.",
        bad: Service("on_failure: { rate-limited: aggressive }, facts: { rate_limit_window: 1h }"),
        fix: &[
            (
                "services:",
                "retry_policies: { hourly: { initial: 5m, factor: 2, max: 30m, retries: 5 } }\nservices:",
            ),
            ("aggressive", "hourly"),
        ],
        run: Run::Rule(retries_shorter_than_rate_limit),
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
            None => findings.cannot_tell(rule.service.span, "facts.instances"),
            Some(at) if at.value < FLEET => {}
            Some(at) => {
                let (name, width) = (&used.policy.name, show_duration(width));
                let message =
                    format!("{} processes retry by `{name}` within {width} of each other", at.value);
                findings.report(rule.place(used.origin), message, "write `jitter: equal`");
            }
        }
    }
}

/// The policies of the catalog that retry quickly do so this often; more retries are meant to be patient.
const QUICK_RETRIES_MAX: u32 = 5;
/// So many retries are too many where no delay is as long as one call may take.
const CLOSE_RETRIES_MIN: u32 = 10;

fn retries_within_a_timeout(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeout = rule.rule.timeouts.whole.first;
    for used in chosen_policies(rule) {
        let (retries, in_all) = (used.backoff().retries(), longest_in_all(used.backoff()));
        let judged =
            retries > QUICK_RETRIES_MAX && !used.backoff().is_unlimited() && !is_of_the_catalog(&used);
        if !judged {
            continue;
        }
        let apart = longest_delay(used.backoff());
        let said = if in_all < timeout {
            Some(format!("may be over after {}", show_duration(in_all)))
        } else {
            let is_close = retries >= CLOSE_RETRIES_MIN && apart < timeout;
            is_close.then(|| format!("are {} apart at most", show_duration(apart)))
        };
        if let Some(said) = said {
            let message = format!(
                "all {retries} retries of `{}` {said}, and one call may take {}",
                used.policy.name,
                show_duration(timeout)
            );
            findings.report(
                rule.place(used.origin),
                message,
                "wait longer between retries, and retry less often",
            );
        }
    }
}

fn retries_shorter_than_rate_limit(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(window) = &rule.facts.rate_limit_window else { return };
    for (category, status) in rate_limits(rule) {
        let stated = rule.reactions.iter().find(|(on, _)| on.matches(category, status));
        let origin = stated.map_or(Origin::BUILT_IN, |(_, known)| known.origin);
        // What is built in for rate limits waits as long as it is asked to.
        if origin.level == Level::BuiltIn && category == Category::RateLimited {
            continue;
        }
        let reactions = &rule.rule.reactions;
        let Some(PolicyIndex(index)) = reactions.to(category, status).value.policy() else { continue };
        let NamedPolicy { name, backoff, .. } = &reactions.policies()[usize::from(index)];
        // No retry at all is another lint's matter.
        if backoff.is_unlimited() || backoff.retries() == 0 {
            continue;
        }
        let in_all = longest_in_all(backoff);
        if in_all < window.value {
            let (in_all, window) = (show_duration(in_all), show_duration(window.value));
            let message =
                format!("`{name}` gives up after {in_all} at the latest, and the limit counts over {window}");
            let help = format!("name a policy that waits for more than {window}, or set `rate`");
            findings.report(rule.place(origin), message, help);
        }
    }
}

/// The statuses that say "too many calls".
const TOO_MANY: [u16; 2] = [429, 529];

/// The failures that a rate limit may be for the rule: what its rows make of a plain 429, what they make a rate
/// limit, and one that has no status.
fn rate_limits(rule: &Resolved<'_>) -> impl Iterator<Item = (Category, Option<u16>)> {
    let Rule { classify: rows, timeouts, .. } = &rule.rule;
    let refused = TOO_MANY.into_iter().filter_map(|status| {
        let what = What::Http { status, headers: &(), body: "" };
        let answer = Answer { what, message: "", retry_after: None };
        match classify(&answer, rows, timeouts.category) {
            Outcome::Failed(failure) => Some((failure.category, failure.status)),
            Outcome::Delivered { .. } => None,
        }
    });
    let limited = rows.iter().filter(|row| row.meaning == Meaning::Failure(Category::RateLimited));
    let ranges = limited.flat_map(|row| &row.when.statuses);
    let by_row = ranges.flat_map(|range| range.first..=range.last);
    refused
        .chain(by_row.map(|status| (Category::RateLimited, Some(status))))
        .chain([(Category::RateLimited, None)])
}

/// The waits of all retries together at the longest, while every attempt fails at once.
fn longest_in_all(backoff: &Backoff) -> Duration {
    backoff.window().map_or(backoff.wait_max_total(), |window| backoff.wait_max_total().min(window))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{found, untold};

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
        let unknown = untold(&book("from: standard, jitter: spread 1%", "retry: own"), super::LINTS);
        assert_eq!(unknown, ["4:3 jitter-too-small facts.instances"]);
    }
}
