//! `redrive send`: sends an event.
//!
//! Invariant: each event has its id before it is sent, so that a repeated send is a duplicate.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use redrive_core::text::counted;
use serde::de::IgnoredAny;

use crate::cli::files::read_input;
use crate::cli::{Format, ServerArgs};
use crate::client::ClientRequest;
use crate::client::address::{header_value, segment};
use crate::deliveries;
use crate::events::json::Accepted;
use crate::terminal::moment::show_wait;
use crate::terminal::{cut, plain, print, shell_word, style};

/// Sends an event to a running server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive send orders.placed
  redrive send orders.placed '{\"order\": 42}' --id order-42 --session customer-7
  redrive send orders.placed --file order.json
  jq .order orders.json | redrive send orders.placed -
  redrive send note.taken 'buy milk' --content-type text/plain

Exit code: 0 accepted, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct SendArgs {
    /// The event's type
    #[arg(value_name = "TYPE")]
    pub(crate) event_type: String,
    /// The data, as JSON; `-` reads standard input
    #[arg(default_value = "{}")]
    pub(crate) data: String,
    /// Reads the data from a file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) file: Option<PathBuf>,
    /// Content type of the data, if it is not JSON
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// The event's id: a repeated id is a duplicate; default: generated
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The session: events with the same key are delivered in order
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// Where the event comes from
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// What the event is about
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Correlation id, to relate events
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Number of events, each with its own id
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "id",
          value_parser = clap::value_parser!(u32).range(1..=SEND_COUNT_MAX))]
    pub(crate) count: u32,
    /// Output format; `json` prints one line per event
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// For more, use a load generator.
const SEND_COUNT_MAX: i64 = 1_000_000;

/// Above the limit of any server.
pub(crate) const DATA_BYTES_MAX: u64 = 256 << 20;

const QUOTED_COLUMNS: usize = 40;

const JSON: &str = "application/json";

/// CloudEvents requires a source in the binary form.
const SOURCE_DEFAULT: &str = "redrive-send";

pub(crate) async fn run(args: &SendArgs) -> anyhow::Result<()> {
    let data = data(args)?;
    if args.content_type.is_none() {
        check_json(args, &data)?;
    }
    let mut client = args.server.client()?;
    let started_at = Instant::now();
    let mut unrouted = 0;
    for number in 1..=args.count {
        let accepted: Accepted = client.json(&ask(args, &data)).await?;
        unrouted += u32::from(accepted.deliveries == 0);
        match args.format {
            Format::Json => print(&(serde_json::to_string(&accepted)? + "\n"))?,
            Format::Text if number < args.count => {}
            Format::Text => {
                if args.count > 1 {
                    print(&summary(args, unrouted, started_at))?;
                }
                print(&deliveries::text::accepted(&args.event_type, &accepted))?;
            }
        }
    }
    Ok(())
}

fn summary(args: &SendArgs, unrouted: u32, started_at: Instant) -> String {
    let sent = counted(u64::from(args.count), "event");
    let took = show_wait(started_at.elapsed());
    let unrouted = match unrouted {
        0 => String::new(),
        count => format!(", {count} of them unrouted"),
    };
    format!("{} {sent} in {took}{unrouted}; the last one:\n", style::good("✓"))
}

fn data(args: &SendArgs) -> anyhow::Result<Bytes> {
    let read = |path: &Path| read_input(path, DATA_BYTES_MAX, "server").map(Bytes::from);
    match &args.file {
        Some(path) => read(path),
        None if args.data == "-" => read(Path::new("-")),
        None => Ok(Bytes::from(args.data.clone())),
    }
}

/// Catches what the server would refuse, with advice about shell quoting.
fn check_json(args: &SendArgs, data: &[u8]) -> anyhow::Result<()> {
    let Err(error) = serde_json::from_slice::<IgnoredAny>(data) else { return Ok(()) };
    let text = plain(&String::from_utf8_lossy(data));
    let event_type = shell_word(&args.event_type);
    let whole = if args.file.is_none() && args.data != "-" {
        shell_word(&cut(&text, QUOTED_COLUMNS))
    } else {
        "--file FILE".to_owned()
    };
    let shown = cut(text.trim(), QUOTED_COLUMNS);
    anyhow::bail!(
        "data is not valid JSON: {error}\n  received: {shown}\n  quote JSON for the shell: redrive send {event_type} '{{\"key\": \"value\"}}'\n  or set the content type:  redrive send {event_type} {whole} --content-type text/plain"
    )
}

/// JSON is sent under its type, anything else as a binary CloudEvent.
fn ask(args: &SendArgs, data: &Bytes) -> ClientRequest {
    let ask = match &args.content_type {
        None => ClientRequest::post(format!("/v1/events/{}", segment(&args.event_type)), JSON, data.clone()),
        Some(content_type) => ClientRequest::post("/v1/events", content_type, data.clone())
            .header("ce-specversion", "1.0")
            .header("ce-type", header_value(&args.event_type)),
    };
    let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let source = args.source.as_deref().or(args.content_type.as_ref().map(|_| SOURCE_DEFAULT));
    let attributes = [
        ("ce-source", source),
        ("ce-id", Some(&id)),
        ("ce-subject", args.subject.as_deref()),
        ("ce-partitionkey", args.session.as_deref()),
        ("ce-correlationid", args.correlation_id.as_deref()),
    ];
    let given = attributes.into_iter().filter_map(|(name, value)| Some((name, value?)));
    given.fold(ask, |ask, (name, value)| ask.header(name, header_value(value)))
}
