//! Clients whose messages interleave by a seed, on one thread: one poll of one client at a time. A
//! client can be dropped between any two polls, as if it had crashed.

use crate::{
    linearizability::{Event, format_history},
    names_model::{EntryTarget, NameError, NameEvent, NameOperation, NameOutcome, NameTree},
    pool::{OWNER, Pool, from, to},
};
use client::{RetryPolicy, testing::SteppedConnection};
use placement::FileId;
use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use test_support::Random;
use vfs::Vfs;
use wire::{Outcome, RenameMode, Session};

/// Poll limit of a client's call; one that needs more never ends.
const POLLS_MAX: u32 = 200_000;
/// Retry policy without pauses: polls are the only clock here.
pub const RETRY_WITHOUT_PAUSES: RetryPolicy =
    RetryPolicy { tries: 16, pause_first: Duration::ZERO, pause_max: Duration::ZERO };

/// Polls a future to completion, while no other client moves.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
    panic!("the call never ends");
}

/// Creates the initial tree: three directories, each with a file and a directory, and one with a
/// second name of a file elsewhere.
pub async fn create_initial_tree(vfs: &Vfs, tree: &mut NameTree) {
    for top in ["a", "b", "c"] {
        let directory = vfs.make_directory(FileId::ROOT, top.as_bytes(), 0o755, OWNER).await.unwrap().file;
        tree.insert_initial(FileId::ROOT, top, EntryTarget::Directory(directory));
        let file = vfs.make_node(directory, b"x", wire::Kind::File, 0o644, OWNER).await.unwrap().file;
        tree.insert_initial(directory, "x", EntryTarget::File(file));
        let inner = vfs.make_directory(directory, b"d", 0o755, OWNER).await.unwrap().file;
        tree.insert_initial(directory, "d", EntryTarget::Directory(inner));
    }
    let (a, b) = (tree.directories[1], tree.directories[3]);
    let file = vfs.lookup(a, b"x").await.unwrap().file;
    vfs.link(file, b, b"y").await.unwrap();
    tree.insert_initial(b, "y", EntryTarget::File(file));
}

/// A random operation on few names, so that operations conflict.
pub fn random_operation(rng: &mut Random, tree: &NameTree) -> NameOperation {
    let directories = &tree.directories;
    let mut place = || (directories[rng.below(directories.len().min(6))], rng.pick(&["x", "y", "d"]));
    let (one, other) = (place(), place());
    let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
    match rng.below(16) {
        0 | 1 => NameOperation::Create(one),
        2 => NameOperation::MakeDirectory(one),
        3 | 4 => NameOperation::Unlink(one),
        5 => NameOperation::RemoveDirectory(one),
        6..=9 => NameOperation::Rename(one, other, rng.pick(&modes)),
        10 => NameOperation::Link(rng.pick(&tree.files), one),
        11 | 12 => NameOperation::Lookup(one),
        13 => NameOperation::List(one.0),
        14 => NameOperation::Links(rng.pick(&tree.files)),
        _ => NameOperation::Parent(rng.pick(directories)),
    }
}

/// Executes an operation on the pool.
pub async fn execute(vfs: Vfs, operation: NameOperation) -> Outcome<NameOutcome> {
    Ok(match operation {
        NameOperation::Create((parent, name)) => {
            NameOutcome::File(vfs.make_node(parent, name.as_bytes(), wire::Kind::File, 0o644, OWNER).await?.file)
        }
        NameOperation::MakeDirectory((parent, name)) => {
            NameOutcome::File(vfs.make_directory(parent, name.as_bytes(), 0o755, OWNER).await?.file)
        }
        NameOperation::Unlink((parent, name)) => done(vfs.unlink(parent, name.as_bytes()).await?),
        NameOperation::RemoveDirectory((parent, name)) => done(vfs.remove_directory(parent, name.as_bytes()).await?),
        NameOperation::Rename(source, target, mode) => {
            done(vfs.rename(from(source.0, source.1), to(target.0, target.1), mode).await?)
        }
        NameOperation::Link(file, (parent, name)) => {
            assert_eq!(vfs.link(file, parent, name.as_bytes()).await?.file, file);
            NameOutcome::Done
        }
        NameOperation::Lookup((parent, name)) => NameOutcome::File(vfs.lookup(parent, name.as_bytes()).await?.file),
        NameOperation::List(directory) => NameOutcome::Entries(sorted_entries(&vfs, directory).await?),
        NameOperation::Links(file) => NameOutcome::Links(vfs.stat(file).await?.links),
        NameOperation::Parent(directory) => NameOutcome::File(vfs.parent(directory).await?),
    })
}

fn done((): ()) -> NameOutcome {
    NameOutcome::Done
}

/// All entries of a directory, sorted by name.
pub async fn sorted_entries(vfs: &Vfs, directory: FileId) -> Outcome<Vec<(String, FileId)>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = vfs.list(directory, after, 100).await?;
        let Some(last) = page.last() else { break };
        after = last.cookie;
        all.extend(page.into_iter().map(|entry| (entry.name.to_string(), entry.file)));
    }
    all.sort();
    Ok(all)
}

/// An operation in flight.
pub type InFlight = Pin<Box<dyn Future<Output = Outcome<NameOutcome>>>>;

/// A client with its remaining operations and the one in flight.
pub struct InterleavedClient {
    /// The client's view of the pool.
    pub vfs: Vfs,
    /// Operations not begun yet; the last is the next.
    pub remaining: Vec<NameOperation>,
    /// Number of the operation in the history, and its future.
    pub in_flight: Option<(usize, InFlight)>,
}

/// Clients of a pool over connections that answer one poll late, each with random operations.
pub fn interleaved_clients(
    pool: &Pool,
    tree: &NameTree,
    operations: usize,
    rng: &mut Random,
) -> Vec<InterleavedClient> {
    let client = |rng: &mut Random| InterleavedClient {
        vfs: block_on(pool.over(SteppedConnection::new, RETRY_WITHOUT_PAUSES)),
        remaining: (0..operations).map(|_| random_operation(rng, tree)).collect(),
        in_flight: None,
    };
    (0..3).map(|_| client(rng)).collect()
}

/// Runs all clients to their end, one poll at a time, in random order; with `dies`, drops one at a
/// random point. Returns the history, and the sessions of dropped clients.
pub fn interleave(
    clients: &mut Vec<InterleavedClient>,
    rng: &mut Random,
    dies: bool,
) -> (Vec<NameEvent>, Vec<Session>) {
    interleave_with(clients, rng, dies, || {})
}

/// As [`interleave`]; `between` is called before each poll.
pub fn interleave_with(
    clients: &mut Vec<InterleavedClient>,
    rng: &mut Random,
    dies: bool,
    mut between: impl FnMut(),
) -> (Vec<NameEvent>, Vec<Session>) {
    let (mut history, mut dead, mut clock): (Vec<NameEvent>, Vec<Session>, usize) = (Vec::new(), Vec::new(), 0);
    let death = if dies { rng.below(120) } else { usize::MAX };
    while !clients.is_empty() {
        clock += 1;
        between();
        assert!(clock < POLLS_MAX as usize, "clients wait for each other for ever:\n{}", format_history(&history));
        let at = rng.below(clients.len());
        let client = &mut clients[at];
        if clock == death {
            dead.push(client.vfs.client().session());
            drop(clients.swap_remove(at));
            continue;
        }
        let Some((event, in_flight)) = &mut client.in_flight else {
            match client.remaining.pop() {
                Some(operation) => {
                    history.push(Event { operation, began: clock, ended: None });
                    client.in_flight = Some((history.len() - 1, Box::pin(execute(client.vfs.clone(), operation))));
                }
                None => drop(clients.swap_remove(at)),
            }
            continue;
        };
        if let Poll::Ready(outcome) = in_flight.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            history[*event].ended = Some((clock, outcome.map_err(|refusal| NameError::from(&refusal))));
            client.in_flight = None;
        }
    }
    (history, dead)
}

/// Operations that read the whole tree, as it may be after this history.
pub fn final_reads(tree: &NameTree, history: &[NameEvent]) -> Vec<NameOperation> {
    let made = history.iter().filter_map(|event| match (&event.operation, &event.ended) {
        (NameOperation::MakeDirectory(_), Some((_, Ok(NameOutcome::File(made))))) => Some(*made),
        _ => None,
    });
    let directories = tree.directories.iter().copied().chain(made).map(NameOperation::List);
    directories.chain(tree.files.iter().copied().map(NameOperation::Links)).collect()
}

/// Adds a final reader's view of the tree to the history, so that the checker covers it too.
pub fn read_back(vfs: &Vfs, tree: &NameTree, history: &mut Vec<NameEvent>) {
    for operation in final_reads(tree, history) {
        let outcome = block_on(execute(vfs.clone(), operation)).map_err(|refusal| NameError::from(&refusal));
        history.push(Event { operation, began: usize::MAX - 1, ended: Some((usize::MAX, outcome)) });
    }
}
