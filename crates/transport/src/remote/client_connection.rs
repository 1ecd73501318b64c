//! Client's side of one connection, as callers see it: queued output and pending replies.
//!
//! Callers on any thread queue frames here; the driver (`driver`) writes them to the socket and
//! delivers what arrives. Once ended, a [`ClientConnection`] stays ended, and the next call makes
//! another.

use crate::{
    ReplyResult,
    remote::{
        invalidation_threads::InvalidationThreads,
        lease::{FdLease, LeaseGuard, LivenessPipe},
    },
    shm::writer::{ClaimedBlock, ShmWriter},
};
use bytes::{Buf, Bytes};
use client::OnInvalidate;
use parking_lot::Mutex;
use placement::BuildNumberHasher;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::{
    collections::HashMap,
    future::Future,
    io::IoSlice,
    mem,
    os::fd::OwnedFd,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Instant,
};
use tokio::sync::{Notify, oneshot};
use wire::{
    Failure, OpenFlags, OpenLeaseId, Recall, Request, Session,
    codec::{
        LeaseFd, ProgramFd, begins_stripe, encode_ack, encode_cancel, encode_lease_fd, encode_leases_closed,
        encode_leases_returned, encode_open_with_fd, encode_pong, encode_program_fd, encode_request,
        encode_request_in_shm, encode_segment_mapped, encode_subscribe, encode_supports_prune, encode_unsubscribe,
    },
    frame::WriteQueue,
};

/// Most requests in flight: as many as a node lets wait for one connection, so that it refuses
/// none.
const IN_FLIGHT_MAX: usize = 8192;
/// Most bytes that the driver has not taken yet; above that calls wait.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Most bytes that a calling thread writes itself; other callers wait meanwhile.
const OWN_BYTES_MAX: usize = 64 << 10;
/// Most closed descriptors that wait for the next message.
const CLOSED_MAX: usize = 64;
/// Most buffers of one write by a caller.
const PIECES_MAX: usize = 8;

/// One connection, from the connect to its end.
#[derive(Debug, Default)]
pub struct ClientConnection {
    state: Mutex<ConnectionState>,
    /// Notified when there may be room for another call.
    room: Notify,
    /// Liveness pipe, to be held as long as anything leased is used; unset if nothing is leased.
    liveness_pipe: OnceLock<Arc<LivenessPipe>>,
    /// Write segment for bytes that need not be sent; unset if there is none.
    shm_writer: OnceLock<ShmWriter>,
}

#[derive(Debug, Default)]
struct ConnectionState {
    /// Frames that the driver has not taken yet.
    out: WriteQueue,
    /// Last request id that was assigned.
    last_id: u64,
    /// Requests up to this id were handed to the socket.
    sent: u64,
    pending: HashMap<u64, PendingReply, BuildNumberHasher>,
    /// Leases that are released, of which the node was not notified yet.
    returned: Vec<u64>,
    /// Open leases whose descriptors were closed, of which the node was not notified yet.
    closed: Vec<OpenLeaseId>,
    /// By the first session of each client.
    subscribers: HashMap<Session, InvalidationThreads>,
    driver: Option<Waker>,
    /// True if the driver has no unwritten output.
    flushed: bool,
    /// Duplicate of the socket, for a lone caller to write to; `None` if only the driver may.
    socket: Option<OwnedFd>,
    opened: bool,
    closing: bool,
    ended: Option<ConnectionEnd>,
}

/// Waiting caller.
#[derive(Debug)]
enum PendingReply {
    Request(oneshot::Sender<ReplyResult>),
    Lease(oneshot::Sender<FdLease>),
    ProgramFd(oneshot::Sender<ProgramFdReply>),
}

/// Descriptor of a program and its open lease; `None` if this process can open no more descriptors.
pub type ProgramFdReply = Option<(OwnedFd, OpenLeaseId)>;

/// Reply that has arrived.
#[derive(Debug)]
pub struct Completion {
    id: u64,
    answered: ReplyResult,
    /// Caller that waits for it, once looked up.
    reply: Option<PendingReply>,
}

impl Completion {
    /// Creates the reply to the request with this id.
    pub fn new(id: u64, answered: ReplyResult) -> Self {
        Self { id, answered, reply: None }
    }
}

/// End of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionEnd {
    pub at: Instant,
    /// True if the connection had been open.
    pub opened: bool,
    /// Failure of the requests that were not sent.
    pub why: Failure,
}

/// Reason why a request was not queued.
#[derive(Debug)]
pub enum QueueError {
    /// The limits are reached.
    Full,
    /// The connection has ended.
    Failed(Failure),
}

/// Instruction for the driver.
#[derive(Debug, PartialEq)]
pub enum DriverAction {
    Continue,
    Close,
}

impl ClientConnection {
    /// Returns how the connection ended, if it has.
    pub fn ended(&self) -> Option<ConnectionEnd> {
        self.state.lock().ended.clone()
    }

    /// Queues a request. The bytes of a stripe are copied into the node's memory where that is
    /// possible.
    pub fn send(self: &Arc<Self>, request: &Request) -> Result<PendingCall<ReplyResult>, QueueError> {
        if let Some(block) = self.write_to_shm(request) {
            let encode =
                |out: &mut Vec<u8>, id| encode_request_in_shm(request, block.filled(), id, out).map(|()| Bytes::new());
            let call =
                self.enqueue(PendingReply::Request, |id, out| out.push(|out| encode(out, id)).map_err(Failure::from))?;
            block.published();
            return Ok(call);
        }
        self.enqueue(PendingReply::Request, |id, out| {
            out.push(|out| encode_request(request, id, out)).map_err(Failure::from)
        })
    }

    fn write_to_shm(&self, request: &Request) -> Option<ClaimedBlock<'_>> {
        let shm_writer = self.shm_writer.get()?;
        let bytes = begins_stripe(&request.body).filter(|bytes| shm_writer.fits(bytes.len()))?;
        let has_room = self.state.lock().check().is_ok();
        has_room.then(|| shm_writer.fill(bytes)).flatten()
    }

    /// Like [`Self::send`], but waits for room.
    pub async fn send_when_possible(self: Arc<Self>, request: Request) -> ReplyResult {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            match self.send(&request) {
                Ok(call) => return call.await,
                Err(QueueError::Failed(failure)) => return Err(failure),
                Err(QueueError::Full) => room.await,
            }
        }
    }

    /// Subscribes a session to cache invalidations, which are passed to `on_invalidate`.
    pub fn subscribe(
        self: &Arc<Self>,
        session: Session,
        on_invalidate: &OnInvalidate,
    ) -> Result<PendingCall<ReplyResult>, QueueError> {
        // Registered before the request is sent: the first invalidation may come with the reply.
        let subscribers =
            InvalidationThreads::start(self, session, on_invalidate).map_err(|why| QueueError::Failed(why.into()))?;
        if self.state.lock().subscribers.insert(session.client(), subscribers).is_some() {
            tracing::debug!(session = session.0, "a session watches again");
        }
        self.enqueue(PendingReply::Request, |id, out| {
            encode_subscribe(session, id, out.short());
            Ok(())
        })
    }

    /// Returns whether the client of a session is subscribed over this connection.
    pub fn is_subscribed(&self, session: Session) -> bool {
        self.state.lock().subscribers.contains_key(&session.client())
    }

    /// Returns whether replies are pending.
    pub fn has_pending(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// Returns whether the node leases descriptors and views over this connection.
    pub fn is_local(&self) -> bool {
        self.liveness_pipe.get().is_some()
    }

    /// Asks for a leased descriptor. The call resolves to `None` if the node has none to lease.
    pub fn request_lease(self: &Arc<Self>, request: LeaseFd) -> Result<PendingCall<FdLease>, QueueError> {
        self.enqueue(PendingReply::Lease, |id, out| {
            encode_lease_fd(request, id, out.short());
            Ok(())
        })
    }

    /// Asks for a descriptor for a program. The call resolves to `None` if the node has none to
    /// give.
    pub fn request_program_fd(self: &Arc<Self>, request: ProgramFd) -> Result<PendingCall<ProgramFdReply>, QueueError> {
        self.enqueue(PendingReply::ProgramFd, |id, out| {
            encode_program_fd(request, id, out.short());
            Ok(())
        })
    }

    /// Queues a request that opens a file, and ahead of it a request for a program's own descriptor
    /// of that file.
    pub fn send_attaching(
        self: &Arc<Self>,
        request: &Request,
        flags: OpenFlags,
    ) -> Result<(PendingCall<ReplyResult>, PendingCall<ProgramFdReply>), QueueError> {
        let mut state = self.state.lock();
        state.check()?;
        let (before, id) = (state.last_id + 1, state.last_id + 2);
        let alone = state.is_idle();
        state.push_notifications();
        let encoded = state.out.push(|out| {
            let start = out.len();
            encode_open_with_fd(flags, before, out);
            // Both frames are queued, or neither.
            encode_request(request, id, out).inspect_err(|_| out.truncate(start))
        });
        encoded.map_err(|too_long| QueueError::Failed(too_long.into()))?;
        state.last_id = id;
        let (answer, answered) = oneshot::channel();
        let (program_fd, received) = oneshot::channel();
        state.pending.insert(id, PendingReply::Request(answer));
        state.pending.insert(before, PendingReply::ProgramFd(program_fd));
        let driver = if alone && state.write() { None } else { state.driver.take() };
        drop(state);
        wake(driver);
        let program_fd = PendingCall { connection: self.clone(), id: before, answered: received };
        Ok((PendingCall { connection: self.clone(), id, answered }, program_fd))
    }

    /// Releases a lease.
    pub fn release(&self, lease: u64) {
        self.update(|state| {
            // After the end of the connection, the liveness pipe tells the node.
            if state.ended.is_none() {
                state.returned.push(lease);
            }
        });
    }

    /// Notes that a program has closed a descriptor. The node is notified with the next message;
    /// the driver is woken only when many wait. Returns false if the connection is not open.
    pub fn notify_closed(&self, lease: OpenLeaseId) -> bool {
        let mut state = self.state.lock();
        if state.ended.is_some() || !state.opened {
            return false;
        }
        state.closed.push(lease);
        let driver = if state.closed.len() >= CLOSED_MAX { state.driver.take() } else { None };
        drop(state);
        wake(driver);
        true
    }

    /// Unsubscribes a session from cache invalidations.
    pub fn unsubscribe(&self, session: Session) {
        let subscribers = self.update(|state| {
            encode_unsubscribe(session, state.out.short());
            state.subscribers.remove(&session.client())
        });
        drop(subscribers);
    }

    /// Tells the node that the kernel of this subscriber supports prune notices.
    pub fn notify_supports_prune(&self, session: Session) {
        self.update(|state| encode_supports_prune(session, state.out.short()));
    }

    /// Acknowledges a batch of invalidations.
    pub fn ack(&self, batch: u64) {
        self.update(|state| encode_ack(batch, state.out.short()));
    }

    /// Closes the connection; requests in flight fail.
    pub fn close(&self) {
        self.update(|state| state.closing = true);
    }

    fn enqueue<T>(
        self: &Arc<Self>,
        reply: impl FnOnce(oneshot::Sender<T>) -> PendingReply,
        encode: impl FnOnce(u64, &mut WriteQueue) -> Result<(), Failure>,
    ) -> Result<PendingCall<T>, QueueError> {
        let mut state = self.state.lock();
        state.check()?;
        let id = state.last_id + 1;
        let alone = state.is_idle();
        state.push_notifications();
        encode(id, &mut state.out).map_err(QueueError::Failed)?;
        state.last_id = id;
        let (answer, answered) = oneshot::channel();
        state.pending.insert(id, reply(answer));
        let driver = if alone && state.write() { None } else { state.driver.take() };
        drop(state);
        wake(driver);
        Ok(PendingCall { connection: self.clone(), id, answered })
    }

    /// Changes state that the driver must see, and wakes it.
    fn update<T>(&self, change: impl FnOnce(&mut ConnectionState) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        changed
    }

    fn cancel(&self, id: u64) {
        let reply = self.update(|state| {
            let reply = state.pending.remove(&id);
            if reply.is_some() {
                encode_cancel(id, state.out.short());
            }
            reply
        });
        drop(reply);
        self.room.notify_waiters();
    }

    // The following methods are for the driver.

    /// Notes that the handshake is done. With a `socket`, a caller that asks while nothing is in
    /// flight writes to it instead of waking the driver.
    pub fn set_open(&self, socket: Option<OwnedFd>) {
        let mut state = self.state.lock();
        (state.opened, state.socket) = (true, socket);
    }

    /// Notes that all taken output is written.
    pub fn set_flushed(&self) {
        self.state.lock().flushed = true;
    }

    /// Answers a ping of the node.
    pub fn push_pong(&self, id: u64) {
        self.update(|state| encode_pong(id, state.out.short()));
    }

    /// Takes the queued output if `out` is empty, and registers the driver to be woken when there
    /// is more.
    pub fn take_output(&self, out: &mut WriteQueue, driver: &Context<'_>) -> DriverAction {
        let mut state = self.state.lock();
        match &mut state.driver {
            Some(known) => known.clone_from(driver.waker()),
            none => *none = Some(driver.waker().clone()),
        }
        state.push_notifications();
        if !out.has_remaining() && state.out.has_remaining() {
            mem::swap(out, &mut state.out);
            state.sent = state.last_id;
        }
        state.flushed = !out.has_remaining();
        let closing = state.closing;
        drop(state);
        self.room.notify_waiters();
        if closing { DriverAction::Close } else { DriverAction::Continue }
    }

    /// Delivers replies; leaves `completions` empty.
    pub fn deliver(&self, completions: &mut Vec<Completion>) {
        if completions.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for completion in &mut *completions {
            completion.reply = state.pending.remove(&completion.id);
        }
        drop(state);
        for Completion { answered, reply, .. } in completions.drain(..) {
            if let Some(PendingReply::Request(reply)) = reply {
                drop(reply.send(answered)); // the caller may have dropped its future
            }
        }
        self.room.notify_waiters();
    }

    /// Notes that the node leases over this connection; `liveness_pipe` is to be kept open.
    pub fn set_liveness_pipe(&self, liveness_pipe: OwnedFd) {
        drop(self.liveness_pipe.set(Arc::new(LivenessPipe::new(liveness_pipe))));
    }

    /// Called in a forked child: closes the child's copy of the liveness pipe, which is the
    /// parent's alone.
    pub fn close_liveness_pipe(&self) {
        if let Some(liveness_pipe) = self.liveness_pipe.get() {
            liveness_pipe.close();
        }
    }

    /// Guard of the lease with this id; `None` if the node leases nothing here.
    pub fn lease_guard(self: &Arc<Self>, id: u64) -> Option<LeaseGuard> {
        Some(LeaseGuard::new(self, id, self.liveness_pipe.get()?))
    }

    /// Tells the node that the client has mapped an exported segment.
    pub fn notify_mapped(&self, number: u32) {
        self.update(|state| encode_segment_mapped(number, state.out.short()));
    }

    /// Sets the write segment that the node offers; only the first counts.
    pub fn set_shm_writer(&self, shm_writer: ShmWriter) {
        drop(self.shm_writer.set(shm_writer));
    }

    /// Delivers a leased descriptor; `None` if this process can open no more.
    pub fn deliver_lease(self: &Arc<Self>, id: u64, file: Option<OwnedFd>) {
        let reply = self.state.lock().pending.remove(&id);
        let fd_lease = self.lease_guard(id).map(|lease| FdLease::new(file, lease));
        if let (Some(PendingReply::Lease(reply)), Some(fd_lease)) = (reply, fd_lease) {
            drop(reply.send(fd_lease));
        }
        self.room.notify_waiters();
    }

    /// Delivers a descriptor for a program; `None` if this process can open no more.
    pub fn deliver_program_fd(&self, id: u64, lease: OpenLeaseId, file: Option<OwnedFd>) {
        let reply = self.state.lock().pending.remove(&id);
        if let Some(PendingReply::ProgramFd(reply)) = reply {
            drop(reply.send(file.map(|file| (file, lease))));
        }
        self.room.notify_waiters();
    }

    /// Passes a batch of invalidations to the threads of its session.
    pub fn deliver_invalidations(&self, batch: u64, session: Session, recalls: Vec<Recall>) {
        let state = self.state.lock();
        let queued =
            state.subscribers.get(&session.client()).is_some_and(|subscribers| subscribers.send(batch, recalls));
        drop(state);
        if !queued {
            self.ack(batch); // no subscriber: nothing is cached
        }
    }

    /// Ends the connection: requests that were sent are `Lost`; the others fail with `why`.
    pub fn end(&self, why: &Failure) {
        let mut state = self.state.lock();
        let lost = Failure::Lost(match why {
            Failure::Unreachable(why) => why.clone(),
            other => other.to_string(),
        });
        let (pending, subscribers, sent) =
            (mem::take(&mut state.pending), mem::take(&mut state.subscribers), state.sent);
        let unsent = mem::take(&mut state.out);
        state.socket = None;
        let driver = state.driver.take(); // dropped after unlocking: it may own this connection
        state.ended = Some(ConnectionEnd { at: Instant::now(), opened: state.opened, why: why.clone() });
        drop(state);
        // Unsent output may hold a view that was leased over this connection, whose drop comes back
        // here.
        drop((unsent, driver));
        subscribers.into_values().for_each(InvalidationThreads::end);
        for (id, reply) in pending {
            let failure = if id <= sent { &lost } else { why };
            if let PendingReply::Request(reply) = reply {
                drop(reply.send(Err(failure.clone())));
            }
        }
        self.room.notify_waiters();
    }
}

impl ConnectionState {
    /// Fails unless one more request may be queued.
    fn check(&self) -> Result<(), QueueError> {
        match &self.ended {
            Some(ended) => Err(QueueError::Failed(ended.why.clone())),
            None if self.pending.len() >= IN_FLIGHT_MAX || self.out.remaining() >= QUEUED_BYTES_MAX => {
                Err(QueueError::Full)
            }
            None => Ok(()),
        }
    }

    /// Returns true if nothing is in flight in either direction, so there is nothing to batch a
    /// request with.
    fn is_idle(&self) -> bool {
        self.flushed && self.pending.is_empty() && !self.out.has_remaining()
    }

    /// Writes queued output if that is allowed and short; returns whether all is written. The
    /// driver writes the rest.
    fn write(&mut self) -> bool {
        let little = self.out.remaining() <= OWN_BYTES_MAX;
        let Some(socket) = self.socket.as_ref().filter(|_| little) else { return false };
        self.sent = self.last_id;
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let filled = self.out.chunks_vectored(&mut pieces);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // An error here occurs for the driver too. The caller owns the bytes as well, so no view is
        // dropped here, under the lock.
        let written = sendmsg(socket, &pieces[..filled], &mut SendAncillaryBuffer::default(), flags).unwrap_or(0);
        self.out.advance(written);
        !self.out.has_remaining()
    }

    /// Queues notifications of released leases and closed descriptors ahead of the next message: a
    /// program that closes a file has released its lease before.
    fn push_notifications(&mut self) {
        if !self.returned.is_empty() {
            encode_leases_returned(&self.returned, self.out.short());
            self.returned.clear();
        }
        if !self.closed.is_empty() {
            encode_leases_closed(&self.closed, self.out.short());
            self.closed.clear();
        }
    }
}

fn wake(driver: Option<Waker>) {
    if let Some(driver) = driver {
        driver.wake();
    }
}

/// Request in flight; dropping it before the reply cancels it.
#[derive(Debug)]
pub struct PendingCall<T> {
    connection: Arc<ClientConnection>,
    id: u64,
    answered: oneshot::Receiver<T>,
}

impl Future for PendingCall<ReplyResult> {
    type Output = ReplyResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ReplyResult> {
        Pin::new(&mut self.answered)
            .poll(context)
            .map(|answered| answered.unwrap_or_else(|_| Err(Failure::Lost("the connection was let go".into()))))
    }
}

impl Future for PendingCall<FdLease> {
    type Output = Option<FdLease>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FdLease>> {
        Pin::new(&mut self.answered).poll(context).map(Result::ok)
    }
}

impl Future for PendingCall<ProgramFdReply> {
    type Output = ProgramFdReply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ProgramFdReply> {
        Pin::new(&mut self.answered).poll(context).map(|reply| reply.ok().flatten())
    }
}

impl<T> Drop for PendingCall<T> {
    fn drop(&mut self) {
        if !self.answered.is_terminated() {
            self.connection.cancel(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use placement::{Epoch, FileId, PartitionId, StripeNo};
    use std::{io::Read, sync::mpsc, thread, time::Duration};
    use wire::{Answer, Body, StripeAction};

    /// Bytes that are leased, like a view of the node's memory.
    struct LeasedBytes(#[expect(dead_code, reason = "held, not looked at")] LeaseGuard);

    impl AsRef<[u8]> for LeasedBytes {
        fn as_ref(&self) -> &[u8] {
            &[7; 5000]
        }
    }

    #[test]
    fn a_line_that_ends_with_a_view_of_its_own_to_be_written_gives_that_back() {
        let connection = Arc::new(ClientConnection::default());
        connection.set_liveness_pipe(std::fs::File::open("/dev/null").unwrap().into());
        let data = Bytes::from_owner(LeasedBytes(connection.lease_guard(1).unwrap()));
        let action = StripeAction::Write { generation: 0, offset: 0, ends: false, data };
        let body = Body::Stripe { file: FileId(1), stripe: StripeNo(0), action };
        let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
        let call = connection.send(&Request { epoch, session, skip_ack: false, partition, body }).unwrap();
        let (send, done) = mpsc::channel();
        let ending = connection.clone();
        thread::spawn(move || {
            ending.end(&Failure::Unreachable("a test".into()));
            drop(ending);
            send.send(()).unwrap();
        });
        done.recv_timeout(Duration::from_mins(1)).expect("it has ended");
        drop(call);
        assert_eq!(Arc::strong_count(&connection), 1, "nothing is lent any more");
    }

    fn fill(length: usize) -> Request {
        let action = StripeAction::Fill { data: vec![7; length].into() };
        let body = Body::Stripe { file: FileId(1), stripe: StripeNo(0), action };
        let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
        Request { epoch, session, skip_ack: false, partition, body }
    }

    #[test]
    fn who_asks_alone_writes_it_and_all_else_waits_for_the_driver_to_go_together() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (connection, mut out, mut came) =
            (Arc::new(ClientConnection::default()), WriteQueue::new(), vec![0; 100_000]);
        let mut take = |connection: &ClientConnection| {
            assert_eq!(connection.take_output(&mut out, &Context::from_waker(Waker::noop())), DriverAction::Continue);
            let taken = out.remaining();
            out.advance(taken);
            taken
        };
        let early = connection.send(&fill(10)).unwrap();
        connection.set_open(Some(ours.into()));
        assert!(take(&connection) > 0 && theirs.read(&mut came).is_err(), "what came before it was open");
        connection.deliver(&mut vec![Completion::new(1, Ok(Answer::Done))]);
        drop(early);
        let unflushed = connection.send(&fill(10)).unwrap();
        assert!(take(&connection) > 0, "the driver may still be writing");
        connection.set_flushed();
        connection.deliver(&mut vec![Completion::new(2, Ok(Answer::Done))]);
        drop(unflushed);
        let alone = connection.send(&fill(9000)).unwrap();
        assert!(theirs.read(&mut came).unwrap() > 9000);
        let second = connection.send(&fill(10)).unwrap();
        assert!(theirs.read(&mut came).is_err() && take(&connection) > 0, "there is another under way");
        connection.set_flushed();
        connection.deliver(&mut [3, 4].map(|id| Completion::new(id, Ok(Answer::Done))).into());
        drop((alone, second));
        let long = connection.send(&fill(OWN_BYTES_MAX)).unwrap();
        assert!(theirs.read(&mut came).is_err() && take(&connection) > OWN_BYTES_MAX, "it is long");
        connection.end(&Failure::Unreachable("a test".into()));
        drop(long);
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(theirs.read(&mut came).unwrap(), 0, "the socket is closed with its line");
    }
}
