//! The way to a node.

use node::{Backing, Hear, Node, Reply};
use std::{
    fmt,
    future::{Future, ready},
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
};
use wire::{Answer, Extent, Failure, LockOwner, Mark, Object, OpenFlags, Refusal, Request, Session, codec::Obtain};

/// A descriptor that is asked for; none when there is none to be had.
pub type Borrowing = Pin<Box<dyn Future<Output = Option<Backing>> + Send>>;

/// A descriptor for a program that is asked for, and the mark of its open; none when there is none to be had.
pub type Obtaining = Pin<Box<dyn Future<Output = Option<(OwnedFd, Mark)>> + Send>>;

/// A way to a node. A call may fail, may be slow, and may have been done although no answer came.
pub trait Connection: Send + Sync + fmt::Debug {
    /// Sends a request. The reply stands on its own: it may be polled from any thread, or dropped.
    fn call(&self, request: Request) -> Reply;

    /// The descriptor of an extent, when the node is in this process and its bytes are in a file; see [`Node::backing`].
    fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<Backing> {
        let _ = (extent, flags);
        None
    }

    /// The same from a node in another process of this host, which takes a while; none where it is known at once whether there is
    /// one, from [`Self::backing`].
    fn borrow(&self, extent: Extent, flags: OpenFlags) -> Option<Borrowing> {
        let _ = (extent, flags);
        None
    }

    /// A descriptor of its own for a program of this host, of what a session has open; none where the node is not on this host. See
    /// [`Node::give`].
    fn obtain(&self, obtain: Obtain) -> Option<Obtaining> {
        let _ = obtain;
        None
    }

    /// Sends a request that opens something, and asks for a descriptor of what it opens, a program's own, in one go; that is to be waited for when it has
    /// been opened. None where [`Self::obtain`] is to be asked, and so it is when none comes.
    fn call_attaching(&self, request: Request, flags: OpenFlags) -> (Reply, Option<Obtaining>) {
        let _ = flags;
        (self.call(request), None)
    }

    /// A descriptor with this mark was closed: the node is told so with what it is told next, and nobody waits for that. False where it is not, and is to
    /// be asked to look.
    fn closed(&self, mark: Mark) -> bool {
        let _ = mark;
        false
    }

    /// Whether the node can hand out descriptors here: only then are new files wished whole.
    fn is_here(&self) -> bool {
        false
    }

    /// Whether the node is in this process.
    fn is_inside(&self) -> bool {
        false
    }

    /// Lets a session keep what it is answered; `hear` is told what to forget, and `Recall::All` when the connection has broken.
    /// Answered by `Done`; refused where the way back is not there. A reply that is dropped before its answer leaves nothing.
    fn watch(&self, session: Session, hear: &Hear) -> Reply {
        let _ = (session, hear);
        let what = "watching over this connection".into();
        Reply::ready(Err(Refusal::Unsupported { object: Object::Pool, what }.into()))
    }

    /// The kernel of the session, which watches, can be made to let go of what was removed; see [`Node::prunes`].
    fn prunes(&self, session: Session) {
        let _ = session;
    }

    /// The session has ended: it is told nothing any more.
    fn unwatch(&self, session: Session) {
        let _ = session;
    }
}

/// The way to a node in this process: its answers are there at once, unless it must wait for space.
#[derive(Clone, Debug)]
pub struct InProcess(pub Arc<Node>);

impl Connection for InProcess {
    fn call(&self, mut request: Request) -> Reply {
        if let Some(LockOwner::Process(process)) = request.body.lock().map(|lock| &mut lock.owner) {
            *process = std::process::id();
        }
        self.0.handle(request)
    }

    fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<Backing> {
        self.0.backing(extent, flags)
    }

    fn obtain(&self, Obtain { session, file, flags, lent }: Obtain) -> Option<Obtaining> {
        let given = self.0.give(session, file, flags, lent);
        Some(Box::pin(ready(given)))
    }

    fn is_here(&self) -> bool {
        true
    }

    fn is_inside(&self) -> bool {
        true
    }

    fn watch(&self, session: Session, hear: &Hear) -> Reply {
        Reply::ready(self.0.watch(session, hear).map(|()| Answer::Done).map_err(Failure::Refused))
    }

    fn prunes(&self, session: Session) {
        self.0.prunes(session);
    }

    fn unwatch(&self, session: Session) {
        self.0.unwatch(session);
    }
}
