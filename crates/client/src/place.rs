//! Where new things are put, by what was asked for: stripes of a file that grows, and new directories.

use crate::{Client, route::directory_partition};
use placement::{FileId, Layout, NodeId, PartitionId, Placing, Policy, Spread};
use wire::{Command, Name, Object, Outcome, PLACEMENT, Refusal};

impl Client {
    /// The node that is here: in this process, else in another of this host. The first, where there are several.
    pub fn own_node(&self) -> Option<NodeId> {
        self.0.nodes.own()
    }

    /// Whether a node of the pool holds partitions.
    pub fn holds_data(&self, node: NodeId) -> bool {
        self.0.pick(node, 0).is_some()
    }

    /// Says where the stripes of a file shall be: where its policy finds no node, in the partition that a hash chose.
    pub(crate) async fn place(&self, file: FileId, policy: Policy, layout: Layout) -> Outcome<()> {
        let node = self.chosen_node(policy, self.0.stripe_bytes.into()).await;
        let by_hash = match layout.spread() {
            Spread::In(partition) => partition,
            Spread::Striped => file.partition(),
        };
        let partition = node.and_then(|node| self.0.pick(node, file.0)).unwrap_or(by_hash);
        self.change(file.partition(), Command::Place { file, partition }).await.map(drop)
    }

    /// The node that a policy names, or chooses now for about so many bytes more.
    pub(crate) async fn chosen_node(&self, policy: Policy, more: u64) -> Option<NodeId> {
        match policy {
            Policy::Balanced => self.freest(more).await,
            fixed => self.fixed_node(fixed),
        }
    }

    /// The node that a policy names whoever is how full.
    fn fixed_node(&self, policy: Policy) -> Option<NodeId> {
        match policy {
            Policy::Here => self.own_node(),
            Policy::At(node) => Some(node),
            Policy::Striped | Policy::Whole | Policy::Balanced => None,
        }
    }

    /// The partition of a new directory's inode: a hash of its place, among those of the node at which the bytes below it are to lie.
    pub(crate) fn directory_home(&self, placing: Placing, parent: FileId, name: &Name) -> PartitionId {
        let by_hash = directory_partition(self.0.seed, parent, name, self.0.partitions);
        let node = placing.policy.and_then(|policy| self.fixed_node(policy));
        let elsewhere = node.filter(|node| self.0.home(by_hash) != Some(*node));
        elsewhere.and_then(|node| self.0.pick(node, by_hash.0.into())).unwrap_or(by_hash)
    }

    /// A policy may name a node that holds data only. Any other attribute is nothing to the map.
    pub(crate) fn check_nodes(&self, file: FileId, name: &[u8], value: &[u8]) -> Outcome<()> {
        let policy = if name == PLACEMENT { std::str::from_utf8(value).ok() } else { None };
        let Some(Ok(Policy::At(node))) = policy.map(str::parse) else { return Ok(()) };
        if self.holds_data(node) {
            return Ok(());
        }
        let nodes: Vec<String> = self.0.shares().iter().map(|(node, _)| node.to_string()).collect();
        let why = format!("the pool has no node {node} that holds data; those that do: {}", nodes.join(", "));
        Err(Refusal::Invalid { object: Object::File(file), why: why.into() })
    }
}
