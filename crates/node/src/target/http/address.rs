//! The address of an HTTP target, shown without credentials.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use redrive_core::book::model::Network;

use super::guard::AddressPolicy;

pub(super) struct HttpAddress {
    pub(super) origin: Arc<HttpOrigin>,
    pub(super) path: PathAndQuery,
    pub(super) host: HeaderValue,
    /// If the address names a user.
    pub(super) authorization: Option<HeaderValue>,
}

/// Addresses with the same origin share connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HttpOrigin {
    pub(super) security: ConnectionSecurity,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// What the host may resolve to.
    pub(super) leave: AddressPolicy,
    /// Of the target's own certificates and authorities, if it has any.
    pub(super) identity: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionSecurity {
    Plain,
    Tls,
}

impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The text is not repeated, since it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTargetAddress {
    #[error("this is no address such as https://example.com/events")]
    Syntax,
    #[error("an address begins with http:// or https://")]
    Scheme,
    #[error("a port is a number from 1 to 65535")]
    Port,
}

impl HttpAddress {
    pub(super) fn parse(text: &str, network: Network) -> Result<Self, InvalidTargetAddress> {
        let uri: Uri = text.parse().map_err(|_| InvalidTargetAddress::Syntax)?;
        let (security, usual_port) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => (ConnectionSecurity::Plain, 80),
            Some(scheme) if *scheme == Scheme::HTTPS => (ConnectionSecurity::Tls, 443),
            _ => return Err(InvalidTargetAddress::Scheme),
        };
        let authority = uri.authority().ok_or(InvalidTargetAddress::Syntax)?;
        let (user, place) = match authority.as_str().rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority.as_str()),
        };
        let literal = authority.host();
        let port = match place.strip_prefix(literal).ok_or(InvalidTargetAddress::Syntax)? {
            "" => usual_port,
            _ => authority.port_u16().filter(|port| *port != 0).ok_or(InvalidTargetAddress::Port)?,
        };
        let host = literal.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err(InvalidTargetAddress::Syntax);
        }
        let header = |text: &str| HeaderValue::from_str(text).map_err(|_| InvalidTargetAddress::Syntax);
        let leave = AddressPolicy::of(&host, network);
        Ok(Self {
            origin: Arc::new(HttpOrigin { security, host, port, leave, identity: None }),
            path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
            host: header(place)?,
            authorization: user.map(|user| header(&basic(user))).transpose()?.map(|mut value| {
                value.set_sensitive(true);
                value
            }),
        })
    }
}

/// Without credentials.
impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

/// From the part before the `@`.
fn basic(user: &str) -> String {
    let bytes = percent_decoded(user);
    // A missing password is empty.
    let colon: &[u8] = if bytes.contains(&b':') { b"" } else { b":" };
    format!("Basic {}", STANDARD.encode([&bytes, colon].concat()))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        let escaped = text_of_two(after).filter(|_| *first == b'%');
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

fn text_of_two(bytes: &[u8]) -> Option<u8> {
    let digits = bytes.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};
    use redrive_core::book::check_address;

    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        #[rustfmt::skip]
        let cases = [
            ("a path",              "http://a.test/b?c=d",            "a.test:80",     "/b?c=d", "a.test",        None),
            ("nothing but a host",  "https://A.test",                 "a.test:443",    "/",      "A.test",        None),
            ("a port",              "https://a.test:8443/",           "a.test:8443",   "/",      "a.test:8443",   None),
            ("a literal",           "http://[::1]:90/x",              "[::1]:90",      "/x",     "[::1]:90",      None),
            ("a user",              "http://ann@a.test/",             "a.test:80",     "/",      "a.test",        Some("Basic YW5uOg==")),
            ("and a password",      "http://ann:a%40b@a.test:1/",     "a.test:1",      "/",      "a.test:1",      Some("Basic YW5uOmFAYg==")),
            ("a fragment is ours",  "http://a.test/b#c",              "a.test:80",     "/b",     "a.test",        None),
        ];
        for (name, text, origin, path, host, authorization) in cases {
            let address = HttpAddress::parse(text, Network::Public).expect(name);
            assert_eq!(address.origin.to_string(), origin, "{name}");
            assert_eq!(address.path.as_str(), path, "{name}");
            assert_eq!(address.host, host, "{name}");
            let given = address.authorization.as_ref().map(|value| value.to_str().expect("plain"));
            assert_eq!(given, authorization, "{name}");
        }
    }

    proptest! {
        /// A book that passes `check` holds no address that `serve` refuses.
        #[test]
        fn what_the_rule_book_takes_can_be_called(
            text in "https?://([a-z@:%]{0,9}@)?([a-zA-Z.:_ü-]{0,6}|\\[[0-9a-f:]{0,9}\\])(:[0-9+]{0,6})?([/?#][ -~ü]{0,9}){0,3}",
        ) {
            let made = HttpAddress::parse(&text, Network::Public);
            prop_assert!(check_address(&text).is_err() || made.is_ok(), "{text}: {:?}", made.err());
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_not_repeated() {
        #[rustfmt::skip]
        let cases = [
            ("no scheme",          "/b",                    InvalidTargetAddress::Scheme),
            ("another scheme",     "ftp://a.test",          InvalidTargetAddress::Scheme),
            ("no host",            "http://:80/",           InvalidTargetAddress::Syntax),
            ("a port too high",    "http://a.test:70000/",  InvalidTargetAddress::Port),
            ("no port at all",     "http://a.test:/",       InvalidTargetAddress::Port),
            ("port nought",        "http://a.test:0/",      InvalidTargetAddress::Port),
            ("a space",            "http://a b.test/",      InvalidTargetAddress::Syntax),
            ("another script",     "http://münchen.test/",  InvalidTargetAddress::Syntax),
        ];
        for (name, text, expected) in cases {
            assert_eq!(HttpAddress::parse(text, Network::Public).err(), Some(expected), "{name}");
        }
        let address =
            HttpAddress::parse("https://ann:hunter2@a.test/b", Network::Public).expect("an address");
        assert_eq!(format!("{address:?}"), "a.test:443/b");
    }
}
