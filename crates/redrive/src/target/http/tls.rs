//! TLS: whom we trust, and in words what was wrong with a certificate.

use std::sync::Arc;

use redrive_core::time::Timestamp;
use rustls::client::ClientConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, RootCertStore};

/// Whose signature under a certificate is believed.
#[derive(Clone, Debug)]
pub enum Roots {
    /// Those whom the system trusts. If it names nobody, every handshake fails and says so.
    System,
    /// These only.
    Only(Vec<CertificateDer<'static>>),
}

pub(super) fn client_config(roots: &Roots) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    // A root that does not parse is one root less: what it would have vouched for fails by name.
    match roots {
        Roots::System => store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        Roots::Only(certificates) => store.add_parsable_certificates(certificates.iter().cloned()),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers for the usual versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// What went wrong, as the end of a sentence about the other side.
pub(super) fn why(error: &rustls::Error) -> String {
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
            "its certificate is signed by nobody whom this system trusts".to_owned()
        }
        CertificateError::NotValidForName => "its certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            format!("its certificate is not for {} but for {}", expected.to_str(), presented.join(", "))
        }
        CertificateError::Revoked => "its certificate has been revoked".to_owned(),
        other => format!("its certificate is not valid: {other}"),
    }
}

/// A name without the kind of name that stands around it, as in `DnsName("example.com")`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

fn shown(time: UnixTime) -> Timestamp {
    Timestamp::from_millis(time.as_secs().saturating_mul(1_000))
}
