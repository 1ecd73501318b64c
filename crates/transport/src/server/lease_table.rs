//! Node's side of the leases of a client of this host, until the client releases them or can use
//! them no more.
//!
//! The client gets one end of a **liveness pipe**. While it has that open and its process lives, it
//! may use its leases, even after the connection has ended. So a broken socket never turns memory
//! that somebody views into another file's.

use crate::{
    ServerLimits,
    server::exported_segments::ExportedSegments,
    socket::{framed::Framed, stream::Stream, unix_socket::UnixSocket},
};
use bytes::Bytes;
use node::{BackingFd, ClientRegistration, Node, WorkerKind};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{PidfdFlags, pidfd_open},
};
use std::{
    collections::HashMap,
    convert::Infallible,
    future::pending,
    io, mem,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};
use store::{SegmentPosition, SharedMemory, WriteSegment};
use tokio::{
    io::{AsyncReadExt, unix::AsyncFd},
    net::unix::pipe,
};
use wire::{
    Extent,
    codec::{self, ShmPayload, ShmRange, encode_write_segment},
};

/// Leases of one client.
#[derive(Debug)]
pub struct LeaseTable {
    leases: HashMap<u64, LeasePin>,
    /// Bytes that it views in the node's memory.
    viewed_bytes: usize,
    /// Write segment of the client; `None` before it has sent much, or if none could be made.
    segment: Option<Box<dyn WriteSegment>>,
    has_no_segment: bool,
    limits: ServerLimits,
    liveness_pipe: pipe::Receiver,
    process: Arc<ClientProcess>,
    /// The client's place in the node's list, which stays until its leases have ended.
    registration: Arc<ClientRegistration>,
}

/// Pin of what is leased.
#[derive(Debug)]
enum LeasePin {
    Extent(#[expect(dead_code, reason = "held, not looked at")] BackingFd),
    Views(#[expect(dead_code, reason = "held, not looked at")] Vec<Bytes>, usize),
}

/// Process of a client: the one that connected, even if others have its socket.
#[derive(Debug)]
pub struct ClientProcess {
    /// `None` if the process is not visible here.
    id: Option<u32>,
    ended: Option<AsyncFd<OwnedFd>>,
}

impl LeaseTable {
    /// Creates the state of a client without leases, and the end of the pipe for it. Returns `None`
    /// if nothing may be leased: the client is on another host or of another user.
    pub fn for_client(node: &Arc<Node>, stream: &Stream, limits: ServerLimits) -> io::Result<Option<(Self, OwnedFd)>> {
        let Some(stream) = stream.unix().filter(|_| stream.is_of_our_user()) else { return Ok(None) };
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (liveness_pipe, process) =
            (pipe::Receiver::from_owned_fd(ours)?, Arc::new(ClientProcess::of_peer(stream)?));
        let (leases, viewed_bytes, segment, has_no_segment) = (HashMap::new(), 0, None, false);
        let registration = Arc::new(node.register_client(process.id()));
        let table =
            Self { leases, viewed_bytes, segment, has_no_segment, limits, liveness_pipe, process, registration };
        Ok(Some((table, theirs)))
    }

    /// The client's place in the node's list.
    pub fn registration(&self) -> Arc<ClientRegistration> {
        self.registration.clone()
    }

    /// Process of the client.
    pub fn process(&self) -> Arc<ClientProcess> {
        self.process.clone()
    }

    /// Returns whether one more lease is allowed.
    pub fn has_room(&self) -> bool {
        self.leases.len() < self.limits.leases
    }

    /// Returns the places of consecutive bytes in the exported memory and pins them under `id`, a
    /// new number. Returns `None` if it is better to send them, or if the client would view too
    /// much.
    pub fn place(
        &mut self,
        id: u64,
        pieces: &[Bytes],
        exported: &mut ExportedSegments,
        framed: &mut Framed,
    ) -> Option<Vec<ShmRange>> {
        let length = pieces.iter().map(Bytes::len).sum::<usize>();
        let may = self.viewed_bytes + length <= self.limits.viewed_bytes && self.has_room();
        if length < self.limits.min_view_bytes || !may {
            return None;
        }
        let mut runs: Vec<ShmRange> = Vec::with_capacity(1);
        for piece in pieces {
            let SegmentPosition { segment, offset } = exported.locate(piece, framed)?;
            let length = u32::try_from(piece.len()).ok()?;
            let last =
                runs.last_mut().filter(|run| run.segment == segment && run.offset + u64::from(run.length) == offset);
            match last.and_then(|run| run.length.checked_add(length).map(|both| (run, both))) {
                Some((run, both)) => run.length = both,
                None => runs.push(ShmRange { segment, offset, length }),
            }
        }
        self.viewed_bytes += length;
        self.leases.insert(id, LeasePin::Views(pieces.to_vec(), length));
        Some(runs)
    }

    /// Leases a descriptor under a new number; returns the copy to send.
    pub fn lease_fd(&mut self, id: u64, extent: Extent, backing: BackingFd) -> io::Result<OwnedFd> {
        let descriptor = backing.as_fd().try_clone_to_owned()?;
        self.registration.add_extent(id, extent);
        self.leases.insert(id, LeasePin::Extent(backing));
        Ok(descriptor)
    }

    /// Called when the client has sent or published stripe data: offers it blocks for the next.
    pub fn offer_write_segment(&mut self, bytes: usize, segments: &dyn SharedMemory, framed: &mut Framed) {
        if bytes < self.limits.min_write_bytes as usize && self.segment.is_none() {
            return;
        }
        if self.segment.is_none() && !self.has_no_segment && framed.may_push_fd() {
            match segments.create_write_segment().and_then(|segment| Ok((segment.open()?, segment))) {
                Ok((descriptor, segment)) => {
                    let (length, block_bytes) = (segment.length(), segment.block_bytes());
                    let least_bytes = self.limits.min_write_bytes.min(block_bytes / 2);
                    let shape = codec::WriteSegmentInfo { length, block_bytes, least_bytes };
                    framed.push_with_fd(descriptor, |out| encode_write_segment(shape, out));
                    self.segment = Some(segment);
                }
                Err(error) => {
                    // In a full pool there may be room for one later.
                    self.has_no_segment = error.kind() != io::ErrorKind::StorageFull;
                    tracing::debug!(%error, "a client of this host sends bytes through its socket: it got no write segment");
                }
            }
        }
        if let Some(segment) = &self.segment {
            segment.offer(self.limits.offered_blocks);
        }
    }

    /// Takes the bytes that the client has published; `None` if it has not.
    pub fn take(&self, ShmPayload { slot, length }: ShmPayload) -> Option<Bytes> {
        self.segment.as_ref()?.take(slot, length)
    }

    /// Ends leases that the client has released.
    pub fn release(&mut self, ids: &[u64]) {
        for id in ids {
            self.registration.end_lease(*id);
            if let Some(LeasePin::Views(_, length)) = self.leases.remove(id) {
                self.viewed_bytes -= length;
            }
        }
    }

    /// Called at the end of the connection: waits until nothing leased can be used any more, as the
    /// node's worker for that.
    pub async fn wait_until_unused(mut self, node: Arc<Node>) {
        let waiting = async { Ok::<u64, Infallible>(self.wait().await) };
        let Ok(_) = node.worker_record(WorkerKind::Pins).track(waiting).await;
    }

    /// Returns the number of leases that ended.
    async fn wait(&mut self) -> u64 {
        let left = self.leases.len() as u64;
        if !self.leases.is_empty() || self.segment.is_some() {
            tokio::select! {
                () = wait_for_close(&mut self.liveness_pipe) => {}
                () = self.process.ended() => {}
            }
            self.leases.clear();
        }
        left
    }
}

impl Drop for LeaseTable {
    /// Nobody waits for the client any more. Memory that it may still view is leaked, so its
    /// content stays. Memory that it may still write belongs to nobody else, now or later.
    fn drop(&mut self) {
        if !self.leases.is_empty() {
            tracing::warn!(
                leases = self.leases.len(),
                "a node is no longer served, and a client still uses its memory: that memory stays"
            );
            mem::forget(mem::take(&mut self.leases));
        }
    }
}

impl ClientProcess {
    fn of_peer(stream: &UnixSocket) -> io::Result<Self> {
        // For a process that is not visible here, only the liveness pipe tells.
        let (pid, _) = stream.peer();
        let id = pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        let process = pid.map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK)).transpose()?;
        #[expect(deprecated, reason = "its successor is unsafe, for descriptors that may change; an owned one stays")]
        let exit = process.map(AsyncFd::new).transpose()?;
        Ok(Self { id, ended: exit })
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
async fn wait_for_close(liveness_pipe: &mut pipe::Receiver) {
    let mut nothing = [0; 16];
    while matches!(liveness_pipe.read(&mut nothing).await, Ok(1..)) {}
}
