//! One address at which a node is reached: its own budgets, so that who fills one locks nobody out of another.
//!
//! Who has not proven yet that it may come in holds one of a few places for a moment. When they are full the one who has waited longest goes: a
//! client is through in milliseconds, and who only holds places does not keep it out.

use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// One address.
#[derive(Debug)]
pub struct Entrance {
    /// What clients call it.
    pub called: String,
    unproven: Mutex<VecDeque<Arc<Notify>>>,
    unproven_max: usize,
    room: Arc<Semaphore>,
}

/// Somebody who has come and proven nothing yet.
#[derive(Debug)]
pub struct Stranger {
    entrance: Arc<Entrance>,
    goes: Arc<Notify>,
}

impl Entrance {
    /// For so many who have proven themselves, and so many who have not.
    pub fn new(called: String, proven: usize, unproven: usize) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(proven));
        Arc::new(Self { called, unproven: Mutex::default(), unproven_max: unproven.max(1), room })
    }

    /// Somebody has come; who has waited longest may have to go for that.
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

    /// A place for somebody who has proven that it may come in; none when there is none.
    pub fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }
}

impl Stranger {
    /// Comes when others are to have this place.
    pub async fn goes(&self) {
        self.goes.notified().await;
    }

    /// Where it has come.
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
