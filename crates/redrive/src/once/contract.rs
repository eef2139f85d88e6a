//! What every store of what was done must do, whatever it is made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive_core::time::Timestamp;

use super::store::{DedupStore, FencingToken, KeyState, OnceKey, Ownership};
use crate::stale::ClockFn;

/// The lease that marks are made with here.
const LEASE: Duration = Duration::from_secs(30);
const HALF_A_LEASE: Duration = Duration::from_secs(15);
/// How long results are kept here, and a moment less.
const TTL: Duration = Duration::from_millis(60_000);
const ALMOST_TTL: Duration = Duration::from_millis(59_999);

/// A clock that goes when it is told to.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<AtomicU64>);

impl Hands {
    pub(crate) fn clock(&self) -> ClockFn {
        let hands = self.clone();
        // Some time after the epoch, so that there is a time before it begins.
        Arc::new(move || Timestamp::from_millis(1_000_000_000 + hands.0.load(Ordering::SeqCst)))
    }

    pub(crate) fn forward(&self, span: Duration) {
        let millis = u64::try_from(span.as_millis()).expect("a short span");
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

/// One store, and the clock that it goes by.
struct ContractBench<'a> {
    store: &'a dyn DedupStore,
    hands: &'a Hands,
}

impl ContractBench<'_> {
    async fn begin(&self, name: &str) -> KeyState {
        self.store.begin(&key(name), LEASE).await.expect("the store is there")
    }

    /// Begins work that nobody holds.
    async fn take(&self, name: &str) -> FencingToken {
        match self.begin(name).await {
            KeyState::Yours(token) => token,
            other => panic!("{name} is free: {other:?}"),
        }
    }

    async fn renew(&self, name: &str, token: FencingToken) -> Ownership {
        self.store.renew(&key(name), token, LEASE).await.expect("the store is there")
    }

    async fn finish(&self, name: &str, token: FencingToken, result: &[u8]) -> Ownership {
        self.store.finish(&key(name), token, result, TTL).await.expect("the store is there")
    }
}

fn key(name: &str) -> OnceKey {
    OnceKey::new(name).expect("a key")
}

fn done(result: &[u8]) -> KeyState {
    KeyState::Done { result: result.to_vec() }
}

const fn in_progress(lease_left: Duration) -> KeyState {
    KeyState::InProgress { lease_left }
}

/// Checks a store that is empty and goes by that clock.
pub(crate) async fn keeps_the_contract(store: &dyn DedupStore, hands: &Hands) {
    let desk = ContractBench { store, hands };
    a_key_has_one_holder_and_one_result(&desk).await;
    a_lease_ends_unless_it_is_renewed(&desk).await;
    who_was_overtaken_changes_nothing(&desk).await;
    a_mark_is_released_by_its_holder_only(&desk).await;
    a_result_is_dropped_on_demand_and_a_mark_is_not(&desk).await;
}

async fn a_key_has_one_holder_and_one_result(desk: &ContractBench<'_>) {
    let token = desk.take("one").await;
    assert_eq!(desk.begin("one").await, in_progress(LEASE));
    assert_ne!(desk.take("another").await, token, "keys have nothing to do with each other");
    assert_eq!(desk.finish("one", token, b"7").await, Ownership::Yes);
    assert_eq!(desk.begin("one").await, done(b"7"));
    assert_eq!(desk.finish("one", token, b"8").await, Ownership::No, "it is done");
    assert_eq!(desk.renew("one", token).await, Ownership::No, "nothing is held any more");
    desk.store.release(&key("one"), token);
    desk.hands.forward(ALMOST_TTL);
    assert_eq!(desk.begin("one").await, done(b"7"), "to the last");
    desk.hands.forward(Duration::from_millis(1));
    assert!(desk.take("one").await > token, "and not longer; a later token is higher");
}

async fn a_lease_ends_unless_it_is_renewed(desk: &ContractBench<'_>) {
    let token = desk.take("leased").await;
    desk.hands.forward(HALF_A_LEASE);
    assert_eq!(desk.begin("leased").await, in_progress(HALF_A_LEASE));
    assert_eq!(desk.renew("leased", token).await, Ownership::Yes);
    assert_eq!(desk.begin("leased").await, in_progress(LEASE));
    desk.hands.forward(LEASE);
    assert_eq!(
        desk.renew("leased", token).await,
        Ownership::Yes,
        "it has ended, and no other caller took over"
    );
    desk.hands.forward(LEASE);
    assert_eq!(desk.finish("leased", token, b"late").await, Ownership::Yes, "the same");
    assert_eq!(desk.begin("leased").await, done(b"late"));
}

async fn who_was_overtaken_changes_nothing(desk: &ContractBench<'_>) {
    let slow = desk.take("overtaken").await;
    desk.hands.forward(LEASE);
    let next = desk.take("overtaken").await;
    assert!(next > slow, "a later token is higher");
    assert_eq!(desk.renew("overtaken", slow).await, Ownership::No);
    assert_eq!(desk.finish("overtaken", slow, b"slow").await, Ownership::No);
    desk.store.release(&key("overtaken"), slow);
    assert_eq!(desk.begin("overtaken").await, in_progress(LEASE), "the next still holds it");
    assert_eq!(desk.finish("overtaken", next, b"next").await, Ownership::Yes);
    assert_eq!(desk.finish("overtaken", slow, b"slow").await, Ownership::No);
    assert_eq!(desk.begin("overtaken").await, done(b"next"));
}

async fn a_mark_is_released_by_its_holder_only(desk: &ContractBench<'_>) {
    let token = desk.take("released").await;
    desk.store.release(&key("released"), FencingToken(token.0 + 1));
    assert_eq!(desk.begin("released").await, in_progress(LEASE));
    desk.store.release(&key("released"), token);
    let next = desk.take("released").await;
    assert!(next > token, "a later token is higher");
    assert_eq!(desk.finish("released", token, b"x").await, Ownership::No);
}

async fn a_result_is_dropped_on_demand_and_a_mark_is_not(desk: &ContractBench<'_>) {
    let token = desk.take("forgotten").await;
    let key = key("forgotten");
    desk.store.forget(&key).await.expect("the store is there");
    assert_eq!(desk.begin("forgotten").await, in_progress(LEASE));
    assert_eq!(desk.finish("forgotten", token, b"7").await, Ownership::Yes);
    desk.store.forget(&key).await.expect("the store is there");
    desk.store.forget(&key).await.expect("there is nothing to forget");
    assert!(desk.take("forgotten").await > token, "a later token is higher");
}
