//! `redrive tail`: what happens on a server, as it happens; a server that goes away is waited for.

use std::time::Duration;

use redrive_node::activity::{Activity, ActivityLine};

use super::print;
use crate::cli::{Format, TailArgs};
use crate::client::{Ask, Lines};
use crate::show::tail::Columns;
use crate::show::{self, style};

/// How long to wait between two tries to find the server again.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &TailArgs) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        result = follow(args) => result,
    }
}

/// Goes on until somebody stops it.
async fn follow(args: &TailArgs) -> anyhow::Result<()> {
    let mut client = args.server.client()?;
    let stream = Ask::get("/v1/happenings");
    // A server that was never there is told at once; only one that went away is waited for.
    let mut lines = client.lines(&stream).await?;
    let address = client.address().clone();
    say(&format!("following {address}, times in UTC, Ctrl-C ends it"));
    let mut columns = Columns::new(show::terminal_columns());
    loop {
        let lost = pass_on(args, lines, &mut columns).await?;
        say(&format!("{lost}; waiting for {address} …"));
        lines = client.lines_again(&stream, PAUSE_BETWEEN_TRIES).await?;
        say("connected again; what happened in between is not shown");
    }
}

/// Prints until the stream ends, and says why it did.
async fn pass_on(args: &TailArgs, mut lines: Lines, columns: &mut Columns) -> anyhow::Result<String> {
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok("the server has ended the stream".to_owned()),
            Err(problem) => return Ok(problem.to_string()),
        };
        // A newer server may tell of what we do not know; a program may, so it still gets the line.
        let Ok(activity_line) = serde_json::from_str::<ActivityLine>(&line) else {
            match args.format {
                Format::Json if args.service.is_none() && args.event_type.is_none() => print(&(line + "\n"))?,
                Format::Json => {}
                Format::Text => say("the server told of something that this redrive does not know"),
            }
            continue;
        };
        if !is_wanted(args, &activity_line.activity) {
            continue;
        }
        match args.format {
            Format::Json => print(&(line + "\n"))?,
            Format::Text => print(&columns.line(&activity_line))?,
        }
    }
}

/// A service's name means its channels too.
fn is_wanted(args: &TailArgs, activity: &Activity) -> bool {
    let of_service = args.service.as_deref().is_none_or(|wanted| {
        let name = activity.service();
        name == Some(wanted)
            || name.and_then(|name| name.split_once('/')).is_some_and(|(service, _)| service == wanted)
    });
    let of_type = args
        .event_type
        .as_ref()
        .is_none_or(|pattern| activity.event_type().is_some_and(|event_type| pattern.matches(event_type)));
    of_service && of_type
}

/// A word beside the output.
fn say(text: &str) {
    anstream::eprintln!("{}", style::dim(format!("— {text}")));
}
