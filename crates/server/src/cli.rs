//! What can be typed: commands, flags and their help.

mod alerts;
mod archive;
mod backtest;
mod breakers;
mod dlq;
mod doctor;
mod hooks;
mod keys;
mod remote;
mod removed;
mod simulate;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use redrive_core::text::{Share, parse_duration, parse_share, parse_size};
use redrive_core::time::Timestamp;
use tracing::Level;

pub(crate) use remote::{
    BackupArgs, CompactArgs, Format, HealthArgs, RouteArgs, SendArgs, ServerArgs, ServiceArgs, ShowArgs,
    StatusArgs, TailArgs, ViewArgs, WhyArgs,
};

pub(crate) use self::alerts::{Alerts, AlertsArgs, AlertsTestArgs};
pub(crate) use self::archive::{ArchiveArgs, ArchiveFormat, ArchiveGetArgs, ArchiveWhat};
pub(crate) use self::backtest::BacktestArgs;
pub(crate) use self::breakers::{BreakerTurnArgs, Breakers, BreakersArgs};
pub(crate) use self::dlq::{
    AuditArgs, Dlq, DlqArgs, DlqEditArgs, DlqExportArgs, DlqGroupsArgs, DlqImportArgs, DlqListArgs,
    DlqPurgeArgs, DlqReplayArgs, DlqShowArgs, DlqSkipArgs, FromArgs, ReplaysArgs,
};
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::hooks::{HooksArgs, HooksCommand, HooksRefusedArgs, HooksShowArgs, HooksSignArgs};
pub(crate) use self::keys::{Keys, KeysArgs, KeysCreateArgs, KeysListArgs, KeysRevokeArgs};
pub(crate) use self::removed::{Removed, RemovedArgs, RemovedOf};
pub(crate) use self::simulate::SimulateArgs;

/// Delivers events and records one outcome for each, by rules you can read.
#[derive(Debug, Parser)]
#[command(
    name = "redrive",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Start with:
  redrive init                     a rule book to start from
  redrive check                    what is wrong with it
  redrive try orders.placed --answers '503*3,200'
                                   what it does with a failing target

With a server running (`redrive serve`):
  redrive send orders.placed '{\"id\": 42}'
                                   an event
  redrive tail                     what happens to it
  redrive why --last               why it failed
  redrive dlq groups               the causes of all dead letters
  redrive dlq replay --canary --service billing
                                   sends them again, carefully"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    /// Lets nothing of a service start until it is resumed; its events are kept in order
    #[command(after_help = "\
Examples:
  redrive pause billing

Exit code: 0 paused, 1 no such service, 2 wrong use, 3 no server.")]
    Pause(ServiceArgs),
    /// Lets a paused service go on
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
}

/// One of these words: what is typed, its help, and what it stands for.
fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = words.iter().map(|(name, help, _)| PossibleValue::new(name).help(*help));
    PossibleValuesParser::new(names).map(|typed| {
        let known = words.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&typed));
        known.map(|(.., value)| *value).expect("only these words are taken")
    })
}

/// Where to listen: an address and a port. A name could be several addresses; the usual one is known.
fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let text = named.as_deref().unwrap_or(text);
    text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:7373 or [::1]:7373")
}

/// Shows Redrive at work: five small services of which some fail, traffic for them, and a page to look at.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive demo
  redrive demo --listen 127.0.0.1:8000
  redrive demo --data demo                        keeps what happened

Everything lives on this machine and is gone when the demo ends, unless a folder is named. Stop it with Ctrl-C.

Exit code: 0 stopped, 1 refused to start, 2 a file cannot be written.")]
pub(crate) struct DemoArgs {
    /// Where the page and the API are
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7373", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Listens where others can reach it, who may then do everything
    #[arg(long)]
    pub(crate) insecure: bool,
    /// A folder to keep it in; without one, a temporary folder that is removed at the end
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// Takes events in and delivers each to the services that want it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive serve                                   prints every event that comes in
  redrive serve --rules redrive.yaml              delivers by the rules of a book
  redrive serve --tls-cert cert.pem --tls-key key.pem
  curl -d '{\"total\":12}' http://127.0.0.1:7373/v1/events/orders.placed
  redrive keys create ops --role admin --data redrive-data
  redrive serve --listen 0.0.0.0:7373             serves others too, who need a key

Once there is a key (`redrive keys`) or the rule book believes tokens (`access`), everybody is asked for \
one. Until then everybody on this machine may do everything, and nobody else is listened to.

The rule book and the certificate are read again when their files change, and on SIGHUP; what is wrong is \
refused, and the old one stays. SIGTERM and Ctrl-C stop it gently.

Exit code: 0 stopped, 1 refused to start, 2 a file cannot be read.")]
pub(crate) struct ServeArgs {
    /// The rule book; without one, every event is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// The folder in which everything is kept; made if it is not there
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    /// Starts on a damaged write-ahead log though committed events are lost with it
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Where to listen; what others can reach needs keys or tokens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7373", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Listens where others can reach it without asking anybody for a key
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The largest event that is taken
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) body_max: u64,
    /// How long calls may go on after it was told to stop
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    /// Speaks TLS under this certificate: PEM, ours first, then those that lead to a root
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Trusts targets whose certificates these sign, and no others: PEM; without it, whom the system trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_roots: Option<PathBuf>,
    /// Sends traces to this collector: OTLP over HTTP, such as http://127.0.0.1:4318; OpenTelemetry's own
    /// environment variables say the same and more
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// How much to log, on standard error
    #[arg(long, env = "REDRIVE_LOG", value_parser = one_of(&LOG_LEVELS), value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub(crate) log_level: Level,
    /// How to log: for people, or one JSON object a line
    #[arg(long, env = "REDRIVE_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Human)]
    pub(crate) log_format: LogFormat,
}

/// How much of what happens is logged.
const LOG_LEVELS: [(&str, &str, Level); 5] = [
    ("error", "What the server cannot do", Level::ERROR),
    ("warn", "And what needs a look", Level::WARN),
    ("info", "And every failure, hold and change", Level::INFO),
    ("debug", "And every event and delivery", Level::DEBUG),
    ("trace", "Everything", Level::TRACE),
];

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

/// Finds what is wrong with a rule book, and what will hurt later.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive check redrive.yaml
  redrive check rules/*.yaml --deny warnings
  redrive check redrive.yaml --format json
  redrive check --explain retry-outlives-deadline

Exit code: 0 clean, 1 problems, 2 a file cannot be read.")]
pub(crate) struct CheckArgs {
    /// The rule books
    #[arg(default_value = "redrive.yaml", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) format: CheckFormat,
    /// What else counts as a problem
    #[arg(long, value_enum)]
    pub(crate) deny: Option<Deny>,
    /// Also says which lints cannot tell, and which fact they lack
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Explains a lint and shows a bad book and its mended twin; `all` lists every lint
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people
    Text,
    /// A list of objects
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deny {
    /// Warnings fail the check too
    Warnings,
}

/// Walks a delivery through answers that you name and says why each thing happens; needs no server.
#[derive(Debug, Args)]
#[command(after_help = "\
Answers, separated by commas:
  200, 404, 503 …    an HTTP status             '503*4'      four times, quoted against the shell
  429:60             with Retry-After: 60       500=quota    with a message
  timeout, refused, reset, dns, tls             the connection's own failures
  crash, oom         a process that fails       invalid      a message that does not parse
  DHT_UNAVAILABLE    a code of your own         ok           taken

Examples:
  redrive try todo.reminder.fired --rules examples/rulebooks/notifications.yaml --answers 503,429:60,timeout,200
  redrive try orders.placed --rules redrive.yaml --service billing --answers '503*9'")]
pub(crate) struct TryArgs {
    /// The event's type
    pub(crate) event_type: String,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Only this service and its channels, or only service/channel
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// What the target answers, one after the other
    #[arg(long, default_value = "200")]
    pub(crate) answers: String,
    /// What the jitter is drawn from; the same seed gives the same delays
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Shows what holds for a service and an event, and where each value came from.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive rules --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc todo.reminder.fired --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc/email todo.reminder.fired --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc --rules examples/rulebooks/notifications.yaml --format markdown > rules.md

Exit code: 0 shown, 1 no such service, or it does not want the event, 2 a file cannot be read.")]
pub(crate) struct RulesArgs {
    /// The service, or service/channel; without it, all of them
    pub(crate) service: Option<String>,
    /// The event's type, which a pattern of the book may claim; without it, all rows of the service
    pub(crate) event: Option<String>,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t = RulesFormat::Text)]
    pub(crate) format: RulesFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RulesFormat {
    /// For people
    Text,
    /// Each value with its level, line and column; a list unless an event is named
    Json,
    /// A page for each rule
    Markdown,
}

/// Shows a retry policy's delays, how far jitter spreads them, and when each retry starts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive timeline standard
  redrive timeline overnight --rules redrive.yaml
  redrive timeline webhook --format json")]
pub(crate) struct TimelineArgs {
    /// The policy: one of the catalog, or one of the rule book
    pub(crate) policy: String,
    /// The rule book that defines it
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TimelineFormat::Text)]
    pub(crate) format: TimelineFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimelineFormat {
    /// A table with a plot
    Text,
    /// A list of objects, times in milliseconds
    Json,
}

/// Shows when the schedules of a rule book fire next, and what clocks that are set do to them; needs no
/// server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive schedules
  redrive schedules --rules redrive.yaml --count 3
  redrive schedules --from 2026-10-24T00:00:00Z      over the end of summer time
  redrive schedules --format json

Exit code: 0 shown, 1 the book has errors, 2 a file cannot be read.")]
pub(crate) struct SchedulesArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// How many fires of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) count: u16,
    /// From when on, such as 2026-10-24T00:00:00Z; without it, from now on
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Timestamp>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Writes the rule book in forms that others read.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(subcommand)]
    pub(crate) what: Export,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Export {
    Dapr(ExportDaprArgs),
    Matrix(ExportMatrixArgs),
    Prometheus(ExportPrometheusArgs),
}

/// Writes the alerts of a rule book as a rule file for Prometheus.
///
/// Whoever lets Prometheus watch the metrics of Redrive needs no receivers in the book. What has no series there
/// is listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export prometheus --rules redrive.yaml > redrive-alerts.yml
  promtool check rules redrive-alerts.yml

Exit code: 0 done, 1 the book has errors, 2 it cannot be read.")]
pub(crate) struct ExportPrometheusArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
}

/// Prints every row of every service as Markdown tables.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export matrix --rules examples/rulebooks/notifications.yaml > matrix.md")]
pub(crate) struct ExportMatrixArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
}

/// Writes a short rule book to start from; never over a file that is there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive init
  redrive init rules/orders.yaml

Exit code: 0 written, 1 the file is there already, 2 it cannot be written.")]
pub(crate) struct InitArgs {
    /// Where to write it; its folder is made if need be
    #[arg(value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) file: PathBuf,
}

/// Prints the JSON Schema of the rule book, for editors that complete and check as you type.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive schema > redrive.schema.json
  redrive schema scenario > scenario.schema.json

Then the first line of a book or a scenario tells the editor where it is:
  # yaml-language-server: $schema=./redrive.schema.json")]
pub(crate) struct SchemaArgs {
    /// Of what
    #[arg(value_enum, default_value_t = Schema::Book)]
    pub(crate) of: Schema,
}

/// What is written in YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Schema {
    /// A rule book
    Book,
    /// A scenario for `redrive simulate`
    Scenario,
}

/// Prints the description of the HTTP API, OpenAPI 3.1, for tools that make clients, pages and tests of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive openapi > openapi.json

A running server has it at /openapi.json.")]
pub(crate) struct OpenapiArgs {}

/// Takes events like a service would, and fails, dawdles or hangs as you ask; for trying things out.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints a line for each request and, when it is stopped (Ctrl-C), the counts. What it fails is drawn from \
the seed, so that the same requests in the same order meet the same answers.

Examples:
  redrive sink                                    takes everything
  redrive sink --fail 30% --status 429 --retry-after 5s
  redrive sink --down 60s --slow 200ms            away for a minute, then slow
  redrive sink --listen 127.0.0.1:0 --format json | tee requests.ndjson

Exit code: 0 stopped, 1 the address cannot be had, or others could reach it, 2 wrong use.")]
pub(crate) struct SinkArgs {
    /// Where to listen: a loopback address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// The share of requests that fail, such as 30%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub(crate) fail: Option<Share>,
    /// The status that failing requests get
    #[arg(long, default_value_t = 503, value_parser = clap::value_parser!(u16).range(200..600))]
    pub(crate) status: u16,
    /// Waits so long before each answer
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) slow: Option<Duration>,
    /// Answers 503 for so long from the start
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) down: Option<Duration>,
    /// Never answers
    #[arg(long)]
    pub(crate) hang: bool,
    /// Asks those that fail to wait so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) retry_after: Option<Duration>,
    /// What failures are drawn from
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints the address and the counts only
    #[arg(long)]
    pub(crate) quiet: bool,
    /// How to print requests
    #[arg(long, value_enum, default_value_t = SinkFormat::Text)]
    pub(crate) format: SinkFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SinkFormat {
    /// For people
    Text,
    /// An object a line
    Json,
}

/// Prints what a shell needs to complete `redrive`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive completions bash > ~/.local/share/bash-completion/completions/redrive
  redrive completions zsh > ~/.zfunc/_redrive
  redrive completions fish > ~/.config/fish/completions/redrive.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = one_of(&SHELLS))]
    pub(crate) shell: Shell,
}

const SHELLS: [(&str, &str, Shell); 3] =
    [("bash", "GNU Bash", Shell::Bash), ("zsh", "Z shell", Shell::Zsh), ("fish", "fish", Shell::Fish)];

/// Writes the retries, timeouts and breakers of a rule book as a Dapr resiliency file.
///
/// Dependencies with `dapr:` become targets. What Dapr cannot hold is listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export dapr --rules redrive.yaml > resiliency.yaml
  redrive export dapr --rules redrive.yaml --with-matching | kubectl apply -f -

Exit code: 0 done, 1 the book has errors, 2 it cannot be read.")]
pub(crate) struct ExportDaprArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Lists the HTTP statuses to retry in every policy that an exported target uses: without it Dapr retries all failures
    #[arg(long)]
    pub(crate) with_matching: bool,
}

/// Makes a rule book of another tool's file.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) what: Import,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    Dapr(ImportDaprArgs),
}

/// Makes a rule book of a Dapr resiliency file.
///
/// What Dapr does without saying so is written out in the book and listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive import dapr resiliency.yaml > redrive.yaml
  redrive import dapr resiliency.yaml -o redrive.yaml

Exit code: 0 done, 1 Dapr would refuse the file or it has no counterpart, 2 a file cannot be read or written.")]
pub(crate) struct ImportDaprArgs {
    /// The Dapr file, with one resource of kind Resiliency
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Writes the book to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Where a server keeps its store unless it is told otherwise.
const DATA_DEFAULT: &str = "redrive-data";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_listen_is_an_address_and_a_port_or_this_machine() {
        #[rustfmt::skip]
        let cases = [
            ("127.0.0.1:7373",  Some("127.0.0.1:7373")),
            ("[::1]:7373",      Some("[::1]:7373")),
            ("localhost:7373",  Some("127.0.0.1:7373")),
            ("localhost",       None),
            (":7373",           None),
            ("7373",            None),
            ("redrive.test:80", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_listen(text).ok().map(|at| at.to_string()).as_deref(), expected, "{text}");
        }
    }
}
