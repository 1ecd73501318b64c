//! Makes untrusted text safe for a terminal or a log: file names, output of tools and scripts.
//!
//! A control character could move the cursor, or colour or retitle a terminal; a bidirectional
//! control character (U+202E) could show a name in another order than its characters have. Both are
//! escaped by their code points: `\u{1b}`, `\u{202e}`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The most characters of a line that are shown. A path has at most 4,096 bytes; the rest leaves
/// room for the words around it.
pub const LINE_CHARS_MAX: usize = 5_000;

/// Returns `text` as one line: escapes line ends too, and replaces the rest of a long line by the
/// number of its characters.
pub fn line(text: &str) -> Cow<'_, str> {
    cut(text, LINE_CHARS_MAX)
}

/// Returns `text` with each of its lines made safe by [`line()`].
pub fn lines(text: &str) -> Cow<'_, str> {
    if text.len() <= LINE_CHARS_MAX && !text.chars().any(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    text.split('\n').map(|part| line(part).into_owned()).collect::<Vec<_>>().join("\n").into()
}

/// Returns `text` as one line of at most `chars_max` characters; counts the characters that it
/// cuts.
pub fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    let end = text.char_indices().nth(chars_max).map(|(end, _)| end);
    if end.is_none() && !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let shown = &text[..end.unwrap_or(text.len())];
    let mut safe = String::with_capacity(shown.len());
    for c in shown.chars() {
        if is_unsafe(c) { safe.extend(c.escape_debug()) } else { safe.push(c) }
    }
    if let Some(end) = end {
        // Writing to a `String` cannot fail.
        let _ = write!(safe, "... ({} more characters)", text[end..].chars().count());
    }
    Cow::Owned(safe)
}

/// Returns whether a terminal would act on `c` instead of showing it. A tab is harmless.
fn is_unsafe(c: char) -> bool {
    let changes_order =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_line = matches!(c, '\u{2028}' | '\u{2029}');
    (c.is_control() && c != '\t') || changes_order || ends_line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_command_a_terminal() {
        assert_eq!(line("\x1b[31mred\x07 \u{9b}x"), "\\u{1b}[31mred\\u{7} \\u{9b}x");
        assert_eq!(line("cv\u{202e}fdp.sh"), "cv\\u{202e}fdp.sh");
        assert_eq!(line("a\nerror: b\r"), "a\\nerror: b\\r");
        assert_eq!(lines("a\n\x1bb"), "a\n\\u{1b}b");
        for plain in ["", "a\tb ü 漢字 \"q\" \\", "עברית"] {
            assert_eq!((line(plain), lines(plain)), (plain.into(), plain.into()));
        }
    }

    #[test]
    fn a_long_line_is_cut_and_what_is_left_out_is_counted() {
        assert_eq!(cut("äbcdef", 3), "äbc... (3 more characters)");
        assert_eq!(cut("abc", 3), "abc");
        let long = "x".repeat(LINE_CHARS_MAX + 7);
        assert!(lines(&format!("a\n{long}\nb")).ends_with("x... (7 more characters)\nb"));
    }
}
