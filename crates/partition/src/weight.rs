//! What metadata counts for in the pool, so that its capacity bounds inodes and entries too.
//!
//! The amounts are those of the structures in memory, rounded up; they are promises to the pool's limit, not measurements.

use crate::{Partition, inode::Body};
use placement::FileId;
use wire::{Command, HostFile, NewInode, NewKind, StripeRuns};

/// An inode, bytes.
pub const INODE_BYTES: u64 = 384;
/// An entry besides its name, bytes.
pub const ENTRY_BYTES: u64 = 96;
/// One run of stripes, bytes.
pub const RUN_BYTES: u64 = 48;

const _: () = assert!(INODE_BYTES >= (size_of::<FileId>() + size_of::<crate::inode::Inode>()) as u64);

/// Runs of stripes.
pub fn runs(stripes: &StripeRuns) -> u64 {
    stripes.runs() as u64 * RUN_BYTES
}

/// An entry of this name.
pub fn entry(name: &wire::Name) -> u64 {
    ENTRY_BYTES + name.as_bytes().len() as u64
}

/// What is kept of a host file.
pub fn host_file(host: &HostFile) -> u64 {
    (size_of::<HostFile>() + host.path.as_os_str().len()) as u64
}

fn new_inode(inode: &NewInode) -> u64 {
    INODE_BYTES
        + match &inode.kind {
            NewKind::Symlink(target) => target.len() as u64,
            NewKind::Bound(host) => host_file(host),
            NewKind::File | NewKind::Directory | NewKind::Node(_) => 0,
        }
}

impl Partition {
    /// The most bytes that a command can add to this partition. 0 for all that removes: it works in a full pool too.
    ///
    /// For what is done often it is exact, so that what was reserved need not be given back.
    pub fn new_bytes_max(&self, command: &Command) -> u64 {
        match command {
            Command::Create { name, inode, .. } => new_inode(inode) + entry(name),
            Command::MakeDirectory { inode, .. } => new_inode(inode),
            Command::Enter { name, .. } => entry(name),
            Command::MoveIn { to, .. } => entry(&to.name),
            Command::Rename { from, to, .. } => entry(&to.name).saturating_sub(entry(&from.name)),
            Command::Write { file, place, length, .. } => match self.inodes.get(file).map(|inode| &inode.body) {
                Some(Body::File(body)) => body.write_weight(*place, *length, self.stripe_bytes()),
                _ => 0,
            },
            _ => 0,
        }
    }
}
