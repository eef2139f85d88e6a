//! The `headers` of an `http` target: names and values that may stand in every call.
//!
//! Invariant: no header of the book can replace one that Redrive sets, end the header or start another.

use std::collections::BTreeMap;

use super::{HttpAuth, HttpFormat, SettingsReader, request};
use crate::book::problem::BookSpan;
use crate::book::template::{Template, TemplatePlace};
use crate::book::yaml::YamlNode;

pub(super) const CODE: &str = "bad-header";

/// Headers of the connection and of the body, which only the HTTP client knows.
const OF_THE_CLIENT: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that identify the delivery.
const OF_THE_DELIVERY: [&str; 4] = ["idempotency-key", "traceparent", "tracestate", "x-correlation-id"];
const PREFIXES_OF_THE_DELIVERY: [&str; 3] = ["ce-", "redrive-", "webhook-"];

pub(super) fn read(
    form: HttpFormat,
    auth: Option<&HttpAuth>,
    from: &mut SettingsReader<'_>,
) -> BTreeMap<String, Template> {
    let entries = from.node("headers").map(YamlNode::entries).unwrap_or_default();
    let mut headers = BTreeMap::new();
    for (key, value) in entries {
        let Some(written) = key.text() else { continue };
        let Some(name) = name(written, key.span, from) else { continue };
        let reason = match name.as_str() {
            "authorization" => Some("credentials go into `auth`, with their values in secrets"),
            "content-type" if form != HttpFormat::Binary => Some("the format sets `content-type`"),
            "content-type" if from.node("form").is_some() => Some("`form` sets `content-type`"),
            name if auth.is_some_and(|auth| auth.header() == name) => Some("`auth` sets this header"),
            name if headers.contains_key(name) => Some("this header is set twice"),
            _ => None,
        };
        if let Some(reason) = reason {
            from.problem(CODE, key.span, format!("header `{written}` cannot be set: {reason}"), "");
        } else if let Some(template) =
            request::template(value, &format!("headers.{name}"), TemplatePlace::Text, from)
        {
            if form == HttpFormat::Batch && template.literal().is_none() {
                let message = format!("header `{written}` names a value, and a batch has several events");
                from.problem(CODE, value.span, message, "write it without values, or use another format");
            } else if is_header_text(&template) {
                headers.insert(name, template);
            } else {
                let message =
                    format!("the value of header `{written}` has characters not allowed in a header");
                from.problem(CODE, value.span, message, "use printable ASCII, without line breaks");
            }
        }
    }
    headers
}

fn is_header_text(template: &Template) -> bool {
    let is_fit = |part: &String| part.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    template.literal_parts().iter().all(is_fit)
}

/// The name in lower case; `None` if a problem was reported.
pub(super) fn name(written: &str, span: BookSpan, from: &mut SettingsReader<'_>) -> Option<String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if written.is_empty() || !written.bytes().all(is_token) {
        let message = format!("invalid header name `{}`", written.escape_debug());
        from.problem(CODE, span, message, "use letters, digits and `-`, such as `x-tenant`");
        return None;
    }
    let name = written.to_ascii_lowercase();
    let reason = if OF_THE_CLIENT.contains(&name.as_str()) {
        "the HTTP client sets it"
    } else if OF_THE_DELIVERY.contains(&name.as_str())
        || PREFIXES_OF_THE_DELIVERY.iter().any(|prefix| name.starts_with(prefix))
    {
        "it identifies the delivery"
    } else {
        return Some(name);
    };
    from.problem(CODE, span, format!("header `{written}` cannot be set: {reason}"), "");
    None
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use crate::book::connectors::http::{HttpAuth, HttpMethod, HttpSettings};
    use crate::book::read;

    fn target(line: &str) -> Result<HttpSettings, Vec<String>> {
        let book = format!(
            "version: 1\nsecrets: {{ s: {{ env: S }} }}\nservices:\n  a:\n    target: {{ {line} }}\n    events: [a.b]\n"
        );
        let reading = read(&book, built_in());
        let problems: Vec<String> = reading
            .problems
            .into_sorted()
            .iter()
            .map(|one| format!("{}: {}", one.code, one.message))
            .collect();
        let Some(book) = reading.book else { return Err(problems) };
        assert!(problems.is_empty(), "{problems:?}");
        let settings = book.sections().services[0].target.endpoint.settings::<HttpSettings>();
        Ok(settings.expect("an http target").clone())
    }

    #[test]
    fn method_headers_and_credentials_are_read() {
        let read = |more: &str| target(&format!("http: \"http://h/\", {more}")).expect("a book");
        assert_eq!(read("method: PUT").method, HttpMethod::Put);
        assert_eq!(read("format: binary").method, HttpMethod::Post);
        let request = read("headers: { X-Tenant: \"{data.tenant}\", content-type: text/plain }").request;
        let pairs: Vec<_> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("content-type", "text/plain"), ("x-tenant", "{data.tenant}")]);
        #[rustfmt::skip]
        let cases = [
            ("auth: { bearer: s }",                               HttpAuth::Bearer { secret: "s".into() }),
            ("auth: { basic: { user: me, password: s } }",        HttpAuth::Basic { user: "me".into(), password: "s".into() }),
            ("auth: { api_key: { header: X-Api-Key, secret: s } }", HttpAuth::ApiKey { header: "x-api-key".into(), secret: "s".into() }),
        ];
        for (line, auth) in cases {
            assert_eq!(read(line).auth, Some(auth), "{line}");
        }
    }

    #[test]
    fn what_would_break_a_call_or_show_a_credential_is_refused() {
        #[rustfmt::skip]
        let cases = [
            ("headers: { \"x y\": a }",                    "bad-header: invalid header name `x y`"),
            ("headers: { \"x\\r\\nb: c\": a }",            "bad-header: invalid header name `x\\r\\nb: c`"),
            ("headers: { x: \"a\\r\\nb: c\" }",            "bad-header: the value of header `x` has characters not allowed in a header"),
            ("headers: { x: \"{{ nothing }}\" }",          "bad-template: the template of `headers.x` is invalid: unknown value `nothing`: an event has id, source, type, subject, session, correlation_id, time, data, extensions, delivery, attempt"),
            ("headers: { x: \"{{ id }}ü\" }",              "bad-header: the value of header `x` has characters not allowed in a header"),
            ("format: batch, headers: { x: \"{{ id }}\" }", "bad-header: header `x` names a value, and a batch has several events"),
            ("form: { a: b }, headers: { content-type: text/plain }", "bad-header: header `content-type` cannot be set: `form` sets `content-type`"),
            ("headers: { X-A: a, x-a: b }",                "bad-header: header `x-a` cannot be set: this header is set twice"),
            ("headers: { Host: other }",                   "bad-header: header `Host` cannot be set: the HTTP client sets it"),
            ("headers: { webhook-id: other }",             "bad-header: header `webhook-id` cannot be set: it identifies the delivery"),
            ("headers: { Authorization: \"Bearer t\" }",   "bad-header: header `Authorization` cannot be set: credentials go into `auth`, with their values in secrets"),
            ("format: structured, headers: { content-type: text/plain }", "bad-header: header `content-type` cannot be set: the format sets `content-type`"),
            ("headers: { x-key: a }, auth: { api_key: { header: x-key, secret: s } }", "bad-header: header `x-key` cannot be set: `auth` sets this header"),
            ("auth: { api_key: { header: te, secret: s } }", "bad-header: header `te` cannot be set: the HTTP client sets it"),
            ("auth: { basic: { user: \"a:b\", password: s } }", "bad-header: a user name cannot contain a colon or a control character"),
        ];
        for (line, problem) in cases {
            // A name may be refused as a key of a map, too.
            let problems = target(&format!("http: \"http://h/\", {line}")).expect_err(line);
            assert_eq!(problems.last().map(String::as_str), Some(problem), "{line}");
        }
        assert_eq!(
            target("http: \"http://me:pass@h/\", auth: { bearer: s }"),
            Err(vec!["conflicting-keys: credentials are in the address and in `auth`".to_owned()])
        );
    }
}
