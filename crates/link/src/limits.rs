//! What connections may take of a server.

use std::{thread, time::Duration};
use wire::handshake::HANDSHAKE_WAIT;

/// What connections may take of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many connections at one time at each address, of those that have proven that they may come in.
    pub connections: usize,
    /// So many that have not proven it yet, at each address; who comes then takes the place of the one who has waited longest.
    pub unproven: usize,
    /// Who has not done its part of the handshake by then is cut off.
    pub handshake: Duration,
    /// So many requests of one connection may wait (for space, locks, others' hearing). More are told that the node takes no more
    /// for now. Reading goes on: what frees those that wait may come behind them.
    pub waiting: usize,
    /// So many bytes may the requests that wait carry, of one connection; and twice as many, of all together.
    pub waiting_bytes: usize,
    /// So many bytes may payloads and long metas have that are arriving, of all connections together; others are not read meanwhile.
    pub arriving_bytes: usize,
    /// While so many bytes of answers are not written, no more requests of the connection are read.
    pub queued_bytes: usize,
    /// So many descriptors and views may a client of this host have at one time, of one connection.
    pub loans: usize,
    /// So long an answer is looked at in the node's memory by a client of this host, and shorter ones are sent, bytes.
    pub placed: usize,
    /// So many bytes may a client of this host look at in the node's memory at one time, of one connection; more are sent.
    pub viewed_bytes: usize,
    /// So long bytes are put into the node's memory by a client of this host, and shorter ones are sent, bytes. At most half a block.
    pub published: u32,
    /// So many empty blocks are offered to a client of this host at one time, at most 64, where there is room.
    pub offers: u32,
    /// Whether any client may bind files of this host, and so read all that the node's user may. Without it only one of that user may,
    /// over a Unix socket.
    pub host_files: bool,
    /// So many sessions may one connection have.
    pub sessions: usize,
    /// So many connections of this host may look for their next request a while before they wait for it, at one time: each takes a
    /// processor while it is busy.
    pub looking: usize,
    /// Threads of the runtime that [`serve`](crate::serve) makes.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Far more than a job has hosts; each takes a descriptor and, idle, some KiB.
            connections: 1024,
            // A client of this host is through in a millisecond, one that is far away in a few.
            unproven: 128,
            handshake: HANDSHAKE_WAIT,
            // Twice the waiters for locks that a node has room for (4,096), so that what unlocks still comes through.
            waiting: 8192,
            // The writes that a mount parks for space (256), of a stripe each.
            waiting_bytes: 256 << 20,
            // A few of the longest, or a stripe of each of dozens of clients. What is received where it stays does not count.
            arriving_bytes: 64 << 20,
            // A few of the longest answers.
            queued_bytes: 32 << 20,
            // As many as there may be whole files.
            loans: 65_536,
            // Placing takes as long as sending 4 KiB; shorter ones would keep whole blocks for a few bytes.
            placed: 16 << 10,
            // As much as is being worked on by a process of many threads.
            viewed_bytes: 1 << 30,
            // Shorter ones would leave parts of blocks that no stripe of the same length fits into.
            published: 256 << 10,
            // Twice the stripes of an object that are on their way at once.
            offers: 16,
            host_files: false,
            sessions: 1024,
            // Half of the processors: the others are for who asks. None where there is one.
            looking: thread::available_parallelism().map_or(0, |processors| processors.get() / 2),
            threads: 2,
        }
    }
}
