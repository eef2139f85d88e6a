//! Terminal output of replays: preview, progress and result.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::letters::replay::{ReplayState, ReplayWave};
use redrive_core::text::{Rate, counted, show_count};
use redrive_core::time::Timestamp;

use crate::deliveries::text::short_id;
use crate::letters::json::QueueCount;
use crate::replays::json::{ReplayJson, ReplayOriginJson, ReplaySurveyJson};
use crate::terminal::moment::{ago, moment, rough};
use crate::terminal::table::{Cell, CellAlign, FactList, Table};
use crate::terminal::{cut, next_steps, plain, queue_name, style};

const BAR_COLUMNS_MAX: usize = 30;

const BAR_TEXT_COLUMNS: usize = 70;

const WHAT_COLUMNS_MAX: usize = 70;

const CAUSES_MAX: usize = 10;

const fn done(replay: &ReplayJson) -> u64 {
    replay.delivered + replay.failed + replay.left
}

pub(crate) fn line(replay: &ReplayJson) -> String {
    let ReplayJson { id, state, total, .. } = replay;
    let what = cut(&plain(&replay.what), WHAT_COLUMNS_MAX);
    let how_far = format!("{} of {}", show_count(done(replay)), counted(*total, "letter"));
    let cure = match state {
        ReplayState::Stopped => format!("; `redrive replays {id}` shows why"),
        ReplayState::Paused => format!("; `redrive replays {id} resume` resumes it"),
        ReplayState::Gathering | ReplayState::Running | ReplayState::Cancelled | ReplayState::Done => {
            String::new()
        }
    };
    format!("replay {id} is {state}, {how_far}: {what}{cure}")
}

fn state(state: ReplayState) -> Cell {
    match state {
        ReplayState::Gathering | ReplayState::Running => Cell::painted(state.as_str(), style::info),
        ReplayState::Paused => Cell::painted("paused", style::warning),
        ReplayState::Stopped => Cell::painted("stopped", style::error),
        ReplayState::Cancelled => Cell::plain("cancelled"),
        ReplayState::Done => Cell::painted("done", style::good),
    }
}

pub(crate) fn list(replays: &[ReplayJson], now: Timestamp, columns: Option<usize>) -> String {
    if replays.is_empty() {
        return "no replays yet\n".to_owned();
    }
    let right = CellAlign::Right;
    let mut table =
        Table::new(&[right, CellAlign::Left, right, right, right, right, CellAlign::Left, CellAlign::Left]);
    table.head(&["NO", "STATE", "LETTERS", "DELIVERED", "FAILED", "SKIPPED", "STARTED", "SELECTION"]);
    for replay in replays {
        table.push(vec![
            Cell::bold(replay.id.to_string()),
            state(replay.state),
            Cell::plain(show_count(replay.total)),
            Cell::plain(show_count(replay.delivered)),
            Cell::failures(replay.failed),
            Cell::plain(show_count(replay.left)),
            Cell::dim(ago(replay.created_at, now)),
            Cell::plain(cut(&plain(&replay.what), WHAT_COLUMNS_MAX)),
        ]);
    }
    table.within(columns).text()
}

pub(crate) fn page(replay: &ReplayJson, now: Timestamp) -> String {
    let title = style::bold(format!("replay {}", replay.id));
    let mut out = format!("{title}  {}\n", plain(&replay.what));
    let mut facts = FactList::new();
    facts.push("state", state(replay.state), ago(replay.changed_at, now));
    if let Some(stop) = replay.stop.as_ref().filter(|_| replay.state == ReplayState::Stopped) {
        let cause = format!("a letter failed again (failure group {})", plain(&stop.fingerprint));
        facts.push("because", Cell::plain(cause), "");
    }
    facts.push("started", Cell::plain(moment(replay.created_at)), ago(replay.created_at, now));
    facts.push("pace", Cell::plain(pace(replay)), "");
    if let Some(to) = &replay.to {
        facts.push("target", Cell::plain(plain(to)), "instead of the original service");
    }
    facts.text("note", replay.note.as_deref());
    facts.count("letters", replay.total);
    facts.count("delivered", replay.delivered);
    facts.count("failed again", replay.failed);
    let left = "an earlier letter of their session failed, or they are no longer dead";
    let left = if replay.left > 0 { left } else { "" };
    facts.push("skipped", Cell::plain(show_count(replay.left)), left);
    facts.count("in flight", replay.in_flight);
    let waiting = if replay.state == ReplayState::Cancelled { "not sent" } else { "to be sent" };
    facts.count(waiting, replay.waiting);
    out.push_str(&facts.lines());
    out.push_str(&next_steps(&steps(replay)));
    out
}

fn pace(replay: &ReplayJson) -> String {
    let rate = replay.rate.and_then(Rate::per_second);
    let mut words = vec![rate.map_or("no rate limit".to_owned(), |rate| format!("at most {rate}"))];
    words.push(format!("{} in flight at most", show_count(u64::from(replay.concurrency))));
    if replay.canary {
        words.push(match replay.wave {
            None | Some(ReplayWave::None) => "canary: not started".to_owned(),
            Some(ReplayWave::First) => "canary: first letter".to_owned(),
            Some(ReplayWave::Second) => "canary: ten letters".to_owned(),
            Some(ReplayWave::Rest) => "canary: the rest".to_owned(),
        });
    }
    if replay.origin == ReplayOriginJson::Automatic {
        words.push("started by the rule book".to_owned());
    }
    words.join(", ")
}

fn steps(replay: &ReplayJson) -> Vec<(String, &'static str)> {
    let id = replay.id;
    match replay.state {
        ReplayState::Gathering | ReplayState::Running => vec![
            (format!("redrive replays {id} --watch"), "shows its progress"),
            (format!("redrive replays {id} pause"), "pauses it"),
        ],
        ReplayState::Paused => resume_or_cancel(id, "resumes it"),
        ReplayState::Stopped => {
            let why = replay.stop.as_ref().map(|stop| {
                (format!("redrive why {}", short_id(&stop.delivery)), "shows why the letter failed again")
            });
            why.into_iter().chain(resume_or_cancel(id, "resumes it, once the cause is fixed")).collect()
        }
        ReplayState::Done if replay.failed > 0 => {
            vec![("redrive dlq list --tier poison".to_owned(), "shows the letters that failed again")]
        }
        ReplayState::Cancelled | ReplayState::Done => Vec::new(),
    }
}

fn resume_or_cancel(id: u64, resumed: &'static str) -> Vec<(String, &'static str)> {
    vec![
        (format!("redrive replays {id} resume"), resumed),
        (format!("redrive replays {id} cancel"), "cancels it; unsent letters stay dead"),
    ]
}

pub(crate) fn ending(replay: &ReplayJson) -> String {
    let ReplayJson { id, delivered, failed, left, .. } = replay;
    let mut parts = vec![format!("{} delivered", show_count(*delivered))];
    if *failed > 0 {
        parts.push(format!("{} failed again", show_count(*failed)));
    }
    if *left > 0 {
        parts.push(format!("{} skipped", show_count(*left)));
    }
    // Letters in flight at the end still succeed or fail.
    let rest = match replay.state {
        ReplayState::Cancelled => [(replay.waiting, "not sent"), (replay.in_flight, "in flight")],
        ReplayState::Gathering
        | ReplayState::Running
        | ReplayState::Paused
        | ReplayState::Stopped
        | ReplayState::Done => [(replay.waiting + replay.in_flight, "to go"), (0, "")],
    };
    parts.extend(
        rest.into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", show_count(count))),
    );
    let counts = parts.join(", ");
    let mut out = match replay.state {
        ReplayState::Done if *failed == 0 && *left == 0 => {
            format!("{} replay {id} is done: {counts}\n", style::good("✓"))
        }
        ReplayState::Done => format!("{} replay {id} is done: {counts}\n", style::warning("!")),
        ReplayState::Stopped => {
            let cause = replay.stop.as_ref().map(|stop| plain(&stop.fingerprint)).unwrap_or_default();
            format!(
                "{} replay {id} stopped: a letter failed again (failure group {cause})\n  {counts}\n",
                style::error("✗")
            )
        }
        ReplayState::Paused => format!("{} replay {id} is paused: {counts}\n", style::warning("!")),
        ReplayState::Cancelled => format!("{} replay {id} was cancelled: {counts}\n", style::warning("!")),
        ReplayState::Gathering | ReplayState::Running => {
            format!("replay {id} is {}: {counts}\n", replay.state)
        }
    };
    out.push_str(&next_steps(&steps(replay)));
    out
}

/// Empty if there is none.
pub(crate) fn poison_left(begun: &ReplayJson) -> String {
    let (letters, them) = match begun.poison_left.unwrap_or(0) {
        0 => return String::new(),
        1 => ("1 poison letter matches too and is".to_owned(), "it"),
        count => (format!("{} match too and are", counted(count, "poison letter")), "them"),
    };
    let word = format!("--include-poison --note TEXT includes {them}");
    format!("{} {letters} skipped: {}\n", style::warning("!"), style::dim(word))
}

/// One line, to be overwritten.
pub(crate) fn progress(replay: &ReplayJson, per_second: Option<f64>, columns: usize) -> String {
    let columns = columns.saturating_sub(BAR_TEXT_COLUMNS).min(BAR_COLUMNS_MAX);
    crate::terminal::progress::bar(done(replay), replay.total, columns, &progress_words(replay, per_second))
}

/// The same for logs and pipes.
pub(crate) fn progress_words(replay: &ReplayJson, per_second: Option<f64>) -> String {
    let rest = replay.total.saturating_sub(done(replay));
    let mut words = vec![
        format!("{} delivered", show_count(replay.delivered)),
        format!("{} failed", show_count(replay.failed)),
        format!("{} to go", show_count(rest)),
    ];
    if replay.state == ReplayState::Gathering {
        words.push("collecting letters".to_owned());
    }
    if let Some(rate) = per_second.filter(|rate| *rate > 0.0) {
        words.push(if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") });
        let to_go = Duration::try_from_secs_f64(rest as f64 / rate).unwrap_or(Duration::MAX);
        if rest > 0 && to_go < Duration::from_hours(24 * 365) {
            words.push(format!("about {}", rough(to_go)));
        }
    }
    words.join(", ")
}

pub(crate) fn survey(survey: &ReplaySurveyJson) -> String {
    let letters = match survey.letters {
        0 => "no dead letters".to_owned(),
        count => counted(count, "dead letter"),
    };
    let sessions = match survey.sessions {
        0 => String::new(),
        count => format!(", of {}", counted(count, "session")),
    };
    let mut out = format!("{} to replay{sessions}\n", style::bold(letters));
    if !survey.by_cause.is_empty() {
        let mut table = Table::new(&[CellAlign::Left, CellAlign::Right, CellAlign::Left, CellAlign::Left]);
        table.head(&["  FAILURE GROUP", "COUNT", "SERVICE", "MESSAGE"]);
        for cause in survey.by_cause.iter().take(CAUSES_MAX) {
            let message = cause.message.as_deref().map(plain).unwrap_or_default();
            table.push(vec![
                Cell::plain(format!("  {}", plain(&cause.fingerprint))),
                Cell::plain(show_count(cause.count)),
                Cell::bold(queue_name(&cause.service, cause.channel.as_deref())),
                Cell::plain(cut(&message, WHAT_COLUMNS_MAX)),
            ]);
        }
        out.push_str(&table.text());
        if survey.by_cause.len() > CAUSES_MAX {
            let more = counted((survey.by_cause.len() - CAUSES_MAX) as u64, "more group");
            let _ = writeln!(out, "  {}", style::dim(format!("… and {more}")));
        }
    }
    let targets: Vec<String> = survey.by_target.iter().map(target).collect();
    if !targets.is_empty() {
        let _ = writeln!(out, "  to {}", targets.join(", "));
    }
    if let Some(seconds) = survey.estimated_seconds {
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let _ = writeln!(out, "  takes about {} at that rate", rough(span));
    }
    out.push_str(&left_out(survey));
    if survey.holding > 0 {
        let they_hold = if survey.letters == 1 { "it blocks" } else { "they block" };
        let _ = writeln!(out, "  {they_hold} {}", counted(survey.holding, "session"));
    }
    if let Some(because) = &survey.refused_because {
        let _ = writeln!(out, "{} cannot start: {}", style::error("✗"), plain(because));
    }
    out
}

fn left_out(survey: &ReplaySurveyJson) -> String {
    let mut out = String::new();
    let more = if survey.letters > 0 { " more" } else { "" };
    for claim in &survey.claimed {
        let belong = if claim.count == 1 { "belongs" } else { "belong" };
        let count = show_count(claim.count);
        let _ = writeln!(out, "  {} {count}{more} {belong} to replay {}", style::warning("!"), claim.replay);
    }
    let (are, them) = if survey.poison_left == 1 {
        ("is poison and skipped", "it")
    } else {
        ("are poison and skipped", "them")
    };
    if survey.poison_left > 0 {
        let count = show_count(survey.poison_left);
        let _ = writeln!(out, "  {count}{more} {are}: --include-poison includes {them}");
    }
    out
}

fn target(target: &QueueCount) -> String {
    format!("{} ({})", queue_name(&target.service, target.channel.as_deref()), show_count(target.count))
}
