//! The nodes that are to be the managers: three, or one in a pool of fewer nodes.
//!
//! A change replaces one member at a time, so that of the members before and after it the same
//! majority is left, even if the new one fails at once. Whether a node is silent is for others to
//! say; a silent member stays as long as nobody can take its place.

use crate::{ClusterState, NodePhase};
use placement::NodeId;
use std::collections::BTreeSet;

/// Members of a pool of at least as many nodes: three survive the loss of one.
const MEMBERS: usize = 3;

/// Returns the nodes that are to be members, next. `current` are the members now, `silent` the
/// nodes that do not answer.
///
/// Members that serve and answer stay. The others are replaced by the lowest ids that serve and
/// answer, one with each call, those first that answer no more. Fewer than three serving nodes have
/// one member.
pub fn wanted_members(state: &ClusterState, current: &BTreeSet<NodeId>, silent: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    let is_serving = |node: &NodeId| state.nodes().get(node).is_some_and(|known| known.phase == NodePhase::Serving);
    let has_left = |node: &NodeId| state.nodes().get(node).is_none_or(|known| known.phase == NodePhase::Left);
    let (serving, idle): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
        state.nodes().keys().filter(|node| is_serving(node)).partition(|node| !silent.contains(node));
    let (stay, mut go): (Vec<NodeId>, Vec<NodeId>) = current.iter().partition(|node| serving.contains(node));
    let mut fresh = serving.iter().filter(|node| !current.contains(node));
    // A pool that shrinks to one member keeps one that it has; if all go, one is replaced before.
    let is_small = serving.len() + idle.len() < MEMBERS && (!stay.is_empty() || current.len() <= 1);
    let members = if is_small { 1 } else { MEMBERS };
    let mut wanted: BTreeSet<NodeId> = stay.into_iter().take(members).collect();
    let added = (members - wanted.len()).min(members.saturating_sub(current.len()) + usize::from(!go.is_empty()));
    wanted.extend(fresh.by_ref().take(added));
    // Of those that go, the ones that answer stay longest: a majority needs them.
    go.sort_by_key(|node| (has_left(node), silent.contains(node), !is_serving(node), *node));
    let vacant = members - wanted.len();
    wanted.extend(go.into_iter().take(vacant));
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterEntry;
    use placement::PartitionMap;
    use std::sync::Arc;
    use test_support::Random;

    fn pool(nodes: u32) -> ClusterState {
        let shares: Vec<(NodeId, u64)> = (1..=nodes).map(|id| (NodeId(id), 1)).collect();
        let map = PartitionMap::proportional(&shares, 16).unwrap();
        ClusterState::new(map, (1..=nodes).map(|id| (NodeId(id), Arc::from(""), 100)))
    }

    fn ids(ids: &[u32]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn three_nodes_have_three_members_and_fewer_have_one() {
        assert_eq!(wanted_members(&pool(1), &ids(&[1]), &ids(&[])), ids(&[1]));
        assert_eq!(wanted_members(&pool(2), &ids(&[2]), &ids(&[])), ids(&[2]));
        assert_eq!(wanted_members(&pool(3), &ids(&[3]), &ids(&[])), ids(&[1, 2, 3]));
        assert_eq!(wanted_members(&pool(9), &ids(&[4]), &ids(&[1])), ids(&[2, 3, 4]));
        assert_eq!(wanted_members(&pool(9), &ids(&[4, 6, 8]), &ids(&[1])), ids(&[4, 6, 8]), "who works stays");
    }

    #[test]
    fn a_member_is_replaced_if_somebody_can_take_its_place() {
        let mut state = pool(5);
        assert_eq!(wanted_members(&state, &ids(&[1, 2, 3]), &ids(&[2])), ids(&[1, 3, 4]));
        assert_eq!(wanted_members(&state, &ids(&[1, 2, 3]), &ids(&[2, 4, 5])), ids(&[1, 2, 3]), "nobody can");
        state.apply(&ClusterEntry::Drain(NodeId(1))).unwrap();
        assert_eq!(wanted_members(&state, &ids(&[1, 2, 3]), &ids(&[])), ids(&[2, 3, 4]));
        assert_eq!(wanted_members(&state, &ids(&[1, 2, 3]), &ids(&[3])), ids(&[1, 2, 4]), "the silent one before");
        state.apply(&ClusterEntry::Leave { node: NodeId(2), lost: true }).unwrap();
        assert_eq!(wanted_members(&state, &ids(&[1, 2, 3]), &ids(&[2])), ids(&[1, 3, 4]));
        assert_eq!(wanted_members(&state, &ids(&[1, 3, 4]), &ids(&[2])), ids(&[3, 4, 5]));
    }

    #[test]
    fn a_pool_that_shrinks_below_three_keeps_one_member_that_it_has() {
        let mut state = pool(3);
        state.apply(&ClusterEntry::Drain(NodeId(1))).unwrap();
        assert_eq!(wanted_members(&state, &ids(&[1, 2, 3]), &ids(&[])), ids(&[2]));
        assert_eq!(wanted_members(&state, &ids(&[1]), &ids(&[])), ids(&[2]), "a drained one hands over");
        assert_eq!(wanted_members(&state, &ids(&[1]), &ids(&[2, 3])), ids(&[1]), "to somebody who answers");
    }

    #[test]
    fn whatever_happens_members_are_replaced_one_at_a_time_and_in_the_end_all_serve() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut state = pool(1 + random.below(8_u32));
            let mut current = ids(&[1]);
            let mut silent = BTreeSet::new();
            for _ in 0..12 {
                let node = NodeId(1 + random.below(9_u32));
                let _ = state.apply(&match random.below(4) {
                    0 => ClusterEntry::Join { token: random.next_u64(), address: "".into(), capacity: 1 },
                    1 => ClusterEntry::Drain(node),
                    2 => ClusterEntry::Admit(node),
                    _ => ClusterEntry::Leave { node, lost: random.one_in(2) },
                });
                silent = state.nodes().keys().copied().filter(|_| random.one_in(4)).collect();
                current = check(&state, &current, &silent, seed);
            }
            for _ in 0..6 {
                current = check(&state, &current, &silent, seed);
            }
            assert_eq!(check(&state, &current, &silent, seed), current, "seed {seed}: it settles");
            let serves = |node: &NodeId| state.nodes()[node].phase == NodePhase::Serving && !silent.contains(node);
            let able = state.nodes().keys().filter(|node| serves(node)).count();
            assert!(able < 3 || current.iter().all(serves), "seed {seed}: {current:?}");
        }
    }

    /// Checks one decision, and returns it.
    fn check(
        state: &ClusterState,
        current: &BTreeSet<NodeId>,
        silent: &BTreeSet<NodeId>,
        seed: u64,
    ) -> BTreeSet<NodeId> {
        let wanted = wanted_members(state, current, silent);
        let added = wanted.difference(current).count();
        let growth = wanted.len().saturating_sub(current.len());
        assert!(added <= growth + 1, "seed {seed}: {current:?} {wanted:?}");
        assert!(current.len() == 1 || !wanted.is_disjoint(current), "seed {seed}: {current:?} {wanted:?}");
        for node in wanted.difference(current) {
            assert!(state.nodes()[node].phase == NodePhase::Serving && !silent.contains(node), "seed {seed}: {node}");
        }
        let serving = state.nodes().values().filter(|node| node.phase == NodePhase::Serving).count();
        assert!(wanted.len() <= if serving >= 3 || current.len() > 1 { 3 } else { 1 }, "seed {seed}: {wanted:?}");
        assert!(!wanted.is_empty(), "seed {seed}: there is a member");
        wanted
    }
}
