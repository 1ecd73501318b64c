//! Why a task waits, where it runs, or why it failed: the answer to a user's question.

use crate::policy::Policy;
use crate::room::{Needs, Room, SlotId};
use crate::space::SpaceRules;
use crate::table::{Life, State, Table};
use crate::words::Because;
use flow::{DataId, TaskId};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It waits for data or tasks.
    Waits {
        /// How many things are missing.
        missing: u32,
        /// The first datum that is missing, and its writer.
        data: Option<(DataId, Option<TaskId>)>,
        /// The first task that is not done.
        after: Option<TaskId>,
    },
    /// It could start, but for room.
    Ready {
        /// Tasks that stand before it.
        ahead: usize,
        /// What it takes.
        needs: Needs,
        /// Whether that is free, so that only those ahead keep it waiting.
        fits: bool,
        /// Waits for space: so many bytes more must be free in the pool before it starts beside what runs; 0 if that is not so.
        lacks: u64,
        /// Since when, on the caller's clock.
        since_ms: u64,
    },
    /// It runs.
    Running {
        /// In this lane.
        slot: SlotId,
        /// Which attempt, from 1.
        attempt: u32,
        /// Since when, on the caller's clock.
        since_ms: u64,
    },
    /// It is done.
    Done,
    /// It failed for good.
    Failed(Because),
}

impl Standing {
    /// Looks it up; walks the task's own needs and, for a ready one, the queue.
    pub(crate) fn of(
        task: TaskId,
        table: &Table,
        (policy, space): (&dyn Policy, &SpaceRules),
        room: &Room,
        failure: impl Fn(TaskId) -> Option<Because>,
    ) -> Option<Self> {
        let row = table.row(task)?;
        let since_ms = row.since_ms;
        match row.state {
            State::Vacant => None,
            State::New => Some(Self::waiting(task, row.missing, table)),
            State::Ready => {
                let ahead = policy.ahead_of(task).unwrap_or(0);
                let (fits, lacks) = (room.fits(row.needs), space.lacks(task));
                Some(Self::Ready { ahead, needs: row.needs, fits, lacks, since_ms })
            }
            State::Running(slot) => Some(Self::Running { slot, attempt: row.attempts, since_ms }),
            State::Done => Some(Self::Done),
            State::Failed => failure(task).map(Self::Failed),
        }
    }

    fn waiting(task: TaskId, missing: u32, table: &Table) -> Self {
        let awaited = |data: DataId| table.datum(data).filter(|datum| datum.life == Life::Awaited);
        let undone = |task: &TaskId| table.row(*task).is_some_and(|row| row.state != State::Done);
        Self::Waits {
            missing,
            data: table.inputs(task).find_map(|data| awaited(data).map(|datum| (data, datum.writer()))),
            after: table.after(task).find(undone),
        }
    }
}
