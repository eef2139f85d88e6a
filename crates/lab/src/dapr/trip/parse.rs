//! Parses an expression into a tree and determines its type.
//!
//! Invariant: the tree is at most [`DEPTH_MAX`] deep, so it may be walked recursively.

use super::InvalidTrip;

const BYTES_MAX: usize = 1_000;
const DEPTH_MAX: usize = 64;

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
        if text.len() > BYTES_MAX {
            return Err(InvalidTrip::TooLong);
        }
        let mut parser = Parser { rest: text.trim(), depth: 0 };
        let expression = parser.either()?;
        if parser.rest.is_empty() { Ok(expression) } else { Err(parser.syntax()) }
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

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn either(&mut self) -> Result<Expression, InvalidTrip> {
        self.chain(Self::both, &["||"], |_, left, right| Expression::Either(left, right))
    }

    fn both(&mut self) -> Result<Expression, InvalidTrip> {
        self.chain(Self::comparison, &["&&"], |_, left, right| Expression::Both(left, right))
    }

    /// Left-associative operators of one precedence.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Expression, InvalidTrip>,
        signs: &[&str],
        join: impl Fn(usize, Box<Expression>, Box<Expression>) -> Expression,
    ) -> Result<Expression, InvalidTrip> {
        let mut left = operand(self)?;
        let mut length = 0;
        while let Some(sign) = signs.iter().position(|sign| self.take(sign)) {
            // The tree is as deep as the chain is long.
            length += 1;
            if length + self.depth > DEPTH_MAX {
                return Err(InvalidTrip::TooLong);
            }
            left = join(sign, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expression, InvalidTrip> {
        use CompareOperator::{AtLeast, AtMost, Equal, Less, More, Unequal};
        let left = self.sum()?;
        // Longer operators first.
        let signs =
            [("==", Equal), ("!=", Unequal), (">=", AtLeast), ("<=", AtMost), (">", More), ("<", Less)];
        match signs.into_iter().find(|(sign, _)| self.take(sign)) {
            Some((_, comparison)) => {
                Ok(Expression::Compare(comparison, Box::new(left), Box::new(self.sum()?)))
            }
            None => Ok(left),
        }
    }

    fn sum(&mut self) -> Result<Expression, InvalidTrip> {
        let operations = [Operation::Add, Operation::Subtract];
        self.chain(Self::product, &["+", "-"], |sign, left, right| {
            Expression::Calculate(operations[sign], left, right)
        })
    }

    fn product(&mut self) -> Result<Expression, InvalidTrip> {
        let operations = [Operation::Multiply, Operation::Divide, Operation::Remainder];
        self.chain(Self::single, &["*", "/", "%"], |sign, left, right| {
            Expression::Calculate(operations[sign], left, right)
        })
    }

    fn single(&mut self) -> Result<Expression, InvalidTrip> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(InvalidTrip::TooLong);
        }
        let single = if self.take("!") {
            Expression::Not(Box::new(self.single()?))
        } else if self.take("-") {
            Expression::Minus(Box::new(self.single()?))
        } else if self.take("(") {
            let inner = self.either()?;
            self.expect(")")?;
            inner
        } else if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            self.number()?
        } else {
            self.word()?
        };
        self.depth -= 1;
        Ok(single)
    }

    fn number(&mut self) -> Result<Expression, InvalidTrip> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        let number: f64 = text.parse().map_err(|_| self.syntax())?;
        self.skip(end);
        Ok(if text.contains('.') { Expression::Double(number) } else { Expression::Int(number) })
    }

    fn word(&mut self) -> Result<Expression, InvalidTrip> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        if word.is_empty() {
            return Err(self.syntax());
        }
        self.skip(end);
        if self.take("(") {
            if word != "double" {
                return Err(InvalidTrip::NoCounterpart);
            }
            let inner = self.either()?;
            self.expect(")")?;
            return Ok(Expression::ToDouble(Box::new(inner)));
        }
        // `five in a row` is not an expression.
        if self.rest.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(self.syntax());
        }
        Ok(match word.as_str() {
            "true" => Expression::Bool(true),
            "false" => Expression::Bool(false),
            "requests" => Expression::Count(TripCount::Requests),
            "totalSuccesses" => Expression::Count(TripCount::TotalSuccesses),
            "totalFailures" => Expression::Count(TripCount::TotalFailures),
            "consecutiveSuccesses" => Expression::Count(TripCount::ConsecutiveSuccesses),
            "consecutiveFailures" => Expression::Count(TripCount::ConsecutiveFailures),
            _ => return Err(InvalidTrip::UnknownName { name: word }),
        })
    }

    fn expect(&mut self, sign: &str) -> Result<(), InvalidTrip> {
        if self.take(sign) { Ok(()) } else { Err(self.syntax()) }
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.rest.starts_with(sign);
        if found {
            self.skip(sign.len());
        }
        found
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    fn syntax(&self) -> InvalidTrip {
        InvalidTrip::Syntax { rest: self.rest.chars().take(40).collect() }
    }
}
