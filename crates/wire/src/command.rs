//! What a partition is asked to do: one list of all commands. Names of answers stand behind the arrows.

use crate::{
    Acls, AllocateMode, Changes, Condition, Contents, Extent, HostFile, Intent, Kind, Lock, Mode, Name,
    ObjectAttributes, OpenFlags, Owner, Part, RenameFrom, RenameMode, RenameTo, SeekTo, Session, StripeRuns, Times,
    Wish, XattrMode,
};
use bytes::Bytes;
use placement::{FileId, Layout, PartitionId, Placing, Policy};
use serde::{Deserialize, Serialize};

/// Files up to this length live with their inode, bytes.
pub const INLINE_BYTES_MAX: u32 = 4096;
/// The longest file, bytes: what a signed 64-bit offset can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();
/// The most entries that one listing gives.
pub const LIST_ENTRIES_MAX: u32 = 4096;

/// The most files that are reserved at once.
pub const RESERVED_MAX: u32 = 256;

/// What a new inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewKind {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A link to this path.
    Symlink(Bytes),
    /// A fifo, a socket or a device.
    Node(Kind),
    /// The bytes of a host file.
    Bound(Box<HostFile>),
}

/// A new inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInode {
    /// What it is.
    pub kind: NewKind,
    /// Permission bits; the partition that makes it decides whether the umask counts.
    pub mode: Mode,
    /// Whose it is; the group gives way to the directory's where that has its set-group-id bit.
    pub owner: Owner,
    /// What it has inherited, filled in by the partition that makes it.
    pub acls: Option<Box<Acls>>,
    /// Where its bytes, or those of what is made in it, are to lie; the partition that makes it adds what is handed down.
    pub placing: Option<Box<Placing>>,
}

impl NewInode {
    /// One that has inherited nothing yet.
    pub fn new(kind: NewKind, mode: impl Into<Mode>, owner: Owner) -> Self {
        Self { kind, mode: mode.into(), owner, acls: None, placing: None }
    }

    /// What it says of where bytes are to lie.
    pub fn placing(&self) -> Placing {
        self.placing.as_deref().copied().unwrap_or_default()
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WritePlace {
    /// At this offset, bytes.
    At(u64),
    /// At the end; the partition says where that is, and reserves it.
    End,
}

/// What a partition is asked to do. Those of the second half change something and carry a `Stamp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The entry, and its attributes when the inode is here. -> `Found`
    Lookup {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// -> `Attributes`
    Stat {
        /// The file.
        file: FileId,
    },
    /// Entries behind a cookie, in the order of cookies. -> `Entries`
    List {
        /// The directory.
        directory: FileId,
        /// 0, or the last cookie.
        after: u64,
        /// At most so many.
        max: u32,
    },
    /// -> `Target`
    ReadLink {
        /// The link.
        file: FileId,
    },
    /// The directory that a directory stands in. -> `Parent`
    Parent {
        /// The directory.
        directory: FileId,
    },
    /// Whether the name is free in the directory, and what new inodes inherit. -> `Heritage`
    Probe {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Bytes, or where they are; clipped to the size. Moves the time of the last read. -> `Content`
    Read {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// What crashed clients have left unfinished. -> `Leftovers`
    Leftovers,
    // Of one inode: asked.
    /// The value of an extended attribute. -> `Xattr`
    Xattr {
        /// The file.
        file: FileId,
        /// Of the attribute, with its namespace.
        name: Bytes,
    },
    /// The names of all extended attributes. -> `Xattrs`
    Xattrs {
        /// The file.
        file: FileId,
    },
    /// A lock that stands in the way of this one, if any. -> `Conflict`
    TestLock {
        /// The file.
        file: FileId,
        /// Who asks.
        session: Session,
        /// What would be set.
        lock: Lock,
    },
    /// Where data or a hole begins. -> `Offset`
    Seek {
        /// The file.
        file: FileId,
        /// From here on.
        offset: u64,
        /// What is looked for.
        to: SeekTo,
    },
    /// The kernel of the session that asks knows the inode no more; says the same however often it is sent. -> `Removed`
    Forgotten {
        /// The file.
        file: FileId,
    },
    /// What became of an intent, at its coordinator. -> `Decided`
    Status {
        /// Which.
        intent: Intent,
    },
    /// Where the entries of a directory are, and what it hands down. -> `Fragments`
    Fragments {
        /// The directory.
        directory: FileId,
    },
    // Of objects: asked.
    /// The object of this name, with the bytes of a range, or where they are. -> `Object`, or `Found` when its inode is elsewhere
    GetObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// Where.
        offset: u64,
        /// How many; 0 asks for what is known besides.
        length: u32,
    },
    /// The same, by the file. -> `Object`
    GetFile {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Entries in the order of their names, a directory's with a `/` behind it. -> `Entries`
    ListNames {
        /// The directory.
        directory: FileId,
        /// Names, as they are ordered, that begin with this.
        prefix: Bytes,
        /// And are not before this.
        from: Bytes,
        /// At most so many.
        max: u32,
    },
    /// Which of these stripes neither the file has nor anybody has reserved: what was written of them belongs to nothing. -> `Unplanned`
    Unplanned {
        /// The file, which need not be there.
        file: FileId,
        /// Which are asked about.
        stripes: StripeRuns,
    },
    /// Where the bytes of a file lie, or of what is made in a directory. -> `Placement`
    Placement {
        /// The file or directory.
        file: FileId,
    },

    /// A new inode and its entry. -> `Opened`
    Create {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// What is made.
        inode: NewInode,
        /// Whether the client holds it open at once.
        open: bool,
        /// Whether a file shall be whole.
        whole: Wish,
    },
    /// -> `Opened`
    Open {
        /// The file.
        file: FileId,
        /// How.
        flags: OpenFlags,
        /// Whether a small file, opened for writing, shall become whole.
        whole: Wish,
    },
    /// What a name refers to, opened if it is a file, here, and surely open to who walked. -> `Opened`, else as `Lookup`
    OpenName {
        /// The directory, or one of its fragments.
        parent: FileId,
        /// The entry.
        name: Name,
        /// How.
        flags: OpenFlags,
        /// Whether a small file shall become whole.
        whole: Wish,
    },
    /// Ends one open of this session. -> `Removed`
    Close {
        /// The file.
        file: FileId,
    },
    /// -> `Changed`
    Change {
        /// The file.
        file: FileId,
        /// What.
        changes: Changes,
    },
    /// Bytes that fit inline come with it and are written; else it is said where they go. -> `Written`, `Put`, `Whole`, `Stripes`, `Unplaced`, `Spill`, `TrimFirst`
    Write {
        /// The file.
        file: FileId,
        /// Where.
        place: WritePlace,
        /// How many.
        length: u32,
        /// They themselves, when `length` is at most [`INLINE_BYTES_MAX`].
        data: Bytes,
        /// Takes the set-id bits away, as [`Changes::kill_set_id`] does.
        kill_set_id: bool,
    },
    /// Stripes hold the bytes up to `end`: publishes the size. -> `Done`
    Wrote {
        /// The file.
        file: FileId,
        /// As planned.
        generation: u32,
        /// The end of what was written.
        end: u64,
    },
    /// Nothing was written at the place that was reserved at the end. -> `Done`
    Abandon {
        /// The file.
        file: FileId,
        /// As planned.
        generation: u32,
        /// The reserved place.
        offset: u64,
        /// Its length.
        length: u32,
    },
    /// The head lies in stripe 0. -> `Done`
    SpillDone {
        /// The file.
        file: FileId,
        /// As planned.
        generation: u32,
    },
    /// The stripes are cut. -> `Done`
    TrimDone {
        /// The file.
        file: FileId,
        /// As planned.
        generation: u32,
    },
    /// The bytes of a small whole file that nobody has open come back to its inode. Only nodes say so. -> `Done`
    Fold {
        /// The file.
        file: FileId,
        /// Where they were.
        extent: Extent,
        /// They.
        bytes: Bytes,
        /// The times that the file had there.
        times: Times,
    },
    /// Ends an open of a session, or makes it another's. Only nodes say so, of opens that have a mark. -> `Removed`
    Release {
        /// The file.
        file: FileId,
        /// Whose open.
        session: Session,
        /// Whose it is from now on; none: nobody's.
        to: Option<Session>,
    },
    /// The stripes of a file that is gone are removed. -> `Done`
    Purged {
        /// The file.
        file: FileId,
    },
    /// Removes the entry of anything but a directory, and its link. -> `Removed`, `Spread`
    Unlink {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Removes an empty directory. -> `Removed`, `Spread`
    RemoveDirectory {
        /// The directory above.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Gives an inode that is here one more name. -> `Attributes`
    Link {
        /// The inode.
        file: FileId,
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Both directories are here. -> `Renamed`, `Spread`
    Rename {
        /// What.
        from: RenameFrom,
        /// Where to.
        to: RenameTo,
        /// What of a taken name.
        mode: RenameMode,
    },
    /// The inode has got another name elsewhere: moves the time of its last change. -> `Done`
    Touch {
        /// The inode.
        file: FileId,
    },
    /// Adds parts to an intent: checks and marks, and sets space aside. -> `Prepared`
    Prepare {
        /// Which.
        intent: Intent,
        /// What it will do here.
        #[serde(deserialize_with = "crate::bounded::few")]
        parts: Vec<Part>,
    },
    /// To the coordinator: adds parts, and does all that the intent does here. -> `Settled`
    Commit {
        /// Which.
        intent: Intent,
        /// What it does here, besides what is prepared.
        #[serde(deserialize_with = "crate::bounded::few")]
        parts: Vec<Part>,
        /// The other partitions that are prepared.
        others: Vec<PartitionId>,
    },
    // Of one inode: changed.
    /// A file without a name, open for the client. -> `Opened`
    CreateUnnamed {
        /// The directory whose heritage it has.
        parent: FileId,
        /// The name that it is to get there, where that is known: its bytes lie as those of a file that is made under that name.
        name: Option<Name>,
        /// What is made.
        inode: NewInode,
        /// Whether it may get a name later.
        linkable: bool,
    },
    /// -> `Done`
    SetXattr {
        /// The file.
        file: FileId,
        /// Of the attribute, with its namespace.
        name: Bytes,
        /// What it will hold.
        value: Bytes,
        /// What of one that is there.
        mode: XattrMode,
        /// An ACL that takes the set-group-id bit away, because its setter is not of the group.
        kill_set_group_id: bool,
    },
    /// -> `Done`
    RemoveXattr {
        /// The file.
        file: FileId,
        /// Of the attribute, with its namespace.
        name: Bytes,
    },
    /// Sets or ends a lock; the partition never waits. -> `Done`
    Lock {
        /// The file.
        file: FileId,
        /// Which.
        lock: Lock,
        /// Whether the node waits until it can be set.
        wait: bool,
    },
    /// The stripes that a punch cut to nothing are: it is noted that they hold no bytes. -> `Done`
    Punched {
        /// The file.
        file: FileId,
        /// As planned.
        generation: u32,
    },
    /// From this stripe on, what was to be taken was not: there was no space. -> `Done`
    GaveUp {
        /// The file.
        file: FileId,
        /// As planned.
        generation: u32,
        /// The first that was not taken.
        stripe: u64,
    },
    /// Takes space of a range, or gives it back. What fills it with zeros is both, one after the other. -> `Allocated`, `Unplaced`, `Spill`, `TrimFirst`
    Allocate {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How much, bytes.
        length: u64,
        /// What is done.
        mode: AllocateMode,
    },
    // Of objects: changed.
    /// Puts an object in place of what has its name, if the condition holds. -> `Stored`, `Spread`, `Elsewhere`
    PutObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// What must be so.
        condition: Condition,
        /// Where its bytes are to lie; what this leaves open is as the directory says.
        placing: Placing,
        /// What it has from the moment that it has its name.
        attributes: ObjectAttributes,
        /// The bytes.
        contents: Contents,
    },
    /// Removes an object, if the condition holds. -> `Removed`, `Spread`
    DeleteObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// What must be so.
        condition: Condition,
    },
    /// Ids of files that the session will put; until then their stripes are its own, and go with it. -> `Reserved`
    Reserve {
        /// How many, at most [`RESERVED_MAX`].
        count: u32,
        /// How many stripes each may have.
        stripes: u64,
        /// Where these will lie.
        layout: Layout,
        /// By what the client chose their partition, where it did.
        by: Option<Policy>,
    },
    /// A file that is still reserved will not be put; one that was is left as it is. -> `Removed`
    Unreserve {
        /// Which.
        file: FileId,
    },
    /// Says where the stripes of a file are to be whose policy only clients know the answer to. The first one counts. -> `Done`
    Place {
        /// The file.
        file: FileId,
        /// In this partition.
        partition: PartitionId,
    },
    /// Does what is prepared here, or drops it. -> `Settled`
    Settle {
        /// Which.
        intent: Intent,
        /// As its coordinator decided.
        commit: bool,
    },
    /// To the coordinator: unless it is committed, it never will be. -> `Decided`
    Decide {
        /// Which.
        intent: Intent,
    },
    /// To the coordinator: it is settled everywhere. -> `Done`
    Ended {
        /// Which.
        intent: Intent,
    },
    /// The session has ended: its opens and locks end here, and it changes nothing more. -> `Closed`
    CloseSession {
        /// Which.
        session: Session,
    },
}

impl Command {
    /// Whether it changes something, and so needs a [`Stamp`](crate::Stamp). A read moves only the time of the last read, and
    /// may do so twice.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Lookup { .. }
                | Self::Stat { .. }
                | Self::List { .. }
                | Self::ReadLink { .. }
                | Self::Parent { .. }
                | Self::Probe { .. }
                | Self::Read { .. }
                | Self::Leftovers
                | Self::Xattr { .. }
                | Self::Xattrs { .. }
                | Self::TestLock { .. }
                | Self::Seek { .. }
                | Self::Forgotten { .. }
                | Self::Status { .. }
                | Self::Fragments { .. }
                | Self::GetObject { .. }
                | Self::GetFile { .. }
                | Self::ListNames { .. }
                | Self::Unplanned { .. }
                | Self::Placement { .. }
        )
    }
}
