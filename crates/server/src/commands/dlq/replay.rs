//! `redrive dlq replay`: begins a replay and stays with it until it is over.
//!
//! The replay is the server's: whether anybody watches makes no difference to it.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use redrive_core::letters::replay::ReplayState;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::api::shape::letters::{ReplayShown, SurveyShown};
use crate::cli::{DlqReplayArgs, Format};
use crate::client::{Ask, Client, Lines, Trouble};
use crate::commands::{print, print_json, wait_for};
use crate::show::{columns, replay, style};

/// How often progress is told where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(3);
/// How long to wait before a server that went away is looked for again.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(2);

pub(super) fn run(args: &DlqReplayArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let body = serde_json::to_vec(&wish(args)).expect("texts and numbers can be written as JSON");
        let ask = Ask::post("/v1/replays", "application/json", body);
        if args.dry_run {
            let survey: SurveyShown = client.json(&ask).await?;
            match args.format {
                Format::Json => print_json(&survey)?,
                Format::Text => print(&replay::survey(&survey))?,
            }
            let could_begin = survey.refused_because.is_none();
            return Ok(if could_begin { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let (began, now) = client.timed_json::<ReplayShown>(&ask).await?;
        let code = if args.detach {
            match args.format {
                Format::Json => print_json(&began)?,
                Format::Text => print(&replay::page(&began, now))?,
            }
            ExitCode::SUCCESS
        } else {
            watch(&mut client, began.id, args.format).await?
        };
        if args.format == Format::Text {
            print(&replay::poison_left(&began))?;
        }
        Ok(code)
    })
}

fn wish(args: &DlqReplayArgs) -> Value {
    let mut wish = args.filter.keys();
    if !args.letters.is_empty() {
        wish.insert("letters".to_owned(), json!(args.letters));
    }
    let flags = [
        ("all", args.all),
        ("include_poison", args.include_poison),
        ("dry_run", args.dry_run),
        ("canary", args.canary),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        wish.insert(name.to_owned(), json!(true));
    }
    let values = [
        ("rate", args.rate.map(|rate| json!(rate.as_per_second()))),
        ("concurrency", args.concurrency.map(|count| json!(count))),
        ("to", args.to.as_ref().map(|to| json!(to))),
        ("note", args.note.as_ref().map(|note| json!(note))),
    ];
    wish.extend(values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Value::Object(wish)
}

/// Stays with a replay until it is over or somebody has seen enough, and says how it stands.
pub(crate) async fn watch(client: &mut Client, id: u64, format: Format) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new(format);
    let last = tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            progress.clear();
            let word = format!("replay {id} goes on without you: `redrive replays {id} --watch` shows it again");
            anstream::eprintln!("{}", style::dim(word));
            return Ok(ExitCode::SUCCESS);
        }
        last = follow(client, id, &mut progress) => last,
    };
    progress.clear();
    let last = last?;
    match format {
        Format::Json => print_json(&last)?,
        Format::Text => print(&replay::ending(&last))?,
    }
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
        lines = found_again(client, &ask).await?;
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

async fn found_again(client: &mut Client, ask: &Ask) -> Result<Lines, Trouble> {
    loop {
        sleep(PAUSE_BETWEEN_TRIES).await;
        match client.lines(ask).await {
            Ok(lines) => return Ok(lines),
            Err(Trouble::Unreachable { .. }) => {}
            Err(Trouble::Refused(refusal)) if refusal.is_away() => {}
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Progress on standard error: a line that is written over in a terminal, a line now and then elsewhere.
struct Progress {
    columns: Option<usize>,
    is_quiet: bool,
    first: Option<(Instant, u64)>,
    told_at: Instant,
}

impl Progress {
    fn new(format: Format) -> Self {
        let columns = std::io::stderr().is_terminal().then(columns);
        Self { columns, is_quiet: format == Format::Json, first: None, told_at: Instant::now() }
    }

    fn show(&mut self, shown: &ReplayShown) {
        let done = shown.delivered + shown.failed + shown.left;
        let now = Instant::now();
        let (began, before) = *self.first.get_or_insert((now, done));
        let took = now.duration_since(began).as_secs_f64();
        let per_second = (took > 0.5).then(|| done.saturating_sub(before) as f64 / took);
        match self.columns {
            // A line that cannot be shown is no reason to stop.
            Some(columns) => {
                let text = replay::progress(shown, per_second, columns);
                let _ = write!(anstream::stderr().lock(), "\r{text}\x1b[K");
            }
            None if self.is_quiet || now.duration_since(self.told_at) < TELL_EVERY => {}
            None => {
                self.told_at = now;
                anstream::eprintln!("replay {}: {}", shown.id, replay::progress_words(shown, per_second));
            }
        }
    }

    fn say(&self, text: &str) {
        self.clear();
        anstream::eprintln!("{}", style::dim(format!("— {text}")));
    }

    fn clear(&self) {
        if self.columns.is_some() {
            let _ = write!(anstream::stderr().lock(), "\r\x1b[K");
        }
    }
}
