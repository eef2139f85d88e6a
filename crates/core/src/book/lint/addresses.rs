//! What an address says before anybody resolves it: whom it names, and with which credentials.

/// What stands between `//` and the path: `user:password@host:port`.
pub(super) fn authority(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    Some(&rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())])
}

/// The host of an authority, without brackets, port and credentials.
pub(super) fn host(authority: &str) -> &str {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, end) = host.strip_prefix('[').map_or((host, ':'), |literal| (literal, ']'));
    host.split(end).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_wherever_they_stand() {
        #[rustfmt::skip]
        let cases = [
            ("a path",                "http://a.test/b",                 Some("a.test")),
            ("nothing but a host",    "http://a.test",                   Some("a.test")),
            ("a port and a query",    "https://a.test:1?b=c@d",          Some("a.test")),
            ("credentials",           "https://u:p@w@a.test#b",          Some("a.test")),
            ("a literal",             "http://u@[::1]:9/x",              Some("::1")),
            ("an empty host",         "http:///x",                       Some("")),
            ("no scheme",             "work:queue",                      None),
        ];
        for (name, address, expected) in cases {
            assert_eq!(authority(address).map(host), expected, "{name}");
        }
    }
}
