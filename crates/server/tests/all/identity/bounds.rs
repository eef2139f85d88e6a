//! What a caller is bound to: a number of requests, sources, services.

use std::process::Command;

use serde_json::{Value, json};

use super::{bearer, create, get, id_of, key_on_folder, started};
use crate::run::Folder;
use crate::server::{Server, in_folder, until};
use crate::target::Target;

#[test]
fn a_caller_that_asks_too_often_is_told_when_to_come_again() {
    let (_folder, server, admin, _target) = started(&[]);
    let slow = create(&server, &admin, &json!({ "name": "slow", "role": "viewer", "rate": "2/m" }));
    for left in [1, 0] {
        let answer = get(&server, "/v1/replays", &slow);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"default\";q=2;w=60"));
        let told = answer.header("ratelimit").expect("it is told");
        assert!(told.starts_with(&format!("\"default\";r={left};t=")), "{told}");
    }
    let refused = get(&server, "/v1/replays", &slow);
    assert_eq!(refused.error(), (429, "RATE_LIMIT_EXCEEDED".to_owned()));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"default\";q=2;w=60"));
    let seconds: u64 = refused.header("retry-after").expect("when").parse().expect("seconds");
    assert!((1..=30).contains(&seconds), "{seconds}");
    // What is not allowed counts too, and others are not concerned.
    assert_eq!(get(&server, "/v1/keys", &slow).status, 429);
    let answer = get(&server, "/v1/replays", &admin);
    assert_eq!((answer.status, answer.header("ratelimit")), (200, None));
    server.stop().assert_calm();
}

#[test]
fn the_book_says_how_many_requests_a_caller_may_make() {
    let folder = Folder::with("redrive.yaml", "version: 1\naccess: { rate: 1/h }\n");
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let fast = key_on_folder(&folder, &["fast", "--role", "viewer", "--rate", "1000/s"]);
    let server = Server::start(&folder);
    assert_eq!(get(&server, "/v1/status", &admin).header("ratelimit-policy"), Some("\"default\";q=1;w=3600"));
    assert_eq!(get(&server, "/v1/status", &admin).status, 429);
    assert_eq!(get(&server, "/v1/status", &fast).header("ratelimit-policy"), Some("\"default\";q=1000;w=1"));
    folder.write("redrive.yaml", "version: 1\n");
    server.signal("HUP");
    server.err.wait_for("rule book reloaded:");
    assert_eq!(get(&server, "/v1/status", &admin).status, 200, "a new book holds at once");
    server.stop().assert_calm();
}

#[test]
fn those_who_show_bad_keys_are_told_of_and_slowed_down_and_good_keys_are_not() {
    let (folder, server, admin, _target) = started(&[]);
    folder.write("key", &admin);
    let mut tail = Command::new(env!("CARGO_BIN_EXE_redrive"));
    tail.args(["tail", "--format", "json", "--key-file", "key", "--server"]);
    tail.arg(format!("http://{}", server.client.address));
    let tail = Tail::start(in_folder(tail, &folder));
    let bad = format!("rk_00000000_{}", "A".repeat(43));
    let answers: Vec<u16> = (0..40).map(|_| get(&server, "/v1/status", &bad).status).collect();
    assert_eq!(answers[..30], [401; 30]);
    assert!(answers.contains(&429), "{answers:?}");
    assert_eq!(get(&server, "/v1/status", &admin).status, 200, "nobody can keep others out");
    let told = tail.wait_for("\"what\":\"security\"");
    assert!(told.contains("127.0.0.1") && !told.contains(&bad), "{told}");
    let log = server.err.wait_for("authentication failed");
    assert!(log.contains("127.0.0.1"), "{log}");
    let lines = server.err.so_far().lines().filter(|line| line.contains("authentication failed")).count();
    assert!(lines < 20, "one line a second, not one for each: {lines}");
    server.stop().assert_calm();
}

/// A command that prints until the test is over.
struct Tail {
    child: std::process::Child,
    lines: crate::server::Lines,
}

impl Tail {
    fn start(mut command: Command) -> Self {
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        let said = crate::server::Lines::of(child.stderr.take().expect("it is piped"));
        let lines = crate::server::Lines::of(child.stdout.take().expect("it is piped"));
        said.wait_for("following");
        Self { child, lines }
    }

    #[track_caller]
    fn wait_for(&self, words: &str) -> String {
        self.lines.wait_for(words)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nobody_is_locked_out_without_a_word() {
    let folder = Folder::new();
    let refused = folder.run(&["keys", "create", "look", "--role", "viewer", "--data", "data"]).refused();
    assert!(refused.contains("must be `admin` for the first key"), "{refused}");
    let key = key_on_folder(&folder, &["root", "--role", "admin"]);
    let secret = &key[12..];
    let strange = format!("rk_00000000_{secret}");
    let refused = folder.run(&["keys", "revoke", &strange, "--data", "data"]).refused();
    assert!(refused.contains("no key `rk_00000000`") && !refused.contains(secret), "{refused}");
    let run = folder.run(&["keys", "revoke", &key, "--data", "data"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("warning: no valid admin key is left"), "{run:?}");
    assert!(!format!("{run:?}").contains(secret), "{run:?}");
    let server = Server::run(crate::server::serve(&folder, &[]));
    server.err.wait_for("no valid API key exists");
    server.stop().assert_calm();

    let (_folder, server, admin, _target) = started(&[]);
    let path = format!("/v1/keys/{}/revoke", id_of(&admin));
    let ended = server.post(&path, &bearer(&admin), "").json();
    assert!(ended["note"].as_str().is_some_and(|note| note.contains("no valid admin key")), "{ended}");
    server.stop().assert_calm();
}

#[test]
fn a_stream_ends_when_its_key_does() {
    let (_folder, server, admin, _target) = started(&[]);
    let viewer = create(&server, &admin, &json!({ "name": "viewer", "role": "viewer" }));
    let mut stream = server.client.connect().expect("it listens");
    let head = format!("GET /v1/activity HTTP/1.1\r\nhost: localhost\r\n{}\r\n", bearer(&viewer));
    stream.send(head.as_bytes()).expect("it reads");
    assert!(stream.line().expect("it answers").contains("200"));
    let post = |id: &str| {
        let headers = format!("{}idempotency-key: {id}\r\n", bearer(&admin));
        assert_eq!(server.post("/v1/events/orders.placed", &headers, "{}").status, 202);
    };
    post("before");
    while !stream.line().expect("it goes on").contains("\"before\"") {}
    let path = format!("/v1/keys/{}/revoke", id_of(&viewer));
    assert_eq!(server.post(&path, &bearer(&admin), "").status, 200);
    post("after");
    let mut rest = Vec::new();
    while let Ok(line) = stream.line() {
        rest.push(line);
        if rest.last().is_some_and(|line| line == "0") {
            break;
        }
    }
    let rest = rest.join("\n");
    assert!(!rest.contains("\"after\""), "{rest}");
    server.stop().assert_calm();
}

/// More than a connection holds by itself, so that most of it is written while somebody reads.
#[test]
fn an_export_breaks_off_when_its_key_ends() {
    const LETTERS_EACH: usize = 900;
    let (_folder, server, admin, _target) = started(&[]);
    let data = "x".repeat(14_000);
    for part in 0..2 {
        let line = |number: usize| {
            let key = format!("{part}-{number}");
            json!({ "service": "orders", "type": "orders.placed", "key": key, "data": data }).to_string()
        };
        let lines = (0..LETTERS_EACH).map(line).collect::<Vec<_>>().join("\n");
        let imported = server.post("/v1/dead-letters/import", &bearer(&admin), lines);
        assert_eq!(imported.status, 200, "{imported:?}");
    }
    let viewer = create(&server, &admin, &json!({ "name": "viewer", "role": "viewer" }));
    let mut stream = server.client.connect().expect("it listens");
    let head = format!("GET /v1/dead-letters/export HTTP/1.1\r\nhost: localhost\r\n{}\r\n", bearer(&viewer));
    stream.send(head.as_bytes()).expect("it reads");
    assert!(stream.line().expect("it answers").contains("200"));
    let path = format!("/v1/keys/{}/revoke", id_of(&viewer));
    assert_eq!(server.post(&path, &bearer(&admin), "").status, 200);
    let mut letters = 0;
    while let Ok(line) = stream.line() {
        assert_ne!(line, "0", "nobody takes a part for the whole");
        letters += usize::from(line.starts_with('{'));
    }
    assert!((1..2 * LETTERS_EACH).contains(&letters), "{letters} letters came");
    server.stop().assert_calm();
}

#[test]
fn a_key_for_a_source_sends_for_no_other() {
    let (_folder, server, admin, _target) = started(&[]);
    let shop = create(&server, &admin, &json!({ "name": "shop", "role": "ingest", "sources": ["/shop"] }));
    let event = |id: &str, source: &str| json!({ "specversion": "1.0", "id": id, "source": source, "type": "orders.placed" });
    let send = |content: &str, body: Value| {
        let headers = format!("{}content-type: application/{content}\r\n", bearer(&shop));
        server.post("/v1/events", &headers, body.to_string())
    };
    assert_eq!(send("cloudevents+json", event("1", "/shop")).status, 202);
    assert_eq!(send("cloudevents+json", event("2", "/shop/2")).error(), (403, "FORBIDDEN".to_owned()));
    let batch = json!([event("3", "/shop"), event("4", "/other")]);
    assert_eq!(send("cloudevents-batch+json", batch).error(), (403, "FORBIDDEN".to_owned()));
    assert_eq!(get(&server, "/v1/events/3", &admin).status, 404, "nothing of it was taken");
    let easy = server.post("/v1/events/orders.placed", &bearer(&shop), "{}");
    assert_eq!(easy.error(), (403, "FORBIDDEN".to_owned()), "its source is another one");
    let named = format!("{}ce-source: /shop\r\n", bearer(&shop));
    assert_eq!(server.post("/v1/events/orders.placed", &named, "{}").status, 202);
    server.stop().assert_calm();
}

/// Two services that fail for good, each with a dead letter.
struct Two {
    folder: Folder,
    server: Server,
    admin: String,
    /// A key that is bound to `mine`.
    bound: String,
    /// The dead letters of `mine` and `other`.
    letters: [String; 2],
    _target: Target,
}

impl Two {
    fn start() -> Self {
        let target = Target::saying(&[410]);
        let service = |name: &str| {
            format!(
                "  {name}: {{ target: {{ http: \"{}\" }}, events: [\"{name}.*\", \"both.*\"] }}\n",
                target.url()
            )
        };
        let book = format!("version: 1\nservices:\n{}{}", service("mine"), service("other"));
        let folder = Folder::with("redrive.yaml", &book);
        let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
        let bound = key_on_folder(&folder, &["team", "--role", "operator", "--service", "mine"]);
        let server = Server::start(&folder);
        for event_type in ["mine.came", "other.came", "both.came"] {
            let headers = format!("{}idempotency-key: {event_type}\r\n", bearer(&admin));
            assert_eq!(server.post(&format!("/v1/events/{event_type}"), &headers, "{}").status, 202);
        }
        let letter = |service: &str| {
            until("it is dead", || {
                let found =
                    get(&server, &format!("/v1/dead-letters?service={service}&type={service}.*"), &admin);
                found.json()["dead_letters"][0]["id"].as_str().map(ToOwned::to_owned)
            })
        };
        let letters = [letter("mine"), letter("other")];
        Self { folder, server, admin, bound, letters, _target: target }
    }
}

#[test]
fn a_key_for_a_service_sees_nothing_of_another() {
    let two = Two::start();
    let [mine, other] = &two.letters;
    #[rustfmt::skip]
    let cases = [
        ("/v1/deliveries",                              403),
        ("/v1/deliveries?service=mine",                 200),
        ("/v1/deliveries?service=other",                403),
        ("/v1/dead-letters",                            403),
        ("/v1/dead-letters?service=mine",               200),
        ("/v1/dead-letters?service=other",              403),
        ("/v1/dead-letters?service=mine&channel=other", 200),
        ("/v1/dead-letters?service=other%2Fmine",       403),
        ("/v1/dead-letters/export",                     403),
        ("/v1/dead-letters/export?service=mine",        200),
        ("/v1/failure-groups",                          403),
        ("/v1/failure-groups?service=mine",             200),
        (&format!("/v1/dead-letters/{mine}"),           200),
        (&format!("/v1/dead-letters/{other}"),          404),
        (&format!("/v1/deliveries/{mine}"),             200),
        (&format!("/v1/deliveries/{other}"),            404),
        ("/v1/events/mine.came",                        200),
        ("/v1/events/other.came",                       404),
        ("/v1/events/both.came",                        200),
        ("/v1/replays",                                 200),
        ("/v1/status",                                  200),
        ("/v1/held-sessions",                           403),
        ("/v1/audit",                                   403),
        ("/v1/keys",                                    403),
    ];
    for (path, expected) in cases {
        let answer = get(&two.server, path, &two.bound);
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
        let is_silent = !answer.body.replace(path, "").contains("other.came");
        assert!(is_silent || expected == 404, "{path}: {answer:?}");
        if expected == 403 && path != "/v1/keys" {
            assert!(answer.body.contains("the key"), "it says why: {answer:?}");
        }
    }
    let both = get(&two.server, "/v1/events/both.came", &two.bound).json();
    let services: Vec<&Value> = both["events"][0]["deliveries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["service"])
        .collect();
    assert_eq!(services, ["mine"]);
    two.server.stop().assert_calm();
}

#[test]
fn a_key_for_a_service_is_told_how_that_one_is() {
    let two = Two::start();
    let poison = |service: &str| {
        let wish = json!({ "service": service, "type": format!("{service}.*") }).to_string();
        assert_eq!(two.server.post("/v1/replays", &bearer(&two.admin), wish).status, 201);
    };
    poison("mine");
    poison("other");
    let status = |key: &str| get(&two.server, "/v1/status", key).json();
    until("both replays have failed", || (status(&two.admin)["poison"] == 2).then_some(()));

    let whole = status(&two.admin);
    assert_eq!((&whole["events"], whole.get("bound_to")), (&json!(3), None), "{whole}");
    let part = status(&two.bound);
    let names = |list: &str, name: &str| -> Vec<String> {
        let list = part[list].as_array().expect("a list");
        list.iter().map(|one| one[name].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("services", "service"), ["mine"]);
    assert_eq!(names("dependencies", "name"), ["mine"]);
    assert_eq!((&part["bound_to"], &part["poison"]), (&json!(["mine"]), &json!(1)), "{part}");
    for of_the_whole in ["events", "unrouted", "archive", "secrets", "issuer"] {
        assert_eq!(part.get(of_the_whole), None, "{of_the_whole}: {part}");
    }
    assert!(!part.to_string().contains("other"), "{part}");
    two.server.stop().assert_calm();
}

#[test]
fn a_key_for_a_service_is_told_what_it_is_good_for() {
    let two = Two::start();
    two.folder.write("key", &two.bound);
    let url = format!("http://{}", two.server.client.address);
    let run =
        |arguments: &[&str]| two.folder.run(&[arguments, &["--key-file", "key", "--server", &url]].concat());
    #[rustfmt::skip]
    let cases: [(&[&str], &[&str]); 4] = [
        (&["audit"],                                 &["bound to services", "`redrive why --last --service mine`"]),
        (&["why", "--last"],                         &["name one with `service`", "services        mine", "--service NAME"]),
        (&["why", "--last", "--service", "other"],   &["the key has no access to the service `other`", "services        mine"]),
        (&["send", "mine.came"],                     &["only if it is bound to sources too", "--source SOURCE"]),
    ];
    for (arguments, expected) in cases {
        let refused = run(arguments).refused();
        for words in expected {
            assert!(refused.contains(words), "{arguments:?}: {refused}");
        }
        assert!(refused.lines().all(|line| !line.trim().is_empty() && line.trim() != "sources"), "{refused}");
    }
    let told = run(&["why", "--last", "--service", "mine"]).printed();
    assert!(told.contains("→ mine"), "{told}");
    let told = run(&["status"]).printed();
    for words in ["the key is bound to mine", "redrive dlq groups --service mine"] {
        assert!(told.contains(words), "{told}");
    }
    two.server.stop().assert_calm();
}

#[test]
fn a_key_for_a_service_does_nothing_to_another() {
    let two = Two::start();
    let [mine, other] = &two.letters;
    let missing = |path: &str| path.contains(other.as_str());
    let line =
        |service: &str| json!({ "service": service, "type": "a.b", "key": service, "data": {} }).to_string();
    #[rustfmt::skip]
    let cases = [
        ("/v1/services/mine/pause",   String::new(),                                                    200),
        ("/v1/services/mine/resume",  String::new(),                                                    200),
        ("/v1/services/other/pause",  String::new(),                                                    403),
        ("/v1/services/none/pause",   String::new(),                                                    403),
        ("/v1/unrouted/route",        String::new(),                                                    403),
        ("/v1/removed/mine/dead-letter",  String::new(),                                                409),
        ("/v1/removed/other/dead-letter", String::new(),                                                403),
        ("/v1/removed/mine/move",     json!({ "to": "other" }).to_string(),                             403),
        ("/v1/events/a.b",            "{}".to_owned(),                                                  403),
        ("/v1/dead-letters/import",   line("other"),                                                    403),
        ("/v1/dead-letters/purge",    json!({ "all": true, "dry_run": true }).to_string(),              403),
        ("/v1/dead-letters/purge",    json!({ "type": "other.*" }).to_string(),                         403),
        ("/v1/dead-letters/purge",    json!({ "service": "other" }).to_string(),                        403),
        ("/v1/dead-letters/purge",    json!({ "service": "mine", "dry_run": true }).to_string(),        200),
        (&format!("/v1/dead-letters/{other}/skip"), String::new(),                                      404),
        (&format!("/v1/dead-letters/{other}/edit"), json!({ "data": 1 }).to_string(),                   404),
        ("/v1/dead-letters/purge",    json!({ "letters": [other] }).to_string(),                        404),
        ("/v1/dead-letters/purge",    json!({ "letters": [mine], "dry_run": true }).to_string(),        200),
        ("/v1/replays",               json!({ "all": true }).to_string(),                               403),
        ("/v1/replays",               json!({ "service": "other" }).to_string(),                        403),
        ("/v1/replays",               json!({ "letters": [other] }).to_string(),                        404),
        ("/v1/replays",               json!({ "letters": [mine, other] }).to_string(),                  404),
        ("/v1/replays",               json!({ "service": "mine", "to": "other" }).to_string(),          403),
        ("/v1/replays",               json!({ "letters": [mine] }).to_string(),                         201),
    ];
    for (path, body, expected) in cases {
        let answer = two.server.post(path, &bearer(&two.bound), &body);
        assert_eq!(answer.status, expected, "{path} {body}: {answer:?}");
        assert!(!answer.body.contains("other.came") || missing(path), "{answer:?}");
    }
    // Its own replay it may follow, and nobody else's.
    let theirs =
        two.server.post("/v1/replays", &bearer(&two.admin), json!({ "service": "other" }).to_string());
    let all = two.server.post("/v1/replays", &bearer(&two.admin), json!({ "type": "both.*" }).to_string());
    for (answer, expected) in [(&theirs, 404), (&all, 404)] {
        let id = answer.json()["id"].as_u64().unwrap_or_else(|| panic!("{answer:?}"));
        for path in [format!("/v1/replays/{id}"), format!("/v1/replays/{id}/progress")] {
            assert_eq!(get(&two.server, &path, &two.bound).status, expected, "{path}");
        }
        let path = format!("/v1/replays/{id}/pause");
        assert_eq!(two.server.post(&path, &bearer(&two.bound), "").status, expected, "{path}");
    }
    let listed = get(&two.server, "/v1/replays", &two.bound).json();
    assert_eq!(listed["replays"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(get(&two.server, "/v1/replays/1", &two.bound).status, 200);
    two.server.stop().assert_calm();
}
