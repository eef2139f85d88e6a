//! Requests that are filled in, events that do not fit, and books that are refused.

use std::collections::BTreeMap as Map;

use proptest::prelude::*;

use super::*;
use crate::book::connectors::built_in;
use crate::book::connectors::http::HttpSettings;
use crate::book::read as read_book;
use crate::event::Event;
use crate::event::attribute::{EventId, EventSource, EventType};

fn target(lines: &str) -> Result<HttpSettings, Vec<String>> {
    let book = format!(
        "version: 1\nservices:\n  a:\n    target:\n      http: \"http://h/v1/?k=1\"\n{lines}    events: [a.b]\n"
    );
    let reading = read_book(&book, built_in());
    let problems: Vec<String> = reading
        .problems
        .into_sorted()
        .iter()
        .map(|one| {
            let at = one.span.position;
            format!("{}:{} {}: {}", at.line, at.column, one.code, one.message)
        })
        .collect();
    let Some(book) = reading.book.filter(|_| problems.is_empty()) else { return Err(problems) };
    let settings = book.sections().services[0].target.endpoint.settings::<HttpSettings>();
    Ok(settings.expect("an http target").clone())
}

fn event(data: &str) -> Event {
    Event {
        id: EventId::new("e-1").expect("an id"),
        source: EventSource::new("/shop").expect("a source"),
        event_type: EventType::new("a.b").expect("a type"),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: Map::new(),
        data: data.to_owned().into(),
    }
}

fn filled(lines: &str, data: &str) -> Result<FilledRequest, String> {
    let settings = target(lines).unwrap_or_else(|problems| panic!("{lines}: {problems:?}"));
    let event = event(data);
    let context = TemplateContext::with(settings.request.needs(), &event, "msg_1", 2);
    settings.request.fill("/v1/?k=1", &context).map_err(|misfit| misfit.to_string())
}

const DATA: &str =
    r#"{"id":7,"name":"A/b c&d=é","crlf":"a\r\nx: y","dots":"..","list":[1,"\"}"],"none":null}"#;

#[test]
fn every_part_is_filled_in() {
    #[rustfmt::skip]
    let cases = [
        ("as it is",                "",                                                    "- -"),
        ("a path",                  "path: /users/{{ data.id }}/messages",                 "/v1/users/7/messages?k=1 -"),
        ("a value in a segment",    "path: \"/u/{data.name}\"",                            "/v1/u/A%2Fb%20c%26d%3D%C3%A9?k=1 -"),
        ("line breaks in a path",   "path: /u/{{ data.crlf }}",                            "/v1/u/a%0D%0Ax%3A%20y?k=1 -"),
        ("a fixed path",            "path: /users",                                        "/v1/users?k=1 -"),
        ("parameters",              "query: { \"f[a]\": \"{data.name}\", limit: 10 }",     "/v1/?k=1&f%5Ba%5D=A%2Fb%20c%26d%3D%C3%A9&limit=10 -"),
        ("path and parameters",     "path: /a\n      query: { at: \"{{ data.crlf }}\" }",  "/v1/a?k=1&at=a%0D%0Ax%3A%20y -"),
        ("a text",                  "body: \"{{ data.name | upper }}!\"",                  "- A/B C&D=É!"),
        ("an empty text",           "body: \"\"",                                          "- "),
        ("JSON",                    "body: { id: \"{{ data.id }}\", n: 5, b: true, t: \"5\", l: [\"{{ data.list }}\", ~], s: \"<{data.list}>\" }", r#"- {"id":7,"n":5,"b":true,"t":"5","l":[[1,"\"}"],null],"s":"<[1,\"\\\"}\"]>"}"#),
        ("a list",                  "body: [\"{data.crlf}\"]",                             r#"- ["a\r\nx: y"]"#),
        ("null",                    "body: [\"{data.none}\"]",                             "- [null]"),
        ("a form",                  "form: { To: \"{{ data.id }}\", Body: \"{data.name}\" }", "- To=7&Body=A%2Fb+c%26d%3D%C3%A9"),
        ("no body",                 "method: GET",                                         "- "),
    ];
    for (name, line, expected) in cases {
        let FilledRequest { target, headers: _, body } =
            filled(&format!("      {line}\n"), DATA).unwrap_or_else(|error| panic!("{name}: {error}"));
        let body = body.map_or("-".to_owned(), |body| String::from_utf8(body).expect("text"));
        assert_eq!(format!("{} {body}", target.as_deref().unwrap_or("-")), expected, "{name}");
    }
    let request =
        filled("      headers: { X-User: \"u-{data.id}\", b: \"{{ type }}\" }\n", DATA).expect("headers");
    assert_eq!(request.headers, ["a.b", "u-7"], "in the order of their names");
}

#[test]
fn an_event_that_does_not_fit_gives_no_request() {
    let long =
        format!(r#"{{"long":"{}","deep":{}1{}}}"#, "x".repeat(20_000), "[".repeat(5_000), "]".repeat(5_000));
    #[rustfmt::skip]
    let cases = [
        ("path: /u/{{ data.user.id }}",            DATA,  "call not made: `path`: `data.user.id` is missing in the event"),
        ("path: /u/{{ data.dots }}",               DATA,  "call not made: `path`: `/u/{{ data.dots }}` has an empty value or `..` in a path"),
        ("query: { to: \"{{ data.to }}\" }",       DATA,  "call not made: `query.to`: `data.to` is missing in the event"),
        ("headers: { X-A: \"{{ data.crlf }}\" }",  DATA,  "call not made: `headers.x-a`: the value has characters not allowed in a header"),
        ("headers: { X-A: \"{{ data.name }}\" }",  DATA,  "call not made: `headers.x-a`: the value has characters not allowed in a header"),
        ("body: { a: [\"{{ data.gone }}\"] }",     DATA,  "call not made: `body`: `data.gone` is missing in the event"),
        ("form: { To: \"{{ data.to }}\" }",        DATA,  "call not made: `form.To`: `data.to` is missing in the event"),
        ("body: \"{{ data.id }}\"",                "no JSON", "call not made: `body`: `data.id` is missing in the event"),
        ("body: \"{{ data.long }}\"",              &long, "call not made: `body`: `data.long` is missing in the event"),
    ];
    for (line, data, expected) in cases {
        assert_eq!(filled(&format!("      {line}\n"), data), Err(expected.to_owned()), "{line}");
    }
    let long = format!(r#"{{"long":"{}"}}"#, "x".repeat(20_000));
    for (line, expected) in [
        ("path: /{{ data.long }}", "makes more than 16384 bytes"),
        ("query: { a: \"{{ data.long }}\" }", "makes more than 16384 bytes"),
        (
            "query: { a: \"{{ data.long | truncate(9000) }}\", b: \"{{ data.long | truncate(9000) }}\" }",
            "path and query have more than 16384 bytes",
        ),
        ("headers: { x: \"{{ data.long }}\" }", "makes more than 8192 bytes"),
    ] {
        let refused = filled(&format!("      {line}\n"), &long).expect_err(line);
        assert!(refused.contains(expected), "{line}: {refused}");
    }
}

#[test]
fn a_book_with_a_request_that_cannot_be_made_is_refused() {
    let unknown = "an event has id, source, type, subject, session, correlation_id, time, data, extensions, delivery, attempt";
    #[rustfmt::skip]
    let cases = [
        ("path: users",                               "6:13 bad-path: a path begins with `/`"),
        ("path: /users/{id",                          "6:13 bad-path: the path has the character `{`"),
        ("path: \"/users/{user.id}\"",                "6:13 bad-path: the path has the character `{`"),
        ("path: /users?a=b",                          "6:13 bad-path: the path has the character `?`"),
        ("path: \"/a b\"",                            "6:13 bad-path: the path has the character ` `"),
        ("path: /ü",                                  "6:13 bad-path: the path has the character `ü`"),
        ("path: /a%2",                                "6:13 bad-path: the path has a `%` without two hexadecimal digits"),
        ("path: /a/../b",                             "6:13 bad-path: the path has a segment of dots"),
        ("path: \"/a/{{ data. }}\"",                  "6:13 bad-template: the template of `path` is invalid: unexpected end of variable block, expected identifier or integer"),
        ("query: { a: b, c: \"{{ user }}\" }",        &format!("6:25 bad-template: the template of `query.c` is invalid: unknown value `user`: {unknown}")),
        ("query: { \"{{ id }}\": b }",                "6:16 bad-template: the name `{{ id }}` has a template"),
        ("query: [a]",                                "6:14 wrong-type: expected names, each with a text, got a list"),
        ("query: { a: [b] }",                         "6:19 wrong-type: expected a text, with values such as \"{{ data.id }}\" in quotes, got a list"),
        ("body: { a: { b: [1, \"{% set a = 1 %}\"] } }", "6:27 bad-template: the template of `body` is invalid: unknown tag `{% set %}`: templates have `if` and `for`"),
        ("body: { \"{{ id }}\": 1 }",                 "6:15 bad-template: the name `{{ id }}` has a template"),
        ("body: ~",                                   "6:13 wrong-type: expected a text, a map or a list, got nothing"),
        ("form: { a: \"{{ id | nofilter }}\" }",      "6:18 bad-template: the template of `form.a` is invalid: unknown filter `nofilter`: templates have default, first, float, int, join, last, length, lower, round, string, tojson, trim, truncate, upper"),
        ("form: { a: b }\n      body: c",             "6:7 excluded-key: `form` is not allowed here: `body` sets the body"),
        ("format: structured\n      body: c",         "7:7 excluded-key: `body` is not allowed here: `format` sets the body"),
        ("format: batch\n      form: { a: b }",       "7:7 excluded-key: `form` is not allowed here: `format` sets the body"),
        ("method: GET\n      body: c",                "7:7 excluded-key: `body` is not allowed here: `method: GET` has no body"),
        ("method: GET\n      format: batch",          "7:7 excluded-key: `format` is not allowed here: `method: GET` has no body"),
        ("format: batch\n      path: /{{ id }}",      "6:15 bad-template: a batch has several events, so `path` and `query` cannot name values of one"),
    ];
    for (lines, expected) in cases {
        assert_eq!(target(&format!("      {lines}\n")).map(drop), Err(vec![expected.to_owned()]), "{lines}");
    }
    let many: Vec<String> = (0..=limits::REQUEST_TEMPLATES_MAX).map(|n| format!("n{n}: a")).collect();
    let many = many.join(", ");
    let refused = target(&format!("      body: {{ {many} }}\n")).expect_err("too many texts");
    assert_eq!(refused, ["6:13 bad-template: a request has at most 500 texts, not 501"]);
    assert!(target("      format: batch\n      path: /all\n      query: { a: b }\n").is_ok());
}

proptest! {
    #[test]
    fn no_value_leaves_its_part_of_the_request(value in any::<String>()) {
        let data = serde_json::json!({ "v": value }).to_string();
        let lines = "      path: /a/{{ data.v }}/b\n      query: { q: \"{{ data.v }}\" }\n      form: { f: \"{{ data.v }}\", g: h }\n";
        if let Ok(request) = filled(lines, &data) {
            let target = request.target.expect("there is a path");
            let (path, query) = target.split_once('?').expect("there is a query");
            prop_assert_eq!(path.split('/').count(), 5);
            prop_assert_eq!(query.split('&').count(), 2);
            prop_assert!(target.bytes().all(|byte| byte.is_ascii_graphic()) && !query.contains('?'));
            let body = String::from_utf8(request.body.expect("a body")).expect("text");
            prop_assert_eq!(body.split('&').count(), 2);
        }
        if let Ok(request) = filled("      headers: { x: \"{{ data.v }}\" }\n", &data) {
            prop_assert!(request.headers[0].bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
    }
}
