//! What a client asks of a node, and what it is answered.
//!
//! A request goes to one partition. A change of metadata carries a [`Stamp`], so that a resent one is answered and not
//! done again; changes of stripes say the same thing however often they are sent, and the truncate generation keeps late
//! ones out.

use crate::{
    Attributes, Command, Credentials, Decision, DirEntry, Extent, ExtentAction, Head, Heritage, HostFile, Intent, Kind,
    Lock, Looked, Mark, Marked, Name, NewInode, NewKind, Part, Refusal, StripeRuns, Usage, Version, codec::Placed,
};
use bytes::Bytes;
use placement::{Epoch, FileId, Layout, NodeId, PartitionId, PartitionMap, Placing, Policy, StripeNo};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One client, as a node knows it. What it holds open ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session(pub u64);

impl Session {
    /// Nobody's: sessions are counted from 1.
    pub const NONE: Self = Self(0);
    /// Above the lowest bits, which count, stands the id of the node that gave the session: no two nodes give the same.
    const COUNT_BITS: u32 = 48;

    /// The session that a node gives as its `count`th. None when there are no more: of that node, or because its id is too large.
    pub fn of(node: NodeId, count: u64) -> Option<Self> {
        let fits = count < 1 << Self::COUNT_BITS && node.0 <= u16::MAX.into();
        fits.then_some(Self(u64::from(node.0) << Self::COUNT_BITS | count))
    }

    /// Which node gave it, and as which.
    pub fn origin(self) -> (NodeId, u64) {
        let node = u32::try_from(self.0 >> Self::COUNT_BITS).expect("16 bits are left");
        (NodeId(node), self.0 & ((1 << Self::COUNT_BITS) - 1))
    }
}

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The age of the map by which the client chose the node.
    pub epoch: Epoch,
    /// Who asks; with `Hello`, nobody yet, or who another node of the pool has welcomed.
    pub session: Session,
    /// The answer does not wait until others have heard of the change: its asker holds what their hearing may wait for.
    pub hurried: bool,
    /// The partition that it is about.
    pub partition: PartitionId,
    /// What is asked.
    pub body: Body,
}

/// What is asked of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// Who are you? Starts a session, unless one is named that another node has started; needs no right epoch.
    Hello,
    /// How full is the pool?
    Usage,
    /// End: the node answers, then ends all connections and itself. Needs no right epoch.
    Stop,
    /// A command for the partition.
    Meta {
        /// Present with every change.
        stamp: Option<Stamp>,
        /// The command.
        command: Command,
    },
    /// Bytes of a whole file, whose inode is in the partition.
    Extent {
        /// Present with an append.
        stamp: Option<Stamp>,
        /// The file.
        file: FileId,
        /// Where its bytes were when this was planned; when they are no longer there, it is refused as stale.
        extent: Extent,
        /// What to do.
        action: ExtentAction,
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
    /// Walks down from a directory of the partition, as far as the node holds what it meets, and then does something there. -> `Walked`, unless
    /// that was done
    Walk {
        /// The directory.
        top: FileId,
        /// Names, one below the other.
        #[serde(deserialize_with = "crate::bounded::few")]
        folders: Vec<Name>,
        /// Who walks, if that is to be checked: where it is not sure that a folder lets this user through, or do at the end what is asked for, the walk ends.
        who: Option<Credentials>,
        /// What to do.
        then: Option<Box<Then>>,
    },
    /// Looks whether an open lives on that has a mark of this node, after a copy of its descriptor was closed: else it is closed. -> `Looked`
    Look {
        /// Which.
        mark: Mark,
    },
    /// Which opens live that have descriptors of this file of the node's. -> `Marked`, in the order of their marks
    Which {
        /// The file system that `stat` tells of the descriptor.
        device: u64,
        /// Its inode there.
        inode: u64,
        /// Those after this one.
        after: Mark,
    },
}

/// An answer names at most so many marks: ask again behind the last, until there are none.
pub const MARKED_MAX: usize = 1024;

/// What is done at the end of a walk, if that ended where it was meant to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Then {
    /// Where the walk must end.
    pub directory: FileId,
    /// Which partition does it.
    pub partition: PartitionId,
    /// Present with every change.
    pub stamp: Option<Stamp>,
    /// The command.
    pub command: Command,
}

impl Body {
    /// The lock that is set, ended or tested.
    pub fn lock(&mut self) -> Option<&mut Lock> {
        let command = match self {
            Self::Meta { command, .. } => command,
            Self::Walk { then: Some(then), .. } => &mut then.command,
            _ => return None,
        };
        match command {
            Command::Lock { lock, .. } | Command::TestLock { lock, .. } => Some(lock),
            _ => None,
        }
    }

    /// Whether it would bind a file of the node's host: who may do that can read all that the node's user may.
    pub fn binds_host_file(&self) -> bool {
        let bound = |inode: &NewInode| matches!(inode.kind, NewKind::Bound(_));
        let command = match self {
            Self::Meta { command, .. } => command,
            Self::Walk { then: Some(then), .. } => &then.command,
            _ => return false,
        };
        match command {
            Command::Create { inode, .. } | Command::CreateUnnamed { inode, .. } => bound(inode),
            Command::Prepare { parts, .. } | Command::Commit { parts, .. } => parts.iter().any(|part| match part {
                Part::Make { inode, .. } | Part::Fragment { inode, .. } => bound(inode),
                _ => false,
            }),
            _ => false,
        }
    }
}

/// What to do with a stripe. Ranges are within the stripe, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StripeAction {
    /// Put bytes.
    Write {
        /// The truncate generation that the writer knows.
        generation: u32,
        /// Where.
        offset: u32,
        /// It ends where the stripe will end, though the engine's are longer: no room is kept behind it.
        ends: bool,
        /// What.
        data: Bytes,
    },
    /// Put the bytes of a file that is reserved, from the stripe's beginning. Once the session has ended none are there, and it is refused
    /// as `Ended`.
    Fill {
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
    /// Fill a range with zeros, or cut it off where it reaches the end.
    Zero {
        /// The generation after the punch.
        generation: u32,
        /// Where.
        offset: u32,
        /// How many.
        length: u32,
    },
    /// Make it as long as this, so that later writes there need no space.
    Extend {
        /// The truncate generation that was planned with.
        generation: u32,
        /// How long.
        length: u32,
    },
    /// It will not grow soon: give back what it holds beyond its bytes.
    Fit,
}

/// Where the bytes of a read are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Here; what is missing at the end reads as zeros.
    Here(Bytes),
    /// In stripes, which lie so.
    Striped(Layout),
    /// In a host file. The node reads it: clients never see this.
    Bound(Arc<HostFile>),
    /// In an extent. The node reads it: clients never see this.
    Whole(Extent),
    /// In these places of the node's memory, one after the other; at most [`RUNS_MAX`](crate::codec::RUNS_MAX). They stay what they are until the
    /// loan of the request's id is returned.
    Placed(Vec<Placed>),
    /// These, one after the other, where they are: views of the node's memory, for who is in its process or can be told their places. Never sent.
    #[serde(skip)]
    Pieces(Vec<Bytes>),
}

/// An answer names at most so many files that are gone: with their stripes they fit into a frame. The others are left over.
pub const GONE_MAX: usize = 4096;

/// A file that is gone, whose stripes are to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The file.
    pub file: FileId,
    /// Where they lie.
    pub layout: Layout,
    /// What it may have.
    pub stripes: StripeRuns,
}

/// Stripes to be cut before the file may grow again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trim {
    /// Where they lie.
    pub layout: Layout,
    /// The generation since the truncation.
    pub generation: u32,
    /// What remains of the file, bytes.
    pub length: u64,
    /// Those that reach beyond.
    pub stripes: StripeRuns,
}

/// What was left unfinished in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// Intents that are prepared and not settled.
    pub prepared: Vec<Intent>,
    /// Intents that were committed here and have not ended.
    pub committed: Vec<Intent>,
    /// Files gone whose stripes may still be there, at most [`GONE_MAX`]: more when these are purged.
    pub gone: Vec<Gone>,
}

/// What a client learns when it says hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Who answers.
    pub node: NodeId,
    /// The client's session, the same at all nodes of the pool.
    pub session: Session,
    /// Which node holds which partition.
    pub map: Arc<PartitionMap>,
    /// What hashes are seeded with.
    pub seed: u64,
    /// The length of a stripe, bytes.
    pub stripe_bytes: u32,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// What it refers to.
        file: FileId,
        /// What that is.
        kind: Kind,
        /// When the inode is in the same partition.
        attributes: Option<Attributes>,
    },
    /// A file, open where that was asked.
    Opened {
        /// As it is now.
        attributes: Attributes,
        /// Where the bytes of a bound file are.
        host: Option<Arc<HostFile>>,
        /// To be cut.
        trim: Option<Trim>,
        /// Another session has it open too.
        shared: bool,
    },
    /// After a change.
    Changed {
        /// As it is now.
        attributes: Attributes,
        /// To be cut.
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
        /// How many bytes there are in the range.
        length: u32,
        /// Where.
        content: Content,
    },
    /// Written inline, here.
    Written {
        /// Where it went.
        offset: u64,
    },
    /// To be written to stripes; published by `Wrote` where it goes beyond `size`.
    Stripes {
        /// Where it goes.
        offset: u64,
        /// To be sent with each.
        generation: u32,
        /// The size until then.
        size: u64,
        /// Where they lie.
        layout: Layout,
    },
    /// To be written to this extent.
    Whole(Extent),
    /// Written to an extent.
    Put {
        /// Where it went.
        offset: u64,
        /// How many bytes: fewer than given only when the pool is full.
        length: u32,
    },
    /// First, this belongs into stripe 0.
    Spill {
        /// To be sent with it.
        generation: u32,
        /// Where that lies.
        layout: Layout,
        /// The bytes.
        head: Bytes,
    },
    /// First, the client is to say where the stripes shall be.
    Unplaced {
        /// By this.
        policy: Policy,
        /// As they will lie, in the partition that a hash chose: the one where the policy finds none.
        layout: Layout,
    },
    /// First, these are to be cut.
    TrimFirst(Trim),
    /// One name less.
    Removed {
        /// Its stripes are to be removed.
        gone: Option<Gone>,
    },
    /// Not done: it touches other partitions too, and needs an intent.
    Spread,
    /// Not done: the object's bytes are to lie elsewhere. The directory says this.
    Elsewhere(Placing),
    /// What the new name referred to has lost a name.
    Renamed {
        /// The replaced file's stripes are to be removed.
        gone: Option<Gone>,
        /// What got another name and has its inode in another partition: to be touched.
        elsewhere: Vec<FileId>,
    },
    /// The parts are checked and marked.
    Prepared {
        /// New inodes, in the order of the parts that make some.
        made: Vec<FileId>,
    },
    /// The parts are done, or dropped.
    Settled {
        /// Files that went: their stripes are to be removed.
        gone: Vec<Gone>,
    },
    /// Of an intent.
    Decided(Decision),
    /// This is right unless one of these intents is committed; then it is to be settled, and asked again.
    Unsettled {
        /// Those that hold something of it.
        held: Vec<Intent>,
        /// What is right without them; never one of these again.
        #[serde(deserialize_with = "crate::bounded::once")]
        answer: Box<Answer>,
    },
    /// There is no such entry; only in `Unsettled`, else it is a refusal.
    NoEntry,
    /// Of a directory.
    Fragments {
        /// Its own, without what its fragments hold.
        attributes: Attributes,
        /// What it hands down.
        heritage: Box<Heritage>,
        /// In the order of hashes; none when it is not split.
        fragments: Vec<FileId>,
    },
    /// What was left unfinished.
    Leftovers(Leftovers),
    /// Files that went with the session, at most [`GONE_MAX`]: the others are among the leftovers.
    Closed(Vec<Gone>),
    /// Bytes of a stripe.
    Bytes(Bytes),
    // Of one inode.
    /// What a directory hands down.
    Heritage(Heritage),
    /// Where bytes lie, or will.
    Placement {
        /// What was asked for.
        placing: Placing,
        /// How stripes lie. Of a directory: how those of a file in it would, by a policy that spreads them.
        layout: Layout,
        /// That is decided; else the policy does it when the file grows.
        decided: bool,
        /// The stripes below the size that may have bytes; none where the bytes are with the inode or in an extent.
        stripes: StripeRuns,
    },
    /// Those of the stripes asked about that belong to nothing.
    Unplanned(StripeRuns),
    /// The value of an extended attribute.
    Xattr(Bytes),
    /// The names of extended attributes.
    Xattrs(Vec<Bytes>),
    /// A lock in the way.
    Conflict(Option<Lock>),
    /// Where it is, bytes.
    Offset(u64),
    /// The range is as it was to be; these stripes are to be cut or filled with zeros.
    Allocated {
        /// To be sent with each.
        generation: u32,
        /// What is done to them.
        stripes: StripeRuns,
        /// Where they lie.
        layout: Layout,
    },
    // Of objects.
    /// An object.
    Object {
        /// As it is now.
        head: Head,
        /// Where its stripes lie, if its bytes are there: those of other ranges are to be had so.
        striped: Option<Layout>,
        /// How many bytes there are in the range.
        length: u32,
        /// Where.
        content: Content,
    },
    /// It is put.
    Stored {
        /// Its state.
        version: Version,
        /// What had the name: its stripes are to be removed.
        gone: Option<Gone>,
    },
    /// Files that are reserved.
    Reserved(Vec<FileId>),
    /// How far a walk came.
    Walked {
        /// The last directory.
        reached: FileId,
        /// How many names are left.
        left: u32,
    },
    // Of marks.
    /// What came of looking.
    Looked(Looked),
    /// Opens that live, at most [`MARKED_MAX`].
    Marked(Vec<Marked>),
}

/// Why a call brought no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
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
