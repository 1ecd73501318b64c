//! Export of outputs below `--out`: their names, and writing them atomically.
//!
//! A file is written without a name (`O_TMPFILE`, or a hidden name where the file system does not
//! support that) and gets its name when it is complete. A reader sees the old file, no file, or the
//! complete new one. An unfinished nameless file (full disk, kill) disappears by itself. Nothing is
//! synced to the disk: outputs are as durable as the files of any other tool.

use bytes::Bytes;
use flow::{DataId, Workflow};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes read from the pool at a time.
const CHUNK_BYTES: u32 = 1 << 20;

/// The path of each of `wanted` below the output directory.
///
/// A scalar is `<file>`, a member of an array `<element>/<file>`. Where two would share a path, all
/// members of the elements concerned move to `<element>/<i>/<j>/<file>`, which is unique.
pub fn places(
    workflow: &Workflow,
    wanted: &[DataId],
    file_name: impl Fn(DataId) -> String,
) -> HashMap<DataId, PathBuf> {
    let plain_path = |id: DataId| {
        let element = workflow.element_of(id);
        let directory = if element.shape.is_empty() { PathBuf::new() } else { PathBuf::from(&element.name) };
        directory.join(file_name(id))
    };
    let mut claimants: BTreeMap<PathBuf, Vec<DataId>> = BTreeMap::new();
    for id in wanted {
        claimants.entry(plain_path(*id)).or_default().push(*id);
    }
    // An output whose path is a directory of another's clashes too: `E` beside `E/E_0`.
    let directories: std::collections::BTreeSet<PathBuf> =
        claimants.keys().filter_map(|path| path.parent().map(Path::to_path_buf)).collect();
    let clashing: std::collections::BTreeSet<DataId> = claimants
        .iter()
        .filter(|(path, ids)| ids.len() > 1 || directories.contains(*path))
        .flat_map(|(_, ids)| ids.iter().map(|id| workflow.element_of(*id).first))
        .collect();
    let indexed_path = |id: DataId| {
        let element = workflow.element_of(id);
        let indices = element.indices(id).into_iter().map(|index| index.to_string());
        let directory: PathBuf = std::iter::once(element.name.clone()).chain(indices).collect();
        directory.join(file_name(id))
    };
    let place =
        |id: DataId| if clashing.contains(&workflow.element_of(id).first) { indexed_path(id) } else { plain_path(id) };
    wanted.iter().map(|id| (*id, place(*id))).collect()
}

/// A source of bytes that is read in pieces, such as a file of the pool.
pub trait ChunkSource {
    /// Up to `len` bytes at `offset`; empty at the end.
    fn chunk(&mut self, offset: u64, len: u32) -> io::Result<Bytes>;
}

/// Size and hash of an exported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of its bytes in hexadecimal.
    pub hash: String,
}

/// Writes `source` to `target` completely or not at all, and creates the directories above it. Of
/// the permission bits in `mode` only those for execution count: read permission follows the user's
/// umask.
///
/// # Errors
/// Names the target and the failed step. Only empty directories remain of the attempt.
pub fn write(source: &mut dyn ChunkSource, target: &Path, mode: u32) -> io::Result<ExportedFile> {
    let describe = |error: io::Error| io::Error::new(error.kind(), format!("{}: {}", target.display(), reason(&error)));
    let directory = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(describe)?;
    let mut part = PartialFile::create(target, mode).map_err(describe)?;
    let written = copy(source, &mut part.file).map_err(describe)?;
    part.finish(target).map_err(describe)?;
    Ok(written)
}

/// Writes a text to `target`, as [`write`] does.
///
/// # Errors
/// Names the target and the failed step.
pub fn write_text(target: &Path, text: &str) -> io::Result<()> {
    let mut text = TextSource(Bytes::copy_from_slice(text.as_bytes()));
    write(&mut text, target, 0).map(drop)
}

/// A text as a source of bytes.
struct TextSource(Bytes);

impl ChunkSource for TextSource {
    fn chunk(&mut self, offset: u64, _: u32) -> io::Result<Bytes> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        Ok(self.0.slice(start..))
    }
}

/// The error's text, with advice where there is any.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{error}; make room there or choose another directory with --out")
        }
        io::ErrorKind::IsADirectory => format!("{error}; a directory exists at the path of the output"),
        _ => error.to_string(),
    }
}

fn copy(source: &mut dyn ChunkSource, file: &mut File) -> io::Result<ExportedFile> {
    let mut hasher = blake3::Hasher::new();
    let mut offset = 0;
    loop {
        let chunk = source.chunk(offset, CHUNK_BYTES)?;
        if chunk.is_empty() {
            break;
        }
        hasher.update(&chunk);
        file.write_all(&chunk)?;
        offset += chunk.len() as u64;
    }
    Ok(ExportedFile { bytes: offset, hash: hasher.finalize().to_hex().to_string() })
}

/// An incomplete file; removed when dropped before `finish`.
struct PartialFile {
    file: File,
    /// The hidden name that the file has, or gets just before its final one.
    path: PathBuf,
    finished: bool,
}

impl PartialFile {
    fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // Keep the hidden name below the limit of 255 bytes; the process id keeps two runs apart.
        let name: String = name.chars().take(60).collect();
        let path = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let mode = 0o666 | (mode & 0o111);
        // File systems report missing `O_TMPFILE` support by different errors, so every error is
        // taken for it.
        let named = |_| File::options().write(true).create(true).truncate(true).mode(mode).open(&path);
        let file = nameless(&path, mode).or_else(named)?;
        Ok(Self { file, path, finished: false })
    }

    fn finish(mut self, target: &Path) -> io::Result<()> {
        if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if self.file.metadata()?.nlink() == 0 {
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, open, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
        }
        fs::rename(&self.path, target)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a nameless file in the directory of `path`. Fails without /proc, since the file could
/// never get a name.
fn nameless(path: &Path, mode: u32) -> io::Result<File> {
    fs::metadata("/proc/self/fd")?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::from_raw_mode(mode))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Element, Source};

    /// A source that returns `data`, then fails or ends.
    struct TestSource {
        data: Vec<u8>,
        fails: bool,
    }

    impl ChunkSource for TestSource {
        fn chunk(&mut self, offset: u64, _len: u32) -> io::Result<Bytes> {
            let offset = usize::try_from(offset).unwrap();
            if offset < self.data.len() {
                return Ok(Bytes::copy_from_slice(&self.data[offset..]));
            }
            if self.fails { Err(io::Error::other("gone")) } else { Ok(Bytes::new()) }
        }
    }

    fn workflow(elements: &[(&str, &[u32])]) -> Workflow {
        let mut flow = Workflow::default();
        for (name, shape) in elements {
            let (first, count) = (DataId(flow.data_count()), shape.iter().product());
            flow.elements.push(Element {
                name: (*name).into(),
                shape: shape.to_vec(),
                first,
                count,
                source: Source::Defined,
                file: None,
            });
        }
        flow
    }

    #[test]
    fn scalars_lie_in_the_directory_and_members_in_their_elements() {
        let flow = workflow(&[("Best", &[]), ("Class", &[2])]);
        let found = places(&flow, &[DataId(0), DataId(2)], |id| format!("f{}.csv", id.0));
        assert_eq!(found[&DataId(0)], PathBuf::from("f0.csv"));
        assert_eq!(found[&DataId(2)], PathBuf::from("Class/f2.csv"));
    }

    #[test]
    fn members_of_one_name_get_directories_by_index() {
        let flow = workflow(&[("A", &[2, 2]), ("B", &[])]);
        let all: Vec<DataId> = (0..5).map(DataId).collect();
        let found = places(&flow, &all, |_| "x".into());
        assert_eq!(found[&DataId(3)], PathBuf::from("A/1/1/x"));
        assert_eq!(found[&DataId(4)], PathBuf::from("x"));
    }

    #[test]
    fn a_file_never_stands_where_another_needs_a_directory() {
        let flow = workflow(&[("A", &[]), ("B", &[2])]);
        let found = places(&flow, &[DataId(0), DataId(1)], |id| if id.0 == 0 { "B".into() } else { "b".into() });
        assert_ne!(found[&DataId(0)], PathBuf::from("B"));
    }

    #[test]
    fn an_output_appears_whole_with_its_hash() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("deep/er/out.txt");
        let written = write(&mut TestSource { data: b"tide".to_vec(), fails: false }, &target, 0o600).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"tide");
        assert_eq!(written, ExportedFile { bytes: 4, hash: blake3::hash(b"tide").to_hex().to_string() });
    }

    #[test]
    fn an_output_that_fails_half_way_leaves_the_old_one_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("out.txt");
        fs::write(&target, "old").unwrap();
        let error = write(&mut TestSource { data: b"half".to_vec(), fails: true }, &target, 0o600).unwrap_err();
        assert!(error.to_string().contains("out.txt"), "{error}");
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_program_stays_executable_and_a_second_run_replaces_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("tool");
        for text in ["one", "two"] {
            write(&mut TestSource { data: text.into(), fails: false }, &target, 0o700).unwrap();
        }
        assert_eq!(fs::read(&target).unwrap(), b"two");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o100, 0o100);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_in_the_way_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("out.txt")).unwrap();
        let error = write(&mut TestSource { data: vec![1], fails: false }, &directory.path().join("out.txt"), 0o600)
            .unwrap_err();
        assert!(error.to_string().contains("a directory exists at"), "{error}");
    }
}
