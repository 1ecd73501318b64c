//! The scheduler's state machine: how each event changes the table, the queue and the free
//! resources.
//!
//! Failures spread by a worklist (`doomed`), not by recursion, so a chain of 100,000 tasks fails on
//! a small stack. Asserted invariants: a task ends once; only running tasks report an end;
//! something runs while there are unfinished tasks.

use crate::explain::Standing;
use crate::policy::{Fifo, Policy};
use crate::room::{Machine, Room, SlotId};
use crate::space::{Refusal, SpaceRules};
use crate::table::{Life, State, Table};
use crate::words::{Because, Command, Event, Link, Options, Refused, TaskSpec};
use flow::{DataId, TaskId, ToolId};
use std::collections::{HashMap, VecDeque};

/// The number of tasks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that wait for data or other tasks.
    pub new: u32,
    /// Tasks that wait for resources or space.
    pub ready: u32,
    /// Tasks that run.
    pub running: u32,
    /// Tasks that succeeded.
    pub done: u32,
    /// Tasks that failed for good.
    pub failed: u32,
}

impl Counts {
    /// The number of tasks that have not ended.
    pub fn unfinished(&self) -> u32 {
        self.new + self.ready + self.running
    }

    fn of(&mut self, state: State) -> &mut u32 {
        match state {
            State::New => &mut self.new,
            State::Ready => &mut self.ready,
            State::Running(_) => &mut self.running,
            State::Done => &mut self.done,
            State::Failed => &mut self.failed,
            State::Vacant => unreachable!("vacant rows are not counted"),
        }
    }
}

/// Tells whether more tasks may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// Tasks may be added.
    Open,
    /// The workflow is complete: `Begin` closes it.
    Whole,
    /// No more tasks can be added.
    Closed,
}

/// The scheduler: the task table, the policy, the space rules and the free resources.
#[derive(Debug)]
pub struct Scheduler {
    table: Table,
    policy: Box<dyn Policy>,
    space: SpaceRules,
    room: Room,
    options: Options,
    counts: Counts,
    begun: bool,
    growth: Growth,
    ended: bool,
    /// The reason with which tasks that have not started fail. Set if no task may start any more.
    stopped: Option<Because>,
    failures: HashMap<TaskId, Because>,
    /// Tasks that are about to fail. Empty between events.
    doomed: VecDeque<(TaskId, Because)>,
}

/// The context of one call of `on`: the time, and the commands so far.
struct Turn<'a> {
    now_ms: u64,
    commands: &'a mut Vec<Command>,
}

impl Scheduler {
    /// A scheduler without tasks that serves ready tasks first come, first served.
    pub fn new(machine: Machine, options: Options) -> Self {
        Self::with_policy(machine, options, Box::new(Fifo::default()))
    }

    /// A scheduler without tasks that chooses among ready tasks by `policy`.
    pub fn with_policy(machine: Machine, options: Options, policy: Box<dyn Policy>) -> Self {
        Self {
            table: Table::default(),
            policy,
            space: SpaceRules::default(),
            room: Room::new(machine),
            options,
            counts: Counts::default(),
            begun: false,
            growth: Growth::Open,
            ended: false,
            stopped: None,
            failures: HashMap::new(),
            doomed: VecDeque::new(),
        }
    }

    /// Declares that the datum exists before the run. Call it before adding tasks that read the
    /// datum.
    pub fn give(&mut self, data: DataId) {
        self.table.datum_mut(data).life = Life::There;
    }

    /// Sets the size of an input of the workflow. Call it before adding tasks that read the input.
    pub fn weigh(&mut self, data: DataId, bytes: u64) {
        self.space.wrote(data, bytes, false);
    }

    /// Declares that the datum is never dropped. Panics if the workflow is closed.
    pub fn keep(&mut self, data: DataId) {
        assert!(self.growth != Growth::Closed, "what is kept is said before anything can be dropped");
        self.table.datum_mut(data).kept = true;
    }

    /// Allocates memory for this many tasks and data.
    pub(crate) fn reserve(&mut self, tasks: usize, data: usize) {
        self.table.reserve(tasks, data);
    }

    /// Declares that all tasks were added: `Begin` closes the workflow.
    pub(crate) fn whole(&mut self) {
        self.growth = Growth::Whole;
    }

    /// Handles an event that happened at `now_ms` (of any clock that does not go back) and appends
    /// the resulting commands.
    pub fn on(&mut self, event: Event, now_ms: u64, commands: &mut Vec<Command>) {
        let turn = &mut Turn { now_ms, commands };
        match event {
            Event::Begin => self.begin(turn),
            Event::Add(spec) => self.added(&spec, turn),
            Event::Close => self.close(turn),
            Event::Done(task) => self.done(task, turn),
            Event::Wrote { data, bytes } => self.wrote(data, bytes),
            Event::Pool(state) => self.space.pool(state),
            Event::NoSpace { task, retry } => self.no_space(task, retry, turn),
            Event::Failed { task, retry } => self.attempt_failed(task, retry, turn),
            Event::Cancel => self.cancel(turn),
        }
        self.spread_failures(turn);
        self.start_ready(turn);
        self.end(turn);
    }

    /// The size of a datum in bytes; 0 if it is not known yet.
    pub fn bytes_of(&self, data: DataId) -> u64 {
        self.space.size(data)
    }

    /// The number of tasks in each state.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The resources of the machine that are free.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The state of the task, and why it waits or failed; `None` for a task that was never added.
    pub fn explain(&self, task: TaskId) -> Option<Standing> {
        let failure = |task| self.failures.get(&task).copied();
        Standing::of(task, &self.table, (self.policy.as_ref(), &self.space), &self.room, failure)
    }

    /// The chain of causes from a failed task to the root; empty if the task has not failed.
    pub fn chain(&self, task: TaskId) -> Vec<Link> {
        let because = |task: TaskId| self.failures.get(&task).map(|because| Link { task, because: *because });
        std::iter::successors(because(task), |link| match link.because {
            Because::Input { data, .. } => because(self.table.datum(data)?.writer()?),
            Because::After { task, .. } => because(task),
            _ => None,
        })
        .collect()
    }

    fn begin(&mut self, turn: &mut Turn) {
        assert!(!self.begun, "a run begins once");
        self.begun = true;
        if self.growth == Growth::Whole {
            self.close(turn);
        }
    }

    fn added(&mut self, spec: &TaskSpec, turn: &mut Turn) {
        if let Err(why) = self.add(spec, turn.now_ms) {
            turn.commands.push(Command::Refused { task: spec.id, why });
        }
    }

    /// Adds a task: it is ready, waits, or is about to fail.
    pub(crate) fn add(&mut self, spec: &TaskSpec, now_ms: u64) -> Result<(), Refused> {
        self.admit(spec)?;
        self.table.insert(spec, now_ms)?;
        self.counts.new += 1;
        self.space.expect(spec.tool);
        match self.stopped.or_else(|| self.lost_need(spec.id)) {
            Some(because) => self.doomed.push_back((spec.id, because)),
            None => self.count_missing(spec.id, now_ms),
        }
        Ok(())
    }

    fn admit(&self, spec: &TaskSpec) -> Result<(), Refused> {
        let machine = self.room.machine();
        if self.growth == Growth::Closed {
            Err(Refused::Closed)
        } else if spec.cpus.max(1) > machine.slots {
            Err(Refused::Cpus { needs: spec.cpus, machine })
        } else if spec.memory > machine.memory {
            Err(Refused::Memory { needs: spec.memory, machine })
        } else {
            Ok(())
        }
    }

    /// The first need of a new task that can never be met.
    fn lost_need(&self, task: TaskId) -> Option<Because> {
        let lost = |data: &DataId| self.table.datum(*data).is_some_and(|datum| datum.life == Life::Lost);
        let failed = |task: &TaskId| self.table.row(*task).is_some_and(|row| row.state == State::Failed);
        let input = self.table.inputs(task).find(lost).and_then(|data| self.because_of_data(data));
        input.or_else(|| self.table.after(task).find(failed).map(|task| self.because_of_task(task)))
    }

    fn because_of_data(&self, data: DataId) -> Option<Because> {
        let writer = self.table.datum(data)?.writer()?;
        Some(Because::Input { data, root: self.root(writer) })
    }

    fn because_of_task(&self, task: TaskId) -> Because {
        Because::After { task, root: self.root(task) }
    }

    /// The task at the root of a task's failure.
    fn root(&self, failed: TaskId) -> TaskId {
        match self.failures.get(&failed) {
            Some(Because::Input { root, .. } | Because::After { root, .. }) => *root,
            _ => failed,
        }
    }

    fn count_missing(&mut self, task: TaskId, now_ms: u64) {
        let awaited = |data: &DataId| self.table.datum(*data).is_some_and(|datum| datum.life != Life::There);
        let undone = |task: &TaskId| self.table.row(*task).is_some_and(|row| row.state != State::Done);
        let missing = self.table.inputs(task).filter(awaited).count() + self.table.after(task).filter(undone).count();
        self.table.row_mut(task).missing = u32::try_from(missing).expect("edges are counted in u32");
        if missing == 0 {
            self.make_ready(task, now_ms);
        }
    }

    fn make_ready(&mut self, task: TaskId, now_ms: u64) {
        self.set(task, State::Ready, now_ms);
        self.offer(task);
    }

    /// Hands a ready task to the space rules and the policy; it may start from now on.
    fn offer(&mut self, task: TaskId) {
        let (mut frees, mut reads) = (0, 0);
        for data in self.table.inputs(task) {
            let bytes = self.space.size(data);
            reads += bytes;
            let is_last = self.table.datum(data).is_some_and(|datum| datum.last_reader() == Some(task));
            frees += if is_last { bytes } else { 0 };
        }
        self.space.ready(task, self.tool(task), frees, reads);
        self.policy.ready(task);
    }

    fn tool(&self, task: TaskId) -> ToolId {
        self.table.row(task).expect("it was added").tool
    }

    fn set(&mut self, task: TaskId, state: State, now_ms: u64) {
        let row = self.table.row_mut(task);
        assert!(!matches!(row.state, State::Done | State::Failed), "task {} ends only once", task.0);
        *self.counts.of(row.state) -= 1;
        *self.counts.of(state) += 1;
        row.state = state;
        row.since_ms = now_ms;
    }

    /// Closes the workflow. From here on it is known which data and tasks will never exist, and
    /// which data has no more readers.
    fn close(&mut self, turn: &mut Turn) {
        if std::mem::replace(&mut self.growth, Growth::Closed) == Growth::Closed {
            return;
        }
        for data in (0..self.table.data_len()).map(DataId) {
            let datum = self.table.datum_mut(data);
            if datum.life == Life::Awaited && datum.writer().is_none() {
                let because = Because::NoWriter { data };
                self.doomed.extend(self.table.readers_of(data).map(|reader| (reader, because)));
            }
            self.drop_if_spent(data, turn);
        }
        for task in (0..self.table.len()).map(TaskId) {
            if self.table.row_mut(task).state == State::Vacant {
                let because = Because::NoTask { task };
                self.doomed.extend(self.table.waiters_of(task).map(|waiter| (waiter, because)));
            }
        }
    }

    /// Records the size of an output of a task that is about to be done. An output that nobody
    /// reads leaves the pool by itself.
    fn wrote(&mut self, data: DataId, bytes: u64) {
        let stays = self.table.readers_of(data).next().is_some() || self.table.datum_mut(data).kept;
        self.space.wrote(data, bytes, stays);
    }

    fn done(&mut self, task: TaskId, turn: &mut Turn) {
        self.leave(task);
        self.set(task, State::Done, turn.now_ms);
        self.space.expect_no_more(self.tool(task));
        let written = self.table.outputs(task).iter().map(|data| self.space.size(*data)).sum();
        self.space.end(task, self.tool(task), Some(written));
        let mut eased = Vec::new();
        for position in 0..self.table.outputs(task).len() {
            let data = self.table.outputs(task)[position];
            self.table.datum_mut(data).life = Life::There;
            eased.extend(self.table.readers_of(data));
            self.drop_if_spent(data, turn);
        }
        eased.extend(self.table.waiters_of(task));
        for waiter in eased {
            self.ease(waiter, turn.now_ms);
        }
        self.release_inputs(task, turn);
    }

    /// Returns the resources of a running task.
    fn leave(&mut self, task: TaskId) {
        let slot = self.slot(task).expect("only a running task reports its end");
        self.room.give(self.table.row_mut(task).needs, slot);
    }

    fn slot(&self, task: TaskId) -> Option<SlotId> {
        match self.table.row(task)?.state {
            State::Running(slot) => Some(slot),
            _ => None,
        }
    }

    /// Counts one datum or task that the task waited for as present.
    fn ease(&mut self, task: TaskId, now_ms: u64) {
        let row = self.table.row_mut(task);
        if row.state != State::New {
            return;
        }
        row.missing -= 1;
        if row.missing == 0 {
            self.make_ready(task, now_ms);
        }
    }

    fn release_inputs(&mut self, task: TaskId, turn: &mut Turn) {
        let inputs = self.table.inputs(task).len();
        for position in 0..inputs {
            let data = self.table.input(task, position);
            self.table.read_no_more(data, task);
            if let Some(last) = self.table.datum_mut(data).last_reader() {
                self.space.inherits(last, data);
            }
            self.drop_if_spent(data, turn);
        }
    }

    fn drop_if_spent(&mut self, data: DataId, turn: &mut Turn) {
        let datum = self.table.datum_mut(data);
        if self.growth == Growth::Closed && datum.is_spent() {
            datum.life = Life::Dropped;
            if datum.writer().is_some() {
                self.space.dropped(data);
            }
            turn.commands.push(Command::Drop { data });
        }
    }

    fn no_space(&mut self, task: TaskId, retry: bool, turn: &mut Turn) {
        if self.stopped.is_some() || self.space.refuse(task) == Refusal::Final {
            return self.attempt_failed(task, retry, turn);
        }
        self.leave(task);
        self.set(task, State::Ready, turn.now_ms);
        let row = self.table.row_mut(task);
        row.attempts_max += 1;
        turn.commands.push(Command::Retry { task, left: row.attempts_max - row.attempts });
    }

    fn attempt_failed(&mut self, task: TaskId, retry: bool, turn: &mut Turn) {
        self.leave(task);
        self.space.end(task, self.tool(task), None);
        let row = self.table.row_mut(task);
        let left = row.attempts_max - row.attempts;
        if retry && left > 0 && self.stopped.is_none() {
            self.make_ready(task, turn.now_ms);
            turn.commands.push(Command::Retry { task, left });
            return;
        }
        let cancelled = self.stopped == Some(Because::Cancelled);
        self.doomed.push_back((task, if cancelled { Because::Cancelled } else { Because::Itself }));
        self.spread_failures(turn);
        if self.options.fail_fast && self.stopped.is_none() {
            self.stop(Because::FailFast { root: task });
        }
    }

    fn cancel(&mut self, turn: &mut Turn) {
        if self.ended || self.stopped == Some(Because::Cancelled) {
            return;
        }
        self.stop(Because::Cancelled);
        let running = (0..self.table.len()).map(TaskId).filter(|task| self.slot(*task).is_some());
        turn.commands.extend(running.map(|task| Command::Stop { task }));
    }

    /// Stops the run: no task starts any more, and all that have not started are about to fail.
    fn stop(&mut self, because: Because) {
        self.stopped = Some(because);
        for task in (0..self.table.len()).map(TaskId) {
            if matches!(self.table.row_mut(task).state, State::New | State::Ready) {
                self.doomed.push_back((task, because));
            }
        }
    }

    /// Fails the doomed tasks and all tasks that depend on them.
    fn spread_failures(&mut self, turn: &mut Turn) {
        while let Some((task, because)) = self.doomed.pop_front() {
            if self.table.row_mut(task).state != State::Failed {
                self.fail(task, because, turn);
            }
        }
    }

    fn fail(&mut self, task: TaskId, because: Because, turn: &mut Turn) {
        self.set(task, State::Failed, turn.now_ms);
        self.space.expect_no_more(self.tool(task));
        self.failures.insert(task, because);
        turn.commands.push(Command::Failed { task, because });
        let root = self.root(task);
        for position in 0..self.table.outputs(task).len() {
            let data = self.table.outputs(task)[position];
            self.table.datum_mut(data).life = Life::Lost;
            let because = Because::Input { data, root };
            self.doomed.extend(self.table.readers_of(data).map(|reader| (reader, because)));
        }
        let because = Because::After { task, root };
        self.doomed.extend(self.table.waiters_of(task).map(|waiter| (waiter, because)));
        self.release_inputs(task, turn);
    }

    fn start_ready(&mut self, turn: &mut Turn) {
        if !self.begun || self.stopped.is_some() {
            return;
        }
        for task in self.space.take_back() {
            self.offer(task);
        }
        while let Some(task) = self.choose() {
            let row = self.table.row_mut(task);
            assert!(row.state == State::Ready && row.missing == 0, "the policy holds ready tasks only");
            row.attempts += 1;
            let attempt = row.attempts;
            let slot = self.room.take(row.needs);
            self.set(task, State::Running(slot), turn.now_ms);
            turn.commands.push(Command::Start { task, slot, attempt });
        }
    }

    fn choose(&mut self) -> Option<TaskId> {
        let table = &self.table;
        let needs = |task| table.row(task).expect("ready tasks have rows").needs;
        let preferred = self.policy.choose(&self.room, &needs);
        let task = self.space.choose(preferred, &self.room, table)?;
        self.policy.leave(task, preferred == Some(task));
        self.space.start(task);
        Some(task)
    }

    fn end(&mut self, turn: &mut Turn) {
        let all_known = self.begun && self.growth == Growth::Closed;
        if !all_known || self.ended {
            return;
        }
        let Counts { ready, running, done, failed, .. } = self.counts;
        let goes_on = running > 0 || (ready > 0 && self.space.waits_for_leaving());
        assert!(goes_on || self.counts.unfinished() == 0, "nothing runs and tasks wait: the graph has a cycle");
        if self.counts.unfinished() == 0 {
            self.ended = true;
            turn.commands.push(Command::Ended { done, failed });
        }
    }
}
