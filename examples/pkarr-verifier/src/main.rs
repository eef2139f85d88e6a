//! The verification service: `pkarr-verifier [RULES]`, by default the `rules.yaml` in this folder.
//!
//! It listens on `LISTEN` (127.0.0.1:8080) and asks the relays in `RELAYS`, addresses with commas between them
//! (those of `local-net`). With `DHT=1` it is a node of the distributed table too, and asks there when a relay
//! has failed.

use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pkarr::dht::{DhtClient, DhtConfig};
use pkarr_verifier::api::{self, Service};
use pkarr_verifier::counters::Monitor;
use pkarr_verifier::lookup::{Network, Place};
use pkarr_verifier::verify::{LIFETIMES, Verifier};
use redrive::Book;
use redrive::clock::wall_clock;
use tokio::net::TcpListener;

/// How often the counts are held against the alerts.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().json().init();
    let rules =
        env::args().nth(1).unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/rules.yaml").into());
    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let book = Book::open(rules)?;

    let service = Arc::new(Service {
        verifier: Verifier::new(&book, Arc::new(Network::new(places()?)), LIFETIMES)?,
        monitor: Mutex::new(Monitor::new(book.rules(), wall_clock())),
    });
    tokio::spawn(watch(Arc::clone(&service)));
    let listener = TcpListener::bind(listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    axum::serve(listener, api::router(service)).await?;
    Ok(())
}

fn places() -> Result<Vec<Place>, Box<dyn Error>> {
    let relays =
        env::var("RELAYS").unwrap_or_else(|_| "http://127.0.0.1:6881/,http://127.0.0.1:6882/".into());
    let mut places = Vec::new();
    for relay in relays.split(',') {
        places.push(Place::Relay(relay.parse()?));
    }
    if env::var_os("DHT").is_some() {
        places.push(Place::Dht(DhtClient::build(DhtConfig::default())?));
    }
    Ok(places)
}

async fn watch(service: Arc<Service>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        service.look();
    }
}
