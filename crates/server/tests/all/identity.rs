//! Who may come in, and what they may do there, with real keys at a real server.

mod bounds;
mod tokens;

pub(crate) use self::tokens::token;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Answer;
use crate::run::Folder;
use crate::server::{Server, contents, in_folder, serve, until};
use crate::target::{Say, Target, book};

/// Makes a key on a data folder that nobody serves.
#[track_caller]
pub(crate) fn key_on_folder(folder: &Folder, arguments: &[&str]) -> String {
    let create = ["keys", "create", "--data", "data", "--quiet"];
    let key = folder.run(&[&create, arguments].concat()).printed();
    let key = key.strip_suffix('\n').expect("a line").to_owned();
    assert_eq!((&key[..3], key.len()), ("rk_", 55), "the key and nothing else");
    key
}

/// Makes a key with somebody's.
#[track_caller]
pub(crate) fn create(server: &Server, admin: &str, wish: &Value) -> String {
    let made = server.post("/v1/keys", &bearer(admin), wish.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["key"].as_str().expect("a key").to_owned()
}

pub(crate) fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

/// The first part of a key, which is no secret.
fn id_of(key: &str) -> &str {
    &key[..11]
}

#[track_caller]
pub(crate) fn get(server: &Server, path: &str, key: &str) -> Answer {
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}connection: close\r\n\r\n", bearer(key));
    server.client.ask(&head, "")
}

/// A server with an admin's key.
fn started(more: &[&str]) -> (Folder, Server, String, Target) {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, more));
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    (folder, server, admin, target)
}

/// `redrive serve` on an address of one's choice.
fn serve_at(folder: &Folder, address: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(["serve", "--listen", address, "--data", "data"]).args(more);
    in_folder(command, folder)
}

#[test]
fn without_a_key_everybody_on_this_machine_may_come_and_it_says_so() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    server.out.wait_for("open to all programs on this machine");
    assert_eq!(server.get("/v1/status").status, 200);
    assert_eq!(server.get("/v1/keys").json(), json!({ "keys": [] }));
    server.stop().assert_calm();
}

#[test]
fn what_others_can_reach_needs_a_key_or_somebody_who_insists() {
    let folder = Folder::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = folder.run(&["serve", "--listen", address, "--data", "data"]).refused();
        for words in [
            "is a public address, and authentication is off",
            "redrive keys create NAME --role admin --data data",
            "--insecure",
        ] {
            assert!(refused.contains(words), "{words}: {refused}");
        }
        assert!(!folder.path("data").exists(), "nothing was made");
    }
    let insecure = Server::run(serve_at(&folder, "0.0.0.0:0", &["--insecure"]));
    insecure.err.wait_for("insecure: http://0.0.0.0:");
    let head = "GET /v1/status HTTP/1.1\r\nhost: redrive.test:7373\r\n";
    assert_eq!(insecure.client.ask(&format!("{head}connection: close\r\n\r\n"), "").status, 200);
    let page = format!("{head}origin: https://evil.test\r\nconnection: close\r\n\r\n");
    assert_eq!(insecure.client.ask(&page, "").error(), (403, "FORBIDDEN".to_owned()));
    insecure.stop().assert_calm();

    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::run(serve_at(&folder, "0.0.0.0:0", &[]));
    server.out.wait_for("authentication required");
    assert_eq!(server.get("/v1/status").error(), (401, "UNAUTHORIZED".to_owned()));
    assert_eq!(get(&server, "/v1/status", &admin).status, 200);
    // A key is all it takes: whatever name the server goes by, and whatever page somebody looks at.
    let head = format!("GET /v1/status HTTP/1.1\r\nhost: redrive.test\r\n{}", bearer(&admin));
    assert_eq!(server.client.ask(&format!("{head}connection: close\r\n\r\n"), "").status, 200);
    server.stop().assert_calm();
}

#[test]
fn a_good_key_opens_and_every_other_is_answered_alike() {
    let (_folder, server, admin, _target) = started(&[]);
    let brief = create(&server, &admin, &json!({ "name": "brief", "role": "viewer", "expires": "1s" }));
    let revoked = create(&server, &admin, &json!({ "name": "gone", "role": "viewer" }));
    assert_eq!(get(&server, "/v1/status", &brief).status, 200);
    assert_eq!(get(&server, "/v1/status", &revoked).status, 200);
    let path = format!("/v1/keys/{}/revoke", id_of(&revoked));
    for _ in 0..2 {
        let answer = server.post(&path, &bearer(&admin), "{\"note\":\"lost\"}");
        assert_eq!((answer.status, &answer.json()["state"]), (200, &json!("revoked")));
    }
    until("the brief one has expired", || (get(&server, "/v1/status", &brief).status == 401).then_some(()));

    let altered = format!("{}{}", &admin[..54], if admin.ends_with('A') { 'B' } else { 'A' });
    let unknown = format!("rk_00000000_{}", "A".repeat(43));
    let expected = get(&server, "/v1/status", "nothing-of-the-kind");
    assert!(expected.body.contains("invalid or expired credentials"), "{expected:?}");
    let silent = server.get("/v1/status");
    assert!(silent.body.contains("credentials required"), "whoever shows nothing is told so: {silent:?}");
    for key in [&altered, &unknown, &revoked, &brief] {
        let answer = get(&server, "/v1/status", key);
        assert_eq!((answer.status, &answer.body), (401, &expected.body));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert!(!answer.body.contains(id_of(key)), "{answer:?}");
    }
    let by_name = format!(
        "GET /v1/status HTTP/1.1\r\nhost: localhost\r\nx-api-key: {admin}\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(server.client.ask(&by_name, "").status, 200);
    assert_eq!(server.get("/healthz").status, 200, "which is for everybody");
    let listed = get(&server, "/v1/keys", &admin).json();
    let states: Vec<&Value> =
        listed["keys"].as_array().expect("a list").iter().map(|key| &key["state"]).collect();
    assert_eq!(states, ["good", "expired", "revoked"]);
    assert!(listed["keys"][0]["last_used_at"].is_string() && listed["keys"][0]["hash"].is_null(), "{listed}");
    server.assert_calm();
    let said = server.kill();
    for key in [&admin, &altered, &unknown, &revoked, &brief] {
        assert!(!said.contains(&key[12..]), "no key is in the log");
    }
}

#[test]
fn neither_the_last_key_nor_a_new_book_opens_the_door_again() {
    let (folder, server, admin, target) = started(&[]);
    let path = format!("/v1/keys/{}/revoke", id_of(&admin));
    assert_eq!(server.post(&path, &bearer(&admin), "").status, 200);
    assert_eq!(get(&server, "/v1/status", &admin).status, 401);
    assert_eq!(server.get("/v1/status").status, 401);
    folder.write("redrive.yaml", book(&target, &["criticality: high"]));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded:");
    assert_eq!(server.get("/v1/status").status, 401);
    server.stop().assert_calm();
    // A revoked key is a key all the same.
    let server = Server::start(&folder);
    assert_eq!(server.get("/v1/status").status, 401);
    server.stop().assert_calm();
    let other = key_on_folder(&folder, &["root-2", "--role", "admin"]);
    let server = Server::start(&folder);
    assert_eq!(get(&server, "/v1/status", &other).status, 200);
    server.stop().assert_calm();
}

#[test]
fn the_first_key_of_an_open_server_closes_it_and_is_an_admins() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let refused = server.post("/v1/keys", "", json!({ "name": "ci", "role": "viewer" }).to_string());
    assert_eq!(refused.error(), (400, "VALIDATION_ERROR".to_owned()));
    assert_eq!(server.get("/v1/status").status, 200);
    let made = server.post("/v1/keys", "", json!({ "name": "root", "role": "admin" }).to_string());
    assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")), "{made:?}");
    assert_eq!(server.get("/v1/status").status, 401);
    let key = made.json()["key"].as_str().expect("a key").to_owned();
    assert_eq!(get(&server, "/v1/status", &key).status, 200);
    server.stop().assert_calm();
}

#[test]
fn what_is_revoked_is_revoked_at_the_door_though_whoever_asked_hung_up() {
    let (_folder, server, admin, _target) = started(&[]);
    let is_listed_as_revoked = |key: &str| {
        let keys = get(&server, "/v1/keys", &admin).json();
        let mut keys = keys["keys"].as_array().expect("a list").iter();
        keys.any(|shown| shown["id"] == id_of(key) && !shown["revoked_at"].is_null())
    };
    let mut revoked = 0;
    until("some were revoked for nobody", || {
        let key = create(&server, &admin, &json!({ "name": "ci", "role": "viewer" }));
        let mut connection = server.client.connect().expect("it listens");
        let path = format!("/v1/keys/{}/revoke", id_of(&key));
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", bearer(&admin));
        connection.send(head.as_bytes()).expect("it listens");
        drop(connection);
        // A request that was never read changes nothing, here or there.
        let asked_at = Instant::now();
        while !is_listed_as_revoked(&key) {
            if asked_at.elapsed() > Duration::from_millis(500) {
                return None;
            }
        }
        until("the door knows", || (get(&server, "/v1/status", &key).status == 401).then_some(()));
        revoked += 1;
        (revoked == 10).then_some(())
    });
    server.stop().assert_calm();
}

#[test]
fn tokens_are_held_against_the_keys_at_the_address_of_the_book() {
    let issuer = Target::start(|_| {
        let key = json!({
            "kty": "EC",
            "crv": "P-256",
            "kid": "other",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        });
        Say::Status(200, "content-type: application/json\r\n", json!({ "keys": [key] }).to_string())
    });
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.AAAA";
    // An issuer that has no such key, and none that answers.
    for (jwks, expected) in [(issuer.url(), 401), ("http://127.0.0.1:9/keys".to_owned(), 503)] {
        let book = format!(
            "version: 1\naccess: {{ jwt: {{ jwks: \"{jwks}\", issuer: \"https://issuer.test\", audience: redrive }} }}\n"
        );
        let folder = Folder::with("redrive.yaml", &book);
        let server = Server::run(serve_at(&folder, "0.0.0.0:0", &["--rules", "redrive.yaml"]));
        assert_eq!(get(&server, "/v1/status", token).status, expected, "{jwks}");
        server.stop().assert_calm();
    }
    assert!(issuer.count() > 0, "its keys were fetched");
}

#[test]
fn a_book_that_believes_tokens_asks_everybody() {
    let folder = Folder::new();
    let jwt = "access: { jwt: { jwks: \"http://127.0.0.1:9/keys\", issuer: \"https://issuer.test\", audience: redrive } }";
    folder.write("redrive.yaml", format!("version: 1\n{jwt}\n"));
    let server = Server::run(serve_at(&folder, "0.0.0.0:0", &["--rules", "redrive.yaml"]));
    assert_eq!(server.get("/v1/status").status, 401);
    assert_eq!(get(&server, "/v1/status", "e30.e30.AAAA").status, 401);
    // Nobody answers for the issuer: whether this one is good cannot be known.
    let unknown = get(&server, "/v1/status", "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.AAAA");
    assert_eq!(unknown.error(), (503, "SERVICE_UNAVAILABLE".to_owned()));
    assert!(unknown.header("retry-after").is_some(), "{unknown:?}");
    folder.write("redrive.yaml", "version: 1\n");
    server.signal("HUP");
    server.err.wait_for("rule book reloaded:");
    assert_eq!(server.get("/v1/status").status, 401, "until the next start");
    server.stop().assert_calm();
}

/// Every route with a request that names nothing, so that nothing comes of it.
const ROUTES: [(&str, &str, &str); 32] = [
    ("POST", "/v1/events", "ingest operator admin"),
    ("POST", "/v1/events/a.b", "ingest operator admin"),
    ("GET", "/v1/events/none", "viewer operator admin"),
    ("GET", "/v1/deliveries", "viewer operator admin"),
    ("GET", "/v1/deliveries/00000000", "viewer operator admin"),
    ("GET", "/v1/status", "viewer operator admin"),
    ("POST", "/v1/services/none/pause", "operator admin"),
    ("POST", "/v1/services/none/resume", "operator admin"),
    ("POST", "/v1/unrouted/route", "operator admin"),
    ("GET", "/v1/removed", "viewer operator admin"),
    ("POST", "/v1/removed/none/dead-letter", "operator admin"),
    ("POST", "/v1/removed/none/move", "operator admin"),
    ("POST", "/v1/backup", "admin"),
    ("GET", "/v1/keys", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("POST", "/v1/keys/none/revoke", "admin"),
    ("GET", "/v1/dead-letters", "viewer operator admin"),
    ("GET", "/v1/dead-letters/export", "viewer operator admin"),
    ("POST", "/v1/dead-letters/import", "operator admin"),
    ("POST", "/v1/dead-letters/purge", "operator admin"),
    ("GET", "/v1/dead-letters/none", "viewer operator admin"),
    ("POST", "/v1/dead-letters/none/skip", "operator admin"),
    ("POST", "/v1/dead-letters/none/edit", "operator admin"),
    ("GET", "/v1/failure-groups", "viewer operator admin"),
    ("GET", "/v1/held-sessions", "viewer operator admin"),
    ("GET", "/v1/audit", "viewer operator admin"),
    ("GET", "/v1/replays", "viewer operator admin"),
    ("POST", "/v1/replays", "operator admin"),
    ("GET", "/v1/replays/7", "viewer operator admin"),
    ("GET", "/v1/replays/7/progress", "viewer operator admin"),
    ("POST", "/v1/replays/7/pause", "operator admin"),
    ("HEAD", "/v1/status", "viewer operator admin"),
];

#[test]
fn every_route_knows_every_role() {
    let (_folder, server, admin, _target) = started(&[]);
    let roles = ["ingest", "viewer", "operator", "admin"];
    let keys = roles.map(|role| (role, create(&server, &admin, &json!({ "name": role, "role": role }))));
    for (method, path, allowed) in ROUTES {
        let ask = |headers: &str| {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n"
            );
            if method == "HEAD" {
                let mut connection = server.client.connect().expect("it listens");
                connection.send(head.as_bytes()).expect("it reads");
                let line = connection.line().expect("it answers");
                return (line[9..12].parse::<u16>().expect("a status"), String::new());
            }
            let answer = server.client.ask(&head, "");
            (answer.status, answer.body)
        };
        assert_eq!(ask("").0, 401, "{method} {path} without a key");
        for (role, key) in &keys {
            let (status, body) = ask(&bearer(key));
            let may = allowed.split(' ').any(|one| one == *role);
            assert_eq!(status != 403 && status != 401, may, "{method} {path} as {role}: {status} {body}");
            assert!(status < 500, "{method} {path} as {role}: {status} {body}");
            if !may && method != "HEAD" {
                let needed = allowed.replace(' ', " or ");
                assert!(body.contains(&format!("role {needed} required to ")), "{body}");
            }
        }
    }
    server.stop().assert_calm();
}

#[test]
fn nothing_of_a_key_is_on_disk_or_in_the_output_but_its_name() {
    let (folder, server, admin, _target) = started(&[]);
    folder.write("admin-key", format!("{admin}\n"));
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| {
        folder.run(&[arguments, &["--server", &url, "--key-file", "admin-key"]].concat())
    };
    let told = run(&[
        "keys",
        "create",
        "shop",
        "--role",
        "ingest",
        "--source",
        "/shop",
        "--rate",
        "5/s",
        "--expires",
        "90d",
    ])
    .printed();
    let key = told.lines().find(|line| line.starts_with("rk_")).expect("it is told").to_owned();
    let listed = run(&["keys", "list"]).printed();
    assert!(listed.contains(id_of(&key)) && listed.contains("ingest, source /shop, 5/s"), "{listed}");
    assert!(run(&["keys", "revoke", id_of(&key), "--note", "it leaked"]).printed().contains("✓ revoked "));
    assert!(run(&["keys", "revoke", "rk_00000000"]).refused().contains("(KEY_NOT_FOUND, 404)"));
    let audit = run(&["audit"]).printed();
    for words in
        ["key-create", "key-revoke", "it leaked", &format!("key {} (root)", id_of(&admin)), id_of(&key)]
    {
        assert!(audit.contains(words), "{words}: {audit}");
    }
    let secrets = [admin[12..].to_owned(), key[12..].to_owned()];
    for secret in &secrets {
        assert!(!listed.contains(secret) && !audit.contains(secret));
        for (path, bytes) in contents(&folder.path("data")) {
            let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!is_there, "a key is in {}", path.display());
        }
    }
    server.stop().assert_calm();
}

#[test]
fn the_record_says_who_did_what() {
    let (folder, server, admin, _target) = started(&[]);
    let ops = create(&server, &admin, &json!({ "name": "night shift", "role": "operator" }));
    folder.write("ops-key", &ops);
    let url = format!("http://{}", server.client.address);
    let run =
        |arguments: &[&str]| folder.run(&[arguments, &["--server", &url, "--key-file", "ops-key"]].concat());
    run(&["pause", "orders"]).printed();
    run(&["resume", "orders"]).printed();
    let audit = get(&server, "/v1/audit", &ops).json();
    let acts = audit["audit"].as_array().expect("a list").iter();
    let acts: Vec<(String, String)> = acts
        .map(|act| {
            (
                act["act"].as_str().expect("a word").to_owned(),
                act["by"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    let (by_ops, by_root) =
        (format!("key {} (night shift)", id_of(&ops)), format!("key {} (root)", id_of(&admin)));
    for (act, by) in [("pause", &by_ops), ("resume", &by_ops), ("key-create", &by_root)] {
        assert!(acts.contains(&(act.to_owned(), by.clone())), "{act} by {by}: {acts:?}");
    }
    let refused = run(&["keys", "list"]).refused();
    assert!(
        refused.contains("(FORBIDDEN, 403)") && refused.contains("use a key with one of these roles"),
        "{refused}"
    );
    let strange = folder.run(&["status", "--server", &url]).refused();
    assert!(strange.contains("(UNAUTHORIZED, 401)") && strange.contains("REDRIVE_KEY"), "{strange}");
    server.stop().assert_calm();
}
