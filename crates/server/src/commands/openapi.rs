//! `redrive openapi`: the description of the HTTP API, as a running server has it too.

use super::print_json;
use crate::api::openapi;
use crate::cli::OpenapiArgs;

pub(super) fn run(OpenapiArgs {}: &OpenapiArgs) -> anyhow::Result<()> {
    print_json(&openapi::document())
}
