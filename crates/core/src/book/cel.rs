//! Conditions in CEL, such as `data.total > 100 && type != "order.test"`.
//!
//! A condition is true or false; what cannot be evaluated, such as a field that is absent, is an error that says
//! why. Invariants: evaluation ends within a number of steps that depends on the book and the size of the event
//! alone; patterns are part of the condition and compiled with it; a condition has at most one loop in another's
//! place, never one inside another.
//!
//! Without the feature `events` the text is kept and nothing is evaluated: a program that uses the guard routes no
//! events and compiles no parser for them.

#[cfg(feature = "events")]
mod language;

#[cfg(feature = "events")]
pub use ::cel::common::ast;

use std::fmt;
use std::sync::Arc;

use crate::limits;

/// Compiled once, shared by all evaluations.
#[derive(Clone)]
pub struct CelExpression {
    text: Arc<str>,
    #[cfg(feature = "events")]
    compiled: Arc<language::CompiledCel>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCel {
    #[error("a condition has at most {} bytes", limits::CONDITION_BYTES_MAX)]
    TooLong,
    #[error("the condition is too deeply nested or too long")]
    TooComplex,
    #[error("invalid condition at character {}: {reason}", at + 1)]
    Syntax {
        /// In characters, from 0.
        at: usize,
        reason: String,
    },
    #[error("unknown value `{name}`: there are {known}")]
    UnknownValue { name: String, known: String },
    #[error("unknown function `{name}`")]
    UnknownFunction { name: String },
    #[error("this is not true or false, but a value")]
    NotBool,
    #[error("a loop (`all`, `exists`, `map`, `filter`) stands inside another")]
    NestedLoop,
    #[error("the pattern of `matches` must be a text in the condition: {reason}")]
    Pattern { reason: String },
}

impl InvalidCel {
    #[must_use]
    pub const fn help(&self) -> &'static str {
        match self {
            Self::UnknownFunction { .. } => {
                "there are size, contains, startsWith, endsWith, matches, has, all, exists, exists_one, filter, map, int, double and string"
            }
            Self::NotBool => "compare it, such as `data.total > 100`",
            Self::TooLong
            | Self::TooComplex
            | Self::Syntax { .. }
            | Self::UnknownValue { .. }
            | Self::NestedLoop
            | Self::Pattern { .. } => {
                "conditions are written in CEL, such as `data.total > 100 && subject == \"eu\"`"
            }
        }
    }
}

/// Why a condition is neither true nor false. Messages never contain values of the event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    #[error("`{name}` is missing")]
    Missing { name: String },
    #[error("types do not fit: {reason}")]
    Types { reason: String },
    #[error("the condition takes too many steps")]
    TooManySteps,
    #[error("this build has no conditions")]
    NotInBuild,
}

/// What a condition can name.
pub struct CelValues {
    #[cfg(feature = "events")]
    values: Vec<(&'static str, Box<dyn cel::common::value::Val>)>,
    /// Of everything that was set.
    bytes: usize,
}

impl CelValues {
    /// `bytes` is the size of what is evaluated: it limits the number of steps.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self {
            #[cfg(feature = "events")]
            values: Vec::new(),
            bytes,
        }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl serde::Serialize) -> Self {
        self.set(name, value);
        self
    }

    #[cfg(feature = "events")]
    pub fn set(&mut self, name: &'static str, value: impl serde::Serialize) {
        let value = cel::to_value(value).ok().and_then(|value| value.try_into().ok());
        self.values.extend(value.map(|value| (name, value)));
    }

    #[cfg(not(feature = "events"))]
    pub fn set(&mut self, _: &'static str, _: impl serde::Serialize) {}
}

impl CelExpression {
    /// `names` are the values that it may use.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, InvalidCel> {
        if text.len() > limits::CONDITION_BYTES_MAX {
            return Err(InvalidCel::TooLong);
        }
        #[cfg(feature = "events")]
        let compiled = Arc::new(language::CompiledCel::parse(text, names)?);
        #[cfg(not(feature = "events"))]
        let _ = names;
        Ok(Self {
            text: text.into(),
            #[cfg(feature = "events")]
            compiled,
        })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The fields it names, such as `data.user.name`, sorted; empty without the feature `events`.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        #[cfg(feature = "events")]
        return &self.compiled.fields;
        #[cfg(not(feature = "events"))]
        &[]
    }

    #[cfg(feature = "events")]
    pub fn holds(&self, values: &CelValues) -> Result<bool, CelError> {
        self.compiled.holds(values)
    }

    #[cfg(not(feature = "events"))]
    pub fn holds(&self, values: &CelValues) -> Result<bool, CelError> {
        let _ = values.bytes;
        Err(CelError::NotInBuild)
    }
}

/// The syntax tree of an expression within the bounds of conditions, whatever it names.
#[cfg(feature = "events")]
pub fn tree(text: &str) -> Result<ast::IdedExpr, InvalidCel> {
    if text.len() > limits::CONDITION_BYTES_MAX {
        return Err(InvalidCel::TooLong);
    }
    language::program(text).map(|program| program.expression().clone())
}

impl PartialEq for CelExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CelExpression {}

impl fmt::Debug for CelExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(all(test, feature = "events"))]
mod tests;
