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
pub struct Admission {
    /// Address by which clients know it.
    pub address: String,
    unauthenticated: Mutex<VecDeque<Arc<Notify>>>,
    unauthenticated_max: usize,
    room: Arc<Semaphore>,
}

/// Connection that is not authenticated yet.
#[derive(Debug)]
pub struct UnauthenticatedConnection {
    admission: Arc<Admission>,
    evicted: Arc<Notify>,
}

impl Admission {
    /// Creates an address with limits for authenticated and for unauthenticated connections.
    pub fn new(address: String, authenticated: usize, unauthenticated: usize) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(authenticated));
        Arc::new(Self { address, unauthenticated: Mutex::default(), unauthenticated_max: unauthenticated.max(1), room })
    }

    /// Admits a new connection; tells the one that has waited longest to close if all places are
    /// taken.
    pub fn register(self: &Arc<Self>) -> UnauthenticatedConnection {
        let evicted = Arc::new(Notify::new());
        let mut unauthenticated = self.unauthenticated.lock();
        if unauthenticated.len() >= self.unauthenticated_max
            && let Some(first) = unauthenticated.pop_front()
        {
            first.notify_one();
        }
        unauthenticated.push_back(evicted.clone());
        UnauthenticatedConnection { admission: self.clone(), evicted }
    }

    /// Acquires a place for an authenticated connection; `None` if all are taken.
    pub fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }
}

impl UnauthenticatedConnection {
    /// Waits until this connection must make way for a newer one.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Listening address at which the connection has come.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }
}

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        self.admission.unauthenticated.lock().retain(|other| !Arc::ptr_eq(other, &self.evicted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_too_many_strangers_the_one_who_came_first_goes() {
        let admission = Admission::new("here".into(), 1, 2);
        let connections = [0; 3].map(|_| admission.register());
        connections[0].evicted().await;
        assert_eq!(admission.unauthenticated.lock().len(), 2);
        drop(connections);
        assert!(admission.unauthenticated.lock().is_empty());
        let inside = admission.try_acquire();
        assert!(inside.is_some() && admission.try_acquire().is_none());
        drop(inside);
        assert!(admission.try_acquire().is_some());
    }
}
