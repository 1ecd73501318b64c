//! Concurrent clients with messages interleaved by a seed; some clients are dropped in the middle.
//! Their results must be linearizable: there is *some* order in which a plain file system gives
//! these results, and in which no operation precedes another that had ended before it began.

use crate::{Vfs, linearizability::*, pool_test::*};
use client::{RetryPolicy, testing::SteppedConnection};
use node::NodeSettings;
use placement::FileId;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use store::ModelEngine;
use wire::{Outcome, Refusal, RenameMode, Session};

/// Poll limit of a client's call; one that needs more never ends.
const POLLS_MAX: u32 = 200_000;
/// Retry policy without pauses: polls are the only clock here.
pub const EAGER: RetryPolicy = RetryPolicy { tries: 16, pause_first: Duration::ZERO, pause_max: Duration::ZERO };

pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Parameters of the runs of a test.
#[derive(Clone, Copy)]
struct Trial {
    clients: usize,
    operations: usize,
    /// Directories with more entries are split.
    split: u32,
    /// Drops one client at a random point.
    dies: bool,
    draw: fn(&mut Dice, &Tree) -> Action,
}

/// A pool of four nodes for every fourth seed, otherwise of one.
fn pool_of(seed: u64, split: u32) -> Pool {
    let nodes = if seed.is_multiple_of(4) { 4 } else { 1 };
    let settings = NodeSettings { partitions: 16, space_wait: Duration::ZERO, split_entries: split, ..settings() };
    Pool::start(nodes, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE)))
}

/// Creates the initial tree: three directories, each with a file and a directory, and one with a
/// second name of a file elsewhere.
pub async fn furnish(vfs: &Vfs, tree: &mut Tree) {
    for top in ["a", "b", "c"] {
        let directory = vfs.make_directory(FileId::ROOT, top.as_bytes(), 0o755, OWNER).await.unwrap().file;
        tree.put(FileId::ROOT, top, Thing::Directory(directory));
        let file = vfs.make_node(directory, b"x", wire::Kind::File, 0o644, OWNER).await.unwrap().file;
        tree.put(directory, "x", Thing::File(file));
        let inner = vfs.make_directory(directory, b"d", 0o755, OWNER).await.unwrap().file;
        tree.put(directory, "d", Thing::Directory(inner));
    }
    let (a, b) = (tree.directories[1], tree.directories[3]);
    let file = vfs.lookup(a, b"x").await.unwrap().file;
    vfs.link(file, b, b"y").await.unwrap();
    tree.put(b, "y", Thing::File(file));
}

pub fn draw(dice: &mut Dice, tree: &Tree) -> Action {
    let directories = &tree.directories;
    // Few places, so that operations conflict.
    let mut place = || (directories[dice.below(directories.len().min(6))], dice.pick(&["x", "y", "d"]));
    let (one, other) = (place(), place());
    let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
    match dice.below(16) {
        0 | 1 => Action::Create(one),
        2 => Action::MakeDirectory(one),
        3 | 4 => Action::Unlink(one),
        5 => Action::RemoveDirectory(one),
        6..=9 => Action::Rename(one, other, dice.pick(&modes)),
        10 => Action::Link(dice.pick(&tree.files), one),
        11 | 12 => Action::Lookup(one),
        13 => Action::List(one.0),
        14 => Action::Links(dice.pick(&tree.files)),
        _ => Action::Parent(dice.pick(directories)),
    }
}

pub async fn act(vfs: Vfs, action: Action) -> Outcome<Seen> {
    Ok(match action {
        Action::Create((parent, name)) => {
            Seen::File(vfs.make_node(parent, name.as_bytes(), wire::Kind::File, 0o644, OWNER).await?.file)
        }
        Action::MakeDirectory((parent, name)) => {
            Seen::File(vfs.make_directory(parent, name.as_bytes(), 0o755, OWNER).await?.file)
        }
        Action::Unlink((parent, name)) => done(vfs.unlink(parent, name.as_bytes()).await?),
        Action::RemoveDirectory((parent, name)) => done(vfs.remove_directory(parent, name.as_bytes()).await?),
        Action::Rename(source, target, mode) => {
            done(vfs.rename(from(source.0, source.1), to(target.0, target.1), mode).await?)
        }
        Action::Link(file, (parent, name)) => {
            assert_eq!(vfs.link(file, parent, name.as_bytes()).await?.file, file);
            Seen::Nothing
        }
        Action::Lookup((parent, name)) => Seen::File(vfs.lookup(parent, name.as_bytes()).await?.file),
        Action::List(directory) => Seen::Entries(listed(&vfs, directory).await?),
        Action::Links(file) => Seen::Links(vfs.stat(file).await?.links),
        Action::Parent(directory) => Seen::File(vfs.parent(directory).await?),
    })
}

fn done((): ()) -> Seen {
    Seen::Nothing
}

pub async fn listed(vfs: &Vfs, directory: FileId) -> Outcome<Vec<(String, FileId)>> {
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

pub type Doing = Pin<Box<dyn Future<Output = Outcome<Seen>>>>;

/// A client with its remaining actions and the one in flight.
pub struct Actor {
    pub vfs: Vfs,
    pub todo: Vec<Action>,
    pub doing: Option<(usize, Doing)>,
}

/// Polls a future to completion, while no other client moves.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
    panic!("it never ends");
}

/// Actions on one name in two directories, which is renamed to and fro and looked up.
fn draw_narrow(dice: &mut Dice, tree: &Tree) -> Action {
    let (one, other) = ((tree.directories[1], "x"), (tree.directories[3], "x"));
    let (one, other) = if dice.below(2) == 0 { (one, other) } else { (other, one) };
    match dice.below(8) {
        0 => Action::Rename(one, other, RenameMode::Exchange),
        1 | 2 => Action::Rename(one, other, RenameMode::Replace),
        3 => Action::Link(tree.files[0], one),
        _ => Action::Lookup(one),
    }
}

/// Actions on one directory that is removed and replaced while entries are created in it.
fn draw_removal(dice: &mut Dice, tree: &Tree) -> Action {
    let (above, inner, beside) = (tree.directories[1], tree.directories[2], tree.directories[3]);
    let inside = (inner, dice.pick(&["x", "y"]));
    match dice.below(8) {
        0 | 1 => Action::RemoveDirectory((above, "d")),
        2 => Action::Rename((beside, "d"), (above, "d"), RenameMode::Replace),
        3 | 4 => Action::Rename((beside, "x"), inside, RenameMode::Replace),
        5 => Action::Link(tree.files[1], inside),
        6 => Action::Rename(inside, (beside, "x"), RenameMode::Replace),
        _ => Action::MakeDirectory(inside),
    }
}

/// Runs all clients to their end, one poll at a time, in random order.
pub fn run(actors: &mut Vec<Actor>, dice: &mut Dice, dies: bool) -> (Vec<Event>, Vec<Session>) {
    let (mut history, mut dead, mut clock): (Vec<Event>, Vec<Session>, usize) = (Vec::new(), Vec::new(), 0);
    let death = if dies { dice.below(120) } else { usize::MAX };
    while !actors.is_empty() {
        clock += 1;
        assert!(clock < POLLS_MAX as usize, "clients wait for each other for ever:\n{}", told(&history));
        let at = dice.below(actors.len());
        let actor = &mut actors[at];
        if clock == death {
            dead.push(actor.vfs.client.session());
            drop(actors.swap_remove(at));
            continue;
        }
        let Some((event, doing)) = &mut actor.doing else {
            match actor.todo.pop() {
                Some(action) => {
                    history.push(Event { action, began: clock, ended: None });
                    actor.doing = Some((history.len() - 1, Box::pin(act(actor.vfs.clone(), action))));
                }
                None => drop(actors.swap_remove(at)),
            }
            continue;
        };
        if let Poll::Ready(outcome) = doing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            history[*event].ended = Some((clock, outcome.map_err(|refusal| why(&refusal))));
            actor.doing = None;
        }
    }
    (history, dead)
}

/// The history as text, one operation a line.
pub fn told(history: &[Event]) -> String {
    let lines: Vec<String> = history.iter().map(|event| format!("{event:?}")).collect();
    lines.join("\n")
}

pub fn why(refusal: &Refusal) -> Why {
    match refusal {
        Refusal::NotFound(_) => Why::NotFound,
        Refusal::Exists(_) => Why::Exists,
        Refusal::NotDirectory(_) => Why::NotDirectory,
        Refusal::IsDirectory(_) => Why::IsDirectory,
        Refusal::NotEmpty(_) => Why::NotEmpty,
        Refusal::Invalid { .. } => Why::Invalid,
        Refusal::NotPermitted(_) => Why::NotPermitted,
        _ => Why::Strange,
    }
}

/// Adds a final reader's view of the tree to the history, so that the checker covers it too.
pub fn look_around(vfs: &Vfs, tree: &Tree, history: &mut Vec<Event>) {
    let made = history.iter().filter_map(|event| match (&event.action, &event.ended) {
        (Action::MakeDirectory(_), Some((_, Ok(Seen::File(made))))) => Some(*made),
        _ => None,
    });
    let directories: Vec<FileId> = tree.directories.iter().copied().chain(made).collect();
    for action in directories.into_iter().map(Action::List).chain(tree.files.iter().copied().map(Action::Links)) {
        let outcome = now(act(vfs.clone(), action)).map_err(|refusal| why(&refusal));
        history.push(Event { action, began: usize::MAX - 1, ended: Some((usize::MAX, outcome)) });
    }
}

fn try_seed(seed: u64, trial: Trial) {
    let pool = pool_of(seed, trial.split);
    let healthy = now(pool.over(|node| node, EAGER));
    let before = healthy.usage();
    let (mut tree, mut dice) = (Tree::new(), Dice(seed));
    now(furnish(&healthy, &mut tree));
    let actor = |dice: &mut Dice| Actor {
        vfs: now(pool.over(SteppedConnection::new, EAGER)),
        todo: (0..trial.operations).map(|_| (trial.draw)(dice, &tree)).collect(),
        doing: None,
    };
    let mut actors: Vec<Actor> = (0..trial.clients).map(|_| actor(&mut dice)).collect();
    let (mut history, dead) = run(&mut actors, &mut dice, trial.dies);
    look_around(&healthy, &tree, &mut history);
    assert!(fits(&tree, &history), "seed {seed}: in no order it is so:\n{}", told(&history));
    for session in dead {
        now(healthy.client.recover(session)).unwrap();
    }
    for (top, _) in now(listed(&healthy, FileId::ROOT)).unwrap() {
        now(healthy.remove_tree(top.as_bytes())).unwrap();
    }
    let (after, fragments) = (healthy.usage(), now(healthy.stat(FileId::ROOT)).unwrap());
    assert_eq!((fragments.size, fragments.links), (0, 2), "seed {seed}");
    // The root stays split.
    let left = after.files - before.files;
    assert!(left == 0 || trial.split < 4096 && left == 16, "seed {seed}: {left} inodes were left");
    assert!(left > 0 || after.used == before.used, "seed {seed}: space was left");
}

#[test]
fn whatever_two_clients_do_at_once_has_an_order() {
    (0..1500).for_each(|seed| try_seed(seed, Trial { clients: 2, operations: 4, split: 4096, dies: false, draw }));
}

#[test]
fn whatever_three_clients_do_at_once_has_an_order() {
    (0..1000).for_each(|seed| try_seed(seed, Trial { clients: 3, operations: 3, split: 4096, dies: false, draw }));
}

#[test]
fn a_name_that_moves_to_and_fro_is_never_seen_twice_or_not_at_all() {
    let trial = Trial { clients: 3, operations: 5, split: 4096, dies: false, draw: draw_narrow };
    (0..500).for_each(|seed| try_seed(seed, trial));
    (500..1000).for_each(|seed| try_seed(seed, Trial { dies: true, ..trial }));
}

#[test]
fn a_directory_that_is_removed_or_replaced_takes_nothing_with_it() {
    let trial = Trial { clients: 3, operations: 3, split: 4096, dies: false, draw: draw_removal };
    (0..300).for_each(|seed| try_seed(seed, trial));
    (300..600).for_each(|seed| try_seed(seed, Trial { dies: true, ..trial }));
    (600..660).for_each(|seed| try_seed(seed, Trial { split: 1, ..trial }));
}

#[test]
fn a_client_that_dies_anywhere_is_as_if_it_had_done_its_last_operation_or_not() {
    (0..1500).for_each(|seed| try_seed(seed, Trial { clients: 3, operations: 3, split: 4096, dies: true, draw }));
}

#[test]
fn directories_that_split_under_them_do_not_show() {
    (0..150).for_each(|seed| try_seed(seed, Trial { clients: 2, operations: 5, split: 2, dies: false, draw }));
    (0..150).for_each(|seed| try_seed(seed, Trial { clients: 3, operations: 4, split: 2, dies: true, draw }));
}

/// Moves each of two directories into the other, with message orders by many seeds.
#[test]
fn of_two_directories_that_are_moved_into_each_other_exactly_one_is() {
    for seed in 0..2000 {
        let pool = pool_of(seed, 4096);
        let healthy = now(pool.over(|node| node, EAGER));
        let make = |name: &str| now(healthy.make_directory(FileId::ROOT, name.as_bytes(), 0o755, OWNER)).unwrap().file;
        let (one, other) = (make("one"), make("other"));
        let moves = [("one", other), ("other", one)];
        let actor = |(name, target): (&'static str, FileId)| Actor {
            vfs: now(pool.over(SteppedConnection::new, EAGER)),
            todo: vec![Action::Rename((FileId::ROOT, name), (target, "in"), RenameMode::Replace)],
            doing: None,
        };
        let mut actors: Vec<Actor> = moves.into_iter().map(actor).collect();
        let (history, _) = run(&mut actors, &mut Dice(seed), false);
        let done = history.iter().filter(|event| matches!(event.ended, Some((_, Ok(_))))).count();
        assert_eq!(done, 1, "seed {seed}:\n{}", told(&history));
        let tops = now(healthy.list(FileId::ROOT, 0, 10)).unwrap();
        assert_eq!(tops.len(), 1, "seed {seed}");
        assert_eq!(now(healthy.list(tops[0].file, 0, 10)).unwrap().len(), 1, "seed {seed}: the other is in it");
    }
}
