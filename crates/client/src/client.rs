//! A client: its session, the map it follows, and the way to the node.

use crate::{Connection, InProcess, Patience, numbers::Numbers, split::Splits, split_stat::Parts};
use node::{Backing, Node};
use parking_lot::{Mutex, RwLock};
use placement::{Epoch, PartitionId, PartitionMap};
use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};
use wire::{Answer, Body, Extent, Failure, Object, OpenFlags, Outcome, Refusal, Request, Session, Usage, Welcome};

/// A client of a pool. Cheap to clone; clones are one session.
#[derive(Clone)]
pub struct Client(
    pub(crate) Arc<Inner>,
    /// Whether its changes are answered before others have heard of them.
    pub(crate) bool,
);

pub(crate) struct Inner {
    /// The way to the pool's one node. A second node brings a connection for each.
    pub connection: Arc<dyn Connection>,
    pub session: Session,
    pub seed: u64,
    pub stripe_bytes: u32,
    pub partitions: u32,
    pub patience: Patience,
    pub numbers: Numbers,
    map: RwLock<Arc<PartitionMap>>,
    /// The map's, for a look without a lock.
    epoch: AtomicU64,
    usage: Mutex<Usage>,
    /// How many intents were begun.
    intents: AtomicU64,
    pub splits: Splits,
    pub parts: Parts,
}

impl Client {
    /// A client of a node in this process.
    pub fn embedded(node: Arc<Node>) -> Self {
        let connection = Arc::new(InProcess(node));
        let client = at_once(Self::connect(connection, Patience::default()));
        client.and_then(Result::ok).expect("a node in this process says hello at once")
    }

    /// Says hello over a connection. Refused as `Unavailable` when no answer comes.
    pub async fn connect(connection: Arc<dyn Connection>, patience: Patience) -> Outcome<Self> {
        let request = Request {
            epoch: Epoch::FIRST,
            session: Session::NONE,
            hurried: false,
            partition: PartitionId(0),
            body: Body::Hello,
        };
        let answer = crate::call::until_answered(&*connection, patience, || request.clone()).await?;
        let Answer::Welcome(welcome) = answer else { return Err(unexpected(&answer)) };
        Ok(Self::welcomed(connection, patience, welcome))
    }

    fn welcomed(connection: Arc<dyn Connection>, patience: Patience, welcome: Welcome) -> Self {
        let Welcome { session, map, seed, stripe_bytes, .. } = welcome;
        let partitions = map.partitions();
        let (numbers, epoch, usage) = (Numbers::new(partitions), AtomicU64::new(map.epoch().0), Mutex::default());
        let (intents, splits, parts) = (AtomicU64::new(0), Splits::default(), Parts::default());
        let map = RwLock::new(map);
        Self(
            Arc::new(Inner {
                connection,
                session,
                seed,
                stripe_bytes,
                partitions,
                patience,
                numbers,
                map,
                epoch,
                usage,
                intents,
                splits,
                parts,
            }),
            false,
        )
    }

    /// The same client for writes that a kernel makes of its own accord, while it holds what others' hearing may wait for: they are
    /// answered before others have heard of them.
    #[must_use]
    pub fn hurried(&self) -> Self {
        Self(self.0.clone(), true)
    }

    /// This client, as nodes know it.
    pub fn session(&self) -> Session {
        self.0.session
    }

    /// The length of a stripe, bytes.
    pub fn stripe_bytes(&self) -> u32 {
        self.0.stripe_bytes
    }

    /// The descriptor of an extent; none when its node is not in this process.
    pub fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<Backing> {
        self.0.connection.backing(extent, flags)
    }

    /// How full the pool is: as of now when the node answers at once, else as last known.
    pub fn usage(&self) -> Usage {
        let request = Request {
            epoch: self.0.epoch(),
            session: self.0.session,
            hurried: false,
            partition: PartitionId(0),
            body: Body::Usage,
        };
        let answer = at_once(self.0.connection.call(request));
        if let Some(Err(Failure::StaleMap(map))) = &answer {
            self.0.follow(map.clone());
        }
        let mut known = self.0.usage.lock();
        if let Some(Ok(Answer::Usage(usage))) = answer {
            *known = usage;
        }
        *known
    }
}

impl Inner {
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Relaxed))
    }

    /// A number for an intent.
    pub fn next_intent(&self) -> u64 {
        self.intents.fetch_add(1, Relaxed) + 1
    }

    /// Takes a newer map.
    pub fn follow(&self, map: Arc<PartitionMap>) {
        let mut known = self.map.write();
        if map.epoch() > known.epoch() {
            self.epoch.store(map.epoch().0, Relaxed);
            *known = map;
        }
    }
}

/// What the future has to say without waiting.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// A node that answers something else than was asked speaks another protocol.
pub(crate) fn unexpected(answer: &Answer) -> Refusal {
    let shown: String = format!("{answer:?}").chars().take(80).collect();
    let why = format!("the node gave an answer of the wrong kind ({shown}); it may be of another version");
    Refusal::Io { object: Object::Pool, why: why.into() }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { session, connection, .. } = &*self.0;
        f.debug_struct("Client").field("session", session).field("connection", connection).finish_non_exhaustive()
    }
}
