//! One module for each command; each turns its arguments into output and an exit code.

mod alerts;
mod archive;
mod audit;
mod backtest;
mod backup;
mod breakers;
mod check;
mod compact;
mod completions;
mod demo;
mod dlq;
mod doctor;
mod export_dapr;
mod export_matrix;
mod export_prometheus;
mod health;
mod hooks;
mod import_dapr;
mod init;
mod keys;
mod openapi;
mod pause;
mod removed;
mod replays;
mod route;
mod rules;
mod schedules;
mod schema;
mod send;
mod serve;
mod service_name;
mod show_key;
mod simulate;
mod sink;
mod status;
mod tail;
mod timeline;
mod try_out;
mod why;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{ExitCode, Termination};

use anyhow::{Context, anyhow};
use redrive_core::book::RuleBook;
use redrive_core::book::model::Machine;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::cli::{ArchiveWhat, Command, Export, Format, Import};
use crate::connectors;
use crate::letters::LIST_MAX;
use crate::show::{self, shell_word};

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Try(args) => done(try_out::run(&args)),
        Command::Rules(args) => done(rules::run(&args)),
        Command::Timeline(args) => timeline::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Backtest(args) => backtest::run(&args),
        Command::Schedules(args) => done(schedules::run(&args)),
        Command::Send(args) => done(wait_for(send::run(&args))),
        Command::Tail(args) => done(wait_for(tail::run(&args))),
        Command::Show(args) => done(wait_for(show_key::run(&args))),
        Command::Why(args) => done(wait_for(why::run(&args))),
        Command::Status(args) => done(wait_for(status::run(&args))),
        Command::Doctor(args) => doctor::run(&args),
        Command::Health(args) => done(wait_for(health::run(&args))),
        Command::Dlq(args) => wait_for(dlq::run(&args)),
        Command::Replays(args) => wait_for(replays::run(&args)),
        Command::Audit(args) => done(wait_for(audit::run(&args))),
        Command::Hooks(args) => done(wait_for(hooks::run(&args))),
        Command::Keys(args) => done(wait_for(keys::run(&args))),
        Command::Archive(args) => match args.what {
            ArchiveWhat::Get(args) => done(archive::get(&args)),
        },
        Command::Alerts(args) => wait_for(alerts::run(&args)),
        Command::Breakers(args) => done(wait_for(breakers::run(&args))),
        Command::Pause(args) => done(wait_for(pause::pause(&args))),
        Command::Resume(args) => done(wait_for(pause::resume(&args))),
        Command::Route(args) => done(wait_for(route::run(&args))),
        Command::Removed(args) => done(wait_for(removed::run(&args))),
        Command::Backup(args) => done(wait_for(backup::run(&args))),
        Command::Compact(args) => done(compact::run(&args)),
        Command::Export(args) => done(match args.what {
            Export::Dapr(args) => export_dapr::run(&args),
            Export::Matrix(args) => export_matrix::run(&args),
            Export::Prometheus(args) => export_prometheus::run(&args),
        }),
        Command::Import(args) => match args.what {
            Import::Dapr(args) => import_dapr::run(&args),
        },
        Command::Init(args) => done(init::run(&args)),
        Command::Schema(args) => done(schema::run(&args)),
        Command::Openapi(args) => done(openapi::run(&args)),
        Command::Demo(args) => done(demo::run(&args)),
        Command::Serve(args) => done(serve::run(&args)),
        Command::Sink(args) => done(sink::run(&args)),
        Command::Completions(args) => done(completions::run(&args)),
    }
}

/// The exit code of a command that has only one unless it fails.
fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(Termination::report)
}

/// What was asked is understood and cannot be done; the exit code is 1, not 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

impl Refused {
    /// A refusal with the words of an error.
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Listens on an address of this machine.
async fn bind(address: SocketAddr) -> Result<TcpListener, Refused> {
    TcpListener::bind(address).await.map_err(|error| not_listening(address, &error))
}

fn not_listening(address: SocketAddr, error: &io::Error) -> Refused {
    let why = match error.kind() {
        ErrorKind::AddrInUse => {
            let other = SocketAddr::new(address.ip(), address.port().wrapping_add(1).max(1));
            format!(
                "somebody listens there already, perhaps another redrive\n  stop that one, or take another port, such as --listen {other}"
            )
        }
        _ => show::io_words(error),
    };
    Refused(format!("could not listen on {address}: {why}"))
}

/// The book in a file; one with errors is shown and refused.
pub(crate) fn open_book(path: &Path) -> anyhow::Result<RuleBook> {
    read_book(path).map(|(book, _)| book)
}

/// The book in a file and its text.
pub(crate) fn read_book(path: &Path) -> anyhow::Result<(RuleBook, String)> {
    let bytes = load(path)?;
    let reading = redrive_core::book::read_bytes_for(&bytes, connectors::table(), machine());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if let Some(book) = reading.book {
        return Ok((book, text));
    }
    for problem in reading.problems.into_sorted() {
        show::problem::say(&problem, path, &text);
    }
    Err(Refused(format!("{} has errors: mend them first", path.display())).into())
}

/// The bytes of a rule book.
fn load(path: &Path) -> anyhow::Result<Vec<u8>> {
    redrive::load::load(path).map_err(|error| {
        let shown = path.display();
        let why = match error.source.kind() {
            ErrorKind::NotFound => {
                format!(
                    "there is no such file; `redrive init {}` writes one to start from",
                    shell_word(&shown.to_string())
                )
            }
            ErrorKind::IsADirectory => "it is a folder, and a rule book is a file".to_owned(),
            ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
            _ => show::io_words(&error.source),
        };
        anyhow!("could not read {shown}: {why}")
    })
}

/// Why a file or folder could not be made.
fn not_made(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        ErrorKind::PermissionDenied => "this user may not write there".to_owned(),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "there is a file where a folder should be".to_owned()
        }
        _ => show::io_words(error),
    };
    anyhow!("could not {what} {}: {why}", path.display())
}

/// Writes a new file, with the folders above it; a file that is there is never written over, whoever
/// else may be creating it.
pub(crate) fn write_new(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let shown = path.display();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| not_made("create", folder, &error))?;
    }
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let refusal = format!("{shown} is there already and stays as it is: name another file");
            return Err(Refused(refusal).into());
        }
        Err(error) => return Err(not_made("create", path, &error)),
    };
    file.write_all(content.as_ref()).and_then(|()| file.sync_all()).map_err(|error| {
        // Half a file would be in the way of the next try; if it cannot be removed, that is no worse.
        let _ = fs::remove_file(path);
        not_made("write", path, &error)
    })
}

/// Prints a text that may be long; a reader that goes away is an error of its own kind.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("could not write the output")
}

/// Prints JSON for programs.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&json_text(value)?)
}

/// Prints JSON for programs, or a page for people.
pub(crate) fn print_as(
    format: Format,
    value: &impl Serialize,
    page: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Json => print_json(value),
        Format::Text => print(&page()),
    }
}

/// Prints bytes as they are.
fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("could not write the output")
}

/// The same, as text.
pub(crate) fn json_text(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// The bytes of a file, or of standard input if it is called `-`; who is named takes no more than so many.
fn read_input(path: &Path, bytes_max: u64, taker: &str) -> anyhow::Result<Vec<u8>> {
    let (input, name): (Box<dyn Read>, String) = if path.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), "standard input".to_owned())
    } else {
        let file = File::open(path).with_context(|| format!("could not open {}", path.display()))?;
        (Box::new(file), path.display().to_string())
    };
    let mut bytes = Vec::new();
    input.take(bytes_max + 1).read_to_end(&mut bytes).with_context(|| format!("could not read {name}"))?;
    if bytes.len() as u64 > bytes_max {
        let mebibytes = bytes_max >> 20;
        return Err(Refused(format!("{name} has more than {mebibytes} MiB: no {taker} takes so much")).into());
    }
    Ok(bytes)
}

/// As many rows as are wanted, page by page, and where a next list would begin; a page may be short and still not be
/// the last.
async fn gather<T>(
    wanted: u32,
    mut before: Option<String>,
    mut page: impl AsyncFnMut(usize, Option<String>) -> anyhow::Result<(Vec<T>, Option<String>)>,
) -> anyhow::Result<(Vec<T>, Option<String>)> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut rows = Vec::new();
    loop {
        let (more, next) = page((wanted - rows.len()).min(LIST_MAX), before).await?;
        rows.extend(more);
        if next.is_none() || rows.len() >= wanted {
            return Ok((rows, next));
        }
        before = next;
    }
}

/// Runs what waits for a server; one thread is enough for that.
pub(crate) fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("could not start a runtime")?.block_on(work)
}

/// Runs what serves others, on all threads of the machine.
fn wait_for_many<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("could not start")?.block_on(work)
}

/// The machine that a book is read for.
pub(crate) fn machine() -> Machine {
    let cores = std::thread::available_parallelism().ok().and_then(|cores| NonZeroU32::try_from(cores).ok());
    cores.map_or_else(Machine::default, |cores| Machine { cores })
}
