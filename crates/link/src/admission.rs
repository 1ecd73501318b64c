//! Listening address of a node with its own connection limits, so that filling one address locks
//! nobody out of another.
//!
//! A connection that is not authenticated yet holds one of a few places for a moment. When all are
//! taken, the connection that has waited longest is closed. A client authenticates in milliseconds,
//! so connections that only occupy places do not keep it out.

use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// One listening address.
#[derive(Debug)]
pub struct Entrance {
    /// Address by which clients know it.
    pub called: String,
    unproven: Mutex<VecDeque<Arc<Notify>>>,
    unproven_max: usize,
    room: Arc<Semaphore>,
}

/// Connection that is not authenticated yet.
#[derive(Debug)]
pub struct Stranger {
    entrance: Arc<Entrance>,
    goes: Arc<Notify>,
}

impl Entrance {
    /// Creates an entrance with limits for authenticated and for unauthenticated connections.
    pub fn new(called: String, proven: usize, unproven: usize) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(proven));
        Arc::new(Self { called, unproven: Mutex::default(), unproven_max: unproven.max(1), room })
    }

    /// Admits a new connection; tells the one that has waited longest to close if all places are
    /// taken.
    pub fn meet(self: &Arc<Self>) -> Stranger {
        let goes = Arc::new(Notify::new());
        let mut unproven = self.unproven.lock();
        if unproven.len() >= self.unproven_max
            && let Some(first) = unproven.pop_front()
        {
            first.notify_one();
        }
        unproven.push_back(goes.clone());
        Stranger { entrance: self.clone(), goes }
    }

    /// Acquires a place for an authenticated connection; `None` if all are taken.
    pub fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }
}

impl Stranger {
    /// Waits until this connection must make way for a newer one.
    pub async fn goes(&self) {
        self.goes.notified().await;
    }

    /// Entrance at which the connection has come.
    pub fn entrance(&self) -> &Entrance {
        &self.entrance
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.entrance.unproven.lock().retain(|other| !Arc::ptr_eq(other, &self.goes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_too_many_strangers_the_one_who_came_first_goes() {
        let entrance = Entrance::new("here".into(), 1, 2);
        let strangers = [0; 3].map(|_| entrance.meet());
        strangers[0].goes().await;
        assert_eq!(entrance.unproven.lock().len(), 2);
        drop(strangers);
        assert!(entrance.unproven.lock().is_empty());
        let inside = entrance.room();
        assert!(inside.is_some() && entrance.room().is_none());
        drop(inside);
        assert!(entrance.room().is_some());
    }
}
