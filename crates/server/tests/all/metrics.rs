//! What scrapers and scripts read of a real server.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::inside::break_the_store;
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, book, status};

/// A server that has delivered, retried, buried, refused and met a stranger's event and a duplicate.
fn busy() -> (Target, Folder, Server) {
    let target = Target::start(|call| match (call.event_id(), call.nth) {
        ("o-dead", _) => status(422),
        ("o-again", 1) => status(503),
        _ => status(200),
    });
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    for (event_type, id) in [
        ("orders.placed", "o-well"),
        ("orders.placed", "o-again"),
        ("orders.paid", "o-dead"),
        ("nobody.wants", "o-unrouted"),
    ] {
        server.accept(event_type, id, "");
    }
    server.post("/v1/events/orders.placed", "idempotency-key: o-well\r\n", "{\"id\":\"o-well\"}");
    for (id, state) in [("o-well", "delivered"), ("o-again", "delivered"), ("o-dead", "dead")] {
        server.until(id, state);
    }
    until("all of it is counted", || {
        let page = server.get("/metrics").body;
        let dead = "redrive_deliveries_total{service=\"orders\",channel=\"\",outcome=\"dead\"} 1\n";
        (page.contains(dead) && page.contains("outcome=\"delivered\"} 2\n")).then_some(())
    });
    (target, folder, server)
}

#[test]
fn a_page_has_every_figure_by_its_name() {
    let (_target, _folder, server) = busy();
    let answer = server.get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    #[rustfmt::skip]
    let expected = [
        "redrive_events_accepted_total 4",
        "redrive_events_duplicates_total 1",
        "redrive_events_unrouted_total 1",
        "redrive_unrouted 1",
        "redrive_stranded 0",
        "redrive_attempts_total{service=\"orders\",channel=\"\",event_type=\"orders.placed\",outcome=\"delivered\"} 2",
        "redrive_attempts_total{service=\"orders\",channel=\"\",event_type=\"orders.placed\",outcome=\"failed\"} 1",
        "redrive_failures_total{service=\"orders\",channel=\"\",event_type=\"orders.placed\",category=\"transient\"} 1",
        "redrive_failures_by_code_total{service=\"orders\",channel=\"\",code=\"SERVICE_UNAVAILABLE\"} 1",
        "redrive_deliveries_retried_total{service=\"orders\",channel=\"\"} 1",
        "redrive_dead_letters{service=\"orders\",channel=\"\"} 1",
        "redrive_waiting{service=\"orders\",channel=\"\"} 0",
        "redrive_oldest_waiting_age_seconds{service=\"orders\",channel=\"\"} 0",
        "redrive_attempts_per_delivery_bucket{service=\"orders\",channel=\"\",le=\"1\"} 2",
        "redrive_attempts_per_delivery_sum{service=\"orders\",channel=\"\"} 4",
        "redrive_attempt_duration_seconds_count{service=\"orders\",channel=\"\"} 4",
        "redrive_redelivered_seconds_count 1",
        "redrive_activity_total{what=\"accepted\"} 3",
        "redrive_activity_total{what=\"unrouted\"} 1",
        "redrive_activity_total{what=\"delivered\"} 2",
        "redrive_activity_total{what=\"retrying\"} 1",
        "redrive_activity_total{what=\"dead\"} 1",
        "redrive_activity_total{what=\"store-failing\"} 0",
    ];
    for line in expected {
        assert!(answer.body.lines().any(|found| found == line), "{line}\n{}", answer.body);
    }
    insta::assert_snapshot!("page", masked(&answer.body));
    server.stop().assert_calm();
}

/// The page without its numbers, and of each histogram only the first and the last range.
fn masked(page: &str) -> String {
    let mut masked = String::new();
    for line in page.lines() {
        let is_range =
            line.contains("_bucket{") && !line.contains("le=\"+Inf\"") && !line.contains("le=\"1\"");
        if is_range {
            continue;
        }
        let line = line.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        match line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
            Some((figure, _)) => writeln!(masked, "{figure} N"),
            None => writeln!(masked, "{line}"),
        }
        .expect("a text takes everything");
    }
    masked
}

#[test]
fn promtool_has_nothing_to_say_about_the_page() {
    let (_target, _folder, server) = busy();
    let page = server.get("/metrics").body;
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().expect("promtool is there: Debian's package `prometheus` has it");
    check.stdin.take().expect("it is piped").write_all(page.as_bytes()).expect("it reads");
    let output = check.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.success(), &*said), (true, ""));
}

#[test]
fn figures_as_json_are_fresh_and_say_the_same() {
    let (_target, _folder, server) = busy();
    let figures = server.get("/v1/metrics").json();
    assert_eq!((figures["state"].as_str(), figures.get("missing")), (Some("fresh"), None), "{figures}");
    assert!(figures["age_ms"].as_u64().is_some_and(|age| age < 60_000), "{figures}");
    let engine = &figures["engine"];
    let numbers =
        ["accepted", "duplicates", "unrouted", "attempts", "failed", "retried", "delivered", "dead"];
    let numbers = numbers.map(|name| engine[name].as_u64().unwrap_or_else(|| panic!("{name}: {engine}")));
    assert_eq!(numbers, [4, 1, 1, 4, 2, 1, 2, 1]);
    assert_eq!(engine["by_category"]["transient"], 1);
    assert_eq!(engine["by_code"]["SERVICE_UNAVAILABLE"], 1);
    assert_eq!(figures["counts"]["services"][0]["dead"], 1);
    assert!(figures["oldest"][0]["dead_since"].is_string(), "{figures}");
    assert_eq!(figures["oldest"][0].get("waiting_since"), None, "{figures}");
}

#[test]
fn the_size_of_the_store_is_that_of_its_files() {
    let (_target, folder, server) = busy();
    let told = server.get("/v1/metrics").json()["counts"]["store_bytes"].as_u64().expect("a number");
    let files = ["redrive.db", "redrive.db-wal"].map(|name| folder.path("data").join(name));
    let size: u64 = files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    assert!(told > 0 && told <= size, "{told} of {size}");
    let page = server.get("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix("redrive_store_bytes "));
    assert!(line.and_then(|bytes| bytes.parse::<f64>().ok()).is_some_and(|bytes| bytes > 0.0), "{line:?}");
}

#[test]
fn a_store_that_breaks_leaves_figures_as_they_were_and_says_so() {
    let (_target, folder, server) = busy();
    assert_eq!(server.get("/v1/metrics").json()["state"], "fresh");
    break_the_store(&folder.path("data"));
    let stale = until("the store cannot be read", || {
        let answer = server.get("/v1/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        Some(answer.json()).filter(|figures| figures["state"] != "fresh")
    });
    assert_eq!((&stale["state"], stale.get("missing")), (&json!("stale"), None), "{stale}");
    assert_eq!(stale["counts"]["services"][0]["dead"], 1, "as it was: {stale}");
    assert!(stale["trouble"].as_object().is_some_and(|parts| !parts.is_empty()), "{stale}");
    assert_eq!(stale["trouble"].get("engine"), None, "{stale}");
    let told = stale["trouble"].to_string().to_lowercase();
    assert!(
        !told.contains("data/") && !told.contains("sqlite"),
        "where it lies is for the log alone: {told}"
    );
}

#[test]
fn a_store_that_was_never_read_leaves_the_engine_its_say() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    break_the_store(&folder.path("data"));
    let partial = until("a part of the store cannot be read", || {
        let answer = server.get("/v1/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        Some(answer.json()).filter(|figures| figures["state"] == "partial")
    });
    assert_eq!(partial["engine"]["delivered"], 1, "{partial}");
    let missing = partial["missing"].as_array().expect("a list");
    assert!(!missing.is_empty() && !missing.contains(&json!("engine")), "{partial}");
    for part in missing {
        let part = part.as_str().expect("a name");
        assert_eq!(partial.get(part), None, "{partial}");
        assert!(partial["trouble"][part].is_string(), "{partial}");
    }
    let page = server.get("/metrics");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("\nredrive_events_accepted_total 1\n"), "{}", page.body);
}
