//! `redrive status`: the state of a server, once or continuously.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use redrive_core::text::parse_duration;
use redrive_core::time::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::{Format, ViewArgs};
use crate::client::address::Address;
use crate::client::{Client, ClientRequest};
use crate::events::sink::stopped;
use crate::status::json::Status;
use crate::status::text;
use crate::status::watch::StatusWatch;
use crate::terminal::{print, print_as, style};

const EVERY_MIN: Duration = Duration::from_millis(100);

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    if every < EVERY_MIN { Err("the interval must be at least 100ms".to_owned()) } else { Ok(every) }
}

/// Shows the state of a running server: queues, dead letters, open breakers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive status
  redrive status --watch
  redrive status --format json --server http://redrive.internal:7373

With --watch, a terminal shows one page that updates, with rates; other outputs get page after \
                        page. If the server goes away, it waits; Ctrl-C stops it.

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct StatusArgs {
    /// Updates continuously
    #[arg(long)]
    pub(crate) watch: bool,
    /// Update interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every, requires = "watch")]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Alternate screen, hidden cursor, no line wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";

const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

const HOME: &str = "\x1b[H";

const REST_OF_LINE: &str = "\x1b[K";

const REST_OF_SCREEN: &str = "\x1b[J";

pub(crate) async fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let mut client = args.view.client()?;
    // Only a server that was reached before is waited for.
    let (shape, now) = client.timed_json(&ClientRequest::get("/v1/status")).await?;
    if !args.watch {
        return print_as(args.view.format, &shape, || text::page(&shape, client.address(), None, now));
    }
    let stopped = stopped()?;
    tokio::select! {
        biased;
        () = stopped => Ok(()),
        result = watch(args, &mut client, shape, now) => result,
    }
}

async fn watch(
    args: &StatusArgs,
    client: &mut Client,
    mut shape: Status,
    mut now: Timestamp,
) -> anyhow::Result<()> {
    let address = client.address().clone();
    let stage = StatusOutput::new(args.view.format)?;
    let mut rates = StatusWatch::default();
    let mut ticks = interval(args.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut is_away = false;
    loop {
        if !is_away {
            rates.note(&shape, Instant::now());
            stage.show(&shape, &address, &rates, now)?;
        }
        ticks.tick().await;
        match client.timed_json(&ClientRequest::get("/v1/status")).await {
            Ok(looked) => {
                (shape, now) = looked;
                is_away = false;
            }
            Err(trouble) if trouble.is_absence() => {
                if !std::mem::replace(&mut is_away, true) {
                    stage.wait(&address)?;
                }
            }
            Err(trouble) => return Err(trouble.into()),
        }
    }
}

enum StatusOutput {
    Screen(StatusScreen),
    Roll,
    Objects,
}

impl StatusOutput {
    fn new(format: Format) -> std::io::Result<Self> {
        match format {
            Format::Json => Ok(Self::Objects),
            Format::Text if std::io::stdout().is_terminal() => Ok(Self::Screen(StatusScreen::enter()?)),
            Format::Text => Ok(Self::Roll),
        }
    }

    fn show(
        &self,
        shape: &Status,
        address: &Address,
        rates: &StatusWatch,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        match self {
            Self::Screen(_) => StatusScreen::draw(&text::page(shape, address, Some(rates), now)),
            Self::Roll => print(&format!("— {now}\n{}\n", text::page(shape, address, Some(rates), now))),
            Self::Objects => print(&(serde_json::to_string(shape)? + "\n")),
        }
    }

    fn wait(&self, address: &Address) -> anyhow::Result<()> {
        let words = style::warning(format!("connection to the server lost; waiting for {address} …"));
        match self {
            Self::Screen(_) => StatusScreen::draw(&format!("{words}\n")),
            Self::Roll | Self::Objects => {
                anstream::eprintln!("{words}");
                Ok(())
            }
        }
    }
}

/// Restores the terminal on drop.
struct StatusScreen;

impl StatusScreen {
    fn enter() -> std::io::Result<Self> {
        command(ENTER)?;
        Ok(Self)
    }

    fn draw(page: &str) -> anyhow::Result<()> {
        let rows = terminal_size::terminal_size_of(std::io::stdout()).map(|(_, rows)| usize::from(rows.0));
        let lines: Vec<&str> = page.lines().collect();
        let fits = rows.map_or(lines.len(), |rows| rows.saturating_sub(1)).max(1);
        let hidden = lines.len().saturating_sub(fits);
        command(HOME)?;
        for line in lines.iter().take(if hidden > 0 { fits - 1 } else { fits }) {
            print(line)?;
            command(&format!("{REST_OF_LINE}\n"))?;
        }
        if hidden > 0 {
            print(&style::dim(format!("… {} more lines", hidden + 1)))?;
        }
        command(REST_OF_SCREEN)?;
        Ok(())
    }
}

impl Drop for StatusScreen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = command(LEAVE);
    }
}

/// Bypasses the writer that strips colours.
fn command(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
