//! A node: its state, and the entry point for requests.

use crate::{
    BackingFd, NodeSettings, ReplyFuture, WorkerKind,
    awaited_sessions::AwaitedSessions,
    background::BackgroundWork,
    clock,
    connected_clients::ConnectedClients,
    demotion::DemotionQueue,
    execute::CommandCall,
    extent_ops::{AppendLocks, ExtentCall},
    extents::ExtentSlots,
    host_files::HostFiles,
    hosted::{FinishCall, HostedFiles},
    lock_queue::LockQueue,
    map_entries::EntryCheck,
    metrics::NodeMetrics,
    migration::{Arrivals, Departures, ForwardingStore, MovePace, NodeMoves},
    observe::is_traced,
    open_leases::OpenLeases,
    partitions::LocalPartitions,
    process_liveness::ProcessMonitor,
    session_index::SessionIndex,
    space::{EngineFull, SpaceWaiters},
    strays::StrayStripes,
    subscriber_set::SubscriberSet,
    thinning::ThinningQueue,
};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use placement::{FileId, NodeId, PartitionMap};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use store::{Engine, PendingOperation, SharedMemory, StoreCompletion, StripeKey, StripeStore};
use tokio::sync::Notify;
use wire::{
    Answer, Body, Command, Extent, Failure, HelloReply, Object, OpenFlags, Outcome, Refusal, Request, Session,
    SpaceUsage,
};

/// Bits that count the sessions of one second. The bits above hold the start time, so that a
/// restarted node does not reuse a session of its earlier run.
const SESSIONS_BITS: u32 = 16;
/// Seconds after which start times repeat: 24 days. At least half of a node's counts are left.
const START_SECONDS: u64 = 1 << 21;

/// A node: the partitions that it holds, and the engine with their bytes.
pub struct Node {
    id: NodeId,
    settings: NodeSettings,
    pub(crate) map: RwLock<Arc<PartitionMap>>,
    /// Held while an entry of the map is learnt.
    pub(crate) learning: Mutex<()>,
    /// Wakes requests that wait for an entry of the map.
    pub(crate) learned: Notify,
    /// Notified when a request knows a later entry of the map than this node.
    pub(crate) behind: Notify,
    pub(crate) partitions: LocalPartitions,
    /// The stripes; what changes them is forwarded while their partition is moved.
    pub(crate) engine: Arc<dyn StripeStore>,
    pub(crate) forwarding: Arc<ForwardingStore>,
    pub(crate) departures: Departures,
    pub(crate) arrivals: Arrivals,
    pub(crate) moves: NodeMoves,
    pub(crate) move_pace: MovePace,
    shared_memory: Option<Arc<dyn SharedMemory>>,
    pub(crate) host_files: HostFiles,
    pub(crate) hosted: HostedFiles,
    pub(crate) subscribers: SubscriberSet,
    pub(crate) extents: Arc<ExtentSlots>,
    pub(crate) append_locks: AppendLocks,
    pub(crate) demotions: DemotionQueue,
    pub(crate) thinning_queue: ThinningQueue,
    pub(crate) space: Arc<SpaceWaiters>,
    pub(crate) lock_queue: LockQueue,
    pub(crate) open_leases: OpenLeases,
    pub(crate) process_monitor: ProcessMonitor,
    pub(crate) clients: ConnectedClients,
    pub(crate) session_index: SessionIndex,
    pub(crate) awaited_sessions: AwaitedSessions,
    pub(crate) stray_stripes: StrayStripes,
    pub(crate) background: BackgroundWork,
    /// The count of the session given last; and its value before the first session was given.
    sessions: AtomicU64,
    sessions_before: u64,
    pub(crate) files: AtomicU64,
    /// Estimate of the capacity of the whole pool: partitions are distributed by memory.
    pub(crate) pool_bytes: u64,
    stop: OnceLock<StopHook>,
    manager: OnceLock<ManagerHook>,
    manager_state: OnceLock<ManagerStateHook>,
    /// Set once the node records metrics.
    pub(crate) metrics: OnceLock<Box<NodeMetrics>>,
}

/// Answers messages about the nodes of the pool.
pub type ManagerHook = Box<dyn Fn(Bytes) -> ReplyFuture + Send + Sync>;

/// Tells how far the node's manager is, for its metrics.
pub type ManagerStateHook = Box<dyn Fn() -> ManagerState + Send + Sync>;

/// What a node's metrics tell of its manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerState {
    /// True if it leads.
    pub leads: bool,
    /// Entries of the managers' log that it has applied.
    pub entries: u64,
}

/// Called when a node is asked to end, on the thread that serves the request: it must not block.
pub type StopHook = Box<dyn Fn() + Send + Sync>;

/// Makes a node in this process that holds every partition. A client connects to it with
/// `client::Client::embedded`.
///
/// Panics on settings that no pool can have (partitions not a power of two, stripes longer than the
/// engine's).
pub fn embedded(settings: NodeSettings, engine: Arc<dyn Engine>) -> Arc<Node> {
    let id = NodeId(1);
    let map = PartitionMap::one_node(id, settings.partitions).expect("the partition count of the settings is valid");
    Node::in_pool(id, map, settings, engine)
}

impl Node {
    /// Makes one of the nodes of a pool. It holds the partitions that the map gives it, and the
    /// root directory if the first partition is among them. All nodes of a pool are started with
    /// the same map and, except for `memory`, the same settings.
    ///
    /// Panics on settings that no pool can have, on a partition count other than the map's, and on
    /// an id of 0 or above 65,535.
    pub fn in_pool(id: NodeId, map: PartitionMap, settings: NodeSettings, engine: Arc<dyn Engine>) -> Arc<Self> {
        let extents = ExtentSlots::new(id, engine.extents());
        let shared_memory = engine.clone().shared_memory();
        let open_leases = OpenLeases::new(engine.clone().placeholders());
        let forwarding = Arc::new(ForwardingStore::new(engine.stripes(), settings.partitions));
        let engine: Arc<dyn StripeStore> = forwarding.clone();
        assert!(
            settings.stripe_bytes <= engine.stripe_bytes(),
            "the stripes of the settings are longer than the engine's"
        );
        assert!(settings.stripe_bytes.is_power_of_two(), "the length of a stripe is a power of two");
        assert_eq!(map.partitions(), settings.partitions, "the map has the partitions of the settings");
        assert!(Session::of_node(id).is_some(), "an id of a node has 16 bits, and is not 0");
        let space = Arc::new(SpaceWaiters::new(settings.space_wait));
        let hook = space.clone();
        engine.on_freed(Arc::new(move || hook.notify_freed()));
        let session_index = SessionIndex::new(map.partitions());
        let partitions = LocalPartitions::new(id, &map, &settings);
        let held = map.partition_counts().get(&id).copied().unwrap_or(0).max(1);
        let pool_bytes = settings.memory.0.saturating_mul(map.partitions().into()) / u64::from(held);
        let sessions_before = (clock::now().secs.unsigned_abs() % START_SECONDS) << SESSIONS_BITS;
        let files = u64::from(partitions.serves(FileId::ROOT.partition()));
        Arc::new(Self {
            id,
            settings,
            map: RwLock::new(Arc::new(map)),
            learning: Mutex::default(),
            learned: Notify::new(),
            behind: Notify::new(),
            partitions,
            engine,
            forwarding,
            departures: Departures::default(),
            arrivals: Arrivals::default(),
            moves: NodeMoves::default(),
            move_pace: MovePace::default(),
            shared_memory,
            host_files: HostFiles::default(),
            hosted: HostedFiles::default(),
            subscribers: SubscriberSet::default(),
            extents,
            append_locks: AppendLocks::default(),
            demotions: DemotionQueue::default(),
            thinning_queue: ThinningQueue::default(),
            lock_queue: LockQueue::default(),
            open_leases,
            process_monitor: ProcessMonitor::default(),
            clients: ConnectedClients::default(),
            session_index,
            awaited_sessions: AwaitedSessions::default(),
            stray_stripes: StrayStripes::default(),
            background: BackgroundWork::default(),
            space,
            sessions: AtomicU64::new(sessions_before),
            sessions_before,
            files: AtomicU64::new(files),
            pool_bytes,
            stop: OnceLock::new(),
            manager: OnceLock::new(),
            manager_state: OnceLock::new(),
            metrics: OnceLock::new(),
        })
    }

    /// Answers a request: at once, unless it must wait.
    pub fn handle(self: &Arc<Self>, request: Request) -> ReplyFuture {
        if self.metrics.get().is_some() || is_traced() {
            return self.answer_observed(request);
        }
        self.answer(request)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "copies of request and reply would cost a small request 1 %")]
    pub(crate) fn answer(self: &Arc<Self>, request: Request) -> ReplyFuture {
        let Request { epoch, session, skip_ack, partition, body } = request;
        let of_partition = matches!(body, Body::Meta { .. } | Body::Stripe { .. } | Body::Walk { .. });
        if of_partition {
            match self.check_entry(partition, epoch) {
                EntryCheck::Serve => {}
                EntryCheck::Refuse(refusal) => {
                    self.note_moved_lock(body.command());
                    return ReplyFuture::ready(Err(Failure::Refused(refusal)));
                }
                EntryCheck::Wait => return self.wait_for_entry(Request { epoch, session, skip_ack, partition, body }),
            }
        }
        match body {
            Body::Hello => ReplyFuture::ready(self.handshake(session).map_err(Failure::Refused)),
            Body::Usage => ReplyFuture::ready(Ok(Answer::Usage(self.usage()))),
            Body::Workers => ReplyFuture::ready(Ok(Answer::Workers(self.workers()))),
            Body::Stop => ReplyFuture::ready(self.call_stop_hook().map_err(Failure::Refused)),
            Body::Meta { request_id, command } => {
                let command = Some(command);
                self.execute(CommandCall { skip_ack, request_id, command, ..CommandCall::new(session, partition) })
            }
            Body::Extent { request_id, file, extent, action } => {
                self.execute_extent(ExtentCall { request_id, file, extent, action })
            }
            Body::Finish { request_id, file, command, answer } => {
                self.finish(FinishCall { request_id, file, command: *command, answer: *answer })
            }
            Body::NoteUnused { file } => self.note_unused(file),
            Body::NoteLock { file, lock } => {
                ReplyFuture::ready(self.note_lock(file, lock).map(Answer::LockOwner).map_err(Failure::Refused))
            }
            Body::Stripe { file, stripe, action } => {
                self.execute_stripe(session, StripeKey { partition, file, stripe }, action)
            }
            Body::Move { step } => self.receive_move(partition, epoch, step),
            Body::Manage { message } => self.call_manager(message),
            Body::ProbeLease { lease } => ReplyFuture::ready(Ok(Answer::LeaseStatus(self.probe_lease(lease)))),
            Body::EndSession { session } => match self.check_session(session) {
                Ok(()) => self.close_session(session),
                Err(refusal) => ReplyFuture::ready(Err(Failure::Refused(refusal))),
            },
            Body::EndMovedSession { session, left: false } => self.close_session(session),
            Body::EndMovedSession { session, left: true } => {
                self.await_session(session);
                ReplyFuture::ready(Ok(Answer::Closed(Vec::new())))
            }
            Body::FindLeases { device, inode, after } => {
                ReplyFuture::ready(Ok(Answer::OpenLeases(self.find_leases((device, inode), after))))
            }
            Body::Walk { start, components, credentials, action } => {
                self.walk_path((session, skip_ack), (start, &components, credentials), action.map(|action| *action))
            }
        }
    }

    /// Sets the hook that ends the node when a client asks for that. Without a hook such a request
    /// is refused. Only the first hook set counts.
    pub fn on_stop(&self, hook: StopHook) {
        let _ = self.stop.set(hook);
    }

    /// Sets what answers messages about the nodes of the pool. Without it they are refused. Only
    /// the first one set counts.
    pub fn on_manage(&self, hook: ManagerHook) {
        let _ = self.manager.set(hook);
    }

    /// Sets what tells how far the manager is. Only the first one set counts.
    pub fn on_manager_state(&self, hook: ManagerStateHook) {
        let _ = self.manager_state.set(hook);
    }

    /// How far the node's manager is; nothing if it has none.
    pub fn manager_state(&self) -> ManagerState {
        self.manager_state.get().map_or_else(ManagerState::default, |hook| hook())
    }

    fn call_manager(&self, message: Bytes) -> ReplyFuture {
        if let Some(manager) = self.manager.get() {
            return manager(message);
        }
        let what = "growing and shrinking a pool in the memory of a process".into();
        ReplyFuture::ready(Err(Refusal::Unsupported { object: Object::Pool, what }.into()))
    }

    fn call_stop_hook(&self) -> Outcome<Answer> {
        let no_hook = || Refusal::Unsupported { object: Object::Pool, what: "ending a node of another process".into() };
        self.stop.get().ok_or_else(no_hook)?();
        Ok(Answer::Done)
    }

    /// Returns how full the pool is, and how many requests wait for space.
    pub fn usage(&self) -> SpaceUsage {
        self.extents.retire_idle();
        self.turn(WorkerKind::Thinning);
        let held = self.engine.usage();
        let (waiting, waited, refused) = self.space.counts();
        let files = self.files.load(Relaxed);
        let (capacity, used, stripes, own_room) = (held.capacity, held.used, held.stripes, held.extent_free);
        SpaceUsage { capacity, used, files, stripes, waiting, waited, refused, extent_free: own_room }
    }

    /// Lets requests wait for space for so long, while the pool may grow by itself; zero if it does
    /// not.
    pub fn set_growth_wait(&self, wait: Duration) {
        self.space.set_growth_wait(wait);
    }

    /// The most bytes that the node's memory ever held; see [`store::StripeStore::peak`].
    pub fn peak(&self) -> u64 {
        self.engine.peak()
    }

    /// Returns the descriptor of an extent, for a frontend in this process. `None` if the extent
    /// has been given to another file, if its bytes are not in a file, or if writing is asked for
    /// while the pool is more than half full.
    pub fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        let backing = BackingFd::new(&self.extents, extent, flags)?;
        (!flags.write || self.extents.engine().reserve_headroom()).then_some(backing)
    }

    /// The engine's memory, for other processes to map. `None` if the engine cannot share it.
    pub fn shared_memory(&self) -> Option<Arc<dyn SharedMemory>> {
        self.shared_memory.clone()
    }

    /// True if the engine has extents, so that there can be extent files.
    pub fn supports_extent_files(&self) -> bool {
        self.extents.is_supported()
    }

    /// The id of this node in its pool.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The settings that the node was started with.
    pub fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// Answers a hello: with a new session, or with the caller's own if it names one that a node of
    /// the pool has begun.
    fn handshake(&self, session: Session) -> Outcome<Answer> {
        let session = match session {
            Session::NONE => self.begin_session()?,
            known => {
                self.check_session(known)?;
                self.awaited_sessions.remove(known);
                known
            }
        };
        let (node, seed, stripe_bytes) = (self.id, self.settings.seed, self.settings.stripe_bytes);
        Ok(Answer::Hello(HelloReply { node, session, map: self.map.read().clone(), seed, stripe_bytes }))
    }

    fn begin_session(&self) -> Outcome<Session> {
        let none_left = || Refusal::invalid(Object::Pool, "this node has given all its sessions");
        Session::new(self.id, self.sessions.fetch_add(1, Relaxed) + 1).ok_or_else(none_left)
    }

    fn check_session(&self, known: Session) -> Outcome<()> {
        match known.origin() {
            (node, count)
                if node == self.id && !(self.sessions_before + 1..=self.sessions.load(Relaxed)).contains(&count) =>
            {
                Err(Refusal::invalid(Object::Pool, "a session was named that this node has not given"))
            }
            // Sessions of count 0 are those of nodes: opens and locks of programs of their hosts.
            (NodeId(0), _) | (_, 0) => {
                Err(Refusal::invalid(Object::Pool, "a session was named that no node gives: begin with 0"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn execute(self: &Arc<Self>, call: CommandCall) -> ReplyFuture {
        match call.command {
            Some(Command::Lock { file, lock, .. } | Command::TestLock { file, lock, .. })
                if self.is_unknown_process(lock.owner) =>
            {
                ReplyFuture::ready(Err(Failure::Refused(Refusal::Stale(Object::File(file)))))
            }
            // It came from another node, and the partition has come here meanwhile.
            Some(
                Command::Demote { file, extent, .. }
                | Command::Evacuate { file, extent, .. }
                | Command::EvacuateDone { file, extent, .. },
            ) if extent.node == self.id() => {
                ReplyFuture::ready(Err(Failure::Refused(Refusal::Stale(Object::File(file)))))
            }
            Some(Command::Lock { .. }) => self.lock(&call),
            Some(Command::CloseSession { session }) => {
                self.session_index.add_ended(session);
                self.detach_opens(session, Some(call.partition));
                self.lock_queue.end_session(session);
                let reply = self.execute_now(call);
                self.lock_queue.wake_all();
                reply
            }
            _ => self.execute_now(call),
        }
    }

    fn execute_now(self: &Arc<Self>, mut call: CommandCall) -> ReplyFuture {
        if let Some(command) = &call.command {
            self.demote_before(command);
        }
        let attempt = match self.submit_first_stripe(&call) {
            None => self.try_execute(&mut call),
            Some(Ok(StoreCompletion::Ready(written))) => self.execute_with_first_stripe(&mut call, written),
            Some(Ok(StoreCompletion::Pending(write))) => return self.execute_deferred(call, Some(write)),
            Some(Err(refusal)) => Ok(Err(refusal)),
        };
        match attempt {
            Ok(outcome) => match call.ack_wait.take() {
                None => ReplyFuture::ready(outcome.map_err(Failure::Refused)),
                Some(ack_wait) => ReplyFuture::deferred(async move {
                    ack_wait.wait().await;
                    outcome.map_err(Failure::Refused)
                }),
            },
            // Nobody can use the extent meanwhile; or its node does other work too.
            Err(_) if matches!(call.command, Some(Command::Demote { .. } | Command::Evacuate { .. })) => {
                ReplyFuture::ready(Err(Failure::Refused(Refusal::Busy(Object::Pool))))
            }
            Err(_) => self.execute_deferred(call, None),
        }
    }

    /// Waits for the write of the first stripe, for space, then for the invalidation acks.
    fn execute_deferred(self: &Arc<Self>, mut call: CommandCall, write: Option<PendingOperation<()>>) -> ReplyFuture {
        let node = self.clone();
        ReplyFuture::deferred(async move {
            let outcome = node.execute_slowly(&mut call, write).await;
            if let Some(ack_wait) = call.ack_wait.take() {
                ack_wait.wait().await;
            }
            outcome.map_err(Failure::Refused)
        })
    }

    async fn execute_slowly(&self, call: &mut CommandCall, write: Option<PendingOperation<()>>) -> Outcome<Answer> {
        if let Some(write) = write
            && let Ok(outcome) = self.execute_with_first_stripe(call, write.await)
        {
            return outcome;
        }
        tracing::trace!("the request waits for space");
        let mut wait = self.space.begin();
        loop {
            let freed = wait.prepare(|| self.reclaim());
            let attempt = match self.submit_first_stripe(call).transpose()? {
                None => self.try_execute(call),
                Some(write) => {
                    let written = write.done().await;
                    self.execute_with_first_stripe(call, written)
                }
            };
            match attempt {
                Ok(outcome) => return outcome,
                Err(full) => wait.pause(freed, full).await?,
            }
        }
    }

    fn execute_extent(self: &Arc<Self>, call: ExtentCall) -> ReplyFuture {
        self.answer_with_space(move |node| node.try_execute_extent(&call))
    }

    /// Answers by an attempt: at once, or when it finds space.
    pub(crate) fn answer_with_space(
        self: &Arc<Self>,
        attempt: impl Fn(&Self) -> Result<Outcome<Answer>, EngineFull> + Send + Sync + 'static,
    ) -> ReplyFuture {
        if let Ok(outcome) = attempt(self) {
            return ReplyFuture::ready(outcome.map_err(Failure::Refused));
        }
        let node = self.clone();
        ReplyFuture::deferred(async move {
            let outcome = node.wait_for_space(|| attempt(&node)).await;
            outcome.and_then(|outcome| outcome).map_err(Failure::Refused)
        })
    }

    /// Retries an attempt until there is space or the time is over. Space that can be reclaimed is
    /// reclaimed before the first attempt, and before later ones as long as a kernel uses an extent
    /// of a removed file.
    pub(crate) async fn wait_for_space<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, EngineFull>,
    ) -> Result<T, Refusal> {
        let mut wait = self.space.begin();
        loop {
            let freed = wait.prepare(|| self.reclaim());
            match attempt() {
                Ok(done) => return Ok(done),
                Err(full) => wait.pause(freed, full).await?,
            }
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("settings", &self.settings)
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}
