//! Entries: all that changes a partition, and the results.
//!
//! Every change of durable state is an [`LogEntry`]. Equal partitions that get the same entries
//! ([`Partition::apply`](crate::Partition::apply)) stay equal and return the same [`Applied`], so
//! entries can be written to a log, sent to replicas, and replayed.
//!
//! Soft state of the node that serves the partition decides one thing: whether a file stays when
//! its last name is gone, since a kernel knows it (`unlinked`). The node that serves asks its soft
//! state ([`Partition::serve`](crate::Partition::serve)); the decisions are in [`Applied`], and in
//! the entry for all others.

use crate::extent_file::Effects;
use placement::FileId;
use serde::{Deserialize, Serialize};
use wire::{Answer, Command, Outcome, Refusal, RequestId, Timestamp};

/// One step of a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Identifies a change, so that it is done once. None for a query.
    pub request_id: Option<RequestId>,
    /// The step.
    pub body: EntryBody,
    /// The wall clock.
    pub now: Timestamp,
    /// Decisions of the node that serves.
    pub unlinked: UnlinkedDecisions,
}

/// The step of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EntryBody {
    /// Executes a command.
    Command(Command),
    /// Replaces the cached reply to the change: for work that the node itself does once.
    Reply(Outcome<Answer>),
}

/// Decisions about unlinked files, which the soft state of the node that serves makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlinkedDecisions {
    /// Files that lose their last name and stay, since a kernel knows them.
    pub kept: Vec<FileId>,
    /// Unlinked files that no kernel knows any more.
    pub released: Vec<FileId>,
}

/// The result of an entry.
#[derive(Debug)]
pub struct Applied {
    /// The answer to its client.
    pub answer: Outcome<Answer>,
    /// Effects for the node, beside the answer.
    pub effects: Effects,
    /// Growth of the partition.
    pub delta: PartitionDelta,
    /// Decisions that were made; a log has them in the entry.
    pub unlinked: UnlinkedDecisions,
    /// True if the durable state may have changed: a log needs the entry.
    pub is_durable: bool,
}

/// Growth of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionDelta {
    /// Growth of its memory cost, bytes.
    pub bytes: i64,
    /// Growth of the number of inodes.
    pub files: i64,
}

impl LogEntry {
    /// An entry that executes a command.
    pub fn command(request_id: Option<RequestId>, command: Command, now: Timestamp) -> Self {
        Self { request_id, body: EntryBody::Command(command), now, unlinked: UnlinkedDecisions::default() }
    }

    /// An entry that replaces the cached reply to a change.
    pub fn reply(request_id: RequestId, answer: Outcome<Answer>, now: Timestamp) -> Self {
        let request_id = Some(request_id);
        Self { request_id, body: EntryBody::Reply(answer), now, unlinked: UnlinkedDecisions::default() }
    }
}

impl Applied {
    /// The result of a command that was refused without an entry.
    pub fn refused(refusal: Refusal) -> Self {
        Self {
            answer: Err(refusal),
            effects: Effects::default(),
            delta: PartitionDelta::default(),
            unlinked: UnlinkedDecisions::default(),
            is_durable: false,
        }
    }
}

/// State of the entry that is executed.
#[derive(Debug, Default)]
pub struct EntryState {
    pub effects: Effects,
    pub unlinked: UnlinkedDecisions,
    /// True if the soft state decides, and not the entry.
    pub is_serving: bool,
    pub is_durable: bool,
}
