//! Layer 1: the FUSE transport: the kernel's requests as values, and answers back, over `/dev/fuse`.
//!
//! ```text
//!   kernel --- /dev/fuse ---> threads of a Session --- Request, Reply ---> Serve (the file system)
//!          <-- answers ------------------------------- Reply::entry, ...        |
//!          <-- Notifier: drop what you cached; Backings: read this file yourself
//! ```
//!
//! The idea: a request is a borrowed view of the buffer that it was read into, an answer is one `writev` from where its
//! parts lie. A thread hands each request out with a [`Reply`] that may be taken elsewhere and answered late, so nothing
//! that waits holds a thread. Each request is answered exactly once: a reply that is dropped, also by a panic, answers EIO.
//!
//! What it does not do: it neither mounts nor unmounts ([`Device`] is given an open `/dev/fuse` that a mount was made
//! with), keeps no inodes, checks no permissions, and knows no async runtime.
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
