//! Manifest: the list of a tool's files, directories and links below one root, with what makes two
//! trees the same: kinds, modes, contents and targets, but neither their place nor their times.
//!
//! It does not move bytes: `cluster/tool_trees` puts them into the pool, `cluster/tree_copy` copies
//! them from there.

use crate::provenance::hash_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Upper bound of the bytes of a tree: hosts hold copies beside their tasks' memory.
pub const TREE_BYTES_MAX: u64 = 4 << 30;
/// Upper bound of the entries of a tree: each takes about 0.5 KiB of the first node's 256 MiB.
pub const TREE_ENTRIES_MAX: usize = 200_000;
/// Directories that Python fills by itself: they travel, since that spares work, but two trees may
/// differ in them.
const CACHE: &str = "__pycache__";

/// The entries of a tree by their paths below its root. Parents come before their children.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolManifest {
    /// The entries.
    pub entries: BTreeMap<String, ToolEntry>,
}

/// A file, directory or link of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolEntry {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits; 0 of links.
    pub mode: u32,
    /// Time of the last change: seconds since 1970 and nanoseconds. Copies get it, but trees that
    /// differ in it are the same.
    pub modified: (i64, i64),
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Length in bytes.
        bytes: u64,
        /// BLAKE3 hash of the bytes; empty until [`ToolManifest::hash_files`].
        hash: String,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        target: String,
        /// True if it leads to something.
        leads: bool,
    },
}

impl ToolEntry {
    fn of_host(path: &Path, metadata: &Metadata) -> Result<Option<Self>, String> {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let kind = if metadata.is_dir() {
            EntryKind::Directory
        } else if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let target = target.to_str().ok_or_else(|| format!("{}: its target is not UTF-8", path.display()))?;
            EntryKind::Link { target: target.to_owned(), leads: path.exists() }
        } else if metadata.is_file() {
            EntryKind::File { bytes: metadata.len(), hash: String::new() }
        } else {
            return Ok(None);
        };
        let mode = if metadata.is_symlink() { 0 } else { metadata.permissions().mode() & 0o777 };
        Ok(Some(Self { kind, mode, modified }))
    }

    /// Length in bytes; 0 of all but files.
    fn bytes(&self) -> u64 {
        if let EntryKind::File { bytes, .. } = self.kind { bytes } else { 0 }
    }
}

/// Returns whether an entry is in a cache, in which two equal trees may differ.
pub fn is_cached(path: &str) -> bool {
    path.split('/').any(|part| part == CACHE)
}

impl ToolManifest {
    /// Lists what is at these places, all below `root`, without reading files. A directory comes
    /// with all in it; links in it are kept, while a place that is a link stands for its target.
    pub fn scan(root: &Path, places: &[PathBuf]) -> Result<Self, String> {
        let mut manifest = Self::default();
        let mut bytes = 0;
        for place in places {
            let metadata = fs::metadata(place).map_err(|error| format!("{}: {error}", place.display()))?;
            let mut waiting = vec![(place.clone(), metadata)];
            while let Some((path, metadata)) = waiting.pop() {
                let Some(entry) = ToolEntry::of_host(&path, &metadata)? else { continue };
                bytes += entry.bytes();
                if entry.kind == EntryKind::Directory {
                    waiting.extend(children(&path)?);
                }
                let name = below(root, &path)?;
                if !name.is_empty() {
                    manifest.entries.insert(name, entry);
                }
                if bytes > TREE_BYTES_MAX || manifest.entries.len() > TREE_ENTRIES_MAX {
                    let most = base::ByteSize(TREE_BYTES_MAX);
                    return Err(format!("more than {most} or {TREE_ENTRIES_MAX} files ({} is one)", place.display()));
                }
            }
        }
        Ok(manifest)
    }

    /// Reads all files below `root` and fills in their hashes.
    pub fn hash_files(&mut self, root: &Path) -> Result<(), String> {
        for (name, entry) in &mut self.entries {
            if let EntryKind::File { bytes, hash } = &mut entry.kind {
                let path = root.join(name);
                match hash_file(&path) {
                    Ok((found, length)) => (*hash, *bytes) = (found, length),
                    // Python replaces these files at any time.
                    Err(_) if is_cached(name) => {}
                    Err(error) => return Err(format!("{}: {error}", path.display())),
                }
            }
        }
        Ok(())
    }

    /// Length of all files together.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().filter(|(name, _)| !is_cached(name)).map(|(_, entry)| entry.bytes()).sum()
    }

    /// Hash of all that makes two trees the same.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        for (name, entry) in self.entries.iter().filter(|(name, _)| !is_cached(name)) {
            add(name);
            match &entry.kind {
                EntryKind::Directory => add(&format!("directory {:o}", entry.mode)),
                EntryKind::File { hash, .. } => add(&format!("file {:o} {hash}", entry.mode)),
                EntryKind::Link { target, .. } => add(&format!("link {target}")),
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Returns whether the same tree is at `root`. Modes, lengths and times are compared before any
    /// file is read.
    pub fn is_at(&self, root: &Path) -> bool {
        let looks_same = |(name, entry): (&String, &ToolEntry)| {
            let path = root.join(name);
            let metadata =
                if matches!(entry.kind, EntryKind::Link { .. }) { path.symlink_metadata() } else { path.metadata() };
            let found = metadata.ok().and_then(|metadata| ToolEntry::of_host(&path, &metadata).ok().flatten());
            found.is_some_and(|found| match (&found.kind, &entry.kind) {
                (EntryKind::File { bytes, .. }, EntryKind::File { bytes: wanted, .. }) => {
                    (bytes, found.mode, found.modified) == (wanted, entry.mode, entry.modified)
                }
                (kind, wanted) => (kind, found.mode) == (wanted, entry.mode),
            })
        };
        let mut tree = Self { entries: self.entries.clone() };
        tree.entries.retain(|name, _| !is_cached(name));
        tree.entries.iter().all(looks_same) && tree.hash_files(root).is_ok() && tree.hash() == self.hash()
    }

    /// Files by their hashes, each content once, with a path below the root.
    pub fn contents(&self) -> HashMap<&str, &str> {
        let file = |(name, entry)| match entry {
            &ToolEntry { kind: EntryKind::File { ref hash, .. }, .. } if !hash.is_empty() => {
                Some((hash.as_str(), name))
            }
            _ => None,
        };
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
            .filter_map(|(name, entry)| file((name, entry)))
            .collect()
    }
}

/// What is in a directory, with the metadata of links themselves.
fn children(directory: &Path) -> Result<Vec<(PathBuf, Metadata)>, String> {
    let failed = |error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match path.symlink_metadata() {
            Ok(metadata) => found.push((path, metadata)),
            // It went while the directory was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    Ok(found)
}

fn below(root: &Path, path: &Path) -> Result<String, String> {
    let name = path.strip_prefix(root).map_err(|_| format!("{} is not below {}", path.display(), root.display()))?;
    name.to_str().map(str::to_owned).ok_or_else(|| format!("{}: its name is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("made");
        fs::create_dir_all(root.path().join("lib/deep")).expect("made");
        for (name, text) in [("run.py", "import m"), ("lib/m.py", "1"), ("lib/deep/n.py", "2")] {
            fs::write(root.path().join(name), text).expect("written");
        }
        symlink("m.py", root.path().join("lib/link.py")).expect("linked");
        root
    }

    fn manifest(root: &Path, names: &[&str]) -> ToolManifest {
        let places: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
        let mut manifest = ToolManifest::scan(root, &places).expect("it can be read");
        manifest.hash_files(root).expect("they can be read");
        manifest
    }

    #[test]
    fn the_hash_depends_neither_on_the_order_of_names_nor_on_place_and_times() {
        let (one, other) = (tree(), tree());
        let first = manifest(one.path(), &["lib", "run.py"]);
        assert_eq!(first.entries.len(), 6);
        assert_eq!(first.hash(), manifest(other.path(), &["run.py", "lib", "lib/m.py"]).hash());
        fs::create_dir(one.path().join("lib/__pycache__")).expect("made");
        fs::write(one.path().join("lib/__pycache__/m.pyc"), "x").expect("written");
        let cached = manifest(one.path(), &["lib", "run.py"]);
        assert_eq!((cached.entries.len(), cached.hash()), (8, first.hash()), "caches travel, and make no difference");
    }

    #[test]
    fn contents_modes_targets_and_names_change_the_hash() {
        let before = manifest(tree().path(), &["lib", "run.py"]).hash();
        let changes: [fn(&Path); 5] = [
            |root| fs::write(root.join("lib/deep/n.py"), "3").expect("written"),
            |root| fs::set_permissions(root.join("run.py"), fs::Permissions::from_mode(0o755)).expect("changed"),
            |root| {
                fs::remove_file(root.join("lib/link.py")).expect("removed");
                symlink("deep/n.py", root.join("lib/link.py")).expect("linked");
            },
            |root| fs::rename(root.join("lib/m.py"), root.join("lib/o.py")).expect("renamed"),
            |root| fs::create_dir(root.join("lib/more")).expect("made"),
        ];
        for (number, change) in changes.iter().enumerate() {
            let root = tree();
            change(root.path());
            assert_ne!(manifest(root.path(), &["lib", "run.py"]).hash(), before, "change {number}");
        }
    }

    #[test]
    fn a_tree_is_found_only_where_times_and_contents_are_the_same() {
        let root = tree();
        let manifest = manifest(root.path(), &["lib", "run.py"]);
        assert!(manifest.is_at(root.path()));
        let other = tree();
        let file = fs::File::options().write(true).open(other.path().join("run.py")).expect("opened");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
        assert!(!manifest.is_at(other.path()), "its times differ");
        let file = root.path().join("lib/m.py");
        let modified = fs::metadata(&file).and_then(|found| found.modified()).expect("it has one");
        fs::write(&file, "3").expect("written");
        let opened = fs::File::options().write(true).open(&file).expect("opened");
        opened.set_modified(modified).expect("set");
        assert!(!manifest.is_at(root.path()), "a file changed without a trace in its length and time");
        fs::write(&file, "1").expect("written");
        opened.set_modified(modified).expect("set");
        assert!(manifest.is_at(root.path()));
    }

    #[test]
    fn what_is_named_by_a_link_is_its_target_and_a_lost_link_is_known() {
        let root = tree();
        symlink("lib", root.path().join("named")).expect("linked");
        symlink("/none", root.path().join("lib/lost")).expect("linked");
        let found = manifest(root.path(), &["named"]);
        assert_eq!(found.entries["named"].kind, EntryKind::Directory);
        assert!(found.entries.contains_key("named/deep/n.py"));
        let lost = EntryKind::Link { target: "/none".into(), leads: false };
        assert_eq!(found.entries["named/lost"].kind, lost);
    }
}
