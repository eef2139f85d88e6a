//! The worked examples of CONTRIBUTING.md: connectors of another crate, compiled, and used through the table.

mod secret;
mod source;
mod target;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::EngineBounds;
use redrive_node::connectors::Drivers;
use redrive_node::runtime::{Config, Node};
use redrive_node::secret::Secrets;
use redrive_node::source::Sources;
use redrive_node::store::{self, Options};
use redrive_node::target::registry::Targets;

use crate::run::Folder;

const EXAMPLES: [(&str, &str); 3] = [
    ("target", include_str!("contributing/target.rs")),
    ("source", include_str!("contributing/source.rs")),
    ("secret", include_str!("contributing/secret.rs")),
];

/// Writes the examples instead of comparing them: `REDRIVE_UPDATE=1 cargo test -p redrive-server contributing`.
#[test]
fn the_examples_are_those_that_compile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CONTRIBUTING.md");
    let stated = fs::read_to_string(&path).expect("it is there");
    let mut wanted = stated.clone();
    for (name, code) in EXAMPLES {
        let begin = format!("<!-- {name} -->\n```rust\n");
        let (before, rest) = wanted.split_once(&begin).expect("the example has a place");
        let (_, after) = rest.split_once("```\n").expect("it ends");
        wanted = format!("{before}{begin}{code}```\n{after}");
    }
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        fs::write(path, &wanted).expect("written");
    } else {
        assert!(stated == wanted, "run REDRIVE_UPDATE=1 cargo test -p redrive-server contributing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connectors_of_another_crate_run_through_the_table() {
    let drivers = Drivers::built_in().with(&[target::DRIVER, source::DRIVER, secret::DRIVER]);
    let folder = Folder::new();
    let out = folder.path("out");
    let text = format!(
        "version: 1\nsecrets: {{ s: {{ keyring: shop }} }}\nsources: {{ in: {{ memory: true, type: a.b }} }}\nservices: {{ shop: {{ target: {{ append: \"{}\" }}, events: [a.b] }} }}\n",
        out.display()
    );
    let reading = redrive_core::book::read(&text, drivers.connectors());
    let book = Arc::new(reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems)));
    assert!(book.missing().is_empty());
    let secrets = Secrets::new(&book, &drivers);
    let values = secrets.get("s").await.expect("it has a value");
    assert_eq!(values.iter().collect::<Vec<_>>(), [b"the value of shop"]);
    let targets = Targets::made_by(&drivers, &book, &secrets).expect("they can be made");
    let store = store::open(&folder.path("data"), Options::default()).expect("it opens");
    let config = Config { book, book_text: text.into(), targets, store, bounds: EngineBounds::SERVER };
    let node = Node::start(config).expect("it starts");
    let sources = Sources::start(&node, &drivers, &secrets).expect("they can be made");
    for body in ["one", "two"] {
        source::QUEUE.lock().expect("no test panics here").0.push_back(body.to_owned());
    }
    let written = async {
        while fs::read_to_string(&out).unwrap_or_default().lines().count() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written).await.expect("both are delivered");
    sources.stop().await;
    assert_eq!(source::QUEUE.lock().expect("no test panics here").1, 0, "all are acknowledged");
    node.stop(Duration::from_secs(5)).await;
}
