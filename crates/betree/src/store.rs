//! A store that is open.

use crate::{
    checkpoint::CheckpointState,
    database::{Database, DatabaseState, LogRecordBytes},
    device::{FileDevice, StoreDevice},
    leaf::{Leaf, LeafState, LeafStatus},
    leaf_page::LeafPage,
    log::{LogShared, RedoLog},
    recovery,
    store_error::StoreError,
};
use parking_lot::{Condvar, Mutex, RwLock};
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io,
    path::Path,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

/// When a change is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledged {
    /// When it survives the end of the process, also by `kill -9`.
    #[default]
    Kept,
    /// When it survives the loss of power. Changes that wait share a sync.
    Synced,
}

/// How a store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a change is acknowledged.
    pub acknowledged: Acknowledged,
    /// Bytes of log from one checkpoint to the next: more make writing cheaper, and opening after a
    /// crash slower.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { acknowledged: Acknowledged::default(), checkpoint_bytes: 256 << 20 }
    }
}

/// Counts of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// The number of databases.
    pub databases: usize,
    /// The number of changes since the store was made.
    pub changes: u64,
    /// Bytes of the segments of the log.
    pub log_bytes: u64,
    /// Bytes of the device that the store uses, or has used.
    pub device_bytes: u64,
    /// Bytes of these that are free.
    pub free_bytes: u64,
}

/// A store, until this is dropped.
#[derive(Debug)]
pub struct Store {
    core: Arc<StoreCore>,
    checkpointer: Option<JoinHandle<()>>,
}

/// The parts that all handles of a store share.
pub struct StoreCore {
    pub log: LogShared,
    pub databases: RwLock<BTreeMap<Box<str>, Arc<DatabaseState>>>,
    /// Held while a database is made.
    making: Mutex<()>,
    /// Held shared while changes get into pages, and alone while a checkpoint is chosen.
    pub merge_gate: RwLock<()>,
    pub checkpoint: CheckpointState,
    options: Options,
    last_page: AtomicU32,
    /// Bytes of log since the last checkpoint began.
    logged_bytes: AtomicU64,
    /// The number up to which all changes are synced; held while a sync is made.
    synced: Mutex<u64>,
    /// The first failure of a write or sync.
    failed: OnceLock<String>,
    work: CheckpointerSignal,
}

#[derive(Debug, Default)]
struct CheckpointerSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct SignalState {
    is_due: bool,
    ends: bool,
}

impl Store {
    /// Opens the store in a file, which is made if it is not there.
    ///
    /// # Errors
    /// If the file has something else, or is open elsewhere, or cannot be read.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() == 0 {
            // So that the loss of power leaves its name too.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()?;
        }
        let device = FileDevice::new(file).ok_or_else(|| StoreError::InUse { path: path.into() })?;
        Self::open_device(Arc::new(device), path, options)
    }

    /// Opens the store in a device; `path` names it in errors.
    pub(crate) fn open_device(device: Arc<dyn StoreDevice>, path: &Path, options: Options) -> Result<Self, StoreError> {
        let core = Arc::new(recovery::open(device, path, options)?);
        let weak = Arc::downgrade(&core);
        let checkpointer = thread::Builder::new()
            .name("betree-checkpoint".into())
            .spawn(move || checkpoint_always(&weak))
            .map_err(StoreError::Io)?;
        Ok(Self { core, checkpointer: Some(checkpointer) })
    }

    /// The database of a name, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn database(&self, name: &str) -> Result<Database, StoreError> {
        // One that is being made cannot be recovered yet.
        let _made = self.core.making.lock();
        let found = self.core.databases.read().get(name).cloned();
        let state = match found {
            Some(state) => state,
            None => self.core.make_database(name)?,
        };
        Ok(Database { store: self.core.clone(), state })
    }

    /// The names of all databases.
    pub fn databases(&self) -> Vec<String> {
        self.core.databases.read().keys().map(ToString::to_string).collect()
    }

    /// Returns when all that was acknowledged survives the loss of power.
    ///
    /// # Errors
    /// If the device fails.
    pub fn commit(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        self.core.sync_up_to(self.core.log.sequencer.complete())
    }

    /// The counts of now.
    pub fn stats(&self) -> StoreStats {
        let core = &self.core;
        let (segments, space) = (core.log.segments.all(), core.log.space.lock());
        StoreStats {
            databases: core.databases.read().len(),
            changes: core.log.sequencer.complete(),
            log_bytes: segments.iter().map(|segment| segment.extent.length).sum(),
            device_bytes: space.end(),
            free_bytes: space.free_bytes(),
        }
    }

    /// Makes a checkpoint: opening takes no longer than reading it and what is logged after it.
    ///
    /// # Errors
    /// If the device is full or fails.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.core.make_checkpoint()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let Some(checkpointer) = self.checkpointer.take() else { return };
        self.core.work.state.lock().ends = true;
        self.core.work.changed.notify_one();
        drop(checkpointer.join());
    }
}

/// Makes a checkpoint whenever one is due, until the store ends.
fn checkpoint_always(core: &Weak<StoreCore>) {
    loop {
        let Some(core) = core.upgrade() else { return };
        let mut state = core.work.state.lock();
        while !state.is_due && !state.ends {
            core.work.changed.wait(&mut state);
        }
        if state.ends {
            return;
        }
        state.is_due = false;
        drop(state);
        // A full device is told to those who write; the next bytes of log try again.
        let _ = core.make_checkpoint();
    }
}

impl StoreCore {
    /// A store of these parts.
    pub fn new(log: LogShared, checkpoint: CheckpointState, options: Options, last_page: u32) -> Self {
        let sequence = log.sequencer.complete();
        Self {
            log,
            databases: RwLock::default(),
            making: Mutex::default(),
            merge_gate: RwLock::default(),
            checkpoint,
            options,
            last_page: AtomicU32::new(last_page),
            logged_bytes: AtomicU64::new(0),
            synced: Mutex::new(sequence),
            failed: OnceLock::new(),
            work: CheckpointerSignal::default(),
        }
    }

    fn make_database(&self, name: &str) -> Result<Arc<DatabaseState>, StoreError> {
        self.check_writable()?;
        let leaf = Leaf::new(self.next_page(), LeafPage::empty());
        leaf.latch().is_changed = true;
        let leaves = &vec![(Box::default(), Arc::new(leaf))];
        let state = Arc::new(DatabaseState::new(name, leaves, RedoLog::new(&self.log)?));
        self.databases.write().insert(name.into(), state.clone());
        // Its log is found by the checkpoint alone.
        if let Err(error) = self.make_checkpoint() {
            self.databases.write().remove(name);
            return Err(error);
        }
        Ok(state)
    }

    /// The number of a new page.
    pub fn next_page(&self) -> u32 {
        self.last_page.fetch_add(1, Relaxed) + 1
    }

    /// The last number that a page got.
    pub fn last_page(&self) -> u32 {
        self.last_page.load(Relaxed)
    }

    /// Refuses changes after a failure.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed { why: why.clone() }),
        }
    }

    /// Notes that the device has failed, unless it is only full.
    pub fn note_failure(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::StorageFull {
            let _ = self.failed.set(error.to_string());
        }
    }

    /// Waits until a change is what its writer asked for, and has a checkpoint made if one is due.
    pub fn acknowledge(&self, sequence: u64, bytes: LogRecordBytes) -> Result<(), StoreError> {
        let logged = self.logged_bytes.fetch_add(bytes.0 as u64, Relaxed) + bytes.0 as u64;
        if logged > self.options.checkpoint_bytes {
            self.logged_bytes.store(0, Relaxed);
            self.work.state.lock().is_due = true;
            self.work.changed.notify_one();
        }
        match self.options.acknowledged {
            Acknowledged::Kept => Ok(()),
            Acknowledged::Synced => self.sync_up_to(sequence),
        }
    }

    /// Syncs, unless another sync has covered this number meanwhile.
    fn sync_up_to(&self, sequence: u64) -> Result<(), StoreError> {
        let mut synced = self.synced.lock();
        if *synced >= sequence {
            return Ok(());
        }
        self.check_writable()?;
        let complete = self.log.sequencer.complete();
        self.log.device.sync().inspect_err(|error| self.note_failure(error))?;
        *synced = complete;
        Ok(())
    }

    /// Has a checkpoint under way have what it needs of a leaf, before later changes get into its
    /// page.
    pub fn image_before_merge(&self, leaf: &Leaf, state: &LeafState, status: &mut LeafStatus) {
        let Some(chosen) = self.checkpoint.chosen() else { return };
        if status.imaged < chosen.number {
            if status.is_changed {
                self.checkpoint.add_image(leaf.number(), state.page_as_of(chosen.sequence));
            }
            status.imaged = chosen.number;
        }
    }
}

impl fmt::Debug for StoreCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCore").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;

#[cfg(test)]
#[path = "crash_test.rs"]
mod crash_tests;
