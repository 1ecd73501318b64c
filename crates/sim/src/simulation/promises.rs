//! The promises that every world must keep, and a checker for each.

use crate::{
    clients::sorted_entries,
    linearizability::{format_history, is_linearizable},
    pool::settings,
    simulation::{executor::SimState, network::SimEvent, sim_node::SimNode, world::World},
};
use cluster::partition_shares;
use placement::{FileId, NodeId, PartitionId, PartitionMap, StripeNo};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wire::{Outcome, Refusal};

/// Checks what holds at the end of a world.
pub fn check_all(world: &mut World) {
    names_are_linearizable(world);
    bytes_acknowledged_are_read(world);
    nodes_know_the_map_and_serve_by_it(world);
    stripes_are_where_the_map_says(world);
    shares_are_within_one_partition(world);
    no_partition_moves_without_cause(world);
    all_space_is_free_in_the_end(world);
}

/// A partition has at most one server at any moment, and the epochs that a node knows only grow.
#[derive(Default)]
pub struct Servers {
    /// The map that each node had.
    known: BTreeMap<NodeId, Arc<PartitionMap>>,
}

impl Servers {
    pub fn look(&mut self, state: &SimState) {
        let mut servers: Vec<Option<NodeId>> = Vec::new();
        for node in state.network.live_nodes() {
            let (id, map) = (node.id(), node.known_map());
            servers.resize(map.partitions() as usize, None);
            for (partition, server) in partitions(map.partitions()).zip(&mut servers) {
                if node.served_epoch(partition).is_some()
                    && let Some(other) = server.replace(id)
                {
                    panic!("partition {partition} is served by the nodes {other} and {id}");
                }
            }
            match self.known.insert(id, map.clone()) {
                Some(before) if !Arc::ptr_eq(&before, &map) => check_grown(id, &before, &map),
                _ => {}
            }
        }
    }
}

fn check_grown(id: NodeId, before: &PartitionMap, map: &PartitionMap) {
    for partition in partitions(map.partitions()) {
        let epoch = |map: &PartitionMap| map.entry(partition).map(|entry| entry.epoch);
        assert!(epoch(before) <= epoch(map), "node {id} has forgotten an entry of partition {partition}");
    }
}

fn partitions(count: u32) -> impl Iterator<Item = PartitionId> {
    (0..=u16::MAX).map(PartitionId).take(count as usize)
}

/// Inodes and bytes of all nodes.
pub fn usage(state: &SimState) -> (u64, u64) {
    let each = state.network.live_nodes().into_iter().map(|node| node.usage());
    each.fold((0, 0), |(files, used), usage| (files + usage.files, used + usage.used))
}

/// What clients see of names has an order in which a plain file system answers the same.
fn names_are_linearizable(world: &mut World) {
    world.read_names_back();
    let history = world.state.history.lock().clone();
    assert!(is_linearizable(&world.tree, &history), "in no order it is so:\n{}", format_history(&history));
}

/// Each file has the bytes that were acknowledged last. It may be unavailable only if a partition
/// of it is lost.
fn bytes_acknowledged_are_read(world: &mut World) {
    let unserved = world.managers.cluster().unserved();
    for (at, found) in world.read_bytes_back().into_iter().enumerate() {
        let Err(refusal) = found else { continue };
        let Some(file) = world.files.lock()[at].file else {
            assert!(!unserved.is_empty(), "an object is unavailable without a cause: {refusal}");
            continue;
        };
        let of_file = partitions_of(world, file);
        let is_lost = of_file.iter().any(|partition| unserved.contains(partition));
        assert!(is_lost, "{file} is at the partitions {of_file:?}, and lost are {unserved:?}: {refusal}");
    }
}

/// The partitions of a file: of its inode, and of the stripes that it may have.
fn partitions_of(world: &World, file: FileId) -> BTreeSet<PartitionId> {
    let count = world.managers.map().partitions();
    let layout = placement::Layout::striped(world.observer.stripe_bytes());
    let stripes = (0..FILE_STRIPES_MAX).map(|stripe| layout.partition(settings().seed, file, StripeNo(stripe), count));
    stripes.chain([file.partition()]).collect()
}

/// More stripes than a file of a world has.
const FILE_STRIPES_MAX: u64 = 12;

/// Every node that lives knows all of the map, and exactly the partitions are served that the map
/// gives to one that lives.
fn nodes_know_the_map_and_serve_by_it(world: &mut World) {
    let cluster = world.managers.cluster();
    for node in world.state.network.live_nodes() {
        for partition in partitions(cluster.map().partitions()) {
            let entry = cluster.map().entry(partition);
            assert_eq!(node.entry(partition).as_ref(), entry, "the entry of {partition} at node {}", node.id());
            let serves = entry.filter(|entry| entry.server == node.id()).map(|entry| entry.epoch);
            assert_eq!(node.served_epoch(partition), serves, "partition {partition} at node {}", node.id());
        }
        assert_eq!(node.prepared_partitions(), [], "node {} waits for an end", node.id());
    }
}

/// No node has a stripe of a partition that it does not serve.
fn stripes_are_where_the_map_says(world: &mut World) {
    for node in world.managers.live_nodes() {
        let misplaced = world.wait(misplaced_stripes(node.clone()));
        assert!(misplaced.is_empty(), "node {} has stripes of {misplaced:?}", node.node.id());
    }
}

async fn misplaced_stripes(node: Arc<SimNode>) -> BTreeSet<PartitionId> {
    let (mut scan, mut misplaced) = (node.stripes.scan(), BTreeSet::new());
    while let Some(page) = scan.next_page(1000).done().await.expect("an engine in memory does not fail") {
        let partitions = page.into_iter().map(|entry| entry.key.partition);
        misplaced.extend(partitions.filter(|partition| node.node.served_epoch(*partition).is_none()));
    }
    misplaced
}

/// Each node that takes partitions has the whole number below or above its exact share.
fn shares_are_within_one_partition(world: &mut World) {
    let cluster = world.managers.cluster();
    let counts = cluster.map().partition_counts();
    let takes_any = cluster.capacities().values().any(|capacity| *capacity > 0);
    if takes_any && cluster.unserved().is_empty() {
        let shares = partition_shares(&cluster.capacities(), cluster.map().partitions(), &counts);
        let held: BTreeMap<NodeId, u32> =
            shares.keys().map(|node| (*node, counts.get(node).copied().unwrap_or(0))).collect();
        assert_eq!(held, shares);
    }
}

/// No more partitions have moved than the changes of the pool need.
fn no_partition_moves_without_cause(world: &mut World) {
    let moved = world.state.network.counts().get(&SimEvent::MoveCommitted).copied().unwrap_or(0);
    let planned = world.managers.planned_moves();
    assert!(moved <= planned, "{moved} partitions have moved, and {planned} were to");
}

/// When everything is removed, the pool is as empty as it was.
fn all_space_is_free_in_the_end(world: &mut World) {
    if world.state.network.has_lost_partitions() {
        return;
    }
    let vfs = world.observer.clone();
    let names = world.wait(async move { sorted_entries(&vfs, FileId::ROOT).await.expect("the root is there") });
    for (name, _) in names {
        let vfs = world.observer.clone();
        let removed: Outcome<()> = world.wait(async move { vfs.remove_tree(name.as_bytes()).await });
        removed.unwrap_or_else(|refusal: Refusal| panic!("what is left cannot be removed: {refusal}"));
    }
    let ((files_before, used_before), (files, used)) = (world.usage_before, usage(&world.state));
    let left = files - files_before;
    // The root stays split.
    let fragments = 16;
    let is_right = if left == 0 { used == used_before } else { world.split_entries < 4096 && left == fragments };
    if !is_right {
        let held: Vec<String> =
            world.managers.live_nodes().into_iter().map(|node| world.wait(describe_held(node))).collect();
        panic!("{left} inodes and {used} bytes are left, and {used_before} bytes were used: {held:?}");
    }
}

/// Says what a node holds.
async fn describe_held(node: Arc<SimNode>) -> String {
    let usage = node.node.usage();
    let loads = node.node.partition_loads().await.expect("an engine in memory does not fail");
    let loads: Vec<(u16, u64)> =
        loads.into_iter().map(|(id, load)| (id.0, load.bytes)).filter(|(_, bytes)| *bytes > 0).collect();
    format!("node {}: {} bytes, of which partitions hold {loads:?}", node.node.id(), usage.used)
}
