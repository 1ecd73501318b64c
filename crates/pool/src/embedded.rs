//! Embedded pools: nodes in the memory of this process.

use arena::Arena;
use base::{ByteSize, Problem};
use client::Client;
use node::{Node, NodeSettings};
use std::{sync::Arc, time::Duration};
use store::Engine;
use vfs::Vfs;

/// Starts a node in this process that holds a whole pool, and returns a file system over it.
pub fn embedded(memory: ByteSize, space_wait: Duration) -> Result<Vfs, Problem> {
    embedded_client(memory, space_wait).map(Vfs::new)
}

/// Starts a node in this process that holds a whole pool, and returns a client of it.
pub fn embedded_client(memory: ByteSize, space_wait: Duration) -> Result<Client, Problem> {
    embedded_node(memory, space_wait).map(Client::embedded)
}

/// Starts a node in this process that holds a whole pool.
pub fn embedded_node(memory: ByteSize, space_wait: Duration) -> Result<Arc<Node>, Problem> {
    let settings = NodeSettings { space_wait, ..NodeSettings::new(memory) };
    let engine = engine(&settings)?;
    Ok(node::embedded(settings, engine))
}

/// Creates the engine of a node: the only place that says which one it is.
pub fn engine(settings: &NodeSettings) -> Result<Arc<dyn Engine>, Problem> {
    let memory = settings.memory;
    if memory.0 == 0 {
        return Err(Problem::new("a pool needs memory").hint("give it --memory"));
    }
    let options =
        arena::ArenaOptions { stripe_bytes: settings.stripe_bytes, ..arena::ArenaOptions::with_capacity(memory.0) };
    let arena = Arena::new(options).map_err(|error| {
        Problem::new(format!("no memory for a pool of {memory}: {error}")).hint("give less with --memory")
    })?;
    Ok(Arc::new(arena))
}
