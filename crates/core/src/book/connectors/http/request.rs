//! The request of an `http` target where the book shapes it: `path`, `query`, `headers`, `body` and `form` as
//! templates of the event.
//!
//! Invariants: a value of the event stays in the part of the request that its template has for it, and a
//! request is filled in completely or not at all.

use std::collections::BTreeMap;

use super::{HttpFormat, HttpMethod, SettingsReader};
use crate::book::template::{
    JsonTemplate, RenderError, Template, TemplateContext, TemplateNeeds, TemplatePlace, percent_encoded,
};
use crate::book::yaml::{Quoted, YamlNode, YamlValue};
use crate::limits;

/// The code of a template that cannot be filled in.
const CODE: &str = "bad-template";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTemplates {
    /// Appended to the path of the address.
    pub path: Option<Template>,
    /// Appended to the query of the address, in this order.
    pub query: Vec<(String, Template)>,
    /// Names in lower case, which may stand in a request.
    pub headers: BTreeMap<String, Template>,
    pub content: RequestContent,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RequestContent {
    /// The event in the target's format.
    #[default]
    Event,
    /// For methods without a body.
    Nothing,
    Text(Template),
    Json(JsonTemplate),
    Form(Vec<(String, Template)>),
}

impl RequestContent {
    /// What `content-type` says unless the book does.
    #[must_use]
    pub const fn media_type(&self) -> Option<&'static str> {
        match self {
            Self::Event | Self::Nothing => None,
            Self::Text(_) => Some("text/plain; charset=utf-8"),
            Self::Json(_) => Some("application/json"),
            Self::Form(_) => Some("application/x-www-form-urlencoded"),
        }
    }
}

/// The parts of a request that depend on the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilledRequest {
    /// Path and query; `None` if they are those of the address.
    pub target: Option<String>,
    /// Those of [`RequestTemplates::headers`], each printable ASCII.
    pub headers: Vec<String>,
    /// `None` if the content is the event.
    pub body: Option<Vec<u8>>,
}

/// The event lacks something that the request needs, or its values do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("call not made: `{part}`: {reason}")]
pub struct EventMisfit {
    part: String,
    reason: MisfitReason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MisfitReason {
    #[error(transparent)]
    Template(#[from] RenderError),
    #[error("the value has characters not allowed in a header")]
    Header,
    #[error("path and query have more than {} bytes", limits::REQUEST_TARGET_BYTES_MAX)]
    LongTarget,
    #[error("the body has more than {} bytes", limits::TEMPLATE_OUTPUT_BYTES_MAX)]
    LongBody,
}

impl EventMisfit {
    /// A field that the event lacks, such as `data.user.id`.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        match &self.reason {
            MisfitReason::Template(RenderError::Missing { field }) => Some(field),
            MisfitReason::Template(
                RenderError::UnsafePath { .. }
                | RenderError::TooLarge { .. }
                | RenderError::TooManySteps { .. }
                | RenderError::Failed { .. },
            )
            | MisfitReason::Header
            | MisfitReason::LongTarget
            | MisfitReason::LongBody => None,
        }
    }
}

impl RequestTemplates {
    /// What filling in needs of an event.
    #[must_use]
    pub fn needs(&self) -> TemplateNeeds {
        TemplateNeeds::of(self.templates())
    }

    fn templates(&self) -> Vec<&Template> {
        let content = match &self.content {
            RequestContent::Event | RequestContent::Nothing => Vec::new(),
            RequestContent::Text(template) => vec![template],
            RequestContent::Json(json) => json.templates(),
            RequestContent::Form(fields) => fields.iter().map(|(_, template)| template).collect(),
        };
        let query = self.query.iter().map(|(_, template)| template);
        self.path.iter().chain(query).chain(self.headers.values()).chain(content).collect()
    }

    /// `base` has the path and query of the address.
    pub fn fill(&self, base: &str, context: &TemplateContext) -> Result<FilledRequest, EventMisfit> {
        let headers = self.headers.iter().map(|(name, template)| {
            let part = || format!("headers.{name}");
            let value = render(template, context, limits::REQUEST_HEADER_BYTES_MAX, part)?;
            let is_fit = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if is_fit { Ok(value) } else { Err(EventMisfit { part: part(), reason: MisfitReason::Header }) }
        });
        Ok(FilledRequest {
            target: self.target(base, context)?,
            headers: headers.collect::<Result<_, _>>()?,
            body: self.body(context)?,
        })
    }

    /// All fields that the event lacks.
    #[must_use]
    pub fn missing(&self, context: &TemplateContext) -> Vec<String> {
        let lacks = |template: &Template| match template.render(context, limits::TEMPLATE_OUTPUT_BYTES_MAX) {
            Err(RenderError::Missing { field }) => Some(field),
            Ok(_) | Err(_) => None,
        };
        let mut missing: Vec<String> = self.templates().into_iter().filter_map(lacks).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    fn target(&self, base: &str, context: &TemplateContext) -> Result<Option<String>, EventMisfit> {
        if self.path.is_none() && self.query.is_empty() {
            return Ok(None);
        }
        let (path, query) = base.split_once('?').unwrap_or((base, ""));
        let mut target = path.to_owned();
        let max = limits::REQUEST_TARGET_BYTES_MAX;
        if let Some(template) = &self.path {
            target.truncate(target.trim_end_matches('/').len());
            target += &render(template, context, max, || "path".to_owned())?;
        }
        let mut separator = '?';
        if !query.is_empty() {
            target.push(separator);
            target += query;
            separator = '&';
        }
        for (name, template) in &self.query {
            let value = render(template, context, max, || format!("query.{name}"))?;
            target.push(separator);
            target += &percent_encoded(name);
            target.push('=');
            target += &percent_encoded(&value);
            separator = '&';
        }
        if target.len() > base.len() + max {
            return Err(EventMisfit { part: "path".to_owned(), reason: MisfitReason::LongTarget });
        }
        Ok(Some(target))
    }

    fn body(&self, context: &TemplateContext) -> Result<Option<Vec<u8>>, EventMisfit> {
        let max = limits::TEMPLATE_OUTPUT_BYTES_MAX;
        let part = || "body".to_owned();
        Ok(Some(match &self.content {
            RequestContent::Event => return Ok(None),
            RequestContent::Nothing => Vec::new(),
            RequestContent::Text(template) => render(template, context, max, part)?.into_bytes(),
            RequestContent::Json(json) => json
                .render_bytes(context, max)
                .map_err(|error| EventMisfit { part: part(), reason: error.into() })?,
            RequestContent::Form(fields) => {
                let mut body = String::new();
                for (name, template) in fields {
                    let part = || format!("form.{name}");
                    let value = render(template, context, max, part)?;
                    body += if body.is_empty() { "" } else { "&" };
                    body += &form_encoded(name);
                    body.push('=');
                    body += &form_encoded(&value);
                    if body.len() > max {
                        return Err(EventMisfit { part: part(), reason: MisfitReason::LongBody });
                    }
                }
                body.into_bytes()
            }
        }))
    }
}

fn render(
    template: &Template,
    context: &TemplateContext,
    max: usize,
    part: impl Fn() -> String,
) -> Result<String, EventMisfit> {
    template.render(context, max).map_err(|error| EventMisfit { part: part(), reason: error.into() })
}

/// As browsers send forms.
fn form_encoded(text: &str) -> String {
    percent_encoded(text).replace("%20", "+")
}

/// Without the headers.
pub(super) fn read(form: HttpFormat, method: HttpMethod, from: &mut SettingsReader<'_>) -> RequestTemplates {
    if form != HttpFormat::Binary {
        from.exclude(&["body", "form"], "`format` sets the body");
    }
    if method == HttpMethod::Get {
        from.exclude(&["body", "form", "format"], "`method: GET` has no body");
    }
    if from.node("body").is_some() {
        from.exclude(&["form"], "`body` sets the body");
    }
    let path = from.node("path").and_then(|node| path(node, from));
    let query = fields("query", from);
    let content = if method == HttpMethod::Get {
        RequestContent::Nothing
    } else if let Some(node) = from.node("body") {
        match &node.value {
            YamlValue::Scalar { .. } => {
                template(node, "body", TemplatePlace::Text, from).map(RequestContent::Text)
            }
            _ => json(node, from).map(RequestContent::Json),
        }
        .unwrap_or_default()
    } else if from.node("form").is_some() {
        RequestContent::Form(fields("form", from))
    } else {
        RequestContent::Event
    };
    let request = RequestTemplates { path, query, headers: BTreeMap::new(), content };
    let count = request.templates().len();
    if count > limits::REQUEST_TEMPLATES_MAX {
        let message = format!("a request has at most {} texts, not {count}", limits::REQUEST_TEMPLATES_MAX);
        from.error("body", CODE, message, "");
    }
    if form == HttpFormat::Batch && request.needs() != TemplateNeeds::default() {
        let message = "a batch has several events, so `path` and `query` cannot name values of one";
        from.error("format", CODE, message, "use another format, or write them without values");
    }
    request
}

/// `None` if a problem was reported.
pub(super) fn template(
    node: &YamlNode,
    part: &str,
    place: TemplatePlace,
    from: &mut SettingsReader<'_>,
) -> Option<Template> {
    let parsed = from.template(part, node, place)?;
    parsed
        .map_err(|error| {
            let help = "write values as `{{ data.user.id }}`";
            from.problem(CODE, node.span, format!("the template of `{part}` is invalid: {error}"), help);
        })
        .ok()
}

fn fields(key: &'static str, from: &mut SettingsReader<'_>) -> Vec<(String, Template)> {
    let entries = from.node(key).map(YamlNode::entries).unwrap_or_default();
    let mut fields = Vec::new();
    for (name, value) in entries {
        let Some(name) = plain_name(name, from) else { continue };
        fields.extend(
            template(value, &format!("{key}.{name}"), TemplatePlace::Text, from).map(|it| (name, it)),
        );
    }
    fields
}

/// Names are sent as written.
fn plain_name(name: &YamlNode, from: &mut SettingsReader<'_>) -> Option<String> {
    let text = name.text()?;
    if text.contains("{{") || text.contains("{%") {
        let message = format!("the name `{text}` has a template");
        from.problem(CODE, name.span, message, "use templates in values only");
        return None;
    }
    Some(text.to_owned())
}

fn path(node: &YamlNode, from: &mut SettingsReader<'_>) -> Option<Template> {
    let path = template(node, "path", TemplatePlace::Path, from)?;
    let literal = path.literal_parts();
    let refused = literal.iter().find_map(|part| odd_in_path(part));
    let refused = if path.as_str().starts_with('/') {
        refused.or_else(|| {
            let mut segments = literal.iter().flat_map(|part| part.split('/'));
            segments.any(|segment| matches!(segment, "." | "..")).then(|| "a segment of dots".to_owned())
        })
    } else {
        let message = "a path begins with `/`";
        from.problem("bad-path", node.span, message, "it is appended to the address, such as /users");
        return None;
    };
    let Some(odd) = refused else { return Some(path) };
    let help =
        "write values as `{{ data.user.id }}`, percent-encode other characters, and put a query into `query`";
    from.problem("bad-path", node.span, format!("the path has {odd}"), help);
    None
}

/// What RFC 3986 does not allow in a path.
fn odd_in_path(literal: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(c);
    if let Some(odd) = literal.chars().find(|c| !is_plain(*c)) {
        return Some(format!("the character `{}`", odd.escape_debug()));
    }
    let is_hex = |text: &str| text.len() >= 2 && text.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    let is_escaped = literal.split('%').skip(1).all(is_hex);
    (!is_escaped).then(|| "a `%` without two hexadecimal digits".to_owned())
}

/// YAML as JSON; texts are templates. `None` if a problem was reported.
fn json(node: &YamlNode, from: &mut SettingsReader<'_>) -> Option<JsonTemplate> {
    Some(match &node.value {
        YamlValue::Refused => return None,
        YamlValue::Null => JsonTemplate::Fixed(serde_json::Value::Null),
        YamlValue::Scalar { text, quoted: Quoted::No } if is_value(text) => {
            JsonTemplate::Fixed(serde_json::from_str(text).ok()?)
        }
        YamlValue::Scalar { .. } => JsonTemplate::Text(template(node, "body", TemplatePlace::Text, from)?),
        YamlValue::List(items) => {
            let read: Vec<_> = items.iter().filter_map(|item| json(item, from)).collect();
            JsonTemplate::List(read)
        }
        YamlValue::Map(entries) => {
            let mut read = Vec::new();
            for (name, value) in entries {
                let Some(name) = plain_name(name, from) else { continue };
                read.extend(json(value, from).map(|value| (name, value)));
            }
            JsonTemplate::Object(read)
        }
    })
}

/// `true`, `false` and numbers as JSON has them.
fn is_value(text: &str) -> bool {
    matches!(text, "true" | "false") || serde_json::from_str::<serde_json::Number>(text).is_ok()
}

#[cfg(test)]
mod tests;
