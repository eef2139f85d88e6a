//! `redrive schema`: the format of the rule book, or of scenarios, as JSON Schema, for editors.

use clap::Args;
use redrive_lab::{json_schema, scenario};

use crate::connectors;
use crate::terminal::print_json;

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
    #[arg(value_enum, default_value_t = SchemaKind::Book)]
    pub(crate) of: SchemaKind,
}

/// What is written in YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SchemaKind {
    /// A rule book
    Book,
    /// A scenario for `redrive simulate`
    Scenario,
}

pub(crate) fn run(args: &SchemaArgs) -> anyhow::Result<()> {
    let schema = match args.of {
        SchemaKind::Book => json_schema::schema(connectors::table()),
        SchemaKind::Scenario => scenario::json_schema(),
    };
    print_json(&schema)
}
