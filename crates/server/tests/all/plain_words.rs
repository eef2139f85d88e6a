//! Texts that users see are in plain English: no word of the list below is in a string of the product, on the page
//! or in the documents.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Words that make a reader translate, and phrases nobody would search for.
const WORDS: &str = r"(?ix) \b (
    nobody | somebody | anybody | whoever | tidings | happenings? | mend(s|ed|ing)? | ail(s|ing)?
    | told | tells? | (is|are)\ meant | comes?\ to | what\ was\ asked\ for | by\ and\ by | goes\ on | burns?
    | stands?\ (here|there|in|at|for\ a) | strangers?
) \b";

#[test]
fn user_visible_texts_are_in_plain_english() {
    let words = Regex::new(WORDS).expect("the list is a pattern");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut problems = Vec::new();
    for path in files_under(&root) {
        let name = path.strip_prefix(&root).expect("it is below").display().to_string();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (line, shown) in texts(&name, &text) {
            for found in words.find_iter(&shown) {
                problems.push(format!("{name}:{line}: {:?} in {:?}", found.as_str(), shown.trim()));
            }
        }
    }
    assert!(problems.is_empty(), "{} texts to say otherwise:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn strings_of_rust_are_found_and_nothing_else() {
    let source = "//! nobody\n/// whoever\nfn f<'a>(c: char) { /* told */ g(\"one \\\" two\", r#\"three \" four\"#, '\"', \"five six\", \"seven\") }\n\
                  #[cfg(test)]\nmod tests { fn h() { \"six\" } }\n";
    let found: Vec<String> = texts("crates/x/src/f.rs", source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one \\\" two", "three \" four", "five six"]);
}

/// The lines of a file, or the strings of a source, that a user may see.
fn texts(name: &str, text: &str) -> Vec<(usize, String)> {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let tests = ["/tests/", "/model_tests/", "tests.rs", "_test.rs"];
    let is_test = tests.iter().any(|part| name.contains(part));
    let is_source = name.starts_with("crates/") && name.contains("/src/") && extension == "rs";
    let is_page = name.starts_with("crates/server/page/") && ["js", "html"].contains(&extension);
    let is_document = extension == "md" && !name.starts_with("CHANGELOG");
    if is_source && !is_test {
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        // A single word is a key of JSON, and comments within SQL are part of the stored schema.
        let is_shown = |text: &str| text.contains(' ') && !text.contains("CREATE TABLE");
        strings(product).into_iter().filter(|(_, text)| is_shown(text)).collect()
    } else if is_page {
        let code = |line: &&str| !line.trim_start().starts_with("//") && !line.trim_start().starts_with('*');
        let field = Regex::new(r"\.\w+").expect("a pattern");
        let lines = (1..).zip(text.lines()).filter(|(_, line)| code(line));
        lines.map(|(number, line)| (number, field.replace_all(line, "").into_owned())).collect()
    } else if is_document {
        (1..).zip(text.lines()).map(|(number, line)| (number, line.to_owned())).collect()
    } else {
        Vec::new()
    }
}

/// The string literals of a Rust source with their lines; comments and characters are skipped.
fn strings(source: &str) -> Vec<(usize, String)> {
    let bytes = source.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if rest.starts_with("'\\") || (rest.starts_with('\'') && rest.chars().nth(2) == Some('\'')) {
            let skip = if rest.starts_with("'\\") { 3 } else { 1 };
            at += rest[skip..].find('\'').map_or(rest.len(), |end| skip + end + 1);
        } else if let Some((start, close)) = opened(rest) {
            let body = &rest[start..];
            let end = ended(body, close.as_deref());
            let line = source[..at].matches('\n').count() + 1;
            found.push((line, body[..end].to_owned()));
            at += start + end + close.map_or(1, |close| close.len());
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// Where the body of a string begins, and what closes it if it is raw.
fn opened(rest: &str) -> Option<(usize, Option<String>)> {
    if rest.starts_with('"') {
        return Some((1, None));
    }
    let raw = rest.strip_prefix('r')?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    raw[hashes..].starts_with('"').then(|| (hashes + 2, Some(format!("\"{}", "#".repeat(hashes)))))
}

fn ended(body: &str, close: Option<&str>) -> usize {
    if let Some(close) = close {
        return body.find(close).unwrap_or(body.len());
    }
    let mut is_escaped = false;
    for (at, character) in body.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    body.len()
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_built =
            path.is_dir() && (name == "node_modules" || name == ".git" || path.join("CACHEDIR.TAG").exists());
        if path.is_dir() && !is_built {
            files.extend(files_under(&path));
        } else if path.is_file() {
            files.push(path);
        }
    }
    files
}
