//! Layer 7: transport between clients and nodes over sockets, the server side and the client side.
//!
//! [`serve`] accepts clients from other processes. [`Remote`] is a [`client::Connection`] to such a
//! node. `docs/formats/wire.md` specifies the protocol. The node and the client give requests their
//! meaning; neither knows that a socket lies between them.
//!
//! ```text
//!   Client -> Remote -> ClientConnection == Framed ~~ socket ~~ Framed == ServerConnection -> Node
//!             any thread |  ConnectionDriver, on a         a task per connection |
//!                        |  runtime or Reactor                                   |
//!                        +-- InvalidationThreads:            InvalidationQueue: -+
//!                            the frontend's callbacks     the node's callbacks
//! ```
//!
//! Either a runtime drives the connections of a client, so that cache invalidations arrive at any
//! time, or a [`Reactor`] does, which runs on the threads that wait for replies. A [`Reactor`] is
//! for a process that is not ours: it starts no thread, uses no signal and survives a fork.
//!
//! Modules:
//! - `address`, `identity`: the address of a node, and the certificate of a pool
//! - `server`: the node's side: `server/listener` and `server/admission` accept,
//!   `server/server_connection` serves one connection, `server/session_cleanup` ends it,
//!   `server/limits` and `server/recv_budget` bound it, `server/invalidation_queue` sends cache
//!   invalidations, `server/lease_table` and `server/exported_segments` lend descriptors and memory
//! - `remote`: the client's side: `remote/client_connection` as callers see it, `remote/driver`
//!   between it and its socket, `remote/dial` connects, `remote/reactor_connection` does both where
//!   a reactor drives, `remote/lease` holds leases, `remote/invalidation_threads` runs callbacks
//! - `shm`: memory of a node that a client of its host has mapped
//! - `socket`: sockets of all kinds: `socket/framed` frames, `socket/scm_rights` descriptors,
//!   `socket/tls`
//!
//! Invariants:
//! - One connection to a node carries a session. When the connection ends, everything that the
//!   session holds at that node ends, and none of its changes is done afterwards. So a change that
//!   is sent again over the next connection is never done twice.
//! - Garbage, silence or a flood on one connection affects no other. All resources of a connection
//!   are bounded: [`ServerLimits`].
//! - Bytes of the node's memory that a client of this host views do not change until the client has
//!   released the view, or can no longer read it.
//! - A client of this host can write only to blocks of the node's memory that it has claimed. Once
//!   published, a block belongs to its stripe alone.
//! - Any runtime, or none, may poll the futures of a [`Remote`]. Those of a [`Reactor`] make
//!   progress only while some thread waits with that [`Reactor`].
//! - A forked child sends nothing over its parent's connections.
//! - The server listens without TLS at an address that other hosts reach only if asked for by name.
//!   Within TLS, a client trusts one certificate, the pool's.
#![deny(unsafe_code)]

mod address;
mod identity;
mod remote;
mod server;
mod shm;
mod socket;

pub use address::{Address, AddressError};
pub use identity::{Certificate, Identity, IdentityError};
pub use reactor::{RESERVED_FDS, Reactor, ReservedFd, is_reserved};
pub use remote::{Remote, dial::runtime};
pub use server::{
    ServeError, Server,
    limits::{ServerLimits, server_threads},
    listener::{ListenError, Listener},
    serve, serve_on,
};

/// The reply to one request.
type ReplyResult = Result<wire::Answer, wire::Failure>;
