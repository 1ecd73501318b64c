//! Layer 3: the managers' log: one cluster state that one or three nodes agree on.
//!
//! ```text
//!   propose --> leader: appends --Append--> followers     an entry that a majority has is
//!                  ^ answer when applied       |          applied: everywhere the same ones,
//!                  '------- a majority has it -'          in one order
//!   a leader is silent --Vote--> the others elect one that has all answered entries
//!   a new member, or one far behind <--Snapshot-- leader
//! ```
//!
//! The algorithm is Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus
//! Algorithm", USENIX ATC 2014, extended version): elections by section 5.2, replication by 5.3,
//! changes of the members by joint consensus (6), compaction by snapshots (7). The crate `openraft`
//! does it; its types stay inside.
//!
//! - `cluster_log`: a member, or a node that may become one
//! - `member_change`: other members by joint consensus
//! - `message`: the messages between members as bytes, and what is checked of those that come
//! - `member_network`: openraft's requests, sent over a [`MemberLink`]
//! - `raft_types`: the types, the times and the limits that openraft is given
//! - `entry_store`: entries and the vote, in memory
//! - `state_replica`: the state by the entries that are agreed on, and its snapshots
//!
//! Invariants:
//! - An entry whose proposal was answered is never lost while a majority of the members lives.
//! - Two members that have applied as many entries have equal states.
//! - Without a majority nothing is proposed, and what is known stays readable.
//! - Whatever bytes come, no member ends by them.
//!
//! Not here: sockets, who is to be a member (`cluster::wanted_members`), and disks. A member that
//! has ended never returns under its id, so nothing needs to outlive it; one that is replaced while
//! it lives may become a member again.
#![forbid(unsafe_code)]

mod cluster_log;
mod entry_store;
mod member_change;
mod member_network;
mod message;
mod raft_types;
mod state_replica;

#[cfg(test)]
mod network_double;

#[cfg(test)]
mod cluster_log_test;

#[cfg(test)]
mod random_worlds_test;

pub use cluster_log::{ClusterLog, LogError, ProposeError};
pub use member_network::MemberLink;
pub use message::DamagedMessage;
