//! Functions of strings. Positions count characters.

use super::{ArrayNeed, PureFunction, arrays::array, format, function};
use crate::value::SwiftValue;

/// The functions.
pub const FUNCTIONS: &[PureFunction] = &[
    function("strcat", |values| Ok(SwiftValue::text(&values.iter().map(format::plain).collect::<String>()))),
    function("dircat", |values| {
        Ok(SwiftValue::text(&values.iter().map(SwiftValue::str).collect::<Vec<_>>().join("/")))
    }),
    function("strlen", |values| int(values[0].str().chars().count())),
    function("to_string", |values| Ok(SwiftValue::text(&format::plain(&values[0])))),
    PureFunction {
        name: "repr",
        call: |values| Ok(SwiftValue::text(&format::plain(&values[0]))),
        arrays: ArrayNeed::Members,
    },
    function("parse_int", |values| {
        let (text, base) = (values[0].str().trim(), values.get(1).map_or(10, SwiftValue::int));
        let radix = u32::try_from(base).ok().filter(|radix| (2..=36).contains(radix));
        let radix = radix.ok_or_else(|| format!("{base} is no base of numbers; it is 2 to 36"))?;
        i64::from_str_radix(text, radix).map(SwiftValue::Int).map_err(|_| format!("{text:?} is no int of base {base}"))
    }),
    function("parse_float", |values| {
        let text = values[0].str().trim();
        text.parse().map(SwiftValue::Float).map_err(|_| format!("{text:?} is no float"))
    }),
    function("parse_boolean", |values| match values[0].str().trim().to_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(SwiftValue::Boolean(true)),
        "false" | "0" | "no" | "off" => Ok(SwiftValue::Boolean(false)),
        other => Err(format!("{other:?} is neither true nor false")),
    }),
    function("is_int", |values| Ok(SwiftValue::Boolean(values[0].str().trim().parse::<i64>().is_ok()))),
    function("sprintf", |values| Ok(SwiftValue::text(&format::sprintf(values[0].str(), &values[1..])?))),
    function("substring", |values| {
        let (start, length) = (place(&values[1]), place(&values[2]));
        Ok(SwiftValue::text(&values[0].str().chars().skip(start).take(length).collect::<String>()))
    }),
    function("split", |values| {
        let (text, delimiter) = (values[0].str(), values[1].str());
        if delimiter.is_empty() {
            return Err("the delimiter of split is empty".into());
        }
        let parts = if text.is_empty() { Vec::new() } else { text.split(delimiter).map(SwiftValue::text).collect() };
        Ok(array(parts))
    }),
    function("find", |values| {
        let part = part_of(&values[0], &values[2], &values[3]);
        let found = part.find(values[1].str()).map(|at| part[..at].chars().count() + place(&values[2]));
        found.map_or(Ok(SwiftValue::Int(-1)), int)
    }),
    function("string_count", |values| {
        if values[1].str().is_empty() {
            return Ok(SwiftValue::Int(0));
        }
        int(part_of(&values[0], &values[2], &values[3]).matches(values[1].str()).count())
    }),
    function("replace", |values| {
        let start = byte_at(values[0].str(), place(&values[3]));
        let (before, after) = values[0].str().split_at(start);
        Ok(SwiftValue::text(&format!("{before}{}", after.replacen(values[1].str(), values[2].str(), 1))))
    }),
    function("replace_all", |values| {
        let text = values[0].str();
        let start = byte_at(text, values.get(3).map_or(0, place));
        let end = values.get(4).filter(|end| end.int() >= 0).map_or(text.len(), |end| byte_at(text, place(end)));
        let (start, end) = (start.min(end), end);
        let replaced = text[start..end].replace(values[1].str(), values[2].str());
        Ok(SwiftValue::text(&format!("{}{replaced}{}", &text[..start], &text[end..])))
    }),
    function("join_args", |values| {
        let texts: Vec<String> = values[1..].iter().map(format::plain).collect();
        Ok(SwiftValue::text(&texts.join(values[0].str())))
    }),
    function("dirname", |values| {
        let path = values[0].str();
        let directory = path.rsplit_once('/').map(|(directory, _)| if directory.is_empty() { "/" } else { directory });
        Ok(SwiftValue::text(directory.unwrap_or(".")))
    }),
    function("basename", |values| Ok(SwiftValue::text(last_part(values[0].str())))),
    function("rootname", |values| {
        let path = values[0].str();
        Ok(SwiftValue::text(&path[..path.len() - extension(path).len()]))
    }),
    function("extension", |values| Ok(SwiftValue::text(extension(values[0].str())))),
    function("trim", |values| Ok(SwiftValue::text(values[0].str().trim()))),
    function("to_upper", |values| Ok(SwiftValue::text(&values[0].str().to_uppercase()))),
    function("to_lower", |values| Ok(SwiftValue::text(&values[0].str().to_lowercase()))),
    function("hash", |values| {
        // FNV-1a: the same on every machine.
        let hash = values[0]
            .str()
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Ok(SwiftValue::Int(hash.into()))
    }),
];

fn int(number: usize) -> Result<SwiftValue, String> {
    i64::try_from(number).map(SwiftValue::Int).map_err(|error| error.to_string())
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The end of a file's name from its last point on.
fn extension(path: &str) -> &str {
    last_part(path).rfind('.').map_or("", |at| &last_part(path)[at..])
}

/// A position; those below 0 are 0.
fn place(value: &SwiftValue) -> usize {
    usize::try_from(value.int()).unwrap_or(0)
}

/// The offset of a character; the length of the text if it has fewer.
fn byte_at(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

/// The part of a text between two positions; an end below 0 is that of the text.
fn part_of<'a>(text: &'a SwiftValue, start: &SwiftValue, end: &SwiftValue) -> &'a str {
    let text = text.str();
    let start_at = byte_at(text, place(start));
    let end_at = if end.int() < 0 { text.len() } else { byte_at(text, place(end)) };
    text.get(start_at..end_at).unwrap_or_default()
}
