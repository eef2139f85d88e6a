//! What alerts look like in the language of Prometheus.

use super::export;
use redrive_core::alerts::catalog;
use redrive_core::book::connectors::built_in;

fn exported(book: &str) -> super::RuleFile {
    let reading = redrive_core::book::read(book, built_in());
    export(&reading.book.unwrap_or_else(|| panic!("no book: {:?}\n{book}", reading.problems)))
}

/// The expression of an alert of the whole book.
fn expression(when: &str) -> Result<String, String> {
    let exported = exported(&format!("version: 1\nalerts: [{{ when: \"{when}\", severity: high }}]\n"));
    if let Some(loss) = exported.losses.first() {
        return Err(loss.why.clone());
    }
    let line = exported.yaml.lines().find_map(|line| line.strip_prefix("        expr: "));
    Ok(serde_json::from_str(line.expect("a rule has an expression")).expect("it is quoted"))
}

#[test]
fn conditions_become_expressions() {
    let own = r#"service!="redrive-alerts""#;
    let dep = r#"dependency!~"redrive-alerts[:.].*""#;
    let attempts = |by: &str, more: &str| {
        format!("sum{by}(increase(redrive_service_attempts_total{{{own}{more}}}[2m]))")
    };
    let (failed, all) = (attempts("", ",outcome=\"failed\""), attempts("", ""));
    #[rustfmt::skip]
    let cases = [
        ("error_rate > 5% over 2m", Ok(format!("({failed} / {all} > 0.05) and ({all} >= 20 or {failed} >= 5)"))),
        ("error_rate > 5% over 2m by event_type", Ok({
            let (failed, all) = (failed.replace("sum(", "sum by (event_type) ("), all.replace("sum(", "sum by (event_type) ("));
            let (failed, all) = (failed.replace("service_attempts", "attempts"), all.replace("service_attempts", "attempts"));
            format!("({failed} / {all} > 0.05) and ({all} >= 20 or {failed} >= 5)")
        })),
        ("dead_letters > 100", Ok(format!("sum(redrive_dead_letters{{{own}}}) > 100"))),
        ("dead_letter_age > 48h by service", Ok(format!("max by (service) (redrive_dead_letter_oldest_age_seconds{{{own}}}) > 172800"))),
        ("dead_letter_inflow > 10/m", Ok(format!("sum(increase(redrive_deliveries_total{{{own},outcome=\"dead\"}}[1m])) > 10"))),
        ("auth_failures > 10/h", Ok(format!("(sum(increase(redrive_auth_failures_total{{{dep}}}[1h])) or vector(0)) + (sum(increase(redrive_auth_rejected_total{{}}[1h])) or vector(0)) > 10"))),
        ("auth_failures > 10/h by dependency", Ok(format!("sum by (dependency) (increase(redrive_auth_failures_total{{{dep}}}[1h])) > 10"))),
        ("auth_failures > 10/h by source", Err("no series has the labels for this".to_owned())),
        ("config_failures > 0 over 1h by dependency", Ok(format!("sum by (dependency) (increase(redrive_config_failures_total{{{dep}}}[1h])) > 0"))),
        ("latency_p99 > 500ms by channel", Ok(format!("histogram_quantile(0.99, sum by (le, service, channel) (rate(redrive_attempt_duration_seconds_bucket{{{own}}}[5m]))) > 0.5"))),
        ("breaker_open for 10m", Ok(format!("max by (dependency) (redrive_breaker_state{{{dep},state=~\"open|half-open\"}}) > 0"))),
        ("consumer_lag >= 5 by service", Ok(format!("sum by (service) (redrive_waiting{{{own}}}) >= 5"))),
        ("dead_letters > 5 by fingerprint", Err("failure groups are unbounded and have no series".to_owned())),
        ("dead_letters > 5 by category", Err("no series has the labels for this".to_owned())),
        ("retry_rate > 5% by event_type", Err("no series has the labels for this".to_owned())),
        ("auth_failures > 5/h by service", Err("no series has the labels for this".to_owned())),
    ];
    for (when, expected) in cases {
        assert_eq!(expression(when), expected, "{when}");
    }
}

#[test]
fn a_level_is_a_matcher() {
    let book = "version: 1
dependencies: { d.x: { kind: webhook, alerts: [{ when: error_rate > 5% over 5m, severity: high }] } }
services:
  s:
    target: { log: stdout }
    depends_on: d.x
    alerts: [{ when: breaker_open for 2m, severity: high }]
    events: [{ type: a.b, alerts: [{ when: error_rate > 5% over 5m, severity: high }] }, { type: c.*, alerts: [{ when: error_rate > 5% over 5m, severity: high }] }]
    channels: { c: { events: [a.b], alerts: [{ when: dead_letters > 5, severity: high }] } }
";
    let exported = exported(book);
    for part in [
        r#"redrive_dependency_attempts_total{dependency=\"d.x\",outcome=\"failed\"}"#,
        r#"dependency=~\"d\\\\.x\""#,
        r#"redrive_attempts_total{service=\"s\",channel=\"\",event_type=\"a.b\"}"#,
        r#"redrive_dead_letters{service=\"s\",channel=\"c\"}"#,
        r#"covers: "channel s/c""#,
        "# Left out: `error_rate > 5% over 5m` on line 8: a pattern is not a label",
    ] {
        assert!(exported.yaml.contains(part), "{part}\n{}", exported.yaml);
    }
    assert_eq!(exported.losses.len(), 1);
}

#[test]
fn what_a_book_says_is_no_template() {
    let book = "version: 1\nalerts: [{ when: dead_letters > 5, severity: high, action: \"{{ .Evil }}\" }]\n";
    let yaml = exported(book).yaml;
    assert!(yaml.contains(r#"action: "{{ \"{{\" }} .Evil }}""#), "{yaml}");
}

#[test]
fn the_whole_catalog_is_exported() {
    let alerts = catalog::NAMES.map(|name| format!("  - {{ use: {name} }}\n")).concat();
    let exported = exported(&format!("version: 1\nalerts:\n{alerts}"));
    assert_eq!(exported.yaml.matches("- alert:").count(), catalog::ALERTS.len());
    let lost: Vec<&str> = exported.losses.iter().filter_map(|loss| loss.what.split('`').nth(1)).collect();
    assert_eq!(lost, catalog::AT_ONCE.map(|alert| alert.name), "what is told at once has no series");
}

#[test]
fn a_book_without_alerts_is_a_file_without_rules() {
    assert!(exported("version: 1\n").yaml.ends_with("rules: []\n"));
}

#[test]
fn alerts_of_one_name_are_told_apart() {
    let alert = "{ name: same, when: dead_letters > 5, severity: high }";
    let service =
        format!("services: {{ s: {{ target: {{ log: stdout }}, events: [a], alerts: [{alert}] }} }}");
    let yaml = exported(&format!("version: 1\nalerts: [{alert}, {alert}]\n{service}\n")).yaml;
    let names: Vec<&str> = yaml.lines().filter_map(|line| line.strip_prefix("      - alert: ")).collect();
    assert_eq!(names, [r#""same""#, r#""same (2)""#, r#""same""#], "the last has a label of its own: {yaml}");
}
