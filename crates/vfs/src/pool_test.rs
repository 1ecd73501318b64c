//! Pools for tests.

use crate::Vfs;
use arena::{Arena, Options};
use client::{Client, Connection, InProcess, Patience};
use node::{Node, Settings};
use std::{sync::Arc, time::Duration};
use store::Model;
use wire::{Name, Owner, RenameFrom, RenameTo};

pub const OWNER: Owner = Owner { uid: 1000, gid: 100 };
/// Stripes are short in tests, so that files have many.
pub const STRIPE: u32 = 64 << 10;

/// A node with `memory` bytes over the model engine.
pub fn node(memory: u64, space_wait: Duration) -> Arc<Node> {
    let settings = Settings { partitions: 64, stripe_bytes: STRIPE, space_wait, owner: OWNER, ..Settings::default() };
    node::embedded(settings, Arc::new(Model::new(memory, STRIPE)))
}

/// A node over an arena, which has whole files where this process may have them. Closed small ones are folded at once.
pub fn arena_node(memory: u64, space_wait: Duration) -> Arc<Node> {
    let settings = Settings {
        partitions: 64,
        stripe_bytes: STRIPE,
        space_wait,
        owner: OWNER,
        closed_kept: 0,
        ..Settings::default()
    };
    node::embedded(
        settings,
        Arc::new(Arena::new(Options { stripe_bytes: STRIPE, ..Options::of_capacity(memory) }).unwrap()),
    )
}

/// A node whose directories are split when they have more than `split_entries`.
pub fn node_that_splits(split_entries: u32) -> Arc<Node> {
    let settings =
        Settings { partitions: 64, stripe_bytes: STRIPE, owner: OWNER, split_entries, ..Settings::default() };
    node::embedded(settings, Arc::new(Model::new(256 << 20, STRIPE)))
}

/// All entries of a directory, in the order of their cookies.
pub async fn all(vfs: &Vfs, directory: placement::FileId) -> Vec<wire::DirEntry> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = vfs.list(directory, after, 1000).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.cookie;
        all.extend(page);
    }
}

/// A pool with plenty of memory.
pub fn pool() -> Vfs {
    Vfs::new(Client::embedded(node(64 << 20, Duration::ZERO)))
}

/// Little patience, so that tests of failure are quick.
pub const IMPATIENT: Patience =
    Patience { tries: 3, pause_first: Duration::from_micros(10), pause_max: Duration::from_micros(10) };

/// A client over a connection of the test's making.
pub async fn over(connection: impl Connection + 'static, patience: Patience) -> Vfs {
    Vfs::new(Client::connect(Arc::new(connection), patience).await.unwrap())
}

pub fn direct(node: &Arc<Node>) -> InProcess {
    InProcess(node.clone())
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn from(parent: placement::FileId, text: &str) -> RenameFrom {
    RenameFrom { parent, name: name(text) }
}

pub fn to(parent: placement::FileId, text: &str) -> RenameTo {
    RenameTo { parent, name: name(text) }
}

/// `length` times the same byte.
pub fn filled(byte: u8, length: u32) -> Vec<u8> {
    vec![byte; length as usize]
}
