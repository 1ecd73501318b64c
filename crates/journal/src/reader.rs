//! Reader: the lines of a journal, one by one, also while it is written.

use crate::error::JournalError;
use crate::header::{JOURNAL_VERSION, JournalHeader};
use crate::record::TimedRecord;
use rustix::fs::FlockOperation;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest line: a task of 8,000,000 outputs has one of about 160 MB.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Reads a journal from its beginning.
#[derive(Debug)]
pub struct JournalReader {
    path: PathBuf,
    file: BufReader<File>,
    /// The first line.
    header: JournalHeader,
    /// Number of complete lines read so far.
    lines: u64,
    /// Bytes of these lines.
    bytes: u64,
    /// The beginning of a line whose end was not there yet.
    partial: Vec<u8>,
}

#[derive(Deserialize)]
struct VersionField {
    tidemill_journal: u64,
}

impl JournalReader {
    /// Opens a journal and reads its first line.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let file = BufReader::new(File::open(path).map_err(JournalError::io(path))?);
        let header = JournalHeader::default();
        let mut reader = Self { path: path.to_owned(), file, header, lines: 0, bytes: 0, partial: Vec::new() };
        let Some(line) = reader.next_line()? else {
            return Err(reader.damaged(1, "it has no header, so the run never began"));
        };
        let version: VersionField = reader.parse(&line)?;
        if version.tidemill_journal != u64::from(JOURNAL_VERSION) {
            return Err(JournalError::Version { path: path.to_owned(), found: version.tidemill_journal });
        }
        reader.header = reader.parse(&line)?;
        Ok(reader)
    }

    /// The first line.
    pub fn header(&self) -> &JournalHeader {
        &self.header
    }

    /// The next record; `None` at the end. A later call finds records that were added since. An
    /// incomplete last line is no record, and no damage.
    pub fn next_record(&mut self) -> Result<Option<TimedRecord>, JournalError> {
        let Some(line) = self.next_line()? else { return Ok(None) };
        self.parse(&line).map(Some)
    }

    /// Bytes of all complete lines read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the journal became shorter than what was read: another run replaced it.
    pub fn is_replaced(&self) -> bool {
        self.file.get_ref().metadata().is_ok_and(|metadata| metadata.len() < self.bytes)
    }

    /// The next complete line, without its end.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, JournalError> {
        let room = LINE_BYTES_MAX - self.partial.len() as u64;
        let read = self.file.by_ref().take(room).read_until(b'\n', &mut self.partial);
        read.map_err(JournalError::io(&self.path))?;
        if self.partial.last() != Some(&b'\n') {
            let too_long = self.partial.len() as u64 == LINE_BYTES_MAX;
            return if too_long { Err(self.damaged(self.lines + 1, "it is too long")) } else { Ok(None) };
        }
        let mut line = std::mem::take(&mut self.partial);
        self.lines += 1;
        self.bytes += line.len() as u64;
        line.pop();
        Ok(Some(line))
    }

    fn parse<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, JournalError> {
        serde_json::from_slice(line).map_err(|error| self.damaged(self.lines, error.to_string()))
    }

    fn damaged(&self, line: u64, why: impl Into<String>) -> JournalError {
        JournalError::Damaged { path: self.path.clone(), line, why: why.into() }
    }
}

/// Returns whether a run that goes on writes this journal.
pub fn is_live(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
    matches!(locked, Err(rustix::io::Errno::WOULDBLOCK))
}
