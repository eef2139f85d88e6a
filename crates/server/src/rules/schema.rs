//! `redrive schema`: JSON Schema of the rule book or of scenarios, for editors.

use clap::Args;
use redrive_lab::{json_schema, scenario};

use crate::connectors;
use crate::terminal::print_json;

/// Prints the JSON Schema of the rule book, for completion and validation in editors.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive schema > redrive.schema.json
  redrive schema scenario > scenario.schema.json

Then point the editor to it in the first line of a rule book or scenario:
  # yaml-language-server: $schema=./redrive.schema.json")]
pub(crate) struct SchemaArgs {
    /// The file format
    #[arg(value_enum, default_value_t = SchemaKind::Book)]
    pub(crate) of: SchemaKind,
}

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
