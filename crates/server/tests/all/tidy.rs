//! The habits of the project that no compiler checks.
//!
//! Each test collects everything that is wrong before it fails, so one run shows the whole list.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use redrive_core::book::connectors::built_in;
use redrive_lab::lint::check_for;
use serde_json::Value;

/// The longest source file; beyond it a reader loses the thread.
const LINES_MAX: usize = 700;

/// Source files that may be longer, each with the reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// What core and lab may depend on: nothing here reads a clock, waits, or opens a file or a socket unasked.
const PURE_MAY_USE: [&str; 14] = [
    "base64",
    "bytes",
    // Only with the feature `events`, as is `jsonschema`.
    "cel",
    "granit-parser",
    "jiff",
    "jsonschema",
    "minijinja",
    "regex",
    "serde",
    "serde_json",
    "strsim",
    "thiserror",
    // Only with the feature `schema`.
    "utoipa",
    "xxhash-rust",
];

/// The crates, and which of the others each may use: one direction, never back.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("redrive-core", &[]),
    ("redrive-lab", &["redrive-core"]),
    ("redrive", &["redrive-core"]),
    ("redrive-node", &["redrive", "redrive-core"]),
    ("redrive-server", &["redrive", "redrive-core", "redrive-lab", "redrive-node"]),
    ("redrive-bench", &["redrive", "redrive-core", "redrive-node", "redrive-server"]),
];

/// Crates that decide: pure, with few dependencies.
const PURE: [&str; 2] = ["redrive-core", "redrive-lab"];

/// Folders that exist on one person's machine only; a path into one means nothing to anyone else.
const PRIVATE_FOLDERS: [&str; 5] = ["home", "root", "tmp", "Users", "work"];

/// What is made by tools, and so is no part of the project's text.
const NOT_OURS: [&str; 2] = [".git", "node_modules"];

#[test]
fn source_files_open_with_their_job_and_stay_short() {
    let mut problems = Vec::new();
    for folder in ["crates", "benches", "examples"] {
        for path in files_under(&root().join(folder)).into_iter().filter(|path| is_rust(path)) {
            let (name, text) = (shown(&path), read(&path));
            if !text.starts_with("//!") {
                problems.push(format!("{name}: opens without `//!` and a sentence on its job"));
            }
            let lines = text.lines().count();
            if lines > LINES_MAX && !LONG_FILES.iter().any(|(long, _reason)| *long == name) {
                problems.push(format!("{name}: {lines} lines, at most {LINES_MAX} are read with pleasure"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn pure_crates_depend_only_on_their_allowed_set() {
    let metadata = metadata();
    let mut problems = Vec::new();
    for krate in PURE {
        for dependency in dependencies(package(&metadata, krate)) {
            let name = text_of(dependency, "name");
            // Tests may use what they like; what is built in may not.
            if dependency["kind"] != "dev" && name != "redrive-core" && !PURE_MAY_USE.contains(&name) {
                problems.push(format!("{krate} uses {name}: argue it in the commit and add it here"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn crates_depend_in_one_direction() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let present: BTreeSet<&str> = members(&metadata).collect();
    assert_eq!(present, ours, "every crate of the workspace has a row in MAY_USE");
    let mut problems = Vec::new();
    for (name, may_use) in MAY_USE {
        for dependency in dependencies(package(&metadata, name)) {
            let used = text_of(dependency, "name");
            // A crate whose tests want more of its own features names itself; tests may rehearse rules.
            let is_test = dependency["kind"] == "dev" && used == "redrive-lab";
            if used != name && ours.contains(used) && !may_use.contains(&used) && !is_test {
                problems.push(format!("{name} uses {used}, which ARCHITECTURE.md does not allow"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn every_licence_in_the_tree_is_allowed() {
    let allowed = allowed_licences();
    assert!(allowed.contains("Apache-2.0"), "deny.toml's list must at least hold our own licence");
    let metadata = metadata();
    let mut problems = Vec::new();
    for package in packages(&metadata) {
        let (name, version) = (text_of(package, "name"), text_of(package, "version"));
        match package["license"].as_str() {
            None => problems.push(format!("{name} {version}: names no licence")),
            Some(licence) if is_allowed(licence, &allowed) => {}
            Some(licence) => problems.push(format!("{name} {version}: {licence} is not in deny.toml")),
        }
    }
    assert_none(&problems);
}

#[test]
fn a_licence_expression_is_allowed_if_one_reading_of_it_is() {
    let allowed: BTreeSet<String> = ["MIT", "Zlib"].map(String::from).into();
    #[rustfmt::skip]
    let cases = [
        ("one that is listed",           "MIT",                       true),
        ("one that is not",              "GPL-3.0-only",              false),
        ("a choice",                     "GPL-3.0-only OR MIT",       true),
        ("a choice, as it once was written", "GPL-3.0-only/MIT",      true),
        ("both must be listed",          "MIT AND GPL-3.0-only",      false),
        ("AND binds closer than OR",     "Zlib OR MIT AND GPL-3.0-only", true),
        ("but not through brackets",     "(Zlib OR MIT) AND GPL-3.0-only", false),
        ("brackets around a choice",     "(GPL-3.0-only OR MIT) AND Zlib", true),
        ("an exception is another licence", "MIT WITH LLVM-exception", false),
    ];
    for (name, licence, expected) in cases {
        assert_eq!(is_allowed(licence, &allowed), expected, "{name}");
    }
}

#[test]
fn no_text_names_a_folder_of_one_machine() {
    let mut problems = Vec::new();
    for path in files_under(&root()) {
        // What is not text has no paths to read.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(found) = private_path(line) {
                problems.push(format!("{}:{number}: a path of one machine: {found}", shown(&path)));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn private_paths_are_found_where_a_path_begins() {
    for folder in PRIVATE_FOLDERS {
        let path = format!("/{folder}/redrive");
        assert_eq!(private_path(&format!("see `{path}` there")), Some(path.as_str()), "in a sentence");
        assert_eq!(private_path(&format!("data: {path}")), Some(path.as_str()), "as a value");
        assert_eq!(private_path(&format!("https://example.com{path}")), None, "within an address");
        assert_eq!(private_path(&format!("$ROOT/data{path}")), None, "within another path");
        assert_eq!(private_path(&format!("/{folder}space")), None, "a longer name");
    }
}

#[test]
fn every_folder_that_the_architecture_names_exists() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    let named: Vec<&str> =
        architecture.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("crates/")).collect();
    assert!(named.len() >= 20, "the table of folders names {} of them", named.len());
    let missing = named.into_iter().filter(|path| !root().join(path).exists());
    assert_none(
        &missing.map(|path| format!("ARCHITECTURE.md names {path}, which is not there")).collect::<Vec<_>>(),
    );
}

#[test]
fn every_rule_book_in_docs_and_examples_can_be_served() {
    let mut problems = Vec::new();
    let mut check = |name: String, book: &str| {
        for problem in check_for(book.as_bytes(), built_in()).problems {
            if problem.severity == redrive_core::book::problem::ProblemSeverity::Error {
                problems.push(format!("{name}: {}: {}", problem.span.position, problem.message));
            }
        }
    };
    let mut books = 0;
    for path in files_under(&root()) {
        let text = if is_rust(&path) {
            String::new()
        } else {
            String::from_utf8_lossy(&fs::read(&path).expect("a file of the project can be read")).into_owned()
        };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") if shown(&path).starts_with("examples/") && is_book(&shown(&path)) => {
                check(shown(&path), &text);
                books += 1;
            }
            Some("md") => {
                for block in text.split("```yaml\n").skip(1) {
                    let block = block.split("```").next().unwrap_or_default();
                    if block.contains("version: 1") && !is_scenario(block) {
                        check(shown(&path), block);
                        books += 1;
                    }
                }
            }
            _ => {}
        }
    }
    assert!(books >= 6, "the examples and the README have books: {books}");
    assert_none(&problems);
}

#[test]
fn every_scenario_in_docs_and_examples_is_sound() {
    let mut problems = Vec::new();
    let mut scenarios = 0;
    for path in files_under(&root().join("docs")).into_iter().chain(files_under(&root().join("examples"))) {
        let name = shown(&path);
        let text = String::from_utf8_lossy(&fs::read(&path).expect("a file of the project can be read"))
            .into_owned();
        let blocks: Vec<&str> = if name.starts_with("examples/scenarios/") && !is_book(&name) {
            vec![&text]
        } else {
            let blocks = text.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
            blocks.filter(|block| is_scenario(block)).collect()
        };
        for block in blocks {
            scenarios += 1;
            for problem in redrive_lab::scenario::read(block).problems.into_sorted() {
                problems.push(format!("{name}: {}: {}", problem.span.position, problem.message));
            }
        }
    }
    assert!(scenarios >= 8, "the examples and the page on simulating have some: {scenarios}");
    assert_none(&problems);
}

/// Rule books of the examples lie in folders of their own.
fn is_book(name: &str) -> bool {
    name.contains("/rulebooks/") || name.contains("/books/")
}

/// What arrives is said in a scenario, and nowhere else.
fn is_scenario(block: &str) -> bool {
    block.contains("version: 1") && block.contains("\narrivals:")
}

/// The strings of `allow = […]` in deny.toml's `[licenses]`.
fn allowed_licences() -> BTreeSet<String> {
    let text = read(&root().join("deny.toml"));
    let section = text.split("\n[").find(|section| section.starts_with("licenses]"));
    let list = section.and_then(|section| section.split_once("\nallow = [")?.1.split_once(']'));
    let (list, _rest) = list.expect("deny.toml has `allow = […]` under `[licenses]`");
    list.lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once('"'))
        .map(|(id, _)| id.into())
        .collect()
}

/// Whether the licence can be chosen so that everything it asks for is on the list.
fn is_allowed(licence: &str, allowed: &BTreeSet<String>) -> bool {
    // Older packages write a choice with a slash.
    let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let verdict = any_of(&mut rest, allowed);
    assert!(rest.is_empty(), "{licence} is read to its end");
    verdict
}

fn any_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut verdict = all_of(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        verdict |= all_of(words, allowed);
    }
    verdict
}

fn all_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut verdict = one(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        verdict &= one(words, allowed);
    }
    verdict
}

fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let verdict = any_of(words, allowed);
            *words = words.strip_prefix([")"].as_slice()).expect("a bracket that opens is closed");
            verdict
        }
        [id, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{id} WITH {exception}"))
        }
        [id, rest @ ..] => {
            *words = rest;
            allowed.contains(*id)
        }
        [] => panic!("a licence expression ends too early"),
    }
}

/// The first path in the line that begins in a folder of one machine.
fn private_path(line: &str) -> Option<&str> {
    let ends_a_path = |c: char| c.is_whitespace() || "`'\",;)]>".contains(c);
    line.match_indices('/').find_map(|(at, _)| {
        let begins_here = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-/}$)>*~".contains(c));
        let (folder, _below) = line[at + 1..].split_once('/')?;
        (begins_here && PRIVATE_FOLDERS.contains(&folder))
            .then(|| line[at..].split(ends_a_path).next().expect("a split has a first part"))
    })
}

/// What cargo knows about the tree as it is built here, without asking the network again.
fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform=host-tuple"])
        .current_dir(root())
        .output()
        .expect("cargo runs these tests, so it is there");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("cargo lists packages")
}

fn members(metadata: &Value) -> impl Iterator<Item = &str> {
    let members = metadata["workspace_members"].as_array().expect("cargo lists the members");
    packages(metadata)
        .iter()
        .filter(move |package| members.contains(&package["id"]))
        .map(|package| text_of(package, "name"))
}

fn package<'a>(metadata: &'a Value, name: &str) -> &'a Value {
    let found = packages(metadata).iter().find(|package| package["name"] == name);
    found.unwrap_or_else(|| panic!("the workspace has a crate {name}"))
}

fn dependencies(package: &Value) -> &[Value] {
    package["dependencies"].as_array().expect("cargo lists dependencies")
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("cargo gives each {key} as text"))
}

fn root() -> PathBuf {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    server.ancestors().nth(2).expect("crates/server lies two folders down").to_owned()
}

/// All files under a folder, in order; none if there is no such folder.
fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.expect("a folder of the project can be read");
            let kind = entry.file_type().expect("a file of the project has a kind");
            // The folder that cargo fills stands beside a manifest; a module may well be called `target`.
            let made_by_cargo = entry.file_name() == "target" && folder.join("Cargo.toml").exists();
            if made_by_cargo || NOT_OURS.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", shown(path)))
}

/// The path from the root of the project, the same on every system.
fn shown(path: &Path) -> String {
    slashed(path.strip_prefix(root()).expect("the project's files lie under its root"))
}

fn slashed(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
