//! `redrive pause` and `redrive resume`: whether anything of a service may start.

use serde_json::json;

use super::print;
use crate::cli::ServiceArgs;
use crate::client::{Ask, segment};
use crate::show::{plain, shell_word, style};

pub(super) async fn pause(args: &ServiceArgs) -> anyhow::Result<()> {
    tell(args, "pause").await?;
    let resume = style::bold(format!("redrive resume {}", shell_word(&args.service)));
    let service = style::bold(plain(&args.service));
    print(&format!("{} {service} is paused: what comes for it waits until `{resume}`\n", style::good("✓")))
}

pub(super) async fn resume(args: &ServiceArgs) -> anyhow::Result<()> {
    tell(args, "resume").await?;
    print(&format!("{} {} goes on\n", style::good("✓"), style::bold(plain(&args.service))))
}

async fn tell(args: &ServiceArgs, command: &str) -> anyhow::Result<()> {
    let path = format!("/v1/services/{}/{command}", segment(&args.service));
    args.server.client()?.ask(&Ask::json(path, &json!({}))).await?;
    Ok(())
}
