//! The web page: files that are compiled into this program and served to everyone.
//!
//! They contain no data: the page requests it from the API like any client, with a key where one is needed.
//!
//! Invariants: every file of `page/` is in the table, or a test fails; nothing is read from disk; by its
//! content security policy the page uses no script, style or server but this one.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use ring::digest::{SHA256, digest};

use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult};

const HTML: &str = "text/html; charset=utf-8";

const SCRIPT: &str = "text/javascript; charset=utf-8";

const STYLE: &str = "text/css; charset=utf-8";

const DRAWING: &str = "image/svg+xml";

const FIRST: &str = "index.html";

/// Every file: its path below `page/`, its content type, and its content.
#[rustfmt::skip]
const FILES: &[(&str, &str, &[u8])] = &[
    (FIRST,                 HTML,    include_bytes!("../../page/index.html")),
    ("mark.svg",            DRAWING, include_bytes!("../../page/mark.svg")),
    ("css/base.css",        STYLE,   include_bytes!("../../page/css/base.css")),
    ("css/shell.css",       STYLE,   include_bytes!("../../page/css/shell.css")),
    ("css/parts.css",       STYLE,   include_bytes!("../../page/css/parts.css")),
    ("css/figures.css",     STYLE,   include_bytes!("../../page/css/figures.css")),
    ("css/guide.css",       STYLE,   include_bytes!("../../page/css/guide.css")),
    ("css/views.css",       STYLE,   include_bytes!("../../page/css/views.css")),
    ("css/recover.css",     STYLE,   include_bytes!("../../page/css/recover.css")),
    ("css/simulation.css",  STYLE,   include_bytes!("../../page/css/simulation.css")),
    ("theme.js",            SCRIPT,  include_bytes!("../../page/theme.js")),
    ("main.js",             SCRIPT,  include_bytes!("../../page/main.js")),
    ("shell.js",            SCRIPT,  include_bytes!("../../page/shell.js")),
    ("dom.js",              SCRIPT,  include_bytes!("../../page/dom.js")),
    ("format.js",           SCRIPT,  include_bytes!("../../page/format.js")),
    ("guide.js",            SCRIPT,  include_bytes!("../../page/guide.js")),
    ("icons.js",            SCRIPT,  include_bytes!("../../page/icons.js")),
    ("api.js",              SCRIPT,  include_bytes!("../../page/api.js")),
    ("live.js",             SCRIPT,  include_bytes!("../../page/live.js")),
    ("server_clock.js",     SCRIPT,  include_bytes!("../../page/server_clock.js")),
    ("visibility.js",       SCRIPT,  include_bytes!("../../page/visibility.js")),
    ("scope.js",            SCRIPT,  include_bytes!("../../page/scope.js")),
    ("session.js",          SCRIPT,  include_bytes!("../../page/session.js")),
    ("keyboard.js",         SCRIPT,  include_bytes!("../../page/keyboard.js")),
    ("dialog.js",           SCRIPT,  include_bytes!("../../page/dialog.js")),
    ("ui.js",               SCRIPT,  include_bytes!("../../page/ui.js")),
    ("watch.js",            SCRIPT,  include_bytes!("../../page/watch.js")),
    ("plot.js",             SCRIPT,  include_bytes!("../../page/plot.js")),
    ("breaker.js",          SCRIPT,  include_bytes!("../../page/breaker.js")),
    ("delivery_text.js",    SCRIPT,  include_bytes!("../../page/delivery_text.js")),
    ("timeline.js",         SCRIPT,  include_bytes!("../../page/timeline.js")),
    ("history.js",          SCRIPT,  include_bytes!("../../page/history.js")),
    ("activity.js",         SCRIPT,  include_bytes!("../../page/activity.js")),
    ("first_event.js",      SCRIPT,  include_bytes!("../../page/first_event.js")),
    ("views/overview.js",   SCRIPT,  include_bytes!("../../page/views/overview.js")),
    ("views/attention.js",  SCRIPT,  include_bytes!("../../page/views/attention.js")),
    ("views/services.js",   SCRIPT,  include_bytes!("../../page/views/services.js")),
    ("views/breakers.js",   SCRIPT,  include_bytes!("../../page/views/breakers.js")),
    ("views/deliveries.js", SCRIPT,  include_bytes!("../../page/views/deliveries.js")),
    ("views/delivery.js",   SCRIPT,  include_bytes!("../../page/views/delivery.js")),
    ("letter_table.js",     SCRIPT,  include_bytes!("../../page/letter_table.js")),
    ("policies.js",         SCRIPT,  include_bytes!("../../page/policies.js")),
    ("purge.js",            SCRIPT,  include_bytes!("../../page/purge.js")),
    ("highlight.js",        SCRIPT,  include_bytes!("../../page/highlight.js")),
    ("views/alerts.js",     SCRIPT,  include_bytes!("../../page/views/alerts.js")),
    ("views/audit.js",      SCRIPT,  include_bytes!("../../page/views/audit.js")),
    ("views/book.js",       SCRIPT,  include_bytes!("../../page/views/book.js")),
    ("views/doctor.js",     SCRIPT,  include_bytes!("../../page/views/doctor.js")),
    ("views/groups.js",     SCRIPT,  include_bytes!("../../page/views/groups.js")),
    ("views/keys.js",       SCRIPT,  include_bytes!("../../page/views/keys.js")),
    ("views/letters.js",    SCRIPT,  include_bytes!("../../page/views/letters.js")),
    ("views/new_replay.js", SCRIPT,  include_bytes!("../../page/views/new_replay.js")),
    ("views/simulate.js",   SCRIPT,  include_bytes!("../../page/views/simulate.js")),
    ("views/replays.js",    SCRIPT,  include_bytes!("../../page/views/replays.js")),
    ("simulation/run.js",        SCRIPT, include_bytes!("../../page/simulation/run.js")),
    ("simulation/dependency.js", SCRIPT, include_bytes!("../../page/simulation/dependency.js")),
    ("simulation/parts.js",      SCRIPT, include_bytes!("../../page/simulation/parts.js")),
    ("simulation/chart.js",      SCRIPT, include_bytes!("../../page/simulation/chart.js")),
    ("simulation/ticks.js",      SCRIPT, include_bytes!("../../page/simulation/ticks.js")),
    ("simulation/ranges.js",     SCRIPT, include_bytes!("../../page/simulation/ranges.js")),
    ("simulation/comparison.js", SCRIPT, include_bytes!("../../page/simulation/comparison.js")),
    ("simulation/sweep.js",      SCRIPT, include_bytes!("../../page/simulation/sweep.js")),
    ("simulation/document.js",   SCRIPT, include_bytes!("../../page/simulation/document.js")),
];

/// Security headers of every file: sources of scripts and styles, allowed requests, and no framing.
#[rustfmt::skip]
const RULES: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    // Browsers revalidate each time, which is cheap thanks to the tag.
    (header::CACHE_CONTROL, "no-cache"),
];

pub(crate) async fn first(asked: HeaderMap) -> ApiResult {
    serve(FIRST, &asked)
}

pub(crate) async fn file(Path(name): Path<String>, asked: HeaderMap) -> ApiResult {
    serve(&name, &asked)
}

fn serve(name: &str, asked: &HeaderMap) -> ApiResult {
    let at = FILES.iter().position(|(known, ..)| *known == name);
    let at = at.ok_or_else(|| ApiError::new(ApiCode::PathNotFound, "no such file"))?;
    let (_, kind, content) = FILES[at];
    let tag = &TAGS[at];
    let is_known = asked.get_all(header::IF_NONE_MATCH).iter().any(|known| known == tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, kind)], Bytes::from_static(content)).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag.clone());
    headers.extend(RULES.map(|(name, rule)| (name, HeaderValue::from_static(rule))));
    Ok(response)
}

static TAGS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| FILES.iter().map(|(_, _, content)| tag(content)).collect());

/// Enough that no two versions of a file share a tag.
const TAG_BYTES: usize = 12;

fn tag(content: &[u8]) -> HeaderValue {
    let digest = digest(&SHA256, content);
    let digits = digest.as_ref()[..TAG_BYTES].iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string takes everything");
        digits
    });
    HeaderValue::from_str(&format!("\"{digits}\"")).expect("quoted digits are a header")
}

pub(crate) fn text_of(name: &str) -> &'static str {
    let (.., content) = FILES.iter().find(|(known, ..)| *known == name).expect("the page has this file");
    std::str::from_utf8(content).expect("files are text")
}

/// Parses `import { one, two as other } from "./file.js";`: the names and the file.
pub(crate) fn import_of<'a>(name: &str, line: &'a str) -> Option<(&'a str, String)> {
    let (names, file) = line.strip_prefix("import { ")?.strip_suffix("\";")?.split_once(" } from \"")?;
    let folder = name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let file = match file.strip_prefix("../") {
        Some(above) => above.to_owned(),
        None => folder + file.strip_prefix("./")?,
    };
    Some((names, file))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path as FilePath;

    use super::*;

    const LINES_MAX: usize = 300;
    const LINE_CHARS_MAX: usize = 200;

    fn folder() -> &'static FilePath {
        FilePath::new(concat!(env!("CARGO_MANIFEST_DIR"), "/page"))
    }

    fn below(folder: &FilePath, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                below(&path, found);
            } else {
                let name = path.strip_prefix(self::folder()).expect("it is below");
                found.insert(name.to_str().expect("names are text").to_owned());
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_served() {
        let mut found = BTreeSet::new();
        below(folder(), &mut found);
        let served: BTreeSet<_> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(served.len(), FILES.len(), "a file is in the table twice");
        assert_eq!(served, found);
    }

    /// A browser that discovers modules import by import needs a round trip per level.
    #[test]
    fn whatever_views_share_is_asked_for_at_once() {
        let page = include_str!("../../page/index.html");
        for (name, ..) in FILES.iter().filter(|(name, kind, _)| *kind == SCRIPT && !name.contains('/')) {
            let is_script = page.contains(&format!("src=\"page/{name}\""));
            let is_preloaded = page.contains(&format!("rel=\"modulepreload\" href=\"page/{name}\""));
            assert!(is_script != is_preloaded, "{name} is not named in the page, or twice");
        }
    }

    #[test]
    fn scripts_are_short_and_nothing_is_markup_that_came_from_elsewhere() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "style=\"",
            " onclick=\"",
        ];
        for (name, kind, content) in FILES {
            let text = std::str::from_utf8(content).expect("files are text");
            for word in forbidden.iter().filter(|word| text.contains(**word)) {
                assert!(*name == "main.js" && *word == "innerHTML", "{name} has {word}");
            }
            let places = ["https://", "http://"].into_iter().flat_map(|scheme| text.match_indices(scheme));
            for (at, _) in places {
                assert!(text[at..].starts_with("http://www.w3.org/"), "{name} names another place");
            }
            if *kind == SCRIPT {
                assert!(text.starts_with("/**"), "{name} does not say what it is for");
                assert!(text.lines().count() <= LINES_MAX, "{name} is too long");
                let long = text.lines().position(|line| line.chars().count() > LINE_CHARS_MAX);
                assert_eq!(long, None, "{name}: a line is too long (counted from 0)");
            }
        }
    }

    /// A script imports only what it uses, and exports only what others import.
    #[test]
    fn every_import_is_used_and_every_export_imported() {
        let scripts: Vec<(&str, &str)> = FILES
            .iter()
            .filter(|(_, kind, _)| *kind == SCRIPT)
            .map(|(name, _, content)| (*name, std::str::from_utf8(content).expect("files are text")))
            .collect();
        let imported: BTreeSet<(String, &str)> = scripts
            .iter()
            .flat_map(|(name, text)| imports(name, text))
            .map(|import| (import.file, import.there))
            .collect();
        let mut problems = Vec::new();
        for (name, text) in &scripts {
            for Import { here, .. } in imports(name, text).filter(|import| !uses(text, import.here)) {
                problems.push(format!("{name} imports `{here}` and does not use it"));
            }
            for exported in text.lines().filter_map(exported) {
                // The module of a view is loaded on demand.
                let is_view = exported == "view" && name.starts_with("views/");
                if !is_view && !imported.contains(&((*name).to_owned(), exported)) {
                    problems.push(format!("{name} exports `{exported}`, which no file imports"));
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    struct Import<'a> {
        file: String,
        there: &'a str,
        here: &'a str,
    }

    fn imports<'a>(name: &'a str, text: &'a str) -> impl Iterator<Item = Import<'a>> {
        let lines = text.lines().filter(|line| line.starts_with("import "));
        lines.flat_map(move |line| {
            let (names, file) = import_of(name, line)
                .unwrap_or_else(|| panic!("{name}: an import of another form, or from elsewhere: {line}"));
            names.split(", ").map(move |one| {
                let (there, here) = one.split_once(" as ").unwrap_or((one, one));
                Import { file: file.clone(), there, here }
            })
        })
    }

    fn exported(line: &str) -> Option<&str> {
        let declared = line.strip_prefix("export ")?.trim_start_matches("async ");
        let named = declared.split_once(' ').expect("an export has a name").1;
        named.split(|char: char| !is_of_word(char)).next()
    }

    fn uses(text: &str, word: &str) -> bool {
        let is_code = |line: &&str| {
            !["import ", "/*", "*", "//"].iter().any(|start| line.trim_start().starts_with(start))
        };
        text.lines()
            .filter(is_code)
            .flat_map(|line| line.split(|char: char| !is_of_word(char)))
            .any(|found| found == word)
    }

    fn is_of_word(char: char) -> bool {
        char.is_alphanumeric() || char == '_' || char == '$'
    }

    #[test]
    fn a_file_is_sent_once_and_known_afterwards() {
        let first = serve(FIRST, &HeaderMap::new()).expect("it is there");
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[header::CONTENT_TYPE], HTML);
        let policy = first.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("it is text");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(serve(FIRST, &asked).expect("it is there").status(), StatusCode::NOT_MODIFIED);
        let other = serve("main.js", &asked).expect("it is there");
        assert_eq!(other.status(), StatusCode::OK, "the tag of one file is not another's");
        for name in ["../src/main.rs", "", "views", "/etc/hostname"] {
            assert!(serve(name, &HeaderMap::new()).is_err(), "{name}");
        }
    }
}
