//! `redrive pause` and `redrive resume`: whether anything of a service may start.

use std::process::ExitCode;

use super::{print, wait_for};
use crate::cli::{PauseArgs, ResumeArgs, ServerArgs};
use crate::client::{Ask, segment};
use crate::show::{plain, shell_word, style};

pub(super) fn pause(args: &PauseArgs) -> anyhow::Result<ExitCode> {
    tell(&args.server, &args.service, "pause")?;
    let resume = style::bold(format!("redrive resume {}", shell_word(&args.service)));
    let service = style::bold(plain(&args.service));
    print(&format!("{} {service} is paused: what comes for it waits until `{resume}`\n", style::good("✓")))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    tell(&args.server, &args.service, "resume")?;
    print(&format!("{} {} goes on\n", style::good("✓"), style::bold(plain(&args.service))))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(server: &ServerArgs, service: &str, command: &str) -> anyhow::Result<()> {
    wait_for(async {
        let path = format!("/v1/services/{}/{command}", segment(service));
        server.client()?.ask(&Ask::post(path, "application/json", "{}")).await?;
        Ok(())
    })
}
