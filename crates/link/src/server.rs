//! A node, served: who comes is taken in, up to a bound; at the end nobody is left.

use crate::{
    Address, Limits, Listener,
    guest::{self, House},
    janitor::Janitor,
    listener::Entered,
    pipe::Pipe,
    stream::Stream,
};
use client::Connection;
use node::Node;
use parking_lot::Mutex;
use placement::NodeId;
use std::{io, sync::Arc, time::Duration};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use wire::{
    frame::Side,
    handshake::{HandshakeFailed, Token, refusal},
};

/// When the system has no descriptor for who comes, the next try is so much later: somebody may have ended by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// So many may be told at one time that there are too many: more are closed without a word.
const TURNED_AWAY_MAX: usize = 64;

/// A node that is reached at an address, until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    address: Address,
    stop: watch::Sender<bool>,
    taking: Option<JoinHandle<()>>,
    /// Its own, when none was given.
    runtime: Option<Runtime>,
}

/// A node could not be served.
#[derive(Debug, thiserror::Error)]
#[error("the node cannot be served at {address}: {source}; see the limits of this process")]
pub struct ServeFailed {
    /// Where.
    pub address: Address,
    /// What the system says.
    pub source: io::Error,
}

/// Serves a node on threads of its own, to all who know the token.
pub fn serve(node: Arc<Node>, listener: Listener, token: &Token, limits: Limits) -> Result<Server, ServeFailed> {
    let address = listener.address().clone();
    let made =
        Builder::new_multi_thread().worker_threads(limits.threads).thread_name("tidemill-link").enable_all().build();
    let runtime = made.map_err(|source| ServeFailed { address, source })?;
    let mut server = serve_on(runtime.handle(), node, listener, token, limits, &[])?;
    server.runtime = Some(runtime);
    Ok(server)
}

/// The same on a runtime that has I/O and time, for a node of a pool with `others`: what clients leave is ended there too. Whoever polls a `Remote` to this node must not block that runtime.
pub fn serve_on(
    runtime: &Handle,
    node: Arc<Node>,
    listener: Listener,
    token: &Token,
    limits: Limits,
    others: &[(NodeId, Arc<dyn Connection>)],
) -> Result<Server, ServeFailed> {
    let address = listener.address().clone();
    let _entered = runtime.enter();
    let entered = listener.enter().map_err(|source| ServeFailed { address: address.clone(), source })?;
    let (stop, stopping) = watch::channel(false);
    let janitor = Janitor::new(&node, others);
    let (segments, carried, token) = (node.segments(), Mutex::default(), token.clone());
    let house = Arc::new(House { node, segments, janitor, carried, token, limits, stopping });
    let taking = Some(runtime.spawn(take(entered, house)));
    Ok(Server { address, stop, taking, runtime: None })
}

impl Server {
    /// Where it is reached.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Ends all connections and what their sessions hold; then nobody is reached here, and no socket file is left.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(taking) = self.taking.take()
            && let Err(error) = taking.await
        {
            tracing::error!(%error, "serving a node has ended badly");
        }
    }
}

impl Drop for Server {
    /// The same, without waiting for it.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(taking) = self.taking.take() {
            taking.abort();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Takes connections until it is to stop, then waits for their ends.
async fn take(listener: Entered, house: Arc<House>) {
    let (mut guests, mut turned_away) = (JoinSet::new(), JoinSet::new());
    let mut stopping = house.stopping.clone();
    loop {
        while guests.try_join_next().is_some() || turned_away.try_join_next().is_some() {}
        let stream = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            stream = listener.accept() => stream,
        };
        match stream {
            Ok(stream) if guests.len() < house.limits.connections => {
                guests.spawn(guest::receive(stream, house.clone()));
            }
            Ok(stream) if turned_away.len() < TURNED_AWAY_MAX => {
                turned_away.spawn(turn_away(stream, house.limits.connections));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while guests.join_next().await.is_some() {}
}

async fn turn_away(stream: Stream, connections: usize) {
    let mut pipe = Pipe::new(stream, Side::Node);
    pipe.out.short().extend(refusal(&HandshakeFailed::Full(connections)));
    pipe.close().await;
}
