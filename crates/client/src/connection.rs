//! The connection to a node.

use node::{BackingFd, Node, OnInvalidate, ReplyFuture};
use std::{
    fmt,
    future::{Future, ready},
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
};
use wire::{
    Answer, Extent, Failure, LockOwner, Object, OpenFlags, OpenLeaseId, Refusal, Request, Session, codec::ProgramFd,
};

/// The future of a leased descriptor; `None` if there is none to be had.
pub type FdLeaseFuture = Pin<Box<dyn Future<Output = Option<BackingFd>> + Send>>;

/// The future of a program's own descriptor and the id of its open lease; `None` if there is none
/// to be had.
pub type ProgramFdFuture = Pin<Box<dyn Future<Output = Option<(OwnedFd, OpenLeaseId)>> + Send>>;

/// A connection to a node. A call may fail, may be slow, and may have been done although no answer
/// came.
pub trait Connection: Send + Sync + fmt::Debug {
    /// Sends a request. The reply may be polled from any thread, or dropped.
    fn call(&self, request: Request) -> ReplyFuture;

    /// The descriptor of an extent, if the node is in this process and the bytes are in a file; see
    /// [`Node::backing`].
    fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        let _ = (extent, flags);
        None
    }

    /// Leases the descriptor of an extent from a node in another process of this host, which takes
    /// a while. `None` if [`Self::backing`] already gives the final answer.
    fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
        let _ = (extent, flags);
        None
    }

    /// Gets a descriptor of its own for a program of this host, of a file that a session has open.
    /// `None` if the node is not on this host. See [`Node::lease_open`].
    fn dup_fd_for_program(&self, request: ProgramFd) -> Option<ProgramFdFuture> {
        let _ = request;
        None
    }

    /// Sends a request that opens something, and asks in the same message for a program's own
    /// descriptor of what is opened. Wait for the descriptor after the open has succeeded. If the
    /// second value is `None`, or its future yields `None`, use [`Self::dup_fd_for_program`].
    fn call_with_fd(&self, request: Request, flags: OpenFlags) -> (ReplyFuture, Option<ProgramFdFuture>) {
        let _ = flags;
        (self.call(request), None)
    }

    /// Tells the node, together with the next message to it, that a descriptor with this lease was
    /// closed; nobody waits for that. False if the connection cannot do that: then ask the node to
    /// probe the open.
    fn notify_closed(&self, lease: OpenLeaseId) -> bool {
        let _ = lease;
        false
    }

    /// True if the node can hand out descriptors to this process. Extents are requested for new
    /// files only then.
    fn is_on_local_host(&self) -> bool {
        false
    }

    /// True if the node may be on this host, as far as that is known without a call: a client says
    /// hello to such a node when it begins.
    fn is_near(&self) -> bool {
        self.is_on_local_host()
    }

    /// True if the node is in this process.
    fn is_in_process(&self) -> bool {
        false
    }

    /// Subscribes the client of a session, so that it may cache what it is answered in all its
    /// sessions. `on_invalidate` is called with invalidations, and with `Recall::All` when the
    /// connection has broken. Answered by `Done`, at once if the client is subscribed over this
    /// connection already; refused if the connection cannot carry invalidations. A reply that is
    /// dropped before its answer leaves nothing behind.
    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        let _ = (session, on_invalidate);
        let what = "cache invalidations over this connection".into();
        ReplyFuture::ready(Err(Refusal::Unsupported { object: Object::Pool, what }.into()))
    }

    /// Records that the kernel of a subscribed session supports prune notices; see
    /// [`Node::declare_prune_support`].
    fn set_supports_prune(&self, session: Session) {
        let _ = session;
    }

    /// Unsubscribes a session that has ended.
    fn unsubscribe(&self, session: Session) {
        let _ = session;
    }
}

/// The connection to a node in this process: its answers are ready at once, unless the request must
/// wait.
#[derive(Clone, Debug)]
pub struct InProcessConnection(pub Arc<Node>);

impl Connection for InProcessConnection {
    fn call(&self, mut request: Request) -> ReplyFuture {
        if let Some(LockOwner::Process { node, process: process @ 0 }) = request.body.lock().map(|lock| &mut lock.owner)
            && *node == self.0.id()
        {
            *process = std::process::id();
        }
        self.0.handle(request)
    }

    fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        self.0.backing(extent, flags)
    }

    fn dup_fd_for_program(&self, ProgramFd { session, file, flags, kind }: ProgramFd) -> Option<ProgramFdFuture> {
        Some(Box::pin(ready(self.0.lease_open(session, file, flags, kind))))
    }

    fn is_on_local_host(&self) -> bool {
        true
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        if self.0.is_subscribed(session) {
            return ReplyFuture::ready(Ok(Answer::Done));
        }
        ReplyFuture::ready(self.0.subscribe(session, on_invalidate).map(|()| Answer::Done).map_err(Failure::Refused))
    }

    fn set_supports_prune(&self, session: Session) {
        self.0.declare_prune_support(session);
    }

    fn unsubscribe(&self, session: Session) {
        self.0.unsubscribe(session);
    }
}
