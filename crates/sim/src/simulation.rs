//! Deterministic simulation of a pool: real clients, partitions and transactions on one thread,
//! over a network and a clock that a seed controls.
//!
//! Requests and answers are lost, duplicated and reordered. A request may arrive long after its
//! sender has given it up or has died. Nodes are unreachable for a while. Clients die, and their
//! sessions are recovered while others continue.
//!
//! The executor polls one task at a time, chosen at random among those that can continue. When all
//! wait, the clock advances to the next timer. So the same seed gives the same run, step by step.

use crate::{
    clients::{execute, final_reads},
    linearizability::{Event, format_history},
    names_model::{NameError, NameEvent, NameOperation, NameTree},
};
use client::{Client, Connection, Nodes, RetryPolicy};
use node::{Node, ReplyFuture, SimulatedTime, sleep_until};
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};
use test_support::Random;
use tokio::sync::oneshot;
use vfs::Vfs;
use wire::{Answer, Failure, Request};

/// Step limit, far beyond any run; one that needs more never ends.
const STEPS_MAX: usize = 2_000_000;
/// Time without an answer after which a sender counts its request as lost.
const LOST_AFTER: Duration = Duration::from_millis(40);
/// Longest latency of a message: longer than its sender waits.
const LATENCY_MAX_MICROS: usize = 100_000;
/// Longest latency of most messages.
const LATENCY_MICROS: usize = 500;
/// Retry policy with so many tries that a client never gives up; simulated time costs nothing.
pub const RETRY_LONG: RetryPolicy =
    RetryPolicy { tries: 200, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(30) };

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Flag that is set when a task can continue.
struct ReadyFlag(AtomicBool);

impl Wake for ReadyFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct SimTask {
    future: TaskFuture,
    flag: Arc<ReadyFlag>,
    /// The client whose task this is, if any; the task dies with it.
    client: Option<usize>,
}

/// Number of faults of each kind that the network has injected.
#[derive(Clone, Copy, Debug, Default)]
pub struct InjectedFaults {
    /// Requests that never arrived.
    pub requests_lost: usize,
    /// Answers that never arrived.
    pub answers_lost: usize,
    /// Requests that arrived more than once.
    pub duplicated: usize,
    /// Requests executed after the sender had given them up.
    pub late: usize,
    /// Requests to an unreachable node.
    pub unreachable: usize,
    /// Clients that died during an operation.
    pub crashes: usize,
}

/// Shared state of the tasks of a simulation.
pub struct SimState {
    /// Faults so far.
    pub faults: Mutex<InjectedFaults>,
    /// Source of all decisions.
    pub rng: Mutex<Random>,
    /// Operations of all clients, so far.
    pub history: Mutex<Vec<NameEvent>>,
    /// New tasks.
    spawned: Mutex<Vec<SimTask>>,
    /// Number of steps taken; it orders the events of the history.
    steps: AtomicUsize,
    /// Node and time interval of each network partition.
    outages: Vec<(NodeId, Instant, Instant)>,
}

impl SimState {
    /// A random number below `end`.
    pub fn random(&self, end: usize) -> usize {
        self.rng.lock().below(end)
    }

    /// Number of steps taken so far.
    pub fn steps(&self) -> usize {
        self.steps.load(Relaxed)
    }

    /// Adds a task, which dies with its client if it has one.
    pub fn spawn(&self, client: Option<usize>, task: impl Future<Output = ()> + Send + 'static) {
        let flag = Arc::new(ReadyFlag(AtomicBool::new(true)));
        self.spawned.lock().push(SimTask { future: Box::pin(task), flag, client });
    }

    fn is_unreachable(&self, node: NodeId) -> bool {
        let now = node::now();
        self.outages.iter().any(|(other, from, to)| *other == node && (*from..*to).contains(&now))
    }

    /// Random latency of a message.
    fn latency(&self) -> Duration {
        let most = if self.random(50) == 0 { LATENCY_MAX_MICROS } else { LATENCY_MICROS };
        Duration::from_micros(self.random(most) as u64)
    }
}

async fn sim_sleep(time: Duration) {
    sleep_until(node::now() + time).await;
}

/// Connection to a node, over the simulated network.
struct SimConnection {
    node: Arc<Node>,
    state: Arc<SimState>,
}

impl fmt::Debug for SimConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SimConnection({})", self.node.id())
    }
}

/// Sender of the answer, until one copy of the request has brought it.
type AnswerSlot = Arc<Mutex<Option<oneshot::Sender<Result<Answer, Failure>>>>>;

impl SimConnection {
    /// Sends one copy of a request; the answer goes to the sender if it still waits.
    fn send(&self, request: Request, slot: AnswerSlot) {
        let (node, state) = (self.node.clone(), self.state.clone());
        let latency = state.latency();
        self.state.spawn(None, async move {
            sim_sleep(latency).await;
            if state.is_unreachable(node.id()) {
                state.faults.lock().unreachable += 1;
                return;
            }
            state.faults.lock().late += usize::from(slot.lock().as_ref().is_some_and(oneshot::Sender::is_closed));
            let answer = node.handle(request).await;
            sim_sleep(state.latency()).await;
            if state.random(25) == 0 || state.is_unreachable(node.id()) {
                state.faults.lock().answers_lost += 1;
                return;
            }
            // A sender that has given up does not receive it.
            if let Some(sender) = slot.lock().take() {
                drop(sender.send(answer));
            }
        });
    }
}

impl Connection for SimConnection {
    fn call(&self, request: Request) -> ReplyFuture {
        let (sender, mut answered) = oneshot::channel();
        let slot: AnswerSlot = Arc::new(Mutex::new(Some(sender)));
        let copies = match self.state.random(50) {
            0 | 1 => 0,
            2 | 3 => 2,
            4 => 3,
            _ => 1,
        };
        self.state.faults.lock().requests_lost += usize::from(copies == 0);
        self.state.faults.lock().duplicated += usize::from(copies > 1);
        for _ in 0..copies {
            self.send(request.clone(), slot.clone());
        }
        // The tasks that answer hold the sending end; this future holds it too until the time
        // limit.
        ReplyFuture::deferred(async move {
            let late = sim_sleep(LOST_AFTER);
            let answer = tokio::select! {
                biased;
                Ok(answer) = &mut answered => answer,
                () = late => Err(Failure::Lost("no answer came in time".into())),
            };
            drop(slot);
            answer
        })
    }
}

/// All tasks, and their clock.
pub struct Simulation {
    /// State that the tasks share.
    pub state: Arc<SimState>,
    tasks: Vec<SimTask>,
    time: SimulatedTime,
}

impl Simulation {
    /// A simulation of this seed, in which some of the pool's nodes are unreachable for a while.
    pub fn new(seed: u64, nodes: u32) -> Self {
        let time = SimulatedTime::begin();
        let mut rng = Random::new(seed);
        let start = node::now();
        let mut outages = Vec::new();
        for _ in 0..rng.below(3) {
            let node = NodeId(1 + rng.below(nodes));
            let from = start + Duration::from_millis(rng.below(100));
            outages.push((node, from, from + Duration::from_millis(rng.below(300))));
        }
        let state = SimState {
            faults: Mutex::default(),
            rng: Mutex::new(rng),
            spawned: Mutex::default(),
            steps: AtomicUsize::new(0),
            history: Mutex::default(),
            outages,
        };
        Self { state: Arc::new(state), tasks: Vec::new(), time }
    }

    /// Runs tasks, one random step at a time, until `done` or until none is left.
    pub fn run_until(&mut self, mut done: impl FnMut(&SimState) -> bool) {
        while !done(&self.state) {
            self.tasks.append(&mut self.state.spawned.lock());
            if self.tasks.is_empty() {
                return;
            }
            let ready: Vec<usize> = (0..self.tasks.len()).filter(|at| self.tasks[*at].flag.0.load(Relaxed)).collect();
            if ready.is_empty() {
                let history = || format_history(&self.state.history.lock());
                assert!(self.time.advance(), "all wait for each other:\n{}", history());
                continue;
            }
            let at = ready[self.state.random(ready.len())];
            assert!(self.state.steps.fetch_add(1, Relaxed) < STEPS_MAX, "the run never ends");
            let task = &mut self.tasks[at];
            task.flag.0.store(false, Relaxed);
            let waker = Waker::from(task.flag.clone());
            if task.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                drop(self.tasks.swap_remove(at));
            }
        }
    }

    /// Runs one call to its end, while all other tasks continue.
    pub fn wait<T: Send + 'static>(&mut self, call: impl Future<Output = T> + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let put = result.clone();
        self.state.spawn(None, async move { *put.lock() = Some(call.await) });
        self.run_until(|_| result.lock().is_some());
        let done = result.lock().take();
        done.expect("it ran until it was done")
    }

    /// Drops a client's tasks, as if it had crashed.
    pub fn crash(&mut self, client: usize) {
        self.state.faults.lock().crashes += usize::from(self.tasks.iter().any(|task| task.client == Some(client)));
        self.tasks.append(&mut self.state.spawned.lock());
        self.tasks.retain(|task| task.client != Some(client));
    }

    /// Adds a final reader's view of the tree to the history.
    pub fn read_back(&mut self, vfs: &Vfs, tree: &NameTree) {
        let reads = final_reads(tree, &self.state.history.lock());
        for operation in reads {
            let outcome = self.wait(execute(vfs.clone(), operation)).map_err(|refusal| NameError::from(&refusal));
            let last = Event { operation, began: usize::MAX - 1, ended: Some((usize::MAX, outcome)) };
            self.state.history.lock().push(last);
        }
    }
}

/// Connects a client over the simulated network.
pub async fn connect(nodes: Vec<Arc<Node>>, state: Arc<SimState>) -> Vfs {
    let connection = |node: &Arc<Node>| {
        (node.id(), Arc::new(SimConnection { node: node.clone(), state: state.clone() }) as Arc<dyn Connection>)
    };
    let nodes: Nodes = nodes.iter().map(connection).collect();
    Vfs::new(Client::connect_all(nodes, RETRY_LONG).await.expect("it never gives up"))
}

/// Executes operations one after the other, and records the start, end and result of each.
pub async fn run_client(vfs: Vfs, operations: Vec<NameOperation>, state: Arc<SimState>) {
    for operation in operations {
        let at = {
            let mut history = state.history.lock();
            history.push(Event { operation, began: state.steps(), ended: None });
            history.len() - 1
        };
        let outcome = execute(vfs.clone(), operation).await.map_err(|refusal| NameError::from(&refusal));
        state.history.lock()[at].ended = Some((state.steps(), outcome));
    }
}
