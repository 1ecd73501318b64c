//! An inode: attributes, opens, and its type-specific body.

use crate::{
    Holder,
    directory::Directory,
    inode_grants::{EditMarks, InodeGrants},
    memory_cost,
    placement_request::PlacementRequest,
    rare_attributes::RareAttributes,
};
use bytes::Bytes;
use placement::{FileId, PlacementDecision};
use serde::{Deserialize, Serialize};
use std::{ops::Range, sync::Arc};
use wire::{
    ACL_ACCESS, ACL_DEFAULT, Attributes, Extent, HostFile, INLINE_BYTES_MAX, Kind, NewInode, NewKind, Object, Outcome,
    Owner, Refusal, Session, StripeRuns, Timestamp, WritePlace,
};

/// Page size for counting the space of small files, and of the last stripe of a striped file,
/// bytes. Extents are counted in pages of this size too.
pub const PAGE_BYTES: u64 = 4096;
/// `relatime`: any read updates an atime that is older than this.
const ACCESSED_SECONDS_MAX: i64 = 24 * 3600;

/// Maximum link count of an inode, as in ext4. It is enough for any tool, and stops a loop that
/// creates links.
pub const LINKS_MAX: u32 = 65_000;

/// All of a file except its stripes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Inode {
    pub mode: u32,
    /// Number of entries that refer to it; 1 for a directory until it is removed. With 0, the inode
    /// lives until its last close.
    pub names: u32,
    pub owner: Owner,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    /// Counts changes of the bytes or entries.
    pub version: u64,
    /// Number of opens of each session. A short list.
    pub opens: Vec<(Session, u32)>,
    /// True if it has no name and may get one.
    pub linkable: bool,
    /// Rare attributes.
    pub rare: Option<Box<RareAttributes>>,
    /// Requested placement of its bytes, or of the bytes of files that are created in it.
    pub placement_request: PlacementRequest,
    /// Cache grants: the subscribers that may cache parts of it. Soft state.
    #[serde(skip)]
    pub grants: InodeGrants,
    /// Empty between edits.
    #[serde(skip)]
    pub marks: EditMarks,
    pub body: InodeBody,
}

/// The type-specific part of an inode.
#[derive(Debug, Serialize, Deserialize)]
pub enum InodeBody {
    File(FileBody),
    Directory(Directory),
    Symlink(Bytes),
    /// A fifo, socket or device.
    Node(Kind),
    Bound(Arc<HostFile>),
}

/// Bytes of a file, or their location.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileBody {
    pub size: u64,
    /// Counts truncations and the spill: stripe writes that were planned before are refused.
    pub generation: u32,
    /// End of the ranges that appends in progress have reserved beyond `size`; 0 if there are none.
    pub reserved: u64,
    /// Placement of the stripes, which may not exist yet.
    pub placement: PlacementDecision,
    pub location: DataLocation,
}

/// Location of a file's bytes.
#[derive(Debug, Serialize, Deserialize)]
pub enum DataLocation {
    /// With the inode. Shorter than the file if it was extended by a hole.
    Inline(Vec<u8>),
    /// Still with the inode; a client is copying them to stripe 0.
    Spilling(Vec<u8>),
    /// In stripes. Boxed, so that small files do not pay for the space.
    Striped(Box<Striped>),
    /// In one extent of a node. That node knows the size too.
    Extent(Extent),
    /// Still in the extent; its node copies them to stripes, or has tried to.
    Evacuating(Box<EvacuatingExtent>),
}

/// State of an extent file that has stripes too. The bytes of the extent count.
#[derive(Debug, Serialize, Deserialize)]
pub struct EvacuatingExtent {
    pub extent: Extent,
    /// All stripes that may exist, of this copy and of earlier ones. The copy ends only if the
    /// file's generation is still the one that it began with.
    pub stripes: StripeRuns,
}

/// State of a file in stripes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Striped {
    /// All stripes that may exist, published or not.
    pub stripes: StripeRuns,
    /// End of the bytes that may have been written, published or not.
    pub planned: u64,
    /// Length of a truncation that is not yet applied to the stripes. The file size is at most
    /// this.
    pub truncation: Option<u64>,
    /// Stripes that were cut to nothing and not written since.
    pub holes: StripeRuns,
    /// Stripes without bytes that are being extended, or stripes that are being cut to nothing.
    /// Emptied as soon as a write to one of them is planned.
    pub cutting: Range<u64>,
    /// End of the space that was preallocated; 0 if none was.
    pub kept: u64,
}

impl DataLocation {
    /// Creates a place without stripes.
    pub fn striped() -> Self {
        Self::Striped(Box::default())
    }
}

impl Default for DataLocation {
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

impl Inode {
    /// Creates an inode with one name. A file needs the placement of its stripes.
    pub fn new(new: NewInode, parent: FileId, placement: Option<PlacementDecision>, now: Timestamp) -> Self {
        let placement_request = PlacementRequest::inherited(new.placing());
        let body = match new.kind {
            NewKind::File => InodeBody::File(FileBody::new(placement.expect("a file has a placement"))),
            NewKind::Directory => InodeBody::Directory(Directory::new(parent)),
            NewKind::Symlink(target) => InodeBody::Symlink(target),
            NewKind::Node(kind) => InodeBody::Node(kind),
            NewKind::Bound(host) => InodeBody::Bound(Arc::from(host)),
        };
        let modified = if let InodeBody::Bound(host) = &body { host.modified } else { now };
        let (mode, owner, names, opens) = (new.mode.bits & 0o7777, new.owner, 1, Vec::new());
        let (linkable, rare, version) = (false, None, 0);
        let (grants, marks) = (InodeGrants::default(), EditMarks::default());
        let (accessed, changed, created) = (now, now, now);
        let mut inode = Self {
            mode,
            names,
            owner,
            accessed,
            modified,
            changed,
            created,
            version,
            opens,
            linkable,
            rare,
            placement_request,
            grants,
            marks,
            body,
        };
        if let Some(acls) = new.acls {
            let given = [(ACL_ACCESS, acls.access), (ACL_DEFAULT, acls.default)];
            given.into_iter().filter(|(_, acl)| !acl.is_empty()).for_each(|(name, acl)| inode.put_xattr(name, acl));
        }
        inode
    }

    pub fn is_file(&self) -> bool {
        matches!(self.body, InodeBody::File(_))
    }

    /// Returns true if this session's kernel may cache the attributes: false for a file that
    /// another client has open. That client reads and writes an extent file directly, unseen by
    /// the node. With other files, an invalidation of the attributes would make the kernel drop an
    /// answer that tells it the file's length, and a read would end too early.
    pub fn may_cache_attributes(&self, session: Session) -> bool {
        !self.is_file() || self.opens.iter().all(|(holder, _)| holder.client() == session.client())
    }

    /// Returns mode and owner, which decide about access.
    pub fn access(&self) -> (u32, Owner) {
        (self.mode, self.owner)
    }

    pub fn kind(&self) -> Kind {
        match &self.body {
            InodeBody::File(_) | InodeBody::Bound(_) => Kind::File,
            InodeBody::Directory(_) => Kind::Directory,
            InodeBody::Symlink(_) => Kind::Symlink,
            InodeBody::Node(kind) => *kind,
        }
    }

    pub fn attributes(&self, file: FileId) -> Attributes {
        let (size, allocated) = self.lengths();
        Attributes {
            file,
            kind: self.kind(),
            size,
            allocated,
            mode: self.mode,
            links: self.links(),
            owner: self.owner,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            created: self.created,
            version: self.version,
            extent: self.extent(),
            cacheable: false,
        }
    }

    /// Returns file size and used space, bytes.
    fn lengths(&self) -> (u64, u64) {
        match &self.body {
            InodeBody::File(body) => (body.size, body.allocated()),
            InodeBody::Directory(directory) => (directory.len() as u64, 0),
            InodeBody::Symlink(target) => (target.len() as u64, 0),
            InodeBody::Node(_) => (0, 0),
            InodeBody::Bound(host) => (host.size, 0),
        }
    }

    fn links(&self) -> u32 {
        match &self.body {
            InodeBody::Directory(directory) if self.names > 0 => 2 + directory.subdirectories(),
            _ => self.names,
        }
    }

    pub fn directory(&self, file: FileId) -> Outcome<&Directory> {
        match &self.body {
            InodeBody::Directory(directory) => Ok(directory),
            _ => Err(Refusal::NotDirectory(Object::File(file))),
        }
    }

    pub fn directory_mut(&mut self, file: FileId) -> Outcome<&mut Directory> {
        match &mut self.body {
            InodeBody::Directory(directory) => Ok(directory),
            _ => Err(Refusal::NotDirectory(Object::File(file))),
        }
    }

    /// Returns the bytes of a regular file for a change.
    pub fn file_mut(&mut self, file: FileId) -> Outcome<&mut FileBody> {
        let object = Object::File(file);
        match &mut self.body {
            InodeBody::File(body) => Ok(body),
            InodeBody::Directory(_) => Err(Refusal::IsDirectory(object)),
            InodeBody::Bound(_) => Err(Refusal::ReadOnly(object)),
            InodeBody::Symlink(_) | InodeBody::Node(_) => Err(Refusal::invalid(object, "it has no bytes")),
        }
    }

    /// Records a change of the bytes or entries.
    pub fn touch(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
        self.version += 1;
        self.marks.touched = true;
    }

    /// Records a read: updates the atime as `relatime` does, only if it is a day old or not newer
    /// than the last change. Returns true if it did.
    pub fn read_at(&mut self, now: Timestamp) -> bool {
        let old = now.secs.saturating_sub(self.accessed.secs) > ACCESSED_SECONDS_MAX;
        let moved = old || self.accessed <= self.modified || self.accessed <= self.changed;
        if moved {
            self.accessed = now;
        }
        moved
    }

    /// Returns the memory cost of the inode, bytes.
    pub fn memory_cost(&self) -> u64 {
        memory_cost::INODE_BYTES
            + self.rare.as_ref().map_or(0, |rare| rare.memory_cost())
            + match &self.body {
                InodeBody::File(body) => body.memory_cost(),
                InodeBody::Directory(directory) => directory.memory_cost(),
                InodeBody::Symlink(target) => target.len() as u64,
                InodeBody::Node(_) => 0,
                InodeBody::Bound(host) => memory_cost::host_file(host),
            }
    }

    pub fn add_open(&mut self, session: Session) {
        match self.opens.iter_mut().find(|(holder, _)| *holder == session) {
            Some((_, count)) => *count += 1,
            None => self.opens.push((session, 1)),
        }
    }

    /// Ends one open; returns false if the session has none.
    pub fn remove_open(&mut self, session: Session) -> bool {
        let Some(at) = self.opens.iter().position(|(holder, _)| *holder == session) else { return false };
        self.opens[at].1 -= 1;
        if self.opens[at].1 == 0 {
            self.opens.swap_remove(at);
        }
        true
    }

    /// Returns the directory of a fragment; for any other inode, itself.
    pub fn directory_of(&self, file: FileId) -> FileId {
        match &self.body {
            InodeBody::Directory(entries) => entries.of.unwrap_or(file),
            _ => file,
        }
    }

    /// Returns true if the session has it open or locked.
    pub fn is_held_by(&self, session: Session) -> bool {
        self.is_locked_by(session) || self.opens.iter().any(|(holder, _)| *holder == session)
    }

    /// Returns the holder of each lock on it.
    pub fn lock_holders(&self) -> impl Iterator<Item = Holder> {
        self.rare.iter().flat_map(|rare| rare.locks.holders())
    }

    /// Ends all opens and locks of a session that has ended.
    pub fn release_session(&mut self, session: Session) {
        self.opens.retain(|(holder, _)| *holder != session);
        self.unlock_session(session);
    }

    /// Returns true if it has no name and no open.
    pub fn is_unused(&self) -> bool {
        self.names == 0 && self.opens.is_empty()
    }
}

impl FileBody {
    /// Creates an empty file.
    pub fn new(placement: PlacementDecision) -> Self {
        Self { size: 0, generation: 0, reserved: 0, placement, location: DataLocation::default() }
    }

    /// Returns the length of a stripe, bytes.
    pub fn stripe_bytes(&self) -> u64 {
        self.placement.layout.stripe_bytes().into()
    }

    fn allocated(&self) -> u64 {
        match &self.location {
            DataLocation::Inline(bytes) | DataLocation::Spilling(bytes) => {
                (bytes.len() as u64).next_multiple_of(PAGE_BYTES)
            }
            DataLocation::Striped(striped) => striped.allocated(self.size, self.stripe_bytes()),
            DataLocation::Extent(_) | DataLocation::Evacuating(_) => 0,
        }
    }

    fn memory_cost(&self) -> u64 {
        match &self.location {
            DataLocation::Inline(bytes) => bytes.len() as u64,
            DataLocation::Spilling(bytes) => bytes.len() as u64 + 2 * memory_cost::RUN_BYTES,
            DataLocation::Striped(striped) => striped.memory_cost(),
            DataLocation::Extent(_) => memory_cost::EXTENT_BYTES,
            DataLocation::Evacuating(copied) => memory_cost::EXTENT_BYTES + 2 * memory_cost::runs(&copied.stripes),
        }
    }

    /// Returns the maximum memory cost that a write adds.
    pub fn write_cost(&self, place: WritePlace, length: u32) -> u64 {
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End => self.append_offset(),
        };
        let end = offset.saturating_add(length.into());
        match &self.location {
            DataLocation::Inline(bytes) if end <= INLINE_BYTES_MAX.into() => end.saturating_sub(bytes.len() as u64),
            DataLocation::Inline(_) => 2 * memory_cost::RUN_BYTES,
            DataLocation::Spilling(_) | DataLocation::Extent(_) | DataLocation::Evacuating(_) => 0,
            DataLocation::Striped(striped) => {
                let stripe_bytes = self.stripe_bytes();
                let (first, end) = (offset / stripe_bytes, end.div_ceil(stripe_bytes));
                striped.plan_cost(first..end)
            }
        }
    }

    /// Returns the offset of the next append.
    pub fn append_offset(&self) -> u64 {
        self.size.max(self.reserved)
    }

    /// Returns true if the stripe may exist in an engine.
    pub fn expects(&self, stripe: u64) -> bool {
        match &self.location {
            DataLocation::Inline(_) | DataLocation::Extent(_) => false,
            DataLocation::Spilling(_) => stripe == 0,
            DataLocation::Striped(striped) => striped.stripes.contains(stripe),
            DataLocation::Evacuating(copied) => copied.stripes.contains(stripe),
        }
    }

    /// Returns those of these stripes that may not exist in an engine.
    pub fn unowned_stripes(&self, stripes: &StripeRuns) -> StripeRuns {
        match &self.location {
            DataLocation::Inline(_) | DataLocation::Extent(_) => stripes.clone(),
            DataLocation::Spilling(_) => stripes.without(&first_stripe()),
            DataLocation::Striped(striped) => stripes.without(&striped.stripes),
            DataLocation::Evacuating(copied) => stripes.without(&copied.stripes),
        }
    }

    /// Takes all stripes that may exist in an engine.
    pub fn stripes(&mut self) -> StripeRuns {
        match &mut self.location {
            DataLocation::Inline(_) | DataLocation::Extent(_) => StripeRuns::new(),
            DataLocation::Spilling(_) => first_stripe(),
            DataLocation::Striped(striped) => std::mem::take(&mut striped.stripes),
            DataLocation::Evacuating(copied) => std::mem::take(&mut copied.stripes),
        }
    }
}

/// Returns stripe 0, which takes the inline bytes in a spill.
pub fn first_stripe() -> StripeRuns {
    let mut stripes = StripeRuns::new();
    stripes.insert(0, 1);
    stripes
}
