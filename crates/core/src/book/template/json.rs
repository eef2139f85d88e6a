//! JSON with templates as its texts: whatever an event contains, the result is JSON of the same shape.

use std::io::Write;

use serde_json::{Map, Value};

use super::{AtMost, InvalidTemplate, RenderError, Template, TemplateContext, TemplatePlace};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTemplate {
    Fixed(Value),
    Text(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl JsonTemplate {
    /// Every text in it is a template.
    pub fn parse(json: &Value) -> Result<Self, InvalidTemplate> {
        Ok(match json {
            Value::String(text) => Self::Text(Template::parse(text, TemplatePlace::Text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Object(fields.collect::<Result<_, _>>()?)
            }
            fixed => Self::Fixed(fixed.clone()),
        })
    }

    /// A text that is one `{{ value }}` keeps the type of the value.
    pub fn render(&self, context: &TemplateContext) -> Result<Value, RenderError> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => {
                let value = template.value(context)?;
                serde_json::to_value(value).map_err(|_| RenderError::Failed {
                    template: template.as_str().to_owned(),
                    reason: "the value cannot be JSON".to_owned(),
                })?
            }
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.render(context)).collect::<Result<_, _>>()?)
            }
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| Ok((name.clone(), value.render(context)?)));
                Value::Object(fields.collect::<Result<Map<_, _>, _>>()?)
            }
        })
    }

    /// The bytes of [`JsonTemplate::render`], at most `max`.
    pub fn render_bytes(&self, context: &TemplateContext, max: usize) -> Result<Vec<u8>, RenderError> {
        let mut written = AtMost { bytes: Vec::new(), max };
        self.write(context, &mut written)?;
        Ok(written.bytes)
    }

    fn write(&self, context: &TemplateContext, to: &mut AtMost) -> Result<(), RenderError> {
        match self {
            Self::Fixed(value) => add(to, value, "JSON"),
            Self::Text(template) => match template.literal() {
                Some(text) => add(to, text, text),
                None => add(to, &template.value(context)?, template.as_str()),
            },
            Self::List(items) => {
                for (place, item) in items.iter().enumerate() {
                    sign(to, if place == 0 { "[" } else { "," })?;
                    item.write(context, to)?;
                }
                sign(to, if items.is_empty() { "[]" } else { "]" })
            }
            Self::Object(fields) => {
                for (place, (name, value)) in fields.iter().enumerate() {
                    sign(to, if place == 0 { "{" } else { "," })?;
                    add(to, name, name)?;
                    sign(to, ":")?;
                    value.write(context, to)?;
                }
                sign(to, if fields.is_empty() { "{}" } else { "}" })
            }
        }
    }

    /// All templates in it.
    pub fn templates(&self) -> Vec<&Template> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Text(template) => vec![template],
            Self::List(items) => items.iter().flat_map(Self::templates).collect(),
            Self::Object(fields) => fields.iter().flat_map(|(_, value)| value.templates()).collect(),
        }
    }
}

fn add(to: &mut AtMost, value: &(impl serde::Serialize + ?Sized), template: &str) -> Result<(), RenderError> {
    serde_json::to_writer(&mut *to, value).map_err(|error| {
        let template = template.to_owned();
        if error.is_io() {
            RenderError::TooLarge { template, max: to.max }
        } else {
            RenderError::Failed { template, reason: "the value cannot be JSON".to_owned() }
        }
    })
}

fn sign(to: &mut AtMost, sign: &str) -> Result<(), RenderError> {
    let max = to.max;
    to.write_all(sign.as_bytes()).map_err(|_| RenderError::TooLarge { template: "JSON".to_owned(), max })
}
