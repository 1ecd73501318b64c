//! Calls on non-blocking sockets.

use rustix::{
    io::read,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::BorrowedFd,
    task::{Poll, ready},
};
use tokio::io::ReadBuf;

/// Bytes of a read into a buffer that need not be zeroed: enough for metadata requests.
pub const READ_BYTES: usize = 4 << 10;

/// Result of a call on a non-blocking socket; pending if it would block.
pub fn poll_now<T>(mut call: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            done => return Poll::Ready(done),
        }
    }
}

/// Writes to a socket, without SIGPIPE if the peer has gone: this may be a process that is not
/// ours.
pub fn write(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

/// Reads from a non-blocking socket, at most `most` bytes.
pub fn poll_read(socket: BorrowedFd<'_>, into: &mut ReadBuf<'_>, most: usize) -> Poll<io::Result<usize>> {
    let most = into.remaining().min(most);
    if most <= READ_BYTES {
        let mut room = [MaybeUninit::uninit(); READ_BYTES];
        return poll_now(|| {
            let (come, _) = read(socket, &mut room[..most])?;
            into.put_slice(come);
            Ok(come.len())
        });
    }
    let room = into.initialize_unfilled_to(most);
    let count = ready!(poll_now(|| Ok(read(socket, &mut *room)?)))?;
    into.advance(count);
    Poll::Ready(Ok(count))
}
