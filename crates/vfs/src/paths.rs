//! Operations on paths, for users in this process. Paths are relative to the pool's root, with `/`
//! between names.

use crate::Vfs;
use bytes::Bytes;
use client::{ExpectedLocation, FileLocation};
use placement::FileId;
use wire::{Attributes, Kind, Name, Object, OpenFlags, Outcome, Refusal, path_names};

/// Largest number of symbolic links followed in one path; Linux's limit.
const LINKS_MAX: usize = 40;
/// Length of a single read or write, bytes.
const CHUNK_BYTES: u32 = 1 << 20;
/// Number of entries removed at a time.
const PAGE_ENTRIES: usize = 512;
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Location of a file that exists, or of one that could be created.
#[derive(Clone, Debug, PartialEq)]
pub enum PathLocation {
    /// The file exists.
    Existing(FileLocation),
    /// The file does not exist.
    Expected(ExpectedLocation),
}

/// Remaining part of a path walk.
struct RemainingPath {
    /// Names still to be walked, in reverse order.
    names: Vec<Vec<u8>>,
}

impl Vfs {
    /// Attributes of the file at a path. Follows symbolic links, except one in the last name.
    pub fn resolve(&self, path: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (vfs, path) = (self.clone(), path.to_vec());
        async move { vfs.walk(&path, false).await }
    }

    /// Attributes of the file at a path. Follows symbolic links, also one in the last name.
    pub fn find(&self, path: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (vfs, path) = (self.clone(), path.to_vec());
        async move { vfs.walk(&path, true).await }
    }

    /// Location of the file at a path, or of a file created there now. Does not follow a symbolic
    /// link in the last name.
    pub fn locate_path(&self, path: &[u8]) -> impl Future<Output = Outcome<PathLocation>> + Send + use<> {
        let (vfs, path) = (self.clone(), path.to_vec());
        async move {
            match vfs.walk(&path, false).await {
                Ok(found) => vfs.client.locate(found.file).await.map(PathLocation::Existing),
                Err(Refusal::NotFound(_)) => vfs.predict_location(&path).await.map(PathLocation::Expected),
                Err(refusal) => Err(refusal),
            }
        }
    }

    /// Predicts by the last existing directory of the path, since missing directories below would
    /// inherit from it.
    async fn predict_location(&self, path: &[u8]) -> Outcome<ExpectedLocation> {
        let mut above: Vec<&[u8]> = names(path).collect();
        let last = above.pop().ok_or_else(|| Refusal::invalid(Object::text(path), "the path has no last name"))?;
        let mut name = Some(Name::new(last)?);
        loop {
            match self.walk(&above.join(&b'/'), true).await {
                Ok(found) => return self.client.expected_location(found.file, name.as_ref()).await,
                Err(Refusal::NotFound(_)) if above.pop().is_some() => name = None,
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Creates the missing directories of a path with mode 0755, each with its parent's owner.
    /// Returns the attributes of the last one.
    pub fn make_directories(&self, path: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (vfs, path) = (self.clone(), path.to_vec());
        async move {
            let mut above = vfs.stat(FileId::ROOT).await?;
            for name in names(&path) {
                above = vfs.open_or_make_directory(&above, name).await?;
            }
            Ok(above)
        }
    }

    async fn open_or_make_directory(&self, above: &Attributes, name: &[u8]) -> Outcome<Attributes> {
        let found = match self.lookup(above.file, name).await {
            Err(Refusal::NotFound(_)) => {
                match self.make_directory(above.file, name, DIRECTORY_MODE, above.owner).await {
                    Err(Refusal::Exists(_)) => self.lookup(above.file, name).await?,
                    made => return made,
                }
            }
            found => found?,
        };
        match found.kind {
            Kind::Directory => Ok(found),
            _ => Err(Refusal::NotDirectory(Object::text(name))),
        }
    }

    /// Reads a whole file by its path. Follows symbolic links.
    pub fn read_file(&self, path: &[u8]) -> impl Future<Output = Outcome<Vec<u8>>> + Send + use<> {
        let (vfs, path) = (self.clone(), path.to_vec());
        async move {
            let file = vfs.walk(&path, true).await?.file;
            let handle = vfs.open(file, OpenFlags::READ).await?;
            let whole = vfs.read_whole(file).await;
            vfs.close(handle).await?;
            whole
        }
    }

    async fn read_whole(&self, file: FileId) -> Outcome<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            let bytes = self.client.read(file, whole.len() as u64, CHUNK_BYTES).await?;
            if bytes.is_empty() {
                return Ok(whole);
            }
            whole.extend_from_slice(&bytes);
        }
    }

    /// Creates the file at a path, or replaces its bytes. A new file has mode 0644 and its
    /// directory's owner.
    pub fn write_file(&self, path: &[u8], bytes: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (vfs, path, bytes) = (self.clone(), path.to_vec(), Bytes::copy_from_slice(bytes));
        async move {
            let (above, name) = vfs.walk_to_parent(&path).await?;
            let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
            let (made, handle) = vfs.create(above.file, &name, FILE_MODE, above.owner, flags).await?;
            let written = vfs.write_whole(handle, bytes).await;
            vfs.close(handle).await?;
            written?;
            vfs.stat(made.file).await
        }
    }

    async fn write_whole(&self, handle: crate::Handle, bytes: Bytes) -> Outcome<()> {
        let mut done = 0;
        while done < bytes.len() {
            let part = bytes.slice(done..bytes.len().min(done + CHUNK_BYTES as usize));
            done += self.write(handle, done as u64, part).await? as usize;
        }
        Ok(())
    }

    /// Removes the entry at a path with everything below it. A symbolic link itself is removed, not
    /// its target.
    pub fn remove_tree(&self, path: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (vfs, path) = (self.clone(), path.to_vec());
        async move {
            let (above, name) = vfs.walk_to_parent(&path).await?;
            let found = vfs.lookup(above.file, &name).await?;
            if found.kind != Kind::Directory {
                return vfs.unlink(above.file, &name).await;
            }
            vfs.remove_directories(vec![(above.file, name, found.file)]).await
        }
    }

    /// Empties and removes directories, the last one first.
    async fn remove_directories(&self, mut todo: Vec<(FileId, Vec<u8>, FileId)>) -> Outcome<()> {
        while let Some((parent, name, directory)) = todo.last() {
            let entries = ok_if_missing(self.list(*directory, 0, PAGE_ENTRIES).await)?.unwrap_or_default();
            if entries.is_empty() {
                match self.remove_directory(*parent, name).await {
                    Err(Refusal::NotEmpty(_)) => continue,
                    removed => ok_if_missing(removed)?,
                };
                todo.pop();
                continue;
            }
            let directory = *directory;
            for entry in entries {
                let name = entry.name.as_bytes();
                match entry.kind {
                    Kind::Directory => todo.push((directory, name.to_vec(), entry.file)),
                    _ => drop(ok_if_missing(self.unlink(directory, name).await)?),
                }
            }
        }
        Ok(())
    }

    /// The parent directory of a path's last name, and that name.
    async fn walk_to_parent(&self, path: &[u8]) -> Outcome<(Attributes, Vec<u8>)> {
        let mut names: Vec<&[u8]> = names(path).collect();
        let last = names.pop().filter(|last| *last != b"..");
        let last = last.ok_or_else(|| Refusal::invalid(Object::text(path), "the path has no last name"))?;
        let above = self.walk(&names.join(&b'/'), true).await?;
        Ok((above, last.to_vec()))
    }

    async fn walk(&self, path: &[u8], follow_last: bool) -> Outcome<Attributes> {
        let mut remaining = RemainingPath::new(path);
        let mut links = 0;
        let mut current = self.stat(FileId::ROOT).await?;
        while let Some(name) = remaining.names.pop() {
            let next = self.step(current.file, &name).await?;
            if next.kind != Kind::Symlink || remaining.names.is_empty() && !follow_last {
                current = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Refusal::invalid(Object::text(path), "too many links lead to links"));
            }
            remaining.follow(&self.read_link(next.file).await?)?;
        }
        Ok(current)
    }

    async fn step(&self, directory: FileId, name: &[u8]) -> Outcome<Attributes> {
        if name == b".." {
            let above = self.client.parent(directory).await?;
            return self.stat(above).await;
        }
        self.client.lookup(directory, &Name::new(name)?).await
    }
}

impl RemainingPath {
    fn new(path: &[u8]) -> Self {
        Self { names: names(path).rev().map(<[u8]>::to_vec).collect() }
    }

    /// Continues with a symbolic link's target.
    fn follow(&mut self, target: &[u8]) -> Outcome<()> {
        if target.starts_with(b"/") {
            return Err(Refusal::invalid(Object::text(target), "the link leads out of the pool"));
        }
        self.names.extend(names(target).rev().map(<[u8]>::to_vec));
        Ok(())
    }
}

/// Names of a path, without `.`.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path_names(path).filter(|name| *name != b".")
}

fn ok_if_missing<T>(outcome: Outcome<T>) -> Outcome<Option<T>> {
    match outcome {
        Err(Refusal::NotFound(_)) => Ok(None),
        other => other.map(Some),
    }
}
