//! Standard error, which may be closed or full at any moment; standard output is in `output`.
//!
//! What cannot be said to a person ends nothing and changes no exit code. What a program or a file was to get is another thing: that
//! is for the command to report. No other file prints with the macros of the standard library, which panic.

use base::printable;
use std::io::{self, Write};

/// Says a line on standard error, if there is anybody. Names in it do nothing to a terminal.
pub fn say(line: &str) {
    // One call, so that lines of several threads do not mix.
    let _ = io::stderr().lock().write_all(format!("{}\n", printable::lines(line)).as_bytes());
}

/// Says `warning: TEXT`.
pub fn warn(text: &str) {
    say(&format!("warning: {text}"));
}

/// Standard error for the log, without errors: a log that cannot be written is no fault of what is logged.
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
