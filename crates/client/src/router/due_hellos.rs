//! Hellos that are due: at nodes that have got a partition from one that knows a session.
//!
//! What a session has open or locked there it keeps for a while after the other node has left the
//! pool, if its client says hello. So a client that learns of such a move says hello with its next
//! request, to whichever node that goes.

use crate::router::{Router, session::SessionState};
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::BTreeSet,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use wire::{Refusal, Session};

/// The hellos that are due.
#[derive(Debug, Default)]
pub struct DueHellos {
    hellos: Mutex<BTreeSet<(Session, NodeId)>>,
    /// True if there are some, readable without a lock.
    any: AtomicBool,
}

impl DueHellos {
    /// True if there are some.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    fn add(&self, hellos: impl IntoIterator<Item = (Session, NodeId)>) {
        let mut due = self.hellos.lock();
        due.extend(hellos);
        self.any.store(!due.is_empty(), Relaxed);
    }

    fn take(&self) -> BTreeSet<(Session, NodeId)> {
        let mut due = self.hellos.lock();
        self.any.store(false, Relaxed);
        std::mem::take(&mut *due)
    }
}

impl Router {
    /// Notes the hellos that are due because partitions have moved.
    pub fn note_moves(&self, moves: &BTreeSet<(NodeId, NodeId)>) {
        if moves.is_empty() {
            return;
        }
        let sessions = self.own_sessions();
        self.due_hellos.add(sessions.iter().flat_map(|state| {
            let is_due =
                |(from, to): &&(NodeId, NodeId)| state.greeting(*from).is_some() && state.greeting(*to).is_none();
            moves.iter().filter(is_due).map(|(_, to)| (state.id, *to))
        }));
    }

    /// Says the hellos that are due. One to a node that does not answer stays due.
    pub async fn say_due_hellos(&self) {
        let sessions = self.own_sessions();
        for (session, node) in self.due_hellos.take() {
            let state = sessions.iter().find(|state| state.id == session);
            let (Some(state), Some(link)) = (state, self.nodes.link(node).filter(|link| link.is_present())) else {
                continue;
            };
            match self.greet(state, link).await {
                Err(Refusal::Unavailable { .. }) => self.due_hellos.add([(session, node)]),
                // If the session has ended there, requests find that out.
                said => drop(said),
            }
        }
    }

    /// The nodes that know of a session, and those to which a hello is due: they may have something
    /// of it. By ascending ids.
    pub fn nodes_of(&self, state: &SessionState) -> BTreeSet<NodeId> {
        let due = self.due_hellos.hellos.lock();
        let due = due.iter().filter(|(session, _)| *session == state.id).map(|(_, node)| *node);
        due.chain(state.greeted()).collect()
    }

    /// Forgets the hellos of sessions that have ended at all nodes.
    pub fn forget_due_hellos(&self) {
        self.due_hellos.take();
    }

    /// The sessions that this process has begun, and not its parent.
    fn own_sessions(&self) -> Vec<Arc<SessionState>> {
        let mut sessions = self.earlier_sessions();
        sessions.extend(Some(self.session_state()).filter(|state| state.process == process::id()));
        sessions
    }
}
