//! Writer: appends records to a journal, and holds its lock.
//!
//! A record is one `write(2)`, so a reader sees it at once, and a process that is killed loses
//! nothing that it wrote. Records are not synced to the disk one by one, which would take longer
//! than many a task. The end is, and exports are now and then: they promise something about files.

use crate::error::JournalError;
use crate::header::JournalHeader;
use crate::record::{JournalRecord, TimedRecord};
use crate::state::JournalState;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the lock is tried: readers that look whether the run lives hold it for microseconds.
const LOCK_TRIES: u32 = 20;

/// Time between two tries.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Time between two syncs because of exports. A sync takes milliseconds on a disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of lines that are written at once, where there are many.
const CHUNK_BYTES: usize = 64 << 10;

/// Appends records to the journal of one run.
#[derive(Debug)]
pub struct JournalWriter {
    path: PathBuf,
    file: File,
    /// Bytes of all complete lines.
    length: u64,
    /// Start of the run, in milliseconds since 1970-01-01 UTC.
    started_unix_ms: u64,
    /// Time of the last record: times never go back, even if the clock does.
    last_ms: u64,
    /// Time of the last sync.
    synced: Instant,
    line: Vec<u8>,
}

impl JournalWriter {
    /// Begins the journal of a run. An old one at this path is replaced, unless its run goes on.
    pub fn create(path: &Path, header: &JournalHeader) -> Result<Self, JournalError> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(JournalError::io(path))?;
        lock(&file, path)?;
        file.set_len(0).map_err(JournalError::io(path))?;
        let mut writer = Self::new(path, file, (0, header.started_unix_ms, 0));
        writer.write(header).map_err(JournalError::io(path))?;
        Ok(writer)
    }

    /// Goes on with the journal of a run that was killed. Returns its state so far. An incomplete
    /// last line is cut off.
    pub fn resume(path: &Path) -> Result<(Self, JournalState), JournalError> {
        let mut file = File::options().read(true).write(true).open(path).map_err(JournalError::io(path))?;
        lock(&file, path)?;
        let (state, length) = JournalState::read_to(path)?;
        file.set_len(length).and_then(|()| file.seek(SeekFrom::End(0))).map_err(JournalError::io(path))?;
        let writer = Self::new(path, file, (length, state.header.started_unix_ms, state.last_ms));
        Ok((writer, state))
    }

    fn new(path: &Path, file: File, (length, started_unix_ms, last_ms): (u64, u64, u64)) -> Self {
        let (path, synced, line) = (path.to_owned(), Instant::now(), Vec::new());
        Self { path, file, length, started_unix_ms, last_ms, synced, line }
    }

    /// Appends a record, with the current time.
    ///
    /// # Errors
    /// The line was not written. What was written of it is removed, as far as possible.
    pub fn append(&mut self, record: JournalRecord) -> io::Result<()> {
        let syncs = match record {
            JournalRecord::Ended { .. } => true,
            JournalRecord::Exported { .. } => self.synced.elapsed() >= SYNC_INTERVAL,
            _ => false,
        };
        self.advance_time();
        self.write(&TimedRecord { at_ms: self.last_ms, record })?;
        if syncs {
            self.file.sync_data()?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// Appends many records at once, with the current time.
    ///
    /// # Errors
    /// Not all lines were written.
    pub fn append_all(&mut self, records: impl Iterator<Item = JournalRecord>) -> io::Result<()> {
        self.advance_time();
        self.line.clear();
        for record in records {
            self.add_line(&TimedRecord { at_ms: self.last_ms, record })?;
            if self.line.len() >= CHUNK_BYTES {
                self.write_lines()?;
            }
        }
        self.write_lines()
    }

    /// Path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn advance_time(&mut self) {
        self.last_ms = unix_ms().saturating_sub(self.started_unix_ms).max(self.last_ms);
    }

    fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        self.add_line(value)?;
        self.write_lines()
    }

    fn add_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.line, value)?;
        self.line.push(b'\n');
        Ok(())
    }

    fn write_lines(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.write_all(&self.line) {
            // A part of a line would damage the journal as soon as another line followed it.
            let _ = self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
            return Err(error);
        }
        self.length += self.line.len() as u64;
        self.line.clear();
        Ok(())
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Takes the lock of a journal. It is released with the file, also by `kill -9`.
fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_INTERVAL),
            // On a file system without locks two resumes of one run are not noticed.
            Ok(()) | Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK) => return Ok(()),
            Err(error) => return Err(JournalError::Io { path: path.to_owned(), error: error.into() }),
        }
    }
    Err(live(path))
}

/// The error for a journal whose run goes on, with as much as the journal tells of it.
fn live(path: &Path) -> JournalError {
    let state = JournalState::read(path).ok();
    let (run, (process, host)) =
        state.as_ref().map_or_else(Default::default, |state| (state.header.run.clone(), state.process()));
    let resumed = state.is_some_and(|state| state.resumed_ms.is_some());
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    JournalError::Live { path, run, process, host, resumed }
}
