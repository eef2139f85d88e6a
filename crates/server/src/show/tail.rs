//! What happens, one line each, as it happens.
//!
//! Columns grow with the longest text so far and never shrink, so that neighbours line up.

use std::time::Duration;

use redrive_core::time::Timestamp;
use redrive_node::happening::{Happening, What};
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
    pub(crate) fn line(&mut self, happening: &Happening) -> String {
        let kind = happening.what.as_str();
        let service = column(happening.service.as_deref(), &mut self.service);
        let event_type = column(happening.event_type.as_deref(), &mut self.event_type);
        let time = time_of_day(happening.at);
        let mut details = details(happening);
        let before = time.width() + KIND_COLUMNS + service.width() + event_type.width() + 4 * 2;
        if let Some(page) = self.page {
            details = cut(&details, page.saturating_sub(before).max(DETAIL_COLUMNS_MIN));
        }
        let kind = format!("{}{}", paint(happening.what, kind), " ".repeat(KIND_COLUMNS - kind.len()));
        // Blanks before nothing would be blanks at the end of the line.
        let cells = [style::dim(time), kind, style::bold(service), event_type, style::dim(&details)];
        let told = match (&details, &happening.event_type, &happening.service) {
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

fn paint(what: What, text: &str) -> String {
    match what {
        What::Accepted => style::info(text),
        What::Delivered | What::BreakerClosed | What::StoreHealed | What::Resumed => style::good(text),
        What::Unrouted
        | What::Retrying
        | What::Held
        | What::Paused
        | What::BreakerProbing
        | What::DependencyHeld
        | What::SessionHeld
        | What::Security
        | What::ClockStepped => style::warning(text),
        What::Dead | What::BreakerOpened | What::Alert | What::BookRefused | What::StoreFailing => {
            style::error(text)
        }
        What::BookRead | What::ReplayBegan | What::ReplayChanged => style::bold(text),
    }
}

/// What else there is to say, the most telling first and the longest last.
fn details(happening: &Happening) -> String {
    let mut parts = Vec::new();
    match &happening.delivery {
        Some(delivery) => parts.push(short_id(delivery)),
        None => parts.extend(happening.event_id.as_deref().map(plain)),
    }
    parts
        .extend(happening.attempt.filter(|attempt| *attempt > 0).map(|attempt| format!("attempt {attempt}")));
    let status = happening.status.map(|status| status.to_string());
    // A message that begins with the status tells it well enough.
    let is_told = |status: &String| happening.message.as_ref().is_some_and(|text| text.starts_with(status));
    parts.extend(status.filter(|status| !is_told(status)));
    match (&happening.category, &happening.code) {
        (Some(category), Some(code)) => parts.push(plain(&format!("{category} {code}"))),
        (Some(word), None) | (None, Some(word)) => parts.push(plain(word)),
        (None, None) => {}
    }
    parts.extend(happening.took_ms.and_then(millis).map(|took| format!("took {took}")));
    // What waits for ever waits for somebody, and the message says for whom.
    if let Some(due_at) = happening.due_at.filter(|at| *at < Timestamp::NEVER) {
        parts.push(format!("goes on in {}", show_wait(due_at.since(happening.at))));
    }
    parts.extend(happening.message.as_deref().map(plain));
    parts.join(", ")
}

/// A number of milliseconds; none for one that no call can take.
fn millis(took: f64) -> Option<String> {
    if took < 10.0 {
        return Some(format!("{took:.1}ms"));
    }
    Duration::try_from_secs_f64(took / 1e3).ok().map(show_wait)
}
