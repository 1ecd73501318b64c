//! Connection to a node in another process.

pub mod client_connection;
pub mod dial;
pub mod driver;
pub mod invalidation_threads;
pub mod lease;
pub mod reactor_connection;

use crate::{
    Address, Certificate, IdentityError, Reactor,
    remote::{
        client_connection::{ClientConnection, QueueError},
        dial::{ConnectTarget, DriverKind},
    },
};
use client::{Connection, FdLeaseFuture, OnInvalidate, ProgramFdFuture};
use node::{ReplyFuture, sleep_until};
use parking_lot::Mutex;
use std::{
    io, mem,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Handle;
use wire::{
    Answer, Extent, Failure, Object, OpenFlags, OpenLeaseId, Refusal, Request, Session,
    codec::{LeaseFd, ProgramFd},
    handshake::Token,
};

/// Pause after the first failed connect; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause after a failed connect: a node that comes back is found by then.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time limit of a subscribe request.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(20);

/// [`Connection`] to a node at an address.
///
/// It connects at its first call, and again at the first call after a connection broke. While the
/// node is not reached, the pauses between attempts grow, and calls during a pause fail at once.
/// Requests that were sent when a connection broke are `Lost`; others, and those to a node that is
/// not there, are `Unreachable`. A node that rejects this client tells the reason: `NotAdmitted`
/// (the token is wrong, or this user may not reach its socket), `Incompatible` (no common version),
/// `Io`.
///
/// A session's state ends with the connection: after it broke, requests of the session are refused
/// as `SessionEnded`.
#[derive(Debug)]
pub struct Remote {
    target: Arc<ConnectTarget>,
    state: Mutex<RemoteState>,
}

#[derive(Debug, Default)]
struct RemoteState {
    connection: Option<Arc<ClientConnection>>,
    /// Time at which the connection was begun.
    started: Option<Instant>,
    /// Failed attempts since the last success.
    failed: u32,
    /// Time until which no attempt is made, and the failure to return.
    pause: Option<(Instant, Failure)>,
    /// Number of forks before this process.
    generation: u64,
}

impl RemoteState {
    /// Forgets the connection of the parent in a forked child: nothing may be sent on it.
    fn forget_parents(&mut self, generation: u64) {
        if self.generation != generation {
            // Another thread of the parent may have been using it, so it is not even dropped.
            mem::forget(self.connection.take());
            *self = Self { generation, ..Self::default() };
        }
    }
}

impl Remote {
    /// Creates a connection that is opened at the first call. A `tls:` address needs
    /// [`Self::with_certificate`].
    pub fn new(address: Address, token: &Token) -> Self {
        Self::to(ConnectTarget {
            address,
            token: token.clone(),
            tls: None,
            driver: DriverKind::Threads,
            short_lived: false,
        })
    }

    /// Like [`Self::new`], but driven by a given runtime that has I/O and time enabled: a task
    /// there that makes a call is not woken across threads. The runtime must keep running, and its
    /// threads must not block, while the connection is used: calls wait meanwhile.
    pub fn on_runtime(runtime: &Handle, address: Address, token: &Token) -> Self {
        Self::to(ConnectTarget {
            address,
            token: token.clone(),
            tls: None,
            driver: DriverKind::Runtime(runtime.clone()),
            short_lived: false,
        })
    }

    /// Like [`Self::new`], for a `tls:` address: only a server with this certificate counts as the
    /// node.
    pub fn with_certificate(address: Address, token: &Token, certificate: &Certificate) -> Result<Self, IdentityError> {
        let tls = Some(certificate.config()?);
        Ok(Self::to(ConnectTarget {
            address,
            token: token.clone(),
            tls,
            driver: DriverKind::Threads,
            short_lived: false,
        }))
    }

    /// Like [`Self::new`], but driven by the threads that wait with this [`Reactor`]: no thread is
    /// started. A `tls:` address needs the certificate. Subscribing is not possible:
    /// [`Connection::subscribe`] is refused.
    pub fn with_reactor(
        reactor: &Reactor,
        address: Address,
        token: &Token,
        certificate: Option<&Certificate>,
    ) -> Result<Self, IdentityError> {
        let tls = certificate.map(Certificate::config).transpose()?;
        Ok(Self::to(ConnectTarget {
            address,
            token: token.clone(),
            tls,
            driver: DriverKind::Reactor(reactor.clone()),
            short_lived: false,
        }))
    }

    /// Marks the client as short-lived: it may end in a millisecond, after requests for names
    /// alone. A node of this host exports no memory to it until it asks for bytes, so the first
    /// bytes are sent. Call it before the first request.
    #[must_use]
    pub fn short_lived(mut self) -> Self {
        Arc::get_mut(&mut self.target).expect("nobody has called yet").short_lived = true;
        self
    }

    fn to(target: ConnectTarget) -> Self {
        Self { target: Arc::new(target), state: Mutex::default() }
    }

    /// Returns the open connection, or a new one.
    fn connection(&self) -> Result<Arc<ClientConnection>, Failure> {
        let mut state = self.state.lock();
        if let DriverKind::Reactor(reactor) = &self.target.driver {
            state.forget_parents(reactor.generation());
        }
        if let Some(connection) = &state.connection {
            match connection.ended() {
                None => return Ok(connection.clone()),
                Some(ended) => {
                    state.failed = if ended.opened { 0 } else { state.failed + 1 };
                    let took =
                        state.started.map_or(Duration::ZERO, |started| ended.at.saturating_duration_since(started));
                    state.pause = pause(state.failed, took).map(|pause| (ended.at + pause, ended.why));
                    state.connection = None;
                }
            }
        }
        if let Some((_, why)) = state.pause.as_ref().filter(|(end, _)| Instant::now() < *end) {
            return Err(why.clone());
        }
        let connection = Arc::new(ClientConnection::default());
        let failed =
            |error: io::Error| Failure::Unreachable(format!("{}: no threads for it: {error}", self.target.address));
        dial::start(&self.target, &connection).map_err(failed)?;
        (state.connection, state.started) = (Some(connection.clone()), Some(Instant::now()));
        Ok(connection)
    }
}

/// Pause after the `failed`-th failure in a row, which took `took`. A node that does not answer at
/// all, as a host that is cut off, is left alone for as long as the attempt took, so a caller that
/// retries waits for it only once.
fn pause(failed: u32, took: Duration) -> Option<Duration> {
    let doublings = failed.checked_sub(1)?;
    Some(PAUSE_FIRST.saturating_mul(1 << doublings.min(20)).min(PAUSE_MAX).max(took))
}

impl Connection for Remote {
    fn call(&self, request: Request) -> ReplyFuture {
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(failure) => return ReplyFuture::ready(Err(failure)),
        };
        match connection.send(&request) {
            Ok(call) => ReplyFuture::deferred(call),
            Err(QueueError::Failed(failure)) => ReplyFuture::ready(Err(failure)),
            Err(QueueError::Full) => ReplyFuture::deferred(connection.send_when_possible(request)),
        }
    }

    fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
        let connection = self.connection().ok().filter(|connection| connection.is_local())?;
        let lease = connection.request_lease(LeaseFd { extent, flags }).ok()?;
        Some(Box::pin(async move { lease.await?.into_backing() }))
    }

    fn dup_fd_for_program(&self, request: ProgramFd) -> Option<ProgramFdFuture> {
        let connection = self.connection().ok().filter(|connection| connection.is_local())?;
        let reply = connection.request_program_fd(request).ok()?;
        Some(Box::pin(reply))
    }

    fn call_with_fd(&self, request: Request, flags: OpenFlags) -> (ReplyFuture, Option<ProgramFdFuture>) {
        let local = self.connection().ok().filter(|connection| connection.is_local());
        match local.map(|connection| connection.send_attaching(&request, flags)) {
            Some(Ok((call, program_fd))) => (ReplyFuture::deferred(call), Some(Box::pin(program_fd))),
            Some(Err(QueueError::Failed(failure))) => (ReplyFuture::ready(Err(failure)), None),
            Some(Err(QueueError::Full)) | None => (self.call(request), None),
        }
    }

    fn notify_closed(&self, lease: OpenLeaseId) -> bool {
        let mut state = self.state.lock();
        if let DriverKind::Reactor(reactor) = &self.target.driver {
            state.forget_parents(reactor.generation());
        }
        let connection = state.connection.clone();
        drop(state);
        connection.is_some_and(|connection| connection.notify_closed(lease))
    }

    fn is_on_local_host(&self) -> bool {
        self.state.lock().connection.as_ref().is_some_and(|connection| connection.is_local())
    }

    fn is_near(&self) -> bool {
        matches!(self.target.address, Address::Unix(_))
    }

    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        if matches!(self.target.driver, DriverKind::Reactor(_)) {
            let what = "cache invalidations over a connection that a reactor drives".into();
            return ReplyFuture::ready(Err(Refusal::Unsupported { object: Object::Pool, what }.into()));
        }
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(failure) => return ReplyFuture::ready(Err(failure)),
        };
        if connection.is_subscribed(session) {
            return ReplyFuture::ready(Ok(Answer::Done));
        }
        let queued = connection.subscribe(session, on_invalidate);
        let subscription = PendingSubscription { connection, session, done: false };
        let call = match queued {
            Ok(call) => call,
            Err(QueueError::Failed(failure)) => return ReplyFuture::ready(Err(failure)),
            Err(QueueError::Full) => return ReplyFuture::ready(Err(Refusal::Busy(Object::Pool).into())),
        };
        ReplyFuture::deferred(async move {
            let answered = tokio::select! {
                answered = call => answered,
                () = sleep_until(Instant::now() + SUBSCRIBE_WAIT) => Err(Refusal::TimedOut(Object::Pool).into()),
            };
            if answered.is_ok() {
                subscription.confirm();
            }
            answered
        })
    }

    fn set_supports_prune(&self, session: Session) {
        let connection = self.state.lock().connection.clone();
        if let Some(connection) = connection {
            connection.notify_supports_prune(session);
        }
    }

    fn unsubscribe(&self, session: Session) {
        let connection = self.state.lock().connection.clone();
        if let Some(connection) = connection {
            connection.unsubscribe(session);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let DriverKind::Reactor(reactor) = &self.target.driver {
            state.forget_parents(reactor.generation());
        }
        if let Some(connection) = state.connection.take() {
            connection.close();
        }
    }
}

/// Session that is subscribing; unsubscribed if this is dropped before the node has confirmed.
struct PendingSubscription {
    connection: Arc<ClientConnection>,
    session: Session,
    done: bool,
}

impl PendingSubscription {
    fn confirm(mut self) {
        self.done = true;
    }
}

impl Drop for PendingSubscription {
    fn drop(&mut self) {
        if !self.done {
            self.connection.unsubscribe(self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_who_is_silent_is_waited_for_once_in_a_calls_patience() {
        let at_once = |failed| pause(failed, Duration::ZERO);
        assert_eq!(
            [0, 1, 2, 3].map(at_once),
            [None, Some(10), Some(20), Some(40)].map(|ms| ms.map(Duration::from_millis))
        );
        assert_eq!(at_once(99), Some(PAUSE_MAX));
        let retry_policy = client::RetryPolicy::default();
        let tries = retry_policy.pause_max * retry_policy.tries;
        let silent = Duration::from_secs(5);
        assert!(pause(1, silent).unwrap() >= silent && silent > tries);
    }
}
