//! What a starter and a node that starts say to each other: JSON, a line each, over the node's standard input and output.
//!
//! ```text
//!  starter                            node
//!    | Order (all seats, token) -------> |   takes its seat, listens
//!    | <------------------------- Here - |   where, and how much memory
//!    | Deal (who gets how much) -------> |   takes its partitions, serves
//!    | <------------------------ Ready - |
//!    |   writes the pool file            |
//!    | Keep ---------------------------> |   lets go of its starter
//! ```
//! A node that meets the end of its input before `Keep` ends, unless the pool file is there and names it: a starter that is ended while it
//! tells them leaves a whole pool.

use crate::file::NodeEntry;
use base::{ByteSize, Problem};
use placement::{NodeId, PartitionMap};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, BufRead, Read, Write},
    net::IpAddr,
    time::Duration,
};

/// Lines are shorter: a seat takes less than 200 bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Both sides must be of one version: they may be files of two hosts.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What all nodes of a start are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub version: String,
    /// The pool's id.
    pub pool: String,
    pub token: String,
    /// The pool's certificate with its key, as text, if nodes of other hosts speak within TLS.
    pub identity: Option<String>,
    pub partitions: u32,
    /// How long requests wait for space.
    pub space_wait: Duration,
    pub seats: Vec<Seat>,
}

/// What one node is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub id: u32,
    /// How many of the nodes share its host.
    pub nodes_here: u32,
    pub reach: Reach,
    /// 0: any that is free.
    pub port: u16,
    pub memory: Memory,
    /// By default the processors that it may use.
    pub slots: Option<u32>,
}

/// From where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reach {
    /// From its own host.
    Here,
    /// From others, by this name or address.
    Named(String),
    /// From others, by the name that its host has for itself.
    OwnName,
}

impl Reach {
    /// Whether what is said can be heard by others, as far as the name tells.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Here => false,
            Self::OwnName => true,
            Self::Named(host) => {
                host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// How much a node may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// Its part of what is free on its host.
    Usual,
    /// So many bytes; 0 for a node that only computes.
    Bytes(u64),
}

/// From the starter, behind the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// All nodes: partitions are dealt by their memory.
    Deal(Vec<NodeEntry>),
    Keep,
}

/// From the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Here(NodeEntry),
    Ready(u32),
    /// It cannot: message and hint.
    Refused(u32, String, Option<String>),
}

/// Writes a line.
pub fn say(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads a line; none at the end.
pub fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, format!("this is no line of ours: {error}"));
    serde_json::from_slice(&line).map(Some).map_err(wrong)
}

/// The map of a deal: partitions by memory, the same at every node.
pub fn map_of(deal: &[NodeEntry], partitions: u32) -> Result<PartitionMap, Problem> {
    let shares: Vec<(NodeId, u64)> = deal.iter().map(|node| (NodeId(node.id), node.memory)).collect();
    if shares.iter().all(|(_, share)| *share == 0) {
        return Err(Problem::new("no node of the pool has memory").hint("give some of them --memory"));
    }
    PartitionMap::dealt(&shares, partitions).map_err(|error| Problem::new(error.to_string()))
}

impl Memory {
    /// What was typed: none for the usual part.
    pub fn typed(size: Option<ByteSize>) -> Self {
        size.map_or(Self::Usual, |size| Self::Bytes(size.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::sample;

    #[test]
    fn lines_are_heard_as_they_were_said_and_other_lines_are_refused() {
        let mut wire = Vec::new();
        say(&mut wire, &Told::Deal(sample().nodes)).unwrap();
        say(&mut wire, &Told::Keep).unwrap();
        let mut from = &wire[..];
        assert_eq!(hear(&mut from).unwrap(), Some(Told::Deal(sample().nodes)));
        assert_eq!(hear(&mut from).unwrap(), Some(Told::Keep));
        assert_eq!(hear::<Told>(&mut from).unwrap(), None, "the end");
        assert!(hear::<Told>(&mut &b"Welcome to host b!\n"[..]).is_err());
    }

    #[test]
    fn a_pool_without_memory_is_refused_and_a_node_without_gets_no_partition() {
        let with = |memory: [u64; 2]| {
            sample().nodes.into_iter().zip(memory).map(|(node, memory)| NodeEntry { memory, ..node })
        };
        assert!(map_of(&with([0, 0]).collect::<Vec<_>>(), 64).is_err());
        let map = map_of(&with([0, 7]).collect::<Vec<_>>(), 64).unwrap();
        assert_eq!(map.nodes(), [NodeId(2)]);
    }
}
