//! Who somebody is, and what they may do to breakers, at a real server.

use serde_json::json;

use crate::identity::{bearer, create, get, key_on_folder};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, book};

/// A book with two services, one of which has no breaker.
fn two_services(target: &Target) -> String {
    let url = target.url();
    book(target, &["depends_on: shop"])
        + &format!(
            "  mail:
    target: {{ http: \"{url}\" }}
    breaker: none
    events: [\"mail.*\"]
dependencies:
  shop: {{ kind: webhook, breaker: patient }}
breakers:
  patient: {{ trip: {{ consecutive: 3 }}, open: 1h }}
"
        )
}

#[test]
fn everybody_is_told_who_they_are() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    let anonymous = server.get("/v1/whoami").json();
    assert_eq!((&anonymous["authentication"], &anonymous["role"]), (&json!("off"), &json!("admin")));
    assert_eq!(anonymous["may"], json!(["send", "read", "operate", "administer"]));
    assert_eq!((&anonymous["name"], anonymous.get("services")), (&json!("anonymous"), None));
    server.stop().assert_calm();

    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    assert_eq!(server.get("/v1/whoami").error(), (401, "UNAUTHORIZED".to_owned()));
    #[rustfmt::skip]
    let cases = [
        (json!({ "name": "looks", "role": "viewer" }),   json!(["read"]),                    None),
        (json!({ "name": "works", "role": "operator", "services": ["orders"] }),
                                                         json!(["send", "read", "operate"]), Some(json!(["orders"]))),
        (json!({ "name": "sends", "role": "ingest" }),   json!(["send"]),                    None),
    ];
    for (wish, may, services) in cases {
        let key = create(&server, &admin, &wish);
        let whoami = get(&server, "/v1/whoami", &key).json();
        assert_eq!(whoami["authentication"], "on");
        assert_eq!((&whoami["name"], &whoami["role"]), (&wish["name"], &wish["role"]));
        assert_eq!((&whoami["may"], whoami.get("services")), (&may, services.as_ref()), "{wish}");
    }
    server.stop().assert_calm();
}

#[test]
fn a_breaker_is_turned_by_those_who_may() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    let viewer = create(&server, &admin, &json!({ "name": "looks", "role": "viewer" }));
    let bound = json!({ "name": "works", "role": "operator", "services": ["mail"] });
    let bound = create(&server, &admin, &bound);
    for key in [&viewer, &bound] {
        let refused = server.post("/v1/dependencies/shop/trip", &bearer(key), "{}");
        assert_eq!(refused.error(), (403, "FORBIDDEN".to_owned()));
    }
    let named = |key: &str| {
        let found = get(&server, "/v1/dependencies", key).json();
        let names = found["dependencies"].as_array().expect("a list").iter();
        names.map(|shown| shown["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named(&viewer), ["mail", "shop"]);
    assert_eq!(named(&bound), ["mail"], "the other is none of its services'");

    let tripped = server.post("/v1/dependencies/shop/trip", &bearer(&admin), "{\"note\":\"theirs is down\"}");
    assert_eq!(tripped.status, 200, "{tripped:?}");
    let shop = tripped.json();
    assert_eq!((&shop["state"], &shop["tripped_by_hand"]), (&json!("open"), &json!(true)));
    assert_eq!(shop["settings"], "opens after 3 consecutive failures, for 1h, then 1 probe at once");
    assert_eq!((&shop["services"], &shop["trips"]), (&json!(["orders"]), &json!(1)));
    let turn = &shop["history"][0];
    assert_eq!(
        (&turn["from"], &turn["to"], &turn["note"]),
        (&json!("closed"), &json!("open"), &json!("theirs is down"))
    );
    assert!(turn["by"].as_str().is_some_and(|by| by.ends_with("(root)")), "{turn}");
    let audit = get(&server, "/v1/audit", &admin).json();
    let record = &audit["audit"][0];
    assert_eq!((&record["act"], &record["what"]), (&json!("trip"), &json!("shop")), "{audit}");
    server.stop().assert_calm();
}

#[test]
fn a_tripped_breaker_is_still_open_after_a_restart() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    let answer = server.post("/v1/dependencies/nobody/trip", "", "{}");
    assert_eq!(answer.error(), (404, "DEPENDENCY_NOT_FOUND".to_owned()));
    assert_eq!(answer.json()["error"]["details"]["dependencies"], json!(["mail", "shop"]));
    assert_eq!(server.post("/v1/dependencies/mail/trip", "", "").error(), (409, "NO_BREAKER".to_owned()));
    assert_eq!(server.post("/v1/dependencies/shop/trip", "", "").status, 200);
    server.kill();

    let server = Server::start(&folder);
    let shop = || server.get("/v1/dependencies").json()["dependencies"][1].clone();
    until("what it has been through is read", || (shop()["history"][0]["to"] == "open").then_some(()));
    assert_eq!((&shop()["state"], &shop()["tripped_by_hand"]), (&json!("open"), &json!(true)), "{}", shop());
    server.accept("orders.placed", "1", "");
    until("it waits", || (server.event("1")["deliveries"][0]["state"] == "held").then_some(()));
    let waits = server.delivery("1")["waits"].clone();
    assert_eq!((&waits["on"], &waits["dependency"]), (&json!("breaker"), &json!("shop")), "{waits}");
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());
    let listed = run(&["breakers"]).printed();
    assert!(listed.contains("shop") && listed.contains("manually, probes in "), "{listed}");
    assert_eq!(run(&["breakers", "list"]).printed().lines().count(), 3);
    assert!(run(&["breakers", "reset", "shop"]).printed().contains("circuit breaker of shop is closed"));
    server.until("1", "delivered");
    assert_eq!((&shop()["state"], &shop()["tripped_by_hand"]), (&json!("closed"), &json!(false)));
    assert!(run(&["breakers", "trip", "shop", "--note", "again"]).printed().contains("opened: calls wait"));
    assert!(run(&["breakers", "trip", "mail"]).refused().contains("(NO_BREAKER, 409)"));
    server.stop().assert_calm();
}
