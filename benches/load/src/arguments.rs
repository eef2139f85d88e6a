//! The arguments of `redrive-bench`, and of the processes it starts.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Benchmarks a Redrive server on this machine, beside baselines without it.
#[derive(Debug, Parser)]
#[command(
    name = "redrive-bench",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Events have a payload of one kibibyte and come over 64 connections from a process of their own; times run \
from when an event was due. The bare handler and the bare relay are the server's own HTTP \
stack and client, which store nothing. Where the bare handler costs more than 15 µs of CPU, or other \
programs take a tenth of the machine, a missed budget on speed is marked noisy.

Examples:
  redrive-bench                                   everything, in some minutes
  redrive-bench accept deliver                    two of the scenarios
  redrive-bench --quick --format json             some seconds each, to see that it works
  redrive-bench waiting --full --data /mnt/disk   ten million, on that disk

Exit code: 0 measured, 1 something was lost, repeated or out of order, 2 not measured, 130 \
interrupted."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) role: Option<Hidden>,
    /// What to measure [default: everything]
    #[arg(value_enum, value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<Scenario>,
    /// A few seconds each: only shows that it works
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// As long as the budgets require: hours
    #[arg(long)]
    pub(crate) full: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// The folder for stores; its disk is measured [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The server to measure [default: `redrive` in the folder of this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) redrive: Option<PathBuf>,
    /// Keeps logs and stores in a folder there
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// How fast events become durable
    Accept,
    /// From the sender to the target, through the store
    Deliver,
    /// The same with requests made from templates
    Requests,
    /// One healthy target among nine that hang
    Hanging,
    /// One healthy target among nine that take a second each
    Slow,
    /// How soon webhooks are answered while every target hangs and the archive fails
    Hooks,
    /// What a backlog costs in memory and at a restart
    Waiting,
    /// Whether a full store slows down, and whether old data is removed
    Growth,
    /// Deliveries in order, of one session and of many
    Sessions,
    /// Dead letters, found and sent again in order
    Replay,
    /// A kill under full load, and what is lost or repeated
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    Text,
    /// An object
    Json,
}

/// The other processes of a benchmark; `redrive-bench` starts them.
#[derive(Debug, Subcommand)]
pub(crate) enum Hidden {
    #[command(hide = true)]
    Role {
        #[command(subcommand)]
        role: Role,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Runs the server under test, which ends with its parent
    Serve {
        redrive: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Receives events
    Sink,
    /// Accepts events without storing them
    Handler,
    /// Forwards events
    Relay {
        /// Target
        to: SocketAddr,
    },
    /// Sends events
    Load {
        /// What to send, as JSON
        plan: String,
    },
}
