//! A small world to try the verifier in, on loopback: a distributed table of ten nodes, two relays in front of it,
//! and one contact who has published who they are.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};

use mainline::Testnet;
use pkarr::dht::{DhtClient, DhtConfig};
use pkarr::{Keypair, SignedPacket};
use pkarr_verifier::{relay, verify};
use tokio::net::TcpListener;

const RELAYS: [&str; 2] = ["127.0.0.1:6881", "127.0.0.1:6882"];
const ADDRESS: &str = "alice@example.test";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let testnet = Testnet::builder(10).build()?;
    let bootstrap =
        testnet.bootstrap.iter().map(|node| node.parse()).collect::<Result<Vec<SocketAddrV4>, _>>()?;
    let mut config = DhtConfig::default();
    config.bootstrap = Some(bootstrap);
    config.bind_address = Some(Ipv4Addr::LOCALHOST);
    config.server_mode = true;
    let dht = DhtClient::build(config)?;

    let alice = Keypair::random();
    let packet =
        SignedPacket::builder().txt(verify::RECORD.try_into()?, ADDRESS.try_into()?, 300).sign(&alice)?;
    let nodes = dht.publish(&packet).await?;
    println!("{nodes} nodes hold the record of {ADDRESS}. With the verifier running, ask for it:\n");
    println!(
        "  curl -H 'content-type: application/json' http://127.0.0.1:8080/verify \\\n    -d '{{\"public_key\": \"{}\", \"nip05\": \"{ADDRESS}\"}}'\n",
        alice.public_key().to_z32(),
    );
    for address in RELAYS {
        let listener = TcpListener::bind(address).await?;
        println!("a relay listens on http://{address}/");
        tokio::spawn(axum::serve(listener, relay::router(dht.clone())).into_future());
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}
