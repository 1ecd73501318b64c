//! Layer 1: the messages between client and node: requests, answers, refusals.
//!
//! A client and a node exchange only these values, even when both run in one process. Code that
//! works over the in-process connection therefore works over a socket too:
//!
//! ```text
//!  client                                    node
//!    | Request { epoch, partition, body } ---> |   stale epoch? replies with the new map
//!    |                                         |   resent request id? replies with the cached one
//!    | <--- Answer | Refusal ----------------- |
//! ```
//!
//! [`frame`], [`codec`] and [`handshake`] turn these values into bytes and back, for transports
//! between processes. They do no I/O and have no clock.
#![forbid(unsafe_code)]

mod allocate;
mod attributes;
mod bounded;
pub mod codec;
mod command;
pub mod credentials;
mod entry;
mod extent;
pub mod frame;
pub mod handshake;
mod intent;
mod lock;
mod mark;
mod mode;
mod name;
mod object;
mod recall;
mod refusal;
mod request;
mod space;
mod xattr;

pub use allocate::{AllocateMode, SeekTo};
pub use attributes::{Attributes, Changes, Kind, OpenFlags, Owner, TimeChange, Timestamp};
pub use command::{
    Command, FILE_BYTES_MAX, INLINE_BYTES_MAX, LIST_ENTRIES_MAX, NewInode, NewKind, RESERVED_MAX, WritePlace,
};
pub use credentials::{Credentials, Needs};
pub use entry::{COOKIE_FIRST, DirEntry, RenameFrom, RenameMode, RenameTo, fragment_of_cookie};
pub use extent::{Extent, ExtentAction, Times, Wish};
pub use intent::{Decision, Intent, Part, Target};
pub use lock::{Lock, LockKind, LockOwner, LockStyle};
pub use mark::{Lent, Looked, Mark, Marked};
pub use mode::{Acls, Heritage, Mode, SET_GROUP_ID};
pub use name::{NAME_BYTES_MAX, Name, TARGET_BYTES_MAX};
pub use object::{Condition, Contents, Head, Version, VersionRefused};
pub use recall::Recall;
pub use refusal::{Object, Outcome, Refusal, Shortage};
pub use request::{
    Answer, Body, Content, Failure, GONE_MAX, Gone, Leftovers, MARKED_MAX, Request, Session, Stamp, StripeAction, Then,
    Trim, Welcome,
};
pub use space::{HostFile, StripeRuns, Usage};
pub use xattr::{
    ACL_ACCESS, ACL_DEFAULT, DESCRIPTIONS, DTYPE, LOCATE, OBJECT_ATTRIBUTES_MAX, OWN_NAMES, ObjectAttributes,
    PLACEMENT, SHAPE, STRIPE_SIZE, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode,
};
