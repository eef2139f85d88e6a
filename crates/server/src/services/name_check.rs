//! Detects misspelt service names, when a query for one found nothing.

use std::path::Path;

use anyhow::bail;
use redrive_core::book::RuleBook;
use redrive_core::book::alert_rules::is_own;
use redrive_core::book::problem::suggest;
use redrive_node::store::StoreReader;

use crate::cli::CommandRefusal;
use crate::client::{Client, ClientRequest};
use crate::services::json::ServicesResponse;
use crate::terminal::plain;

pub(crate) async fn check(client: &mut Client, name: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = name.filter(|name| !is_own(name)) else { return Ok(()) };
    let found: ServicesResponse = client.json(&ClientRequest::get("/v1/services")).await?;
    let mut known = Vec::new();
    for shown in found.services {
        known.extend(shown.channel.map(|channel| format!("{}/{channel}", shown.service)));
        known.push(shown.service);
    }
    refuse_unless(name, &known, "")
}

/// Refuses a name that neither the folder nor the rule book has.
pub(crate) fn check_in(
    folder: &Path,
    reader: &dyn StoreReader,
    book: Option<&RuleBook>,
    name: Option<&str>,
) -> anyhow::Result<()> {
    let Some(name) = name.filter(|name| !is_own(name)) else { return Ok(()) };
    let counts = reader.counts().map_err(CommandRefusal::of)?;
    let mut known = Vec::new();
    for queue in counts.queues.keys().filter(|queue| !is_own(queue.service.as_str())) {
        known.push(queue.to_string());
        known.push(queue.service.to_string());
    }
    for (service, channel) in book.iter().flat_map(|book| book.queues()) {
        known.extend(channel.map(|channel| format!("{service}/{channel}")));
        known.push(service.to_string());
    }
    refuse_unless(name, &known, &format!(" in {}", folder.display()))
}

fn refuse_unless(name: &str, known: &[String], place: &str) -> anyhow::Result<()> {
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    bail!("no service `{}`{place}: {}", plain(name), suggest(name, known.iter().map(String::as_str)))
}
