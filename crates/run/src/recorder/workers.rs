//! The workers of a cluster in the report and the journal.

use super::Recorder;
use crate::plan_source::PlanHost;
use journal::{AgentTrace, JournalRecord, JournalState};
use report::{NodeRecord, Seconds};
use sched::WorkerId;
use std::time::Duration;

impl Recorder {
    /// Records a worker of a cluster that has joined, by the name of its host.
    pub fn joined(&mut self, worker: WorkerId, name: String, slots: u32, agent: AgentTrace) {
        let agent = Some(agent);
        self.journal.write(JournalRecord::WorkerJoined { worker: worker.0, name: name.clone(), slots, agent });
        self.add_node(worker, name, slots, (self.now(), None));
    }

    /// Records the worker of a run on this host.
    pub fn joined_here(&mut self, name: String) {
        let slots = self.run.settings.slots;
        self.journal.write(JournalRecord::WorkerJoined { worker: 0, name, slots, agent: None });
    }

    fn add_node(&mut self, worker: WorkerId, name: String, slots: u32, (joined_s, lost_s): (Seconds, Option<Seconds>)) {
        let first_slot = self.run.nodes.last().map_or(0, |last| last.first_slot + last.slots);
        self.nodes.insert(worker, self.run.nodes.len());
        self.run.nodes.push(NodeRecord { name, first_slot, slots, joined_s, lost_s });
        self.run.settings.slots = first_slot + slots;
    }

    /// Records that a worker may run more tasks at once than ever before. The numbers of the slots
    /// of later workers change.
    pub fn resized(&mut self, worker: WorkerId, slots: u32) {
        let Some(index) = self.nodes.get(&worker).copied() else { return };
        let Some((node, later)) = self.run.nodes.get_mut(index..).and_then(<[_]>::split_first_mut) else { return };
        let more = slots.saturating_sub(node.slots);
        if more == 0 {
            return;
        }
        node.slots = slots;
        for later in later {
            later.first_slot += more;
        }
        self.run.settings.slots += more;
        for task in &mut self.run.tasks {
            let is_later = task.node.is_some_and(|node| node as usize > index);
            task.slot = task.slot.map(|slot| if is_later { slot + more } else { slot });
        }
        self.journal.write(JournalRecord::WorkerResized { worker: worker.0, slots });
    }

    /// The hosts of a cluster that are there.
    pub fn hosts(&self) -> Vec<PlanHost> {
        let host = |(worker, index): (&WorkerId, &usize)| {
            let node = self.run.nodes.get(*index).filter(|node| node.lost_s.is_none())?;
            Some(PlanHost { worker: worker.0, name: node.name.clone(), slots: node.slots })
        };
        self.nodes.iter().filter_map(host).collect()
    }

    /// The workers that are lost and were on a host of this name.
    pub fn former_workers(&self, name: &str) -> Vec<WorkerId> {
        let is_former =
            |index: &usize| self.run.nodes.get(*index).is_some_and(|node| node.name == name && node.lost_s.is_some());
        self.nodes.iter().filter(|(_, index)| is_former(index)).map(|(worker, _)| *worker).collect()
    }

    /// Number of the next worker of a cluster.
    pub fn next_worker(&self) -> u32 {
        self.nodes.last_key_value().map_or(0, |(worker, _)| worker.0 + 1)
    }

    /// Records that a worker is lost.
    pub fn worker_lost(&mut self, worker: WorkerId) {
        let now = self.now();
        self.journal.write(JournalRecord::WorkerLost { worker: worker.0 });
        if let Some(node) = self.nodes.get(&worker).and_then(|index| self.run.nodes.get_mut(*index)) {
            node.lost_s = Some(now);
        }
    }

    /// Records that a pool of a cluster was formed, by the agent of its first node.
    pub fn pool_formed(&mut self, first: AgentTrace) {
        self.journal.write(JournalRecord::PoolFormed { first });
    }

    /// Records that the pool is lost, and all workers with it.
    pub fn pool_lost(&mut self) {
        let is_there = |index: &usize| self.run.nodes.get(*index).is_some_and(|node| node.lost_s.is_none());
        let there: Vec<WorkerId> =
            self.nodes.iter().filter(|(_, index)| is_there(index)).map(|(worker, _)| *worker).collect();
        for worker in there {
            self.worker_lost(worker);
        }
    }

    /// The name of a worker, for people.
    pub fn worker_name(&self, worker: WorkerId) -> String {
        let node = self.nodes.get(&worker).and_then(|index| self.run.nodes.get(*index));
        node.map_or_else(|| format!("worker {}", worker.0), |node| node.name.clone())
    }

    /// Fills in the workers that an earlier process of the run had on a cluster.
    pub fn restore_workers(&mut self, state: &JournalState) {
        let at = |ms: u64| Seconds::from(Duration::from_millis(ms));
        for (number, worker) in &state.workers {
            let lost_ms = worker.lost_ms.unwrap_or(state.last_ms);
            let when = (at(worker.joined_ms), Some(at(lost_ms)));
            self.add_node(WorkerId(*number), worker.name.clone(), worker.slots, when);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_journal::RunJournal;
    use flow::TaskId;
    use report::RunReport;
    use std::time::Instant;

    #[test]
    fn slots_of_a_host_that_grows_are_no_other_hosts() {
        let run = RunReport { tasks: vec![report::TaskRecord::default(); 3], ..RunReport::default() };
        let mut record = Recorder::new(run, RunJournal::default(), Instant::now());
        for worker in 0..2 {
            record.joined(WorkerId(worker), format!("h{worker}"), 2, AgentTrace::default());
        }
        record.set_slot(TaskId(0), (WorkerId(0), 1));
        record.set_slot(TaskId(1), (WorkerId(1), 1));
        record.resized(WorkerId(0), 0);
        record.resized(WorkerId(0), 4);
        record.set_slot(TaskId(2), (WorkerId(0), 3));
        assert_eq!([0, 1, 2].map(|task| record.run.tasks[task].slot), [Some(1), Some(5), Some(3)]);
        assert_eq!((record.run.nodes[1].first_slot, record.run.settings.slots), (4, 6));
    }
}
