//! Layer 3: the messages between client and node: requests, answers, refusals.
//!
//! A client and a node exchange only these values, even when both run in one process. Code that
//! works over the in-process connection therefore works over a socket too:
//!
//! ```text
//!  client                                    node
//!    | Request { epoch, partition, body } ---> |   old epoch? replies with the new entry
//!    |                                         |   resent request id? replies with the cached one
//!    | <--- Answer | Refusal ----------------- |
//! ```
//!
//! [`frame`], [`codec`] and [`handshake`] turn these values into bytes and back, for transports
//! between processes. They do no I/O and have no clock.
#![forbid(unsafe_code)]

mod acl;
mod allocate;
mod answer;
mod attributes;
pub mod codec;
mod command;
mod command_table;
mod content;
pub mod credentials;
mod decode_limits;
mod entry;
mod errno;
mod extent;
pub mod frame;
pub mod handshake;
mod intent;
mod lock;
mod mode;
mod name;
mod object;
mod open_lease;
mod recall;
mod refusal;
mod request;
mod request_kind;
mod usage;
mod worker_status;
mod xattr;

pub use acl::{Acl, AclError};
pub use allocate::{AllocateMode, SeekTo};
pub use answer::*;
pub use attributes::{Attributes, Changes, Kind, OpenFlags, Owner, TimeChange, Timestamp};
pub use command::{
    Command, FILE_BYTES_MAX, INLINE_BYTES_MAX, LIST_ENTRIES_MAX, NOT_FOR_CLIENTS, NewInode, NewKind, PROTOCOL_VERSION,
    RESERVED_MAX, WritePlace,
};
pub use command_table::{BulkField, CommandRow, FieldSamples, TypedCommand};
pub use content::{
    Content, HelloReply, PENDING_DELETES_MAX, PendingDelete, PendingTruncate, ReadableContent, UnfinishedWork,
};
pub use credentials::{Credentials, DirAccess};
pub use entry::{COOKIE_FIRST, DirEntry, RenameFrom, RenameMode, RenameTo, fragment_of_cookie};
pub use errno::{errno, errno_and_level};
pub use extent::{Extent, ExtentAction, ExtentRequest, Times};
pub use intent::{Decision, Intent, Part, Target};
pub use lock::{Lock, LockKind, LockOwner, LockStyle};
pub use mode::{Acls, InheritedAttributes, Mode, SET_GROUP_ID};
pub use name::{NAME_BYTES_MAX, Name, TARGET_BYTES_MAX, path_names};
pub use object::{Condition, Contents, InvalidVersion, ObjectMeta, Version};
pub use open_lease::{LeaseKind, LeaseStatus, OpenLease, OpenLeaseId};
pub use recall::Recall;
pub use refusal::{MovedPartition, Object, Outcome, Refusal, SpaceShortage};
pub use request::{Body, MoveStep, OPEN_LEASES_MAX, Request, RequestId, Session, StripeAction, WalkAction};
pub use request_kind::RequestKind;
pub use usage::{HostFile, SpaceUsage, StripeRuns};
pub use worker_status::WorkerStatus;
pub use xattr::{
    ACL_ACCESS, ACL_DEFAULT, DESCRIPTIONS, DTYPE, LOCATE, OBJECT_ATTRIBUTES_MAX, OWN_NAMES, ObjectAttributes,
    PLACEMENT, SHAPE, STRIPE_SIZE, USAGE, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode,
};
