//! `redrive send`: an event of any type, so that the first one needs no other tool.
//!
//! Invariant: each event has its id before it is sent, so that one sent twice is still one event.

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::{print, read_input};
use crate::api::shape::Accepted;
use crate::cli::{Format, SendArgs};
use crate::client::{Ask, header_value, segment};
use crate::show::moment::show_wait;
use crate::show::{counted, cut, event, plain, shell_word, style};

/// More data than any server takes.
pub(super) const DATA_BYTES_MAX: u64 = 256 << 20;
/// As much of what is no JSON is shown.
const QUOTED_COLUMNS: usize = 40;
const JSON: &str = "application/json";
/// What CloudEvents asks of every event that comes with a content type of its own.
const SOURCE_DEFAULT: &str = "redrive-send";

pub(super) async fn run(args: &SendArgs) -> anyhow::Result<()> {
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
                print(&event::accepted(&args.event_type, &accepted))?;
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

/// The bytes to send, from wherever they are.
fn data(args: &SendArgs) -> anyhow::Result<Bytes> {
    let read = |path: &Path| read_input(path, DATA_BYTES_MAX, "server").map(Bytes::from);
    match &args.file {
        Some(path) => read(path),
        None if args.data == "-" => read(Path::new("-")),
        None => Ok(Bytes::from(args.data.clone())),
    }
}

/// Refuses what the server would refuse, with advice that only this side of the shell can give.
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
        "the data are no JSON: {error}\n  \
         they read: {shown}\n  \
         quote JSON for the shell: redrive send {event_type} '{{\"key\": \"value\"}}'\n  \
         or say what they are:     redrive send {event_type} {whole} --content-type text/plain"
    )
}

/// JSON goes by the easy form, anything else as a CloudEvent in binary form.
fn ask(args: &SendArgs, data: &Bytes) -> Ask {
    let ask = match &args.content_type {
        None => Ask::post(format!("/v1/events/{}", segment(&args.event_type)), JSON, data.clone()),
        Some(content_type) => Ask::post("/v1/events", content_type, data.clone())
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
