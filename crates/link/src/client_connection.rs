//! Client's side of one connection, as callers see it: queued output and pending replies.
//!
//! Callers on any thread queue frames here; the driver (`dial`) writes them to the socket and
//! delivers what arrives. A [`Line`] is used for one connection: once ended it stays ended, and the
//! next call makes another.

use crate::{
    invalidation_threads::Ears,
    lease::{Hold, Lent, Used},
    shm_writer::{Bay, Begun},
};
use bytes::{Buf, Bytes};
use client::Hear;
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
    Answer, Failure, Mark, OpenFlags, Recall, Request, Session,
    codec::{
        Borrow, Obtain, begins_stripe, encode_attach, encode_borrow, encode_cancel, encode_closed, encode_heard,
        encode_mapped, encode_obtain, encode_pong, encode_prunes, encode_publish, encode_request, encode_returned,
        encode_unwatch, encode_watch,
    },
    frame::Outgoing,
};

/// Most requests in flight: as many as a node lets wait for one connection, so that it refuses
/// none.
const UNDER_WAY_MAX: usize = 8192;
/// Most bytes that the driver has not taken yet; above that calls wait.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Most bytes that a calling thread writes itself; other callers wait meanwhile.
const OWN_BYTES_MAX: usize = 64 << 10;
/// Most closed descriptors that wait for the next message.
const CLOSED_MAX: usize = 64;
/// Most buffers of one write by a caller.
const PIECES_MAX: usize = 8;

type Answered = Result<Answer, Failure>;

/// One connection, from the connect to its end.
#[derive(Debug, Default)]
pub struct Line {
    state: Mutex<State>,
    /// Notified when there may be room for another call.
    room: Notify,
    /// Liveness pipe, to be held as long as anything leased is used; unset if nothing is leased.
    hold: OnceLock<Arc<Hold>>,
    /// Write segment for bytes that need not be sent; unset if there is none.
    bay: OnceLock<Bay>,
}

#[derive(Debug, Default)]
struct State {
    /// Frames that the driver has not taken yet.
    out: Outgoing,
    /// Last request id that was assigned.
    given: u64,
    /// Requests up to this id were handed to the socket.
    sent: u64,
    asked: HashMap<u64, Asked, BuildNumberHasher>,
    /// Leases that are released, of which the node was not notified yet.
    returned: Vec<u64>,
    /// Open leases whose descriptors were closed, of which the node was not notified yet.
    closed: Vec<Mark>,
    ears: HashMap<Session, Ears>,
    driver: Option<Waker>,
    /// True if the driver has no unwritten output.
    flushed: bool,
    /// Duplicate of the socket, for a lone caller to write to; `None` if only the driver may.
    socket: Option<OwnedFd>,
    opened: bool,
    closing: bool,
    ended: Option<Ended>,
}

/// Waiting caller.
#[derive(Debug)]
enum Asked {
    Request(oneshot::Sender<Answered>),
    Loan(oneshot::Sender<Lent>),
    Gift(oneshot::Sender<Gift>),
}

/// Descriptor of a program and its open lease; `None` if this process can open no more descriptors.
pub type Gift = Option<(OwnedFd, Mark)>;

/// Reply that has arrived.
#[derive(Debug)]
pub struct Brought {
    id: u64,
    answered: Answered,
    /// Caller that waits for it, once looked up.
    asked: Option<Asked>,
}

impl Brought {
    /// Creates the reply to the request with this id.
    pub fn new(id: u64, answered: Answered) -> Self {
        Self { id, answered, asked: None }
    }
}

/// End of a connection.
#[derive(Clone, Debug)]
pub struct Ended {
    pub at: Instant,
    /// True if the connection had been open.
    pub opened: bool,
    /// Failure of the requests that were not sent.
    pub why: Failure,
}

/// Reason why a request was not queued.
#[derive(Debug)]
pub enum NotSent {
    /// The limits are reached.
    Full,
    /// The connection has ended.
    Failed(Failure),
}

/// Instruction for the driver.
#[derive(Debug, PartialEq)]
pub enum Orders {
    Go,
    Close,
}

impl Line {
    /// Returns how the connection ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.state.lock().ended.clone()
    }

    /// Queues a request. The bytes of a stripe are copied into the node's memory where that is
    /// possible.
    pub fn send(self: &Arc<Self>, request: &Request) -> Result<Call<Answered>, NotSent> {
        if let Some(begun) = self.put_down(request) {
            let encode =
                |out: &mut Vec<u8>, id| encode_publish(request, begun.filled(), id, out).map(|()| Bytes::new());
            let call = self.ask(Asked::Request, |id, out| out.push(|out| encode(out, id)).map_err(Failure::from))?;
            begun.published();
            return Ok(call);
        }
        self.ask(Asked::Request, |id, out| out.push(|out| encode_request(request, id, out)).map_err(Failure::from))
    }

    fn put_down(&self, request: &Request) -> Option<Begun<'_>> {
        let bay = self.bay.get()?;
        let bytes = begins_stripe(&request.body).filter(|bytes| bay.suits(bytes.len()))?;
        let has_room = self.state.lock().check().is_ok();
        has_room.then(|| bay.fill(bytes)).flatten()
    }

    /// Like [`Self::send`], but waits for room.
    pub async fn send_later(self: Arc<Self>, request: Request) -> Answered {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            match self.send(&request) {
                Ok(call) => return call.await,
                Err(NotSent::Failed(failure)) => return Err(failure),
                Err(NotSent::Full) => room.await,
            }
        }
    }

    /// Subscribes a session to cache invalidations, which are passed to `hear`.
    pub fn watch(self: &Arc<Self>, session: Session, hear: &Hear) -> Result<Call<Answered>, NotSent> {
        // Registered before the request is sent: the first invalidation may come with the reply.
        let ears = Ears::start(self, session, hear).map_err(|why| NotSent::Failed(why.into()))?;
        if self.state.lock().ears.insert(session, ears).is_some() {
            tracing::debug!(session = session.0, "a session watches again");
        }
        self.ask(Asked::Request, |id, out| {
            encode_watch(session, id, out.short());
            Ok(())
        })
    }

    /// Returns whether replies are pending.
    pub fn is_asked(&self) -> bool {
        !self.state.lock().asked.is_empty()
    }

    /// Returns whether the node leases descriptors and views over this connection.
    pub fn is_near(&self) -> bool {
        self.hold.get().is_some()
    }

    /// Asks for a leased descriptor. The call resolves to `None` if the node has none to lease.
    pub fn borrow(self: &Arc<Self>, borrow: Borrow) -> Result<Call<Lent>, NotSent> {
        self.ask(Asked::Loan, |id, out| {
            encode_borrow(borrow, id, out.short());
            Ok(())
        })
    }

    /// Asks for a descriptor for a program. The call resolves to `None` if the node has none to
    /// give.
    pub fn obtain(self: &Arc<Self>, obtain: Obtain) -> Result<Call<Gift>, NotSent> {
        self.ask(Asked::Gift, |id, out| {
            encode_obtain(obtain, id, out.short());
            Ok(())
        })
    }

    /// Queues a request that opens a file, and ahead of it a request for a program's own descriptor
    /// of that file.
    pub fn send_attaching(
        self: &Arc<Self>,
        request: &Request,
        flags: OpenFlags,
    ) -> Result<(Call<Answered>, Call<Gift>), NotSent> {
        let mut state = self.state.lock();
        state.check()?;
        let (before, id) = (state.given + 1, state.given + 2);
        let alone = state.is_quiet();
        state.tell_done();
        let encoded = state.out.push(|out| {
            let begun = out.len();
            encode_attach(flags, before, out);
            // Both frames are queued, or neither.
            encode_request(request, id, out).inspect_err(|_| out.truncate(begun))
        });
        encoded.map_err(|too_long| NotSent::Failed(too_long.into()))?;
        state.given = id;
        let (answer, answered) = oneshot::channel();
        let (gift, given) = oneshot::channel();
        state.asked.insert(id, Asked::Request(answer));
        state.asked.insert(before, Asked::Gift(gift));
        let driver = if alone && state.write() { None } else { state.driver.take() };
        drop(state);
        wake(driver);
        let given = Call { line: self.clone(), id: before, answered: given };
        Ok((Call { line: self.clone(), id, answered }, given))
    }

    /// Releases a lease.
    pub fn give_back(&self, loan: u64) {
        self.put(|state| {
            // After the end of the connection, the liveness pipe tells the node.
            if state.ended.is_none() {
                state.returned.push(loan);
            }
        });
    }

    /// Notes that a program has closed a descriptor. The node is notified with the next message;
    /// the driver is woken only when many wait. Returns false if the connection is not open.
    pub fn closed(&self, mark: Mark) -> bool {
        let mut state = self.state.lock();
        if state.ended.is_some() || !state.opened {
            return false;
        }
        state.closed.push(mark);
        let driver = if state.closed.len() >= CLOSED_MAX { state.driver.take() } else { None };
        drop(state);
        wake(driver);
        true
    }

    /// Unsubscribes a session from cache invalidations.
    pub fn unwatch(&self, session: Session) {
        let ears = self.put(|state| {
            encode_unwatch(session, state.out.short());
            state.ears.remove(&session)
        });
        drop(ears);
    }

    /// Tells the node that the kernel of this subscriber supports prune notices.
    pub fn prunes(&self, session: Session) {
        self.put(|state| encode_prunes(session, state.out.short()));
    }

    /// Acknowledges a batch of invalidations.
    pub fn heard(&self, batch: u64) {
        self.put(|state| encode_heard(batch, state.out.short()));
    }

    /// Closes the connection; requests in flight fail.
    pub fn close(&self) {
        self.put(|state| state.closing = true);
    }

    fn ask<T>(
        self: &Arc<Self>,
        asked: impl FnOnce(oneshot::Sender<T>) -> Asked,
        encode: impl FnOnce(u64, &mut Outgoing) -> Result<(), Failure>,
    ) -> Result<Call<T>, NotSent> {
        let mut state = self.state.lock();
        state.check()?;
        let id = state.given + 1;
        let alone = state.is_quiet();
        state.tell_done();
        encode(id, &mut state.out).map_err(NotSent::Failed)?;
        state.given = id;
        let (answer, answered) = oneshot::channel();
        state.asked.insert(id, asked(answer));
        let driver = if alone && state.write() { None } else { state.driver.take() };
        drop(state);
        wake(driver);
        Ok(Call { line: self.clone(), id, answered })
    }

    /// Changes state that the driver must see, and wakes it.
    fn put<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        changed
    }

    fn cancel(&self, id: u64) {
        let asked = self.put(|state| {
            let asked = state.asked.remove(&id);
            if asked.is_some() {
                encode_cancel(id, state.out.short());
            }
            asked
        });
        drop(asked);
        self.room.notify_waiters();
    }

    // The following methods are for the driver.

    /// Notes that the handshake is done. With a `socket`, a caller that asks while nothing is in
    /// flight writes to it instead of waking the driver.
    pub fn opened(&self, socket: Option<OwnedFd>) {
        let mut state = self.state.lock();
        (state.opened, state.socket) = (true, socket);
    }

    /// Notes that all taken output is written.
    pub fn flushed(&self) {
        self.state.lock().flushed = true;
    }

    /// Answers a ping of the node.
    pub fn pong(&self, id: u64) {
        self.put(|state| encode_pong(id, state.out.short()));
    }

    /// Takes the queued output if `out` is empty, and registers the driver to be woken when there
    /// is more.
    pub fn take(&self, out: &mut Outgoing, driver: &Context<'_>) -> Orders {
        let mut state = self.state.lock();
        match &mut state.driver {
            Some(known) => known.clone_from(driver.waker()),
            none => *none = Some(driver.waker().clone()),
        }
        state.tell_done();
        if !out.has_remaining() && state.out.has_remaining() {
            mem::swap(out, &mut state.out);
            state.sent = state.given;
        }
        state.flushed = !out.has_remaining();
        let closing = state.closing;
        drop(state);
        self.room.notify_waiters();
        if closing { Orders::Close } else { Orders::Go }
    }

    /// Delivers replies; leaves `brought` empty.
    pub fn answered(&self, brought: &mut Vec<Brought>) {
        if brought.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for brought in &mut *brought {
            brought.asked = state.asked.remove(&brought.id);
        }
        drop(state);
        for Brought { answered, asked, .. } in brought.drain(..) {
            if let Some(Asked::Request(asked)) = asked {
                drop(asked.send(answered)); // the caller may have dropped its future
            }
        }
        self.room.notify_waiters();
    }

    /// Notes that the node leases over this connection; `hold` is the liveness pipe to keep open.
    pub fn near(&self, hold: OwnedFd) {
        drop(self.hold.set(Arc::new(Hold::new(hold))));
    }

    /// Called in a forked child: closes the child's copy of the liveness pipe, which is the
    /// parent's alone.
    pub fn let_go_of_hold(&self) {
        if let Some(hold) = self.hold.get() {
            hold.let_go();
        }
    }

    /// Guard of the lease with this id; `None` if the node leases nothing here.
    pub fn loan(self: &Arc<Self>, id: u64) -> Option<Used> {
        Some(Used::new(self, id, self.hold.get()?))
    }

    /// Tells the node that the client has mapped an exported segment.
    pub fn mapped(&self, number: u32) {
        self.put(|state| encode_mapped(number, state.out.short()));
    }

    /// Sets the write segment that the node offers; only the first counts.
    pub fn bay(&self, bay: Bay) {
        drop(self.bay.set(bay));
    }

    /// Delivers a leased descriptor; `None` if this process can open no more.
    pub fn lent(self: &Arc<Self>, id: u64, file: Option<OwnedFd>) {
        let asked = self.state.lock().asked.remove(&id);
        let lent = self.loan(id).map(|loan| Lent::new(file, loan));
        if let (Some(Asked::Loan(asked)), Some(lent)) = (asked, lent) {
            drop(asked.send(lent));
        }
        self.room.notify_waiters();
    }

    /// Delivers a descriptor for a program; `None` if this process can open no more.
    pub fn given(&self, id: u64, mark: Mark, file: Option<OwnedFd>) {
        let asked = self.state.lock().asked.remove(&id);
        if let Some(Asked::Gift(asked)) = asked {
            drop(asked.send(file.map(|file| (file, mark))));
        }
        self.room.notify_waiters();
    }

    /// Passes a batch of invalidations to the threads of its session.
    pub fn recalled(&self, batch: u64, session: Session, recalls: Vec<Recall>) {
        let state = self.state.lock();
        let told = state.ears.get(&session).is_some_and(|ears| ears.tell(batch, recalls));
        drop(state);
        if !told {
            self.heard(batch); // no subscriber: nothing is cached
        }
    }

    /// Ends the connection: requests that were sent are `Lost`; the others fail with `why`.
    pub fn end(&self, why: &Failure) {
        let mut state = self.state.lock();
        let lost = Failure::Lost(match why {
            Failure::Unreachable(why) => why.clone(),
            other => other.to_string(),
        });
        let (asked, ears, sent) = (mem::take(&mut state.asked), mem::take(&mut state.ears), state.sent);
        let unsent = mem::take(&mut state.out);
        state.socket = None;
        let driver = state.driver.take(); // dropped after unlocking: it may own this line
        state.ended = Some(Ended { at: Instant::now(), opened: state.opened, why: why.clone() });
        drop(state);
        // Unsent output may hold a view that was leased over this line, whose drop comes back here.
        drop((unsent, driver));
        ears.into_values().for_each(Ears::end);
        for (id, asked) in asked {
            let failure = if id <= sent { &lost } else { why };
            if let Asked::Request(asked) = asked {
                drop(asked.send(Err(failure.clone())));
            }
        }
        self.room.notify_waiters();
    }
}

impl State {
    /// Fails unless one more request may be queued.
    fn check(&self) -> Result<(), NotSent> {
        match &self.ended {
            Some(ended) => Err(NotSent::Failed(ended.why.clone())),
            None if self.asked.len() >= UNDER_WAY_MAX || self.out.remaining() >= QUEUED_BYTES_MAX => Err(NotSent::Full),
            None => Ok(()),
        }
    }

    /// Returns true if nothing is in flight in either direction, so there is nothing to batch a
    /// request with.
    fn is_quiet(&self) -> bool {
        self.flushed && self.asked.is_empty() && !self.out.has_remaining()
    }

    /// Writes queued output if that is allowed and short; returns whether all is written. The
    /// driver writes the rest.
    fn write(&mut self) -> bool {
        let little = self.out.remaining() <= OWN_BYTES_MAX;
        let Some(socket) = self.socket.as_ref().filter(|_| little) else { return false };
        self.sent = self.given;
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
    fn tell_done(&mut self) {
        if !self.returned.is_empty() {
            encode_returned(&self.returned, self.out.short());
            self.returned.clear();
        }
        if !self.closed.is_empty() {
            encode_closed(&self.closed, self.out.short());
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
pub struct Call<T> {
    line: Arc<Line>,
    id: u64,
    answered: oneshot::Receiver<T>,
}

impl Future for Call<Answered> {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        Pin::new(&mut self.answered)
            .poll(context)
            .map(|answered| answered.unwrap_or_else(|_| Err(Failure::Lost("the connection was let go".into()))))
    }
}

impl Future for Call<Lent> {
    type Output = Option<Lent>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Lent>> {
        Pin::new(&mut self.answered).poll(context).map(Result::ok)
    }
}

impl Future for Call<Gift> {
    type Output = Gift;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Gift> {
        Pin::new(&mut self.answered).poll(context).map(|given| given.ok().flatten())
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        if !self.answered.is_terminated() {
            self.line.cancel(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use placement::{Epoch, FileId, PartitionId, StripeNo};
    use std::{io::Read, sync::mpsc, thread, time::Duration};
    use wire::{Body, StripeAction};

    /// Bytes that are leased, like a view of the node's memory.
    struct View(#[expect(dead_code, reason = "held, not looked at")] Used);

    impl AsRef<[u8]> for View {
        fn as_ref(&self) -> &[u8] {
            &[7; 5000]
        }
    }

    #[test]
    fn a_line_that_ends_with_a_view_of_its_own_to_be_written_gives_that_back() {
        let line = Arc::new(Line::default());
        line.near(std::fs::File::open("/dev/null").unwrap().into());
        let data = Bytes::from_owner(View(line.loan(1).unwrap()));
        let action = StripeAction::Write { generation: 0, offset: 0, ends: false, data };
        let body = Body::Stripe { file: FileId(1), stripe: StripeNo(0), action };
        let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
        let call = line.send(&Request { epoch, session, hurried: false, partition, body }).unwrap();
        let (send, done) = mpsc::channel();
        let ending = line.clone();
        thread::spawn(move || {
            ending.end(&Failure::Unreachable("a test".into()));
            drop(ending);
            send.send(()).unwrap();
        });
        done.recv_timeout(Duration::from_mins(1)).expect("it has ended");
        drop(call);
        assert_eq!(Arc::strong_count(&line), 1, "nothing is lent any more");
    }

    fn fill(length: usize) -> Request {
        let action = StripeAction::Fill { data: vec![7; length].into() };
        let body = Body::Stripe { file: FileId(1), stripe: StripeNo(0), action };
        let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
        Request { epoch, session, hurried: false, partition, body }
    }

    #[test]
    fn who_asks_alone_writes_it_and_all_else_waits_for_the_driver_to_go_together() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (line, mut out, mut came) = (Arc::new(Line::default()), Outgoing::new(), vec![0; 100_000]);
        let mut take = |line: &Line| {
            assert_eq!(line.take(&mut out, &Context::from_waker(Waker::noop())), Orders::Go);
            let taken = out.remaining();
            out.advance(taken);
            taken
        };
        let early = line.send(&fill(10)).unwrap();
        line.opened(Some(ours.into()));
        assert!(take(&line) > 0 && theirs.read(&mut came).is_err(), "what came before it was open");
        line.answered(&mut vec![Brought::new(1, Ok(Answer::Done))]);
        drop(early);
        let unflushed = line.send(&fill(10)).unwrap();
        assert!(take(&line) > 0, "the driver may still be writing");
        line.flushed();
        line.answered(&mut vec![Brought::new(2, Ok(Answer::Done))]);
        drop(unflushed);
        let alone = line.send(&fill(9000)).unwrap();
        assert!(theirs.read(&mut came).unwrap() > 9000);
        let second = line.send(&fill(10)).unwrap();
        assert!(theirs.read(&mut came).is_err() && take(&line) > 0, "there is another under way");
        line.flushed();
        line.answered(&mut [3, 4].map(|id| Brought::new(id, Ok(Answer::Done))).into());
        drop((alone, second));
        let long = line.send(&fill(OWN_BYTES_MAX)).unwrap();
        assert!(theirs.read(&mut came).is_err() && take(&line) > OWN_BYTES_MAX, "it is long");
        line.end(&Failure::Unreachable("a test".into()));
        drop(long);
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(theirs.read(&mut came).unwrap(), 0, "the socket is closed with its line");
    }
}
