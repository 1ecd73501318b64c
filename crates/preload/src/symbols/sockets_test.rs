//! Sockets and asynchronous operations: names in the pool lead to sockets of this host.

use super::*;
use crate::pool_test::{Place, TestDir, answer, same_everywhere, why, without_children};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::ptr::{null, null_mut, without_provenance};

/// Path of an address in its bytes.
fn path_of(bytes: &[u8]) -> Option<CString> {
    // SAFETY: an address of that length.
    unsafe { address_path(bytes.as_ptr().cast(), bytes.len().try_into().unwrap()) }
}

#[test]
fn only_a_named_unix_address_has_a_path() {
    let unix = u16::try_from(AF_UNIX).unwrap().to_ne_bytes();
    let named = |path: &[u8]| path_of(&[&unix, path].concat());
    assert_eq!(named(b"/tidemill/s\0rest").as_deref(), Some(c"/tidemill/s"));
    assert_eq!(named(b"relative").as_deref(), Some(c"relative"), "the nul may be missing");
    assert_eq!(named(&[b'p'; 108]).map(|path| path.count_bytes()), Some(108));
    assert_eq!(named(&[b'p'; 300]).map(|path| path.count_bytes()), Some(108), "no address is longer");
    assert_eq!(
        [named(b""), named(b"\0abstract"), path_of(&[2, 0, 1, 2, 3, 4]), path_of(&unix[..1])],
        [const { None }; 4]
    );
    // SAFETY: no address, or one where nothing is.
    unsafe {
        assert_eq!(address_path(null(), 100), None);
        assert_eq!(address_path(without_provenance(64), 100), None);
    }
}

#[test]
fn an_address_holds_a_path_that_fits_with_its_nul() {
    let (made, length) = address(c"/run/s").unwrap();
    assert_eq!((c_int::from(made.sun_family), length), (AF_UNIX, 2 + 7));
    // SAFETY: an address of that length.
    assert_eq!(unsafe { address_path((&raw const made).cast(), length) }.as_deref(), Some(c"/run/s"));
    let path = |length| CString::new(vec![b'p'; length]).unwrap();
    assert!(address(&path(107)).is_ok_and(|(_, length)| length == 110));
    assert_eq!(address(&path(108)).map(drop), Err(Errno::NAMETOOLONG));
}

#[test]
fn a_stream_of_bytes_passes_through_a_name_of_the_pool() {
    let _no_children = without_children();
    same_everywhere(|test_dir| {
        let path = test_dir.path("s");
        let listener = UnixListener::bind(&path).unwrap();
        let shown = |path: Option<&Path>| path.map(|path| test_dir.without_root(path.to_str().unwrap()));
        let again = why(UnixListener::bind(&path)).map(drop);
        let is_socket = fs::metadata(&path).unwrap().file_type().is_socket();
        let mut client = UnixStream::connect(&path).unwrap();
        let (mut server, from) = listener.accept().unwrap();
        client.write_all(b"to the server").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        let names = [
            shown(listener.local_addr().unwrap().as_pathname()),
            shown(client.peer_addr().unwrap().as_pathname()),
            shown(client.local_addr().unwrap().as_pathname()),
            shown(from.as_pathname()),
        ];
        drop((listener, server, client));
        let left = why(UnixStream::connect(&path)).map(drop);
        fs::remove_file(&path).unwrap();
        (again, is_socket, text, names, left, why(UnixStream::connect(&path)).map(drop))
    });
}

#[test]
fn messages_carry_the_name_that_their_sender_bound() {
    same_everywhere(|test_dir| {
        let (first, second) = (test_dir.path("first"), test_dir.path("second"));
        let (sender, receiver) = (UnixDatagram::bind(&first).unwrap(), UnixDatagram::bind(&second).unwrap());
        let sent = why(sender.send_to(b"message", &second));
        let mut text = [0; 16];
        let (length, from) = receiver.recv_from(&mut text).unwrap();
        let from = test_dir.without_root(from.as_pathname().unwrap().to_str().unwrap());
        fs::write(test_dir.path("file"), "").unwrap();
        let refused = ["missing", "file", "first/x"].map(|name| why(sender.send_to(b"x", test_dir.path(name))));
        (sent, text[..length].to_vec(), from, refused)
    });
}

#[test]
fn an_address_is_cut_to_the_callers_buffer_and_told_in_full_length() {
    same_everywhere(|test_dir| {
        let listener = UnixListener::bind(test_dir.path("s")).unwrap();
        let whole = test_dir.path("s").as_os_str().len() + 3;
        [0_u32, 2, 5, 110, u32::MAX].map(|room| {
            let (mut into, mut length) = ([0_u8; 128], room);
            // SAFETY: a buffer of 128 bytes; a negative length is refused.
            let ended =
                answer(unsafe { libc::getsockname(listener.as_raw_fd(), into.as_mut_ptr().cast(), &raw mut length) });
            let output = if ended.is_ok() { length as usize == whole } else { length == room };
            (ended, output, into[..3].to_vec())
        })
    });
}

#[test]
fn unusable_addresses_are_refused_by_the_kernel() {
    let test_dir = TestDir::new(Place::Local);
    let socket = UnixDatagram::unbound().unwrap();
    let descriptor = socket.as_raw_fd();
    drop(test_dir);
    // SAFETY: addresses where nothing is.
    unsafe {
        assert_eq!(answer(libc::connect(descriptor, without_provenance(64), 20)), Err(Errno::FAULT));
        assert_eq!(answer(libc::bind(descriptor, without_provenance(64), 20)), Err(Errno::FAULT));
        assert_eq!(answer(libc::getsockname(descriptor, null_mut(), null_mut())), Err(Errno::FAULT));
        assert_eq!(answer(libc::sendmsg(descriptor, without_provenance(64), 0)), Err(Errno::FAULT));
    }
}
