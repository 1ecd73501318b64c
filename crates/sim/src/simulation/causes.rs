//! What clients of a world have in common: their pauses, and the causes for which an operation of
//! theirs may fail.
//!
//! - A node has died with partitions: what it served is unavailable.
//! - A node that leaves ends the sessions of its connections, also where their partitions have
//!   gone, unless they have said hello there already. A client that is slow to do so loses what it
//!   has open, and does not know whether its change was done. That is a gap in how nodes leave: a
//!   session should end at the others only if no hello comes for a while.

use crate::{
    names_model::NameError,
    simulation::{
        executor::{SimState, sim_sleep},
        network::SimEvent,
    },
};
use std::time::Duration;
use vfs::Vfs;
use wire::{Outcome, Refusal, Session};

impl SimState {
    /// Waits as a client does between two operations: mostly not, sometimes until a move begins.
    pub async fn pause_of_a_client(&self) {
        let most = match self.random(4) {
            0 | 1 => return,
            2 => Duration::from_millis(5),
            _ => Duration::from_millis(500),
        };
        let pause = sim_sleep(self.random_time(most));
        tokio::select! {
            biased;
            () = self.move_began.notified() => {}
            () = pause => {}
        }
    }

    /// Ends the session of a client, with what it has open.
    pub async fn end_session(&self, vfs: &Vfs) {
        let session = vfs.client().session();
        if let Err(refusal) = vfs.end_session().await {
            self.excuse(&refusal, session);
        }
    }

    /// Accepts the failure of an operation of a session, if there is a cause for it.
    pub fn excuse(&self, refusal: &Refusal, session: Session) {
        let is_unknown = matches!(refusal, Refusal::OutcomeUnknown(_));
        let is_ended = is_unknown || matches!(refusal, Refusal::SessionEnded);
        if is_ended && self.network.was_ended_by_a_node(session) {
            self.network.count(SimEvent::SessionLost);
            return;
        }
        let is_unavailable = is_unknown || matches!(refusal, Refusal::Unavailable { .. });
        let is_lost = is_unavailable && self.network.has_lost_partitions();
        assert!(is_lost, "an operation fails without a cause: {refusal}");
    }

    /// What an operation on names has answered; `None` if nothing is known of it, with a cause.
    pub fn reply<T>(&self, outcome: Outcome<T>, session: Session) -> Option<Result<T, NameError>> {
        let refusal = match outcome {
            Ok(value) => return Some(Ok(value)),
            Err(refusal) => refusal,
        };
        match NameError::from(&refusal) {
            NameError::Unexpected => {
                self.excuse(&refusal, session);
                None
            }
            error => Some(Err(error)),
        }
    }
}
