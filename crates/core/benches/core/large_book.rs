//! A rule book of so many services with so many events each, as a large house would have it.

use std::fmt::Write;

/// The book as text: policies, breakers, dependencies, overrides and rows that differ.
pub(crate) fn large_book(services: usize, events: usize) -> String {
    let mut book = String::from(
        "version: 1\n\
         defaults: { retry: standard, timeout: 15s, idempotency: { by: event-id, ttl: 7d } }\n\
         retry_policies:\n  overnight: { initial: 30s, factor: 2, max: 1h, retries: 10, window: 8h, jitter: full }\n\
         dependencies:\n  kafka: { kind: kafka, breaker: kafkaBreaker, facts: { rate: 500/s, p99: 50ms } }\n\
         services:\n",
    );
    for service in 0..services {
        let _ = write!(
            book,
            "  service-{service}:\n    target: {{ http: \"http://127.0.0.1:9000/{service}\" }}\n    depends_on: kafka\n    \
             on_failure: {{ 503: aggressive, fatal: pause }}\n    \
             classify: [{{ status: 404, as: transient, because: \"the index follows later\" }}]\n    events:\n"
        );
        for event in 0..events {
            let extra = match event % 5 {
                0 => "",
                1 => ", timeout: 10s",
                2 => ", retry: critical, criticality: critical",
                3 => ", retry: overnight, timeout: slow",
                _ => ", facts: { idempotent_by: upsert }",
            };
            let _ = writeln!(book, "      - {{ type: shop.area-{event}.event-{service}{extra} }}");
        }
    }
    book
}
