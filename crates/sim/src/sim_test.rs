//! Runs of the simulation: the clients' results must be linearizable, and nothing may be left.
//!
//! `SIM_SEEDS` is the number of runs and `SIM_SEED` the first seed. The seed of a failure repeats
//! it step by step.

use crate::{clients::*, linearizability::*, names_model::*, pool::*, simulation::*};
use node::NodeSettings;
use placement::FileId;
use std::{env, sync::Arc, time::Duration};
use store::ModelEngine;
use vfs::Vfs;
use wire::Session;

/// Number of runs, unless `SIM_SEEDS` is set.
const RUNS: u64 = 300;

/// Runs one simulation: checks that its clients' results are linearizable, and that nothing is
/// left.
fn try_seed(seed: u64) -> InjectedFaults {
    let count = NODES[usize::try_from(seed).unwrap() % NODES.len()];
    let mut simulation = Simulation::new(seed, count);
    let state = simulation.state.clone();
    let split = if state.random(3) == 0 { 2 } else { 4096 };
    let settings = NodeSettings { partitions: 16, space_wait: Duration::ZERO, split_entries: split, ..settings() };
    let pool = Pool::start(count, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE)));
    let nodes = pool.nodes().to_vec();
    let healthy = simulation.wait(async move { pool.over(|node| node, RETRY_LONG).await });
    let before = healthy.usage();
    let tree = simulation.wait({
        let healthy = healthy.clone();
        async move {
            let mut tree = NameTree::new();
            create_initial_tree(&healthy, &mut tree).await;
            tree
        }
    });
    let clients = 2 + state.random(2);
    let mut sessions: Vec<Session> = Vec::new();
    for client in 0..clients {
        let vfs = simulation.wait(connect(nodes.clone(), state.clone()));
        sessions.push(vfs.client().session());
        let operations = (0..3).map(|_| random_operation(&mut state.rng.lock(), &tree)).collect();
        state.spawn(Some(client), run_client(vfs, operations, state.clone()));
    }
    if state.random(2) == 0 {
        let (victim, crash) = (state.random(clients), state.steps() + state.random(250));
        simulation.run_until(|state| state.steps() >= crash);
        simulation.crash(victim);
        let (healthy, session) = (healthy.clone(), sessions[victim]);
        state.spawn(None, async move { healthy.client().recover(session).await.expect("all nodes are there") });
    }
    simulation.run_until(|_| false);
    simulation.read_back(&healthy, &tree);
    let history = state.history.lock().clone();
    assert!(is_linearizable(&tree, &history), "SIM_SEED={seed}: in no order it is so:\n{}", format_history(&history));
    nothing_is_left(&mut simulation, &healthy, (before, split), seed);
    *state.faults.lock()
}

fn nothing_is_left(simulation: &mut Simulation, vfs: &Vfs, (before, split): (wire::SpaceUsage, u32), seed: u64) {
    let names = simulation.wait({
        let vfs = vfs.clone();
        async move { sorted_entries(&vfs, FileId::ROOT).await.expect("the root is there") }
    });
    for (name, _) in names {
        let vfs = vfs.clone();
        simulation.wait(async move { vfs.remove_tree(name.as_bytes()).await.expect("it can be removed") });
    }
    simulation.run_until(|_| false);
    let after = vfs.usage();
    let left = after.files - before.files;
    // The root stays split.
    assert!(left == 0 || split < 4096 && left == 16, "SIM_SEED={seed}: {left} inodes were left");
    assert!(left > 0 || after.used == before.used, "SIM_SEED={seed}: space was left");
}

#[test]
fn whatever_the_network_does_what_clients_see_has_an_order_and_nothing_is_left() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("SIM_SEED").unwrap_or(0);
    let runs = number("SIM_SEEDS").unwrap_or(if number("SIM_SEED").is_some() { 1 } else { RUNS });
    let mut all = InjectedFaults::default();
    for seed in first..first + runs {
        let InjectedFaults { requests_lost, answers_lost, duplicated, late, unreachable, crashes } = try_seed(seed);
        all.requests_lost += requests_lost;
        all.answers_lost += answers_lost;
        all.duplicated += duplicated;
        all.late += late;
        all.unreachable += unreachable;
        all.crashes += crashes;
    }
    eprintln!("{runs} runs: {all:?}");
    let InjectedFaults { requests_lost, answers_lost, duplicated, late, unreachable, crashes } = all;
    let least = [requests_lost, answers_lost, duplicated, late, unreachable, crashes].into_iter().min();
    assert!(runs < RUNS || least > usize::try_from(runs / 20).ok(), "a network that is too good: {all:?}");
}
