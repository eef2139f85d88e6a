//! `redrive demo`: a small world that lives on this machine, to look at and to play with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::{Refused, bind, not_made, serve};
use crate::cli::{DemoArgs, LogFormat, LogLevel, ServeArgs};
use crate::demo::{Demo, Step};
use crate::show::style;

/// How long calls may go on when the demo ends: nobody waits for them.
const DRAIN: Duration = Duration::from_secs(1);
/// The longest line of the story.
const LINE_BYTES_MAX: usize = 90;
/// The largest event that is taken.
const BODY_BYTES_MAX: u64 = 1024 * 1024;

pub(super) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("could not start")?;
    runtime.block_on(async {
        let listener = bind(args.listen).await?;
        let demo = Demo::open().await.context("could not open the services of the demo")?;
        let folder = Folder::new(args.data.as_deref())?;
        let rules = folder.path.join("redrive.yaml");
        write_book(&rules, &demo.book())?;
        let serve_args = ServeArgs {
            rules: Some(rules),
            data: folder.path.join("data"),
            listen: args.listen,
            insecure: args.insecure,
            body_max: BODY_BYTES_MAX,
            drain: DRAIN,
            tls_cert: None,
            tls_key: None,
            tls_roots: None,
            otlp: None,
            // The story is what stands in the terminal.
            log_level: LogLevel::Error,
            log_format: LogFormat::Human,
        };
        serve::run_demo(&serve_args, listener, demo).await
    })
}

/// Writes the book of this run over that of an earlier one, whose services had other addresses; a book of
/// somebody else's stays as it is.
fn write_book(path: &Path, book: &str) -> anyhow::Result<()> {
    let title = book.lines().next().unwrap_or_default();
    match std::fs::read_to_string(path) {
        Ok(there) if !there.starts_with(title) => {
            let message =
                format!("{} is not a rule book of the demo: name another folder with --data", path.display());
            return Err(Refused(message).into());
        }
        // One that is not there, or cannot be read, shows when it is written.
        Ok(_) | Err(_) => {}
    }
    std::fs::write(path, book).map_err(|error| not_made("write", path, &error))
}

/// Where the demo keeps its things: gone with it, unless somebody named a folder.
struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    fn new(named: Option<&Path>) -> anyhow::Result<Self> {
        let own = || std::env::temp_dir().join(format!("redrive-demo-{}", std::process::id()));
        let folder = Self { path: named.map_or_else(own, Path::to_owned), is_ours: named.is_none() };
        std::fs::create_dir_all(&folder.path).map_err(|error| not_made("create", &folder.path, &error))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            // What cannot be removed is left to whoever cleans temporary folders.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// What stands in the terminal when the demo has begun.
pub(super) fn greeting(demo: &Demo, server: &str, rules: &Path) -> String {
    let mut text = format!("{} on {}\n", style::bold("redrive demo"), style::bold(server));
    text.push_str("  open this address in a browser, and follow the guide\n\n");
    for service in demo.services() {
        text.push_str(&format!("  {:<10} {}\n", service.name, style::dim(service.habit)));
    }
    text.push_str(&format!(
        "\n  rules      {}\n             {}\n\n{}\n",
        rules.display(),
        style::dim("change the file, and it holds from the next attempt on; stop with Ctrl-C"),
        style::bold("The story, as the page tells it too:"),
    ));
    text
}

/// One step of the story, when it has come.
pub(super) fn tell(step: &Step, server: &str) {
    anstream::println!("\n  {} {}", style::good("→"), style::bold(step.title));
    for line in lines(step.text) {
        anstream::println!("    {line}");
    }
    let command = step.command.map(|command| format!("{command} --server {server}"));
    let press = || step.act.map(|(act, _)| format!("curl -X POST {server}/v1/demo/{act}"));
    if let Some(command) = command.or_else(press) {
        anstream::println!("    {}", style::dim(command));
    }
}

/// The text in lines that are easy to read.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= LINE_BYTES_MAX {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
