//! Reads the part of a CEL expression that counts failures, and determines its type.
//!
//! Invariant: the bounds of conditions hold, so the tree may be walked recursively.

use redrive_core::book::cel::ast::{CallExpr, Expr as Tree, LiteralValue, operators};
use redrive_core::book::cel::{self, InvalidCel};

use super::InvalidTrip;

/// Of what follows a mistake.
const REST_CHARS_MAX: usize = 40;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Bool(bool),
    Int(f64),
    Double(f64),
    Count(TripCount),
    Not(Box<Expression>),
    Minus(Box<Expression>),
    ToDouble(Box<Expression>),
    Both(Box<Expression>, Box<Expression>),
    Either(Box<Expression>, Box<Expression>),
    Compare(CompareOperator, Box<Expression>, Box<Expression>),
    Calculate(Operation, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TripCount {
    Requests,
    TotalSuccesses,
    TotalFailures,
    ConsecutiveSuccesses,
    ConsecutiveFailures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareOperator {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Unequal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Bool,
    Int,
    Double,
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidTrip> {
        match cel::tree(text) {
            Ok(tree) => converted(&tree.expr),
            Err(InvalidCel::TooLong | InvalidCel::TooComplex) => Err(InvalidTrip::TooLong),
            Err(InvalidCel::Syntax { at, .. }) => {
                Err(InvalidTrip::Syntax { rest: text.chars().skip(at).take(REST_CHARS_MAX).collect() })
            }
            Err(
                InvalidCel::UnknownValue { .. }
                | InvalidCel::UnknownFunction { .. }
                | InvalidCel::NotBool
                | InvalidCel::NestedLoop
                | InvalidCel::Pattern { .. },
            ) => Err(InvalidTrip::NoCounterpart),
        }
    }

    pub(super) fn type_of(&self) -> Result<ValueType, InvalidTrip> {
        match self {
            Self::Bool(_) => Ok(ValueType::Bool),
            Self::Int(_) | Self::Count(_) => Ok(ValueType::Int),
            Self::Double(_) => Ok(ValueType::Double),
            Self::Not(inner) => inner.expect_bool(),
            Self::Minus(inner) => match inner.type_of()? {
                ValueType::Bool => Err(InvalidTrip::NotBool),
                number => Ok(number),
            },
            Self::ToDouble(inner) => match inner.type_of()? {
                ValueType::Bool => Err(InvalidTrip::NotBool),
                ValueType::Int | ValueType::Double => Ok(ValueType::Double),
            },
            Self::Both(left, right) | Self::Either(left, right) => {
                left.expect_bool()?;
                right.expect_bool()
            }
            Self::Compare(_, left, right) => match (left.type_of()?, right.type_of()?) {
                (ValueType::Int, ValueType::Double) | (ValueType::Double, ValueType::Int) => {
                    Err(InvalidTrip::MixedNumbers)
                }
                (ValueType::Bool, _) | (_, ValueType::Bool) => Err(InvalidTrip::NoCounterpart),
                (ValueType::Int, ValueType::Int) | (ValueType::Double, ValueType::Double) => {
                    Ok(ValueType::Bool)
                }
            },
            Self::Calculate(operation, left, right) => {
                let types = (left.type_of()?, right.type_of()?);
                match (types, operation) {
                    ((ValueType::Bool, _) | (_, ValueType::Bool), _) => Err(InvalidTrip::NotBool),
                    ((ValueType::Int, ValueType::Double) | (ValueType::Double, ValueType::Int), _) => {
                        Err(InvalidTrip::MixedNumbers)
                    }
                    ((number, _), _) => Ok(number),
                }
            }
        }
    }

    fn expect_bool(&self) -> Result<ValueType, InvalidTrip> {
        match self.type_of()? {
            ValueType::Bool => Ok(ValueType::Bool),
            ValueType::Int | ValueType::Double => Err(InvalidTrip::NotBool),
        }
    }
}

fn converted(tree: &Tree) -> Result<Expression, InvalidTrip> {
    match tree {
        Tree::Literal(LiteralValue::Boolean(value)) => Ok(Expression::Bool(*value.inner())),
        // Counts are small, so nothing is lost.
        Tree::Literal(LiteralValue::Int(number)) => Ok(Expression::Int(*number.inner() as f64)),
        Tree::Literal(LiteralValue::Double(number)) => Ok(Expression::Double(*number.inner())),
        Tree::Ident(name) => count(name),
        Tree::Call(call) => operation(call),
        Tree::Literal(_)
        | Tree::Unspecified
        | Tree::Comprehension(_)
        | Tree::List(_)
        | Tree::Map(_)
        | Tree::Select(_)
        | Tree::Struct(_) => Err(InvalidTrip::NoCounterpart),
    }
}

fn count(name: &str) -> Result<Expression, InvalidTrip> {
    Ok(Expression::Count(match name {
        "requests" => TripCount::Requests,
        "totalSuccesses" => TripCount::TotalSuccesses,
        "totalFailures" => TripCount::TotalFailures,
        "consecutiveSuccesses" => TripCount::ConsecutiveSuccesses,
        "consecutiveFailures" => TripCount::ConsecutiveFailures,
        _ => return Err(InvalidTrip::UnknownName { name: name.to_owned() }),
    }))
}

fn operation(call: &CallExpr) -> Result<Expression, InvalidTrip> {
    if call.target.is_some() {
        return Err(InvalidTrip::NoCounterpart);
    }
    let operand = |place: usize| -> Result<Box<Expression>, InvalidTrip> {
        let argument = call.args.get(place).ok_or(InvalidTrip::NoCounterpart)?;
        Ok(Box::new(converted(&argument.expr)?))
    };
    let compare = |comparison| Ok(Expression::Compare(comparison, operand(0)?, operand(1)?));
    let calculate = |operation| Ok(Expression::Calculate(operation, operand(0)?, operand(1)?));
    match call.func_name.as_str() {
        operators::LOGICAL_NOT => Ok(Expression::Not(operand(0)?)),
        operators::NEGATE => Ok(Expression::Minus(operand(0)?)),
        "double" => Ok(Expression::ToDouble(operand(0)?)),
        operators::LOGICAL_AND => Ok(Expression::Both(operand(0)?, operand(1)?)),
        operators::LOGICAL_OR => Ok(Expression::Either(operand(0)?, operand(1)?)),
        operators::LESS => compare(CompareOperator::Less),
        operators::LESS_EQUALS => compare(CompareOperator::AtMost),
        operators::GREATER => compare(CompareOperator::More),
        operators::GREATER_EQUALS => compare(CompareOperator::AtLeast),
        operators::EQUALS => compare(CompareOperator::Equal),
        operators::NOT_EQUALS => compare(CompareOperator::Unequal),
        operators::ADD => calculate(Operation::Add),
        operators::SUBSTRACT => calculate(Operation::Subtract),
        operators::MULTIPLY => calculate(Operation::Multiply),
        operators::DIVIDE => calculate(Operation::Divide),
        operators::MODULO => calculate(Operation::Remainder),
        _ => Err(InvalidTrip::NoCounterpart),
    }
}
