//! What clients of a world have in common: their pauses, and the causes for which an operation of
//! theirs may fail. There is one: a node has died with partitions, so what it served is
//! unavailable.

use crate::{
    names_model::NameError,
    simulation::executor::{SimState, sim_sleep},
};
use std::time::Duration;
use vfs::Vfs;
use wire::{Outcome, Refusal};

/// Longest time for which a client does nothing after a node has left. It has ten seconds to come
/// to the others, and some of them are for lost messages and silent nodes.
const LONG_PAUSE: Duration = Duration::from_secs(6);

impl SimState {
    /// Waits as a client does between two operations: mostly not, sometimes until a move begins, or
    /// long after a node has left.
    pub async fn pause_of_a_client(&self) {
        let most = match self.random(8) {
            0..=3 => return,
            4 | 5 => Duration::from_millis(5),
            6 => Duration::from_millis(500),
            _ => return self.pause_until_a_node_leaves().await,
        };
        let pause = sim_sleep(self.random_time(most));
        tokio::select! {
            biased;
            () = self.move_began.notified() => {}
            () = pause => {}
        }
    }

    async fn pause_until_a_node_leaves(&self) {
        let pause = sim_sleep(self.random_time(Duration::from_millis(500)));
        tokio::select! {
            biased;
            () = self.node_left.notified() => sim_sleep(self.random_time(LONG_PAUSE)).await,
            () = pause => {}
        }
    }

    /// Ends the session of a client, with what it has open.
    pub async fn end_session(&self, vfs: &Vfs) {
        if let Err(refusal) = vfs.end_session().await {
            self.excuse(&refusal);
        }
    }

    /// Accepts the failure of an operation of a session, if there is a cause for it.
    pub fn excuse(&self, refusal: &Refusal) {
        let is_unknown = matches!(refusal, Refusal::OutcomeUnknown(_));
        let is_unavailable = is_unknown || matches!(refusal, Refusal::Unavailable { .. });
        let is_lost = is_unavailable && self.network.has_lost_partitions();
        assert!(is_lost, "an operation fails without a cause: {refusal}");
    }

    /// What an operation on names has answered; `None` if nothing is known of it, with a cause.
    pub fn reply<T>(&self, outcome: Outcome<T>) -> Option<Result<T, NameError>> {
        let refusal = match outcome {
            Ok(value) => return Some(Ok(value)),
            Err(refusal) => refusal,
        };
        match NameError::from(&refusal) {
            NameError::Unexpected => {
                self.excuse(&refusal);
                None
            }
            error => Some(Err(error)),
        }
    }
}
