//! The address of a server: an `http` or `https` URL, checked once.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};
use rustls::pki_types::ServerName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    security: Security,
    authority: Authority,
    /// Without a final slash; empty unless the server is behind a path of a proxy.
    base_path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    /// With the name the certificate must be for.
    Tls(ServerName<'static>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidAddress {
    #[error("expected http://HOST:PORT, such as http://127.0.0.1:7373")]
    NoUrl,
    #[error("only http:// and https:// are supported")]
    NotHttp,
    #[error("remove the user and password before the `@`")]
    UserInfo,
    #[error("remove the query after the `?`")]
    Query,
}

impl Address {
    pub(crate) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        let host = self.authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let usual_port = match self.security {
            Security::Plain => 80,
            Security::Tls(_) => 443,
        };
        (bare, self.authority.port_u16().unwrap_or(usual_port))
    }

    pub(crate) const fn is_secure(&self) -> bool {
        matches!(self.security, Security::Tls(_))
    }

    pub(crate) const fn security(&self) -> &Security {
        &self.security
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let parts = text.parse::<Uri>().map_err(|_| InvalidAddress::NoUrl)?.into_parts();
        let is_secure = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTP => false,
            Some(scheme) if scheme == Scheme::HTTPS => true,
            Some(_) => return Err(InvalidAddress::NotHttp),
            None => return Err(InvalidAddress::NoUrl),
        };
        let authority = parts.authority.ok_or(InvalidAddress::NoUrl)?;
        if authority.as_str().contains('@') {
            return Err(InvalidAddress::UserInfo);
        }
        let is_port_sound = authority.port().is_some() == has_port(authority.as_str());
        if authority.host().is_empty() || !is_port_sound || authority.port_u16() == Some(0) {
            return Err(InvalidAddress::NoUrl);
        }
        let path = parts.path_and_query.as_ref();
        if path.is_some_and(|path| path.query().is_some()) {
            return Err(InvalidAddress::Query);
        }
        let base_path = path.map(|path| path.path().trim_end_matches('/').to_owned()).unwrap_or_default();
        let security = if is_secure {
            let bare = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
            Security::Tls(ServerName::try_from(bare).map_err(|_| InvalidAddress::NoUrl)?)
        } else {
            Security::Plain
        };
        Ok(Self { security, authority, base_path })
    }
}

/// Whether a port is given, valid or not.
fn has_port(authority: &str) -> bool {
    authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.security {
            Security::Plain => "http",
            Security::Tls(_) => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.base_path)
    }
}

/// Encodes a path segment or a query value.
pub(crate) fn segment(text: &str) -> String {
    encoded(text, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

/// Encodes a header value as in CloudEvents.
pub(crate) fn header_value(text: &str) -> String {
    encoded(text, |byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'%')
}

fn encoded(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_type_them() {
        use InvalidAddress::{NoUrl, NotHttp, Query, UserInfo};
        #[rustfmt::skip]
        let cases = [
            ("the usual one",        "http://127.0.0.1:7373",      Ok(("127.0.0.1", 7373, ""))),
            ("a slash at the end",   "http://localhost:7373/",     Ok(("localhost", 7373, ""))),
            ("no port",              "http://redrive.internal",    Ok(("redrive.internal", 80, ""))),
            ("behind a path",        "http://gate/ops/redrive/",   Ok(("gate", 80, "/ops/redrive"))),
            ("six",                  "http://[::1]:7373",          Ok(("::1", 7373, ""))),
            ("capital letters",      "HTTP://localhost:1",         Ok(("localhost", 1, ""))),
            ("no scheme",            "127.0.0.1:7373",             Err(NoUrl)),
            ("a name alone",         "localhost",                  Err(NoUrl)),
            ("nothing",              "",                           Err(NoUrl)),
            ("TLS",                  "https://localhost",          Ok(("localhost", 443, ""))),
            ("TLS and a port",       "https://[::1]:7373/a",       Ok(("::1", 7373, "/a"))),
            ("no name for TLS",      "https://a..b",               Err(NoUrl)),
            ("another scheme",       "ftp://localhost",            Err(NotHttp)),
            ("a password",           "http://me:secret@localhost", Err(UserInfo)),
            ("a query",              "http://localhost/?a=1",      Err(Query)),
            ("no port after all",    "http://localhost:99999",     Err(NoUrl)),
            ("port 0",               "http://localhost:0",         Err(NoUrl)),
        ];
        for (name, text, expected) in cases {
            let read: Result<Address, _> = text.parse();
            let seen = read.as_ref().map(|address| {
                let (host, port) = address.host_and_port();
                (host, port, address.base_path())
            });
            assert_eq!(seen.map_err(|error| *error), expected, "{name}");
            let shown = read.as_ref().map(|address| address.to_string().to_ascii_lowercase());
            let is_whole = |shown: &String| text.to_ascii_lowercase().trim_end_matches('/') == shown;
            assert!(shown.is_ok_and(|shown| is_whole(&shown)) == expected.is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_typed_stays_one_part_of_a_path_and_one_header() {
        #[rustfmt::skip]
        let cases = [
            ("plain",         "order-42_a.b~c", "order-42_a.b~c", "order-42_a.b~c"),
            ("a path",        "a/b?c#d",        "a%2Fb%3Fc%23d",  "a/b?c#d"),
            ("a space",       "a b",            "a%20b",          "a%20b"),
            ("more than ASCII", "é",            "%C3%A9",         "%C3%A9"),
            ("a line",        "a\r\nb",         "a%0D%0Ab",       "a%0D%0Ab"),
            ("its own sign",  "100%\"",         "100%25%22",      "100%25%22"),
        ];
        for (name, text, in_path, in_header) in cases {
            assert_eq!(segment(text), in_path, "{name}");
            assert_eq!(header_value(text), in_header, "{name}");
        }
    }
}
