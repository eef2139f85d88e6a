//! The four results as conditions get worse: fresh, stale, partial, none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use redrive::stale::StaleCache;
use redrive_node::runtime::Snapshot;
use serde_json::Value;

use super::*;
use crate::status::metrics::gather::{NoPart, plan};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Fails,
    Hangs,
}

#[derive(Clone)]
struct Asked(Arc<Mutex<Mood>>);

impl Asked {
    fn new(mood: Mood) -> Self {
        Self(Arc::new(Mutex::new(mood)))
    }

    fn turn(&self, mood: Mood) {
        *self.0.lock().expect("no panic while holding the lock") = mood;
    }

    fn cache<T: Clone + Send + Sync + 'static>(&self, value: T) -> StaleCache<T, NoPart> {
        let asked = self.clone();
        StaleCache::new(plan(), move || {
            let (mood, value) = (*asked.0.lock().expect("no panic while holding the lock"), value.clone());
            async move {
                match mood {
                    Mood::Well => Ok(value),
                    Mood::Fails => Err(NoPart("the disk is gone".to_owned())),
                    Mood::Hangs => std::future::pending().await,
                }
            }
        })
    }
}

fn metrics(engine: &Asked, store: &Asked) -> Metrics {
    let snapshot = Snapshot {
        queues: Vec::new(),
        dependencies: Vec::new(),
        calls: 3,
        stale: 0,
        figures: Arc::default(),
    };
    let stock = StoreTotals { open_replays: 2, ..StoreTotals::default() };
    Metrics {
        engine: engine.cache(snapshot),
        counts: store.cache(stock),
        oldest: store.cache(BTreeMap::new()),
        spans: None,
    }
}

async fn asked(metrics: &Metrics) -> (u16, Value) {
    let response = answer(metrics, NOW).await.unwrap_or_else(IntoResponse::into_response);
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("it is at hand").to_bytes();
    (status, serde_json::from_slice(&body).expect("it is JSON"))
}

#[tokio::test(start_paused = true)]
async fn figures_are_fresh_else_stale_else_partial_else_none() {
    let (engine, store) = (Asked::new(Mood::Well), Asked::new(Mood::Well));
    let metrics = metrics(&engine, &store);
    let (status, fresh) = asked(&metrics).await;
    assert_eq!((status, fresh["state"].as_str()), (200, Some("fresh")));
    assert_eq!((fresh["age_ms"].as_u64(), fresh.get("missing"), fresh.get("trouble")), (Some(0), None, None));
    assert_eq!(fresh["engine"]["calls_in_flight"], 3);

    tokio::time::advance(Duration::from_secs(60)).await;
    store.turn(Mood::Fails);
    let (status, stale) = asked(&metrics).await;
    assert_eq!((status, stale["state"].as_str()), (200, Some("stale")));
    assert_eq!(stale["age_ms"], 60_000);
    assert_eq!(stale["at"], "2023-11-14T22:12:20Z", "of when the oldest part of it is");
    assert_eq!(stale["counts"]["open_replays"], 2, "as it was");
    assert_eq!(stale["trouble"]["counts"], "the disk is gone");
    assert_eq!(stale["trouble"].get("engine"), None);

    tokio::time::advance(Duration::from_secs(15 * 60)).await;
    store.turn(Mood::Hangs);
    let (status, partial) = asked(&metrics).await;
    assert_eq!((status, partial["state"].as_str()), (200, Some("partial")));
    assert_eq!(partial["missing"], serde_json::json!(["counts", "oldest"]), "too old to be told");
    assert_eq!(partial["trouble"]["oldest"], "no result within 2s");
    assert_eq!((partial.get("counts"), partial["engine"]["calls_in_flight"].as_u64()), (None, Some(3)));

    tokio::time::advance(Duration::from_secs(16 * 60)).await;
    engine.turn(Mood::Fails);
    let (status, none) = asked(&metrics).await;
    assert_eq!((status, none["error"]["code"].as_str()), (503, Some("SERVICE_UNAVAILABLE")));

    tokio::time::advance(Duration::from_secs(1)).await;
    engine.turn(Mood::Well);
    store.turn(Mood::Well);
    assert_eq!(asked(&metrics).await.1["state"], "fresh", "and back");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answered_leaves_the_engine_its_say() {
    let (engine, store) = (Asked::new(Mood::Well), Asked::new(Mood::Hangs));
    let (status, partial) = asked(&metrics(&engine, &store)).await;
    assert_eq!((status, partial["state"].as_str()), (200, Some("partial")));
    assert!(partial["age_ms"].as_u64().is_some_and(|age| age <= 2_000), "the engine's answer waits beside");
}

/// Writes the table instead of comparing it: `REDRIVE_UPDATE=1 cargo test -p redrive-server docs_metrics`.
#[test]
fn docs_metrics_md_is_up_to_date() {
    const BEGIN: &str = "<!-- The table is made of the code. -->\n";
    const END: &str = "<!-- Here it ends. -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).expect("it is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins somewhere");
    let (table, after) = rest.split_once(END).expect("and ends");
    let mut rows = String::from("| metric | kind | labels | |\n| --- | --- | --- | --- |\n");
    for metric in redrive_core::metric_names::ALL {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let kind = metric.kind.as_str();
        rows.push_str(&format!("| `{}` | {kind} | {} | {} |\n", metric.name, labels.join(", "), metric.help));
    }
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{rows}{END}{after}")).expect("it can be written");
        return;
    }
    let update = "run REDRIVE_UPDATE=1 cargo test -p redrive-server docs_metrics";
    assert_eq!(table, rows, "docs/reference/metrics.md is out of date: {update}");
}
