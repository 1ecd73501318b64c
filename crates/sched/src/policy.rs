//! Which of the ready tasks starts next: the place where locality-aware choices will stand beside [`Fifo`].
//!
//! What keeps a full pool moving stands before any policy (`space`): a policy is asked while there is space, and what it chooses starts
//! if it fits into the pool.

use crate::room::{Needs, Room};
use flow::TaskId;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

/// Holds the ready tasks and chooses among them. It is not asked any more once a run has stopped.
pub trait Policy: Debug + Send {
    /// The task may start from now on.
    fn ready(&mut self, task: TaskId);

    /// The task that should start next in `room`, if one may. `needs` knows what each ready task takes.
    fn choose(&self, room: &Room, needs: &dyn Fn(TaskId) -> Needs) -> Option<TaskId>;

    /// The task has started, by this policy's choice (`chosen`) or another, or must wait for space: it is not held any more.
    fn leave(&mut self, task: TaskId, chosen: bool);

    /// How many held tasks stand before `task`; None if it is not held. For people: may be slow.
    fn ahead_of(&self, task: TaskId) -> Option<usize>;
}

/// In the order in which tasks became ready. When the first does not fit, later ones that do may overtake it, but only
/// `OVERTAKES_MAX` times: then the machine empties until the first fits, so a big task is never starved.
#[derive(Debug, Default)]
pub struct Fifo {
    /// By the number of their coming.
    queue: BTreeMap<u64, TaskId>,
    places: HashMap<TaskId, u64>,
    next: u64,
    /// How often the first of the queue was overtaken.
    overtaken: u32,
}

/// Enough to keep a machine busy while a big task waits for the running ones; small beside a long queue.
pub const OVERTAKES_MAX: u32 = 64;

/// How far behind the first we look for one that fits: bounds the work for each event.
const LOOK_AHEAD: usize = 64;

impl Policy for Fifo {
    fn ready(&mut self, task: TaskId) {
        self.queue.insert(self.next, task);
        self.places.insert(task, self.next);
        self.next += 1;
    }

    fn choose(&self, room: &Room, needs: &dyn Fn(TaskId) -> Needs) -> Option<TaskId> {
        if room.cpus() == 0 {
            return None;
        }
        let looked_at = if self.overtaken < OVERTAKES_MAX { LOOK_AHEAD } else { 1 };
        self.queue.values().take(looked_at).copied().find(|task| room.fits(needs(*task)))
    }

    fn leave(&mut self, task: TaskId, chosen: bool) {
        let Some(place) = self.places.remove(&task) else { return };
        let was_first = self.queue.first_key_value().is_some_and(|(first, _)| *first == place);
        self.queue.remove(&place);
        if was_first {
            self.overtaken = 0;
        } else if chosen {
            self.overtaken += 1;
        }
    }

    fn ahead_of(&self, task: TaskId) -> Option<usize> {
        Some(self.queue.range(..self.places.get(&task)?).count())
    }
}
