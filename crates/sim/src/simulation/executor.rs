//! The executor: polls one task at a time, chosen at random among those that can continue. When all
//! wait, the clock advances to the next timer. So the same seed gives the same run, step by step.

use crate::{
    linearizability::format_history,
    names_model::NameEvent,
    simulation::network::{Host, Network},
};
use node::{SimulatedTime, sleep_until};
use parking_lot::Mutex;
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
use test_support::Random;
use tokio::sync::Notify;

/// Step limit, far beyond any run; one that needs more never ends.
const STEPS_MAX: usize = 300_000;

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
    /// The host whose task this is, if any; the task dies with it.
    host: Option<Host>,
}

/// Shared state of the tasks of a simulation.
pub struct SimState {
    pub network: Network,
    /// Source of all decisions.
    pub rng: Mutex<Random>,
    /// Operations on names of all clients, so far.
    pub history: Mutex<Vec<NameEvent>>,
    /// Notified when a move begins, so that clients use the pool meanwhile.
    pub move_began: Notify,
    /// Notified when a node that leaves ends its connections.
    pub node_left: Notify,
    /// New tasks.
    spawned: Mutex<Vec<SimTask>>,
    /// True if a host has died whose tasks are still there.
    any_killed: AtomicBool,
    /// Number of steps taken; it orders the events of the history.
    steps: AtomicUsize,
    began: Instant,
    traces: bool,
}

impl SimState {
    /// A random number below `end`.
    pub fn random(&self, end: usize) -> usize {
        self.rng.lock().below(end)
    }

    /// True once in `times` on average.
    pub fn one_in(&self, times: u64) -> bool {
        self.rng.lock().one_in(times)
    }

    /// A random time below `most`.
    pub fn random_time(&self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.lock().below(u64::try_from(most.as_micros()).unwrap()))
    }

    /// Number of steps taken so far.
    pub fn steps(&self) -> usize {
        self.steps.load(Relaxed)
    }

    /// Adds a task, which dies with its host if it has one.
    pub fn spawn(&self, host: Option<Host>, task: impl Future<Output = ()> + Send + 'static) {
        let flag = Arc::new(ReadyFlag(AtomicBool::new(true)));
        self.spawned.lock().push(SimTask { future: Box::pin(task), flag, host });
    }

    /// Says what happens, if `SIM_TRACE` is set.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.traces {
            eprintln!("{:?} step {}: {}", node::now() - self.began, self.steps(), what());
        }
    }

    /// Ends a host: it is not reached any more, and its tasks take no further step.
    pub fn kill(&self, host: Host) {
        self.trace(|| format!("{host:?} ends"));
        self.network.bury(host);
        self.any_killed.store(true, Relaxed);
    }
}

/// Waits for a while of simulated time.
pub async fn sim_sleep(time: Duration) {
    sleep_until(node::now() + time).await;
}

/// All tasks, and their clock.
pub struct Simulation {
    /// State that the tasks share.
    pub state: Arc<SimState>,
    tasks: Vec<SimTask>,
    time: SimulatedTime,
}

impl Simulation {
    /// A simulation of this seed.
    pub fn new(seed: u64) -> Self {
        let time = SimulatedTime::begin();
        let mut rng = Random::new(seed);
        let state = SimState {
            network: Network::new(&mut rng),
            rng: Mutex::new(rng),
            history: Mutex::default(),
            move_began: Notify::new(),
            node_left: Notify::new(),
            spawned: Mutex::default(),
            any_killed: AtomicBool::new(false),
            steps: AtomicUsize::new(0),
            began: node::now(),
            traces: env::var_os("SIM_TRACE").is_some(),
        };
        Self { state: Arc::new(state), tasks: Vec::new(), time }
    }

    /// Runs tasks, one random step at a time, until `done`.
    pub fn run_until(&mut self, mut done: impl FnMut(&SimState) -> bool) {
        while !done(&self.state) {
            self.tasks.append(&mut self.state.spawned.lock());
            if self.state.any_killed.swap(false, Relaxed) {
                self.drop_tasks_of_the_dead();
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

    /// Drops the tasks of dead hosts. What is dropped may begin new ones.
    fn drop_tasks_of_the_dead(&mut self) {
        let network = &self.state.network;
        self.tasks.retain(|task| task.host.is_none_or(|host| network.is_alive(host)));
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
}

impl Drop for Simulation {
    /// Drops the tasks while their time is still the simulated one.
    fn drop(&mut self) {
        self.tasks.clear();
        self.state.spawned.lock().clear();
    }
}
