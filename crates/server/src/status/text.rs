//! Terminal output of the status: services and dependencies as tables, and what needs attention.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::alerts::AlertView;
use redrive_core::text::{counted, show_count};
use redrive_core::time::Timestamp;

use crate::client::address::Address;
use crate::services::json::HealthWord;
use crate::status::json::{
    ArchiveJson, DegradedJson, DependencyStatus, ScheduleStatus, ServiceStatus, Status, UnavailableJson,
};
use crate::status::watch::StatusWatch;
use crate::terminal::moment::{ago, coming, moment, rough};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{next_steps, plain, shell_word, style};
use crate::{replays, webhooks};

/// A smaller lag is normal.
const BEHIND_SHOWN_MS: u64 = 5_000;

const REPLAYS_SHOWN_MAX: usize = 10;

/// Problems with their own table or line on the page.
const SHOWN_ELSEWHERE: [&str; 10] = [
    "stranded",
    "breaker-open",
    "service-paused",
    "secret-stale",
    "secret-gone",
    "issuer-stale",
    "issuer-gone",
    "archive-waiting",
    "archive-open",
    "schedule-waiting",
];

/// With rates while watching.
pub(crate) fn page(
    status: &Status,
    address: &Address,
    watch: Option<&StatusWatch>,
    now: Timestamp,
) -> String {
    let mut out = format!(
        "{} {}  {}\n",
        verdict(status),
        style::bold(format!("redrive {} at {address}", plain(&status.version))),
        style::dim(format!("up {}, rule book {}", rough(now.since(status.started_at)), plain(&status.book)))
    );
    let calls = counted(status.calls_in_flight as u64, "call");
    if let Some(events) = status.events {
        let _ = write!(out, "{}, {calls} in flight", counted(events, "event"));
    } else {
        let services = plain(&status.bound_to.join(", "));
        let _ = write!(out, "{calls} in flight; the key is bound to {services}");
    }
    if let Some(unrouted) = status.unrouted.filter(|unrouted| *unrouted > 0) {
        let unrouted = format!("{} unrouted", show_count(unrouted));
        let _ = write!(out, ", {}", style::warning(unrouted));
    }
    out.push('\n');
    if let Some(watch) = watch {
        let _ = writeln!(out, "{}", watch.line());
    }
    if status.stranded > 0 {
        let word = "in the store but unknown to the engine: report it, and restart the server";
        let _ = writeln!(out, "{} {} stranded, {word}", style::error("✗"), show_count(status.stranded));
    }
    for line in troubles(status, now).into_iter().chain(firing(status, now)).chain(unavailable(status, now)) {
        let _ = writeln!(out, "{line}");
    }
    for line in letters(status).into_iter().chain(status.archive.as_ref().map(|shown| archive(shown, now))) {
        let _ = writeln!(out, "{line}");
    }
    let tables = [
        services(&status.services, watch, now),
        dependencies(&status.dependencies, now),
        webhooks::text::table(&status.sources),
        schedules(&status.schedules, now),
    ];
    for table in tables.into_iter().filter(Table::has_rows) {
        let _ = write!(out, "\n{}", table.text());
    }
    out.push_str(&next_steps(&steps(status)));
    out
}

/// One mark for all: whether somebody must act, or may have to.
fn verdict(status: &Status) -> String {
    let is_gone = |shown: &UnavailableJson| shown.state != "stale";
    let unavailable = || status.secrets.iter().chain(&status.issuer);
    let archive = status.archive.as_ref().map(|archive| archive.state.as_str());
    let is_bad = status.stranded > 0
        || troubled(status).any(|trouble| !is_bearable(trouble))
        || status.firing.iter().any(is_urgent)
        || status.held_sessions > 0
        || unavailable().any(is_gone)
        || archive == Some("open")
        || status.dependencies.iter().any(|dependency| dependency.breaker == "open")
        || status.services.iter().any(|service| service.health == Some(HealthWord::Failing))
        || status.schedules.iter().any(|schedule| schedule.waiting > 0 && schedule.trouble.is_some());
    let needs_attention = |service: &ServiceStatus| match service.health {
        None | Some(HealthWord::Idle | HealthWord::Healthy) => {
            service.dead > 0 || service.removed || service.paused_since.is_some()
        }
        Some(
            HealthWord::Paused
            | HealthWord::Removed
            | HealthWord::Held
            | HealthWord::Failing
            | HealthWord::Degraded,
        ) => true,
    };
    let is_doubtful = status.unrouted.is_some_and(|unrouted| unrouted > 0)
        || !status.degraded.is_empty()
        || !status.firing.is_empty()
        || status.poison > 0
        || unavailable().next().is_some()
        || archive.is_some_and(|state| state != "well")
        || status.dependencies.iter().any(DependencyStatus::is_broken)
        || status.services.iter().any(needs_attention);
    match (is_bad, is_doubtful) {
        (true, _) => style::error("✗"),
        (false, true) => style::warning("!"),
        (false, false) => style::good("✓"),
    }
}

fn troubled(status: &Status) -> impl Iterator<Item = &DegradedJson> {
    status.degraded.iter().filter(|trouble| !SHOWN_ELSEWHERE.contains(&trouble.what.as_str()))
}

/// Whether it needs no immediate action.
fn is_bearable(trouble: &DegradedJson) -> bool {
    matches!(trouble.what.as_str(), "store-slow" | "source-held")
}

fn is_urgent(alert: &AlertView) -> bool {
    matches!(alert.severity.as_str(), "critical" | "high")
}

/// Problems shown nowhere else.
fn troubles(status: &Status, now: Timestamp) -> Vec<String> {
    let line = |trouble: &DegradedJson| {
        let mark = if is_bearable(trouble) { style::warning("!") } else { style::error("✗") };
        let since = trouble.since.map(|since| format!(", for {}", rough(now.since(since))));
        format!("{mark} {}{}", plain(&trouble.why), since.unwrap_or_default())
    };
    troubled(status).map(line).collect()
}

fn firing(status: &Status, now: Timestamp) -> Vec<String> {
    let line = |alert: &AlertView| {
        let mark = if is_urgent(alert) { style::error("✗") } else { style::warning("!") };
        let covers = alert.covers.as_ref().map(|covers| format!(" ({})", plain(covers)));
        let since = alert.since.map(|since| format!(" for {}", rough(now.since(since))));
        let value = match alert.subjects.first().filter(|subject| !subject.of.is_empty()) {
            Some(worst) => Some(format!(", {} is {}", plain(&worst.of), plain(&worst.value))),
            None => alert.value.as_ref().map(|value| format!(", it is {}", plain(value))),
        };
        format!(
            "{mark} alert {}{} fires{}: {}{}",
            style::bold(plain(&alert.name)),
            covers.unwrap_or_default(),
            since.unwrap_or_default(),
            plain(&alert.when),
            value.unwrap_or_default()
        )
    };
    status.firing.iter().map(line).collect()
}

fn unavailable(status: &Status, now: Timestamp) -> Vec<String> {
    let line = |what: String, shown: &UnavailableJson| {
        let UnavailableJson { name: _, state, since, why } = shown;
        let (mark, word) = match state.as_str() {
            "stale" => (style::warning("!"), "cannot be fetched, the last value is used"),
            _ => (style::error("✗"), "is unavailable, requests that need it are refused"),
        };
        let span = rough(now.since(*since));
        format!("{mark} {what} {word}, for {span}: {}", style::dim(plain(why)))
    };
    let secrets = status
        .secrets
        .iter()
        .map(|secret| line(format!("secret {}", style::bold(plain(&secret.name))), secret));
    let issuer = status
        .issuer
        .iter()
        .map(|issuer| line(format!("key set of the issuer {}", style::bold(plain(&issuer.name))), issuer));
    secrets.chain(issuer).collect()
}

fn letters(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if status.poison > 0 {
        let letters = counted(status.poison, "poison letter");
        lines.push(format!("{} {letters}, skipped by replays", style::warning("!")));
    }
    if status.held_sessions > 0 {
        lines.push(format!("{} {}", style::error("✗"), held(status)));
    }
    for replay in status.replays.iter().take(REPLAYS_SHOWN_MAX) {
        lines.push(format!("{} {}", style::info("↻"), replays::text::line(replay)));
    }
    if let Some(more) = status.replays.len().checked_sub(REPLAYS_SHOWN_MAX).filter(|more| *more > 0) {
        let more = counted(more as u64, "more open replay");
        lines.push(format!("{} {more}: `redrive replays` shows them", style::info("↻")));
    }
    lines
}

fn archive(shown: &ArchiveJson, now: Timestamp) -> String {
    let (mark, state) = match shown.state.as_str() {
        "well" => (style::good("✓"), String::new()),
        "open" => (style::error("✗"), ": circuit breaker open, events are not archived".to_owned()),
        _ => {
            let again = shown.waits_until.map(|until| format!(", next try {}", coming(until, now)));
            (style::warning("!"), format!(": writes fail{}", again.unwrap_or_default()))
        }
    };
    let mut line = format!("{mark} archive{state}: {} archived", counted(shown.archived, "event"));
    if shown.skipped > 0 {
        let _ = write!(line, ", {}", style::warning(format!("{} skipped", show_count(shown.skipped))));
    }
    if shown.behind_ms >= BEHIND_SHOWN_MS {
        let _ = write!(line, ", {} behind", rough(Duration::from_millis(shown.behind_ms)));
    }
    // A past error is not shown.
    if let Some(error) = shown.last_error.as_deref().filter(|_| shown.state != "well" || shown.skipped > 0) {
        let _ = write!(line, "; {}", style::dim(plain(error)));
    }
    line
}

fn held(status: &Status) -> String {
    let or_more = if status.held_at_least { " or more" } else { "" };
    let sessions = counted(status.held_sessions, "session");
    let held = match status.held_sessions {
        1 => "is blocked by a dead letter",
        _ => "are blocked by dead letters",
    };
    let waiting = match status.held_deliveries {
        0 => return format!("{sessions}{or_more} {held}: no deliveries wait there"),
        1 => "1 delivery waits".to_owned(),
        count => format!("{}{or_more} wait", counted(count, "delivery")),
    };
    format!(
        "{sessions}{or_more} {held}: {waiting} behind {}",
        if status.held_sessions == 1 { "it" } else { "them" }
    )
}

fn services(services: &[ServiceStatus], watch: Option<&StatusWatch>, now: Timestamp) -> Table {
    let mut sides = vec![CellAlign::Left, CellAlign::Right, CellAlign::Right, CellAlign::Right];
    let mut heads = vec!["SERVICE", "WAITING", "DELIVERED", "DEAD"];
    if watch.is_some() {
        sides.extend([CellAlign::Right, CellAlign::Left]);
        heads.extend(["PER SECOND", ""]);
    }
    let mut table = Table::new(&[sides, vec![CellAlign::Left]].concat());
    table.head(&[heads, vec![""]].concat());
    for service in services {
        let name = service.name();
        let dead = show_count(service.dead);
        let remark = health(service, now);
        let mut row = vec![
            Cell::bold(plain(&name)),
            number(service.waiting),
            number(service.delivered),
            if service.dead > 0 { Cell::painted(dead, style::error) } else { Cell::dim(dead) },
        ];
        if let Some(watch) = watch {
            let (rate, trend) = watch.of_service(&name);
            row.extend([Cell::plain(rate), Cell::painted(trend, style::info)]);
        }
        row.push(remark);
        table.push(row);
    }
    table
}

fn health(service: &ServiceStatus, now: Timestamp) -> Cell {
    let Some(word) = service.health else { return Cell::plain("") };
    let (name, paint): (_, fn(String) -> String) = match word {
        HealthWord::Paused => ("paused", style::warning),
        HealthWord::Removed => ("removed", style::error),
        HealthWord::Held => ("held", style::warning),
        HealthWord::Failing => ("failing", style::error),
        HealthWord::Degraded => ("degraded", style::warning),
        HealthWord::Idle => ("idle", style::dim),
        HealthWord::Healthy => ("healthy", style::good),
    };
    let why = service.why.as_deref().filter(|why| *why != name).map(plain).unwrap_or_default();
    let colon = if why.is_empty() { "" } else { ": " };
    let since = service.why_since.map(|since| format!(" for {}", rough(now.since(since))));
    let until = service.why_until.map(|until| format!(" until {} ({})", moment(until), coming(until, now)));
    let (since, until) = (since.unwrap_or_default(), until.unwrap_or_default());
    Cell::painted(format!("{name}{colon}{why}{since}{until}"), paint)
}

/// Zero is dimmed.
fn number(count: u64) -> Cell {
    if count == 0 { Cell::dim("0") } else { Cell::plain(show_count(count)) }
}

fn dependencies(dependencies: &[DependencyStatus], now: Timestamp) -> Table {
    let mut table = Table::new(&[CellAlign::Left, CellAlign::Left, CellAlign::Right, CellAlign::Left]);
    table.head(&["DEPENDENCY", "BREAKER", "IN FLIGHT", ""]);
    for dependency in dependencies {
        let paint: fn(String) -> String = match dependency.breaker.as_str() {
            "closed" => style::good,
            "open" => style::error,
            "none" => style::dim,
            _ => style::warning,
        };
        let mut remarks = Vec::new();
        if let Some(until) = dependency.open_until {
            remarks.push(format!("probes start {}", coming(until, now)));
        }
        if let Some(until) = dependency.held_until.filter(|until| *until > now) {
            remarks.push(format!("asked callers to wait; resumes {}", coming(until, now)));
        }
        table.push(vec![
            Cell::bold(plain(&dependency.name)),
            Cell::painted(plain(&dependency.breaker), paint),
            Cell::plain(dependency.in_flight.to_string()),
            Cell::dim(remarks.join("; ")),
        ]);
    }
    table
}

fn schedules(schedules: &[ScheduleStatus], now: Timestamp) -> Table {
    let mut table = Table::new(&[CellAlign::Left; 5]);
    table.head(&["SCHEDULE", "EMITS", "NEXT", "LAST", ""]);
    for schedule in schedules {
        let name = match &schedule.name {
            Some(name) => Cell::bold(plain(name)),
            None => Cell::bold(plain(&schedule.cron)),
        };
        let emits = match &schedule.event_type {
            Some(event_type) => Cell::plain(plain(event_type)),
            None => Cell::dim("replays dead letters"),
        };
        let next = match (&schedule.next_fire_local, schedule.next_fire) {
            (Some(local), Some(next)) => format!("{} ({})", plain(local), coming(next, now)),
            _ => "none".to_owned(),
        };
        let last = schedule.last_fire.map_or_else(|| "never".to_owned(), |last| ago(last, now));
        table.push(vec![name, emits, Cell::plain(next), Cell::plain(last), schedule_remark(schedule)]);
    }
    table
}

fn schedule_remark(schedule: &ScheduleStatus) -> Cell {
    if schedule.waiting > 0
        && let Some(trouble) = &schedule.trouble
    {
        let waiting = counted(schedule.waiting, "fire");
        return Cell::painted(format!("{waiting} not emitted yet: {}", plain(trouble)), style::error);
    }
    let mut missed = Vec::new();
    if schedule.caught_up > 0 {
        missed.push(format!("{} caught up", show_count(schedule.caught_up)));
    }
    if schedule.lost > 0 {
        missed.push(format!("{} skipped", show_count(schedule.lost)));
    }
    if missed.is_empty() { Cell::plain("") } else { Cell::dim(format!("missed: {}", missed.join(", "))) }
}

fn steps(status: &Status) -> Vec<(String, &'static str)> {
    let mut steps = Vec::new();
    if let Some(paused) = status.services.iter().find(|service| service.paused_since.is_some()) {
        steps.push((format!("redrive resume {}", shell_word(&paused.service)), "resumes it"));
    }
    if status
        .services
        .iter()
        .any(|service| service.removed && service.waiting > 0 || service.without_rule > 0)
    {
        steps.push((
            "redrive removed".to_owned(),
            "lists waiting deliveries of removed services, to move or dead-letter",
        ));
    }
    if !status.firing.is_empty() || status.degraded.iter().any(|trouble| trouble.what == "receiver-dead") {
        steps.push(("redrive alerts".to_owned(), "shows firing alerts and notifications"));
    }
    if status.unrouted.is_some_and(|unrouted| unrouted > 0) {
        steps.push(("redrive route --unrouted".to_owned(), "routes events that a rule matches now"));
    }
    if status.services.iter().any(|service| service.dead > 0) {
        // A key bound to services must name one.
        let of = status.bound_to.first().map(|service| format!(" --service {}", shell_word(service)));
        let of = of.unwrap_or_default();
        steps.push((format!("redrive dlq groups{of}"), "shows the causes of the dead letters"));
        steps.push((format!("redrive why --last{of}"), "shows the history of the latest failure"));
    }
    if status.sources.iter().any(|source| source.counts.malformed + source.counts.conflicts > 0) {
        steps.push(("redrive hooks refused".to_owned(), "shows refused webhook calls"));
    }
    steps
}
