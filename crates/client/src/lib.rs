//! Layer 3: the client of a pool: routes requests by the partition map, retries, stripes data.
//!
//! A [`Client`] computes where everything is (the map, the hashes, the directories that are split)
//! and sends its requests there. A change that one partition cannot do alone is an intent, a
//! two-phase commit: prepared at all partitions, decided at one, settled at all. An intent of a
//! dead client is finished or undone by the next client that conflicts with it, and by
//! [`Client::recover`].
//!
//! ```text
//!   verb (names, moves, files) -> intent -> call: number, route, retry -> Connection -> node
//! ```
//!
//! Invariants:
//! - A change is resent with its request id until it is answered, so it is done once, whatever
//!   messages the connection loses.
//! - A session ends when a connection that carries it breaks. Later calls are made in the next
//!   session; handles of the old one are refused with `Ended`.
//! - Every wait is bounded: tries are counted, pauses grow to a limit, then the call fails with
//!   `Unavailable`.
//! - Dropping a future is like a crash of the client at that point: nothing stays locked, and the
//!   tree stays consistent.
#![forbid(unsafe_code)]

mod allocate;
mod below;
mod call;
mod client;
mod connection;
mod files;
mod finish;
mod greet;
mod inode;
mod intent;
mod life;
mod locate;
mod marked;
mod meet;
mod moves;
mod names;
mod nodes;
mod numbers;
pub mod objects;
mod outage;
mod place;
mod retry;
mod route;
mod split;
mod split_stat;
pub mod twin;
mod usage;
mod watch;
mod whole;

pub use below::Below;
pub use client::{Client, at_once};
pub use connection::{Borrowing, Connection, InProcess, Obtaining};
pub use files::{Opened, Written};
pub use locate::{Expected, Located};
pub use marked::Given;
pub use node::{Backing, Hear, Loan};
pub use nodes::Nodes;
pub use objects::Objects;
pub use retry::Patience;
