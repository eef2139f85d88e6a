//! What must hold whatever happened: the doctor looks at any life of a server, by any policy, and comes to an end.

use proptest::prelude::*;
use proptest::sample::select;

use super::sketch::Sketch;
use crate::doctor::examine;

/// Policies of all shapes, and those of the catalog.
fn policy() -> impl Strategy<Value = (String, String)> {
    let retries =
        prop_oneof![(0..5_u32).prop_map(|retries| retries.to_string()), Just("unlimited".to_owned())];
    let delays = select(vec!["initial: 1s, max: 30s", "initial: 30s, max: 1h", "delays: [5s, 5m, 10h]"]);
    let window = select(vec!["", ", window: 1s", ", window: 10d"]);
    let own = (delays, retries, window).prop_map(|(delays, retries, window)| {
        let policies = format!("retry_policies: {{ own: {{ {delays}, retries: {retries}{window} }} }}\n");
        (policies, "retry: own".to_owned())
    });
    let of_catalog = select(vec!["none", "aggressive", "standard", "critical", "upstream"]);
    prop_oneof![own, of_catalog.prop_map(|name| (String::new(), format!("retry: {name}")))]
}

/// How a delivery goes, in the words of a sketch.
fn delivery() -> impl Strategy<Value = String> {
    let attempt = select(vec![
        "ok 1ms",
        "ok 3s",
        "503 1ms",
        "timeout 3s",
        "timeout 9s",
        "429 1ms",
        "422 1ms",
        "404* 1ms",
        "held",
        "after 9h",
    ]);
    let end = select(vec![
        "",
        "waits",
        "dead MAX_RETRIES_EXCEEDED",
        "dead RETRY_WINDOW_EXCEEDED",
        "dead HOLD_EXPIRED",
        "dead CIRCUIT_BREAKER_OPEN",
        "dead UNPROCESSABLE",
    ]);
    (prop::collection::vec(attempt, 0..7), end)
        .prop_map(|(attempts, end)| format!("{} {end}", attempts.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_deliveries_under_any_policy_can_be_looked_at(
        (policies, retry) in policy(),
        (policies_now, retry_now) in policy(),
        kinds in prop::collection::vec((delivery(), 1..30_usize), 0..6),
        apart in select(vec!["1ms", "1s", "5m", "3h"]),
    ) {
        let service = |retry: &str| format!("{retry}\n| timeout: 3s\n| classify: [{{ status: 404, as: transient }}]");
        let life = |sketch: Sketch| {
            kinds.iter().fold(sketch.apart(apart), |sketch, (words, count)| sketch.deliveries(*count, words))
        };
        let sketch = life(Sketch::new(&policies, &service(&retry)));
        let deliveries: usize = kinds.iter().map(|(_, count)| count).sum();
        let examined = examine(&sketch.evidence());
        prop_assert_eq!(examined.looked_at.deliveries, deliveries as u64);
        // The book reads otherwise by now.
        let changed = Sketch::new(&policies_now, &service(&retry_now));
        let mut evidence = sketch.evidence();
        evidence.book = changed.evidence().book;
        prop_assert_eq!(examine(&evidence).looked_at, examined.looked_at);
    }
}
