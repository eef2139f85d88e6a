//! Every key of the rule book as a Markdown page, straight from the schema, so that it cannot be out of date.

use std::fmt::Write;

use crate::book::schema::{BOOK, Need, Object, Role, Type};
use crate::book::validate::describe;

/// The page.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Every key of the rule book\n\n\
         Made from the same tables that `redrive check` and `redrive schema` use. A **fact** changes nothing that \
         Redrive does: it tells `check` and `simulate` about the world outside.\n",
    );
    let mut objects: Vec<&'static Object> = vec![&BOOK];
    let mut next = 0;
    while let Some(object) = objects.get(next).copied() {
        next += 1;
        section(&mut page, object);
        let inner = object.all_fields().filter_map(|field| object_in(&field.takes));
        let shared = object.includes.iter().copied();
        for object in inner.chain(shared).collect::<Vec<_>>() {
            if !objects.iter().any(|known| std::ptr::eq(*known, object)) {
                objects.push(object);
            }
        }
    }
    page
}

fn section(page: &mut String, object: &Object) {
    let name = capital(object.name.trim_start_matches("a ").trim_start_matches("an "));
    let _ = writeln!(page, "\n## {name}\n\n{}", object.about);
    if !object.one_of.is_empty() {
        let kinds = object.one_of.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "\nExactly one of {kinds}.");
    }
    for shared in object.includes {
        let _ = writeln!(page, "\nAlso takes the keys of {}.", shared.name);
    }
    let _ = writeln!(page, "\n| key | takes | what it does |\n| --- | --- | --- |");
    for field in object.fields {
        let mark = match (field.need, field.role) {
            (Need::Required, _) => " (required)",
            (Need::Optional, Role::Fact) => " (fact)",
            (Need::Optional, Role::Behaviour) => "",
        };
        let takes = describe(&field.takes).replace('|', "\\|");
        let _ = writeln!(page, "| `{}`{mark} | {takes} | {} |", field.key, field.about.replace('|', "\\|"));
    }
}

fn object_in(takes: &Type) -> Option<&'static Object> {
    match takes {
        Type::Object(object) | Type::ShortOrLong(_, object) => Some(object),
        Type::MapOf(inner) | Type::ListOf(inner) | Type::OneOrMany(inner) | Type::ByFailure(inner) => {
            object_in(inner)
        }
        _ => None,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}
