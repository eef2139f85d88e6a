//! Signed packets over a real table and real relays, which are killed, frozen and brought back.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use mainline::Testnet;
use pkarr::Keypair;
use pkarr::dht::{DhtClient, DhtConfig};
use pkarr_verifier::code::ErrorCode;
use pkarr_verifier::lookup::{Network, Place};
use pkarr_verifier::verify::Verifier;
use redrive::guard::BreakerState;

use crate::relays::RelayProcess;
use crate::support::{QUICK_LIFETIMES, changed, contact, packet, quick_rules, someone, verifier_by};

/// A table of its own, with a way into it.
struct Table {
    testnet: Testnet,
    dht: DhtClient,
}

impl Table {
    fn start() -> Self {
        let testnet = Testnet::builder(5).build().expect("loopback has ports");
        let dht = DhtClient::build(config(&testnet)).expect("loopback has ports");
        Self { testnet, dht }
    }

    /// Publishes a packet, again and again until enough nodes hold it: a machine with much to do loses some.
    async fn publish(&self, keys: &Keypair) {
        let packet = packet(keys);
        until(async || self.dht.publish(&packet).await.is_ok_and(|nodes| nodes >= 3)).await;
    }

    fn relay(&self) -> RelayProcess {
        RelayProcess::start(&self.testnet.bootstrap)
    }
}

fn config(testnet: &Testnet) -> DhtConfig {
    let nodes: Vec<SocketAddrV4> =
        testnet.bootstrap.iter().map(|node| node.parse().expect("an address")).collect();
    let mut config = DhtConfig::default();
    config.bootstrap = Some(nodes);
    config.bind_address = Some(Ipv4Addr::LOCALHOST);
    config.server_mode = true;
    // Nodes on loopback are quick or gone.
    config.request_timeout = Duration::from_millis(400);
    config
}

/// A lookup in the table takes a while, and longer on a machine that has much to do.
fn over(places: impl IntoIterator<Item = Place>) -> Verifier {
    let rules =
        changed(&quick_rules(), &[("timeout: 300ms", "timeout: 1500ms"), ("deadline: 5s", "deadline: 20s")]);
    verifier_by(&rules, Arc::new(Network::new(places.into_iter().collect())), QUICK_LIFETIMES)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_packet_is_found_over_a_relay_and_in_the_table() {
    let table = Table::start();
    let keys = someone();
    table.publish(&keys).await;
    let relay = table.relay();
    for place in [relay.place.clone(), Place::Dht(table.dht.clone())] {
        let answer = over([place.clone()]).verify(&contact(&keys)).await;
        assert!(answer.verified, "{place:?}: {answer:?}");
        let nobody = over([place]).verify(&contact(&someone())).await;
        assert_eq!(nobody.error_code, Some(ErrorCode::RecordNotFound));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_is_published_over_a_relay_too() {
    let table = Table::start();
    let relay = table.relay();
    let keys = someone();
    let Place::Relay(url) = &relay.place else { unreachable!("it is a relay") };
    let url = url.join(&keys.public_key().to_z32()).expect("an address");
    let (client, payload) = (reqwest::Client::new(), packet(&keys).to_relay_payload());
    // A relay that has just begun may know too few nodes yet, and says so.
    until(async || {
        let put = client.put(url.clone()).body(payload.clone()).send().await.expect("it answers");
        put.status() == 204
    })
    .await;
    let verifier = over([Place::Dht(table.dht.clone())]);
    until(async || verifier.verify(&contact(&keys)).await.verified).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_relay_is_gone_or_frozen_the_next_try_goes_elsewhere() {
    let table = Table::start();
    let keys = someone();
    table.publish(&keys).await;
    let (mut killed, frozen, well) = (table.relay(), table.relay(), table.relay());
    killed.kill();
    frozen.freeze();
    for broken in [&killed, &frozen] {
        let answer = over([broken.place.clone(), well.place.clone()]).verify(&contact(&keys)).await;
        assert!(answer.verified && answer.retried, "{answer:?}");
    }
    // And the table itself stands behind the relays.
    let answer = over([killed.place.clone(), Place::Dht(table.dht.clone())]).verify(&contact(&keys)).await;
    assert!(answer.verified && answer.retried, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_relays_open_the_breaker_and_thawed_ones_close_it() {
    let table = Table::start();
    let relay = table.relay();
    let keys = [someone(), someone(), someone()];
    for keys in &keys {
        table.publish(keys).await;
    }
    let verifier = over([relay.place.clone()]);
    assert!(verifier.verify(&contact(&keys[0])).await.verified);

    relay.freeze();
    let strangers = [(); 5].map(|()| contact(&someone()));
    let [one, two, three, four, five] = strangers.each_ref().map(|stranger| verifier.verify(stranger));
    let (one, ..) = tokio::join!(one, two, three, four, five);
    let spent = one.metadata.expect("all retries were spent");
    assert_eq!(spent.last_error_code, ErrorCode::NetworkTimeout);
    assert!(matches!(verifier.breaker(), BreakerState::Open { .. }), "five calls in a row");
    assert_eq!(verifier.metrics().circuit_breaker_trips, 1);
    let known = verifier.verify(&contact(&keys[0])).await;
    assert!(known.verified && known.cached, "what was found before serves on: {known:?}");

    relay.thaw();
    for keys in &keys[1..] {
        until(async || verifier.verify(&contact(keys)).await.verified).await;
    }
    assert!(matches!(verifier.breaker(), BreakerState::Closed { .. }));
}

/// Waits until it holds, for as long as a machine with much to do may take.
async fn until(holds: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("it comes to that");
}
