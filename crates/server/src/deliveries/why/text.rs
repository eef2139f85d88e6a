//! Explains a delivery: each attempt with the rule line that decided it, and next steps.

use std::fmt::Write as _;
use std::time::Duration;

use http::StatusCode;
use redrive_core::engine::attempt_record::{
    AttemptEnd, AttemptRecord, BookPosition, HoldReason, RecordedRetry, RecordedVerdict,
};
use redrive_core::letters::envelope::Tier;
use redrive_core::policy::category::codes;
use redrive_core::policy::decide::DeadLetterReason;
use redrive_core::time::Timestamp;

use crate::deliveries::attempt_text::{self, field, note, spent};
use crate::deliveries::json::{
    AttemptJson, DeadLetterCauseJson, DeliveryJson, DeliveryStateJson, WaitCause, WaitJson,
};
use crate::deliveries::text::{queue_of, short_id};
use crate::terminal::moment::{coming, moment, show_wait};
use crate::terminal::{cut, next_steps, plain, shell_word, style};

const QUOTED_COLUMNS_MAX: usize = 120;

/// More distinct answers make no usable command.
const ANSWERS_SHOWN_MAX: usize = 12;

pub(crate) fn page(delivery: &DeliveryJson, now: Timestamp) -> String {
    let mut out = format!(
        "{} → {}  {}\n",
        style::bold(plain(&delivery.event_type)),
        style::bold(queue_of(delivery)),
        style::dim(format!("delivery {}, row `{}`", plain(&delivery.id), plain(&delivery.subscription)))
    );
    let event = plain(&delivery.event_id);
    let _ = writeln!(
        out,
        "{}",
        style::dim(format!("event {event}, accepted at {}", moment(delivery.accepted_at)))
    );
    let mut book = None;
    for recorded in &delivery.stories {
        attempt(&mut out, recorded, delivery.accepted_at);
        // A rule book changed in between explains inconsistencies.
        if book.is_some_and(|book| book != recorded.story.book) {
            note(&mut out, &format!("under a different rule book: {:016x}", recorded.story.book));
        }
        book = Some(recorded.story.book);
    }
    let _ = writeln!(out, "\n{}", end(delivery, now));
    out.push_str(&next_steps(&steps(delivery)));
    out
}

fn attempt(out: &mut String, recorded: &AttemptJson, accepted_at: Timestamp) {
    let story = &recorded.story;
    let at = show_wait(story.started_at.since(accepted_at));
    let took = took(story.took_nanos);
    let what = match &story.end {
        AttemptEnd::Delivered { status: Some(status), .. } => status_line(*status),
        AttemptEnd::Delivered { status: None, .. } => "taken".to_owned(),
        AttemptEnd::Failed { status, message, .. } => failure_line(*status, message),
        AttemptEnd::Held { .. } => "no attempt".to_owned(),
    };
    let name = match &story.end {
        AttemptEnd::Delivered { .. } | AttemptEnd::Failed { .. } => {
            format!("attempt {}", story.attempt.get())
        }
        AttemptEnd::Held { by: HoldReason::Notified } => "skipped".to_owned(),
        AttemptEnd::Held { .. } => "held".to_owned(),
    };
    let _ = writeln!(out, "\n{}  at {at}  {what}", style::bold(name));
    match &story.end {
        AttemptEnd::Delivered { message, .. } => {
            field(out, "when", &format!("{}, took {took}", moment(story.started_at)));
            if !message.is_empty() {
                field(out, "answer", &style::dim(cut(&plain(message), QUOTED_COLUMNS_MAX)));
            }
        }
        AttemptEnd::Failed { category, code, response, .. } => {
            field(out, "when", &format!("{}, took {took}", moment(story.started_at)));
            if !response.trim().is_empty() {
                field(out, "answer", &style::dim(cut(plain(response).trim(), QUOTED_COLUMNS_MAX)));
            }
            let code = style::dim(plain(code.as_str()));
            let by = style::dim(classified(story));
            field(out, "category", &format!("{} {code}  {by}", attempt_text::category(*category)));
            if let Some(line) = &recorded.classified_line {
                note(out, &quoted(line));
            }
            field(out, "rule", &rule(story.reaction_at, recorded.reaction_line.as_deref()));
        }
        AttemptEnd::Held { by } => {
            field(out, "when", &moment(story.started_at));
            field(out, "because", attempt_text::held_because(*by));
        }
    }
    if story.held_nanos > 0 {
        let held = show_wait(Duration::from_nanos(story.held_nanos));
        field(out, "held", &format!("{held} in total before this"));
    }
    verdict(out, story);
}

fn classified(story: &AttemptRecord) -> String {
    match story.classified_at {
        None => "(default classification)".to_owned(),
        Some(place) => format!("(`classify`, line {})", place.line),
    }
}

/// With the text of that time.
fn rule(place: Option<BookPosition>, line: Option<&str>) -> String {
    match (place, line) {
        (None, _) => format!("default rule  {}", style::dim("(not in the rule book)")),
        (Some(place), Some(line)) => {
            format!("{}  {}", style::bold(quoted(line)), style::dim(format!("(line {})", place.line)))
        }
        (Some(place), None) => format!("line {} of the rule book at that time", place.line),
    }
}

fn quoted(line: &str) -> String {
    cut(plain(line).trim(), QUOTED_COLUMNS_MAX)
}

fn verdict(out: &mut String, story: &AttemptRecord) {
    let ended_at = story.started_at + Duration::from_nanos(story.took_nanos);
    let text = match &story.verdict {
        RecordedVerdict::Delivered => style::good("delivered"),
        RecordedVerdict::Retry { due_at } => {
            let wait = style::bold(format!("retry in {}", show_wait(due_at.since(ended_at))));
            format!("{wait}, at {}", moment(*due_at))
        }
        RecordedVerdict::Hold { until } if *until == Timestamp::NEVER => {
            "held until a person acts".to_owned()
        }
        RecordedVerdict::Hold { until } => format!("held until {}", moment(*until)),
        RecordedVerdict::Dead { code, tier } => {
            let because = attempt_text::death_because(reason_of(code.as_str()), story.retry.as_ref(), None);
            attempt_text::death(&because, *tier, Some(&plain(code.as_str())))
        }
        RecordedVerdict::Paused => attempt_text::paused(),
    };
    field(out, "verdict", &text);
    if let (RecordedVerdict::Retry { .. }, Some(weighed)) = (&story.verdict, &story.retry) {
        note(out, &weighed_parts(weighed).join("; "));
        if let Some(text) = attempt_text::asked_for_it(weighed) {
            note(out, &text);
        }
    }
}

fn weighed_parts(weighed: &RecordedRetry) -> Vec<String> {
    let wait = |nanos| show_wait(Duration::from_nanos(nanos));
    let mut parts = attempt_text::tallies(weighed);
    parts[0] = format!("{} by {}", parts[0], plain(&weighed.policy));
    let (number, max) = weighed.in_total;
    parts.push(format!("{number} of {} in total", attempt_text::count(max)));
    let backoff = wait(weighed.backoff_nanos);
    parts.push(if weighed.is_held() {
        format!("backoff {backoff}")
    } else {
        format!("backoff {backoff} with jitter")
    });
    parts.extend(weighed.retry_after_nanos.map(|asked| format!("Retry-After {}", wait(asked))));
    parts.extend(attempt_text::window_part(weighed));
    if !weighed.is_held() && weighed.held.used_nanos > 0 {
        parts.push(format!("held {}", spent(weighed.held)));
    }
    if weighed.deadline.limit_nanos.is_some() {
        parts.push(format!("deadline {}", spent(weighed.deadline)));
    }
    parts
}

/// Any other code is the last failure's own.
fn reason_of(code: &str) -> DeadLetterReason {
    let reasons = [
        DeadLetterReason::ConnectionFailing,
        DeadLetterReason::RetriesExceeded,
        DeadLetterReason::WindowExceeded,
        DeadLetterReason::DeadlineExceeded,
        DeadLetterReason::HoldExpired,
        DeadLetterReason::BreakerOpen,
    ];
    reasons.into_iter().find(|reason| reason.code() == Some(code)).unwrap_or(DeadLetterReason::Refused)
}

fn status_line(status: u16) -> String {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    reason.map_or_else(|| status.to_string(), |reason| format!("{status} {reason}"))
}

/// Whole: the end of a message is often the most useful part.
fn failure_line(status: Option<u16>, message: &str) -> String {
    let message = plain(message).trim().to_owned();
    match status {
        None => message,
        Some(status) => {
            let usual = status_line(status);
            if message.is_empty() || message.contains(&status.to_string()) && usual.contains(&message) {
                usual
            } else if message.starts_with(&status.to_string()) {
                message
            } else {
                format!("{usual}: {message}")
            }
        }
    }
}

pub(crate) fn took(nanos: u64) -> String {
    let millis = nanos as f64 / 1e6;
    if millis < 10.0 { format!("{millis:.1}ms") } else { show_wait(Duration::from_nanos(nanos)) }
}

fn end(delivery: &DeliveryJson, now: Timestamp) -> String {
    let attempts = u64::from(delivery.attempts);
    let after = delivery.ended_at.map(|at| show_wait(at.since(delivery.accepted_at)));
    let after = after.unwrap_or_else(|| "an unknown time".to_owned());
    match delivery.state {
        DeliveryStateJson::Delivered => attempt_text::delivered(attempts, &after),
        DeliveryStateJson::Dead => {
            let is_poison = delivery.death.as_ref().is_some_and(|death| death.tier == Tier::Poison.as_str());
            let letters = if is_poison { "the poison tier" } else { "the dead letters" };
            let kept = format!("{letters} of {}", queue_of(delivery));
            let line = attempt_text::dead(attempts, &after, &kept);
            delivery.death.as_ref().map_or(line.clone(), |death| format!("{line}\n{}", death_line(death)))
        }
        DeliveryStateJson::Skipped | DeliveryStateJson::Purged | DeliveryStateJson::Superseded => {
            format!("{} {}", style::warning("–"), closing(delivery))
        }
        DeliveryStateJson::Pending
        | DeliveryStateJson::Retrying
        | DeliveryStateJson::Held
        | DeliveryStateJson::Replaying => attempt_text::waiting(attempts, &outlook(delivery, now)),
    }
}

pub(crate) fn closing(delivery: &DeliveryJson) -> String {
    let at = delivery.ended_at.map(|at| format!(" at {}", moment(at))).unwrap_or_default();
    match delivery.state {
        DeliveryStateJson::Superseded => {
            let by = delivery.superseded_by.as_deref().map(|receipt| format!(" {}", plain(receipt)));
            format!("edited{at}: replaced by the event{}", by.unwrap_or_default())
        }
        DeliveryStateJson::Purged => format!("purged{at}: history and data deleted"),
        DeliveryStateJson::Skipped => format!("skipped{at} by a person"),
        DeliveryStateJson::Pending
        | DeliveryStateJson::Retrying
        | DeliveryStateJson::Held
        | DeliveryStateJson::Replaying
        | DeliveryStateJson::Delivered
        | DeliveryStateJson::Dead => String::new(),
    }
}

fn death_line(death: &DeadLetterCauseJson) -> String {
    let DeadLetterCauseJson { category, code, failure_code, message, fingerprint, tier: _ } = death;
    let own = if failure_code == code { String::new() } else { format!(", last failure {failure_code}") };
    let line = format!("  {category} {code}{own}: {message}  (failure group {fingerprint})");
    style::dim(plain(&line))
}

/// The server's words, with times in the local format.
pub(crate) fn outlook(delivery: &DeliveryJson, now: Timestamp) -> String {
    delivery
        .waits
        .as_ref()
        .map_or_else(|| "no reason given by the server".to_owned(), |waits| wait(waits, now))
}

pub(crate) fn wait(waits: &WaitJson, now: Timestamp) -> String {
    let since = waits.since.map(|since| format!(" since {}", moment(since)));
    let until = waits.until.map(|until| format!(" until {} ({})", moment(until), coming(until, now)));
    format!("{}{}{}", plain(&waits.because), since.unwrap_or_default(), until.unwrap_or_default())
}

fn steps(delivery: &DeliveryJson) -> Vec<(String, &'static str)> {
    let service = shell_word(&delivery.service);
    let queue = shell_word(&queue_of(delivery));
    let event_type = shell_word(&delivery.event_type);
    let watch = (format!("redrive tail --service {service}"), "shows its activity live");
    let event = (
        format!("redrive show {}", shell_word(&delivery.receipt)),
        "shows the event and its other deliveries",
    );
    match delivery.state {
        DeliveryStateJson::Delivered | DeliveryStateJson::Skipped | DeliveryStateJson::Purged => vec![event],
        DeliveryStateJson::Superseded => {
            let by = delivery
                .superseded_by
                .as_deref()
                .map(|receipt| (format!("redrive show {}", shell_word(receipt)), "shows the edited event"));
            by.into_iter().chain([event]).collect()
        }
        DeliveryStateJson::Pending => vec![event, watch],
        DeliveryStateJson::Replaying => {
            let replay =
                delivery.replay.map_or("redrive replays".to_owned(), |id| format!("redrive replays {id}"));
            vec![watch, (replay, "shows the progress of its replay")]
        }
        DeliveryStateJson::Retrying => {
            let pause = format!("redrive pause {service}");
            vec![watch, (pause, "pauses the service until it is resumed")]
        }
        DeliveryStateJson::Held if delivery.held_by.is_some() => {
            let letter = delivery.held_by.as_deref().map(short_id).unwrap_or_default();
            vec![
                (format!("redrive why {letter}"), "shows why the letter before it is dead"),
                (format!("redrive dlq replay {letter}"), "replays that letter, then this one"),
                (format!("redrive dlq skip {letter}"), "discards that letter, so that this one resumes"),
            ]
        }
        DeliveryStateJson::Held => release(delivery.waits.as_ref(), &service, &queue),
        DeliveryStateJson::Dead => {
            let mut steps = vec![
                (replay_command(delivery), "replays it, once the cause is fixed"),
                event,
                (format!("redrive rules {queue} {event_type}"), "shows the current rules"),
            ];
            steps.extend(answers(&delivery.stories).map(|answers| {
                let answers = shell_word(&answers);
                let command = format!("redrive try {event_type} --service {queue} --answers {answers}");
                (command, "applies the same failures to the current rule book")
            }));
            steps
        }
    }
}

/// Commands that show or end a hold.
fn release(waits: Option<&WaitJson>, service: &str, queue: &str) -> Vec<(String, &'static str)> {
    let status = || ("redrive status".to_owned(), "shows open breakers and paused services");
    let breakers = |good_for| ("redrive breakers".to_owned(), good_for);
    let Some(waits) = waits else { return vec![status()] };
    match waits.on {
        WaitCause::Pause => vec![(format!("redrive resume {service}"), "resumes the service")],
        WaitCause::Breaker => {
            let reset = format!(
                "redrive breakers reset {}",
                shell_word(waits.dependency.as_deref().unwrap_or("DEPENDENCY"))
            );
            vec![
                breakers("shows the breaker and its next probes"),
                (reset, "closes it at once, if the dependency is healthy"),
            ]
        }
        WaitCause::RetryAfter => vec![breakers("shows who asked to wait, and until when")],
        WaitCause::ServiceRemoved | WaitCause::RuleRemoved => vec![
            (format!("redrive removed move {queue} --to SERVICE"), "moves its deliveries to another service"),
            (format!("redrive removed dead-letter {queue}"), "turns its deliveries into dead letters"),
        ],
        WaitCause::Letter
        | WaitCause::Session
        | WaitCause::Retry
        | WaitCause::RetryBudget
        | WaitCause::RampUp
        | WaitCause::Rate
        | WaitCause::InFlight
        | WaitCause::Share
        | WaitCause::Store
        | WaitCause::CrashCheck
        | WaitCause::Shutdown
        | WaitCause::Turn
        | WaitCause::Running
        | WaitCause::Settling => vec![status()],
    }
}

fn replay_command(delivery: &DeliveryJson) -> String {
    let is_poison = delivery.death.as_ref().is_some_and(|death| death.tier == Tier::Poison.as_str());
    let poison = if is_poison { " --include-poison --note 'the cause is fixed'" } else { "" };
    format!("redrive dlq replay {}{poison}", short_id(&delivery.id))
}

/// Answers in the form of `redrive try`; `None` if they cannot be expressed.
fn answers(stories: &[AttemptJson]) -> Option<String> {
    let mut words: Vec<(String, usize)> = Vec::new();
    for recorded in stories.iter().filter(|recorded| recorded.story.is_attempt()) {
        let word = answer(&recorded.story)?;
        match words.last_mut() {
            Some((last, times)) if *last == word => *times += 1,
            Some(_) | None => words.push((word, 1)),
        }
    }
    let shown = |(word, times): &(String, usize)| match times {
        1 => word.clone(),
        times => format!("{word}*{times}"),
    };
    let is_short = (1..=ANSWERS_SHOWN_MAX).contains(&words.len());
    is_short.then(|| words.iter().map(shown).collect::<Vec<_>>().join(","))
}

fn answer(story: &AttemptRecord) -> Option<String> {
    let asked = story.retry.as_ref().and_then(|retry| retry.retry_after_nanos);
    let asked = asked.map(|nanos| format!(":{}", nanos / 1_000_000_000)).unwrap_or_default();
    let word = match &story.end {
        AttemptEnd::Held { .. } => return None,
        AttemptEnd::Delivered { status, .. } => status.map_or("ok".to_owned(), |status| status.to_string()),
        AttemptEnd::Failed { status: Some(status), .. } => format!("{status}{asked}"),
        AttemptEnd::Failed { status: None, code, .. } => match code.as_str() {
            codes::NETWORK_TIMEOUT => "timeout".to_owned(),
            codes::CONNECTION_REFUSED => "refused".to_owned(),
            codes::CONNECTION_RESET => "reset".to_owned(),
            codes::DNS_FAILURE => "dns".to_owned(),
            codes::TLS_FAILURE => "tls".to_owned(),
            own => own.to_owned(),
        },
    };
    // A code may be any text; only what parses is shown.
    redrive_lab::rehearse::parse_script(&word).is_ok_and(|script| script.len() == 1).then_some(word)
}

pub(crate) fn command(delivery: &DeliveryJson) -> String {
    format!("redrive why {}", short_id(&delivery.id))
}
