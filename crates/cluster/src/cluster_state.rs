//! The state that the managers of a pool agree on: its nodes, the map, the moves under way.
//!
//! Entries of the managers' log change it, the same way at each of them. An entry may come twice:
//! it is done once. Whether an entry should be made is decided elsewhere, from what nodes report;
//! here it is refused if it is impossible.
//!
//! ```text
//!   Join --> joining --Admit--> serving --Drain--> draining --Leave (it serves nothing)--> left
//!                                 ^-----Admit--------'      a lost node leaves with its partitions
//! unserved
//!   Begin (source copies to target) --Commit--> the partition's next epoch names the target
//!                                   --Abandon-> it names the source, which goes on
//! ```

use placement::{Epoch, NodeId, PartitionId, PartitionMap};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::PartitionMove;

/// Largest id of a node: ids have 16 bits in sessions.
const NODE_ID_MAX: u32 = u16::MAX as u32;

/// The nodes of a pool, its map, and the moves under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawClusterState")]
pub struct ClusterState {
    map: PartitionMap,
    nodes: BTreeMap<NodeId, ClusterNode>,
    moves: BTreeMap<PartitionId, NodeId>,
    /// The id that was given last. No id is given twice.
    issued: u32,
}

/// A node as the managers know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNode {
    /// Its address.
    pub address: Arc<str>,
    /// Its memory for the pool, bytes.
    pub capacity: u64,
    /// The phase of its life.
    pub phase: NodePhase,
    /// The number by which it asked to join: who asks twice joins once.
    token: u64,
}

/// The phase of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodePhase {
    /// It has an id, and takes no partitions yet: it may still fail to start.
    Joining,
    /// It serves partitions, and takes more.
    Serving,
    /// Its partitions move to others.
    Draining,
    /// It is no part of the pool any more; its id stays taken.
    Left,
}

/// An entry of the managers' log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterEntry {
    /// A node joins. -> `Joined`
    Join {
        /// A number that the node has drawn.
        token: u64,
        /// Its address.
        address: Arc<str>,
        /// Its memory for the pool, bytes.
        capacity: u64,
    },
    /// The partitions of a node are to move to others.
    Drain(NodeId),
    /// A node that has joined takes partitions from now on; one that is being drained stays.
    Admit(NodeId),
    /// The source of a move begins to copy.
    Begin(PartitionMove),
    /// The target of a move has everything: it serves from now on.
    Commit(PartitionMove),
    /// A move has failed, or is not wanted any more: the source serves on.
    Abandon(PartitionMove),
    /// A node is no part of the pool any more.
    Leave {
        /// The node.
        node: NodeId,
        /// True if it is lost: what it served is unavailable.
        lost: bool,
    },
}

/// The answer to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterAnswer {
    /// The id of the node that has joined.
    Joined(NodeId),
    /// It is done, now or before.
    Done,
}

/// The reason for which an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ClusterRefusal {
    /// The pool has no such node now.
    #[error("the pool has no node {0}")]
    NoSuchNode(NodeId),
    /// All ids have been given.
    #[error("the pool has had {NODE_ID_MAX} nodes, as many as one pool can have")]
    NoMoreIds,
    /// The node still serves.
    #[error("node {0} still serves partitions: drain it before")]
    StillServes(NodeId),
    /// No other node would be left to take the partitions.
    #[error("node {0} is the last one that takes partitions")]
    LastNode(NodeId),
    /// The partition is not at the source, or the target takes none.
    #[error("partition {0} cannot move like this: its entry or its nodes have changed meanwhile")]
    NotPossible(PartitionId),
    /// The partition moves elsewhere already.
    #[error("partition {0} is moving already")]
    Moving(PartitionId),
}

/// A decoded state whose invariants have not been checked yet.
#[derive(Deserialize)]
struct RawClusterState {
    map: PartitionMap,
    nodes: BTreeMap<NodeId, ClusterNode>,
    moves: BTreeMap<PartitionId, NodeId>,
    issued: u32,
}

/// The error of a decoded state that no pool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClusterState {
    /// A node serves, or has an address, that the state does not know.
    #[error("the map of the cluster state names node {0}, which the state does not know")]
    UnknownNode(NodeId),
    /// The id of a node has not been given yet.
    #[error("the cluster state has node {0}, whose id has not been given yet")]
    NotIssued(NodeId),
    /// More ids have been given than there are.
    #[error("the cluster state has given {0} ids, but a pool has at most {NODE_ID_MAX}")]
    TooManyIds(u32),
    /// A partition moves that does not exist, or from or to a node that is no part of the pool.
    #[error("the cluster state moves partition {0}, which cannot move like this")]
    ImpossibleMove(PartitionId),
}

impl TryFrom<RawClusterState> for ClusterState {
    type Error = InvalidClusterState;

    fn try_from(read: RawClusterState) -> Result<Self, InvalidClusterState> {
        let RawClusterState { map, nodes, moves, issued } = read;
        let named = map.nodes().into_iter().chain(map.addresses().map(|(node, _)| node));
        if let Some(unknown) = named.into_iter().find(|node| !nodes.contains_key(node)) {
            return Err(InvalidClusterState::UnknownNode(unknown));
        }
        if let Some(id) = nodes.keys().find(|id| id.0 > issued) {
            return Err(InvalidClusterState::NotIssued(*id));
        }
        if issued > NODE_ID_MAX {
            return Err(InvalidClusterState::TooManyIds(issued));
        }
        let state = Self { map, nodes, moves, issued };
        let is_possible = |(partition, to): (&PartitionId, &NodeId)| {
            let from = state.map.node(*partition);
            from.is_some_and(|from| from != *to && state.has(from)) && state.has(*to)
        };
        match state.moves.iter().find(|(partition, to)| !is_possible((partition, to))) {
            Some((partition, _)) => Err(InvalidClusterState::ImpossibleMove(*partition)),
            None => Ok(state),
        }
    }
}

impl ClusterState {
    /// The state of a pool that begins with these nodes, which the map names. Their tokens are
    /// their ids.
    pub fn new(map: PartitionMap, nodes: impl IntoIterator<Item = (NodeId, Arc<str>, u64)>) -> Self {
        let known = |(id, address, capacity): (NodeId, Arc<str>, u64)| {
            (id, ClusterNode { address, capacity, phase: NodePhase::Serving, token: id.0.into() })
        };
        let nodes: BTreeMap<NodeId, ClusterNode> = nodes.into_iter().map(known).collect();
        let addresses: Vec<_> = nodes.iter().map(|(id, node)| (*id, node.address.clone())).collect();
        let issued = nodes.last_key_value().map_or(0, |(id, _)| id.0);
        let state = Self { map: map.with_addresses(addresses), nodes, moves: BTreeMap::new(), issued };
        assert!(state.map.nodes().iter().all(|node| state.nodes.contains_key(node)), "the nodes of the map are known");
        state
    }

    /// The map. An entry with a later epoch is never replaced by an earlier one.
    pub fn map(&self) -> &PartitionMap {
        &self.map
    }

    /// The nodes that are or were part of the pool.
    pub fn nodes(&self) -> &BTreeMap<NodeId, ClusterNode> {
        &self.nodes
    }

    /// The moves under way.
    pub fn moves(&self) -> impl Iterator<Item = PartitionMove> {
        self.moves.iter().map(|(partition, to)| PartitionMove {
            partition: *partition,
            from: self.server(*partition),
            to: *to,
            epoch: self.epoch(*partition),
        })
    }

    /// The capacities by which partitions are shared out: 0 for nodes that are drained.
    pub fn capacities(&self) -> BTreeMap<NodeId, u64> {
        let present = self.nodes.iter().filter(|(_, node)| node.phase != NodePhase::Left);
        present.map(|(id, node)| (*id, if node.phase == NodePhase::Serving { node.capacity } else { 0 })).collect()
    }

    /// The partitions whose node has left: they are unavailable.
    pub fn unserved(&self) -> BTreeSet<PartitionId> {
        let lost = |partition: &PartitionId| !self.has(self.server(*partition));
        self.partitions().filter(lost).collect()
    }

    /// Executes an entry.
    ///
    /// # Errors
    /// If the entry is impossible; then it changes nothing.
    pub fn apply(&mut self, entry: &ClusterEntry) -> Result<ClusterAnswer, ClusterRefusal> {
        match entry {
            ClusterEntry::Join { token, address, capacity } => self.join(*token, address, *capacity),
            ClusterEntry::Drain(node) => self.drain(*node),
            ClusterEntry::Admit(node) => self.set_phase(*node, NodePhase::Serving),
            ClusterEntry::Begin(step) => self.begin(*step),
            ClusterEntry::Commit(step) => self.commit(*step),
            ClusterEntry::Abandon(step) => Ok(self.abandon(*step)),
            ClusterEntry::Leave { node, lost } => self.leave(*node, *lost),
        }
    }

    fn join(&mut self, token: u64, address: &Arc<str>, capacity: u64) -> Result<ClusterAnswer, ClusterRefusal> {
        if let Some((id, _)) = self.nodes.iter().find(|(_, node)| node.token == token && node.address == *address) {
            return Ok(ClusterAnswer::Joined(*id));
        }
        if self.issued == NODE_ID_MAX {
            return Err(ClusterRefusal::NoMoreIds);
        }
        self.issued += 1;
        let (id, phase) = (NodeId(self.issued), NodePhase::Joining);
        self.nodes.insert(id, ClusterNode { address: address.clone(), capacity, phase, token });
        self.map = self.map.clone().with_addresses([(id, address.clone())]);
        Ok(ClusterAnswer::Joined(id))
    }

    fn drain(&mut self, node: NodeId) -> Result<ClusterAnswer, ClusterRefusal> {
        let takes = |(id, other): (&NodeId, &ClusterNode)| *id != node && other.phase == NodePhase::Serving;
        if self.has(node) && !self.nodes.iter().any(takes) {
            return Err(ClusterRefusal::LastNode(node));
        }
        let done = self.set_phase(node, NodePhase::Draining)?;
        self.end_moves(|_, to| to == node);
        Ok(done)
    }

    fn set_phase(&mut self, node: NodeId, phase: NodePhase) -> Result<ClusterAnswer, ClusterRefusal> {
        match self.nodes.get_mut(&node) {
            Some(known) if known.phase != NodePhase::Left => {
                known.phase = phase;
                Ok(ClusterAnswer::Done)
            }
            _ => Err(ClusterRefusal::NoSuchNode(node)),
        }
    }

    fn begin(&mut self, step: PartitionMove) -> Result<ClusterAnswer, ClusterRefusal> {
        let PartitionMove { partition, from, to, epoch } = step;
        let is_current = self.map.entry(partition).is_some_and(|entry| (entry.server, entry.epoch) == (from, epoch));
        match self.moves.get(&partition) {
            Some(known) if *known == to && is_current => return Ok(ClusterAnswer::Done),
            Some(_) => return Err(ClusterRefusal::Moving(partition)),
            None => {}
        }
        let takes = self.nodes.get(&to).is_some_and(|node| node.phase == NodePhase::Serving);
        if from == to || !takes || !self.has(from) || !is_current {
            return Err(ClusterRefusal::NotPossible(partition));
        }
        self.moves.insert(partition, to);
        Ok(ClusterAnswer::Done)
    }

    fn commit(&mut self, step: PartitionMove) -> Result<ClusterAnswer, ClusterRefusal> {
        let PartitionMove { partition, from, to, epoch } = step;
        let entry = self.map.entry(partition).ok_or(ClusterRefusal::NotPossible(partition))?.clone();
        if entry.server == to && entry.epoch == epoch.next() {
            return Ok(ClusterAnswer::Done);
        }
        if (entry.server, entry.epoch) != (from, epoch) || self.moves.get(&partition) != Some(&to) {
            return Err(ClusterRefusal::NotPossible(partition));
        }
        self.moves.remove(&partition);
        self.map.learn(partition, entry.moved(to));
        Ok(ClusterAnswer::Done)
    }

    fn abandon(&mut self, PartitionMove { partition, to, epoch, .. }: PartitionMove) -> ClusterAnswer {
        if self.map.entry(partition).is_some_and(|entry| entry.epoch == epoch) {
            self.end_moves(|moving, target| (moving, target) == (partition, to));
        }
        ClusterAnswer::Done
    }

    /// Ends moves without success: in the next epoch of their partitions the source serves, so that
    /// source and target learn of the end, whenever they hear of it.
    fn end_moves(&mut self, ends: impl Fn(PartitionId, NodeId) -> bool) {
        for (partition, _) in self.moves.extract_if(.., |partition, to| ends(*partition, *to)) {
            if let Some(entry) = self.map.entry(partition).cloned() {
                self.map.learn(partition, entry.moved(entry.server));
            }
        }
    }

    fn leave(&mut self, node: NodeId, lost: bool) -> Result<ClusterAnswer, ClusterRefusal> {
        if self.nodes.get(&node).is_some_and(|known| known.phase == NodePhase::Left) {
            return Ok(ClusterAnswer::Done);
        }
        // One that is to stay has been asked to leave before.
        let stays = self.nodes.get(&node).is_some_and(|known| known.phase == NodePhase::Serving);
        if !lost && (stays || self.map.partition_counts().contains_key(&node)) {
            return Err(ClusterRefusal::StillServes(node));
        }
        self.set_phase(node, NodePhase::Left)?;
        // A move to it ends. One from it ends too, unless the target was ready, which is a commit.
        let served: BTreeSet<PartitionId> = self.partitions().filter(|id| self.server(*id) == node).collect();
        self.end_moves(|partition, to| to == node || served.contains(&partition));
        self.map.depart(node);
        Ok(ClusterAnswer::Done)
    }

    fn epoch(&self, partition: PartitionId) -> Epoch {
        self.map.entry(partition).map_or(Epoch::FIRST, |entry| entry.epoch)
    }

    fn has(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|known| known.phase != NodePhase::Left)
    }

    fn server(&self, partition: PartitionId) -> NodeId {
        self.map.node(partition).expect("it is a partition of the pool")
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        (0..=u16::MAX).map(PartitionId).take(self.map.partitions() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PartitionLoad, plan_moves};
    use test_support::Random;

    const PARTITIONS: u16 = 32;

    fn pool(nodes: u32) -> ClusterState {
        let shares: Vec<(NodeId, u64)> = (1..=nodes).map(|id| (NodeId(id), 1)).collect();
        let map = PartitionMap::proportional(&shares, PARTITIONS.into()).unwrap();
        ClusterState::new(map, (1..=nodes).map(|id| (NodeId(id), Arc::from(format!("n{id}")), 100)))
    }

    fn join(token: u64) -> ClusterEntry {
        ClusterEntry::Join { token, address: format!("t{token}").into(), capacity: 100 }
    }

    fn step(partition: u16, from: u32, to: u32) -> PartitionMove {
        PartitionMove { partition: PartitionId(partition), from: NodeId(from), to: NodeId(to), epoch: Epoch::FIRST }
    }

    /// Carries out the moves of a plan until nothing is left to do.
    fn settle(state: &mut ClusterState) {
        for planned in plan_moves(state.map(), &state.capacities(), |_| PartitionLoad::default()) {
            state.apply(&ClusterEntry::Begin(planned)).unwrap();
            state.apply(&ClusterEntry::Commit(planned)).unwrap();
        }
    }

    #[test]
    fn a_pool_grows_and_a_drained_node_leaves_with_nothing() {
        let mut state = pool(2);
        assert_eq!(state.apply(&join(77)), Ok(ClusterAnswer::Joined(NodeId(3))));
        assert_eq!(state.apply(&join(77)), Ok(ClusterAnswer::Joined(NodeId(3))), "who asks twice joins once");
        assert_eq!(plan_moves(state.map(), &state.capacities(), |_| PartitionLoad::default()), [], "it may still fail");
        state.apply(&ClusterEntry::Admit(NodeId(3))).unwrap();
        settle(&mut state);
        let counts: Vec<u32> = state.map().partition_counts().into_values().collect();
        assert_eq!(counts.iter().sum::<u32>(), PARTITIONS.into());
        assert!(counts.iter().all(|count| (10..=11).contains(count)), "{counts:?}");
        assert_eq!(state.map().addresses().last(), Some((NodeId(3), "t77")));
        let leave = ClusterEntry::Leave { node: NodeId(1), lost: false };
        assert_eq!(state.apply(&leave), Err(ClusterRefusal::StillServes(NodeId(1))));
        state.apply(&ClusterEntry::Drain(NodeId(1))).unwrap();
        settle(&mut state);
        state.apply(&leave).unwrap();
        assert_eq!(state.map().nodes(), [NodeId(2), NodeId(3)]);
        assert_eq!(state.apply(&join(78)), Ok(ClusterAnswer::Joined(NodeId(4))), "no id is given twice");
        assert_eq!(state.apply(&ClusterEntry::Admit(NodeId(1))), Err(ClusterRefusal::NoSuchNode(NodeId(1))));
    }

    #[test]
    fn a_move_ends_with_the_partitions_next_epoch_also_one_that_is_given_up() {
        let mut state = pool(2);
        let (at, one) = (PartitionId(1), step(1, state.server(PartitionId(1)).0, 3 - state.server(PartitionId(1)).0));
        let elsewhere = PartitionMove { from: one.to, to: one.from, ..one };
        assert_eq!(state.apply(&ClusterEntry::Commit(one)), Err(ClusterRefusal::NotPossible(at)), "it has not begun");
        assert_eq!(state.apply(&ClusterEntry::Begin(elsewhere)), Err(ClusterRefusal::NotPossible(at)));
        for entry in
            [ClusterEntry::Begin(one), ClusterEntry::Begin(one), ClusterEntry::Abandon(one), ClusterEntry::Abandon(one)]
        {
            state.apply(&entry).unwrap();
        }
        assert_eq!((state.server(at), state.moves().count(), state.epoch(at)), (one.from, 0, Epoch(2)));
        assert_eq!(state.apply(&ClusterEntry::Begin(one)), Err(ClusterRefusal::NotPossible(at)), "it has ended");
        let one = PartitionMove { epoch: Epoch(2), ..one };
        for entry in [ClusterEntry::Begin(one), ClusterEntry::Commit(one), ClusterEntry::Commit(one)] {
            state.apply(&entry).unwrap();
        }
        let entry = state.map().entry(at).unwrap();
        assert_eq!((entry.server, entry.epoch), (one.to, Epoch(3)));
        assert_eq!(state.apply(&ClusterEntry::Begin(one)), Err(ClusterRefusal::NotPossible(at)), "it is there");
    }

    #[test]
    fn a_lost_node_ends_its_moves_and_its_partitions_are_unserved() {
        let mut state = pool(3);
        let held: Vec<PartitionId> = state.partitions().filter(|at| state.server(*at) == NodeId(1)).collect();
        let other = state.partitions().find(|at| state.server(*at) == NodeId(2)).unwrap();
        state.apply(&ClusterEntry::Begin(step(held[0].0, 1, 2))).unwrap();
        state.apply(&ClusterEntry::Begin(step(other.0, 2, 1))).unwrap();
        assert_eq!(state.apply(&ClusterEntry::Begin(step(other.0, 2, 3))), Err(ClusterRefusal::Moving(other)));
        state.apply(&ClusterEntry::Leave { node: NodeId(1), lost: true }).unwrap();
        assert_eq!(state.moves().count(), 0);
        assert_eq!(state.unserved(), held.into_iter().collect());
        assert_eq!(state.apply(&ClusterEntry::Commit(step(other.0, 2, 1))), Err(ClusterRefusal::NotPossible(other)));
    }

    #[test]
    fn the_last_node_that_takes_partitions_is_not_drained() {
        let mut state = pool(2);
        state.apply(&ClusterEntry::Drain(NodeId(2))).unwrap();
        assert_eq!(state.apply(&ClusterEntry::Drain(NodeId(1))), Err(ClusterRefusal::LastNode(NodeId(1))));
        state.apply(&ClusterEntry::Admit(NodeId(2))).unwrap();
        state.apply(&ClusterEntry::Drain(NodeId(1))).unwrap();
    }

    /// The parts of a state, as they are encoded.
    fn encoded(state: &ClusterState, change: impl FnOnce(&mut ClusterState)) -> Vec<u8> {
        let mut changed = state.clone();
        change(&mut changed);
        postcard::to_allocvec(&changed).unwrap()
    }

    #[test]
    fn a_state_survives_encoding_and_one_that_no_pool_can_have_is_refused() {
        let mut state = pool(3);
        let at = state.partitions().find(|at| state.server(*at) == NodeId(2)).unwrap();
        state.apply(&ClusterEntry::Begin(step(at.0, 2, 1))).unwrap();
        state.apply(&ClusterEntry::Drain(NodeId(3))).unwrap();
        let decode = |bytes: Vec<u8>| postcard::from_bytes::<ClusterState>(&bytes);
        assert_eq!(decode(encoded(&state, |_| ())), Ok(state.clone()));
        let impossible: [fn(&mut ClusterState); 7] = [
            |state| state.issued = NODE_ID_MAX + 1,
            |state| drop(state.nodes.remove(&NodeId(2))),
            |state| state.issued = 2,
            |state| assert!(state.moves.insert(PartitionId(PARTITIONS), NodeId(1)).is_none()),
            |state| assert!(state.moves.insert(PartitionId(0), state.server(PartitionId(0))).is_none()),
            |state| assert!(state.moves.insert(PartitionId(0), NodeId(9)).is_none()),
            |state| state.nodes.get_mut(&NodeId(1)).unwrap().phase = NodePhase::Left,
        ];
        for (at, change) in impossible.into_iter().enumerate() {
            assert!(decode(encoded(&state, change)).is_err(), "{at}");
        }
    }

    fn random_entry(random: &mut Random, state: &ClusterState) -> ClusterEntry {
        let node = NodeId(random.below(state.issued + 2));
        let at = PartitionId(random.below(PARTITIONS));
        let from = if random.one_in(4) { node } else { state.server(at) };
        let epoch = if random.one_in(8) { Epoch::FIRST } else { state.epoch(at) };
        let moves: Vec<PartitionMove> = state.moves().collect();
        let known =
            if moves.is_empty() { PartitionMove { partition: at, from, to: node, epoch } } else { random.pick(&moves) };
        match random.below(9) {
            0 => join(random.below(20_u64) + 100),
            1 => ClusterEntry::Drain(node),
            2 => ClusterEntry::Admit(node),
            3 | 4 => ClusterEntry::Begin(PartitionMove { partition: at, from, to: node, epoch }),
            5 | 6 => ClusterEntry::Commit(known),
            7 => ClusterEntry::Abandon(known),
            _ => ClusterEntry::Leave { node, lost: random.one_in(8) },
        }
    }

    #[test]
    fn whatever_the_log_says_ids_and_epochs_only_grow_and_what_is_done_twice_is_done_once() {
        let (mut done, mut refused) = (0, 0);
        for seed in 0..100 {
            let (mut random, mut state) = (Random::new(seed), pool(1 + u32::try_from(seed % 4).unwrap()));
            for _ in 0..200 {
                let (entry, before) = (random_entry(&mut random, &state), state.clone());
                let answer = state.apply(&entry);
                if answer.is_ok() {
                    done += 1;
                } else {
                    refused += 1;
                    assert_eq!(state, before, "what is refused changes nothing: {entry:?}");
                }
                let once = state.clone();
                assert!(answer.is_err() || state.apply(&entry) == answer, "{entry:?}");
                assert_eq!(state, once, "{entry:?}");
                check(&before, &state);
            }
        }
        assert!(done > 5000 && refused > 1000, "{done} {refused}");
    }

    fn check(before: &ClusterState, after: &ClusterState) {
        assert!(after.issued >= before.issued);
        for (id, node) in &before.nodes {
            let now = &after.nodes[id];
            assert!(now.address == node.address && (node.phase != NodePhase::Left || now.phase == NodePhase::Left));
        }
        for at in before.partitions() {
            let (old, new) = (before.map().entry(at).unwrap(), after.map().entry(at).unwrap());
            let moved = old.server != new.server;
            let ended = before.moves.contains_key(&at) && !after.moves.contains_key(&at);
            assert_eq!(new.epoch.0, old.epoch.0 + u64::from(ended), "an epoch for each end of a move");
            assert!(!moved || before.moves.get(&at) == Some(&new.server), "only a move that has begun");
        }
        for step in after.moves() {
            assert!(after.has(step.from) && after.has(step.to) && step.from != step.to, "{step:?}");
        }
    }
}
