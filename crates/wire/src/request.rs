//! Requests of a client to a node, and the answers.
//!
//! A request goes to one partition. A metadata change carries a request id ([`RequestId`]), so that
//! the node answers a resent change from its reply cache and does not repeat it. Stripe changes are
//! idempotent; the truncate generation rejects late ones.

use crate::{
    Attributes, Command, Credentials, Decision, DirEntry, Extent, ExtentAction, HostFile, InheritedAttributes, Intent,
    Kind, LeaseStatus, Lock, Name, NewInode, NewKind, ObjectMeta, OpenLease, OpenLeaseId, Part, Refusal, SpaceUsage,
    StripeRuns, Version, codec::ShmRange,
};
use bytes::Bytes;
use placement::{Epoch, FileId, Layout, NodeId, PartitionId, PartitionMap, PlacementSpec, Policy, StripeNo};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A client's session, as a node knows it. Its opens and locks end with it, except those of open
/// leases and of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session(pub u64);

impl Session {
    /// No session. Sessions are numbered from 1 on.
    pub const NONE: Self = Self(0);
    /// Number of low bits that hold the counter. The bits above hold the id of the node that gave
    /// the session, so no two nodes give the same one.
    const COUNT_BITS: u32 = 48;

    /// Returns the `count`th session of `node`. `None` if the node has no more numbers, or its id
    /// is too large.
    pub fn new(node: NodeId, count: u64) -> Option<Self> {
        let fits = count < 1 << Self::COUNT_BITS && node.0 <= u16::MAX.into();
        fits.then_some(Self(u64::from(node.0) << Self::COUNT_BITS | count))
    }

    /// Returns the node that gave the session, and the node's counter for it.
    pub fn origin(self) -> (NodeId, u64) {
        let node = u32::try_from(self.0 >> Self::COUNT_BITS).expect("16 bits are left");
        (NodeId(node), self.0 & ((1 << Self::COUNT_BITS) - 1))
    }
}

/// Request id: names one change of one client, for deduplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    /// The client.
    pub session: Session,
    /// Sequence number: counted from 1 for each client and partition. A resent change keeps its
    /// number.
    pub number: u64,
    /// Lowest number that the client may still resend. Answers to lower numbers need not be cached
    /// any more.
    pub settled: u64,
}

/// A message from a client to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Epoch of the partition map by which the client chose the node.
    pub epoch: Epoch,
    /// The session that sends the request. With `Hello`, [`Session::NONE`], or a session that
    /// another node of the pool has started.
    pub session: Session,
    /// Reply without waiting for cache-invalidation acks: the caller holds page locks that an ack
    /// may need.
    pub skip_ack: bool,
    /// The partition that handles the request.
    pub partition: PartitionId,
    /// The operation.
    pub body: Body,
}

/// The operation that a request asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// Starts a session and returns the pool's configuration. If the request names a session that
    /// another node started, joins that. Accepts any epoch.
    Hello,
    /// Returns the space usage of the pool.
    Usage,
    /// Stops the node: it answers, then closes all connections and exits. Accepts any epoch.
    Stop,
    /// A command for the partition.
    Meta {
        /// Request id; present with every change.
        request_id: Option<RequestId>,
        /// The command.
        command: Command,
    },
    /// Bytes of an extent file whose inode is in the partition.
    Extent {
        /// Request id; present with an append.
        request_id: Option<RequestId>,
        /// The file.
        file: FileId,
        /// The extent that held the file's bytes when the client planned this. If the file has
        /// moved since, the request is refused as stale.
        extent: Extent,
        /// The operation on the extent.
        action: ExtentAction,
    },
    /// Bytes of a stripe that is stored in the partition.
    Stripe {
        /// The file.
        file: FileId,
        /// Index of the stripe in the file.
        stripe: StripeNo,
        /// The operation on the stripe.
        action: StripeAction,
    },
    /// Resolves a path from a directory of the partition, as far as this node holds the directories
    /// on it, then executes a command in the last one. -> the command's answer, else `Walked`
    Walk {
        /// The directory to start from.
        start: FileId,
        /// Names of the path's components, outermost first.
        #[serde(deserialize_with = "crate::decode_limits::bounded_vec")]
        components: Vec<Name>,
        /// The user to check permissions for. `None` skips the check. The walk stops at a directory
        /// whose mode bits do not certainly let this user through, or, for the last one, do what
        /// the command needs.
        credentials: Option<Credentials>,
        /// The command to execute at the end.
        action: Option<Box<WalkAction>>,
    },
    /// Probes an open lease of this node, after the client closed a copy of its descriptor. If no
    /// copy is left, the open is closed. -> `LeaseStatus`
    ProbeLease {
        /// The open lease.
        lease: OpenLeaseId,
    },
    /// Lists the open leases whose descriptors refer to this file of the node. After exec, a
    /// process that inherited a descriptor uses this to learn which file it refers to. ->
    /// `OpenLease`, in the order of the leases' ids
    FindLeases {
        /// Device number that `stat` reports for the descriptor.
        device: u64,
        /// Inode number that `stat` reports for the descriptor.
        inode: u64,
        /// Only leases with an id above this one.
        after: OpenLeaseId,
    },
}

/// Maximum number of open leases in one answer. Query again after the last one until the answer is
/// empty.
pub const OPEN_LEASES_MAX: usize = 1024;

/// The command that a walk executes, if it reaches the expected directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalkAction {
    /// The directory that the walk must reach.
    pub directory: FileId,
    /// The partition that executes the command.
    pub partition: PartitionId,
    /// Request id; present with every change.
    pub request_id: Option<RequestId>,
    /// The command.
    pub command: Command,
}

impl Body {
    /// Returns the lock that the command sets, releases or tests.
    pub fn lock(&mut self) -> Option<&mut Lock> {
        let command = match self {
            Self::Meta { command, .. } => command,
            Self::Walk { action: Some(action), .. } => &mut action.command,
            _ => return None,
        };
        match command {
            Command::Lock { lock, .. } | Command::TestLock { lock, .. } => Some(lock),
            _ => None,
        }
    }

    /// Returns true if the request binds a file of the node's host. A client that may do this can
    /// read every file that the node's user can.
    pub fn binds_host_file(&self) -> bool {
        let bound = |inode: &NewInode| matches!(inode.kind, NewKind::Bound(_));
        let command = match self {
            Self::Meta { command, .. } => command,
            Self::Walk { action: Some(action), .. } => &action.command,
            _ => return false,
        };
        match command {
            Command::Create { inode, .. } | Command::CreateTmpfile { inode, .. } => bound(inode),
            Command::Prepare { parts, .. } | Command::Commit { parts, .. } => parts.iter().any(|part| match part {
                Part::CreateDirectory { inode, .. } | Part::Fragment { inode, .. } => bound(inode),
                _ => false,
            }),
            _ => false,
        }
    }
}

/// An operation on a stripe. Ranges are within the stripe, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StripeAction {
    /// Writes bytes.
    Write {
        /// Truncate generation that the writer knows.
        generation: u32,
        /// Offset of the first byte.
        offset: u32,
        /// True if the write reaches the end of the stripe, although the engine's stripes are
        /// longer. The engine then reserves no space after it.
        ends: bool,
        /// The bytes.
        data: Bytes,
    },
    /// Writes the bytes of a reserved file, from the stripe's beginning. After the session has
    /// ended, the node refuses this as `SessionEnded` and holds no such bytes.
    Fill {
        /// The bytes.
        data: Bytes,
    },
    /// Reads bytes; returns fewer if the stripe ends before the range does.
    Read {
        /// Offset of the first byte.
        offset: u32,
        /// Number of bytes.
        length: u32,
    },
    /// Truncates the stripe.
    Truncate {
        /// Generation after the truncation.
        generation: u32,
        /// New length of the stripe.
        length: u32,
    },
    /// Removes the stripe.
    Remove,
    /// Fills a range with zeros, or truncates the stripe if the range reaches its end.
    Zero {
        /// Generation after the punch.
        generation: u32,
        /// Offset of the range.
        offset: u32,
        /// Length of the range.
        length: u32,
    },
    /// Extends the stripe to this length, so that later writes to it need no space.
    Extend {
        /// Truncate generation at the time of planning.
        generation: u32,
        /// New length of the stripe.
        length: u32,
    },
    /// Frees the space beyond the stripe's bytes: the stripe will not grow soon.
    Fit,
}

/// The bytes of a read, or their location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The bytes. Missing bytes at the end read as zeros.
    Bytes(Bytes),
    /// In stripes with this layout.
    Striped(Layout),
    /// In a file of the host. Only within a node, which reads it: never sent to clients.
    Bound(Arc<HostFile>),
    /// In an extent. Only within a node, which reads it: never sent to clients.
    Extent(Extent),
    /// In these ranges of the node's shared memory, in order; at most
    /// [`RUNS_MAX`](crate::codec::RUNS_MAX). They stay unchanged until the client returns the lease
    /// that has the request's id.
    Shm(Vec<ShmRange>),
    /// Views of the node's memory, in order: for callers in the node's process, or callers to
    /// which the ranges can be sent. Never sent.
    #[serde(skip)]
    Pieces(Vec<Bytes>),
}

/// Maximum number of deleted files in one answer: with their stripes they fit into a frame. The
/// others remain in [`UnfinishedWork`].
pub const PENDING_DELETES_MAX: usize = 4096;

/// A pending delete: the inode is deleted, its stripes still have to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDelete {
    /// The file.
    pub file: FileId,
    /// Layout of the stripes.
    pub layout: Layout,
    /// Stripes that may exist.
    pub stripes: StripeRuns,
}

/// A pending truncation: stripes to truncate before the file may grow again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTruncate {
    /// Layout of the stripes.
    pub layout: Layout,
    /// Generation after the truncation.
    pub generation: u32,
    /// Remaining length of the file, bytes.
    pub length: u64,
    /// Stripes that reach beyond that length.
    pub stripes: StripeRuns,
}

/// Unfinished work in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedWork {
    /// Transactions that are prepared and not settled.
    pub prepared: Vec<Intent>,
    /// Transactions that committed in this partition, their coordinator, and are not forgotten yet.
    pub committed: Vec<Intent>,
    /// Deleted files whose stripes may still exist, at most [`PENDING_DELETES_MAX`]. Purge them to
    /// see more.
    pub deleted: Vec<PendingDelete>,
}

/// Answer to a client's `Hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// The node that answers.
    pub node: NodeId,
    /// The client's session; it is the same at all nodes of the pool.
    pub session: Session,
    /// Partition map: the node of each partition.
    pub map: Arc<PartitionMap>,
    /// Seed of all placement hashes.
    pub seed: u64,
    /// Length of a stripe, bytes.
    pub stripe_bytes: u32,
}

/// A node's answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Success, without a value.
    Done,
    /// Answer to `Hello`.
    Hello(HelloReply),
    /// Answer to `Usage`.
    Usage(SpaceUsage),
    /// Attributes of the inode.
    Attributes(Attributes),
    /// A directory entry.
    Found {
        /// The inode that the entry refers to.
        file: FileId,
        /// Type of that inode.
        kind: Kind,
        /// Attributes of the inode; present if it is in the same partition.
        attributes: Option<Attributes>,
    },
    /// A file, which is open if the command asked for it.
    Opened {
        /// Current attributes.
        attributes: Attributes,
        /// The host file that holds the bytes of a bound file.
        host: Option<Arc<HostFile>>,
        /// Truncation to finish first.
        truncation: Option<PendingTruncate>,
        /// True if another session also has the file open.
        shared: bool,
    },
    /// Attributes after a change.
    Changed {
        /// Current attributes.
        attributes: Attributes,
        /// Truncation to finish.
        truncation: Option<PendingTruncate>,
    },
    /// A page of directory entries.
    Entries(Vec<DirEntry>),
    /// Target of a symbolic link.
    Target(Bytes),
    /// The parent directory.
    Parent(FileId),
    /// The bytes of a read.
    Content {
        /// Number of bytes in the range.
        length: u32,
        /// The bytes or their location.
        content: Content,
    },
    /// Written inline, with the inode.
    Written {
        /// Offset of the write.
        offset: u64,
    },
    /// The client must write to stripes. If the write reaches beyond `size`, the client publishes
    /// the new size with `PublishSize`.
    Stripes {
        /// Offset of the write.
        offset: u64,
        /// Generation to send with each stripe write.
        generation: u32,
        /// File size before the write.
        size: u64,
        /// Layout of the stripes.
        layout: Layout,
    },
    /// The client must write to this extent.
    Extent(Extent),
    /// Written to an extent.
    ExtentWritten {
        /// Offset of the write.
        offset: u64,
        /// Number of bytes written; fewer than sent only if the pool is full.
        length: u32,
    },
    /// Not done: first write the inline bytes to stripe 0.
    NeedsSpill {
        /// Generation to send with that write.
        generation: u32,
        /// Layout of the stripes.
        layout: Layout,
        /// The inline bytes.
        head: Bytes,
    },
    /// Not done: first choose the partition of the stripes and send `Place`.
    NeedsPlacement {
        /// The placement policy to follow.
        policy: Policy,
        /// Default layout, in a partition chosen by a hash. Used if the policy finds no node.
        layout: Layout,
    },
    /// Not done: first truncate these stripes.
    NeedsTruncate(PendingTruncate),
    /// A name was removed.
    Removed {
        /// Set if the file was deleted too: its stripes are to be removed.
        deleted: Option<PendingDelete>,
    },
    /// Not done: the change touches other partitions too, so it needs a transaction.
    NeedsTransaction,
    /// Not done: the directory places the object's bytes differently. Holds the directory's
    /// placement.
    WrongPlacement(PlacementSpec),
    /// The entry was renamed. An inode that had the new name before has lost that name.
    Renamed {
        /// Set if the replaced file was deleted: its stripes are to be removed.
        deleted: Option<PendingDelete>,
        /// Renamed inodes in other partitions: the client updates their ctime with `UpdateCtime`.
        remote: Vec<FileId>,
    },
    /// The parts are checked and locked.
    Prepared {
        /// Ids of new inodes, in the order of the parts that create them.
        created: Vec<FileId>,
    },
    /// The parts are applied or discarded.
    Settled {
        /// Deleted files: their stripes are to be removed.
        deleted: Vec<PendingDelete>,
    },
    /// Outcome of a transaction.
    Decided(Decision),
    /// An answer that is valid unless one of these transactions is committed. If one is, the client
    /// settles it and asks again.
    Unsettled {
        /// Transactions that have locked something in the answer.
        intents: Vec<Intent>,
        /// The answer if none of them is committed. Never another `Unsettled`.
        #[serde(deserialize_with = "crate::decode_limits::not_nested")]
        answer: Box<Answer>,
    },
    /// No such entry. Only within `Unsettled`; otherwise the node refuses with `NotFound`.
    NoEntry,
    /// Fragments of a directory.
    Fragments {
        /// The directory's own attributes, without the entries in its fragments.
        attributes: Attributes,
        /// Attributes that new inodes in the directory inherit.
        inherited: Box<InheritedAttributes>,
        /// The fragments in hash order; empty if the directory is not split.
        fragments: Vec<FileId>,
    },
    /// Unfinished work in the partition.
    UnfinishedWork(UnfinishedWork),
    /// Files that were deleted with the session, at most [`PENDING_DELETES_MAX`]. The others are in
    /// [`UnfinishedWork`].
    Closed(Vec<PendingDelete>),
    /// Bytes of a stripe.
    Bytes(Bytes),
    // Answers about one inode.
    /// Attributes that new inodes in the directory inherit.
    Inherited(InheritedAttributes),
    /// Placement of a file's bytes.
    Placement {
        /// The placement that was requested.
        placing: PlacementSpec,
        /// Layout of the stripes. For a directory: the layout of a file in it if the policy spreads
        /// stripes.
        layout: Layout,
        /// True if the layout is final. Otherwise the policy decides when the file grows.
        decided: bool,
        /// Stripes below the file size that may hold bytes. Empty if the bytes are with the inode
        /// or in an extent.
        stripes: StripeRuns,
    },
    /// The queried stripes that belong to no file.
    UnownedStripes(StripeRuns),
    /// The value of an extended attribute.
    Xattr(Bytes),
    /// The names of extended attributes.
    Xattrs(Vec<Bytes>),
    /// A conflicting lock, if there is one.
    Conflict(Option<Lock>),
    /// Offset of the data or hole, bytes.
    Offset(u64),
    /// The range is allocated or freed. The client still has to truncate these stripes or fill them
    /// with zeros.
    Allocated {
        /// Generation to send with each stripe operation.
        generation: u32,
        /// The stripes to change.
        stripes: StripeRuns,
        /// Layout of the stripes.
        layout: Layout,
    },
    // Answers about objects.
    /// An object, with the bytes of a range or their location.
    Object {
        /// Current version, size and modification time.
        head: ObjectMeta,
        /// Layout of the stripes, if the bytes are in stripes: for reads of other ranges.
        striped: Option<Layout>,
        /// Number of bytes in the range.
        length: u32,
        /// The bytes or their location.
        content: Content,
    },
    /// The object is stored.
    ObjectStored {
        /// The new version.
        version: Version,
        /// The file that had the name before: its stripes are to be removed.
        deleted: Option<PendingDelete>,
    },
    /// Ids of the reserved files.
    Reserved(Vec<FileId>),
    /// A walk stopped before its end.
    Walked {
        /// The last directory that was reached.
        reached: FileId,
        /// Number of names that remain.
        remaining: u32,
    },
    // Answers about open leases.
    /// Result of a probe.
    LeaseStatus(LeaseStatus),
    /// Live opens, at most [`OPEN_LEASES_MAX`].
    OpenLeases(Vec<OpenLease>),
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// The node refused the request. Resending it would not help.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The client's partition map is old. Holds the current one.
    #[error("the partition map is old, the new one has epoch {}", .0.epoch())]
    StaleMap(Arc<PartitionMap>),
    /// The request or the answer was lost. The request may have been executed.
    #[error("no answer came: {0}")]
    Lost(String),
    /// The node cannot be reached, or accepts no more requests for now. The request was not
    /// executed.
    #[error("not reachable: {0}")]
    Unreachable(String),
}
