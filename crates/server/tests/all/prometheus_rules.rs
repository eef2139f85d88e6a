//! `redrive export prometheus`: what it writes, Prometheus' own tool has nothing to say against.

use std::fs;
use std::path::Path;
use std::process::Command;

use redrive::core::alert::catalog;

use crate::run::{Folder, redrive};

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
fn every_example_is_a_good_rule_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders down");
    let books = fs::read_dir(root.join("examples/rulebooks")).expect("the examples are there");
    let mut count = 0;
    for book in books {
        let path = book.expect("it can be read").path();
        let path = path.to_str().expect("our own names are text");
        let rules = redrive(&["export", "prometheus", "--rules", path]).printed();
        count += checked(&rules, path);
    }
    assert!(count >= 23, "every alert of the examples is a rule: {count}");
}

#[test]
fn the_whole_catalog_is_a_good_rule_file() {
    let alerts = catalog::NAMES.map(|name| format!("  - {{ use: {name} }}\n")).concat();
    let folder = Folder::with("redrive.yaml", &format!("version: 1\nalerts:\n{alerts}"));
    let rules = folder.run(&["export", "prometheus"]).printed();
    assert_eq!(checked(&rules, "the catalog"), catalog::NAMES.len());
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
    assert!(run.stderr.contains("`one cause` on line 3: failure groups have no series"), "{}", run.stderr);
    assert!(run.stdout.contains("# Left out: `one cause` on line 3"), "{}", run.stdout);
    assert_eq!(checked(&run.stdout, "what is left"), 1);
}
