//! What a client asks of a node, and what it is answered.
//!
//! A request goes to one partition. A change of metadata carries a [`Stamp`], so that a resent one is answered and not
//! done again; changes of stripes say the same thing however often they are sent, and the truncate generation keeps late
//! ones out.

use crate::{
    Attributes, Changes, DirEntry, HostFile, Kind, Name, OpenFlags, Owner, Refusal, RenameFrom, RenameMode, RenameTo,
    StripeRuns, Usage,
};
use bytes::Bytes;
use placement::{Epoch, FileId, PartitionId, PartitionMap, StripeNo};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Files up to this length live with their inode, bytes.
pub const INLINE_BYTES_MAX: u32 = 4096;
/// The longest file, bytes: what a signed 64-bit offset can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();
/// The most entries that one listing gives.
pub const LIST_ENTRIES_MAX: u32 = 4096;

/// One client, as a node knows it. What it holds open ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session(pub u64);

/// Which change of which client this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The client.
    pub session: Session,
    /// The change: counted from 1 for each client and partition; a resent one keeps its number.
    pub number: u64,
    /// Every lower number is settled: the client never sends it again, so its answer need not be kept.
    pub settled: u64,
}

/// What travels from a client to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The age of the map by which the client chose the node.
    pub epoch: Epoch,
    /// The partition that it is about.
    pub partition: PartitionId,
    /// What is asked.
    pub body: Body,
}

/// What is asked of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Who are you? Starts a session; needs no right epoch.
    Hello,
    /// How full is the pool?
    Usage,
    /// A command for the partition.
    Meta {
        /// Present with every change.
        stamp: Option<Stamp>,
        /// The command.
        command: Command,
    },
    /// Bytes of a stripe that lives in the partition.
    Stripe {
        /// The file.
        file: FileId,
        /// Which piece of it.
        stripe: StripeNo,
        /// What to do.
        action: StripeAction,
    },
}

/// What to do with a stripe. Ranges are within the stripe, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeAction {
    /// Put bytes.
    Write {
        /// The truncate generation that the writer knows.
        generation: u32,
        /// Where.
        offset: u32,
        /// What.
        data: Bytes,
    },
    /// Get bytes; short when the stripe ends before.
    Read {
        /// Where.
        offset: u32,
        /// How many.
        length: u32,
    },
    /// Cut it.
    Truncate {
        /// The generation after the truncation.
        generation: u32,
        /// What remains.
        length: u32,
    },
    /// Forget it.
    Remove,
    /// It will not grow soon: give back what it holds beyond its bytes.
    Fit,
}

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
    Bound(HostFile),
}

/// A new inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInode {
    /// What it is.
    pub kind: NewKind,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Whose it is; the group gives way to the directory's where that has its set-group-id bit.
    pub owner: Owner,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WritePlace {
    /// At this offset, bytes.
    At(u64),
    /// At the end; the partition says where that is, and reserves it.
    End,
}

/// What a partition is asked to do. Those of the second half change something and carry a [`Stamp`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The entry, and its attributes when the inode is here. -> `Found`
    Lookup {
        /** The directory. */
        parent: FileId,
        /** The name. */
        name: Name,
    },
    /// -> `Attributes`
    Stat {
        /** The file. */
        file: FileId,
    },
    /// Entries behind a cookie, in the order of cookies. -> `Entries`
    List {
        /** The directory. */
        directory: FileId,
        /** 0, or the last cookie. */
        after: u64,
        /** At most so many. */
        max: u32,
    },
    /// -> `Target`
    ReadLink {
        /** The link. */
        file: FileId,
    },
    /// The directory that a directory stands in. -> `Parent`
    Parent {
        /** The directory. */
        directory: FileId,
    },
    /// Whether the name is free in the directory, and what new inodes inherit. -> `Attributes` of the directory
    Probe {
        /** The directory. */
        parent: FileId,
        /** The name. */
        name: Name,
    },
    /// Bytes, or where they are; clipped to the size. Moves the time of the last read. -> `Content`
    Read {
        /** The file. */
        file: FileId,
        /** Where. */
        offset: u64,
        /** How many. */
        length: u32,
    },
    /// What crashed clients have left unfinished. -> `Leftovers`
    Leftovers,

    /// A new inode and its entry. -> `Opened`
    Create {
        /** The directory. */
        parent: FileId,
        /** The name. */
        name: Name,
        /** What is made. */
        inode: NewInode,
        /** Whether the client holds it open at once. */
        open: bool,
    },
    /// -> `Opened`
    Open {
        /** The file. */
        file: FileId,
        /** How. */
        flags: OpenFlags,
    },
    /// Ends one open of this session. -> `Removed`
    Close {
        /** The file. */
        file: FileId,
    },
    /// -> `Changed`
    Change {
        /** The file. */
        file: FileId,
        /** What. */
        changes: Changes,
    },
    /// Bytes that fit inline come with it and are written; else it is said where they go. -> `Written`, `Stripes`, `Spill`, `TrimFirst`
    Write {
        /** The file. */
        file: FileId,
        /** Where. */
        place: WritePlace,
        /** How many. */
        length: u32,
        /** They themselves, when `length` is at most [`INLINE_BYTES_MAX`]. */
        data: Bytes,
    },
    /// Stripes hold the bytes up to `end`: publishes the size. -> `Done`
    Wrote {
        /** The file. */
        file: FileId,
        /** As planned. */
        generation: u32,
        /** The end of what was written. */
        end: u64,
    },
    /// Nothing was written at the place that was reserved at the end. -> `Done`
    Abandon {
        /** The file. */
        file: FileId,
        /** As planned. */
        generation: u32,
        /** The reserved place. */
        offset: u64,
        /** Its length. */
        length: u32,
    },
    /// The head lies in stripe 0. -> `Done`
    SpillDone {
        /** The file. */
        file: FileId,
        /** As planned. */
        generation: u32,
    },
    /// The stripes are cut. -> `Done`
    TrimDone {
        /** The file. */
        file: FileId,
        /** As planned. */
        generation: u32,
    },
    /// The stripes of a file that is gone are removed. -> `Done`
    Purged {
        /** The file. */
        file: FileId,
    },
    /// The inode of a directory whose entry will be elsewhere: the first step of two. -> `Attributes`
    MakeDirectory {
        /** Where its entry will be. */
        parent: FileId,
        /** What is made. */
        inode: NewInode,
    },
    /// An entry for an inode elsewhere: the second step. -> `Done`
    Enter {
        /** The directory. */
        parent: FileId,
        /** The name. */
        name: Name,
        /** The inode. */
        file: FileId,
        /** What it is. */
        kind: Kind,
    },
    /// Removes the entry of anything but a directory, and its link. -> `Removed`
    Unlink {
        /** The directory. */
        parent: FileId,
        /** The name. */
        name: Name,
    },
    /// One name less for an inode whose entry was elsewhere. -> `Removed`
    DropLink {
        /** The file. */
        file: FileId,
    },
    /// Removes an empty directory whose inode is here too. -> `Removed`, else `Elsewhere`
    RemoveDirectory {
        /** The directory above. */
        parent: FileId,
        /** The name. */
        name: Name,
    },
    /// An empty directory takes no more entries, until it is dropped or unsealed. -> `Sealed`
    Seal {
        /** The directory. */
        directory: FileId,
    },
    /// Undoes the seal with this mark. -> `Done`
    Unseal {
        /** The directory. */
        directory: FileId,
        /** From `Sealed`. */
        mark: u64,
    },
    /// Removes the entry of a directory that is sealed elsewhere. -> `Done`
    RemoveEntry {
        /** The directory above. */
        parent: FileId,
        /** The name. */
        name: Name,
        /** What it must still refer to. */
        directory: FileId,
    },
    /// Removes a directory's inode that has no entry: sealed, or never entered. -> `Done`
    DropDirectory {
        /** The directory. */
        directory: FileId,
    },
    /// Both directories are here. `sealed` names a directory elsewhere that may be replaced. -> `Renamed`, `Elsewhere`
    Rename {
        /** What. */
        from: RenameFrom,
        /** Where to. */
        to: RenameTo,
        /** What of a taken name. */
        mode: RenameMode,
        /** The target, sealed. */
        sealed: Option<FileId>,
    },
    /// Marks an entry as moving to a directory elsewhere: the first step of three. -> `Moving`
    MoveOut {
        /** What. */
        from: RenameFrom,
        /** Where to. */
        to: RenameTo,
        /** What takes its place, in an exchange. */
        exchange: Option<(FileId, Kind)>,
    },
    /// Puts the moving entry at its new place: the second step. -> `Renamed`, `Elsewhere`
    MoveIn {
        /** Where to. */
        to: RenameTo,
        /** What moves. */
        file: FileId,
        /** What that is. */
        kind: Kind,
        /** What of a taken name. */
        mode: RenameMode,
        /** What must be there, in an exchange; else the target directory, sealed. */
        expected: Option<FileId>,
    },
    /// Removes the marked entry, or gives it what it was exchanged with: the third step. -> `Done`
    MoveDone {
        /** What moved. */
        from: RenameFrom,
        /** What it referred to. */
        file: FileId,
    },
    /// Takes the mark away. -> `Done`
    MoveBack {
        /** What did not move. */
        from: RenameFrom,
        /** What it refers to. */
        file: FileId,
    },
    /// A moved directory stands in another one. -> `Done`
    SetParent {
        /** The directory. */
        directory: FileId,
        /** The one above. */
        parent: FileId,
    },
    /// The session has ended: its opens and seals end here. -> `Closed`
    CloseSession {
        /** Which. */
        session: Session,
    },
}

/// Where the bytes of a read are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Here; what is missing at the end reads as zeros.
    Here(Bytes),
    /// In stripes.
    Striped,
    /// In a host file. The node reads it: clients never see this.
    Bound(HostFile),
}

/// A file that is gone, whose stripes are to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The file.
    pub file: FileId,
    /// What it may have.
    pub stripes: StripeRuns,
}

/// Stripes to be cut before the file may grow again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trim {
    /// The generation since the truncation.
    pub generation: u32,
    /// What remains of the file, bytes.
    pub length: u64,
    /// Those that reach beyond.
    pub stripes: StripeRuns,
}

/// An entry marked as moving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Who moves it.
    pub session: Session,
    /// From here.
    pub from: RenameFrom,
    /// To there.
    pub to: RenameTo,
    /// What it refers to.
    pub file: FileId,
    /// What takes its place, in an exchange.
    pub exchange: Option<(FileId, Kind)>,
}

/// What was left unfinished in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// Entries marked as moving.
    pub moves: Vec<Move>,
    /// Files gone whose stripes may still be there.
    pub gone: Vec<Gone>,
}

/// What a client learns when it says hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Its session.
    pub session: Session,
    /// Which node holds which partition.
    pub map: Arc<PartitionMap>,
    /// What hashes are seeded with.
    pub seed: u64,
    /// The length of a stripe, bytes.
    pub stripe_bytes: u32,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Done; there is nothing to say.
    Done,
    /// To `Hello`.
    Welcome(Welcome),
    /// To `Usage`.
    Usage(Usage),
    /// Of the inode.
    Attributes(Attributes),
    /// An entry.
    Found {
        /** What it refers to. */
        file: FileId,
        /** What that is. */
        kind: Kind,
        /** When the inode is in the same partition. */
        attributes: Option<Attributes>,
    },
    /// A file, open where that was asked.
    Opened {
        /** As it is now. */
        attributes: Attributes,
        /** Where the bytes of a bound file are. */
        host: Option<Arc<HostFile>>,
        /** To be cut. */
        trim: Option<Trim>,
    },
    /// After a change.
    Changed {
        /** As it is now. */
        attributes: Attributes,
        /** To be cut. */
        trim: Option<Trim>,
    },
    /// A page of a directory.
    Entries(Vec<DirEntry>),
    /// Of a symbolic link.
    Target(Bytes),
    /// The directory above.
    Parent(FileId),
    /// Of a read.
    Content {
        /** How many bytes there are in the range. */
        length: u32,
        /** Where. */
        content: Content,
    },
    /// Written inline, here.
    Written {
        /** Where it went. */
        offset: u64,
    },
    /// To be written to stripes; published by `Wrote` where it goes beyond `size`.
    Stripes {
        /** Where it goes. */
        offset: u64,
        /** To be sent with each. */
        generation: u32,
        /** The size until then. */
        size: u64,
    },
    /// First, this belongs into stripe 0.
    Spill {
        /** To be sent with it. */
        generation: u32,
        /** The bytes. */
        head: Bytes,
    },
    /// First, these are to be cut.
    TrimFirst(Trim),
    /// One name less.
    Removed {
        /** Its stripes are to be removed. */
        gone: Option<Gone>,
        /** The inode, when it is in another partition. */
        elsewhere: Option<FileId>,
    },
    /// The inode of this directory is in another partition: seal it first.
    Elsewhere(FileId),
    /// The directory is sealed.
    Sealed {
        /** To unseal with. */
        mark: u64,
    },
    /// The entry is marked.
    Moving {
        /** What it refers to. */
        file: FileId,
        /** What that is. */
        kind: Kind,
    },
    /// What the new name referred to has lost a name.
    Renamed {
        /** What moved. */
        file: FileId,
        /** What that is. */
        kind: Kind,
        /** The replaced file's stripes are to be removed. */
        gone: Option<Gone>,
        /** What was replaced, when its inode is in another partition. */
        elsewhere: Option<(FileId, Kind)>,
    },
    /// What was left unfinished.
    Leftovers(Leftovers),
    /// Files that went with the session.
    Closed(Vec<Gone>),
    /// Bytes of a stripe.
    Bytes(Bytes),
}

/// Why a call brought no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The node says no. Sending it again would not help.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The client's map is old: this is the new one.
    #[error("the partition map is old, the new one has epoch {}", .0.epoch())]
    StaleMap(Arc<PartitionMap>),
    /// Request or answer was lost; whether it was done is not known.
    #[error("no answer came: {0}")]
    Lost(String),
    /// The node cannot be reached or takes no more for now; it was not done.
    #[error("not reachable: {0}")]
    Unreachable(String),
}
