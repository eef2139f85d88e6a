//! The arguments of `redrive serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use redrive_core::text::{parse_duration, parse_size};
use tracing::Level;

use crate::cli::{DATA_DEFAULT, one_of};
use crate::logging::{LOG_LEVELS, LogFormat};

/// An address and a port. Names are refused (a name may be several addresses), except the usual one.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let text = named.as_deref().unwrap_or(text);
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:7373 or [::1]:7373")
}

/// Runs the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive serve                                   prints every event
  redrive serve --rules redrive.yaml              delivers by a rule book
  redrive serve --tls-cert cert.pem --tls-key key.pem
  curl -d '{\"total\":12}' http://127.0.0.1:7373/v1/events/orders.placed
  redrive keys create ops --role admin --data redrive-data
  redrive serve --listen 0.0.0.0:7373             listens on all addresses; clients need a key

Authentication is on once there is a key (`redrive keys`) or the rule book accepts tokens (`access`). \
Until then, only programs on this machine have access, with all rights.

The rule book and the certificate are reloaded when their files change, and on SIGHUP; an invalid one is \
rejected and the old one stays active. SIGTERM and Ctrl-C shut down gracefully.

Exit code: 0 stopped, 1 refused to start, 2 a file cannot be read.")]
pub(crate) struct ServeArgs {
    /// The rule book; without one, every event is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// The data folder; created if missing
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    /// Starts on a damaged write-ahead log although committed events are lost
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Address to listen on; a public address needs API keys or tokens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7373", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Listen on a public address without authentication
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Largest event accepted
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) body_max: u64,
    /// Time for running calls to finish at shutdown
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    /// Serves TLS with this certificate chain: PEM, leaf first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA certificates to trust for targets, PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_roots: Option<PathBuf>,
    /// Sends traces to this OTLP/HTTP collector, such as http://127.0.0.1:4318; the OTEL_* environment
    /// variables work too
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// Log level; logs go to standard error
    #[arg(long, env = "REDRIVE_LOG", value_parser = one_of(&LOG_LEVELS), value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub(crate) log_level: Level,
    /// Log format
    #[arg(long, env = "REDRIVE_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Human)]
    pub(crate) log_format: LogFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_listen_is_an_address_and_a_port_or_this_machine() {
        #[rustfmt::skip]
        let cases = [
            ("127.0.0.1:7373",  Some("127.0.0.1:7373")),
            ("[::1]:7373",      Some("[::1]:7373")),
            ("localhost:7373",  Some("127.0.0.1:7373")),
            ("localhost",       None),
            (":7373",           None),
            ("7373",            None),
            ("redrive.test:80", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_listen(text).ok().map(|at| at.to_string()).as_deref(), expected, "{text}");
        }
    }
}
