//! TLS: trusted roots, our identity, and readable certificate errors.
//!
//! Invariants: TLS 1.2 and 1.3 only, by rustls over ring; no error shows a key.

mod client;
mod identity;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive_core::time::Timestamp;
use rustls::client::{ClientConfig, WantsClientCert};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, ConfigBuilder, RootCertStore};
use zeroize::Zeroizing;

pub(crate) use self::client::{ClientPem, ClientPemPart, client_config_of, offering_http2};
pub use self::identity::{InvalidIdentity, server_config};

#[derive(Clone, Debug)]
pub enum Roots {
    /// If the system has none, every handshake fails.
    System,
    Only(Vec<CertificateDer<'static>>),
}

impl Roots {
    pub fn read(path: &Path) -> Result<Self, InvalidPem> {
        let certificates = certificates(path)?;
        let (usable, _) = RootCertStore::empty().add_parsable_certificates(certificates.iter().cloned());
        if usable == 0 {
            return Err(InvalidPem::Unusable(path.to_owned()));
        }
        Ok(Self::Only(certificates))
    }
}

/// The content is not shown.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPem {
    #[error("could not read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is larger than 8 MiB", .0.display())]
    TooLarge(PathBuf),
    #[error("no certificate in {}: expected -----BEGIN CERTIFICATE-----", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} is damaged: invalid PEM between BEGIN and END", .0.display())]
    Damaged(PathBuf),
    #[error("no certificate in {} can be used as a root", .0.display())]
    Unusable(PathBuf),
}

/// Many times the size of a system's roots.
const PEM_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Spare capacity, or reading to the end would grow the buffer.
const ROOM_TO_SEE_THE_END: usize = 64;

fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, InvalidPem> {
    let unreadable = |source| InvalidPem::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let stated = file.metadata().map_err(unreadable)?.len();
    let bound = PEM_BYTES_MAX as u64 + 1;
    // Of fixed size: a growing buffer leaves copies of a key that are not wiped.
    let room = usize::try_from(stated.min(bound)).expect("a few MiB") + ROOM_TO_SEE_THE_END;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(bound).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > PEM_BYTES_MAX { Err(InvalidPem::TooLarge(path.to_owned())) } else { Ok(bytes) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, InvalidPem> {
    let bytes = contents(path)?;
    let certificates: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(InvalidPem::NoCertificate(path.to_owned())),
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(InvalidPem::Damaged(path.to_owned())),
    }
}

/// For HTTP/1.1. Reading the system's certificates takes some milliseconds.
#[must_use]
pub fn client_config(roots: &Roots) -> Arc<ClientConfig> {
    let mut config = builder(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn builder(roots: &Roots) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut store = RootCertStore::empty();
    // A root that does not parse is skipped: what it signed fails by name.
    match roots {
        Roots::System => store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        Roots::Only(certificates) => store.add_parsable_certificates(certificates.iter().cloned()),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers for the usual versions")
        .with_root_certificates(store)
}

/// Whether the other side refused our client certificate, or the lack of one.
pub(crate) const fn is_refused_client(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::AlertReceived(
            Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                // Its authority has the name of the right one, and another key.
                | Alert::DecryptError
                | Alert::CertificateRequired
        )
    )
}

/// Completes a sentence about the other side.
#[must_use]
pub fn why(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("it ended the handshake with the alert {alert:?}"),
        other => other.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired => "its certificate has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate expired at {}", shown(*not_after))
        }
        CertificateError::NotValidYet => "its certificate is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("its certificate is not valid before {}", shown(*not_before))
        }
        CertificateError::UnknownIssuer => {
            "its certificate is not signed by a trusted authority".to_owned()
        }
        CertificateError::NotValidForName => "its certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            format!("its certificate is not for {} but for {}", expected.to_str(), presented.join(", "))
        }
        CertificateError::Revoked => "its certificate has been revoked".to_owned(),
        CertificateError::BadSignature => {
            "its certificate has an invalid signature of a trusted authority".to_owned()
        }
        CertificateError::BadEncoding => "its certificate is damaged".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not for servers: make one with extendedKeyUsage=serverAuth".to_owned()
        }
        other if is_of_an_authority(other) => {
            "its certificate is for an authority, not for a server: make one with basicConstraints=CA:FALSE \
             (`openssl req -x509 … -addext basicConstraints=CA:FALSE`), or have it sign another for the server"
                .to_owned()
        }
        other => format!("its certificate is not valid ({other:?})"),
    }
}

/// The verifier reports a CA certificate of a server by a private type, of which only the name is visible.
fn is_of_an_authority(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity")
}

/// Strips the kind of name, as in `DnsName("example.com")`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

fn shown(time: UnixTime) -> Timestamp {
    Timestamp::from_millis(time.as_secs().saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::ServerName;

    use super::*;

    /// A certificate signed by itself and its key, as PEM.
    pub(super) fn pair() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        (pem_of("CERTIFICATE", certificate.der()), pem_of("PRIVATE KEY", &key.serialize_der()))
    }

    fn pem_of(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }

    /// What is wrong with a certificate that is its own root, as a client sees it.
    fn distrust(params: &CertificateParams) -> Option<String> {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let mut store = RootCertStore::empty();
        store.add(certificate.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
        let verifier = verifier.build().expect("it has a root");
        let name = ServerName::try_from("a.test").expect("a name");
        let checked = verifier.verify_server_cert(certificate.der(), &[], &name, &[], UnixTime::now());
        checked.err().map(|error| why(&error))
    }

    #[test]
    fn a_certificate_of_an_authority_is_refused_with_the_cure() {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
        assert_eq!(distrust(&params), None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let told = distrust(&params).expect("it is refused");
        assert!(told.contains("for an authority, not for a server"), "{told}");
        assert!(told.contains("basicConstraints=CA:FALSE"), "{told}");
    }

    #[test]
    fn roots_are_read_from_a_file_or_it_is_said_why_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = pair();
        let junk = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let huge = "x".repeat(PEM_BYTES_MAX + 1);
        let half = &certificate[..certificate.len() / 2];
        let place = |name: &str| folder.path().join(name);
        let says = |name: &str, text: &str| Err(text.replace("FILE", &place(name).display().to_string()));
        #[rustfmt::skip]
        let cases = [
            ("one",       Some(certificate.clone()),                  Ok(1)),
            ("two",       Some(certificate.repeat(2)),                Ok(2)),
            ("with more", Some(format!("{key}{certificate}")), Ok(1)),
            ("some junk", Some(format!("{junk}{certificate}")),       Ok(2)),
            ("missing",   None,                                       says("missing", "could not read FILE: No such file or directory (os error 2)")),
            ("empty",     Some(String::new()),                        says("empty", "no certificate in FILE: expected -----BEGIN CERTIFICATE-----")),
            ("a key",     Some(key.clone()),                  says("a key", "no certificate in FILE: expected -----BEGIN CERTIFICATE-----")),
            ("cut off",   Some(half.to_owned()),                      says("cut off", "FILE is damaged: invalid PEM between BEGIN and END")),
            ("no base64", Some(junk.replace("YWJj", "*")),            says("no base64", "FILE is damaged: invalid PEM between BEGIN and END")),
            ("all junk",  Some(junk.to_owned()),                      says("all junk", "no certificate in FILE can be used as a root")),
            ("huge",      Some(huge),                                 says("huge", "FILE is larger than 8 MiB")),
        ];
        for (name, text, expected) in cases {
            if let Some(text) = text {
                std::fs::write(place(name), text).expect("a file");
            }
            let read = Roots::read(&place(name)).map(|roots| match roots {
                Roots::Only(certificates) => certificates.len(),
                Roots::System => panic!("{name}: the system's are not meant"),
            });
            assert_eq!(read.map_err(|error| error.to_string()), expected, "{name}");
        }
    }
}
