//! Events as mails, with a real mail server.

use serde_json::{Value, json};

use crate::alerts::mail::Post;
use crate::run::Folder;
use crate::server::{Server, serve, until};
use crate::tls::Authority;

/// A book whose orders are mails; `target` are further keys of the target.
fn book(server: &str, target: &str) -> String {
    format!(
        "version: 1
retry_policies:
  quick: {{ initial: 20ms, max: 20ms, retries: 5, jitter: none }}
secrets: {{ password: {{ file: password }} }}
services:
  orders:
    target:
      smtp: \"{server}\"
      from: shop@example.test
      to: \"{{{{ data.id }}}}@example.test\"
      subject: \"Order {{{{ data.id }}}}\"
      body: \"Thanks for {{{{ data.id }}}}\"
{target}    retry: quick
    timeout: 10s
    events: [\"orders.*\"]
"
    )
}

fn folder(book: &str) -> Folder {
    let folder = Folder::with("redrive.yaml", book);
    folder.write("password", "tk_of_this_run\n");
    folder
}

fn attempts(delivery: &Value) -> Vec<Value> {
    delivery["stories"].as_array().cloned().unwrap_or_default()
}

#[test]
fn mails_go_over_starttls_with_a_login_and_one_connection() {
    let authority = Authority::new("the test's own");
    let pair = authority.pair("localhost");
    let folder = folder("version: 1\n");
    folder.write("cert.pem", pair.certificate_pem());
    folder.write("key.pem", pair.key_pem());
    folder.write("roots.pem", authority.pem());
    let path = |name: &str| folder.path(name).to_string_lossy().into_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let post = Post::start(&["--login", "shop:tk_of_this_run", "--starttls", "--cert", &cert, "--key", &key]);
    // Written like that, it is taken for a name like any other, which needs TLS.
    let address = format!("smtp://shop@LOCALHOST:{}", post.port);
    folder.write("redrive.yaml", book(&address, "      secret: password\n      network: private\n"));
    folder.write("others.pem", Authority::new("another").pem());
    let start = |roots: &str| Server::run(serve(&folder, &["--rules", "redrive.yaml", "--tls-roots", roots]));
    let server = start("roots.pem");
    for id in ["ann", "bob"] {
        server.accept("orders.placed", id, "");
        server.until(id, "delivered");
    }
    let mails = post.until(2);
    assert_eq!((&mails[0]["tls"], &mails[0]["login"]), (&json!(true), &json!("shop")));
    assert_eq!(mails[0]["peer"], mails[1]["peer"], "one connection for both");
    server.stop().assert_calm();

    let server = start("others.pem");
    server.accept("orders.placed", "eve", "");
    let first = until("an attempt", || attempts(&server.delivery("eve")).into_iter().next());
    assert_eq!(first["code"], "TLS_FAILURE", "{first}");
    assert_eq!(post.mails().len(), 2);
    server.stop().assert_calm();
}

#[test]
fn mails_have_text_html_and_the_id_of_their_delivery() {
    let post = Post::start(&["--login", "shop:tk_of_this_run", "--busy", "1"]);
    let more = "      html: \"<p>Thanks for {{ data.id }}</p>\"\n      secret: password\n";
    let folder = folder(&book(&format!("smtp://shop@127.0.0.1:{}", post.port), more));
    let server = Server::start(&folder);
    server.accept("orders.placed", "ann", "");
    let delivery = server.until("ann", "delivered");
    let all = attempts(&delivery);
    assert_eq!((all.len(), &all[0]["code"]), (2, &json!("BROKER_UNAVAILABLE")), "{delivery}");
    assert_eq!(all[1]["message"], "250 taken", "what the server said is kept: {delivery}");
    server.accept("orders.placed", "bob", "");
    server.until("bob", "delivered");
    let mails = post.until(2);
    let first = &mails[0];
    assert_eq!((&first["from"], &first["to"]), (&json!("shop@example.test"), &json!(["ann@example.test"])));
    assert_eq!((&first["login"], &first["headers"]["subject"]), (&json!("shop"), &json!("Order ann")));
    let text = |mail: &Value, key: &str| mail[key].as_str().unwrap_or_default().trim().to_owned();
    assert_eq!(
        (text(first, "body"), text(first, "html")),
        ("Thanks for ann".into(), "<p>Thanks for ann</p>".into())
    );
    let id = delivery["webhook_id"].as_str().expect("an id");
    assert_eq!(first["headers"]["message-id"], format!("<{id}@example.test>"));
    assert_eq!(mails[0]["peer"], mails[1]["peer"], "one connection for both");
    server.stop().assert_calm();
}

#[test]
fn what_the_server_refuses_for_good_is_a_dead_letter_at_once() {
    let post = Post::start(&["--login", "shop:tk_of_this_run", "--refuse", "eve@example.test"]);
    let secret = "      secret: password\n";
    let folder = folder(&book(&format!("smtp://shop@127.0.0.1:{}", post.port), secret));
    let server = Server::start(&folder);
    server.accept("orders.placed", "eve", "");
    let dead = server.until("eve", "dead");
    assert_eq!(attempts(&dead).len(), 1, "{dead}");
    assert_eq!(
        (&attempts(&dead)[0]["category"], &dead["death"]["code"]),
        (&json!("permanent"), &json!("MESSAGE_REFUSED"))
    );
    server.accept("orders.placed", "ann,eve", "");
    let dead = server.until("ann,eve", "dead");
    let attempt = &attempts(&dead)[0];
    assert_eq!(attempt["category"], "invalid", "{dead}");
    assert_eq!(attempt["message"], "`to`: `{{ data.id }}@example.test` makes no mail address");
    folder.write("password", "another\n");
    server.stop().assert_calm();

    let server = Server::start(&folder);
    server.accept("orders.placed", "ann", "");
    let dead = server.until("ann", "dead");
    assert_eq!(attempts(&dead).len(), 1, "{dead}");
    assert_eq!(
        (&attempts(&dead)[0]["category"], &dead["death"]["code"]),
        (&json!("fatal"), &json!("UNAUTHORIZED"))
    );
    server.err.wait_for("the target rejected our credentials");
    assert_eq!(post.mails(), Vec::<Value>::new());
    server.stop().assert_calm();
}

#[test]
fn a_mail_server_that_starts_again_costs_no_attempt() {
    let post = Post::start(&[]);
    let number = post.port.to_string();
    let folder = folder(&book(&format!("smtp://127.0.0.1:{number}"), ""));
    let server = Server::start(&folder);
    server.accept("orders.placed", "ann", "");
    server.until("ann", "delivered");
    drop(post);
    let post = Post::start(&["--port", &number]);
    server.accept("orders.placed", "bob", "");
    let delivery = server.until("bob", "delivered");
    assert_eq!(attempts(&delivery).len(), 1, "{delivery}");
    assert_eq!(post.until(1)[0]["to"], json!(["bob@example.test"]));
    server.stop().assert_calm();
}
