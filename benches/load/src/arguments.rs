//! The arguments of `redrive-bench`, and of the processes that it starts.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Measures a Redrive server on this machine, beside what the machine does without it.
#[derive(Debug, Parser)]
#[command(
    name = "redrive-bench",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Events have a payload of one kibibyte and come over 64 connections from a process of their own; times run \
from when an event should have been sent. The bare handler and the bare relay are the server's own HTTP \
stack and client, which store nothing. Where the bare handler costs more than 15 µs of CPU, or other \
programs take a tenth of the machine, a missed budget on speed is marked noisy.

Examples:
  redrive-bench                                   everything, in some minutes
  redrive-bench accept deliver                    two of the scenarios
  redrive-bench --quick --format json             some seconds each, to see that it works
  redrive-bench waiting --full --data /mnt/disk   ten million, on that disk

Exit code: 0 measured, 1 something was lost, repeated or out of order, 2 it could not be measured, 130 it was \
interrupted."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) role: Option<Hidden>,
    /// What to measure; without it, everything
    #[arg(value_enum, value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<Scenario>,
    /// Some seconds each: shows that it works, and little else
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// As long and as much as the budgets say: hours
    #[arg(long)]
    pub(crate) full: bool,
    /// How to print what was measured
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// The folder in which stores are made; its disk is what is measured [default: where you are]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The server to measure [default: `redrive` in the folder of this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) redrive: Option<PathBuf>,
    /// Leaves logs and what is left of the stores in a folder there
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// How fast events become durable
    Accept,
    /// From the sender to the target, through the store
    Deliver,
    /// One healthy target among nine that hang
    Hanging,
    /// One healthy target among nine that take a second each
    Slow,
    /// How soon webhooks are answered while every target hangs and the archive fails
    Hooks,
    /// What a backlog costs in memory and at a restart
    Waiting,
    /// Whether a full store slows down, and whether what is old makes room
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

/// The other sides of a measurement; `redrive-bench` starts them.
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
    /// Becomes the server that is measured, which ends with the process that started it
    Serve {
        redrive: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Takes events
    Sink,
    /// Says that it took them
    Handler,
    /// Passes them on
    Relay {
        /// To where
        to: SocketAddr,
    },
    /// Sends them
    Load {
        /// What to send, as JSON
        plan: String,
    },
}
