//! Client certificates and authorities of calls, from PEM texts.

use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Roots, builder};

/// PEM texts.
pub(crate) struct ClientPem<'a> {
    /// A certificate with its chain, and its key.
    pub(crate) identity: Option<(&'a [u8], &'a [u8])>,
    /// In place of the other roots.
    pub(crate) ca: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientPemPart {
    Certificate,
    Key,
    Ca,
}

/// Completes a sentence about the part; the content is not shown.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct InvalidClientPem {
    pub(crate) part: ClientPemPart,
    why: String,
}

/// For HTTP/1.1.
pub(crate) fn client_config_of(roots: &Roots, pem: &ClientPem<'_>) -> Result<ClientConfig, InvalidClientPem> {
    let own = pem.ca.map(|ca| certificates(ca, ClientPemPart::Ca).map(Roots::Only)).transpose()?;
    let builder = builder(own.as_ref().unwrap_or(roots));
    let mut config = match pem.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, private)) => {
            let chain = certificates(certificate, ClientPemPart::Certificate)?;
            builder.with_client_auth_cert(chain, key(private)?).map_err(|error| {
                let why = match error {
                    rustls::Error::InconsistentKeys(_) => "does not match the certificate".to_owned(),
                    error => format!("cannot be used: {error}"),
                };
                InvalidClientPem { part: ClientPemPart::Key, why }
            })?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

pub(crate) fn offering_http2(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

fn certificates(bytes: &[u8], part: ClientPemPart) -> Result<Vec<CertificateDer<'static>>, InvalidClientPem> {
    let invalid = |why: &str| InvalidClientPem { part, why: why.to_owned() };
    let certificates: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(invalid("has no certificate: expected -----BEGIN CERTIFICATE-----"))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(invalid("is damaged: invalid PEM between BEGIN and END")),
    }
}

fn key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, InvalidClientPem> {
    let invalid = |why: &str| InvalidClientPem { part: ClientPemPart::Key, why: why.to_owned() };
    let says = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    if says("-----BEGIN ENCRYPTED PRIVATE KEY-----") || says("Proc-Type: 4,ENCRYPTED") {
        return Err(invalid("is encrypted: decrypt it first, for example with `openssl pkey`"));
    }
    match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            Err(invalid("has no private key: expected -----BEGIN PRIVATE KEY-----"))
        }
        Err(_) => Err(invalid("is damaged: invalid PEM between BEGIN and END")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pair;
    use super::*;

    #[test]
    fn a_client_certificate_is_taken_with_its_key_or_it_is_said_why_not() {
        let ((ours, key), (_, other)) = (pair(), pair());
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let junk = "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
        #[rustfmt::skip]
        let cases = [
            ("a pair",                 &*ours,  &*key,      None,        None),
            ("with an authority",      &ours,   &key,       Some(&*ours), None),
            ("another's key",          &ours,   &other,     None,        Some((ClientPemPart::Key, "does not match the certificate"))),
            ("no key",                 &ours,   &ours,      None,        Some((ClientPemPart::Key, "has no private key: expected -----BEGIN PRIVATE KEY-----"))),
            ("an encrypted key",       &ours,   &encrypted, None,        Some((ClientPemPart::Key, "is encrypted: decrypt it first, for example with `openssl pkey`"))),
            ("no certificate",         &key,    &key,       None,        Some((ClientPemPart::Certificate, "has no certificate: expected -----BEGIN CERTIFICATE-----"))),
            ("a damaged certificate",  junk,    &key,       None,        Some((ClientPemPart::Certificate, "is damaged: invalid PEM between BEGIN and END"))),
            ("no authority",           &ours,   &key,       Some(&key),  Some((ClientPemPart::Ca, "has no certificate: expected -----BEGIN CERTIFICATE-----"))),
        ];
        for (name, certificate, key, ca, expected) in cases {
            let pem = ClientPem {
                identity: Some((certificate.as_bytes(), key.as_bytes())),
                ca: ca.map(str::as_bytes),
            };
            let invalid = client_config_of(&Roots::Only(Vec::new()), &pem).err();
            let said = invalid.as_ref().map(|invalid| (invalid.part, invalid.why.as_str()));
            assert_eq!(said, expected, "{name}");
        }
    }
}
