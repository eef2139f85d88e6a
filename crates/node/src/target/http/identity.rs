//! How a target is reached over TLS: the client certificate that calls show, and whom they trust.
//!
//! The values are read for each call; a changed one makes another origin, so that no connection is used under an
//! identity that was replaced.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::book::connectors::http::{TlsClient, TlsIdentity};
use redrive_core::policy::answer::TargetReply;
use ring::digest;
use rustls::client::ClientConfig;

use super::address::HttpOrigin;
use crate::credential::Credential;
use crate::secret::Secrets;
use crate::tls::{ClientPem, ClientPemPart, Roots, client_config_of, offering_http2};

/// Where calls go, and how.
pub(super) struct Route {
    pub(super) origin: Arc<HttpOrigin>,
    /// None without TLS.
    pub(super) config: Option<Arc<ClientConfig>>,
}

pub struct ClientTls {
    identity: Option<(Credential, Credential)>,
    ca: Option<Credential>,
    made: Mutex<Option<Arc<Route>>>,
}

impl ClientTls {
    #[must_use]
    pub fn new(client: &TlsClient, secrets: &Secrets) -> Self {
        let credential = |name: &String| Credential::new(secrets, name, "call not made");
        let identity = client.identity.as_ref();
        Self {
            identity: identity
                .map(|TlsIdentity { certificate, key }| (credential(certificate), credential(key))),
            ca: client.ca.as_ref().map(credential),
            made: Mutex::new(None),
        }
    }

    /// The way to that origin with the current values.
    pub(super) async fn route(
        &self,
        origin: &HttpOrigin,
        roots: &Roots,
        limit: Duration,
    ) -> Result<Arc<Route>, TargetReply> {
        let identity = match &self.identity {
            Some((certificate, key)) => Some((certificate.value(limit).await?, key.value(limit).await?)),
            None => None,
        };
        let ca = match &self.ca {
            Some(ca) => Some(ca.value(limit).await?),
            None => None,
        };
        let pem = ClientPem {
            identity: identity.as_ref().map(|(certificate, key)| (certificate.as_bytes(), key.as_bytes())),
            ca: ca.as_ref().map(|ca| ca.as_bytes()),
        };
        let print = Some(fingerprint(&pem));
        let mut made = self.made.lock().expect("lock is not poisoned");
        if let Some(route) = made.as_ref().filter(|route| route.origin.identity == print) {
            return Ok(Arc::clone(route));
        }
        let config = client_config_of(roots, &pem).map_err(|invalid| {
            let wrong = match invalid.part {
                ClientPemPart::Certificate => self.identity.as_ref().map(|(certificate, _)| certificate),
                ClientPemPart::Key => self.identity.as_ref().map(|(_, key)| key),
                ClientPemPart::Ca => self.ca.as_ref(),
            };
            wrong.expect("what is wrong is there").unusable(&invalid.to_string())
        })?;
        let origin = HttpOrigin { identity: print, ..origin.clone() };
        let route = Arc::new(Route { origin: Arc::new(origin), config: Some(offering_http2(&config)) });
        *made = Some(Arc::clone(&route));
        Ok(route)
    }
}

/// Without names and values.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

fn fingerprint(pem: &ClientPem<'_>) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    let (certificate, key) = pem.identity.unwrap_or_default();
    for part in [certificate, key, pem.ca.unwrap_or_default()] {
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
