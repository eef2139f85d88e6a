//! HTTP/2 with a real server, Node's own: one connection for many calls, its end, and targets that only speak HTTP/1.1.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::run::Folder;
use crate::server::{Lines, Server, until};
use crate::tls::Authority;

/// A server of `http2_server.mjs` that runs as long as the test does.
struct NodeServer {
    child: Child,
    lines: Lines,
    port: u16,
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl NodeServer {
    fn start(folder: &Folder, mode: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/http2_server.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(folder.path(".")).arg(mode);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("node is missing: run `sudo apt-get install nodejs`");
        let lines = Lines::of(child.stdout.take().expect("it is piped"));
        let port = lines.wait_for("port ").trim_start_matches("port ").parse().expect("a number");
        Self { child, lines, port }
    }

    fn lines(&self) -> Vec<Value> {
        self.lines.so_far().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The number of connections, and the HTTP versions of the requests.
    fn seen(&self) -> (usize, Vec<String>) {
        let all = self.lines();
        let versions = all.iter().filter_map(|line| line["version"].as_str().map(str::to_owned));
        (all.iter().filter(|line| line["connection"] == true).count(), versions.collect())
    }
}

/// A server, and a Redrive that calls it and trusts it by a secret.
fn start(mode: &str) -> (Folder, NodeServer, Server) {
    let authority = Authority::new("ours");
    let folder = Folder::with("ca.pem", &authority.pem());
    authority.pair("127.0.0.1").write(&folder);
    let node = NodeServer::start(&folder, mode);
    let book = format!(
        "version: 1
secrets: {{ authority: {{ file: ca.pem }} }}
services:
  orders:
    target: {{ http: \"https://127.0.0.1:{}/events\", tls: {{ ca: authority }} }}
    events: [\"orders.*\"]
",
        node.port
    );
    folder.write("redrive.yaml", book);
    let server = Server::start(&folder);
    (folder, node, server)
}

#[test]
fn fifty_calls_share_one_connection() {
    let (_folder, node, server) = start("slow");
    for number in 0..50 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    for number in 0..50 {
        let delivery = server.until(&format!("o-{number}"), "delivered");
        assert_eq!(delivery["attempts"], 1, "{delivery}");
    }
    assert_eq!(node.seen(), (1, vec!["2.0".to_owned(); 50]));
    let at_once = node.lines().iter().filter_map(|line| line["open"].as_u64()).max();
    assert!(at_once >= Some(4), "many streams at once: {at_once:?}");
    server.stop().assert_calm();
}

#[test]
fn a_connection_that_ends_or_an_older_version_costs_no_attempt() {
    for (mode, version) in [("goodbye", "2.0"), ("http1", "1.1")] {
        let (_folder, node, server) = start(mode);
        for number in 0..10 {
            let id = format!("o-{number}");
            server.accept("orders.placed", &id, "");
            let delivery = server.until(&id, "delivered");
            assert_eq!(delivery["attempts"], 1, "{mode}: {delivery}");
        }
        let (connections, versions) =
            until("all were seen", || Some(node.seen()).filter(|seen| seen.1.len() >= 10));
        assert_eq!(versions, vec![version.to_owned(); 10], "{mode}");
        assert!(mode != "goodbye" || connections == 10, "{mode}: each call has its own: {connections}");
        server.stop().assert_calm();
    }
}
