//! What happens, one line each, as it happens.
//!
//! Columns grow with the longest text so far and never shrink, so that neighbours line up.

use std::time::Duration;

use redrive_core::time::Timestamp;
use redrive_node::activity::{Activity, ActivityLine, AlertFacts, DeliveryFacts};
use unicode_width::UnicodeWidthStr;

use super::event::short_id;
use super::moment::{show_wait, time_of_day};
use super::{cut, plain, style};

/// The widest of the kinds.
const KIND_COLUMNS: usize = 15;
/// Columns start this wide, and grow no wider than that.
const NAME_COLUMNS_MIN: usize = 12;
const NAME_COLUMNS_MAX: usize = 36;
/// A line has at least this much room for what is told last, whatever the terminal.
const DETAIL_COLUMNS_MIN: usize = 10;

/// The widths so far.
#[derive(Debug)]
pub(crate) struct Columns {
    service: usize,
    event_type: usize,
    /// How wide the terminal is, if there is one: a file takes lines of any length.
    page: Option<usize>,
}

impl Columns {
    pub(crate) const fn new(page: Option<usize>) -> Self {
        Self { service: NAME_COLUMNS_MIN, event_type: NAME_COLUMNS_MIN, page }
    }

    /// One line, with its end.
    pub(crate) fn line(&mut self, line: &ActivityLine) -> String {
        let ActivityLine { at, activity } = line;
        let kind = activity.name();
        let service = column(activity.service(), &mut self.service);
        let event_type = column(activity.event_type(), &mut self.event_type);
        let time = time_of_day(*at);
        let mut details = details(activity, *at);
        let before = time.width() + KIND_COLUMNS + service.width() + event_type.width() + 4 * 2;
        if let Some(page) = self.page {
            details = cut(&details, page.saturating_sub(before).max(DETAIL_COLUMNS_MIN));
        }
        let kind = format!("{}{}", paint(activity, kind), " ".repeat(KIND_COLUMNS - kind.len()));
        // Blanks before nothing would be blanks at the end of the line.
        let cells = [style::dim(time), kind, style::bold(service), event_type, style::dim(&details)];
        let told = match (&details, activity.event_type(), activity.service()) {
            (details, ..) if !details.is_empty() => 5,
            (_, Some(_), _) => 4,
            (_, None, Some(_)) => 3,
            (_, None, None) => 2,
        };
        cells[..told].join("  ") + "\n"
    }
}

/// A name in its column, which it may widen.
fn column(text: Option<&str>, columns: &mut usize) -> String {
    let text = cut(&plain(text.unwrap_or("")), NAME_COLUMNS_MAX);
    *columns = (*columns).max(text.width());
    let blanks = " ".repeat(*columns - text.width());
    text + &blanks
}

fn paint(activity: &Activity, text: &str) -> String {
    match activity {
        Activity::Accepted(_) => style::info(text),
        Activity::Delivered(_)
        | Activity::BreakerClosed(_)
        | Activity::StoreHealed
        | Activity::Resumed(_) => style::good(text),
        Activity::Unrouted(_)
        | Activity::Retrying(_)
        | Activity::Held(_)
        | Activity::Paused(_)
        | Activity::BreakerProbing(_)
        | Activity::DependencyHeld { .. }
        | Activity::SessionHeld { .. }
        | Activity::Security(_)
        | Activity::ClockStepped(_) => style::warning(text),
        Activity::Dead(_)
        | Activity::BreakerOpened(_)
        | Activity::Alert(_)
        | Activity::BookRefused(_)
        | Activity::StoreFailing(_) => style::error(text),
        Activity::BookRead | Activity::ReplayBegan(_) | Activity::ReplayChanged(_) => style::bold(text),
    }
}

/// What else there is to say, the most telling first and the longest last.
fn details(activity: &Activity, at: Timestamp) -> String {
    let parts = match activity {
        Activity::Accepted(event) | Activity::Unrouted(event) => vec![plain(&event.event_id)],
        Activity::Delivered(facts)
        | Activity::Retrying(facts)
        | Activity::Held(facts)
        | Activity::Dead(facts) => of_delivery(facts, at),
        Activity::Alert(AlertFacts { delivery, code, message, .. }) => {
            let delivery = delivery.as_deref().map(short_id);
            let words = code.as_deref().into_iter().chain([message.as_str()]).map(plain);
            delivery.into_iter().chain(words).collect()
        }
        Activity::SessionHeld { delivery, message, .. } => vec![short_id(delivery), plain(message)],
        Activity::DependencyHeld { message, due_at, .. } => {
            next_at(*due_at, at).into_iter().chain([plain(message)]).collect()
        }
        Activity::Paused(facts) | Activity::Resumed(facts) => {
            facts.message.as_deref().map(plain).into_iter().collect()
        }
        Activity::BreakerOpened(facts) | Activity::BreakerProbing(facts) | Activity::BreakerClosed(facts) => {
            vec![plain(&facts.message)]
        }
        Activity::ReplayBegan(facts) | Activity::ReplayChanged(facts) => vec![plain(&facts.message)],
        Activity::BookRefused(words)
        | Activity::StoreFailing(words)
        | Activity::Security(words)
        | Activity::ClockStepped(words) => vec![plain(&words.message)],
        Activity::BookRead | Activity::StoreHealed => Vec::new(),
    };
    parts.join(", ")
}

fn of_delivery(facts: &DeliveryFacts, at: Timestamp) -> Vec<String> {
    let mut parts = vec![short_id(&facts.delivery)];
    if facts.attempt > 0 {
        parts.push(format!("attempt {}", facts.attempt));
    }
    let status = facts.status.map(|status| status.to_string());
    // A message that begins with the status is enough.
    let is_told = |status: &String| facts.message.as_ref().is_some_and(|text| text.starts_with(status));
    parts.extend(status.filter(|status| !is_told(status)));
    match (&facts.category, &facts.code) {
        (Some(category), Some(code)) => parts.push(plain(&format!("{category} {code}"))),
        (Some(word), None) | (None, Some(word)) => parts.push(plain(word)),
        (None, None) => {}
    }
    parts.extend(facts.took_ms.and_then(millis).map(|took| format!("took {took}")));
    parts.extend(facts.due_at.and_then(|due_at| next_at(due_at, at)));
    parts.extend(facts.message.as_deref().map(plain));
    parts
}

/// When it continues; a wait without an end is for a person, and the message says which.
fn next_at(due_at: Timestamp, at: Timestamp) -> Option<String> {
    (due_at < Timestamp::NEVER).then(|| format!("goes on in {}", show_wait(due_at.since(at))))
}

/// A number of milliseconds; none for one that no call can take.
fn millis(took: f64) -> Option<String> {
    if took < 10.0 {
        return Some(format!("{took:.1}ms"));
    }
    Duration::try_from_secs_f64(took / 1e3).ok().map(show_wait)
}
