//! The notification service: `notifier [RULES]`, by default the `rules.yaml` in this folder.
//!
//! It listens on `LISTEN` (127.0.0.1:8081), keeps messages and state in the folder `DATA` (`notifier-data`), and
//! sends to the topic `TOPIC` (rez-agent-dev) of the push service at `NTFY` (http://127.0.0.1:8082/). Processes
//! with the same folder share everything: what was sent, and the breaker.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use notifier::api::{self, Doors};
use notifier::message::Messages;
use notifier::metrics::{self, Metrics};
use notifier::ntfy::Ntfy;
use notifier::service::Notifier;
use redrive::Book;
use redrive::embedded::File;
use redrive::once::Once;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    let setting = |name, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let rules =
        env::args().nth(1).unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/rules.yaml").into());
    let data = PathBuf::from(setting("DATA", "notifier-data"));
    std::fs::create_dir_all(&data)?;

    let state = File::open(data.join("state.db"))?;
    let book = Book::open(rules)?.shared(Arc::new(state.clone()));
    book.watch()?;
    let messages = Messages::open(&data.join("messages.db"))?;
    let ntfy =
        Ntfy::new(setting("NTFY", "http://127.0.0.1:8082/").parse()?, setting("TOPIC", "rez-agent-dev"));
    let guard = book.guard("ntfy-sh")?;
    let doors = Arc::new(Doors {
        notifier: Notifier::new(messages.clone(), ntfy.clone(), guard.clone(), Once::new(state)),
        metrics: Metrics::new(messages, ntfy, guard, metrics::KEPT),
    });
    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:8081")).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, api::router(doors)).await?;
    Ok(())
}
