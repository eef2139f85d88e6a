//! A bad deploy: ten thousand dead letters of two causes; one cause is mended, the other is not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{accept_all, by_session, dead, groups, letters, replay, sequence, text, until_state};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Say, Target, book, status};

const LETTERS: usize = 10_000;
const SESSIONS: usize = 500;

/// Refuses orders until it is mended, and cancellations always.
fn bad_deploy(mended: Arc<AtomicBool>) -> Target {
    Target::start(move |call: &Call| match call.header("ce-type") {
        "orders.placed" if mended.load(Ordering::SeqCst) => status(200),
        "orders.placed" => Say::Status(422, "", format!("order {} has no field `total`", call.event_id())),
        _ => Say::Status(400, "", "no such customer".to_owned()),
    })
}

fn cause<'a>(groups: &'a [Value], event_type: &str) -> &'a Value {
    let has_type = |group: &&Value| group["event_types"].to_string().contains(event_type);
    groups.iter().find(has_type).unwrap_or_else(|| panic!("a group of {event_type}: {groups:?}"))
}

fn assert_each_once_and_in_order(target: &Target) {
    let calls = target.calls();
    let delivered: Vec<&Call> = calls.iter().filter(|call| call.answered == Some(200)).collect();
    let distinct: BTreeSet<&str> = delivered.iter().map(|call| call.webhook_id()).collect();
    assert_eq!((delivered.len(), distinct.len()), (LETTERS / 2, LETTERS / 2), "each once");
    for (session, calls) in by_session(delivered) {
        assert!(calls.is_sorted_by_key(|call| sequence(call)), "{session} is in order");
    }
}

#[test]
fn a_bad_deploy_is_seen_mended_and_replayed() {
    let mended = Arc::new(AtomicBool::new(false));
    let target = bad_deploy(Arc::clone(&mended));
    let folder = Folder::with("redrive.yaml", &book(&target, &["order: session"]));
    let server = Server::start(&folder);
    let address = format!("http://{}", server.client.address);
    let redrive = |arguments: &[&str]| folder.run(&[arguments, &["--server", &address]].concat());

    let events: Vec<(String, String, String)> = (0..LETTERS)
        .map(|number| {
            let event_type = if number % 2 == 0 { "orders.placed" } else { "orders.cancelled" };
            // Sessions of one type, so that a failure of the one does not keep the other from going.
            (event_type.to_owned(), format!("e{number:05}"), format!("s{}", number % SESSIONS))
        })
        .collect();
    accept_all(&server, &events);
    until("all of them are dead", || (dead(&server) == LETTERS as u64).then_some(()));

    // Ten thousand failures read as two lines.
    let shown = redrive(&["dlq", "groups"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let found = groups(&server);
    assert_eq!(found.len(), 2, "{found:?}");
    for group in &found {
        assert_eq!(group["count"], (LETTERS / 2) as u64, "{group}");
        assert!(shown.stdout.contains(text(&group["fingerprint"])), "{}", shown.stdout);
    }
    let placed = text(&cause(&found, "orders.placed")["fingerprint"]).to_owned();
    let cancelled = text(&cause(&found, "orders.cancelled")["fingerprint"]).to_owned();

    let dry =
        super::post(&server, "/v1/replays", &json!({ "fingerprint": placed, "dry_run": true, "rate": 100 }));
    let dry = dry.json();
    assert_eq!(dry["letters"], (LETTERS / 2) as u64, "{dry}");
    assert_eq!(dry["sessions"], (SESSIONS / 2) as u64, "{dry}");
    assert_eq!(dry["estimated_seconds"].as_f64().map(f64::round), Some(50.0), "{dry}");
    assert_eq!(target.count(), LETTERS, "a dry run sends nothing");

    // Nothing is mended yet: the canary sends one letter and stops.
    let stopped = redrive(&["dlq", "replay", "--fingerprint", &placed, "--canary"]);
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert_eq!(target.count(), LETTERS + 1, "one letter was sent");
    let first = replay(&server, 1);
    assert_eq!((text(&first["state"]), &first["failed"]), ("stopped", &json!(1)), "{first}");

    // Mended: it goes on with one, then ten, then the rest. The one that failed is poison, and the rest of
    // its session stays dead.
    mended.store(true, Ordering::SeqCst);
    let resumed = redrive(&["replays", "1", "resume"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let done = until_state(&server, 1, "done");
    let per_session = LETTERS / SESSIONS;
    assert_eq!(done["left"], (per_session - 1) as u64, "{done}");
    assert_eq!(done["delivered"], (LETTERS / 2 - per_session) as u64, "{done}");
    let poison = letters(&server, "tier=poison");
    assert_eq!(poison.len(), 1, "{poison:?}");
    let rest = redrive(&[
        "dlq",
        "replay",
        "--fingerprint",
        &placed,
        "--include-poison",
        "--note",
        "the field was restored",
    ]);
    assert_eq!(rest.code, 0, "{rest:?}");

    assert_each_once_and_in_order(&target);
    assert_eq!(dead(&server), (LETTERS / 2) as u64);

    // The other cause is not mended, and its canary finds out with one letter.
    let before = target.count();
    let stopped = redrive(&["dlq", "replay", "--fingerprint", &cancelled, "--canary"]);
    assert_eq!((stopped.code, target.count()), (1, before + 1), "{stopped:?}");
    assert!(stopped.stderr.contains("resume") || stopped.stdout.contains("resume"), "{stopped:?}");
    assert_eq!(redrive(&["replays", "3", "cancel"]).code, 0);
    for _ in 0..2 {
        let refused = redrive(&["replays", "3", "resume"]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("cancelled"), "{refused:?}");
    }
    server.assert_calm();
}
