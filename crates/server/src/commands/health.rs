//! `redrive health`: whether a server works, or takes events, told by the exit code: for containers and
//! scripts that have no other way to ask.

use super::print;
use crate::api::shape::health::Readiness;
use crate::cli::HealthArgs;
use crate::client::Ask;
use crate::show::plain;

pub(super) async fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let mut client = args.server.client()?;
    if !args.ready {
        client.json::<serde_json::Value>(&Ask::get("/healthz")).await?;
        return print("it works\n");
    }
    let readiness: Readiness = client.json(&Ask::get("/readyz")).await?;
    print(&format!("{}\n", plain(&readiness.status)))?;
    for degraded in &readiness.degraded {
        print(&format!("  {}: {}\n", plain(&degraded.what), plain(&degraded.why)))?;
    }
    Ok(())
}
