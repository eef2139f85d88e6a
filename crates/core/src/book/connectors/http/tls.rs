//! The `tls` of calls: the certificate that Redrive shows, and the authority that it trusts.

use super::SettingsReader;
use crate::book::parse;
use crate::book::schema::{KeySchema, NameKind, ObjectSchema, ValueType, key};

pub(super) const FIELD: KeySchema = key(
    "tls",
    ValueType::Object(&TLS),
    "With `http`: the client certificate of calls, and the authority that the target's certificate must be signed by.",
);

static TLS: ObjectSchema = ObjectSchema::new(
    "a TLS client",
    "How calls over TLS identify themselves, and whom they trust; all values are PEM in secrets.",
    &[
        key(
            "certificate",
            ValueType::Name(NameKind::Secret),
            "The secret with the client certificate and its chain, which the target may require (mTLS).",
        ),
        key("key", ValueType::Name(NameKind::Secret), "The secret with the private key of `certificate`."),
        key(
            "ca",
            ValueType::Name(NameKind::Secret),
            "The secret with the certificates of the only authorities trusted here (default: the server's).",
        ),
    ],
);

/// Secrets by their names in the book. Something of it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsClient {
    pub identity: Option<TlsIdentity>,
    pub ca: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    pub certificate: String,
    pub key: String,
}

impl TlsClient {
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        let identity = self.identity.iter().flat_map(|identity| [&identity.certificate, &identity.key]);
        identity.chain(&self.ca)
    }
}

pub(super) fn read(address: &str, from: &mut SettingsReader<'_>) -> Option<TlsClient> {
    let node = from.node("tls")?;
    if !address.starts_with("https://") {
        from.error(
            "tls",
            "excluded-key",
            "`tls` needs an address with https",
            "write https:// or remove `tls`",
        );
        return None;
    }
    let text = |key: &str| parse::text_of(node, key);
    let identity = match (text("certificate"), text("key")) {
        (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key }),
        (None, None) => None,
        (certificate, _) => {
            let missing = if certificate.is_some() { "key" } else { "certificate" };
            let message = format!("a client certificate needs its key: `{missing}` is missing");
            from.error("tls", "missing-key", message, "");
            return None;
        }
    };
    let ca = text("ca");
    if identity.is_none() && ca.is_none() {
        from.error("tls", "missing-key", "`tls` is empty", "add `certificate` and `key`, or `ca`");
        return None;
    }
    Some(TlsClient { identity, ca })
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use crate::book::connectors::http::HttpSettings;
    use crate::book::read;

    #[test]
    fn a_client_has_a_whole_identity_or_an_authority() {
        #[rustfmt::skip]
        let cases = [
            ("https://h/", "{ certificate: c, key: k }",        Ok(vec!["c", "k"])),
            ("https://h/", "{ certificate: c, key: k, ca: a }", Ok(vec!["c", "k", "a"])),
            ("https://h/", "{ ca: a }",                         Ok(vec!["a"])),
            ("https://h/", "{ certificate: c }",                Err("missing-key: a client certificate needs its key: `key` is missing")),
            ("https://h/", "{ key: k, ca: a }",                 Err("missing-key: a client certificate needs its key: `certificate` is missing")),
            ("https://h/", "{}",                                Err("missing-key: `tls` is empty")),
            ("http://h/",  "{ ca: a }",                         Err("excluded-key: `tls` needs an address with https")),
        ];
        for (address, tls, expected) in cases {
            let book = format!(
                "version: 1\nsecrets: {{ c: {{ env: C }}, k: {{ env: K }}, a: {{ env: A }} }}\nservices:\n  s:\n    target: {{ http: \"{address}\", tls: {tls} }}\n    events: [a.b]\n"
            );
            let reading = read(&book, built_in());
            let problems = reading.problems.into_sorted();
            let read = match reading.book {
                Some(book) => {
                    let endpoint = &book.sections().services[0].target.endpoint;
                    let settings = endpoint.settings::<HttpSettings>().expect("an http target");
                    let tls = settings.tls.as_ref().expect("it is there");
                    assert!(tls.secrets().eq(&endpoint.profile.secrets), "{tls:?}");
                    Ok(endpoint.profile.secrets.clone())
                }
                None => Err(problems.iter().map(|one| format!("{}: {}", one.code, one.message)).next_back()),
            };
            let expected = expected.map_err(|problem: &str| Some(problem.to_owned()));
            assert_eq!(read, expected.map(|names| names.into_iter().map(str::to_owned).collect()), "{tls}");
        }
    }
}
