//! `redrive dlq replay`: starts a replay and watches it.
//!
//! The replay runs on the server, watched or not.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use redrive_core::letters::replay::ReplayState;
use redrive_core::text::{Rate, parse_rate};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::{Format, ServerArgs};
use crate::client::{Client, ClientRequest, ResponseLines};
use crate::letters::command::letter_request;
use crate::letters::filter::FilterKeys;
use crate::replays::json::{ReplayJson, ReplaySurveyJson};
use crate::replays::text;
use crate::terminal::progress::ProgressLine;
use crate::terminal::{print, print_as, style};

/// Replays dead letters with fresh retries and shows the progress.
#[derive(Debug, Args)]
#[command(after_help = "\
The letters are selected at the start. Letters of one session are sent in order. A letter that \
                        fails again becomes poison, and the rest of its session stays dead. Ctrl-C stops watching, \
                        not the replay.

Examples:
  redrive dlq replay 3c6ef372
  redrive dlq replay --service billing --dry-run --rate 20/s
  redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary
  redrive dlq replay --service old-billing --to billing
  redrive dlq replay --tier poison --include-poison --note 'the field was restored'

Exit code: 0 all delivered, or --detach or Ctrl-C, 1 refused, stopped, or some failed again, 2 wrong use, 3 no server.")]
#[expect(clippy::struct_excessive_bools, reason = "command-line flags")]
pub(crate) struct DlqReplayArgs {
    /// Letters by id, id prefix, or original id
    #[arg(value_name = "LETTER")]
    pub(crate) letters: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// All letters; required without letters or a filter
    #[arg(long, conflicts_with = "letters")]
    pub(crate) all: bool,
    /// Includes letters that already failed a replay, or do not parse; requires --note
    #[arg(long, requires = "note")]
    pub(crate) include_poison: bool,
    /// Shows a preview and sends nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Maximum rate, such as 20/s or 100/m
    #[arg(long, value_parser = parse_rate)]
    pub(crate) rate: Option<Rate>,
    /// Maximum letters in flight
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u32>,
    /// Sends one, then ten, then the rest; stops when the same failure recurs
    #[arg(long)]
    pub(crate) canary: bool,
    /// Sends them to another service, or service/channel
    #[arg(long, value_name = "SERVICE")]
    pub(crate) to: Option<String>,
    /// The reason, for the audit log
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Starts the replay without waiting for its end
    #[arg(long)]
    pub(crate) detach: bool,
    /// Output format; `json` prints the replay or its preview
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Without a terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);

const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &DlqReplayArgs) -> anyhow::Result<ExitCode> {
    let mut client = args.server.client()?;
    let others = json!({
        "letters": args.letters,
        "all": args.all,
        "include_poison": args.include_poison,
        "dry_run": args.dry_run,
        "canary": args.canary,
        "rate": args.rate.map(Rate::as_per_second),
        "concurrency": args.concurrency,
        "to": args.to,
        "note": args.note,
    });
    let ask = ClientRequest::json("/v1/replays", &letter_request(&args.filter, others));
    if args.dry_run {
        let survey: ReplaySurveyJson = client.json(&ask).await?;
        print_as(args.format, &survey, || text::survey(&survey))?;
        let could_begin = survey.refused_because.is_none();
        return Ok(if could_begin { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (began, now) = client.timed_json::<ReplayJson>(&ask).await?;
    let code = if args.detach {
        print_as(args.format, &began, || text::page(&began, now))?;
        ExitCode::SUCCESS
    } else {
        watch(&mut client, began.id, args.format).await?
    };
    if args.format == Format::Text {
        print(&text::poison_left(&began))?;
    }
    Ok(code)
}

/// Watches until the replay ends or Ctrl-C, and prints its state.
pub(crate) async fn watch(client: &mut Client, id: u64, format: Format) -> anyhow::Result<ExitCode> {
    let mut progress = ReplayProgress::new(format);
    let last = tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            progress.line.clear();
            let word = format!("replay {id} continues on the server: `redrive replays {id} --watch` shows it again");
            anstream::eprintln!("{}", style::dim(word));
            return Ok(ExitCode::SUCCESS);
        }
        last = follow(client, id, &mut progress) => last,
    };
    progress.line.clear();
    let last = last?;
    print_as(format, &last, || text::ending(&last))?;
    let all_is_well = last.state == ReplayState::Done && last.failed == 0;
    Ok(if all_is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reconnects to a server that went away.
async fn follow(client: &mut Client, id: u64, progress: &mut ReplayProgress) -> anyhow::Result<ReplayJson> {
    let ask = ClientRequest::get(format!("/v1/replays/{id}/progress?until=halt"));
    let mut lines = client.lines(&ask).await?;
    loop {
        if let Some(last) = until_silent(lines, progress).await {
            return Ok(last);
        }
        progress.say("connection to the server lost; the replay resumes when the server is back");
        lines = client.lines_again(&ask, PAUSE_BETWEEN_TRIES).await?;
    }
}

/// The final state; `None` if the stream broke off.
async fn until_silent(mut lines: ResponseLines, progress: &mut ReplayProgress) -> Option<ReplayJson> {
    let mut last: Option<ReplayJson> = None;
    while let Ok(Some(line)) = lines.next().await {
        let Some(json) = line.strip_prefix("data:") else { continue };
        let Ok(shown) = serde_json::from_str::<ReplayJson>(json) else { continue };
        progress.show(&shown);
        last = Some(shown);
    }
    last.filter(|replay| !matches!(replay.state, ReplayState::Gathering | ReplayState::Running))
}

/// Progress on standard error: one overwritten line in a terminal, else periodic lines.
struct ReplayProgress {
    line: ProgressLine,
    is_quiet: bool,
    first: Option<(Instant, u64)>,
    told_at: Instant,
}

impl ReplayProgress {
    fn new(format: Format) -> Self {
        let is_quiet = format == Format::Json;
        Self { line: ProgressLine::new(), is_quiet, first: None, told_at: Instant::now() }
    }

    fn show(&mut self, shown: &ReplayJson) {
        let done = shown.delivered + shown.failed + shown.left;
        let now = Instant::now();
        let (began, before) = *self.first.get_or_insert((now, done));
        let took = now.duration_since(began).as_secs_f64();
        let per_second = (took > 0.5).then(|| done.saturating_sub(before) as f64 / took);
        if let Some(columns) = self.line.columns() {
            self.line.show(&text::progress(shown, per_second, columns));
        } else if !self.is_quiet && now.duration_since(self.told_at) >= PROGRESS_EVERY {
            self.told_at = now;
            anstream::eprintln!("replay {}: {}", shown.id, text::progress_words(shown, per_second));
        }
    }

    fn say(&self, text: &str) {
        self.line.clear();
        anstream::eprintln!("{}", style::dim(format!("— {text}")));
    }
}
