//! Addresses of HTTP servers: everything accepted here can be called by the runtime's HTTP client.
//!
//! The client has its own parser, which core does not depend on; a test beside the client compares the two.

use std::net::Ipv6Addr;

/// Limit of the HTTP client.
const BYTES_MAX: usize = 65_534;
/// Limit of the HTTP client for colons before the `@`.
const USER_COLONS_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// No scheme, no host, or an invalid character.
    #[error("invalid address; expected one such as https://example.com/events")]
    Syntax,
    /// Not a number from 1 to 65535.
    #[error("port `{0}` is not a number from 1 to 65535")]
    Port(String),
}

/// Accepts `http` or `https`, a host, an optional port and a path.
pub fn check_address(text: &str) -> Result<(), AddressFault> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.filter(|_| text.len() <= BYTES_MAX).ok_or(AddressFault::Syntax)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = user.chars().all(|c| is_plain(c) || matches!(c, '%' | ':' | '@'))
        && user.matches(':').count() <= USER_COLONS_MAX;
    let rest = after_host(place).ok_or(AddressFault::Syntax)?;
    if !rest.is_empty() {
        let port = rest.strip_prefix(':').ok_or(AddressFault::Syntax)?;
        let is_port =
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_port {
            return Err(AddressFault::Port(port.to_owned()));
        }
    }
    if is_user && is_path(path) { Ok(()) } else { Err(AddressFault::Syntax) }
}

/// The rest after the host; `None` without a host.
fn after_host(place: &str) -> Option<&str> {
    if let Some(literal) = place.strip_prefix('[') {
        let (literal, rest) = literal.split_once(']')?;
        return literal.parse::<Ipv6Addr>().is_ok().then_some(rest);
    }
    let (host, rest) = place.split_at(place.find(':').unwrap_or(place.len()));
    (!host.is_empty() && host.chars().all(is_plain)).then_some(rest)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!$&'()*+,-.;=_~".contains(c)
}

/// Whether path, query and fragment need no escaping.
fn is_path(text: &str) -> bool {
    // A fragment is not sent.
    let text = text.split('#').next().unwrap_or_default();
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>');
    !path.contains(|c| is_odd(c) || c == '`') && !query.contains(|c| is_odd(c) || c == '"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_can_be_called() {
        let port = |text: &str| Err(AddressFault::Port(text.to_owned()));
        let syntax = Err(AddressFault::Syntax);
        #[rustfmt::skip]
        let cases = [
            ("a path",            "http://a.test/b?c=d#e",          Ok(())),
            ("a host alone",      "https://a.test",                 Ok(())),
            ("a port",            "https://a.test:65535/",          Ok(())),
            ("a literal",         "http://[::1]:90/x",              Ok(())),
            ("a user",            "http://ann@a.test:a%40b@a.test", Ok(())),
            ("another script",    "http://a.test/ü?ü",              Ok(())),
            ("port nought",       "http://a.test:0/",               port("0")),
            ("a port too high",   "http://a.test:99999/",           port("99999")),
            ("an empty port",     "http://a.test:/",                port("")),
            ("no number",         "http://a.test:+80/",             port("+80")),
            ("two ports",         "http://a.test:80:80/",           port("80:80")),
            ("no scheme",         "a.test/b",                       syntax.clone()),
            ("another scheme",    "ftp://a.test",                   syntax.clone()),
            ("no host",           "http:///b",                      syntax.clone()),
            ("a port alone",      "http://:80/",                    syntax.clone()),
            ("a user alone",      "http://ann@/",                   syntax.clone()),
            ("a space",           "http://a.test/b c",              syntax.clone()),
            ("a host to escape",  "http://münchen.test/",           syntax.clone()),
            ("an open bracket",   "http://[::1/",                   syntax.clone()),
            ("a wrong literal",   "http://[zz]/",                   syntax),
        ];
        for (name, text, expected) in cases {
            assert_eq!(check_address(text), expected, "{name}");
        }
        assert!(check_address(&format!("http://a.test/{}", "x".repeat(BYTES_MAX))).is_err(), "a long one");
    }
}
