//! The commands that talk to a running server, or stand in for it while none runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use redrive_core::book::pattern::EventPattern;
use redrive_core::text::parse_duration;
use redrive_node::tls::Roots;

use super::DATA_DEFAULT;
use crate::client::{Address, Client, Key};

/// How often a server may be looked at.
const EVERY_MIN: Duration = Duration::from_millis(100);

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    if every < EVERY_MIN { Err("look every 100ms at most".to_owned()) } else { Ok(every) }
}

/// Which server is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's address
    #[arg(long, env = "REDRIVE_SERVER", value_name = "URL", default_value = "http://127.0.0.1:7373")]
    pub(crate) server: Address,
    /// With https: believes the server if one of these certificates vouches for it, and not otherwise: PEM
    #[arg(long, env = "REDRIVE_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A file with the key to show to the server; else the variable REDRIVE_KEY is looked at
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

impl ServerArgs {
    /// Somebody who asks that server.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let client = Client::new(self.server.clone(), Key::find(self.key_file.as_deref())?);
        match self.ca.as_deref().filter(|_| self.server.is_secure()) {
            Some(path) => Ok(client.trusting(Roots::read(path)?)),
            None => Ok(client),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs, as the server tells it
    Json,
}

/// How what a server tells is printed, and which server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ViewArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl ViewArgs {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.server.client()
    }
}

/// Sends an event to a running server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive send orders.placed
  redrive send orders.placed '{\"order\": 42}' --id order-42 --session customer-7
  redrive send orders.placed --file order.json
  jq .order orders.json | redrive send orders.placed -
  redrive send note.taken 'buy milk' --content-type text/plain

Exit code: 0 it is safe, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct SendArgs {
    /// The event's type
    #[arg(value_name = "TYPE")]
    pub(crate) event_type: String,
    /// The data, as JSON; `-` reads them from standard input
    #[arg(default_value = "{}")]
    pub(crate) data: String,
    /// Reads the data from a file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) file: Option<PathBuf>,
    /// What the data are, if they are no JSON
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// The event's id: a second event with it is the same one; made up if left out
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The session: events with the same key are delivered in order
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// Where it comes from
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// What it is about
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// What ties it to other events
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// How many such events, each with an id of its own
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "id",
          value_parser = clap::value_parser!(u32).range(1..=SEND_COUNT_MAX))]
    pub(crate) count: u32,
    /// How to print the answer; `json` is one line for each event
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// More than that is load, and wants a tool that measures it.
const SEND_COUNT_MAX: i64 = 1_000_000;

/// Shows what happens on a running server, line by line, until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive tail
  redrive tail --service billing --type 'orders.*'
  redrive tail --format json | jq -r 'select(.what == \"dead\") | .delivery'

Exit code: 0 ended with Ctrl-C, 2 wrong use, 3 no server.")]
pub(crate) struct TailArgs {
    /// Only this service and its channels, or only service/channel
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// Only events of this type, or that a pattern such as `orders.*` claims
    #[arg(long = "type", value_name = "TYPE", value_parser = EventPattern::parse)]
    pub(crate) event_type: Option<EventPattern>,
    /// How to print it; `json` is one line for each
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Shows an event with its data and its deliveries, or a delivery with its attempts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive show order-42
  redrive show 9e3779b97f4a7c15
  redrive show 3c6ef372

Exit code: 0 shown, 1 nothing goes by that name, 2 wrong use, 3 no server.")]
pub(crate) struct ShowArgs {
    /// An event's id or receipt, or a delivery's id or the first digits of it
    #[arg(value_name = "EVENT|DELIVERY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Tells why a delivery is as it is: every attempt, the rule line as it read then, and the numbers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive why --last
  redrive why --last --service billing
  redrive why 3c6ef372

Exit code: 0 told, 1 there is no such delivery, 2 wrong use, 3 no server.")]
pub(crate) struct WhyArgs {
    /// The delivery's id, or the first digits of it
    #[arg(required_unless_present = "last")]
    pub(crate) delivery: Option<String>,
    /// The delivery that failed last, or else the latest
    #[arg(long, conflicts_with = "delivery")]
    pub(crate) last: bool,
    /// With --last: only of this service and its channels, or only of service/channel
    #[arg(long, conflicts_with = "delivery")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Shows how a running server is: what waits, what is dead, which breakers are open.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive status
  redrive status --watch
  redrive status --format json --server http://redrive.internal:7373

While it watches, a terminal shows one page that changes, with rates since the last look; elsewhere a page \
follows the other. A server that goes away is waited for, and Ctrl-C ends it.

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct StatusArgs {
    /// Looks again and again
    #[arg(long)]
    pub(crate) watch: bool,
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every, requires = "watch")]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Says whether a running server works, by its exit code: for containers and scripts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive health
  redrive health --ready

Neither needs a key; with one that may read everything, names are told beside counts.

Exit code: 0 it does, 1 it does not, 2 wrong use, 3 no server.")]
pub(crate) struct HealthArgs {
    /// Asks whether it takes events, and what is wrong though it does
    #[arg(long)]
    pub(crate) ready: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which service is meant.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// The service
    pub(crate) service: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Routes events again, by the rule book as it reads now.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive route --unrouted

Exit code: 0 done, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct RouteArgs {
    /// Those that nobody wanted when they came
    #[arg(long, required = true)]
    pub(crate) unrouted: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Copies the store into a folder, while the server runs or while it does not.
///
/// With a server, the folder is one of the server's machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive backup backups/monday
  redrive backup backups/monday --data /var/lib/redrive

Exit code: 0 copied, 1 refused or failed, 2 wrong use, 3 no server, and no store either.")]
pub(crate) struct BackupArgs {
    /// Where to; the folder must hold no store
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The data folder, for when no server runs
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Gives back the disk space of what was deleted; no server may run on the folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive compact --data /var/lib/redrive

Exit code: 0 done, 1 refused or failed, 2 wrong use.")]
pub(crate) struct CompactArgs {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
}
