//! Lints about second copies: what recognises them, for how long, and what makes them.
//!
//! A second copy comes from a retry whose first attempt had worked after all, from a sender or broker
//! that sends again, and from a lease that ends while its message is still worked on.

use std::time::Duration;

use super::Example::{Book, Service};
use super::sources::broker_facts;
use super::{Findings, Lint, Run};
use redrive_core::book::connectors::Speech;
use redrive_core::book::model::{ConsumerPattern, IdempotencyBy, ReactionName};
use redrive_core::book::problem::Severity;
use redrive_core::book::resolve::Resolved;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "not-idempotent",
        severity: Severity::Error,
        summary: "retries, though nothing recognises a second copy",
        explanation: "A call may have worked although its answer was lost, and the retry then does the \
                      same thing a second time: two mails, two charges. So does a copy that a sender or a \
                      broker sends again, since Redrive is told to deliver each (`by: none`). Here the \
                      consumer declares no pattern of its own. Let Redrive remember event ids, so that \
                      retries are all that is left, which carry one `Idempotency-Key`; or say under `facts` how the consumer makes a second copy harmless; or \
                      do not retry.",
        bad: Service("idempotency: { by: none }"),
        fix: &[("by: none }", "by: none }, facts: { idempotent_by: upsert }")],
        run: Run::Rule(not_idempotent),
    },
    Lint {
        code: "retries-repeat-effects",
        severity: Severity::Warning,
        summary: "retries, though the consumer is declared to do nothing about second copies",
        explanation: "Redrive keeps back an event that it has seen before, but it cannot know whether an \
                      attempt that timed out had worked: the retry is a second copy that only the \
                      consumer can recognise, and this one is declared to do nothing about it. Use the \
                      `Idempotency-Key` that every attempt carries, unchanged, and declare the pattern; \
                      or let it answer with a `notification-id` (`by: notification-id`), which an `http` \
                      target can that gets one event at a time; or do not retry.",
        bad: Service("facts: { idempotent_by: nothing }"),
        fix: &[("facts:", "retry: none, facts:")],
        run: Run::Rule(retries_repeat_effects),
    },
    Lint {
        code: "notification-id-unheard",
        severity: Severity::Warning,
        summary: "notification ids are to be kept, and the target can tell none",
        explanation: "`by: notification-id` does not call a target again that has told the id of a \
                      notification, in the header `notification-id` or the field `notification_id` of \
                      its answer. Only a target that speaks HTTP and gets one event at a time can tell \
                      one: here it does no more than `by: event-id`. Write that, or use an `http` target \
                      without `format: batch`.",
        bad: Book(&[
            "services:",
            "  mail: { target: { exec: [./mail] }, idempotency: { by: notification-id }, events: [todo.task.created] }",
        ]),
        fix: &[("exec: [./mail]", r#"http: "http://127.0.0.1:9000""#)],
        run: Run::Rule(notification_id_unheard),
    },
    Lint {
        code: "dedup-shorter-than-redelivery",
        severity: Severity::Error,
        summary: "an event is forgotten while it may still come again",
        explanation: "A sender or broker may deliver the same event again for as long as it keeps it, and \
                      Redrive itself works on it for as long as the retry window lasts. An id that is \
                      forgotten before that lets the late copy through as if it were new. Make \
                      `idempotency.ttl` at least as long as both; for Kafka that is the retention of \
                      the topic, typically seven days. Replays by operators need no longer TTL: they \
                      carry the delivery's own id.",
        bad: Service("idempotency: { ttl: 1h }, facts: { redelivery: 7d }"),
        fix: &[("ttl: 1h", "ttl: 7d")],
        run: Run::Rule(dedup_shorter_than_redelivery),
    },
    Lint {
        code: "lease-shorter-than-processing",
        severity: Severity::Error,
        summary: "the broker hands out a message again while it is still worked on",
        explanation: "A broker hides a message from others only for as long as its lease (visibility \
                      timeout, lock) lasts. If an attempt may take longer than that, a second worker \
                      gets the same message while the first is still at it, and both do the work. Make \
                      the lease longer than the attempt's time limit, shorten the limit, or renew the \
                      lease and declare `facts.heartbeat`.",
        bad: Book(&[
            "services: { worker: { target: { exec: [./run], time_limit: 30m }, facts: { lease: 5m }, events: [job.created] } }",
        ]),
        fix: &[("lease: 5m", "lease: 5m, heartbeat: 1m")],
        run: Run::Rule(lease_shorter_than_processing),
    },
    Lint {
        code: "heartbeat-too-slow",
        severity: Severity::Error,
        summary: "one or two lost heartbeats end the lease",
        explanation: "A lease is kept by renewing it before it ends. Renewals get lost: a pause of the \
                      process, a slow network, a broker that is being restarted. If the lease lasts less \
                      than three heartbeats, a hiccup hands the message to a second worker. Renew at \
                      least three times within a lease, or ask for a longer lease.",
        bad: Book(&[
            "services: { worker: { target: { exec: [./run] }, facts: { lease: 1m, heartbeat: 45s }, events: [job.created] } }",
        ]),
        fix: &[("heartbeat: 45s", "heartbeat: 20s")],
        run: Run::Rule(heartbeat_too_slow),
    },
];

fn not_idempotent(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.is_idempotent() {
        return;
    }
    let Some((name, retries)) = repeats_by(resolved) else { return };
    findings.report(
        resolved.place(resolved.idempotency.by.origin),
        format!("`{name}` retries up to {retries} times, and nothing recognises a second copy"),
        "write `by: event-id`, or declare `facts: { idempotent_by: … }`, or use `retry: none`",
    );
}

fn retries_repeat_effects(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(declared) = &resolved.facts.idempotent_by else { return };
    let by_consumer = declared.value.pattern != ConsumerPattern::Nothing;
    let by_redrive = match resolved.idempotency.by.value {
        IdempotencyBy::EventId => false,
        // Once it is told, the notification's id outlives a lost answer.
        IdempotencyBy::NotificationId => tells_notifications(resolved),
        // That is the error above.
        IdempotencyBy::Nothing => true,
    };
    if by_consumer || by_redrive {
        return;
    }
    let Some((name, _)) = repeats_by(resolved) else { return };
    let help = if tells_notifications(resolved) {
        "let the consumer look at `Idempotency-Key`, or write `by: notification-id`, or use `retry: none`"
    } else {
        "let the consumer look at the event's id and declare the pattern, or use `retry: none`"
    };
    findings.report(
        declared.span,
        format!("a retry by `{name}` may do again what the attempt before it has done"),
        help,
    );
}

/// Whether an answer of the target can tell the id of a notification.
fn tells_notifications(resolved: &Resolved<'_>) -> bool {
    let endpoint = &resolved.target.endpoint;
    endpoint.connector.speech == Speech::Http && endpoint.profile.batch.is_none()
}

fn notification_id_unheard(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let idempotency = &resolved.idempotency;
    if idempotency.by.value != IdempotencyBy::NotificationId || tells_notifications(resolved) {
        return;
    }
    let kind = resolved.target.endpoint.key();
    findings.report(
        resolved.place(idempotency.by.origin),
        format!("no answer of this `{kind}` target tells the id of a notification"),
        "write `by: event-id`, or use an `http` target that gets one event at a time",
    );
}

/// The policy by which a call that may have worked is made again, with its retries.
fn repeats_by<'r>(resolved: &'r Resolved<'_>) -> Option<(&'r str, u32)> {
    let may_have_worked = |kind: &FailureMatch| match kind {
        FailureMatch::Category(category) => *category != Category::RateLimited,
        // Who is turned away has done nothing yet.
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
    let (ttl, place) = (idempotency.ttl.value, resolved.place(idempotency.ttl.origin));
    let window = retry_window(resolved);
    let stated =
        broker_facts(resolved, findings.book()).filter_map(|facts| facts.get(|facts| &facts.redelivery));
    let needed = match stated.max_by_key(|at| at.value) {
        Some(redelivery) if redelivery.value > ttl => {
            let (needed, line) = (redelivery.value, redelivery.span.position.line);
            Some((needed, format!("but may come again for {} (line {line})", show_duration(needed))))
        }
        Some(_) | None if window > ttl => {
            Some((window, format!("while retries go on for up to {}", show_duration(window))))
        }
        Some(_) => None,
        None => {
            let place = idempotency.ttl.origin.span.unwrap_or(resolved.service.span);
            return findings.cannot_tell(place, "facts.redelivery");
        }
    };
    if let Some((needed, why)) = needed {
        let message = format!("ids are forgotten after {}, {why}", show_duration(ttl));
        findings.report(place, message, format!("write `ttl: {}` or more", show_duration(needed)));
    }
}

/// The longest time over which one of the policies retries.
fn retry_window(resolved: &Resolved<'_>) -> Duration {
    let policies = resolved.rule.reactions.policies().iter();
    let windows = policies.map(|policy| {
        let waits = policy.backoff.wait_max_total();
        policy.backoff.window().map_or(waits, |window| window.min(waits))
    });
    windows.max().unwrap_or_default()
}

fn lease_shorter_than_processing(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let limit = resolved.rule.timeouts.whole.max;
    for facts in broker_facts(resolved, findings.book()) {
        let lease = facts.get(|facts| &facts.lease).filter(|lease| lease.value < limit);
        let Some(lease) = lease.filter(|_| facts.get(|facts| &facts.heartbeat).is_none()) else { continue };
        let (lease_shown, limit) = (show_duration(lease.value), show_duration(limit));
        findings.report(
            lease.span,
            format!("the lease ends after {lease_shown}, but an attempt may take {limit}"),
            format!("make the lease longer than {limit}, or renew it and declare `heartbeat`"),
        );
    }
}

fn heartbeat_too_slow(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    for facts in broker_facts(resolved, findings.book()) {
        let Some(heartbeat) = facts.get(|facts| &facts.heartbeat) else { continue };
        let Some(lease) = facts.get(|facts| &facts.lease) else {
            findings.cannot_tell(heartbeat.span, "facts.lease");
            continue;
        };
        if heartbeat.value.saturating_mul(3) > lease.value {
            let third = show_duration(lease.value / 3);
            let [lease, heartbeat_shown] = [lease.value, heartbeat.value].map(show_duration);
            findings.report(
                heartbeat.span,
                format!("a lease of {lease} is renewed only every {heartbeat_shown}"),
                format!("renew it every {third} or more often"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::tests::{found, untold};
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
            ("a batch tells none",           "idempotency: { by: notification-id }\n    facts: { idempotent_by: nothing }\n    channels: { c: { target: { http: \"http://127.0.0.1:9000\", format: batch }, events: [a] } }", vec!["5:24 notification-id-unheard", "6:29 retries-repeat-effects"]),
            ("an answer to one event tells it", "idempotency: { by: notification-id }\n    events: [a]", vec![]),
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
            assert_eq!(untold(&format!("{SERVICE}    {text}\n"), super::LINTS), expected, "{name}");
        }
    }
}
