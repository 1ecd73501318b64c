//! The task table: a row for each task and each datum, and the edges between them.
//!
//! Edges are linked lists through one vector (newest last), so a task costs about 100 bytes and an
//! edge 12, and ending a task touches only its own edges. The table only stores and finds;
//! `scheduler` decides what a change of state means.

use crate::messages::{AddError, TaskSpec};
use crate::policy::StartReason;
use crate::resources::{Demand, SlotId, WorkerId};
use flow::{DataId, TaskId, ToolId};

/// The index that stands for no edge.
const NONE: u32 = u32::MAX;

/// An attempt of a task that runs: the older one if it has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningAttempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The worker that runs it.
    pub worker: WorkerId,
    /// The lane in which it runs.
    pub slot: SlotId,
    /// The reason why it runs there.
    pub reason: StartReason,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Other tasks wait for this number, but the task was not added.
    Vacant,
    /// Some inputs of the task, or tasks before it, are missing.
    New,
    /// The task may start.
    Ready,
    /// The task runs.
    Running(RunningAttempt),
    /// The task succeeded.
    Done,
    /// The task failed for good.
    Failed,
}

/// A linked list of edges: the tasks that wait for one datum or task.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// An edge: `owner` waits for a datum or a task.
#[derive(Debug)]
struct Edge {
    owner: TaskId,
    /// The number of the datum or task: the first `inputs` edges of a row are data, the others
    /// tasks.
    on: u32,
    /// The next edge that waits for the same datum or task.
    next: u32,
}

/// The row of a task.
#[derive(Debug)]
pub struct Row {
    pub state: TaskState,
    pub demand: Demand,
    pub tool: ToolId,
    /// Higher ones start first.
    pub priority: i32,
    /// The number of attempts that were started.
    pub attempts: u32,
    /// The number of attempts that may be started in all.
    pub attempts_max: u32,
    /// The number of further attempts after a failed one.
    pub retries: u32,
    /// True if it was done before, also if it runs again. So tasks that come after it need not
    /// wait.
    pub was_done: bool,
    /// The number of inputs and tasks that are missing. An input counts once, however often it is
    /// bound.
    pub missing: u32,
    /// The time at which it came into its state, on the caller's clock.
    pub since_ms: u64,
    edges: u32,
    inputs: u32,
    after: u32,
    outputs: u32,
    outputs_len: u32,
    waiters: List,
}

const VACANT: Row = Row {
    state: TaskState::Vacant,
    demand: Demand { cpus: 1, memory: 0 },
    tool: ToolId(0),
    priority: 0,
    attempts: 0,
    attempts_max: 0,
    retries: 0,
    was_done: false,
    missing: 0,
    since_ms: 0,
    edges: 0,
    inputs: 0,
    after: 0,
    outputs: 0,
    outputs_len: 0,
    waiters: EMPTY,
};

/// The state of a datum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataState {
    /// The datum may be written later.
    Awaited,
    /// The datum exists.
    Present,
    /// The datum existed and is gone, because no task needed it any more, or because its copies
    /// were lost. If it is needed again, it becomes `Awaited`, and its writer runs again.
    Dropped,
    /// The writer failed, so the datum will never exist any more.
    Lost,
}

/// The row of a datum.
#[derive(Debug)]
pub struct DataEntry {
    pub state: DataState,
    /// True if it is never dropped.
    pub kept: bool,
    /// True if no more readers will be added.
    pub sealed: bool,
    /// The number of tasks that read it and have not ended.
    pub readers: u32,
    /// The numbers of those tasks, combined by XOR: if there is only one, this is its number.
    left: u32,
    writer: u32,
    waiters: List,
}

const UNKNOWN: DataEntry = DataEntry {
    state: DataState::Awaited,
    kept: false,
    sealed: false,
    readers: 0,
    left: 0,
    writer: NONE,
    waiters: EMPTY,
};

impl DataEntry {
    /// The task that writes the datum; `None` for an input.
    pub fn writer(&self) -> Option<TaskId> {
        (self.writer != NONE).then_some(TaskId(self.writer))
    }

    /// The only task that still reads the datum, if there is exactly one and its end frees the
    /// datum.
    pub fn last_reader(&self) -> Option<TaskId> {
        let goes = self.readers == 1 && !self.kept && self.state == DataState::Present && self.writer != NONE;
        goes.then_some(TaskId(self.left))
    }

    /// Returns whether any task reads or has read the datum.
    pub fn has_readers(&self) -> bool {
        self.waiters.head != NONE
    }

    /// The number of tasks that still read the datum, and their numbers combined by XOR: if there
    /// is only one, that is its number.
    pub fn readers_left(&self) -> (u32, u32) {
        (self.readers, self.left)
    }

    /// Adds or removes one reader; `readers` is the new number of readers.
    fn count_reader(&mut self, reader: TaskId, readers: u32) {
        self.readers = readers;
        self.left ^= reader.0;
    }

    /// Returns whether no task needs the datum any more: it exists, was read, and has no more
    /// readers.
    pub fn is_unneeded(&self) -> bool {
        self.has_readers() && self.readers == 0 && !self.kept && self.state == DataState::Present
    }
}

/// All rows and edges.
#[derive(Debug, Default)]
pub struct TaskTable {
    rows: Vec<Row>,
    data: Vec<DataEntry>,
    edges: Vec<Edge>,
    outputs: Vec<DataId>,
}

impl TaskTable {
    /// Allocates rows for this many tasks and data in one allocation each.
    pub fn reserve(&mut self, tasks: usize, data: usize) {
        self.rows.reserve(tasks);
        self.data.reserve(data);
    }

    /// Adds a task in state `New`; if it is refused, nothing changes.
    pub fn insert(&mut self, spec: &TaskSpec, now_ms: u64) -> Result<(), AddError> {
        self.check(spec)?;
        let edges = index(self.edges.len());
        spec.inputs.iter().for_each(|data| self.read(spec.id, *data));
        let inputs = index(self.edges.len()) - edges;
        for task in &spec.after {
            let edge = self.edge(spec.id, task.0);
            self.row_mut(*task);
            append(&mut self.edges, &mut self.rows[at(task.0)].waiters, edge);
        }
        let outputs = index(self.outputs.len());
        self.outputs.extend_from_slice(&spec.outputs);
        let waiters = self.row_mut(spec.id).waiters;
        self.rows[at(spec.id.0)] = Row {
            state: TaskState::New,
            demand: Demand { cpus: spec.cpus.max(1), memory: spec.memory },
            tool: spec.tool,
            priority: spec.priority,
            attempts: 0,
            attempts_max: spec.retries.saturating_add(1),
            retries: spec.retries,
            was_done: false,
            missing: 0,
            since_ms: now_ms,
            edges,
            inputs,
            after: index(spec.after.len()),
            outputs,
            outputs_len: index(spec.outputs.len()),
            waiters,
        };
        Ok(())
    }

    /// Makes `task`, which must be the last one added, a reader of the datum; once, even if the
    /// task names it several times.
    fn read(&mut self, task: TaskId, data: DataId) {
        let datum = self.datum_mut(data);
        let (last, readers) = (datum.waiters.tail, datum.readers + 1);
        if self.edges.get(at(last)).is_some_and(|edge| edge.owner == task) {
            return;
        }
        self.datum_mut(data).count_reader(task, readers);
        let edge = self.edge(task, data.0);
        append(&mut self.edges, &mut self.data[at(data.0)].waiters, edge);
    }

    /// Adds a reader that had ended and runs again.
    pub fn readd_reader(&mut self, data: DataId, reader: TaskId) {
        let datum = self.datum_mut(data);
        let readers = datum.readers + 1;
        datum.count_reader(reader, readers);
    }

    /// Removes a reader that has ended.
    pub fn remove_reader(&mut self, data: DataId, reader: TaskId) {
        let datum = self.datum_mut(data);
        let readers = datum.readers - 1;
        datum.count_reader(reader, readers);
    }

    fn check(&mut self, spec: &TaskSpec) -> Result<(), AddError> {
        if self.row_mut(spec.id).state != TaskState::Vacant {
            return Err(AddError::DuplicateTask { task: spec.id });
        }
        if let Some(data) = spec.inputs.iter().find(|data| self.datum(**data).is_some_and(|datum| datum.sealed)) {
            return Err(AddError::Sealed { data: *data });
        }
        for (claimed, data) in spec.outputs.iter().enumerate() {
            if let Err(refused) = self.claim(*data, spec.id) {
                spec.outputs[..claimed].iter().for_each(|data| self.datum_mut(*data).writer = NONE);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Makes `task` the writer of the datum.
    fn claim(&mut self, data: DataId, task: TaskId) -> Result<(), AddError> {
        let datum = self.datum_mut(data);
        match datum.writer() {
            Some(writer) => Err(AddError::DuplicateWriter { data, writer }),
            None if datum.state == DataState::Present => Err(AddError::WritesInput { data }),
            None => {
                datum.writer = task.0;
                Ok(())
            }
        }
    }

    fn edge(&mut self, owner: TaskId, on: u32) -> u32 {
        self.edges.push(Edge { owner, on, next: NONE });
        index(self.edges.len() - 1)
    }

    /// The number of known tasks, including vacant rows.
    pub fn len(&self) -> u32 {
        index(self.rows.len())
    }

    /// The number of known data.
    pub fn data_len(&self) -> u32 {
        index(self.data.len())
    }

    /// The task's row; `None` if the task is unknown.
    pub fn row(&self, task: TaskId) -> Option<&Row> {
        self.rows.get(at(task.0))
    }

    /// The task's row, created if necessary.
    pub fn row_mut(&mut self, task: TaskId) -> &mut Row {
        grow(&mut self.rows, task.0, || VACANT)
    }

    /// The datum; `None` if it is unknown.
    pub fn datum(&self, data: DataId) -> Option<&DataEntry> {
        self.data.get(at(data.0))
    }

    /// The datum, created if necessary.
    pub fn datum_mut(&mut self, data: DataId) -> &mut DataEntry {
        grow(&mut self.data, data.0, || UNKNOWN)
    }

    /// The data that the task reads, each once, in order.
    pub fn inputs(&self, task: TaskId) -> impl ExactSizeIterator<Item = DataId> + '_ {
        let row = &self.rows[at(task.0)];
        self.edges[at(row.edges)..at(row.edges + row.inputs)].iter().map(|edge| DataId(edge.on))
    }

    /// The input at a position of `inputs`.
    pub fn input(&self, task: TaskId, position: usize) -> DataId {
        DataId(self.edges[at(self.rows[at(task.0)].edges) + position].on)
    }

    /// The tasks that must be done before it, apart from the writers of its inputs.
    pub fn after(&self, task: TaskId) -> impl ExactSizeIterator<Item = TaskId> + '_ {
        let row = &self.rows[at(task.0)];
        let first = row.edges + row.inputs;
        self.edges[at(first)..at(first + row.after)].iter().map(|edge| TaskId(edge.on))
    }

    /// The data that the task writes, in order.
    pub fn outputs(&self, task: TaskId) -> &[DataId] {
        let row = &self.rows[at(task.0)];
        &self.outputs[at(row.outputs)..at(row.outputs + row.outputs_len)]
    }

    /// The tasks that read the datum, each once, in the order in which they were added.
    pub fn readers_of(&self, data: DataId) -> impl Iterator<Item = TaskId> + '_ {
        self.walk(self.data[at(data.0)].waiters)
    }

    /// The tasks that wait for the task itself.
    pub fn waiters_of(&self, task: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        self.walk(self.rows[at(task.0)].waiters)
    }

    fn walk(&self, list: List) -> impl Iterator<Item = TaskId> + '_ {
        let mut next = list.head;
        std::iter::from_fn(move || {
            let edge = self.edges.get(at(next))?;
            next = edge.next;
            Some(edge.owner)
        })
    }
}

fn append(edges: &mut [Edge], list: &mut List, edge: u32) {
    if list.head == NONE {
        list.head = edge;
    } else {
        edges[at(list.tail)].next = edge;
    }
    list.tail = edge;
}

fn grow<T>(all: &mut Vec<T>, id: u32, empty: fn() -> T) -> &mut T {
    if at(id) >= all.len() {
        all.resize_with(at(id) + 1, empty);
    }
    &mut all[at(id)]
}

fn at(id: u32) -> usize {
    id as usize
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("tasks and edges are bounded far below 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workflow may take 1 KB a task in all; the table takes at most a fifth of it.
    #[test]
    fn a_task_with_three_data_costs_less_than_200_bytes() {
        assert!(size_of::<Row>() + 2 * size_of::<DataEntry>() + 3 * size_of::<Edge>() < 200, "{}", size_of::<Row>());
    }

    #[test]
    fn readers_are_found_in_the_order_of_adding_each_once() {
        let mut table = TaskTable::default();
        for id in [2, 0, 1] {
            let spec = TaskSpec { inputs: vec![DataId(5), DataId(3), DataId(5)], ..TaskSpec::new(TaskId(id)) };
            table.insert(&spec, 0).expect("each is new");
        }
        assert_eq!(table.readers_of(DataId(5)).map(|task| task.0).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(table.datum(DataId(5)).expect("known").readers, 3);
        assert_eq!(table.inputs(TaskId(0)).collect::<Vec<_>>(), [DataId(5), DataId(3)]);
    }

    #[test]
    fn the_last_reader_of_a_temporary_is_known_when_all_others_have_ended() {
        let mut table = TaskTable::default();
        let writer = TaskSpec { outputs: vec![DataId(5)], ..TaskSpec::new(TaskId(9)) };
        table.insert(&writer, 0).expect("new");
        for id in [2, 0, 1] {
            let spec = TaskSpec { inputs: vec![DataId(5), DataId(5)], ..TaskSpec::new(TaskId(id)) };
            table.insert(&spec, 0).expect("each is new");
        }
        table.datum_mut(DataId(5)).state = DataState::Present;
        table.remove_reader(DataId(5), TaskId(0));
        assert_eq!(table.datum(DataId(5)).expect("known").last_reader(), None);
        table.remove_reader(DataId(5), TaskId(2));
        assert_eq!(table.datum(DataId(5)).expect("known").last_reader(), Some(TaskId(1)));
    }
}
