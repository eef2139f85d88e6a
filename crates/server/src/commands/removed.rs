//! `redrive removed`: services and rows that left the rule book while deliveries wait for them, and a way out for those.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::{print, print_json, wait_for};
use crate::api::shape::removed::{ReassignedShown, RemovedFound};
use crate::cli::{Format, Removed, RemovedArgs, RemovedListArgs, RemovedOf};
use crate::client::{Ask, segment};
use crate::show::table::{Cell, Side, Table};
use crate::show::{counted, next_steps, plain, shell_word, style, thousands};

pub(super) fn run(args: &RemovedArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        None => list(&args.list)?,
        Some(Removed::List(args)) => list(args)?,
        Some(Removed::DeadLetter(args)) => {
            let done = reassign(&args.of, "dead-letter", None)?;
            print(&words(done, "turned into dead letters"))?;
        }
        Some(Removed::Move(args)) => {
            let done = reassign(&args.of, "move", Some(&args.to))?;
            print(&words(done, &format!("sent to {}", plain(&args.to))))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &RemovedListArgs) -> anyhow::Result<()> {
    wait_for(async {
        let found: RemovedFound = args.server.client()?.json(&Ask::get("/v1/removed")).await?;
        match args.format {
            Format::Json => print_json(&found),
            Format::Text => print(&page(&found)),
        }
    })
}

fn page(found: &RemovedFound) -> String {
    let Some(first) = found.removed.first() else {
        return format!("{} no deliveries wait for a removed service or row\n", style::good("✓"));
    };
    let name = |service: &str, channel: Option<&str>| {
        channel.map_or_else(|| service.to_owned(), |channel| format!("{service}/{channel}"))
    };
    let mut table = Table::new(&[Side::Left, Side::Right, Side::Left]);
    table.head(&["SERVICE", "WAITING", "REMOVED"]);
    for removed in &found.removed {
        let queue = name(&removed.service, removed.channel.as_deref());
        let what = if removed.in_book { "rows that took these events" } else { "the service" };
        table.push(vec![
            Cell::bold(plain(&queue)),
            Cell::plain(thousands(removed.waiting)),
            Cell::plain(what.to_owned()),
        ]);
    }
    let first = shell_word(&name(&first.service, first.channel.as_deref()));
    let steps = [
        (format!("redrive removed move {first} --to SERVICE"), "sends what waits to another service"),
        (format!("redrive removed dead-letter {first}"), "turns what waits into dead letters"),
    ];
    let lines = table.lines().into_iter().fold(String::new(), |page, line| page + &line + "\n");
    lines + &next_steps(&steps)
}

/// Asks again and again until nothing more is done: one request does a bounded part.
fn reassign(of: &RemovedOf, act: &str, to: Option<&str>) -> anyhow::Result<ReassignedShown> {
    let (service, channel) = match of.service.split_once('/') {
        Some((service, channel)) => (service, Some(channel)),
        None => (of.service.as_str(), None),
    };
    let path = format!("/v1/removed/{}/{act}", segment(service));
    wait_for(async {
        let mut client = of.server.client()?;
        let mut all = 0;
        loop {
            let mut body = Map::new();
            let texts = [("channel", channel), ("to", to), ("note", of.note.as_deref())];
            let texts = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text?))));
            body.extend(texts);
            let left = of.limit.map(|limit| limit.saturating_sub(all));
            body.extend(left.map(|left| ("limit".to_owned(), json!(left))));
            let ask = Ask::post(path.clone(), "application/json", Value::Object(body).to_string());
            let done: ReassignedShown = client.json(&ask).await?;
            all += done.done;
            if done.done == 0 || done.left == 0 || of.limit.is_some_and(|limit| all >= limit) {
                return Ok(ReassignedShown { done: all, ..done });
            }
        }
    })
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
