//! Layer 1: the FUSE transport: requests of the kernel as typed values, and replies to them, over
//! `/dev/fuse`.
//!
//! ```text
//!   kernel --- /dev/fuse ---> threads of a Session --- Request, Reply --> Serve (the file system)
//!          <-- replies ------------------------------- Reply::entry, ...       |
//!          <-- Notifier: invalidate caches; Backings: register files for passthrough
//! ```
//!
//! A request borrows the buffer that it was read into; a reply is one `writev` of its parts. A
//! thread passes each request to the file system with a [`Reply`], which may move to another thread
//! and be answered later. So a waiting request does not block a thread. Each request is answered
//! exactly once: a reply that is dropped, even by a panic, answers EIO.
//!
//! The crate does not mount or unmount ([`Device`] wraps an open `/dev/fuse` of an existing mount),
//! store inodes, check permissions, or depend on an async runtime.
#![deny(unsafe_code)]

mod abi;
mod backings;
mod config;
mod decode;
mod encode;
mod handshake;
mod interrupts;
mod ioctl;
mod line;
mod listing;
mod memory;
mod notifier;
mod reply;
mod request;
mod session;
mod values;
mod worker;

pub use backings::Backings;
pub use config::{Config, Granted};
pub use interrupts::Interrupted;
pub use line::Device;
pub use listing::{Listing, Name};
pub use memory::Data;
pub use notifier::Notifier;
pub use reply::Reply;
pub use request::{Operation, ROOT, Request, Setattr};
pub use session::{Serve, Session};
pub use values::{Attributes, BackingId, Entry, Lock, LockKind, Opened, SetTime, Statfs, Statx, Time};
