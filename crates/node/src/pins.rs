//! Pins: what a host has at its node, because of which the node is needed whatever it serves.
//!
//! A node that is drained lives until its last pin is gone, or until somebody ends them all
//! ([`Node::end_pins`]).

use crate::{
    Node,
    connected_clients::ExtentProcesses,
    extents::ExtentSlots,
    host_processes::{InodeNumbers, process_name, processes_with},
    open_leases::LeasedFile,
};
use partition::HostedBytes;
use placement::FileId;
use rustix::fs::fstat;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use store::Slot;
use wire::{Extent, LockOwner, Session};

/// Most pins that are listed.
const LISTED_MAX: usize = 1000;

/// What is at a node because of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinList {
    /// The pins: the first thousand.
    pub pins: Vec<NodePin>,
    /// Number of those that are not listed.
    pub more: u64,
}

impl PinList {
    /// True if the node is needed because of one of these.
    pub fn is_holding(&self) -> bool {
        self.pins.iter().any(|pin| pin.holds)
    }
}

/// Something of a host that is at its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePin {
    /// What it is.
    pub kind: PinKind,
    /// The file; none for a mount.
    pub file: Option<FileId>,
    /// True if the node is needed because of it now. What is false would move away with its
    /// partition, or ends nothing.
    pub holds: bool,
    /// Bytes that are nowhere else.
    pub bytes: u64,
    /// The processes that have it, as far as this host tells.
    pub processes: Vec<PinProcess>,
}

/// The kinds of pins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PinKind {
    /// A mount: a client whose kernel caches. It can do without any one node.
    Mount,
    /// A program has a descriptor of a file.
    Open,
    /// A process has locks on a file.
    Lock,
    /// The bytes of a file are in the node's memory, where kernels and programs use them directly.
    Extent {
        /// True if somebody has it open or mapped.
        in_use: bool,
    },
    /// A file of the host that was bound.
    Bound {
        /// Its path.
        path: String,
    },
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PinProcess {
    /// Process id at its host.
    pub id: u32,
    /// Name of its program; empty if it is not known.
    pub program: String,
}

/// A pin whose processes are not looked for yet.
struct FoundPin {
    kind: PinKind,
    file: Option<FileId>,
    holds: bool,
    bytes: u64,
    /// Processes that are known to have it.
    known: BTreeSet<u32>,
    /// The file of the host that they have open or mapped.
    inode: Option<InodeNumbers>,
}

impl Node {
    /// The number of files, opens and locks of this host that need the node, whatever it serves,
    /// and of things that it has yet to tell other nodes, such as the end of a session.
    pub fn pins(&self) -> u32 {
        let locks = self.lock_queue.process_locks(self.id()).len();
        let pins = self.hosted.files() + self.hosted.undone() + self.open_leases.len() + locks;
        u32::try_from(pins).unwrap_or(u32::MAX)
    }

    /// Lists what this host has at the node. It reads all of `/proc`, so it may take a while.
    pub fn list_pins(&self) -> PinList {
        let mut found = self.hosted_pins();
        found.extend(self.lock_pins());
        found.extend(self.open_pins());
        found.extend(self.local_pins());
        found.extend(self.mount_pins());
        found.sort_by_key(|pin| !pin.holds);
        let more = found.len().saturating_sub(LISTED_MAX) as u64;
        found.truncate(LISTED_MAX);
        let by_inode = processes_with(&found.iter().filter_map(|pin| pin.inode).collect());
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        let pins = found.into_iter().map(|FoundPin { kind, file, holds, bytes, mut known, inode }| {
            if let Some(holders) = inode.and_then(|inode| by_inode.get(&inode)) {
                // A program may have got its descriptor from another one.
                if kind == PinKind::Open {
                    known.clear();
                }
                known.extend(holders);
            }
            let processes = known.into_iter().map(|id| {
                let program = names.entry(id).or_insert_with(|| process_name(id)).clone();
                PinProcess { id, program }
            });
            NodePin { kind, file, holds, bytes, processes: processes.collect() }
        });
        PinList { pins: pins.collect(), more }
    }

    /// Ends all pins: the opens of programs are closed, their locks are released, and the bytes of
    /// files that are nowhere else are given up. Nothing is told to the programs.
    pub fn end_pins(&self) {
        for (lease, _) in self.open_leases.leased_files() {
            self.end_lease_anyway(lease);
        }
        for (process, file) in self.lock_queue.process_locks(self.id()) {
            self.unlock(LockOwner::Process { node: self.id(), process }, file);
        }
        for (file, _) in self.hosted.all() {
            self.end_hosting(file);
        }
    }

    /// Files whose inodes are at other nodes.
    fn hosted_pins(&self) -> Vec<FoundPin> {
        let leases = self.clients.extent_processes();
        self.hosted.all().into_iter().map(|(file, bytes)| self.pin_of(file, bytes, &leases)).collect()
    }

    /// Files that are in use here, and whose inodes are here too.
    fn local_pins(&self) -> Vec<FoundPin> {
        let (mut found, leases) = (Vec::new(), self.clients.extent_processes());
        for partition in self.partitions.locked() {
            let files: Vec<_> = partition.hosted_files(self.id()).collect();
            drop(partition);
            let pins =
                files.into_iter().map(|(file, bytes)| FoundPin { holds: false, ..self.pin_of(file, bytes, &leases) });
            found.extend(pins.filter(|pin| pin.kind != PinKind::Extent { in_use: false }));
        }
        found
    }

    fn pin_of(&self, file: FileId, bytes: HostedBytes, leases: &ExtentProcesses) -> FoundPin {
        let (holds, file) = (true, Some(file));
        let extent = match bytes {
            HostedBytes::Extent(extent) => extent,
            HostedBytes::Bound(host) => {
                let kind = PinKind::Bound { path: host.path.display().to_string() };
                return FoundPin { kind, file, holds, bytes: 0, known: BTreeSet::new(), inode: None };
            }
        };
        let in_use = self.extents.is_used(extent);
        let bytes = self.extents.engine().state(Slot(extent.slot)).map_or(0, |state| state.length);
        let known = leases.get(&(extent.slot, extent.generation)).cloned().unwrap_or_default();
        let inode = if in_use { inode_of(&self.extents, extent) } else { None };
        FoundPin { kind: PinKind::Extent { in_use }, file, holds, bytes, known, inode }
    }

    fn open_pins(&self) -> Vec<FoundPin> {
        let sessions = self.clients.session_processes();
        let opens = self.open_leases.leased_files().into_iter();
        let pin = |LeasedFile { file, session, inode }| FoundPin {
            kind: PinKind::Open,
            file: Some(file),
            holds: true,
            bytes: 0,
            known: sessions.get(&session).copied().into_iter().collect(),
            inode: Some(inode),
        };
        opens.map(|(_, open)| pin(open)).collect()
    }

    fn lock_pins(&self) -> Vec<FoundPin> {
        let locks = self.lock_queue.process_locks(self.id()).into_iter();
        let pin = |(process, file)| FoundPin {
            kind: PinKind::Lock,
            file: Some(file),
            holds: true,
            bytes: 0,
            known: [process].into(),
            inode: None,
        };
        locks.map(pin).collect()
    }

    fn mount_pins(&self) -> Vec<FoundPin> {
        let sessions = self.clients.session_processes();
        let mounts = self.subscribers.sessions().into_iter();
        let pin = |(_, session): (_, Session)| FoundPin {
            kind: PinKind::Mount,
            file: None,
            holds: false,
            bytes: 0,
            known: sessions.get(&session).copied().into_iter().collect(),
            inode: None,
        };
        mounts.map(pin).collect()
    }
}

fn inode_of(extents: &ExtentSlots, extent: Extent) -> Option<InodeNumbers> {
    let found = fstat(extents.fd(extent)?).ok()?;
    Some((found.st_dev, found.st_ino))
}
