//! Files, each with one writer, and what reads of them may return.
//!
//! A read returns the bytes that were acknowledged last, or those of a change that was under way
//! meanwhile: each byte for itself, and a byte beyond the end of a version is 0.

use placement::FileId;

/// The content of a file after a change; `None` if it is removed.
type FileContent = Option<Vec<u8>>;

/// A change of a file.
#[derive(Clone, Debug)]
struct FileVersion {
    content: FileContent,
    began: usize,
    /// The step at which it was acknowledged; `None` if it never was, so that it may be done or
    /// not.
    ended: Option<usize>,
}

/// A file, and its versions in the order of its writer.
#[derive(Clone, Debug)]
pub struct ByteFile {
    /// `None` of an object, which is another file after each put.
    pub file: Option<FileId>,
    /// Its name in the directory of such files.
    pub name: String,
    versions: Vec<FileVersion>,
}

/// What was read in a range: fewer bytes than were asked for only at the end of the file.
#[derive(Clone, Copy, Debug)]
pub struct ByteRead<'a> {
    pub offset: usize,
    pub length: usize,
    /// `None` if there was no such file.
    pub bytes: Option<&'a [u8]>,
}

impl ByteFile {
    /// A file that is empty.
    pub fn new(file: FileId, name: String) -> Self {
        let versions = vec![FileVersion { content: Some(Vec::new()), began: 0, ended: Some(0) }];
        Self { file: Some(file), name, versions }
    }

    /// An object that does not exist yet.
    pub fn new_object(name: String) -> Self {
        let versions = vec![FileVersion { content: None, began: 0, ended: Some(0) }];
        Self { file: None, name, versions }
    }

    /// The content that the last change gives.
    pub fn content(&self) -> Option<&[u8]> {
        self.versions.last()?.content.as_deref()
    }

    /// True if the removal of the file is acknowledged.
    pub fn is_removed(&self) -> bool {
        self.versions.last().is_some_and(|last| last.content.is_none() && last.ended.is_some())
    }

    /// A change begins that leads to this content.
    pub fn begin(&mut self, content: FileContent, step: usize) {
        self.versions.push(FileVersion { content, began: step, ended: None });
    }

    /// The last change is acknowledged.
    pub fn end(&mut self, step: usize) {
        self.versions.last_mut().expect("a change has begun").ended = Some(step);
    }

    /// Says what is wrong with a read between two steps, if anything is.
    pub fn check(&self, read: ByteRead<'_>, (began, ended): (usize, usize)) -> Result<(), String> {
        let versions = self.visible(began, ended);
        let Some(bytes) = read.bytes else {
            let is_possible = versions.iter().any(|version| version.content.is_none());
            return if is_possible { Ok(()) } else { Err("there is no such file".into()) };
        };
        let contents: Vec<&[u8]> = versions.iter().filter_map(|version| version.content.as_deref()).collect();
        let lengths = contents.iter().map(|content| content.len().saturating_sub(read.offset).min(read.length));
        let (least, most) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
        if contents.is_empty() || bytes.len() < least || bytes.len() > most {
            return Err(format!("{} bytes, not {least} to {most}", bytes.len()));
        }
        for (at, byte) in (read.offset..).zip(bytes) {
            if !contents.iter().any(|content| content.get(at).copied().unwrap_or(0) == *byte) {
                let expected: Vec<_> = contents.iter().map(|content| content.get(at)).collect();
                return Err(format!("byte {at} is {byte}, not one of {expected:?}"));
            }
        }
        Ok(())
    }

    /// Says what is wrong with an object that was got between two steps, if anything is: it is
    /// whole, as it was put.
    pub fn check_whole(&self, found: Option<&[u8]>, (began, ended): (usize, usize)) -> Result<(), String> {
        let versions = self.visible(began, ended);
        if versions.iter().any(|version| version.content.as_deref() == found) {
            return Ok(());
        }
        let lengths: Vec<_> = versions.iter().map(|version| version.content.as_ref().map(Vec::len)).collect();
        Err(format!("{:?} bytes, and there were {lengths:?}", found.map(<[u8]>::len)))
    }

    /// The versions that a read between two steps may find.
    fn visible(&self, began: usize, ended: usize) -> &[FileVersion] {
        let acknowledged = |version: &FileVersion| version.ended.is_some_and(|at| at <= began);
        let mut first = self.versions.iter().rposition(acknowledged).unwrap_or(0);
        if self.versions[first].content.is_none() && self.file.is_some() {
            // Somebody may have it open.
            first -= 1;
        }
        let end = self.versions.iter().position(|version| version.began > ended).unwrap_or(self.versions.len());
        &self.versions[first..end.max(first + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &ByteFile, bytes: Option<&[u8]>, steps: (usize, usize)) -> bool {
        file.check(ByteRead { offset: 0, length: 10, bytes }, steps).is_ok()
    }

    #[test]
    fn a_read_returns_what_was_acknowledged_last_or_what_was_under_way() {
        let mut file = ByteFile::new(FileId(7), "f".into());
        file.begin(Some(b"one".to_vec()), 10);
        file.end(20);
        file.begin(Some(b"other".to_vec()), 30);
        assert!(read(&file, Some(b""), (5, 15)) && read(&file, Some(b"one"), (5, 15)));
        assert!(!read(&file, Some(b""), (20, 25)) && read(&file, Some(b"one"), (20, 25)));
        assert!(read(&file, Some(b"one"), (40, 50)) && read(&file, Some(b"other"), (40, 50)));
        assert!(read(&file, Some(b"ote"), (40, 50)), "each byte for itself");
        file.end(60);
        assert!(!read(&file, Some(b"one"), (60, 61)) && !read(&file, None, (60, 61)));
        file.begin(None, 70);
        assert!(read(&file, None, (65, 75)) && read(&file, Some(b"other"), (65, 75)));
        file.end(80);
        assert!(read(&file, Some(b"other"), (90, 95)) && file.is_removed(), "somebody has it open");
    }
}
