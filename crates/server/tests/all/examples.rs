//! The books of five systems hold their numbers: every one of them stands here a second time, so that none changes by
//! accident.
//!
//! Each test shows what a book resolves to as lines of text and holds them against the expected ones, in
//! the order of the book; a row that is missing or too many fails as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive_core::book::connectors::built_in;
use redrive_core::book::connectors::exec::{Cancellation, ExecSettings};
use redrive_core::book::connectors::webhook::WebhookSettings;
use redrive_core::book::model::{
    AlertSeverity, ConsumerPattern, DaprTarget, DeliveryOrder, DependencyEntry, Direction, IdempotencyBy,
    LetterForm, ReactionName, TimeoutParts,
};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::Resolved;
use redrive_core::book::{RuleBook, read};
use redrive_core::policy::breaker::{BreakerSettings, CountingUnit, Trip};
use redrive_core::policy::rule::{FailureMatch, NamedPolicy, OverrideMeaning, WhenOpen};
use redrive_core::text::show_duration;
use redrive_lab::lint::check_for;

#[test]
fn a_book_that_waits_for_its_connectors_has_no_other_error() {
    let mut problems = Vec::new();
    for path in SYSTEMS.map(path) {
        let checked = check_for(&fs::read(&path).expect("a book can be read"), built_in());
        let errors = checked.problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error);
        let (missing, other): (Vec<_>, Vec<_>) = errors.partition(|error| error.code == "not-built-in");
        let is_example = path.starts_with(root().join("examples"));
        if missing.is_empty() != is_example {
            problems.push(format!("{}: belongs among the examples once it can be served", path.display()));
        }
        problems.extend(other.iter().map(|error| {
            let position = error.span.position;
            format!("{}:{}: {}: {}", path.display(), position.line, error.code, error.message)
        }));
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_todo_book_is_the_matrix_row_for_row() {
    let book = book("todo");
    let shown = rows(&book, |rule| {
        let title = |title: &Option<String>, name: &str| title.clone().unwrap_or_else(|| name.to_owned());
        let event = match rule.channel {
            Some(channel) => title(&channel.title, channel.name.as_str()),
            None => title(&rule.row.title, rule.row.pattern.value.as_str()),
        };
        let service = title(&rule.service.title, rule.service.name.as_str());
        let dead_letter = rule.dead_letter.name.as_deref().expect("every row has a queue").to_owned();
        let cells = [
            service,
            event,
            policy(rule).name.to_string(),
            idempotency(rule),
            dead_letter,
            breaker_name(rule),
            show_duration(rule.rule.timeouts.whole.first),
        ];
        cells.join(" | ")
    });
    #[rustfmt::skip]
    assert_lines(&shown, &[
        "Notification Service | todo.task.created | standard | Event ID dedup (redis) | _notification-svc.deadletter | kafkaBreaker | 15s",
        "Notification Service | todo.task.completed | standard | Event ID dedup (redis) | _notification-svc.deadletter | kafkaBreaker | 15s",
        "Notification Service | todo.task.priority-changed | standard | Event ID dedup (redis) | _notification-svc.deadletter | kafkaBreaker | 15s",
        "Notification Service | todo.reminder.fired | critical | Idempotent upsert (postgres) | _notification-svc.deadletter | kafkaBreaker | 30s",
        "Notification Service | Email dispatch | patient | Event ID dedup (redis) | _notification-svc.deadletter.email | externalBreaker | 30s",
        "Notification Service | SMS dispatch | patient | Event ID dedup (redis) | _notification-svc.deadletter.sms | externalBreaker | 15s",
        "Analytics Service | todo.task.created | standard | Idempotent upsert (postgres) | _analytics-svc.deadletter | kafkaBreaker | 10s",
        "Analytics Service | todo.task.completed | standard | Idempotent upsert (postgres) | _analytics-svc.deadletter | kafkaBreaker | 10s",
        "Analytics Service | todo.task.priority-changed | standard | Idempotent upsert (postgres) | _analytics-svc.deadletter | kafkaBreaker | 10s",
        "Analytics Service | todo.batch.executed | standard | Idempotent upsert (postgres) | _analytics-svc.deadletter | kafkaBreaker | 15s",
        "Search Indexer | todo.task.created | standard | Idempotent upsert (index) | _search-indexer.deadletter | stateBreaker | 10s",
        "Search Indexer | todo.task.updated | standard | Idempotent upsert (index) | _search-indexer.deadletter | stateBreaker | 10s",
        "Search Indexer | todo.task.deleted | aggressive | Conditional state check | _search-indexer.deadletter | stateBreaker | 5s",
        "Search Indexer | todo.task.tag-added | standard | Idempotent upsert (index) | _search-indexer.deadletter | stateBreaker | 10s",
        "Search Indexer | todo.task.tag-removed | standard | Idempotent upsert (index) | _search-indexer.deadletter | stateBreaker | 10s",
        "Recurrence Service | todo.task.completed | critical | Transactional outbox (postgres) | _recurrence-svc.deadletter | kafkaBreaker | 15s",
        "Recurrence Service | todo.recurrence.rule-created | critical | Transactional outbox (postgres) | _recurrence-svc.deadletter | kafkaBreaker | 15s",
        "Reminder Service | todo.task.due-date-set | critical | Event ID dedup (redis) | _reminder-svc.deadletter | kafkaBreaker | 10s",
        "Reminder Service | todo.task.due-date-changed | critical | Event ID dedup (redis) | _reminder-svc.deadletter | kafkaBreaker | 10s",
        "Reminder Service | todo.reminder.snoozed | standard | Event ID dedup (redis) | _reminder-svc.deadletter | kafkaBreaker | 10s",
        "Reminder Service | Jobs API callback | aggressive | Conditional state check | _reminder-svc.deadletter | sidecarBreaker | 5s",
    ]);
}

#[test]
fn the_todo_book_keeps_keys_as_long_as_kafka_and_letters_for_a_month() {
    let book = book("todo");
    let shown = rows(&book, |rule| {
        let (ttl, retention) = (rule.idempotency.ttl.value, rule.dead_letter.retention.value);
        format!("keys {}, letters {}", show_duration(ttl), show_duration(retention))
    });
    assert!(shown.iter().all(|line| line == "keys 7d, letters 30d"), "{shown:?}");
    let source = &book.sections().sources["tasks"].value;
    assert_eq!(source.facts.redelivery.as_ref().map(|at| show_duration(at.value)).as_deref(), Some("7d"));
    assert_eq!(source.endpoint.key(), "kafka");
    let topics = &source.endpoint.profile.addresses;
    for (_, channel, row) in book.sections().rows() {
        let event_type = row.pattern.value.as_str();
        let called_back = event_type == "jobs.callback";
        assert!(
            called_back || channel.is_some() || topics.iter().any(|topic| topic == event_type),
            "{event_type}"
        );
    }
}

#[test]
fn dependencies_name_the_guards_that_the_documents_give_them() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("todo", &[
            "kafka: kafka, retry standard, timeout default, kafkaBreaker, component pubsub-kafka outbound",
            "kafka-inbound: kafka, retry standard, timeout slow, no breaker, component pubsub-kafka inbound",
            "notification-app: invoke, retry standard, timeout default, sidecarBreaker, app notification-svc",
            "postgres: postgres, retry standard, timeout default, stateBreaker, component statestore-postgres outbound",
            "redis: redis, retry aggressive, timeout fast, stateBreaker, component statestore-redis outbound",
            "sidecar: invoke, retry aggressive, timeout jobs, sidecarBreaker",
            "sms: sms, retry patient, timeout sms, externalBreaker",
            "smtp: smtp, retry patient, timeout slow, externalBreaker, component binding-smtp-email outbound",
            "todo-api: invoke, retry aggressive, timeout default, sidecarBreaker, app todo-api",
            "webhook: webhook, retry patient, timeout slow, externalBreaker, component binding-http-webhook outbound",
        ]),
        ("rez-agent", &["authorizer: invoke, timeout authorizer", "ntfy-sh: ntfy, timeout http-client, ntfy-sh", "web-api: invoke, timeout web-api"]),
        ("queue-keeper", &["blob: blob, blob", "key-vault: key-vault, key-vault", "service-bus: service-bus, 429 webhook, 503 webhook, fatal dead-letter, service-bus"]),
        ("codegen-orchestrator", &["api: invoke, timeout api", "github: webhook", "openai: webhook", "redis: redis, timeout redis"]),
        ("pkarr", &["relays: relay, relay"]),
    ];
    for (name, expected) in cases {
        let book = book(name);
        let shown: Vec<_> = book.sections().dependencies.values().map(dependency).collect();
        assert_lines(&shown, expected);
    }
    let dapr = &book("todo").sections().dapr.clone();
    assert_eq!((dapr.name.as_deref(), dapr.namespace.as_deref()), (Some("todo-resiliency"), Some("default")));
}

#[test]
fn breakers_have_the_numbers_of_the_documents() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("todo", &[
            "externalBreaker: 5 in a row, open 2m, 2 probes, closes after 2, reset 2m",
            "kafkaBreaker: 5 in a row, open 1m, 1 probes, closes after 1, reset 1m",
            "sidecarBreaker: 3 in a row, open 15s, 1 probes, closes after 1, reset 15s",
            "stateBreaker: 3 in a row, open 30s, 1 probes, closes after 1, reset 30s",
        ]),
        ("rez-agent", &["ntfy-sh: 5 within 1m, open 30s, 1 probes, closes after 2"]),
        ("queue-keeper", &[
            "blob: 3 in a row, open 10s, 1 probes, closes after 2, reset 2m",
            "key-vault: 3 in a row, open 15s, 1 probes, closes after 2, reset 3m",
            "service-bus: 5 in a row, open 30s, 1 probes, closes after 3, reset 5m, ignores 503",
        ]),
        ("codegen-orchestrator", &[]),
        ("pkarr", &["relay: 5 in a row, open 30s, 1 probes, closes after 2, counts calls"]),
    ];
    for (name, expected) in cases {
        let book = book(name);
        let breakers = book.sections().breakers.iter();
        let shown: Vec<_> = breakers
            .map(|(name, entry)| {
                let ignores = entry.value.ignores.iter().map(|kind| format!(", ignores {}", failure(*kind)));
                format!("{name}: {}{}", breaker(&entry.value.settings), ignores.collect::<String>())
            })
            .collect();
        assert_lines(&shown, expected);
    }
}

#[test]
fn policies_have_the_numbers_of_the_documents() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("todo", &[
            "aggressive: 500ms to 5s, 3 retries within 15s, equal",
            "critical: 1s to 2m, 12 retries within 30m, equal",
            "patient: 2s to 1m, 8 retries within 15m, equal",
            "standard: 1s to 30s, 5 retries within 5m, equal",
            "upstream: 5s to 1m, 5 retries, none, then an alert",
        ]),
        ("rez-agent", &["messaging: 1s to 32s, 3 retries, plus 500ms"]),
        ("queue-keeper", &[
            "once-more: 100ms to 16s, 1 retries, spread 25%",
            "webhook: 100ms to 16s, 5 retries, spread 25%",
        ]),
        ("codegen-orchestrator", &[
            "upstream: 5s to 1m, 5 retries, none, then an alert",
            "worker: 1s to 4s, 3 retries, spread 100ms",
        ]),
        ("pkarr", &["relay: 1s to 8s, 3 retries, spread 30%"]),
    ];
    for (name, expected) in cases {
        let book = book(name);
        let sections = book.sections();
        let mut shown: Vec<_> = sections
            .rows()
            .flat_map(|(service, channel, row)| {
                sections.resolve(service, channel, row).rule.reactions.policies().to_vec()
            })
            .map(|policy| backoff(&policy))
            .collect();
        shown.sort_unstable();
        shown.dedup();
        assert_lines(&shown, expected);
    }
}

#[test]
fn failures_lead_where_the_documents_say() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 4] = [
        ("rez-agent", &[
            "scheduler: transient messaging, rate-limited messaging, permanent dead-letter, fatal dead-letter; held when open",
            "message-processor: transient messaging, rate-limited messaging, permanent dead-letter, fatal dead-letter; held when open",
            "notification-service: transient messaging, rate-limited messaging, permanent dead-letter, fatal dead-letter; dead when open",
        ]),
        ("queue-keeper", &[
            "review-bot: 429 webhook, 503 webhook, transient webhook, rate-limited webhook, permanent dead-letter, fatal dead-letter; held when open",
            "task-bot: 429 webhook, 503 webhook, transient webhook, rate-limited webhook, permanent dead-letter, fatal dead-letter; held when open",
            "task-bot: 429 webhook, 503 webhook, transient webhook, rate-limited webhook, permanent dead-letter, fatal dead-letter; held when open",
            "archive: transient once-more, rate-limited webhook, permanent dead-letter, fatal dead-letter; dead when open",
        ]),
        ("codegen-orchestrator", &[
            "developer-worker: transient worker, rate-limited upstream, permanent dead-letter, fatal pause; held when open",
            "workflow-runner: transient worker, rate-limited upstream, permanent dead-letter, fatal pause; held when open",
            "provisioner: transient worker, rate-limited upstream, permanent dead-letter, fatal pause; held when open",
            "results: transient worker, rate-limited upstream, permanent dead-letter, fatal dead-letter; held when open",
            "lifecycle: transient worker, rate-limited upstream, permanent dead-letter, fatal dead-letter; held when open",
            "task-status: transient worker, rate-limited upstream, permanent dead-letter, fatal dead-letter; held when open",
        ]),
        ("pkarr", &["verifier: transient relay, rate-limited relay, permanent dead-letter, fatal dead-letter; dead when open"]),
    ];
    for (name, expected) in cases {
        let shown = rows(&book(name), |rule| {
            let reactions =
                rule.reactions.iter().map(|(kind, known)| (failure(*kind), reaction(&known.value)));
            let told =
                reactions.filter(|(kind, _)| !["invalid", "unknown", "internal"].contains(&kind.as_str()));
            let told: Vec<_> = told.map(|(kind, reaction)| format!("{kind} {reaction}")).collect();
            let when_open = match rule.when_open.value {
                WhenOpen::Hold => "held",
                WhenOpen::DeadLetter => "dead",
            };
            format!("{}: {}; {when_open} when open", rule.service.name, told.join(", "))
        });
        assert_lines(&shown, expected);
    }
}

#[test]
fn answers_mean_what_the_documents_say() {
    #[rustfmt::skip]
    let cases: [(&str, &str, &str, &[&str]); 2] = [
        ("queue-keeper", "review-bot", "github.pull_request.opened", &[
            "429 is rate-limited", "503 is transient", "401 403 is fatal", "404 is fatal",
        ]),
        ("pkarr", "verifier", "pkarr.verification.requested", &[
            "NETWORK_TIMEOUT is transient", "DHT_UNAVAILABLE is transient", "RELAY_TIMEOUT is transient",
            "RATE_LIMITED is transient", "TEMPORARY_FAILURE is transient",
            "INVALID_PUBLIC_KEY is permanent", "INVALID_NIP05 is permanent", "RECORD_NOT_FOUND is permanent",
            "SIGNATURE_INVALID is permanent", "MALFORMED_RESPONSE is permanent",
            "UNKNOWN_ERROR is transient",
        ]),
    ];
    for (name, service, event_type, expected) in cases {
        let book = book(name);
        let rule = book.explain(service, None, event_type).expect("the service takes it");
        let shown: Vec<_> = rule
            .classify
            .iter()
            .map(|(row, _)| {
                assert!(row.because.is_some(), "{name}: an override at {:?} gives no reason", row.position);
                let statuses = row.when.statuses.iter().map(|range| failure(FailureMatch::Status(*range)));
                let code = row.when.code.iter().map(ToString::to_string);
                let looks_at: Vec<_> = statuses.chain(code).collect();
                let meaning = match row.meaning {
                    OverrideMeaning::Failure(category) => category.as_str(),
                    OverrideMeaning::Delivered => "delivered",
                };
                format!("{} is {meaning}", looks_at.join(" "))
            })
            .collect();
        assert_lines(&shown, expected);
    }
}

#[test]
fn calls_and_runs_have_the_limits_of_the_documents() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 4] = [
        ("rez-agent", &[
            "scheduler: connect 5s, tls 5s, headers 30s, whole 30s, transient",
            "message-processor: connect 5s, tls 5s, headers 5m, whole 5m, transient",
            "notification-service: connect 5s, tls 5s, headers 5s, whole 10s, transient, deadline 30s",
        ]),
        ("queue-keeper", &[
            "review-bot: connect 5s, tls 5s, headers 30s, whole 10s to 30s, transient",
            "task-bot: connect 5s, tls 5s, headers 30s, whole 10s to 30s, transient",
            "task-bot: connect 5s, tls 5s, headers 30s, whole 10s to 30s, transient",
            "archive: connect 5s, tls 5s, headers 30s, whole 10s to 30s, transient",
        ]),
        ("codegen-orchestrator", &[
            "developer-worker: spawn 1m, run 30m, permanent, then worker.result",
            "workflow-runner: spawn 1m, run 30m, permanent, cancelled by ./workers/workflow cancel, then worker.result",
            "provisioner: spawn 1m, run 15m, permanent, then worker.result",
            "results: connect 5s, tls 5s, headers 5s, whole 5s, transient",
            "lifecycle: connect 5s, tls 5s, headers 5s, whole 5s, transient",
            "task-status: connect 5s, tls 5s, headers 10s, whole 10s, transient",
        ]),
        ("pkarr", &["verifier: connect 5s, tls 5s, headers 3s, whole 3s, transient"]),
    ];
    for (name, expected) in cases {
        assert_lines(&rows(&book(name), limits), expected);
    }
    #[rustfmt::skip]
    let named = [
        ("rez-agent", "authorizer", "10s"), ("rez-agent", "web-api", "15s"), ("rez-agent", "ntfy-sh", "10s"),
        ("codegen-orchestrator", "redis", "5s"), ("codegen-orchestrator", "api", "10s"),
        ("todo", "kafka-inbound", "30s"), ("todo", "kafka", "15s"), ("todo", "redis", "5s"),
    ];
    for (name, dependency, expected) in named {
        let book = book(name);
        let entry = book.sections().dependencies.iter().find(|(name, _)| name.as_str() == dependency);
        let timeout = entry.and_then(|(_, entry)| entry.layer.timeout.as_ref()).expect("it states one");
        let whole = timeout.value.whole.map(|whole| show_duration(whole.first));
        assert_eq!(whole.as_deref(), Some(expected), "{name}: {dependency}");
    }
}

#[test]
fn dead_letters_go_where_the_documents_say() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 2] = [
        ("rez-agent", &[
            "scheduler: rez-agent-message-queue-dlq-dev as envelope",
            "message-processor: rez-agent-message-queue-dlq-dev as envelope",
            "notification-service: rez-agent-message-queue-dlq-dev as envelope",
        ]),
        ("codegen-orchestrator", &[
            "developer-worker: engineering:queue:dlq as redis",
            "workflow-runner: deploy:queue:dlq as redis",
            "provisioner: deploy:queue:dlq as redis",
            "results: worker:output:dlq as redis",
            "lifecycle: worker:lifecycle:dlq as redis",
            "task-status: worker:output:dlq as redis",
        ]),
    ];
    for (name, expected) in cases {
        let shown = rows(&book(name), |rule| {
            let form = match rule.dead_letter.form.value {
                LetterForm::Envelope => "envelope",
                LetterForm::Redis => "redis",
            };
            let name = rule.dead_letter.name.as_deref().expect("every row has a queue");
            format!("{}: {name} as {form}", rule.service.name)
        });
        assert_lines(&shown, expected);
    }
}

#[test]
fn what_is_known_of_the_queue_and_its_consumers_is_stated() {
    let book = book("rez-agent");
    let find = |service, event_type| book.explain(service, None, event_type).expect("the service takes it");
    let processor = find("message-processor", "rez.message.queued");
    assert_eq!(processor.facts.lease.as_ref().map(|at| show_duration(at.value)).as_deref(), Some("5m"));
    assert_eq!(processor.facts.broker_attempts.as_ref().map(|at| at.value), Some(3));
    assert_eq!(idempotency(&processor), "Conditional state check (dynamodb)");
    assert!(processor.target.endpoint.profile.batch.is_some(), "only failed messages come back");
    let notification = find("notification-service", "rez.message.processed");
    assert_eq!(notification.idempotency.by.value, IdempotencyBy::NotificationId);
}

#[test]
fn webhooks_are_verified_ordered_and_bounded() {
    let book = book("queue-keeper");
    let sections = book.sections();
    let WebhookSettings { scheme, secret, body_max, .. } =
        sections.sources["github"].value.endpoint.settings().expect("events come by webhook");
    assert_eq!((scheme.as_str(), *body_max), ("github", Some(25 << 20)));
    let secret = &sections.secrets[secret].value;
    let times = [&secret.cached, &secret.kept].map(|at| at.as_ref().map(|at| show_duration(at.value)));
    assert_eq!(times, [Some("5m".to_owned()), Some("30m".to_owned())]);
    assert_eq!(secret.endpoint.key(), "key-vault");
    for bot in ["review-bot", "task-bot"] {
        let order = book.service(bot).and_then(|service| service.order.as_ref()).map(|at| at.value);
        assert_eq!(order, Some(DeliveryOrder::Session), "{bot}");
    }
    let in_hours: Vec<_> =
        sections.receivers.iter().filter(|(_, at)| at.value.hours.is_some()).map(|(name, _)| name).collect();
    assert_eq!(in_hours, ["platform"], "the others are reached at any hour");
    let on_call = &sections.receivers["on-call"].value.endpoint;
    assert_eq!(on_call.key(), "webhook", "a pager wakes people, a chat does not");
}

#[test]
fn alerts_are_those_of_the_documents() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("todo", &[
            "dead_letter_inflow > 10/m by service: critical to on-call",
            "dead_letters > 1000: high to on-call",
            "dead_letter_age > 48h by service: warning to team",
            "retry_rate > 50% over 5m by service: warning to team",
            "breaker_open for 10m by dependency: critical to on-call",
        ]),
        ("rez-agent", &[
            "dead_letters > 0: high to on-call, on-call-mail",
            "breaker_opened by dependency: high to on-call, on-call-mail",
        ]),
        ("queue-keeper", &[
            "error_rate > 1% over 5m by category: warning to platform",
            "error_rate > 5% over 2m: critical to platform, on-call, incident-commander",
            "error_rate > 5% over 5m by dependency: medium to platform, manager",
            "retry_rate > 50% over 5m: warning to platform",
            "breaker_open for 10m by dependency: high to platform, on-call",
            "dead_letters > 100: medium to platform, manager",
            "auth_failures > 10/h: high to platform, on-call, security",
            "config_failures > 0: high to platform, on-call",
            "unavailable_rate > 50% over 5m by dependency: high to platform, on-call",
        ]),
        ("codegen-orchestrator", &[
            "config_failures > 0: critical to admin",
            "auth_failures >= 1/h: critical to admin",
        ]),
        ("pkarr", &[
            "error_rate > 10% over 5m: high to operators",
            "transient_rate > 5% over 5m: warning to operators",
            "breaker_open for 2m by dependency: high to operators",
            "retry_rate > 20% over 5m: warning to operators",
            "exhausted_rate > 2% over 5m: high to operators",
        ]),
    ];
    for (name, expected) in cases {
        let book = book(name);
        let alerts = book.sections().alerts.iter();
        let shown: Vec<_> = alerts
            .map(|alert| {
                let severity = match alert.severity {
                    AlertSeverity::Warning => "warning",
                    AlertSeverity::Medium => "medium",
                    AlertSeverity::High => "high",
                    AlertSeverity::Critical => "critical",
                };
                format!("{}: {severity} to {}", alert.when, alert.to.join(", "))
            })
            .collect();
        assert_lines(&shown, expected);
    }
}

/// The systems whose numbers are held.
pub(crate) const SYSTEMS: [&str; 5] = ["codegen-orchestrator", "pkarr", "queue-keeper", "rez-agent", "todo"];

/// The book of a system: among the examples if it can be served, else among the books of the tests.
pub(crate) fn path(system: &str) -> PathBuf {
    let folders = ["examples/rulebooks", "crates/server/tests/books"].map(|folder| root().join(folder));
    let mut paths = folders.map(|folder| folder.join(system).with_extension("yaml")).into_iter();
    paths.find(|path| path.is_file()).unwrap_or_else(|| panic!("{system} has no book"))
}

pub(crate) fn root() -> &'static Path {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    server.ancestors().nth(2).expect("crates/server lies two folders down")
}

fn book(name: &str) -> RuleBook {
    let text = fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let reading = read(&text, built_in());
    reading.book.unwrap_or_else(|| panic!("{name}: {:#?}", reading.problems.into_sorted()))
}

/// One line for each row of the book, in its order.
fn rows(book: &RuleBook, show: impl Fn(&Resolved<'_>) -> String) -> Vec<String> {
    let sections = book.sections();
    sections.rows().map(|(service, channel, row)| show(&sections.resolve(service, channel, row))).collect()
}

fn assert_lines(shown: &[String], expected: &[&str]) {
    assert_eq!(shown, expected, "\n{}\n", shown.join("\n"));
}

fn policy<'a>(rule: &'a Resolved<'_>) -> &'a NamedPolicy {
    rule.retry_policy().expect("transient failures are tried again")
}

fn breaker_name(rule: &Resolved<'_>) -> String {
    let name = rule.rule.breaker.as_ref().and_then(|breaker| breaker.name.as_ref());
    name.map_or("no breaker".to_owned(), ToString::to_string)
}

/// What keeps a second copy harmless, in the words of the matrix: the consumer's way, else ours.
fn idempotency(rule: &Resolved<'_>) -> String {
    let Some(by_consumer) = &rule.facts.idempotent_by else {
        return match rule.idempotency.by.value {
            IdempotencyBy::EventId => format!("Event ID dedup ({})", rule.idempotency.store.value),
            IdempotencyBy::NotificationId => "Notification ID".to_owned(),
            IdempotencyBy::Nothing => "none".to_owned(),
        };
    };
    let pattern = match by_consumer.value.pattern {
        ConsumerPattern::EventId => "Event ID dedup",
        ConsumerPattern::Upsert => "Idempotent upsert",
        ConsumerPattern::StateCheck => "Conditional state check",
        ConsumerPattern::Outbox => "Transactional outbox",
        ConsumerPattern::Nothing => "none",
    };
    match &by_consumer.value.store {
        Some(store) => format!("{pattern} ({store})"),
        None => pattern.to_owned(),
    }
}

fn dependency(entry: &DependencyEntry) -> String {
    let mut parts = vec![entry.kind.to_string()];
    for (kind, at) in &entry.layer.reactions {
        match failure(*kind).as_str() {
            "transient" => parts.push(format!("retry {}", reaction(&at.value))),
            kind => parts.push(format!("{kind} {}", reaction(&at.value))),
        }
    }
    if let Some(at) = &entry.layer.timeout {
        let TimeoutParts { name, .. } = &at.value;
        parts.push(format!("timeout {}", name.as_deref().expect("the books name their timeouts")));
    }
    if let Some(at) = &entry.layer.breaker {
        parts.push(at.value.as_ref().map_or("no breaker".to_owned(), ToString::to_string));
    }
    parts.extend(entry.dapr.as_ref().map(|at| match &at.value {
        DaprTarget::Component { name, direction: Direction::Outbound } => {
            format!("component {name} outbound")
        }
        DaprTarget::Component { name, direction: Direction::Inbound } => format!("component {name} inbound"),
        DaprTarget::App(name) => format!("app {name}"),
        DaprTarget::Actor(name) => format!("actor {name}"),
    }));
    format!("{}: {}", entry.name, parts.join(", "))
}

fn breaker(settings: &BreakerSettings) -> String {
    let trip = match settings.trip() {
        Trip::Consecutive(count) => format!("{count} in a row"),
        Trip::Failures { count, within } => format!("{count} within {}", show_duration(within)),
        Trip::FailureRate { share, of_at_least, within } => {
            format!("{share} of at least {of_at_least} within {}", show_duration(within))
        }
    };
    let (open, probes, closes) = (show_duration(settings.open()), settings.probes(), settings.close_after());
    let reset = settings.reset().map(|reset| format!(", reset {}", show_duration(reset))).unwrap_or_default();
    let counts = match settings.count() {
        CountingUnit::Attempt => "",
        CountingUnit::Call => ", counts calls",
    };
    format!("{trip}, open {open}, {probes} probes, closes after {closes}{reset}{counts}")
}

fn backoff(policy: &NamedPolicy) -> String {
    let backoff = &policy.backoff;
    let [initial, max] = [backoff.initial(), backoff.max()].map(show_duration);
    let within =
        backoff.window().map(|window| format!(" within {}", show_duration(window))).unwrap_or_default();
    let alert = if policy.alert_on_exhaustion { ", then an alert" } else { "" };
    let (name, retries, jitter) = (&policy.name, backoff.retries(), backoff.jitter());
    format!("{name}: {initial} to {max}, {retries} retries{within}, {jitter}{alert}")
}

fn reaction(reaction: &ReactionName) -> String {
    match reaction {
        ReactionName::Policy(name) => name.to_string(),
        ReactionName::DeadLetter => "dead-letter".to_owned(),
        ReactionName::Pause => "pause".to_owned(),
    }
}

fn failure(kind: FailureMatch) -> String {
    match kind {
        FailureMatch::Category(category) => category.as_str().to_owned(),
        FailureMatch::Status(range) if range.first == range.last => range.first.to_string(),
        FailureMatch::Status(range) => format!("{}-{}", range.first, range.last),
    }
}

/// The limits of a call, or of a run if the target is a program.
fn limits(rule: &Resolved<'_>) -> String {
    let (service, timeouts) = (&rule.service.name, &rule.rule.timeouts);
    let process: Option<&ExecSettings> = rule.target.endpoint.settings();
    let process = process.map(|exec| &exec.run);
    let whole = &timeouts.whole;
    let category = timeouts.category.as_str();
    if let Some((process, spawn)) = process.and_then(|process| Some((process, process.spawn_limit?))) {
        let (spawn, run) = (show_duration(spawn), show_duration(whole.first));
        let cancelled = match &process.on_timeout {
            None => String::new(),
            Some(Cancellation::Command(command)) => format!(", cancelled by {}", command.join(" ")),
            Some(Cancellation::Call(call)) => format!(", cancelled by {}", call.address),
        };
        let output = process.output.as_deref().expect("the workers tell their results");
        return format!("{service}: spawn {spawn}, run {run}, {category}{cancelled}, then {output}");
    }
    let grows =
        if whole.first == whole.max { String::new() } else { format!(" to {}", show_duration(whole.max)) };
    let [connect, tls, headers, whole] =
        [timeouts.connect, timeouts.tls, timeouts.headers, whole.first].map(show_duration);
    let deadline = |deadline: Duration| format!(", deadline {}", show_duration(deadline));
    let deadline = rule.rule.deadline.map(deadline).unwrap_or_default();
    format!(
        "{service}: connect {connect}, tls {tls}, headers {headers}, whole {whole}{grows}, {category}{deadline}"
    )
}
