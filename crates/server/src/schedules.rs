//! `redrive schedules`: next fires of the schedules in a rule book.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use redrive::clock::wall_clock;
use redrive_core::book::connectors::schedule::Missed;
use redrive_core::schedule::ClockChange;
use redrive_core::schedule::plan::{ScheduledAction, ScheduledJob, plans};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use serde_json::{Value, json};

use crate::cli::Format;
use crate::rules::file::open_book;
use crate::terminal::moment::coming;
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{print_as, style};

/// Shows the next fires of all schedules, including clock changes; needs no server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive schedules
  redrive schedules --rules redrive.yaml --count 3
  redrive schedules --from 2026-10-24T00:00:00Z      across the end of summer time
  redrive schedules --format json

Exit code: 0 shown, 1 the rule book has errors, 2 a file cannot be read.")]
pub(crate) struct SchedulesArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Number of fires of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) count: u16,
    /// Start time, such as 2026-10-24T00:00:00Z (default: now)
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Timestamp>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

pub(crate) fn run(args: &SchedulesArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let plans = plans(&book);
    let from = args.from.unwrap_or_else(wall_clock);
    let shown: Vec<Value> = plans.iter().map(|plan| shown(plan, from, args.count)).collect();
    print_as(args.format, &shown, || page(&plans, from, args.count))
}

fn shown(plan: &ScheduledJob, from: Timestamp, count: u16) -> Value {
    let fires = plan.schedule.fires_after(from).take(count.into()).map(|fire| {
        let local = plan.schedule.local(fire);
        let mark = local.mark.map(ClockChange::as_str);
        json!({ "at": fire, "local": local.local, "offset": local.offset, "mark": mark })
    });
    let emission = match &plan.act {
        ScheduledAction::Emit(emission) => Some(emission),
        ScheduledAction::BringBack => None,
    };
    json!({
        "name": emission.map(|emission| emission.name.as_str()),
        "event_type": emission.map(|emission| emission.event_type.as_str()),
        "cron": plan.schedule.cron(),
        "zone": plan.schedule.zone(),
        "fires": fires.collect::<Vec<_>>(),
    })
}

pub(crate) fn page(plans: &[ScheduledJob], from: Timestamp, count: u16) -> String {
    if plans.is_empty() {
        return "no schedules in the rule book\n".to_owned();
    }
    let mut out = String::new();
    for (place, plan) in plans.iter().enumerate() {
        let gap = if place == 0 { "" } else { "\n" };
        let _ = writeln!(out, "{gap}{}", title(plan));
        for line in fires(plan, from, count).lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

fn title(plan: &ScheduledJob) -> String {
    let when = format!("{} in {}", plan.schedule.cron(), plan.schedule.zone());
    let within = show_duration(plan.catch_up.within);
    match &plan.act {
        ScheduledAction::Emit(emission) => {
            let missed = match plan.catch_up.missed {
                Missed::One => format!("of missed fires, the latest is caught up within {within}"),
                Missed::None => "missed fires are skipped".to_owned(),
                Missed::All => format!("missed fires are all caught up within {within}"),
            };
            let what = format!("emits {} at {when}; {missed}", emission.event_type.as_str());
            format!("{}  {}", style::bold(&emission.name), style::dim(what))
        }
        ScheduledAction::BringBack => {
            format!("{}  {}", style::bold("dead letters"), style::dim(format!("replayed at {when}")))
        }
    }
}

fn fires(plan: &ScheduledJob, from: Timestamp, count: u16) -> Table {
    let mut table = Table::new(&[CellAlign::Left, CellAlign::Left, CellAlign::Left, CellAlign::Left]);
    for fire in plan.schedule.fires_after(from).take(count.into()) {
        let local = plan.schedule.local(fire);
        table.push(vec![
            Cell::plain(local.local),
            Cell::dim(fire.to_string()),
            Cell::dim(coming(fire, from)),
            Cell::painted(local.mark.map(|mark| mark.to_string()).unwrap_or_default(), style::warning),
        ]);
    }
    table
}
