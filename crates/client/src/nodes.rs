//! The nodes of a pool: a connection to each.

use crate::Connection;
use placement::NodeId;
use std::{collections::BTreeMap, sync::Arc};

/// A connection to each node of a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Nodes(Arc<[(NodeId, Arc<dyn Connection>)]>);

impl Nodes {
    /// Of one.
    pub(crate) fn one(node: NodeId, connection: Arc<dyn Connection>) -> Self {
        Self(Arc::new([(node, connection)]))
    }

    /// The way to a node, if there is one.
    pub(crate) fn get(&self, node: NodeId) -> Option<&dyn Connection> {
        Some(&*self.0[self.place(node)?].1)
    }

    /// Its place among all.
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.0.binary_search_by_key(&node, |(known, _)| *known).ok()
    }

    /// The way to the only one, in a pool of one node.
    pub(crate) fn only(&self) -> Option<(NodeId, &dyn Connection)> {
        match &*self.0 {
            [(node, connection)] => Some((*node, &**connection)),
            _ => None,
        }
    }

    /// The first that is in this process, else the first on this host.
    pub(crate) fn own(&self) -> Option<NodeId> {
        let first = |is: fn(&dyn Connection) -> bool| self.iter().find(|(_, way)| is(*way)).map(|(node, _)| node);
        first(|way| way.is_inside()).or_else(|| first(|way| way.is_here()))
    }

    /// All, by ascending ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &dyn Connection)> {
        self.0.iter().map(|(node, connection)| (*node, &**connection))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<(NodeId, Arc<dyn Connection>)> for Nodes {
    /// Of two ways to one node the later counts.
    fn from_iter<I: IntoIterator<Item = (NodeId, Arc<dyn Connection>)>>(ways: I) -> Self {
        let ways: BTreeMap<NodeId, Arc<dyn Connection>> = ways.into_iter().collect();
        Self(ways.into_iter().collect())
    }
}
