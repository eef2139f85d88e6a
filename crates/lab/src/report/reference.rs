//! Every key of the rule book as a Markdown page, generated from the schema.

use std::fmt::Write;

use redrive_core::book::Connectors;
use redrive_core::book::expression;
use redrive_core::book::schema::{BOOK, KeyPresence, KeyRole, ObjectSchema, ValueType};
use redrive_core::book::validate::describe;
use redrive_core::policy::catalog::{self, CatalogTrip, DependencyKind};
use redrive_core::text::show_duration;

#[must_use]
pub fn reference(connectors: &Connectors) -> String {
    let mut page = String::from(
        "# Every key of the rule book\n\n\
         Generated from the tables that `redrive check` and `redrive schema` use. A **fact** does not change behaviour: \
         it describes the environment for `check`.\n",
    );
    push_keys(&mut page, &BOOK, connectors);
    catalog_policies(&mut page);
    catalog_breakers(&mut page);
    catalog_timeouts(&mut page);
    alert_language(&mut page);
    page
}

/// A section for each map, the outermost first.
pub fn push_keys(page: &mut String, root: &'static ObjectSchema, connectors: &Connectors) {
    let mut objects: Vec<&'static ObjectSchema> = vec![root];
    let mut next = 0;
    while let Some(object) = objects.get(next).copied() {
        next += 1;
        section(page, object, connectors);
        let inner = object.all_fields(connectors).filter_map(|field| object_in(&field.takes));
        let shared = object.includes.iter().copied();
        for object in shared.chain(inner).collect::<Vec<_>>() {
            if !objects.iter().any(|known| std::ptr::eq(*known, object)) {
                objects.push(object);
            }
        }
    }
}

fn catalog_policies(page: &mut String) {
    let _ = writeln!(
        page,
        "\n## The catalog: retry policies\n\nBuilt in; `redrive timeline NAME` plots one.\n\n\
         | policy | delays | retries | window | jitter |\n| --- | --- | --- | --- | --- |"
    );
    for policy in catalog::policies() {
        let backoff = &policy.backoff;
        let delays = match (backoff.factor(), backoff.listed()) {
            (_, Some(listed)) => {
                listed.iter().map(|delay| show_duration(*delay)).collect::<Vec<_>>().join(", ") + ", …"
            }
            (Some(_), None) => {
                format!("{} doubling to {}", show_duration(backoff.initial()), show_duration(backoff.max()))
            }
            (None, None) => "–".to_owned(),
        };
        let window = backoff.window().map_or("–".to_owned(), show_duration);
        let (retries, jitter) = (backoff.retries(), backoff.jitter());
        let _ = writeln!(page, "| `{}` | {delays} | {retries} | {window} | {jitter} |", policy.name);
    }
}

fn catalog_breakers(page: &mut String) {
    let _ = writeln!(
        page,
        "\n## The catalog: breakers\n\nThe first four are used by name; the others guard every dependency of their kind. \
         `process`, `sqs` and `log` have none.\n\n\
         | breaker | opens on failures | open time | probes | closes after | resets after |\n\
         | --- | --- | --- | --- | --- | --- |"
    );
    let kinds =
        DependencyKind::ALL.into_iter().filter_map(DependencyKind::breaker).map(|breaker| (false, breaker));
    for (named, breaker) in catalog::BREAKERS.iter().map(|breaker| (true, breaker)).chain(kinds) {
        let name = if named { format!("`{}`", breaker.name) } else { format!("kind {}", breaker.name) };
        let trip = match breaker.trip {
            CatalogTrip::Consecutive(count) => format!("{count} consecutive"),
            CatalogTrip::Failures { count, within } => format!("{count} within {}", show_duration(within)),
        };
        let close = breaker.close_after.unwrap_or(breaker.probes);
        let reset = breaker.reset.map_or("–".to_owned(), show_duration);
        let open = show_duration(breaker.open);
        let _ = writeln!(page, "| {name} | {trip} | {open} | {} | {close} | {reset} |", breaker.probes);
    }
}

fn catalog_timeouts(page: &mut String) {
    let _ = writeln!(
        page,
        "\n## The catalog: timeouts\n\n| timeout | limit | category of a timeout |\n| --- | --- | --- |"
    );
    for timeout in &catalog::TIMEOUTS {
        let limit = show_duration(timeout.limit);
        let _ = writeln!(page, "| `{}` | {limit} | {} |", timeout.name, timeout.on_timeout.category());
    }
}

fn alert_language(page: &mut String) {
    let groupings = expression::groupings().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(
        page,
        "\n## The language of alerts\n\n`METRIC OP VALUE [over D] [for D] [by WHAT]`, or for a state \
         `METRIC [for D] [by WHAT]`. OP is `>`, `>=`, `<` or `<=`; WHAT is one of {groupings}.\n\n\
         | metric | compared with |\n| --- | --- |"
    );
    for (metric, unit) in expression::metrics() {
        let _ = writeln!(page, "| `{metric}` | {unit} |");
    }
}

fn section(page: &mut String, object: &ObjectSchema, connectors: &Connectors) {
    let name = capital(object.name.trim_start_matches("a ").trim_start_matches("an "));
    let _ = writeln!(page, "\n## {name}\n\n{}", object.about);
    let choices = object.one_of(connectors);
    if !choices.is_empty() {
        let kinds = choices.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "\nExactly one of {kinds}.");
    }
    for shared in object.includes {
        let _ = writeln!(page, "\nAlso takes the keys of {}.", shared.name);
    }
    let _ = writeln!(page, "\n| key | value | meaning |\n| --- | --- | --- |");
    for field in object.kind_fields(connectors).into_iter().chain(object.fields) {
        let mark = match (field.need, field.role) {
            (KeyPresence::Required, _) => " (required)",
            (KeyPresence::Optional, KeyRole::Fact) => " (fact)",
            (KeyPresence::Optional, KeyRole::Behaviour) => "",
        };
        let takes = describe(&field.takes).replace('|', "\\|");
        let _ = writeln!(page, "| `{}`{mark} | {takes} | {} |", field.key, field.about.replace('|', "\\|"));
    }
}

fn object_in(takes: &ValueType) -> Option<&'static ObjectSchema> {
    match takes {
        ValueType::Object(object) | ValueType::ShortOrLong(_, object) => Some(object),
        ValueType::MapOf(inner)
        | ValueType::ListOf(inner)
        | ValueType::OneOrMany(inner)
        | ValueType::ByFailure(inner) => object_in(inner),
        _ => None,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}
