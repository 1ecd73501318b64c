//! Unix socket of a runtime, which either watches it, or does not know it while a task busy-polls
//! it.
//!
//! If the runtime knew a busy-polled socket, each message would wake a thread that waits for all
//! sockets and takes the processor from the polling task. It watches a socket for input alone until
//! a write finds no room: a socket that is watched for room too wakes a thread each time that the
//! peer has read a message.

use crate::socket::scm_rights::{self, ReceivedData};
use reactor::nonblocking::{READ_BYTES, poll_now, poll_read, write};
use rustix::process::{Pid, geteuid};
use std::{
    io::{self, IoSlice},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net,
    },
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    net::{UnixStream, unix::UCred},
};

/// Bytes of a read after one that filled its buffer.
const READ_MORE_BYTES: usize = 64 << 10;
/// Number of writes that find room after which a socket is watched for input alone again: the
/// change takes two system calls, and the next long message may need it again.
const WRITES_WITH_ROOM: u32 = 64;

/// Connected Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    mode: SocketWatch,
    peer: UCred,
    /// True if the last read filled its buffer.
    was_full: bool,
}

/// The one who waits for the events of a socket.
#[derive(Debug)]
enum SocketWatch {
    /// The runtime, for input.
    Input(AsyncFd<net::UnixStream>),
    /// The runtime, for input and room to write; with the number of writes since then that have
    /// found room.
    InputAndRoom(AsyncFd<net::UnixStream>, u32),
    /// A task that busy-polls.
    BusyPolled(net::UnixStream),
    /// Nobody: changing the mode failed.
    Broken,
}

impl UnixSocket {
    /// Wraps a socket.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self { mode: SocketWatch::input(stream.into_std()?)?, peer, was_full: false })
    }

    /// Connects to the path of a socket.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::new(UnixStream::connect(path).await?)?;
        check_peer(socket.peer.uid())?;
        Ok(socket)
    }

    /// Switches to busy polling: no event of this socket wakes anybody.
    pub fn spin(&mut self) -> io::Result<()> {
        if !matches!(self.mode, SocketWatch::BusyPolled(_)) {
            self.mode = SocketWatch::BusyPolled(self.take()?);
        }
        Ok(())
    }

    /// Switches to waiting; returns true if it was busy-polling.
    pub fn block(&mut self) -> io::Result<bool> {
        let is_busy_polled = matches!(self.mode, SocketWatch::BusyPolled(_));
        if is_busy_polled {
            self.mode = SocketWatch::input(self.take()?)?;
        }
        Ok(is_busy_polled)
    }

    /// Takes the socket, which nobody waits for then.
    fn take(&mut self) -> io::Result<net::UnixStream> {
        match std::mem::replace(&mut self.mode, SocketWatch::Broken) {
            SocketWatch::Input(watched) | SocketWatch::InputAndRoom(watched, _) => Ok(watched.into_inner()),
            SocketWatch::BusyPolled(stream) => Ok(stream),
            SocketWatch::Broken => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Process at the other end, `None` if it is not visible here, and whether it has our user.
    pub fn peer(&self) -> (Option<Pid>, bool) {
        // 0: the process is in a namespace that is not visible here.
        let process = self.peer.pid().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        (process, self.peer.uid() == geteuid().as_raw())
    }

    /// Writes some bytes, and a descriptor with the first of them.
    pub fn poll_send_with(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |socket| scm_rights::send(socket, pieces, descriptor))
    }

    /// Reads some bytes, and the descriptor that came with them.
    pub fn poll_receive(&self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<ReceivedData>> {
        self.poll_read_with(context, |socket| {
            let received = scm_rights::receive(socket, into)?;
            // A read ends behind a descriptor, so more may follow it.
            let is_last = (1..into.len()).contains(&received.count) && received.descriptor.is_none();
            Ok((received, is_last))
        })
    }

    /// Underlying socket.
    pub fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.mode {
            SocketWatch::Input(watched) | SocketWatch::InputAndRoom(watched, _) => Ok(watched.as_fd()),
            SocketWatch::BusyPolled(stream) => Ok(stream.as_fd()),
            SocketWatch::Broken => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Calls `read`, which also tells whether nothing is left in the socket. Then the runtime need
    /// not learn that from a read that finds nothing.
    fn poll_read_with<T>(
        &self,
        context: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> io::Result<(T, bool)>,
    ) -> Poll<io::Result<T>> {
        let (SocketWatch::Input(watched) | SocketWatch::InputAndRoom(watched, _)) = &self.mode else {
            return poll_now(|| read(self.socket()?).map(|(done, _)| done));
        };
        loop {
            let mut ready = ready!(watched.poll_read_ready(context))?;
            match poll_now(|| read(watched.as_fd())) {
                Poll::Pending => ready.clear_ready(),
                Poll::Ready(Ok((done, is_last))) => {
                    if is_last {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(done));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Calls `write`; the runtime watches for room when there is none.
    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Poll::Ready(written) = poll_now(|| write(self.socket()?)) {
                self.found_room()?;
                return Poll::Ready(written);
            }
            match &mut self.mode {
                SocketWatch::Input(_) => self.mode = SocketWatch::InputAndRoom(watch(self.take()?, true)?, 0),
                SocketWatch::InputAndRoom(watched, writes) => {
                    *writes = 0;
                    let mut ready = ready!(watched.poll_write_ready(context))?;
                    // Room that comes after this is reported again.
                    ready.clear_ready();
                }
                SocketWatch::BusyPolled(_) | SocketWatch::Broken => return Poll::Pending,
            }
        }
    }

    /// Notes that a write has found room.
    fn found_room(&mut self) -> io::Result<()> {
        if let SocketWatch::InputAndRoom(_, writes) = &mut self.mode {
            *writes += 1;
            if *writes >= WRITES_WITH_ROOM {
                self.mode = SocketWatch::input(self.take()?)?;
            }
        }
        Ok(())
    }
}

impl SocketWatch {
    fn input(stream: net::UnixStream) -> io::Result<Self> {
        watch(stream, false).map(Self::Input)
    }
}

/// Has the runtime watch a socket for input, and for room to write if `room`.
fn watch(stream: net::UnixStream, room: bool) -> io::Result<AsyncFd<net::UnixStream>> {
    #[expect(deprecated, reason = "its successor is unsafe, for descriptors that may change; an owned one stays")]
    let with_interest = AsyncFd::with_interest;
    let interest = if room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    with_interest(stream, interest)
}

/// Refuses a socket at which another user listens: nodes of a pool run as the user of its file, or
/// as root.
pub fn check_peer(user: u32) -> io::Result<()> {
    if user == 0 || user == geteuid().as_raw() {
        return Ok(());
    }
    let why = format!("user {user} listens there, and not the pool's own: trust nothing there");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

impl AsyncRead for UnixSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        // An initialized buffer, as a receive buffer is, needs no zeroing.
        let is_clear = into.initialized().len() == into.capacity();
        let most = if is_clear || socket.was_full { READ_MORE_BYTES } else { READ_BYTES };
        let most = if is_clear { into.remaining() } else { most.min(into.remaining()) };
        let count = ready!(socket.poll_read_with(context, |socket| match poll_read(socket, into, most) {
            Poll::Ready(count) => count.map(|count| (count, (1..most).contains(&count))),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }))?;
        socket.was_full = count == most;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UnixSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(context, |socket| write(socket, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // no buffer here
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(self.socket()?, rustix::net::Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        task::Waker,
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pair() -> (UnixSocket, net::UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = theirs.into_std().unwrap();
        theirs.set_nonblocking(false).unwrap();
        (UnixSocket::new(ours).unwrap(), theirs)
    }

    #[tokio::test]
    async fn a_writer_without_room_goes_on_when_the_peer_reads_and_then_only_input_is_watched() {
        const BYTES: usize = 4 << 20;
        let (mut socket, mut theirs) = pair();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; BYTES];
            theirs.read_exact(&mut bytes).unwrap();
            (bytes.iter().all(|byte| *byte == 7), theirs)
        });
        assert!(matches!(socket.mode, SocketWatch::Input(_)));
        socket.write_all(&vec![7; BYTES]).await.unwrap();
        let (all_came, _theirs) = reader.join().unwrap();
        assert!(all_came);
        for _ in 0..WRITES_WITH_ROOM {
            socket.write_all(&[7]).await.unwrap();
        }
        assert!(matches!(socket.mode, SocketWatch::Input(_)));
    }

    #[tokio::test]
    async fn without_room_a_write_is_pending_and_room_is_watched_for() {
        let (mut socket, theirs) = pair();
        let (mut context, bytes) = (Context::from_waker(Waker::noop()), [7; 4096]);
        while Pin::new(&mut socket).poll_write(&mut context, &bytes).is_ready() {}
        assert!(matches!(socket.mode, SocketWatch::InputAndRoom(..)));
        drop(theirs);
    }

    #[tokio::test]
    async fn nothing_is_lost_between_reads_that_leave_nothing_and_those_that_leave_something() {
        let (mut socket, mut theirs) = pair();
        for (mode, length) in
            (0..100).zip([1, 7, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES].iter().cycle())
        {
            if mode % 3 == 0 {
                socket.spin().unwrap();
                socket.block().unwrap();
            }
            theirs.write_all(&vec![mode; *length]).unwrap();
            let mut bytes = vec![0; *length];
            socket.read_exact(&mut bytes).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == mode));
        }
        drop(theirs);
        assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
    }
}
