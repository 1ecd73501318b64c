//! Commands to a partition. The arrows name the answers.

use crate::{
    Acls, AllocateMode, Changes, Condition, Contents, Extent, ExtentRequest, HostFile, Intent, Kind, Lock, Mode, Name,
    ObjectAttributes, OpenFlags, Owner, Part, RenameFrom, RenameMode, RenameTo, SeekTo, Session, StripeRuns, Times,
    XattrMode,
};
use bytes::Bytes;
use placement::{FileId, Layout, PartitionId, PlacementSpec, Policy};
use serde::{Deserialize, Serialize};

/// Maximum length of an inline file, whose bytes are stored with its inode, bytes.
pub const INLINE_BYTES_MAX: u32 = 4096;
/// Maximum length of a file, bytes: the largest signed 64-bit offset.
pub const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();
/// Maximum number of entries in one listing.
pub const LIST_ENTRIES_MAX: u32 = 4096;

/// Maximum number of files in one reservation.
pub const RESERVED_MAX: u32 = 256;

/// Type of a new inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewKind {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(Bytes),
    /// A fifo, a socket or a device.
    Node(Kind),
    /// A bound file, which shows the bytes of a host file.
    Bound(Box<HostFile>),
}

/// An inode to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInode {
    /// Its type.
    pub kind: NewKind,
    /// Permission bits. The partition that creates the inode decides whether to apply the umask.
    pub mode: Mode,
    /// Owner. If the directory has the set-group-id bit, the directory's group replaces the group.
    pub owner: Owner,
    /// Inherited ACLs, filled in by the partition that creates the inode.
    pub acls: Option<Box<Acls>>,
    /// Placement of its bytes, or of those of files below it. The partition that creates the inode
    /// adds what the directory passes on.
    pub placing: Option<Box<PlacementSpec>>,
}

impl NewInode {
    /// Creates one that has inherited nothing yet.
    pub fn new(kind: NewKind, mode: impl Into<Mode>, owner: Owner) -> Self {
        Self { kind, mode: mode.into(), owner, acls: None, placing: None }
    }

    /// Returns its placement, or the default.
    pub fn placing(&self) -> PlacementSpec {
        self.placing.as_deref().copied().unwrap_or_default()
    }
}

/// Position of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WritePlace {
    /// At this offset, bytes.
    At(u64),
    /// At the end of the file. The partition chooses and reserves the offset.
    End,
}

/// A command to a partition. Commands from `Create` on are changes and carry a request id
/// (`RequestId`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Looks up an entry, and the inode's attributes if it is in this partition. -> `Found`
    Lookup {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Reads the attributes. -> `Attributes`
    Stat {
        /// The file.
        file: FileId,
    },
    /// Lists entries after a cookie, in cookie order. -> `Entries`
    List {
        /// The directory.
        directory: FileId,
        /// 0, or the last cookie of the previous page.
        after: u64,
        /// Maximum number of entries.
        max: u32,
    },
    /// Reads the target of a symbolic link. -> `Target`
    ReadLink {
        /// The link.
        file: FileId,
    },
    /// Returns the parent of a directory. -> `Parent`
    Parent {
        /// The directory.
        directory: FileId,
    },
    /// Checks that the name is free in the directory, and returns the attributes that new inodes
    /// inherit. -> `Inherited`
    CheckName {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Reads bytes, or returns their location; clipped to the file size. Updates the atime. ->
    /// `Content`
    Read {
        /// The file.
        file: FileId,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
    /// Lists work that crashed clients left unfinished. -> `UnfinishedWork`
    ListUnfinished,
    // Queries on one inode.
    /// Reads an extended attribute. -> `Xattr`
    Xattr {
        /// The file.
        file: FileId,
        /// Name of the attribute, with its namespace.
        name: Bytes,
    },
    /// Lists the names of all extended attributes. -> `Xattrs`
    Xattrs {
        /// The file.
        file: FileId,
    },
    /// Returns a lock that conflicts with this one, if there is one. -> `Conflict`
    TestLock {
        /// The file.
        file: FileId,
        /// The session that asks.
        session: Session,
        /// The lock to test.
        lock: Lock,
    },
    /// Finds the next data or hole. -> `Offset`
    Seek {
        /// The file.
        file: FileId,
        /// Offset to search from.
        offset: u64,
        /// Data or hole.
        to: SeekTo,
    },
    /// The kernel of this session has forgotten the inode. Idempotent. -> `Removed`
    ForgetInode {
        /// The file.
        file: FileId,
    },
    /// Queries the outcome of a transaction at its coordinator. -> `Decided`
    Status {
        /// The transaction.
        intent: Intent,
    },
    /// Returns the fragments of a directory, and the attributes that new inodes inherit. ->
    /// `Fragments`
    Fragments {
        /// The directory.
        directory: FileId,
    },
    // Queries on objects.
    /// Reads an object by name: its metadata, and the bytes of a range or their location. ->
    /// `Object`, or `Found` if its inode is in another partition
    GetObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes; 0 reads only the metadata.
        length: u32,
    },
    /// Reads an object by file id. -> `Object`
    GetFile {
        /// The file.
        file: FileId,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
    /// Lists entries in name order. A directory sorts with a `/` after its name. -> `Entries`
    ListNames {
        /// The directory.
        directory: FileId,
        /// Only names that begin with this, in the form in which they sort.
        prefix: Bytes,
        /// Only names that are not below this, in the form in which they sort.
        from: Bytes,
        /// Maximum number of entries.
        max: u32,
    },
    /// Returns which of these stripes are neither the file's nor reserved: bytes in them belong to
    /// no file. -> `UnownedStripes`
    UnownedStripes {
        /// The file, which may not exist.
        file: FileId,
        /// The stripes to check.
        stripes: StripeRuns,
    },
    /// Returns the placement of a file's bytes, or the placement that a directory passes on. ->
    /// `Placement`
    Placement {
        /// The file or directory.
        file: FileId,
    },

    /// Creates an inode and its entry. -> `Opened`
    Create {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// The inode to create.
        inode: NewInode,
        /// True to open it for the client too.
        open: bool,
        /// Request to create it as an extent file.
        extent: ExtentRequest,
    },
    /// Opens a file. -> `Opened`
    Open {
        /// The file.
        file: FileId,
        /// Open flags.
        flags: OpenFlags,
        /// Request to turn a small file that is opened for writing into an extent file.
        extent: ExtentRequest,
    },
    /// Looks up a name, and opens it if it is a file in this partition that the walking user may
    /// certainly open. -> `Opened`, else as `Lookup`
    OpenName {
        /// The directory or fragment.
        parent: FileId,
        /// The name.
        name: Name,
        /// Open flags.
        flags: OpenFlags,
        /// Request to turn a small file into an extent file.
        extent: ExtentRequest,
    },
    /// Closes one open of this session. -> `Removed`
    Close {
        /// The file.
        file: FileId,
    },
    /// Changes attributes. -> `Changed`
    Change {
        /// The file.
        file: FileId,
        /// The changes.
        changes: Changes,
    },
    /// Writes bytes that fit inline, or returns where the client must write them. -> `Written`,
    /// `ExtentWritten`, `Extent`, `Stripes`, `NeedsPlacement`, `NeedsSpill`, `NeedsTruncate`
    Write {
        /// The file.
        file: FileId,
        /// Position of the write.
        place: WritePlace,
        /// Number of bytes.
        length: u32,
        /// The bytes, if `length` is at most [`INLINE_BYTES_MAX`]; else empty.
        data: Bytes,
        /// Clears the set-id bits, as [`Changes::kill_set_id`] does.
        kill_set_id: bool,
    },
    /// Publishes a new size: stripes now hold the bytes up to `end`. -> `Done`
    PublishSize {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
        /// End of the written bytes.
        end: u64,
    },
    /// Gives up a range that was reserved at the end of the file: nothing was written there. ->
    /// `Done`
    Abandon {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
        /// Offset of the reserved range.
        offset: u64,
        /// Its length.
        length: u32,
    },
    /// Reports that stripe 0 now holds the inline bytes. -> `Done`
    SpillDone {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
    },
    /// Reports that the stripes are truncated. -> `Done`
    TruncateDone {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
    },
    /// Demotes a small extent file that nobody has open: moves its bytes back to the inode. Sent
    /// only by nodes. -> `Done`
    Demote {
        /// The file.
        file: FileId,
        /// The extent that held the bytes.
        extent: Extent,
        /// The bytes.
        bytes: Bytes,
        /// The file's times in the extent.
        times: Times,
    },
    /// Ends an open of a session, or transfers it to another session. Sent only by nodes, for opens
    /// that have an open lease. -> `Removed`
    Release {
        /// The file.
        file: FileId,
        /// The session that has the open.
        session: Session,
        /// The session that takes it over. `None` closes it.
        to: Option<Session>,
    },
    /// Reports that the stripes of a deleted file are removed. -> `Done`
    PurgeDone {
        /// The file.
        file: FileId,
    },
    /// Removes the entry of anything but a directory, and one link of its inode. -> `Removed`,
    /// `NeedsTransaction`
    Unlink {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Removes an empty directory. -> `Removed`, `NeedsTransaction`
    RemoveDirectory {
        /// The parent directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// Adds a name to an inode in this partition. -> `Attributes`
    Link {
        /// The inode.
        file: FileId,
        /// The directory of the new name.
        parent: FileId,
        /// The new name.
        name: Name,
    },
    /// Renames an entry; both directories are in this partition. -> `Renamed`, `NeedsTransaction`
    Rename {
        /// The entry to rename.
        from: RenameFrom,
        /// The new directory and name.
        to: RenameTo,
        /// Behavior if the new name exists.
        mode: RenameMode,
    },
    /// Updates the ctime of an inode that was renamed in another partition. -> `Done`
    UpdateCtime {
        /// The inode.
        file: FileId,
    },
    /// Prepares parts of a transaction: checks them, locks their targets and reserves space. ->
    /// `Prepared`
    Prepare {
        /// The transaction.
        intent: Intent,
        /// Its parts in this partition.
        #[serde(deserialize_with = "crate::decode_limits::bounded_vec")]
        parts: Vec<Part>,
    },
    /// Commits a transaction at its coordinator: adds parts, then applies all of its parts in this
    /// partition. -> `Settled`
    Commit {
        /// The transaction.
        intent: Intent,
        /// Its parts in this partition, besides those that are prepared.
        #[serde(deserialize_with = "crate::decode_limits::bounded_vec")]
        parts: Vec<Part>,
        /// The other prepared partitions.
        others: Vec<PartitionId>,
    },
    // Changes of one inode.
    /// Creates a file without a name, open for the client. -> `Opened`
    CreateTmpfile {
        /// The directory that it inherits attributes from.
        parent: FileId,
        /// The name that it will get in that directory, if known: its bytes are placed like those
        /// of a file with that name.
        name: Option<Name>,
        /// The inode to create.
        inode: NewInode,
        /// True if it may get a name later.
        linkable: bool,
    },
    /// Sets an extended attribute. -> `Done`
    SetXattr {
        /// The file.
        file: FileId,
        /// Name of the attribute, with its namespace.
        name: Bytes,
        /// The new value.
        value: Bytes,
        /// Behavior if the attribute exists.
        mode: XattrMode,
        /// Set for an ACL that clears the set-group-id bit, because the caller is not in the file's
        /// group.
        kill_set_group_id: bool,
    },
    /// Removes an extended attribute. -> `Done`
    RemoveXattr {
        /// The file.
        file: FileId,
        /// Name of the attribute, with its namespace.
        name: Bytes,
    },
    /// Sets or releases a lock. The partition itself never waits. -> `Done`
    Lock {
        /// The file.
        file: FileId,
        /// The lock.
        lock: Lock,
        /// True if the node waits until the lock can be set.
        wait: bool,
    },
    /// Reports that a punch has cut the stripes inside its range: the partition records that they
    /// hold no bytes. -> `Done`
    PunchDone {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
    },
    /// Reports that an allocation ran out of space: nothing was allocated from this stripe on. ->
    /// `Done`
    AllocationFailed {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
        /// The first stripe that was not allocated.
        stripe: u64,
    },
    /// Allocates or frees the space of a range. Zeroing a range does both, one after the other. ->
    /// `Allocated`, `NeedsPlacement`, `NeedsSpill`, `NeedsTruncate`
    Allocate {
        /// The file.
        file: FileId,
        /// Offset of the range.
        offset: u64,
        /// Length of the range, bytes.
        length: u64,
        /// Operation on the range.
        mode: AllocateMode,
    },
    // Changes of objects.
    /// Stores an object and replaces any file of that name, if the condition holds. ->
    /// `ObjectStored`, `NeedsTransaction`, `WrongPlacement`
    PutObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// Precondition.
        condition: Condition,
        /// Placement of its bytes. Unset values come from the directory.
        placing: PlacementSpec,
        /// Extended attributes that it has as soon as it has its name.
        attributes: ObjectAttributes,
        /// The bytes.
        contents: Contents,
    },
    /// Deletes an object, if the condition holds. -> `Removed`, `NeedsTransaction`
    DeleteObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// Precondition.
        condition: Condition,
    },
    /// Reserves ids of files that the session will put. Until then their stripes belong to the
    /// session and are removed with it. -> `Reserved`
    Reserve {
        /// Number of files, at most [`RESERVED_MAX`].
        count: u32,
        /// Maximum number of stripes of each file.
        stripes: u64,
        /// Layout of the stripes.
        layout: Layout,
        /// Policy by which the client chose the stripes' partition, if it did.
        policy: Option<Policy>,
    },
    /// Cancels the reservation of a file. Leaves a file alone that has been put. -> `Removed`
    Unreserve {
        /// The reserved file.
        file: FileId,
    },
    /// Sets the partition of a file's stripes, where only a client can evaluate the policy. The
    /// first one wins. -> `Done`
    Place {
        /// The file.
        file: FileId,
        /// The partition of its stripes.
        partition: PartitionId,
    },
    /// Applies or discards the prepared parts of a transaction. -> `Settled`
    Settle {
        /// The transaction.
        intent: Intent,
        /// The coordinator's decision: true to apply.
        commit: bool,
    },
    /// Decides a transaction at its coordinator: unless it is committed, it never will be. ->
    /// `Decided`
    Decide {
        /// The transaction.
        intent: Intent,
    },
    /// Tells the coordinator to forget a transaction that is settled everywhere. -> `Done`
    ForgetIntent {
        /// The transaction.
        intent: Intent,
    },
    /// Ends a session: closes its opens, releases its locks, and refuses its later changes. ->
    /// `Closed`
    CloseSession {
        /// The session.
        session: Session,
    },
}

impl Command {
    /// Returns true if the command is a change and needs a [`RequestId`](crate::RequestId). A read
    /// only updates the atime, which it may do twice.
    pub fn is_mutation(&self) -> bool {
        !matches!(
            self,
            Self::Lookup { .. }
                | Self::Stat { .. }
                | Self::List { .. }
                | Self::ReadLink { .. }
                | Self::Parent { .. }
                | Self::CheckName { .. }
                | Self::Read { .. }
                | Self::ListUnfinished
                | Self::Xattr { .. }
                | Self::Xattrs { .. }
                | Self::TestLock { .. }
                | Self::Seek { .. }
                | Self::ForgetInode { .. }
                | Self::Status { .. }
                | Self::Fragments { .. }
                | Self::GetObject { .. }
                | Self::GetFile { .. }
                | Self::ListNames { .. }
                | Self::UnownedStripes { .. }
                | Self::Placement { .. }
        )
    }
}
