//! Limits on the resources that connections may take of a server.

use std::{num::NonZeroUsize, thread, time::Duration};
use wire::handshake::HANDSHAKE_WAIT;

/// Limits on the resources that connections may take of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Most authenticated connections at a time, at each address.
    pub connections: usize,
    /// Most unauthenticated connections at a time, at each address; a further one replaces the one
    /// that has waited longest.
    pub unauthenticated: usize,
    /// Time limit of the handshake; a connection that has not finished it by then is closed.
    pub handshake: Duration,
    /// Most waiting requests of one connection (for space, locks, invalidation acks). Further ones
    /// fail as if the connection were lost. Reading goes on, because requests that free the waiting
    /// ones may come after them.
    pub waiting: usize,
    /// Most payload bytes of the waiting requests of one connection; all connections together may
    /// have twice as many.
    pub waiting_bytes: usize,
    /// Most bytes of payloads and long metas that are arriving, of all connections together;
    /// further ones are not read meanwhile.
    pub arriving_bytes: usize,
    /// Most unwritten bytes of replies; above that no more requests of the connection are read.
    pub queued_bytes: usize,
    /// Most leased descriptors and views at a time, of one connection from this host.
    pub leases: usize,
    /// Shortest reply that a client of this host views in the node's memory, bytes; shorter ones
    /// are sent.
    pub min_view_bytes: usize,
    /// Most bytes that one connection from this host may view in the node's memory at a time;
    /// further replies are sent.
    pub viewed_bytes: usize,
    /// Shortest data that a client of this host puts into the node's memory, bytes; shorter data is
    /// sent. At most half a block.
    pub min_write_bytes: u32,
    /// Empty blocks offered to a client of this host at a time, at most 64, while there is room.
    pub offered_blocks: u32,
    /// True if any client may bind files of this host, and so read all that the node's user may. If
    /// false, only a client of that user may, over a Unix socket.
    pub host_files: bool,
    /// Most sessions of one connection.
    pub sessions: usize,
    /// Most clients that are active while connections of this host busy-poll for their next
    /// request; each takes a processor meanwhile.
    pub busy_polls: usize,
    /// Threads of the runtime that [`serve`](crate::serve) makes: see [`server_threads`].
    pub threads: usize,
}

/// Number of threads that serve a node's connections: one for each processor, at most `most`. On
/// two processors it is one: two would wake each other for requests, and leave none to clients.
pub fn server_threads(most: usize) -> usize {
    match thread::available_parallelism().map_or(1, NonZeroUsize::get) {
        ..=2 => 1,
        processors => processors.min(most),
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            // Far more than a job has hosts; each takes a descriptor and, idle, some KiB.
            connections: 1024,
            // A client of this host authenticates in a millisecond, a distant one in a few.
            unauthenticated: 128,
            handshake: HANDSHAKE_WAIT,
            // Twice the lock waiters that a node has room for (4,096), so that unlocks still get
            // through.
            waiting: 8192,
            // The writes that a mount parks for space (256), of a stripe each.
            waiting_bytes: 256 << 20,
            // A few of the longest, or a stripe of each of dozens of clients. Payloads received
            // into blocks where they stay do not count.
            arriving_bytes: 64 << 20,
            // A few of the longest replies.
            queued_bytes: 32 << 20,
            // Equals the most extent files that there may be.
            leases: 65_536,
            // Exporting a view takes as long as sending 4 KiB; shorter views would keep whole
            // blocks for a few bytes.
            min_view_bytes: 16 << 10,
            // About the working set of a process of many threads.
            viewed_bytes: 1 << 30,
            // Shorter data would leave parts of blocks that fit no stripe of the same length.
            min_write_bytes: 256 << 10,
            // Twice the stripes of an object that are in flight at once.
            offered_blocks: 16,
            host_files: false,
            sessions: 1024,
            // Half of the processors; the others are for the clients. Zero on a single processor.
            busy_polls: thread::available_parallelism().map_or(0, |processors| processors.get() / 2),
            threads: server_threads(2),
        }
    }
}
