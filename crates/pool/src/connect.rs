//! The way from a pool file to a client.

use crate::{NodeEntry, PoolFile};
use base::Problem;
use client::{Client, Connection, Nodes, Patience};
use link::{Address, Remote};
use placement::NodeId;
use std::{path::Path, sync::Arc};
use wire::handshake::Token;

/// A client of the pool that a file tells of.
pub async fn connect(path: &Path, patience: Patience) -> Result<Client, Problem> {
    let file = PoolFile::read(path)?;
    let token = file.token(path)?;
    let nodes: Nodes = file.nodes.iter().filter_map(|node| connection(node, &token)).collect();
    Client::connect_all(nodes, patience).await.map_err(|refusal| {
        Problem::new(format!("the pool of {} does not let us in: {refusal}", path.display()))
            .hint("`tidemill pool status` shows who answers; `tidemill pool start` replaces a pool that is no more")
    })
}

/// The best way to a node: its own host's socket where it is of this machine and can be seen, else the network.
pub fn way(node: &NodeEntry) -> Option<&Address> {
    let here = node.process.is_of_this_machine();
    let can = |address: &&Address| match address {
        Address::Unix(path) => here && path.exists(),
        Address::Tcp { .. } | Address::Tls { .. } => true,
    };
    node.addresses.iter().find(can).or(node.addresses.last())
}

/// A connection to a node, with its id.
pub fn connection(node: &NodeEntry, token: &Token) -> Option<(NodeId, Arc<dyn Connection>)> {
    let remote: Arc<dyn Connection> = Arc::new(remote(node, token)?);
    Some((NodeId(node.id), remote))
}

/// The same, by itself.
pub fn remote(node: &NodeEntry, token: &Token) -> Option<Remote> {
    Some(Remote::new(way(node)?.clone(), token))
}
