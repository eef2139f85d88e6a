//! Lints about duplicates: what recognises them, for how long, and what causes them.
//!
//! A duplicate comes from a retry after a lost answer, from a sender or broker that sends again, or from a lease that
//! ends while its message is still processed.

use super::ExampleBook::{Book, Service};
use super::sources::{broker_fact, broker_facts};
use super::worst_case::wait_max;
use super::{Findings, Lint, LintScope};
use redrive_core::book::connectors::CallProtocol;
use redrive_core::book::model::{ConsumerPattern, IdempotencyBy, ReactionName};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::Resolved;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "not-idempotent",
        severity: ProblemSeverity::Error,
        summary: "retries without duplicate detection",
        explanation: "A call may have worked although its answer was lost; the retry then repeats its effect: two mails, \
                      two charges. With `by: none` Redrive also delivers every copy that a sender or broker sends again, \
                      and the consumer declares no pattern. Use `by: event-id`, so that only retries repeat, with one \
                      `Idempotency-Key`; or declare `facts.idempotent_by`; or do not retry.",
        bad: Service("idempotency: { by: none }"),
        fix: &[("by: none }", "by: none }, facts: { idempotent_by: upsert }")],
        scope: LintScope::Row(not_idempotent),
    },
    Lint {
        code: "retries-repeat-effects",
        severity: ProblemSeverity::Warning,
        summary: "retries to a consumer that is declared not idempotent",
        explanation: "Redrive drops events that it has seen, but cannot know whether an attempt that timed out had worked. \
                      Only the consumer can recognise that retry, and it is declared to do nothing. Check the \
                      `Idempotency-Key`, which is the same for every attempt, and declare the pattern; or answer with a \
                      `notification-id` (`by: notification-id`, `http` targets without batches); or do not retry.",
        bad: Service("facts: { idempotent_by: nothing }"),
        fix: &[("facts:", "retry: none, facts:")],
        scope: LintScope::Row(retries_repeat_effects),
    },
    Lint {
        code: "notification-id-unheard",
        severity: ProblemSeverity::Warning,
        summary: "`by: notification-id` with a target that cannot return one",
        explanation: "`by: notification-id` stops retries once the target has returned a notification id, in the header \
                      `notification-id` or the field `notification_id`. Only an HTTP target that gets one event at a \
                      time can do that: here it works like `by: event-id`. Write that, or use an `http` target without \
                      `format: batch`.",
        bad: Book(&[
            "services:",
            "  mail: { target: { exec: [./mail] }, idempotency: { by: notification-id }, events: [todo.task.created] }",
        ]),
        fix: &[("exec: [./mail]", r#"http: "http://127.0.0.1:9000""#)],
        scope: LintScope::Row(notification_id_unheard),
    },
    Lint {
        code: "dedup-shorter-than-redelivery",
        severity: ProblemSeverity::Error,
        summary: "an `idempotency.ttl` shorter than the redelivery time",
        explanation: "A sender or broker may send an event again for as long as it keeps it, and Redrive retries for the \
                      retry window. An id that expires sooner lets the late copy through. Make `idempotency.ttl` at \
                      least as long as both; for Kafka that is the retention of the topic, typically 7d. Replays need \
                      no longer TTL: they keep the delivery's id. Skipped without the fact `redelivery`.",
        bad: Service("idempotency: { ttl: 1h }, facts: { redelivery: 7d }"),
        fix: &[("ttl: 1h", "ttl: 7d")],
        scope: LintScope::Row(dedup_shorter_than_redelivery),
    },
    Lint {
        code: "lease-shorter-than-processing",
        severity: ProblemSeverity::Error,
        summary: "a lease shorter than one attempt may take",
        explanation: "A broker hides a message from other workers only while its lease (visibility timeout, lock) lasts. If \
                      an attempt takes longer, a second worker processes the same message. Make the lease longer than \
                      the time limit, shorten the limit, or renew the lease and declare `facts.heartbeat`.",
        bad: Book(&[
            "services: { worker: { target: { exec: [./run], time_limit: 30m }, facts: { lease: 5m }, events: [job.created] } }",
        ]),
        fix: &[("lease: 5m", "lease: 5m, heartbeat: 1m")],
        scope: LintScope::Row(lease_shorter_than_processing),
    },
    Lint {
        code: "heartbeat-too-slow",
        severity: ProblemSeverity::Error,
        summary: "a heartbeat longer than a third of the lease",
        explanation: "Heartbeats get lost: a process pause, a slow network, a broker restart. If the lease lasts less than \
                      three heartbeats, one or two losses hand the message to a second worker. Renew at least three \
                      times within a lease, or use a longer lease. Skipped without the fact `lease`.",
        bad: Book(&[
            "services: { worker: { target: { exec: [./run] }, facts: { lease: 1m, heartbeat: 45s }, events: [job.created] } }",
        ]),
        fix: &[("heartbeat: 45s", "heartbeat: 20s")],
        scope: LintScope::Row(heartbeat_too_slow),
    },
];

fn not_idempotent(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.is_idempotent() {
        return;
    }
    let Some((name, retries)) = repeats_by(resolved) else { return };
    findings.report(
        resolved.place(resolved.idempotency.by.origin),
        format!("`{name}` retries up to {retries} times without duplicate detection"),
        "write `by: event-id`, or declare `facts: { idempotent_by: … }`, or use `retry: none`",
    );
}

fn retries_repeat_effects(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(declared) = &resolved.facts.idempotent_by else { return };
    let by_consumer = declared.value.pattern != ConsumerPattern::Nothing;
    let by_redrive = match resolved.idempotency.by.value {
        IdempotencyBy::EventId => false,
        // Once returned, the notification's id outlives a lost answer.
        IdempotencyBy::NotificationId => returns_notification_ids(resolved),
        // That is `not-idempotent`.
        IdempotencyBy::Nothing => true,
    };
    if by_consumer || by_redrive {
        return;
    }
    let Some((name, _)) = repeats_by(resolved) else { return };
    let help = if returns_notification_ids(resolved) {
        "check `Idempotency-Key` in the consumer, or write `by: notification-id`, or use `retry: none`"
    } else {
        "check the event id in the consumer and declare the pattern, or use `retry: none`"
    };
    let message = format!("a retry by `{name}` may repeat the effect of the attempt before it");
    findings.report(declared.span, message, help);
}

fn returns_notification_ids(resolved: &Resolved<'_>) -> bool {
    let endpoint = &resolved.target.endpoint;
    endpoint.connector.speech == CallProtocol::Http && endpoint.profile.batch.is_none()
}

fn notification_id_unheard(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let idempotency = &resolved.idempotency;
    if idempotency.by.value == IdempotencyBy::NotificationId && !returns_notification_ids(resolved) {
        let message =
            format!("this `{}` target cannot return a notification id", resolved.target.endpoint.key());
        let help = "write `by: event-id`, or use an `http` target that gets one event at a time";
        findings.report(resolved.place(idempotency.by.origin), message, help);
    }
}

/// The policy that repeats a call which may have worked, with its retries.
fn repeats_by<'r>(resolved: &'r Resolved<'_>) -> Option<(&'r str, u32)> {
    let may_have_worked = |kind: &FailureMatch| match kind {
        FailureMatch::Category(category) => *category != Category::RateLimited,
        // A throttled call has had no effect.
        FailureMatch::Status(range) => (range.first, range.last) != (429, 429),
    };
    resolved.reactions.iter().filter(|(kind, _)| may_have_worked(kind)).find_map(|(_, known)| {
        let ReactionName::Policy(name) = &known.value else { return None };
        let policy = resolved.rule.reactions.policy(name)?;
        let retries = policy.backoff.retries();
        (retries > 0).then_some((policy.name.as_str(), retries))
    })
}

fn dedup_shorter_than_redelivery(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let idempotency = &resolved.idempotency;
    if idempotency.by.value == IdempotencyBy::Nothing {
        return;
    }
    let ttl = idempotency.ttl.value;
    let policies = resolved.rule.reactions.policies().iter();
    let window = policies.map(|policy| wait_max(&policy.backoff)).max().unwrap_or_default();
    let stated = broker_fact(resolved, findings.book(), |facts| &facts.redelivery);
    let (needed, reason) = match stated.max_by_key(|at| at.value) {
        Some(redelivery) if redelivery.value > ttl => {
            let line = redelivery.span.position.line;
            let reason =
                format!("redelivery is possible for {} (line {line})", show_duration(redelivery.value));
            (redelivery.value, reason)
        }
        Some(_) | None if window > ttl => (window, format!("retries last up to {}", show_duration(window))),
        Some(_) => return,
        None => {
            let place = idempotency.ttl.origin.span.unwrap_or(resolved.service.span);
            return findings.skip(place, "facts.redelivery");
        }
    };
    let message = format!("ids expire after {}, and {reason}", show_duration(ttl));
    let help = format!("write `ttl: {}` or more", show_duration(needed));
    findings.report(resolved.place(idempotency.ttl.origin), message, help);
}

fn lease_shorter_than_processing(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let limit = resolved.rule.timeouts.whole.max;
    for facts in broker_facts(resolved, findings.book()) {
        let lease = facts.get(|facts| &facts.lease).filter(|lease| lease.value < limit);
        let Some(lease) = lease.filter(|_| facts.get(|facts| &facts.heartbeat).is_none()) else { continue };
        let [shown, limit] = [lease.value, limit].map(show_duration);
        let message = format!("the lease ends after {shown}, and an attempt may take {limit}");
        let help = format!("make the lease longer than {limit}, or renew it and declare `heartbeat`");
        findings.report(lease.span, message, help);
    }
}

fn heartbeat_too_slow(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    for facts in broker_facts(resolved, findings.book()) {
        let Some(heartbeat) = facts.get(|facts| &facts.heartbeat) else { continue };
        let Some(lease) = facts.get(|facts| &facts.lease) else {
            findings.skip(heartbeat.span, "facts.lease");
            continue;
        };
        if heartbeat.value.saturating_mul(3) > lease.value {
            let [lease, third, every] = [lease.value, lease.value / 3, heartbeat.value].map(show_duration);
            let message = format!("a lease of {lease} is renewed only every {every}");
            findings.report(heartbeat.span, message, format!("renew it every {third} or more often"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::tests::{found, skipped};
    use redrive_core::book::connectors::built_in;

    const SERVICE: &str = "version: 1\nservices:\n  s:\n    target: { http: \"http://127.0.0.1:9000\" }\n";

    #[test]
    fn second_copies_are_judged_by_what_may_make_them() {
        #[rustfmt::skip]
        let cases = [
            ("a plain service",              "events: [a]", vec![]),
            ("a refusal does not repeat",    "idempotency: { by: none }\n    retry: none\n    events: [a]", vec![]),
            ("an unknown failure does",      "idempotency: { by: none }\n    on_failure: { transient: none, unknown: standard }\n    events: [a]", vec!["5:24 not-idempotent"]),
            ("nor does 429",                 "idempotency: { by: none }\n    on_failure: { transient: none, 429: standard }\n    events: [a]", vec![]),
            ("the consumer declares nothing", "idempotency: { by: none }\n    facts: { idempotent_by: nothing }\n    events: [a]", vec!["5:24 not-idempotent"]),
            ("a notification's id is enough", "idempotency: { by: notification-id }\n    facts: { idempotent_by: nothing }\n    events: [a]", vec![]),
            ("a batch returns none",         "idempotency: { by: notification-id }\n    facts: { idempotent_by: nothing }\n    channels: { c: { target: { http: \"http://127.0.0.1:9000\", format: batch }, events: [a] } }", vec!["5:24 notification-id-unheard", "6:29 retries-repeat-effects"]),
            ("an answer to one event has one", "idempotency: { by: notification-id }\n    events: [a]", vec![]),
            ("an answer to a batch does not", "idempotency: { by: notification-id }\n    channels: { c: { target: { http: \"http://127.0.0.1:9000\", format: batch }, events: [a] } }", vec!["5:24 notification-id-unheard"]),
            ("once for a shared place",      "idempotency: { by: none }\n    events: [a, b, c]", vec!["5:24 not-idempotent"]),
            ("the retry window counts too",  "idempotency: { ttl: 1m }\n    facts: { redelivery: 10s }\n    events: [a]", vec!["5:25 dedup-shorter-than-redelivery"]),
            ("who remembers nothing forgets nothing", "idempotency: { by: none, ttl: 1m }\n    retry: none\n    facts: { redelivery: 1h }\n    events: [a]", vec![]),
            ("the source says how long",     "idempotency: { ttl: 1h }\n    events: [gh.push]\nsources: { gh: { sqs: { queue: q }, type: \"gh.{data.kind}\", facts: { redelivery: 3d } } }", vec!["5:25 dedup-shorter-than-redelivery"]),
            ("another source does not",      "idempotency: { ttl: 1h }\n    events: [a]\nsources: { gh: { sqs: { queue: q }, type: \"gh.{data.kind}\", facts: { redelivery: 3d } } }", vec![]),
            ("a lease as long as the call",  "facts: { lease: 10s }\n    events: [a]", vec![]),
            ("a lease that is too short",    "facts: { lease: 9s }\n    events: [a]", vec!["5:21 lease-shorter-than-processing"]),
            ("a timeout that grows",         "timeout: { first: 5s, max: 40s }\n    facts: { lease: 30s }\n    events: [a]", vec!["6:21 lease-shorter-than-processing"]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(found(&format!("{SERVICE}    {text}\n"), super::LINTS), expected, "{name}");
        }
    }

    #[test]
    fn notification_ids_are_advised_where_a_target_can_tell_them() {
        let targets = [
            ("http: \"http://127.0.0.1:9000\"", true),
            ("http: \"http://127.0.0.1:9000\", format: batch", false),
            ("exec: [./run]", false),
        ];
        for (target, expected) in targets {
            let book = format!(
                "version: 1\nservices:\n  s: {{ target: {{ {target} }}, facts: {{ idempotent_by: nothing }}, events: [a] }}\n"
            );
            let problems = check(book.as_bytes(), built_in()).problems;
            let found =
                problems.iter().find(|one| one.code == "retries-repeat-effects").expect("it is found");
            assert_eq!(found.help.contains("by: notification-id"), expected, "{target}: {}", found.help);
        }
    }

    #[test]
    fn what_lacks_a_fact_says_so() {
        #[rustfmt::skip]
        let cases = [
            ("once for a service",     "events: [a, b]", vec!["3:3 dedup-shorter-than-redelivery facts.redelivery"]),
            ("a heartbeat of what",    "facts: { redelivery: 1d, heartbeat: 5s }\n    events: [a]", vec!["5:41 heartbeat-too-slow facts.lease"]),
            ("nothing is missing",     "facts: { redelivery: 1d }\n    events: [a]", vec![]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(skipped(&format!("{SERVICE}    {text}\n"), super::LINTS), expected, "{name}");
        }
    }
}
