//! An index of the partitions in which each session has left state: the end of a session visits
//! those alone, and not the thousands of others.

use crate::{Node, ReplyFuture, execute::CommandCall};
use parking_lot::RwLock;
use partition::{CommandCaller, SessionRanges};
use placement::PartitionId;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::task::yield_now;
use wire::{Answer, Command, Failure, Outcome, PENDING_DELETES_MAX, PendingDelete, Refusal, RequestId, Session};

/// Partitions in which a session is ended before the task yields.
const PARTITIONS_AT_ONCE: u32 = 64;

/// For each session that has not ended, the partitions of a node that may have state of it:
/// replies, opens, locks, intents, or cache grants.
#[derive(Debug)]
pub struct SessionIndex {
    /// Ended sessions: their late requests are refused in all partitions, also where they have left
    /// nothing.
    ended: RwLock<SessionRanges>,
    /// A bit for each partition of the pool. At most one entry for each live session.
    sessions: RwLock<HashMap<Session, Box<[AtomicU64]>>>,
    words: usize,
}

impl SessionIndex {
    /// An empty index for a pool with this many partitions.
    pub fn new(partitions: u32) -> Self {
        let words = partitions.div_ceil(u64::BITS) as usize;
        Self { ended: RwLock::default(), sessions: RwLock::default(), words }
    }

    /// Returns true if the session has ended.
    pub fn has_ended(&self, session: Session) -> bool {
        self.ended.read().has(session)
    }

    /// Records that a session has ended.
    pub fn add_ended(&self, session: Session) {
        self.ended.write().add(session);
    }

    /// Number of sessions that have left state here.
    pub fn len(&self) -> usize {
        self.sessions.read().len()
    }

    /// Notes that a session is about to leave state in a partition, whose lock is held. A
    /// concurrent end of the session either sees the note and visits the partition when the lock is
    /// free, or has ended the session before the caller checks for that.
    pub fn note(&self, session: Session, partition: PartitionId) {
        if session == Session::NONE {
            return;
        }
        let (word, bit) = bit_position(partition);
        if let Some(words) = self.sessions.read().get(&session) {
            if words[word].load(Relaxed) & bit == 0 {
                words[word].fetch_or(bit, Relaxed);
            }
            return;
        }
        let mut sessions = self.sessions.write();
        if !self.has_ended(session) {
            let none = || (0..self.words).map(|_| AtomicU64::new(0)).collect();
            sessions.entry(session).or_insert_with(none)[word].fetch_or(bit, Relaxed);
        }
    }

    /// Ends a session; returns the partitions in which it may have left state.
    pub fn end(&self, session: Session) -> Vec<PartitionId> {
        self.add_ended(session);
        partitions_of(&self.sessions.write().remove(&session).unwrap_or_default())
    }

    /// The partitions in which a session may have left state.
    pub fn partitions(&self, session: Session) -> Vec<PartitionId> {
        self.sessions.read().get(&session).map_or_else(Vec::new, |words| partitions_of(words))
    }
}

/// The partitions whose bits are set.
fn partitions_of(words: &[AtomicU64]) -> Vec<PartitionId> {
    let bits = words.iter().zip(0..).flat_map(|(word, at)| {
        let word = word.load(Relaxed);
        (0..u64::BITS).filter(move |bit| word & 1 << bit != 0).map(move |bit| at * u64::BITS + bit)
    });
    bits.map(|bit| PartitionId(u16::try_from(bit).expect("a map has at most 2^16 partitions"))).collect()
}

fn bit_position(PartitionId(number): PartitionId) -> (usize, u64) {
    let number = u32::from(number);
    ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
}

impl Node {
    /// Ends a session at this node and in its partitions. The answer has the files that were
    /// deleted with it, at most [`PENDING_DELETES_MAX`]; the others are among the unfinished work.
    pub(crate) fn close_session(self: &Arc<Self>, session: Session) -> ReplyFuture {
        let (node, partitions) = (self.clone(), self.end_session(session));
        ReplyFuture::deferred(async move {
            let mut deleted = Vec::new();
            for (count, partition) in (1..).zip(partitions) {
                deleted.extend(node.close_session_in(session, partition).await?);
                if count % PARTITIONS_AT_ONCE == 0 {
                    yield_now().await;
                }
            }
            deleted.truncate(PENDING_DELETES_MAX);
            Ok(Answer::Closed(deleted))
        })
    }

    /// Ends a session in a partition that [`Self::end_session`] has returned; returns the files
    /// that were deleted with it.
    pub async fn close_session_in(
        self: &Arc<Self>,
        session: Session,
        partition: PartitionId,
    ) -> Result<Vec<PendingDelete>, Failure> {
        // No change of a client has this number.
        let request_id = RequestId { session, number: u64::MAX, settled: u64::MAX };
        let closed = self.execute(CommandCall::with_id(request_id, partition, Command::CloseSession { session }));
        match closed.await {
            // Another node serves the partition by now, and hears of the end too.
            Err(Failure::Refused(Refusal::Moved(_))) => Ok(Vec::new()),
            answer => answer?.closed().map_err(Failure::Refused),
        }
    }

    /// Ends a session at this node: nothing more is done for it here. Returns the partitions in
    /// which it may have left state; the caller ends it there. The others have none.
    pub fn end_session(&self, session: Session) -> Vec<PartitionId> {
        let partitions = self.session_index.end(session);
        self.detach_opens(session, None);
        self.hosted.end_session(session);
        self.awaited_sessions.remove(session);
        self.tell_of_end(session, false);
        self.lock_queue.end_session(session);
        self.lock_queue.wake_all();
        partitions
    }

    /// Notes the sessions of which a command may leave state in its partition, whose lock is held.
    pub(crate) fn note_sessions(&self, call: &CommandCall, caller: CommandCaller) {
        if let Some(request_id) = call.request_id {
            self.session_index.note(request_id.session, call.partition);
        }
        if caller.subscriber.is_some() && call.request_id.is_none_or(|request_id| request_id.session != caller.session)
        {
            self.session_index.note(caller.session, call.partition);
        }
        if let Some(Command::Decide { intent }) = &call.command {
            self.session_index.note(intent.session, call.partition);
        }
    }

    /// Refuses a late change of a session that has ended at this node. It may have left nothing in
    /// the partition, which then does not know that.
    pub(crate) fn check_not_ended(&self, call: &CommandCall) -> Outcome<()> {
        let Some(request_id) = call.request_id else { return Ok(()) };
        let is_allowed = matches!(call.command, Some(Command::CloseSession { .. } | Command::PurgeDone { .. }));
        if !is_allowed && self.session_index.has_ended(request_id.session) {
            return Err(Refusal::SessionEnded);
        }
        Ok(())
    }
}
