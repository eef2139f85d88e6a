//! JSON with templates as its texts: whatever an event contains, the result is JSON of the same shape.

use serde_json::{Map, Value};

use super::{InvalidTemplate, RenderError, Template, TemplateContext, TemplatePlace};

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
