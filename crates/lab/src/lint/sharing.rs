//! Lints about a breaker and all who share it: their traffic, their retries, their targets.
//!
//! Whatever a rule book says, a dependency has one breaker, and every attempt of every caller counts
//! there. So these lints look at all callers of a dependency together.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Example::{Book, Service, With};
use super::addresses::{authority, host};
use super::callers::{Caller, Chosen, Dependencies, Traffic};
use super::{Findings, Lint, Run};
use redrive_core::book::model::{Sections, Target};
use redrive_core::book::problem::Severity;
use redrive_core::book::resolve::kind_of;
use redrive_core::limits;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::breaker::{Count, Trip};
use redrive_core::policy::catalog::Kind;
use redrive_core::text::{Rate, show_duration};

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "rate-breaker-cannot-trip",
        severity: Severity::Error,
        summary: "a failure rate that is judged only from more calls than there ever are",
        explanation: "A failure rate is judged once there were `of_at_least` calls within the window. If the \
                      traffic, with every retry counted, never makes that many, the breaker can never open: the \
                      dependency may be down for days and every call is still made. Ask for fewer calls, look \
                      back over a longer time, or use `consecutive`, which needs no traffic. The traffic is \
                      `facts.rate` of the dependency or of all that call it, and never more than its throttle \
                      lets through.",
        bad: With(
            &[
                "breakers: { rare: { trip: { failure_rate: 50%, of_at_least: 100, within: 1m }, open: 60s } }",
                "dependencies: { crm: { kind: webhook, breaker: rare, facts: { rate: 10/h } } }",
            ],
            "depends_on: crm",
        ),
        fix: &[("failure_rate: 50%, of_at_least: 100, within: 1m", "consecutive: 10")],
        run: Run::Book(rate_breaker_cannot_trip),
    },
    Lint {
        code: "count-breaker-cannot-trip",
        severity: Severity::Warning,
        summary: "more failures within a time than there are calls in it",
        explanation: "`failures: N within W` opens on the N-th failure in the window. If the traffic, with every \
                      retry counted, makes fewer calls than that in such a time, the breaker opens on a burst at \
                      best, and in a plain outage never. Ask for fewer failures, look back over a longer time, \
                      or use `consecutive`, which needs no traffic. The traffic is `facts.rate` of the \
                      dependency or of all that call it, and never more than its throttle lets through.",
        bad: With(
            &[
                "breakers: { rare: { trip: { failures: 20, within: 1m }, open: 60s } }",
                "dependencies: { crm: { kind: webhook, breaker: rare, facts: { rate: 10/h } } }",
            ],
            "depends_on: crm",
        ),
        fix: &[("failures: 20", "failures: 5")],
        run: Run::Book(count_breaker_cannot_trip),
    },
    Lint {
        code: "single-request-trips",
        severity: Severity::Warning,
        summary: "the retries of one delivery are enough to open the breaker for all",
        explanation: "Every attempt counts. If one delivery may make as many attempts as the breaker takes \
                      failures in a row, and few other calls come in between to break the row, then one event \
                      that always fails opens the breaker for everybody, while the dependency is well. Other \
                      traffic helps: the lint reckons how many calls come, by `facts.rate`, in the time that \
                      the attempts take at the least, and speaks only if they are fewer than the trip; without \
                      the fact, or where a service's rate is shared out among several dependencies and none \
                      states its own, it cannot tell, and warns only of a breaker that the book chose itself. Raise the trip above the attempts, count whole calls with \
                      `count: call`, or use a failure rate.",
        bad: Service("retry: critical, facts: { rate: 10/h }"),
        fix: &[
            ("services:", "breakers: { whole: { from: externalBreaker, count: call } }\nservices:"),
            ("retry: critical", "retry: critical, breaker: whole"),
        ],
        run: Run::Book(single_request_trips),
    },
    Lint {
        code: "breaker-conflict",
        severity: Severity::Warning,
        summary: "two callers of one dependency name different breakers",
        explanation: "A dependency has one breaker, shared by all that call it. Where two rows name different \
                      settings, both act on that one state: what one counts the other forgets, one lets probes \
                      through that the other would hold back, and when it opens depends on who called last. Name \
                      the breaker at the dependency, once; or make two dependencies if they fail apart.",
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
        run: Run::Book(breaker_conflict),
    },
    Lint {
        code: "shared-breaker-unrelated",
        severity: Severity::Warning,
        summary: "one dependency, and so one breaker, for targets on different hosts",
        explanation: "Services whose targets are on different hosts fail apart, but they share a dependency here, \
                      and so a breaker and a throttle: when one host is down, deliveries to the other are held \
                      too. Give each host a dependency of its own; a target that names none has one. Where the \
                      hosts are doors of the same house, silence this with that reason. Only dependencies that \
                      are reached by HTTP themselves are looked at: services may well share a database behind \
                      them.",
        bad: Book(&[
            "dependencies: { partners: { kind: webhook } }",
            "services:",
            r#"  a: { target: { http: "https://a.example.test/in" }, depends_on: partners, events: [x.y] }"#,
            r#"  b: { target: { http: "https://b.example.test/in" }, depends_on: partners, events: [x.y] }"#,
        ]),
        fix: &[(r#"b.example.test/in" }, depends_on: partners"#, r#"b.example.test/in" }"#)],
        run: Run::Book(shared_breaker_unrelated),
    },
    Lint {
        code: "colliding-dependency",
        severity: Severity::Warning,
        summary: "two things that fail apart get the same dependency, because their names happen to agree",
        explanation: "A target that names no dependency has one of its own, by the name of its service, or of its \
                      service and channel with a dot between. If the book declares something of another kind \
                      under that name, or another service has that name, then both share a breaker and a \
                      throttle that nobody meant them to share: when one is down, the other is cut off. Write \
                      `depends_on` where it is meant, and choose another name where it is not.",
        bad: With(&["dependencies: { mail: { kind: smtp } }"], ""),
        fix: &[("events: [a.b]", "events: [a.b], depends_on: mail")],
        run: Run::Book(colliding_dependency),
    },
];

/// What a trip waits for within a time; none if it does not look at time.
type Awaited = fn(Trip) -> Option<(u32, Duration)>;

fn rate_breaker_cannot_trip<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    cannot_trip(book, findings, |trip| match trip {
        Trip::FailureRate { of_at_least, within, .. } => Some((of_at_least.get(), within)),
        Trip::Consecutive(_) | Trip::Failures { .. } => None,
    });
}

fn count_breaker_cannot_trip<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    cannot_trip(book, findings, |trip| match trip {
        Trip::Failures { count, within } => Some((count.get(), within)),
        Trip::Consecutive(_) | Trip::FailureRate { .. } => None,
    });
}

fn cannot_trip<'a>(book: &'a Sections, findings: &mut Findings<'a>, awaited: Awaited) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        let mut places = BTreeSet::new();
        let mut known: Option<(Traffic, [u32; 2])> = None;
        for caller in callers {
            let Some(chosen) = caller.breaker() else { continue };
            let settings = &chosen.breaker.settings;
            let Some((needed, within)) = awaited(settings.trip()) else { continue };
            let place = chosen.span.unwrap_or_else(|| caller.guard());
            if !places.insert(place) {
                continue;
            }
            let (traffic, attempts) = *known.get_or_insert_with(|| {
                let attempts = callers.iter().map(Caller::attempts);
                let [fewest, most] = [attempts.clone().min(), attempts.max()];
                (dependencies.traffic(callers), [fewest.unwrap_or(1), most.unwrap_or(1)])
            });
            let attempts = match settings.count() {
                Count::Attempt => attempts,
                Count::Call => [1, 1],
            };
            let calls = Calls::within(within, traffic, attempts, caller);
            let needed = f64::from(needed);
            caller.within(findings, |findings| match calls.at_most {
                Some(most) if most < needed => {
                    let within = show_duration(within);
                    let message = format!(
                        "within {within} there are at most {most} calls to `{name}`, retries among them, and its \
                         breaker waits for {needed}"
                    );
                    let help = format!(
                        "wait for fewer, look back over more than {within}, or open on failures in a row"
                    );
                    findings.report(place, message, help);
                }
                _ if calls.at_least >= needed || traffic.is_exact() => {}
                Some(_) | None => findings.cannot_tell(place, "facts.rate"),
            });
        }
    }
}

/// Calls in a time during an outage, as far as the book tells.
struct Calls {
    at_least: f64,
    at_most: Option<f64>,
}

impl Calls {
    fn within(within: Duration, traffic: Traffic, [fewest, most]: [u32; 2], caller: &Caller<'_>) -> Self {
        let throttled = caller.permits().rate.map(|at| {
            let span = within.saturating_add(limits::RATE_BURST);
            (at.value.as_per_second() * span.as_secs_f64()).floor() + 1.0
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

fn single_request_trips<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        // Rows that share breaker and policy are judged once.
        let mut judged = BTreeSet::new();
        let mut known: Option<Traffic> = None;
        for caller in callers {
            let Some((policy, backoff)) = caller.policy() else { continue };
            let Some(chosen) = caller.breaker() else { continue };
            let settings = &chosen.breaker.settings;
            let (Trip::Consecutive(trip), Count::Attempt) = (settings.trip(), settings.count()) else {
                continue;
            };
            let place = chosen.span.unwrap_or_else(|| caller.guard());
            if trip.get() == 1 || !judged.insert((place, policy)) {
                continue;
            }
            let Some(takes) = shortest_time_of(trip.get(), backoff) else { continue };
            let traffic = *known.get_or_insert_with(|| dependencies.traffic(callers));
            let between = |rate: f64| rate * takes.as_secs_f64();
            let trip = f64::from(trip.get());
            caller.within(findings, |findings| match traffic.at_most {
                _ if between(traffic.at_least) >= trip => {}
                Some(rate) if between(rate) < trip => {
                    let rate = Rate::per_second(rate).map_or("no calls".to_owned(), |rate| rate.to_string());
                    let message = format!(
                        "{trip} attempts of one delivery by `{policy}` open the breaker of `{name}` for all; at {rate} \
                         hardly anything else comes in between"
                    );
                    let help = format!(
                        "raise the trip above {}, or count whole calls with `count: call`",
                        backoff.retries().saturating_add(1)
                    );
                    findings.report(place, message, help);
                }
                Some(_) | None => {
                    // What the book chose itself deserves a word even while the traffic is unknown.
                    if chosen.span.is_some() {
                        let message = format!(
                            "{trip} attempts of one delivery by `{policy}` open the breaker of `{name}` for all \
                             where little else is called"
                        );
                        let help = "state `facts.rate`, raise the trip, or count whole calls with `count: call`";
                        findings.report(place, message, help);
                    }
                    findings.cannot_tell(place, "facts.rate");
                }
            });
        }
    }
}

/// The least time that so many attempts of one delivery take; none if it never makes so many.
fn shortest_time_of(attempts: u32, backoff: &Backoff) -> Option<Duration> {
    // A trip as high as this is met by no single delivery in a time that anybody waits.
    if attempts > backoff.retries().saturating_add(1) || attempts > limits::TIMELINE_STEPS_MAX {
        return None;
    }
    let takes = (0..attempts - 1).map(|n| backoff.range(n).0).fold(Duration::ZERO, Duration::saturating_add);
    backoff.window().is_none_or(|window| takes <= window).then_some(takes)
}

fn breaker_conflict<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        let mut first: Option<Chosen<'_>> = None;
        for caller in callers {
            // Who goes without a breaker acts on none.
            let Some(chosen) = caller.breaker() else { continue };
            let Some(first) = &first else {
                first = Some(chosen);
                continue;
            };
            if first.breaker == chosen.breaker {
                continue;
            }
            let Some(place) = chosen.span.or(first.span) else { continue };
            let message = format!("`{name}` has one breaker, and its callers name two: {first} and {chosen}");
            let help = format!("name the breaker at the dependency `{name}`, and nowhere else");
            caller.within(findings, |findings| findings.report(place, message, help));
        }
    }
}

fn shared_breaker_unrelated<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        let mut first: Option<&str> = None;
        for caller in callers.iter().filter(|caller| is_reached_by_http(caller.kind())) {
            let (Some(host), Some(place)) = (host_of(caller.target()), caller.depends_on()) else {
                continue;
            };
            let first = *first.get_or_insert(host);
            if !first.eq_ignore_ascii_case(host) {
                let message = format!(
                    "`{first}` and `{host}` share the breaker of `{name}`: when one is down, both are cut off"
                );
                let help = format!("give `{host}` a dependency of its own");
                caller.within(findings, |findings| findings.report(place, message, help));
            }
        }
    }
}

fn colliding_dependency<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        let mut first: Option<&Caller<'_>> = None;
        // Who says what it depends on has chosen the name.
        for caller in callers.iter().filter(|caller| caller.depends_on().is_none()) {
            let (first, place) = (*first.get_or_insert(caller), caller.owner());
            let own = kind_of(caller.target());
            let message = if first.owner() != place {
                let line = first.owner().position.line;
                format!("`{name}` is also the name of what line {line} depends on: they share one breaker")
            } else if let Some(declared) = caller.dependency.filter(|declared| declared.kind != own) {
                let (line, kind) = (declared.span.position.line, declared.kind);
                format!(
                    "this target is `{own}`, and the dependency of its name on line {line} is `{kind}`: they \
                     share one breaker"
                )
            } else {
                continue;
            };
            let help = "choose another name, or write `depends_on` if that is meant";
            caller.within(findings, |findings| findings.report(place, message, help));
        }
    }
}

/// Whether the dependency is what an HTTP target names, and not something behind it.
const fn is_reached_by_http(kind: Kind) -> bool {
    match kind {
        Kind::Webhook | Kind::Invoke | Kind::Ntfy | Kind::Relay => true,
        Kind::Kafka
        | Kind::Redis
        | Kind::Postgres
        | Kind::Smtp
        | Kind::Sms
        | Kind::ServiceBus
        | Kind::Blob
        | Kind::KeyVault
        | Kind::Process
        | Kind::Sqs
        | Kind::Log => false,
    }
}

/// The host of an HTTP address, if the target has one.
fn host_of(target: &Target) -> Option<&str> {
    target.endpoint.http_address().and_then(authority).map(host).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::lint::check;
    use redrive_core::book::connectors::built_in;

    /// What this family finds and cannot tell, and silencers that were not needed.
    fn found(book: &str) -> Vec<String> {
        let ours = |code: &str| code == "unused-allow" || super::LINTS.iter().any(|lint| lint.code == code);
        let checked = check(book.as_bytes(), built_in());
        assert!(checked.book.is_some(), "{:?}\n{book}", checked.problems);
        let problems = checked.problems.iter().filter(|problem| ours(problem.code));
        let problems = problems.map(|p| format!("{} {} {}", p.severity, p.code, p.span.position));
        let untold = checked.untold.iter().filter(|untold| ours(untold.lint));
        problems.chain(untold.map(|u| format!("untold {} {} {}", u.lint, u.fact, u.span.position))).collect()
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
            ("one caller's rate is unknown",     book(COUNT, "", [slow, ""]), vec!["untold count-breaker-cannot-trip facts.rate 5:32"]),
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
            ("unknown traffic",             book(ROW, "retry: standard"), vec!["warning single-request-trips 5:75", "untold single-request-trips facts.rate 5:75"]),
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
