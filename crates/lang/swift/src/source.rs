//! The texts of a program: the script, and the files that it includes and imports.

use base::{Problem, SourceLocation};
use std::sync::Arc;

/// The longest text, in bytes. Offsets have 32 bits.
const SOURCE_BYTES_MAX: usize = 64 << 20;
/// The number of texts of a program. It bounds files that include each other.
const SOURCES_MAX: usize = 1000;

/// A text of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u16);

/// A position in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The text.
    pub source: SourceId,
    /// The offset in bytes.
    pub offset: u32,
}

impl Span {
    /// The position this many bytes later.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset + u32::try_from(bytes).expect("texts are shorter"), ..self }
    }
}

/// The texts of a program, with their names.
#[derive(Debug, Clone, Default)]
pub struct Sources(Vec<(String, Arc<str>)>);

impl Sources {
    /// Adds a text under the name of its file, for messages.
    ///
    /// # Errors
    /// A problem if it is too long, or one too many.
    pub fn add(&mut self, name: &str, text: &str) -> Result<SourceId, Problem> {
        let file = || SourceLocation::file(name);
        if text.len() > SOURCE_BYTES_MAX {
            let most = base::ByteSize(SOURCE_BYTES_MAX as u64);
            return Err(Problem::new(format!("the script is longer than {most}")).at(file()));
        }
        if self.0.len() >= SOURCES_MAX {
            let message = format!("more than {SOURCES_MAX} files are included and imported");
            return Err(Problem::new(message).at(file()).hint("does a file include itself?"));
        }
        let id = SourceId(u16::try_from(self.0.len()).expect("they are few"));
        self.0.push((name.to_owned(), text.into()));
        Ok(id)
    }

    /// The text of a file.
    pub fn text(&self, SourceId(id): SourceId) -> Arc<str> {
        self.0[usize::from(id)].1.clone()
    }

    /// The name of a file.
    pub fn name(&self, SourceId(id): SourceId) -> &str {
        &self.0[usize::from(id)].0
    }

    /// The place of a position, for messages.
    pub fn location(&self, span: Span) -> SourceLocation {
        let (name, text) = &self.0[usize::from(span.source.0)];
        SourceLocation::at_offset(name, text, span.offset as usize)
    }

    /// A problem at a position.
    pub fn problem(&self, span: Span, message: impl Into<String>) -> Problem {
        Problem::new(message).at(self.location(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_the_file_that_they_are_in() {
        let mut sources = Sources::default();
        sources.add("a.swift", "int x;\n").expect("short");
        let second = sources.add("b.swift", "int y;\n  z = 1;\n").expect("short");
        let problem = sources.problem(Span { source: second, offset: 9 }, "no");
        assert_eq!(problem.to_string(), "b.swift:2:3: no\n    2 |   z = 1;\n      |   ^");
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let mut sources = Sources::default();
        let refused = (0..=SOURCES_MAX).find_map(|_| sources.add("a.swift", "").err());
        assert!(refused.is_some_and(|problem| problem.message.starts_with("more than 1000 files")));
    }
}
