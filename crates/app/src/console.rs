//! Standard error, which may be closed or full at any moment; standard output is in `output`.
//!
//! A failure to print a message for people is ignored: it neither ends the command nor changes the
//! exit code. A failure to write data for a program or a file is different: the command reports it.
//! Only this file writes to standard error for people, since the macros of the standard library
//! panic.

use base::printable;
use std::io::{self, Write};

/// Prints a line on standard error and ignores errors. Control characters in it are escaped.
pub fn say(line: &str) {
    // One call, so that lines of several threads do not mix.
    let _ = io::stderr().lock().write_all(format!("{}\n", printable::lines(line)).as_bytes());
}

/// Prints `warning: TEXT`.
pub fn warn(text: &str) {
    say(&format!("warning: {text}"));
}

/// Writer to standard error for the log. Errors are ignored: they are not the fault of the code
/// that logs.
#[derive(Debug)]
pub struct Unfailing;

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let _ = io::stderr().lock().write_all(printable::lines(&text).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
