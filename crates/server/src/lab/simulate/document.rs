//! The page of `--html`: one file with the web page's own modules and styles, and the report as JSON.
//!
//! Invariants: the file makes no requests and runs no script but its own, which its policy names by hash; the
//! report is data, whatever names it has; the same report gives the same bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_lab::scenario::Scenario;
use ring::digest::{SHA256, digest};
use serde::Serialize;

use crate::api::page::{import_of, text_of};
use crate::lab::simulate::SimulateArgs;

/// Input of the page's `simulation/document.js`.
#[derive(Serialize)]
pub(crate) struct SimulationDocument<'a, R> {
    kind: &'static str,
    rules: String,
    about: Option<&'a str>,
    duration_ms: u64,
    /// As text: JavaScript numbers do not hold every seed.
    seeds: String,
    /// As `--format json` prints it.
    pub(crate) report: &'a R,
}

impl<'a, R> SimulationDocument<'a, R> {
    pub(crate) fn new(
        kind: &'static str,
        scenario: &'a Scenario,
        args: &SimulateArgs,
        report: &'a R,
    ) -> Self {
        let last = args.seed.saturating_add(u64::from(args.runs) - 1);
        Self {
            kind,
            rules: args.rules.display().to_string(),
            about: scenario.about.as_deref(),
            duration_ms: u64::try_from(scenario.duration.as_millis()).unwrap_or(u64::MAX),
            seeds: match args.runs {
                1 => format!("seed {last}"),
                _ => format!("seeds {} to {last}", args.seed),
            },
            report,
        }
    }
}

const STYLES: [&str; 4] = ["css/base.css", "css/parts.css", "css/figures.css", "css/simulation.css"];

const ENTRY: &str = "simulation/document.js";

pub(crate) fn document(played: &SimulationDocument<'_, impl Serialize>) -> serde_json::Result<String> {
    let mut script = String::new();
    add_module(ENTRY, &mut Vec::new(), &mut script);
    let hash = STANDARD.encode(digest(&SHA256, script.as_bytes()));
    // No tag can begin or end within the JSON.
    let report = serde_json::to_string(played)?.replace('<', "\\u003c");
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Simulation</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'\">\n\
         <style>\n{}</style>\n</head>\n<body class=\"document\">\n<main></main>\n\
         <footer><p class=\"dim small\">Simulated by redrive {} in virtual time, with the engine of the server.</p></footer>\n\
         <script type=\"application/json\" id=\"report\">{report}</script>\n<script>{script}</script>\n</body>\n</html>\n",
        STYLES.map(text_of).concat(),
        env!("CARGO_PKG_VERSION"),
    ))
}

/// Adds a module below those that it imports, as a function that returns its exports.
fn add_module(name: &str, added: &mut Vec<String>, script: &mut String) {
    if added.iter().any(|known| known == name) {
        return;
    }
    added.push(name.to_owned());
    let (mut body, mut exported) = (String::new(), Vec::new());
    for line in text_of(name).lines() {
        if let Some((names, file)) = import_of(name, line) {
            add_module(&file, added, script);
            body.push_str(&format!("const {{ {} }} = {};\n", names.replace(" as ", ": "), variable(&file)));
            continue;
        }
        let declared = line.strip_prefix("export ").unwrap_or(line);
        if declared.len() < line.len() {
            let words = declared.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_name = |word: &&str| !["async", "function", "const", "class", ""].contains(word);
            exported.extend(words.into_iter().find(is_name));
        }
        body.push_str(declared);
        body.push('\n');
    }
    let exported = exported.join(", ");
    script
        .push_str(&format!("const {} = (() => {{\n{body}return {{ {exported} }};\n}})();\n", variable(name)));
}

/// `simulation/run.js` → `$simulation_run`, a name that no module uses.
fn variable(name: &str) -> String {
    format!("${}", name.trim_end_matches(".js").replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_data_whatever_they_say() {
        const HOSTILE: &str = "</script></style><script>alert(1)</script><!-- \" onload='x' \u{202e}";
        let played = SimulationDocument {
            kind: "run",
            rules: HOSTILE.to_owned(),
            about: Some(HOSTILE),
            duration_ms: 1,
            seeds: HOSTILE.to_owned(),
            report: &[HOSTILE],
        };
        let page = document(&played).expect("texts are JSON");
        assert_eq!(page.matches("<script").count(), 2, "the report and the page's own");
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("<!--") && !page.contains("@import") && !page.contains("url("), "{page}");
        let (_, rest) = page.split_once("id=\"report\">").expect("the report is there");
        let (report, _) = rest.split_once("</script>").expect("it ends");
        let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
        assert_eq!((&report["about"], &report["report"][0]), (&HOSTILE.into(), &HOSTILE.into()));
        assert_eq!(page, document(&played).expect("texts are JSON"), "the same bytes");
        assert!(!page.contains("\nimport ") && !page.contains("\nexport "), "modules are put together");
    }
}
