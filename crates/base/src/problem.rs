//! A problem with the user's input: what is wrong, where, and what to do about it.
//!
//! Scripts, tool files and workflow descriptors all report errors as a [`Problem`], so every
//! language shows its errors in one form:
//!
//! ```text
//! workflow.js:3:1: unknown tool `Shufler`
//!     3 | Shufler({dataset: TrRef});
//!       | ^
//!   hint: did you mean `Shuffler`?
//! ```

use crate::printable;
use std::fmt;

/// A position in a text. Lines and columns count from 1; 0 means unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceLocation {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1; 0 if only the file is known.
    pub line: u32,
    /// The column in characters, from 1; 0 if only the line is known.
    pub column: u32,
    /// The text of the line, without its end; empty if unknown.
    pub text: String,
}

impl SourceLocation {
    /// The position of byte `offset` in `source`, with the text of its line.
    pub fn at_offset(file: &str, source: &str, offset: usize) -> Self {
        let offset = source.floor_char_boundary(offset);
        let before = &source[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            file: file.to_owned(),
            line: u32::try_from(before.matches('\n').count() + 1).unwrap_or(u32::MAX),
            column: u32::try_from(source[line_start..offset].chars().count() + 1).unwrap_or(u32::MAX),
            text: source[line_start..].lines().next().unwrap_or_default().to_owned(),
        }
    }

    /// The position at `line` and `column` (both from 1) of `source`, with the text of that line.
    pub fn at_line(file: &str, source: &str, (line, column): (u32, u32)) -> Self {
        let text = source.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default();
        Self { file: file.to_owned(), line, column, text: text.to_owned() }
    }

    /// A position that names a file and no line in it.
    pub fn file(file: &str) -> Self {
        Self { file: file.to_owned(), ..Self::default() }
    }
}

/// An error in the user's input: a message, the position it refers to, and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The error, in one sentence without a full stop, naming the object.
    pub message: String,
    /// The position, if the problem has one.
    pub location: Option<SourceLocation>,
    /// The remedy, if one is known.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem that has no position and no hint yet.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), location: None, hint: None }
    }

    /// Sets the position, unless one is already set.
    #[must_use]
    pub fn at(mut self, location: SourceLocation) -> Self {
        self.location.get_or_insert(location);
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets a hint that names the one of `known` nearest to `typed`, or lists all of `known` if
    /// there are few.
    #[must_use]
    pub fn nearest<'a>(self, typed: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        match crate::nearest::hint(typed, known) {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write_position(out, location)?;
        }
        write!(out, "{}", printable::lines(&self.message))?;
        if let Some(location) = self.location.as_ref().filter(|location| !location.text.is_empty()) {
            write_excerpt(out, location)?;
        }
        match &self.hint {
            Some(hint) => write!(out, "\n  hint: {}", printable::lines(hint)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

fn write_position(out: &mut fmt::Formatter<'_>, location: &SourceLocation) -> fmt::Result {
    let file = printable::line(&location.file);
    match (location.line, location.column) {
        (0, _) => write!(out, "{file}: "),
        (line, 0) => write!(out, "{file}:{line}: "),
        (line, column) => write!(out, "{file}:{line}:{column}: "),
    }
}

/// Writes the line with a mark under the column. Of a very long line only the part around the mark
/// is shown.
fn write_excerpt(out: &mut fmt::Formatter<'_>, location: &SourceLocation) -> fmt::Result {
    const SHOWN_CHARS_MAX: usize = 120;
    let at = (location.column as usize).saturating_sub(1);
    let skipped = if at >= SHOWN_CHARS_MAX { at - SHOWN_CHARS_MAX / 2 } else { 0 };
    let shown: String = location.text.chars().skip(skipped).take(SHOWN_CHARS_MAX).collect();
    write!(out, "\n{:>5} | {}", location.line, printable::line(&shown))?;
    if location.column == 0 {
        return Ok(());
    }
    // Tabs before the mark are kept, so that it stands under its character in any terminal.
    let before: String = shown.chars().take(at - skipped).collect();
    let indent: String = printable::line(&before).chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    write!(out, "\n      | {indent}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_becomes_line_column_and_the_line_itself() {
        let location = SourceLocation::at_offset("w.js", "var a;\nvar é = b;\n", 16);
        assert_eq!((location.line, location.column, location.text.as_str()), (2, 9, "var é = b;"));
    }

    #[test]
    fn an_offset_past_the_end_is_the_end() {
        let location = SourceLocation::at_offset("w.js", "ab", 99);
        assert_eq!((location.line, location.column), (1, 3));
    }

    #[test]
    fn a_problem_about_text_of_others_cannot_command_a_terminal() {
        let problem = Problem::new("no file `\x1b[2J`")
            .at(SourceLocation::at_line("w\u{202e}.js", "a\x07b", (1, 3)))
            .hint("did you mean `\x1b`?");
        assert_eq!(
            problem.to_string(),
            "w\\u{202e}.js:1:3: no file `\\u{1b}[2J`\n    1 | a\\u{7}b\n      |       ^\n  hint: did you mean `\\u{1b}`?"
        );
    }

    #[test]
    fn a_problem_shows_place_line_mark_and_hint() {
        let problem = Problem::new("unknown tool `Shufler`")
            .at(SourceLocation::at_line("w.js", "x\n  Shufler();", (2, 3)))
            .nearest("Shufler", ["Shuffler", "Partitioner"]);
        assert_eq!(
            problem.to_string(),
            "w.js:2:3: unknown tool `Shufler`\n    2 |   Shufler();\n      |   ^\n  hint: did you mean `Shuffler`?"
        );
    }
}
