//! An inode: attributes, who holds it open, and what it is.

use crate::{directory::Directory, extra::Extra, grants::Granted, placing::Asked, weight};
use bytes::Bytes;
use placement::{FileId, Placed};
use serde::{Deserialize, Serialize};
use std::{ops::Range, sync::Arc};
use wire::{
    ACL_ACCESS, ACL_DEFAULT, Attributes, Extent, HostFile, INLINE_BYTES_MAX, Kind, NewInode, NewKind, Object, Outcome,
    Owner, Refusal, Session, StripeRuns, Timestamp, WritePlace,
};

/// Bytes of a small file and of the tail of a striped one are counted in pages of this length, as those of an extent are.
pub const PAGE_BYTES: u64 = 4096;
/// `relatime`: a last read older than this is moved by any read.
const ACCESSED_SECONDS_MAX: i64 = 24 * 3600;

/// The most names of an inode, as with ext4: enough for any tool, and a loop that only links is stopped.
pub const LINKS_MAX: u32 = 65_000;

/// Everything about a file but its striped bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Inode {
    pub mode: u32,
    /// Entries that refer to it; a directory's is 1 until it is removed. 0: it lives until its last close.
    pub names: u32,
    pub owner: Owner,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    /// Counts changes of the bytes or entries.
    pub version: u64,
    /// How often each session has it open. Few.
    pub opens: Vec<(Session, u32)>,
    /// Without a name, and may get one.
    pub linkable: bool,
    /// What few have.
    pub extra: Option<Box<Extra>>,
    /// Where its bytes, or those of what is made in it, are to lie.
    pub asked: Asked,
    /// Who may keep what of it.
    pub granted: Granted,
    pub body: Body,
}

/// What an inode is.
#[derive(Debug, Serialize, Deserialize)]
pub enum Body {
    File(FileBody),
    Directory(Directory),
    Symlink(Bytes),
    /// Fifo, socket, device.
    Node(Kind),
    Bound(Arc<HostFile>),
}

/// Bytes of a file, or where they are.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileBody {
    pub size: u64,
    /// Counts truncations and the spill: stripe writes that were planned before are refused.
    pub generation: u32,
    /// Where the next append goes, when appends are under way beyond `size`.
    pub reserved: u64,
    /// Where stripes are, or would be.
    pub placed: Placed,
    pub place: Place,
}

/// Where the bytes are.
#[derive(Debug, Serialize, Deserialize)]
pub enum Place {
    /// Here. Shorter than the size where the file was extended by a hole.
    Inline(Vec<u8>),
    /// Still here, and being copied to stripe 0.
    Spilling(Vec<u8>),
    /// Apart, so that the many small files do not carry its room.
    Striped(Box<Striped>),
    /// All of them in one extent of a node, which knows the size too.
    Whole(Extent),
}

/// Bytes in stripes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Striped {
    /// All that may exist, published or not.
    pub stripes: StripeRuns,
    /// The end of what may have been written, published or not.
    pub planned: u64,
    /// A truncation to this length that is not yet done to the stripes. The size is at most this.
    pub trim: Option<u64>,
    /// Stripes that were cut to nothing and not written since.
    pub holes: StripeRuns,
    /// Stripes that had no bytes and are being extended, or are being cut to nothing; empty as soon as one of them may be written.
    pub cutting: Range<u64>,
    /// The end of the space that was taken beforehand; 0 when none was.
    pub kept: u64,
}

impl Place {
    /// Stripes, none yet.
    pub fn striped() -> Self {
        Self::Striped(Box::default())
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

impl Inode {
    /// A new one, with one name. A file is told where its stripes would be.
    pub fn new(new: NewInode, parent: FileId, placed: Option<Placed>, now: Timestamp) -> Self {
        let asked = Asked::handed_down(new.placing());
        let body = match new.kind {
            NewKind::File => Body::File(FileBody::new(placed.expect("a file is told where its stripes would be"))),
            NewKind::Directory => Body::Directory(Directory::new(parent)),
            NewKind::Symlink(target) => Body::Symlink(target),
            NewKind::Node(kind) => Body::Node(kind),
            NewKind::Bound(host) => Body::Bound(Arc::from(host)),
        };
        let modified = if let Body::Bound(host) = &body { host.modified } else { now };
        let (mode, owner, names, opens) = (new.mode.bits & 0o7777, new.owner, 1, Vec::new());
        let (linkable, extra, granted, version) = (false, None, Granted::default(), 0);
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
            extra,
            asked,
            granted,
            body,
        };
        if let Some(acls) = new.acls {
            let both = [(ACL_ACCESS, acls.access), (ACL_DEFAULT, acls.default)];
            both.into_iter().filter(|(_, acl)| !acl.is_empty()).for_each(|(name, acl)| inode.put_xattr(name, acl));
        }
        inode
    }

    pub fn is_file(&self) -> bool {
        matches!(self.body, Body::File(_))
    }

    /// Whether the kernel of this session may keep its attributes: not those of a file that another session has open. A whole file is read
    /// and written past its node by whoever has it open. Of any other, a recall of attributes would make that kernel drop an answer
    /// that tells it how long the file is, and a read would end too early.
    pub fn attributes_last(&self, session: Session) -> bool {
        !self.is_file() || self.opens.iter().all(|(holder, _)| *holder == session)
    }

    /// What decides who may do what with it.
    pub fn access(&self) -> (u32, Owner) {
        (self.mode, self.owner)
    }

    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) | Body::Bound(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Node(kind) => *kind,
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
            whole: self.extent(),
            lasting: false,
        }
    }

    /// Size and bytes held.
    fn lengths(&self) -> (u64, u64) {
        match &self.body {
            Body::File(body) => (body.size, body.allocated()),
            Body::Directory(directory) => (directory.len() as u64, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Node(_) => (0, 0),
            Body::Bound(host) => (host.size, 0),
        }
    }

    fn links(&self) -> u32 {
        match &self.body {
            Body::Directory(directory) if self.names > 0 => 2 + directory.subdirectories(),
            _ => self.names,
        }
    }

    pub fn directory(&self, file: FileId) -> Outcome<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Refusal::NotDirectory(Object::File(file))),
        }
    }

    pub fn directory_mut(&mut self, file: FileId) -> Outcome<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Refusal::NotDirectory(Object::File(file))),
        }
    }

    /// The bytes of an ordinary file that may be changed.
    pub fn file_mut(&mut self, file: FileId) -> Outcome<&mut FileBody> {
        let object = Object::File(file);
        match &mut self.body {
            Body::File(body) => Ok(body),
            Body::Directory(_) => Err(Refusal::IsDirectory(object)),
            Body::Bound(_) => Err(Refusal::ReadOnly(object)),
            Body::Symlink(_) | Body::Node(_) => Err(Refusal::invalid(object, "it has no bytes")),
        }
    }

    /// Its bytes or entries have changed.
    pub fn touch(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
        self.version += 1;
        self.granted.touch();
    }

    /// It was read: moves the time as `relatime` does, only when it is not newer than the last change, or a day old.
    /// Says whether it did.
    pub fn read_at(&mut self, now: Timestamp) -> bool {
        let old = now.secs.saturating_sub(self.accessed.secs) > ACCESSED_SECONDS_MAX;
        let moved = old || self.accessed <= self.modified || self.accessed <= self.changed;
        if moved {
            self.accessed = now;
        }
        moved
    }

    /// Bytes that it counts for in the pool.
    pub fn weight(&self) -> u64 {
        weight::INODE_BYTES
            + self.extra.as_ref().map_or(0, |extra| extra.weight())
            + match &self.body {
                Body::File(body) => body.weight(),
                Body::Directory(directory) => directory.weight(),
                Body::Symlink(target) => target.len() as u64,
                Body::Node(_) => 0,
                Body::Bound(host) => weight::host_file(host),
            }
    }

    pub fn opened(&mut self, session: Session) {
        match self.opens.iter_mut().find(|(holder, _)| *holder == session) {
            Some((_, count)) => *count += 1,
            None => self.opens.push((session, 1)),
        }
    }

    /// Ends one open; false when the session had none.
    pub fn closed(&mut self, session: Session) -> bool {
        let Some(at) = self.opens.iter().position(|(holder, _)| *holder == session) else { return false };
        self.opens[at].1 -= 1;
        if self.opens[at].1 == 0 {
            self.opens.swap_remove(at);
        }
        true
    }

    /// The directory whose entries are here: itself, or of a fragment its directory.
    pub fn directory_of(&self, file: FileId) -> FileId {
        match &self.body {
            Body::Directory(entries) => entries.of.unwrap_or(file),
            _ => file,
        }
    }

    /// Whether the session has it open.
    pub fn is_held_by(&self, session: Session) -> bool {
        self.is_locked_by(session) || self.opens.iter().any(|(holder, _)| *holder == session)
    }

    /// The session is no more.
    pub fn released_by(&mut self, session: Session) {
        self.opens.retain(|(holder, _)| *holder != session);
        self.unlocked_by(session);
    }

    /// Whether nothing refers to it any more.
    pub fn is_unused(&self) -> bool {
        self.names == 0 && self.opens.is_empty()
    }
}

impl FileBody {
    /// An empty one.
    pub fn new(placed: Placed) -> Self {
        Self { size: 0, generation: 0, reserved: 0, placed, place: Place::default() }
    }

    /// The length of a stripe, bytes.
    pub fn stripe_bytes(&self) -> u64 {
        self.placed.layout.stripe_bytes().into()
    }

    fn allocated(&self) -> u64 {
        match &self.place {
            Place::Inline(bytes) | Place::Spilling(bytes) => (bytes.len() as u64).next_multiple_of(PAGE_BYTES),
            Place::Striped(striped) => striped.allocated(self.size, self.stripe_bytes()),
            Place::Whole(_) => 0,
        }
    }

    fn weight(&self) -> u64 {
        match &self.place {
            Place::Inline(bytes) => bytes.len() as u64,
            Place::Spilling(bytes) => bytes.len() as u64 + 2 * weight::RUN_BYTES,
            Place::Striped(striped) => striped.weight(),
            Place::Whole(_) => weight::EXTENT_BYTES,
        }
    }

    /// What a write will add to the weight, at most.
    pub fn write_weight(&self, place: WritePlace, length: u32) -> u64 {
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End => self.append_offset(),
        };
        let end = offset.saturating_add(length.into());
        match &self.place {
            Place::Inline(bytes) if end <= INLINE_BYTES_MAX.into() => end.saturating_sub(bytes.len() as u64),
            Place::Inline(_) => 2 * weight::RUN_BYTES,
            Place::Spilling(_) | Place::Whole(_) => 0,
            Place::Striped(striped) => {
                let stripe_bytes = self.stripe_bytes();
                let (first, end) = (offset / stripe_bytes, end.div_ceil(stripe_bytes));
                striped.plan_weight(first..end)
            }
        }
    }

    /// Where the next append goes.
    pub fn append_offset(&self) -> u64 {
        self.size.max(self.reserved)
    }

    /// Whether a stripe may exist in an engine.
    pub fn expects(&self, stripe: u64) -> bool {
        match &self.place {
            Place::Inline(_) | Place::Whole(_) => false,
            Place::Spilling(_) => stripe == 0,
            Place::Striped(striped) => striped.stripes.contains(stripe),
        }
    }

    /// Those of these stripes that may not exist in an engine.
    pub fn unplanned(&self, stripes: &StripeRuns) -> StripeRuns {
        match &self.place {
            Place::Inline(_) | Place::Whole(_) => stripes.clone(),
            Place::Spilling(_) => stripes.without(&first_stripe()),
            Place::Striped(striped) => stripes.without(&striped.stripes),
        }
    }

    /// What may exist in an engine.
    pub fn stripes(&mut self) -> StripeRuns {
        match &mut self.place {
            Place::Inline(_) | Place::Whole(_) => StripeRuns::new(),
            Place::Spilling(_) => first_stripe(),
            Place::Striped(striped) => std::mem::take(&mut striped.stripes),
        }
    }
}

/// Where a head is spilled to.
pub fn first_stripe() -> StripeRuns {
    let mut stripes = StripeRuns::new();
    stripes.insert(0, 1);
    stripes
}
