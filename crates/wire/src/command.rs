//! Commands to a partition: the table. `command_table` says what a row means and what comes from
//! it.

use crate::{
    Acls, AllocateAnswer, AllocateMode, Answer, Attributes, BytePlacement, ChangeAnswer, Changes, Condition, Contents,
    Decision, DirEntry, DirectoryFragments, DirectoryUsage, Extent, ExtentRequest, FoundEntry, FoundObject,
    GetObjectAnswer, HostFile, InheritedAttributes, Intent, Kind, Lock, Mode, Name, Object, ObjectAttributes,
    OpenFlags, OpenNameAnswer, OpenedFile, Owner, Part, PendingDelete, PutObjectAnswer, RangeContent, RemovalAnswer,
    RenameAnswer, RenameFrom, RenameMode, RenameTo, SeekTo, Session, StripeRuns, Times, UnfinishedWork, WriteAnswer,
    XattrMode,
    codec::{CheckResult, check},
    command_table::{
        BoundedField, BulkField, CommandKind, CommandRow, CommandSubject, FieldSamples, TypedCommand, command_kind,
        commands, subject, weight,
    },
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

/// The version of the protocol. It grows with each change of a message: `docs/formats/wire.md` says
/// what the version before was without.
pub const PROTOCOL_VERSION: u16 = 12;

/// The answer to a client that sends what only nodes send.
pub const NOT_FOR_CLIENTS: &str = "only nodes send this, to their own partitions";

commands! { $
    /// Looks up an entry, and the inode's attributes if it is in this partition.
    query lookup Lookup {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    } on (parent, name) -> found: FoundEntry, free;
    /// Reads the attributes.
    query stat Stat {
        /// The file.
        file: FileId,
    } on (file) -> attributes: Attributes, free;
    /// Lists entries after a cookie, in cookie order.
    query list List {
        /// The directory.
        directory: FileId,
        /// 0, or the last cookie of the previous page.
        after: u64,
        /// Maximum number of entries.
        max: u32,
    } on (directory) -> entries: Vec<DirEntry>, free;
    /// Reads the target of a symbolic link.
    query read_link ReadLink {
        /// The link.
        file: FileId,
    } on (file) -> target: Bytes, free;
    /// Returns the parent of a directory.
    query parent Parent {
        /// The directory.
        directory: FileId,
    } on (directory) -> parent: FileId, free;
    /// Checks that the name is free in the directory, and returns the attributes that new inodes
    /// inherit.
    query check_name CheckName {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    } on (parent, name) -> inherited: InheritedAttributes, free;
    /// Reads bytes, or returns their location; clipped to the file size. Updates the atime.
    query read Read {
        /// The file.
        file: FileId,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    } on (file) -> content: RangeContent, free;
    /// Lists work that crashed clients left unfinished.
    query list_unfinished ListUnfinished on () -> unfinished_work: UnfinishedWork, free;
    /// Reads an extended attribute.
    query xattr Xattr {
        /// The file.
        file: FileId,
        /// Name of the attribute, with its namespace.
        name: Bytes,
    } on (file) -> xattr: Bytes, free;
    /// Lists the names of all extended attributes.
    query xattrs Xattrs {
        /// The file.
        file: FileId,
    } on (file) -> xattrs: Vec<Bytes>, free;
    /// Returns a lock that conflicts with this one, if there is one.
    query test_lock TestLock {
        /// The file.
        file: FileId,
        /// The session that asks.
        session: Session,
        /// The lock to test.
        lock: Lock,
    } on (file) -> conflict: Option<Lock>, free;
    /// Finds the next data or hole.
    query seek Seek {
        /// The file.
        file: FileId,
        /// Offset to search from.
        offset: u64,
        /// Data or hole.
        to: SeekTo,
    } on (file) -> offset: u64, free;
    /// The kernel of this session has forgotten the inode. Idempotent.
    query forget_inode ForgetInode {
        /// The file.
        file: FileId,
    } on (file) -> removed: Option<PendingDelete>, free;
    /// Queries the outcome of a transaction at its coordinator.
    query status Status {
        /// The transaction.
        intent: Intent,
    } on () -> decided: Decision, free;
    /// Returns the fragments of a directory, and the attributes that new inodes inherit.
    query fragments Fragments {
        /// The directory.
        directory: FileId,
    } on (directory) -> fragments: DirectoryFragments, free;
    /// Reads an object by name: its metadata, and the bytes of a range or their location.
    query get_object GetObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes; 0 reads only the metadata.
        length: u32,
    } on (parent, name) -> get_object: GetObjectAnswer, free;
    /// Reads an object by file id.
    query get_file GetFile {
        /// The file.
        file: FileId,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    } on (file) -> object: FoundObject, free;
    /// Lists entries in name order. A directory sorts with a `/` after its name.
    query list_names ListNames {
        /// The directory.
        directory: FileId,
        /// Only names that begin with this, in the form in which they sort.
        prefix: Bytes,
        /// Only names that are not below this, in the form in which they sort.
        from: Bytes,
        /// Maximum number of entries.
        max: u32,
    } on (directory) -> entries: Vec<DirEntry>, free;
    /// Returns which of these stripes are neither the file's nor reserved: bytes in them belong to
    /// no file.
    query unowned_stripes UnownedStripes {
        /// The file, which may not exist.
        file: FileId,
        /// The stripes to check.
        stripes: StripeRuns,
    } on (file) -> unowned_stripes: StripeRuns, free;
    /// Returns the placement of a file's bytes, or the placement that a directory passes on.
    query placement Placement {
        /// The file or directory.
        file: FileId,
    } on (file) -> placement: BytePlacement, free;
    /// Creates an inode and its entry.
    change create Create {
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
    } on (parent, name) -> opened: OpenedFile, weighs;
    /// Opens a file.
    change open Open {
        /// The file.
        file: FileId,
        /// Open flags.
        flags: OpenFlags,
        /// Request to turn a small file that is opened for writing into an extent file.
        extent: ExtentRequest,
    } on (file) -> opened: OpenedFile, weighs;
    /// Looks up a name, and opens it if it is a file in this partition that the walking user may
    /// certainly open.
    change open_name OpenName {
        /// The directory or fragment.
        parent: FileId,
        /// The name.
        name: Name,
        /// Open flags.
        flags: OpenFlags,
        /// Request to turn a small file into an extent file.
        extent: ExtentRequest,
    } on (parent, name) -> open_name: OpenNameAnswer, free;
    /// Closes one open of this session.
    change close Close {
        /// The file.
        file: FileId,
    } on (file) -> removed: Option<PendingDelete>, free;
    /// Changes attributes.
    change change Change {
        /// The file.
        file: FileId,
        /// The changes.
        changes: Changes,
    } on (file) -> change: ChangeAnswer, free;
    /// Writes bytes that fit inline, or returns where the client must write them.
    change write Write {
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
    } on (file) -> write: WriteAnswer, weighs, bulk data, where check::inline_bytes(*length, data);
    /// Publishes a new size: stripes now hold the bytes up to `end`.
    change publish_size PublishSize {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
        /// End of the written bytes.
        end: u64,
    } on (file) -> done: (), free;
    /// Gives up a range that was reserved at the end of the file: nothing was written there.
    change abandon Abandon {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
        /// Offset of the reserved range.
        offset: u64,
        /// Its length.
        length: u32,
    } on (file) -> done: (), free;
    /// Reports that stripe 0 now holds the inline bytes.
    change spill_done SpillDone {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
    } on (file) -> done: (), free;
    /// Reports that the stripes are truncated.
    change truncate_done TruncateDone {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
    } on (file) -> done: (), free;
    /// Demotes a small extent file that nobody has open: moves its bytes back to the inode. Sent by
    /// the extent's node.
    change demote Demote {
        /// The file.
        file: FileId,
        /// The extent that held the bytes.
        extent: Extent,
        /// The bytes.
        bytes: Bytes,
        /// The file's times in the extent.
        times: Times,
    } on (file) -> done: (), weighs;
    /// Ends an open of a session, or transfers it to another session. Sent by the node that gave
    /// the open lease.
    change release Release {
        /// The file.
        file: FileId,
        /// The session that has the open.
        session: Session,
        /// The session that takes it over. `None` closes it.
        to: Option<Session>,
    } on (file) -> removed: Option<PendingDelete>, free;
    /// Reports that the stripes of a deleted file are removed.
    change purge_done PurgeDone {
        /// The file.
        file: FileId,
    } on (file) -> done: (), free;
    /// Removes the entry of anything but a directory, and one link of its inode.
    change unlink Unlink {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    } on (parent, name) -> removal: RemovalAnswer, free;
    /// Removes an empty directory.
    change remove_directory RemoveDirectory {
        /// The parent directory.
        parent: FileId,
        /// The name.
        name: Name,
    } on (parent, name) -> removal: RemovalAnswer, free;
    /// Adds a name to an inode in this partition.
    change link Link {
        /// The inode.
        file: FileId,
        /// The directory of the new name.
        parent: FileId,
        /// The new name.
        name: Name,
    } on (parent, name) -> attributes: Attributes, weighs;
    /// Renames an entry; both directories are in this partition.
    change rename Rename {
        /// The entry to rename.
        from: RenameFrom,
        /// The new directory and name.
        to: RenameTo,
        /// Behavior if the new name exists.
        mode: RenameMode,
    } on (from) -> rename: RenameAnswer, weighs;
    /// Updates the ctime of an inode that was renamed in another partition.
    change update_ctime UpdateCtime {
        /// The inode.
        file: FileId,
    } on (file) -> done: (), free;
    /// Prepares parts of a transaction: checks them, locks their targets and reserves space.
    change prepare Prepare {
        /// The transaction.
        intent: Intent,
        /// Its parts in this partition.
        #[serde(deserialize_with = "crate::decode_limits::bounded_vec")]
        parts: Vec<Part>,
    } on () -> prepared: Vec<FileId>, weighs;
    /// Commits a transaction at its coordinator: adds parts, then applies all of its parts in this
    /// partition.
    change commit Commit {
        /// The transaction.
        intent: Intent,
        /// Its parts in this partition, besides those that are prepared.
        #[serde(deserialize_with = "crate::decode_limits::bounded_vec")]
        parts: Vec<Part>,
        /// The other prepared partitions.
        others: Vec<PartitionId>,
    } on () -> settled: Vec<PendingDelete>, weighs;
    /// Creates a file without a name, open for the client.
    change create_tmpfile CreateTmpfile {
        /// The directory that it inherits attributes from.
        parent: FileId,
        /// The name that it will get in that directory, if known: its bytes are placed like those
        /// of a file with that name.
        name: Option<Name>,
        /// The inode to create.
        inode: NewInode,
        /// True if it may get a name later.
        linkable: bool,
    } on (parent) -> opened: OpenedFile, weighs;
    /// Sets an extended attribute.
    change set_xattr SetXattr {
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
    } on (file) -> done: (), weighs, bulk value;
    /// Removes an extended attribute.
    change remove_xattr RemoveXattr {
        /// The file.
        file: FileId,
        /// Name of the attribute, with its namespace.
        name: Bytes,
    } on (file) -> done: (), free;
    /// Sets or releases a lock. The partition itself never waits.
    change lock Lock {
        /// The file.
        file: FileId,
        /// The lock.
        lock: Lock,
        /// True if the node waits until the lock can be set.
        wait: bool,
    } on (file) -> done: (), weighs;
    /// Reports that a punch has cut the stripes inside its range: the partition records that they
    /// hold no bytes.
    change punch_done PunchDone {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
    } on (file) -> done: (), weighs;
    /// Reports that an allocation ran out of space: nothing was allocated from this stripe on.
    change allocation_failed AllocationFailed {
        /// The file.
        file: FileId,
        /// Generation at the time of planning.
        generation: u32,
        /// The first stripe that was not allocated.
        stripe: u64,
    } on (file) -> done: (), free;
    /// Allocates or frees the space of a range. Zeroing a range does both, one after the other.
    change allocate Allocate {
        /// The file.
        file: FileId,
        /// Offset of the range.
        offset: u64,
        /// Length of the range, bytes.
        length: u64,
        /// Operation on the range.
        mode: AllocateMode,
    } on (file) -> allocate: AllocateAnswer, weighs;
    /// Stores an object and replaces any file of that name, if the condition holds.
    change put_object PutObject {
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
    } on (parent, name) -> put_object: PutObjectAnswer, weighs, bulk contents;
    /// Deletes an object, if the condition holds.
    change delete_object DeleteObject {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
        /// Precondition.
        condition: Condition,
    } on (parent, name) -> removal: RemovalAnswer, free;
    /// Reserves ids of files that the session will put. Until then their stripes belong to the
    /// session and are removed with it.
    change reserve Reserve {
        /// Number of files, at most [`RESERVED_MAX`].
        count: u32,
        /// Maximum number of stripes of each file.
        stripes: u64,
        /// Layout of the stripes.
        layout: Layout,
        /// Policy by which the client chose the stripes' partition, if it did.
        policy: Option<Policy>,
    } on () -> reserved: Vec<FileId>, weighs, where check::reservation(*count, *stripes);
    /// Cancels the reservation of a file. Leaves a file alone that has been put.
    change unreserve Unreserve {
        /// The reserved file.
        file: FileId,
    } on (file) -> removed: Option<PendingDelete>, free;
    /// Sets the partition of a file's stripes, where only a client can evaluate the policy. The
    /// first one wins.
    change place Place {
        /// The file.
        file: FileId,
        /// The partition of its stripes.
        partition: PartitionId,
    } on (file) -> done: (), free;
    /// Applies or discards the prepared parts of a transaction.
    change settle Settle {
        /// The transaction.
        intent: Intent,
        /// The coordinator's decision: true to apply.
        commit: bool,
    } on () -> settled: Vec<PendingDelete>, free;
    /// Decides a transaction at its coordinator: unless it is committed, it never will be.
    change decide Decide {
        /// The transaction.
        intent: Intent,
    } on () -> decided: Decision, free;
    /// Tells the coordinator to forget a transaction that is settled everywhere.
    change forget_intent ForgetIntent {
        /// The transaction.
        intent: Intent,
    } on () -> done: (), free;
    /// Ends a session: closes its opens, releases its locks, and refuses its later changes.
    change close_session CloseSession {
        /// The session.
        session: Session,
    } on () -> closed: Vec<PendingDelete>, free;
    /// Sums up what is directly in a directory or fragment, page by page in cookie order.
    query usage_in UsageIn {
        /// The directory.
        directory: FileId,
        /// 0, or the last cookie of the previous page.
        after: u64,
        /// Maximum number of entries.
        max: u32,
    } on (directory) -> usage_in: DirectoryUsage, free;
    /// Plans the stripes to which the extent's node copies a large extent file that nobody has
    /// open. Returns those of earlier copies, which must be cut to nothing first. Sent by that
    /// node.
    change evacuate Evacuate {
        /// The file.
        file: FileId,
        /// The extent that holds the bytes.
        extent: Extent,
        /// The stripes to be written; none only asks for the layout.
        stripes: StripeRuns,
    } on (file) -> allocate: AllocateAnswer, weighs;
    /// Reports that the stripes hold all bytes of the extent: the file is striped from now on,
    /// unless it was opened or changed since the stripes were planned.
    change evacuate_done EvacuateDone {
        /// The file.
        file: FileId,
        /// The extent that held the bytes.
        extent: Extent,
        /// Generation at the time of planning.
        generation: u32,
        /// Length of the file, bytes.
        size: u64,
        /// The file's times in the extent.
        times: Times,
    } on (file) -> done: (), free;
}
