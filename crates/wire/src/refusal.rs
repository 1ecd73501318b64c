//! Why something was not done: by meaning, with the object named. Faces map these to errno, status codes, exceptions.

use crate::{Intent, Name, Version};
use base::ByteSize;
use placement::{FileId, NodeId};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// What comes of a call.
pub type Outcome<T> = Result<T, Refusal>;

/// Longer texts are cut in messages.
const TEXT_BYTES_MAX: usize = 300;

/// What a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Object {
    /// An inode.
    File(FileId),
    /// A name in a directory.
    Entry {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// An open file.
    Handle(u64),
    /// A path, a bad name, a host file.
    Text(String),
    /// The pool as a whole.
    Pool,
}

impl Object {
    /// An entry's place.
    pub fn entry(parent: FileId, name: &Name) -> Self {
        Self::Entry { parent, name: name.clone() }
    }

    /// Bytes that are no checked name: a path, a name that was refused. Cut when very long.
    pub fn text(bytes: &[u8]) -> Self {
        let cut = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
        Self::Text(String::from_utf8_lossy(cut).into_owned())
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "file {file}"),
            Self::Entry { parent, name } => write!(f, "`{name}` in directory {parent}"),
            Self::Handle(handle) => write!(f, "handle {handle}"),
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Pool => f.write_str("the pool"),
        }
    }
}

/// How full the pool was when it had no space left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// The node that is full; none where it is the pool, or its only node.
    pub node: Option<NodeId>,
    /// What that can hold, bytes.
    pub capacity: u64,
    /// What it held, bytes.
    pub used: u64,
    /// What was wanted besides, bytes.
    pub wanted: u64,
    /// How long the request had waited for space.
    pub waited: Duration,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = self.node.map_or_else(|| "the pool".to_owned(), |node| format!("node {node} of the pool"));
        if self.wanted > self.capacity {
            let (wanted, capacity) = (ByteSize(self.wanted), ByteSize(self.capacity));
            return write!(
                f,
                "{full} is too small: it holds at most {capacity}, and {wanted} are wanted; give it more memory"
            );
        }
        write!(
            f,
            "{full} is full: {} of {} used, {} more wanted, waited {:.1} s for space; \
             give the pool more memory, or delete files that are no longer needed",
            ByteSize(self.used),
            ByteSize(self.capacity),
            ByteSize(self.wanted),
            self.waited.as_secs_f64()
        )
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// No such file, or no such entry.
    #[error("{0}: no such file or directory")]
    NotFound(Object),
    /// The name is taken.
    #[error("{0}: exists already")]
    Exists(Object),
    /// A directory was needed.
    #[error("{0}: not a directory")]
    NotDirectory(Object),
    /// Something other than a directory was needed.
    #[error("{0}: is a directory")]
    IsDirectory(Object),
    /// The directory holds entries.
    #[error("{0}: directory not empty")]
    NotEmpty(Object),
    /// A name above 255 bytes, or a link's target above 4,095.
    #[error("{0}: name too long (at most 255 bytes, 4095 for a link's target)")]
    NameTooLong(Object),
    /// A bound input cannot be changed.
    #[error("{0}: is a bound input, which is read-only")]
    ReadOnly(Object),
    /// The pool is full.
    #[error("{0}")]
    NoSpace(Shortage),
    /// The file would grow above the limit, or a count would overflow.
    #[error("{object}: too large, the limit is {limit}")]
    TooLarge {
        /// What would grow.
        object: Object,
        /// The most that it may have.
        limit: u64,
    },
    /// The arguments make no sense.
    #[error("{object}: {why}")]
    Invalid {
        /// What it was asked of.
        object: Object,
        /// What is wrong with it.
        why: Cow<'static, str>,
    },
    /// Not allowed to this caller.
    #[error("{0}: not permitted")]
    NotPermitted(Object),
    /// The handle is not open, or not for this use.
    #[error("{0}: not open for this")]
    BadHandle(Object),
    /// More open files than there may be.
    #[error("{object}: too many open files, at most {limit}")]
    TooManyOpen {
        /// What was to be opened.
        object: Object,
        /// The most that may be open.
        limit: u64,
    },
    /// Another change of the same object is under way and did not end in time.
    #[error("{0}: another change of it is under way; try again")]
    Busy(Object),
    /// A change over several partitions holds it. Clients settle that and go on: faces never see this.
    #[error("a change over several partitions (number {} of client {}) holds it", .intent.number, .intent.session.0)]
    Held {
        /// Which.
        intent: Intent,
    },
    /// The directory's entries are in fragments, or are to be put there first. Clients go there: faces never see this.
    #[error("the entries of directory {directory} are in {} fragments", 1_u32 << .bits)]
    Split {
        /// The directory.
        directory: FileId,
        /// How many bits of a name's hash choose its fragment; 0 when it is full and not split yet.
        bits: u8,
    },
    /// The inode has as many names as there may be.
    #[error("{object}: has {limit} names, more there cannot be")]
    TooManyLinks {
        /// The inode.
        object: Object,
        /// The most.
        limit: u32,
    },
    /// The request speaks of a state that has passed (an older generation, a settled number).
    #[error("{0}: the request speaks of a state that has passed")]
    Stale(Object),
    /// The session has ended, or has said no hello to this node on this connection. Clients begin another: faces see this only
    /// of what the old one held.
    #[error("the session has ended, and what it held with it: open the file again")]
    Ended,
    /// The connection broke under a change, and the session ended with it: it is not sent again.
    #[error(
        "{0}: the connection broke while it was changed; whether that was done is not known: look before you do it again"
    )]
    MaybeDone(Object),
    /// The object is not in the state that it was to be in; nothing was done.
    #[error("{object}: {}", changed(*.present))]
    Changed {
        /// The object.
        object: Object,
        /// The state in which it is; none when there is none.
        present: Option<Version>,
    },
    /// Both ends of a rename or link must be in one pool.
    #[error("both names must be in one pool")]
    CrossesPools,
    /// The home of the object did not answer; whether the change was made is not known.
    #[error("{object}: its node does not answer ({tries} tries): {why}; see that the node runs, then try again")]
    Unavailable {
        /// What was asked for.
        object: Object,
        /// How often it was tried.
        tries: u32,
        /// What was seen last.
        why: Cow<'static, str>,
    },
    /// Where its bytes lie was to be changed, and there are some in stripes.
    #[error("{0}: its bytes lie where they are; copy it to where they are to lie otherwise")]
    Placed(Object),
    /// The inode has no such extended attribute.
    #[error("{0}: no such attribute")]
    NoAttribute(Object),
    /// A name or value of an extended attribute that is too long.
    #[error("{object}: attribute too long, at most {limit} bytes")]
    AttributeTooLong {
        /// Whose attribute.
        object: Object,
        /// The most that it may have, bytes.
        limit: usize,
    },
    /// The names of an inode's extended attributes would not fit in one list.
    #[error("{0}: too many attributes, their names take at most 64 KiB together")]
    TooManyAttributes(Object),
    /// A lock of somebody else is in the way.
    #[error("{0}: locked by another owner")]
    Locked(Object),
    /// Whoever holds the lock waits, maybe by others, for who asked.
    #[error("{0}: waiting for this lock would never end")]
    Deadlock(Object),
    /// The file has as many locks as it may have, or the node as many who wait for one.
    #[error("{object}: too many locks, at most {limit}")]
    TooManyLocks {
        /// The file.
        object: Object,
        /// The most that there may be.
        limit: u64,
    },
    /// There is no data behind this offset.
    #[error("{0}: nothing there, the offset is at or behind the end")]
    BeyondEnd(Object),
    /// It took longer than allowed.
    #[error("{0}: took too long")]
    TimedOut(Object),
    /// The caller was interrupted.
    #[error("{0}: interrupted")]
    Interrupted(Object),
    /// This pool cannot do that.
    #[error("{object}: {what} is not supported")]
    Unsupported {
        /// What it was asked of.
        object: Object,
        /// What was asked.
        what: Cow<'static, str>,
    },
    /// A node does not let this client in: its token is not the pool's, or its user may not reach the node.
    #[error("{why}")]
    NotAdmitted {
        /// Where, what was wrong and what to do.
        why: Cow<'static, str>,
    },
    /// The node and this client speak no version of the protocol that is the same.
    #[error("{why}")]
    Incompatible {
        /// Where, which versions and what to do.
        why: Cow<'static, str>,
    },
    /// The host's disk or the engine failed.
    #[error("{object}: {why}")]
    Io {
        /// What was read or written.
        object: Object,
        /// What went wrong and what to do.
        why: Cow<'static, str>,
    },
}

impl Refusal {
    /// Arguments that make no sense for `object`.
    pub fn invalid(object: Object, why: &'static str) -> Self {
        Self::Invalid { object, why: why.into() }
    }
}

fn changed(present: Option<Version>) -> String {
    match present {
        Some(version) => format!("is not in the state that was asked for, but in {version}; get it, then try again"),
        None => "is not there, and was to be in a certain state; see whether it was deleted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_says_how_full_and_what_to_do() {
        let shortage = Shortage {
            node: None,
            capacity: 1 << 30,
            used: 1 << 30,
            wanted: 4096,
            waited: Duration::from_millis(1500),
        };
        let text = Refusal::NoSpace(shortage).to_string();
        assert!(text.contains("1.5 s") && text.contains("more memory"), "{text}");
    }

    #[test]
    fn refusals_stay_small_enough_to_return_by_value() {
        assert!(size_of::<Refusal>() <= 64, "{}", size_of::<Refusal>());
    }
}
