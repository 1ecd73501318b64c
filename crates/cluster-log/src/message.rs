//! Messages between members, as bytes: version, checksum, and the value in `postcard`'s encoding.
//!
//! ```text
//!   version: 1 byte | XXH3-64 of the value: 8 bytes, little-endian | value
//! ```
//!
//! openraft believes what it is told, and ends by a message that no member can have sent. So
//! damaged bytes are found by the checksum, and what members never say is refused here: votes of
//! the wrong kind, entries with gaps, numbers that overflow. This does not protect from a member
//! that lies.

use crate::{
    ProposeError,
    raft_types::{EntryId, LogVote, MemberEntry, RaftTypes, StateSnapshot},
};
use bytes::Bytes;
use openraft::{
    EmptyNode, EntryPayload, Membership, SnapshotMeta,
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;
use xxhash_rust::xxh3::xxh3_64;

/// Version of the messages.
const MESSAGE_VERSION: u8 = 1;
/// Bytes before the value.
const HEADER_BYTES: usize = 9;
/// Bound of terms and indices: centuries of elections and entries away, and far from an overflow.
const NUMBER_MAX: u64 = 1 << 48;

/// A message of a member.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemberRequest {
    /// Entries of the leader, or none as a heartbeat (Raft, section 5.3).
    Append(AppendEntriesRequest<RaftTypes>),
    /// A member wants to be elected (5.2).
    Vote(VoteRequest<u32>),
    /// The state of the leader, for a member that lacks entries which are gone (7).
    Snapshot(Box<SentSnapshot>),
    /// The leader is to be a member no more: the receiver is to lead, and to change the members.
    TakeOver {
        /// The vote by which the sender leads: the message means nothing under another leader.
        vote: LogVote,
        /// The members, of which the sender is none.
        members: BTreeSet<u32>,
    },
}

/// A snapshot on its way.
#[derive(Debug, Serialize, Deserialize)]
pub struct SentSnapshot {
    /// The vote by which the sender leads.
    pub vote: LogVote,
    /// The last entry and the members in it.
    pub meta: SnapshotMeta<u32, EmptyNode>,
    /// The state.
    pub state: StateSnapshot,
}

/// The answer to a message.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemberAnswer {
    /// To `Append`.
    Append(AppendEntriesResponse<u32>),
    /// To `Vote`.
    Vote(VoteResponse<u32>),
    /// To `Snapshot`.
    Snapshot(SnapshotResponse<u32>),
    /// To `TakeOver`, when it is done.
    TakeOver(Result<(), ProposeError>),
}

/// The error of bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no message of a member: they are damaged, or of another version")]
pub struct DamagedMessage;

/// A value that a member may say, or not.
pub trait Plausible {
    /// True if a member that follows the algorithm can say it to the member `receiver`.
    fn is_plausible(&self, receiver: u32) -> bool;
}

/// Encodes a request or an answer.
pub fn encode(value: &impl Serialize) -> Result<Bytes, postcard::Error> {
    let mut bytes = postcard::to_extend(value, vec![0; HEADER_BYTES])?;
    let (header, value) = bytes.split_at_mut(HEADER_BYTES);
    header[0] = MESSAGE_VERSION;
    header[1..].copy_from_slice(&xxh3_64(value).to_le_bytes());
    Ok(bytes.into())
}

/// Decodes what has come to the member `receiver`.
pub fn decode<T: DeserializeOwned + Plausible>(bytes: &[u8], receiver: u32) -> Result<T, DamagedMessage> {
    let (header, value) = bytes.split_at_checked(HEADER_BYTES).ok_or(DamagedMessage)?;
    if header[0] != MESSAGE_VERSION || header[1..] != xxh3_64(value).to_le_bytes() {
        return Err(DamagedMessage);
    }
    match postcard::take_from_bytes::<T>(value) {
        Ok((decoded, [])) if decoded.is_plausible(receiver) => Ok(decoded),
        _ => Err(DamagedMessage),
    }
}

impl Plausible for MemberRequest {
    fn is_plausible(&self, receiver: u32) -> bool {
        match self {
            Self::Append(request) => {
                is_of_leader(request.vote, receiver)
                    && [request.prev_log_id, request.leader_commit].into_iter().flatten().all(is_in_bounds)
                    && follow(request.prev_log_id, &request.entries)
            }
            Self::Vote(request) => {
                let LogVote { leader_id, committed } = request.vote;
                !committed
                    && leader_id.node_id != receiver
                    && leader_id.term <= NUMBER_MAX
                    && request.last_log_id.is_none_or(is_in_bounds)
            }
            Self::Snapshot(sent) => {
                is_of_leader(sent.vote, receiver)
                    && sent.state.is_some()
                    && sent.meta.last_log_id.is_some_and(is_in_bounds)
                    && *sent.meta.last_membership.log_id() <= sent.meta.last_log_id
                    && is_member_set(sent.meta.last_membership.membership())
            }
            Self::TakeOver { vote, members } => is_of_leader(*vote, receiver) && members.contains(&receiver),
        }
    }
}

impl Plausible for MemberAnswer {
    fn is_plausible(&self, _receiver: u32) -> bool {
        match self {
            Self::Append(AppendEntriesResponse::Success | AppendEntriesResponse::Conflict) | Self::TakeOver(_) => true,
            // Our members take all entries of a message, or none.
            Self::Append(AppendEntriesResponse::PartialSuccess(_)) => false,
            Self::Append(AppendEntriesResponse::HigherVote(vote)) | Self::Snapshot(SnapshotResponse { vote }) => {
                vote.leader_id.term <= NUMBER_MAX
            }
            Self::Vote(answer) => {
                answer.vote.leader_id.term <= NUMBER_MAX && answer.last_log_id.is_none_or(is_in_bounds)
            }
        }
    }
}

/// True if a vote is one by which another member leads.
fn is_of_leader(vote: LogVote, receiver: u32) -> bool {
    vote.committed && vote.leader_id.node_id != receiver && vote.leader_id.term <= NUMBER_MAX
}

fn is_in_bounds(id: EntryId) -> bool {
    id.leader_id.term <= NUMBER_MAX && id.index <= NUMBER_MAX
}

/// True if entries follow one another, and the entry before them.
fn follow(before: Option<EntryId>, entries: &[MemberEntry]) -> bool {
    let mut last = before;
    entries.iter().all(|entry| {
        let next = last.map_or(0, |last| last.index + 1);
        let follows = entry.log_id.index == next && Some(entry.log_id) > last && is_in_bounds(entry.log_id);
        last = Some(entry.log_id);
        let members = match &entry.payload {
            EntryPayload::Membership(members) => is_member_set(members),
            EntryPayload::Blank | EntryPayload::Normal(_) => true,
        };
        follows && members
    })
}

/// True if members could agree on something: each of the sets has one, and all of them are nodes.
fn is_member_set(members: &Membership<u32, EmptyNode>) -> bool {
    let sets = members.get_joint_config();
    !sets.is_empty()
        && sets.iter().all(|set| !set.is_empty())
        && members.voter_ids().all(|voter| members.get_node(&voter).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::{CommittedLeaderId, LeaderId};
    use test_support::Random;

    const ME: u32 = 1;

    fn id(term: u64, index: u64) -> EntryId {
        EntryId::new(CommittedLeaderId::new(term, 2), index)
    }

    fn vote(term: u64, node_id: u32, committed: bool) -> LogVote {
        LogVote { leader_id: LeaderId { term, node_id }, committed }
    }

    fn entry(term: u64, index: u64) -> MemberEntry {
        MemberEntry { log_id: id(term, index), payload: EntryPayload::Blank }
    }

    fn append(vote: LogVote, before: Option<EntryId>, entries: Vec<MemberEntry>) -> MemberRequest {
        MemberRequest::Append(AppendEntriesRequest { vote, prev_log_id: before, entries, leader_commit: None })
    }

    #[test]
    fn messages_survive_encoding_and_no_damaged_byte_is_overlooked() {
        let sent = append(vote(3, 2, true), Some(id(1, 4)), vec![entry(1, 5), entry(3, 6)]);
        let bytes = encode(&sent).unwrap();
        let read: MemberRequest = decode(&bytes, ME).unwrap();
        assert_eq!(format!("{read:?}"), format!("{sent:?}"));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << (at % 8);
            assert!(decode::<MemberRequest>(&damaged, ME).is_err(), "{at}");
            assert!(decode::<MemberRequest>(&bytes[..at], ME).is_err(), "{at}");
        }
    }

    #[test]
    fn bytes_of_any_kind_are_refused_and_decoded_without_a_panic_if_the_checksum_is_right() {
        let mut random = Random::new(5);
        for _ in 0..20_000 {
            let length = random.below(60_usize);
            let mut bytes = random.bytes(length);
            assert!(decode::<MemberRequest>(&bytes, ME).is_err() && decode::<MemberAnswer>(&bytes, ME).is_err());
            if length > HEADER_BYTES {
                (bytes[0], bytes[HEADER_BYTES]) = (MESSAGE_VERSION, bytes[HEADER_BYTES] % 5);
                let sum = xxh3_64(&bytes[HEADER_BYTES..]).to_le_bytes();
                bytes[1..HEADER_BYTES].copy_from_slice(&sum);
                // Random values may be valid ones; they only have to be decoded without a panic.
                let _ = decode::<MemberRequest>(&bytes, ME).is_ok() | decode::<MemberAnswer>(&bytes, ME).is_ok();
            }
        }
    }

    #[test]
    fn what_no_member_says_is_refused() {
        let (leader, term) = (vote(3, 2, true), NUMBER_MAX + 1);
        let voters = |ids: &[u32]| Membership::<u32, EmptyNode>::new(vec![ids.iter().copied().collect()], None);
        let no_members: Membership<u32, EmptyNode> = Membership::new(vec![BTreeSet::new()], None);
        let member_entry = |members| MemberEntry { log_id: id(1, 0), payload: EntryPayload::Membership(members) };
        let ask = |vote, last| MemberRequest::Vote(VoteRequest::new(vote, last));
        let good = [
            append(leader, None, vec![entry(1, 0)]),
            append(leader, None, vec![member_entry(voters(&[1, 2]))]),
            ask(vote(3, 2, false), Some(id(1, 7))),
        ];
        let bad = [
            append(vote(3, 2, false), None, vec![]),
            append(vote(3, ME, true), None, vec![]),
            append(vote(term, 2, true), None, vec![]),
            append(leader, None, vec![entry(1, 1)]),
            append(leader, Some(id(1, 4)), vec![entry(1, 5), entry(1, 7)]),
            append(leader, Some(id(2, 4)), vec![entry(1, 5)]),
            append(leader, Some(id(1, u64::MAX)), vec![]),
            append(leader, None, vec![member_entry(no_members)]),
            ask(vote(3, 2, true), None),
            ask(vote(term, 2, false), None),
            ask(vote(3, ME, false), None),
            ask(vote(3, 2, false), Some(id(1, u64::MAX))),
            MemberRequest::TakeOver { vote: leader, members: BTreeSet::from([2, 3]) },
        ];
        assert!(good.iter().all(|request| request.is_plausible(ME)));
        for request in bad {
            assert!(!request.is_plausible(ME), "{request:?}");
        }
        let meta = |last| SnapshotMeta { last_log_id: last, ..SnapshotMeta::default() };
        let snapshot = SentSnapshot { vote: leader, meta: meta(Some(id(1, 7))), state: None };
        assert!(!MemberRequest::Snapshot(Box::new(snapshot)).is_plausible(ME), "a snapshot has a state and members");
        let partial = AppendEntriesResponse::PartialSuccess(None);
        assert!(!MemberAnswer::Append(partial).is_plausible(ME));
        assert!(!MemberAnswer::Append(AppendEntriesResponse::HigherVote(vote(term, 2, true))).is_plausible(ME));
    }
}
