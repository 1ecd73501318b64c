//! Layer 3: the client of a pool: routes requests by the partition map, retries, stripes data.
//!
//! A [`Client`] knows where everything lives (the map, the hashes, which directories are split) and asks there. What one
//! partition cannot do alone is an intent: prepared at all, decided at one, settled at all. What a dead client left is
//! finished or undone by whoever meets it, and by [`Client::recover`].
//!
//! ```text
//!   verb (names, moves, files) -> intent -> call: number, route, retry -> a node's Connection -> that node
//! ```
//!
//! Invariants:
//! - A change is sent again with its number until it is answered, so it is done once, whatever the connection loses.
//! - A session ends with a connection that carries it. Calls go on in the next one; what the old one held refuses with `Ended`.
//! - Every wait has an end: tries are counted, pauses grow to a limit, then comes `Unavailable`.
//! - Dropping a future is like dying at that point: nothing is left locked, and the tree stays in order.
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
