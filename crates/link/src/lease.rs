//! Client's side of leases from a node of this host; dropping a lease releases it.

use crate::{client_connection::Line, reserved_fd::Own};
use node::{Backing, Loan};
use parking_lot::Mutex;
use std::{os::fd::OwnedFd, sync::Arc};

/// Liveness pipe: the client's end. While it is open, something leased may be in use.
#[derive(Debug)]
pub struct Hold(Mutex<Option<Own>>);

impl Hold {
    /// Keeps the end that the node has sent.
    pub fn new(end: OwnedFd) -> Self {
        Self(Mutex::new(Some(Own::new(end))))
    }

    /// Closes the end: this process uses nothing leased.
    pub fn let_go(&self) {
        self.0.lock().take();
    }
}

/// Leased descriptor that has arrived.
#[derive(Debug)]
pub struct Lent {
    /// `None` if this process can open no more descriptors.
    file: Option<OwnedFd>,
    loan: Used,
}

/// Guard of a lease in use.
#[derive(Debug)]
pub struct Used {
    line: Arc<Line>,
    id: u64,
    /// Shows the node that something is in use even after the end of the connection.
    _hold: Arc<Hold>,
}

impl Lent {
    /// Creates the lease, with its descriptor if that arrived.
    pub fn new(file: Option<OwnedFd>, loan: Used) -> Self {
        Self { file, loan }
    }

    /// Converts it for the caller; `None` without a descriptor.
    pub fn into_backing(self) -> Option<Backing> {
        let backing = Backing::lent(self.file?, Box::new(self.loan));
        backing.inspect_err(|error| tracing::debug!(%error, "a descriptor is not used")).ok()
    }
}

impl Used {
    /// Creates the guard of the lease with the id of its request.
    pub fn new(line: &Arc<Line>, id: u64, hold: &Arc<Hold>) -> Self {
        Self { line: line.clone(), id, _hold: hold.clone() }
    }
}

impl Loan for Used {}

impl Drop for Used {
    fn drop(&mut self) {
        self.line.give_back(self.id);
    }
}
