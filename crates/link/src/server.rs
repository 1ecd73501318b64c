//! Server of a node: accepts connections within limits, and ends all of them when it stops.

use crate::{
    Address, Limits, Listener,
    admission::Entrance,
    listener::Entered,
    log_limiter::Rare,
    recv_budget::Budget,
    server_connection::{self, House},
    session_cleanup::Janitor,
};
use client::Connection;
use node::Node;
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    io,
    sync::{Arc, atomic::AtomicUsize},
    thread,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use wire::handshake::Token;

/// Pause after an accept that failed, as when the process can open no more descriptors: some may be
/// closed by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Interval of the scan for opens and locks of programs that ended without notice; the longest
/// delay until one is found, while there are not more of them than the node scans at a time.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Time that a dropped server has to end the state of its connections: longer than their goodbyes
/// may take.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Node that is served at one address or several, until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    house: Arc<House>,
    addresses: Vec<Address>,
    stop: watch::Sender<bool>,
    taking: Vec<JoinHandle<()>>,
    /// Runtime that serves the node.
    handle: Handle,
    /// Runtime of this server, unless one was given.
    runtime: Option<Runtime>,
}

/// Error of a node that could not be served.
#[derive(Debug, thiserror::Error)]
#[error("the node cannot be served at {address}: {source}; see the limits of this process")]
pub struct ServeFailed {
    /// The address.
    pub address: Address,
    /// The error of the system.
    pub source: io::Error,
}

/// Serves a node on threads of its own, to all clients that know the token.
pub fn serve(node: Arc<Node>, listener: Listener, token: &Token, limits: Limits) -> Result<Server, ServeFailed> {
    let address = listener.address().clone();
    let made =
        Builder::new_multi_thread().worker_threads(limits.threads).thread_name("tidemill-link").enable_all().build();
    let runtime = made.map_err(|source| ServeFailed { address, source })?;
    let mut server = serve_on(runtime.handle(), node, listener, token, limits, &[])?;
    server.runtime = Some(runtime);
    Ok(server)
}

/// Like [`serve`], on a given runtime that has I/O and time enabled, for a node of a pool with
/// `others`: the state that clients leave at other nodes is ended too. A task that polls a `Remote`
/// to this node must not block that runtime.
pub fn serve_on(
    runtime: &Handle,
    node: Arc<Node>,
    listener: Listener,
    token: &Token,
    limits: Limits,
    others: &[(NodeId, Arc<dyn Connection>)],
) -> Result<Server, ServeFailed> {
    let (stop, stopping) = watch::channel(false);
    let janitor = Janitor::new(&node, others);
    let (segments, carried, token) = (node.segments(), Mutex::default(), token.clone());
    let looking = Arc::new(Semaphore::new(limits.looking));
    let (rare, arriving, waiting_bytes) = (Rare::default(), Budget::new(limits.arriving_bytes), AtomicUsize::new(0));
    let house = Arc::new(House {
        node,
        segments,
        janitor,
        carried,
        token,
        limits,
        looking,
        stopping,
        rare,
        arriving,
        waiting_bytes,
    });
    let (handle, addresses, taking) = (runtime.clone(), Vec::new(), Vec::new());
    let mut server = Server { house, addresses, stop, taking, handle, runtime: None };
    server.taking.push(runtime.spawn(look_around(server.house.clone())));
    server.also_at(listener)?;
    Ok(server)
}

impl Server {
    /// Serves the node at one more address, with limits of its own. A session may come at any
    /// address, over one connection at a time.
    pub fn also_at(&mut self, listener: Listener) -> Result<(), ServeFailed> {
        let (address, limits) = (listener.address().clone(), self.house.limits);
        let entrance = Entrance::new(listener.called().to_string(), limits.connections, limits.unproven);
        let _entered = self.handle.enter();
        let entered = listener.enter().map_err(|source| ServeFailed { address: address.clone(), source })?;
        self.taking.push(self.handle.spawn(take(entered, entrance, self.house.clone())));
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
        for taking in std::mem::take(&mut self.taking) {
            if let Err(error) = taking.await {
                tracing::error!(%error, "serving a node has ended badly");
            }
        }
    }
}

impl Drop for Server {
    /// Like [`Server::stop`], without waiting: anything that does not end within a moment stays.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return };
        let taking = std::mem::take(&mut self.taking);
        let ended = async move {
            for taking in taking {
                drop(taking.await); // a panic was logged already
            }
        };
        let last = move || drop(runtime.block_on(async { timeout(DROP_WAIT, ended).await }));
        // A runtime cannot be dropped within another one; if no thread can be started, it is
        // dropped here.
        if let Err(error) = thread::Builder::new().name("tidemill-end".into()).spawn(last) {
            tracing::warn!(%error, "a server has ended without its last words");
        }
    }
}

/// Periodically ends opens of programs that were killed, or that closed them without telling their
/// client.
async fn look_around(house: Arc<House>) {
    let mut stopping = house.stopping.clone();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(LOOK_PAUSE) => {}
        }
        house.node.look_around();
        let purged = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            purged = house.janitor.purge(house.node.take_left()) => purged,
        };
        if let Err(error) = purged {
            tracing::warn!(%error, "stripes of removed files were left behind");
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            () = know_strays(&house) => {}
        }
    }
}

/// Settles the noted stripes of long sessions: those that a file of another node has are noted no
/// more, the others are removed.
async fn know_strays(house: &House) {
    for session in house.node.crowded_strays() {
        house.remove_strays(session).await;
    }
}

/// Accepts connections until the server stops, then waits for their ends.
async fn take(listener: Entered, entrance: Arc<Entrance>, house: Arc<House>) {
    let mut guests = JoinSet::new();
    let mut stopping = house.stopping.clone();
    loop {
        while guests.try_join_next().is_some() {}
        let stream = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            stream = listener.accept() => stream,
        };
        match stream {
            Ok(arrived) => {
                guests.spawn(server_connection::receive(arrived, entrance.meet(), house.clone()));
            }
            Err(error) => {
                house.rare.warn(|| tracing::warn!(%error, "a connection could not be taken"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while guests.join_next().await.is_some() {}
}
