//! `redrive schema`: the format of the rule book, or of scenarios, as JSON Schema, for editors.

use redrive_lab::json_schema;
use redrive_lab::scenario;

use super::print_json;
use crate::cli::{Schema, SchemaArgs};
use crate::connectors;

pub(super) fn run(args: &SchemaArgs) -> anyhow::Result<()> {
    let schema = match args.of {
        Schema::Book => json_schema::schema(connectors::table()),
        Schema::Scenario => scenario::json_schema(),
    };
    print_json(&schema)
}
