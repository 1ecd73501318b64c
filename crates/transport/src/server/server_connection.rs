//! Node's side of one connection: its sessions, its waiting requests, its leases, and the cleanup
//! at its end.

mod fd_leases;
mod handshake;

pub use handshake::serve_connection;

use crate::{
    ReplyResult, ServerLimits,
    server::{
        active_clients::ActiveClients,
        busy_poll::BusyPoll,
        exported_segments::ExportedSegments,
        invalidation_queue::{InvalidationBatch, InvalidationQueue},
        lease_table::LeaseTable,
        log_limiter::LogRateLimiter,
        recv_budget::{ARRIVAL_WAIT, RecvBudget, RecvPermit, RecvTimedOut},
        reply_by_ref::{ReplyRef, reply_by_ref},
        session_cleanup::SessionCleanup,
    },
    socket::framed::{Framed, flatten_end},
};
use bytes::{Buf, Bytes};
use client::poll_now;
use node::{ClientRegistration, Node, OnInvalidate, ReplyFuture};
use parking_lot::Mutex;
use placement::{Epoch, PartitionId};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::{pending, poll_fn},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Instant,
};
use store::SharedMemory;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    task::{AbortHandle, JoinSet},
};
use wire::{
    Answer, Body, Failure, HelloReply, LockOwner, Object, OpenFlags, OpenLeaseId, Refusal, Request, Session,
    codec::{
        RequestInShm, ShmPayload, ToNode, answer_bulk_bytes, begins_stripe, body_bulk, encode_fd_passing, encode_pong,
        encode_recalls, encode_reply, encode_reply_in_shm,
    },
    frame::DecodeError,
    handshake::Token,
};

/// State that all connections of a server share.
#[derive(Debug)]
pub struct ServerState {
    pub node: Arc<Node>,
    /// Memory of the node, exported to clients of this host.
    pub segments: Option<Arc<dyn SharedMemory>>,
    /// Finishes what clients leave behind.
    pub cleanup: SessionCleanup,
    /// Sessions that a connection carries, or that are being ended.
    pub live_sessions: Mutex<BTreeSet<Session>>,
    pub token: Token,
    pub limits: ServerLimits,
    pub clients: ActiveClients,
    pub stopping: watch::Receiver<bool>,
    /// Rate limiter for log lines that any client can cause.
    pub log_limiter: LogRateLimiter,
    pub recv_budget: RecvBudget,
    /// Payload bytes of the waiting requests of all connections.
    pub waiting_bytes: AtomicUsize,
}

/// Reason why a connection ends.
#[derive(Debug, thiserror::Error)]
enum ServerDisconnect {
    #[error("the client has ended it")]
    Left,
    #[error("the client's process has ended")]
    Died,
    #[error("the client has ended it: {0}")]
    Goodbye(String),
    #[error(transparent)]
    DecodeError(#[from] DecodeError),
    #[error("request {id} came after request {last}: ids grow")]
    Ids { id: u64, last: u64 },
    #[error("there are no bytes where the request said: {0:?}")]
    NotFilled(ShmPayload),
    #[error("the bytes of a request have not come within {} s, and others wait for their room", ARRIVAL_WAIT.as_secs())]
    Slow,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the node ends; try again, or another of the pool's addresses")]
    Stopped,
    #[error("a request has made the node panic, which is a bug of Tidemill: see the node's log")]
    Panicked,
}

/// One connection after its handshake.
struct ServerConnection {
    state: Arc<ServerState>,
    framed: Framed,
    last_id: u64,
    /// Sessions that said hello on this connection.
    sessions: BTreeSet<Session>,
    /// By the first session of each client, the session that subscribed.
    subscribed: BTreeMap<Session, Session>,
    /// Requests that wait.
    waiting: JoinSet<(u64, ReplyResult)>,
    /// Task and payload bytes of each waiting request, by request id.
    waits: HashMap<u64, (AbortHandle, usize)>,
    waiting_bytes: usize,
    recv_permit: RecvPermit,
    invalidations: Arc<InvalidationQueue>,
    batches: UnboundedReceiver<InvalidationBatch>,
    /// True if the client may bind files of the node's host.
    may_bind_host_files: bool,
    /// Leases of this client; `None` if it may have none.
    leases: Option<LeaseTable>,
    /// Its place in the node's list of clients.
    registration: Arc<ClientRegistration>,
    /// Requests of managers and of moves, which are not counted as those of clients.
    uncounted: BTreeSet<u64>,
    /// Id and flags of the descriptor that the client wants of the file that its next request
    /// opens.
    attaching: Option<(u64, OpenFlags)>,
    /// Open leases whose descriptors the client has closed and that were not probed yet.
    closed: Vec<OpenLeaseId>,
    /// Segments exported to this client; `None` if there are none.
    exported: Option<ExportedSegments>,
    busy_poll: BusyPoll,
}

impl ServerConnection {
    fn new(state: Arc<ServerState>, mut framed: Framed, short_lived: bool) -> Self {
        let (invalidations, batches) = InvalidationQueue::new();
        let leases = start_leasing(&state, &mut framed);
        let unleased = || Arc::new(state.node.register_client(None));
        let registration = leases.as_ref().map_or_else(unleased, LeaseTable::registration);
        let segments = state.segments.as_ref().filter(|_| leases.is_some());
        let exported = segments.map(|segments| ExportedSegments::new(segments, short_lived, &mut framed));
        state.segments.iter().for_each(|segments| framed.frames.receive_into(segments.clone()));
        let may_bind_host_files = state.limits.host_files || framed.stream().is_of_our_user();
        Self {
            state,
            framed,
            last_id: 0,
            sessions: BTreeSet::new(),
            subscribed: BTreeMap::new(),
            waiting: JoinSet::new(),
            waits: HashMap::new(),
            waiting_bytes: 0,
            recv_permit: RecvPermit::default(),
            invalidations: Arc::new(invalidations),
            batches,
            may_bind_host_files,
            leases,
            registration,
            uncounted: BTreeSet::new(),
            attaching: None,
            closed: Vec::new(),
            exported,
            busy_poll: BusyPoll::default(),
        }
    }

    /// Serves the connection until it ends, then ends what its sessions hold.
    async fn run(mut self) {
        let mut stopping = self.state.stopping.clone();
        let process = self.leases.as_ref().map(LeaseTable::process);
        let died = async {
            match process {
                Some(process) => process.ended().await,
                None => pending().await,
            }
        };
        let end = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => ServerDisconnect::Stopped,
            () = died => ServerDisconnect::Died,
            end = poll_fn(|context| flatten_end(self.try_poll(context))) => end,
        };
        match &end {
            ServerDisconnect::Left
            | ServerDisconnect::Died
            | ServerDisconnect::Goodbye(_)
            | ServerDisconnect::Stopped => tracing::debug!(reason = %end, "a connection has ended"),
            _ => self.state.log_limiter.warn(|| tracing::warn!(reason = %end, "a connection has ended")),
        }
        let Self { state, mut framed, sessions, subscribed, mut waiting, waiting_bytes, invalidations, leases, .. } =
            self;
        invalidations.end();
        if let Err(error) = framed.stream_mut().block() {
            tracing::debug!(%error, "a connection ended before its last messages were sent");
        }
        if let Some(leases) = leases {
            tokio::spawn(leases.wait_until_unused(state.node.clone()));
        }
        waiting.shutdown().await;
        state.waiting_bytes.fetch_sub(waiting_bytes, Relaxed);
        for session in subscribed.into_values() {
            state.node.unsubscribe(session);
        }
        let why = end.to_string();
        // When the whole pool stops, the other nodes need no cleanup.
        let stopping = matches!(end, ServerDisconnect::Stopped);
        tokio::join!(state.end_sessions(sessions, stopping), framed.goodbye(&why));
    }

    /// Makes all progress that is possible now.
    fn try_poll(&mut self, context: &mut Context<'_>) -> Poll<Result<ServerDisconnect, ServerDisconnect>> {
        loop {
            let all_taken = self.handle_frames()?;
            // After the frames, so that requests that began to wait there wake this task too.
            self.send_ready_replies(context)?;
            self.push_invalidations(context);
            let written = self.framed.poll_flush(context).map_err(ServerDisconnect::Broken)?;
            self.probe_closed();
            if !all_taken {
                if written.is_pending() {
                    ready!(self.poll_idle(true))?; // pending output stops reading; the socket wakes us
                }
                continue;
            }
            let (bytes, now) = (self.framed.frames.arriving_bytes(), Instant::now());
            ready!(self.busy_poll.poll_yield(now, context));
            ready!(self.recv_permit.poll(&self.state.recv_budget, bytes, now, context))
                .map_err(|RecvTimedOut| ServerDisconnect::Slow)?;
            match self.framed.poll_fill(context).map_err(ServerDisconnect::Broken)? {
                Poll::Ready(0) => return Poll::Ready(Ok(ServerDisconnect::Left)),
                Poll::Ready(_) => self.busy_poll.on_input(now, &self.state.clients),
                Poll::Pending => ready!(self.poll_idle(written.is_pending()))?,
            }
        }
    }

    /// Called when nothing has come: busy-polls or waits. `is_stuck`: output is pending.
    fn poll_idle(&mut self, is_stuck: bool) -> Poll<io::Result<()>> {
        // Waiting requests are tasks of their own, which busy polling might hold up.
        let may = !is_stuck && self.waits.is_empty() && self.exported.is_some();
        let is_crowded = !may || self.state.clients.count(Instant::now()) > self.state.limits.busy_polls;
        self.busy_poll.poll(self.framed.stream_mut(), is_crowded)
    }

    fn send_ready_replies(&mut self, context: &mut Context<'_>) -> Result<(), ServerDisconnect> {
        while let Poll::Ready(Some(ended)) = self.waiting.poll_join_next(context) {
            match ended {
                // A request that was cancelled meanwhile is no longer in `waits`.
                Ok((id, answered)) if self.remove_waiting(id).is_some() => self.reply(id, &answered),
                Err(error) if error.is_panic() => return Err(ServerDisconnect::Panicked),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn push_invalidations(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(batch)) = self.batches.poll_recv(context) {
            encode_recalls(batch.session, &batch.recalls, batch.number, self.framed.out.short());
        }
    }

    /// Handles frames. Returns true if none is left, false if too much output is queued.
    fn handle_frames(&mut self) -> Result<bool, ServerDisconnect> {
        while self.framed.out.remaining() < self.state.limits.queued_bytes {
            let Some(frame) = self.framed.frames.next()? else { return Ok(true) };
            self.recv_permit.release();
            let message = ToNode::decode(frame)?;
            // The next read may be much later, and this buffer would stay uncounted until then.
            self.framed.frames.release();
            self.on(message)?;
        }
        Ok(false)
    }

    fn on(&mut self, message: ToNode) -> Result<(), ServerDisconnect> {
        match message {
            ToNode::Request { id, request } => {
                self.check_id(id)?;
                self.handle_request(id, request)?;
            }
            ToNode::Subscribe { id, session } => {
                self.check_id(id)?;
                let answered = self.subscribe(session).map(|()| Answer::Done);
                self.reply(id, &answered);
            }
            ToNode::Cancel { id } => {
                self.uncounted.remove(&id);
                if let Some(waiting) = self.remove_waiting(id) {
                    waiting.abort();
                }
            }
            ToNode::Unsubscribe { session } => {
                if self.subscribed.remove(&session.client()).is_some() {
                    self.state.node.unsubscribe(session);
                }
            }
            ToNode::SupportsPrune { session } => {
                if self.subscribed.contains_key(&session.client()) {
                    self.state.node.declare_prune_support(session);
                }
            }
            ToNode::Ack { batch } => self.invalidations.ack(batch),
            ToNode::Ping(id) => encode_pong(id, self.framed.out.short()),
            ToNode::Pong(_) => {}
            ToNode::Goodbye(why) => return Err(ServerDisconnect::Goodbye(why)),
            ToNode::LeaseFd { id, request } => {
                self.check_id(id)?;
                if !self.lease_fd(id, request) {
                    self.reply(id, &Ok(Answer::Done));
                }
            }
            ToNode::ProgramFd { id, request } => {
                self.check_id(id)?;
                if !self.send_program_fd(id, request) {
                    self.reply(id, &Ok(Answer::Done));
                }
            }
            ToNode::OpenWithFd { id, flags } => {
                self.check_id(id)?;
                self.attaching = Some((id, flags));
            }
            ToNode::RequestInShm { id, request: publish } => {
                self.check_id(id)?;
                self.publish(id, *publish)?;
            }
            ToNode::SegmentMapped { number } => {
                if let Some(exported) = &mut self.exported {
                    exported.mark_mapped(number);
                }
            }
            ToNode::LeasesClosed(leases) => self.on_closed(leases),
            ToNode::LeasesReturned(returned) => {
                if let Some(leases) = &mut self.leases {
                    leases.release(&returned);
                }
            }
        }
        Ok(())
    }

    fn check_id(&mut self, id: u64) -> Result<(), ServerDisconnect> {
        let last = std::mem::replace(&mut self.last_id, id);
        if id > last { Ok(()) } else { Err(ServerDisconnect::Ids { id, last }) }
    }

    fn handle_request(&mut self, id: u64, mut request: Request) -> Result<(), ServerDisconnect> {
        if let Err(failure) = self.check_session(&request).and_then(|()| self.set_lock_owner(&mut request.body)) {
            self.decline_attach();
            self.reply(id, &Err(failure));
            return Ok(());
        }
        if let Body::EndMovedSession { session, .. } = request.body
            && self.state.live_sessions.lock().contains(&session)
        {
            self.reply(id, &Ok(Answer::Closed(Vec::new())));
            return Ok(());
        }
        if let (Body::ProbeLease { lease }, Some(process)) = (&request.body, self.process()) {
            self.state.node.unlock_on_close(process, *lease);
        }
        let (bytes, session) = (body_bulk(&request.body).map_or(0, Bytes::len), request.session);
        if matches!(request.body, Body::Manage { .. } | Body::Move { .. }) {
            self.uncounted.insert(id);
        } else {
            self.registration.count_request(bytes);
        }
        let of_stripe = begins_stripe(&request.body).map_or(0, Bytes::len);
        if let (Some(leases), Some(exported), 1..) = (&mut self.leases, &self.exported, of_stripe) {
            leases.offer_write_segment(of_stripe, exported.segments(), &mut self.framed);
        }
        // A bug that makes the node panic ends this connection like any other end, with what it
        // held.
        let handled = catch_unwind(AssertUnwindSafe(|| self.state.node.handle(request)));
        let mut reply = handled.map_err(|_| ServerDisconnect::Panicked)?;
        // Most replies are ready now and cost no task.
        match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answered) => {
                if let Ok(Answer::Hello(welcome)) = &answered {
                    self.claim_session(welcome.session);
                }
                self.attach_fd(session, &answered);
                self.reply(id, &answered);
            }
            Poll::Pending => {
                self.decline_attach();
                self.wait(id, reply, bytes);
            }
        }
        Ok(())
    }

    /// Handles a request whose bytes the client has put into its write segment.
    fn publish(&mut self, id: u64, request: RequestInShm) -> Result<(), ServerDisconnect> {
        let filled = request.filled;
        let bytes =
            self.leases.as_ref().and_then(|leases| leases.take(filled)).ok_or(ServerDisconnect::NotFilled(filled))?;
        let request = request.into_request(bytes)?;
        self.handle_request(id, request)
    }

    /// Fails unless this connection carries the session of the request, or may carry it.
    fn check_session(&mut self, request: &Request) -> Result<(), Failure> {
        if !self.may_bind_host_files && request.body.binds_host_file() {
            return Err(Refusal::NotPermitted(Object::Text("binding a file of the node's host".into())).into());
        }
        match (&request.body, request.session) {
            (
                Body::Usage
                | Body::Workers
                | Body::Stop
                | Body::Move { .. }
                | Body::Manage { .. }
                | Body::EndMovedSession { .. },
                _,
            ) => Ok(()),
            (Body::Hello, Session::NONE) => self.has_room(),
            (Body::Hello, session) => self.adopt_session(session),
            (_, session) if self.sessions.contains(&session) => Ok(()),
            _ => Err(Refusal::SessionEnded.into()),
        }
    }

    /// Process at the other end, if it is on this host and visible here.
    fn process(&self) -> Option<u32> {
        self.leases.as_ref().and_then(|leases| leases.process().id())
    }

    /// Fills in the process of this host that owns a lock. Fails for a lock that outlives its
    /// session if this node should see its owner end, and would not.
    fn set_lock_owner(&self, body: &mut Body) -> Result<(), Failure> {
        let of_this_host = |owner: &&mut LockOwner| owner.host() == Some(self.state.node.id());
        let Some(owner) = body.lock().map(|lock| &mut lock.owner).filter(of_this_host) else {
            return Ok(());
        };
        let what = "a lock that outlives its session, of a program that is not on the node's host,".into();
        let far = Refusal::Unsupported { object: Object::Pool, what };
        match (&mut *owner, self.process()) {
            (LockOwner::Process { process, .. }, Some(asks)) => *process = asks,
            (LockOwner::Open(_), _) if self.leases.is_some() => {}
            _ => return Err(far.into()),
        }
        Ok(())
    }

    fn has_room(&self) -> Result<(), Failure> {
        let limit = self.state.limits.sessions;
        let full = Refusal::TooManyOpen { object: Object::Pool, limit: limit as u64 };
        if self.sessions.len() < limit { Ok(()) } else { Err(full.into()) }
    }

    /// Carries a session that another node has given.
    fn adopt_session(&mut self, session: Session) -> Result<(), Failure> {
        if self.sessions.contains(&session) {
            return Ok(());
        }
        self.has_room()?;
        self.state.hello(session)?;
        if self.claim_session(session) {
            return Ok(());
        }
        Err(Failure::Unreachable("another connection of this session is still open".into()))
    }

    fn claim_session(&mut self, session: Session) -> bool {
        let first = self.sessions.contains(&session) || self.state.live_sessions.lock().insert(session);
        if first {
            self.sessions.insert(session);
            self.registration.add_session(session);
        }
        first
    }

    fn wait(&mut self, id: u64, reply: ReplyFuture, bytes: usize) {
        let limits = &self.state.limits;
        let all = self.state.waiting_bytes.load(Relaxed) + bytes;
        let is_much = self.waiting_bytes + bytes > limits.waiting_bytes || all > 2 * limits.waiting_bytes;
        if self.waits.len() >= limits.waiting || (bytes > 0 && is_much) {
            drop(reply);
            let why = format!("{} requests of this connection wait already", self.waits.len());
            return self.reply(id, &Err(Failure::Lost(why)));
        }
        let waiting = self.waiting.spawn(async move { (id, reply.await) });
        self.waits.insert(id, (waiting, bytes));
        self.waiting_bytes += bytes;
        self.state.waiting_bytes.fetch_add(bytes, Relaxed);
    }

    /// Removes a request that waits no longer.
    fn remove_waiting(&mut self, id: u64) -> Option<AbortHandle> {
        let (waiting, bytes) = self.waits.remove(&id)?;
        self.waiting_bytes -= bytes;
        self.state.waiting_bytes.fetch_sub(bytes, Relaxed);
        Some(waiting)
    }

    fn reply(&mut self, id: u64, answered: &ReplyResult) {
        if !self.uncounted.remove(&id) {
            self.registration.count_answer(answered.as_ref().map_or(0, answer_bulk_bytes));
        }
        let Self { leases, exported, framed, .. } = self;
        let place = |pieces: &[Bytes]| leases.as_mut()?.place(id, pieces, exported.as_mut()?, framed);
        match answered.as_ref().ok().and_then(|answer| reply_by_ref(answer, place)) {
            Some(ReplyRef::Placed(placed)) => encode_reply_in_shm(placed, id, self.framed.out.short()),
            Some(ReplyRef::Answer(answer)) => self.send_reply(id, &Ok(answer)),
            None => self.send_reply(id, answered),
        }
    }

    fn send_reply(&mut self, id: u64, answered: &ReplyResult) {
        if let Err(too_long) = self.framed.out.push(|out| encode_reply(answered, id, out)) {
            let failure = Err(Failure::from(too_long));
            self.framed.out.push(|out| encode_reply(&failure, id, out)).expect("a refusal is short");
        }
    }

    fn subscribe(&mut self, session: Session) -> Result<(), Failure> {
        if !self.sessions.contains(&session) {
            return Err(Refusal::SessionEnded.into());
        }
        let invalidations = self.invalidations.clone();
        let on_invalidate: OnInvalidate = Arc::new(move |recalls| invalidations.send_and_wait(session, recalls));
        self.state.node.subscribe(session, &on_invalidate)?;
        self.subscribed.insert(session.client(), session);
        Ok(())
    }
}

/// Starts leasing to a client of this host, if the node has anything to lease.
fn start_leasing(state: &ServerState, framed: &mut Framed) -> Option<LeaseTable> {
    let (leases, liveness_pipe) = match LeaseTable::for_client(&state.node, framed.stream(), state.limits) {
        Ok(lends) => lends.filter(|_| state.segments.is_some() || state.node.supports_extent_files())?,
        Err(error) => {
            tracing::warn!(%error, "no descriptor can be leased to a client of this host");
            return None;
        }
    };
    framed.push_with_fd(liveness_pipe, encode_fd_passing);
    Some(leases)
}

impl ServerState {
    /// Hello reply of the node for a session that a client names.
    fn hello(&self, session: Session) -> Result<HelloReply, Failure> {
        match poll_now(self.node.handle(request(Epoch::FIRST, session, PartitionId(0), Body::Hello))) {
            Some(Ok(Answer::Hello(welcome))) => Ok(welcome),
            Some(Err(failure)) => Err(failure),
            _ => Err(Refusal::Stale(Object::Pool).into()),
        }
    }
}

pub fn request(epoch: Epoch, session: Session, partition: PartitionId, body: Body) -> Request {
    Request { epoch, session, skip_ack: false, partition, body }
}
