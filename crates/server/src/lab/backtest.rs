//! `redrive backtest`: compares the record of a data folder with another rule book.

mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redrive_core::engine::QueueName;
use redrive_core::engine::attempt_record::RecordedVerdict;
use redrive_core::event::idempotency::{self, DedupKey};
use redrive_core::ids::{Seed, Seq};
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::text::show_count;
use redrive_core::time::Timestamp;
use redrive_lab::backtest::{
    BacktestPlan, BacktestReport, BacktestSurvey, RecordedDelivery, RecordedState, ReplayHistory,
    SessionMembership,
};
use redrive_node::runtime::BreakerHistory;
use redrive_node::store::{DeliveryFilter, DeliveryState, DeliveryView, StoreError};

use crate::cli::{CommandRefusal, DATA_DEFAULT, Format};
use crate::connectors;
use crate::letters::filter;
use crate::rules::file::{machine, read_book};
use crate::storage::record::RecordFolder;
use crate::terminal::progress::ProgressBar;
use crate::terminal::{self, moment, print, print_json};

/// Tests a changed rule book against recorded deliveries: which would have ended differently?
///
/// Reads the record of a data folder, also while a server runs on it, and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive backtest --data /var/lib/redrive --rules new.yaml
  redrive backtest --data /var/lib/redrive --rules new.yaml --since 7d
  redrive backtest --rules new.yaml --since 2026-01-31T12:00:00Z --format json

Where the new rules make the recorded attempts, the result is certain. Where they would have \
tried at another time, it is estimated from other answers of the dependency at about that time; \
without such answers it is unknown.

Exit code: 0 compared, 1 refused, or problems in the rule book, 2 wrong use, or a file cannot be read.")]
pub(crate) struct BacktestArgs {
    /// The data folder; a server may be running on it
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    /// The rule book to test
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Only deliveries accepted since then: a time, or an age such as 7d [default: all]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

const PAGE: usize = 500;

const UNROUTED_PAGE: usize = 200;

pub(crate) fn run(args: &BacktestArgs) -> anyhow::Result<ExitCode> {
    let (book, _) = read_book(&args.rules)?;
    let record = RecordFolder::open(&args.data)?;
    let since = match &args.since {
        Some(text) => {
            Some(filter::time(text, record.now).map_err(|why| CommandRefusal(format!("--since: {why}")))?)
        }
        None => None,
    };
    let seed = Seed(record.reader.seed().map_err(CommandRefusal::of)?);
    let plan = BacktestPlan { book: &book, seed, since, until: record.now };
    let report = record.compared(plan)?;
    if report.deliveries == 0 {
        return Err(record.nothing(since).into());
    }
    match args.format {
        Format::Text => {
            let (data, rules) = (args.data.display().to_string(), args.rules.display().to_string());
            print(&text::page(&report, &data, &rules, terminal::columns()))?;
        }
        Format::Json => print_json(&report)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl RecordFolder<'_> {
    fn compared(&self, plan: BacktestPlan<'_>) -> Result<BacktestReport, CommandRefusal> {
        let queues = self.reader.counts().map_err(CommandRefusal::of)?.queues;
        let of_queue =
            queues.values().map(|queue| queue.waiting + queue.delivered + queue.dead + queue.closed);
        let mut reading = RecordProgress {
            record: self,
            since: plan.since,
            bar: ProgressBar::new(),
            all: of_queue.sum::<u64>() * 2,
            read: 0,
        };
        let mut survey = BacktestSurvey::new(plan);
        self.add_unrouted(&mut survey)?;
        self.add_breakers(&mut survey)?;
        reading.each(|view| {
            let recorded = recorded(view, first_queue(view, queues.keys()));
            while let Some(hash) = survey.wants_book(&recorded) {
                let text = self.reader.book(hash)?;
                let book = text.and_then(|text| {
                    redrive_core::book::read_for(&text, connectors::table(), machine()).book
                });
                survey.add_book(hash, book);
            }
            survey.look(&recorded);
            Ok(())
        })?;
        let mut weighing = survey.weighing();
        reading.each(|view| {
            weighing.weigh(&recorded(view, first_queue(view, queues.keys())));
            Ok(())
        })?;
        reading.bar.clear();
        Ok(weighing.report())
    }

    fn add_unrouted(&self, survey: &mut BacktestSurvey<'_>) -> Result<(), CommandRefusal> {
        let mut after = Seq::NONE;
        loop {
            let page = self.reader.unrouted(after, UNROUTED_PAGE).map_err(CommandRefusal::of)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.receipt.seq();
            for view in &page {
                survey.add_unrouted(view.event.event_type.as_str(), view.received_at);
            }
        }
    }

    fn add_breakers(&self, survey: &mut BacktestSurvey<'_>) -> Result<(), CommandRefusal> {
        let turns = BreakerHistory::remembered_by(&*self.reader).map_err(CommandRefusal::of)?;
        for dependency in turns.dependencies() {
            let mut closed_at = self.now;
            // The latest first: each turn away from `closed` lasts until the next one back to it.
            for turn in turns.of(dependency) {
                if turn.to == BreakerPhase::Closed {
                    closed_at = turn.at;
                } else if turn.from == BreakerPhase::Closed {
                    survey.add_open(dependency, turn.at, closed_at);
                }
            }
        }
        Ok(())
    }

    fn nothing(&self, since: Option<Timestamp>) -> CommandRefusal {
        let folder = self.path.display();
        let latest = self.reader.list(&DeliveryFilter { rows_max: 1, ..DeliveryFilter::default() });
        let latest = latest.ok().and_then(|listed| listed.deliveries.first().map(|view| view.accepted_at));
        CommandRefusal(match (since, latest) {
            (Some(since), Some(latest)) => {
                let (since, latest) = (moment::moment(since), moment::moment(latest));
                format!("{folder} has no delivery since {since}: the latest was accepted at {latest}")
            }
            (None, _) | (_, None) => format!("{folder} has no deliveries to compare"),
        })
    }
}

struct RecordProgress<'a> {
    record: &'a RecordFolder<'a>,
    since: Option<Timestamp>,
    bar: ProgressBar,
    /// Deliveries to read, each of them twice.
    all: u64,
    read: u64,
}

impl RecordProgress<'_> {
    fn each(
        &mut self,
        mut take: impl FnMut(&DeliveryView) -> Result<(), StoreError>,
    ) -> Result<(), CommandRefusal> {
        let mut filter = DeliveryFilter { rows_max: PAGE, ..DeliveryFilter::default() };
        loop {
            let listed = self.record.reader.deliveries_with_attempts(&filter).map_err(CommandRefusal::of)?;
            self.read += listed.deliveries.len() as u64;
            for view in &listed.deliveries {
                take(view).map_err(CommandRefusal::of)?;
            }
            let words = format!("{} deliveries read", show_count(self.read));
            self.bar.show_part(self.read as f64 / self.all.max(1) as f64, &words);
            let is_old = |view: &DeliveryView| self.since.is_some_and(|since| view.accepted_at < since);
            let is_past = !listed.deliveries.is_empty() && listed.deliveries.iter().all(is_old);
            filter.before = listed.next;
            if listed.next.is_none() || is_past {
                return Ok(());
            }
        }
    }
}

/// The queue at acceptance: a replay may have moved the delivery, and its id is derived from the first queue.
fn first_queue<'a>(view: &'a DeliveryView, queues: impl Iterator<Item = &'a QueueName>) -> &'a QueueName {
    let event = DedupKey { source: &view.event_source, event_id: &view.event_id };
    let is_first = |queue: &&QueueName| {
        idempotency::delivery_id(view.id.seq(), event, &queue.service, queue.channel.as_ref()) == view.id
    };
    if view.replays == 0 || is_first(&&view.queue) {
        return &view.queue;
    }
    let mut queues = queues;
    queues.find(is_first).unwrap_or(&view.queue)
}

fn recorded<'a>(view: &'a DeliveryView, queue: &'a QueueName) -> RecordedDelivery<'a> {
    let last_died = || {
        let died =
            view.stories.iter().rev().find(|story| matches!(story.verdict, RecordedVerdict::Dead { .. }));
        died.map_or(view.written_at, |story| story.started_at)
    };
    RecordedDelivery {
        id: view.id,
        queue,
        event_type: &view.event_type,
        order: if view.session.is_some() { SessionMembership::InSession } else { SessionMembership::Alone },
        accepted_at: view.accepted_at,
        state: match &view.state {
            DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => {
                RecordedState::Waiting
            }
            DeliveryState::Delivered { .. } => RecordedState::Delivered,
            DeliveryState::Dead { at, .. } => RecordedState::Dead { at: *at },
            DeliveryState::Closed { .. } => RecordedState::Dead { at: last_died() },
        },
        replays: match view.replays {
            0 => ReplayHistory::None,
            count if *queue == view.queue => ReplayHistory::Here(count),
            count => ReplayHistory::Elsewhere(count),
        },
        stories: &view.stories,
    }
}
