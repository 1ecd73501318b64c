//! Formulas: computations without effects.

use super::frames::VariableFrame;
use crate::program::{Arithmetic, ComparisonOperation, Formula};
use crate::value::SwiftValue;
use std::cmp::Ordering;

/// Computes a formula, whose needs are met.
///
/// # Errors
/// The mistake, in words.
pub fn compute(formula: &Formula, frame: &VariableFrame) -> Result<SwiftValue, String> {
    Ok(match formula {
        Formula::Constant(value) => value.clone(),
        Formula::Variable(place) => frame.value(*place),
        Formula::Int(..) | Formula::Negate(_, true) => SwiftValue::Int(compute_int(formula, frame)?),
        Formula::Float(..) | Formula::Negate(_, false) | Formula::ToFloat(_) => {
            SwiftValue::Float(compute_float(formula, frame)?)
        }
        Formula::Not(inner) => SwiftValue::Boolean(!compute(inner, frame)?.boolean()),
        Formula::Compare(comparison, both) => {
            SwiftValue::Boolean(compare(*comparison, &compute(&both.0, frame)?, &compute(&both.1, frame)?))
        }
        Formula::Both(is_and, both) => {
            let (one, two) = (compute(&both.0, frame)?.boolean(), compute(&both.1, frame)?.boolean());
            SwiftValue::Boolean(if *is_and { one && two } else { one || two })
        }
        Formula::Call(function, arguments) => {
            let arguments: Result<Vec<SwiftValue>, String> =
                arguments.iter().map(|argument| compute(argument, frame)).collect();
            (function.call)(&arguments?)?
        }
    })
}

/// Computes a whole number. It is apart from [`compute`] for loops, which do little else.
pub fn compute_int(formula: &Formula, frame: &VariableFrame) -> Result<i64, String> {
    match formula {
        Formula::Constant(SwiftValue::Int(number)) => Ok(*number),
        Formula::Variable(place) => Ok(frame.number(*place, SwiftValue::int)),
        Formula::Int(operation, both) => int(*operation, compute_int(&both.0, frame)?, compute_int(&both.1, frame)?),
        Formula::Negate(inner, true) => {
            let number = compute_int(inner, frame)?;
            number.checked_neg().ok_or_else(|| too_large("-", 0, number))
        }
        other => compute(other, frame).map(|value| value.int()),
    }
}

/// Computes a number with a point.
fn compute_float(formula: &Formula, frame: &VariableFrame) -> Result<f64, String> {
    match formula {
        Formula::Constant(SwiftValue::Float(number)) => Ok(*number),
        Formula::Variable(place) => Ok(frame.number(*place, SwiftValue::float)),
        Formula::Float(operation, both) => {
            Ok(float(*operation, compute_float(&both.0, frame)?, compute_float(&both.1, frame)?))
        }
        Formula::Negate(inner, false) => compute_float(inner, frame).map(|number| -number),
        Formula::ToFloat(inner) => compute(inner, frame).map(|value| value.float()),
        other => compute(other, frame).map(|value| value.float()),
    }
}

fn int(operation: Arithmetic, left: i64, right: i64) -> Result<i64, String> {
    let (mark, result) = match operation {
        Arithmetic::Add => ("+", left.checked_add(right)),
        Arithmetic::Subtract => ("-", left.checked_sub(right)),
        Arithmetic::Multiply => ("*", left.checked_mul(right)),
        Arithmetic::Divide | Arithmetic::Modulo if right == 0 => {
            let mark = if operation == Arithmetic::Divide { "%/" } else { "%%" };
            return Err(format!("division by zero: {left} {mark} 0"));
        }
        // Rounded down, as Tcl does: the rest has the sign of the divisor.
        Arithmetic::Divide => {
            let quotient = left.checked_div(right);
            let is_short = left.wrapping_rem(right) != 0 && (left < 0) != (right < 0);
            ("%/", quotient.map(|quotient| quotient - i64::from(is_short)))
        }
        Arithmetic::Modulo => {
            let rest = left.wrapping_rem(right);
            let is_other = rest != 0 && (rest < 0) != (right < 0);
            ("%%", Some(if is_other { rest + right } else { rest }))
        }
        Arithmetic::Power => unreachable!("powers are floats"),
    };
    result.ok_or_else(|| too_large(mark, left, right))
}

fn too_large(mark: &str, left: i64, right: i64) -> String {
    format!("{left} {mark} {right} is too large for an int")
}

fn float(operation: Arithmetic, left: f64, right: f64) -> f64 {
    match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        Arithmetic::Modulo => left.rem_euclid(right),
        Arithmetic::Power => left.powf(right),
    }
}

/// Compares two values.
pub fn compare(comparison: ComparisonOperation, left: &SwiftValue, right: &SwiftValue) -> bool {
    let order = match (left, right) {
        (SwiftValue::Int(left), SwiftValue::Int(right)) => Some(left.cmp(right)),
        (SwiftValue::Text(left), SwiftValue::Text(right)) => Some(left.cmp(right)),
        (SwiftValue::Boolean(left), SwiftValue::Boolean(right)) => Some(left.cmp(right)),
        _ => left.float().partial_cmp(&right.float()),
    };
    match comparison {
        ComparisonOperation::Equal => order == Some(Ordering::Equal),
        ComparisonOperation::NotEqual => order != Some(Ordering::Equal),
        ComparisonOperation::Less => order == Some(Ordering::Less),
        ComparisonOperation::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ComparisonOperation::Greater => order == Some(Ordering::Greater),
        ComparisonOperation::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_divide_downwards() {
        let divide = |left, right| int(Arithmetic::Divide, left, right);
        let modulo = |left, right| int(Arithmetic::Modulo, left, right);
        assert_eq!([divide(7, 2), divide(-7, 2), divide(7, -2), divide(-8, 2)], [Ok(3), Ok(-4), Ok(-4), Ok(-4)]);
        assert_eq!([modulo(7, 3), modulo(-7, 3), modulo(7, -3), modulo(6, 3)], [Ok(1), Ok(2), Ok(-2), Ok(0)]);
        assert_eq!(divide(1, 0), Err("division by zero: 1 %/ 0".into()));
        assert_eq!(modulo(i64::MIN, -1), Ok(0));
        assert_eq!(divide(i64::MIN, -1), Err("-9223372036854775808 %/ -1 is too large for an int".into()));
        assert!(int(Arithmetic::Multiply, i64::MAX, 2).is_err());
    }

    #[test]
    fn no_number_equals_nan() {
        let nan = SwiftValue::Float(f64::NAN);
        assert!(!compare(ComparisonOperation::Equal, &nan, &nan) && compare(ComparisonOperation::NotEqual, &nan, &nan));
        assert!(!compare(ComparisonOperation::AtMost, &nan, &SwiftValue::Float(1.0)));
    }
}
