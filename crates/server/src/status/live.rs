//! Live stream for the dashboard: a pulse every second and activity, as server-sent events.
//!
//! One ticker serves all listeners and runs only while there are any, so store and engine are read once a
//! second. Each listener gets the part that it may see.
//!
//! Invariants: at most [`LISTENERS_MAX`] dashboards and as many tails, with a limit per caller; at most
//! [`ACTIVITIES_PER_PULSE`] activities between two pulses, with a count of those left out; a stream ends when
//! its credential does.

mod changes;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use redrive_core::time::Timestamp;
use redrive_node::activity::ActivityLine;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use crate::access::Peer;
use crate::access::caller::ApiCaller;
use crate::api::App;
use crate::api::error::{ApiError, ApiResult};
use crate::api::limits::per_address::{AddressLimiter, AddressSlot};
use crate::api::reply::lines;
use crate::breakers::json::BreakerState;
use crate::events::tail::may_see_line;
use crate::services::handlers::ServiceFigures;
use crate::services::json::HealthWord;
use crate::status::live::changes::{PulseBeat, PulseLayout};

const PULSE_EVERY: Duration = Duration::from_secs(1);

/// Dashboards, and as many tails.
const LISTENERS_MAX: usize = 64;

/// Per key, token, or address without authentication.
const LISTENERS_EACH_MAX: usize = 16;

/// Per listener.
const ACTIVITIES_PER_PULSE: u32 = 50;

/// Rates need two readings; a new page should not wait a whole second.
const FIRST_PULSE_AFTER: Duration = Duration::from_millis(100);

const KEEP_ALIVE: Duration = Duration::from_secs(5);

const RETRY_MS: u32 = 2_000;

pub(crate) struct LiveHub {
    /// The latest; `None` while the ticker is stopped.
    beats: watch::Sender<Option<Arc<PulseBeat>>>,
    places: ListenerRoom,
    /// Limited separately: each tail costs work for every activity.
    tails: ListenerRoom,
    is_ticking: Mutex<bool>,
}

impl Default for LiveHub {
    fn default() -> Self {
        let (places, tails) = (ListenerRoom::default(), ListenerRoom::default());
        Self { beats: watch::Sender::new(None), places, tails, is_ticking: Mutex::new(false) }
    }
}

struct ListenerRoom {
    all: Arc<Semaphore>,
    each: AddressLimiter,
}

/// Held by a listener while it listens.
pub(crate) struct ListenerPlace {
    _of_all: OwnedSemaphorePermit,
    _of_its_own: AddressSlot,
}

impl Default for ListenerRoom {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(LISTENERS_MAX)),
            each: AddressLimiter::with_each(LISTENERS_EACH_MAX),
        }
    }
}

impl ListenerRoom {
    fn place(&self, caller: &ApiCaller, peer: Peer, what: &str) -> Result<ListenerPlace, ApiError> {
        let its_own = self.each.join_as(caller.name_or_address(peer)).ok_or_else(|| {
            ApiError::unavailable(format!(
                "this caller has {LISTENERS_EACH_MAX} {what} already: close one of them"
            ))
        })?;
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all = of_all.map_err(|_| {
            ApiError::unavailable(format!("limit of {LISTENERS_MAX} {what} reached: close one of them"))
        })?;
        Ok(ListenerPlace { _of_all: of_all, _of_its_own: its_own })
    }
}

impl LiveHub {
    fn place(&self, caller: &ApiCaller, peer: Peer) -> Result<ListenerPlace, ApiError> {
        self.places.place(caller, peer, "live pages")
    }

    pub(crate) fn tail_place(&self, caller: &ApiCaller, peer: Peer) -> Result<ListenerPlace, ApiError> {
        self.tails.place(caller, peer, "activity streams")
    }
}

/// Streams a pulse every second, and activity as it occurs.
#[utoipa::path(
    get, path = "/v1/live", operation_id = "streamLive", tag = "operating",
    responses((status = 200, description = "server-sent events: `pulse` every second with a `Pulse`, and `activity` with an `ActivityLine`, at most 50 per second", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn live(app: App, Extension(peer): Extension<Peer>, caller: ApiCaller) -> ApiResult {
    let place = app.live.place(&caller, peer)?;
    let mut beats = app.live.beats.subscribe();
    // A new listener gets the latest pulse at once.
    beats.mark_changed();
    let listener = LiveListener {
        beats,
        activities: app.node.activities(),
        closing: app.closing.clone(),
        caller,
        sent: 0,
        left_out: 0,
        first: VecDeque::from([format!("retry: {RETRY_MS}\n")]),
        app: app.clone(),
        _place: place,
    };
    start_ticking(&app);
    let stream = lines(listener, |listener| Box::pin(next(listener)), String::clone);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Buffering proxies would delay the stream.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, stream).into_response())
}

struct LiveListener {
    app: App,
    caller: ApiCaller,
    beats: watch::Receiver<Option<Arc<PulseBeat>>>,
    activities: broadcast::Receiver<Arc<ActivityLine>>,
    closing: watch::Receiver<bool>,
    /// Activities sent since the last pulse.
    sent: u32,
    /// Activities not sent since the last pulse.
    left_out: u64,
    /// Messages to send before anything else.
    first: VecDeque<String>,
    _place: ListenerPlace,
}

/// `None` when the server stops or the caller's credential ends.
async fn next(listener: &mut LiveListener) -> Option<String> {
    if let Some(first) = listener.first.pop_front() {
        return Some(first);
    }
    loop {
        let received = tokio::select! {
            biased;
            _ = listener.closing.changed() => return None,
            changed = listener.beats.changed() => match (changed, listener.beats.borrow_and_update().clone()) {
                (Ok(()), Some(beat)) => LiveMessage::Beat(beat),
                (Ok(()), None) => continue,
                (Err(_), _) => return None,
            },
            activity = listener.activities.recv() => match activity {
                Ok(activity) => LiveMessage::Activity(activity),
                Err(RecvError::Lagged(missed)) => LiveMessage::Missed(missed),
                Err(RecvError::Closed) => return None,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => LiveMessage::Nothing,
        };
        if !listener.caller.is_good(listener.app.node.now()) {
            return None;
        }
        match received {
            LiveMessage::Beat(beat) => {
                let pulse = beat.pulse(&listener.caller, std::mem::take(&mut listener.left_out));
                listener.sent = 0;
                return Some(message("pulse", &pulse));
            }
            LiveMessage::Activity(activity) if !may_see_line(&listener.caller, &activity) => {}
            LiveMessage::Activity(activity) if listener.sent < ACTIVITIES_PER_PULSE => {
                listener.sent += 1;
                return Some(message("activity", &*activity));
            }
            LiveMessage::Activity(_) => listener.left_out += 1,
            LiveMessage::Missed(missed) => listener.left_out += missed,
            LiveMessage::Nothing => return Some(": alive\n".to_owned()),
        }
    }
}

enum LiveMessage {
    Beat(Arc<PulseBeat>),
    Activity(Arc<ActivityLine>),
    /// The receiver lagged by this many.
    Missed(u64),
    Nothing,
}

/// Without the empty line that ends it. JSON is always a single line.
fn message(event: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("texts and numbers are always JSON");
    format!("event: {event}\ndata: {data}\n")
}

fn start_ticking(app: &App) {
    let mut is_ticking = app.live.is_ticking.lock().expect("no panic while holding the lock");
    if !std::mem::replace(&mut *is_ticking, true) {
        tokio::spawn(tick(app.clone()));
    }
}

/// Reads the figures once a second while there are listeners.
async fn tick(app: App) {
    let mut ticks = tokio::time::interval(PULSE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut layout = PulseLayout::of(&app.node.book());
    let mut before: Option<ServiceFigures> = None;
    let mut closing = app.closing.clone();
    loop {
        tokio::select! {
            biased;
            // No listener is accepted any more.
            _ = closing.changed() => return,
            _ = ticks.tick() => {}
        }
        {
            let mut is_ticking = app.live.is_ticking.lock().expect("no panic while holding the lock");
            if app.live.beats.receiver_count() == 0 {
                *is_ticking = false;
                app.live.beats.send_replace(None);
                return;
            }
        }
        // A failed reading skips a pulse; keep-alives continue.
        let Ok(reading) = ServiceFigures::of(&app).await else { continue };
        let book = app.node.book();
        if layout.hash != book.hash() {
            layout = PulseLayout::of(&book);
        }
        if let Some(before) = &before {
            let beat = PulseBeat::between(before, &reading, &layout, &app.node.alerts());
            app.live.beats.send_replace(Some(Arc::new(beat)));
        } else {
            ticks.reset_after(FIRST_PULSE_AFTER);
        }
        before = Some(reading);
    }
}

/// Figures of the last second.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Pulse {
    pub at: Timestamp,
    /// Activities left out since the last pulse.
    pub left_out: u64,
    /// Accepted events; absent for keys bound to services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_per_s: Option<f64>,
    /// Successful deliveries.
    pub delivered_per_s: f64,
    /// Failed attempts.
    pub failed_per_s: f64,
    /// Failed attempts followed by a retry.
    pub retried_per_s: f64,
    /// New dead letters.
    pub dead_per_s: f64,
    /// Share of successes among deliveries that ended in the last minute; null if none ended.
    pub success_rate: Option<f64>,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// When the event of the oldest waiting delivery was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Dead letters.
    pub dead: u64,
    pub failure_groups: u64,
    /// Calls in flight.
    pub in_flight: u64,
    /// Dependencies with an open breaker.
    pub open_breakers: Vec<String>,
    /// Firing alerts; absent for keys bound to services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing_alerts: Option<u64>,
    pub services: Vec<ServicePulse>,
    pub dependencies: Vec<DependencyPulse>,
}

/// State of a service.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServicePulse {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub waiting: u64,
    pub dead: u64,
    pub delivered_per_s: f64,
    pub failed_per_s: f64,
    pub health: HealthWord,
}

/// State of a dependency.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyPulse {
    pub name: String,
    pub state: BreakerState,
    pub in_flight: u32,
}
