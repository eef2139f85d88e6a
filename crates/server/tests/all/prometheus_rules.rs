//! `redrive export prometheus`: what it writes, Prometheus' own tool has nothing to say against.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use redrive_core::alerts::catalog;
use serde_json::json;

use crate::examples::{SYSTEMS, path};
use crate::run::{Folder, redrive};
use crate::server::{Server, until};
use crate::target::{Target, book, status};

/// Has Prometheus' own tool read a rule file, and says how many rules it found.
fn checked(rules: &str, name: &str) -> usize {
    let folder = Folder::with("rules.yml", rules);
    let run = Command::new("promtool")
        .args(["check", "rules", "--lint=all", "--lint-fatal"])
        .arg(folder.path("rules.yml"))
        .output()
        .expect("`promtool` is there, from Debian's package `prometheus`; `scripts/test` installs it");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{name}: {said}\n{rules}");
    let found = said.split("SUCCESS: ").nth(1).and_then(|rest| rest.split_once(" rules found"));
    found.and_then(|(count, _)| count.parse().ok()).unwrap_or_else(|| panic!("{name}: {said}"))
}

#[test]
fn the_book_of_every_system_is_a_good_rule_file() {
    let mut count = 0;
    for path in SYSTEMS.map(path) {
        let path = path.to_str().expect("our own names are text");
        let rules = redrive(&["export", "prometheus", "--rules", path]).printed();
        count += checked(&rules, path);
    }
    assert!(count >= 23, "every alert of the books is a rule: {count}");
}

#[test]
fn the_whole_catalog_is_a_good_rule_file() {
    let alerts = catalog::ALERTS.map(|alert| format!("  - {{ use: {} }}\n", alert.name)).concat();
    let folder = Folder::with("redrive.yaml", &format!("version: 1\nalerts:\n{alerts}"));
    let rules = folder.run(&["export", "prometheus"]).printed();
    assert_eq!(checked(&rules, "the catalog"), catalog::ALERTS.len());
}

/// A page of metrics by its series.
fn series(page: &str) -> BTreeMap<&str, &str> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).collect()
}

/// A test for Prometheus' own tool: a server that is scraped every 15 seconds looks like the first page for a
/// minute, and from then on like the second, and each of these alerts fires a minute later and not before.
fn unit_test(before: &str, after: &str, alerts: &[&str]) -> String {
    let (before, after) = (series(before), series(after));
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let mut test =
        "rule_files: [rules.yml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n"
            .to_owned();
    for name in names {
        let at = |page: &BTreeMap<&str, &str>| page.get(name).copied().unwrap_or("_").to_owned();
        let values = [vec![at(&before); 5], vec![at(&after); 5]].concat().join(" ");
        test.push_str(&format!("      - {{ series: {}, values: \"{values}\" }}\n", json!(name)));
    }
    test.push_str("    promql_expr_test:\n");
    for alert in alerts {
        let firing = json!(format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"));
        let none = format!("      - {{ expr: {firing}, eval_time: 1m, exp_samples: [] }}\n");
        let one = format!(
            "      - {{ expr: {firing}, eval_time: 2m, exp_samples: [{{ labels: \"{{}}\", value: 1 }}] }}\n"
        );
        test.push_str(&(none + &one));
    }
    test
}

#[test]
fn an_exported_rule_fires_on_the_first_burst() {
    let target = Target::start(|_| status(422));
    let alerts = "alerts:
  - { name: burst, when: dead_letter_inflow > 10/m, severity: high }
  - { name: errors, when: error_rate > 20% over 2m, severity: high }
  - { name: of a service, when: \"error_rate > 20% over 2m by service\", severity: high }
";
    let folder = Folder::with("redrive.yaml", &(book(&target, &[]) + alerts));
    let server = Server::start(&folder);
    let before = server.get("/metrics").body;
    for number in 0..20 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    let dead = "redrive_deliveries_total{service=\"orders\",channel=\"\",outcome=\"dead\"} 20\n";
    let after = until("all of them are dead letters", || {
        Some(server.get("/metrics").body).filter(|page| page.contains(dead))
    });
    server.stop().assert_calm();
    folder.write("rules.yml", folder.run(&["export", "prometheus"]).stdout);
    let alerts = ["burst", "errors", "of a service"];
    let fires = |before: &str| {
        folder.write("test.yml", unit_test(before, &after, &alerts));
        let run = Command::new("promtool").args(["test", "rules"]).arg(folder.path("test.yml")).output();
        let run = run.expect("`promtool` is there, from Debian's package `prometheus`");
        let said =
            format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        if run.status.success() { Ok(()) } else { Err(said) }
    };
    assert_eq!(fires(&before), Ok(()));
    // Series that come into sight with the burst show no increase, and no rule would fire.
    let said = fires("").expect_err("nothing was seen before");
    assert!(alerts.iter().all(|alert| said.contains(&format!("alertname=\\\"{alert}\\\""))), "{said}");
}

#[test]
fn what_has_no_series_is_left_out_and_said() {
    let book = "version: 1
alerts:
  - { when: dead_letters > 5 by fingerprint, name: one cause, severity: high }
  - { when: \"error_rate > 5% over 5m by category\", severity: high, action: \"see {{ $labels.x }}\" }
";
    let run = Folder::with("redrive.yaml", book).run(&["export", "prometheus"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("`one cause` on line 3: failure groups are unbounded and have no series"),
        "{}",
        run.stderr
    );
    assert!(run.stdout.contains("# Left out: `one cause` on line 3"), "{}", run.stdout);
    assert_eq!(checked(&run.stdout, "what is left"), 1);
}
