//! The course of a world: nodes that join, leave, die, fall silent or do not reach each other, in
//! random moments.

use crate::simulation::{
    executor::{SimState, sim_sleep},
    managers::SimManagers,
    network::{Host, SimEvent},
};
use cluster::{ClusterEntry, NodePhase, PartitionMove};
use placement::NodeId;
use std::{sync::Arc, time::Duration};

/// Most nodes that take partitions.
const NODES_MAX: usize = 5;
/// Longest time between two turns of the course.
const TURN_INTERVAL: Duration = Duration::from_millis(400);
/// Longest time that the course waits for a move to be under way.
const MOVE_WAIT: Duration = Duration::from_millis(800);

/// What happens to the nodes of a world.
pub struct Course {
    pub state: Arc<SimState>,
    pub managers: Arc<SimManagers>,
}

impl Course {
    /// A few things happen one after the other. Once in a while the last one is that a node dies
    /// with what it serves.
    pub async fn run(self) {
        for _ in 0..2 + self.state.random(3) {
            sim_sleep(self.state.random_time(TURN_INTERVAL)).await;
            match self.state.random(8) {
                0..=2 => drop(self.join().await),
                3 | 4 => self.drain(),
                5 => self.fall_silent().await,
                6 => self.cut_nodes().await,
                _ => self.lose_a_target().await,
            }
        }
        if self.state.one_in(8) {
            self.lose_a_source().await;
        }
    }

    fn serving(&self) -> Vec<NodeId> {
        let cluster = self.managers.cluster();
        let serving = cluster.nodes().iter().filter(|(_, node)| node.phase == NodePhase::Serving);
        serving.map(|(id, _)| *id).collect()
    }

    /// A node joins and is admitted.
    async fn join(&self) -> Option<NodeId> {
        if self.serving().len() >= NODES_MAX {
            return None;
        }
        let capacity = self.state.rng.lock().pick(&[1, 1, 2, 4]);
        let node = self.managers.join(capacity).await;
        sim_sleep(self.state.random_time(Duration::from_millis(20))).await;
        self.managers.propose(&ClusterEntry::Admit(node));
        Some(node)
    }

    /// A node is to leave, as soon as it has nothing left.
    fn drain(&self) {
        let serving = self.serving();
        if serving.len() > 2 {
            let node = self.state.rng.lock().pick(&serving);
            self.managers.propose(&ClusterEntry::Drain(node));
        }
    }

    /// Waits for a move that is under way, for a while.
    async fn wait_for_a_move(&self, is_meant: impl Fn(&PartitionMove) -> bool) -> Option<PartitionMove> {
        let end = node::now() + MOVE_WAIT;
        while node::now() < end {
            let moves: Vec<PartitionMove> = self.managers.cluster().moves().filter(&is_meant).collect();
            if !moves.is_empty() {
                return Some(self.state.rng.lock().pick(&moves));
            }
            sim_sleep(Duration::from_millis(2)).await;
        }
        None
    }

    /// A node reaches nobody for a while, and returns.
    async fn fall_silent(&self) {
        let node = match self.wait_for_a_move(|_| true).await {
            Some(step) => self.state.rng.lock().pick(&[step.from, step.to]),
            None => self.state.rng.lock().pick(&self.serving()),
        };
        let time = self.state.random_time(Duration::from_millis(1500));
        self.state.network.count(SimEvent::NodeSilent);
        self.state.cut(Host::Node(node), None, time);
    }

    /// The nodes of a move do not reach each other for a while.
    async fn cut_nodes(&self) {
        let Some(step) = self.wait_for_a_move(|_| true).await else { return };
        let time = self.state.random_time(Duration::from_millis(300));
        self.state.network.count(SimEvent::NodesCut);
        self.state.cut(Host::Node(step.from), Some(Host::Node(step.to)), time);
    }

    /// A node joins and dies while the first partitions move to it.
    async fn lose_a_target(&self) {
        let Some(node) = self.join().await else { return };
        let is_first = |step: &PartitionMove| step.to == node;
        if self.wait_for_a_move(is_first).await.is_none() {
            return;
        }
        sim_sleep(self.state.random_time(Duration::from_millis(8))).await;
        let Some(target) = self.state.network.node(node) else { return };
        // What it has made ready may be its own already.
        if target.serves_any() || !target.prepared_partitions().is_empty() {
            return;
        }
        self.state.network.count(SimEvent::TargetDied);
        self.bury(node).await;
    }

    /// A node dies with what it serves, while a partition moves away from it.
    async fn lose_a_source(&self) {
        let serving = self.serving();
        if serving.len() < 2 {
            return;
        }
        let node = match self.wait_for_a_move(|_| true).await {
            Some(step) => step.from,
            None => self.state.rng.lock().pick(&serving),
        };
        self.state.network.count(SimEvent::SourceDied);
        self.state.network.lose_partitions();
        self.bury(node).await;
    }

    /// Kills a node; somebody says a while later that it is lost.
    async fn bury(&self, node: NodeId) {
        self.state.kill(Host::Node(node));
        sim_sleep(self.state.random_time(Duration::from_millis(600))).await;
        self.managers.propose(&ClusterEntry::Leave { node, lost: true });
    }
}
