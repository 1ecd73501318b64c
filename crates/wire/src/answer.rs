//! Answers of a node to requests.

use crate::{
    Attributes, Content, Decision, DirEntry, Extent, HelloReply, HostFile, InheritedAttributes, Intent, Kind,
    LeaseStatus, Lock, LockOwner, Object, ObjectMeta, OpenLease, Outcome, PendingDelete, PendingTruncate,
    ReadableContent, Refusal, SpaceUsage, StripeRuns, UnfinishedWork, Version, WorkerStatus,
    codec::{CheckResult, check},
    command_table::FieldSamples,
};
use bytes::Bytes;
use placement::{FileId, Layout, NodeId, PlacementSpec, Policy};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Declares the values of answers that have several fields, with their samples for tests.
macro_rules! answer_values {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)*
            }

            impl<S> FieldSamples<$name> for S
            where
                $(S: FieldSamples<$type>,)*
            {
                fn samples() -> Vec<$name> {
                    let first = $name { $($field: <S as FieldSamples<$type>>::samples().swap_remove(0),)* };
                    let mut all = vec![first.clone()];
                    $(
                        let others = <S as FieldSamples<$type>>::samples().into_iter().skip(1);
                        all.extend(others.map(|other| $name { $field: other, ..first.clone() }));
                    )*
                    all
                }
            }
        )*
    };
}

answer_values! {
    /// A directory entry.
    #[derive(Eq)]
    pub struct FoundEntry {
        /// The inode that the entry refers to.
        pub file: FileId,
        /// Type of that inode.
        pub kind: Kind,
        /// Attributes of the inode; present if it is in the same partition.
        pub attributes: Option<Attributes>,
    }

    /// A file, which is open if the command asked for it.
    #[derive(Eq)]
    pub struct OpenedFile {
        /// Current attributes.
        pub attributes: Attributes,
        /// The host file that holds the bytes of a bound file.
        pub host: Option<Arc<HostFile>>,
        /// Truncation to finish first.
        pub truncation: Option<PendingTruncate>,
        /// True if another session also has the file open.
        pub shared: bool,
    }

    /// A file whose attributes were changed.
    #[derive(Eq)]
    pub struct ChangedFile {
        /// Current attributes.
        pub attributes: Attributes,
        /// Truncation to finish.
        pub truncation: Option<PendingTruncate>,
    }

    /// The bytes of a range of a file.
    #[derive(Eq)]
    pub struct RangeContent {
        /// Number of bytes in the range.
        pub length: u32,
        /// The bytes or their location.
        pub content: Content,
    }

    /// The plan of a write to stripes. If the write reaches beyond `size`, the client publishes the
    /// new size with `PublishSize`.
    #[derive(Copy, Eq)]
    pub struct StripedWrite {
        /// Offset of the write.
        pub offset: u64,
        /// Generation to send with each stripe write.
        pub generation: u32,
        /// File size before the write.
        pub size: u64,
        /// Layout of the stripes.
        pub layout: Layout,
    }

    /// A range that was written to an extent.
    #[derive(Copy, Eq)]
    pub struct ExtentWrite {
        /// Offset of the write.
        pub offset: u64,
        /// Number of bytes written; fewer than sent only if the pool is full.
        pub length: u32,
    }

    /// Inline bytes to be written to stripe 0.
    #[derive(Eq)]
    pub struct InlineSpill {
        /// Generation to send with that write.
        pub generation: u32,
        /// Layout of the stripes.
        pub layout: Layout,
        /// The inline bytes.
        pub head: Bytes,
    }

    /// A choice that is left to the client: the partition of a file's stripes.
    #[derive(Copy, Eq)]
    pub struct PlacementChoice {
        /// The placement policy to follow.
        pub policy: Policy,
        /// Default layout, in a partition chosen by a hash. Used if the policy finds no node.
        pub layout: Layout,
    }

    /// The result of a rename. An inode that had the new name before has lost that name.
    #[derive(Eq)]
    pub struct RenamedEntry {
        /// Set if the replaced file was deleted: its stripes are to be removed.
        pub deleted: Option<PendingDelete>,
        /// Renamed inodes in other partitions: the client updates their ctime with `UpdateCtime`.
        pub remote: Vec<FileId>,
    }

    /// An answer that is valid unless one of some transactions is committed.
    pub struct UnsettledAnswer {
        /// Transactions that have locked something in the answer.
        pub intents: Vec<Intent>,
        /// The answer if none of them is committed. Never another unsettled one.
        #[serde(deserialize_with = "crate::decode_limits::nested_answer")]
        pub answer: Box<Answer>,
    }

    /// An answer about a file whose bytes are at the host of another node. That node finishes it.
    pub struct HostedAnswer {
        /// The node.
        pub node: NodeId,
        /// The file.
        pub file: FileId,
        /// The answer, as far as it is known without that node.
        #[serde(deserialize_with = "crate::decode_limits::nested_answer")]
        pub answer: Box<Answer>,
    }

    /// The fragments of a directory.
    #[derive(Eq)]
    pub struct DirectoryFragments {
        /// The directory's own attributes, without the entries in its fragments.
        pub attributes: Attributes,
        /// Attributes that new inodes in the directory inherit.
        pub inherited: Box<InheritedAttributes>,
        /// The fragments in hash order; empty if the directory is not split.
        pub fragments: Vec<FileId>,
    }

    /// The placement of a file's bytes.
    #[derive(Eq)]
    pub struct BytePlacement {
        /// The placement that was requested.
        pub placing: PlacementSpec,
        /// Layout of the stripes. For a directory: the layout of a file in it if the policy spreads
        /// stripes.
        pub layout: Layout,
        /// True if the layout is final. Otherwise the policy decides when the file grows.
        pub decided: bool,
        /// The node that reads the bytes of a bound file.
        pub host: Option<NodeId>,
        /// Stripes below the file size that may hold bytes. Empty if the bytes are with the inode
        /// or in an extent.
        pub stripes: StripeRuns,
    }

    /// A range that is allocated or freed. The client still has to truncate these stripes or fill
    /// them with zeros.
    #[derive(Eq)]
    pub struct StripeAllocation {
        /// Generation to send with each stripe operation.
        pub generation: u32,
        /// The stripes to change.
        pub stripes: StripeRuns,
        /// Layout of the stripes.
        pub layout: Layout,
    }

    /// An object, with the bytes of a range or their location.
    #[derive(Eq)]
    pub struct FoundObject {
        /// Current version, size and modification time.
        pub head: ObjectMeta,
        /// Layout of the stripes, if the bytes are in stripes: for reads of other ranges.
        pub striped: Option<Layout>,
        /// Number of bytes in the range.
        pub length: u32,
        /// The bytes or their location.
        pub content: Content,
    }

    /// An object that was stored.
    #[derive(Eq)]
    pub struct StoredObject {
        /// The new version.
        pub version: Version,
        /// The file that had the name before: its stripes are to be removed.
        pub deleted: Option<PendingDelete>,
    }

    /// Usage of all in or below a directory.
    #[derive(Copy, Eq, Default)]
    pub struct SubtreeUsage {
        /// The files, and all else that is no directory.
        pub files: u64,
        /// The directories.
        pub directories: u64,
        /// The lengths of the files, bytes.
        pub bytes: u64,
        /// The space that the files take, bytes.
        pub allocated: u64,
    }

    /// A page of what is directly in a directory.
    #[derive(Eq)]
    pub struct DirectoryUsage {
        /// The sums, apart from `others`.
        pub sum: SubtreeUsage,
        /// Files to be asked about one by one: they have several names, or bytes or inode are not
        /// in this partition.
        pub others: Vec<FileId>,
        /// The directories in it.
        pub directories: Vec<FileId>,
        /// The last cookie of the page; 0 at the end.
        pub next: u64,
    }

    /// The end of a walk that did not reach the end of its path.
    #[derive(Copy, Eq)]
    pub struct WalkEnd {
        /// The last directory that was reached.
        pub reached: FileId,
        /// Number of names that remain.
        pub remaining: u32,
    }
}

/// Declares the answers: a name for the function that takes one, the variant, its value.
macro_rules! answers {
    ($($(#[doc = $doc:literal])+ $take:ident $variant:ident $(($value:ty))?,)*) => {
        /// A node's answer to a request.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Answer {
            $($(#[doc = $doc])+ $variant $(($value))?,)*
        }

        impl Answer {
            $(answers!(take $take $variant $(($value))?);)*

            /// Samples for tests: of each answer one for each sample of its value.
            pub fn samples<S>() -> Vec<Self>
            where
                $($(S: FieldSamples<$value>,)?)*
            {
                let mut all = Vec::new();
                $(answers!(samples all S $variant $(($value))?);)*
                all
            }
        }
    };
    (samples $all:ident $source:ident $variant:ident) => {
        $all.push(Self::$variant);
    };
    (samples $all:ident $source:ident $variant:ident ($value:ty)) => {
        $all.extend(<$source as FieldSamples<$value>>::samples().into_iter().map(Self::$variant));
    };
    (take $take:ident $variant:ident) => {
        /// Checks that it is this answer; refuses any other.
        pub fn $take(self) -> Outcome<()> {
            match self {
                Self::$variant => Ok(()),
                other => Err(other.unexpected()),
            }
        }
    };
    (take $take:ident $variant:ident ($value:ty)) => {
        /// Takes the value of this answer; refuses any other.
        pub fn $take(self) -> Outcome<$value> {
            match self {
                Self::$variant(value) => Ok(value),
                other => Err(other.unexpected()),
            }
        }
    };
}

answers! {
    /// Success, without a value.
    done Done,
    /// Answer to `Hello`.
    hello Hello(HelloReply),
    /// Answer to `Usage`.
    usage Usage(SpaceUsage),
    /// Attributes of the inode.
    attributes Attributes(Attributes),
    /// A directory entry.
    found Found(FoundEntry),
    /// A file, which is open if the command asked for it.
    opened Opened(OpenedFile),
    /// Attributes after a change.
    changed Changed(ChangedFile),
    /// A page of directory entries.
    entries Entries(Vec<DirEntry>),
    /// Target of a symbolic link.
    target Target(Bytes),
    /// The parent directory.
    parent Parent(FileId),
    /// The bytes of a read.
    content Content(RangeContent),
    /// Written inline, with the inode, at this offset.
    written Written(u64),
    /// The client must write to stripes.
    stripes Stripes(StripedWrite),
    /// The client must write to this extent.
    extent Extent(Extent),
    /// Written to an extent.
    extent_written ExtentWritten(ExtentWrite),
    /// Not done: first write the inline bytes to stripe 0.
    needs_spill NeedsSpill(InlineSpill),
    /// Not done: first choose the partition of the stripes and send `Place`.
    needs_placement NeedsPlacement(PlacementChoice),
    /// Not done: first truncate these stripes.
    needs_truncate NeedsTruncate(PendingTruncate),
    /// A name was removed. Holds the file if it was deleted too: its stripes are to be removed.
    removed Removed(Option<PendingDelete>),
    /// Not done: the change touches other partitions too, so it needs a transaction.
    needs_transaction NeedsTransaction,
    /// Not done: the directory places the object's bytes differently. Holds the directory's
    /// placement.
    wrong_placement WrongPlacement(PlacementSpec),
    /// The entry was renamed.
    renamed Renamed(RenamedEntry),
    /// The parts are checked and locked. Holds the ids of new inodes, in the order of the parts
    /// that create them.
    prepared Prepared(Vec<FileId>),
    /// The parts are applied or discarded. Holds the deleted files: their stripes are to be
    /// removed.
    settled Settled(Vec<PendingDelete>),
    /// Outcome of a transaction.
    decided Decided(Decision),
    /// An answer that is valid unless one of some transactions is committed. If one is, the client
    /// settles it and asks again.
    unsettled Unsettled(UnsettledAnswer),
    /// An answer that another node must finish: the client sends it there, in `Finish`.
    hosted Hosted(HostedAnswer),
    /// No such entry. Only within `Unsettled`; otherwise the node refuses with `NotFound`.
    no_entry NoEntry,
    /// Fragments of a directory.
    fragments Fragments(DirectoryFragments),
    /// Unfinished work in the partition.
    unfinished_work UnfinishedWork(UnfinishedWork),
    /// Files that were deleted with the session, at most
    /// [`PENDING_DELETES_MAX`](crate::PENDING_DELETES_MAX). The others are in [`UnfinishedWork`].
    closed Closed(Vec<PendingDelete>),
    /// Bytes of a stripe.
    bytes Bytes(Bytes),
    /// Attributes that new inodes in the directory inherit.
    inherited Inherited(InheritedAttributes),
    /// Placement of a file's bytes.
    placement Placement(BytePlacement),
    /// The queried stripes that belong to no file.
    unowned_stripes UnownedStripes(StripeRuns),
    /// The value of an extended attribute.
    xattr Xattr(Bytes),
    /// The names of extended attributes.
    xattrs Xattrs(Vec<Bytes>),
    /// A conflicting lock, if there is one.
    conflict Conflict(Option<Lock>),
    /// The owner of a lock, by which every node knows it.
    lock_owner LockOwner(LockOwner),
    /// Offset of the data or hole, bytes.
    offset Offset(u64),
    /// The range is allocated or freed.
    allocated Allocated(StripeAllocation),
    /// An object, with the bytes of a range or their location.
    object Object(FoundObject),
    /// The object is stored.
    object_stored ObjectStored(StoredObject),
    /// Ids of the reserved files.
    reserved Reserved(Vec<FileId>),
    /// A walk stopped before its end.
    walked Walked(WalkEnd),
    /// Result of a probe of an open lease.
    lease_status LeaseStatus(LeaseStatus),
    /// Live opens, at most [`OPEN_LEASES_MAX`](crate::OPEN_LEASES_MAX).
    open_leases OpenLeases(Vec<OpenLease>),
    /// A page of what is directly in a directory.
    usage_in DirectoryUsage(DirectoryUsage),
    /// The status of all workers of the node.
    workers Workers(Vec<WorkerStatus>),
}

/// Declares the answers of commands that have several: a function that takes one of them, and their
/// type.
macro_rules! answer_sets {
    ($($(#[doc = $doc:literal])+ $take:ident $set:ident { $($variant:ident $(($value:ty))?,)+ })*) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Debug, PartialEq)]
            #[expect(missing_docs, reason = "the variants of `Answer` are documented")]
            pub enum $set {
                $($variant $(($value))?,)+
            }
        )*

        impl Answer {
            $(
                /// Takes one of these answers; refuses any other.
                pub fn $take(self) -> Outcome<$set> {
                    Ok(match self {
                        $(answer_sets!(pattern value $variant $(($value))?) => answer_sets!(set $set value $variant $(($value))?),)+
                        other => return Err(other.unexpected()),
                    })
                }
            )*
        }
    };
    (pattern $bound:ident $variant:ident) => { Answer::$variant };
    (pattern $bound:ident $variant:ident ($value:ty)) => { Answer::$variant($bound) };
    (set $set:ident $bound:ident $variant:ident) => { $set::$variant };
    (set $set:ident $bound:ident $variant:ident ($value:ty)) => { $set::$variant($bound) };
}

answer_sets! {
    /// Answers to a write.
    write WriteAnswer {
        Written(u64),
        ExtentWritten(ExtentWrite),
        Extent(Extent),
        Stripes(StripedWrite),
        NeedsPlacement(PlacementChoice),
        NeedsSpill(InlineSpill),
        NeedsTruncate(PendingTruncate),
    }
    /// Answers to a change of attributes.
    change ChangeAnswer {
        Changed(ChangedFile),
        NeedsTruncate(PendingTruncate),
    }
    /// Answers to an allocation.
    allocate AllocateAnswer {
        Allocated(StripeAllocation),
        NeedsPlacement(PlacementChoice),
        NeedsSpill(InlineSpill),
        NeedsTruncate(PendingTruncate),
    }
    /// Answers to an open by name: where the node is not sure that it may open the file, as to a
    /// lookup.
    open_name OpenNameAnswer {
        Opened(OpenedFile),
        Found(FoundEntry),
        Unsettled(UnsettledAnswer),
        NoEntry,
    }
    /// Answers to a removal.
    removal RemovalAnswer {
        Removed(Option<PendingDelete>),
        NeedsTransaction,
    }
    /// Answers to a rename.
    rename RenameAnswer {
        Renamed(RenamedEntry),
        NeedsTransaction,
    }
    /// Answers to the read of an object by name. It is found only if its inode is in another
    /// partition.
    get_object GetObjectAnswer {
        Object(FoundObject),
        Found(FoundEntry),
    }
    /// Answers to the put of an object.
    put_object PutObjectAnswer {
        ObjectStored(StoredObject),
        NeedsTransaction,
        WrongPlacement(PlacementSpec),
    }
}

impl SubtreeUsage {
    /// Adds another sum.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            directories: self.directories + other.directories,
            bytes: self.bytes + other.bytes,
            allocated: self.allocated + other.allocated,
        }
    }

    /// The sum of one file.
    pub fn of_file(attributes: &Attributes) -> Self {
        Self { files: 1, directories: 0, bytes: attributes.size, allocated: attributes.allocated }
    }

    /// The value of the attribute `user.tidemill.usage` of a directory: JSON.
    pub fn text(&self) -> String {
        let Self { files, directories, bytes, allocated } = self;
        format!(r#"{{"files":{files},"directories":{directories},"bytes":{bytes},"allocated":{allocated}}}"#)
    }
}

impl RangeContent {
    /// Takes the length of the range and its content; refuses content that only nodes read.
    pub fn readable(self) -> Outcome<(usize, ReadableContent)> {
        let content = match self.content {
            Content::Bytes(bytes) => ReadableContent::Bytes(bytes),
            Content::Striped(layout) => ReadableContent::Striped(layout),
            Content::Bound(_) | Content::Extent(_) | Content::Shm(_) | Content::Pieces(_) => {
                return Err(Answer::Content(self).unexpected());
            }
        };
        Ok((self.length as usize, content))
    }
}

impl Answer {
    /// Validates an answer of a node; an error says what is wrong.
    pub fn check(&self) -> CheckResult {
        check::answer(self)
    }

    /// The refusal of an answer of the wrong kind: the node speaks another protocol version.
    fn unexpected(&self) -> Refusal {
        let shown: String = format!("{self:?}").chars().take(80).collect();
        let why = format!("the node gave an unexpected answer ({shown}); it may have another version");
        Refusal::Io { object: Object::Pool, why: why.into() }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// The node refused the request. Resending it would not help.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request or the answer was lost. The request may have been executed.
    #[error("no answer came: {0}")]
    Lost(String),
    /// The node cannot be reached, or accepts no more requests for now. The request was not
    /// executed.
    #[error("not reachable: {0}")]
    Unreachable(String),
}
