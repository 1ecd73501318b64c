//! A client: the way to the nodes, and what the verbs remember.

use crate::{
    FdLeaseFuture, InProcessConnection, Nodes, RetryPolicy,
    program_open::FdRequest,
    router::{Router, session::SessionState},
    split::Splits,
    split_attributes::AttributeCache,
    usage::Usages,
};
use node::{BackingFd, Node};
use placement::NodeId;
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
use wire::{Extent, HelloReply, OpenFlags};

/// A client of a pool. Cheap to clone; clones share one session.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) options: CallOptions,
}

/// How a client makes its calls.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    /// True if changes are answered without waiting for cache-invalidation acks.
    pub skip_ack: bool,
    /// The session that the client is bound to, if any.
    pub session: Option<Arc<SessionState>>,
    /// The request for a descriptor that is attached to requests that open something, if any.
    pub fd_request: Option<Arc<FdRequest>>,
}

pub(crate) struct Inner {
    pub router: Router,
    pub usages: Usages,
    /// Number of intents that were begun.
    intent_count: AtomicU64,
    pub splits: Splits,
    pub attribute_cache: AttributeCache,
}

impl Client {
    /// Makes a client of a node in this process.
    pub fn embedded(node: Arc<Node>) -> Self {
        let connection = Arc::new(InProcessConnection(node));
        let client = poll_now(Self::connect(connection, RetryPolicy::default()));
        client.and_then(Result::ok).expect("a node in this process says hello at once")
    }

    /// Makes a client of nodes of which one has answered its hello.
    pub(crate) fn new(nodes: Nodes, retry_policy: RetryPolicy, first: (HelloReply, NodeId)) -> Self {
        let inner = Inner {
            router: Router::new(nodes, retry_policy, first),
            usages: Usages::default(),
            intent_count: AtomicU64::new(0),
            splits: Splits::default(),
            attribute_cache: AttributeCache::default(),
        };
        Self { inner: Arc::new(inner), options: CallOptions::default() }
    }

    /// The way to the nodes.
    pub(crate) fn router(&self) -> &Router {
        &self.inner.router
    }

    /// The next number for an intent.
    pub(crate) fn next_intent(&self) -> u64 {
        self.inner.intent_count.fetch_add(1, Relaxed) + 1
    }

    /// The same client for writes that a kernel makes of its own accord. Such writes are answered
    /// without waiting for invalidation acks: the kernel holds page locks that an ack may need.
    #[must_use]
    pub fn skip_ack(&self) -> Self {
        self.with_options(CallOptions { skip_ack: true, ..self.options.clone() })
    }

    /// The same client with other options.
    pub(crate) fn with_options(&self, options: CallOptions) -> Self {
        Self { inner: self.inner.clone(), options }
    }

    /// The length of a stripe, bytes.
    pub fn stripe_bytes(&self) -> u32 {
        self.router().stripe_bytes
    }

    /// The descriptor of an extent. `None` if its node is not in this process.
    pub fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        self.router().nodes.connection(extent.node)?.backing(extent, flags)
    }

    /// Leases the descriptor of an extent from a node in another process of this host. `None` if
    /// there is none to wait for.
    pub fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
        self.router().nodes.connection(extent.node)?.lease_fd(extent, flags)
    }
}

/// Polls a future once; returns its value if it is ready.
pub fn poll_now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, nodes) = (self.session(), &self.router().nodes);
        f.debug_struct("Client").field("session", &session).field("nodes", nodes).finish_non_exhaustive()
    }
}
