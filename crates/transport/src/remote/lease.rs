//! Client's side of leases from a node of this host; dropping a lease releases it.

use crate::remote::client_connection::ClientConnection;
use node::{BackingFd, BackingLease};
use parking_lot::Mutex;
use reactor::ReservedFd;
use std::{os::fd::OwnedFd, sync::Arc};

/// Liveness pipe: the client's end. While it is open, something leased may be in use.
#[derive(Debug)]
pub struct LivenessPipe(Mutex<Option<ReservedFd>>);

impl LivenessPipe {
    /// Keeps the end that the node has sent.
    pub fn new(end: OwnedFd) -> Self {
        Self(Mutex::new(Some(ReservedFd::new(end))))
    }

    /// Closes the end: this process uses nothing leased.
    pub fn close(&self) {
        self.0.lock().take();
    }
}

/// Leased descriptor that has arrived.
#[derive(Debug)]
pub struct FdLease {
    /// `None` if this process can open no more descriptors.
    file: Option<OwnedFd>,
    guard: LeaseGuard,
}

/// Guard of a lease in use.
#[derive(Debug)]
pub struct LeaseGuard {
    connection: Arc<ClientConnection>,
    id: u64,
    /// Shows the node that something is in use even after the end of the connection.
    _liveness_pipe: Arc<LivenessPipe>,
}

impl FdLease {
    /// Creates the lease, with its descriptor if that arrived.
    pub fn new(file: Option<OwnedFd>, guard: LeaseGuard) -> Self {
        Self { file, guard }
    }

    /// Converts it for the caller; `None` without a descriptor.
    pub fn into_backing(self) -> Option<BackingFd> {
        let backing = BackingFd::from_lease(self.file?, Box::new(self.guard));
        backing.inspect_err(|error| tracing::debug!(%error, "a descriptor is not used")).ok()
    }
}

impl LeaseGuard {
    /// Creates the guard of the lease with the id of its request.
    pub fn new(connection: &Arc<ClientConnection>, id: u64, liveness_pipe: &Arc<LivenessPipe>) -> Self {
        Self { connection: connection.clone(), id, _liveness_pipe: liveness_pipe.clone() }
    }
}

impl BackingLease for LeaseGuard {}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.connection.release(self.id);
    }
}
