//! Lints about a breaker and all rows that share it: their traffic, their retries, their targets.
//!
//! A dependency has one breaker, and every attempt of every caller counts there.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ExampleBook::{Book, Service, With};
use super::addresses::{authority, host};
use super::callers::{DependencyCallers, Traffic, owner};
use super::{Findings, Lint, LintScope};
use crate::report::breaker_name;
use redrive_core::book::model::TargetEntry;
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::{Resolved, kind_of};
use redrive_core::limits;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::breaker::{CountingUnit, Trip};
use redrive_core::policy::catalog::DependencyKind;
use redrive_core::policy::rule::NamedBreaker;
use redrive_core::text::{Rate, show_duration};

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "rate-breaker-cannot-trip",
        severity: ProblemSeverity::Error,
        summary: "a failure rate that needs more calls than there are",
        explanation: "A failure rate is judged after `of_at_least` calls within the window. The traffic, retries included, \
                      never reaches that number, so the breaker never opens. Require fewer calls, use a longer window, \
                      or use `consecutive`, which needs no traffic. The traffic is `facts.rate` of the dependency or of \
                      all its callers, limited by its throttle.",
        bad: With(
            &[
                "breakers: { rare: { trip: { failure_rate: 50%, of_at_least: 100, within: 1m }, open: 60s } }",
                "dependencies: { crm: { kind: webhook, breaker: rare, facts: { rate: 10/h } } }",
            ],
            "depends_on: crm",
        ),
        fix: &[("failure_rate: 50%, of_at_least: 100, within: 1m", "consecutive: 10")],
        scope: LintScope::Dependency(rate_breaker_cannot_trip),
    },
    Lint {
        code: "count-breaker-cannot-trip",
        severity: ProblemSeverity::Warning,
        summary: "a failure count that needs more calls than there are",
        explanation: "`failures: N within W` opens on the N-th failure in the window. The traffic, retries included, makes \
                      fewer calls than that, so only a burst can open the breaker. Require fewer failures, use a longer \
                      window, or use `consecutive`, which needs no traffic. The traffic is `facts.rate` of the \
                      dependency or of all its callers, limited by its throttle.",
        bad: With(
            &[
                "breakers: { rare: { trip: { failures: 20, within: 1m }, open: 60s } }",
                "dependencies: { crm: { kind: webhook, breaker: rare, facts: { rate: 10/h } } }",
            ],
            "depends_on: crm",
        ),
        fix: &[("failures: 20", "failures: 5")],
        scope: LintScope::Dependency(count_breaker_cannot_trip),
    },
    Lint {
        code: "single-request-trips",
        severity: ProblemSeverity::Warning,
        summary: "the retries of one delivery open the breaker for all callers",
        explanation: "Every attempt counts. If one delivery makes as many attempts as the trip needs and `facts.rate` brings \
                      fewer other calls in between, one event that always fails opens the breaker of a healthy \
                      dependency. Without the rate, or if it is shared by several dependencies, only breakers named in \
                      the book are reported. Raise the trip above the attempts, use `count: call`, or a failure rate.",
        bad: Service("retry: critical, facts: { rate: 10/h }"),
        fix: &[
            ("services:", "breakers: { whole: { from: externalBreaker, count: call } }\nservices:"),
            ("retry: critical", "retry: critical, breaker: whole"),
        ],
        scope: LintScope::Dependency(single_request_trips),
    },
    Lint {
        code: "breaker-conflict",
        severity: ProblemSeverity::Warning,
        summary: "two callers of one dependency name different breakers",
        explanation: "A dependency has one breaker state, shared by all callers. Different settings act on the same state: \
                      when it opens depends on the last caller. Name the breaker once, at the dependency, or declare \
                      two dependencies if they fail independently.",
        bad: Book(&[
            "dependencies: { crm: { kind: webhook } }",
            "services:",
            r#"  a: { target: { http: "http://127.0.0.1:9000" }, depends_on: crm, events: [x.y] }"#,
            r#"  b: { target: { http: "http://127.0.0.1:9000" }, depends_on: crm, events: [x.y], breaker: sidecarBreaker }"#,
        ]),
        fix: &[
            (", breaker: sidecarBreaker", ""),
            ("kind: webhook", "kind: webhook, breaker: sidecarBreaker"),
        ],
        scope: LintScope::Dependency(breaker_conflict),
    },
    Lint {
        code: "shared-breaker-unrelated",
        severity: ProblemSeverity::Warning,
        summary: "one dependency, and so one breaker, for targets on different hosts",
        explanation: "Targets on different hosts fail independently, but share a breaker and a throttle here: when one host \
                      is down, deliveries to the other are held too. Give each host its own dependency; a target \
                      without `depends_on` has one. If the hosts are one system, `allow` this with that reason. \
                      Dependencies behind the targets, such as a database, are not checked.",
        bad: Book(&[
            "dependencies: { partners: { kind: webhook } }",
            "services:",
            r#"  a: { target: { http: "https://a.example.test/in" }, depends_on: partners, events: [x.y] }"#,
            r#"  b: { target: { http: "https://b.example.test/in" }, depends_on: partners, events: [x.y] }"#,
        ]),
        fix: &[(r#"b.example.test/in" }, depends_on: partners"#, r#"b.example.test/in" }"#)],
        scope: LintScope::Dependency(shared_breaker_unrelated),
    },
    Lint {
        code: "colliding-dependency",
        severity: ProblemSeverity::Warning,
        summary: "two systems share a dependency because their names are equal",
        explanation: "A target without `depends_on` has a dependency named after its service, or service and channel with a \
                      dot. If the book declares another kind under that name, or another service has it, both share a \
                      breaker and a throttle by accident. Write `depends_on` if that is intended, otherwise choose \
                      another name.",
        bad: With(&["dependencies: { mail: { kind: smtp } }"], ""),
        fix: &[("events: [a.b]", "events: [a.b], depends_on: mail")],
        scope: LintScope::Dependency(colliding_dependency),
    },
];

/// The calls or failures that a trip needs, and its window; none if it has no window.
type TripWindow = fn(Trip) -> Option<(u32, Duration)>;

fn rate_breaker_cannot_trip<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    cannot_trip(of, findings, |trip| match trip {
        Trip::FailureRate { of_at_least, within, .. } => Some((of_at_least.get(), within)),
        Trip::Consecutive(_) | Trip::Failures { .. } => None,
    });
}

fn count_breaker_cannot_trip<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    cannot_trip(of, findings, |trip| match trip {
        Trip::Failures { count, within } => Some((count.get(), within)),
        Trip::Consecutive(_) | Trip::FailureRate { .. } => None,
    });
}

fn attempts(row: &Resolved<'_>) -> u32 {
    row.retry_policy().map_or(0, |policy| policy.backoff.retries()).saturating_add(1)
}

fn cannot_trip<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>, window: TripWindow) {
    let mut places = BTreeSet::new();
    let all = of.rows.iter().map(|row| attempts(row));
    let [fewest, most] = [all.clone().min(), all.max()].map(|attempts| attempts.unwrap_or(1));
    for row in &of.rows {
        let Some(NamedBreaker { settings, .. }) = &row.rule.breaker else { continue };
        let Some((needed, within)) = window(settings.trip()) else { continue };
        let place = row.breaker_origin.span.unwrap_or_else(|| of.guard());
        if !places.insert(place) {
            continue;
        }
        let attempts = match settings.count() {
            CountingUnit::Attempt => [fewest, most],
            CountingUnit::Call => [1, 1],
        };
        let calls = OutageCalls::within(within, of.traffic, attempts, row);
        let (needed, findings) = (f64::from(needed), findings.at_row(row));
        match calls.at_most {
            Some(most) if most < needed => {
                let (name, within) = (of.name, show_duration(within));
                let message = format!(
                    "`{name}` gets at most {most} calls within {within}, retries included; its breaker needs {needed}"
                );
                let help = format!("require fewer, use a window longer than {within}, or use `consecutive`");
                findings.report(place, message, help);
            }
            _ if calls.at_least >= needed || of.traffic.is_exact() => {}
            Some(_) | None => findings.skip(place, "facts.rate"),
        }
    }
}

struct OutageCalls {
    at_least: f64,
    at_most: Option<f64>,
}

impl OutageCalls {
    fn within(within: Duration, traffic: Traffic, [fewest, most]: [u32; 2], row: &Resolved<'_>) -> Self {
        let throttled = row.rate.as_ref().map(|known| {
            let span = within.saturating_add(limits::RATE_BURST);
            (known.value.as_per_second() * span.as_secs_f64()).floor() + 1.0
        });
        // With every first attempt may come all the retries of earlier ones.
        let made = |rate: f64, attempts: u32| {
            let made = (rate * within.as_secs_f64()).ceil() * f64::from(attempts);
            throttled.map_or(made, |throttled| made.min(throttled))
        };
        let at_most = traffic.at_most.map(|rate| made(rate, most)).or(throttled);
        Self { at_least: made(traffic.at_least, fewest), at_most }
    }
}

fn single_request_trips<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    let mut judged = BTreeSet::new();
    for row in &of.rows {
        let (Some(policy), Some(breaker)) = (row.retry_policy(), &row.rule.breaker) else { continue };
        let (Trip::Consecutive(trip), CountingUnit::Attempt) =
            (breaker.settings.trip(), breaker.settings.count())
        else {
            continue;
        };
        let place = row.breaker_origin.span.unwrap_or_else(|| of.guard());
        if trip.get() == 1 || !judged.insert((place, &policy.name)) {
            continue;
        }
        let Some(takes) = shortest_time_of(trip.get(), &policy.backoff) else { continue };
        let is_below_trip = |rate: f64| rate * takes.as_secs_f64() < f64::from(trip.get());
        if !is_below_trip(of.traffic.at_least) {
            continue;
        }
        let findings = findings.at_row(row);
        let mut message =
            format!("{trip} attempts of one delivery by `{}` open the breaker of `{}`", policy.name, of.name);
        if let Some(rate) = of.traffic.at_most.filter(|rate| is_below_trip(*rate)) {
            let rate = Rate::per_second(rate).map_or("no calls".to_owned(), |rate| rate.to_string());
            let help = format!("raise the trip above {}, or use `count: call`", attempts(row));
            findings.report(place, message + &format!(" for all callers at {rate}"), help);
            continue;
        }
        // A breaker that the book names is reported even while the traffic is unknown.
        if row.breaker_origin.span.is_some() {
            message += " for all callers if there is little other traffic";
            findings.report(place, message, "state `facts.rate`, raise the trip, or use `count: call`");
        }
        findings.skip(place, "facts.rate");
    }
}

fn shortest_time_of(attempts: u32, backoff: &Backoff) -> Option<Duration> {
    // No single delivery reaches a trip this high in reasonable time.
    if attempts > backoff.retries().saturating_add(1) || attempts > limits::TIMELINE_STEPS_MAX {
        return None;
    }
    let takes = (0..attempts - 1).map(|n| backoff.range(n).0).fold(Duration::ZERO, Duration::saturating_add);
    backoff.window().is_none_or(|window| takes <= window).then_some(takes)
}

fn breaker_conflict<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    // The name does not matter, and rows without a breaker affect none.
    let guarded = of.rows.iter().filter_map(|row| {
        let NamedBreaker { name: _, settings, ignores, counts } = row.rule.breaker.as_ref()?;
        Some((row, (settings, ignores, counts)))
    });
    let mut guarded = guarded.peekable();
    let Some((first, settings)) = guarded.peek().copied() else { return };
    for (row, _) in guarded.filter(|(_, other)| *other != settings) {
        let Some(place) = row.breaker_origin.span.or(first.breaker_origin.span) else { continue };
        let (name, one, other) = (of.name, breaker_name(first), breaker_name(row));
        let message = format!("`{name}` has one breaker, and its callers name two: `{one}` and `{other}`");
        let help = format!("name the breaker at the dependency `{name}` only");
        findings.at_row(row).report(place, message, help);
    }
}

fn shared_breaker_unrelated<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    let mut first: Option<&str> = None;
    for row in of.rows.iter().filter(|row| is_reached_by_http(row.kind)) {
        let (Some(host), Some(place)) = (host_of(row.target), row.dependency.origin.span) else { continue };
        let first = *first.get_or_insert(host);
        if !first.eq_ignore_ascii_case(host) {
            let message = format!("`{first}` and `{host}` share the breaker of `{}`", of.name);
            let help = format!("give `{host}` its own dependency");
            findings.at_row(row).report(place, message, help);
        }
    }
}

fn colliding_dependency<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    let mut first: Option<BookSpan> = None;
    // With `depends_on` the name is a choice.
    for row in of.rows.iter().filter(|row| row.dependency.origin.span.is_none()) {
        let (name, own, place) = (of.name, kind_of(row.target), owner(row));
        let first = *first.get_or_insert(place);
        let message = if first != place {
            format!("`{name}` is also the dependency of line {}: they share one breaker", first.position.line)
        } else if let Some(declared) = of.entry.filter(|declared| declared.kind != own) {
            let (line, kind) = (declared.span.position.line, declared.kind);
            format!("this target is `{own}`, and the dependency `{name}` on line {line} is `{kind}`")
        } else {
            continue;
        };
        let help = "choose another name, or write `depends_on` if that is intended";
        findings.at_row(row).report(place, message, help);
    }
}

/// Whether the dependency is the HTTP target itself, and not something behind it.
const fn is_reached_by_http(kind: DependencyKind) -> bool {
    match kind {
        DependencyKind::Webhook | DependencyKind::Invoke | DependencyKind::Ntfy | DependencyKind::Relay => {
            true
        }
        DependencyKind::Kafka
        | DependencyKind::Redis
        | DependencyKind::Postgres
        | DependencyKind::Smtp
        | DependencyKind::Sms
        | DependencyKind::ServiceBus
        | DependencyKind::Blob
        | DependencyKind::KeyVault
        | DependencyKind::Process
        | DependencyKind::Sqs
        | DependencyKind::Log => false,
    }
}

fn host_of(target: &TargetEntry) -> Option<&str> {
    target.endpoint.http_address().and_then(authority).map(host).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::lint::check;
    use redrive_core::book::connectors::built_in;

    fn found(book: &str) -> Vec<String> {
        let ours = |code: &str| code == "unused-allow" || super::LINTS.iter().any(|lint| lint.code == code);
        let checked = check(book.as_bytes(), built_in());
        assert!(checked.book.is_some(), "{:?}\n{book}", checked.problems);
        let problems = checked.problems.iter().filter(|problem| ours(problem.code));
        let problems = problems.map(|p| format!("{} {} {}", p.severity, p.code, p.span.position));
        let skipped = checked.skipped.iter().filter(|skipped| ours(skipped.lint));
        problems
            .chain(skipped.map(|u| format!("skipped {} {} {}", u.lint, u.fact, u.span.position)))
            .collect()
    }

    const RATE: &str = "failure_rate: 50%, of_at_least: 100, within: 1m";
    const COUNT: &str = "failures: 100, within: 1m";
    const ROW: &str = "trip: { consecutive: 5 }, open: 60s";
    const TARGET: &str = "target: { http: \"http://127.0.0.1:9000\" }, events: [x.y]";

    #[test]
    fn a_trip_is_held_against_the_traffic_of_all_callers() {
        let book = |trip: &str, dependency: &str, [a, b]: [&str; 2]| {
            format!(
                "version: 1\nbreakers:\n  own: {{ trip: {{ {trip} }}, open: 60s }}\n\
                 dependencies:\n  d: {{ kind: webhook, breaker: own{dependency} }}\n\
                 services:\n  a: {{ {TARGET}, depends_on: d{a} }}\n  b: {{ {TARGET}, depends_on: d{b} }}\n"
            )
        };
        let slow = ", retry: none, facts: { rate: 30/m }";
        let quick = ", retry: none, facts: { rate: 80/m }";
        #[rustfmt::skip]
        let cases = [
            ("the callers together are enough",  book(RATE, "", [slow, quick]), vec![]),
            ("they are not",                     book(RATE, "", [slow, slow]), vec!["error rate-breaker-cannot-trip 5:32"]),
            ("a count is a warning",             book(COUNT, "", [slow, slow]), vec!["warning count-breaker-cannot-trip 5:32"]),
            ("the dependency knows better",      book(RATE, ", facts: { rate: 1/m }", [slow, quick]), vec!["error rate-breaker-cannot-trip 5:32"]),
            ("retries are calls too",            book(COUNT, "", [", facts: { rate: 30/m }", slow]), vec![]),
            ("one caller's rate is unknown",     book(COUNT, "", [slow, ""]), vec!["skipped count-breaker-cannot-trip facts.rate 5:32"]),
            ("and does not matter",              book(COUNT, "", [", facts: { rate: 2/s }", ""]), vec![]),
            ("the throttle lets too few through", book(COUNT, ", rate: 60/m", ["", ""]), vec!["warning count-breaker-cannot-trip 5:32"]),
            ("failures in a row need no traffic", book("consecutive: 100", "", [slow, slow]), vec![]),
        ];
        for (name, book, expected) in cases {
            assert_eq!(found(&book), expected, "{name}");
        }
    }

    #[test]
    fn one_delivery_opens_a_breaker_only_where_little_else_comes_between() {
        let book = |breaker: &str, service: &str| {
            format!(
                "version: 1\nbreakers:\n  own: {{ {breaker} }}\nservices:\n  a: {{ {TARGET}, breaker: own, {service} }}\n"
            )
        };
        #[rustfmt::skip]
        let cases = [
            ("little traffic",              book(ROW, "retry: standard, facts: { rate: 10/m }"), vec!["warning single-request-trips 5:75"]),
            ("much traffic",                book(ROW, "retry: standard, facts: { rate: 50/s }"), vec![]),
            ("unknown traffic",             book(ROW, "retry: standard"), vec!["warning single-request-trips 5:75", "skipped single-request-trips facts.rate 5:75"]),
            ("fewer attempts than the trip", book(ROW, "retry: worker, facts: { rate: 10/m }"), vec![]),
            ("a whole call counts once",    book("trip: { consecutive: 5 }, open: 60s, count: call", "retry: standard, facts: { rate: 10/m }"), vec![]),
            ("no time for so many",         book("trip: { consecutive: 6 }, open: 60s", "retry: short, facts: { rate: 10/m }")
                .replace("breakers:", "retry_policies:\n  short: { from: standard, window: 5s }\nbreakers:"), vec![]),
            ("unknown, and silenced",       book(ROW, "retry: standard, allow: [{ lint: single-request-trips, because: one caller }]"), vec![]),
            ("silenced with a reason",      book(ROW, "retry: standard, facts: { rate: 10/m }, allow: [{ lint: single-request-trips, because: one caller }]"), vec![]),
        ];
        for (name, book, expected) in cases {
            assert_eq!(found(&book), expected, "{name}");
        }
    }

    #[test]
    fn names_that_happen_to_agree_are_found() {
        let book = |dependencies: &str, services: &str| {
            format!("version: 1\ndependencies: {{ {dependencies} }}\nservices:\n{services}")
        };
        let service = |name: &str, more: &str| format!("  {name}: {{ {TARGET}, retry: none{more} }}\n");
        let channel = "target: { http: \"http://127.0.0.1:9000\" }, events: [x.y]";
        let with_channel = |more: &str| service("a", &format!(", channels: {{ b: {{ {channel}{more} }} }}"));
        #[rustfmt::skip]
        let cases = [
            ("nothing is declared",          book("", &service("a", "")), vec![]),
            ("its own dependency, declared", book("a: { kind: webhook }", &service("a", "")), vec![]),
            ("one of another kind",          book("a: { kind: kafka }", &service("a", "")), vec!["warning colliding-dependency 4:3"]),
            ("which is meant",               book("a: { kind: kafka }", &service("a", ", depends_on: a")), vec![]),
            ("a channel's",                  book("a.b: { kind: kafka }", &with_channel("")), vec!["warning colliding-dependency 4:91"]),
            ("which is meant too",           book("a.b: { kind: kafka }", &with_channel(", depends_on: a.b")), vec![]),
            ("a service and a channel",      book("", &(with_channel("") + &service("a.b", ""))), vec!["warning colliding-dependency 5:3"]),
            ("who shares by name",           book("", &(with_channel("") + &service("a.b", ", depends_on: d"))).replace("{  }", "{ d: { kind: webhook } }"), vec![]),
            ("a channel without a target",   book("a: { kind: webhook }", &service("a", ", channels: { b: { events: [x.y] } }")), vec![]),
            ("silenced by the service",      book("a: { kind: kafka }", &service("a", ", allow: [{ lint: colliding-dependency, because: a bridge }]")), vec![]),
        ];
        for (name, book, expected) in cases {
            assert_eq!(found(&book), expected, "{name}");
        }
    }

    #[test]
    fn callers_of_one_dependency_are_held_against_each_other() {
        let book = |kind: &str, [a, b]: [(&str, &str); 2]| {
            let service = |(address, more): (&str, &str)| {
                format!(
                    "{{ target: {{ http: \"{address}\" }}, depends_on: d, events: [x.y], facts: {{ rate: 50/s }}{more} }}"
                )
            };
            format!(
                "version: 1\ndependencies:\n  d: {{ kind: {kind} }}\nservices:\n  a: {}\n  b: {}\n",
                service(a),
                service(b)
            )
        };
        let here = "http://127.0.0.1:9000/a";
        #[rustfmt::skip]
        let cases = [
            ("the same for both",              book("webhook", [(here, ""), (here, "")]), vec![]),
            ("another name, the same breaker", book("kafka", [(here, ""), (here, ", breaker: kafkaBreaker")]), vec![]),
            ("another breaker",                book("kafka", [(here, ""), (here, ", breaker: stateBreaker")]), vec!["warning breaker-conflict 6:115"]),
            ("the first one names it",         book("kafka", [(here, ", breaker: stateBreaker"), (here, "")]), vec!["warning breaker-conflict 5:115"]),
            ("one goes without",               book("kafka", [(here, ", breaker: none"), (here, "")]), vec![]),
            ("another port of the host",       book("webhook", [(here, ""), ("http://127.0.0.1:9001", "")]), vec![]),
            ("another host",                   book("webhook", [(here, ""), ("http://user@[::1]:9000/x", "")]), vec!["warning shared-breaker-unrelated 6:66"]),
            ("the same host in capitals",      book("webhook", [("http://a.test", ""), ("https://A.TEST:1/x?y", "")]), vec![]),
            ("a broker behind both hosts",     book("kafka", [(here, ""), ("http://other.test", "")]), vec![]),
        ];
        for (name, book, expected) in cases {
            assert_eq!(found(&book), expected, "{name}");
        }
    }
}
