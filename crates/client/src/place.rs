//! Where new things are put, by what was asked for: stripes of a file that grows, and new directories.

use crate::Client;
use placement::{
    FileId, Layout, NodeId, PartitionId, Placed, Placing, Policy, Spread, directory_partition, whole_partition,
};
use wire::{Command, Name, Object, Outcome, PLACEMENT, Refusal};

impl Client {
    /// The node that is here: in this process, else in another of this host. The first, where there are several.
    pub fn own_node(&self) -> Option<NodeId> {
        self.0.nodes.own()
    }

    /// The nodes that hold partitions, by ascending ids.
    pub fn data_nodes(&self) -> Vec<NodeId> {
        self.0.data_nodes()
    }

    /// Whether a node of the pool holds partitions.
    pub fn holds_data(&self, node: NodeId) -> bool {
        self.0.pick(node, 0).is_some()
    }

    /// Says where the stripes of a file shall be: where its policy finds no node, in the partition that a hash chose.
    pub(crate) async fn place(&self, file: FileId, policy: Policy, layout: Layout) -> Outcome<()> {
        let by_hash = match layout.spread() {
            Spread::In(partition) => partition,
            Spread::Striped => file.partition(),
        };
        let more = self.0.stripe_bytes.into();
        let partition = self.chosen_partition(policy, more, file.0).await.unwrap_or(by_hash);
        self.change(file.partition(), Command::Place { file, partition }).await.map(drop)
    }

    /// Where the stripes of what is put at this place shall be, of so many bytes; and by what their partition was chosen, where a hash
    /// does not say it.
    pub(crate) async fn placed(
        &self,
        placing: Placing,
        (directory, name): (FileId, &Name),
        bytes: u64,
    ) -> (Layout, Option<Policy>) {
        let by_hash = whole_partition(self.0.seed, directory, name.as_bytes(), self.0.partitions);
        let Placed { layout, by } = Placed::of(self.0.stripe_bytes, placing, by_hash);
        let Some(policy) = by else { return (layout, None) };
        let chosen = self.chosen_partition(policy, bytes, by_hash.0.into()).await.unwrap_or(by_hash);
        (layout.in_partition(chosen), by)
    }

    /// A partition of the node that a policy names or chooses; none where it finds none.
    async fn chosen_partition(&self, policy: Policy, more: u64, hash: u64) -> Option<PartitionId> {
        let node = self.chosen_node(policy, more).await?;
        self.0.pick(node, hash)
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
        let by_hash = directory_partition(self.0.seed, parent, name.as_bytes(), self.0.partitions);
        let node = placing.policy.and_then(|policy| self.fixed_node(policy));
        let elsewhere = node.filter(|node| self.0.home(by_hash) != Some(*node));
        elsewhere.and_then(|node| self.0.pick(node, by_hash.0.into())).unwrap_or(by_hash)
    }

    /// A policy may name a node that holds data only. Any other attribute is nothing to the map.
    pub(crate) fn check_nodes(&self, file: FileId, name: &[u8], value: &[u8]) -> Outcome<()> {
        let policy = if name == PLACEMENT { std::str::from_utf8(value).ok() } else { None };
        match policy.map(str::parse) {
            Some(Ok(Policy::At(node))) => self.check_node(Object::File(file), node),
            _ => Ok(()),
        }
    }

    /// A node that holds data, named for this object.
    pub(crate) fn check_node(&self, object: Object, node: NodeId) -> Outcome<()> {
        if self.holds_data(node) {
            return Ok(());
        }
        let nodes: Vec<String> = self.0.data_nodes().iter().map(NodeId::to_string).collect();
        let why = format!("the pool has no node {node} that holds data; those that do: {}", nodes.join(", "));
        Err(Refusal::Invalid { object, why: why.into() })
    }
}
