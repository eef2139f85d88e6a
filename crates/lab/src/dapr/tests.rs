//! Both ways and round: what one way says, the other understands.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::model::{CircuitBreaker, Resiliency, Retry, RetryPace, TargetPolicies, TripOn};
use super::{DaprExport, Matching, Remark, export, import, read, write};
use redrive_core::book::connectors::built_in;
use redrive_core::book::model::{DaprTarget, Direction};
use redrive_core::book::patch::scalar;
use redrive_core::book::{self, RuleBook};
use redrive_core::policy::rule::StatusRange;

mod exporting;
mod importing;

fn book(text: &str) -> RuleBook {
    let reading = book::read(text, built_in());
    let problems = reading.problems.into_sorted();
    reading.book.unwrap_or_else(|| panic!("{problems:#?}\nin\n{text}"))
}

fn exported(text: &str) -> DaprExport {
    export(&book(text), Matching::AsStated)
}

/// All remarks in one text.
fn joined(remarks: &[Remark]) -> String {
    let lines: Vec<String> = remarks.iter().map(|Remark { what, why }| format!("{what}: {why}")).collect();
    lines.join("\n")
}

/// What a file does: its policies by name, and what holds for each target.
#[derive(Debug, PartialEq)]
struct Effect {
    timeouts: BTreeMap<String, Duration>,
    retries: BTreeMap<String, Retry>,
    breakers: BTreeMap<String, CircuitBreaker>,
    targets: BTreeMap<String, OfTarget>,
}

type OfTarget = (Option<Duration>, Option<Retry>, Option<CircuitBreaker>);

fn effect(text: &str) -> Effect {
    let resiliency =
        read::read(text).unwrap_or_else(|problems| panic!("{problems:#?}\nin\n{text}")).resiliency;
    let timeouts: BTreeMap<_, _> =
        resiliency.timeouts.into_iter().filter(|(_, limit)| !limit.is_zero()).collect();
    let mut retries: BTreeMap<_, _> = resiliency.retries.into_iter().collect();
    let breakers: BTreeMap<_, _> = resiliency.breakers.into_iter().collect();
    let of_target = |guards: &TargetPolicies| {
        let timeout = guards.timeout.as_ref().and_then(|name| timeouts.get(name).copied());
        let retry = guards.retry.as_ref().and_then(|name| retries.get(name).cloned());
        (timeout, retry, guards.breaker.as_ref().map(|name| breakers[name]))
    };
    let targets = resiliency
        .targets
        .iter()
        .map(|(target, guards)| (format!("{target:?}"), of_target(guards)))
        .collect();
    // What a policy retries matters where a target uses it.
    for retry in retries.values_mut() {
        retry.statuses = None;
    }
    Effect { timeouts, retries, breakers, targets }
}

/// Imports a file, exports it again, and holds the one against the other.
fn round_trip(file: &str) -> DaprExport {
    let imported = import(file.as_bytes()).unwrap_or_else(|problems| panic!("{problems:#?}\nin\n{file}"));
    let again = exported(&imported.book);
    assert_eq!(
        effect(&again.yaml),
        effect(file),
        "\n{file}\nbecame\n{}\nbecame\n{}",
        imported.book,
        again.yaml
    );
    again
}

/// The file of the failure and retry strategy, word for word but for its placeholders.
const TEMPLATE: &str = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata:
  name: todo-resiliency
  namespace: todo
spec:
  policies:
    retries:
      # Map to named retry policies from the catalog
      aggressive:
        policy: exponential
        maxInterval: 5s
        maxRetries: 3
      standard:
        policy: exponential
        maxInterval: 30s
        maxRetries: 5
      patient:
        policy: exponential
        maxInterval: 60s
        maxRetries: 8
      critical:
        policy: exponential
        maxInterval: 120s
        maxRetries: 12

    timeouts:
      fast: 5s
      default: 15s
      slow: 30s

    circuitBreakers:
      kafkaBreaker:
        maxRequests: 1
        interval: 60s
        timeout: 60s
        trip: consecutiveFailures > 5
      stateBreaker:
        maxRequests: 1
        interval: 30s
        timeout: 30s
        trip: consecutiveFailures > 3
      externalBreaker:
        maxRequests: 2
        interval: 120s
        timeout: 120s
        trip: consecutiveFailures > 5
      sidecarBreaker:
        maxRequests: 1
        interval: 15s
        timeout: 15s
        trip: consecutiveFailures > 3

  targets:
    components:
      pubsub-kafka:
        outbound:
          retry: standard
          timeout: default
          circuitBreaker: kafkaBreaker
        inbound:
          retry: standard
          timeout: slow
      statestore-redis:
        outbound:
          retry: aggressive
          timeout: fast
          circuitBreaker: stateBreaker
      statestore-postgres:
        outbound:
          retry: standard
          timeout: default
          circuitBreaker: stateBreaker
      binding-smtp-email:
        outbound:
          retry: patient
          timeout: slow
          circuitBreaker: externalBreaker
      binding-http-webhook:
        outbound:
          retry: patient
          timeout: slow
          circuitBreaker: externalBreaker

    apps:
      # Service invocation targets
      todo-api:
        retry: aggressive
        timeout: default
        circuitBreaker: sidecarBreaker
      notification-svc:
        retry: standard
        timeout: default
        circuitBreaker: sidecarBreaker
";

/// A file in which Dapr decides everything.
const ALL_DEFAULTS: &str = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata: { name: defaults }
scopes: [checkout, billing]
spec:
  policies:
    timeouts:
      general: 5s
      none-at-all: '0'
      negative: -1s
      day: 24h
      bare: '250'
    retries:
      plain: {}
      constant: { policy: Constant, maxInterval: 30s, maxRetries: 3 }
      growing: { policy: exponential, duration: 3s }
      short: { policy: exponential, maxInterval: 200ms, maxRetries: 4 }
      never: { maxRetries: 0 }
      some: { maxRetries: 2, matching: { httpStatusCodes: '429,500-599', gRPCStatusCodes: '1,8-14' } }
    circuitBreakers:
      plain: {}
      counted: { interval: 30s, trip: totalFailures >= 10 }
      endless: { trip: totalFailures >= 10, timeout: 0s, maxRequests: 0 }
      shared: { interval: 60s, trip: 'requests >= 20 && totalFailures * 100 >= requests * 50' }
  targets:
    apps:
      checkout: { retry: plain, timeout: general, circuitBreaker: plain, circuitBreakerCacheSize: 7 }
      billing: { retry: some, circuitBreaker: counted }
      'https://example.com/api': { retry: never, timeout: none-at-all }
      'true': {}
      slow: { timeout: day }
      slower: { timeout: negative }
    actors:
      Counter: { retry: constant, circuitBreaker: endless, circuitBreakerScope: type }
    components:
      statestore: { outbound: { retry: growing, circuitBreaker: shared }, inbound: { retry: short, timeout: bare } }
      typo: { outbound: { retry: plian } }
      ignored: { retry: plain }
";

#[test]
fn files_survive_the_round_trip() {
    let template = round_trip(TEMPLATE);
    let losses = joined(&template.losses);
    for own in ["initial", "factor", "jitter", "window", "15 minutes"] {
        assert!(!losses.contains(own), "Dapr's own exponential parameters are no loss: {own}\n{losses}");
    }
    assert!(!losses.contains("Redrive stops after 2"), "an imported book retries 500 as Dapr does\n{losses}");
    round_trip(ALL_DEFAULTS);
    round_trip("apiVersion: dapr.io/v1alpha1\nkind: Resiliency\nspec: {policies: {}, targets: {}}\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_files_survive_the_round_trip(resiliency in resiliencies()) {
        round_trip(&write::write(&resiliency));
    }

    #[test]
    fn any_text_is_imported_or_refused(text in any::<String>()) {
        let _ = import(text.as_bytes());
    }

    #[test]
    fn any_resource_is_imported_as_a_book_or_refused(spec in hostile_specs()) {
        let file = format!("apiVersion: dapr.io/v1alpha1\nkind: Resiliency\nspec: {spec}\n");
        if let Ok(imported) = import(file.as_bytes()) {
            let reading = book::read(&imported.book, built_in());
            let problems = reading.problems.into_sorted();
            prop_assert!(reading.book.is_some(), "{}\nbecame\n{}\n{problems:#?}", file, imported.book);
            let _ = exported(&imported.book);
        }
    }
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("none".to_owned()),
        Just("standard".to_owned()),
        "[a-z][a-zA-Z0-9.-]{0,6}",
        Just("true".to_owned())
    ]
}

fn spans() -> impl Strategy<Value = Duration> {
    (0..3_600_000_u64).prop_map(Duration::from_millis)
}

fn long_spans() -> impl Strategy<Value = Duration> {
    (1..3_600_000_u64).prop_map(Duration::from_millis)
}

fn retries() -> impl Strategy<Value = Retry> {
    let pace = prop_oneof![
        spans().prop_map(RetryPace::Constant),
        spans().prop_map(|max| RetryPace::Exponential { max })
    ];
    let range = (400..=599_u16, 0..50_u16)
        .prop_map(|(first, more)| StatusRange { first, last: (first + more).min(599) });
    let statuses = proptest::option::of(proptest::collection::vec(range, 0..4));
    (pace, proptest::option::of(0..1_000_u32), statuses).prop_map(|(pace, retries, statuses)| Retry {
        pace,
        retries,
        statuses: statuses.map(|ranges| super::matching::failures(&ranges)),
    })
}

fn breakers() -> impl Strategy<Value = CircuitBreaker> {
    let trip = prop_oneof![
        (1..100_u32).prop_map(TripOn::Consecutive),
        (1..100_u32).prop_map(TripOn::Failures),
        (1..=100_000_u32, 1..100_u32)
            .prop_map(|(thousandths, of_at_least)| TripOn::FailureRate { thousandths, of_at_least }),
    ];
    (1..10_u32, proptest::option::of(long_spans()), long_spans(), trip).prop_map(
        |(max_requests, interval, timeout, trip)| CircuitBreaker { max_requests, interval, timeout, trip },
    )
}

fn targets() -> impl Strategy<Value = DaprTarget> {
    prop_oneof![
        names().prop_map(|name| DaprTarget::Component { name, direction: Direction::Outbound }),
        names().prop_map(|name| DaprTarget::Component { name, direction: Direction::Inbound }),
        "\\PC{1,8}".prop_map(DaprTarget::App),
        "\\PC{1,8}".prop_map(DaprTarget::Actor),
    ]
}

prop_compose! {
    fn resiliencies()(
        retries in proptest::collection::btree_map("[a-z][a-zA-Z0-9.-]{0,6}", retries(), 0..4),
        timeouts in proptest::collection::btree_map("[a-z][a-zA-Z0-9.-]{0,6}", spans(), 0..4),
        breakers in proptest::collection::btree_map("[a-z][a-zA-Z0-9.-]{0,6}", breakers(), 0..4),
        targets in proptest::collection::vec((targets(), any::<[u8; 3]>()), 0..8),
    ) -> Resiliency {
        let pick = |names: Vec<&String>, at: u8| names.get(usize::from(at % 5)).map(|name| (*name).clone());
        let mut unique: Vec<(DaprTarget, TargetPolicies)> = Vec::new();
        for (target, [retry, timeout, breaker]) in targets {
            if unique.iter().all(|(known, _)| *known != target) {
                unique.push((target, TargetPolicies {
                    retry: pick(retries.keys().collect(), retry),
                    timeout: pick(timeouts.keys().collect(), timeout),
                    breaker: pick(breakers.keys().collect(), breaker),
                }));
            }
        }
        Resiliency {
            retries: retries.into_iter().collect(),
            timeouts: timeouts.into_iter().collect(),
            breakers: breakers.into_iter().collect(),
            targets: unique,
            ..Resiliency::default()
        }
    }
}

/// Specs of about the right shape, with names and values of any kind, in one line.
fn hostile_specs() -> impl Strategy<Value = String> {
    const KEYS: &[&str] = &[
        "policy",
        "duration",
        "maxInterval",
        "maxRetries",
        "maxRequests",
        "interval",
        "timeout",
        "trip",
        "retry",
        "circuitBreaker",
        "outbound",
        "inbound",
        "matching",
        "circuitBreakerScope",
    ];
    let word = prop_oneof![
        "\\PC{0,6}".prop_map(|text| scalar(&text)),
        Just("5s".to_owned()),
        Just("-1".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("none".to_owned()),
        Just("dead-letter".to_owned()),
        Just("unlimited".to_owned()),
        Just("10s".to_owned()),
        Just("exponential".to_owned()),
        Just("consecutiveFailures > 5".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("null".to_owned()),
    ];
    let fields = proptest::collection::btree_map(proptest::sample::select(KEYS), word.clone(), 0..4)
        .prop_map(|fields| {
            let fields = fields.into_iter().map(|(key, value)| format!("{key}: {value}"));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        });
    let entry = prop_oneof![3 => fields, 1 => word.clone()];
    let name = prop_oneof![
        "\\PC{0,5}".prop_map(|text| scalar(&text)),
        "[a-c]",
        Just("none".to_owned()),
        Just("10s".to_owned())
    ];
    let section = proptest::collection::btree_map(name, entry, 0..4).prop_map(|entries| {
        let entries = entries.into_iter().map(|(key, value)| format!("{key}: {value}"));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
    });
    [section.clone(), section.clone(), section.clone(), section.clone(), section.clone(), section].prop_map(
        |[timeouts, retries, breakers, apps, actors, components]| {
            format!(
                "{{policies: {{timeouts: {timeouts}, retries: {retries}, circuitBreakers: {breakers}}}, \
                 targets: {{apps: {apps}, actors: {actors}, components: {components}}}}}"
            )
        },
    )
}
