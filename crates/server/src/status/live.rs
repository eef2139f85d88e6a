//! A live stream for pages: a pulse every second, and what happens, as server-sent events.
//!
//! One ticker looks for all listeners, and only while there are any: however many pages are open, the store
//! and the engine are asked once a second. What a listener may see is cut out of that one look.
//!
//! Invariants: at most [`LISTENERS_MAX`] pages listen, and as many others, of which no caller takes more than
//! its share; nobody gets more than [`HAPPENINGS_PER_PULSE`] happenings
//! between two pulses, and is told how many were left out; a stream ends when its key does.

mod changes;
pub(crate) mod json;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use redrive_node::activity::ActivityLine;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::MissedTickBehavior;

use crate::access::Peer;
use crate::access::caller::Caller;
use crate::api::App;
use crate::api::error::{Answer, ApiError};
use crate::api::limits::per_address::{Crowd, Member};
use crate::api::stream::lines;
use crate::events::tail::hears;
use crate::services::handlers::Look;
use crate::status::live::changes::{Beat, Layout};

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
pub(crate) struct Hub {
    /// The latest; none while nobody looks.
    beats: watch::Sender<Option<Arc<Beat>>>,
    places: Room,
    /// Of those who hear of everything: each costs work for whatever happens.
    tails: Room,
    /// Whether the ticker runs.
    is_ticking: Mutex<bool>,
}

impl Default for Hub {
    fn default() -> Self {
        let (places, tails) = (Room::default(), Room::default());
        Self { beats: watch::Sender::new(None), places, tails, is_ticking: Mutex::new(false) }
    }
}

/// Room for listeners of one kind.
struct Room {
    all: Arc<Semaphore>,
    each: Crowd,
}

/// A place that a listener has for as long as it listens.
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_its_own: Member,
}

impl Default for Room {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(LISTENERS_MAX)), each: Crowd::with_each(LISTENERS_EACH_MAX) }
    }
}

impl Room {
    fn place(&self, caller: &Caller, peer: Peer, what: &str) -> Result<Place, ApiError> {
        let its_own = self.each.join_as(caller.name_or_address(peer)).ok_or_else(|| {
            ApiError::unavailable(format!(
                "this caller has {LISTENERS_EACH_MAX} {what} already: close one of them"
            ))
        })?;
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all = of_all.map_err(|_| {
            ApiError::unavailable(format!("there are {LISTENERS_MAX} {what} already: close one of them"))
        })?;
        Ok(Place { _of_all: of_all, _of_its_own: its_own })
    }
}

impl Hub {
    /// A place for a page.
    fn place(&self, caller: &Caller, peer: Peer) -> Result<Place, ApiError> {
        self.places.place(caller, peer, "live pages")
    }

    /// A place for one who hears of everything.
    pub(crate) fn tail_place(&self, caller: &Caller, peer: Peer) -> Result<Place, ApiError> {
        self.tails.place(caller, peer, "streams of happenings")
    }
}

/// How it is every second, and what happens, as it happens.
#[utoipa::path(
    get, path = "/v1/live", operation_id = "live", tag = "operating",
    responses((status = 200, description = "server-sent events: `pulse` every second with a `Pulse`, and `happening` with a `Happening`, at most 50 a second", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn live(app: App, Extension(peer): Extension<Peer>, caller: Caller) -> Answer {
    let place = app.live.place(&caller, peer)?;
    let mut beats = app.live.beats.subscribe();
    // Whoever comes between two pulses is told the latest at once.
    beats.mark_changed();
    let listener = Listener {
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
struct Listener {
    app: App,
    caller: Caller,
    beats: watch::Receiver<Option<Arc<Beat>>>,
    happenings: broadcast::Receiver<Arc<ActivityLine>>,
    closing: watch::Receiver<bool>,
    /// Happenings that it was told since the last pulse.
    told: u32,
    /// Those that it was not.
    left_out: u64,
    /// What it is told before anything else.
    first: VecDeque<String>,
    _place: Place,
}

/// The next message; none when the server stops, or would not let the listener in any more.
async fn next(listener: &mut Listener) -> Option<String> {
    if let Some(first) = listener.first.pop_front() {
        return Some(first);
    }
    loop {
        let heard = tokio::select! {
            biased;
            _ = listener.closing.changed() => return None,
            changed = listener.beats.changed() => match (changed, listener.beats.borrow_and_update().clone()) {
                (Ok(()), Some(beat)) => Heard::Beat(beat),
                (Ok(()), None) => continue,
                (Err(_), _) => return None,
            },
            happening = listener.happenings.recv() => match happening {
                Ok(happening) => Heard::Happening(happening),
                Err(RecvError::Lagged(missed)) => Heard::Missed(missed),
                Err(RecvError::Closed) => return None,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => Heard::Nothing,
        };
        if !listener.caller.is_good(listener.app.node.now()) {
            return None;
        }
        match heard {
            Heard::Beat(beat) => {
                let pulse = beat.pulse(&listener.caller, std::mem::take(&mut listener.left_out));
                listener.told = 0;
                return Some(message("pulse", &pulse));
            }
            Heard::Happening(happening) if !hears(&listener.caller, &happening) => {}
            Heard::Happening(happening) if listener.told < HAPPENINGS_PER_PULSE => {
                listener.told += 1;
                return Some(message("happening", &*happening));
            }
            Heard::Happening(_) => listener.left_out += 1,
            Heard::Missed(missed) => listener.left_out += missed,
            Heard::Nothing => return Some(": alive\n".to_owned()),
        }
    }
}

enum Heard {
    Beat(Arc<Beat>),
    Happening(Arc<ActivityLine>),
    /// So many were too quick.
    Missed(u64),
    Nothing,
}

/// A message but for the empty line that ends it. JSON is one line, whatever is in it.
fn message(event: &str, data: &impl serde::Serialize) -> String {
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
    let mut layout = Layout::of(&app.node.book());
    let mut before: Option<Look> = None;
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
        let Ok(look) = Look::of(&app).await else { continue };
        let book = app.node.book();
        if layout.hash != book.hash() {
            layout = Layout::of(&book);
        }
        if let Some(before) = &before {
            let beat = Beat::between(before, &look, &layout, &app.node.alerts());
            app.live.beats.send_replace(Some(Arc::new(beat)));
        } else {
            ticks.reset_after(FIRST_PULSE_AFTER);
        }
        before = Some(look);
    }
}
