//! Mail, to a real mail server.

use std::io::BufReader;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{book, mend, refusing, shown, spoil};
use crate::run::Folder;
use crate::server::{Lines, Server, serve, until};
use crate::tls::Authority;

/// A mail server that runs as long as the test does.
pub(crate) struct Post {
    child: Child,
    lines: Lines,
    pub(crate) port: u16,
}

impl Drop for Post {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Post {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let server = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = server.ancestors().nth(2).expect("crates/server lies two folders down");
        let made = Command::new(root.join("scripts/test-python")).stderr(Stdio::inherit()).output();
        let made = made.expect("the script can be run");
        assert!(made.status.success(), "there is no Python for the test");
        let python = String::from_utf8(made.stdout).expect("a path");
        let mut command = Command::new(python.trim());
        command.arg(server.join("tests/support/smtp_sink.py")).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs");
        let lines = Lines::of(BufReader::new(child.stdout.take().expect("it is piped")));
        let port = lines.wait_for("port ");
        let port = port.trim_start_matches("port ").parse().expect("a number");
        Self { child, lines, port }
    }

    /// Every mail that came.
    pub(crate) fn mails(&self) -> Vec<Value> {
        let lines = self.lines.so_far();
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    #[track_caller]
    pub(crate) fn until(&self, count: usize) -> Vec<Value> {
        until("the mail has come", || Some(self.mails()).filter(|mails| mails.len() >= count))
    }
}

#[test]
fn mail_says_that_it_begins_and_that_it_is_over() {
    let orders = refusing();
    let post = Post::start(&["--login", "redrive:tk_of_this_run", "--busy", "1"]);
    let receivers = format!(
        "  desk: {{ email: ops@example.test, from: redrive@example.test, smtp: \"smtp://redrive@127.0.0.1:{}\", secret: token, retry: again }}\n",
        post.port
    );
    let folder = Folder::with("redrive.yaml", &book(&orders, &receivers, "to: [desk], repeat: 1h"));
    folder.write("token", "tk_of_this_run\n");
    let server = Server::start(&folder);
    spoil(&server, "e-1");
    // The first try is put off by the server, and the engine tries again.
    let first = post.until(1).remove(0);
    assert_eq!(
        (&first["from"], &first["to"]),
        (&json!("redrive@example.test"), &json!(["ops@example.test"]))
    );
    assert_eq!(first["login"], "redrive");
    let headers = &first["headers"];
    assert_eq!(headers["subject"], "[critical] letters: 1");
    assert_eq!(headers["auto-submitted"], "auto-generated");
    let id = headers["message-id"].as_str().expect("it has one");
    assert!(id.starts_with('<') && id.ends_with("@example.test>"), "{id}");
    let body = first["body"].as_str().expect("a text");
    assert!(body.contains("Severity critical") && body.contains("What to do: look at them"), "{body}");
    mend(&server);
    let second = post.until(2).remove(1);
    assert!(
        second["headers"]["subject"].as_str().is_some_and(|line| line.starts_with("[resolved]")),
        "{second}"
    );
    assert_ne!(second["headers"]["message-id"], headers["message-id"]);
    server.stop().assert_calm();
}

#[test]
fn a_wrong_password_is_told_for_what_it_is() {
    let orders = refusing();
    let post = Post::start(&["--login", "redrive:another"]);
    let receivers = format!(
        "  desk: {{ email: ops@example.test, smtp: \"smtp://redrive@127.0.0.1:{}\", secret: token }}\n",
        post.port
    );
    let folder = Folder::with("redrive.yaml", &book(&orders, &receivers, "to: [desk]"));
    folder.write("token", "tk_of_this_run\n");
    let server = Server::start(&folder);
    let tested = server.post("/v1/receivers/desk/test", "content-type: application/json\r\n", "{}").json();
    assert_eq!((&tested["outcome"], &tested["code"]), (&json!("dead"), &json!("UNAUTHORIZED")), "{tested}");
    let trouble = shown(&server)["receivers"][0]["last_trouble"].clone();
    assert!(trouble.as_str().is_some_and(|trouble| trouble.contains("535")), "{trouble}");
    assert_eq!(post.mails(), Vec::<Value>::new());
    server.stop().assert_calm();
}

#[test]
fn mail_goes_over_tls_to_whom_we_trust_and_to_nobody_else() {
    let orders = refusing();
    let authority = Authority::new("the test's own");
    let pair = authority.pair("localhost");
    let receivers = |port: u16| {
        format!(
            "  desk: {{ email: ops@example.test, smtp: \"smtps://localhost:{port}\", network: private, retry: none }}\n"
        )
    };
    let folder = Folder::new();
    folder.write("token", "tk_of_this_run\n");
    folder.write("cert.pem", pair.certificate_pem());
    folder.write("key.pem", pair.key_pem());
    folder.write("roots.pem", authority.pem());
    folder.write("others.pem", Authority::new("somebody else").pem());
    let path = |name: &str| folder.path(name).to_string_lossy().into_owned();
    let post = Post::start(&["--cert", &path("cert.pem"), "--key", &path("key.pem")]);
    folder.write("redrive.yaml", book(&orders, &receivers(post.port), "to: [desk]"));
    let test = |roots: &str| {
        let server = Server::run(serve(&folder, &["--rules", "redrive.yaml", "--tls-roots", roots]));
        let tested =
            server.post("/v1/receivers/desk/test", "content-type: application/json\r\n", "{}").json();
        server.stop().assert_calm();
        tested
    };
    assert_eq!(test("roots.pem")["outcome"], "delivered");
    assert_eq!(post.mails().len(), 1);
    let refused = test("others.pem");
    assert_eq!(refused["outcome"], "dead", "{refused}");
    let why = refused["message"].as_str().expect("words");
    assert!(why.ends_with("its certificate is not signed by a trusted authority"), "{why}");
    assert_eq!(post.mails().len(), 1);
}
