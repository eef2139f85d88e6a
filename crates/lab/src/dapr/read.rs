//! Reads a Dapr resiliency file and applies Dapr's silent defaults, with a remark for each.
//!
//! Invariants: what Dapr refuses is a problem; what it ignores is a remark; every policy name left at a target is
//! defined.

mod fields;
mod policies;
mod targets;

pub(super) use self::policies::is_reserved;
use super::Remarks;
use super::model::Resiliency;
use redrive_core::book::problem::{BookSpan, Problem, Problems, nearest};
use redrive_core::book::yaml::{self, YamlNode, YamlValue};

#[derive(Debug)]
pub(super) struct DaprResource {
    pub(super) resiliency: Resiliency,
    pub(super) notes: Remarks,
}

pub(super) fn read(text: &str) -> Result<DaprResource, Vec<Problem>> {
    let mut problems = Problems::default();
    let root = yaml::read(text, &mut problems);
    if let Some(root) = &root {
        yaml::check_keys(root, &mut problems);
    }
    let Some(root) = root.filter(|_| !problems.has_errors()) else {
        if !problems.has_errors() {
            let help = "use a file with `kind: Resiliency`";
            problems.error("empty-file", BookSpan::default(), "the file is empty", help);
        }
        return Err(problems.into_sorted().into_iter().map(import_problem).collect());
    };
    let mut reader = DaprReader { problems, notes: Remarks::default() };
    let resiliency = reader.resource(&root);
    if reader.problems.has_errors() {
        return Err(reader.problems.into_sorted());
    }
    Ok(DaprResource { resiliency, notes: reader.notes })
}

/// The YAML reader's messages are about rule books.
fn import_problem(problem: Problem) -> Problem {
    let help = match problem.code {
        "second-document" => "import one resource at a time: cut the file at `---`",
        "yaml-alias" | "yaml-anchor" | "yaml-merge-key" => "write the value out wherever it is used",
        "yaml-tag" => "leave the tag out",
        "file-too-large" => "import it in parts",
        _ => return problem,
    };
    let message = match problem.code {
        "yaml-alias" => "aliases (`*name`) cannot be imported".to_owned(),
        _ => problem.message,
    };
    Problem { message, help: help.to_owned(), ..problem }
}

struct DaprReader {
    problems: Problems,
    notes: Remarks,
}

impl DaprReader {
    fn resource(&mut self, root: &YamlNode) -> Resiliency {
        let word = |key| root.get(key).and_then(YamlNode::text).unwrap_or_default();
        if word("kind") != "Resiliency" || !word("apiVersion").starts_with("dapr.io/") {
            let place = root.get("kind").or_else(|| root.get("apiVersion")).unwrap_or(root);
            let help = "it must have `apiVersion: dapr.io/v1alpha1` and `kind: Resiliency`";
            self.problems.error("not-dapr", place.span, "not a Dapr resiliency resource", help);
            return Resiliency::default();
        }
        self.known_keys(root, "", &["apiVersion", "kind", "metadata", "scopes", "spec"]);
        let metadata = |key| {
            let text = root.get("metadata")?.get(key)?.text()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let mut resiliency = Resiliency {
            name: metadata("name"),
            namespace: metadata("namespace"),
            scopes: self.scopes(root),
            ..Resiliency::default()
        };
        let Some(spec) = self.section(root, "spec") else {
            self.missing_spec(root);
            return resiliency;
        };
        for key in ["policies", "targets"] {
            if spec.get(key).is_none() {
                self.notes.add(format!("spec.{key}"), "missing: Kubernetes refuses the resource without it");
            }
        }
        self.known_keys(spec, "spec", &["policies", "targets"]);
        if let Some(policies) = self.section(spec, "policies") {
            self.policies(policies, &mut resiliency);
        }
        if let Some(targets) = self.section(spec, "targets") {
            self.targets(targets, &mut resiliency);
        }
        resiliency
    }

    /// Unless another problem was reported.
    fn missing_spec(&mut self, root: &YamlNode) {
        if self.problems.has_errors() {
            return;
        }
        let is_slip = |key: &&YamlNode| key.text().is_some_and(|text| nearest(text, ["spec"]).is_some());
        let slip =
            root.entries().iter().map(|(key, _)| key).filter(|key| key.text() != Some("spec")).find(is_slip);
        let message = "the resource has no `spec`, so it has no policies and no targets";
        let (span, help) = match slip.and_then(|key| Some((key.span, key.text()?))) {
            Some((span, text)) => (span, format!("write `spec` for `{text}`")),
            None => (root.span, "put `policies` and `targets` under `spec`".to_owned()),
        };
        self.problems.error("missing-key", span, message, help);
    }

    fn scopes(&mut self, root: &YamlNode) -> Vec<String> {
        let Some(scopes) = root.get("scopes") else { return Vec::new() };
        if !matches!(scopes.value, YamlValue::List(_) | YamlValue::Null) {
            self.wrong_shape(scopes, "`scopes` takes a list of app ids");
        }
        for scope in scopes.items().iter().filter(|scope| scope.text().is_none()) {
            self.wrong_shape(scope, "a scope is an app id");
        }
        let texts = scopes.items().iter().filter_map(YamlNode::text).filter(|text| !text.is_empty());
        texts.map(str::to_owned).collect()
    }
}
