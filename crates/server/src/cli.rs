//! The command line: every command with its arguments, and code that several commands share.

mod completions;
pub(crate) mod files;

use std::path::PathBuf;
use std::process::{ExitCode, Termination};

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use redrive_node::tls::Roots;

use crate::alerts::command::AlertsArgs;
use crate::api::openapi::{self, OpenapiArgs};
use crate::breakers::command::BreakersArgs;
use crate::cli::completions::CompletionsArgs;
use crate::client::Client;
use crate::client::address::Address;
use crate::client::key::ClientKey;
use crate::deliveries::show::{self, ShowArgs};
use crate::deliveries::why::{self, WhyArgs};
use crate::demo::command::DemoArgs;
use crate::events::route::{self, RouteArgs};
use crate::events::send::{self, SendArgs};
use crate::events::sink::{self, SinkArgs};
use crate::events::tail::{self, TailArgs};
use crate::keys::command::KeysArgs;
use crate::lab::backtest::{self, BacktestArgs};
use crate::lab::convert::{self, ExportArgs, ExportCommand, ImportArgs, ImportCommand};
use crate::lab::doctor;
use crate::lab::doctor::command::DoctorArgs;
use crate::lab::simulate::{self, SimulateArgs};
use crate::letters::command::DlqArgs;
use crate::replays::command::ReplaysArgs;
use crate::rules;
use crate::rules::check::{self, CheckArgs};
use crate::rules::command::RulesArgs;
use crate::rules::init::{self, InitArgs};
use crate::rules::schema::{self, SchemaArgs};
use crate::rules::timeline::{self, TimelineArgs};
use crate::rules::trial::{self, TryArgs};
use crate::schedules::{self, SchedulesArgs};
use crate::serve::args::ServeArgs;
use crate::services::pause::{self, ServiceArgs};
use crate::services::removed::{self, RemovedArgs};
use crate::status;
use crate::status::command::StatusArgs;
use crate::status::health::{self, HealthArgs};
use crate::storage::archive::{self, ArchiveArgs, ArchiveWhat};
use crate::storage::audit::{self, AuditArgs};
use crate::storage::backup::{self, BackupArgs};
use crate::storage::compact::{self, CompactArgs};
use crate::webhooks::command::HooksArgs;
use crate::{alerts, breakers, demo, keys, letters, replays, serve, terminal, webhooks};

/// Delivers events reliably, by rules you can read.
#[derive(Debug, Parser)]
#[command(
    name = "redrive",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Start with:
  redrive init                     write a starter rule book
  redrive check                    check it
  redrive try orders.placed --answers '503*3,200'
                                   run a delivery through it

With a server running (`redrive serve`):
  redrive send orders.placed '{\"id\": 42}'
                                   send an event
  redrive tail                     follow deliveries
  redrive why --last               explain the last failure
  redrive dlq groups               group dead letters by cause
  redrive dlq replay --canary --service billing
                                   replay them with a canary"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Demo(DemoArgs),
    Serve(ServeArgs),
    Check(CheckArgs),
    Try(TryArgs),
    Rules(RulesArgs),
    Timeline(TimelineArgs),
    Simulate(SimulateArgs),
    Backtest(BacktestArgs),
    Schedules(SchedulesArgs),
    Send(SendArgs),
    Tail(TailArgs),
    Show(ShowArgs),
    Why(WhyArgs),
    Status(StatusArgs),
    Doctor(DoctorArgs),
    Health(HealthArgs),
    Dlq(DlqArgs),
    Replays(ReplaysArgs),
    Audit(AuditArgs),
    Hooks(HooksArgs),
    Keys(KeysArgs),
    Archive(ArchiveArgs),
    Alerts(AlertsArgs),
    Breakers(BreakersArgs),
    /// Pauses a service; its events wait in order
    #[command(after_help = "\
Examples:
  redrive pause billing

Exit code: 0 paused, 1 no such service, 2 wrong use, 3 no server.")]
    Pause(ServiceArgs),
    /// Resumes a paused service
    #[command(after_help = "\
Examples:
  redrive resume billing

Exit code: 0 resumed, 1 no such service, 2 wrong use, 3 no server.")]
    Resume(ServiceArgs),
    Route(RouteArgs),
    Removed(RemovedArgs),
    Backup(BackupArgs),
    Compact(CompactArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Init(InitArgs),
    Schema(SchemaArgs),
    Openapi(OpenapiArgs),
    Sink(SinkArgs),
    Completions(CompletionsArgs),
    /// Prints the version
    #[command(hide = true)]
    Version,
}

/// Parses the arguments of this process; `--json` is short for `--format json`.
pub(crate) fn parse() -> Cli {
    let mut is_option = true;
    Cli::parse_from(std::env::args_os().map(|argument| {
        is_option &= argument != "--";
        if is_option && argument == "--json" { "--format=json".into() } else { argument }
    }))
}

/// An argument with a fixed set of words: word, help and value.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = words.iter().map(|(name, help, _)| PossibleValue::new(name).help(*help));
    PossibleValuesParser::new(names).map(|typed| {
        let known = words.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&typed));
        known.map(|(.., value)| *value).expect("only these words are accepted")
    })
}

pub(crate) const DATA_DEFAULT: &str = "redrive-data";

#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's address
    #[arg(long, env = "REDRIVE_SERVER", value_name = "URL", default_value = "http://127.0.0.1:7373")]
    pub(crate) server: Address,
    /// With https: trusts only certificates signed by these CAs, PEM
    #[arg(long, env = "REDRIVE_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A file with the API key [default: the variable REDRIVE_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

impl ServerArgs {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let client = Client::new(self.server.clone(), ClientKey::find(self.key_file.as_deref())?);
        match self.ca.as_deref().filter(|_| self.server.is_secure()) {
            Some(path) => Ok(client.trusting(Roots::read(path)?)),
            None => Ok(client),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs, as the API returns it
    Json,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ViewArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl ViewArgs {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.server.client()
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RecordArgs {
    /// Reads this data folder instead of asking a server; a server may be running on it
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(command: CliCommand) -> anyhow::Result<ExitCode> {
    match command {
        CliCommand::Check(args) => check::run(&args),
        CliCommand::Try(args) => done(trial::run(&args)),
        CliCommand::Rules(args) => done(rules::command::run(&args)),
        CliCommand::Timeline(args) => timeline::run(&args),
        CliCommand::Simulate(args) => simulate::run(&args),
        CliCommand::Backtest(args) => backtest::run(&args),
        CliCommand::Schedules(args) => done(schedules::run(&args)),
        CliCommand::Send(args) => done(wait_for(send::run(&args))),
        CliCommand::Tail(args) => done(wait_for(tail::run(&args))),
        CliCommand::Show(args) => done(wait_for(show::run(&args))),
        CliCommand::Why(args) => done(wait_for(why::run(&args))),
        CliCommand::Status(args) => done(wait_for(status::command::run(&args))),
        CliCommand::Doctor(args) => doctor::command::run(&args),
        CliCommand::Health(args) => done(wait_for(health::run(&args))),
        CliCommand::Dlq(args) => wait_for(letters::command::run(&args)),
        CliCommand::Replays(args) => wait_for(replays::command::run(&args)),
        CliCommand::Audit(args) => done(wait_for(audit::run(&args))),
        CliCommand::Hooks(args) => done(wait_for(webhooks::command::run(&args))),
        CliCommand::Keys(args) => done(wait_for(keys::command::run(&args))),
        CliCommand::Archive(args) => match args.what {
            ArchiveWhat::Get(args) => done(archive::get(&args)),
        },
        CliCommand::Alerts(args) => wait_for(alerts::command::run(&args)),
        CliCommand::Breakers(args) => done(wait_for(breakers::command::run(&args))),
        CliCommand::Pause(args) => done(wait_for(pause::pause(&args))),
        CliCommand::Resume(args) => done(wait_for(pause::resume(&args))),
        CliCommand::Route(args) => done(wait_for(route::run(&args))),
        CliCommand::Removed(args) => done(wait_for(removed::run(&args))),
        CliCommand::Backup(args) => done(wait_for(backup::run(&args))),
        CliCommand::Compact(args) => done(compact::run(&args)),
        CliCommand::Export(args) => done(match args.what {
            ExportCommand::Dapr(args) => convert::export_dapr(&args),
            ExportCommand::Matrix(args) => convert::export_matrix(&args),
            ExportCommand::Prometheus(args) => convert::export_prometheus(&args),
        }),
        CliCommand::Import(args) => match args.what {
            ImportCommand::Dapr(args) => convert::import_dapr(&args),
        },
        CliCommand::Init(args) => done(init::run(&args)),
        CliCommand::Schema(args) => done(schema::run(&args)),
        CliCommand::Openapi(args) => done(openapi::run(&args)),
        CliCommand::Demo(args) => done(demo::command::run(&args)),
        CliCommand::Serve(args) => done(serve::run(&args)),
        CliCommand::Sink(args) => done(sink::run(&args)),
        CliCommand::Completions(args) => done(completions::run(&args)),
        CliCommand::Version => done(terminal::print(concat!("redrive ", env!("CARGO_PKG_VERSION"), "\n"))),
    }
}

/// Exit code of a command that has only one unless it fails.
pub(crate) fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(Termination::report)
}

/// Valid arguments, but the command cannot be done: exit code 1, not 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CommandRefusal(pub(crate) String);

impl CommandRefusal {
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Runs client work on one thread.
pub(crate) fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("could not start a runtime")?.block_on(work)
}

/// Runs a server, on all cores.
pub(crate) fn wait_for_many<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("could not start")?.block_on(work)
}
