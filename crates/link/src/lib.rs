//! Layer 4: connections over sockets: a node served, and the way to it.
//!
//! [`serve`] lets clients of other processes in; [`Remote`] is a [`client::Connection`] to there. What they say is
//! `docs/formats/wire.md`; what it means is the node's and the client's, who do not know that there is a socket.
//!
//! ```text
//!   Client -> Remote -> Line ==== Driver: Pipe ~~~~ socket ~~~~ Pipe ==== Guest -> Node
//!             any thread  |  link's own runtime, or Hand            |  a task for each connection
//!                         +-- ears: a face's `hear`                 +-- told: the node's `hear`
//! ```
//!
//! A client's connections are driven by a runtime, so that what comes unasked is heard; or by whoever waits with a [`Hand`], for a process that is
//! not ours: no thread, no signal, nothing that a fork breaks.
//!
//! Invariants:
//! - A session is carried by one connection to a node. When that ends, all that the session holds there ends, and no change
//!   of it is done any more: so what is sent again over the next connection is never done twice.
//! - What one connection brings (garbage, silence, a flood) touches no other. Everything that it may take has a bound: [`Limits`].
//! - What a client of this host looks at in the node's memory stays what it is until the client has given it back, or can look no more.
//! - What such a client puts into the node's memory reaches no byte that is not its own, and once it is published nobody's but the stripe's.
//! - Futures of a [`Remote`] may be polled by any runtime or none; those by hand, while somebody waits with that hand.
//! - A child of a process says nothing over its parent's connections.
//! - Nobody listens at an address that others reach without TLS, unless that is asked for by name. Within TLS a client trusts one
//!   certificate, the pool's.
#![deny(unsafe_code)]

mod address;
mod arriving;
mod bare;
mod bay;
mod brisk;
mod carried;
mod crew;
mod dial;
mod driver;
mod ears;
mod entrance;
mod gate;
mod guest;
mod hand;
mod identity;
mod janitor;
mod limits;
mod line;
mod listener;
mod loan;
mod loans;
mod near;
mod own;
mod payload;
mod pipe;
mod placing;
mod rare;
mod remote;
mod rights;
#[allow(unsafe_code, reason = "it looks at raw memory; its block says why it is sound")]
mod segment;
mod server;
mod shown;
mod stream;
mod tls;
mod told;
#[allow(unsafe_code, reason = "it writes to raw memory; its blocks say why they are sound")]
mod window;

pub use address::{Address, AddressRefused};
pub use dial::runtime;
pub use hand::Hand;
pub use identity::{Certificate, Identity, IdentityRefused};
pub use limits::Limits;
pub use listener::{ListenFailed, Listener};
pub use own::{OWN_NUMBERS, Own, is_own};
pub use remote::Remote;
pub use server::{ServeFailed, Server, serve, serve_on};
