//! `redrive tail` and the stream of activity behind it.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use clap::Args;
use redrive_core::book::pattern::EventPattern;
use redrive_core::time::Timestamp;
use redrive_node::activity::{Activity, ActivityLine, AlertFacts, DeliveryFacts};
use redrive_node::runtime::Node;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;

use crate::access::Peer;
use crate::access::caller::ApiCaller;
use crate::api::App;
use crate::api::error::ApiResult;
use crate::api::reply::lines;
use crate::cli::{Format, ServerArgs};
use crate::client::{ClientRequest, ResponseLines};
use crate::deliveries::handlers::service_of;
use crate::deliveries::text::short_id;
use crate::status::live::ListenerPlace;
use crate::terminal::moment::{show_wait, time_of_day};
use crate::terminal::{self, cut, plain, print, style};

/// Shows the activity of a running server, line by line, until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive tail
  redrive tail --service billing --type 'orders.*'
  redrive tail --format json | jq -r 'select(.what == \"dead\") | .delivery'

Exit code: 0 ended with Ctrl-C, 2 wrong use, 3 no server.")]
pub(crate) struct TailArgs {
    /// Only this service and its channels, or only service/channel
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// Only events of this type, or matching a pattern such as `orders.*`
    #[arg(long = "type", value_name = "TYPE", value_parser = EventPattern::parse)]
    pub(crate) event_type: Option<EventPattern>,
    /// Output format; `json` prints one line per activity
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &TailArgs) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        result = follow(args) => result,
    }
}

async fn follow(args: &TailArgs) -> anyhow::Result<()> {
    let mut client = args.server.client()?;
    let stream = ClientRequest::get("/v1/activity");
    // Only a server that was reached before is waited for.
    let mut lines = client.lines(&stream).await?;
    let address = client.address().clone();
    say(&format!("following {address}, times in UTC, Ctrl-C to stop"));
    let mut columns = TailColumns::new(terminal::terminal_columns());
    loop {
        let lost = pass_on(args, lines, &mut columns).await?;
        say(&format!("{lost}; waiting for {address} …"));
        lines = client.lines_again(&stream, PAUSE_BETWEEN_TRIES).await?;
        say("reconnected; activity in between is not shown");
    }
}

async fn pass_on(
    args: &TailArgs,
    mut lines: ResponseLines,
    columns: &mut TailColumns,
) -> anyhow::Result<String> {
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok("the server ended the stream".to_owned()),
            Err(problem) => return Ok(problem.to_string()),
        };
        // A newer server may send kinds that we do not know; JSON output still gets the line.
        let Ok(activity_line) = serde_json::from_str::<ActivityLine>(&line) else {
            match args.format {
                Format::Json if args.service.is_none() && args.event_type.is_none() => print(&(line + "\n"))?,
                Format::Json => {}
                Format::Text => say("unknown kind of activity: the server may be newer than this redrive"),
            }
            continue;
        };
        if !is_wanted(args, &activity_line.activity) {
            continue;
        }
        match args.format {
            Format::Json => print(&(line + "\n"))?,
            Format::Text => print(&columns.line(&activity_line))?,
        }
    }
}

/// A service's name includes its channels.
fn is_wanted(args: &TailArgs, activity: &Activity) -> bool {
    let of_service = args.service.as_deref().is_none_or(|wanted| {
        let name = activity.service();
        name == Some(wanted)
            || name.and_then(|name| name.split_once('/')).is_some_and(|(service, _)| service == wanted)
    });
    let of_type = args
        .event_type
        .as_ref()
        .is_none_or(|pattern| activity.event_type().is_some_and(|event_type| pattern.matches(event_type)));
    of_service && of_type
}

fn say(text: &str) {
    anstream::eprintln!("{}", style::dim(format!("— {text}")));
}

const KIND_COLUMNS: usize = 15;

const NAME_COLUMNS_MIN: usize = 12;

const NAME_COLUMNS_MAX: usize = 36;

const DETAIL_COLUMNS_MIN: usize = 10;

#[derive(Debug)]
pub(crate) struct TailColumns {
    service: usize,
    event_type: usize,
    /// `None` unless a terminal: files take lines of any length.
    page: Option<usize>,
}

impl TailColumns {
    pub(crate) const fn new(page: Option<usize>) -> Self {
        Self { service: NAME_COLUMNS_MIN, event_type: NAME_COLUMNS_MIN, page }
    }

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
        // No trailing blanks.
        let cells = [style::dim(time), kind, style::bold(service), event_type, style::dim(&details)];
        let columns_used = match (&details, activity.event_type(), activity.service()) {
            (details, ..) if !details.is_empty() => 5,
            (_, Some(_), _) => 4,
            (_, None, Some(_)) => 3,
            (_, None, None) => 2,
        };
        cells[..columns_used].join("  ") + "\n"
    }
}

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

/// The most informative first and the longest last.
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
    let starts_message =
        |status: &String| facts.message.as_ref().is_some_and(|text| text.starts_with(status));
    parts.extend(status.filter(|status| !starts_message(status)));
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

/// `None` for a wait without end: the message gives the reason.
fn next_at(due_at: Timestamp, at: Timestamp) -> Option<String> {
    (due_at < Timestamp::NEVER).then(|| format!("resumes in {}", show_wait(due_at.since(at))))
}

/// `None` for impossible durations.
fn millis(took: f64) -> Option<String> {
    if took < 10.0 {
        return Some(format!("{took:.1}ms"));
    }
    Duration::try_from_secs_f64(took / 1e3).ok().map(show_wait)
}

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams activity as it occurs.
#[utoipa::path(
    get, path = "/v1/activity", operation_id = "streamActivity", tag = "operating",
    responses((status = 200, description = "one JSON line per activity, as in the schema `ActivityLine`; empty lines are keep-alives", body = String, content_type = "application/x-ndjson"))
)]
pub(crate) async fn activity(app: App, Extension(peer): Extension<Peer>, caller: ApiCaller) -> ApiResult {
    let listener = TailListener {
        _place: app.live.tail_place(&caller, peer)?,
        receiver: app.node.activities(),
        closing: app.closing.clone(),
        node: app.node.clone(),
        caller,
    };
    let stream = lines(
        listener,
        |listener| Box::pin(next_activity(listener)),
        |activity| match activity {
            Some(activity) => serde_json::to_string(&**activity).expect("texts and numbers are always JSON"),
            None => String::new(),
        },
    );
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], stream).into_response())
}

struct TailListener {
    receiver: broadcast::Receiver<Arc<ActivityLine>>,
    closing: watch::Receiver<bool>,
    node: Node,
    caller: ApiCaller,
    _place: ListenerPlace,
}

/// Lines without a service are hidden from bound callers, since they may concern any service.
pub(crate) fn may_see_line(caller: &ApiCaller, line: &ActivityLine) -> bool {
    !caller.is_bound() || line.activity.service().is_some_and(|name| caller.sees(service_of(name)))
}

/// `Some(None)` is a keep-alive; `None` when the server stops or the caller's credential ends.
async fn next_activity(listener: &mut TailListener) -> Option<Option<Arc<ActivityLine>>> {
    // Filtered lines do not postpone the keep-alive.
    let alive_at = Instant::now() + KEEP_ALIVE;
    loop {
        let activity = tokio::select! {
            biased;
            _ = listener.closing.changed() => return None,
            activity = listener.receiver.recv() => Some(activity),
            () = tokio::time::sleep_until(alive_at) => None,
        };
        if !listener.caller.is_good(listener.node.now()) {
            return None;
        }
        match activity {
            None => return Some(None),
            Some(Ok(activity)) if may_see_line(&listener.caller, &activity) => {
                return Some(Some(activity));
            }
            // A slow reader misses lines.
            Some(Ok(_) | Err(RecvError::Lagged(_))) => {}
            Some(Err(RecvError::Closed)) => return None,
        }
    }
}
