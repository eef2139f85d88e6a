//! `docs/reference/rule-book.md` and `docs/reference/scenario.md` say what the schemas say.

use std::fs;
use std::path::Path;

use redrive_core::book::connectors::built_in;

/// Writes the pages instead of comparing them: `REDRIVE_UPDATE=1 cargo test -p redrive-server reference`.
#[test]
fn the_pages_of_all_keys_are_up_to_date() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = server.ancestors().nth(2).expect("crates/server lies two folders down").join("docs");
    let pages = [
        ("reference/rule-book.md", redrive_lab::report::reference::reference(built_in())),
        ("reference/scenario.md", redrive_lab::scenario::reference::reference()),
    ];
    for (name, made) in pages {
        let path = docs.join(name);
        if std::env::var_os("REDRIVE_UPDATE").is_some() {
            fs::write(&path, &made).expect("the docs can be written");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == made,
            "docs/{name} is out of date: run REDRIVE_UPDATE=1 cargo test -p redrive-server reference"
        );
    }
}
