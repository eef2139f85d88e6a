//! Lints about addresses: names of private networks, and unencrypted keys.

use std::net::IpAddr;

use super::ExampleBook::Book;
use super::{Findings, Lint, LintScope};
use redrive_core::book::model::{JwtKeys, Network, Sections, TargetEntry};
use redrive_core::book::problem::ProblemSeverity;

pub(super) const LINTS: &[Lint] = &[PRIVATE_NAME, PLAIN_KEYS];

const PLAIN_KEYS: Lint = Lint {
    code: "plain-http-keys",
    severity: ProblemSeverity::Warning,
    summary: "the keys of `access.jwt` are fetched without encryption",
    explanation: "The keys that verify tokens come over plain HTTP from another machine. An attacker in between can replace \
                  them, sign tokens and act as any user, administrators included. Use `https`.",
    bad: Book(&[
        r#"access: { jwt: { jwks: "http://issuer.example.com/keys", issuer: a, audience: redrive } }"#,
    ]),
    fix: &[("http://", "https://")],
    scope: LintScope::Book(plain_http_keys),
};

fn plain_http_keys<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let (Some(jwt), Some(span)) = (&book.access.jwt, book.access.jwt_at) else { return };
    let JwtKeys::Jwks(address) = &jwt.keys else { return };
    let host = authority(address).map(host).unwrap_or_default();
    let is_own = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if address.starts_with("http://") && !is_own {
        let message = format!("the keys at `{address}` are fetched without encryption");
        findings.report(span, message, "use `https://`");
    }
}

const PRIVATE_NAME: Lint = Lint {
    code: "private-name-without-leave",
    severity: ProblemSeverity::Warning,
    summary: "a target in a private network without `network: private`",
    explanation: "A changed DNS entry could send events to this machine, its neighbours or the metadata service of its cloud. \
                  So a name that resolves to a private address is refused, and its deliveries become dead letters, unless \
                  the target has `network: private`. This name is always private. Add that key beside `http:`, or write \
                  an address such as 127.0.0.1, which is trusted.",
    bad: Book(&[
        r#"services: { mail: { target: { http: "http://localhost:9000/events" }, events: [todo.task.created] } }"#,
    ]),
    fix: &[(r#"/events""#, r#"/events", network: private"#)],
    scope: LintScope::HttpTarget(private_name_without_leave),
};

fn private_name_without_leave<'a>(target: &'a TargetEntry, address: &'a str, findings: &mut Findings<'a>) {
    let endpoint = &target.endpoint;
    let host = authority(address).map(host).unwrap_or_default();
    if endpoint.profile.network == Some(Network::Public) && !host.is_empty() && is_inner_name(host) {
        let message = format!("`{host}` is in a private network, which this target may not call");
        let help = format!("add `network: private` beside `{}:`", endpoint.key());
        findings.report(target.span, message, help);
    }
}

/// Whether a host is a name that is valid only on this machine or in a private network.
pub(super) fn is_inner_name(host: &str) -> bool {
    const INNER: [&str; 6] = [".localhost", ".local", ".internal", ".lan", ".svc", ".home.arpa"];
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name.parse::<IpAddr>().is_err()
        && (!name.contains('.') || INNER.iter().any(|inner| name.ends_with(inner)))
}

/// The part between `//` and the path: `user:password@host:port`.
pub(super) fn authority(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    Some(&rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())])
}

/// The host of an authority, without brackets, port and credentials.
pub(super) fn host(authority: &str) -> &str {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, end) = host.strip_prefix('[').map_or((host, ':'), |literal| (literal, ']'));
    host.split(end).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn names_of_private_networks_need_leave() {
        #[rustfmt::skip]
        let cases = [
            ("this machine",             "http://localhost:9000/",                 "",                     true),
            ("in capitals",              "http://LocalHost/",                      "",                     true),
            ("and a dot at the end",     "http://localhost./",                     "",                     true),
            ("under it",                 "http://shop.localhost/",                 "",                     true),
            ("a name without a dot",     "http://notify:8080/",                    "",                     true),
            ("a cluster's",              "http://notify.default.svc/",             "",                     true),
            ("a cluster's whole name",   "http://notify.default.svc.cluster.local/", "",                   true),
            ("an intranet's",            "https://billing.corp.internal/",         "",                     true),
            ("with leave",               "http://localhost:9000/",                 ", network: private",   false),
            ("with none, in words",      "http://localhost:9000/",                 ", network: public",    true),
            ("an address",               "http://127.0.0.1:9000/",                 "",                     false),
            ("another family",           "http://[::1]:9000/",                     "",                     false),
            ("a public name",            "https://hooks.example.com/",             "",                     false),
            ("one that looks inner",     "https://internal.example.com/",          "",                     false),
        ];
        for (name, address, network, expected) in cases {
            let target = format!("target: {{ http: \"{address}\"{network} }}");
            let service = format!("version: 1\nservices:\n  s: {{ {target}, events: [a] }}\n");
            let channel = format!(
                "version: 1\nservices:\n  s: {{ target: {{ log: stdout }}, channels: {{ c: {{ {target}, events: [a] }} }} }}\n"
            );
            assert_eq!(!found(&service, LINTS).is_empty(), expected, "{name}");
            assert_eq!(!found(&channel, LINTS).is_empty(), expected, "{name}, of a channel");
        }
    }

    #[test]
    fn keys_that_tokens_are_checked_with_come_encrypted_or_from_this_machine() {
        #[rustfmt::skip]
        let cases = [
            ("encrypted",            "https://issuer.test/keys",     false),
            ("this machine",         "http://127.0.0.1:9/keys",      false),
            ("by the other family",  "http://[::1]:9/keys",          false),
            ("by name",              "http://localhost:9/keys",      false),
            ("a neighbour",          "http://10.0.0.1/keys",         true),
            ("a public address",     "http://issuer.test/keys",      true),
        ];
        for (name, address, expected) in cases {
            let book =
                format!("version: 1\naccess:\n  jwt: {{ jwks: \"{address}\", issuer: a, audience: b }}\n");
            assert_eq!(!found(&book, LINTS).is_empty(), expected, "{name}");
        }
    }

    #[test]
    fn hosts_are_found_wherever_they_stand() {
        #[rustfmt::skip]
        let cases = [
            ("a path",                "http://a.test/b",                 Some("a.test")),
            ("nothing but a host",    "http://a.test",                   Some("a.test")),
            ("a port and a query",    "https://a.test:1?b=c@d",          Some("a.test")),
            ("credentials",           "https://u:p@w@a.test#b",          Some("a.test")),
            ("a literal",             "http://u@[::1]:9/x",              Some("::1")),
            ("an empty host",         "http:///x",                       Some("")),
            ("no scheme",             "work:queue",                      None),
        ];
        for (name, address, expected) in cases {
            assert_eq!(authority(address).map(host), expected, "{name}");
        }
    }
}
