//! Node's side of the leases of a client of this host, until the client releases them or can use
//! them no more.
//!
//! The client gets one end of a **liveness pipe**. While it has that open and its process lives, it
//! may use its leases, even after the connection has ended. So a broken socket never turns memory
//! that somebody views into another file's.

use crate::{Limits, exported_segments::Shown, framed::Pipe, stream::Stream, unix_socket::Near};
use bytes::Bytes;
use node::Backing;
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{PidfdFlags, pidfd_open},
};
use std::{
    collections::HashMap,
    future::pending,
    io, mem,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};
use store::{Bay, Place, Segments};
use tokio::{
    io::{AsyncReadExt, unix::AsyncFd},
    net::unix::pipe,
};
use wire::codec::{self, Filled, Placed, encode_bay};

/// Leases of one client.
#[derive(Debug)]
pub struct Loans {
    lent: HashMap<u64, Loan>,
    /// Bytes that it views in the node's memory.
    viewed_bytes: usize,
    /// Write segment of the client; `None` before it has sent much, or if none could be made.
    bay: Option<Box<dyn Bay>>,
    has_no_bay: bool,
    limits: Limits,
    hold: pipe::Receiver,
    process: Arc<Process>,
}

/// Pin of what is leased.
#[derive(Debug)]
enum Loan {
    Extent(#[expect(dead_code, reason = "held, not looked at")] Backing),
    Views(#[expect(dead_code, reason = "held, not looked at")] Vec<Bytes>, usize),
}

/// Process of a client: the one that connected, even if others have its socket.
#[derive(Debug)]
pub struct Process {
    /// `None` if the process is not visible here.
    id: Option<u32>,
    ended: Option<AsyncFd<OwnedFd>>,
}

impl Loans {
    /// Creates the state of a client without leases, and the end of the pipe for it. Returns `None`
    /// if nothing may be leased: the client is on another host or of another user.
    pub fn to(stream: &Stream, limits: Limits) -> io::Result<Option<(Self, OwnedFd)>> {
        let Some(stream) = stream.unix().filter(|_| stream.is_of_our_user()) else { return Ok(None) };
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (hold, process) = (pipe::Receiver::from_owned_fd(ours)?, Arc::new(Process::behind(stream)?));
        let (lent, viewed_bytes, bay, has_no_bay) = (HashMap::new(), 0, None, false);
        Ok(Some((Self { lent, viewed_bytes, bay, has_no_bay, limits, hold, process }, theirs)))
    }

    /// Process of the client.
    pub fn process(&self) -> Arc<Process> {
        self.process.clone()
    }

    /// Returns whether one more lease is allowed.
    pub fn has_room(&self) -> bool {
        self.lent.len() < self.limits.loans
    }

    /// Returns the places of consecutive bytes in the exported memory and pins them under `loan`, a
    /// new number. Returns `None` if it is better to send them, or if the client would view too
    /// much.
    pub fn place(&mut self, loan: u64, pieces: &[Bytes], shown: &mut Shown, pipe: &mut Pipe) -> Option<Vec<Placed>> {
        let length = pieces.iter().map(Bytes::len).sum::<usize>();
        let may = self.viewed_bytes + length <= self.limits.viewed_bytes && self.has_room();
        if length < self.limits.placed || !may {
            return None;
        }
        let mut runs: Vec<Placed> = Vec::with_capacity(1);
        for piece in pieces {
            let Place { segment, offset } = shown.place(piece, pipe)?;
            let length = u32::try_from(piece.len()).ok()?;
            let last =
                runs.last_mut().filter(|run| run.segment == segment && run.offset + u64::from(run.length) == offset);
            match last.and_then(|run| run.length.checked_add(length).map(|both| (run, both))) {
                Some((run, both)) => run.length = both,
                None => runs.push(Placed { segment, offset, length }),
            }
        }
        self.viewed_bytes += length;
        self.lent.insert(loan, Loan::Views(pieces.to_vec(), length));
        Some(runs)
    }

    /// Leases a descriptor under a new number; returns the copy to send.
    pub fn lend(&mut self, loan: u64, backing: Backing) -> io::Result<OwnedFd> {
        let descriptor = backing.as_fd().try_clone_to_owned()?;
        self.lent.insert(loan, Loan::Extent(backing));
        Ok(descriptor)
    }

    /// Called when the client has sent or published stripe data: offers it blocks for the next.
    pub fn invite(&mut self, bytes: usize, segments: &dyn Segments, pipe: &mut Pipe) {
        if bytes < self.limits.published as usize && self.bay.is_none() {
            return;
        }
        if self.bay.is_none() && !self.has_no_bay && pipe.has_room() {
            match segments.bay().and_then(|bay| Ok((bay.open()?, bay))) {
                Ok((descriptor, bay)) => {
                    let (length, block_bytes) = (bay.length(), bay.block_bytes());
                    let least_bytes = self.limits.published.min(block_bytes / 2);
                    let shape = codec::Bay { length, block_bytes, least_bytes };
                    pipe.push_with(descriptor, |out| encode_bay(shape, out));
                    self.bay = Some(bay);
                }
                Err(error) => {
                    // In a full pool there may be room for one later.
                    self.has_no_bay = error.kind() != io::ErrorKind::StorageFull;
                    tracing::debug!(%error, "a client of this host sends its bytes");
                }
            }
        }
        if let Some(bay) = &self.bay {
            bay.offer(self.limits.offers);
        }
    }

    /// Takes the bytes that the client has published; `None` if it has not.
    pub fn take(&self, Filled { slot, length }: Filled) -> Option<Bytes> {
        self.bay.as_ref()?.take(slot, length)
    }

    /// Ends leases that the client has released.
    pub fn returned(&mut self, loans: &[u64]) {
        for loan in loans {
            if let Some(Loan::Views(_, length)) = self.lent.remove(loan) {
                self.viewed_bytes -= length;
            }
        }
    }

    /// Called at the end of the connection: waits until nothing leased can be used any more.
    pub async fn outlive(mut self) {
        if !self.lent.is_empty() || self.bay.is_some() {
            tokio::select! {
                () = closed(&mut self.hold) => {}
                () = self.process.ended() => {}
            }
            self.lent.clear();
        }
    }
}

impl Drop for Loans {
    /// Nobody waits for the client any more. Memory that it may still view is leaked, so its
    /// content stays. Memory that it may still write belongs to nobody else, now or later.
    fn drop(&mut self) {
        if !self.lent.is_empty() {
            tracing::warn!(
                loans = self.lent.len(),
                "what a client still uses of a node that is not served any more is kept"
            );
            mem::forget(mem::take(&mut self.lent));
        }
    }
}

impl Process {
    fn behind(stream: &Near) -> io::Result<Self> {
        // For a process that is not visible here, only the liveness pipe tells.
        let (pid, _) = stream.peer()?;
        let id = pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        let process = pid.map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK)).transpose()?;
        #[expect(deprecated, reason = "its successor is unsafe, for descriptors that may change; an owned one stays")]
        let watched = process.map(AsyncFd::new).transpose()?;
        Ok(Self { id, ended: watched })
    }

    /// Process id, as seen here.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// Waits until the process has ended.
    pub async fn ended(&self) {
        match &self.ended {
            Some(process) => drop(process.readable().await),
            None => pending().await,
        }
    }
}

/// Waits until all copies of the other end are closed.
async fn closed(hold: &mut pipe::Receiver) {
    let mut nothing = [0; 16];
    while matches!(hold.read(&mut nothing).await, Ok(1..)) {}
}
