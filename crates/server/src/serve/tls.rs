//! The server's certificate, read again whenever one of its two files changes.
//!
//! Invariant: a new pair that does not match is logged and reported, and the old one stays. Files are
//! replaced one after the other, so that a pair may mismatch for a moment; the next change reads it again.

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

pub(crate) fn roots(args: &ServeArgs) -> anyhow::Result<Roots> {
    match &args.tls_roots {
        Some(path) => Roots::read(path).map_err(|error| exit_of(error.into())),
        None => Ok(Roots::System),
    }
}

pub(crate) struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    stamps: [FileStamp; 2],
    shown: ServerCertificate,
}

impl CertificateFiles {
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

    pub(crate) fn look(&mut self, node: &Node) {
        let now = stamps(&self.certificate, &self.key);
        // A file that is being replaced may be missing for a moment.
        if now != self.stamps && now.iter().all(Option::is_some) {
            self.reload(node);
        }
    }

    pub(crate) fn reload(&mut self, node: &Node) {
        self.stamps = stamps(&self.certificate, &self.key);
        match self.read() {
            Ok(config) => {
                self.shown.change(config);
                node.clear_trouble(Incident::CertificateRefused, "");
                let path = self.certificate.display();
                let read = style::good("certificate reloaded:");
                logging::say(format_args!("{read} {path}"), || {
                    tracing::info!(%path, "certificate reloaded");
                });
            }
            Err(error) => {
                tracing::error!(%error, "certificate rejected; the old one stays active");
                let refused = style::error("certificate rejected");
                logging::say(format_args!("{refused}: {error}; the old one stays active"), || {});
                let message = format!("certificate rejected, the old one stays active: {error}");
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

/// Unreadable files are a usage error; an invalid pair is refused.
fn exit_of(error: InvalidIdentity) -> anyhow::Error {
    match error {
        InvalidIdentity::File(InvalidPem::Unreadable { path, source }) => {
            anyhow::Error::new(source).context(format!("could not read {}", path.display()))
        }
        refused => CommandRefusal(refused.to_string()).into(),
    }
}
