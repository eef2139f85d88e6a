//! Dead letters sent again by the real server: the story of a bad deploy, kills in the middle, sessions that
//! wait, and letters that come back by themselves.

mod automatic;
mod kill;
mod odd;
mod story;
mod strict;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::client::Answer;
use crate::server::{Server, until};
use crate::target::Call;

/// Posts events in batches; each is a type, an id and a session.
#[track_caller]
fn accept_all(server: &Server, events: &[(String, String, String)]) {
    for batch in events.chunks(1_000) {
        let mut body = String::from("[");
        for (place, (event_type, id, session)) in batch.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let event = json!({
                "specversion": "1.0", "type": event_type, "id": id, "source": "/tests", "partitionkey": session,
                "data": { "id": id },
            });
            write!(body, "{comma}{event}").expect("a string takes everything");
        }
        body.push(']');
        let answer = server.post("/v1/events", "content-type: application/cloudevents-batch+json\r\n", &body);
        assert_eq!(answer.status, 202, "{answer:?}");
    }
}

#[track_caller]
fn post(server: &Server, path: &str, body: &Value) -> Answer {
    server.post(path, "content-type: application/json\r\n", body.to_string())
}

/// Begins a replay and says its number.
#[track_caller]
fn begin(server: &Server, wish: &Value) -> u64 {
    let answer = post(server, "/v1/replays", wish);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_u64().expect("replays are numbered")
}

#[track_caller]
fn replay(server: &Server, id: u64) -> Value {
    let answer = server.get(&format!("/v1/replays/{id}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Waits until a replay is in that state.
#[track_caller]
fn until_state(server: &Server, id: u64, state: &str) -> Value {
    let mut last = Value::Null;
    until(&format!("replay {id} is {state}"), || {
        last = replay(server, id);
        assert!(last["state"] == state || last["state"] != "done", "it is over: {last}");
        (last["state"] == state).then(|| last.clone())
    })
}

#[track_caller]
fn dead(server: &Server) -> u64 {
    let status = server.status();
    let services = status["services"].as_array().expect("a list");
    services.iter().map(|service| service["dead"].as_u64().expect("a number")).sum()
}

#[track_caller]
fn letters(server: &Server, query: &str) -> Vec<Value> {
    let answer = server.get(&format!("/v1/dead-letters?{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["dead_letters"].as_array().expect("a list").clone()
}

#[track_caller]
fn groups(server: &Server) -> Vec<Value> {
    let answer = server.get("/v1/failure-groups");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["groups"].as_array().expect("a list").clone()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The calls of each session, in the order in which they came.
fn by_session<'a>(calls: impl IntoIterator<Item = &'a Call>) -> BTreeMap<String, Vec<&'a Call>> {
    let mut sessions: BTreeMap<String, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        sessions.entry(call.header("ce-partitionkey").to_owned()).or_default().push(call);
    }
    sessions
}

fn sequence(call: &Call) -> u64 {
    call.header("redrive-sequence").parse().expect("a call of a session has its place")
}
