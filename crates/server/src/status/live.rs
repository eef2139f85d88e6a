//! A live stream for pages: a pulse every second, and what happens, as server-sent events.
//!
//! One ticker looks for all listeners, and only while there are any: however many pages are open, the store
//! and the engine are asked once a second. What a listener may see is cut out of that one look.
//!
//! Invariants: at most [`LISTENERS_MAX`] pages listen, and as many others, of which no caller takes more than
//! its share; nobody gets more than [`HAPPENINGS_PER_PULSE`] happenings
//! between two pulses, and is told how many were left out; a stream ends when its key does.

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

/// How often a pulse is told.
const PULSE_EVERY: Duration = Duration::from_secs(1);

/// Pages that may listen at once, and those beside them who hear of everything.
const LISTENERS_MAX: usize = 64;

/// How many of these one caller may have: a key or a token, or an address where callers have neither.
const LISTENERS_EACH_MAX: usize = 16;

/// Happenings that one listener is told between two pulses.
const HAPPENINGS_PER_PULSE: u32 = 50;

/// How soon after the first look there is a pulse: rates need two looks, and whoever opens a page should not
/// wait for a whole second.
const FIRST_PULSE_AFTER: Duration = Duration::from_millis(100);

/// How long a stream may be silent.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What a page waits before it comes back when the stream breaks.
const RETRY_MS: u32 = 2_000;

/// Where listeners meet the ticker.
pub(crate) struct LiveHub {
    /// The latest; none while nobody looks.
    beats: watch::Sender<Option<Arc<PulseBeat>>>,
    places: ListenerRoom,
    /// Of those who hear of everything: each costs work for whatever happens.
    tails: ListenerRoom,
    /// Whether the ticker runs.
    is_ticking: Mutex<bool>,
}

impl Default for LiveHub {
    fn default() -> Self {
        let (places, tails) = (ListenerRoom::default(), ListenerRoom::default());
        Self { beats: watch::Sender::new(None), places, tails, is_ticking: Mutex::new(false) }
    }
}

/// Room for listeners of one kind.
struct ListenerRoom {
    all: Arc<Semaphore>,
    each: AddressLimiter,
}

/// A place that a listener has for as long as it listens.
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
            ApiError::unavailable(format!("there are {LISTENERS_MAX} {what} already: close one of them"))
        })?;
        Ok(ListenerPlace { _of_all: of_all, _of_its_own: its_own })
    }
}

impl LiveHub {
    /// A place for a page.
    fn place(&self, caller: &ApiCaller, peer: Peer) -> Result<ListenerPlace, ApiError> {
        self.places.place(caller, peer, "live pages")
    }

    /// A place for one who hears of everything.
    pub(crate) fn tail_place(&self, caller: &ApiCaller, peer: Peer) -> Result<ListenerPlace, ApiError> {
        self.tails.place(caller, peer, "streams of happenings")
    }
}

/// How it is every second, and what happens, as it happens.
#[utoipa::path(
    get, path = "/v1/live", operation_id = "streamLive", tag = "operating",
    responses((status = 200, description = "server-sent events: `pulse` every second with a `Pulse`, and `happening` with an `ActivityLine`, at most 50 a second", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn live(app: App, Extension(peer): Extension<Peer>, caller: ApiCaller) -> ApiResult {
    let place = app.live.place(&caller, peer)?;
    let mut beats = app.live.beats.subscribe();
    // Whoever comes between two pulses is told the latest at once.
    beats.mark_changed();
    let listener = LiveListener {
        beats,
        happenings: app.node.activities(),
        closing: app.closing.clone(),
        caller,
        told: 0,
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
        // Proxies that collect answers would keep a page waiting.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, stream).into_response())
}

/// Somebody who listens.
struct LiveListener {
    app: App,
    caller: ApiCaller,
    beats: watch::Receiver<Option<Arc<PulseBeat>>>,
    happenings: broadcast::Receiver<Arc<ActivityLine>>,
    closing: watch::Receiver<bool>,
    /// Happenings that it was told since the last pulse.
    told: u32,
    /// Those that it was not.
    left_out: u64,
    /// What it is told before anything else.
    first: VecDeque<String>,
    _place: ListenerPlace,
}

/// The next message; none when the server stops, or would not let the listener in any more.
async fn next(listener: &mut LiveListener) -> Option<String> {
    if let Some(first) = listener.first.pop_front() {
        return Some(first);
    }
    loop {
        let heard = tokio::select! {
            biased;
            _ = listener.closing.changed() => return None,
            changed = listener.beats.changed() => match (changed, listener.beats.borrow_and_update().clone()) {
                (Ok(()), Some(beat)) => LiveMessage::Beat(beat),
                (Ok(()), None) => continue,
                (Err(_), _) => return None,
            },
            happening = listener.happenings.recv() => match happening {
                Ok(happening) => LiveMessage::Activity(happening),
                Err(RecvError::Lagged(missed)) => LiveMessage::Missed(missed),
                Err(RecvError::Closed) => return None,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => LiveMessage::Nothing,
        };
        if !listener.caller.is_good(listener.app.node.now()) {
            return None;
        }
        match heard {
            LiveMessage::Beat(beat) => {
                let pulse = beat.pulse(&listener.caller, std::mem::take(&mut listener.left_out));
                listener.told = 0;
                return Some(message("pulse", &pulse));
            }
            LiveMessage::Activity(happening) if !may_see_line(&listener.caller, &happening) => {}
            LiveMessage::Activity(happening) if listener.told < HAPPENINGS_PER_PULSE => {
                listener.told += 1;
                return Some(message("happening", &*happening));
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
    /// So many were too quick.
    Missed(u64),
    Nothing,
}

/// A message but for the empty line that ends it. JSON is one line, whatever is in it.
fn message(event: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("texts and numbers are always JSON");
    format!("event: {event}\ndata: {data}\n")
}

/// Sees to it that somebody looks for those who listen.
fn start_ticking(app: &App) {
    let mut is_ticking = app.live.is_ticking.lock().expect("nobody panics while holding it");
    if !std::mem::replace(&mut *is_ticking, true) {
        tokio::spawn(tick(app.clone()));
    }
}

/// Looks once a second, until nobody listens.
async fn tick(app: App) {
    let mut ticks = tokio::time::interval(PULSE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut layout = PulseLayout::of(&app.node.book());
    let mut before: Option<ServiceFigures> = None;
    let mut closing = app.closing.clone();
    loop {
        tokio::select! {
            biased;
            // Whatever becomes of it, nobody is let in any more.
            _ = closing.changed() => return,
            _ = ticks.tick() => {}
        }
        {
            let mut is_ticking = app.live.is_ticking.lock().expect("nobody panics while holding it");
            if app.live.beats.receiver_count() == 0 {
                *is_ticking = false;
                app.live.beats.send_replace(None);
                return;
            }
        }
        // A look that fails is left out; listeners hear that the server is alive all the same.
        let Ok(look) = ServiceFigures::of(&app).await else { continue };
        let book = app.node.book();
        if layout.hash != book.hash() {
            layout = PulseLayout::of(&book);
        }
        if let Some(before) = &before {
            let beat = PulseBeat::between(before, &look, &layout, &app.node.alerts());
            app.live.beats.send_replace(Some(Arc::new(beat)));
        } else {
            ticks.reset_after(FIRST_PULSE_AFTER);
        }
        before = Some(look);
    }
}

/// How it is, once a second.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Pulse {
    pub at: Timestamp,
    /// Happenings that were left out since the last pulse.
    pub left_out: u64,
    /// Events that came in; not told to those who are bound to services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_per_s: Option<f64>,
    /// Deliveries that arrived.
    pub delivered_per_s: f64,
    /// Attempts that failed.
    pub failed_per_s: f64,
    /// Attempts that are followed by another.
    pub retried_per_s: f64,
    /// Deliveries that failed for good.
    pub dead_per_s: f64,
    /// The share of the deliveries that ended in the last minute which arrived; null if none ended.
    pub success_rate: Option<f64>,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// When the event was accepted whose delivery has waited for longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Dead letters.
    pub dead: u64,
    /// The causes that dead letters have in common.
    pub failure_groups: u64,
    /// Calls under way.
    pub in_flight: u64,
    /// Dependencies whose breakers are open.
    pub open_breakers: Vec<String>,
    /// Alerts that fire; not told to those who are bound to services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing_alerts: Option<u64>,
    pub services: Vec<ServicePulse>,
    pub dependencies: Vec<DependencyPulse>,
}

/// How a service is.
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

/// How a dependency is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyPulse {
    pub name: String,
    pub state: BreakerState,
    pub in_flight: u32,
}
