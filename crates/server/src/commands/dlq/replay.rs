//! `redrive dlq replay`: begins a replay and stays with it until it is over.
//!
//! The replay is the server's: whether anybody watches makes no difference to it.

use std::process::ExitCode;
use std::time::Duration;

use redrive_core::letters::replay::ReplayState;
use redrive_core::text::Rate;
use serde_json::json;
use tokio::time::Instant;

use super::wish;
use crate::api::shape::letters::{ReplayShown, SurveyShown};
use crate::cli::{DlqReplayArgs, Format};
use crate::client::{Ask, Client, Lines};
use crate::commands::{print, print_as};
use crate::show::progress::ProgressLine;
use crate::show::{replay, style};

/// How often progress is told where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(3);
/// How long to wait before a server that went away is looked for again.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(2);

pub(super) async fn run(args: &DlqReplayArgs) -> anyhow::Result<ExitCode> {
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
    let ask = Ask::json("/v1/replays", &wish(&args.filter, others));
    if args.dry_run {
        let survey: SurveyShown = client.json(&ask).await?;
        print_as(args.format, &survey, || replay::survey(&survey))?;
        let could_begin = survey.refused_because.is_none();
        return Ok(if could_begin { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (began, now) = client.timed_json::<ReplayShown>(&ask).await?;
    let code = if args.detach {
        print_as(args.format, &began, || replay::page(&began, now))?;
        ExitCode::SUCCESS
    } else {
        watch(&mut client, began.id, args.format).await?
    };
    if args.format == Format::Text {
        print(&replay::poison_left(&began))?;
    }
    Ok(code)
}

/// Stays with a replay until it is over or somebody has seen enough, and says how it stands.
pub(crate) async fn watch(client: &mut Client, id: u64, format: Format) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new(format);
    let last = tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            progress.line.clear();
            let word = format!("replay {id} goes on without you: `redrive replays {id} --watch` shows it again");
            anstream::eprintln!("{}", style::dim(word));
            return Ok(ExitCode::SUCCESS);
        }
        last = follow(client, id, &mut progress) => last,
    };
    progress.line.clear();
    let last = last?;
    print_as(format, &last, || replay::ending(&last))?;
    let all_is_well = last.state == ReplayState::Done && last.failed == 0;
    Ok(if all_is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Goes on until the replay halts or ends; a server that went away is waited for.
async fn follow(client: &mut Client, id: u64, progress: &mut Progress) -> anyhow::Result<ReplayShown> {
    let ask = Ask::get(format!("/v1/replays/{id}/progress?until=halt"));
    let mut lines = client.lines(&ask).await?;
    loop {
        if let Some(last) = until_silent(lines, progress).await {
            return Ok(last);
        }
        progress.say("the server has gone away; the replay goes on when it is back");
        lines = client.lines_again(&ask, PAUSE_BETWEEN_TRIES).await?;
    }
}

/// The last state of a replay that is over; none if the stream broke off before.
async fn until_silent(mut lines: Lines, progress: &mut Progress) -> Option<ReplayShown> {
    let mut last: Option<ReplayShown> = None;
    while let Ok(Some(line)) = lines.next().await {
        let Some(json) = line.strip_prefix("data:") else { continue };
        let Ok(shown) = serde_json::from_str::<ReplayShown>(json) else { continue };
        progress.show(&shown);
        last = Some(shown);
    }
    last.filter(|replay| !matches!(replay.state, ReplayState::Gathering | ReplayState::Running))
}

/// Progress on standard error: a line that is written over in a terminal, a line now and then elsewhere.
struct Progress {
    line: ProgressLine,
    is_quiet: bool,
    first: Option<(Instant, u64)>,
    told_at: Instant,
}

impl Progress {
    fn new(format: Format) -> Self {
        let is_quiet = format == Format::Json;
        Self { line: ProgressLine::new(), is_quiet, first: None, told_at: Instant::now() }
    }

    fn show(&mut self, shown: &ReplayShown) {
        let done = shown.delivered + shown.failed + shown.left;
        let now = Instant::now();
        let (began, before) = *self.first.get_or_insert((now, done));
        let took = now.duration_since(began).as_secs_f64();
        let per_second = (took > 0.5).then(|| done.saturating_sub(before) as f64 / took);
        if let Some(columns) = self.line.columns() {
            self.line.show(&replay::progress(shown, per_second, columns));
        } else if !self.is_quiet && now.duration_since(self.told_at) >= TELL_EVERY {
            self.told_at = now;
            anstream::eprintln!("replay {}: {}", shown.id, replay::progress_words(shown, per_second));
        }
    }

    fn say(&self, text: &str) {
        self.line.clear();
        anstream::eprintln!("{}", style::dim(format!("— {text}")));
    }
}
