//! The types, the times and the limits that openraft is given.

use cluster::{ClusterAnswer, ClusterEntry, ClusterRefusal, ClusterState};
use openraft::{Config, EmptyNode, Raft, SnapshotPolicy, storage::Snapshot};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// Time between two heartbeats of a leader. openraft looks at its clock once in 1.5 of them.
const HEARTBEAT_MS: u64 = 100;
/// Range of the time for which a member hears nothing before it asks to be elected. An election
/// begins after the longest of them (a leader's lease) and one of the range, that is after 0.75 to
/// 1.15 s; one more round, if two members ask at once, still ends within 2 s.
const ELECTION_MS: [u64; 2] = [250, 500];
/// Time for which a leader without answers of a majority is believed to have one.
pub const MAJORITY_SILENCE_MS: u64 = 2 * ELECTION_MS[1];
/// Longest time of a proposal: as long as an election may take, and a little for the entry itself.
pub const PROPOSE_TIME: Duration = Duration::from_millis(2500);
/// Longest time in which a new member must have all entries, a snapshot of the largest state (a few
/// hundred KB) included.
pub const CATCH_UP_TIME: Duration = Duration::from_secs(3);
/// Longest time of a change of the members: catching up, and the two steps of joint consensus.
pub const CHANGE_TIME: Duration = Duration::from_secs(6);
/// Pause before a change is tried again that another one was in the way of: some round trips.
pub const CHANGE_PAUSE: Duration = Duration::from_millis(20);
/// Longest time in which a member that is removed may learn of it. One that is lost never does.
pub const FAREWELL_TIME: Duration = Duration::from_millis(3 * HEARTBEAT_MS);
/// Longest time in which a member takes over from the leader that asks for it. A leader of less
/// than a lease refuses its vote, so some rounds may be needed.
pub const TAKE_OVER_TIME: Duration = Duration::from_secs(2);
/// Time of a round.
pub const TAKE_OVER_ROUND: Duration = Duration::from_millis(ELECTION_MS[0]);
/// Longest time of sending a snapshot.
const SNAPSHOT_TIME_MS: u64 = 2000;
/// Entries after which a snapshot is made: few enough that a log stays below 100 KB, many enough
/// that the copy of the state that it keeps is rarely replaced.
pub const SNAPSHOT_ENTRIES: u64 = 256;
/// Entries that are kept although a snapshot has them, for members that lag a little.
pub const KEPT_ENTRIES: u64 = 128;
/// Distance from which a member gets a snapshot instead of entries.
const LAG_ENTRIES: u64 = 512;
/// Most entries of a message.
pub const MESSAGE_ENTRIES_MAX: u64 = 256;

const _: () = assert!(HEARTBEAT_MS * 2 < ELECTION_MS[0], "a heartbeat may be lost without an election");
const _: () = assert!(ELECTION_MS[0] < ELECTION_MS[1]);
const _: () = assert!(SNAPSHOT_ENTRIES < LAG_ENTRIES, "a snapshot ends a lag");
const _: () = assert!((SNAPSHOT_TIME_MS as u128) < CATCH_UP_TIME.as_millis());
const _: () = assert!(CATCH_UP_TIME.as_millis() * 2 <= CHANGE_TIME.as_millis(), "time is left for the change");

/// Pause before a member that could not be reached is tried again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(HEARTBEAT_MS);

openraft::declare_raft_types!(
    /// The types of the log. Nodes are numbers here, because openraft wants a default of each type.
    pub RaftTypes:
        D = LogCommand,
        R = LogAnswer,
        NodeId = u32,
        Node = EmptyNode,
        SnapshotData = StateSnapshot,
);

/// A command in the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LogCommand {
    /// The state that the pool begins with: the first command of each log.
    Found(Arc<ClusterState>),
    /// A change of the state.
    Change(ClusterEntry),
}

/// The answer to a command: `None` to one that changes no state.
pub type LogAnswer = Option<Result<ClusterAnswer, ClusterRefusal>>;

/// The state in a snapshot; `None` before the first command.
pub type StateSnapshot = Option<Arc<ClusterState>>;

pub type ClusterRaft = Raft<RaftTypes>;
pub type ClusterSnapshot = Snapshot<RaftTypes>;
pub type MemberEntry = openraft::Entry<RaftTypes>;
pub type EntryId = openraft::LogId<u32>;
pub type LogVote = openraft::Vote<u32>;
pub type StorageFailure = openraft::StorageError<u32>;

/// Returns the settings of each member.
pub fn raft_config() -> Config {
    let config = Config {
        cluster_name: "managers".to_owned(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MS[0],
        election_timeout_max: ELECTION_MS[1],
        install_snapshot_timeout: SNAPSHOT_TIME_MS,
        max_payload_entries: MESSAGE_ENTRIES_MAX,
        replication_lag_threshold: LAG_ENTRIES,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        ..Config::default()
    };
    config.validate().expect("the constants keep openraft's conditions")
}
