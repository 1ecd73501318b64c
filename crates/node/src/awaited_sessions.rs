//! Sessions that are awaited: another node has left the pool, and partitions with something of them
//! have moved here.
//!
//! ```text
//!   node that leaves                       this node                     client
//!   ends its connections  ---------------------------------------------> hears where all is now
//!   `EndMovedSession { left }` ----------> notes the session
//!                                          forgets the note <----------- `Hello'
//!                                          or ends it here, if none comes for `CONNECT_WAIT'
//! ```
//!
//! The session of a client that has ended, or whose connection broke, is not awaited: it ends here
//! at once, unless its client is connected here. If this node leaves too, those who have got its
//! partitions wait anew.

use crate::{Node, now};
use parking_lot::Mutex;
use placement::PartitionId;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use wire::Session;

/// Time that a client has, after a node has left the pool, to connect to those that have got its
/// partitions. One that makes requests does so at once; this is for one that is cut off or busy.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Sessions whose clients may still connect, each with the end of its time. Whether a client is
/// connected is known where connections are served.
#[derive(Debug, Default)]
pub struct AwaitedSessions(Mutex<BTreeMap<Session, Instant>>);

impl AwaitedSessions {
    /// Forgets a session: its client has come, or it has ended.
    pub fn remove(&self, session: Session) {
        self.0.lock().remove(&session);
    }

    /// Number of sessions that are awaited.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn take_due(&self) -> Vec<Session> {
        let (now, mut awaited) = (now(), self.0.lock());
        awaited.extract_if(.., |_, end| *end <= now).map(|(session, _)| session).collect()
    }
}

impl Node {
    /// Gives the client of a session time to connect, which is not connected here.
    pub(crate) fn await_session(&self, session: Session) {
        if !self.session_index.has_ended(session) {
            self.awaited_sessions.0.lock().insert(session, now() + CONNECT_WAIT);
        }
    }

    /// True if clients may still connect.
    pub fn awaits_sessions(&self) -> bool {
        self.awaited_sessions.len() > 0
    }

    /// Takes the sessions whose clients have not come in time. The caller ends those that are not
    /// connected here. One that has nothing here is not among them: its client may come later, with
    /// a partition that moves here.
    pub fn take_overdue_sessions(&self) -> Vec<Session> {
        let mut due = self.awaited_sessions.take_due();
        due.retain(|session| {
            let has_left_something = self.has_something_of(*session);
            if !has_left_something {
                // What it had here has moved on.
                self.tell_of_end(*session, false);
            }
            has_left_something
        });
        due
    }

    /// Ends a session here because this node leaves the pool: others wait for its client. Returns
    /// the partitions in which it may have left state.
    pub fn leave_session(&self, session: Session) -> Vec<PartitionId> {
        self.tell_of_end(session, true);
        self.end_session(session)
    }

    /// Has others wait for the clients that this node awaits: it leaves the pool.
    pub fn pass_on_awaited_sessions(&self) {
        let awaited = std::mem::take(&mut *self.awaited_sessions.0.lock());
        for session in awaited.into_keys() {
            self.tell_of_end(session, true);
        }
    }

    /// True if a session has left something in a partition of this node, or one that is about to
    /// leave.
    fn has_something_of(&self, session: Session) -> bool {
        let is_in = |id: PartitionId| match self.partitions.lock(id) {
            Some(partition) => partition.has_session(session),
            None => self.departures.has(id),
        };
        self.stray_stripes.has(session) || self.session_index.partitions(session).into_iter().any(is_in)
    }
}
