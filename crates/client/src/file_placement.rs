//! Placement of new things by policy: stripes of a file that grows, objects, and new directories.

use crate::Client;
use placement::{
    Distribution, FileId, Layout, NodeId, PartitionId, PlacementDecision, PlacementSpec, Policy, directory_partition,
    single_partition,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use wire::{Command, Name, Object, Outcome, PLACEMENT, PlacementChoice, Refusal};

/// True when this process has told that a placement names a node which has left: once for all
/// files.
static HAS_WARNED: AtomicBool = AtomicBool::new(false);

impl Client {
    /// The local node: in this process, otherwise in another process of this host. The first, if
    /// there are several.
    pub fn local_node(&self) -> Option<NodeId> {
        self.router().nodes.local_node()
    }

    /// The nodes that hold partitions, by ascending ids.
    pub fn data_nodes(&self) -> Vec<NodeId> {
        self.router().data_nodes()
    }

    /// True if a node of the pool holds partitions, and was not lost with them.
    pub fn holds_data(&self, node: NodeId) -> bool {
        self.router().pick(node, 0).is_some() && !self.router().has_departed(node)
    }

    /// Places the stripes of a file: at the node that its policy gives, or in the partition chosen
    /// by a hash if the policy gives none.
    pub(crate) async fn place_file(&self, file: FileId, choice: PlacementChoice) -> Outcome<()> {
        let PlacementChoice { policy, layout } = choice;
        let by_hash = match layout.distribution() {
            Distribution::Single(partition) => partition,
            Distribution::Striped => file.partition(),
        };
        let more = self.router().stripe_bytes.into();
        let partition = self.choose_partition(policy, more, file.0).await.unwrap_or(by_hash);
        self.mutate(file.partition(), Command::place(file, partition)).await
    }

    /// The layout of an object of this many bytes that is put under this name; and the policy that
    /// chose its partition, if that was not a hash.
    pub(crate) async fn place_object(
        &self,
        placing: PlacementSpec,
        (directory, name): (FileId, &Name),
        bytes: u64,
    ) -> (Layout, Option<Policy>) {
        let by_hash = single_partition(self.router().seed, directory, name.as_bytes(), self.router().partitions);
        let PlacementDecision { layout, pending_policy } =
            PlacementDecision::new(self.router().stripe_bytes, placing, by_hash);
        let Some(policy) = pending_policy else { return (layout, None) };
        let chosen = self.choose_partition(policy, bytes, by_hash.0.into()).await.unwrap_or(by_hash);
        (layout.in_partition(chosen), pending_policy)
    }

    /// A partition of the node that a policy names or chooses; `None` if it gives no node.
    async fn choose_partition(&self, policy: Policy, more: u64, hash: u64) -> Option<PartitionId> {
        let node = self.choose_node(policy, more).await?;
        self.router().pick(node, hash)
    }

    /// The node that a policy names, or chooses now for about `more` bytes. A policy that names one
    /// that holds nothing any more, since it has left the pool, places as `balanced`.
    pub(crate) async fn choose_node(&self, policy: Policy, more: u64) -> Option<NodeId> {
        match self.fixed_node(policy) {
            Some(node) if self.holds_data(node) => return Some(node),
            Some(node) => {
                if !HAS_WARNED.swap(true, Relaxed) {
                    tracing::warn!(
                        "node {node} has left the pool: what is to lie there lies where most memory is free"
                    );
                }
            }
            None if policy == Policy::Balanced => {}
            None => return None,
        }
        self.choose_emptiest(more).await
    }

    /// The node that a policy names, regardless of how full nodes are.
    fn fixed_node(&self, policy: Policy) -> Option<NodeId> {
        match policy {
            Policy::Here => self.local_node(),
            Policy::At(node) => Some(node),
            Policy::Striped | Policy::Single | Policy::Balanced => None,
        }
    }

    /// The partition of a new directory's inode: by a hash of its parent and name. If the policy
    /// names a node for the bytes below it, one of that node's partitions.
    pub(crate) fn directory_home(&self, placing: PlacementSpec, parent: FileId, name: &Name) -> PartitionId {
        let by_hash = directory_partition(self.router().seed, parent, name.as_bytes(), self.router().partitions);
        self.inode_home(placing, by_hash)
    }

    /// The partition of an inode that a hash chose. If the policy names a node for the bytes below
    /// it, one of that node's partitions.
    pub(crate) fn inode_home(&self, placing: PlacementSpec, by_hash: PartitionId) -> PartitionId {
        let node = placing.policy.and_then(|policy| self.fixed_node(policy));
        let elsewhere = node.filter(|node| self.holds_data(*node) && self.router().home(by_hash) != Some(*node));
        elsewhere.and_then(|node| self.router().pick(node, by_hash.0.into())).unwrap_or(by_hash)
    }

    /// Checks that a placement policy names a node that holds data, or has done so and left. Other
    /// attributes are not checked.
    pub(crate) fn check_nodes(&self, file: FileId, name: &[u8], value: &[u8]) -> Outcome<()> {
        let policy = if name == PLACEMENT { std::str::from_utf8(value).ok() } else { None };
        match policy.map(str::parse) {
            Some(Ok(Policy::At(node))) => self.check_node(Object::File(file), node),
            _ => Ok(()),
        }
    }

    /// Checks that a node holds data, or has left the pool; the refusal names `object`.
    pub(crate) fn check_node(&self, object: Object, node: NodeId) -> Outcome<()> {
        if self.holds_data(node) || self.router().has_departed(node) {
            return Ok(());
        }
        let nodes: Vec<String> = self.router().data_nodes().iter().map(NodeId::to_string).collect();
        let why = format!("the pool has no node {node} that holds data; those that do: {}", nodes.join(", "));
        Err(Refusal::Invalid { object, why: why.into() })
    }
}
