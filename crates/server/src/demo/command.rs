//! `redrive demo`: a server with five small services on this machine, to explore.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::api::ids::fresh_id;
use crate::cli::files::not_made;
use crate::cli::{CommandRefusal, wait_for_many};
use crate::demo::Demo;
use crate::demo::story::DemoStep;
use crate::logging::LogFormat;
use crate::serve::args::{ServeArgs, parse_listen};
use crate::serve::{self, bind};
use crate::terminal::{style, wrap};

/// Runs a demo: five small services, some of which fail, with traffic and a web page.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive demo
  redrive demo --listen 127.0.0.1:8000
  redrive demo --data demo                        keeps the data

Everything runs on this machine and is removed when the demo ends, unless --data is given. Stop it with Ctrl-C.

Exit code: 0 stopped, 1 refused to start, 2 a file cannot be written.")]
pub(crate) struct DemoArgs {
    /// Address of the page and the API
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7373", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Listen on a public address without authentication
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The data folder [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

const DRAIN: Duration = Duration::from_secs(1);

const LINE_COLUMNS_MAX: usize = 90;

const BODY_BYTES_MAX: u64 = 1024 * 1024;

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    refuse_open_access(args)?;
    wait_for_many(async {
        let listener = bind(args.listen).await?;
        let demo = Demo::open().await.context("could not start the services of the demo")?;
        let folder = DemoFolder::new(args.data.as_deref())?;
        let rules = folder.path.join("redrive.yaml");
        write_book(&rules, &demo.book())?;
        let serve_args = ServeArgs {
            rules: Some(rules),
            data: folder.path.join("data"),
            accept_loss: false,
            listen: args.listen,
            insecure: args.insecure,
            body_max: BODY_BYTES_MAX,
            drain: DRAIN,
            tls_cert: None,
            tls_key: None,
            tls_roots: None,
            otlp: None,
            // The terminal is for the guide.
            log_level: tracing::Level::ERROR,
            log_format: LogFormat::Human,
        };
        serve::run_demo(&serve_args, listener, demo).await
    })
}

/// A temporary folder has no keys, and none can be created before it exists.
fn refuse_open_access(args: &DemoArgs) -> anyhow::Result<()> {
    let listen = args.listen;
    if listen.ip().is_loopback() || args.insecure || args.data.is_some() {
        return Ok(());
    }
    let refusal = format!(
        "{listen} is a public address, and authentication is off\n  \
         listen locally:           --listen 127.0.0.1:{}\n  \
         or allow everyone access: --insecure",
        listen.port(),
    );
    Err(CommandRefusal(refusal).into())
}

/// Replaces the book of an earlier run, whose services had other addresses; any other book is refused.
fn write_book(path: &Path, book: &str) -> anyhow::Result<()> {
    let title = book.split('.').next().unwrap_or_default();
    match std::fs::read_to_string(path) {
        Ok(there) if !there.starts_with(title) => {
            let message = format!(
                "{} is not a rule book of the demo: choose another folder with --data",
                path.display()
            );
            return Err(CommandRefusal(message).into());
        }
        // A missing or unreadable file is reported when it is written.
        Ok(_) | Err(_) => {}
    }
    std::fs::write(path, book).map_err(|error| not_made("write", path, &error))
}

/// The demo's folder: removed at the end, unless the user named one.
struct DemoFolder {
    path: PathBuf,
    is_ours: bool,
}

impl DemoFolder {
    fn new(named: Option<&Path>) -> anyhow::Result<Self> {
        match named {
            Some(path) => {
                std::fs::create_dir_all(path).map_err(|error| not_made("create", path, &error))?;
                Ok(Self { path: path.to_owned(), is_ours: false })
            }
            None => Ok(Self { path: own_folder(&std::env::temp_dir())?, is_ours: true }),
        }
    }
}

/// A private folder in the shared temporary folder, with an unpredictable name.
fn own_folder(beside: &Path) -> anyhow::Result<PathBuf> {
    let path = beside.join(format!("redrive-demo-{}", fresh_id().simple()));
    // Fails if it exists already.
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.with_context(|| format!("could not create {}", path.display()))?;
    Ok(path)
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if self.is_ours {
            // What cannot be removed is left to the system's cleanup.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) fn greeting(demo: &Demo, server: &str, rules: &Path) -> String {
    let mut text = format!("{} on {}\n", style::bold("redrive demo"), style::bold(server));
    text.push_str("  open it in a browser and follow the guide\n\n");
    for service in demo.services() {
        text.push_str(&format!("  {:<10} {}\n", service.service, style::dim(service.habit)));
    }
    text.push_str(&format!(
        "\n  rules      {}\n             {}\n\n{}\n",
        rules.display(),
        style::dim("edit the file: changes apply from the next attempt on; stop with Ctrl-C"),
        style::bold("Steps, as on the page:"),
    ));
    text
}

pub(crate) fn print_step(step: &DemoStep, server: &str) {
    anstream::println!("\n  {} {}", style::good("→"), style::bold(step.title));
    for line in wrap(step.text, LINE_COLUMNS_MAX).lines() {
        anstream::println!("    {line}");
    }
    let command = step.command.map(|command| format!("{command} --server {server}"));
    let press = || step.act.map(|button| format!("curl -X POST {server}/v1/demo/{}", button.act));
    if let Some(command) = command.or_else(press) {
        anstream::println!("    {}", style::dim(command));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn its_own_folder_is_new_and_for_nobody_else() {
        let beside = tempfile::tempdir().expect("a folder of the test's own");
        let (one, other) =
            (own_folder(beside.path()).expect("it is made"), own_folder(beside.path()).expect("again"));
        assert_ne!(one, other);
        for folder in [one, other] {
            let mode = std::fs::metadata(&folder).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
            let name = folder.file_name().and_then(|name| name.to_str()).expect("a plain name");
            assert!(!name.contains(&std::process::id().to_string()), "predictable: {name}");
        }
    }
}
