//! Layer 5: the tidemill binary: command line, progress, exit codes.
fn main() {}
