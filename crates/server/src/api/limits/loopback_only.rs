//! Access without authentication: only programs of this machine, and no web page.
//!
//! Any page can make a browser send requests to loopback, and its own host name can resolve to loopback (DNS
//! rebinding). The first is recognised by its `Origin`, the second by its `Host`. With authentication this
//! check is not needed: a browser adds no key by itself. Webhook calls may name any `Host`: they are verified
//! by signature.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request, Version, header};

use crate::api::code::ApiCode;
use crate::api::error::ApiError;
use crate::api::transport::TransportScheme;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopbackPolicy {
    /// Programs of this machine.
    ThisMachine,
    /// Every client (`--insecure`), under any host name.
    AnyClient,
}

impl LoopbackPolicy {
    pub(crate) fn check(self, headers: &HeaderMap, scheme: TransportScheme) -> Result<(), ApiError> {
        match self {
            Self::ThisMachine => {
                refuse_other_hosts(headers)?;
                refuse_pages(headers, scheme)
            }
            Self::AnyClient => refuse_pages(headers, scheme),
        }
    }
}

/// Refuses a request without exactly one unambiguous host: a proxy before us may have read it differently.
/// Only HTTP/1.0 has requests without one.
pub(crate) fn check_host<B>(request: &Request<B>) -> Result<(), ApiError> {
    let refuse = |message: &str| Err(ApiError::new(ApiCode::BadRequest, message));
    let headers = request.headers();
    match headers.get_all(header::HOST).iter().count() {
        0 if request.version() >= Version::HTTP_11 => {
            return refuse("the `host` header is missing");
        }
        0 | 1 => {}
        _ => return refuse("the `host` header is given more than once"),
    }
    match request.uri().authority() {
        Some(named) if host(headers).is_some_and(|host| !host.eq_ignore_ascii_case(named.as_str())) => {
            refuse("the request target and the `host` header differ")
        }
        // The name in the request line takes precedence, and only the `Host` can confirm it.
        Some(_) if host(headers).is_none() => refuse("the `host` header is missing"),
        Some(_) | None => Ok(()),
    }
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).map(|value| value.to_str().unwrap_or_default())
}

fn refuse_other_hosts(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_ours = host(headers).is_none_or(|host| {
        is_plainly_this_machine(host) || host.parse().is_ok_and(|host: Authority| is_this_machine(&host))
    });
    if is_ours { Ok(()) } else { Err(refusal("the `host` header is not this machine")) }
}

fn refuse_pages(headers: &HeaderMap, scheme: TransportScheme) -> Result<(), ApiError> {
    match headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or_default()) {
        Some(origin) if origin.strip_prefix(scheme.prefix()) != host(headers) => {
            Err(refusal("cross-origin request"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Fast path for the usual value: a loopback address or name, and a port.
fn is_plainly_this_machine(host: &str) -> bool {
    let port = host.strip_prefix("127.0.0.1:").or_else(|| host.strip_prefix("localhost:"));
    port.is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_this_machine(host: &Authority) -> bool {
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn refusal(why: &str) -> ApiError {
    let message = format!(
        "{why}: without authentication only programs on this machine have access; create a key with `redrive keys create`"
    );
    ApiError::new(ApiCode::Forbidden, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_from_elsewhere_are_refused_and_programs_are_not() {
        #[rustfmt::skip]
        let cases = [
            ("curl",                           Some("127.0.0.1:7373"),   None,                            true),
            ("a name for this machine",        Some("localhost:7373"),   None,                            true),
            ("another family",                 Some("[::1]:7373"),       None,                            true),
            ("an old program",                 None,                     None,                            true),
            ("a page of our own",              Some("127.0.0.1:7373"),   Some("http://127.0.0.1:7373"),   true),
            ("a page from elsewhere",          Some("127.0.0.1:7373"),   Some("https://evil.test"),       false),
            ("a page from nowhere",            Some("127.0.0.1:7373"),   Some("null"),                    false),
            ("another port of this machine",   Some("127.0.0.1:7373"),   Some("http://127.0.0.1:80"),     false),
            ("a name that resolves to us",     Some("evil.test:7373"),   None,                            false),
            ("one that looks like us",         Some("127.0.0.1.evil.test"), None,                         false),
            ("no host at all",                 Some(""),                 None,                            false),
        ];
        for (name, host, origin, expected) in cases {
            let mut headers = HeaderMap::new();
            for (key, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
                headers.extend(value.map(|value| (key, value.parse().expect("a header"))));
            }
            assert_eq!(
                LoopbackPolicy::ThisMachine.check(&headers, TransportScheme::Http).is_ok(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_request_says_once_for_which_host_it_is() {
        #[rustfmt::skip]
        let cases = [
            ("as clients do",               Version::HTTP_11, "/v1/status",              &["a.test"][..],      true),
            ("an old program",              Version::HTTP_10, "/v1/status",              &[],                  true),
            ("no host",                     Version::HTTP_11, "/v1/status",              &[],                  false),
            ("two hosts",                   Version::HTTP_11, "/v1/status",              &["a.test", "b.test"], false),
            ("a whole address",             Version::HTTP_11, "http://A.test/v1/status", &["a.test"],          true),
            ("of another host",             Version::HTTP_11, "http://b.test/v1/status", &["a.test"],          false),
            ("of another port",             Version::HTTP_11, "http://a.test:81/",       &["a.test"],          false),
            ("of an old program",           Version::HTTP_10, "http://b.test/",          &[],                  false),
        ];
        for (name, version, uri, hosts, expected) in cases {
            let mut request = Request::builder().version(version).uri(uri).body(()).expect("a request");
            for host in hosts {
                request.headers_mut().append(header::HOST, host.parse().expect("a header"));
            }
            assert_eq!(check_host(&request).is_ok(), expected, "{name}");
        }
    }

    #[test]
    fn behind_tls_a_page_of_our_own_came_by_tls_too() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "127.0.0.1:7373".parse().expect("a header"));
        for (origin, expected) in [("https://127.0.0.1:7373", true), ("http://127.0.0.1:7373", false)] {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
            assert_eq!(
                LoopbackPolicy::ThisMachine.check(&headers, TransportScheme::Https).is_ok(),
                expected,
                "{origin}"
            );
        }
    }

    #[test]
    fn where_everybody_is_served_pages_from_elsewhere_are_not() {
        #[rustfmt::skip]
        let cases = [
            ("curl",                  "redrive.test:7373", None,                             true),
            ("a page of our own",     "redrive.test:7373", Some("http://redrive.test:7373"), true),
            ("a page from elsewhere", "redrive.test:7373", Some("https://evil.test"),        false),
        ];
        for (name, host, origin, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("a header"));
            headers.extend(origin.map(|origin| (header::ORIGIN, origin.parse().expect("a header"))));
            assert_eq!(
                LoopbackPolicy::AnyClient.check(&headers, TransportScheme::Http).is_ok(),
                expected,
                "{name}"
            );
        }
    }
}
