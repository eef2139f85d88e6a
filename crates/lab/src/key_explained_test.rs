//! No key is inert: for every key of the tables, two small books that differ in nothing else must be
//! read as different books; a fact must stand where facts stand.
//!
//! The books are made from the tables, so a new key is covered as soon as it is there. What cannot be
//! made, since a key only has a meaning beside another, is in [`beside`].

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use redrive_core::book::connectors::built_in;
use redrive_core::book::schema::{
    BOOK, KeyPresence, KeyRole, KeySchema, NameKind, ObjectSchema, OneOf, ValueType,
};

use crate::report::explain::explain;

/// Which of two values of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sample {
    First,
    Second,
}

#[test]
fn every_key_changes_the_book_or_is_a_fact() {
    let mut problems = Vec::new();
    walk(&BOOK, "", &|book| with_definitions(&book), &mut problems);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Keys that work elsewhere than in a row's rule: in the lints, in tables and in exported files; and
/// `log`, which can have one value only.
const NOT_OF_A_ROW: [&str; 5] = ["allow", "dapr", "title", "facts", "log"];

#[test]
fn every_key_of_a_rule_reaches_the_row_it_is_meant_for() {
    let mut problems = Vec::new();
    let sections =
        ["defaults", "retry_policies", "breakers", "timeouts", "throttles", "dependencies", "services"];
    for field in BOOK.all_fields(built_in()).filter(|field| sections.contains(&field.key)) {
        let place = |value: Value| probed(&with_definitions(&json!({ field.key: value })));
        let path = format!(".{}", field.key);
        below_rule(&field.takes, &path, &place, &mut problems);
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// The book with a service that relies on whatever goes by the name `x`.
fn probed(book: &Value) -> Value {
    let mut probed = book.clone();
    let has = |section: &str| book[section].get("x").is_some();
    if has("services") {
        return probed;
    }
    let mut service = json!({ "target": { "http": "http://one.test/" }, "events": ["a.b"] });
    for (section, key) in [
        ("retry_policies", "retry"),
        ("breakers", "breaker"),
        ("timeouts", "timeout"),
        ("dependencies", "depends_on"),
    ] {
        if has(section) {
            service[key] = json!("x");
        }
    }
    if has("throttles") {
        probed["dependencies"]["x"] = json!({ "kind": "log", "throttle": "x" });
        service["depends_on"] = json!("x");
    }
    // A kind without a breaker of its own, so that the defaults have their say.
    if !has("dependencies") && !has("throttles") {
        service["depends_on"] = json!("a");
    }
    probed["services"] = json!({ "probe": service });
    probed
}

fn below_rule(
    takes: &'static ValueType,
    path: &str,
    place: &dyn Fn(Value) -> Value,
    problems: &mut Vec<String>,
) {
    match takes {
        ValueType::MapOf(item) => below_rule(item, path, &|value| place(json!({ "x": value })), problems),
        ValueType::ListOf(item) => below_rule(item, path, &|value| place(json!([value])), problems),
        ValueType::Object(object) | ValueType::ShortOrLong(_, object) => {
            let fields = object.all_fields(built_in()).filter(|field| !NOT_OF_A_ROW.contains(&field.key));
            for field in fields {
                let path = format!("{path}.{}", field.key);
                let place = |value: Value| place(with_key(object, field, value));
                let [first, second] =
                    [Sample::First, Sample::Second].map(|which| resolved(&place(sample_of(field, which))));
                match (first, second) {
                    (Ok(first), Ok(second)) if first == second => {
                        problems.push(format!("{path}: no row gets it"));
                    }
                    (Ok(_), Ok(_)) => {}
                    (Err(problem), _) | (_, Err(problem)) => problems.push(format!("{path}: {problem}")),
                }
                below_rule(&field.takes, &path, &place, problems);
            }
        }
        _ => {}
    }
}

/// What holds for the rows of the book, without where it came from.
fn resolved(book: &Value) -> Result<String, String> {
    let text = book.to_string();
    let reading = redrive_core::book::read(&text, built_in());
    let book = reading.book.ok_or_else(|| format!("{:?}\n    {text}", reading.problems))?;
    let rows = book.sections().rows().map(|(service, channel, row)| {
        let resolved = book.sections().resolve(service, channel, row);
        let claim = (&row.pattern.value, resolved.subscription(), resolved.target);
        format!("{claim:?} {:?} {:?}", resolved.rule, explain(&book, &resolved))
    });
    Ok(PLACES.replace_all(&rows.collect::<String>(), "_").into_owned())
}

/// Looks at each key of the map and at those below it; `wrap` makes a book of such a map.
fn walk(
    object: &'static ObjectSchema,
    path: &str,
    wrap: &dyn Fn(Value) -> Value,
    problems: &mut Vec<String>,
) {
    for field in object.all_fields(built_in()) {
        let path = format!("{path}.{}", field.key);
        if field.role == KeyRole::Fact && !path.contains(".facts") {
            problems.push(format!("{path}: a fact that stands outside `facts`"));
        }
        if field.role == KeyRole::Behaviour && path.contains(".facts") {
            problems.push(format!("{path}: stands among the facts and is none"));
        }
        let place = |value: Value| wrap(with_key(object, field, value));
        if let Err(problem) = changes(field, &place) {
            problems.push(format!("{path}: {problem}"));
        }
        below(&field.takes, &path, &place, problems);
    }
}

/// Goes on to the maps that may stand in a place.
fn below(takes: &'static ValueType, path: &str, place: &dyn Fn(Value) -> Value, problems: &mut Vec<String>) {
    match takes {
        ValueType::Object(object) | ValueType::ShortOrLong(_, object) => walk(object, path, place, problems),
        ValueType::MapOf(item) => below(item, path, &|value| place(json!({ "x": value })), problems),
        ValueType::ListOf(item) => below(item, path, &|value| place(json!([value])), problems),
        _ => {}
    }
}

/// Whether two values of a key make two different books.
fn changes(field: &'static KeySchema, place: &dyn Fn(Value) -> Value) -> Result<(), String> {
    let [first, second] =
        [Sample::First, Sample::Second].map(|which| carried(&place(sample_of(field, which))));
    match (first, second) {
        // There is one version of the format, and only one way to print: any other value is refused.
        (Ok(_), Ok(_)) if matches!(field.key, "version" | "log") => Ok(()),
        (Ok(first), Ok(second)) if first == second => Err("changes nothing".to_owned()),
        (Ok(_), Ok(_)) => Ok(()),
        (Err(problem), _) | (_, Err(problem)) => Err(problem),
    }
}

static PLACES: LazyLock<Regex> = LazyLock::new(|| {
    let span = r"Span \{ start: \d+, end: \d+, position: Position \{[^}]*\} \}";
    Regex::new(&format!(r"{span}|Position \{{[^}}]*\}}")).expect("a pattern of our own")
});

/// What the book carries, without where it stands.
fn carried(book: &Value) -> Result<String, String> {
    // JSON is YAML in its flow style.
    let text = book.to_string();
    let reading = redrive_core::book::read(&text, built_in());
    let book = reading.book.ok_or_else(|| format!("{:?}\n    {text}", reading.problems))?;
    let shown = format!("{:?}", book.sections());
    Ok(PLACES.replace_all(&shown, "_").into_owned())
}

/// A map of that kind with that key; of keys that exclude each other, only this one.
fn with_key(object: &ObjectSchema, field: &KeySchema, value: Value) -> Value {
    let mut map = least(object, Sample::First);
    let kinds = object.one_of(built_in());
    if kinds.contains(&field.key) {
        map.retain(|key, _| !kinds.contains(&key.as_str()));
    }
    let beside = beside(object, field.key).into_iter().chain(in_mail(object, field));
    for (key, value) in owner(object, field).into_iter().chain(beside) {
        if kinds.contains(&key) {
            map.retain(|key, _| !kinds.contains(&key.as_str()));
        }
        map.insert(key.to_owned(), value);
    }
    map.insert(field.key.to_owned(), value);
    map.into()
}

/// The key of the first connector that a key belongs to.
fn owner(object: &ObjectSchema, field: &KeySchema) -> Option<(&'static str, Value)> {
    let OneOf::Kinds(edge) = object.one_of else { return None };
    let is_own = |own: &KeySchema| (own.key, own.about) == (field.key, field.about);
    let owner = built_in().of(edge).find(|connector| connector.beside.iter().any(is_own))?;
    Some((owner.key(), sample(&owner.field.takes, Sample::First)))
}

/// The keys without which another has no meaning.
fn beside(object: &ObjectSchema, key: &str) -> Vec<(&'static str, Value)> {
    match (object.name, key) {
        ("a trip condition", "failures") => vec![("within", json!("1m"))],
        ("a trip condition", "within") => vec![("failures", json!(5))],
        ("a trip condition", "failure_rate") => vec![("within", json!("1m")), ("of_at_least", json!(5))],
        ("a trip condition", "of_at_least") => vec![("failure_rate", json!("50%")), ("within", json!("1m"))],
        ("a timeout", "factor" | "max") => vec![("first", json!("1s"))],
        ("a dead-letter rule", "queue") => vec![("name", json!("{queue}:dlq"))],
        ("a dead-letter rule", "stage") => vec![("name", json!("_{service}-{stage}"))],
        ("a Dapr target", "direction") => vec![("component", json!("x"))],
        ("a source", "depends_on") => {
            vec![("sqs", json!({ "queue": "https://one.test/" })), ("type", json!("a.b"))]
        }
        ("a webhook source", "tolerance") => vec![("scheme", json!("slack"))],
        ("a webhook source", "header" | "algorithm" | "encoding" | "prefix") => {
            vec![("scheme", json!("hmac"))]
        }
        ("a receiver", "email" | "smtp" | "from") => vec![("smtp", json!("smtp://one.test"))],
        ("a target", "tls") => vec![("http", json!("https://one.test/"))],
        ("a target", "batch_max") => vec![("format", json!("batch"))],
        _ => Vec::new(),
    }
}

/// What every mail needs.
fn in_mail(object: &ObjectSchema, field: &KeySchema) -> Vec<(&'static str, Value)> {
    if object.name != "a target" || !(field.key == "smtp" || field.about.starts_with("With `smtp`")) {
        return Vec::new();
    }
    let server = if field.key == "secret" { "smtp://me@one.test" } else { "smtp://one.test" };
    let mut needed: Vec<_> = ["from", "to", "subject", "body"].map(|key| (key, json!("a@b.test"))).into();
    needed.push(("smtp", json!(server)));
    needed
}

/// The smallest map of that kind that makes sense.
fn least(object: &ObjectSchema, which: Sample) -> Map<String, Value> {
    let mut map = Map::new();
    for field in object.all_fields(built_in()).filter(|field| field.need == KeyPresence::Required) {
        map.insert(field.key.to_owned(), sample(&field.takes, which));
    }
    if let Some(field) = object.one_of(built_in()).first().and_then(|key| object.field(key, built_in())) {
        map.insert(field.key.to_owned(), sample(&field.takes, which));
    }
    let more = match object.name {
        "a retry policy" => json!({ "from": "standard" }),
        "a breaker" => json!({ "from": "kafkaBreaker" }),
        "a service" => json!({ "events": ["a.b"] }),
        "an override of the classification" => json!({ "status": 404 }),
        "a source" => json!({ "type": "a.b" }),
        "a TLS client" => json!({ "certificate": "a", "key": "a" }),
        "an alert" => json!({ "when": "dead_letters > 1", "severity": "high" }),
        _ => json!({}),
    };
    map.extend(more.as_object().cloned().unwrap_or_default());
    map
}

/// The book with what others refer to by name.
fn with_definitions(book: &Value) -> Value {
    let mut whole = json!({
        "version": 1,
        "throttles": { "a": { "rate": "1/s" }, "b": { "rate": "2/s" } },
        "dependencies": { "a": { "kind": "log" }, "b": { "kind": "kafka" } },
        "secrets": { "a": { "env": "A" }, "b": { "env": "B" } },
        "receivers": { "a": { "webhook": "http://a.test/" }, "b": { "webhook": "http://b.test/" } },
    });
    for (key, value) in book.as_object().into_iter().flatten() {
        match (&mut whole[key], value) {
            (Value::Object(known), Value::Object(more)) => known.extend(more.clone()),
            (place, value) => *place = value.clone(),
        }
    }
    whole
}

/// A value of that key: some texts have rules of their own.
fn sample_of(field: &KeySchema, which: Sample) -> Value {
    if field.key == "mounts" {
        return match which {
            Sample::First => json!(["/one:/data"]),
            Sample::Second => json!(["two:/data:ro"]),
        };
    }
    let takes = match field.key {
        "priority" => &ValueType::Count { min: 1, max: 5 },
        "click" => &ValueType::Url,
        _ => &field.takes,
    };
    sample(takes, which)
}

/// One of two values that differ.
fn sample(takes: &ValueType, which: Sample) -> Value {
    let pick = |first: Value, second: Value| match which {
        Sample::First => first,
        Sample::Second => second,
    };
    match takes {
        ValueType::Duration => pick(json!("2s"), json!("3s")),
        ValueType::Size => pick(json!("2MiB"), json!("3MiB")),
        ValueType::Rate => pick(json!("2/s"), json!("3/s")),
        ValueType::Share => pick(json!("20%"), json!("30%")),
        ValueType::Jitter => pick(json!("full"), json!("spread 25%")),
        ValueType::Pattern | ValueType::Text | ValueType::SourceTemplate | ValueType::Lint => {
            pick(json!("one"), json!("two"))
        }
        ValueType::Url => pick(json!("http://one.test/x"), json!("https://two.test/x")),
        ValueType::EventPattern => pick(json!("a.b"), json!("c.d")),
        ValueType::RequestTemplate => pick(json!("/one"), json!("/{{ data.two }}")),
        ValueType::Cel => pick(json!("status == 200"), json!("body.ok == true")),
        ValueType::TemplateFields => pick(json!({ "a": "1" }), json!({ "b[]": "{{ id }}" })),
        ValueType::RequestBody => pick(json!("one"), json!({ "two": ["{{ id }}", 3] })),
        ValueType::CopyKey => pick(json!("data.one"), json!("{type}/{data.two}")),
        ValueType::LetterName => pick(json!("_{service}.one"), json!("_{service}.two")),
        ValueType::Bool => pick(json!(false), json!(true)),
        ValueType::Any => pick(json!("https://one.test/"), json!("https://two.test/")),
        ValueType::Count { min, max } => pick(json!(min), json!((min + 1).min(*max))),
        ValueType::CountOrUnlimited => pick(json!(2), json!("unlimited")),
        ValueType::Number { min, .. } => pick(json!(min), json!(min + 2.0)),
        ValueType::Word(words) => pick(json!(words[0]), json!(words.last())),
        ValueType::Name(NameKind::Policy) | ValueType::Reaction => pick(json!("standard"), json!("patient")),
        ValueType::Name(NameKind::Breaker) => pick(json!("kafkaBreaker"), json!("externalBreaker")),
        ValueType::Name(NameKind::Timeout) => pick(json!("fast"), json!("slow")),
        ValueType::Name(
            NameKind::Throttle | NameKind::Dependency | NameKind::Secret | NameKind::Receiver,
        ) => pick(json!("a"), json!("b")),
        ValueType::Statuses => pick(json!(404), json!("500-599")),
        ValueType::FailureKind => pick(json!("transient"), json!(503)),
        ValueType::Json => pick(json!("1"), json!("[]")),
        ValueType::Cron => pick(json!("0 9 * * *"), json!("0 8 * * *")),
        ValueType::Zone => pick(json!("UTC"), json!("Europe/Berlin")),
        ValueType::MailAddress | ValueType::MailAddressTemplate => {
            pick(json!("a@example.test"), json!("b@example.test"))
        }
        ValueType::MailServer => pick(json!("smtp://one.test"), json!("smtps://two.test")),
        ValueType::Hours => pick(json!("Mon-Fri 09:00-17:00 UTC"), json!("Mon-Sun 09:00-17:00 UTC")),
        ValueType::EventCondition => pick(json!("data.total > 1"), json!("data.total > 2")),
        ValueType::JsonSchema => pick(json!({ "type": "object" }), json!({ "type": "array" })),
        ValueType::Condition => pick(json!("dead_letters > 1"), json!("breaker_open for 10m")),
        ValueType::Object(object) => {
            let mut map = least(object, which);
            if let (Sample::Second, Some(field)) = (which, object.all_fields(built_in()).next()) {
                map.insert(field.key.to_owned(), sample(&field.takes, which));
            }
            map.into()
        }
        ValueType::MapOf(item) => match which {
            Sample::First => json!({ "x": sample(item, which) }),
            Sample::Second => json!({ "y": sample(item, which) }),
        },
        ValueType::ByFailure(item) => json!({ "transient": sample(item, which) }),
        ValueType::ListOf(item) | ValueType::OneOrMany(item) => json!([sample(item, which)]),
        ValueType::ShortOrLong(short, _) => sample(short, which),
    }
}
