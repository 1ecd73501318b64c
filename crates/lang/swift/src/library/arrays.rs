//! Functions of arrays.

use super::{ArrayNeed, PureFunction, format, function};
use crate::value::{ArrayCell, ArrayKey, SwiftValue};
use std::rc::Rc;

/// The functions.
pub const FUNCTIONS: &[PureFunction] = &[
    PureFunction {
        name: "size",
        call: |values| {
            let count = values[0].array().members.borrow().len();
            Ok(SwiftValue::Int(i64::try_from(count).expect("it fits into memory")))
        },
        arrays: ArrayNeed::Closed,
    },
    PureFunction {
        name: "contains",
        call: |values| Ok(SwiftValue::Boolean(values[0].array().members.borrow().has(&ArrayKey::of(&values[1])))),
        arrays: ArrayNeed::Closed,
    },
    PureFunction {
        name: "keys",
        call: |values| Ok(array(values[0].array().members.borrow().iter().map(|(key, _)| key.value()))),
        arrays: ArrayNeed::Closed,
    },
    PureFunction {
        name: "keys_string",
        call: |values| {
            let members = values[0].array().members.borrow();
            Ok(array(members.iter().map(|(key, _)| SwiftValue::text(&format::plain(&key.value())))))
        },
        arrays: ArrayNeed::Closed,
    },
    function("range", |values| {
        let step = values.get(2).map_or(1, SwiftValue::int);
        let numbers = int_range(values[0].int(), values[1].int(), step)?;
        Ok(array(numbers.map(SwiftValue::Int)))
    }),
    function("range_float", |values| {
        let step = values.get(2).map_or(1.0, SwiftValue::float);
        Ok(array(float_range(values[0].float(), values[1].float(), step)?.map(SwiftValue::Float)))
    }),
    function("sum_int", |values| {
        let sum =
            with_members(&values[0], |mut all| (&mut all).try_fold(0_i64, |sum, next| sum.checked_add(next.int())));
        sum.map(SwiftValue::Int).ok_or_else(|| "the sum is too large for an int".into())
    }),
    function("sum_float", |values| Ok(SwiftValue::Float(sum(&values[0])))),
    function("average", |values| average(&values[0]).map(SwiftValue::Float)),
    function("deviation", |values| {
        let (average, count) = (average(&values[0])?, count(&values[0]));
        let squares: f64 = with_members(&values[0], |all| all.map(|next| (next.float() - average).powi(2)).sum());
        Ok(SwiftValue::Float((squares / count).sqrt()))
    }),
    function("largest_int", |values| {
        with_members(&values[0], |all| all.map(|next| next.int()).max()).map(SwiftValue::Int).ok_or_else(no_members)
    }),
    function("smallest_int", |values| {
        with_members(&values[0], |all| all.map(|next| next.int()).min()).map(SwiftValue::Int).ok_or_else(no_members)
    }),
    function("largest_float", |values| {
        let largest = with_members(&values[0], |all| all.map(|next| next.float()).reduce(f64::max));
        largest.map(SwiftValue::Float).ok_or_else(no_members)
    }),
    function("smallest_float", |values| {
        let smallest = with_members(&values[0], |all| all.map(|next| next.float()).reduce(f64::min));
        smallest.map(SwiftValue::Float).ok_or_else(no_members)
    }),
    function("string_join", |values| {
        let texts: Vec<String> = with_members(&values[0], |all| all.map(|next| next.str().to_owned()).collect());
        Ok(SwiftValue::text(&texts.join(values[1].str())))
    }),
    function("pick", |values| {
        let all = values[0].array().members.borrow();
        let member = |index: SwiftValue| {
            let found = all.get(&ArrayKey::of(&index));
            found.ok_or_else(|| format!("the array has no member [{}]", index.int()))
        };
        with_members(&values[1], |indices| indices.map(member).collect::<Result<Vec<_>, _>>()).map(array)
    }),
    function("lines_of", |values| {
        let members = values[0].array().members.borrow();
        let line = |(index, member): (ArrayKey, Option<SwiftValue>)| {
            let member = member.expect("all are there");
            if values[1].boolean() { format!("{index} {}\n", member.str()) } else { format!("{}\n", member.str()) }
        };
        Ok(SwiftValue::text(&members.iter().map(line).collect::<String>()))
    }),
    function("sum_of_squares", |values| {
        let average = if count(&values[0]) == 0.0 { 0.0 } else { average(&values[0])? };
        let squares = with_members(&values[0], |all| all.map(|next| (next.float() - average).powi(2)).sum());
        Ok(SwiftValue::Float(squares))
    }),
    function("combined_count", |values| Ok(SwiftValue::Int(parts_of(&values[0]).iter().map(|part| part.0).sum()))),
    function("combined_mean", |values| combined(&values[0]).map(|(mean, _)| SwiftValue::Float(mean))),
    function("combined_deviation", |values| combined(&values[0]).map(|(_, deviation)| SwiftValue::Float(deviation))),
    function("string_from_floats", |values| {
        let texts: Vec<String> = with_members(&values[0], |all| all.map(|next| format::plain(&next)).collect());
        Ok(SwiftValue::text(&texts.join(",")))
    }),
    function("array_repr", |values| {
        let texts: Vec<SwiftValue> =
            with_members(&values[0], |all| all.map(|next| SwiftValue::text(&format::plain(&next))).collect());
        Ok(array(texts))
    }),
];

/// A closed array of these values.
pub fn array(values: impl IntoIterator<Item = SwiftValue>) -> SwiftValue {
    SwiftValue::Array(Rc::new(ArrayCell::closed(values)))
}

/// The numbers from `start` to `end`.
pub fn int_range(start: i64, end: i64, step: i64) -> Result<impl Iterator<Item = i64>, String> {
    if step <= 0 {
        return Err(format!("the step of a range must be above 0, and is {step}"));
    }
    let next = move |last: &i64| last.checked_add(step).filter(|next| *next <= end);
    Ok(std::iter::successors((start <= end).then_some(start), next))
}

/// The numbers from `start` to `end`.
pub fn float_range(start: f64, end: f64, step: f64) -> Result<impl Iterator<Item = f64>, String> {
    if step.is_nan() || step <= 0.0 {
        return Err(format!("the step of a range must be above 0, and is {step}"));
    }
    // Multiples, since sums of steps drift.
    let number = move |count: u32| start + f64::from(count) * step;
    Ok((0..u32::MAX).map(number).take_while(move |number| *number <= end))
}

/// Does something with the members of an array that is complete, in the order of their indices.
fn with_members<T>(value: &SwiftValue, work: impl FnOnce(&mut dyn Iterator<Item = SwiftValue>) -> T) -> T {
    let members = value.array().members.borrow();
    work(&mut members.iter().map(|(_, member)| member.expect("all are there")))
}

/// Count, mean and sum of squared distances of each part of some statistics.
fn parts_of(value: &SwiftValue) -> Vec<(i64, f64, f64)> {
    let part = |part: SwiftValue| {
        let SwiftValue::Struct(part) = part else { unreachable!("the checker saw structs") };
        let field = |number: usize| part.fields.borrow()[number].get().expect("all are there");
        (field(0).int(), field(1).float(), field(2).float())
    };
    with_members(value, |all| all.map(part).collect())
}

/// The mean and deviation of all samples of which there are statistics in parts.
#[expect(clippy::cast_precision_loss, reason = "numbers of samples are small")]
fn combined(value: &SwiftValue) -> Result<(f64, f64), String> {
    let parts = parts_of(value);
    let count: f64 = parts.iter().map(|part| part.0 as f64).sum();
    if count == 0.0 {
        return Err("there are no samples".into());
    }
    let mean = parts.iter().map(|(count, mean, _)| *count as f64 * mean).sum::<f64>() / count;
    let squares: f64 = parts.iter().map(|(count, part, squares)| squares + *count as f64 * (part - mean).powi(2)).sum();
    Ok((mean, (squares / count).sqrt()))
}

fn sum(value: &SwiftValue) -> f64 {
    with_members(value, |all| all.map(|next| next.float()).sum())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of members are small")]
fn count(value: &SwiftValue) -> f64 {
    value.array().members.borrow().len() as f64
}

fn average(value: &SwiftValue) -> Result<f64, String> {
    if count(value) == 0.0 { Err(no_members()) } else { Ok(sum(value) / count(value)) }
}

fn no_members() -> String {
    "the array has no members".into()
}
