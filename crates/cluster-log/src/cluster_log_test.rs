//! Tests of members over a network that cuts them off. Each stops the clock, so that they take no
//! time; the last one has threads and the real clock.

use crate::{
    ClusterLog, LogError, ProposeError,
    network_double::{Faults, NetworkDouble, eventually, ids, join, joined},
    raft_types::{KEPT_ENTRIES, PROPOSE_TIME, SNAPSHOT_ENTRIES},
};
use bytes::Bytes;
use cluster::{ClusterAnswer, ClusterEntry, PartitionMove};
use placement::{Epoch, NodeId, PartitionId};
use std::time::Duration;
use test_support::Random;
use tokio::time::Instant;

/// Longest time without a leader after one is lost.
const ELECTION_MAX: Duration = Duration::from_secs(2);

fn others(nodes: &[u32], without: u32) -> Vec<u32> {
    nodes.iter().copied().filter(|node| *node != without).collect()
}

#[tokio::test(start_paused = true)]
async fn one_member_agrees_with_itself_and_sends_nothing() {
    let network = NetworkDouble::new(1);
    network.found(1).await;
    let log = network.log(1);
    assert!(log.is_leader() && log.members() == ids(&[1]) && log.state().borrow().is_some());
    for token in 100..150 {
        joined(&log, token).await;
    }
    network.agreed(&[1], 51).await;
    assert_eq!(network.messages(), 0);
}

#[tokio::test(start_paused = true)]
async fn three_members_execute_the_same_entries_in_one_order() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    network.set_faults(Faults { delay_ms_max: 20, ..Faults::default() });
    let leader = network.log(1);
    let proposals = (100..140).map(|token| {
        let leader = leader.clone();
        tokio::spawn(async move { (token, joined(&leader, token).await) })
    });
    let mut answers = Vec::new();
    for proposal in proposals.collect::<Vec<_>>() {
        answers.push(proposal.await.unwrap());
    }
    let state = network.agreed(&[1, 2, 3], 41).await;
    for (token, node) in answers {
        assert_eq!(&*state.nodes()[&node].address, format!("t{token}"), "the answer is what was executed");
    }
    assert_eq!(network.log(2).members(), ids(&[1, 2, 3]));
    assert_eq!(network.log(3).propose(join(7)).await, Err(ProposeError::NotLeader(Some(NodeId(1)))));
    let leave = ClusterEntry::Leave { node: NodeId(1), lost: false };
    assert!(leader.propose(leave).await.unwrap().is_err(), "a refusal is an answer, too");
}

#[tokio::test(start_paused = true)]
async fn of_three_members_any_one_can_be_lost_and_a_lost_leader_has_a_successor_soon() {
    for lost in 1..=3 {
        for _ in 0..8 {
            let network = NetworkDouble::with_members(&[1, 2, 3]).await;
            joined(&network.log(1), 100).await;
            network.agreed(&[1, 2, 3], 2).await;
            let begin = Instant::now();
            network.lose(lost).await;
            let left = others(&[1, 2, 3], lost);
            network.leader_of(&left).await;
            assert!(begin.elapsed() < ELECTION_MAX, "{:?}", begin.elapsed());
            assert_eq!(network.join(&left, 101).await, NodeId(3));
            let state = network.agreed(&left, 3).await;
            assert_eq!(&*state.nodes()[&NodeId(2)].address, "t100", "what was answered is there");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_proposed_and_all_goes_on_when_it_is_back() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    joined(&network.log(1), 100).await;
    network.agreed(&[1, 2, 3], 2).await;
    network.cut(&[1, 2, 3]);
    for round in 0..3 {
        for node in 1..=3 {
            let begin = Instant::now();
            let refusal = network.log(node).propose(join(u64::from(200 + node))).await;
            let expected = [Err(ProposeError::NoMajority), Err(ProposeError::NotLeader(Some(NodeId(1))))];
            // In the first round the others still believe in their leader.
            assert!(refusal == expected[0] || round == 0 && refusal == expected[1], "{node}: {refusal:?}");
            assert!(begin.elapsed() <= PROPOSE_TIME + Duration::from_millis(10), "{:?}", begin.elapsed());
            assert_eq!(network.log(node).state().borrow().as_ref().unwrap().nodes().len(), 2, "it stays readable");
        }
    }
    assert!((1..=3).all(|node| network.log(node).leader().is_none() && !network.log(node).is_leader()));
    let begin = Instant::now();
    assert_eq!(network.log(1).set_members(ids(&[1])).await, Err(ProposeError::NoMajority));
    assert!(begin.elapsed() < Duration::from_secs(7));
    network.cut(&[]);
    network.join(&[1, 2, 3], 300).await;
    let last = network.log(1).state().borrow().as_ref().unwrap().nodes().len();
    let state = network.agreed(&[1, 2, 3], last).await;
    assert!(state.nodes().values().any(|node| &*node.address == "t300"));
    assert!(!state.nodes().values().any(|node| matches!(&*node.address, "t202" | "t203")), "they had no leader");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_appends_nothing_that_the_others_do_not_have() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    network.cut(&[1]);
    let late = {
        let log = network.log(1);
        tokio::spawn(async move { log.propose(join(666)).await })
    };
    assert_eq!(network.join(&[2, 3], 100).await, NodeId(2));
    assert_eq!(late.await.unwrap(), Err(ProposeError::NoMajority));
    eventually("it sees that it leads nobody", &network.log(1), |log| !log.is_leader()).await;
    network.cut(&[]);
    network.leader_of(&[1, 2, 3]).await;
    let state = network.agreed(&[1, 2, 3], 2).await;
    assert_eq!(&*state.nodes()[&NodeId(2)].address, "t100");
}

#[tokio::test(start_paused = true)]
async fn a_drained_follower_is_replaced_and_knows_it() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    joined(&network.log(1), 100).await;
    network.follow(4).await;
    assert!(network.log(4).state().borrow().is_none() && network.log(4).members().is_empty());
    assert_eq!(network.log(4).propose(join(7)).await, Err(ProposeError::NotLeader(None)));
    network.log(1).set_members(ids(&[1, 2, 4])).await.unwrap();
    network.agreed(&[1, 2, 4], 2).await;
    eventually("it knows", &network.log(3), |log| log.members() == ids(&[1, 2, 4])).await;
    assert_eq!(network.log(3).propose(join(7)).await.unwrap_err(), ProposeError::NotLeader(Some(NodeId(1))));
    // The two members that are left by the loss of the leader are a majority with the new one.
    network.lose(1).await;
    network.join(&[2, 4], 101).await;
    let state = network.agreed(&[2, 4], 3).await;
    assert_ne!(**network.log(3).state().borrow().as_ref().unwrap(), *state, "who is no member learns nothing");
    // It may become a member again.
    let leader = network.leader_of(&[2, 4]).await;
    network.log(leader).set_members(ids(&[2, 3, 4])).await.unwrap();
    network.agreed(&[2, 3, 4], 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_leader_hands_over_and_another_one_removes_it() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    joined(&network.log(1), 100).await;
    network.follow(4).await;
    let begin = Instant::now();
    network.log(1).set_members(ids(&[2, 3, 4])).await.unwrap();
    let next = network.leader_of(&[2, 3, 4]).await;
    assert!(next != 1 && begin.elapsed() < ELECTION_MAX, "{:?}", begin.elapsed());
    eventually("it leads no more", &network.log(1), |log| !log.is_leader()).await;
    network.lose(1).await;
    network.join(&[2, 3, 4], 101).await;
    network.agreed(&[2, 3, 4], 3).await;
    // So does one that is alone.
    let leader = network.leader_of(&[2, 3, 4]).await;
    network.log(leader).set_members(ids(&[leader])).await.unwrap();
    network.follow(9).await;
    network.log(leader).set_members(ids(&[9])).await.unwrap();
    network.lose(leader).await;
    network.join(&[9], 102).await;
    assert_eq!(network.log(9).members(), ids(&[9]));
}

#[tokio::test(start_paused = true)]
async fn a_drained_leader_hands_over_to_a_member_that_lives() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    network.lose(2).await;
    joined(&network.log(1), 100).await;
    network.follow(4).await;
    network.log(1).set_members(ids(&[2, 3, 4])).await.unwrap();
    assert_eq!(network.leader_of(&[3, 4]).await, 3);
    network.lose(1).await;
    network.join(&[3, 4], 101).await;
    network.agreed(&[3, 4], 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_is_replaced_and_one_that_does_not_answer_is_not_taken() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    joined(&network.log(1), 100).await;
    network.lose(2).await;
    assert_eq!(network.log(1).set_members(ids(&[1, 3, 9])).await, Err(ProposeError::NoAnswer(NodeId(9))));
    assert_eq!(network.log(1).members(), ids(&[1, 2, 3]), "then nothing has changed");
    network.follow(4).await;
    network.log(1).set_members(ids(&[1, 3, 4])).await.unwrap();
    network.lose(1).await;
    network.join(&[3, 4], 101).await;
    network.agreed(&[3, 4], 3).await;
    assert_eq!(network.log(3).set_members(ids(&[3])).await.is_ok(), network.log(3).is_leader());
}

/// Moves a partition to and fro, with two entries each time.
async fn move_often(leader: &ClusterLog, moves: u32) {
    assert_eq!(leader.propose(ClusterEntry::Admit(NodeId(2))).await, Ok(Ok(ClusterAnswer::Done)));
    for at in 0..moves {
        let (from, to) = (NodeId(1 + at % 2), NodeId(2 - at % 2));
        let step = PartitionMove { partition: PartitionId(3), from, to, epoch: Epoch(1 + u64::from(at)) };
        for entry in [ClusterEntry::Begin(step), ClusterEntry::Commit(step)] {
            assert_eq!(leader.propose(entry).await, Ok(Ok(ClusterAnswer::Done)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_many_entries_the_log_is_short_and_a_new_member_gets_a_snapshot() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    joined(&network.log(1), 100).await;
    move_often(&network.log(1), 1500).await;
    joined(&network.log(1), 101).await;
    let state = network.agreed(&[1, 2, 3], 3).await;
    assert_eq!(state.map().entry(PartitionId(3)).unwrap().epoch, Epoch(1501));
    let longest = usize::try_from(SNAPSHOT_ENTRIES + KEPT_ENTRIES).unwrap() + 8;
    for node in 1..=3 {
        let log = network.log(node);
        eventually("the log is compacted", &log, |log| log.entries.len() <= longest).await;
    }
    assert_eq!(network.snapshots(), 0, "who keeps up needs none");
    network.follow(4).await;
    network.log(1).set_members(ids(&[1, 2, 4])).await.unwrap();
    assert_eq!(network.agreed(&[1, 2, 4], 3).await, state);
    assert!(network.snapshots() > 0 && network.log(4).entries.len() <= longest);
    network.lose(1).await;
    network.join(&[2, 4], 102).await;
    network.agreed(&[2, 4], 4).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_message_are_an_error_and_change_nothing() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    let (log, mut random) = (network.log(2), Random::new(3));
    for _ in 0..2000 {
        let length = random.below(80_usize);
        let garbage = Bytes::from(random.bytes(length));
        assert!(matches!(log.handle(garbage).await, Err(LogError::Damaged(_))));
    }
    joined(&network.log(1), 100).await;
    network.agreed(&[1, 2, 3], 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_stopped_says_so() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    let log = network.log(1);
    log.clone().stop().await;
    assert_eq!(log.propose(join(1)).await, Err(ProposeError::Ended));
    assert_eq!(log.set_members(ids(&[1])).await, Err(ProposeError::Ended));
    assert!(log.state().borrow().is_some(), "its last state stays readable");
    network.leader_of(&[2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_on_threads_and_a_running_clock_survive_the_loss_of_their_leader() {
    let network = NetworkDouble::with_members(&[1, 2, 3]).await;
    joined(&network.log(1), 100).await;
    network.lose(1).await;
    network.join(&[2, 3], 101).await;
    network.agreed(&[2, 3], 3).await;
}
