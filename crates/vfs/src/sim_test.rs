//! A simulation: the real clients, partitions and intents on one thread, over a network and by a clock that a seed rules.
//!
//! Requests and answers are lost, doubled and overtake each other; a request may arrive long after its sender has given it up, or
//! is no more; nodes are cut off for a while; clients die, and are recovered from while the others go on. What each client is
//! answered must be what a plain file system would have answered in some order (`linear_model`), and nothing may be left.
//!
//! `SIM_SEEDS` says how many worlds there are, `SIM_SEED` which is the first: that of a failure shows it again, step by step.

use crate::{
    Vfs,
    linear_model::*,
    linear_test::{Dice, act, draw, furnish, listed, told, why},
    pool_test::*,
};
use client::{Client, Connection, Nodes, Patience};
use node::{Node, Reply, Settings, SimulatedTime, sleep_until};
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
use store::Model;
use tokio::sync::oneshot;
use wire::{Answer, Failure, Request, Session};

/// Worlds, unless `SIM_SEEDS` says otherwise.
const WORLDS: u64 = 300;
/// Far more steps than any world takes; one that needs more never ends.
const STEPS_MAX: usize = 2_000_000;
/// A sender takes its request for lost when so much time has passed without an answer.
const LOST_AFTER: Duration = Duration::from_millis(40);
/// The longest way of a message: longer than its sender waits.
const WAY_MAX_MICROS: usize = 100_000;
/// What most messages take.
const WAY_MICROS: usize = 500;
/// So seldom that a client never gives up: time costs nothing here.
const STUBBORN: Patience =
    Patience { tries: 200, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(30) };

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Is set when a task can go on.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Running {
    task: Task,
    flag: Arc<Flag>,
    /// Which client it is a part of, if of any: it dies with it.
    client: Option<usize>,
}

/// How often what went wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Troubles {
    requests_lost: usize,
    answers_lost: usize,
    doubled: usize,
    /// Done after the sender had given it up.
    late: usize,
    cut: usize,
    /// Clients that died while they did something.
    deaths: usize,
}

/// What all parts of a world share.
struct Shared {
    troubles: Mutex<Troubles>,
    dice: Mutex<Dice>,
    /// Tasks that begin.
    begun: Mutex<Vec<Running>>,
    /// How many steps were taken: the order of what happens.
    steps: AtomicUsize,
    history: Mutex<Vec<Event>>,
    /// From when to when a node is reached by nobody.
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

    /// How long a message is on its way.
    fn way(&self) -> Duration {
        let most = if self.draw(50) == 0 { WAY_MAX_MICROS } else { WAY_MICROS };
        Duration::from_micros(self.draw(most) as u64)
    }
}

async fn pass(time: Duration) {
    sleep_until(node::now() + time).await;
}

/// A way to a node, over the network of the world.
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
    /// One copy of a request on its way; the answer goes to whoever still waits for it.
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
            // Whoever has given it up does not hear.
            if let Some(waits) = waiting.lock().take() {
                drop(waits.send(answer));
            }
        });
    }
}

/// Whoever waits for an answer, until one of the copies of its request has brought it.
type Waiting = Arc<Mutex<Option<oneshot::Sender<Result<Answer, Failure>>>>>;

impl Connection for Line {
    fn call(&self, request: Request) -> Reply {
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
        // Those who answer hold the other end; so does this, until the time is over.
        Reply::later(async move {
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

/// All tasks, and the time by which they sleep.
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

    /// Lets tasks go on, one step of one of them at a time, until `done` or until none is left.
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

    /// Does one thing, while all others go on.
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

/// A client over the network.
async fn reach(nodes: Vec<Arc<Node>>, shared: Arc<Shared>) -> Vfs {
    let line = |node: &Arc<Node>| {
        (node.id(), Arc::new(Line { node: node.clone(), shared: shared.clone() }) as Arc<dyn Connection>)
    };
    let nodes: Nodes = nodes.iter().map(line).collect();
    Vfs::new(Client::connect_all(nodes, STUBBORN).await.expect("it is stubborn"))
}

/// Does one after the other, and notes when and with what each began and ended.
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

/// One world: what its clients saw fits, and nothing is left of it.
fn try_world(seed: u64) -> Troubles {
    let count = NODES[usize::try_from(seed).unwrap() % NODES.len()];
    let mut world = World::new(seed, count);
    let shared = world.shared.clone();
    let split = if shared.draw(3) == 0 { 2 } else { 4096 };
    let settings = Settings { partitions: 16, space_wait: Duration::ZERO, split_entries: split, ..settings() };
    let pool = Pool::start(count, &settings, || Arc::new(Model::new(64 << 20, STRIPE)));
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

/// What is left is looked at by one who comes after all.
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

fn nothing_is_left(world: &mut World, vfs: &Vfs, (before, split): (wire::Usage, u32), seed: u64) {
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
