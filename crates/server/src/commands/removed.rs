//! `redrive removed`: services and rows that left the rule book while deliveries wait for them, and a way out for those.

use serde_json::json;

use super::{print, print_as};
use crate::api::shape::removed::{ReassignedShown, RemovedFound};
use crate::cli::{Removed, RemovedArgs, RemovedOf, ViewArgs};
use crate::client::{Ask, segment};
use crate::show::table::{Cell, Side, Table};
use crate::show::{counted, next_steps, plain, queue_name, shell_word, style, thousands};

pub(super) async fn run(args: &RemovedArgs) -> anyhow::Result<()> {
    match &args.what {
        None => list(&args.list).await,
        Some(Removed::List(args)) => list(args).await,
        Some(Removed::DeadLetter(of)) => {
            let done = reassign(of, "dead-letter", None).await?;
            print(&words(done, "turned into dead letters"))
        }
        Some(Removed::Move(args)) => {
            let done = reassign(&args.of, "move", Some(&args.to)).await?;
            print(&words(done, &format!("sent to {}", plain(&args.to))))
        }
    }
}

async fn list(args: &ViewArgs) -> anyhow::Result<()> {
    let found: RemovedFound = args.client()?.json(&Ask::get("/v1/removed")).await?;
    print_as(args.format, &found, || page(&found))
}

fn page(found: &RemovedFound) -> String {
    let Some(first) = found.removed.first() else {
        return format!("{} no deliveries wait for a removed service or row\n", style::good("✓"));
    };
    let mut table = Table::new(&[Side::Left, Side::Right, Side::Left]);
    table.head(&["SERVICE", "WAITING", "REMOVED"]);
    for removed in &found.removed {
        let queue = queue_name(&removed.service, removed.channel.as_deref());
        let what = if removed.in_book { "rows that took these events" } else { "the service" };
        table.push(vec![
            Cell::bold(queue),
            Cell::plain(thousands(removed.waiting)),
            Cell::plain(what.to_owned()),
        ]);
    }
    let first = shell_word(&queue_name(&first.service, first.channel.as_deref()));
    let steps = [
        (format!("redrive removed move {first} --to SERVICE"), "sends what waits to another service"),
        (format!("redrive removed dead-letter {first}"), "turns what waits into dead letters"),
    ];
    table.text() + &next_steps(&steps)
}

/// Asks again and again until nothing more is done: one request does a bounded part.
async fn reassign(of: &RemovedOf, act: &str, to: Option<&str>) -> anyhow::Result<ReassignedShown> {
    let (service, channel) = match of.service.split_once('/') {
        Some((service, channel)) => (service, Some(channel)),
        None => (of.service.as_str(), None),
    };
    let path = format!("/v1/removed/{}/{act}", segment(service));
    let mut client = of.server.client()?;
    let mut all = 0;
    loop {
        let limit = of.limit.map(|limit| limit.saturating_sub(all));
        let body = json!({ "channel": channel, "to": to, "note": of.note, "limit": limit });
        let done: ReassignedShown = client.json(&Ask::json(&path, &body)).await?;
        all += done.done;
        if done.done == 0 || done.left == 0 || of.limit.is_some_and(|limit| all >= limit) {
            return Ok(ReassignedShown { done: all, ..done });
        }
    }
}

fn words(done: ReassignedShown, became: &str) -> String {
    let ReassignedShown { done, left, unwanted, busy } = done;
    let deliveries = counted(done, "delivery");
    let mark = if left == 0 { style::good("✓") } else { style::warning("!") };
    let mut text = format!("{mark} {deliveries} {became}");
    if left > 0 {
        text += &format!(", {} left", thousands(left));
    }
    let mut why = Vec::new();
    if unwanted > 0 {
        why.push(format!("{} of a type that the other service does not take", thousands(unwanted)));
    }
    if busy > 0 {
        why.push(format!("{} with an attempt or a replay under way", thousands(busy)));
    }
    if !why.is_empty() {
        text += &format!(": {}", why.join(", "));
    }
    text + "\n"
}
