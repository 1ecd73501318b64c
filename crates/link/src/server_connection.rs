//! Node's side of one connection: its sessions, its waiting requests, its leases, and the cleanup
//! at its end.

mod fd_leases;
mod handshake;

pub use handshake::receive;

use crate::{
    Limits,
    busy_poll::Brisk,
    exported_segments::Shown,
    framed::{Pipe, ended},
    invalidation_queue::{Batch, Told},
    lease_table::Loans,
    log_limiter::Rare,
    payload_size::payload_bytes,
    recv_budget::{ARRIVAL_WAIT, Arriving, Budget, TooSlow},
    reply_by_ref::{Said, said},
    session_cleanup::Janitor,
};
use bytes::{Buf, Bytes};
use client::at_once;
use node::{Hear, Node, Reply};
use parking_lot::Mutex;
use placement::{Epoch, PartitionId};
use std::{
    collections::{BTreeSet, HashMap},
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
use store::Segments;
use tokio::{
    sync::{Semaphore, mpsc::UnboundedReceiver, watch},
    task::{AbortHandle, JoinSet, yield_now},
};
use wire::{
    Answer, Body, Command, Failure, LockOwner, Mark, Object, OpenFlags, Refusal, Request, Session, Stamp, Welcome,
    codec::{
        Filled, Publish, ToNode, begins_stripe, encode_near, encode_placed, encode_pong, encode_recalls, encode_reply,
    },
    frame::Garbled,
    handshake::Token,
};

/// State that all connections of a server share.
#[derive(Debug)]
pub struct House {
    pub node: Arc<Node>,
    /// Memory of the node, exported to clients of this host.
    pub segments: Option<Arc<dyn Segments>>,
    /// Finishes what clients leave behind.
    pub janitor: Janitor,
    /// Sessions that a connection carries, or that are being ended.
    pub carried: Mutex<BTreeSet<Session>>,
    pub token: Token,
    pub limits: Limits,
    /// Permits of connections that busy-poll for their next request.
    pub looking: Arc<Semaphore>,
    pub stopping: watch::Receiver<bool>,
    /// Rate limiter for log lines that any client can cause.
    pub rare: Rare,
    pub arriving: Budget,
    /// Payload bytes of the waiting requests of all connections.
    pub waiting_bytes: AtomicUsize,
}

/// Reason why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the client has ended it")]
    Left,
    #[error("the client's process has ended")]
    Died,
    #[error("the client has ended it: {0}")]
    Goodbye(String),
    #[error(transparent)]
    Garbled(#[from] Garbled),
    #[error("request {id} came after request {last}: ids grow")]
    Ids { id: u64, last: u64 },
    #[error("nothing was put down where it was said to be: {0:?}")]
    NotFilled(Filled),
    #[error("the bytes of a request have not come within {} s, and others wait for their room", ARRIVAL_WAIT.as_secs())]
    Slow,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the node ends; try again, or another of the pool's addresses")]
    Stopped,
    #[error("a request has made the node panic, which is a bug of Tidemill: see the node's log")]
    Panicked,
}

type Answered = Result<Answer, Failure>;

/// One connection after its handshake.
struct Guest {
    house: Arc<House>,
    pipe: Pipe,
    last_id: u64,
    /// Sessions that said hello on this connection.
    sessions: BTreeSet<Session>,
    watching: BTreeSet<Session>,
    /// Requests that wait.
    waiting: JoinSet<(u64, Answered)>,
    /// Task and payload bytes of each waiting request, by request id.
    waits: HashMap<u64, (AbortHandle, usize)>,
    waiting_bytes: usize,
    arriving: Arriving,
    told: Arc<Told>,
    batches: UnboundedReceiver<Batch>,
    /// True if the client may bind files of the node's host.
    binds: bool,
    /// Leases of this client; `None` if it may have none.
    loans: Option<Loans>,
    /// Id and flags of the descriptor that the client wants of the file that its next request
    /// opens.
    attaching: Option<(u64, OpenFlags)>,
    /// Open leases whose descriptors the client has closed and that were not probed yet.
    closed: Vec<Mark>,
    /// Segments exported to this client; `None` if there are none.
    shown: Option<Shown>,
    brisk: Brisk,
}

impl Guest {
    fn new(house: Arc<House>, mut pipe: Pipe, brief: bool) -> Self {
        let (told, batches) = Told::new();
        let loans = lends(&house, &mut pipe);
        let segments = house.segments.as_ref().filter(|_| loans.is_some());
        let shown = segments.map(|segments| Shown::new(segments, brief, &mut pipe));
        house.segments.iter().for_each(|segments| pipe.frames.land_in(segments.clone()));
        let binds = house.limits.host_files || pipe.stream().is_of_our_user();
        Self {
            house,
            pipe,
            last_id: 0,
            sessions: BTreeSet::new(),
            watching: BTreeSet::new(),
            waiting: JoinSet::new(),
            waits: HashMap::new(),
            waiting_bytes: 0,
            arriving: Arriving::default(),
            told: Arc::new(told),
            batches,
            binds,
            loans,
            attaching: None,
            closed: Vec::new(),
            shown,
            brisk: Brisk::default(),
        }
    }

    /// Serves the connection until it ends, then ends what its sessions hold.
    async fn stay(mut self) {
        let mut stopping = self.house.stopping.clone();
        let process = self.loans.as_ref().map(Loans::process);
        let died = async {
            match process {
                Some(process) => process.ended().await,
                None => pending().await,
            }
        };
        let end = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => End::Stopped,
            () = died => End::Died,
            end = poll_fn(|context| ended(self.try_poll(context))) => end,
        };
        match &end {
            End::Left | End::Died | End::Goodbye(_) | End::Stopped => tracing::debug!(%end, "a connection has ended"),
            _ => self.house.rare.warn(|| tracing::warn!(%end, "a connection has ended")),
        }
        let Self { house, mut pipe, sessions, watching, mut waiting, waiting_bytes, told, loans, .. } = self;
        told.end();
        if let Err(error) = pipe.stream_mut().rest() {
            tracing::debug!(%error, "a connection has ended without its last words");
        }
        loans.map(|loans| tokio::spawn(loans.outlive()));
        waiting.shutdown().await;
        house.waiting_bytes.fetch_sub(waiting_bytes, Relaxed);
        for session in watching {
            house.node.unwatch(session);
        }
        let why = end.to_string();
        // When the whole pool stops, the other nodes need no cleanup.
        let stopping = matches!(end, End::Stopped);
        tokio::join!(house.end_sessions(sessions, stopping), pipe.goodbye(&why));
    }

    /// Makes all progress that is possible now.
    fn try_poll(&mut self, context: &mut Context<'_>) -> Poll<Result<End, End>> {
        loop {
            let all_taken = self.take_frames()?;
            // After the frames, so that requests that began to wait there wake this task too.
            self.take_answers(context)?;
            self.take_batches(context);
            let written = self.pipe.poll_flush(context).map_err(End::Broken)?;
            self.look_at_closed();
            if !all_taken {
                if written.is_pending() {
                    ready!(self.poll_looking(context, true))?; // pending output stops reading; the socket wakes us
                }
                continue;
            }
            let bytes = self.pipe.frames.arriving_bytes();
            ready!(self.arriving.poll(&self.house.arriving, bytes, Instant::now(), context))
                .map_err(|TooSlow| End::Slow)?;
            match self.pipe.poll_fill(context).map_err(End::Broken)? {
                Poll::Ready(0) => return Poll::Ready(Ok(End::Left)),
                Poll::Ready(_) => self.brisk.on_come(Instant::now()),
                Poll::Pending => ready!(self.poll_looking(context, written.is_pending()))?,
            }
        }
    }

    /// Called when nothing has come: busy-polls or waits. `is_stuck`: output is pending.
    fn poll_looking(&mut self, context: &mut Context<'_>, is_stuck: bool) -> Poll<io::Result<()>> {
        // Waiting requests are tasks of their own, which busy polling might hold up.
        let may = !is_stuck && self.waits.is_empty() && self.shown.is_some();
        self.brisk.poll(self.pipe.stream_mut(), may.then_some(&self.house.looking), context)
    }

    fn take_answers(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        while let Poll::Ready(Some(ended)) = self.waiting.poll_join_next(context) {
            match ended {
                // A request that was cancelled meanwhile is no longer in `waits`.
                Ok((id, answered)) if self.let_go(id).is_some() => self.answer(id, &answered),
                Err(error) if error.is_panic() => return Err(End::Panicked),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn take_batches(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(batch)) = self.batches.poll_recv(context) {
            encode_recalls(batch.session, &batch.recalls, batch.number, self.pipe.out.short());
        }
    }

    /// Handles frames. Returns true if none is left, false if too much output is queued.
    fn take_frames(&mut self) -> Result<bool, End> {
        while self.pipe.out.remaining() < self.house.limits.queued_bytes {
            let Some(frame) = self.pipe.frames.next()? else { return Ok(true) };
            self.arriving.done();
            let message = ToNode::decode(frame)?;
            // The next read may be much later, and this buffer would stay uncounted until then.
            self.pipe.frames.release();
            self.on(message)?;
        }
        Ok(false)
    }

    fn on(&mut self, message: ToNode) -> Result<(), End> {
        match message {
            ToNode::Request { id, request } => {
                self.count(id)?;
                self.request(id, request)?;
            }
            ToNode::Watch { id, session } => {
                self.count(id)?;
                let answered = self.watch(session).map(|()| Answer::Done);
                self.answer(id, &answered);
            }
            ToNode::Cancel { id } => {
                if let Some(waiting) = self.let_go(id) {
                    waiting.abort();
                }
            }
            ToNode::Unwatch { session } => {
                if self.watching.remove(&session) {
                    self.house.node.unwatch(session);
                }
            }
            ToNode::Prunes { session } => {
                if self.watching.contains(&session) {
                    self.house.node.prunes(session);
                }
            }
            ToNode::Heard { batch } => self.told.heard(batch),
            ToNode::Ping(id) => encode_pong(id, self.pipe.out.short()),
            ToNode::Pong(_) => {}
            ToNode::Goodbye(why) => return Err(End::Goodbye(why)),
            ToNode::Borrow { id, borrow } => {
                self.count(id)?;
                if !self.lend(id, borrow) {
                    self.answer(id, &Ok(Answer::Done));
                }
            }
            ToNode::Obtain { id, obtain } => {
                self.count(id)?;
                if !self.give(id, obtain) {
                    self.answer(id, &Ok(Answer::Done));
                }
            }
            ToNode::Attach { id, flags } => {
                self.count(id)?;
                self.attaching = Some((id, flags));
            }
            ToNode::Publish { id, publish } => {
                self.count(id)?;
                self.publish(id, *publish)?;
            }
            ToNode::Mapped { number } => {
                if let Some(shown) = &mut self.shown {
                    shown.mapped(number);
                }
            }
            ToNode::Closed(marks) => self.closed(marks),
            ToNode::Returned(returned) => {
                if let Some(loans) = &mut self.loans {
                    loans.returned(&returned);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, id: u64) -> Result<(), End> {
        let last = std::mem::replace(&mut self.last_id, id);
        if id > last { Ok(()) } else { Err(End::Ids { id, last }) }
    }

    fn request(&mut self, id: u64, mut request: Request) -> Result<(), End> {
        if let Err(failure) = self.check(&request).and_then(|()| self.name_owner(&mut request.body)) {
            self.attach_nothing();
            self.answer(id, &Err(failure));
            return Ok(());
        }
        if let (Body::Look { mark }, Some(process)) = (&request.body, self.process()) {
            self.house.node.closed_by(process, *mark);
        }
        let (bytes, session) = (payload_bytes(&request.body), request.session);
        let of_stripe = begins_stripe(&request.body).map_or(0, Bytes::len);
        if let (Some(loans), Some(shown), 1..) = (&mut self.loans, &self.shown, of_stripe) {
            loans.invite(of_stripe, shown.segments(), &mut self.pipe);
        }
        // A bug that makes the node panic ends this connection like any other end, with what it
        // held.
        let handled = catch_unwind(AssertUnwindSafe(|| self.house.node.handle(request)));
        let mut reply = handled.map_err(|_| End::Panicked)?;
        // Most replies are ready now and cost no task.
        match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answered) => {
                if let Ok(Answer::Welcome(welcome)) = &answered {
                    self.carry(welcome.session);
                }
                self.attach(session, &answered);
                self.answer(id, &answered);
            }
            Poll::Pending => {
                self.attach_nothing();
                self.wait(id, reply, bytes);
            }
        }
        Ok(())
    }

    /// Handles a request whose bytes the client has put into its write segment.
    fn publish(&mut self, id: u64, publish: Publish) -> Result<(), End> {
        let filled = publish.filled;
        let bytes = self.loans.as_ref().and_then(|loans| loans.take(filled)).ok_or(End::NotFilled(filled))?;
        let request = publish.into_request(bytes)?;
        self.request(id, request)
    }

    /// Fails unless this connection carries the session of the request, or may carry it.
    fn check(&mut self, request: &Request) -> Result<(), Failure> {
        if !self.binds && request.body.binds_host_file() {
            return Err(Refusal::NotPermitted(Object::Text("binding a file of the node's host".into())).into());
        }
        match (&request.body, request.session) {
            (Body::Usage | Body::Stop, _) => Ok(()),
            (Body::Hello, Session::NONE) => self.has_room(),
            (Body::Hello, session) => self.admit(session),
            (_, session) if self.sessions.contains(&session) => Ok(()),
            _ => Err(Refusal::Ended.into()),
        }
    }

    /// Process at the other end, if it is on this host and visible here.
    fn process(&self) -> Option<u32> {
        self.loans.as_ref().and_then(|loans| loans.process().id())
    }

    /// Fills in the process that owns a lock. Fails for a lock that outlives its session if this
    /// node would not see its owner end.
    fn name_owner(&self, body: &mut Body) -> Result<(), Failure> {
        let Some(owner) = body.lock().map(|lock| &mut lock.owner).filter(|owner| owner.outlives_sessions()) else {
            return Ok(());
        };
        let what = "a lock that outlives its session, of a program that is not on the node's host,".into();
        let far = Refusal::Unsupported { object: Object::Pool, what };
        match (&mut *owner, self.process()) {
            (LockOwner::Process(process), Some(asks)) => *process = asks,
            (LockOwner::Open(_), _) if self.loans.is_some() => {}
            _ => return Err(far.into()),
        }
        Ok(())
    }

    fn has_room(&self) -> Result<(), Failure> {
        let limit = self.house.limits.sessions;
        let full = Refusal::TooManyOpen { object: Object::Pool, limit: limit as u64 };
        if self.sessions.len() < limit { Ok(()) } else { Err(full.into()) }
    }

    /// Carries a session that another node has given.
    fn admit(&mut self, session: Session) -> Result<(), Failure> {
        if self.sessions.contains(&session) {
            return Ok(());
        }
        self.has_room()?;
        self.house.welcome(session)?;
        if self.carry(session) {
            return Ok(());
        }
        Err(Failure::Unreachable("another connection of this session has not ended yet".into()))
    }

    fn carry(&mut self, session: Session) -> bool {
        let first = self.sessions.contains(&session) || self.house.carried.lock().insert(session);
        if first {
            self.sessions.insert(session);
        }
        first
    }

    fn wait(&mut self, id: u64, reply: Reply, bytes: usize) {
        let limits = &self.house.limits;
        let all = self.house.waiting_bytes.load(Relaxed) + bytes;
        let is_much = self.waiting_bytes + bytes > limits.waiting_bytes || all > 2 * limits.waiting_bytes;
        if self.waits.len() >= limits.waiting || (bytes > 0 && is_much) {
            drop(reply);
            let why = format!("{} requests of this connection wait already", self.waits.len());
            return self.answer(id, &Err(Failure::Lost(why)));
        }
        let waiting = self.waiting.spawn(async move { (id, reply.await) });
        self.waits.insert(id, (waiting, bytes));
        self.waiting_bytes += bytes;
        self.house.waiting_bytes.fetch_add(bytes, Relaxed);
    }

    /// Removes a request that waits no longer.
    fn let_go(&mut self, id: u64) -> Option<AbortHandle> {
        let (waiting, bytes) = self.waits.remove(&id)?;
        self.waiting_bytes -= bytes;
        self.house.waiting_bytes.fetch_sub(bytes, Relaxed);
        Some(waiting)
    }

    fn answer(&mut self, id: u64, answered: &Answered) {
        let Self { loans, shown, pipe, .. } = self;
        let place = |pieces: &[Bytes]| loans.as_mut()?.place(id, pieces, shown.as_mut()?, pipe);
        match answered.as_ref().ok().and_then(|answer| said(answer, place)) {
            Some(Said::Placed(placed)) => encode_placed(placed, id, self.pipe.out.short()),
            Some(Said::Answer(answer)) => self.say(id, &Ok(answer)),
            None => self.say(id, answered),
        }
    }

    fn say(&mut self, id: u64, answered: &Answered) {
        if let Err(too_long) = self.pipe.out.push(|out| encode_reply(answered, id, out)) {
            let failure = Err(Failure::from(too_long));
            self.pipe.out.push(|out| encode_reply(&failure, id, out)).expect("a refusal is short");
        }
    }

    fn watch(&mut self, session: Session) -> Result<(), Failure> {
        if !self.sessions.contains(&session) {
            return Err(Refusal::Ended.into());
        }
        let told = self.told.clone();
        let hear: Hear = Arc::new(move |recalls| told.tell(session, recalls));
        self.house.node.watch(session, &hear)?;
        self.watching.insert(session);
        Ok(())
    }
}

/// Starts leasing to a client of this host, if the node has anything to lease.
fn lends(house: &House, pipe: &mut Pipe) -> Option<Loans> {
    let (loans, hold) = match Loans::to(pipe.stream(), house.limits) {
        Ok(lends) => lends.filter(|_| house.segments.is_some() || house.node.keeps_whole_files())?,
        Err(error) => {
            tracing::warn!(%error, "nothing can be lent to a client of this host");
            return None;
        }
    };
    pipe.push_with(hold, encode_near);
    Some(loans)
}

impl House {
    /// Hello reply of the node for a session that a client names.
    fn welcome(&self, session: Session) -> Result<Welcome, Failure> {
        match at_once(self.node.handle(request(Epoch::FIRST, session, PartitionId(0), Body::Hello))) {
            Some(Ok(Answer::Welcome(welcome))) => Ok(welcome),
            Some(Err(failure)) => Err(failure),
            _ => Err(Refusal::Stale(Object::Pool).into()),
        }
    }

    /// Ends what sessions hold: opens, locks, unfinished transactions.
    async fn end_sessions(&self, sessions: BTreeSet<Session>, stopping: bool) {
        for session in sessions {
            if let Err(error) = self.end_session(session, stopping).await {
                tracing::error!(%error, session = session.0, "what a client held that has gone is still held");
            }
            if !stopping {
                self.remove_strays(session).await;
            }
            yield_now().await;
            self.carried.lock().remove(&session);
        }
    }

    /// Ends a session here, then finishes at the other nodes. If one of them is not reachable, the
    /// client that runs into the rest finishes it.
    async fn end_session(&self, session: Session, stopping: bool) -> Result<(), Failure> {
        if !self.end_here(session).await? || stopping {
            return Ok(());
        }
        match self.janitor.end(session).await {
            Err(refusal @ Refusal::Unavailable { .. }) => {
                tracing::warn!(%refusal, session = session.0, "what a client left at another node stays there");
                Ok(())
            }
            ended => ended.map_err(Failure::Refused),
        }
    }

    /// Removes stripes that a session wrote here if their file has not planned them and nobody has
    /// reserved them.
    pub async fn remove_strays(&self, session: Session) {
        for file in self.node.strays_elsewhere(session) {
            let Some(question) = self.node.ask_of_strays(session, file) else { continue };
            match self.janitor.unplanned(file, &question.stripes).await {
                Ok(unplanned) => self.node.remove_strays(&question, &unplanned),
                Err(refusal) => {
                    tracing::debug!(%file, "nobody says which of its stripes here are planned");
                    tracing::warn!(%refusal, "memory that a client has left stays in use until the pool ends, if no file uses it");
                    self.node.leave_strays(&question);
                }
            }
            yield_now().await;
        }
    }

    /// Ends a session in the partitions of this node that it touched. Returns true if something is
    /// left that other nodes may have a part of; most clients leave nothing.
    async fn end_here(&self, session: Session) -> Result<bool, Failure> {
        let map = self.welcome(session)?.map;
        let mut left = false;
        for partition in self.node.end_session(session) {
            yield_now().await;
            // No change of a client has this number.
            let stamp = Some(Stamp { session, number: u64::MAX, settled: u64::MAX });
            let ask = |stamp, command| request(map.epoch(), session, partition, Body::Meta { stamp, command });
            let closed = self.node.handle(ask(stamp, Command::CloseSession { session })).await?;
            left |= !matches!(closed, Answer::Closed(gone) if gone.is_empty());
            if let Answer::Leftovers(found) = self.node.handle(ask(None, Command::Leftovers)).await? {
                left |= found.prepared.iter().chain(&found.committed).any(|intent| intent.session == session);
            }
        }
        Ok(left)
    }
}

fn request(epoch: Epoch, session: Session, partition: PartitionId, body: Body) -> Request {
    Request { epoch, session, hurried: false, partition, body }
}
