//! The commands for dead letters and replays.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use redrive_core::text::{Rate, parse_duration, parse_rate};

use super::one_of;
use super::remote::{Format, ServerArgs, ViewArgs};
use crate::api::shape::letters::Form;
use crate::letters::filter::FilterKeys;

/// Looks at dead letters, sends them again, or does away with them.
#[derive(Debug, Args)]
#[command(after_help = "\
A morning after:
  redrive dlq groups                            which causes there are
  redrive dlq show 3c6ef372                     one letter with its attempts and its data
  redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary
                                                one, then ten, then the rest
  redrive replays                               how far they are")]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    pub(crate) what: Dlq,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    List(DlqListArgs),
    Groups(DlqGroupsArgs),
    Show(DlqShowArgs),
    Replay(Box<DlqReplayArgs>),
    Purge(Box<DlqPurgeArgs>),
    Edit(DlqEditArgs),
    Skip(DlqSkipArgs),
    Import(DlqImportArgs),
    Export(DlqExportArgs),
}

/// Where letters are read from.
#[derive(Clone, Debug, Args)]
pub(crate) struct FromArgs {
    /// Reads this data folder instead of asking a server, which may be running on it
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Lists dead letters, the latest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq list
  redrive dlq list --service billing --from 2h
  redrive dlq list --fingerprint 00c0ffee00c0ffee --text 'customer 7' --format json
  redrive dlq list --data /var/lib/redrive

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
    /// Goes on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) before: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: FromArgs,
}

/// Shows the causes of dead letters: how many each has, since when, and how they come over time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq groups
  redrive dlq groups --service billing --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqGroupsArgs {
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: FromArgs,
}

/// Shows a dead letter with its attempts and its data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq show 3c6ef372
  redrive dlq show 3c6ef372 --format json
  redrive dlq show 3c6ef372 --format json --form redis

Exit code: 0 shown, 1 there is no such letter, 2 wrong use, 3 no server.")]
pub(crate) struct DlqShowArgs {
    /// The letter's id, the first digits of it, or the id that it had elsewhere
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// In which form `json` has it (default: `dead_letter.form` of the rule book; with --data: envelope)
    #[arg(long, value_enum)]
    pub(crate) form: Option<Form>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: FromArgs,
}

/// Sends dead letters again, with fresh retries, and shows how it goes.
#[derive(Debug, Args)]
#[command(after_help = "\
The letters are chosen when it begins; those that die later are left alone. Letters of one session go in \
order. One that fails again is poison, and the rest of its session stays dead. Ctrl-C ends the watching, \
not the replay.

Examples:
  redrive dlq replay 3c6ef372
  redrive dlq replay --service billing --dry-run --rate 20/s
  redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary
  redrive dlq replay --service old-billing --to billing
  redrive dlq replay --tier poison --include-poison --note 'the field is there again'

Exit code: 0 all delivered, or --detach or Ctrl-C, 1 refused, stopped, or some failed again, 2 wrong use, 3 no server.")]
#[expect(clippy::struct_excessive_bools, reason = "flags as they are typed")]
pub(crate) struct DlqReplayArgs {
    /// Letters by their ids, the first digits of them, or the ids that they had elsewhere
    #[arg(value_name = "LETTER")]
    pub(crate) letters: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// All of them, if no letter and no filter is named
    #[arg(long, conflicts_with = "letters")]
    pub(crate) all: bool,
    /// Also letters that have failed a replay before, or do not parse; needs a note
    #[arg(long, requires = "note")]
    pub(crate) include_poison: bool,
    /// Says what it would come to, and sends nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How many at most, such as 20/s or 100/m
    #[arg(long, value_parser = parse_rate)]
    pub(crate) rate: Option<Rate>,
    /// How many may be on their way at once
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u32>,
    /// One, then ten, then the rest; stops by itself when the same failure comes back
    #[arg(long)]
    pub(crate) canary: bool,
    /// Sends them to another service, or service/channel
    #[arg(long, value_name = "SERVICE")]
    pub(crate) to: Option<String>,
    /// Why, for the record
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Begins it and does not wait for its end
    #[arg(long)]
    pub(crate) detach: bool,
    /// How to print it; `json` is the replay, or what it would come to
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Deletes dead letters for good.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq purge 3c6ef372                    one letter
  redrive dlq purge --service billing --older-than 7d --dry-run
  redrive dlq purge --fingerprint 00c0ffee00c0ffee --yes --note 'test data'

Letters that an open replay has claimed stay. What was deleted is on record: `redrive audit`.

Exit code: 0 deleted, 1 refused, or nobody said yes, 2 wrong use, 3 no server.")]
pub(crate) struct DlqPurgeArgs {
    /// Letters by their ids, the first digits of them, or the ids that they had elsewhere
    #[arg(value_name = "LETTER")]
    pub(crate) letters: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// That died longer ago, such as 7d
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    pub(crate) older_than: Option<Duration>,
    /// All of them, if no letter and no filter is named
    #[arg(long, conflicts_with = "letters")]
    pub(crate) all: bool,
    /// Says how many, and deletes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Does not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// Why, for the record
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// How to print what came of it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Sends a dead letter with other data, as an event of its own that takes its place.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --data and --file, $VISUAL or $EDITOR opens the data.

Examples:
  redrive dlq edit 3c6ef372
  redrive dlq edit 3c6ef372 --data '{\"total\": 12}' --note 'the total was missing'
  redrive dlq edit 3c6ef372 --file mended.json

Exit code: 0 sent, 1 refused, or nothing was changed, 2 wrong use, 3 no server.")]
pub(crate) struct DlqEditArgs {
    /// The letter's id, the first digits of it, or the id that it had elsewhere
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// The new data
    #[arg(long, conflicts_with = "file")]
    pub(crate) data: Option<String>,
    /// Reads the new data from a file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// What the new data are, if not what the old ones were
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Why, for the record
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// How to print what came of it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Gives up a dead letter; those that it holds go on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq skip 3c6ef372 --note 'the order was cancelled by phone'

Exit code: 0 skipped, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqSkipArgs {
    /// The letter's id, the first digits of it, or the id that it had elsewhere
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// Why, for the record
    #[arg(long)]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Takes dead letters from elsewhere, one JSON object a line.
#[derive(Debug, Args)]
#[command(after_help = "\
Lines are our envelopes, letters of Redis streams, or plain ones such as
  {\"service\": \"billing\", \"type\": \"orders.placed\", \"data\": {\"order\": 42}}
docs/dead-letters.md has all that such a line may say. The whole file is checked first; importing it twice \
changes nothing.

Examples:
  redrive dlq import letters.jsonl
  redis-cli --raw XRANGE work:dlq - + | ./to-lines | redrive dlq import -

Exit code: 0 imported, 1 some lines are no letters, 2 a file cannot be read, 3 no server.")]
pub(crate) struct DlqImportArgs {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How to print what came of it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Writes dead letters, one JSON object a line, the oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq export > letters.jsonl
  redrive dlq export --service billing --form redis
  redrive dlq export --data /var/lib/redrive | jq -r .originalEventId

Exit code: 0 written, 1 refused, or it broke off, 2 wrong use, 3 no server.")]
pub(crate) struct DlqExportArgs {
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// In which form (default: `dead_letter.form` of the rule book; with --data: envelope)
    #[arg(long, value_enum)]
    pub(crate) form: Option<Form>,
    #[command(flatten)]
    pub(crate) from: FromArgs,
}

/// Shows replays, or halts one, lets it go on, or ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive replays
  redrive replays 3
  redrive replays 3 --watch
  redrive replays 3 pause
  redrive replays 3 resume
  redrive replays 3 cancel

Exit code: 0 shown or done, 1 refused; with --watch also: stopped, or some failed again, 2 wrong use, 3 no server.")]
pub(crate) struct ReplaysArgs {
    /// Which
    #[arg(value_name = "NUMBER")]
    pub(crate) replay: Option<u64>,
    /// What to do with it
    #[arg(value_parser = one_of(&REPLAY_ACTS), conflicts_with = "watch")]
    pub(crate) act: Option<&'static str>,
    /// Shows how it goes on until it is over
    #[arg(long, requires = "replay")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// What can be done to a replay, and the last part of the path that does it.
const REPLAY_ACTS: [(&str, &str, &str); 3] = [
    ("pause", "Sends nothing more for now", "pause"),
    ("resume", "Goes on", "resume"),
    ("cancel", "Ends it; what was not sent stays dead", "cancel"),
];

/// Shows what was done with dead letters, by hand and by rule, the latest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive audit
  redrive audit --limit 500 --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct AuditArgs {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}
