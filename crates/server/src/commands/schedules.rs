//! `redrive schedules`: when the schedules of a rule book fire next, without a server.

use redrive::clock::wall_clock;
use redrive_core::schedule::Mark;
use redrive_core::schedule::plan::{Act, Plan, plans};
use redrive_core::time::Timestamp;
use serde_json::{Value, json};

use super::{open_book, print_as};
use crate::cli::SchedulesArgs;
use crate::show::schedules;

pub(super) fn run(args: &SchedulesArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let plans = plans(&book);
    let from = args.from.unwrap_or_else(wall_clock);
    let shown: Vec<Value> = plans.iter().map(|plan| shown(plan, from, args.count)).collect();
    print_as(args.format, &shown, || schedules::page(&plans, from, args.count))
}

fn shown(plan: &Plan, from: Timestamp, count: u16) -> Value {
    let fires = plan.schedule.fires_after(from).take(count.into()).map(|fire| {
        let local = plan.schedule.local(fire);
        let mark = local.mark.map(Mark::as_str);
        json!({ "at": fire, "local": local.local, "offset": local.offset, "mark": mark })
    });
    let emission = match &plan.act {
        Act::Emit(emission) => Some(emission),
        Act::BringBack => None,
    };
    json!({
        "name": emission.map(|emission| emission.name.as_str()),
        "event_type": emission.map(|emission| emission.event_type.as_str()),
        "cron": plan.schedule.cron(),
        "zone": plan.schedule.zone(),
        "fires": fires.collect::<Vec<_>>(),
    })
}
