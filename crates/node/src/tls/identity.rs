//! Our own certificate and private key, from two files.
//!
//! Invariant: a pair is loaded completely and only if it matches, so a reload can keep the old one until
//! then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};

use super::{InvalidPem, certificates, contents};

#[derive(Debug, thiserror::Error)]
pub enum InvalidIdentity {
    #[error(transparent)]
    File(#[from] InvalidPem),
    #[error("no private key in {}: expected -----BEGIN PRIVATE KEY-----", .0.display())]
    NoKey(PathBuf),
    #[error(
        "private key in {} is encrypted: decrypt it first, for example with `openssl pkey`",
        .0.display()
    )]
    EncryptedKey(PathBuf),
    #[error("private key in {} does not match the certificate in {}", key.display(), certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{} and {} cannot be used: {source}", certificate.display(), key.display())]
    Unusable { certificate: PathBuf, key: PathBuf, source: rustls::Error },
}

/// For HTTP/1.1. The first certificate is ours, the others lead to a root.
pub fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, InvalidIdentity> {
    let chain = certificates(certificate)?;
    let private = private_key(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers for the usual versions")
        .with_no_client_auth()
        .with_single_cert(chain, private);
    let (certificate, key) = (certificate.to_owned(), key.to_owned());
    match config {
        Ok(mut config) => {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(InvalidIdentity::Mismatch { certificate, key }),
        Err(source) => Err(InvalidIdentity::Unusable { certificate, key, source }),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, InvalidIdentity> {
    let bytes = contents(path)?;
    let says = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    // The second is an older form, which would parse as an invalid key.
    if says("-----BEGIN ENCRYPTED PRIVATE KEY-----") || says("Proc-Type: 4,ENCRYPTED") {
        return Err(InvalidIdentity::EncryptedKey(path.to_owned()));
    }
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(InvalidIdentity::NoKey(path.to_owned())),
        Err(_) => Err(InvalidPem::Damaged(path.to_owned()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pair;
    use super::*;

    #[test]
    fn a_pair_is_taken_if_it_fits_and_else_it_is_said_why_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let ((ours, key), (_, other)) = (pair(), pair());
        let junk = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nYWJj\n-----END RSA PRIVATE KEY-----\n";
        let strange = "-----BEGIN PRIVATE KEY-----\nYWJj\n-----END PRIVATE KEY-----\n";
        #[rustfmt::skip]
        let cases = [
            ("a pair",                &*ours,                    &*key,        None),
            ("with a chain",          &*ours.repeat(2),          &key,         None),
            ("in one file each",      &*format!("{key}{ours}"),  &format!("{ours}{key}"), None),
            ("another's key",         &ours,                     &other,       Some("private key in KEY does not match the certificate in CERT")),
            ("an encrypted key",      &ours,                     &encrypted,   Some("private key in KEY is encrypted: decrypt it first, for example with `openssl pkey`")),
            ("an older encrypted one", &ours,                    older,        Some("private key in KEY is encrypted: decrypt it first, for example with `openssl pkey`")),
            ("no key",                &ours,                     &ours,        Some("no private key in KEY: expected -----BEGIN PRIVATE KEY-----")),
            ("no certificate",        &key,                      &key,         Some("no certificate in CERT: expected -----BEGIN CERTIFICATE-----")),
            ("half a key",            &ours,                     &key[..60],   Some("KEY is damaged: invalid PEM between BEGIN and END")),
            ("a key that is none",    &ours,                     strange,      Some("CERT and KEY cannot be used: ")),
            ("a certificate of junk", junk,                      &key,         Some("CERT and KEY cannot be used: ")),
        ];
        let (cert_file, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        for (name, certificate, key, expected) in cases {
            std::fs::write(&cert_file, certificate).expect("a file");
            std::fs::write(&key_file, key).expect("a file");
            let said = server_config(&cert_file, &key_file).err().map(|error| {
                let text = error.to_string().replace(&cert_file.display().to_string(), "CERT");
                text.replace(&key_file.display().to_string(), "KEY")
            });
            match (said, expected) {
                (Some(said), Some(expected)) if expected.ends_with(": ") => {
                    assert!(said.starts_with(expected), "{name}: {said}");
                }
                (said, expected) => assert_eq!(said.as_deref(), expected, "{name}"),
            }
        }
        let missing = folder.path().join("missing");
        assert!(server_config(&missing, &key_file).is_err_and(|error| error.to_string().contains("missing")));
    }
}
