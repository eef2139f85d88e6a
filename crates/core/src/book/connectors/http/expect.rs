//! What a success must look like: `expect` of an `http` target, for APIs that answer 200 with an error inside.
//!
//! Invariant: an expectation that cannot be evaluated is not met, and only a response with a status of success is
//! examined.

use serde_json::{Map, Value};

use super::{HttpFormat, SettingsReader};
use crate::book::cel::{CelExpression, CelValues};
use crate::book::yaml::YamlNode;
use crate::limits;

const NAMES: [&str; 3] = ["status", "headers", "body"];

/// Why an expectation is not met; without values of the response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected response: {0}")]
pub struct Unexpected(String);

/// `complete` is the whole body, as far as it came.
pub fn examine<'a>(
    expect: &CelExpression,
    status: u16,
    headers: impl Iterator<Item = (&'a str, &'a str)>,
    complete: Result<&[u8], &'static str>,
) -> Result<(), Unexpected> {
    let bytes = complete.map_err(|why| Unexpected(format!("its body {why}")))?;
    // Of headers that come twice, the first counts.
    let mut named = Map::new();
    for (name, value) in headers {
        named.entry(name.to_ascii_lowercase()).or_insert_with(|| value.into());
    }
    let body: Value = serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()));
    let size = bytes.len() + named.len() * 64;
    let values = CelValues::new(size).with("status", status).with("headers", named).with("body", body);
    match expect.holds(&values) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Unexpected(format!("`{}` is false", expect.as_str()))),
        Err(error) => Err(Unexpected(format!("`{}`: {error}", expect.as_str()))),
    }
}

/// `None` also if a problem was reported.
pub(super) fn read(form: HttpFormat, from: &mut SettingsReader<'_>) -> Option<CelExpression> {
    if form == HttpFormat::Batch {
        from.exclude(&["expect"], "the answer to a batch has its own form");
    }
    let text = from.node("expect").and_then(YamlNode::text)?;
    let parsed = CelExpression::parse(text, &NAMES);
    parsed
        .map_err(|error| {
            from.error("expect", "bad-condition", format!("invalid condition: {error}"), error.help());
        })
        .ok()
}

/// Why a longer body is not examined.
pub const TOO_LONG: &str = "is longer than 256KiB";
const _: () = assert!(limits::EXPECTED_BODY_BYTES_MAX == 256 * 1024, "the text says so");

#[cfg(all(test, feature = "events"))]
mod tests {
    use super::*;

    #[test]
    fn responses_are_examined() {
        let json = br#"{"ok":true,"errors":[],"n":2}"#;
        let headers = [("Content-Type", "application/json"), ("x-a", "1"), ("x-a", "2")];
        #[rustfmt::skip]
        let cases: [(&str, &[u8], &str); 10] = [
            ("status == 200 && body.ok == true",         json,           "met"),
            ("size(body.errors) == 0 && body.n > 1",     json,           "met"),
            ("headers['content-type'].startsWith('application/json')", json, "met"),
            ("headers['x-a'] == '1'",                    json,           "met"),
            ("body == 'ok'",                             b"ok",          "met"),
            ("status == 201",                            json,           "unexpected response: `status == 201` is false"),
            ("body.ok",                                  b"{}",          "unexpected response: `body.ok`: `ok` is missing"),
            ("body.ok == true",                          b"<html>",      ""),
            ("body == 'ok'",                             b"",            "unexpected response: `body == 'ok'` is false"),
            ("body.a.b == 1",                            b"[[[[",        ""),
        ];
        for (expect, body, expected) in cases {
            let expect = CelExpression::parse(expect, &NAMES).expect("a condition");
            let seen = examine(&expect, 200, headers.into_iter(), Ok(body));
            let seen = seen.map_or_else(|unexpected| unexpected.to_string(), |()| "met".to_owned());
            assert!(seen == expected || (expected.is_empty() && seen != "met"), "{expect:?}: {seen}");
        }
        let expect = CelExpression::parse("status == 200", &NAMES).expect("a condition");
        let cut = examine(&expect, 200, [].into_iter(), Err(TOO_LONG));
        assert_eq!(cut.expect_err("cut").to_string(), "unexpected response: its body is longer than 256KiB");
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let expect = CelExpression::parse("body.a == 1", &NAMES).expect("a condition");
        assert!(examine(&expect, 200, [].into_iter(), Ok(deep.as_bytes())).is_err());
    }
}
