//! Deterministic simulation: real clients, partitions and intents on one thread, over a network and
//! a clock that a seed controls.
//!
//! Requests and answers are lost, duplicated and reordered. A request may arrive long after its
//! sender has given it up or has died. Nodes are unreachable for a while. Clients die, and their
//! sessions are recovered while others continue. The clients' results must be linearizable
//! (`linearizability`), and nothing may be left.
//!
//! `SIM_SEEDS` is the number of worlds and `SIM_SEED` the first seed. The seed of a failure repeats
//! it step by step.

use crate::{
    Vfs,
    linear_test::{Dice, act, draw, furnish, listed, told, why},
    linearizability::*,
    pool_test::*,
};
use client::{Client, Connection, Nodes, RetryPolicy};
use node::{Node, NodeSettings, ReplyFuture, SimulatedTime, sleep_until};
use parking_lot::Mutex;
use placement::{FileId, NodeId};
use std::{
    env,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};
use store::ModelEngine;
use tokio::sync::oneshot;
use wire::{Answer, Failure, Request, Session};

/// Number of worlds, unless `SIM_SEEDS` is set.
const WORLDS: u64 = 300;
/// Step limit, far beyond any world; one that needs more never ends.
const STEPS_MAX: usize = 2_000_000;
/// Time without an answer after which a sender counts its request as lost.
const LOST_AFTER: Duration = Duration::from_millis(40);
/// Longest latency of a message: longer than its sender waits.
const WAY_MAX_MICROS: usize = 100_000;
/// Longest latency of most messages.
const WAY_MICROS: usize = 500;
/// Retry policy with so many tries that a client never gives up; simulated time costs nothing.
const STUBBORN: RetryPolicy =
    RetryPolicy { tries: 200, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(30) };

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Flag that is set when a task can continue.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Running {
    task: Task,
    flag: Arc<Flag>,
    /// The client whose task this is, if any; the task dies with it.
    client: Option<usize>,
}

/// Number of faults of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Troubles {
    requests_lost: usize,
    answers_lost: usize,
    doubled: usize,
    /// Requests executed after the sender had given them up.
    late: usize,
    cut: usize,
    /// Clients that died during an operation.
    deaths: usize,
}

/// Shared state of a world.
struct Shared {
    troubles: Mutex<Troubles>,
    dice: Mutex<Dice>,
    /// New tasks.
    begun: Mutex<Vec<Running>>,
    /// Number of steps taken; it orders the events of the history.
    steps: AtomicUsize,
    history: Mutex<Vec<Event>>,
    /// Node and time interval of each network partition.
    cuts: Vec<(NodeId, Instant, Instant)>,
}

impl Shared {
    fn draw(&self, below: usize) -> usize {
        self.dice.lock().below(below)
    }

    fn begin(&self, client: Option<usize>, task: impl Future<Output = ()> + Send + 'static) {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        self.begun.lock().push(Running { task: Box::pin(task), flag, client });
    }

    fn is_cut(&self, node: NodeId) -> bool {
        let now = node::now();
        self.cuts.iter().any(|(cut, from, to)| *cut == node && (*from..*to).contains(&now))
    }

    /// Random latency of a message.
    fn way(&self) -> Duration {
        let most = if self.draw(50) == 0 { WAY_MAX_MICROS } else { WAY_MICROS };
        Duration::from_micros(self.draw(most) as u64)
    }
}

async fn pass(time: Duration) {
    sleep_until(node::now() + time).await;
}

/// Connection to a node, over the simulated network.
struct Line {
    node: Arc<Node>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Line({})", self.node.id())
    }
}

impl Line {
    /// Sends one copy of a request; the answer goes to the sender if it still waits.
    fn send(&self, request: Request, waiting: Waiting) {
        let (node, shared) = (self.node.clone(), self.shared.clone());
        let way = shared.way();
        self.shared.begin(None, async move {
            pass(way).await;
            if shared.is_cut(node.id()) {
                shared.troubles.lock().cut += 1;
                return;
            }
            shared.troubles.lock().late += usize::from(waiting.lock().as_ref().is_some_and(oneshot::Sender::is_closed));
            let answer = node.handle(request).await;
            pass(shared.way()).await;
            if shared.draw(25) == 0 || shared.is_cut(node.id()) {
                shared.troubles.lock().answers_lost += 1;
                return;
            }
            // A sender that has given up does not receive it.
            if let Some(waits) = waiting.lock().take() {
                drop(waits.send(answer));
            }
        });
    }
}

/// Sender that waits for an answer, until one copy of its request has brought it.
type Waiting = Arc<Mutex<Option<oneshot::Sender<Result<Answer, Failure>>>>>;

impl Connection for Line {
    fn call(&self, request: Request) -> ReplyFuture {
        let (waits, mut answered) = oneshot::channel();
        let waiting: Waiting = Arc::new(Mutex::new(Some(waits)));
        let copies = match self.shared.draw(50) {
            0 | 1 => 0,
            2 | 3 => 2,
            4 => 3,
            _ => 1,
        };
        self.shared.troubles.lock().requests_lost += usize::from(copies == 0);
        self.shared.troubles.lock().doubled += usize::from(copies > 1);
        for _ in 0..copies {
            self.send(request.clone(), waiting.clone());
        }
        // The tasks that answer hold the sending end; this future holds it too until the time
        // limit.
        ReplyFuture::deferred(async move {
            let late = pass(LOST_AFTER);
            let answer = tokio::select! {
                biased;
                Ok(answer) = &mut answered => answer,
                () = late => Err(Failure::Lost("no answer came in time".into())),
            };
            drop(waiting);
            answer
        })
    }
}

/// All tasks, and their clock.
struct World {
    shared: Arc<Shared>,
    running: Vec<Running>,
    time: SimulatedTime,
}

impl World {
    fn new(seed: u64, nodes: u32) -> Self {
        let time = SimulatedTime::begin();
        let mut dice = Dice(seed);
        let start = node::now();
        let mut cuts = Vec::new();
        for _ in 0..dice.below(3) {
            let node = NodeId(1 + u32::try_from(dice.below(nodes as usize)).unwrap());
            let from = start + Duration::from_millis(dice.below(100) as u64);
            cuts.push((node, from, from + Duration::from_millis(dice.below(300) as u64)));
        }
        let shared = Shared {
            troubles: Mutex::default(),
            dice: Mutex::new(dice),
            begun: Mutex::default(),
            steps: AtomicUsize::new(0),
            history: Mutex::default(),
            cuts,
        };
        Self { shared: Arc::new(shared), running: Vec::new(), time }
    }

    /// Runs tasks, one random step at a time, until `done` or until none is left.
    fn run_until(&mut self, mut done: impl FnMut(&Shared) -> bool) {
        while !done(&self.shared) {
            self.running.append(&mut self.shared.begun.lock());
            if self.running.is_empty() {
                return;
            }
            let able: Vec<usize> =
                (0..self.running.len()).filter(|at| self.running[*at].flag.0.load(Relaxed)).collect();
            if able.is_empty() {
                assert!(self.time.advance(), "all wait for each other:\n{}", told(&self.shared.history.lock()));
                continue;
            }
            let at = able[self.shared.draw(able.len())];
            assert!(self.shared.steps.fetch_add(1, Relaxed) < STEPS_MAX, "it never ends");
            let running = &mut self.running[at];
            running.flag.0.store(false, Relaxed);
            let waker = Waker::from(running.flag.clone());
            if running.task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                drop(self.running.swap_remove(at));
            }
        }
    }

    /// Runs one call to its end, while all other tasks continue.
    fn wait<T: Send + 'static>(&mut self, what: impl Future<Output = T> + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let put = result.clone();
        self.shared.begin(None, async move { *put.lock() = Some(what.await) });
        self.run_until(|_| result.lock().is_some());
        let done = result.lock().take();
        done.expect("it ran until it was done")
    }

    fn kill(&mut self, client: usize) {
        self.running.append(&mut self.shared.begun.lock());
        self.running.retain(|running| running.client != Some(client));
    }
}

/// A client over the simulated network.
async fn reach(nodes: Vec<Arc<Node>>, shared: Arc<Shared>) -> Vfs {
    let line = |node: &Arc<Node>| {
        (node.id(), Arc::new(Line { node: node.clone(), shared: shared.clone() }) as Arc<dyn Connection>)
    };
    let nodes: Nodes = nodes.iter().map(line).collect();
    Vfs::new(Client::connect_all(nodes, STUBBORN).await.expect("it is stubborn"))
}

/// Runs actions one after the other, and records the start, end and result of each.
async fn live(vfs: Vfs, actions: Vec<Action>, shared: Arc<Shared>) {
    for action in actions {
        let at = {
            let mut history = shared.history.lock();
            history.push(Event { action, began: shared.steps.load(Relaxed), ended: None });
            history.len() - 1
        };
        let outcome = act(vfs.clone(), action).await.map_err(|refusal| why(&refusal));
        shared.history.lock()[at].ended = Some((shared.steps.load(Relaxed), outcome));
    }
}

/// Runs one world: checks that its clients' results are linearizable, and that nothing is left.
fn try_world(seed: u64) -> Troubles {
    let count = NODES[usize::try_from(seed).unwrap() % NODES.len()];
    let mut world = World::new(seed, count);
    let shared = world.shared.clone();
    let split = if shared.draw(3) == 0 { 2 } else { 4096 };
    let settings = NodeSettings { partitions: 16, space_wait: Duration::ZERO, split_entries: split, ..settings() };
    let pool = Pool::start(count, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE)));
    let nodes = pool.nodes().to_vec();
    let healthy = world.wait(async move { pool.over(|node| node, STUBBORN).await });
    let before = healthy.usage();
    let tree = world.wait({
        let healthy = healthy.clone();
        async move {
            let mut tree = Tree::new();
            furnish(&healthy, &mut tree).await;
            tree
        }
    });
    let clients = 2 + shared.draw(2);
    let mut sessions: Vec<Session> = Vec::new();
    for client in 0..clients {
        let vfs = world.wait(reach(nodes.clone(), shared.clone()));
        sessions.push(vfs.client.session());
        let actions = (0..3).map(|_| draw(&mut shared.dice.lock(), &tree)).collect();
        shared.begin(Some(client), live(vfs, actions, shared.clone()));
    }
    if shared.draw(2) == 0 {
        let (victim, death) = (shared.draw(clients), shared.steps.load(Relaxed) + shared.draw(250));
        world.run_until(|shared| shared.steps.load(Relaxed) >= death);
        shared.troubles.lock().deaths +=
            usize::from(world.running.iter().any(|running| running.client == Some(victim)));
        world.kill(victim);
        let (janitor, session) = (healthy.clone(), sessions[victim]);
        shared.begin(None, async move { janitor.client.recover(session).await.expect("all nodes are there") });
    }
    world.run_until(|_| false);
    look_around_in(&mut world, &healthy, &tree);
    let history = shared.history.lock().clone();
    assert!(fits(&tree, &history), "SIM_SEED={seed}: in no order it is so:\n{}", told(&history));
    nothing_is_left(&mut world, &healthy, (before, split), seed);
    *shared.troubles.lock()
}

/// Adds a final reader's view of the tree to the history.
fn look_around_in(world: &mut World, vfs: &Vfs, tree: &Tree) {
    let made = world
        .shared
        .history
        .lock()
        .iter()
        .filter_map(|event| match (&event.action, &event.ended) {
            (Action::MakeDirectory(_), Some((_, Ok(Seen::File(made))))) => Some(*made),
            _ => None,
        })
        .collect::<Vec<FileId>>();
    let directories = tree.directories.iter().copied().chain(made).map(Action::List);
    for action in directories.chain(tree.files.iter().copied().map(Action::Links)).collect::<Vec<Action>>() {
        let outcome = world.wait(act(vfs.clone(), action)).map_err(|refusal| why(&refusal));
        let last = Event { action, began: usize::MAX - 1, ended: Some((usize::MAX, outcome)) };
        world.shared.history.lock().push(last);
    }
}

fn nothing_is_left(world: &mut World, vfs: &Vfs, (before, split): (wire::SpaceUsage, u32), seed: u64) {
    let names = world.wait({
        let vfs = vfs.clone();
        async move { listed(&vfs, FileId::ROOT).await.expect("the root is there") }
    });
    for (name, _) in names {
        let vfs = vfs.clone();
        world.wait(async move { vfs.remove_tree(name.as_bytes()).await.expect("it can be removed") });
    }
    world.run_until(|_| false);
    let after = vfs.usage();
    let left = after.files - before.files;
    // The root stays split.
    assert!(left == 0 || split < 4096 && left == 16, "SIM_SEED={seed}: {left} inodes were left");
    assert!(left > 0 || after.used == before.used, "SIM_SEED={seed}: space was left");
}

#[test]
fn whatever_the_network_does_what_clients_see_has_an_order_and_nothing_is_left() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("SIM_SEED").unwrap_or(0);
    let worlds = number("SIM_SEEDS").unwrap_or(if number("SIM_SEED").is_some() { 1 } else { WORLDS });
    let mut all = Troubles::default();
    for seed in first..first + worlds {
        let Troubles { requests_lost, answers_lost, doubled, late, cut, deaths } = try_world(seed);
        all.requests_lost += requests_lost;
        all.answers_lost += answers_lost;
        all.doubled += doubled;
        all.late += late;
        all.cut += cut;
        all.deaths += deaths;
    }
    eprintln!("{worlds} worlds: {all:?}");
    let least = [all.requests_lost, all.answers_lost, all.doubled, all.late, all.cut, all.deaths].into_iter().min();
    assert!(worlds < WORLDS || least > usize::try_from(worlds / 20).ok(), "a network that is too good: {all:?}");
}
