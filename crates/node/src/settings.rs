//! Settings of a node.

use crate::EntryLog;
use base::ByteSize;
use std::{sync::Arc, time::Duration};
use wire::Owner;

/// Settings that a node is started with.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Capacity of the node's memory. The engine is made with it and enforces it; here it is for
    /// information.
    pub memory: ByteSize,
    /// Number of partitions of the pool, fixed for its life: a power of two.
    pub partitions: u32,
    /// Length of a stripe, bytes: a power of two, and that of the engine.
    pub stripe_bytes: u32,
    /// Longest time that a request waits for space in a full pool before it is refused. `app` sets
    /// it from `TIDEMILL_SPACE_WAIT`; the default here is for tests and examples.
    pub space_wait: Duration,
    /// Seed of all hashes.
    pub seed: u64,
    /// Owner of the root directory.
    pub owner: Owner,
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// A directory with more entries than this is split over partitions.
    pub split_entries: u32,
    /// Number of small extent files that keep their extents after they were closed; beyond it the
    /// one closed first is demoted.
    pub closed_extents_max: usize,
    /// Gets the entries that change partitions, if anything follows them.
    pub entry_log: Option<Arc<dyn EntryLog>>,
}

impl NodeSettings {
    /// A pool of `memory`, and defaults for the rest.
    pub fn new(memory: ByteSize) -> Self {
        Self { memory, ..Self::default() }
    }
}

impl Default for NodeSettings {
    fn default() -> Self {
        let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        Self {
            memory: ByteSize::mib(64),
            partitions: 4096,
            stripe_bytes: 1 << 20,
            space_wait: Duration::from_secs(10),
            seed: 0x7469_6465_6d69_6c6c,
            owner,
            root_mode: 0o755,
            split_entries: partition::SPLIT_ENTRIES,
            // Enough for the files that a few programs are busy with: 1 MiB at most in all.
            closed_extents_max: 256,
            entry_log: None,
        }
    }
}
