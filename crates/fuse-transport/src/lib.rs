//! Layer 0: the FUSE transport: requests of the kernel as typed values, and replies to them, over
//! `/dev/fuse`.
//!
//! ```text
//!   kernel --- /dev/fuse ---> threads of a FuseSession --- FuseRequest, FuseReply --> Handler
//!          <-- replies ---------------------------------- FuseReply::entry, ...  (the file system)
//!          <-- Notifier: invalidate caches; Backings: register files for passthrough
//! ```
//!
//! A request borrows the buffer that it was read into; a reply is one `writev` of its parts. A
//! thread passes each request to the file system with a [`FuseReply`], which may move to another
//! thread and be answered later. So a waiting request does not block a thread. Each request is
//! answered exactly once: a reply that is dropped, even by a panic, answers EIO.
//!
//! The crate does not mount or unmount ([`Device`] wraps an open `/dev/fuse` of an existing mount),
//! store inodes, check permissions, or depend on an async runtime.
#![deny(unsafe_code)]

mod abi;
mod backings;
mod buffer_pool;
mod config;
mod decode;
mod device;
mod encode;
mod handshake;
mod interrupts;
mod ioctl;
mod listing;
mod notifier;
mod reply;
mod request;
mod session;
mod types;
mod worker;

pub use backings::Backings;
pub use buffer_pool::WriteData;
pub use config::{Config, Negotiated};
pub use device::Device;
pub use interrupts::Interruption;
pub use listing::{FuseDirent, Listing};
pub use notifier::Notifier;
pub use reply::FuseReply;
pub use request::{FuseOp, FuseRequest, ROOT, Setattr};
pub use session::{FuseSession, Handler};
pub use types::{BackingId, FuseAttributes, FuseEntry, FuseLock, FuseLockKind, FuseOpen, SetTime, Statfs, Statx, Time};
