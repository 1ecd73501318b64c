//! A world: a pool with its clients, what happens to it, and its end.

use crate::{
    clients::{create_initial_tree, execute, final_reads, random_operation},
    linearizability::Event,
    names_model::{EntryTarget, NameOperation, NameTree},
    pool::{OWNER, settings},
    simulation::{
        byte_clients::{ByteClient, ObjectClient, SharedFiles, read_object, read_range},
        byte_files::ByteFile,
        connection::{RETRY_LONG, SimConnector},
        course::Course,
        executor::{SimState, Simulation, sim_sleep},
        managers::SimManagers,
        network::{EventCounts, Host, SimEvent},
        promises,
    },
};
use client::Client;
use node::NodeSettings;
use placement::{FileId, NodeId};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use vfs::Vfs;
use wire::{Outcome, Session};

/// Length of a stripe: the shortest there is, so that files have many.
const STRIPE_BYTES: u32 = 4096;
/// Number of steps between two looks at the whole.
const LOOK_STEPS: usize = 10;
/// Time after which everything that was put off is done.
const QUIET: Duration = Duration::from_millis(800);

/// Says the seed of a world that fails.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SIM_SEED={} repeats this", self.0);
        }
    }
}

/// A pool with its clients.
pub struct World {
    pub simulation: Simulation,
    pub state: Arc<SimState>,
    pub managers: Arc<SimManagers>,
    /// A client to which the network does nothing.
    pub observer: Vfs,
    pub tree: NameTree,
    pub files: SharedFiles,
    pub bytes_directory: FileId,
    /// Entries above which a directory splits.
    pub split_entries: u32,
    /// Inodes and bytes of the empty pool.
    pub usage_before: (u64, u64),
    servers: promises::Servers,
    /// Number of clients, and of tasks of the course, that have not ended.
    running: Arc<AtomicUsize>,
}

/// Runs the world of a seed to its end; panics if a promise is broken. Returns what has happened.
pub fn run_world(seed: u64) -> EventCounts {
    let _says_seed = SeedOnPanic(seed);
    let mut world = World::new(seed);
    world.begin();
    let running = world.running.clone();
    world.run_until(|_| running.load(Relaxed) == 0);
    world.settle();
    promises::check_all(&mut world);
    world.state.network.counts()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let state = simulation.state.clone();
        let split_entries = if state.one_in(4) { 2 } else { 4096 };
        let partitions = state.rng.lock().pick(&[16, 32]);
        let settings = NodeSettings {
            partitions,
            stripe_bytes: STRIPE_BYTES,
            space_wait: Duration::ZERO,
            split_entries,
            ..settings()
        };
        let capacities: &[u64] = state.rng.lock().pick(&[&[1, 1], &[1, 1, 1], &[1, 2, 4], &[2, 1]]);
        let managers = SimManagers::start(&state, settings, capacities);
        let known: Vec<NodeId> = managers.live_nodes().iter().map(|node| node.node.id()).collect();
        let observer = simulation.wait(connect(state.clone(), Host::Observer, known));
        let usage_before = promises::usage(&state);
        let (tree, bytes_directory) = simulation.wait(create_initial(observer.clone()));
        let (files, running) = (SharedFiles::default(), Arc::default());
        Self {
            simulation,
            state,
            managers,
            observer,
            tree,
            files,
            bytes_directory,
            split_entries,
            usage_before,
            servers: promises::Servers::default(),
            running,
        }
    }

    /// Runs until `done`; looks meanwhile who serves.
    pub fn run_until(&mut self, mut done: impl FnMut(&SimState) -> bool) {
        let servers = &mut self.servers;
        self.simulation.run_until(|state| {
            if state.steps().is_multiple_of(LOOK_STEPS) {
                servers.look(state);
            }
            done(state)
        });
    }

    /// Runs one call to its end.
    pub fn wait<T: Send + 'static>(&mut self, call: impl Future<Output = T> + Send + 'static) -> T {
        self.simulation.wait(call)
    }

    /// Adds a task without which the world is not at its end.
    fn spawn_counted(&self, host: Option<Host>, task: impl Future<Output = ()> + Send + 'static) {
        let counted = RunningGuard::new(&self.running);
        self.state.spawn(host, async move {
            task.await;
            drop(counted);
        });
    }

    /// Begins the clients, and what happens to them and to the pool.
    fn begin(&mut self) {
        let mut sessions = Vec::new();
        let names = 2 + self.state.random(2);
        for number in 0..names + 3 {
            let host = Host::Client(number);
            let known = vec![NodeId(1), NodeId(2)];
            let vfs = self.simulation.wait(connect(self.state.clone(), host, known));
            sessions.push((host, vfs.client().session()));
            if number < names {
                let operations = (0..4).map(|_| random_operation(&mut self.state.rng.lock(), &self.tree)).collect();
                self.spawn_counted(Some(host), run_names(vfs, operations, self.state.clone()));
                continue;
            }
            let (state, files) = (self.state.clone(), self.files.clone());
            if number == names {
                files.lock().push(ByteFile::new_object("object".into()));
                let client = ObjectClient { vfs, state, files, at: 0 };
                self.spawn_counted(Some(host), client.run(12));
            } else {
                let client = ByteClient { vfs, state, files, directory: self.bytes_directory, number, open: None };
                self.spawn_counted(Some(host), client.run(25));
            }
        }
        if self.state.one_in(2) {
            let victim = sessions[self.state.random(sessions.len())];
            self.spawn_counted(None, die(self.state.clone(), self.observer.clone(), victim));
        }
        let course = Course { state: self.state.clone(), managers: self.managers.clone() };
        self.spawn_counted(None, course.run());
        self.state.network.set_calm(false);
    }

    /// Lets everything that was begun come to its end.
    fn settle(&mut self) {
        self.state.network.set_calm(true);
        self.state.trace(|| "the network is calm".into());
        let managers = self.managers.clone();
        let mut quiet_since = node::now();
        self.run_until(|state| {
            if state.steps().is_multiple_of(LOOK_STEPS) && !managers.is_settled() {
                quiet_since = node::now();
            }
            node::now() - quiet_since > QUIET
        });
        // Of the nodes that the observer knew, all may have left while it slept.
        let known = self.managers.live_nodes().iter().map(|node| node.node.id()).collect();
        self.observer = self.simulation.wait(connect(self.state.clone(), Host::Observer, known));
        for node in self.managers.live_nodes() {
            let done = self.wait(async move { node.work().await });
            done.unwrap_or_else(|refusal| self.state.excuse(&refusal));
        }
    }

    /// Adds a final reader's view of the tree to the history.
    pub fn read_names_back(&mut self) {
        let reads = final_reads(&self.tree, &self.state.history.lock());
        // Their own checker knows what is in it.
        let is_of_bytes =
            |read: &NameOperation| matches!(read, NameOperation::List(file) if *file == self.bytes_directory);
        let reads: Vec<NameOperation> = reads.into_iter().filter(|read| !is_of_bytes(read)).collect();
        for operation in reads {
            let outcome = self.wait(execute(self.observer.clone(), operation));
            let ended = self.state.reply(outcome).map(|reply| (usize::MAX, reply));
            self.state.history.lock().push(Event { operation, began: usize::MAX - 1, ended });
        }
    }

    /// Reads all files back.
    pub fn read_bytes_back(&mut self) -> Vec<Outcome<()>> {
        let count = self.files.lock().len();
        let read = |at: usize| {
            let (vfs, state, files) = (self.observer.clone(), self.state.clone(), self.files.clone());
            let is_object = files.lock()[at].file.is_none();
            self.simulation.wait(async move {
                if is_object {
                    return read_object(&vfs, &state, &files, at).await;
                }
                let found = read_range(&vfs, &state, &files, at, (0, 1 << 20)).await?;
                assert!(!found || !files.lock()[at].is_removed(), "a removed file is still there");
                Ok(())
            })
        };
        (0..count).map(read).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.managers.forget_nodes();
    }
}

/// A task that counts as running until it has ended or was dropped.
struct RunningGuard(Arc<AtomicUsize>);

impl RunningGuard {
    fn new(running: &Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, Relaxed);
        Self(running.clone())
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

async fn connect(state: Arc<SimState>, from: Host, known: Vec<NodeId>) -> Vfs {
    let nodes = SimConnector { state, from }.nodes(&known);
    Vfs::new(Client::connect_all(nodes, RETRY_LONG).await.expect("it never gives up"))
}

async fn create_initial(vfs: Vfs) -> (NameTree, FileId) {
    let mut tree = NameTree::new();
    create_initial_tree(&vfs, &mut tree).await;
    let top = tree.directories[1];
    let files = vfs.make_directory(top, b"files", 0o755, OWNER).await.unwrap().file;
    tree.insert_initial(top, "files", EntryTarget::Directory(files));
    (tree, files)
}

/// Ends a client at some moment, mostly while partitions move, and its session a while later.
async fn die(state: Arc<SimState>, observer: Vfs, (host, session): (Host, Session)) {
    let moment = sim_sleep(state.random_time(Duration::from_secs(1)));
    tokio::select! {
        biased;
        () = state.move_began.notified() => sim_sleep(state.random_time(Duration::from_millis(8))).await,
        () = moment => {}
    }
    state.network.count(SimEvent::ClientDied);
    state.kill(host);
    sim_sleep(state.random_time(Duration::from_millis(200))).await;
    if let Err(refusal) = observer.client().recover(session).await {
        state.excuse(&refusal);
    }
}

/// Executes operations one after the other, and records the start, end and result of each.
async fn run_names(vfs: Vfs, operations: Vec<NameOperation>, state: Arc<SimState>) {
    for operation in operations {
        state.pause_of_a_client().await;
        let at = {
            let mut history = state.history.lock();
            history.push(Event { operation, began: state.steps(), ended: None });
            history.len() - 1
        };
        let reply = state.reply(execute(vfs.clone(), operation).await);
        state.history.lock()[at].ended = reply.map(|reply| (state.steps(), reply));
    }
    state.end_session(&vfs).await;
}
