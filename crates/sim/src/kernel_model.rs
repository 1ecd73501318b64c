//! Model of a caching kernel. It behaves like a mount's kernel as far as cache grants matter.
//!
//! It caches names and their absence, lasting attributes, and bytes. It drops invalidated data, and
//! data that its own changes make outdated. Like FUSE, it does not cache attributes that were
//! invalidated after they were requested, nor names from before the latest dentry epoch.

use crate::{BackingFd, Handle, Vfs, pool_test::*};
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
use wire::{Attributes, Changes, OpenFlags, Outcome, Recall, Refusal, RenameMode};

/// Limit of the bytes cached of a file.
const BYTES_MAX: u32 = 1 << 20;

/// A kernel with its own mount.
pub struct Kernel {
    pub vfs: Vfs,
    memory: Arc<Mutex<Memory>>,
    /// Open extent files, to be written past the pool.
    held: Mutex<Vec<Held>>,
    /// Number of invalidations received; `asked` is the number of requests sent.
    pub heard: Arc<AtomicU64>,
    pub asked: AtomicU64,
}

/// An open extent file.
struct Held {
    file: FileId,
    handle: Handle,
    backing: BackingFd,
    /// True if it is written through a mapping, which the kernel does not notice.
    mapped: bool,
}

#[derive(Default)]
struct Memory {
    names: HashMap<FileId, BTreeMap<String, Option<FileId>>>,
    attributes: HashMap<FileId, Attributes>,
    bytes: HashMap<FileId, Bytes>,
    /// Counts invalidations; `epoch` and `recalled` have the number of the latest one of names and
    /// of each item.
    now: u64,
    epoch: u64,
    recalled: HashMap<Recall, u64>,
}

impl Memory {
    fn hear(&mut self, recalls: &[Recall]) {
        for recall in recalls {
            self.recall(*recall);
        }
    }

    fn recall(&mut self, recall: Recall) {
        self.now += 1;
        self.recalled.insert(recall, self.now);
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
            // This kernel does not support prune notices; see `kept_test.rs`.
            Recall::Removed(_) => {}
        }
    }

    fn keep_attributes(&mut self, asked: u64, found: &Attributes) {
        let recalled = self.recalled.get(&Recall::Attributes(found.file)).is_some_and(|at| *at > asked);
        if found.cacheable && !recalled {
            self.attributes.insert(found.file, *found);
        }
    }

    fn keep_name(&mut self, asked: u64, directory: FileId, name: &str, file: Option<FileId>) {
        if self.epoch <= asked {
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

impl Kernel {
    /// Creates a kernel with its own session of the pool of `vfs`.
    pub async fn beside(vfs: &Vfs) -> Self {
        let (vfs, memory, heard) =
            (vfs.new_session().await.unwrap(), Arc::new(Mutex::new(Memory::default())), Arc::new(AtomicU64::new(0)));
        let (ear, count) = (memory.clone(), heard.clone());
        let hear = Arc::new(move |recalls: &[Recall]| {
            count.fetch_add(recalls.len() as u64, Relaxed);
            ear.lock().hear(recalls);
        });
        vfs.subscribe(hear).await.unwrap();
        Self { vfs, memory, held: Mutex::default(), heard, asked: AtomicU64::new(0) }
    }

    fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Relaxed);
        self.memory.lock().now
    }

    /// File id of a name, from the cache or the pool.
    pub async fn find(&self, directory: FileId, name: &str) -> Outcome<Option<FileId>> {
        if let Some(kept) = self.memory.lock().names.get(&directory).and_then(|names| names.get(name)) {
            return Ok(*kept);
        }
        let asked = self.ask();
        let found = match self.vfs.lookup(directory, name.as_bytes()).await {
            Ok(found) => Some(found),
            Err(Refusal::NotFound(_)) => None,
            Err(refusal) => return Err(refusal),
        };
        let mut memory = self.memory.lock();
        if let Some(found) = &found {
            memory.keep_attributes(asked, found);
        }
        memory.keep_name(asked, directory, name, found.map(|found| found.file));
        Ok(found.map(|found| found.file))
    }

    /// Attributes of a file, from the cache or the pool.
    pub async fn stat(&self, file: FileId) -> Outcome<Attributes> {
        if let Some(kept) = self.memory.lock().attributes.get(&file) {
            return Ok(*kept);
        }
        let asked = self.ask();
        let found = self.vfs.stat(file).await?;
        self.memory.lock().keep_attributes(asked, &found);
        Ok(found)
    }

    /// Bytes of a file, from the cache or the pool.
    pub async fn bytes(&self, file: FileId) -> Outcome<Bytes> {
        if let Some(kept) = self.memory.lock().bytes.get(&file) {
            return Ok(kept.clone());
        }
        let asked = self.ask();
        let handle = self.vfs.open(file, OpenFlags::READ).await?;
        let read = self.vfs.read(handle, 0, BYTES_MAX).await;
        let whole = self.vfs.stat(file).await.map(|found| found.extent);
        self.vfs.close(handle).await?;
        let (read, whole) = (read?, whole?);
        let mut memory = self.memory.lock();
        // The kernel's pages are locked while they are read: an invalidation that arrived meanwhile
        // drops them afterwards.
        let recalled = memory.recalled.get(&Recall::Bytes(file)).is_some_and(|at| *at > asked);
        // A mount caches no bytes of an extent file: its pages are those of its backing.
        if !recalled && whole.is_none() {
            memory.bytes.insert(file, read.clone());
        }
        memory.attributes.remove(&file); // the time of the last read changed
        Ok(read)
    }

    pub async fn create(&self, directory: FileId, name: &str) -> Outcome<FileId> {
        let asked = self.ask();
        let flags = OpenFlags { exclusive: true, use_extent: true, ..OpenFlags::WRITE };
        let (found, handle) = self.vfs.create(directory, name.as_bytes(), 0o644, OWNER, flags).await?;
        self.vfs.close(handle).await?;
        let mut memory = self.memory.lock();
        memory.attributes.remove(&directory);
        memory.keep_attributes(asked, &found);
        memory.keep_name(asked, directory, name, Some(found.file));
        Ok(found.file)
    }

    pub async fn make_directory(&self, directory: FileId, name: &str) -> Outcome<FileId> {
        let made = self.vfs.make_directory(directory, name.as_bytes(), 0o755, OWNER).await;
        self.memory.lock().drop_name(directory, name);
        Ok(made?.file)
    }

    pub async fn remove(&self, directory: FileId, name: &str) -> Outcome<()> {
        let removed = match self.vfs.unlink(directory, name.as_bytes()).await {
            Err(Refusal::IsDirectory(_)) => self.vfs.remove_directory(directory, name.as_bytes()).await,
            removed => removed,
        };
        if removed.is_ok() {
            self.memory.lock().drop_name(directory, name);
        }
        removed
    }

    pub async fn rename(&self, old: (FileId, &str), new: (FileId, &str), mode: RenameMode) -> Outcome<()> {
        let renamed = self.vfs.rename(from(old.0, old.1), to(new.0, new.1), mode).await;
        if renamed.is_ok() {
            let mut memory = self.memory.lock();
            memory.drop_name(old.0, old.1);
            memory.drop_name(new.0, new.1);
        }
        renamed
    }

    pub async fn write(&self, file: FileId, offset: u64, data: Vec<u8>, append: bool) -> Outcome<()> {
        let handle = self.vfs.open(file, OpenFlags { append, use_extent: true, ..OpenFlags::WRITE }).await?;
        let written = self.vfs.write(handle, offset, Bytes::from(data)).await;
        self.forget_file(file);
        self.vfs.close(handle).await?;
        written.map(drop)
    }

    /// Opens a file, and if it is an extent file keeps it open for writes past the pool.
    pub async fn hold(&self, file: FileId, mapped: bool) -> Outcome<()> {
        let handle = self.vfs.open(file, OpenFlags { read: mapped, use_extent: true, ..OpenFlags::WRITE }).await?;
        let Some(backing) = self.vfs.backing(handle) else { return self.vfs.close(handle).await };
        if mapped {
            self.memory.lock().recall(Recall::Attributes(file)); // as a mount does at such an open
        }
        self.held.lock().push(Held { file, handle, backing, mapped });
        Ok(())
    }

    /// Writes to all files that it keeps open, past the pool.
    pub fn write_past(&self, offset: u64, data: &[u8]) {
        for held in self.held.lock().iter() {
            rustix::io::pwrite(&held.backing, data, offset).unwrap();
            let mut memory = self.memory.lock();
            memory.bytes.remove(&held.file); // it reads through the backing
            if !held.mapped {
                memory.attributes.remove(&held.file);
            }
        }
    }

    /// Closes all files that it keeps open.
    pub async fn let_go(&self) -> Outcome<()> {
        let held = std::mem::take(&mut *self.held.lock());
        for Held { handle, backing, .. } in held {
            drop(backing);
            self.vfs.close(handle).await?;
        }
        Ok(())
    }

    pub async fn change(&self, file: FileId, changes: Changes) -> Outcome<()> {
        let changed = self.vfs.change(file, changes).await;
        self.forget_file(file);
        assert!(!changed.as_ref().is_ok_and(|changed| changed.cacheable), "a kernel would take it unasked");
        changed.map(drop)
    }

    fn forget_file(&self, file: FileId) {
        let mut memory = self.memory.lock();
        memory.attributes.remove(&file);
        memory.bytes.remove(&file);
    }
}
