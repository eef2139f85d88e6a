//! When schedules fire: a table for each, in its own zone and in UTC, with a word where clocks are set.

use std::fmt::Write as _;

use redrive_core::book::connectors::schedule::Missed;
use redrive_core::schedule::plan::{Act, Plan};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;

use super::moment::coming;
use super::style;
use super::table::{Cell, Side, Table};

/// The whole page.
pub(crate) fn page(plans: &[Plan], from: Timestamp, count: u16) -> String {
    if plans.is_empty() {
        return "the rule book has no schedules\n".to_owned();
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

fn title(plan: &Plan) -> String {
    let when = format!("{} in {}", plan.schedule.cron(), plan.schedule.zone());
    let within = show_duration(plan.catch_up.within);
    match &plan.act {
        Act::Emit(emission) => {
            let missed = match plan.catch_up.missed {
                Missed::One => format!("of missed fires the latest is caught up, within {within}"),
                Missed::None => "missed fires are lost".to_owned(),
                Missed::All => format!("missed fires are all caught up, within {within}"),
            };
            let what = format!("emits {} at {when}; {missed}", emission.event_type.as_str());
            format!("{}  {}", style::bold(&emission.name), style::dim(what))
        }
        Act::BringBack => {
            format!("{}  {}", style::bold("dead letters"), style::dim(format!("come back at {when}")))
        }
    }
}

fn fires(plan: &Plan, from: Timestamp, count: u16) -> Table {
    let mut table = Table::new(&[Side::Left, Side::Left, Side::Left, Side::Left]);
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
