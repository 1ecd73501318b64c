//! Random worlds: members are cut off, lost and replaced while nodes join, over a network that is
//! late, loses and doubles messages.
//!
//! Each entry is a node that joins, so the number of nodes of a state is that of its entries. Two
//! promises are checked all the time:
//! - States of as many entries are equal, whoever has them.
//! - Who answers a proposal has all entries that were answered before.
//!
//! The seed chooses the faults. openraft chooses the times of elections, so a world is not quite
//! the same twice.

use crate::{
    ClusterLog,
    network_double::{Faults, NetworkDouble, ids, join},
};
use cluster::{ClusterAnswer, ClusterState};
use parking_lot::Mutex;
use placement::NodeId;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use test_support::Random;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

const NODES: [u32; 5] = [1, 2, 3, 4, 5];
const SEEDS: u64 = 60;
const STEPS: usize = 40;

/// What is known of a world.
#[derive(Default)]
struct WorldChecker {
    /// The states that were seen, by the number of their nodes.
    seen: Mutex<BTreeMap<usize, Arc<ClusterState>>>,
    /// The nodes that have joined, by the tokens of answered proposals.
    answered: Mutex<BTreeMap<u64, NodeId>>,
    /// Numbers of entries after which two members had different states.
    differing: Mutex<Vec<usize>>,
    /// Changes of members that were made.
    changes: Mutex<usize>,
}

impl WorldChecker {
    fn see(&self, state: &Arc<ClusterState>) {
        let mut seen = self.seen.lock();
        let count = state.nodes().len();
        if seen.entry(count).or_insert_with(|| state.clone()) != state {
            self.differing.lock().push(count);
        }
    }

    /// Looks at all states that a member has.
    async fn watch(self: Arc<Self>, log: ClusterLog) {
        let mut states = log.state();
        while states.changed().await.is_ok() {
            if let Some(state) = states.borrow_and_update().as_ref() {
                self.see(state);
            }
        }
    }

    /// Proposes an entry to a node, whether it leads or not.
    async fn propose(self: Arc<Self>, log: ClusterLog, token: u64) {
        let before = self.answered.lock().clone();
        if let Ok(answer) = log.propose(join(token)).await {
            let Ok(ClusterAnswer::Joined(node)) = answer else { panic!("{answer:?}") };
            self.answered.lock().insert(token, node);
            let state = log.state().borrow().clone().expect("it has executed the entry");
            check_answered(&state, &before);
        }
    }

    async fn change(self: Arc<Self>, log: ClusterLog, members: Vec<u32>) {
        if log.set_members(ids(&members)).await.is_ok() {
            *self.changes.lock() += 1;
        }
    }
}

/// Checks that a state has all nodes whose joining was answered.
fn check_answered(state: &ClusterState, answered: &BTreeMap<u64, NodeId>) {
    for (token, node) in answered {
        let address = state.nodes().get(node).map(|node| &*node.address);
        assert_eq!(address, Some(&*format!("t{token}")), "an answered entry is missing");
    }
}

/// Some of the nodes, or none.
fn some_nodes(random: &mut Random, most: usize) -> Vec<u32> {
    let count = random.below(most + 1);
    (0..count).map(|_| random.pick(&NODES)).collect()
}

async fn live(seed: u64) -> Arc<WorldChecker> {
    let (mut random, network) = (Random::new(seed), NetworkDouble::with_members(&NODES[..3]).await);
    let (checker, mut tasks) = (Arc::<WorldChecker>::default(), JoinSet::new());
    for node in NODES {
        if node > 3 {
            network.follow(node).await;
        }
        tokio::spawn(checker.clone().watch(network.log(node)));
    }
    let (lost_one_in, doubled_one_in) = (random.pick(&[0, 8, 30]), random.pick(&[0, 4, 20]));
    network.set_faults(Faults { lost_one_in, doubled_one_in, delay_ms_max: random.pick(&[0, 10, 40]) });
    for step in 0..STEPS {
        match random.below(6) {
            0 => network.cut(&some_nodes(&mut random, 3)),
            1 => network.cut(&[]),
            2 => {
                let members = [vec![random.pick(&NODES)], some_nodes(&mut random, 2)].concat();
                for node in NODES {
                    tasks.spawn(checker.clone().change(network.log(node), members.clone()));
                }
            }
            _ => {}
        }
        for node in NODES {
            let token = seed * 10_000 + step as u64 * 10 + u64::from(node);
            tasks.spawn(checker.clone().propose(network.log(node), token));
        }
        sleep(Duration::from_millis(random.below(600))).await;
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    end(&network, &checker).await;
    checker
}

/// Heals the network: a leader appears, and all its members have everything that was answered.
async fn end(network: &Arc<NetworkDouble>, checker: &Arc<WorldChecker>) {
    network.cut(&[]);
    network.set_faults(Faults::default());
    let settled = async {
        loop {
            // Late messages may still depose a leader.
            let leader = leader(network).await;
            let members = leader.members();
            let is_done = leader.set_members(members.clone()).await.is_ok();
            if is_done && leader.propose(join(1)).await.is_ok() && leader.members() == members {
                return leader;
            }
        }
    };
    let leader = timeout(Duration::from_mins(1), settled).await.expect("the managers work again");
    let last = leader.state().borrow().clone().unwrap();
    check_answered(&last, &checker.answered.lock());
    let members: Vec<u32> = leader.members().iter().map(|node| node.0).collect();
    assert_eq!(network.agreed(&members, last.nodes().len()).await, last);
    assert_eq!(*checker.differing.lock(), [0; 0], "members differ after these entries");
}

/// Waits until a node leads.
async fn leader(network: &Arc<NetworkDouble>) -> ClusterLog {
    let elected = async {
        loop {
            let leads = NODES.map(|node| network.log(node)).into_iter().find(ClusterLog::is_leader);
            match leads {
                Some(log) => return log,
                None => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(Duration::from_secs(20), elected).await.expect("a leader appears")
}

#[test]
fn whatever_fails_answered_entries_are_never_lost_and_members_never_differ() {
    let (mut answered, mut changes) = (0, 0);
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let checker = runtime.block_on(live(seed));
        answered += checker.answered.lock().len();
        changes += *checker.changes.lock();
    }
    assert!(answered > 200 && changes > 20, "{answered} {changes}");
}
