//! Server of a node: accepts connections within limits, and ends all of them when it stops.

mod active_clients;
mod admission;
mod busy_poll;
mod exported_segments;
mod invalidation_queue;
mod lease_table;
pub mod limits;
pub mod listener;
mod log_limiter;
mod recv_budget;
mod reply_by_ref;
mod server_connection;
mod session_cleanup;
mod session_end;
mod workers;

use crate::{
    Address, Listener, ServerLimits,
    server::{
        active_clients::ActiveClients, admission::Admission, listener::AsyncListener, log_limiter::LogRateLimiter,
        recv_budget::RecvBudget, server_connection::ServerState, session_cleanup::SessionCleanup,
    },
};
use client::Connector;
use node::Node;
use parking_lot::Mutex;
use std::{
    io,
    sync::{Arc, atomic::AtomicUsize},
    thread,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use wire::handshake::Token;

/// Pause after an accept that failed, as when the process can open no more descriptors: some may be
/// closed by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time that a dropped server has to end the state of its connections: longer than their goodbyes
/// may take.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Time that a node which has left the pool has to tell the others what has ended.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// Node that is served at one address or several, until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    state: Arc<ServerState>,
    addresses: Vec<Address>,
    stop: watch::Sender<bool>,
    /// Tasks that accept connections, and the workers.
    tasks: Vec<JoinHandle<()>>,
    /// Runtime that serves the node.
    handle: Handle,
    /// Runtime of this server, unless one was given.
    runtime: Option<Runtime>,
}

/// Error of a node that could not be served.
#[derive(Debug, thiserror::Error)]
#[error("the node cannot be served at {address}: {source}; see the limits of this process")]
pub struct ServeError {
    /// The address.
    pub address: Address,
    /// The error of the system.
    pub source: io::Error,
}

/// Serves a node on threads of its own, to all clients that know the token.
pub fn serve(node: Arc<Node>, listener: Listener, token: &Token, limits: ServerLimits) -> Result<Server, ServeError> {
    let address = listener.address().clone();
    let made =
        Builder::new_multi_thread().worker_threads(limits.threads).thread_name("tidemill-link").enable_all().build();
    let runtime = made.map_err(|source| ServeError { address, source })?;
    let mut server = serve_on(runtime.handle(), node, listener, token, limits, None)?;
    server.runtime = Some(runtime);
    Ok(server)
}

/// Like [`serve`], on a given runtime that has I/O and time enabled. `connector` leads to the other
/// nodes of the pool that the node's map names: what clients leave there is removed too. A task
/// that polls a `Remote` to this node must not block that runtime.
pub fn serve_on(
    runtime: &Handle,
    node: Arc<Node>,
    listener: Listener,
    token: &Token,
    limits: ServerLimits,
    connector: Option<Arc<dyn Connector>>,
) -> Result<Server, ServeError> {
    let (stop, stopping) = watch::channel(false);
    let cleanup = SessionCleanup::new(&node, connector);
    let (segments, live_sessions, token) = (node.shared_memory(), Mutex::default(), token.clone());
    let clients = ActiveClients::new(Instant::now());
    let (log_limiter, recv_budget, waiting_bytes) =
        (LogRateLimiter::default(), RecvBudget::new(limits.arriving_bytes), AtomicUsize::new(0));
    let state = Arc::new(ServerState {
        node,
        segments,
        cleanup,
        live_sessions,
        token,
        limits,
        clients,
        stopping,
        log_limiter,
        recv_budget,
        waiting_bytes,
    });
    let (handle, addresses, tasks) = (runtime.clone(), Vec::new(), Vec::new());
    let mut server = Server { state, addresses, stop, tasks, handle, runtime: None };
    server.tasks.extend(workers::run_all(&server.state).map(|worker| runtime.spawn(worker)));
    server.add_listener(listener)?;
    Ok(server)
}

impl Server {
    /// Serves the node at one more address, with limits of its own. A session may come at any
    /// address, over one connection at a time.
    pub fn add_listener(&mut self, listener: Listener) -> Result<(), ServeError> {
        let (address, limits) = (listener.address().clone(), self.state.limits);
        let admission = Admission::new(listener.advertised().to_string(), limits.connections, limits.unauthenticated);
        let _guard = self.handle.enter();
        let listening = listener.into_async().map_err(|source| ServeError { address: address.clone(), source })?;
        self.tasks.push(self.handle.spawn(accept_loop(listening, admission, self.state.clone())));
        self.addresses.push(address);
        Ok(())
    }

    /// First address of the server.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// All addresses of the server.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Ends all connections and the state of their sessions. Then the addresses are free and no
    /// socket file is left.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for task in std::mem::take(&mut self.tasks) {
            if let Err(error) = task.await {
                tracing::error!(%error, "serving a node has ended badly");
            }
        }
        self.tell_others().await;
    }

    /// Tells other nodes which sessions have no connection here any more, if this one has left the
    /// pool: what these sessions had here has moved there, and nobody else would tell.
    async fn tell_others(&self) {
        let node = &self.state.node;
        if node.serves_any() {
            return;
        }
        node.pass_on_awaited_sessions();
        if timeout(LEAVE_WAIT, self.state.cleanup.do_host_work(node)).await.is_err() {
            tracing::warn!("other nodes may keep open what clients of this node had open");
        }
    }
}

impl Drop for Server {
    /// Like [`Server::stop`], without waiting: anything that does not end within a moment stays.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return };
        let tasks = std::mem::take(&mut self.tasks);
        let ended = async move {
            for task in tasks {
                drop(task.await); // a panic was logged already
            }
        };
        let last = move || drop(runtime.block_on(async { timeout(DROP_WAIT, ended).await }));
        // A runtime cannot be dropped within another one; if no thread can be started, it is
        // dropped here.
        if let Err(error) = thread::Builder::new().name("tidemill-end".into()).spawn(last) {
            tracing::warn!(%error, "a server ended before its last messages were sent");
        }
    }
}

/// Accepts connections until the server stops, then waits for their ends.
async fn accept_loop(listener: AsyncListener, admission: Arc<Admission>, state: Arc<ServerState>) {
    let mut connections = JoinSet::new();
    let mut stopping = state.stopping.clone();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            stream = listener.accept() => stream,
        };
        match stream {
            Ok(accepted) => {
                connections.spawn(server_connection::serve_connection(accepted, admission.register(), state.clone()));
            }
            Err(error) => {
                state.log_limiter.warn(|| tracing::warn!(%error, "a connection could not be taken"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
