//! Non-blocking socket of a reactor. An operation that would block is pending and keeps no waker:
//! the thread that drives the connection polls again when [`Poller`] reports an event.

use crate::{
    nonblocking::{self, poll_now, poll_read},
    reserved_fd::ReservedFd,
};
use node::sleep_until;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    io::{Errno, read, write},
    net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt},
};
use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Retry interval while the node accepts connections more slowly than they come.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(1);
/// Most bytes of one read: the buffer for them is zeroed first and should stay in the processor's
/// cache.
const READ_BYTES: usize = 64 << 10;
/// Event number of the wake-up eventfd; sockets count from 1.
const WAKE_EVENT: u64 = 0;

/// Poller (epoll) of all sockets of a reactor.
#[derive(Debug)]
pub struct Poller {
    epoll: ReservedFd,
    wake_event: ReservedFd,
    /// True in a forked child: the epoll instance is shared with the parent, so it must not be
    /// changed.
    inherited: AtomicBool,
}

impl Poller {
    /// Creates a poller with its wake-up eventfd and without sockets.
    pub fn new() -> io::Result<Self> {
        let epoll = ReservedFd::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake_event = ReservedFd::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &wake_event, epoll::EventData::new_u64(WAKE_EVENT), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake_event, inherited: AtomicBool::new(false) })
    }

    /// Wakes the thread that waits here.
    pub fn wake(&self) {
        // A write fails only if the eventfd is already signalled.
        let _ = write(&self.wake_event, &1_u64.to_ne_bytes());
    }

    /// Waits for events until `until`; adds the numbers of the ready sockets to `ready`.
    pub fn wait(&self, until: Option<Instant>, ready: &mut Vec<u64>) -> io::Result<()> {
        // Rounded up: a thread woken before that time would only wait again.
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis() + 1);
        let most = left.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: (ms % 1000) as i64 * 1_000_000,
        });
        let mut events = Vec::with_capacity(16);
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), most.as_ref())?;
        for event in events {
            match event.data.u64() {
                WAKE_EVENT => drop(read(&self.wake_event, &mut [0; 8])),
                number => ready.push(number),
            }
        }
        Ok(())
    }

    /// Marks the poller as inherited; called in a forked child.
    pub fn mark_inherited(&self) {
        self.inherited.store(true, Relaxed);
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Registration of a socket with a poller.
#[derive(Debug)]
pub struct PollEntry {
    poller: Arc<Poller>,
    /// Event number of the socket.
    number: u64,
    /// True while the socket is registered for write readiness.
    wants_write: AtomicBool,
}

impl PollEntry {
    /// Creates the registration of a socket that does not exist yet.
    pub fn new(poller: Arc<Poller>, number: u64) -> Arc<Self> {
        Arc::new(Self { poller, number, wants_write: AtomicBool::new(false) })
    }

    fn add(&self, socket: &ReservedFd) -> io::Result<()> {
        Ok(epoll::add(&self.poller.epoll, socket, epoll::EventData::new_u64(self.number), epoll::EventFlags::IN)?)
    }

    fn remove(&self, socket: &ReservedFd) {
        if !self.poller.inherited.load(Relaxed) {
            let _ = epoll::delete(&self.poller.epoll, socket); // it may never have been added
        }
    }

    fn await_writable<T>(&self, socket: &ReservedFd) -> Poll<io::Result<T>> {
        self.set_write_interest(socket, true)?;
        Poll::Pending
    }

    fn set_write_interest(&self, socket: &ReservedFd, wanted: bool) -> io::Result<()> {
        if self.wants_write.load(Relaxed) == wanted {
            return Ok(());
        }
        self.wants_write.store(wanted, Relaxed);
        let flags = if wanted { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.poller.epoll, socket, epoll::EventData::new_u64(self.number), flags)?)
    }
}

/// Connected non-blocking socket.
#[derive(Debug)]
pub struct RawSocket {
    socket: ReservedFd,
    entry: Arc<PollEntry>,
}

impl RawSocket {
    /// Connects to the path of a Unix socket.
    pub async fn connect_unix(path: &Path, entry: &Arc<PollEntry>) -> io::Result<Self> {
        let (socket, address) = (Self::new(AddressFamily::UNIX, entry)?, SocketAddrUnix::new(path)?);
        loop {
            match connect(&socket.socket, &address) {
                // The listen queue is full.
                Err(Errno::AGAIN) => sleep_until(Instant::now() + QUEUE_FULL_PAUSE).await,
                connected => {
                    connected?;
                    return Ok(socket);
                }
            }
        }
    }

    /// Connects to an address of a network.
    pub async fn connect_tcp(address: SocketAddr, entry: &Arc<PollEntry>) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = Self::new(family, entry)?;
        match connect(&socket.socket, &SocketAddrAny::from(address)) {
            Err(Errno::INPROGRESS) => poll_fn(|_| socket.poll_connected()).await?,
            connected => connected?,
        }
        Ok(socket)
    }

    fn new(family: AddressFamily, entry: &Arc<PollEntry>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = ReservedFd::new(socket_with(family, SocketType::STREAM, flags, None)?);
        entry.add(&socket)?;
        entry.wants_write.store(false, Relaxed);
        Ok(Self { socket, entry: entry.clone() })
    }

    fn poll_connected(&self) -> Poll<io::Result<()>> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::OUT)];
        if poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return self.entry.await_writable(&self.socket);
        }
        self.clear_write_interest()?;
        Poll::Ready(Ok(sockopt::socket_error(&self.socket)??))
    }

    /// Stops waiting for write readiness.
    fn clear_write_interest(&self) -> io::Result<()> {
        self.entry.set_write_interest(&self.socket, false)
    }

    /// Calls `write`, which writes to the socket; pending if it would block.
    pub fn poll_write_with(&self, write: impl FnMut() -> io::Result<usize>) -> Poll<io::Result<usize>> {
        match poll_now(write) {
            Poll::Pending => self.entry.await_writable(&self.socket),
            Poll::Ready(written) => {
                self.clear_write_interest()?;
                Poll::Ready(written)
            }
        }
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for RawSocket {
    fn drop(&mut self) {
        // Closing alone would not deregister the socket if a forked child holds it too.
        self.entry.remove(&self.socket);
    }
}

impl AsyncRead for RawSocket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        poll_read(self.as_fd(), into, READ_BYTES).map_ok(drop)
    }
}

impl AsyncWrite for RawSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|| nonblocking::write(self.as_fd(), pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // no buffer here
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)?))
    }
}
