//! `redrive pause` and `redrive resume`.

use clap::Args;
use serde_json::json;

use crate::cli::ServerArgs;
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::terminal::{plain, print, shell_word, style};

#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// The service
    pub(crate) service: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn pause(args: &ServiceArgs) -> anyhow::Result<()> {
    post_command(args, "pause").await?;
    let resume = style::bold(format!("redrive resume {}", shell_word(&args.service)));
    let service = style::bold(plain(&args.service));
    print(&format!("{} {service} paused; deliveries wait until `{resume}`\n", style::good("✓")))
}

pub(crate) async fn resume(args: &ServiceArgs) -> anyhow::Result<()> {
    post_command(args, "resume").await?;
    print(&format!("{} {} resumed\n", style::good("✓"), style::bold(plain(&args.service))))
}

async fn post_command(args: &ServiceArgs, command: &str) -> anyhow::Result<()> {
    let path = format!("/v1/services/{}/{command}", segment(&args.service));
    args.server.client()?.ask(&ClientRequest::json(path, &json!({}))).await?;
    Ok(())
}
