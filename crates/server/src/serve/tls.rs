//! The certificate that a server shows, read again whenever one of its two files changes.
//!
//! Invariant: a new pair that does not fit leaves the old one where it is, and whoever reads the log or listens
//! to happenings hears of it. Files are replaced one after the other, so that a pair may not fit for a moment;
//! it is read again with the next change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive_core::alerts::Incident;
use redrive_node::activity::Activity;
use redrive_node::runtime::Node;
use redrive_node::tls::{InvalidIdentity, InvalidPem, Roots, server_config};
use rustls::ServerConfig;

use crate::api::transport::{ServerCertificate, Transport};
use crate::cli::CommandRefusal;
use crate::logging;
use crate::serve::args::ServeArgs;
use crate::serve::{FileStamp, refuse_other_than_file, stamp};
use crate::terminal::style;

/// Whose certificates are believed.
pub(crate) fn roots(args: &ServeArgs) -> anyhow::Result<Roots> {
    match &args.tls_roots {
        Some(path) => Roots::read(path).map_err(|error| exit_of(error.into())),
        None => Ok(Roots::System),
    }
}

/// Two files and what was last made of them.
pub(crate) struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    stamps: [FileStamp; 2],
    shown: ServerCertificate,
}

impl CertificateFiles {
    /// The pair that the flags name, if they name one.
    pub(crate) fn open(args: &ServeArgs) -> anyhow::Result<Option<Self>> {
        let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
        let stamps = stamps(certificate, key);
        let config = server_config(certificate, key).map_err(exit_of)?;
        let shown = ServerCertificate::new(config);
        Ok(Some(Self { certificate: certificate.clone(), key: key.clone(), stamps, shown }))
    }

    pub(crate) fn transport(watched: Option<&Self>) -> Transport {
        watched.map_or(Transport::Plain, |watched| Transport::Tls(watched.shown.clone()))
    }

    /// Reads the pair again if one of its files has changed.
    pub(crate) fn look(&mut self, node: &Node) {
        let now = stamps(&self.certificate, &self.key);
        // A file that is being replaced may be missing for a moment.
        if now != self.stamps && now.iter().all(Option::is_some) {
            self.reload(node);
        }
    }

    /// Reads the pair again.
    pub(crate) fn reload(&mut self, node: &Node) {
        self.stamps = stamps(&self.certificate, &self.key);
        match self.read() {
            Ok(config) => {
                self.shown.change(config);
                node.clear_trouble(Incident::CertificateRefused, "");
                let path = self.certificate.display();
                let read = style::good("certificate read:");
                logging::say(format_args!("{read} {path} is shown from now on"), || {
                    tracing::info!(%path, "a certificate was read");
                });
            }
            Err(error) => {
                tracing::error!(%error, "the new certificate is refused: the old one stays");
                let refused = style::error("certificate refused");
                logging::say(format_args!("{refused}: {error}: the old one stays"), || {});
                let message = format!("the new certificate is refused, and the old one stays: {error}");
                node.raise_trouble(Incident::CertificateRefused, "", &error.to_string());
                node.publish_logged(Activity::alert(message));
            }
        }
    }

    fn read(&self) -> anyhow::Result<Arc<ServerConfig>> {
        refuse_other_than_file(&self.certificate)?;
        refuse_other_than_file(&self.key)?;
        Ok(server_config(&self.certificate, &self.key)?)
    }
}

fn stamps(certificate: &Path, key: &Path) -> [FileStamp; 2] {
    [certificate, key].map(stamp)
}

/// What cannot be read is a matter of how it was started; what can and does not fit is refused.
fn exit_of(error: InvalidIdentity) -> anyhow::Error {
    match error {
        InvalidIdentity::File(InvalidPem::Unreadable { path, source }) => {
            anyhow::Error::new(source).context(format!("could not read {}", path.display()))
        }
        refused => CommandRefusal(refused.to_string()).into(),
    }
}
