//! Escapes in strings, as in C.

/// A text with its escapes resolved.
///
/// # Errors
/// The offset of the first wrong escape, and what is wrong.
pub fn resolve(raw: &str) -> Result<String, (usize, String)> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let offset = raw.len() - rest.len() + at;
        let (character, length) = one(escape).map_err(|message| (offset, message))?;
        text.push(character);
        rest = &escape[length..];
    }
    text.push_str(rest);
    Ok(text)
}

/// The character of the escape behind a backslash, and the length of what stands for it.
fn one(escape: &str) -> Result<(char, usize), String> {
    let Some(first) = escape.chars().next() else { return Err("a `\\` is the last character of the string".into()) };
    let plain = match first {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' | '"' | '?' => first,
        '0'..='7' => return Ok(number(escape, (3, 8))),
        'x' if escape[1..].starts_with(|c: char| c.is_ascii_hexdigit()) => {
            let (character, length) = number(&escape[1..], (2, 16));
            return Ok((character, 1 + length));
        }
        'x' => return Err("`\\x` needs a hexadecimal digit behind it".into()),
        _ => return Err(format!("`\\{first}` is no escape; a backslash is written `\\\\`")),
    };
    Ok((plain, 1))
}

/// The character with the number that begins here, of `most` digits.
fn number(digits: &str, (most, radix): (usize, u32)) -> (char, usize) {
    let length = digits.chars().take(most).take_while(|c| c.is_digit(radix)).count();
    let code = u32::from_str_radix(&digits[..length], radix).expect("these are digits");
    (char::from_u32(code).expect("codes below 512 are characters"), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_their_characters() {
        assert_eq!(resolve(r#"a\nb\\\"\?\x41\x4g\101\7"#).as_deref(), Ok("a\nb\\\"?A\u{4}gA\u{7}"));
        assert_eq!(resolve("plain é"), Ok("plain é".into()));
    }

    #[test]
    fn wrong_escapes_are_told_with_their_offset() {
        assert_eq!(resolve(r"ab\q"), Err((2, r"`\q` is no escape; a backslash is written `\\`".into())));
        assert_eq!(resolve(r"\xg"), Err((0, r"`\x` needs a hexadecimal digit behind it".into())));
        assert_eq!(resolve("a\\"), Err((1, r"a `\` is the last character of the string".into())));
    }
}
