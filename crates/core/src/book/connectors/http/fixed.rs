//! Addresses that are called beside the targets, with fixed headers: of receivers, and those that cancel work.

use std::collections::BTreeMap;

use super::auth::{self, HttpAuth};
use super::{HttpMethod, SettingsReader, headers};
use crate::book::schema::{KeySchema, ObjectSchema, ValueType, key, required};
use crate::book::yaml::YamlNode;

pub(in crate::book::connectors) const HEADERS: KeySchema = key(
    "headers",
    ValueType::MapOf(&ValueType::Text),
    "With `webhook`: further headers of every call. Credentials go into `auth`.",
);

pub(in crate::book::connectors) const AUTH: KeySchema =
    KeySchema { about: "With `webhook`: how calls authenticate.", ..auth::FIELD };

pub(in crate::book::connectors) static CALL: ObjectSchema = ObjectSchema::new(
    "a cancelling call",
    "A call that cancels what a program started elsewhere; its body has the delivery's ids as JSON.",
    &[
        required("http", ValueType::Url, "The address to call."),
        key(
            "method",
            ValueType::Word(&["POST", "PUT", "PATCH", "DELETE"]),
            "The method of the request (default POST).",
        ),
        KeySchema { about: "Further headers. Credentials go into `auth`.", ..HEADERS },
        KeySchema { about: "How the call authenticates.", ..auth::FIELD },
    ],
);

/// Headers and credentials of calls; names in lower case, values fit into a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallHeaders {
    pub fixed: BTreeMap<String, String>,
    pub auth: Option<HttpAuth>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedCall {
    pub address: String,
    pub method: HttpMethod,
    pub headers: CallHeaders,
}

impl FixedCall {
    #[must_use]
    pub fn post(address: &str) -> Self {
        Self { address: address.to_owned(), method: HttpMethod::Post, headers: CallHeaders::default() }
    }

    /// From such a map.
    pub(in crate::book::connectors) fn read(from: &mut SettingsReader<'_>) -> Option<Self> {
        let address = from.text("http")?;
        let method = match from.text("method").as_deref() {
            Some("PUT") => HttpMethod::Put,
            Some("PATCH") => HttpMethod::Patch,
            Some("DELETE") => HttpMethod::Delete,
            _ => HttpMethod::Post,
        };
        let headers = CallHeaders::read(&address, from);
        Some(Self { address, method, headers })
    }
}

impl CallHeaders {
    pub(in crate::book::connectors) fn read(address: &str, from: &mut SettingsReader<'_>) -> Self {
        let auth = auth::read(address, from);
        let entries = from.node("headers").map(YamlNode::entries).unwrap_or_default();
        let mut fixed = BTreeMap::new();
        for (key, value) in entries {
            let (Some(written), Some(text)) = (key.text(), value.text()) else { continue };
            let Some(name) = headers::name(written, key.span, from) else { continue };
            let is_of_auth = auth.as_ref().is_some_and(|auth| auth.header() == name);
            if name == "authorization" || is_of_auth {
                let message = format!("header `{written}` cannot be set: credentials go into `auth`");
                from.problem(headers::CODE, key.span, message, "");
            } else if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                let message =
                    format!("the value of header `{written}` has characters not allowed in a header");
                from.problem(headers::CODE, value.span, message, "use printable ASCII, without line breaks");
            } else {
                fixed.insert(name, text.to_owned());
            }
        }
        Self { fixed, auth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::connectors::exec::{Cancellation, ExecSettings};
    use crate::book::connectors::notify::NotifySettings;
    use crate::book::{RuleBook, read};

    fn book(text: &str) -> Result<RuleBook, Vec<String>> {
        let reading = read(&format!("version: 1\nsecrets: {{ s: {{ env: S }} }}\n{text}"), built_in());
        let problems = reading.problems.into_sorted();
        reading
            .book
            .ok_or_else(|| problems.iter().map(|one| format!("{}: {}", one.code, one.message)).collect())
    }

    fn receiver(line: &str) -> String {
        format!("receivers: {{ r: {{ webhook: \"http://h/\", {line} }} }}\n")
    }

    fn program(on_timeout: &str) -> String {
        format!("services: {{ s: {{ target: {{ exec: [a], on_timeout: {on_timeout} }}, events: [a.b] }} }}\n")
    }

    #[test]
    fn receivers_and_cancelling_calls_have_headers_and_credentials() {
        let line = "headers: { X-Tenant: acme }, auth: { bearer: s }";
        let headers = CallHeaders {
            fixed: BTreeMap::from([("x-tenant".to_owned(), "acme".to_owned())]),
            auth: Some(HttpAuth::Bearer { secret: "s".to_owned() }),
        };
        let of_receiver = book(&receiver(line)).expect("a book");
        let endpoint = &of_receiver.sections().receivers["r"].value.endpoint;
        assert_eq!(endpoint.settings::<NotifySettings>().expect("a receiver").headers, headers);
        assert_eq!(endpoint.profile.secrets, ["s"]);

        let full = FixedCall { address: "http://h/c".to_owned(), method: HttpMethod::Put, headers };
        let written = format!("{{ http: \"http://h/c\", method: PUT, {line} }}");
        let command = vec!["stop".to_owned(), "it".to_owned()];
        #[rustfmt::skip]
        let cases = [
            (&*written,            Some(Cancellation::Call(full)),                          vec!["s"]),
            ("[\"http://h/c\"]",   Some(Cancellation::Call(FixedCall::post("http://h/c"))), vec![]),
            ("[stop, it]",         Some(Cancellation::Command(command)),                    vec![]),
            ("[]",                 None,                                                    vec![]),
        ];
        for (on_timeout, expected, secrets) in cases {
            let book = book(&program(on_timeout)).expect("a book");
            let endpoint = &book.sections().services[0].target.endpoint;
            assert_eq!(endpoint.settings::<ExecSettings>().expect("a program").run.on_timeout, expected);
            assert_eq!(endpoint.profile.secrets, secrets, "{on_timeout}");
        }
    }

    #[test]
    fn what_would_break_such_a_call_is_refused() {
        #[rustfmt::skip]
        let cases = [
            (receiver("headers: { Authorization: x }"),                     "bad-header: header `Authorization` cannot be set: credentials go into `auth`"),
            (receiver("headers: { x-key: x }, auth: { api_key: { header: x-key, secret: s } }"), "bad-header: header `x-key` cannot be set: credentials go into `auth`"),
            (receiver("headers: { x: \"a\\r\\nb: c\" }"),                   "bad-header: the value of header `x` has characters not allowed in a header"),
            (program("{ method: PUT }"),                                    "missing-key: a cancelling call needs `http`"),
            (program("{ http: \"http://h/\", headers: { host: x } }"),      "bad-header: header `host` cannot be set: the HTTP client sets it"),
        ];
        for (text, problem) in cases {
            let problems = book(&text).expect_err("it is refused");
            assert_eq!(problems.last().map(String::as_str), Some(problem), "{text}");
        }
    }
}
