//! Which of the ready tasks starts next: the place where locality-aware choices will stand beside [`Fifo`].

use crate::room::{Needs, Room};
use flow::TaskId;
use std::collections::VecDeque;
use std::fmt::Debug;

/// Holds the ready tasks and chooses among them. It is not asked any more once a run has stopped.
pub trait Policy: Debug + Send {
    /// The task may start from now on.
    fn ready(&mut self, task: TaskId);

    /// Takes out the task that starts next in `room`, if one may. `needs` knows what each ready task takes.
    fn choose(&mut self, room: &Room, needs: &dyn Fn(TaskId) -> Needs) -> Option<TaskId>;

    /// How many held tasks stand before `task`; None if it is not held. For people: may be slow.
    fn ahead_of(&self, task: TaskId) -> Option<usize>;
}

/// In the order in which tasks became ready. When the first does not fit, later ones that do may overtake it, but only
/// `OVERTAKES_MAX` times: then the machine empties until the first fits, so a big task is never starved.
#[derive(Debug, Default)]
pub struct Fifo {
    queue: VecDeque<TaskId>,
    /// How often the first of the queue was overtaken.
    overtaken: u32,
}

/// Enough to keep a machine busy while a big task waits for the running ones; small beside a long queue.
pub const OVERTAKES_MAX: u32 = 64;

/// How far behind the first we look for one that fits: bounds the work for each event.
const LOOK_AHEAD: usize = 64;

impl Policy for Fifo {
    fn ready(&mut self, task: TaskId) {
        self.queue.push_back(task);
    }

    fn choose(&mut self, room: &Room, needs: &dyn Fn(TaskId) -> Needs) -> Option<TaskId> {
        if room.cpus() == 0 {
            return None;
        }
        if room.fits(needs(*self.queue.front()?)) {
            self.overtaken = 0;
            return self.queue.pop_front();
        }
        self.overtake(room, needs)
    }

    fn ahead_of(&self, task: TaskId) -> Option<usize> {
        self.queue.iter().position(|held| *held == task)
    }
}

impl Fifo {
    fn overtake(&mut self, room: &Room, needs: &dyn Fn(TaskId) -> Needs) -> Option<TaskId> {
        if self.overtaken >= OVERTAKES_MAX {
            return None;
        }
        let at = self.queue.iter().take(LOOK_AHEAD).position(|task| room.fits(needs(*task)))?;
        self.overtaken += 1;
        self.queue.remove(at)
    }
}
