//! What every shared state must do, whatever it keeps its records in. It must be empty to begin with.

use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{BreakerPhase, Generation};
use redrive_core::time::Timestamp;

use super::{BreakerRecord, SharedState, Swap};

fn name(text: &str) -> DependencyName {
    DependencyName::new(text).expect("a name")
}

/// A record as a breaker would write it.
pub(crate) fn record(dependency: &str, generation: u64, state: BreakerPhase) -> BreakerRecord {
    let at = |millis| Timestamp::from_millis(1_000_000 + millis);
    let opened_at = (state != BreakerPhase::Closed).then_some(at(generation));
    BreakerRecord {
        service_name: name(dependency),
        state,
        failure_count: 5,
        last_failure_at: Some(at(1)),
        last_success_at: None,
        opened_at,
        open_until: (state == BreakerPhase::Open).then_some(at(30_000)),
        generation: Generation(generation),
        expires_at: Timestamp::NEVER,
    }
}

/// Asserts the whole contract.
pub(crate) async fn holds(state: &dyn SharedState) {
    let (d, other) = (name("d"), name("other"));
    assert_eq!(state.load(&d).await.expect("it is there"), None, "it begins empty");
    let opened = record("d", 1, BreakerPhase::Open);
    let swap = async |expected: Option<&BreakerRecord>, record: &BreakerRecord| {
        state.swap(expected, record).await.expect("it is there")
    };
    assert_eq!(swap(Some(&opened), &opened).await, Swap::Beaten, "what was expected is not there");
    assert_eq!(swap(None, &opened).await, Swap::Written);
    assert_eq!(state.load(&d).await.expect("it is there").as_ref(), Some(&opened), "read as it was written");
    assert_eq!(state.load(&other).await.expect("it is there"), None, "each dependency has its own");
    assert_eq!(swap(None, &opened).await, Swap::Beaten, "another record was first");

    let trying = record("d", 2, BreakerPhase::HalfOpen);
    assert_eq!(
        swap(Some(&record("d", 1, BreakerPhase::HalfOpen)), &trying).await,
        Swap::Beaten,
        "another state"
    );
    assert_eq!(
        swap(Some(&record("d", 0, BreakerPhase::Open)), &trying).await,
        Swap::Beaten,
        "another generation"
    );
    let counted_on = BreakerRecord { failure_count: 9, ..opened.clone() };
    assert_eq!(
        swap(Some(&counted_on), &trying).await,
        Swap::Written,
        "only generation and state are compared"
    );
    assert_eq!(state.load(&d).await.expect("it is there").as_ref(), Some(&trying));
    assert_eq!(swap(None, &record("other", 1, BreakerPhase::Open)).await, Swap::Written);
    assert_eq!(state.load(&d).await.expect("it is there").as_ref(), Some(&trying), "the other is no matter");
}
