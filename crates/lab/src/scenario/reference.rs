//! Every key of a scenario as a Markdown page, generated from the schema.

use std::fmt::Write;

use super::expectation;
use super::schema::SCENARIO;
use crate::report::reference::push_keys;
use redrive_core::book::Connectors;

#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Every key of a scenario\n\n\
         Generated from the tables that `redrive simulate` and `redrive schema scenario` use; \
         [Lab](../lab.md#scenarios) has examples.\n",
    );
    push_keys(&mut page, &SCENARIO, &Connectors::default());
    expectations(&mut page);
    page
}

fn expectations(page: &mut String) {
    let _ = writeln!(
        page,
        "\n## The language of expectations\n\n`METRIC [of DEPENDENCY] OP VALUE`. OP is `==`, `!=`, `<`, `<=`, `>` \
         or `>=`.\n\n| metric | compared with | meaning | without `of` |\n| --- | --- | --- | --- |"
    );
    for metric in expectation::metrics() {
        let (name, unit, about) = (metric.name, metric.unit(), metric.about);
        let _ = writeln!(page, "| `{name}` | {unit} | {about} | {} |", metric.without_of());
    }
}
