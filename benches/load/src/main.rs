//! `redrive-bench`: benchmarks a Redrive server on this machine, beside baselines without it.
//!
//! Every measured and measuring process is a child. Figures are beside a baseline of the same run, taken in
//! turns, since machines differ and change over time.

mod arguments;
mod ask;
mod book;
mod latency;
mod machine;
mod plan;
mod process;
mod report;
mod role;
mod scenario;
mod stage;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use redrive_server::terminal::{print, style};
use tokio::signal::unix::{SignalKind, signal};

use self::arguments::{Arguments, Format, Hidden, Scenario};
use self::machine::{Machine, others_busy};
use self::plan::Length;
use self::report::{BARE_MICROS_MAX, Bare, Noise, OTHERS_BUSY_MAX, Report, median};
use self::stage::{Stage, say};

/// On the current disk, not in memory.
const DATA_DEFAULT: &str = ".";

/// Exit code of an interrupted shell command.
const INTERRUPTED: i32 = 130;

const NOT_MEASURED: u8 = 2;

/// The baselines use the server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.role {
        Some(Hidden::Role { role }) => role::run(role),
        None => run(&arguments),
    };
    done.unwrap_or_else(|error| {
        anstream::eprintln!("{}: {error:#}", style::error("error"));
        ExitCode::from(NOT_MEASURED)
    })
}

fn run(args: &Arguments) -> anyhow::Result<ExitCode> {
    if !Path::new("/proc/self/stat").exists() {
        bail!("CPU time and memory are read from /proc, which this system does not have");
    }
    let redrive = match &args.redrive {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("could not find this program")?.with_file_name("redrive"),
    };
    if !redrive.is_file() {
        bail!("{} is missing: build the server, or name it with --redrive", redrive.display());
    }
    let folder = Folder::new(args)?;
    let length = match (args.quick, args.full) {
        (true, _) => Length::Quick,
        (false, true) => Length::Full,
        (false, false) => Length::Short,
    };
    clean_up_on_signals(folder.path.clone(), folder.after)?;
    let stage = Stage::new(length.plan(), redrive, folder.path.clone())?;
    let (report, failure) = measure(&args.scenarios, &stage, length)?;
    match args.format {
        Format::Text => print(&table::text(&report))?,
        Format::Json => print(&format!("{:#}\n", report.json()))?,
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(if report.breaks_a_promise() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The results so far, and the error that stopped the rest: minutes of work are not lost.
fn measure(
    asked: &[Scenario],
    stage: &Stage,
    length: Length,
) -> anyhow::Result<(Report, Option<anyhow::Error>)> {
    let machine = Machine::look(stage.folder())?;
    let busy_before = others_busy();
    say("bare handler");
    let first = stage.bare_handler()?;
    let (mut rows, mut failure) = (Vec::new(), None);
    // In the order of the help.
    for scenario in Scenario::value_variants() {
        if asked.is_empty() || asked.contains(scenario) {
            match scenario::play(*scenario, stage) {
                Ok(played) => rows.extend(played),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
    }
    let cpu_micros = median(&stage.bare_micros());
    let others_busy = others_busy().max(busy_before);
    let is_noisy = cpu_micros > BARE_MICROS_MAX || others_busy > OTHERS_BUSY_MAX;
    let noise = if is_noisy { Noise::Noisy } else { Noise::Quiet };
    let bare = Bare { per_second: first.result.rate(), cpu_micros, others_busy, noise };
    Ok((Report { length: length.name(), machine, bare, rows }, failure))
}

/// Ends the run on a signal and removes its folder. Child processes end with their standard input.
fn clean_up_on_signals(folder: PathBuf, after: After) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("could not start")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let on = |kind| signal(kind).context("could not listen for signals");
        (on(SignalKind::interrupt())?, on(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        drop(Folder { path: folder, after });
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

struct Folder {
    path: PathBuf,
    after: After,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Removed,
    Kept,
}

impl Folder {
    fn new(args: &Arguments) -> anyhow::Result<Self> {
        let parent = args.data.as_deref().unwrap_or(Path::new(DATA_DEFAULT));
        let path = parent.join(format!("redrive-bench-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("could not create {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("could not find {}", path.display()))?;
        Ok(Self { path, after: if args.keep { After::Kept } else { After::Removed } })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        match self.after {
            // What cannot be removed does no harm.
            After::Removed => drop(fs::remove_dir_all(&self.path)),
            After::Kept => anstream::eprintln!("kept: {}", self.path.display()),
        }
    }
}
