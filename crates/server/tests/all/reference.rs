//! `docs/reference.md` says what the schema says.

use std::fs;
use std::path::Path;

/// Writes the page instead of comparing it: `REDRIVE_UPDATE=1 cargo test -p redrive-server reference`.
#[test]
fn the_page_of_all_keys_is_up_to_date() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path =
        server.ancestors().nth(2).expect("crates/server lies two folders down").join("docs/reference.md");
    let made = redrive::core::book::report::reference::reference();
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        fs::write(&path, &made).expect("the docs can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/reference.md is out of date: run REDRIVE_UPDATE=1 cargo test -p redrive-server reference"
    );
}
