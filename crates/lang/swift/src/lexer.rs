//! Lexer: a text to tokens. Comments are left out; lines of the preprocessor are tokens of their
//! own.
//!
//! A `#` begins a line of the preprocessor if it is the first of its line and a directive follows,
//! else a comment to the end of the line.

use crate::escapes;
use crate::source::{SourceId, Sources, Span};
use crate::token::{Lexeme, Mark, SwiftToken};
use base::Problem;
use std::sync::Arc;

/// The directives of the preprocessor.
const DIRECTIVES: [&str; 12] =
    ["include", "define", "undef", "ifdef", "ifndef", "if", "elif", "else", "endif", "error", "warning", "pragma"];

/// The tokens of a text; the last one is [`SwiftToken::End`].
///
/// # Errors
/// The first character that begins no token, or the first string, comment or number that is wrong.
pub fn lex(sources: &Sources, source: SourceId) -> Result<Vec<Lexeme>, Problem> {
    Lexer::new(sources, source).all(sources)
}

/// The tokens of a part of a text between two offsets, for the bodies of macros. No directive is in
/// it.
pub fn lex_part(sources: &Sources, source: SourceId, (start, end): (u32, u32)) -> Result<Vec<Lexeme>, Problem> {
    let (at, end) = (start as usize, end as usize);
    Lexer { at, end, line_start: false, ..Lexer::new(sources, source) }.all(sources)
}

/// A mistake and its offset.
type Wrong = (usize, Problem);

/// Reads the tokens of a text one after another.
pub struct Lexer {
    source: SourceId,
    text: Arc<str>,
    at: usize,
    end: usize,
    /// True if nothing but blanks was on this line so far.
    line_start: bool,
}

impl Lexer {
    /// A lexer at the beginning of a text.
    pub fn new(sources: &Sources, source: SourceId) -> Self {
        let text = sources.text(source);
        Self { source, at: 0, end: text.len(), text, line_start: true }
    }

    fn all(mut self, sources: &Sources) -> Result<Vec<Lexeme>, Problem> {
        let mut tokens = Vec::new();
        while tokens.last().is_none_or(|last: &Lexeme| last.token != SwiftToken::End) {
            tokens.push(self.next(sources)?);
        }
        Ok(tokens)
    }

    /// The next token; [`SwiftToken::End`] at the end, again and again.
    ///
    /// # Errors
    /// See [`lex`].
    pub fn next(&mut self, sources: &Sources) -> Result<Lexeme, Problem> {
        let read = self.skip_blanks().and_then(|()| {
            let span = self.span_at(self.at);
            let token = self.token()?;
            self.line_start = false;
            Ok(Lexeme { token, span })
        });
        read.map_err(|(at, problem)| problem.at(sources.location(self.span_at(at))))
    }

    /// Skips all lines up to the next directive, whatever is in them.
    pub fn skip_to_directive(&mut self) {
        while !self.rest().is_empty() {
            let blanks = self.rest().len() - self.rest().trim_start_matches([' ', '\t', '\r']).len();
            self.at += blanks;
            if self.line_start && self.rest().starts_with('#') && self.is_directive() {
                return;
            }
            self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
            self.line_start = true;
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..self.end]
    }

    fn span_at(&self, at: usize) -> Span {
        Span { source: self.source, offset: u32::try_from(at).expect("texts are shorter") }
    }

    fn skip_blanks(&mut self) -> Result<(), Wrong> {
        loop {
            let Some(next) = self.rest().chars().next() else { return Ok(()) };
            if next.is_whitespace() {
                self.line_start |= next == '\n';
                self.at += next.len_utf8();
            } else if self.rest().starts_with("\\\n") || self.rest().starts_with("\\\r\n") {
                // The next line belongs to this one.
                self.at += 1 + self.rest().find('\n').expect("it is there");
            } else if self.rest().starts_with("//") || (next == '#' && !self.is_directive()) {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if self.rest().starts_with("/*") {
                let hint = "a comment that begins with /* ends with */";
                let end = self.rest().find("*/");
                self.at +=
                    end.ok_or_else(|| (self.at, Problem::new("this comment has no end").hint(hint)))? + "*/".len();
            } else {
                return Ok(());
            }
        }
    }

    /// Returns whether the `#` here begins a line of the preprocessor.
    fn is_directive(&self) -> bool {
        let word = word_at(self.rest()[1..].trim_start_matches([' ', '\t']));
        self.line_start && DIRECTIVES.contains(&word)
    }

    fn token(&mut self) -> Result<SwiftToken, Wrong> {
        let Some(first) = self.rest().chars().next() else { return Ok(SwiftToken::End) };
        if first == '#' {
            return Ok(self.directive());
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        let word = word_at(self.rest()).to_owned();
        if !word.is_empty() {
            self.at += word.len();
            return Ok(match word.as_str() {
                "NaN" => SwiftToken::Float(f64::NAN),
                "inf" => SwiftToken::Float(f64::INFINITY),
                _ => SwiftToken::Word(word.into()),
            });
        }
        if let Some((open, close)) = self.quotes() {
            return self.string(open, close);
        }
        let mark = Mark::ALL.iter().find(|mark| self.rest().starts_with(mark.text()));
        let unknown = || {
            let problem = Problem::new(format!("{first:?} begins no word of Swift"));
            (self.at, if first == '\'' { problem.hint("strings stand in double quotes") } else { problem })
        };
        let mark = *mark.ok_or_else(unknown)?;
        self.at += mark.text().len();
        Ok(SwiftToken::Mark(mark))
    }

    /// The lengths of the opening and closing quotes of the string that begins here, if one does.
    fn quotes(&self) -> Option<(usize, &'static str)> {
        // The line end belongs to the string.
        let multi = ["\"\"\"", "----"].into_iter().find(|quote| {
            self.rest().strip_prefix(quote).is_some_and(|rest| rest.starts_with('\n') || rest.starts_with("\r\n"))
        });
        let single = self.rest().starts_with('"').then_some("\"");
        multi.or(single).map(|quote| (quote.len(), quote))
    }

    fn string(&mut self, open: usize, close: &str) -> Result<SwiftToken, Wrong> {
        let start = self.at;
        let inner = &self.text[start + open..self.end];
        let end = if close.len() > 1 { inner.find(close) } else { end_of_string(inner) };
        let endless = || Problem::new(format!("this string has no end: `{close}` is missing"));
        let end = end.ok_or_else(|| (start, endless()))?;
        let text = escapes::resolve(&inner[..end]);
        let text = text.map_err(|(at, message)| (start + open + at, Problem::new(message)))?;
        self.at = start + open + end + close.len();
        Ok(SwiftToken::Text(text.into()))
    }

    fn number(&mut self) -> Result<SwiftToken, Wrong> {
        let (start, rest) = (self.at, self.rest());
        let length = number_length(rest);
        let digits = &rest[..length];
        let (digits, radix) = match digits.get(..2) {
            Some("0x") => (&digits[2..], 16),
            Some("0o") => (&digits[2..], 8),
            _ => (digits, 10),
        };
        let is_whole = radix != 10 || !digits.contains(['.', 'e', 'E']);
        let number = if is_whole {
            i64::from_str_radix(digits, radix).ok().map(SwiftToken::Int)
        } else {
            digits.parse().ok().map(SwiftToken::Float)
        };
        let follows = word_at(&rest[length..]);
        if !follows.is_empty() {
            let message = format!("`{follows}` follows a number without a blank");
            return Err((start + length, Problem::new(message)));
        }
        let number = number.ok_or_else(|| {
            let problem = Problem::new(format!("`{}` is no number of 64 bits", &rest[..length]));
            (start, problem.hint("whole numbers go up to 9223372036854775807"))
        })?;
        self.at += length;
        Ok(number)
    }

    fn directive(&mut self) -> SwiftToken {
        let rest = self.rest();
        let blanks = 1 + rest[1..].len() - rest[1..].trim_start_matches([' ', '\t']).len();
        let word = word_at(&rest[blanks..]).to_owned();
        let at = self.at + blanks + word.len();
        let length = length_of_line(&self.text[at..self.end]);
        let line = self.text[at..at + length].to_owned();
        self.at = at + length;
        let at = self.span_at(at).offset;
        SwiftToken::Directive { word: word.into(), rest: line.into(), at }
    }
}

/// The length of the line that begins here, with those that a backslash joins to it.
fn length_of_line(text: &str) -> usize {
    let mut length = 0;
    loop {
        let end = text[length..].find('\n').map_or(text.len(), |end| length + end);
        let is_joined = text[length..end].trim_end_matches('\r').ends_with('\\') && end < text.len();
        if !is_joined {
            return end;
        }
        length = end + 1;
    }
}

/// The word that begins here; empty if none does.
fn word_at(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

/// The length of the number that begins here with a digit.
fn number_length(text: &str) -> usize {
    let digits = |from: usize, radix: u32| {
        let rest = &text[from..];
        from + rest.find(|c: char| !c.is_digit(radix)).unwrap_or(rest.len())
    };
    match text.get(..2) {
        Some("0x") => return digits(2, 16),
        Some("0o") => return digits(2, 8),
        _ => {}
    }
    let mut length = digits(0, 10);
    let has_digit = |at: usize| text[at..].starts_with(|c: char| c.is_ascii_digit());
    if text[length..].starts_with('.') && has_digit(length + 1) {
        length = digits(length + 1, 10);
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['-', '+']));
        if has_digit(length + 1 + sign) {
            length = digits(length + 1 + sign, 10);
        }
    }
    length
}

/// The offset of the quote that ends a string.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let mut ends = text.char_indices().filter(|(_, next)| {
        let ends = *next == '"' && !is_escaped;
        is_escaped = *next == '\\' && !is_escaped;
        ends
    });
    ends.next().map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<SwiftToken>, String> {
        let mut sources = Sources::default();
        let source = sources.add("s.swift", text).expect("short");
        let found = lex(&sources, source).map_err(|problem| problem.to_string())?;
        Ok(found.into_iter().map(|lexeme| lexeme.token).filter(|token| *token != SwiftToken::End).collect())
    }

    fn texts(text: &str) -> String {
        let shown = |token: &SwiftToken| match token {
            SwiftToken::Text(text) => format!("{text:?}"),
            other => other.to_string().replace('`', ""),
        };
        tokens(text).expect("right").iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_numbers_and_marks_are_told_apart() {
        assert_eq!(texts("x=a%%7**2%/b;"), "x = a %% 7 ** 2 %/ b ;");
        assert_eq!(texts("foreach v,i in [0:n-1:2]{}"), "foreach v , i in [ 0 : n - 1 : 2 ] { }");
        assert_eq!(texts("1 0x1f 0o17 2.5 2.3e-2 1e3"), "1 31 15 2.5 0.023 1000");
        assert_eq!(texts("A[1].x f()=>g() x:=1 int...v"), "A [ 1 ] . x f ( ) => g ( ) x := 1 int ... v");
    }

    #[test]
    fn comments_of_all_forms_are_left_out() {
        assert_eq!(texts("#!/usr/bin/env swift-t\na // b\n/* c\nd */ e # f\n  # g\nh"), "a e h");
        assert!(tokens("a /* b").is_err_and(|error| error.starts_with("s.swift:1:3: this comment has no end")));
    }

    #[test]
    fn strings_may_have_lines_and_escapes() {
        assert_eq!(texts(r#" "a\tb\"c\x41\101" "#), r#""a\tb\"cAA""#);
        assert_eq!(texts("\"\"\"\none \"two\"\n\"\"\""), r#""\none \"two\"\n""#);
        assert_eq!(texts("----\na -- b\n----;"), r#""\na -- b\n" ;"#);
        assert!(tokens("x = \"abc;").is_err_and(|error| error.starts_with("s.swift:1:5: this string has no end")));
        assert!(tokens(r#""a\qb""#).is_err_and(|error| error.starts_with("s.swift:1:3: ")));
    }

    #[test]
    fn wrong_numbers_and_characters_are_named_with_their_place() {
        let error = |text| tokens(text).expect_err("wrong").lines().next().map(str::to_owned);
        assert_eq!(
            error("x = 9223372036854775808;").as_deref(),
            Some("s.swift:1:5: `9223372036854775808` is no number of 64 bits")
        );
        assert_eq!(error("x = 1a;").as_deref(), Some("s.swift:1:6: `a` follows a number without a blank"));
        assert_eq!(error("x = 0x;").as_deref(), Some("s.swift:1:5: `0x` is no number of 64 bits"));
        assert_eq!(error("x = ?;").as_deref(), Some("s.swift:1:5: '?' begins no word of Swift"));
    }

    #[test]
    fn a_line_of_the_preprocessor_is_one_token() {
        let found = tokens("#define N \\\n  3\n #  ifdef N // c\nx").expect("right");
        let directive = |word: &str, rest: &str, at| SwiftToken::Directive { word: word.into(), rest: rest.into(), at };
        assert_eq!(found[..2], [directive("define", " N \\\n  3", 7), directive("ifdef", " N // c", 25)]);
        assert_eq!(found.len(), 3);
    }
}
