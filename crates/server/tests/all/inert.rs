//! Every key that only a running server shows does something: for each line of `served_keys.txt` beside the
//! tables of the format, one scenario with two values of the key, and what is observed must differ.
//!
//! Most scenarios are pairs in one server: two services, sources or receivers that differ in the key alone and are
//! treated alike. Where another test toggles the key, it is named here, and must exist.

mod access;
mod alerting;
mod hooks;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use redrive_core::book::connectors::built_in;
use redrive_lab::lint::check_for;

use self::Evidence::{NotBuiltIn, Pair, Test};
use crate::run::Folder;
use crate::server::{Server, serve};

/// The keys, each with the map that it stands in.
const SERVED: &str = include_str!("../../../core/src/book/schema/served_keys.txt");
/// The key of a pair that is written alike: what is seen of the two must not differ. Without it a scenario could
/// see a difference that no key made.
const CONTROL: &str = "control";
/// How long two of a pair may look alike.
const DIFFER_WITHIN: Duration = Duration::from_secs(30);

/// Where it is shown that a key does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// In that group of pairs.
    Pair(Group),
    /// In that test of that file.
    Test(&'static str, &'static str),
    /// The kind that it belongs to is refused.
    NotBuiltIn(&'static str),
}

/// Pairs that one test looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Targets,
    Hooks,
    Alerting,
    Access,
}

const NO_SUCH_TARGET: &[(&str, &str)] = &[
    ("kafka", "services: { s: { target: { kafka: topic }, events: [a] } }"),
    ("redis-stream", "services: { s: { target: { redis-stream: stream }, events: [a] } }"),
    ("sqs", "services: { s: { target: { sqs: \"https://q.test/q\" }, events: [a] } }"),
    ("service-bus", "services: { s: { target: { service-bus: queue }, events: [a] } }"),
    ("key-vault", "secrets: { s: { key-vault: \"https://v.test/s\" } }"),
    ("kafka source", "sources: { s: { kafka: { brokers: [b], topics: [t] }, type: a } }"),
    ("redis-stream source", "sources: { s: { redis-stream: { url: u, stream: s }, type: a } }"),
    ("sqs source", "sources: { s: { sqs: { queue: q }, type: a } }"),
    ("service-bus source", "sources: { s: { service-bus: { namespace: n, queue: q }, type: a } }"),
];

const CONDITIONS: &str = "crates/server/tests/all/conditions.rs";
const COPIES: &str = "crates/server/tests/all/copies.rs";
const CONTAINERS: &str = "crates/server/tests/all/containers.rs";
const EXEC: &str = "crates/node/src/target/exec/tests.rs";
const SOURCES: &str = "crates/server/tests/all/sources.rs";
const SECRETS: &str = "crates/node/src/secret/tests.rs";
const SCHEDULES: &str = "crates/node/src/runtime/schedules/tests.rs";
const ARCHIVIST: &str = "crates/node/src/archive/archivist/tests.rs";
const AUTOMATIC: &str = "crates/server/tests/all/replay/automatic.rs";
const SMTP: &str = "crates/node/src/target/smtp/behaviour_test.rs";
const OAUTH: &str = "crates/server/tests/all/auth/oauth.rs";
const MUTUAL: &str = "crates/server/tests/all/auth/mutual.rs";
const MAIL: &str = "crates/server/tests/all/alerts/mail.rs";

#[rustfmt::skip]
const EVIDENCE: &[(&str, Evidence)] = &[
    ("a rule book: secrets",                    Test(SECRETS, "secrets_are_found_where_the_book_says")),
    ("a rule book: sources",                    Pair(Group::Hooks)),
    ("a rule book: access",                     Pair(Group::Access)),
    ("a rule book: archive",                    Test("crates/server/tests/all/archive.rs", "what_was_sent_is_kept_byte_for_byte_and_outlives_the_store")),
    ("a rule book: event_types",                Test(CONDITIONS, "an_event_that_violates_its_schema_is_refused_with_the_path")),
    ("a rule book: alerts",                     Pair(Group::Alerting)),
    ("a rule book: receivers",                  Pair(Group::Alerting)),
    ("defaults: waiting",                       Pair(Group::Access)),
    ("defaults: keep_delivered",                Pair(Group::Access)),
    ("a backlog limit: events",                  Pair(Group::Targets)),
    ("a backlog limit: size",                    Pair(Group::Targets)),
    ("a backlog limit: per_session",             Test("crates/server/tests/all/replay/strict.rs", "too_many_behind_a_dead_head_are_dead_letters_in_their_turn")),
    ("a backlog limit: when_full",               Pair(Group::Targets)),
    ("a rule: idempotency",                     Pair(Group::Access)),
    ("a rule: dead_letter",                     Pair(Group::Targets)),
    ("a rule: consumer_group",                  Pair(Group::Targets)),
    ("a rule: alerts",                          Pair(Group::Access)),
    ("an idempotency rule: by",                 Test(COPIES, "each_row_has_its_own_way_with_copies_over_a_restart")),
    ("an idempotency rule: store",              Test(COPIES, "a_store_that_there_is_not_is_refused_with_what_to_write_instead")),
    ("an idempotency rule: key",                Test(COPIES, "a_book_of_one_row_knows_a_key_for_the_first_event_that_had_it")),
    ("an idempotency rule: ttl",                Pair(Group::Access)),
    ("a dead-letter rule: name",                Pair(Group::Targets)),
    ("a dead-letter rule: queue",               Pair(Group::Targets)),
    ("a dead-letter rule: stage",               Pair(Group::Targets)),
    ("a dead-letter rule: form",                Pair(Group::Targets)),
    ("a dead-letter rule: retention",           Pair(Group::Targets)),
    ("a dead-letter rule: alert",               Pair(Group::Access)),
    ("a dead-letter rule: reprocess",           Test(AUTOMATIC, "letters_come_back_when_the_dependency_does")),
    ("a dead-letter rule: reprocess_categories", Test(AUTOMATIC, "only_the_named_categories_come_back")),
    ("a dead-letter rule: reprocess_max",       Test(AUTOMATIC, "a_letter_comes_back_so_often_and_then_is_poison")),
    ("a dead-letter rule: reprocess_cron",      Test("crates/server/tests/all/schedules.rs", "letters_come_back_at_the_times_that_their_rule_names")),
    ("a service: target",                       Pair(Group::Targets)),
    ("a service: waiting",                      Pair(Group::Targets)),
    ("an event row: subscription",              Pair(Group::Targets)),
    ("an event row: where",                     Test(CONDITIONS, "a_row_gets_the_events_that_meet_its_condition")),
    ("an event type: schema",                   Test(CONDITIONS, "an_event_that_violates_its_schema_is_refused_with_the_path")),
    ("an event type: on_violation",             Test(CONDITIONS, "by_rule_an_event_that_violates_its_schema_is_a_poison_dead_letter")),
    ("a channel: target",                       Pair(Group::Targets)),
    ("a timeout: connect",                      Test("crates/node/src/target/http/tests/behaviour.rs", "a_host_that_stays_silent_meets_the_limit_on_connecting")),
    ("a timeout: tls",                          Pair(Group::Targets)),
    ("a timeout: headers",                      Pair(Group::Targets)),
    ("a target: http",                          Pair(Group::Targets)),
    ("a target: ntfy",                          Pair(Group::Targets)),
    ("a target: smtp",                          Test(SMTP, "a_connection_is_used_again_and_its_end_costs_no_attempt")),
    ("a target: exec",                          Pair(Group::Targets)),
    ("a target: container",                     Test(CONTAINERS, "a_container_gets_the_event_and_its_end_is_read_back")),
    ("a target: kafka",                         NotBuiltIn("kafka")),
    ("a target: redis-stream",                  NotBuiltIn("redis-stream")),
    ("a target: sqs",                           NotBuiltIn("sqs")),
    ("a target: service-bus",                   NotBuiltIn("service-bus")),
    ("a target: log",                           Pair(Group::Targets)),
    ("a target: format",                        Pair(Group::Targets)),
    ("a target: method",                         Pair(Group::Targets)),
    ("a target: path",                        Pair(Group::Targets)),
    ("a target: secret_path",                 Pair(Group::Targets)),
    ("a target: query",                       Pair(Group::Targets)),
    ("a target: body",                        Pair(Group::Targets)),
    ("a target: form",                        Pair(Group::Targets)),
    ("a target: expect",                      Pair(Group::Targets)),
    ("a target: headers",                        Pair(Group::Targets)),
    ("a target: auth",                           Pair(Group::Targets)),
    ("an authentication: bearer",                Pair(Group::Targets)),
    ("an authentication: basic",                 Pair(Group::Targets)),
    ("an authentication: api_key",               Pair(Group::Targets)),
    ("a basic authentication: user",             Pair(Group::Targets)),
    ("a basic authentication: password",         Pair(Group::Targets)),
    ("an API key: header",                       Pair(Group::Targets)),
    ("an API key: secret",                       Pair(Group::Targets)),
    ("a target: tls",                             Test(MUTUAL, "calls_show_the_certificate_of_the_book_and_trust_its_authority")),
    ("a TLS client: certificate",                 Test(MUTUAL, "calls_show_the_certificate_of_the_book_and_trust_its_authority")),
    ("a TLS client: key",                         Test(MUTUAL, "calls_show_the_certificate_of_the_book_and_trust_its_authority")),
    ("a TLS client: ca",                          Test(MUTUAL, "calls_show_the_certificate_of_the_book_and_trust_its_authority")),
    ("an authentication: oauth2",                 Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("an OAuth 2 client: token_url",              Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("an OAuth 2 client: client_id",              Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("an OAuth 2 client: client_secret",          Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("an OAuth 2 client: scope",                  Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("an OAuth 2 client: audience",               Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("an OAuth 2 client: client_auth",            Test(OAUTH, "a_client_asks_its_issuer_as_the_book_says")),
    ("a cancelling call: http",                   Test(EXEC, "a_cancelling_call_carries_what_the_book_says")),
    ("a cancelling call: method",                 Test(EXEC, "a_cancelling_call_carries_what_the_book_says")),
    ("a cancelling call: headers",                Test(EXEC, "a_cancelling_call_carries_what_the_book_says")),
    ("a cancelling call: auth",                   Test(EXEC, "a_cancelling_call_carries_what_the_book_says")),
    ("a target: batch_max",                     Pair(Group::Targets)),
    ("a target: secret",                        Pair(Group::Targets)),
    ("a target: command",                   Test(CONTAINERS, "a_container_gets_the_event_and_its_end_is_read_back")),
    ("a target: runtime",                   Test(CONTAINERS, "a_container_gets_the_event_and_its_end_is_read_back")),
    ("a target: cpus",                      Test(CONTAINERS, "each_key_of_a_container_reaches_its_runtime")),
    ("a target: pids",                      Test(CONTAINERS, "each_key_of_a_container_reaches_its_runtime")),
    ("a target: container_network",         Test(CONTAINERS, "each_key_of_a_container_reaches_its_runtime")),
    ("a target: user",                      Test(CONTAINERS, "each_key_of_a_container_reaches_its_runtime")),
    ("a target: read_only",                 Test(CONTAINERS, "each_key_of_a_container_reaches_its_runtime")),
    ("a target: mounts",                    Test(CONTAINERS, "each_key_of_a_container_reaches_its_runtime")),
    ("a target: network",                       Pair(Group::Targets)),
    ("a target: from",                         Test(SMTP, "a_mail_has_what_the_templates_make")),
    ("a target: to",                           Test(SMTP, "no_value_adds_a_header_or_a_recipient")),
    ("a target: cc",                           Test(SMTP, "no_value_adds_a_header_or_a_recipient")),
    ("a target: reply_to",                     Test(SMTP, "no_value_adds_a_header_or_a_recipient")),
    ("a target: subject",                      Test(SMTP, "a_mail_has_what_the_templates_make")),
    ("a target: html",                         Test(SMTP, "a_mail_has_what_the_templates_make")),
    ("a target: title",                        Pair(Group::Targets)),
    ("a target: message",                      Pair(Group::Targets)),
    ("a target: priority",                     Pair(Group::Targets)),
    ("a target: tags",                         Pair(Group::Targets)),
    ("a target: click",                        Pair(Group::Targets)),
    ("a target: once",                         Pair(Group::Targets)),
    ("a target: time_limit",                    Pair(Group::Targets)),
    ("a target: spawn_limit",                   Pair(Group::Targets)),
    ("a target: on_timeout",                    Test(EXEC, "what_runs_elsewhere_is_cancelled_when_time_is_over")),
    ("a target: output",                        Pair(Group::Targets)),
    ("a target: grace",                         Pair(Group::Targets)),
    ("a target: memory",                        Pair(Group::Targets)),
    ("a target: output_max",                    Pair(Group::Targets)),
    ("a target: folder",                        Pair(Group::Targets)),
    ("a target: env",                           Pair(Group::Targets)),
    ("a target: inherit",                       Pair(Group::Targets)),
    ("a source: webhook",                       Pair(Group::Hooks)),
    ("a source: schedule",                      Pair(Group::Hooks)),
    ("a source: folder",                        Test(SOURCES, "files_of_a_folder_become_events_and_are_put_away")),
    ("a source: when_done",                     Test(SOURCES, "files_of_a_folder_become_events_and_are_put_away")),
    ("a source: kafka",                         NotBuiltIn("kafka source")),
    ("a source: redis-stream",                  NotBuiltIn("redis-stream source")),
    ("a source: sqs",                           NotBuiltIn("sqs source")),
    ("a source: service-bus",                   NotBuiltIn("service-bus source")),
    ("a source: type",                          Pair(Group::Hooks)),
    ("a source: subject",                       Pair(Group::Hooks)),
    ("a source: id",                            Pair(Group::Hooks)),
    ("a source: session",                       Pair(Group::Hooks)),
    ("a webhook source: scheme",                Pair(Group::Hooks)),
    ("a webhook source: secret",                Pair(Group::Hooks)),
    ("a webhook source: body_max",              Pair(Group::Hooks)),
    ("a webhook source: rate",                  Pair(Group::Hooks)),
    ("a webhook source: tolerance",             Test("crates/node/src/webhook/tests.rs", "a_signed_time_must_be_near")),
    ("a webhook source: header",                Pair(Group::Hooks)),
    ("a webhook source: algorithm",             Pair(Group::Hooks)),
    ("a webhook source: encoding",              Pair(Group::Hooks)),
    ("a webhook source: prefix",                Pair(Group::Hooks)),
    ("a schedule: cron",                        Pair(Group::Hooks)),
    ("a schedule: zone",                        Pair(Group::Hooks)),
    ("a schedule: missed",                      Test(SCHEDULES, "fires_that_were_missed_while_nothing_ran_are_caught_up_as_the_book_says")),
    ("a schedule: missed_within",               Test(SCHEDULES, "fires_that_were_missed_while_nothing_ran_are_caught_up_as_the_book_says")),
    ("a schedule: data",                        Test(SCHEDULES, "a_fire_carries_the_data_of_the_book")),
    ("a secret: env",                           Test(SECRETS, "secrets_are_found_where_the_book_says")),
    ("a secret: file",                          Test(SECRETS, "secrets_are_found_where_the_book_says")),
    ("a secret: command",                       Test(SECRETS, "secrets_are_found_where_the_book_says")),
    ("a secret: key-vault",                     NotBuiltIn("key-vault")),
    ("a secret: cached",                        Test(SECRETS, "the_book_says_how_long_a_value_is_fresh_and_how_long_it_serves")),
    ("a secret: kept",                          Test(SECRETS, "the_book_says_how_long_a_value_is_fresh_and_how_long_it_serves")),
    ("access: rate",                            Test("crates/server/tests/all/identity/bounds.rs", "the_book_says_how_many_requests_a_caller_may_make")),
    ("access: jwt",                             Pair(Group::Access)),
    ("a token issuer: jwks",                    Test("crates/server/tests/all/identity.rs", "tokens_are_held_against_the_keys_at_the_address_of_the_book")),
    ("a token issuer: secret",                  Pair(Group::Access)),
    ("a token issuer: issuer",                  Pair(Group::Access)),
    ("a token issuer: audience",                Pair(Group::Access)),
    ("a token issuer: role_claim",              Pair(Group::Access)),
    ("an archive: folder",                      Test("crates/server/tests/all/archive.rs", "what_was_sent_is_kept_byte_for_byte_and_outlives_the_store")),
    ("an archive: timeout",                     Test(ARCHIVIST, "an_event_that_is_too_slow_twice_is_left_out")),
    ("an archive: breaker",                     Test("crates/server/tests/all/archive.rs", "events_that_are_left_out_of_the_archive_are_told_and_its_breaker_says_when")),
    ("an archive: retention",                   Test(ARCHIVIST, "old_days_are_deleted_and_the_rest_stays")),
    ("an alert: use",                           Pair(Group::Alerting)),
    ("an alert: when",                          Pair(Group::Alerting)),
    ("an alert: name",                          Pair(Group::Alerting)),
    ("an alert: severity",                      Pair(Group::Alerting)),
    ("an alert: to",                            Pair(Group::Alerting)),
    ("an alert: escalate",                      Test("crates/core/src/alerts/watch/tests.rs", "what_is_not_over_in_time_goes_to_the_next")),
    ("an alert: repeat",                        Pair(Group::Alerting)),
    ("an alert: action",                        Pair(Group::Alerting)),
    ("an alert: off",                           Pair(Group::Alerting)),
    ("a receiver: ntfy",                        Pair(Group::Alerting)),
    ("a receiver: webhook",                     Pair(Group::Alerting)),
    ("a receiver: email",                       Test(MAIL, "mail_says_that_it_begins_and_that_it_is_over")),
    ("a receiver: slack",                       Pair(Group::Alerting)),
    ("a receiver: alertmanager",                Pair(Group::Alerting)),
    ("a receiver: smtp",                        Test(MAIL, "mail_goes_over_tls_to_whom_we_trust_and_to_nobody_else")),
    ("a receiver: from",                        Test("crates/node/src/receiver/email.rs", "a_notice_is_a_letter_that_is_known_again")),
    ("a receiver: severity",                    Pair(Group::Alerting)),
    ("a receiver: hours",                       Pair(Group::Alerting)),
    ("a receiver: retry",                       Pair(Group::Alerting)),
    ("a receiver: timeout",                     Pair(Group::Alerting)),
    ("a receiver: network",                     Pair(Group::Alerting)),
    ("a receiver: secret",                      Pair(Group::Alerting)),
    ("a receiver: headers",                     Pair(Group::Alerting)),
    ("a receiver: auth",                        Pair(Group::Alerting)),
];

#[test]
fn every_key_that_a_server_shows_has_a_scenario() {
    let keys: BTreeSet<&str> = SERVED.lines().collect();
    let known: BTreeSet<&str> = EVIDENCE.iter().map(|(key, _)| *key).collect();
    assert_eq!(known.len(), EVIDENCE.len(), "each stands here once");
    assert_eq!(keys.difference(&known).collect::<Vec<_>>(), [&""; 0], "these have no scenario");
    assert_eq!(known.difference(&keys).collect::<Vec<_>>(), [&""; 0], "these are no keys");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders down");
    for (key, evidence) in EVIDENCE {
        match evidence {
            Pair(_) => {}
            Test(file, name) => {
                let text =
                    fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
                let (before, after) = text
                    .split_once(&format!("fn {name}("))
                    .unwrap_or_else(|| panic!("{key}: {file} has no test {name}"));
                let attributes = before.rsplit("\n\n").next().unwrap_or_default();
                assert!(attributes.contains("test"), "{key}: {name} is no test: {attributes}");
                let body = after.split("\n}\n").next().unwrap_or_default();
                let word = key.rsplit(' ').next().unwrap_or_default();
                let setup = &text[..text.find("test]").unwrap_or(0)];
                assert!(
                    body.contains(word) || setup.contains(word),
                    "{key}: {name} says nothing of `{word}`"
                );
            }
            NotBuiltIn(kind) => {
                let (_, book) = NO_SUCH_TARGET.iter().find(|(name, _)| name == kind).expect("it is listed");
                let checked = check_for(format!("version: 1\n{book}\n").as_bytes(), built_in());
                assert!(checked.problems.iter().any(|problem| problem.code == "not-built-in"), "{kind}");
            }
        }
    }
}

/// The keys of a group that were looked at.
struct Looked {
    group: Group,
    keys: Vec<&'static str>,
}

impl Looked {
    const fn at(group: Group) -> Self {
        Self { group, keys: Vec::new() }
    }

    /// Waits until what is seen of the two differs; `see` says nothing while it may still change. The two of a
    /// [`CONTROL`] must be alike instead.
    #[track_caller]
    fn differ(&mut self, key: &'static str, mut see: impl FnMut() -> Option<[String; 2]>) {
        let began = Instant::now();
        loop {
            let seen = see();
            if let (CONTROL, Some([first, second])) = (key, &seen) {
                assert_eq!(first, second, "a pair that is written alike is seen alike");
                return;
            }
            if seen.as_ref().is_some_and(|[first, second]| first != second) {
                break;
            }
            assert!(began.elapsed() < DIFFER_WITHIN, "{key}: changes nothing: {seen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.keys.push(key);
    }

    /// All keys of the group were looked at.
    #[track_caller]
    fn end(mut self) {
        self.keys.sort_unstable();
        let mut expected: Vec<&str> =
            EVIDENCE.iter().filter(|(_, by)| *by == Pair(self.group)).map(|(key, _)| *key).collect();
        expected.sort_unstable();
        assert_eq!(self.keys, expected);
    }
}

/// Serves a book with what its secrets need.
fn start(book: &str) -> (Folder, Server) {
    let folder = Folder::with("redrive.yaml", book);
    folder.write("secret", "first\n");
    folder.write("other", "second\n");
    folder.write("path", "/more\n");
    fs::create_dir(folder.path("sub")).expect("a folder");
    let mut command = serve(&folder, &["--rules", "redrive.yaml"]);
    command.env("REDRIVE_TEST_OWN", "1");
    let server = Server::run(command);
    (folder, server)
}
