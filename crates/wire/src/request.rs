//! Requests of a client to a node.
//!
//! A request goes to one partition. A metadata change carries a request id ([`RequestId`]), so that
//! the node answers a resent change from its reply cache and does not repeat it. Stripe changes are
//! idempotent; the truncate generation rejects late ones.

use crate::{Answer, Command, Credentials, Extent, ExtentAction, Lock, Name, NewInode, NewKind, OpenLeaseId, Part};
use bytes::Bytes;
use placement::{Epoch, FileId, NodeId, PartitionId, StripeNo};
use serde::{Deserialize, Serialize};

/// A client's session, as a node knows it. Its opens and locks end with it, except those of open
/// leases and of processes.
///
/// ```text
///   | node, 16 bits | renewals, 10 bits | count, 38 bits |
/// ```
/// The node gave it as its `count`th. A client whose connection breaks goes on in the next renewal
/// of its session: the nodes need not be asked for it, and know that both are of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session(pub u64);

impl Session {
    /// No session. Sessions are numbered from 1 on.
    pub const NONE: Self = Self(0);
    /// Number of low bits that hold the counter. The bits above hold the number of renewals, then
    /// the id of the node that gave the session, so no two nodes give the same one.
    const COUNT_BITS: u32 = 38;
    /// The lowest bit of the id of the node.
    const NODE_SHIFT: u32 = 48;
    /// The bits of the number of renewals.
    const RENEWALS: u64 = (1 << Self::NODE_SHIFT) - (1 << Self::COUNT_BITS);

    /// Returns the `count`th session of `node`. `None` if the node has no more numbers, or its id
    /// is too large.
    pub fn new(node: NodeId, count: u64) -> Option<Self> {
        let fits = count < 1 << Self::COUNT_BITS && node.0 <= u16::MAX.into();
        fits.then_some(Self(u64::from(node.0) << Self::NODE_SHIFT | count))
    }

    /// Returns the session in whose name a node has files open and locks of its host's processes.
    /// It never ends. `None` if no node can have this id.
    pub fn of_node(node: NodeId) -> Option<Self> {
        Self::new(node, 0).filter(|session| *session != Self::NONE)
    }

    /// Returns the node that gave the session, and the node's counter for it.
    pub fn origin(self) -> (NodeId, u64) {
        let node = u32::try_from(self.0 >> Self::NODE_SHIFT).expect("16 bits are left");
        (NodeId(node), self.0 & ((1 << Self::COUNT_BITS) - 1))
    }

    /// Returns the first session of the same client, by which a node knows the client.
    #[must_use]
    pub const fn client(self) -> Self {
        Self(self.0 & !Self::RENEWALS)
    }

    /// Returns the next session of the same client; `None` after 1,023 renewals.
    pub fn renewed(self) -> Option<Self> {
        let is_last = self.0 & Self::RENEWALS == Self::RENEWALS;
        (!is_last).then_some(Self(self.0 + (1 << Self::COUNT_BITS)))
    }
}

#[cfg(test)]
mod session_tests {
    use super::*;

    #[test]
    fn all_renewals_of_a_session_differ_and_are_of_one_client_and_one_node() {
        let first = Session::new(NodeId(7), 3).unwrap();
        let all: Vec<Session> = std::iter::successors(Some(first), |session| session.renewed()).collect();
        assert_eq!(all.len(), 1024);
        assert!(all.is_sorted() && all[0] != all[1023]);
        assert!(all.iter().all(|session| (session.client(), session.origin()) == (first, (NodeId(7), 3))));
        let next = Session::new(NodeId(7), 4).unwrap();
        assert_eq!((next.0, next.client()), (first.0 + 1, next), "the ends of consecutive sessions are one range");
        assert_eq!(Session::new(NodeId(1), 1 << 38), None);
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
    /// Epoch of the partition's entry by which the client chose the node. Nothing to requests that
    /// concern no partition.
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
    /// another node started, joins that.
    Hello,
    /// Returns the space usage of the pool.
    Usage,
    /// Stops the node: it answers, then closes all connections and exits.
    Stop,
    /// A command for the partition.
    Meta {
        /// Request id; present with every change.
        request_id: Option<RequestId>,
        /// The command.
        command: Command,
    },
    /// Bytes of an extent of this node; the inode may be elsewhere.
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
    /// Finishes an answer about a file whose bytes are at the host of this node, and whose inode is
    /// elsewhere: does to its extent what the command asks for, and fills in what only the host
    /// knows. -> the command's answer
    Finish {
        /// Request id; present with every change.
        request_id: Option<RequestId>,
        /// The file.
        file: FileId,
        /// The command.
        command: Box<Command>,
        /// The answer of the file's partition; see [`HostedAnswer`](crate::HostedAnswer).
        #[serde(deserialize_with = "crate::decode_limits::nested_answer")]
        answer: Box<Answer>,
    },
    /// Tells the node that nobody has a file open any more whose bytes are at its host, or that the
    /// file is removed. -> `Done`
    NoteUnused {
        /// The file.
        file: FileId,
    },
    /// Tells the node which notices the end of a lock's owner of a lock that is about to be set at
    /// another node. -> `LockOwner`
    NoteLock {
        /// The file.
        file: FileId,
        /// The lock.
        lock: Lock,
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
    /// Ends a session at this node, in all its partitions: closes its opens, releases its locks,
    /// and refuses its later changes. -> `Closed`
    EndSession {
        /// The session.
        session: Session,
    },
    /// Returns the status of what the node does beside requests. -> `Workers`
    Workers,
    /// A step by which the node that serves the partition moves it to this node. -> `Done`
    Move {
        /// The step.
        step: MoveStep,
    },
    /// Ends a session at this node, as `EndSession` does, unless its client is connected here. Sent
    /// by a node from which a partition with something of the session has moved here, when the
    /// session has ended there. -> `Closed`
    EndMovedSession {
        /// The session.
        session: Session,
        /// True if it has ended only because that node leaves the pool: then its client has 10 s to
        /// connect here.
        left: bool,
    },
    /// A message about the nodes of the pool, for the node's manager; the messages are those of the
    /// crate `manager`, and may change with each version. -> `Bytes`
    Manage {
        /// The message.
        message: Bytes,
    },
}

/// A step of the move of a partition, from the node that serves it to the one that will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveStep {
    /// Begins the move, with space for so many bytes; an earlier try is forgotten. Refused if there
    /// is no space.
    Reserve {
        /// Bytes of stripes and metadata.
        bytes: u64,
    },
    /// Does to a stripe of the partition what was done to it at the source.
    Stripe {
        /// The file.
        file: FileId,
        /// Index of the stripe in the file.
        stripe: StripeNo,
        /// The operation on the stripe.
        action: StripeAction,
    },
    /// The next bytes of the partition's metadata.
    State {
        /// The bytes.
        data: Bytes,
    },
    /// The metadata is whole: get ready to serve. The source does not serve from now on.
    Prepare,
    /// The move has been given up.
    Cancel,
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
    /// Returns the request id, if it is a change that has one.
    pub fn request_id(&self) -> Option<RequestId> {
        match self {
            Self::Meta { request_id, .. } | Self::Extent { request_id, .. } | Self::Finish { request_id, .. } => {
                *request_id
            }
            Self::Walk { action: Some(action), .. } => action.request_id,
            _ => None,
        }
    }

    /// Returns the command that it carries for a partition. A walk has one at its end.
    pub fn command(&self) -> Option<&Command> {
        match self {
            Self::Meta { command, .. } => Some(command),
            Self::Walk { action: Some(action), .. } => Some(&action.command),
            _ => None,
        }
    }

    /// Returns the lock that the command sets, releases or tests.
    pub fn lock(&mut self) -> Option<&mut Lock> {
        let command = match self {
            Self::Meta { command, .. } => command,
            Self::Walk { action: Some(action), .. } => &mut action.command,
            Self::NoteLock { lock, .. } => return Some(lock),
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
        let Some(command) = self.command() else { return false };
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
