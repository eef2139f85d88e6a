//! Lints about one breaker and the rule that uses it: its window, its probes, what it counts.
//!
//! Absent on purpose: `close_after` above `probes`. Probes are concurrent calls and `close_after` counts successes in a
//! row, so any pair can close the breaker.

use std::num::NonZeroU32;
use std::time::Duration;

use super::ExampleBook::{Breaker, Service, With};
use super::callers::owner;
use super::classification::usual_category;
use super::worst_case::earliest_last_start;
use super::{Findings, Lint, LintScope};
use redrive_core::book::model::{At, BreakerEntry, Criticality, DataLoss, Reprocess};
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::{Resolved, RuleLevel};
use redrive_core::ids::BreakerName;
use redrive_core::policy::breaker::Trip;
use redrive_core::policy::catalog::DependencyKind;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::{FailureMatch, StatusRange, WhenOpen};
use redrive_core::text::show_duration;

/// More concurrent calls than this are load, not probes.
const PROBES_SENSIBLE_MAX: u64 = 10;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "default-breaker-hidden",
        severity: ProblemSeverity::Warning,
        summary: "a breaker in `defaults` that applies to no row",
        explanation: "A breaker in `defaults` applies only where the dependency's kind has none, and most kinds have \
                      one. Here it applies to no row, so its numbers are not in force. Name the breaker at the services \
                      or dependencies that should use it.",
        bad: With(&["defaults: { breaker: stateBreaker }"], ""),
        fix: &[
            ("defaults: { breaker: stateBreaker }\n", ""),
            ("events: [a.b]", "events: [a.b], breaker: stateBreaker"),
        ],
        scope: LintScope::Rows(default_breaker_hidden),
    },
    Lint {
        code: "retry-lands-on-open-breaker",
        severity: ProblemSeverity::Warning,
        summary: "`when_open: dead-letter` with retries that end before the breaker half-opens",
        explanation: "With `when_open: dead-letter` a retry that meets an open breaker becomes a dead letter. All retries \
                      may be over before the open time is, so once the breaker opens no retry can help. Hold deliveries \
                      (the default, which uses no retries), or retry for longer than the breaker stays open.",
        bad: Service("when_open: dead-letter"),
        fix: &[("when_open: dead-letter", "when_open: hold")],
        scope: LintScope::Row(retry_lands_on_open_breaker),
    },
    Lint {
        code: "breaker-window-too-short",
        severity: ProblemSeverity::Warning,
        summary: "a breaker window shorter than two timeouts",
        explanation: "A timeout is counted when the call ends. In a window shorter than two timeouts, one caller never has \
                      two failures in view, so a hanging dependency may not open the breaker. An error if all permitted \
                      calls together cannot time out often enough, a warning if many concurrent callers can. Lengthen \
                      `within`, or shorten the timeout.",
        bad: Breaker("trip: { failures: 3, within: 30s }, open: 60s", "timeout: 20s"),
        fix: &[("within: 30s", "within: 2m")],
        scope: LintScope::Row(breaker_window_too_short),
    },
    Lint {
        code: "half-open-stampede",
        severity: ProblemSeverity::Warning,
        summary: "too many concurrent probes",
        explanation: "A half-open breaker sends `probes` calls at once to test the dependency. More than ten, or more than \
                      may be in flight anyway, are full load on a dependency that is just recovering. One or two are \
                      enough; `close_after` asks for more successes without more load.",
        bad: Breaker("trip: { consecutive: 50 }, open: 60s, probes: 50", ""),
        fix: &[("probes: 50", "probes: 1, close_after: 50")],
        scope: LintScope::Row(half_open_stampede),
    },
    Lint {
        code: "breaker-counts-rejections",
        severity: ProblemSeverity::Warning,
        summary: "a breaker that counts rejected messages or internal errors",
        explanation: "A dependency that rejects a message (`permanent`, `invalid`, a 4xx other than 408, 425 and 429) is \
                      healthy. If rejections count, a few bad messages open the breaker for every caller. Counting \
                      `internal` is an error: those failures are Redrive's own. Remove them from `counts`.",
        bad: Breaker("from: externalBreaker, counts: [permanent]", ""),
        fix: &[("[permanent]", "[408]")],
        scope: LintScope::Breaker(breaker_counts_rejections),
    },
    Lint {
        code: "breaker-ignores-everything",
        severity: ProblemSeverity::Error,
        summary: "a breaker that ignores every failure that could open it",
        explanation: "Only `transient`, `rate-limited` and `unknown` failures count against a dependency. A breaker that \
                      ignores all three and counts nothing else never opens. A warning if only `rate-limited` is left, \
                      or if 500, 502, 503 and 504 are all ignored: no usual outage opens it. Ignore single statuses, \
                      or write `breaker: none`.",
        bad: Breaker("from: externalBreaker, ignores: [transient, rate-limited, unknown]", ""),
        fix: &[("transient, rate-limited, unknown", "503")],
        scope: LintScope::Breaker(breaker_ignores_everything),
    },
    Lint {
        code: "quorum-of-one",
        severity: ProblemSeverity::Warning,
        summary: "one failure in one process opens the breaker for all processes",
        explanation: "Processes that share a store share the breaker. If one failure opens it, one process with a bad \
                      network or a stale certificate cuts off all the others. Require 3 to 5 failures. Skipped without \
                      the fact `instances`.",
        bad: Breaker("trip: { consecutive: 1 }, open: 60s", "facts: { instances: 4 }"),
        fix: &[("consecutive: 1", "consecutive: 5")],
        scope: LintScope::Row(quorum_of_one),
    },
    Lint {
        code: "no-breaker",
        severity: ProblemSeverity::Warning,
        summary: "retries of a remote dependency without a breaker",
        explanation: "Without a breaker, every delivery keeps retrying a dependency that is already failing, which delays \
                      its recovery. Use a breaker for each dependency that is retried. Most kinds have one; `sqs` has \
                      none, and `breaker: none` removes it. Programs and `log` need none: they use no network.",
        bad: Service("breaker: none"),
        fix: &[("breaker: none", "breaker: externalBreaker")],
        scope: LintScope::Row(no_breaker),
    },
    Lint {
        code: "open-longer-than-hold",
        severity: ProblemSeverity::Warning,
        summary: "`hold_max` shorter than the breaker's open time",
        explanation: "While a breaker is open, deliveries are held for at most `hold_max`. If it stays open longer, every \
                      held delivery is a dead letter before the first probe. Hold for several times the open time, \
                      since the first probe may fail too.",
        bad: Service("hold_max: 30s"),
        fix: &[("hold_max: 30s", "hold_max: 1h")],
        scope: LintScope::Row(open_longer_than_hold),
    },
    Lint {
        code: "open-too-short",
        severity: ProblemSeverity::Warning,
        summary: "a breaker open time below 1s",
        explanation: "An open breaker gives a failing dependency time to recover. One that probes within a second gives it \
                      none: the breaker flaps, and so do its alerts. Most dependencies need 10s to 1m; the breakers of \
                      the catalog stay open for 10s or longer.",
        bad: Breaker("trip: { consecutive: 5 }, open: 100ms", ""),
        fix: &[("open: 100ms", "open: 30s")],
        scope: LintScope::Breaker(open_too_short),
    },
    Lint {
        code: "reset-forgets-failures",
        severity: ProblemSeverity::Warning,
        summary: "`reset` clears the failure count before the next failure can arrive",
        explanation: "`reset` clears the count after that time without a failure. If a call takes as long to time out, or \
                      the first retry comes later, and there is little other traffic, the count never reaches the trip \
                      and the breaker stays closed through the outage. Make `reset` several times the timeout and the \
                      first delay. Skipped without the fact `rate`.",
        bad: Breaker("trip: { consecutive: 3 }, open: 60s, reset: 10s", "timeout: 30s, facts: { rate: 1/m }"),
        fix: &[("reset: 10s", "reset: 5m")],
        scope: LintScope::Row(reset_forgets_failures),
    },
    Lint {
        code: "dead-letter-when-open",
        severity: ProblemSeverity::Warning,
        summary: "critical events become dead letters while the breaker is open",
        explanation: "`when_open: dead-letter` gives up healthy deliveries. If the events are critical or must not be lost, \
                      each has to be replayed by hand after every short outage. Hold them (the default), or bring the \
                      dead letters back with `reprocess: automatic`.",
        bad: Service("when_open: dead-letter, data_loss: not-acceptable"),
        fix: &[("when_open: dead-letter", "when_open: hold")],
        scope: LintScope::Row(dead_letter_when_open),
    },
    Lint {
        code: "synchronous-probes",
        severity: ProblemSeverity::Info,
        summary: "more than 10 probes at once over all processes",
        explanation: "Processes without a shared store, or that have lost it, open at about the same time and probe at the \
                      same time: `probes` × processes calls at once. One probe for each process is enough; use \
                      `close_after` for more successes. Skipped without the fact `instances`.",
        bad: Breaker("trip: { consecutive: 5 }, open: 60s, probes: 4", "facts: { instances: 8 }"),
        fix: &[("probes: 4", "probes: 1, close_after: 4")],
        scope: LintScope::Row(synchronous_probes),
    },
];

/// Where to point for a breaker: at where it is chosen, else at what names the dependency.
fn guard(resolved: &Resolved<'_>) -> BookSpan {
    resolved.breaker_origin.span.or(resolved.dependency.origin.span).unwrap_or_else(|| owner(resolved))
}

fn retry_lands_on_open_breaker(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.when_open.value != WhenOpen::DeadLetter {
        return;
    }
    let (Some(breaker), Some(policy)) = (&resolved.rule.breaker, resolved.retry_policy()) else { return };
    let open = breaker.settings.open();
    let through = earliest_last_start(&policy.backoff);
    if policy.backoff.retries() == 0 || through >= open {
        return;
    }
    let [through, open] = [through, open].map(show_duration);
    let name = &policy.name;
    let message =
        format!("all retries of `{name}` may be over after {through}, and the breaker stays open for {open}");
    let help = format!("hold deliveries (remove `when_open`), or use a policy that waits longer than {open}");
    findings.report(resolved.place(resolved.when_open.origin), message, help);
}

fn breaker_window_too_short(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeouts = &resolved.rule.timeouts;
    let Some(breaker) = &resolved.rule.breaker else { return };
    let (needed, within) = match breaker.settings.trip() {
        Trip::Consecutive(_) => return,
        Trip::Failures { count, within } => (count, within),
        Trip::FailureRate { of_at_least, within, .. } => (of_at_least, within),
    };
    let timeout = timeouts.whole.first;
    let counted = timeouts.category.counts_against_dependency();
    if !counted || needed.get() == 1 || within >= timeout.saturating_mul(2) {
        return;
    }
    // In each slot a timeout ends at most once in a timeout, and the window may begin on one.
    let ends_in_a_slot = within.as_nanos() / timeout.as_nanos().max(1) + 1;
    let most = u128::from(resolved.in_flight.value).saturating_mul(ends_in_a_slot);
    let [within, timeout, twice] = [within, timeout, timeout.saturating_mul(2)].map(show_duration);
    let (severity, message) = if most < u128::from(needed.get()) {
        let message = format!(
            "within {within} at most {most} calls can time out after {timeout}, and the breaker needs {needed}"
        );
        (ProblemSeverity::Error, message)
    } else {
        let message = format!("the breaker's window is {within}, and a call may take {timeout} to fail");
        (ProblemSeverity::Warning, message)
    };
    let help = format!("use a window of at least {twice}, better several times that, or shorten the timeout");
    findings.report_as(severity, guard(resolved), message, help);
}

fn half_open_stampede(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let probes = breaker.settings.probes().get();
    let in_flight = resolved.in_flight.value;
    // The two probes of a kind are few, whatever the limit in flight.
    let stated = resolved.breaker_origin.level != RuleLevel::Kind;
    let message = if u64::from(probes) > PROBES_SENSIBLE_MAX {
        format!("{probes} probes at once overload a dependency that is just recovering")
    } else if stated && probes > in_flight {
        format!("{probes} probes are more than the {in_flight} calls that may be in flight")
    } else {
        return;
    };
    findings.report(guard(resolved), message, PROBE_LESS);
}

const PROBE_LESS: &str = "use 1 or 2 probes, and `close_after` for more successes";

fn breaker_counts_rejections(name: &BreakerName, at: &At<BreakerEntry>, findings: &mut Findings<'_>) {
    let counts = &at.value.counts;
    if counts.contains(&FailureMatch::Category(Category::Internal)) {
        let message = format!("`{name}` counts `internal`, Redrive's own failures");
        findings.report_as(ProblemSeverity::Error, at.span, message, "remove `internal` from `counts`");
    } else if let Some(kind) = counts.iter().find(|kind| is_rejection(**kind)) {
        let message = format!("`{name}` counts `{kind}`: a few bad messages open it for every caller");
        let help = "remove it from `counts`, or classify such answers as `transient`";
        findings.report(at.span, message, help);
    }
}

fn is_rejection(kind: FailureMatch) -> bool {
    match kind {
        FailureMatch::Category(category) => match category {
            Category::Permanent | Category::Invalid => true,
            Category::Transient
            | Category::RateLimited
            | Category::Fatal
            | Category::Unknown
            | Category::Internal => false,
        },
        FailureMatch::Status(StatusRange { first, last }) => {
            (first.max(400)..=last.min(499)).any(|status| !matches!(status, 408 | 425 | 429))
        }
    }
}

const OUTAGE: [u16; 4] = [500, 502, 503, 504];

fn breaker_ignores_everything(name: &BreakerName, at: &At<BreakerEntry>, findings: &mut Findings<'_>) {
    let BreakerEntry { settings: _, ignores, counts, from: _ } = &at.value;
    if counts.iter().any(|kind| may_count(*kind, ignores)) {
        return;
    }
    let ignored = |category| ignores.contains(&FailureMatch::Category(category));
    let counts_status =
        |status| may_count(FailureMatch::Status(StatusRange { first: status, last: status }), ignores);
    let (severity, message) = if !ignored(Category::Transient) || !ignored(Category::Unknown) {
        if OUTAGE.into_iter().any(counts_status) {
            return;
        }
        (
            ProblemSeverity::Warning,
            format!("`{name}` ignores 500, 502, 503 and 504: an outage does not open it"),
        )
    } else if ignored(Category::RateLimited) {
        (ProblemSeverity::Error, format!("`{name}` ignores every failure that could open it"))
    } else {
        (
            ProblemSeverity::Warning,
            format!("`{name}` opens on `rate-limited` only: an outage does not open it"),
        )
    };
    let help = "ignore single statuses, or write `breaker: none` where no breaker is needed";
    findings.report_as(severity, at.span, message, help);
}

/// Whether something of that kind is left to count: ignored failures never count.
fn may_count(kind: FailureMatch, ignores: &[FailureMatch]) -> bool {
    match kind {
        FailureMatch::Category(_) => !ignores.contains(&kind),
        FailureMatch::Status(StatusRange { first, last }) => (first..=last).any(|status| {
            let category = usual_category(status);
            category.is_some_and(|category| !ignores.iter().any(|kind| kind.matches(category, Some(status))))
        }),
    }
}

const fn needed(trip: Trip) -> NonZeroU32 {
    match trip {
        Trip::Consecutive(count) | Trip::Failures { count, .. } => count,
        Trip::FailureRate { of_at_least, .. } => of_at_least,
    }
}

fn quorum_of_one(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    if needed(breaker.settings.trip()).get() > 1 {
        return;
    }
    match &resolved.facts.instances {
        None => findings.skip(guard(resolved), "facts.instances"),
        Some(instances) if instances.value > 1 => {
            let (count, name) = (instances.value, &resolved.dependency.value);
            let message = format!("one failure of one process opens the breaker of `{name}` for all {count}");
            findings.report(guard(resolved), message, "open on 3 to 5 failures");
        }
        Some(_) => {}
    }
}

fn default_breaker_hidden<'a>(rows: &[Resolved<'a>], findings: &mut Findings<'a>) {
    let Some(breaker) = &findings.book().defaults.breaker else { return };
    if !rows.is_empty() && rows.iter().all(|row| row.breaker_origin.level != RuleLevel::Defaults) {
        let message = "this breaker applies to no row: each kind in the book has its own";
        findings.report(breaker.span, message, "name it at the services or dependencies that should use it");
    }
}

fn no_breaker(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.rule.breaker.is_some()
        || matches!(resolved.kind, DependencyKind::Process | DependencyKind::Log)
    {
        return;
    }
    let Some(policy) = resolved.retry_policy().filter(|policy| policy.backoff.retries() > 0) else { return };
    let message =
        format!("`{}` is retried by `{}` without a breaker", resolved.dependency.value, policy.name);
    let help = match resolved.kind.breaker() {
        Some(_) => format!("remove `breaker: none`: kind `{}` has a breaker", resolved.kind),
        None => format!("name one, such as `breaker: externalBreaker`: kind `{}` has none", resolved.kind),
    };
    findings.report(guard(resolved), message, help);
}

fn open_longer_than_hold(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let (open, hold_max) = (breaker.settings.open(), resolved.hold_max.value);
    if resolved.when_open.value != WhenOpen::Hold || hold_max >= open {
        return;
    }
    let [open, hold_max] = [open, hold_max].map(show_duration);
    let message = format!("deliveries are held for {hold_max}, and the breaker stays open for {open}");
    let place = resolved.hold_max.origin.span.unwrap_or_else(|| guard(resolved));
    findings.report(place, message, format!("hold for several times {open}"));
}

/// A shorter time does not let a dependency recover.
const OPEN_MIN: Duration = Duration::from_secs(1);

fn open_too_short(name: &BreakerName, at: &At<BreakerEntry>, findings: &mut Findings<'_>) {
    let open = at.value.settings.open();
    if open < OPEN_MIN {
        let message = format!("`{name}` is open for {} only", show_duration(open));
        findings.report(at.span, message, "stay open for 10s or longer");
    }
}

fn reset_forgets_failures(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let Some(reset) = breaker.settings.reset() else { return };
    let needed = needed(breaker.settings.trip());
    if needed.get() == 1 {
        return;
    }
    let timeouts = &resolved.rule.timeouts;
    let reason = if timeouts.category.counts_against_dependency() && reset <= timeouts.whole.first {
        format!("a call may take {} to fail", show_duration(timeouts.whole.first))
    } else if let Some(delay) = shortest_first_delay(resolved).filter(|delay| *delay >= reset) {
        format!("the first retry comes after {} or later", show_duration(delay))
    } else {
        return;
    };
    match &resolved.facts.rate {
        None => return findings.skip(guard(resolved), "facts.rate"),
        // However slow each call is, the failures of others come in between.
        Some(rate) if rate.value.as_per_second() * reset.as_secs_f64() >= 1.0 => return,
        Some(_) => {}
    }
    let reset = show_duration(reset);
    let message = format!("the failure count resets after {reset}, and {reason}: it never reaches {needed}");
    findings.report(guard(resolved), message, "make `reset` several times as long");
}

fn shortest_first_delay(resolved: &Resolved<'_>) -> Option<Duration> {
    let policy = resolved.retry_policy().filter(|policy| policy.backoff.retries() > 0)?;
    Some(policy.backoff.range(0).0)
}

fn dead_letter_when_open(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.when_open.value != WhenOpen::DeadLetter || resolved.rule.breaker.is_none() {
        return;
    }
    let may_not_be_lost = resolved.data_loss.as_ref().is_some_and(|at| at.value == DataLoss::NotAcceptable);
    let critical = resolved.criticality.as_ref().is_some_and(|at| at.value == Criticality::Critical);
    let comes_back = resolved.dead_letter.reprocess.value == Reprocess::Automatic;
    if comes_back || !(may_not_be_lost || critical) {
        return;
    }
    let what = if may_not_be_lost { "must not be lost" } else { "are critical" };
    let message = format!("these events {what}, and become dead letters while the breaker is open");
    let help = "hold them (remove `when_open`), or bring them back with `reprocess: automatic`";
    findings.report(resolved.place(resolved.when_open.origin), message, help);
}

fn synchronous_probes(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let probes = u64::from(breaker.settings.probes().get());
    if probes == 1 {
        return;
    }
    let Some(instances) = &resolved.facts.instances else {
        return findings.skip(guard(resolved), "facts.instances");
    };
    let at_once = probes.saturating_mul(instances.value);
    if at_once > PROBES_SENSIBLE_MAX {
        let count = instances.value;
        let message =
            format!("{count} processes × {probes} probes = {at_once} calls at once without a shared store");
        findings.report(guard(resolved), message, PROBE_LESS);
    }
}

#[cfg(test)]
mod tests {
    use crate::lint::{CheckReport, check, sharing, throttle};
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::problem::ProblemSeverity;
    use redrive_core::policy::catalog::{self, DependencyKind};

    fn found(checked: &CheckReport) -> Vec<String> {
        let ours = |code: &str| super::LINTS.iter().any(|lint| lint.code == code);
        let problems = checked.problems.iter().filter(|problem| ours(problem.code));
        problems.map(|p| format!("{} {} {}", p.severity, p.code, p.span.position)).collect()
    }

    fn book(breaker: &str, service: &str) -> String {
        format!(
            "version: 1\n\
             breakers:\n  own: {{ {breaker} }}\n\
             services:\n  a:\n    target: {{ http: \"http://127.0.0.1:9000\" }}\n    events: [x.y]\n    {service}\n"
        )
    }

    #[test]
    fn findings_are_as_grave_as_they_should_be_and_stand_where_the_cause_is() {
        const TRIP: &str = "trip: { consecutive: 5 }, open: 60s";
        #[rustfmt::skip]
        let cases = [
            ("every server error is ignored",       book("trip: { consecutive: 5 }, open: 60s, ignores: [500-599]", "breaker: own"), vec!["warning breaker-ignores-everything 3:3"]),
            ("one of them is",                      book("trip: { consecutive: 5 }, open: 60s, ignores: [503]", "breaker: own"), vec![]),
            ("no rest",                             book("trip: { consecutive: 5 }, open: 999ms", "breaker: own"), vec!["warning open-too-short 3:3"]),
            ("more successes than probes are fine", book("trip: { consecutive: 5 }, open: 60s, probes: 1, close_after: 9", "breaker: own"), vec![]),
            ("an open breaker holds",               book(TRIP, "breaker: own\n    retry: aggressive"), vec![]),
            ("dead letters while it is open",       book(TRIP, "breaker: own\n    retry: aggressive\n    when_open: dead-letter"),
                vec!["warning retry-lands-on-open-breaker 10:16"]),
            ("no retries",                          book(TRIP, "breaker: own\n    retry: none\n    when_open: dead-letter"), vec![]),
            ("a policy that outlasts it",           book("trip: { consecutive: 5 }, open: 5s", "breaker: own\n    retry: patient\n    when_open: dead-letter"), vec![]),
            ("many can time out at once",           book("trip: { failures: 5, within: 10s }, open: 60s", "breaker: own\n    timeout: 8s"),
                vec!["warning breaker-window-too-short 8:14"]),
            ("not even all of them together",       book("trip: { failures: 500, within: 10s }, open: 60s", "breaker: own\n    timeout: 8s"),
                vec!["error breaker-window-too-short 8:14"]),
            ("a timeout that does not count",       book("trip: { failures: 5, within: 10s }, open: 60s", "breaker: own\n    timeout: { whole: 8s, as: permanent }"), vec![]),
            ("a row of failures has no window",     book(TRIP, "breaker: own\n    timeout: 10m"), vec![]),
            ("our own fault",                       book("from: externalBreaker, counts: [permanent, internal]", "breaker: own"),
                vec!["error breaker-counts-rejections 3:3"]),
            ("a range with bad requests in it",     book("from: externalBreaker, counts: [400-599]", "breaker: own"),
                vec!["warning breaker-counts-rejections 3:3"]),
            ("what heals and what is too much",     book("from: externalBreaker, counts: [408, 425, 429, 500-599, fatal]", "breaker: own"), vec![]),
            ("opens on 429 only",                   book("from: externalBreaker, ignores: [transient, unknown]", "breaker: own"),
                vec!["warning breaker-ignores-everything 3:3"]),
            ("a status that is ignored by category", book("from: externalBreaker, ignores: [transient, unknown, rate-limited], counts: [503]", "breaker: own"),
                vec!["error breaker-ignores-everything 3:3"]),
            ("all of a range is ignored",           book("from: externalBreaker, ignores: [transient, unknown, rate-limited, 501], counts: [500-599]", "breaker: own"),
                vec!["error breaker-ignores-everything 3:3"]),
            ("a status of a range is left",         book("from: externalBreaker, ignores: [transient, unknown, rate-limited], counts: [500-599]", "breaker: own"), vec![]),
            ("something else opens it",             book("from: externalBreaker, ignores: [transient, unknown, rate-limited], counts: [fatal]", "breaker: own"), vec![]),
            ("one process",                         book("trip: { consecutive: 1 }, open: 60s", "breaker: own\n    facts: { instances: 1 }"), vec![]),
            ("any one call of many processes",      book("trip: { failure_rate: 50%, of_at_least: 1, within: 1m }, open: 60s", "breaker: own\n    facts: { instances: 2 }"),
                vec!["warning quorum-of-one 8:14"]),
            ("nothing is retried",                  book(TRIP, "breaker: none\n    retry: none"), vec![]),
            ("no breaker",                          book(TRIP, "breaker: none"), vec!["warning no-breaker 8:14"]),
            ("open for longer than a day",          book("trip: { consecutive: 5 }, open: 2d", "breaker: own"),
                vec!["warning open-longer-than-hold 8:14"]),
            ("nothing is held",                     book("trip: { consecutive: 5 }, open: 2s", "breaker: own\n    hold_max: 1s\n    when_open: dead-letter\n    retry: none"), vec![]),
            ("a long first delay, little traffic",  book("trip: { consecutive: 5 }, open: 60s, reset: 3s", "breaker: own\n    timeout: 2s\n    retry: upstream\n    facts: { rate: 1/m }"),
                vec!["warning reset-forgets-failures 8:14"]),
            ("a long first delay, much traffic",    book("trip: { consecutive: 5 }, open: 60s, reset: 3s", "breaker: own\n    timeout: 2s\n    retry: upstream\n    facts: { rate: 1/s }"), vec![]),
            ("a slow call, little traffic",         book("trip: { consecutive: 5 }, open: 60s, reset: 10s", "breaker: own\n    timeout: 10s\n    facts: { rate: 1/m }"),
                vec!["warning reset-forgets-failures 8:14"]),
            ("a slow call, much traffic",           book("trip: { consecutive: 5 }, open: 60s, reset: 10s", "breaker: own\n    timeout: 10s\n    facts: { rate: 100/s }"), vec![]),
            ("a critical event",                    book("trip: { consecutive: 5 }, open: 1s", "breaker: own\n    when_open: dead-letter\n    retry: critical\n    criticality: critical"),
                vec!["warning dead-letter-when-open 9:16"]),
            ("its letters come back",               book("trip: { consecutive: 5 }, open: 1s", "breaker: own\n    when_open: dead-letter\n    retry: critical\n    criticality: critical\n    dead_letter: { reprocess: automatic }"), vec![]),
            ("more probes than calls",              "version: 1\ndependencies:\n  d: { kind: webhook, in_flight: 1, breaker: externalBreaker }\nservices:\n  a: { target: { http: \"http://127.0.0.1:9000\" }, depends_on: d, events: [x.y] }\n".to_owned(),
                vec!["warning half-open-stampede 3:46"]),
        ];
        for (name, book, expected) in cases {
            let checked = check(book.as_bytes(), built_in());
            assert!(checked.book.is_some(), "{name}: {:?}", checked.problems);
            assert_eq!(found(&checked), expected, "{name}");
        }
    }

    #[test]
    fn a_lint_without_its_fact_cannot_tell() {
        #[rustfmt::skip]
        let cases = [
            ("quorum-of-one",          "facts.instances", book("trip: { consecutive: 1 }, open: 60s", "breaker: own")),
            ("synchronous-probes",     "facts.instances", book("trip: { consecutive: 5 }, open: 60s, probes: 2", "breaker: own")),
            ("reset-forgets-failures", "facts.rate",      book("trip: { consecutive: 5 }, open: 60s, reset: 10s", "breaker: own\n    timeout: 10s")),
            ("reset-forgets-failures", "facts.rate",      book("trip: { consecutive: 5 }, open: 60s, reset: 3s", "breaker: own\n    retry: upstream\n    timeout: 2s")),
        ];
        for (lint, fact, book) in cases {
            let checked = check(book.as_bytes(), built_in());
            let skipped = checked.skipped.iter().any(|skipped| (skipped.lint, skipped.fact) == (lint, fact));
            assert!(skipped, "{lint}: {:?}", checked.skipped);
            assert!(found(&checked).is_empty(), "{lint}");
        }
    }

    #[test]
    fn the_catalog_by_itself_gives_no_reason_to_warn() {
        for kind in DependencyKind::ALL.into_iter().filter(|kind| *kind != DependencyKind::Sqs) {
            for policy in catalog::policies() {
                let book = format!(
                    "version: 1\ndependencies:\n  d: {{ kind: {kind} }}\n\
                     services:\n  a: {{ target: {{ http: \"http://127.0.0.1:9000\" }}, depends_on: d, \
                     events: [x.y], retry: {} }}\n",
                    policy.name
                );
                let checked = check(book.as_bytes(), built_in());
                let codes: Vec<_> = checked
                    .problems
                    .iter()
                    .filter(|p| p.severity != ProblemSeverity::Info)
                    .map(|p| p.code)
                    .collect();
                let families = [super::LINTS, sharing::LINTS, throttle::LINTS];
                let ours = families.into_iter().flatten().map(|lint| lint.code);
                let ours: Vec<_> = ours.filter(|code| codes.contains(code)).collect();
                assert!(ours.is_empty(), "{kind} with {}: {ours:?}", policy.name);
            }
        }
    }
}
