//! Reduces a condition to bounds on counts.

use super::parse::{CompareOperator, Expression, Operation, TripCount, ValueType};
use super::{InvalidTrip, ShareBound, TripMeaning};
use crate::dapr::model::TripOn;

/// What must be true when a call has failed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TripDemand {
    Nothing,
    TheImpossible,
    Consecutive(u32),
    Failures(u32),
    Requests(u32),
    Rate { thousandths: u32, share: ShareBound },
    RateOf { thousandths: u32, share: ShareBound, of_at_least: u32 },
}

pub(super) fn weigh(expression: &Expression) -> Result<TripMeaning, InvalidTrip> {
    let reached = |trip| TripMeaning { trip, share: ShareBound::Reached };
    match asks(expression)? {
        TripDemand::Nothing => Err(InvalidTrip::AlwaysTrue),
        TripDemand::TheImpossible => Err(InvalidTrip::NeverTrue),
        TripDemand::Requests(_) => Err(InvalidTrip::NoCounterpart),
        TripDemand::Consecutive(count) => Ok(reached(TripOn::Consecutive(count))),
        TripDemand::Failures(count) => Ok(reached(TripOn::Failures(count))),
        TripDemand::Rate { thousandths, share } => {
            Ok(TripMeaning { trip: TripOn::FailureRate { thousandths, of_at_least: 1 }, share })
        }
        TripDemand::RateOf { thousandths, share, of_at_least } => {
            Ok(TripMeaning { trip: TripOn::FailureRate { thousandths, of_at_least }, share })
        }
    }
}

fn asks(expression: &Expression) -> Result<TripDemand, InvalidTrip> {
    match expression {
        Expression::Bool(true) => Ok(TripDemand::Nothing),
        Expression::Bool(false) => Ok(TripDemand::TheImpossible),
        Expression::Not(inner) => match asks(inner)? {
            TripDemand::Nothing => Ok(TripDemand::TheImpossible),
            TripDemand::TheImpossible => Ok(TripDemand::Nothing),
            _ => Err(InvalidTrip::NoCounterpart),
        },
        Expression::Both(left, right) => both(asks(left)?, asks(right)?),
        Expression::Either(left, right) => either(asks(left)?, asks(right)?),
        Expression::Compare(comparison, left, right) => compare(*comparison, left, right),
        // Excluded by the type check.
        Expression::Int(_)
        | Expression::Double(_)
        | Expression::Count(_)
        | Expression::Minus(_)
        | Expression::ToDouble(_)
        | Expression::Calculate(..) => Err(InvalidTrip::NotBool),
    }
}

/// Consecutive failures ≤ failures ≤ calls.
fn both(left: TripDemand, right: TripDemand) -> Result<TripDemand, InvalidTrip> {
    use TripDemand::{Consecutive, Failures, Nothing, Rate, RateOf, Requests, TheImpossible};
    Ok(match (left, right) {
        (Nothing, other) | (other, Nothing) => other,
        (TheImpossible, _) | (_, TheImpossible) => TheImpossible,
        (Consecutive(a), Consecutive(b)) => Consecutive(a.max(b)),
        (Failures(a), Failures(b)) => Failures(a.max(b)),
        (Requests(a), Requests(b)) => Requests(a.max(b)),
        (Consecutive(more), Failures(less) | Requests(less))
        | (Failures(less) | Requests(less), Consecutive(more))
            if less <= more =>
        {
            Consecutive(more)
        }
        (Failures(more), Requests(less)) | (Requests(less), Failures(more)) if less <= more => Failures(more),
        (Requests(of_at_least), Rate { thousandths, share })
        | (Rate { thousandths, share }, Requests(of_at_least)) => RateOf { thousandths, share, of_at_least },
        (Requests(more), RateOf { thousandths, share, of_at_least })
        | (RateOf { thousandths, share, of_at_least }, Requests(more)) => {
            RateOf { thousandths, share, of_at_least: of_at_least.max(more) }
        }
        _ => return Err(InvalidTrip::NoCounterpart),
    })
}

fn either(left: TripDemand, right: TripDemand) -> Result<TripDemand, InvalidTrip> {
    use TripDemand::{Consecutive, Failures, Nothing, Rate, RateOf, Requests, TheImpossible};
    let shares = |asks| match asks {
        Rate { thousandths, share } => Some((thousandths, share, 1)),
        RateOf { thousandths, share, of_at_least } => Some((thousandths, share, of_at_least)),
        Nothing | TheImpossible | Consecutive(_) | Failures(_) | Requests(_) => None,
    };
    if let (Some(one), Some(other)) = (shares(left), shares(right)) {
        // The weaker condition implies the other.
        let asks_less = |(a, a_from, a_calls): (u32, ShareBound, u32),
                         (b, b_from, b_calls): (u32, ShareBound, u32)| {
            (a < b || a == b && (a_from == b_from || a_from == ShareBound::Reached)) && a_calls <= b_calls
        };
        return match (asks_less(one, other), asks_less(other, one)) {
            (true, _) => Ok(left),
            (_, true) => Ok(right),
            (false, false) => Err(InvalidTrip::TwoConditions),
        };
    }
    Ok(match (left, right) {
        (TheImpossible, other) | (other, TheImpossible) => other,
        (Nothing, _) | (_, Nothing) => Nothing,
        (Consecutive(a), Consecutive(b)) => Consecutive(a.min(b)),
        (Failures(a), Failures(b)) => Failures(a.min(b)),
        (Requests(a), Requests(b)) => Requests(a.min(b)),
        (Consecutive(more), Failures(less)) | (Failures(less), Consecutive(more)) if less <= more => {
            Failures(less)
        }
        _ => return Err(InvalidTrip::TwoConditions),
    })
}

/// `calls × requests + … + constant`.
#[derive(Clone, Copy, Debug, Default)]
struct Linear {
    requests: f64,
    successes: f64,
    failures: f64,
    consecutive: f64,
    constant: f64,
}

impl Linear {
    fn constant(constant: f64) -> Self {
        Self { constant, ..Self::default() }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            successes: self.successes + other.successes,
            failures: self.failures + other.failures,
            consecutive: self.consecutive + other.consecutive,
            constant: self.constant + other.constant,
        }
    }

    fn times(self, by: f64) -> Self {
        Self {
            requests: self.requests * by,
            successes: self.successes * by,
            failures: self.failures * by,
            consecutive: self.consecutive * by,
            constant: self.constant * by,
        }
    }

    fn as_constant(self) -> Option<f64> {
        let by = [self.requests, self.successes, self.failures, self.consecutive];
        let is_constant = by.into_iter().all(|by| by == 0.0);
        is_constant.then_some(self.constant)
    }
}

struct Ratio {
    over: Linear,
    under: Linear,
    rest: Remainder,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Remainder {
    Kept,
    Dropped,
}

fn ratio(expression: &Expression) -> Result<Ratio, InvalidTrip> {
    if let Expression::Calculate(Operation::Divide, over, under) = expression {
        let (over, under) = (linear(over)?, linear(under)?);
        // Requests are at least 1: a call has just failed.
        let others = [under.successes, under.failures, under.consecutive, under.constant];
        let counts_calls = under.requests > 0.0 && others.into_iter().all(|other| other == 0.0);
        let is_positive = under.as_constant().map_or(counts_calls, |constant| constant > 0.0);
        let rest = match expression.type_of()? {
            ValueType::Int => Remainder::Dropped,
            ValueType::Double | ValueType::Bool => Remainder::Kept,
        };
        return if is_positive { Ok(Ratio { over, under, rest }) } else { Err(InvalidTrip::NoCounterpart) };
    }
    Ok(Ratio { over: linear(expression)?, under: Linear::constant(1.0), rest: Remainder::Kept })
}

fn linear(expression: &Expression) -> Result<Linear, InvalidTrip> {
    match expression {
        Expression::Int(number) | Expression::Double(number) => Ok(Linear::constant(*number)),
        Expression::Count(count) => {
            let mut linear = Linear::default();
            match count {
                TripCount::Requests => linear.requests = 1.0,
                TripCount::TotalSuccesses => linear.successes = 1.0,
                TripCount::TotalFailures => linear.failures = 1.0,
                TripCount::ConsecutiveFailures => linear.consecutive = 1.0,
                // Always 0 after a failure.
                TripCount::ConsecutiveSuccesses => {}
            }
            Ok(linear)
        }
        Expression::Minus(inner) => Ok(linear(inner)?.times(-1.0)),
        Expression::ToDouble(inner) => linear(inner),
        Expression::Calculate(operation, left, right) => {
            let (left, right) = (linear(left)?, linear(right)?);
            let result = match operation {
                Operation::Add => Some(left.plus(right)),
                Operation::Subtract => Some(left.plus(right.times(-1.0))),
                Operation::Multiply => match (left.as_constant(), right.as_constant()) {
                    (Some(by), _) => Some(right.times(by)),
                    (_, Some(by)) => Some(left.times(by)),
                    (None, None) => None,
                },
                // A truncated quotient is not linear.
                Operation::Divide if expression.type_of()? == ValueType::Int => {
                    return Err(InvalidTrip::IntegerDivision);
                }
                Operation::Divide => {
                    right.as_constant().filter(|by| *by != 0.0).map(|by| left.times(1.0 / by))
                }
                Operation::Remainder => None,
            };
            result.ok_or(InvalidTrip::NoCounterpart)
        }
        Expression::Bool(_)
        | Expression::Not(_)
        | Expression::Both(..)
        | Expression::Either(..)
        | Expression::Compare(..) => Err(InvalidTrip::NotBool),
    }
}

fn compare(
    comparison: CompareOperator,
    left: &Expression,
    right: &Expression,
) -> Result<TripDemand, InvalidTrip> {
    let (left, right) = (ratio(left)?, ratio(right)?);
    let (comparison, left, right) = whole(comparison, left, right)?;
    let cross = |a: Linear, b: Linear| match (a.as_constant(), b.as_constant()) {
        (Some(by), _) => Ok(b.times(by)),
        (_, Some(by)) => Ok(a.times(by)),
        (None, None) => Err(InvalidTrip::NoCounterpart),
    };
    let (left, right) = (cross(left.over, right.under)?, cross(right.over, left.under)?);
    let difference = left.plus(right.times(-1.0));
    match comparison {
        CompareOperator::AtLeast => at_least(difference, ShareBound::Reached),
        CompareOperator::AtMost => at_least(difference.times(-1.0), ShareBound::Reached),
        CompareOperator::More => at_least(difference, ShareBound::Exceeded),
        CompareOperator::Less => at_least(difference.times(-1.0), ShareBound::Exceeded),
        CompareOperator::Equal => equal(difference),
        CompareOperator::Unequal => match equal(difference)? {
            TripDemand::Nothing => Ok(TripDemand::TheImpossible),
            TripDemand::TheImpossible => Ok(TripDemand::Nothing),
            _ => Err(InvalidTrip::NoCounterpart),
        },
    }
}

/// Removes a truncating division: `⌊x⌋ ≥ n` is `x ≥ n`, and `⌊x⌋ > n` is `x ≥ n + 1`.
fn whole(
    comparison: CompareOperator,
    left: Ratio,
    right: Ratio,
) -> Result<(CompareOperator, Ratio, Ratio), InvalidTrip> {
    use CompareOperator::{AtLeast, AtMost, Less, More};
    let (comparison, left, right) = match (left.rest, right.rest) {
        (Remainder::Kept, Remainder::Kept) => return Ok((comparison, left, right)),
        (Remainder::Dropped, Remainder::Kept) => (comparison, left, right),
        (Remainder::Kept, Remainder::Dropped) => {
            let turned = match comparison {
                Less => More,
                AtMost => AtLeast,
                More => Less,
                AtLeast => AtMost,
                same @ (CompareOperator::Equal | CompareOperator::Unequal) => same,
            };
            (turned, right, left)
        }
        (Remainder::Dropped, Remainder::Dropped) => return Err(InvalidTrip::IntegerDivision),
    };
    let Linear { requests, successes, failures, consecutive, constant } = left.over;
    let is_positive = [requests, successes, failures, consecutive, constant].into_iter().all(|by| by >= 0.0);
    let times = right.over.as_constant().filter(|times| is_positive && *times >= 0.0);
    let times = times.ok_or(InvalidTrip::IntegerDivision)?;
    match comparison {
        AtLeast => Ok((AtLeast, left, right)),
        More => Ok((AtLeast, left, Ratio { over: Linear::constant(times + 1.0), ..right })),
        Less | AtMost | CompareOperator::Equal | CompareOperator::Unequal => {
            Err(InvalidTrip::IntegerDivision)
        }
    }
}

fn at_least(linear: Linear, from: ShareBound) -> Result<TripDemand, InvalidTrip> {
    let Linear { requests, successes, failures, consecutive, constant } = linear;
    let is_met = |number: f64| match from {
        ShareBound::Reached => number >= 0.0,
        ShareBound::Exceeded => number > 0.0,
    };
    // The smallest whole number that meets `by × number + constant`.
    let threshold = |by: f64| match from {
        ShareBound::Reached => (-constant / by).ceil(),
        ShareBound::Exceeded => (-constant / by).floor() + 1.0,
    };
    if successes != 0.0 {
        return Err(InvalidTrip::NoCounterpart);
    }
    let single = |by: f64, lowest: f64, asks: fn(u32) -> TripDemand| {
        if by < 0.0 {
            // An upper bound: impossible if not even one call is allowed.
            return if is_met(by + constant) {
                Err(InvalidTrip::NoCounterpart)
            } else {
                Ok(TripDemand::TheImpossible)
            };
        }
        let threshold = threshold(by);
        if threshold < lowest { Ok(TripDemand::Nothing) } else { count(threshold).map(asks) }
    };
    match (requests != 0.0, failures != 0.0, consecutive != 0.0) {
        (false, false, false) if is_met(constant) => Ok(TripDemand::Nothing),
        (false, false, false) => Ok(TripDemand::TheImpossible),
        (false, false, true) => single(consecutive, 1.0, TripDemand::Consecutive),
        (false, true, false) => single(failures, 1.0, TripDemand::Failures),
        // Requests are at least 1.
        (true, false, false) => single(requests, 2.0, TripDemand::Requests),
        (true, true, false) if failures > 0.0 && requests < 0.0 && constant == 0.0 => {
            rate(-requests / failures, from)
        }
        _ => Err(InvalidTrip::NoCounterpart),
    }
}

fn rate(share: f64, from: ShareBound) -> Result<TripDemand, InvalidTrip> {
    let thousandths = (share * 100_000.0).round();
    if share > 1.0 || share >= 1.0 && from == ShareBound::Exceeded {
        return Ok(TripDemand::TheImpossible);
    }
    if thousandths < 1.0 {
        return Err(InvalidTrip::NoCounterpart);
    }
    Ok(TripDemand::Rate { thousandths: count(thousandths)?, share: from })
}

/// Counts grow by one, so equality is reached first.
fn equal(linear: Linear) -> Result<TripDemand, InvalidTrip> {
    let Linear { requests, successes, failures, consecutive, constant } = linear;
    if requests != 0.0 || successes != 0.0 {
        return Err(InvalidTrip::NoCounterpart);
    }
    let (by, asks): (f64, fn(u32) -> TripDemand) = match (failures != 0.0, consecutive != 0.0) {
        (false, false) if constant == 0.0 => return Ok(TripDemand::Nothing),
        (false, false) => return Ok(TripDemand::TheImpossible),
        (true, false) => (failures, TripDemand::Failures),
        (false, true) => (consecutive, TripDemand::Consecutive),
        (true, true) => return Err(InvalidTrip::NoCounterpart),
    };
    let number = -constant / by;
    if number < 1.0 || number.fract() != 0.0 {
        return Ok(TripDemand::TheImpossible);
    }
    count(number).map(asks)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` stops at both ends")]
fn count(number: f64) -> Result<u32, InvalidTrip> {
    // Overflow to infinity, and infinity minus infinity.
    if number.is_nan() || number < 1.0 {
        return Err(InvalidTrip::NoCounterpart);
    }
    let given = number as u64;
    u32::try_from(given).map_err(|_| InvalidTrip::OutOfRange { given, max: super::CONSECUTIVE_MAX })
}
