//! `redrive schema`: the format of the rule book as JSON Schema, for editors.

use std::process::ExitCode;

use redrive::core::book::json_schema;

use super::print;
use crate::cli::SchemaArgs;

pub(super) fn run(SchemaArgs {}: &SchemaArgs) -> anyhow::Result<ExitCode> {
    print(&(serde_json::to_string_pretty(&json_schema::schema())? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
