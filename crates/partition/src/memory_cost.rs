//! Memory cost of metadata, so that the pool's capacity bounds inodes and entries too.
//!
//! The costs are the sizes of the structures in memory, rounded up. They are charged against the
//! pool's limit; they are not measurements.

use crate::{
    Partition,
    inode::{FileBody, Inode, InodeBody},
    inode_grants::FurtherSets,
};
use placement::FileId;
use wire::{
    ACL_ACCESS, ACL_DEFAULT, Command, Contents, ExtentRequest, HostFile, InheritedAttributes, Name, NewInode, NewKind,
    Part, StripeRuns,
};

/// An inode with its grants, bytes.
pub const INODE_BYTES: u64 = 384;
/// An entry without its name, bytes.
pub const ENTRY_BYTES: u64 = 96;
/// An extent file without its bytes: the size of the kernel's structures for a file in memory,
/// bytes.
pub const EXTENT_BYTES: u64 = 1280;
/// One run of stripes, bytes.
pub const RUN_BYTES: u64 = 48;
/// The rare attributes of an inode, without their contents, bytes.
pub const RARE_ATTRIBUTES_BYTES: u64 = 64;
/// An extended attribute without its name and value, bytes: space for a list slot and two shared
/// buffers.
pub const XATTR_BYTES: u64 = 192;
/// A reserved file, bytes: at least the cost of its stripes when they are to be removed.
pub const RESERVED_BYTES: u64 = 64;
/// One lock, bytes.
pub const LOCK_BYTES: u64 = 112;

const _: () = assert!(INODE_BYTES >= (size_of::<FileId>() + size_of::<Inode>() + size_of::<FurtherSets>()) as u64);

/// Returns the cost of runs of stripes.
pub fn runs(stripes: &StripeRuns) -> u64 {
    stripes.runs() as u64 * RUN_BYTES
}

/// Returns the cost of an entry of this name.
pub fn entry(name: &Name) -> u64 {
    ENTRY_BYTES + name.as_bytes().len() as u64
}

/// Returns the cost of a directory's list of fragments.
pub fn fragments(fragments: &[FileId]) -> u64 {
    size_of_val(fragments) as u64
}

/// Returns the maximum cost that a part of an intent adds.
pub fn part(part: &Part) -> u64 {
    match part {
        Part::Entry { before: None, after: Some(_), name, .. } => entry(name),
        Part::CreateDirectory { inode, inherited, .. } => new_inode(inode) + inherited_acls(inherited),
        Part::Fragment { inode, entries, .. } => {
            new_inode(inode) + acls(inode) + entries.iter().map(|listed| entry(&listed.name)).sum::<u64>()
        }
        Part::Split { fragments: ids, .. } => fragments(ids),
        Part::Xattr { name, value: Some(value), .. } => RARE_ATTRIBUTES_BYTES + xattr(name, value),
        _ => 0,
    }
}

/// Returns the cost of a host file's description.
pub fn host_file(host: &HostFile) -> u64 {
    (size_of::<HostFile>() + host.path.as_os_str().len()) as u64
}

/// Returns the cost of an extended attribute.
pub fn xattr(name: &[u8], value: &[u8]) -> u64 {
    XATTR_BYTES + name.len() as u64 + value.len() as u64
}

/// Returns the cost of the ACLs that a new inode may inherit. Each is as long as the default ACL
/// that it comes from.
pub fn inherited_acls(inherited: &InheritedAttributes) -> u64 {
    let acl = &inherited.default_acl;
    if acl.is_empty() { 0 } else { RARE_ATTRIBUTES_BYTES + xattr(ACL_ACCESS, acl) + xattr(ACL_DEFAULT, acl) }
}

/// Returns the cost of the ACLs that a new inode comes with.
fn acls(inode: &NewInode) -> u64 {
    inode
        .acls
        .as_ref()
        .map_or(0, |acls| RARE_ATTRIBUTES_BYTES + xattr(ACL_ACCESS, &acls.access) + xattr(ACL_DEFAULT, &acls.default))
}

fn new_inode(inode: &NewInode) -> u64 {
    INODE_BYTES
        + match &inode.kind {
            NewKind::Symlink(target) => target.len() as u64,
            NewKind::Bound(host) => host_file(host),
            NewKind::File | NewKind::Directory | NewKind::Node(_) => 0,
        }
}

/// Returns the cost of an object's bytes, or of their location.
fn contents_cost(contents: &Contents) -> u64 {
    match contents {
        Contents::Inline(bytes) => bytes.len() as u64,
        Contents::Striped { .. } => RUN_BYTES,
    }
}

/// Returns the cost of an extent, if one is given.
fn extent_cost(extent: ExtentRequest) -> u64 {
    if matches!(extent, ExtentRequest::Allocated(_)) { EXTENT_BYTES } else { 0 }
}

impl Partition {
    /// Returns the maximum number of bytes that a command can add to this partition. 0 for all
    /// removals: they work in a full pool too.
    ///
    /// Exact for frequent commands, so that their reservations need no correction afterwards.
    pub fn new_bytes_max(&self, command: &Command) -> u64 {
        match command {
            Command::Create { parent, name, inode, extent, .. } => {
                new_inode(inode) + entry(name) + self.inherited_cost(*parent) + extent_cost(*extent)
            }
            Command::Open { extent, .. } => extent_cost(*extent),
            Command::Demote { bytes, .. } => Self::demote_bytes_max(bytes.len() as u64),
            Command::Evacuate { stripes, .. } => 2 * runs(stripes),
            Command::Link { name, .. } => entry(name),
            Command::Prepare { parts, .. } | Command::Commit { parts, .. } => parts.iter().map(part).sum(),
            Command::Rename { from, to, .. } => entry(&to.name).saturating_sub(entry(&from.name)),
            Command::Write { file, place, length, .. } => {
                self.body(*file).map_or(0, |body| body.write_cost(*place, *length))
            }
            Command::CreateTmpfile { parent, inode, .. } => new_inode(inode) + self.inherited_cost(*parent),
            Command::SetXattr { name, value, .. } => RARE_ATTRIBUTES_BYTES + xattr(name, value),
            Command::Allocate { file, offset, length, mode } => {
                let range = *offset..offset.saturating_add(*length);
                self.body(*file).map_or(0, |body| body.allocate_cost(range, *mode))
            }
            Command::Lock { file, lock, .. } => self.lock_cost(*file, lock),
            Command::PunchDone { file, .. } => self.body(*file).map_or(0, FileBody::punch_cost),
            Command::PutObject { parent, name, attributes, contents, .. } => {
                let rare = if attributes.is_empty() { 0 } else { RARE_ATTRIBUTES_BYTES };
                let described: u64 = attributes.iter().map(|(name, value)| xattr(name, value)).sum();
                INODE_BYTES + entry(name) + self.inherited_cost(*parent) + contents_cost(contents) + rare + described
            }
            Command::Reserve { count, .. } => u64::from(*count) * RESERVED_BYTES,
            free => {
                debug_assert!(free.is_free(), "{free:?} adds bytes: weigh it");
                0
            }
        }
    }

    fn body(&self, file: FileId) -> Option<&FileBody> {
        match self.inodes.get(&file).map(|inode| &inode.body) {
            Some(InodeBody::File(body)) => Some(body),
            _ => None,
        }
    }

    /// Returns the maximum cost of attributes inherited from a directory in this partition.
    fn inherited_cost(&self, parent: FileId) -> u64 {
        let rare = self.inodes.get(&parent).is_some_and(|parent| parent.rare.is_some());
        if rare { self.inherited(parent).map_or(0, |inherited| inherited_acls(&inherited)) } else { 0 }
    }
}
