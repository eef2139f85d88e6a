//! A relay in a process of its own: `relay LISTEN BOOTSTRAP...`, such as `relay 127.0.0.1:0 127.0.0.1:6881`.
//!
//! It prints the address that it listens on, and serves until it is ended.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use pkarr::dht::{DhtClient, DhtConfig};
use tokio::net::TcpListener;

/// How long a node of the table may take; those on loopback are quick or gone.
const REQUEST_LIMIT: Duration = Duration::from_millis(400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().ok_or("usage: relay LISTEN BOOTSTRAP...")?;
    let bootstrap = arguments.map(|node| node.parse()).collect::<Result<Vec<SocketAddrV4>, _>>()?;

    let mut dht = DhtConfig::default();
    dht.bootstrap = Some(bootstrap);
    dht.bind_address = Some(Ipv4Addr::LOCALHOST);
    dht.server_mode = true;
    dht.request_timeout = REQUEST_LIMIT;
    let listener = TcpListener::bind(listen).await?;
    println!("http://{}/", listener.local_addr()?);
    axum::serve(listener, pkarr_verifier::relay::router(DhtClient::build(dht)?)).await?;
    Ok(())
}
