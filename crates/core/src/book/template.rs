//! Templates of requests: texts that are filled in from an event, in Jinja's language.
//!
//! `{{ data.user.name }}` stands for a value; `{% if … %}` and `{% for … %}` choose and repeat. A text without
//! either may use the short form of keys and names: `{data.user.name}`.
//!
//! Invariants: rendering neither fails nor differs by anything but the event, ends within a number of steps and
//! bytes, and a value that is absent is an error, never an empty text. Only the filters and tags listed here
//! exist, and none of them can make more than a small multiple of what it is given.

mod json;
mod language;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind};

pub use self::json::JsonTemplate;
pub(crate) use self::language::percent_encoded;
use crate::event::Event;
use crate::event::attribute::{ContentType, ExtensionValue};
use crate::limits;

/// Compiled once, shared by all calls.
#[derive(Clone)]
pub struct Template {
    text: Arc<str>,
    /// `None` if the text is sent as written.
    compiled: Option<Arc<Compiled>>,
}

struct Compiled {
    environment: Environment<'static>,
    /// Such as `data.user.name`, sorted.
    fields: Vec<String>,
    is_one_value: bool,
}

/// What values may not contain where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePlace {
    Text,
    /// A value is one segment of a path, or a part of one.
    Path,
    /// A value is text or part of an attribute in quotes.
    Html,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    #[error("a template has at most {} bytes", limits::TEMPLATE_BYTES_MAX)]
    TooLong,
    #[error("{reason}")]
    Syntax { reason: String },
    #[error("an expression or the blocks around it are too deeply nested")]
    TooComplex,
    #[error("unknown tag `{{% {tag} %}}`: templates have `if` and `for`")]
    UnknownTag { tag: String },
    #[error("unknown filter `{name}`: templates have {}", language::FILTERS.join(", "))]
    UnknownFilter { name: String },
    #[error("unknown test `is {name}`: templates have {}", language::TESTS.join(", "))]
    UnknownTest { name: String },
    #[error("unknown value `{name}`: an event has {}", language::ROOTS.join(", "))]
    UnknownValue { name: String },
}

/// Why a template and an event give no text. Messages never contain values of the event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("`{field}` is missing in the event")]
    Missing { field: String },
    #[error("`{template}` has an empty value or `..` in a path")]
    UnsafePath { template: String },
    #[error("`{template}` makes more than {max} bytes")]
    TooLarge { template: String, max: usize },
    #[error("`{template}` takes too many steps")]
    TooManySteps { template: String },
    #[error("`{template}` failed: {reason}")]
    Failed { template: String, reason: String },
}

/// What a template can name: the event, its delivery and the attempt. All that is rendered with it shares one
/// limit of steps.
pub struct TemplateContext {
    values: Value,
    steps: AtomicU64,
}

/// The first words of the values that templates name, so that nothing else is prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateNeeds(u16);

impl TemplateNeeds {
    pub const ALL: Self = Self(u16::MAX);

    #[must_use]
    pub fn of<'a>(templates: impl IntoIterator<Item = &'a Template>) -> Self {
        let fields = templates.into_iter().flat_map(Template::fields);
        let roots = fields.filter_map(|field| {
            let root = field.split('.').next()?;
            language::ROOTS.iter().position(|known| *known == root)
        });
        Self(roots.fold(0, |needs, place| needs | 1 << place))
    }

    fn has(self, root: &str) -> bool {
        language::ROOTS
            .iter()
            .position(|known| *known == root)
            .is_some_and(|place| self.0 & (1 << place) != 0)
    }
}

impl TemplateContext {
    #[must_use]
    pub fn new(event: &Event, delivery: &str, attempt: u32) -> Self {
        Self::with(TemplateNeeds::ALL, event, delivery, attempt)
    }

    /// With what is needed only: parsing the data costs more than a rendering.
    #[must_use]
    pub fn with(needs: TemplateNeeds, event: &Event, delivery: &str, attempt: u32) -> Self {
        let mut values: Vec<(&str, Value)> = Vec::new();
        let mut add = |name, value: &dyn Fn() -> Option<Value>| {
            if needs.has(name) {
                values.extend(value().map(|value| (name, value)));
            }
        };
        add("id", &|| Some(event.id.as_str().into()));
        add("source", &|| Some(event.source.as_str().into()));
        add("type", &|| Some(event.event_type.as_str().into()));
        add("delivery", &|| Some(delivery.into()));
        add("attempt", &|| Some(attempt.into()));
        add("subject", &|| event.subject.as_ref().map(|subject| subject.as_str().into()));
        add("session", &|| event.session.as_ref().map(|session| session.as_str().into()));
        add("correlation_id", &|| event.correlation_id.as_ref().map(|id| id.as_str().into()));
        add("time", &|| event.time.map(|time| time.to_string().into()));
        add("data", &|| data(event));
        add("extensions", &|| Some(extensions(event)));
        Self { values: Value::from_pairs(values), steps: AtomicU64::new(0) }
    }

    /// `false` if no more are left.
    fn spend(&self, steps: u64) -> bool {
        let before = self.steps.fetch_add(steps, Ordering::Relaxed);
        before.saturating_add(steps) <= limits::TEMPLATE_STEPS_MAX
    }

    fn has(&self, field: &str) -> bool {
        let found = field.split('.').try_fold(self.values.clone(), |value, word| {
            value.get_attr(word).ok().filter(|inner| !inner.is_undefined())
        });
        found.is_some()
    }
}

/// JSON as it is, other text as text; absent for bytes.
fn data(event: &Event) -> Option<Value> {
    if event.content_type.as_ref().is_none_or(ContentType::is_json) {
        return serde_json::from_slice(&event.data).ok();
    }
    std::str::from_utf8(&event.data).ok().map(Value::from)
}

fn extensions(event: &Event) -> Value {
    Value::from_pairs(event.extensions.iter().map(|(name, value)| {
        let value = match value {
            ExtensionValue::Text(text) => Value::from(text.as_str()),
            ExtensionValue::Integer(number) => Value::from(*number),
            ExtensionValue::Boolean(is) => Value::from(*is),
        };
        (Value::from(name.as_str()), value)
    }))
}

impl Template {
    pub fn parse(text: &str, place: TemplatePlace) -> Result<Self, InvalidTemplate> {
        if text.len() > limits::TEMPLATE_BYTES_MAX {
            return Err(InvalidTemplate::TooLong);
        }
        let source = language::long_form(text);
        let is_plain = !source.contains("{{") && !source.contains("{%") && !source.contains("{#");
        let compiled = if is_plain { None } else { Some(Arc::new(Compiled::new(&source, place)?)) };
        Ok(Self { text: text.into(), compiled })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `None` if there is anything to fill in.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        self.compiled.is_none().then_some(&*self.text)
    }

    /// What is sent as written: the text between the tags.
    #[must_use]
    pub fn literal_parts(&self) -> Vec<String> {
        language::literal_parts(&language::long_form(&self.text))
    }

    /// The values it names, such as `data.user.name`, sorted.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        self.compiled.as_ref().map_or(&[], |compiled| &compiled.fields)
    }

    /// At most `max` bytes.
    pub fn render(&self, context: &TemplateContext, max: usize) -> Result<String, RenderError> {
        let Some(compiled) = &self.compiled else { return Ok(self.text.to_string()) };
        if compiled.is_one_value {
            let value = self.value(context)?;
            let text = language::text_of(&value);
            return if text.len() > max { Err(self.too_large(max)) } else { Ok(text) };
        }
        let mut written = AtMost { bytes: Vec::new(), max };
        self.run(compiled, context, &mut written).map_err(|failed| failed.unwrap_or(self.too_large(max)))?;
        Ok(String::from_utf8(written.bytes).expect("a template writes text"))
    }

    /// A template of one value keeps its type: `{{ data.total }}` is a number if the event has one.
    fn value(&self, context: &TemplateContext) -> Result<Value, RenderError> {
        let compiled = self.compiled.as_ref().filter(|compiled| compiled.is_one_value);
        let Some(compiled) = compiled else {
            return self.render(context, limits::TEMPLATE_OUTPUT_BYTES_MAX).map(Value::from);
        };
        let state = self
            .run(compiled, context, io::sink())
            .map_err(|failed| failed.unwrap_or_else(|| self.too_large(limits::TEMPLATE_OUTPUT_BYTES_MAX)))?;
        let value = state.state().lookup(language::VALUE).unwrap_or_default();
        if value.is_undefined() { Err(self.missing(compiled, context)) } else { Ok(value) }
    }

    /// `None` if the writer took no more.
    fn run<'a>(
        &self,
        compiled: &'a Compiled,
        context: &TemplateContext,
        to: impl io::Write,
    ) -> Result<minijinja::Captured<'a>, Option<RenderError>> {
        let template = compiled.environment.get_template(language::NAME).expect("it was added");
        let too_many = || RenderError::TooManySteps { template: self.text.to_string() };
        let rendered = template.render_captured_to(context.values.clone(), to).map_err(|error| {
            let template = self.text.to_string();
            Some(match error.kind() {
                ErrorKind::WriteFailure => return None,
                ErrorKind::UndefinedError => self.missing(compiled, context),
                ErrorKind::OutOfFuel => RenderError::TooManySteps { template },
                ErrorKind::BadEscape => RenderError::UnsafePath { template },
                // Filters say this of a value that is absent.
                ErrorKind::InvalidOperation | ErrorKind::MissingArgument
                    if compiled.fields.iter().any(|field| !context.has(field)) =>
                {
                    self.missing(compiled, context)
                }
                kind => RenderError::Failed { template, reason: kind.to_string() },
            })
        })?;
        let steps = rendered.state().fuel_levels().map_or(0, |(spent, _)| spent);
        if context.spend(steps) { Ok(rendered) } else { Err(Some(too_many())) }
    }

    fn missing(&self, compiled: &Compiled, context: &TemplateContext) -> RenderError {
        let field = compiled.fields.iter().find(|field| !context.has(field));
        RenderError::Missing { field: field.map_or_else(|| self.text.to_string(), String::clone) }
    }

    fn too_large(&self, max: usize) -> RenderError {
        RenderError::TooLarge { template: self.text.to_string(), max }
    }
}

impl Compiled {
    fn new(source: &str, place: TemplatePlace) -> Result<Self, InvalidTemplate> {
        language::check_tags(source)?;
        let mut environment = language::environment(place);
        let one_value = language::one_value(source).filter(|_| place == TemplatePlace::Text);
        let is_one_value = one_value.is_some();
        let source = one_value.unwrap_or_else(|| source.to_owned());
        let syntax = |error: minijinja::Error| {
            let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            InvalidTemplate::Syntax { reason: detail }
        };
        environment.add_template_owned(language::NAME, source).map_err(syntax)?;
        let template = environment.get_template(language::NAME).expect("it was added");
        let fields: BTreeSet<String> = template.undeclared_variables(true).into_iter().collect();
        for field in &fields {
            let root = field.split('.').next().unwrap_or_default();
            if !language::ROOTS.contains(&root) {
                return Err(InvalidTemplate::UnknownValue { name: root.to_owned() });
            }
        }
        Ok(Self { environment, fields: fields.into_iter().collect(), is_one_value })
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Template {}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Refuses to hold more than `max` bytes.
struct AtMost {
    bytes: Vec<u8>,
    max: usize,
}

impl io::Write for AtMost {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
