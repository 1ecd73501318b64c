//! Descriptors that travel beside the bytes of a Unix socket (`SCM_RIGHTS`).
//!
//! At most one goes with each call, so that it is known which one was lost when this process can
//! open no more.

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Bytes that were read, and the descriptor that came with them.
#[derive(Debug)]
pub struct ReceivedData {
    /// 0 at the end.
    pub count: usize,
    /// The descriptor, or the error if it could not be taken.
    pub descriptor: Option<Result<OwnedFd, Errno>>,
}

/// Sends bytes, and a descriptor with the first of them; returns the number of bytes sent.
pub fn send(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fits = beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(fits, "the space was measured for it");
    Ok(sendmsg(socket, pieces, &mut beside, SendFlags::NOSIGNAL)?)
}

/// Reads the bytes that are there.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<ReceivedData> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let read = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            read => break read?,
        }
    };
    let mut came = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let descriptor = match came.next() {
        None if read.flags.contains(ReturnFlags::CTRUNC) => Some(Err(Errno::MFILE)),
        came => came.map(Ok),
    };
    Ok(ReceivedData { count: read.bytes, descriptor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Seek, Write},
        os::unix::net::UnixStream,
    };

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_descriptor_comes_with_the_first_byte_that_it_was_sent_with_however_it_is_read() {
        for read_bytes in [1, 3, 4, 100] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(b"before").unwrap();
            for text in ["first", "second"] {
                send(one.as_fd(), &[IoSlice::new(b"with "), IoSlice::new(b"it")], file(text).as_fd()).unwrap();
            }
            drop(one);
            let (mut read, mut came) = (0, Vec::new());
            loop {
                let mut bytes = vec![0; read_bytes];
                let received = receive(&other, &mut bytes).unwrap();
                if received.count == 0 {
                    break;
                }
                let begun = (read + received.count).saturating_sub(6).div_ceil(7);
                read += received.count;
                if let Some(descriptor) = received.descriptor {
                    let (mut file, mut text) = (File::from(descriptor.unwrap()), String::new());
                    file.rewind().unwrap();
                    file.read_to_string(&mut text).unwrap();
                    came.push(text);
                }
                assert_eq!(came.len(), begun, "after {read} bytes, {read_bytes} at once");
            }
            assert_eq!((read, came), (20, vec!["first".to_owned(), "second".to_owned()]));
        }
    }
}
