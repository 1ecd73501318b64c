//! Functions of numbers, conditions and locations.

use super::{PureFunction, function};
use crate::value::{SwiftValue, TaskLocation};

/// The functions.
pub const FUNCTIONS: &[PureFunction] = &[
    function("propagate", |_| Ok(SwiftValue::Void)),
    function("int_max", |_| Ok(SwiftValue::Int(i64::MAX))),
    function("zero", |_| Ok(SwiftValue::Int(0))),
    function("HARD", |_| Ok(SwiftValue::Word("HARD"))),
    function("SOFT", |_| Ok(SwiftValue::Word("SOFT"))),
    function("RANK", |_| Ok(SwiftValue::Word("RANK"))),
    function("NODE", |_| Ok(SwiftValue::Word("NODE"))),
    function("location", |values| {
        let is = |value: &SwiftValue, word: &str| matches!(value, SwiftValue::Word(found) if *found == word);
        let [rank, strictness, accuracy] = values else { unreachable!("it takes three") };
        let (is_hard, is_node) = (is(strictness, "HARD"), is(accuracy, "NODE"));
        Ok(SwiftValue::Location(TaskLocation::Slot { rank: rank.int(), is_hard, is_node }))
    }),
    function("pow_int", |values| float(values[0].float().powf(values[1].float()))),
    function("pow_float", |values| float(values[0].float().powf(values[1].float()))),
    function("xor", |values| Ok(SwiftValue::Boolean(values[0].boolean() != values[1].boolean()))),
    function("max_int", |values| int(values[0].int().max(values[1].int()))),
    function("min_int", |values| int(values[0].int().min(values[1].int()))),
    function("max_float", |values| float(values[0].float().max(values[1].float()))),
    function("min_float", |values| float(values[0].float().min(values[1].float()))),
    function("ternary", |values| Ok(if values[0].boolean() { values[1].clone() } else { values[2].clone() })),
    function("int_to_float", |values| float(values[0].float())),
    function("float_to_int", |values| to_int(values[0].float())),
    function("floor", |values| float(values[0].float().floor())),
    function("ceil", |values| float(values[0].float().ceil())),
    function("round", |values| float(values[0].float().round())),
    function("ln", |values| float(values[0].float().ln())),
    function("log2", |values| float(values[0].float().log2())),
    function("log10", |values| float(values[0].float().log10())),
    function("log_base", |values| float(values[0].float().ln() / values[1].float().ln())),
    function("exp", |values| float(values[0].float().exp())),
    function("sqrt", |values| float(values[0].float().sqrt())),
    function("cbrt", |values| float(values[0].float().cbrt())),
    function("is_nan", |values| Ok(SwiftValue::Boolean(values[0].float().is_nan()))),
    function("abs_int", |values| match values[0].int().checked_abs() {
        Some(number) => int(number),
        None => Err("the absolute value is too large for an int".into()),
    }),
    function("abs_float", |values| float(values[0].float().abs())),
    function("sin", |values| float(values[0].float().sin())),
    function("cos", |values| float(values[0].float().cos())),
    function("tan", |values| float(values[0].float().tan())),
    function("asin", |values| float(values[0].float().asin())),
    function("acos", |values| float(values[0].float().acos())),
    function("atan", |values| float(values[0].float().atan())),
    function("atan2", |values| float(values[0].float().atan2(values[1].float()))),
];

#[expect(clippy::unnecessary_wraps, reason = "functions may fail")]
fn float(number: f64) -> Result<SwiftValue, String> {
    Ok(SwiftValue::Float(number))
}

#[expect(clippy::unnecessary_wraps, reason = "functions may fail")]
fn int(number: i64) -> Result<SwiftValue, String> {
    Ok(SwiftValue::Int(number))
}

/// The whole part of a number.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_int(number: f64) -> Result<SwiftValue, String> {
    // 2^63 is the first number that is too large.
    if number.is_nan() || !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        return Err(format!("{number} is no whole number of 64 bits"));
    }
    int(number as i64)
}
