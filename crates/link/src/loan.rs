//! What a node of this host has lent, at the client: given back when it is dropped.

use crate::{line::Line, own::Own};
use node::{Backing, Loan};
use parking_lot::Mutex;
use std::{os::fd::OwnedFd, sync::Arc};

/// The end of a pipe of which the node has the other: while it is open, something of what was lent may be used.
#[derive(Debug)]
pub struct Hold(Mutex<Option<Own>>);

impl Hold {
    /// What came as one.
    pub fn new(end: OwnedFd) -> Self {
        Self(Mutex::new(Some(Own::new(end))))
    }

    /// Nothing of it is used by this process.
    pub fn let_go(&self) {
        self.0.lock().take();
    }
}

/// A descriptor that came.
#[derive(Debug)]
pub struct Lent {
    /// None where this process has no room for it.
    file: Option<OwnedFd>,
    loan: Used,
}

/// A loan that is used.
#[derive(Debug)]
pub struct Used {
    line: Arc<Line>,
    id: u64,
    /// Also when the line has ended, the node sees that something is used.
    _hold: Arc<Hold>,
}

impl Lent {
    /// With what came, if it did.
    pub fn new(file: Option<OwnedFd>, loan: Used) -> Self {
        Self { file, loan }
    }

    /// For who asked.
    pub fn into_backing(self) -> Option<Backing> {
        let backing = Backing::lent(self.file?, Box::new(self.loan));
        backing.inspect_err(|error| tracing::debug!(%error, "a descriptor is not used")).ok()
    }
}

impl Used {
    /// Under the id of what asked for it.
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
