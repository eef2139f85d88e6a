//! What `check` refuses is what `serve` refuses, and every book of the examples can be served.

use std::fs;
use std::path::{Path, PathBuf};

use crate::examples::root;
use crate::run::Folder;
use crate::server::{Server, serve};

#[test]
fn check_refuses_what_serve_refuses() {
    let book = r#"version: 1
secrets: { hooks: { key-vault: "https://vault.test/hooks" } }
sources: { queue: { sqs: { queue: "https://sqs.test/q" }, type: a.b } }
services:
  shop:
    target: { http: "http://127.0.0.1:9/" }
    events: [a.b]
    channels: { queue: { target: { kafka: topic }, events: [a.b] } }
"#;
    let folder = Folder::with("redrive.yaml", book);
    let checked = folder.run(&["check", "redrive.yaml"]);
    let served = Server::try_run(serve(&folder, &["--rules", "redrive.yaml"])).err().expect("it is refused");
    assert_eq!((checked.code, served.code), (1, Some(1)));
    for line in [
        "error[not-built-in]: target kind `kafka` is not available in this version",
        "error[not-built-in]: source kind `sqs` is not available in this version",
        "error[not-built-in]: secret kind `key-vault` is not available in this version",
        "available target kinds: `container`, `exec`, `http`, `log`, `ntfy`, `smtp`",
    ] {
        assert!(checked.stdout.contains(line), "{line}: {}", checked.stdout);
        assert!(served.stderr.contains(line), "{line}: {}", served.stderr);
    }
}

#[test]
fn check_refuses_addresses_that_serve_refuses() {
    let places = [
        "services: { s: { target: { http: \"@\" }, events: [a.b] } }",
        "services: { s: { target: { ntfy: \"@\" }, events: [a.b] } }",
        "receivers: { r: { webhook: \"@\" } }",
        "receivers: { r: { ntfy: \"@\" } }",
        "receivers: { r: { slack: \"@\" } }",
        "receivers: { r: { alertmanager: \"@\" } }",
        "access: { jwt: { jwks: \"@\", issuer: \"https://issuer.test\", audience: redrive } }",
    ];
    let addresses = [
        ("http://h.test:0/", "port `0` is not a number from 1 to 65535"),
        ("http://h.test:99999/", "port `99999` is not a number from 1 to 65535"),
        ("http://münchen.test/", "an address such as"),
        ("http://h.test/<a>", "an address such as"),
    ];
    for place in places {
        for (address, said) in addresses {
            let book = format!("version: 1\n{}\n", place.replace('@', address));
            let folder = Folder::with("redrive.yaml", &book);
            let checked = folder.run(&["check", "redrive.yaml"]);
            assert_eq!(checked.code, 1, "{book}{}", checked.stdout);
            assert!(checked.stdout.contains(said), "{book}{}", checked.stdout);
            let served = Server::try_run(serve(&folder, &["--rules", "redrive.yaml"]));
            assert_eq!(served.err().expect("it is refused").code, Some(1), "{book}");
        }
    }
}

/// Those of the classical failures show what happens with books that have warnings.
#[test]
fn the_books_of_the_examples_have_no_warning() {
    let classical = root().join("examples/scenarios/classical");
    let books: Vec<_> = books().into_iter().filter(|path| !path.starts_with(&classical)).collect();
    assert!(books.len() >= 3, "there are books: {books:?}");
    for path in books {
        let run = Folder::new().run(&["check", "--deny", "warnings", path.to_str().expect("a text")]);
        assert_eq!(run.code, 0, "{path:?}: {}", run.stdout);
    }
}

#[test]
fn every_book_of_the_examples_is_served() {
    let books = books();
    assert!(books.len() >= 15, "there are books in each folder: {books:?}");
    for path in books {
        let here = Folder::new();
        let running = Server::run(serve(&here, &["--rules", path.to_str().expect("a text")]));
        assert_eq!(running.get("/readyz").status, 200, "{path:?}");
    }
}

/// All rule books of the examples.
fn books() -> Vec<PathBuf> {
    let (mut books, mut folders) = (Vec::new(), vec![root().join("examples")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the examples are there") {
            let path = entry.expect("an example can be listed").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "yaml") && is_book(&path) {
                books.push(path);
            }
        }
    }
    books
}

/// Whether it is a rule book; scenarios have arrivals.
fn is_book(path: &Path) -> bool {
    let text = fs::read_to_string(path).expect("an example can be read");
    !text.contains("\narrivals:")
}
