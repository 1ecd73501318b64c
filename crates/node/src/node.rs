//! A node: its state, and the entry point for requests.

use crate::{
    Backing, Reply, Settings, clock,
    fold::Folds,
    grants::Watches,
    held::Held,
    host::HostFiles,
    locks::Locks,
    marks::Marks,
    meta::{MetaCall, refusal_of},
    owners::Processes,
    space::{Full, Space},
    strays::Strays,
    thinning::Thinnings,
    touched::Touched,
    whole::Wholes,
    whole_calls::{Appends, ExtentCall},
};
use parking_lot::RwLock;
use placement::{Epoch, FileId, NodeId, PartitionId, PartitionMap};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use store::{Engine, EngineError, Generation, Segments, StripeKey};
use wire::{
    Answer, Body, Command, Extent, Failure, HelloReply, Object, OpenFlags, Outcome, Refusal, Request, Session,
    SpaceUsage, StripeAction,
};

/// Interval between retries of a request that waits for space while a kernel still uses extents of
/// removed files: that kernel does not announce when it lets go of them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bits that count the sessions of one second. The bits above hold the start time, so a restarted
/// node never reuses a session of its earlier run.
const SESSIONS_BITS: u32 = 16;

/// A node: the partitions that it holds, and the engine with their bytes.
pub struct Node {
    id: NodeId,
    settings: Settings,
    map: RwLock<Arc<PartitionMap>>,
    /// The map's epoch, readable without a lock.
    epoch: AtomicU64,
    pub(crate) partitions: Held,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) hosts: HostFiles,
    pub(crate) watches: Watches,
    pub(crate) whole: Arc<Wholes>,
    pub(crate) appends: Appends,
    pub(crate) folds: Folds,
    pub(crate) thinnings: Thinnings,
    pub(crate) space: Arc<Space>,
    pub(crate) locks: Locks,
    pub(crate) marks: Marks,
    pub(crate) processes: Processes,
    pub(crate) touched: Touched,
    pub(crate) strays: Strays,
    /// The count of the session given last; and its value before the first session was given.
    sessions: AtomicU64,
    sessions_before: u64,
    pub(crate) files: AtomicU64,
    /// Estimate of the capacity of the whole pool: partitions are distributed by memory.
    pub(crate) pool_bytes: u64,
    stop: OnceLock<StopHook>,
}

/// Called when a node is asked to end, on the thread that serves the request: it must not block.
pub type StopHook = Box<dyn Fn() + Send + Sync>;

/// Makes a node in this process that holds every partition. A client connects to it with
/// `client::Client::embedded`.
///
/// Panics on settings that no pool can have (partitions not a power of two, stripes longer than the
/// engine's).
pub fn embedded(settings: Settings, engine: Arc<dyn Engine>) -> Arc<Node> {
    let id = NodeId(1);
    let map = PartitionMap::one_node(id, settings.partitions).expect("the settings have a possible count");
    member(id, map, settings, engine)
}

/// Makes one of the nodes of a pool. It holds the partitions that the map gives it, and the root
/// directory if the first partition is among them. All nodes of a pool are started with the same
/// map and, except for `memory`, the same settings.
///
/// Panics on settings that no pool can have, on a partition count other than the map's, and on an
/// id of 0 or above 65,535.
pub fn member(id: NodeId, map: PartitionMap, settings: Settings, engine: Arc<dyn Engine>) -> Arc<Node> {
    assert!(settings.stripe_bytes <= engine.stripe_bytes(), "stripes are longer than the engine's");
    assert!(settings.stripe_bytes.is_power_of_two(), "the length of a stripe is a power of two");
    assert_eq!(map.partitions(), settings.partitions, "the map has the partitions of the settings");
    assert!(id != NodeId(0) && Session::new(id, 0).is_some(), "an id of a node has 16 bits, and is not 0");
    let space = Arc::new(Space::new(settings.space_wait));
    let hook = space.clone();
    engine.on_freed(Arc::new(move || hook.freed()));
    let touched = Touched::new(map.partitions());
    let partitions = Held::share(id, &map, &settings, touched.endings());
    let whole = Wholes::new(id, engine.extents());
    let held = map.partition_counts().get(&id).copied().unwrap_or(0).max(1);
    let pool_bytes = settings.memory.0.saturating_mul(map.partitions().into()) / u64::from(held);
    let sessions_before = clock::now().secs.unsigned_abs() << SESSIONS_BITS;
    let files = u64::from(partitions.get(FileId::ROOT.partition()).is_some());
    Arc::new(Node {
        id,
        settings,
        epoch: AtomicU64::new(map.epoch().0),
        map: RwLock::new(Arc::new(map)),
        partitions,
        engine,
        hosts: HostFiles::default(),
        watches: Watches::default(),
        whole,
        appends: Appends::default(),
        folds: Folds::default(),
        thinnings: Thinnings::default(),
        locks: Locks::default(),
        marks: Marks::default(),
        processes: Processes::default(),
        touched,
        strays: Strays::default(),
        space,
        sessions: AtomicU64::new(sessions_before),
        sessions_before,
        files: AtomicU64::new(files),
        pool_bytes,
        stop: OnceLock::new(),
    })
}

/// A change of a stripe that may need space, kept until there is some.
struct StripeChange {
    session: Session,
    key: StripeKey,
    generation: Generation,
    what: What,
}

/// The change that is made to a stripe.
enum What {
    Write { offset: u32, ends: bool, data: bytes::Bytes },
    Fill { data: bytes::Bytes },
    Zero { offset: u32, length: u32 },
    Extend { length: u32 },
}

impl Node {
    /// Answers a request: at once, unless it must wait.
    pub fn handle(self: &Arc<Self>, request: Request) -> Reply {
        let Request { epoch, session, skip_ack, partition, body } = request;
        if !matches!(body, Body::Hello | Body::Stop) && epoch != self.epoch() {
            return Reply::ready(Err(Failure::StaleMap(self.map.read().clone())));
        }
        let of_node =
            matches!(body, Body::Hello | Body::Stop | Body::Usage | Body::ProbeLease { .. } | Body::FindLeases { .. });
        if !of_node && self.partitions.get(partition).is_none() {
            return Reply::ready(Err(Failure::Refused(self.not_here(partition))));
        }
        match body {
            Body::Hello => Reply::ready(self.welcome(session).map_err(Failure::Refused)),
            Body::Usage => Reply::ready(Ok(Answer::Usage(self.usage()))),
            Body::Stop => Reply::ready(self.asked_to_stop().map_err(Failure::Refused)),
            Body::Meta { request_id, command } => {
                let command = Some(command);
                self.meta(MetaCall { skip_ack, request_id, command, ..MetaCall::asking(session, partition) })
            }
            Body::Extent { request_id, file, extent, action } => {
                self.extent(ExtentCall { partition, request_id, file, extent, action })
            }
            Body::Stripe { file, stripe, action } => self.stripe(session, StripeKey { file, stripe }, action),
            Body::ProbeLease { lease: mark } => Reply::ready(Ok(Answer::LeaseStatus(self.look_at(mark)))),
            Body::FindLeases { device, inode, after } => {
                Reply::ready(Ok(Answer::OpenLeases(self.which((device, inode), after))))
            }
            Body::Walk { start: top, components: folders, credentials: who, action: then } => {
                self.walk((session, skip_ack), (top, &folders, who), then.map(|then| *then))
            }
        }
    }

    /// Sets the hook that ends the node when a client asks for that. Without a hook such a request
    /// is refused. Only the first hook set counts.
    pub fn on_stop(&self, hook: StopHook) {
        let _ = self.stop.set(hook);
    }

    fn asked_to_stop(&self) -> Outcome<Answer> {
        let no_hook = || Refusal::Unsupported { object: Object::Pool, what: "ending a node of another process".into() };
        self.stop.get().ok_or_else(no_hook)?();
        Ok(Answer::Done)
    }

    /// Returns how full the pool is, and how many requests wait for space.
    pub fn usage(&self) -> SpaceUsage {
        self.whole.sweep();
        self.thin_some();
        let held = self.engine.usage();
        let (waiting, waited, refused) = self.space.counts();
        let files = self.files.load(Relaxed);
        let (capacity, used, stripes, own_room) = (held.capacity, held.used, held.stripes, held.extent_free);
        SpaceUsage { capacity, used, files, stripes, waiting, waited, refused, extent_free: own_room }
    }

    /// The most bytes that the node's memory ever held; see [`store::Engine::peak`].
    pub fn peak(&self) -> u64 {
        self.engine.peak()
    }

    /// Returns the descriptor of an extent, for a frontend in this process. `None` if the extent
    /// has been given to another file, if its bytes are not in a file, or if writing is asked for
    /// while the pool is more than half full.
    pub fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<Backing> {
        let backing = Backing::new(&self.whole, extent, flags)?;
        (!flags.write || self.whole.extents().reserve_headroom()).then_some(backing)
    }

    /// The engine's memory, for other processes to map. `None` if the engine cannot share it.
    pub fn segments(&self) -> Option<Arc<dyn Segments>> {
        self.engine.segments()
    }

    /// True if the engine has extents, so that there can be extent files.
    pub fn keeps_whole_files(&self) -> bool {
        self.whole.any()
    }

    /// The id of this node in its pool.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The settings that the node was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Moves the map to its next epoch, as any change of the pool does. Clients learn the new map
    /// with their next request.
    pub fn renew_map(&self) {
        let mut map = self.map.write();
        let home = map.node(PartitionId(0)).expect("every pool has this one");
        *map = Arc::new(map.moved(PartitionId(0), home));
        self.epoch.store(map.epoch().0, Relaxed);
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Relaxed))
    }

    /// Answers a hello: with a new session, or with the caller's own if it names one that a node of
    /// the pool has begun.
    fn welcome(&self, asker: Session) -> Outcome<Answer> {
        let session = match asker {
            Session::NONE => self.begin_session()?,
            known => self.check_session(known).map(|()| known)?,
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
            (NodeId(0), _) => {
                Err(Refusal::invalid(Object::Pool, "a session was named that no node gives: begin with 0"))
            }
            _ => Ok(()),
        }
    }

    /// The refusal of a request for a partition that this node does not hold; it names the node
    /// that does.
    pub(crate) fn not_here(&self, partition: PartitionId) -> Refusal {
        match self.map.read().node(partition) {
            None => Refusal::invalid(Object::Pool, "the pool has no such partition"),
            Some(home) => {
                let why =
                    format!("partition {partition} is held by node {home}, and this is node {}: ask there", self.id);
                Refusal::Invalid { object: Object::Pool, why: why.into() }
            }
        }
    }

    pub(crate) fn meta(self: &Arc<Self>, call: MetaCall) -> Reply {
        match call.command {
            Some(Command::Lock { .. }) => self.lock(&call),
            Some(Command::CloseSession { session }) => {
                self.touched.endings().add(session);
                self.outlive(session, Some(call.partition));
                self.locks.end_session(session);
                let reply = self.meta_at_once(call);
                self.locks.wake_all();
                reply
            }
            _ => self.meta_at_once(call),
        }
    }

    fn meta_at_once(self: &Arc<Self>, mut call: MetaCall) -> Reply {
        if let Some(command) = &call.command {
            self.fold_before(command);
        }
        match self.try_meta(&mut call) {
            Ok(outcome) => match call.hearing.take() {
                None => Reply::ready(outcome.map_err(Failure::Refused)),
                Some(hearing) => Reply::later(async move {
                    hearing.heard().await;
                    outcome.map_err(Failure::Refused)
                }),
            },
            Err(_) => self.meta_later(call),
        }
    }

    /// Waits for space, then for the invalidation acks.
    fn meta_later(self: &Arc<Self>, mut call: MetaCall) -> Reply {
        let node = self.clone();
        Reply::later(async move {
            let outcome = node.wait_for_space(|node| node.try_meta(&mut call)).await;
            if let Some(hearing) = call.hearing.take() {
                hearing.heard().await;
            }
            outcome.and_then(|outcome| outcome).map_err(Failure::Refused)
        })
    }

    fn extent(self: &Arc<Self>, call: ExtentCall) -> Reply {
        match self.try_extent(&call) {
            Ok(outcome) => Reply::ready(outcome.map_err(Failure::Refused)),
            Err(_) => self.wait(move |node| node.try_extent(&call)),
        }
    }

    fn stripe(self: &Arc<Self>, session: Session, key: StripeKey, action: StripeAction) -> Reply {
        let change = |generation, what| StripeChange { session, key, generation: Generation(generation), what };
        let done = match action {
            StripeAction::Write { generation, offset, ends, data } => {
                return self.change_stripe(change(generation, What::Write { offset, ends, data }));
            }
            StripeAction::Fill { data } => return self.change_stripe(change(0, What::Fill { data })),
            StripeAction::Zero { generation, offset, length } => {
                return self.change_stripe(change(generation, What::Zero { offset, length }));
            }
            StripeAction::Extend { generation, length } => {
                return self.change_stripe(change(generation, What::Extend { length }));
            }
            StripeAction::Read { offset, length } => self.engine.read(key, offset, length).map(Answer::Bytes),
            StripeAction::Truncate { generation, length } => {
                self.note_stray(session, key);
                self.engine.truncate(key, Generation(generation), length).map(|()| Answer::Done)
            }
            StripeAction::Remove => self.engine.remove(key).map(|()| Answer::Done),
            StripeAction::Fit => self.engine.shrink_to_fit(key).map(|()| Answer::Done),
        };
        Reply::ready(done.map_err(|error| Failure::Refused(never_full(error, key))))
    }

    fn change_stripe(self: &Arc<Self>, change: StripeChange) -> Reply {
        match self.try_stripe(&change) {
            Ok(outcome) => Reply::ready(outcome.map_err(Failure::Refused)),
            Err(_) => self.wait(move |node| node.try_stripe(&change)),
        }
    }

    fn try_stripe(&self, change: &StripeChange) -> Result<Outcome<Answer>, Full> {
        let StripeChange { session, key, generation, what } = change;
        let has_ended = || self.touched.endings().has(*session);
        if has_ended() {
            return Ok(Err(Refusal::SessionEnded));
        }
        let is_stray = match self.admit_write(*session, *key) {
            Ok(is_stray) => is_stray,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let done = match what {
            What::Fill { data } => {
                self.engine.write(*key, *generation, 0, data).and_then(|()| self.engine.shrink_to_fit(*key))
            }
            What::Write { offset, ends, data } => {
                let done = self.engine.write(*key, *generation, *offset, data);
                if *ends { done.and_then(|()| self.engine.shrink_to_fit(*key)) } else { done }
            }
            What::Zero { offset, length } => self.engine.zero(*key, *generation, *offset, *length),
            What::Extend { length } => self.engine.extend(*key, *generation, *length),
        };
        // The cleanup of an ended session removes its reserved stripes and those that no file has
        // planned. It may have run before this write was done.
        if (is_stray || matches!(what, What::Fill { .. })) && done.is_ok() && has_ended() {
            self.end_late(*session, *key);
            return Ok(Err(Refusal::SessionEnded));
        }
        match done {
            Ok(()) => Ok(Ok(Answer::Done)),
            Err(error) => refusal_of(error, Object::File(key.file)).map(Err),
        }
    }

    /// Retries an attempt until there is space or the time is over. Space that can be reclaimed is
    /// reclaimed before the first attempt, and before later ones as long as a kernel uses an extent
    /// of a removed file.
    pub(crate) async fn wait_for_space<T>(
        &self,
        mut attempt: impl FnMut(&Self) -> Result<T, Full>,
    ) -> Result<T, Refusal> {
        let mut look = true;
        let attempt = || {
            if look {
                look = self.relieve();
            }
            (attempt(self), look.then_some(LOOK_AGAIN))
        };
        self.space.wait_for(attempt).await
    }

    /// Retries an attempt whenever space is freed; as a reply.
    fn wait(self: &Arc<Self>, attempt: impl FnMut(&Self) -> Result<Outcome<Answer>, Full> + Send + 'static) -> Reply {
        let node = self.clone();
        Reply::later(async move {
            let outcome = node.wait_for_space(attempt).await;
            outcome.and_then(|outcome| outcome).map_err(Failure::Refused)
        })
    }
}

/// Maps an engine error of a call that takes no space: `Full` becomes an I/O error.
fn never_full(error: EngineError, key: StripeKey) -> Refusal {
    let why = "the engine says that it is full, though nothing was written";
    refusal_of(error, Object::File(key.file)).unwrap_or(Refusal::Io { object: Object::File(key.file), why: why.into() })
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
