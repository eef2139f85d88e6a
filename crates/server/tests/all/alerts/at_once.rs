//! What people are told of at once, at a real server: each trouble reaches the receiver, once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::notices;
use crate::identity::get;
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, status};

/// The alerts that the book of troubles leads to while its services stay.
const FOUND: [&str; 6] = [
    "credentials-refused",
    "misconfigured",
    "internal-failure",
    "policy-exhausted",
    "secret-gone",
    "archive-stuck",
];

/// How often each alert was told to the receiver that begins.
fn begun(hook: &Target) -> BTreeMap<String, usize> {
    let mut begun = BTreeMap::new();
    for notice in notices(hook).iter().filter(|notice| notice["stage"] == "firing") {
        *begun.entry(notice["alert"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    begun
}

/// What was said of an alert first.
#[track_caller]
fn told(hook: &Target, alert: &str) -> Value {
    until(&format!("{alert} is told"), || notices(hook).into_iter().find(|notice| notice["alert"] == alert))
}

/// A book with a secret that is away, an archive that is not a folder, and those services.
fn book_of_troubles(services: &str, hook: &str) -> String {
    format!(
        "version: 1
secrets: {{ away: {{ command: [\"false\"] }} }}
sources: {{ lost: {{ webhook: {{ scheme: github, secret: away }}, type: lost }} }}
archive: {{ folder: archive }}
retry_policies:
  once: {{ delays: [10ms], retries: 1, jitter: none, alert_when_exhausted: true }}
  much-later: {{ delays: [10h], retries: 1, jitter: none }}
services:
{services}receivers: {{ hook: {{ webhook: \"{hook}\" }} }}
"
    )
}

#[test]
fn each_trouble_reaches_a_receiver_that_no_alert_names_and_does_so_once() {
    let target = Target::start(|call| match call.path.as_str() {
        "/refused" => status(401),
        "/broken" => status(418),
        "/moved" => status(410),
        _ => status(503),
    });
    let hook = Target::willing();
    let (at, services) = (target.address, ["refused", "broken", "moved", "tired", "later"]);
    let service = |name: &str, more: &str| {
        format!(
            "  {name}: {{ target: {{ http: \"http://{at}/{name}\" }}, breaker: none, events: [{name}.*]{more} }}\n"
        )
    };
    let book = |services: &str| book_of_troubles(services, &hook.url());
    let steady = [
        service("refused", ""),
        service("broken", ", classify: [{ status: 418, as: internal }]"),
        service("moved", ", classify: [{ status: 410, as: fatal }]"),
        service("tired", ", retry: once"),
    ]
    .concat();
    let folder =
        Folder::with("redrive.yaml", &book(&(steady.clone() + &service("later", ", retry: much-later"))));
    folder.write("archive", "this is not a folder");
    let server = Server::start(&folder);
    for number in 0..50 {
        for name in services {
            server.accept(&format!("{name}.a"), &format!("{name}-{number}"), "");
        }
    }
    for alert in FOUND {
        told(&hook, alert);
    }
    let refused = told(&hook, "credentials-refused");
    assert_eq!(
        (&refused["severity"], &refused["subjects"][0]["of"]),
        (&json!("high"), &json!("service=refused"))
    );
    let value = refused["subjects"][0]["value"].as_str().unwrap_or_default();
    assert!(value.contains("HTTP_401") || value.contains("UNAUTHORIZED"), "{value}");
    let misconfigured = told(&hook, "misconfigured")["subjects"][0].clone();
    assert_eq!(misconfigured["of"], "service=moved");
    // The delivery that it names can be looked up, by those who read the log, too.
    let value = misconfigured["value"].as_str().unwrap_or_default();
    assert!(value.contains("delivery "), "{value}");
    let line = server.err.wait_for("alert=\"misconfigured\"");
    assert!(line.contains("delivery ") && !line.contains("[secret]"), "{line}");
    assert_eq!(told(&hook, "secret-gone")["subjects"][0]["of"], "secret=away");

    // A service goes while deliveries wait for it.
    folder.write("redrive.yaml", book(&steady));
    server.signal("HUP");
    let removed = told(&hook, "service-removed");
    assert!(removed["summary"].as_str().unwrap_or_default().contains("50 deliveries"), "{removed}");
    until("all have failed", || {
        let services = server.status()["services"].clone();
        let dead = |name: &str| {
            services
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["service"] == name && one["dead"] == 50))
        };
        services
            .as_array()
            .filter(|_| ["refused", "broken", "moved", "tired"].into_iter().all(dead))
            .map(drop)
    });
    super::until_looked_at(&server, 3);
    let begun = begun(&hook);
    assert!(begun.values().all(|count| *count == 1), "each is told once: {begun:?}");
    assert_eq!(begun.len(), FOUND.len() + 1, "and no other: {begun:?}");
    server.stop().assert_calm();
}

#[test]
fn bad_signatures_keys_and_an_issuer_that_is_away_are_told() {
    let hook = Target::willing();
    let folder = Folder::with(
        "redrive.yaml",
        &format!(
            "version: 1
secrets: {{ shared: {{ file: secret }} }}
access: {{ jwt: {{ jwks: \"http://127.0.0.1:9/keys\", issuer: \"https://issuer.test\", audience: redrive }} }}
sources: {{ own: {{ webhook: {{ scheme: hmac, secret: shared, header: X-Sum }}, type: own.called }} }}
services: {{ bot: {{ target: {{ log: stdout }}, events: [own.*] }} }}
receivers: {{ hook: {{ webhook: \"{}\" }} }}
alerts:
  - {{ use: authentication-failures, to: [hook] }}
  - {{ name: all, when: auth_failures > 20/h, severity: high, to: [hook] }}
  - {{ name: doors, when: auth_failures > 11/h by source, severity: high, to: [hook] }}
",
            hook.url()
        ),
    );
    folder.write("secret", "hush");
    let server = Server::start(&folder);
    assert_eq!(told(&hook, "issuer-gone")["subjects"][0]["of"], "issuer");
    for _ in 0..12 {
        assert_eq!(server.post("/v1/hooks/own", "X-Sum: 00\r\n", "{}").status, 401);
    }
    let doors = told(&hook, "doors");
    assert_eq!(doors["subjects"][0]["of"], "source=/v1/hooks/own", "{doors}");
    assert_eq!(doors["subjects"][0]["value"], "12/h", "{doors}");
    told(&hook, "authentication-failures");
    assert!(!begun(&hook).contains_key("all"), "keys are missing yet");
    for _ in 0..8 {
        assert_ne!(get(&server, "/v1/status", "rk_00000000_nothing").status, 200);
    }
    // Without the bad token there would be 20.
    assert_ne!(get(&server, "/v1/status", "e30.e30.AAAA").status, 200);
    assert_eq!(told(&hook, "all")["subjects"][0]["value"], "21/h");
    let begun = begun(&hook);
    assert!(begun.values().all(|count| *count == 1), "{begun:?}");
    server.stop().assert_calm();
}
