//! The arguments of `redrive serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use redrive_core::text::{parse_duration, parse_size};
use tracing::Level;

use crate::cli::{DATA_DEFAULT, one_of};
use crate::logging::{LOG_LEVELS, LogFormat};

/// Where to listen: an address and a port. A name could be several addresses; the usual one is known.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let text = named.as_deref().unwrap_or(text);
    text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:7373 or [::1]:7373")
}

/// Takes events in and delivers each to the services that want it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive serve                                   prints every event that comes in
  redrive serve --rules redrive.yaml              delivers by the rules of a book
  redrive serve --tls-cert cert.pem --tls-key key.pem
  curl -d '{\"total\":12}' http://127.0.0.1:7373/v1/events/orders.placed
  redrive keys create ops --role admin --data redrive-data
  redrive serve --listen 0.0.0.0:7373             serves others too, who need a key

Once there is a key (`redrive keys`) or the rule book believes tokens (`access`), everybody is asked for \
one. Until then everybody on this machine may do everything, and nobody else is listened to.

The rule book and the certificate are read again when their files change, and on SIGHUP; what is wrong is \
refused, and the old one stays. SIGTERM and Ctrl-C stop it gently.

Exit code: 0 stopped, 1 refused to start, 2 a file cannot be read.")]
pub(crate) struct ServeArgs {
    /// The rule book; without one, every event is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// The folder in which everything is kept; made if it is not there
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    /// Starts on a damaged write-ahead log though committed events are lost with it
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Where to listen; what others can reach needs keys or tokens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7373", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Listens where others can reach it without asking anybody for a key
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The largest event that is taken
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) body_max: u64,
    /// How long calls may go on after it was told to stop
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    /// Speaks TLS under this certificate: PEM, ours first, then those that lead to a root
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Trusts targets whose certificates these sign, and no others: PEM; without it, whom the system trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_roots: Option<PathBuf>,
    /// Sends traces to this collector: OTLP over HTTP, such as http://127.0.0.1:4318; OpenTelemetry's own
    /// environment variables say the same and more
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// How much to log, on standard error
    #[arg(long, env = "REDRIVE_LOG", value_parser = one_of(&LOG_LEVELS), value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub(crate) log_level: Level,
    /// How to log: for people, or one JSON object a line
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
