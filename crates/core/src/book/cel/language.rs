//! The part of CEL that conditions have, and its bounds.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Env, ExecutionError, Program, Value};

use super::{CelError, CelValues, InvalidCel};
use crate::limits;

/// Functions with names; operators are calls, too, but need no list.
const FUNCTIONS: [&str; 10] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    operators::NOT_STRICTLY_FALSE,
];

pub(super) struct CompiledCel {
    program: Program,
    pub(super) fields: Vec<String>,
}

impl CompiledCel {
    pub(super) fn parse(text: &str, names: &[&str]) -> Result<Self, InvalidCel> {
        let program = program(text)?;
        let mut walk = Walk { names, own: Vec::new(), fields: BTreeSet::new() };
        walk.visit(program.expression())?;
        let fields = walk.fields.into_iter().collect();
        if !may_be_bool(&program.expression().expr) {
            return Err(InvalidCel::NotBool);
        }
        Ok(Self { program, fields })
    }

    pub(super) fn holds(&self, values: &CelValues) -> Result<bool, CelError> {
        static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
        let steps = limits::CONDITION_BYTES_READ_MAX / values.bytes.max(1);
        let lookup = Lookup { values, left: AtomicUsize::new(steps.max(limits::CONDITION_LOOKUPS_MIN)) };
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.set_variable_resolver(&lookup);
        let result = self.program.execute(&context);
        if lookup.is_used_up() {
            return Err(CelError::TooManySteps);
        }
        match result {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(CelError::Types { reason: format!("the result is {}", other.type_of()) }),
            Err(ExecutionError::NoSuchKey(name)) => Err(CelError::Missing { name: name.to_string() }),
            Err(ExecutionError::UndeclaredReference(name)) => {
                Err(CelError::Missing { name: name.to_string() })
            }
            Err(other) => Err(CelError::Types { reason: kind_of(&other).to_owned() }),
        }
    }
}

pub(super) fn program(text: &str) -> Result<Program, InvalidCel> {
    if operators_in(text) > limits::CONDITION_OPERATORS_MAX || nesting(text) > limits::CONDITION_NESTING_MAX {
        return Err(InvalidCel::TooComplex);
    }
    Program::compile(text).map_err(|errors| syntax(text, &errors))
}

/// The error's own text may contain values of the event.
const fn kind_of(error: &ExecutionError) -> &'static str {
    match error {
        ExecutionError::ValuesNotComparable(..) => "values of different types are compared",
        ExecutionError::DivisionByZero(..) | ExecutionError::RemainderByZero(..) => "division by zero",
        ExecutionError::Overflow(..) => "a number is too large",
        ExecutionError::IndexOutOfBounds(..) => "a list has fewer items",
        _ => "a value has another type than the condition expects",
    }
}

/// Counts how often values are read, since a loop may read them for each item.
struct Lookup<'a> {
    values: &'a CelValues,
    left: AtomicUsize,
}

impl Lookup<'_> {
    fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

impl VariableResolver for Lookup<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let left = self.left.load(Ordering::Relaxed).saturating_sub(1);
        self.left.store(left, Ordering::Relaxed);
        if left == 0 {
            return None;
        }
        let found = self.values.values.iter().find(|(name, _)| *name == variable);
        found.map(|(_, value)| CowVal::Borrowed(&**value))
    }
}

fn syntax(text: &str, errors: &cel::parser::ParseErrors) -> InvalidCel {
    let Some(error) = errors.errors.first() else {
        return InvalidCel::Syntax { at: 0, reason: "no expression".to_owned() };
    };
    let line = usize::try_from(error.pos.0).unwrap_or(1).saturating_sub(1);
    let before: usize = text.split_inclusive('\n').take(line).map(|line| line.chars().count()).sum();
    let column = usize::try_from(error.pos.1).unwrap_or(1).saturating_sub(1);
    let reason = error.msg.split(" expecting ").next().unwrap_or_default().to_owned();
    InvalidCel::Syntax { at: before + column, reason }
}

/// Everything that could nest, in quotes or not.
fn operators_in(text: &str) -> usize {
    text.bytes().filter(|byte| b"+-*/%([{<>=!|&?.:,".contains(byte)).count()
}

/// The deepest nesting of brackets and choices, in quotes or not.
fn nesting(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest + text.bytes().filter(|byte| *byte == b'?').count()
}

fn may_be_bool(expression: &Expr) -> bool {
    const NUMBERS: [&str; 12] = [
        operators::ADD,
        operators::SUBSTRACT,
        operators::MULTIPLY,
        operators::DIVIDE,
        operators::MODULO,
        operators::NEGATE,
        "size",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
    ];
    match expression {
        Expr::Literal(literal) => matches!(literal, LiteralValue::Boolean(_)),
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            call.args.iter().skip(1).all(|arm| may_be_bool(&arm.expr))
        }
        Expr::Call(call) => !NUMBERS.contains(&call.func_name.as_str()),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => false,
        Expr::Comprehension(loops) => !matches!(loops.accu_init.expr, Expr::List(_)),
        Expr::Ident(_) | Expr::Select(_) => true,
    }
}

/// Collects fields, and refuses what is unknown or unbounded.
struct Walk<'a> {
    names: &'a [&'a str],
    /// Variables of the loop around.
    own: Vec<String>,
    fields: BTreeSet<String>,
}

impl Walk<'_> {
    fn visit(&mut self, node: &IdedExpr) -> Result<(), InvalidCel> {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.field(name, name),
            Expr::Select(select) => match path_of(&node.expr) {
                Some(path) => {
                    let root = path.split('.').next().unwrap_or_default().to_owned();
                    self.field(&root, &path)
                }
                None => self.visit(&select.operand),
            },
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.visit(item)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(made) => {
                let name = made.type_name.clone();
                Err(InvalidCel::UnknownFunction { name })
            }
            Expr::Comprehension(loops) => self.comprehension(loops),
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> Result<(), InvalidCel> {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key)?;
                self.visit(&entry.value)
            }
            EntryExpr::StructField(field) => self.visit(&field.value),
        }
    }

    fn field(&mut self, root: &str, path: &str) -> Result<(), InvalidCel> {
        if self.own.iter().any(|name| name == root) {
            return Ok(());
        }
        if !self.names.contains(&root) {
            let known = self.names.join(", ");
            return Err(InvalidCel::UnknownValue { name: root.to_owned(), known });
        }
        self.fields.insert(path.to_owned());
        Ok(())
    }

    fn call(&mut self, call: &CallExpr) -> Result<(), InvalidCel> {
        let name = call.func_name.as_str();
        let is_operator = name.contains('_') && !name.contains(char::is_alphanumeric);
        if !is_operator && name != operators::IN && !FUNCTIONS.contains(&name) {
            return Err(InvalidCel::UnknownFunction { name: name.to_owned() });
        }
        if name == "matches" {
            check_pattern(call.args.last())?;
        }
        call.target.iter().try_for_each(|target| self.visit(target))?;
        call.args.iter().try_for_each(|argument| self.visit(argument))
    }

    fn comprehension(&mut self, loops: &ComprehensionExpr) -> Result<(), InvalidCel> {
        self.visit(&loops.iter_range)?;
        if !self.own.is_empty() {
            return Err(InvalidCel::NestedLoop);
        }
        let names = [Some(&loops.iter_var), loops.iter_var2.as_ref(), Some(&loops.accu_var)];
        self.own = names.into_iter().flatten().cloned().collect();
        let body = [&loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result];
        let checked = body.into_iter().try_for_each(|part| self.visit(part));
        self.own.clear();
        checked
    }
}

fn check_pattern(argument: Option<&IdedExpr>) -> Result<(), InvalidCel> {
    let pattern = |reason: &str| Err(InvalidCel::Pattern { reason: reason.to_owned() });
    let Some(Expr::Literal(LiteralValue::String(text))) = argument.map(|argument| &argument.expr) else {
        return pattern("it is a value");
    };
    match regex::Regex::new(text.inner()) {
        Ok(_) => Ok(()),
        Err(_) => pattern("it is no regular expression"),
    }
}

/// `data.a.b` of nested selections; `None` behind anything else.
fn path_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => Some(format!("{}.{}", path_of(&select.operand.expr)?, select.field)),
        _ => None,
    }
}
