//! Model of a caching kernel. It behaves like a mount's kernel as far as cache grants matter.
//!
//! It caches names and their absence, lasting attributes, and bytes. It drops invalidated data, and
//! data that its own changes make outdated. Like FUSE, it does not cache attributes that were
//! invalidated after they were requested, nor names from before the latest dentry epoch.

use crate::pool::{OWNER, from, to};
use bytes::Bytes;
use parking_lot::Mutex;
use placement::FileId;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use vfs::{BackingFd, Handle, Vfs};
use wire::{Attributes, Changes, OpenFlags, Outcome, Recall, Refusal, RenameMode};

/// Limit of the bytes cached of a file.
const BYTES_MAX: u32 = 1 << 20;

/// A kernel with its own mount.
pub struct KernelModel {
    /// Its session of the pool.
    pub vfs: Vfs,
    cache: Arc<Mutex<KernelCache>>,
    /// Open extent files, to be written past the pool.
    backed: Mutex<Vec<BackedFile>>,
    /// Number of invalidations received.
    pub invalidations: Arc<AtomicU64>,
    /// Number of requests sent.
    pub requests: AtomicU64,
}

/// An open extent file.
struct BackedFile {
    file: FileId,
    handle: Handle,
    backing: BackingFd,
    /// True if it is written through a mapping, which the kernel does not notice.
    mapped: bool,
}

#[derive(Default)]
struct KernelCache {
    names: HashMap<FileId, BTreeMap<String, Option<FileId>>>,
    attributes: HashMap<FileId, Attributes>,
    bytes: HashMap<FileId, Bytes>,
    /// Counts invalidations; `epoch` and `invalidated` have the number of the latest one of names
    /// and of each item.
    now: u64,
    epoch: u64,
    invalidated: HashMap<Recall, u64>,
}

impl KernelCache {
    fn on_invalidate(&mut self, recalls: &[Recall]) {
        for recall in recalls {
            self.invalidate(*recall);
        }
    }

    fn invalidate(&mut self, recall: Recall) {
        self.now += 1;
        self.invalidated.insert(recall, self.now);
        match recall {
            Recall::Attributes(file) => {
                self.attributes.remove(&file);
            }
            Recall::Bytes(file) => {
                self.bytes.remove(&file);
            }
            Recall::Names(_) => {
                self.names.clear();
                self.epoch = self.now;
            }
            Recall::All => {
                self.attributes.clear();
                self.bytes.clear();
                self.names.clear();
                self.epoch = self.now;
            }
            // This kernel does not support prune notices; see `unlinked_test.rs`.
            Recall::Removed(_) | Recall::Greet(_) => {}
        }
    }

    fn cache_attributes(&mut self, begun: u64, found: &Attributes) {
        let invalidated = self.invalidated.get(&Recall::Attributes(found.file)).is_some_and(|at| *at > begun);
        if found.cacheable && !invalidated {
            self.attributes.insert(found.file, *found);
        }
    }

    fn cache_name(&mut self, begun: u64, directory: FileId, name: &str, file: Option<FileId>) {
        if self.epoch <= begun {
            self.names.entry(directory).or_default().insert(name.to_owned(), file);
        }
    }

    fn drop_name(&mut self, directory: FileId, name: &str) {
        if let Some(names) = self.names.get_mut(&directory) {
            let removed = names.remove(name).flatten();
            if let Some(file) = removed {
                self.attributes.remove(&file);
            }
        }
        self.attributes.remove(&directory);
    }
}

impl KernelModel {
    /// Creates a kernel with its own session of the pool of `vfs`.
    pub async fn mount(vfs: &Vfs) -> Self {
        let (vfs, cache, invalidations) = (
            vfs.new_session().await.unwrap(),
            Arc::new(Mutex::new(KernelCache::default())),
            Arc::new(AtomicU64::new(0)),
        );
        let (target, count) = (cache.clone(), invalidations.clone());
        let on_invalidate = Arc::new(move |recalls: &[Recall]| {
            count.fetch_add(recalls.len() as u64, Relaxed);
            target.lock().on_invalidate(recalls);
        });
        vfs.subscribe(on_invalidate).await.unwrap();
        Self { vfs, cache, backed: Mutex::default(), invalidations, requests: AtomicU64::new(0) }
    }

    fn begin_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed);
        self.cache.lock().now
    }

    /// File id of a name, from the cache or the pool.
    pub async fn find(&self, directory: FileId, name: &str) -> Outcome<Option<FileId>> {
        if let Some(kept) = self.cache.lock().names.get(&directory).and_then(|names| names.get(name)) {
            return Ok(*kept);
        }
        let begun = self.begin_request();
        let found = match self.vfs.lookup(directory, name.as_bytes()).await {
            Ok(found) => Some(found),
            Err(Refusal::NotFound(_)) => None,
            Err(refusal) => return Err(refusal),
        };
        let mut cache = self.cache.lock();
        if let Some(found) = &found {
            cache.cache_attributes(begun, found);
        }
        cache.cache_name(begun, directory, name, found.map(|found| found.file));
        Ok(found.map(|found| found.file))
    }

    /// Attributes of a file, from the cache or the pool.
    pub async fn stat(&self, file: FileId) -> Outcome<Attributes> {
        if let Some(kept) = self.cache.lock().attributes.get(&file) {
            return Ok(*kept);
        }
        let begun = self.begin_request();
        let found = self.vfs.stat(file).await?;
        self.cache.lock().cache_attributes(begun, &found);
        Ok(found)
    }

    /// Bytes of a file, from the cache or the pool.
    pub async fn bytes(&self, file: FileId) -> Outcome<Bytes> {
        if let Some(kept) = self.cache.lock().bytes.get(&file) {
            return Ok(kept.clone());
        }
        let begun = self.begin_request();
        let handle = self.vfs.open(file, OpenFlags::READ).await?;
        let read = self.vfs.read(handle, 0, BYTES_MAX).await;
        let whole = self.vfs.stat(file).await.map(|found| found.extent);
        self.vfs.close(handle).await?;
        let (read, whole) = (read?, whole?);
        let mut cache = self.cache.lock();
        // The kernel's pages are locked while they are read: an invalidation that arrived meanwhile
        // drops them afterwards.
        let invalidated = cache.invalidated.get(&Recall::Bytes(file)).is_some_and(|at| *at > begun);
        // A mount caches no bytes of an extent file: its pages are those of its backing.
        if !invalidated && whole.is_none() {
            cache.bytes.insert(file, read.clone());
        }
        cache.attributes.remove(&file); // the time of the last read changed
        Ok(read)
    }

    /// Creates a file, an extent file if the pool makes one.
    pub async fn create(&self, directory: FileId, name: &str) -> Outcome<FileId> {
        let begun = self.begin_request();
        let flags = OpenFlags { exclusive: true, use_extent: true, ..OpenFlags::WRITE };
        let (found, handle) = self.vfs.create(directory, name.as_bytes(), 0o644, OWNER, flags).await?;
        self.vfs.close(handle).await?;
        let mut cache = self.cache.lock();
        cache.attributes.remove(&directory);
        cache.cache_attributes(begun, &found);
        cache.cache_name(begun, directory, name, Some(found.file));
        Ok(found.file)
    }

    /// Creates a directory.
    pub async fn make_directory(&self, directory: FileId, name: &str) -> Outcome<FileId> {
        let made = self.vfs.make_directory(directory, name.as_bytes(), 0o755, OWNER).await;
        self.cache.lock().drop_name(directory, name);
        Ok(made?.file)
    }

    /// Removes a file or an empty directory.
    pub async fn remove(&self, directory: FileId, name: &str) -> Outcome<()> {
        let removed = match self.vfs.unlink(directory, name.as_bytes()).await {
            Err(Refusal::IsDirectory(_)) => self.vfs.remove_directory(directory, name.as_bytes()).await,
            removed => removed,
        };
        if removed.is_ok() {
            self.cache.lock().drop_name(directory, name);
        }
        removed
    }

    /// Renames an entry.
    pub async fn rename(&self, old: (FileId, &str), new: (FileId, &str), mode: RenameMode) -> Outcome<()> {
        let renamed = self.vfs.rename(from(old.0, old.1), to(new.0, new.1), mode).await;
        if renamed.is_ok() {
            let mut cache = self.cache.lock();
            cache.drop_name(old.0, old.1);
            cache.drop_name(new.0, new.1);
        }
        renamed
    }

    /// Writes to a file through the pool.
    pub async fn write(&self, file: FileId, offset: u64, data: Vec<u8>, append: bool) -> Outcome<()> {
        let handle = self.vfs.open(file, OpenFlags { append, use_extent: true, ..OpenFlags::WRITE }).await?;
        let written = self.vfs.write(handle, offset, Bytes::from(data)).await;
        self.forget_file(file);
        self.vfs.close(handle).await?;
        written.map(drop)
    }

    /// Opens a file, and if it is an extent file keeps it open for writes past the pool.
    pub async fn open_backing(&self, file: FileId, mapped: bool) -> Outcome<()> {
        let handle = self.vfs.open(file, OpenFlags { read: mapped, use_extent: true, ..OpenFlags::WRITE }).await?;
        let Some(backing) = self.vfs.backing(handle) else { return self.vfs.close(handle).await };
        if mapped {
            self.cache.lock().invalidate(Recall::Attributes(file)); // as a mount does at such an open
        }
        self.backed.lock().push(BackedFile { file, handle, backing, mapped });
        Ok(())
    }

    /// Writes to all files that it keeps open, past the pool.
    pub fn write_to_backings(&self, offset: u64, data: &[u8]) {
        for file in self.backed.lock().iter() {
            rustix::io::pwrite(&file.backing, data, offset).unwrap();
            let mut cache = self.cache.lock();
            cache.bytes.remove(&file.file); // it reads through the backing
            if !file.mapped {
                cache.attributes.remove(&file.file);
            }
        }
    }

    /// Closes all files that it keeps open.
    pub async fn close_backings(&self) -> Outcome<()> {
        let backed = std::mem::take(&mut *self.backed.lock());
        for BackedFile { handle, backing, .. } in backed {
            drop(backing);
            self.vfs.close(handle).await?;
        }
        Ok(())
    }

    /// Changes attributes.
    pub async fn change(&self, file: FileId, changes: Changes) -> Outcome<()> {
        let changed = self.vfs.change(file, changes).await;
        self.forget_file(file);
        assert!(
            !changed.as_ref().is_ok_and(|changed| changed.cacheable),
            "a kernel would cache the answer of its own change"
        );
        changed.map(drop)
    }

    fn forget_file(&self, file: FileId) {
        let mut cache = self.cache.lock();
        cache.attributes.remove(&file);
        cache.bytes.remove(&file);
    }
}
