//! Finds the start of a call in the script's text, and parameters that its object literal gives
//! twice.
//!
//! The engine reports the position that the evaluation of a call has reached. For a call over
//! several lines that is its last argument. The engine also accepts a parameter that is given
//! twice. This module corrects both by scanning the text around the position. It is not a parser:
//! if the text is unusual (a tool under another name, a regular expression full of quotes), it
//! finds nothing, and the engine's position is used.

use std::collections::HashMap;

/// The number of bytes before the engine's position in which a call is searched.
const BEFORE_BYTES_MAX: usize = 64 << 10;

/// The most occurrences of the tool's name that are tried.
const MENTIONS_MAX: usize = 16;

/// A call in the text. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CallSite {
    /// The line of the call; 0 if unknown.
    pub line: u32,
    /// The column of the call in characters; 0 if unknown.
    pub column: u32,
    /// A parameter that the call's object literal gives twice, with the line and column of the
    /// second one.
    pub duplicate: Option<(String, u32, u32)>,
}

/// The calls of one script. Each position is scanned only once, however often a loop executes it.
pub(crate) struct CallSites {
    source: String,
    /// The byte offset of the start of each line.
    lines: Vec<usize>,
    cache: HashMap<(u32, u32, u32), CallSite>,
}

impl CallSites {
    pub fn new(source: &str) -> Self {
        let lines = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { source: source.to_owned(), lines, cache: HashMap::new() }
    }

    /// The call of the tool `name` (number `tool`) that the engine reports at `(line, column)`.
    pub fn find(&mut self, tool: u32, name: &str, (line, column): (u32, u32)) -> &CallSite {
        let (source, lines) = (&self.source, &self.lines);
        self.cache.entry((tool, line, column)).or_insert_with(|| {
            let found = offset(source, lines, (line, column)).and_then(|at| call_around(source, at, name));
            let Some((start, open)) = found else { return CallSite { line, column, duplicate: None } };
            let (line, column) = position(source, lines, start);
            let duplicate = find_duplicate_key(source, open).map(|(name, at)| {
                let (line, column) = position(source, lines, at);
                (name, line, column)
            });
            CallSite { line, column, duplicate }
        })
    }
}

fn offset(source: &str, lines: &[usize], (line, column): (u32, u32)) -> Option<usize> {
    let start = *lines.get((line as usize).checked_sub(1)?)?;
    let skipped = source[start..].chars().take((column as usize).saturating_sub(1));
    Some((start + skipped.map(char::len_utf8).sum::<usize>()).min(source.len()))
}

fn position(source: &str, lines: &[usize], at: usize) -> (u32, u32) {
    let line = lines.partition_point(|start| *start <= at);
    let column = source[lines[line - 1]..at].chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

/// The innermost call of `name` whose parentheses enclose `at`: the offsets of the name and of the
/// opening parenthesis.
fn call_around(source: &str, at: usize, name: &str) -> Option<(usize, usize)> {
    let from = source.floor_char_boundary(at.saturating_sub(BEFORE_BYTES_MAX));
    let to = source.floor_char_boundary((at + name.len()).min(source.len()));
    let mentions = source[from..to].rmatch_indices(name).take(MENTIONS_MAX);
    mentions.map(|(start, _)| from + start).find_map(|start| {
        let after = &source[start + name.len()..];
        let open = start + name.len() + (after.len() - after.trim_start().len());
        let is_word = !source[..start].ends_with(is_word) && source[open..].starts_with('(');
        let holds = is_word && Code::new(source, open).find_close().is_none_or(|close| close > at);
        holds.then_some((start, open))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || c == '.'
}

/// A key that occurs twice in the object literal right behind the parenthesis at `open`: the name,
/// and the offset of the second one.
fn find_duplicate_key(source: &str, open: usize) -> Option<(String, usize)> {
    let mut code = Code::new(source, open);
    let mut depth = 0u32;
    let mut keys: Vec<&str> = Vec::new();
    let mut at_key = false;
    while let Some((at, token)) = code.next_token() {
        match token {
            "(" | "[" | "{" => {
                // Only `({` begins such a literal; with any other bracket there is none.
                if depth < 2 && token != ["(", "{"][depth as usize] {
                    return None;
                }
                depth += 1;
                at_key = depth == 2;
                continue;
            }
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth < 2 {
                    return None;
                }
            }
            "," if depth == 2 => {
                at_key = true;
                continue;
            }
            // `...more`, `[computed]`, `get x() {}` and the like are not keys that could occur
            // twice.
            _ if at_key && depth == 2 && code.clone().next_token().is_some_and(|(_, next)| next == ":") => {
                let key = token.trim_matches(['"', '\'']);
                if keys.contains(&key) {
                    return Some((key.to_owned(), at));
                }
                keys.push(key);
            }
            _ if depth < 2 => return None,
            _ => {}
        }
        at_key = false;
    }
    None
}

/// A tokenizer for JavaScript: words, whole string literals, otherwise single characters. Skips
/// comments and blanks.
#[derive(Clone)]
struct Code<'a> {
    source: &'a str,
    at: usize,
    /// True if a `/` would begin a regular expression.
    before_value: bool,
}

impl<'a> Code<'a> {
    fn new(source: &'a str, at: usize) -> Self {
        Self { source, at, before_value: true }
    }

    /// The offset at which the first bracket is closed.
    fn find_close(mut self) -> Option<usize> {
        let mut depth = 0u32;
        while let Some((at, token)) = self.next_token() {
            match token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    fn next_token(&mut self) -> Option<(usize, &'a str)> {
        self.skip_blanks();
        let rest = &self.source[self.at..];
        let first = rest.chars().next()?;
        let length = match first {
            '"' | '\'' | '`' => text_length(rest, first),
            '/' if self.before_value => text_length(rest, '/'),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let start = self.at;
        self.at += length;
        self.before_value = "([{,;:=!&|?+-*<>".contains(first);
        Some((start, &rest[..length]))
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.source[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let comment = if trimmed.starts_with("//") {
                trimmed.find('\n')
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map(|end| end + 2)
            } else {
                return;
            };
            self.at += comment.unwrap_or(trimmed.len());
        }
    }
}

/// The length of the literal that begins `rest` and ends with another `quote`; a backslash escapes
/// the next character.
fn text_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The site of the call of `T` in `source`, with the engine's position at the mark `^`.
    fn call_site(source: &str) -> CallSite {
        let at = source.find('^').expect("a mark");
        let plain = source.replacen('^', "", 1);
        let mut call_sites = CallSites::new(&plain);
        let location = position(&plain, &call_sites.lines, at);
        call_sites.find(0, "T", location).clone()
    }

    fn at(line: u32, column: u32) -> CallSite {
        CallSite { line, column, duplicate: None }
    }

    #[test]
    fn a_call_begins_with_its_name_however_far_the_engine_is() {
        assert_eq!(call_site("x; T({a: b^[1]})"), at(1, 4));
        assert_eq!(call_site("  T({\n  a: ')', // )\n  b: c^[1]\n})"), at(1, 3));
        assert_eq!(call_site("T(1); T({a: T2, b^: 2})"), at(1, 7));
        assert_eq!(call_site("T({a: /[)]/.x, é: \"(\", b^: 2})"), at(1, 1));
        assert_eq!(call_site("^T()"), at(1, 1));
    }

    #[test]
    fn a_call_by_another_name_stays_where_the_engine_says() {
        assert_eq!(call_site("T(); [T][0]^()"), at(1, 12));
        assert_eq!(call_site("x.T(1^)"), at(1, 6));
    }

    #[test]
    fn a_parameter_written_twice_is_found() {
        let duplicate = |source| call_site(source).duplicate;
        assert_eq!(duplicate("T({a: 1, b: {a: 2}, a^: 3})"), Some(("a".to_owned(), 1, 21)));
        assert_eq!(duplicate("T({a: f(1, a), \"a\": [a, a]^})"), Some(("a".to_owned(), 1, 16)));
        for right in ["T({a: 1, b: {a: 2}, c: [a, a]^})", "T({a: x ? a : a, b^: 1})", "T(^f({a: 1, a: 2}))", "T({a^})"]
        {
            assert_eq!(duplicate(right), None, "{right}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(source in "[T(){}\\[\\],:'\"/\\\\a\n é*]{0,60}", line in 0u32..4, column in 0u32..70) {
            let _ = CallSites::new(&source).find(0, "T", (line, column));
        }
    }
}
