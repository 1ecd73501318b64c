//! Writer of the log: standard error, which for a node is its log file. A long log file is
//! truncated.

use crate::console::Unfailing;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Upper bound of a log file in bytes; a longer one is truncated.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// True if standard error is a log file of ours.
static IS_LOG: AtomicBool = AtomicBool::new(false);

/// Bounds the log from now on, if standard error goes to it.
pub fn bound(log: &Path) {
    let ours = fs::symlink_metadata(log).map(|about| (about.dev(), about.ino())).ok();
    let standard = standard_error().and_then(|file| file.metadata()).map(|about| (about.dev(), about.ino())).ok();
    IS_LOG.store(ours.is_some() && ours == standard, Relaxed);
}

/// The writer for log lines.
pub fn writer() -> LogWriter {
    LogWriter(Unfailing)
}

/// Writer to standard error, with a bound if it is a log file.
pub struct LogWriter(Unfailing);

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if IS_LOG.load(Relaxed) {
            // Ignore errors: they are not the fault of the code that logs.
            let _ = standard_error().and_then(|log| begin_anew(&log, LOG_BYTES_MAX));
        }
        self.0.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn standard_error() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// Truncates a log that is too long. It is open for appending, so the next line goes to its
/// beginning.
fn begin_anew(mut log: &File, most: u64) -> io::Result<()> {
    if log.metadata()?.len() < most {
        return Ok(());
    }
    log.set_len(0)?;
    log.write_all(b"(what was logged before was too long, and is dropped)\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_never_grows_beyond_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = File::options().create(true).append(true).open(&path).unwrap();
        for _ in 0..100 {
            begin_anew(&log, 500).unwrap();
            (&log).write_all(&[b'x'; 80]).unwrap();
            assert!(fs::metadata(&path).unwrap().len() < 600);
        }
        assert!(fs::read_to_string(&path).unwrap().starts_with("(what was logged before"));
    }
}
