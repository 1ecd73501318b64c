//! Standard output: a command writes all of its output there, or fails.
//!
//! Only this file writes results to standard output; the messages between a node and its starter
//! are separate.

use crate::console;
use base::Problem;
use std::io::{self, ErrorKind, Write};

/// Error in writing to standard output.
#[derive(Debug)]
pub enum PrintError {
    /// The reader went away (`| head`): the command ends silently.
    ReaderGone,
    /// Another error, such as a full disk: the command fails.
    Unwritten(io::Error),
}

impl PrintError {
    /// The problem to report; `None` if the reader went away.
    pub fn problem(self) -> Option<Problem> {
        match self {
            Self::ReaderGone => None,
            Self::Unwritten(error) => Some(
                Problem::new(format!("standard output could not be written: {error}"))
                    .hint("what was written before is incomplete"),
            ),
        }
    }

    /// Prints the problem, if there is one; returns the exit code.
    pub fn conclude(self) -> u8 {
        let Some(problem) = self.problem() else { return 0 };
        console::say(&format!("error: {problem}"));
        1
    }
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe { Self::ReaderGone } else { Self::Unwritten(error) }
    }
}

/// Writes bytes to standard output and flushes it.
pub fn print(bytes: &[u8]) -> Result<(), PrintError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(PrintError::from)
}

/// Prints the whole output of a command; returns the exit code.
pub fn print_all(text: &str) -> u8 {
    print(text.as_bytes()).map_or_else(PrintError::conclude, |()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is() {
        assert!(PrintError::from(io::Error::from(ErrorKind::BrokenPipe)).problem().is_none());
        let full = PrintError::from(io::Error::from(ErrorKind::StorageFull)).problem().expect("told");
        assert!(full.message.starts_with("standard output could not be written: "), "{full}");
    }

    #[test]
    fn a_reader_that_went_away_leaves_the_exit_code_0() {
        assert_eq!(PrintError::ReaderGone.conclude(), 0);
    }
}
