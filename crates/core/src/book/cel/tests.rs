//! Conditions: what holds, what is refused, and that nothing breaks or lasts.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NAMES: [&str; 3] = ["type", "subject", "data"];

fn values(data: &Value) -> CelValues {
    CelValues::new(1_000).with("type", "order.placed").with("subject", Value::Null).with("data", data)
}

#[test]
fn conditions_are_true_or_false_or_say_why_not() {
    let data = json!({
        "total": 12.5, "n": 3, "big": 18_446_744_073_709_551_615_u64, "user": { "country": "DE", "x-id": 7 },
        "items": [{ "sku": "a" }, { "sku": "b" }], "none": null, "is": true,
    });
    #[rustfmt::skip]
    let cases = [
        ("data.total > 12",                              Ok(true)),
        ("data.total == 12.5 && data.n == 3.0",          Ok(true)),
        ("data.n >= 3 && data.n < 3.5",                  Ok(true)),
        ("data.big > 1",                                 Ok(true)),
        ("type == 'order.placed'",                       Ok(true)),
        ("type.startsWith('order.') && !type.endsWith('x')", Ok(true)),
        ("data.user.country in ['DE', 'AT']",            Ok(true)),
        ("data.user['x-id'] == 7",                       Ok(true)),
        ("data.items.exists(i, i.sku == 'b')",           Ok(true)),
        ("data.items.all(i, i.sku == data.items[0].sku)", Ok(false)),
        ("data.items.map(i, i.sku).exists(s, s == 'a')", Ok(true)),
        ("size(data.items) == 2",                        Ok(true)),
        ("has(data.nick)",                               Ok(false)),
        ("has(data.nick) && data.nick == 'x'",           Ok(false)),
        ("data.nick == 'x' || data.n == 3",              Ok(true)),
        ("data.n == 3 || data.nick == 'x'",              Ok(true)),
        ("data.is",                                      Ok(true)),
        ("data.none == null",                            Ok(true)),
        ("subject == null",                              Ok(true)),
        ("data.user.country.matches('^D[A-Z]$')",        Ok(true)),
        ("data.is ? data.n > 1 : false",                 Ok(true)),
        ("data.nick == 'x'",                             Err(CelError::Missing { name: "nick".to_owned() })),
        ("data.n",                                       Err(CelError::Types { reason: "the result is uint".to_owned() })),
        ("data.items[7].sku == 'a'",                     Err(CelError::Types { reason: "a list has fewer items".to_owned() })),
    ];
    for (text, expected) in cases {
        let condition = CelExpression::parse(text, &NAMES).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(condition.holds(&values(&data)), expected, "{text}");
    }
    let condition = CelExpression::parse("data.b.c > 1 && type != data.a", &NAMES).expect("a condition");
    assert_eq!(condition.fields(), ["data.a", "data.b.c", "type"]);
}

#[test]
fn what_is_unknown_or_unbounded_is_refused() {
    let deep = format!("{}true{}", "(".repeat(13), ")".repeat(13));
    let long = "x".repeat(limits::CONDITION_BYTES_MAX + 1);
    let many = vec!["data.a"; limits::CONDITION_OPERATORS_MAX].join(" + ");
    #[rustfmt::skip]
    let cases = [
        ("order.total > 1",                       "unknown value `order`: there are type, subject, data"),
        ("data.total + 1",                        "this is not true or false, but a value"),
        ("'text'",                                "this is not true or false, but a value"),
        ("[1]",                                   "this is not true or false, but a value"),
        ("data.a.map(i, i)",                      "this is not true or false, but a value"),
        ("now() > 1",                             "unknown function `now`"),
        ("data.a.all(x, data.b.all(y, x == y))",  "a loop (`all`, `exists`, `map`, `filter`) stands inside another"),
        ("data.a.matches(data.b)",                "the pattern of `matches` must be a text in the condition: it is a value"),
        ("data.a.matches('(')",                   "the pattern of `matches` must be a text in the condition: it is no regular expression"),
        (&long,                                   "a condition has at most 4096 bytes"),
        (&deep,                                   "the condition is too deeply nested or too long"),
        (&many,                                   "the condition is too deeply nested or too long"),
    ];
    for (text, expected) in cases {
        let error = CelExpression::parse(text, &NAMES).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
    for text in ["data.total >", "", "data.", "a b", "\u{0}"] {
        let error = CelExpression::parse(text, &NAMES).expect_err(text).to_string();
        assert!(error.starts_with("invalid condition"), "{text}: {error}");
    }
    let nested = limits::CONDITION_NESTING_MAX;
    for text in [
        format!("{}true{}", "(".repeat(nested), ")".repeat(nested)),
        format!("{}1{} == 1", "[".repeat(nested), "]".repeat(nested)),
        format!("{}true", "!".repeat(limits::CONDITION_OPERATORS_MAX)),
        format!("1{} == 1", " + 1".repeat(limits::CONDITION_OPERATORS_MAX - 2)),
        format!("true{}", " && true".repeat(limits::CONDITION_OPERATORS_MAX / 2)),
        format!("{}true", "true ? true : ".repeat(nested)),
    ] {
        let condition = CelExpression::parse(&text, &NAMES).unwrap_or_else(|error| panic!("{text}: {error}"));
        drop(condition.holds(&values(&Value::Null)));
    }
}

#[test]
fn steps_are_bounded_by_the_size_of_the_event() {
    let list: Vec<u32> = (0..100_000).collect();
    let data = json!({ "a": list, "b": list });
    let condition = CelExpression::parse("data.a.all(x, x in data.b)", &NAMES).expect("a condition");
    let values = CelValues::new(1_200_000).with("data", &data);
    assert_eq!(condition.holds(&values), Err(CelError::TooManySteps));
}

proptest! {
    #[test]
    fn no_text_breaks_a_condition(text in "(data|type|in|has|all|exists|[ a-z.|&()\\[\\]\"'{}0-9+*?:<>=!-]){0,24}") {
        if let Ok(condition) = CelExpression::parse(&text, &NAMES) {
            drop(condition.holds(&values(&json!({ "a": 1 }))));
        }
    }
}
