//! Copies a tree of tools' files from the pool to a host, and checks every file by its hash.

use super::messages::content_place;
use crate::export::ChunkSource;
use crate::tool_manifest::{EntryKind, ToolEntry, ToolManifest, is_cached};
use crate::workspace::{PoolReader, copy::blocking};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// Files that are copied at a time.
const COPIED_AT_ONCE: usize = 32;
/// Bytes that are read at a time: a stripe.
const CHUNK_BYTES: u32 = 1 << 20;

/// A tree to copy.
#[derive(Debug, Clone)]
pub struct TreeCopy {
    /// What is in it.
    pub manifest: Arc<ToolManifest>,
    /// Its directory in the pool.
    pub source: PathBuf,
    /// Where its root is at the machine that started the run: links to files below it are changed.
    pub old_root: PathBuf,
    /// Where its root will be; does not exist yet.
    pub root: PathBuf,
    /// Ends the copy.
    pub cancel: CancellationToken,
}

impl TreeCopy {
    /// Copies everything, or leaves nothing. The error says what is wrong with what.
    pub async fn make(self, pool: &Vfs) -> Result<(), String> {
        let copy = Arc::new(self);
        let work = copy.clone();
        // Its name can be guessed: refuse a directory that is there already.
        on_thread(move || DirBuilder::new().mode(0o700).create(&work.root).map_err(at(&work.root))).await?;
        let filled = copy.clone().fill(pool).await;
        if filled.is_err() {
            on_thread(move || fs::remove_dir_all(&copy.root).map_err(at(&copy.root))).await?;
        }
        filled
    }

    async fn fill(self: Arc<Self>, pool: &Vfs) -> Result<(), String> {
        let copy = self.clone();
        on_thread(move || copy.make_directories()).await?;
        self.copy_files(pool).await?;
        on_thread(move || self.make_links()).await
    }

    /// Copies all files. When it returns, none is written any more, also if one failed.
    async fn copy_files(&self, pool: &Vfs) -> Result<(), String> {
        let (mut copying, mut copied) = (JoinSet::new(), Ok(()));
        for (name, entry) in &self.manifest.entries {
            let EntryKind::File { hash, .. } = &entry.kind else { continue };
            if copying.len() >= COPIED_AT_ONCE {
                copied = copied.and(joined(copying.join_next().await));
            }
            if copied.is_err() || self.cancel.is_cancelled() {
                break;
            }
            let (place, target) = (self.source.join(content_place(hash)), self.root.join(name));
            let file = (name.clone(), entry.clone());
            copying.spawn(copy_file(pool.clone(), place, file, target, self.cancel.clone()));
        }
        while let Some(ended) = copying.join_next().await {
            copied = copied.and(joined(Some(ended)));
        }
        if self.cancel.is_cancelled() { Err("the run was ended".into()) } else { copied }
    }

    fn make_directories(&self) -> Result<(), String> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let make = |path: &Path| builder.create(path).map_err(at(path));
        for (name, entry) in &self.manifest.entries {
            let path = self.root.join(name);
            if entry.kind != EntryKind::Directory {
                make(path.parent().unwrap_or(&self.root))?;
                continue;
            }
            make(&path)?;
            // This user must be able to fill and to remove it.
            fs::set_permissions(&path, Permissions::from_mode(entry.mode | 0o700)).map_err(at(&path))?;
        }
        Ok(())
    }

    fn make_links(&self) -> Result<(), String> {
        let links = || {
            self.manifest.entries.iter().filter_map(|(name, entry)| match &entry.kind {
                EntryKind::Link { target, leads } => Some((self.root.join(name), target, *leads)),
                _ => None,
            })
        };
        for (path, target, _) in links() {
            symlink(self.target(target), &path).map_err(at(&path))?;
        }
        for (path, target, leads) in links() {
            if leads && !path.exists() {
                let name = path.strip_prefix(&self.root).unwrap_or(&path).display();
                return Err(format!("`{name}` is a link to {target}, which is not on this host: install it there"));
            }
        }
        Ok(())
    }

    /// The target of a link, in the copy if it is an absolute path to what was copied.
    fn target(&self, target: &str) -> PathBuf {
        let below = Path::new(target).strip_prefix(&self.old_root).ok().and_then(Path::to_str);
        match below.filter(|below| self.manifest.entries.contains_key(*below)) {
            Some(below) => self.root.join(below),
            None => target.into(),
        }
    }
}

async fn copy_file(
    pool: Vfs,
    place: PathBuf,
    (name, entry): (String, ToolEntry),
    target: PathBuf,
    cancel: CancellationToken,
) -> Result<(), String> {
    // A file of a cache that went while the run began has no hash.
    let opened = PoolReader::open(&pool, &place).await;
    let mut source = match opened {
        Ok(source) => source,
        Err(_) if is_cached(&name) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let is_over = move || cancel.is_cancelled();
    on_thread(move || copy_checked(&mut source, (&name, &entry), &target, &is_over)).await
}

/// Copies a file, and refuses other bytes than those of its hash.
fn copy_checked(
    source: &mut impl ChunkSource,
    (name, entry): (&str, &ToolEntry),
    target: &Path,
    is_over: &dyn Fn() -> bool,
) -> Result<(), String> {
    let EntryKind::File { bytes, hash } = &entry.kind else { return Ok(()) };
    let written = write_file(source, (entry, *bytes), target, is_over);
    match written {
        Ok(found) if found == *hash => Ok(()),
        // Python replaces files of its caches at any time, and does without them.
        Ok(_) | Err(_) if is_cached(name) => fs::remove_file(target).map_err(at(target)),
        Ok(_) => Err(format!("`{name}` came with other bytes than it had when the run began: was it changed since?")),
        Err(error) => Err(format!("`{name}`: {error}")),
    }
}

/// Writes a file with mode and time of its entry; returns its hash. Reads hardly more bytes than
/// it should have.
fn write_file(
    source: &mut impl ChunkSource,
    (entry, bytes): (&ToolEntry, u64),
    target: &Path,
    is_over: &dyn Fn() -> bool,
) -> io::Result<String> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(target)?;
    let mut hasher = blake3::Hasher::new();
    let mut offset = 0;
    while offset < bytes && !is_over() {
        let chunk = source.chunk(offset, CHUNK_BYTES)?;
        if chunk.is_empty() {
            break;
        }
        file.write_all(&chunk)?;
        hasher.update(&chunk);
        offset += chunk.len() as u64;
    }
    file.set_permissions(Permissions::from_mode(entry.mode))?;
    let (seconds, nanoseconds) = entry.modified;
    let since = Duration::new(seconds.try_into().unwrap_or(0), nanoseconds.try_into().unwrap_or(0));
    file.set_modified(SystemTime::UNIX_EPOCH + since)?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn at(path: &Path) -> impl Fn(io::Error) -> String {
    let path = path.to_owned();
    move |error| format!("{}: {error}; TMPDIR names the directory for copies of tools", path.display())
}

async fn on_thread(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    blocking(move || Ok(work())).await.map_err(|error| error.to_string())?
}

fn joined(ended: Option<Result<Result<(), String>, tokio::task::JoinError>>) -> Result<(), String> {
    ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Bytes as the pool gives them.
    struct Given(&'static [u8]);

    impl ChunkSource for Given {
        fn chunk(&mut self, offset: u64, _: u32) -> io::Result<Bytes> {
            Ok(Bytes::from_static(&self.0[usize::try_from(offset).unwrap_or(0)..]))
        }
    }

    fn entry(text: &str) -> ToolEntry {
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        let kind = EntryKind::File { bytes: text.len() as u64, hash };
        ToolEntry { kind, mode: 0o755, modified: (1_000_000_000, 5) }
    }

    #[test]
    fn a_copy_has_bytes_mode_and_time_and_a_flipped_bit_is_refused() {
        let root = tempfile::tempdir().expect("made");
        let good = root.path().join("good");
        copy_checked(&mut Given(b"tide"), ("a/good", &entry("tide")), &good, &|| false).expect("it is right");
        let found = fs::metadata(&good).expect("it is there");
        let since = found.modified().expect("it has one").duration_since(SystemTime::UNIX_EPOCH).expect("later");
        assert_eq!((found.permissions().mode() & 0o777, since), (0o755, Duration::new(1_000_000_000, 5)));
        for (number, bytes) in [&b"tidd"[..], b"tid", b""].into_iter().enumerate() {
            let target = root.path().join(number.to_string());
            let refused =
                copy_checked(&mut Given(bytes), ("a/bad", &entry("tide")), &target, &|| false).expect_err("refused");
            assert!(refused.contains("`a/bad` came with other bytes"), "{refused}");
        }
    }

    #[test]
    fn a_damaged_file_of_a_cache_is_left_out() {
        let root = tempfile::tempdir().expect("made");
        let target = root.path().join("m.pyc");
        copy_checked(&mut Given(b"tidd"), ("__pycache__/m.pyc", &entry("tide")), &target, &|| false)
            .expect("it may be missing");
        assert!(!target.exists());
    }

    #[test]
    fn links_into_the_tree_lead_into_the_copy_and_lost_ones_are_named() {
        let root = tempfile::tempdir().expect("made");
        let link = |target: &str, leads| ToolEntry {
            kind: EntryKind::Link { target: target.into(), leads },
            mode: 0,
            modified: (0, 0),
        };
        let directory = ToolEntry { kind: EntryKind::Directory, mode: 0o555, modified: (0, 0) };
        let mut entries = std::collections::BTreeMap::from([
            ("bin".to_owned(), directory),
            ("bin/absolute".to_owned(), link("/old/t/bin", true)),
            ("bin/outside".to_owned(), link("/bin/sh", true)),
            ("bin/lost".to_owned(), link("/none", false)),
        ]);
        let copy = |entries: &_, name| TreeCopy {
            manifest: Arc::new(ToolManifest { entries: std::collections::BTreeMap::clone(entries) }),
            source: PathBuf::new(),
            old_root: "/old/t".into(),
            root: root.path().join(name),
            cancel: CancellationToken::new(),
        };
        let made = copy(&entries, "one");
        made.make_directories().and_then(|()| made.make_links()).expect("it can be made");
        assert_eq!(fs::read_link(made.root.join("bin/absolute")).expect("a link"), made.root.join("bin"));
        entries.insert("bin/python3".to_owned(), link("/opt/none/python3.9", true));
        let made = copy(&entries, "two");
        let error = made.make_directories().and_then(|()| made.make_links()).expect_err("it leads nowhere");
        assert!(error.contains("`bin/python3` is a link to /opt/none/python3.9, which is not on this host"), "{error}");
    }
}
