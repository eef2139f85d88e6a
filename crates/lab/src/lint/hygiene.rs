//! Lints about the book itself: unused definitions, shadowed names, secrets, and unencrypted addresses.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::ExampleBook::Book;
use super::addresses::{authority, host, is_inner_name};
use super::sources::may_feed;
use super::{Findings, Lint, LintScope};
use redrive_core::book::connectors::Endpoint;
use redrive_core::book::model::{Alert, At, JwtKeys, ReactionName, Sections, SourceEntry, TargetEntry};
use redrive_core::book::problem::{BookSpan, ProblemSeverity, nearest};
use redrive_core::book::schema::NameKind;
use redrive_core::book::source_template::SourceTemplate;
use redrive_core::ids::Name;
use redrive_core::limits;
use redrive_core::policy::breaker::{BreakerSettings, RawBreaker};
use redrive_core::policy::catalog;
use redrive_core::policy::rule::GrowingTimeout;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "unrouted-source",
        severity: ProblemSeverity::Warning,
        summary: "a source whose events no service receives",
        explanation: "The source creates events of a type that matches no row of a service, so they are recorded as unrouted. \
                      Usually one side has a typo. With placeholders in the type, only the part before the first is \
                      compared. Add the type to the `events` of a service, or correct it.",
        bad: Book(&[
            r#"sources: { nightly: { schedule: { cron: "0 3 * * *" }, type: report.nightly } }"#,
            "services: { reports: { target: { exec: [./report] }, events: [reports.nightly] } }",
        ]),
        fix: &[("type: report.nightly", "type: reports.nightly")],
        scope: LintScope::Book(unrouted_source),
    },
    Lint {
        code: "sender-chooses-type",
        severity: ProblemSeverity::Warning,
        summary: "a webhook type that begins with a placeholder",
        explanation: "The sender controls the whole event type, so the secret of this one webhook is enough to forge events of \
                      any other source. Begin the type with a fixed word, such as the source's name.",
        bad: Book(&[
            r#"sources: { shop: { webhook: { scheme: stripe, secret: shop }, type: "{data.type}" } }"#,
            "secrets: { shop: { env: SHOP_SECRET } }",
            "services: { billing: { target: { exec: [./bill] }, events: [shop.*] } }",
        ]),
        fix: &[(r#""{data.type}""#, r#""shop.{data.type}""#)],
        scope: LintScope::Book(sender_chooses_type),
    },
    Lint {
        code: "unused-definition",
        severity: ProblemSeverity::Warning,
        summary: "an unused policy, breaker, timeout, throttle, dependency, secret or receiver",
        explanation: "The definition is never referenced. Often a service should use it and names something else, so it runs \
                      under other settings than intended. Reference it, or remove it. In a book without services, \
                      dependencies are used by a program and not reported.",
        bad: Book(&["retry_policies: { mine: { from: standard, retries: 2 } }"]),
        fix: &[("retry_policies:", "defaults: { retry: mine }\nretry_policies:")],
        scope: LintScope::Book(unused_definition),
    },
    Lint {
        code: "shadowed-catalog",
        severity: ProblemSeverity::Info,
        summary: "a definition with a name of the catalog and other values",
        explanation: "The book defines a policy, breaker or timeout under a name of the catalog, with other values and without \
                      extending it. Readers expect the catalog's numbers. Choose another name, or write `from:` with the \
                      same name to mark it as a change.",
        bad: Book(&["retry_policies: { standard: { initial: 10s, retries: 2 } }"]),
        fix: &[("initial:", "from: standard, initial:")],
        scope: LintScope::Book(shadowed_catalog),
    },
    Lint {
        code: "secret-kept-shorter-than-cached",
        severity: ProblemSeverity::Error,
        summary: "a secret with `kept` shorter than `cached`",
        explanation: "A fetched secret is fresh for `cached`, and serves until `kept` if its provider is unavailable. With a \
                      shorter `kept` it is dropped before the next fetch, and a provider outage stops every call at once. \
                      Make `kept` the longer one; the defaults are 5m and 30m.",
        bad: Book(&[
            "secrets: { github: { env: GITHUB_WEBHOOK_SECRET, cached: 1h } }",
            "sources: { github: { webhook: { scheme: github, secret: github }, type: github.event } }",
        ]),
        fix: &[("cached: 1h", "cached: 1h, kept: 4h")],
        scope: LintScope::Book(secret_kept_shorter_than_cached),
    },
    Lint {
        code: "secret-in-book",
        severity: ProblemSeverity::Warning,
        summary: "a password in an address",
        explanation: "A rule book is stored in version control, shown on pages and exported, and target addresses appear in \
                      logs. A password in an address is readable in all these places. Remove it, let the program read it \
                      from its environment, and change the password.",
        bad: Book(&[
            "services:",
            r#"  mail: { target: { http: "https://user:hunter2@hooks.example.test/events" }, events: [todo.task.created] }"#,
        ]),
        fix: &[
            ("user:hunter2@", ""),
            (r#"/events""#, r#"/events", secret: mail"#),
            ("services:", "secrets: { mail: { env: MAIL_SECRET } }\nservices:"),
        ],
        scope: LintScope::Book(secret_in_book),
    },
    Lint {
        code: "plain-http",
        severity: ProblemSeverity::Info,
        summary: "an unencrypted target at a public address",
        explanation: "Plain HTTP to a public address lets others on the network read and change the events; a signature only \
                      reveals changes. Use `https`. Addresses of this machine, of private networks and names without a \
                      dot are not reported.",
        bad: Book(&[
            r#"services: { mail: { target: { http: "http://hooks.example.com/events" }, events: [todo.task.created] } }"#,
        ]),
        fix: &[("http://", "https://")],
        scope: LintScope::HttpTarget(plain_http),
    },
];

fn unrouted_source(book: &Sections, findings: &mut Findings<'_>) {
    // A book without services is part of another.
    if book.services.is_empty() {
        return;
    }
    for (name, source) in &book.sources {
        let template = source.value.event_type.as_deref().and_then(|text| SourceTemplate::parse(text).ok());
        let Some(event_type) = template.as_ref().and_then(SourceTemplate::literal) else {
            unrouted_beginning(book, name, source, findings);
            continue;
        };
        if book.rows().any(|(_, _, row)| row.pattern.value.matches(event_type)) {
            continue;
        }
        let message = format!("no service receives `{event_type}` of the source `{name}`");
        findings.report(source.span, message, suggest_row(book, event_type));
    }
}

pub(super) fn suggest_row(book: &Sections, event_type: &str) -> String {
    let types: Vec<&str> = book.rows().map(|(_, _, row)| row.pattern.value.as_str()).collect();
    nearest(event_type, types).map_or_else(
        || "add it to the `events` of a service".to_owned(),
        |near| format!("did you mean `{near}`?"),
    )
}

/// The same where only the beginning of the types is known.
fn unrouted_beginning(book: &Sections, name: &str, source: &At<SourceEntry>, findings: &mut Findings<'_>) {
    let template = source.value.event_type.as_deref();
    let Some((beginning, _)) = template.and_then(|text| text.split_once('{')) else { return };
    if book.rows().any(|(_, _, row)| may_feed(&source.value, &row.pattern.value)) {
        return;
    }
    let message = format!("no service receives types that begin with `{beginning}`, as those of `{name}` do");
    findings.report(source.span, message, "add such types to the `events` of a service");
}

fn sender_chooses_type(book: &Sections, findings: &mut Findings<'_>) {
    for (name, source) in &book.sources {
        let template = source.value.event_type.as_deref().unwrap_or_default();
        let is_called = source.value.endpoint.connector.dependency.is_none();
        if !is_called || !template.starts_with('{') {
            continue;
        }
        let message = format!("the sender of `{name}` chooses the whole event type");
        findings.report(source.span, message, format!("begin it with a fixed word: `{name}.{template}`"));
    }
}

fn unused_definition<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let used = NamesUsed::of(book);
    let mut look = |kind: NameKind, name: &str, span: BookSpan| {
        if !used.has(kind, name) {
            let message = format!("the {} `{name}` is not used", kind.as_str());
            findings.report(span, message, "use it or remove it");
        }
    };
    book.policies.iter().for_each(|(name, at)| look(NameKind::Policy, name.as_str(), at.span));
    book.breakers.iter().for_each(|(name, at)| look(NameKind::Breaker, name.as_str(), at.span));
    book.timeouts.iter().for_each(|(name, at)| look(NameKind::Timeout, name, at.span));
    book.throttles.iter().for_each(|(name, at)| look(NameKind::Throttle, name, at.span));
    book.secrets.iter().for_each(|(name, at)| look(NameKind::Secret, name, at.span));
    book.receivers.iter().for_each(|(name, at)| look(NameKind::Receiver, name, at.span));
    if book.services.is_empty() {
        // A program names its dependencies in its code.
        return;
    }
    for (name, entry) in &book.dependencies {
        // An exported Dapr file uses it.
        if entry.dapr.is_none() && !used.has(NameKind::Dependency, name.as_str()) {
            findings.within([&book.defaults, &entry.layer], |findings| {
                let message = format!("the dependency `{name}` is not used");
                findings.report(entry.span, message, "use it or remove it");
            });
        }
    }
}

#[derive(Default)]
struct NamesUsed<'a>(BTreeSet<(NameKind, Cow<'a, str>)>);

impl<'a> NamesUsed<'a> {
    fn add<N: Into<Cow<'a, str>>>(&mut self, kind: NameKind, names: impl IntoIterator<Item = N>) {
        self.0.extend(names.into_iter().map(|name| (kind, name.into())));
    }

    fn has(&self, kind: NameKind, name: &str) -> bool {
        self.0.contains(&(kind, Cow::Borrowed(name)))
    }

    fn of(book: &'a Sections) -> Self {
        let mut used = Self::default();
        // The built-in rule uses these policies of the catalog.
        used.add(NameKind::Policy, ["standard", catalog::RATE_LIMITED_POLICY]);
        for (name, at) in &book.policies {
            used.add(NameKind::Policy, at.value.from.iter().filter(|from| *from != name).map(Name::as_str));
        }
        for (name, at) in &book.breakers {
            used.add(NameKind::Breaker, at.value.from.iter().filter(|from| *from != name).map(Name::as_str));
        }
        used.by_layers(book);
        used.by_edges(book);
        for entry in book.dependencies.values() {
            used.add(NameKind::Throttle, entry.throttle.iter().map(|at| at.value.as_str()));
        }
        for kind in book.secrets.values().filter_map(|at| at.value.endpoint.connector.dependency) {
            let vaults = book.dependencies.values().filter(|entry| entry.kind == kind);
            used.add(NameKind::Dependency, vaults.map(|entry| entry.name.as_str()));
        }
        used
    }

    fn by_layers(&mut self, book: &'a Sections) {
        for layer in book.layers() {
            let policies = layer.reactions.iter().filter_map(|(_, at)| match &at.value {
                ReactionName::Policy(name) => Some(name.as_str()),
                ReactionName::DeadLetter | ReactionName::Pause => None,
            });
            self.add(NameKind::Policy, policies);
            let breaker = layer.breaker.as_ref().and_then(|at| at.value.as_ref());
            self.add(NameKind::Breaker, breaker.map(Name::as_str));
            self.add(NameKind::Timeout, layer.timeout.as_ref().and_then(|at| at.value.name.as_deref()));
            self.add(NameKind::Dependency, layer.facts.uses.iter().map(|at| at.value.as_str()));
            self.add(NameKind::Receiver, layer.alerts.iter().flat_map(Alert::receivers));
            if layer.dead_letter.alert.is_some() {
                self.add(NameKind::Receiver, book.receivers.keys().map(String::as_str));
            }
        }
        self.add(NameKind::Receiver, book.alerts.iter().flat_map(Alert::receivers));
        let retries = book.receivers.values().filter_map(|at| at.value.retry.as_ref());
        self.add(NameKind::Policy, retries.map(|at| at.value.as_str()));
    }

    fn by_edges(&mut self, book: &'a Sections) {
        for service in &book.services {
            // A target without `depends_on` has a dependency of its own, named after its service and channel.
            self.add(NameKind::Dependency, [service.name.as_str()]);
            let channels = service.channels.iter();
            self.add(
                NameKind::Dependency,
                channels.clone().map(|channel| format!("{}.{}", service.name, channel.name)),
            );
            let named =
                service.depends_on.iter().chain(channels.filter_map(|channel| channel.depends_on.as_ref()));
            self.add(NameKind::Dependency, named.map(|at| at.value.as_str()));
        }
        let of_rows = book.rows().filter_map(|(_, _, row)| row.depends_on.as_ref());
        self.add(NameKind::Dependency, of_rows.map(|at| at.value.as_str()));
        let secrets = endpoints(book).flat_map(|(endpoint, _)| &endpoint.profile.secrets);
        self.add(NameKind::Secret, secrets.map(String::as_str));
        for source in book.sources.values().map(|at| &at.value) {
            let named = source.depends_on.iter().chain(&source.facts.uses);
            self.add(NameKind::Dependency, named.map(|at| at.value.as_str()));
        }
        if let Some(JwtKeys::Secret(secret)) = book.access.jwt.as_ref().map(|jwt| &jwt.keys) {
            self.add(NameKind::Secret, [secret.as_str()]);
        }
        let breaker = book.archive.as_ref().and_then(|archive| archive.breaker.as_ref());
        self.add(NameKind::Breaker, breaker.map(|at| at.value.as_str()));
    }
}

fn endpoints(book: &Sections) -> impl Iterator<Item = (&Endpoint, BookSpan)> {
    let targets = book.targets().map(|target| (&target.endpoint, target.span));
    let sources = book.sources.values().map(|at| (&at.value.endpoint, at.span));
    let receivers = book.receivers.values().map(|at| (&at.value.endpoint, at.span));
    let archive = book.archive.iter().map(|archive| (&archive.endpoint, archive.span));
    targets.chain(receivers).chain(sources).chain(archive)
}

fn shadowed_catalog<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let mut report = |kind: NameKind, name: &str, span: BookSpan| {
        let message = format!("the {} `{name}` differs from the one in the catalog", kind.as_str());
        let help = match kind {
            NameKind::Policy | NameKind::Breaker => format!("choose another name, or write `from: {name}`"),
            NameKind::Timeout
            | NameKind::Throttle
            | NameKind::Dependency
            | NameKind::Secret
            | NameKind::Receiver => "choose another name".to_owned(),
        };
        findings.report(span, message, help);
    };
    for (name, at) in &book.policies {
        let known = catalog::policy(name.as_str()).filter(|_| at.value.from.as_ref() != Some(name));
        if known.is_some_and(|known| known.backoff != at.value.backoff) {
            report(NameKind::Policy, name.as_str(), at.span);
        }
    }
    for (name, at) in &book.breakers {
        let known = catalog::breaker(name.as_str()).filter(|_| at.value.from.as_ref() != Some(name));
        let settings = known.and_then(|known| BreakerSettings::try_from(RawBreaker::from(known)).ok());
        if settings.is_some_and(|settings| settings != at.value.settings) {
            report(NameKind::Breaker, name.as_str(), at.span);
        }
    }
    for (name, at) in &book.timeouts {
        let known = catalog::named_timeout(name).map(|known| GrowingTimeout::fixed(known.limit));
        if known.is_some_and(|known| at.value.whole != Some(known)) {
            report(NameKind::Timeout, name, at.span);
        }
    }
}

fn secret_kept_shorter_than_cached<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for At { value: secret, span } in book.secrets.values() {
        let cached = secret.cached.as_ref().map_or(limits::SECRET_CACHED_DEFAULT, |at| at.value);
        let kept = secret.kept.as_ref().map_or(limits::SECRET_KEPT_DEFAULT, |at| at.value);
        if kept < cached {
            let place = secret.kept.as_ref().or(secret.cached.as_ref()).map_or(*span, |at| at.span);
            let [cached, kept] = [cached, kept].map(show_duration);
            let message = format!("this secret is cached for {cached}, and kept only for {kept}");
            findings.report(place, message, format!("write `kept: {cached}` or more"));
        }
    }
}

fn secret_in_book<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (endpoint, span) in endpoints(book) {
        if endpoint.profile.addresses.iter().any(|address| has_password(address)) {
            let message = "this address contains a password";
            findings.report(span, message, "remove it from the address, and change it");
        }
    }
}

fn has_password(address: &str) -> bool {
    let user = authority(address).and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

fn plain_http<'a>(target: &'a TargetEntry, address: &'a str, findings: &mut Findings<'a>) {
    if address.starts_with("http://") && authority(address).is_some_and(looks_public) {
        let message = format!("events are sent to `{address}` without encryption");
        findings.report(target.span, message, "use `https://`");
    }
}

/// Whether an authority is neither of this machine nor of a private network, judged by its name.
fn looks_public(authority: &str) -> bool {
    let host = host(authority);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            !(ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified())
        }
        Ok(IpAddr::V6(ip)) => {
            !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified())
        }
        Err(_) => !is_inner_name(host) && host.rsplit('.').next() != Some("test"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::super::{alerts, check, find, idempotency, letters, patterns};
    use super::{has_password, looks_public};
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::problem::{Problem, ProblemSeverity};

    #[test]
    fn the_beginning_of_a_type_is_enough_to_see_that_it_is_unrouted() {
        #[rustfmt::skip]
        let cases = [
            ("another word",          "stripe.{data.type}",   "shop.*",          true),
            ("the same word",         "stripe.{data.type}",   "stripe.*",        false),
            ("a row below it",        "stripe.{data.type}",   "stripe.paid",     false),
            ("a row that takes all",  "stripe.{data.type}",   "**",              false),
            ("half a word",           "stripe.in{data.type}", "stripe.paid",     true),
            ("a row above it",        "stripe.{data.type}",   "stripe",          true),
            ("no beginning",          "{data.type}",          "shop.*",          false),
        ];
        for (name, event_type, row, expected) in cases {
            let book = format!(
                "version: 1\nsources: {{ s: {{ webhook: {{ scheme: stripe, secret: k }}, type: \"{event_type}\" }} }}\nsecrets: {{ k: {{ env: K }} }}\nservices:\n  b: {{ target: {{ log: stdout }}, events: [\"{row}\"] }}\n"
            );
            let lint = find("unrouted-source").expect("it is listed");
            let problems = check(book.as_bytes(), built_in()).problems;
            assert_eq!(
                problems.iter().any(|problem| problem.code == lint.code),
                expected,
                "{name}: {problems:?}"
            );
        }
    }

    #[test]
    fn what_is_defined_is_used_or_reported() {
        let service = "services:\n  s: { target: { log: stdout }, events: [a], channels: { c: { target: { log: stdout }, events: [a] } } }\n";
        #[rustfmt::skip]
        let cases = [
            ("a policy extended by itself only", "retry_policies:\n  worker: { from: worker, retries: 9 }\n", vec!["3:3 unused-definition"]),
            ("a policy that others extend",      "retry_policies:\n  a: { from: worker }\n  b: { from: a }\ndefaults: { retry: b }\n", vec![]),
            ("the default policy",               "retry_policies:\n  standard: { from: standard, retries: 2 }\n  upstream: { from: upstream, retries: 2 }\n", vec![]),
            ("a breaker",                        "breakers:\n  b: { trip: { consecutive: 2 }, open: 1s }\n", vec!["3:3 unused-definition"]),
            ("a breaker that others extend",     "breakers:\n  b: { trip: { consecutive: 2 }, open: 1s }\n  c: { from: b, open: 2s }\ndefaults: { breaker: c }\n", vec![]),
            ("a timeout",                        "timeouts: { long: 1h }\n", vec!["2:13 unused-definition"]),
            ("a timeout that is named",          "timeouts: { long: 1h }\ndefaults: { timeout: long }\n", vec![]),
            ("a throttle",                       "throttles: { t: { in_flight: 2 } }\n", vec!["2:14 unused-definition"]),
            ("a dependency and its throttle",    "throttles: { t: { in_flight: 2 } }\ndependencies: { d: { kind: smtp, throttle: t } }\n", vec!["3:17 unused-definition"]),
            ("what the consumer uses",           "dependencies: { d: { kind: smtp } }\ndefaults: { facts: { uses: [d] } }\n", vec![]),
            ("exported to Dapr",                 "dependencies: { d: { kind: redis, dapr: { component: state } } }\n", vec![]),
            ("a target's own dependency",        "dependencies: { s: { kind: webhook }, s.c: { kind: smtp } }\n", vec![]),
            ("a vault for a secret",             "dependencies: { v: { kind: key-vault } }\nsecrets: { k: { key-vault: \"https://v.example.test/k\" } }\nsources: { g: { webhook: { scheme: github, secret: k }, type: \"a{data.a}\" } }\n", vec![]),
            ("a secret",                         "secrets: { k: { env: K } }\n", vec!["2:12 unused-definition"]),
            ("a receiver",                       "receivers: { r: { webhook: \"https://r.test/\" } }\n", vec!["2:14 unused-definition"]),
            ("a notified receiver",              "receivers: { r: { webhook: \"https://r.test/\" } }\nalerts: [{ when: breaker_opened, severity: high, to: [r] }]\n", vec![]),
            ("a silenced dependency",            "dependencies: { d: { kind: smtp, allow: [{ lint: unused-definition, because: soon }] } }\n", vec![]),
            ("the catalog's values again",       "timeouts: { fast: 5s }\nbreakers:\n  stateBreaker: { trip: { consecutive: 3 }, open: 30s }\ndefaults: { timeout: fast, breaker: stateBreaker }\n", vec![]),
            ("other values by its names",        "timeouts: { fast: 6s }\nbreakers:\n  stateBreaker: { trip: { consecutive: 9 }, open: 30s }\ndefaults: { timeout: fast, breaker: stateBreaker }\n", vec!["2:13 shadowed-catalog", "4:3 shadowed-catalog"]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(found(&format!("version: 1\n{text}{service}"), super::LINTS), expected, "{name}");
        }
        let of_a_program = "version: 1\nbreakers:\n  b: { trip: { consecutive: 2 }, open: 1s }\ndependencies: { d: { kind: smtp } }\n";
        assert_eq!(
            found(of_a_program, super::LINTS),
            ["3:3 unused-definition"],
            "a program names its dependencies"
        );
    }

    #[test]
    fn addresses_are_judged_by_what_they_look_like() {
        #[rustfmt::skip]
        let public = [
            ("example.com", true), ("example.com:8080", true), ("8.8.8.8", true), ("[2001:db8::1]:80", true),
            ("localhost:9000", false), ("127.0.0.1:9000", false), ("10.1.2.3", false), ("[::1]:80", false), ("[fd00::1]", false),
            ("notify:9000", false), ("notify.default.svc", false), ("printer.local", false), ("user@localhost", false), ("", false),
        ];
        for (authority, expected) in public {
            assert_eq!(looks_public(authority), expected, "{authority}");
        }
        #[rustfmt::skip]
        let secret = [
            ("https://user:pass@example.com/x", true), ("redis://:pass@redis:6379", true), ("https://user@example.com", false),
            ("https://user:@example.com", false), ("https://example.com/a:b@c", false), ("ops@example.test", false), ("work:queue", false),
        ];
        for (address, expected) in secret {
            assert_eq!(has_password(address), expected, "{address}");
        }
    }

    #[test]
    fn a_small_book_has_no_warnings() {
        let book = "version: 1
services:
  mail:
    target: { http: \"http://127.0.0.1:9000/events\" }
    retry: patient
    timeout: 30s
    events: [todo.task.created, { type: todo.reminder.fired, retry: critical }]
";
        let families = [super::LINTS, idempotency::LINTS, letters::LINTS, alerts::LINTS, patterns::LINTS];
        let checked = check(book.as_bytes(), built_in());
        let ours =
            |problem: &&Problem| families.iter().copied().flatten().any(|lint| lint.code == problem.code);
        let loud: Vec<_> = checked
            .problems
            .iter()
            .filter(ours)
            .filter(|problem| problem.severity != ProblemSeverity::Info)
            .collect();
        assert!(loud.is_empty(), "{loud:?}");
    }

    fn codes(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn every_point_of_the_checklist_is_covered_by_something_that_exists() {
        #[rustfmt::skip]
        let errors = [
            ("undefined-name", "version: 1\ndefaults: { retry: standrd }\n"),
            ("bad-jitter",     "version: 1\nretry_policies: { a: { initial: 1s, retries: 1, jitter: some } }\n"),
            ("bad-template",   "version: 1\ndefaults: { dead_letter: { name: \"_{servce}\" } }\n"),
            ("bad-duration",   "version: 1\ndefaults: { dead_letter: { retention: 30 } }\n"),
            ("bad-condition",  "version: 1\nalerts: [{ when: letters > 5, severity: high }]\n"),
            ("zero-timeout",   "version: 1\ndefaults: { timeout: 0s }\n"),
            ("out-of-range",   "version: 1\nretry_policies: { a: { initial: 1s, retries: 999999 } }\n"),
            ("missing-key",    "version: 1\nbreakers: { a: { trip: { consecutive: 5 } } }\n"),
        ];
        for (code, book) in errors {
            let problems = check(book.as_bytes(), built_in()).problems;
            assert!(problems.iter().any(|problem| problem.code == code), "{code}: {problems:?}");
        }
        let text = include_str!("../../../../docs/reference/checklist.md");
        let rows = text.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
        let mut count = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, _, point, lints, refused, construction, _] = cells.as_slice() else { panic!("{row}") };
            assert!(!lints.is_empty() || !refused.is_empty() || !construction.is_empty(), "{point}");
            for code in codes(lints) {
                assert!(find(code).is_some(), "{point}: no lint `{code}`");
            }
            for code in codes(refused) {
                assert!(errors.iter().any(|(known, _)| *known == code), "{point}: no error `{code}`");
            }
            count += 1;
        }
        assert_eq!(count, 14 + 10, "the checklist and the mistakes, each point once");
    }
}
