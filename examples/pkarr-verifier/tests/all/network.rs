//! Signed packets over a real table and real relays, which are killed, frozen and brought back.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use mainline::Testnet;
use pkarr::dht::{DhtClient, DhtConfig};
use pkarr_verifier::code::ErrorCode;
use pkarr_verifier::lookup::{Network, Place};
use pkarr_verifier::verify::Verifier;
use redrive::guard::BreakerState;

use crate::relays::RelayProcess;
use crate::support::{contact, packet, quick_verifier, someone};

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
    config
}

fn over(places: impl IntoIterator<Item = Place>) -> Verifier {
    quick_verifier(Arc::new(Network::new(places.into_iter().collect())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_packet_is_found_over_a_relay_and_in_the_table() {
    let table = Table::start();
    let keys = someone();
    assert!(table.dht.publish(&packet(&keys)).await.expect("nodes take it") > 0);
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
    let put = reqwest::Client::new().put(url).body(packet(&keys).to_relay_payload());
    assert_eq!(put.send().await.expect("it answers").status(), 204);
    assert!(over([Place::Dht(table.dht.clone())]).verify(&contact(&keys)).await.verified);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_relay_is_gone_or_frozen_the_next_try_goes_elsewhere() {
    let table = Table::start();
    let keys = someone();
    table.dht.publish(&packet(&keys)).await.expect("nodes take it");
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
        table.dht.publish(&packet(keys)).await.expect("nodes take it");
    }
    let verifier = over([relay.place.clone()]);
    assert!(verifier.verify(&contact(&keys[0])).await.verified);

    relay.freeze();
    let spent = verifier.verify(&contact(&someone())).await.metadata.expect("all retries were spent");
    assert_eq!(spent.last_error_code, ErrorCode::NetworkTimeout);
    for _ in 0..4 {
        verifier.verify(&contact(&someone())).await;
    }
    assert!(matches!(verifier.breaker(), BreakerState::Open { .. }));
    assert_eq!(verifier.metrics().circuit_breaker_trips, 1);
    let known = verifier.verify(&contact(&keys[0])).await;
    assert!(known.verified && known.cached, "what was found before serves on: {known:?}");

    relay.thaw();
    until(|| matches!(verifier.breaker(), BreakerState::HalfOpen { .. })).await;
    for keys in &keys[1..] {
        assert!(verifier.verify(&contact(keys)).await.verified);
    }
    assert!(matches!(verifier.breaker(), BreakerState::Closed { .. }));
}

async fn until(mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("it comes to that within ten seconds");
}
