//! `redrive dlq purge`: deletes dead letters after a confirmed count.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use redrive_core::text::{counted, parse_duration, show_duration};
use redrive_core::time::Timestamp;
use serde_json::{Value, json};

use crate::cli::{CommandRefusal, Format, ServerArgs};
use crate::client::{Client, ClientRequest};
use crate::letters::command::letter_request;
use crate::letters::filter::FilterKeys;
use crate::letters::json::PurgeResponse;
use crate::terminal::progress::ProgressLine;
use crate::terminal::{json_text, plain, print, style};

/// Deletes dead letters permanently.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq purge 3c6ef372                    one letter
  redrive dlq purge --service billing --older-than 7d --dry-run
  redrive dlq purge --fingerprint 00c0ffee00c0ffee --yes --note 'test data'

Letters claimed by an open replay are kept. Deletions are recorded in the audit log: `redrive audit`.

Exit code: 0 deleted, 1 refused or not confirmed, 2 wrong use, 3 no server.")]
pub(crate) struct DlqPurgeArgs {
    /// Letters by id, id prefix, or original id
    #[arg(value_name = "LETTER")]
    pub(crate) letters: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// Only letters older than this, such as 7d
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    pub(crate) older_than: Option<Duration>,
    /// All letters; required without letters or a filter
    #[arg(long, conflicts_with = "letters")]
    pub(crate) all: bool,
    /// Shows the count and deletes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skips the confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// The reason, for the audit log
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn run(args: &DlqPurgeArgs) -> anyhow::Result<()> {
    print(&carry_out(args, confirm).await?)
}

/// Deletes only after `confirm` or with `--yes`.
async fn carry_out(
    args: &DlqPurgeArgs,
    confirm: impl FnOnce(&PurgeResponse) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut client = args.server.client()?;
    let shown = |purge: &PurgeResponse, words: fn(&PurgeResponse) -> String| match args.format {
        Format::Json => json_text(purge),
        Format::Text => Ok(words(purge)),
    };
    let mut looked_at = None;
    if args.dry_run || !args.yes {
        let dry: PurgeResponse = client.json(&ask(args, "dry_run", &json!(true))).await?;
        if args.dry_run || dry.deleted == 0 {
            return shown(&dry, would_be);
        }
        confirm(&dry)?;
        looked_at = dry.died_until;
    }
    let purged = purge(&mut client, args, looked_at).await?;
    shown(&purged, ending)
}

fn ask(args: &DlqPurgeArgs, key: &str, value: &Value) -> ClientRequest {
    let others = json!({
        key: value,
        "letters": args.letters,
        "all": args.all,
        "older_than": args.older_than.map(show_duration),
        "note": args.note,
    });
    ClientRequest::json("/v1/dead-letters/purge", &letter_request(&args.filter, others))
}

/// Repeats until the server is done; letters that died after the dry run are kept.
async fn purge(
    client: &mut Client,
    args: &DlqPurgeArgs,
    looked_at: Option<Timestamp>,
) -> anyhow::Result<PurgeResponse> {
    let mut lines = client.lines(&ask(args, "died_until", &json!(looked_at))).await?;
    let progress = ProgressLine::new();
    loop {
        let Ok(Some(line)) = lines.next().await else {
            let text = "connection to the server lost: the purge may be incomplete";
            return Err(CommandRefusal(text.to_owned()).into());
        };
        let step: PurgeResponse = lines.read(&line)?;
        progress.clear();
        if let Some(error) = step.error {
            return Err(CommandRefusal(format!("the purge is incomplete: {}", plain(&error))).into());
        }
        if step.done {
            return Ok(step);
        }
        progress.show(&style::dim(format!("{} deleted so far", counted(step.deleted, "dead letter"))));
    }
}

fn would_be(dry: &PurgeResponse) -> String {
    let mut out = match dry.deleted {
        0 => "no dead letters to delete\n".to_owned(),
        count => format!("{} would be deleted\n", counted(count, "dead letter")),
    };
    match (dry.deleted, dry.holding.unwrap_or_default()) {
        (_, 0) => {}
        (1, _) => out.push_str("  its session would resume\n"),
        (_, holding) => {
            let sessions = counted(holding, "session");
            out.push_str(&format!("  {sessions} would resume\n"));
        }
    }
    if dry.claimed > 0 {
        out.push_str(&format!("  {} would be kept\n", of_replays(dry.claimed)));
    }
    out
}

fn of_replays(claimed: u64) -> String {
    match claimed {
        1 => "1 letter of an open replay".to_owned(),
        count => format!("{} of open replays", counted(count, "letter")),
    }
}

fn ending(purged: &PurgeResponse) -> String {
    let mut out = match purged.deleted {
        0 => format!("{} no dead letters deleted\n", style::warning("!")),
        count => format!("{} {} deleted\n", style::good("✓"), counted(count, "dead letter")),
    };
    if purged.claimed > 0 {
        let stay = if purged.claimed == 1 { "is kept" } else { "are kept" };
        out.push_str(&format!("  {} {stay}: cancel the replay first\n", of_replays(purged.claimed)));
    }
    out
}

/// Without a terminal, nothing is deleted.
fn confirm(dry: &PurgeResponse) -> anyhow::Result<()> {
    let stay = |why: &str| {
        let letters = counted(dry.deleted, "dead letter");
        CommandRefusal(format!("nothing deleted: {letters} would be deleted, but {why}"))
    };
    if !std::io::stdin().is_terminal() {
        return Err(stay("there is no terminal to confirm; add --yes").into());
    }
    let them = if dry.deleted == 1 { "it" } else { "them" };
    let question = format!("{}Delete {them} permanently? [y/N] ", would_be(dry));
    write!(anstream::stderr().lock(), "{question}")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(stay("it was not confirmed").into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};
    use std::net::TcpListener;

    use clap::Parser as _;

    use super::*;
    use crate::cli;
    use crate::cli::{Cli, CliCommand};
    use crate::letters::command::DlqCommand;

    const DRY: &str = r#"{"deleted":2,"claimed":0,"dry_run":true,"died_until":"2026-01-31T12:00:00.123456789Z","done":true}"#;
    const DONE: &str = "{\"deleted\":2,\"claimed\":0,\"dry_run\":false,\"done\":true}\n";

    fn answer(listener: &TcpListener, answers: &[&str]) -> Vec<Value> {
        let mut bodies = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection comes");
            let mut reader = BufReader::new(stream.try_clone().expect("a socket has two ends"));
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line comes");
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body comes");
            bodies.push(serde_json::from_slice(&body).expect("JSON"));
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.write_all((head + answer).as_bytes()).expect("the client reads it");
        }
        bodies
    }

    #[test]
    fn what_is_deleted_is_what_somebody_said_yes_to() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let typed = ["redrive", "dlq", "purge", "--older-than", "7d", "--server", &address];
        let CliCommand::Dlq(dlq) = Cli::try_parse_from(typed).expect("a command").command else {
            panic!("a purge")
        };
        let DlqCommand::Purge(args) = dlq.what else { panic!("a purge") };
        let server = std::thread::spawn(move || answer(&listener, &[DRY, DONE]));
        let out = cli::wait_for(carry_out(&args, |dry| {
            assert_eq!(dry.deleted, 2);
            Ok(())
        }));
        assert!(out.expect("it goes well").contains("2 dead letters deleted"));
        let asked = server.join().expect("it ends");
        let died_until = "2026-01-31T12:00:00.123456789Z";
        assert_eq!(asked[0], json!({ "dry_run": true, "older_than": "7d" }));
        assert_eq!(asked[1], json!({ "died_until": died_until, "older_than": "7d" }), "to the last digit");
    }

    #[test]
    fn what_would_go_is_told_in_words_that_agree() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",       0, 0, 0, "no dead letters to delete\n"),
            ("one",           1, 1, 1, "1 dead letter would be deleted\n  its session would resume\n  1 letter of an open replay would be kept\n"),
            ("one of a few",  2, 1, 0, "2 dead letters would be deleted\n  1 session would resume\n"),
            ("many",       2000, 2, 3, "2,000 dead letters would be deleted\n  2 sessions would resume\n  3 letters of open replays would be kept\n"),
        ];
        for (name, deleted, holding, claimed, expected) in cases {
            let dry = PurgeResponse { deleted, holding: Some(holding), claimed, ..PurgeResponse::default() };
            assert_eq!(would_be(&dry), expected, "{name}");
        }
    }
}
