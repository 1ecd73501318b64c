//! Values as text: as `printf` of C writes them, and as Swift/T does by itself.

use crate::value::{SwiftValue, TaskLocation};
use std::fmt::Write;

/// The longest field of a conversion. It bounds what `%1000000000i` asks for.
const WIDTH_MAX: usize = 1 << 16;

/// A value as text, as `trace` prints it.
pub fn plain(value: &SwiftValue) -> String {
    match value {
        SwiftValue::Int(number) => number.to_string(),
        SwiftValue::Float(number) => plain_float(*number),
        SwiftValue::Boolean(value) => i32::from(*value).to_string(),
        SwiftValue::Text(text) => text.to_string(),
        SwiftValue::Void => String::new(),
        SwiftValue::Word(word) => (*word).to_owned(),
        SwiftValue::Location(TaskLocation::Slot { rank, .. }) => rank.to_string(),
        SwiftValue::Location(TaskLocation::File { file, .. }) => format!("file {}", file.0),
        SwiftValue::File(file) | SwiftValue::FileLocation(file, _) => format!("file {}", file.id.0),
        SwiftValue::Array(array) => {
            let members = array.members.borrow();
            let text = |value: Option<SwiftValue>| value.map_or_else(|| "?".to_owned(), |value| plain(&value));
            let members = members.iter().map(|(key, value)| format!("{key}={}", text(value)));
            format!("[{}]", members.collect::<Vec<_>>().join(", "))
        }
        SwiftValue::Struct(_) => "struct".to_owned(),
    }
}

/// The shortest text that is this number again, with a point in it.
fn plain_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e17).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').expect("it has an exponent");
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{number:?}")
}

/// A conversion of a format: `%-08.3f`.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of C")]
struct ConversionSpec {
    left: bool,
    zeros: bool,
    plus: bool,
    blank: bool,
    width: usize,
    precision: Option<usize>,
}

/// A format with values in place of its conversions, as `sprintf` of C.
///
/// # Errors
/// A conversion that does not fit its value, too few or too many values.
pub fn sprintf(format: &str, values: &[SwiftValue]) -> Result<String, String> {
    let (mut text, mut rest, mut values) = (String::new(), format, values.iter());
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (spec, length) = spec_of(rest);
        let Some(letter) = rest[length..].chars().next() else {
            return Err(format!("the format {format:?} ends within a conversion"));
        };
        rest = &rest[length + letter.len_utf8()..];
        if letter == '%' {
            text.push('%');
            continue;
        }
        let Some(value) = values.next() else {
            return Err(format!("the format {format:?} has more conversions than there are values"));
        };
        text.push_str(&convert(letter, &spec, value)?);
    }
    text.push_str(rest);
    match values.len() {
        0 => Ok(text),
        left => Err(format!("{left} of the values have no conversion in the format {format:?}")),
    }
}

/// The flags, width and precision that begin here, and their length.
fn spec_of(text: &str) -> (ConversionSpec, usize) {
    let mut spec = ConversionSpec::default();
    let flags = text.len() - text.trim_start_matches(['-', '0', '+', ' ', '#']).len();
    for flag in text[..flags].chars() {
        match flag {
            '-' => spec.left = true,
            '0' => spec.zeros = true,
            '+' => spec.plus = true,
            ' ' => spec.blank = true,
            _ => {}
        }
    }
    let number = |from: usize| {
        let digits = text[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - from);
        (
            text[from..from + digits].parse().unwrap_or(if digits > 0 { WIDTH_MAX } else { 0 }).min(WIDTH_MAX),
            from + digits,
        )
    };
    let (width, mut end) = number(flags);
    spec.width = width;
    if text[end..].starts_with('.') {
        let (precision, after) = number(end + 1);
        (spec.precision, end) = (Some(precision), after);
    }
    // Lengths of C mean nothing here.
    end += text[end..].len() - text[end..].trim_start_matches(['l', 'h', 'L', 'q', 'j', 'z']).len();
    (spec, end)
}

fn convert(letter: char, spec: &ConversionSpec, value: &SwiftValue) -> Result<String, String> {
    let wrong = |wanted: &str| format!("%{letter} is for {wanted}, and the value is {:?}", plain(value));
    let number = match value {
        SwiftValue::Int(number) => Some(*number),
        SwiftValue::Boolean(value) => Some(i64::from(*value)),
        _ => None,
    };
    let text = match letter {
        'i' | 'd' | 'u' => signed(number.ok_or_else(|| wrong("an int"))?.to_string(), spec),
        'x' => format!("{:x}", number.ok_or_else(|| wrong("an int"))?),
        'X' => format!("{:X}", number.ok_or_else(|| wrong("an int"))?),
        'o' => format!("{:o}", number.ok_or_else(|| wrong("an int"))?),
        'c' => {
            let code = number.and_then(|number| u32::try_from(number).ok()).and_then(char::from_u32);
            code.ok_or_else(|| wrong("the number of a character"))?.to_string()
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
            let number = match value {
                SwiftValue::Float(_) | SwiftValue::Int(_) => value.float(),
                _ => return Err(wrong("a float")),
            };
            signed(float_text(letter, number, spec.precision.unwrap_or(6)), spec)
        }
        's' => {
            let text = plain(value);
            text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect()
        }
        _ => return Err(format!("%{letter} is no conversion; use %i, %f, %e, %g, %s, %x or %%")),
    };
    Ok(padded(text, letter != 's' && letter != 'c', spec))
}

fn signed(text: String, spec: &ConversionSpec) -> String {
    match text.starts_with('-') {
        false if spec.plus => format!("+{text}"),
        false if spec.blank => format!(" {text}"),
        _ => text,
    }
}

fn padded(text: String, is_number: bool, spec: &ConversionSpec) -> String {
    let lacking = spec.width.saturating_sub(text.chars().count());
    if lacking == 0 {
        return text;
    }
    if spec.left {
        return text + &" ".repeat(lacking);
    }
    if spec.zeros && is_number {
        let sign = usize::from(text.starts_with(['-', '+', ' ']));
        return format!("{}{}{}", &text[..sign], "0".repeat(lacking), &text[sign..]);
    }
    " ".repeat(lacking) + &text
}

fn float_text(letter: char, number: f64, precision: usize) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return if letter.is_uppercase() { text.to_uppercase() } else { text.to_owned() };
    }
    match letter {
        'f' | 'F' => format!("{number:.precision$}"),
        'e' | 'E' => exponent_text(letter, number, precision),
        _ => general_text(letter, number, precision.max(1)),
    }
}

/// A number as `%e` of C: at least two digits of exponent.
fn exponent_text(letter: char, number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("it is a number");
    let sign = if exponent < 0 { '-' } else { '+' };
    let mark = if letter.is_uppercase() { 'E' } else { 'e' };
    let mut whole = digits.to_owned();
    write!(whole, "{mark}{sign}{:02}", exponent.abs()).expect("a string takes all");
    whole
}

/// A number as `%g` of C: the shorter of both, without zeros at the end.
fn general_text(letter: char, number: f64, precision: usize) -> String {
    let rounded = format!("{number:.*e}", precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let places = i32::try_from(precision).unwrap_or(i32::MAX);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if exponent < -4 || exponent >= places {
        let mark = if letter.is_uppercase() { 'E' } else { 'e' };
        let text = exponent_text(if mark == 'E' { 'E' } else { 'e' }, number, precision - 1);
        let (digits, exponent) = text.split_once(mark).expect("it has an exponent");
        return format!("{}{mark}{exponent}", trim(digits));
    }
    let behind = usize::try_from(places - 1 - exponent).unwrap_or(0);
    trim(&format!("{number:.behind$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(format: &str, values: &[SwiftValue]) -> String {
        sprintf(format, values).unwrap_or_else(|error| error)
    }

    #[test]
    fn conversions_are_those_of_c() {
        let (int, float) = (SwiftValue::Int(-42), SwiftValue::Float(4.66920));
        assert_eq!(
            formatted("%i|%6d|%-6i|%06i|%x", &[int.clone(), int.clone(), int.clone(), int, SwiftValue::Int(255)]),
            "-42|   -42|-42   |-00042|ff"
        );
        assert_eq!(
            formatted("%f %.2f %8.3f", &[float.clone(), float.clone(), float.clone()]),
            "4.669200 4.67    4.669"
        );
        assert_eq!(
            formatted(
                "%e %g %g %g",
                &[float, SwiftValue::Float(1e-7), SwiftValue::Float(100_000.0), SwiftValue::Float(1e6)]
            ),
            "4.669200e+00 1e-07 100000 1e+06"
        );
        assert_eq!(
            formatted(
                "%s %5s|%-5s| %.2s %%",
                &[SwiftValue::text("a"), SwiftValue::text("b"), SwiftValue::text("c"), SwiftValue::text("word")]
            ),
            "a     b|c    | wo %"
        );
        assert_eq!(
            formatted("%+i % i %f", &[SwiftValue::Int(1), SwiftValue::Int(2), SwiftValue::Int(3)]),
            "+1  2 3.000000"
        );
    }

    #[test]
    fn wrong_formats_say_what_is_wrong() {
        assert_eq!(formatted("%i", &[SwiftValue::text("a")]), "%i is for an int, and the value is \"a\"");
        assert_eq!(
            formatted("%i %i", &[SwiftValue::Int(1)]),
            "the format \"%i %i\" has more conversions than there are values"
        );
        assert_eq!(formatted("a", &[SwiftValue::Int(1)]), "1 of the values have no conversion in the format \"a\"");
        assert_eq!(formatted("%", &[]), "the format \"%\" ends within a conversion");
        assert!(formatted("%y", &[SwiftValue::Int(1)]).starts_with("%y is no conversion"));
        assert_eq!(formatted("%999999999i", &[SwiftValue::Int(1)]).len(), WIDTH_MAX);
    }

    #[test]
    fn numbers_keep_their_point() {
        let texts = [1.0, 0.5, 1e20, 1e-7, 123_456_789.125].map(|number| plain(&SwiftValue::Float(number)));
        assert_eq!(texts, ["1.0", "0.5", "1e+20", "1e-07", "123456789.125"]);
    }
}
