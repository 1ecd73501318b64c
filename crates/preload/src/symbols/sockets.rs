//! Sockets with a name in the pool: bind, connect, send, and addresses that show that name.

use super::symbols;
use crate::call::{at, number, run, set_errno, zero};
use crate::classify::{self, PoolPath};
use crate::cstr::copy_out;
use crate::memory::{load, readable, store, writable};
use libc::{
    AF_UNIX, c_char, c_int, c_void, msghdr, size_t, sockaddr, sockaddr_storage, sockaddr_un, socklen_t, ssize_t,
};
use posix::SocketEndpoint;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::offset_of;

/// Returns the path in a socket address, if it has one. An unreadable address is left to the
/// kernel, which refuses it.
///
/// # Safety
/// `address` has `length` bytes; they need not be readable.
unsafe fn address_path(address: *const sockaddr, length: socklen_t) -> Option<CString> {
    const PATH: usize = offset_of!(sockaddr_un, sun_path);
    let length = (length as usize).min(size_of::<sockaddr_un>());
    if address.is_null() || length <= PATH {
        return None;
    }
    // SAFETY: the caller's address, as far as it is readable.
    let address = unsafe { readable(address.cast(), length) }.ok().filter(|found| found.len() == length)?;
    let family = address.first_chunk().map(|family| u16::from_ne_bytes(*family))?;
    if c_int::from(family) != AF_UNIX {
        return None;
    }
    let path = address[PATH..].split(|byte| *byte == 0).next()?;
    if path.is_empty() { None } else { CString::new(path).ok() }
}

/// Makes the address of a kernel socket.
fn address(of: &CStr) -> Result<(sockaddr_un, socklen_t), Errno> {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    let path = of.to_bytes_with_nul();
    if path.len() > address.sun_path.len() {
        return Err(Errno::NAMETOOLONG);
    }
    address.sun_family = u16::try_from(AF_UNIX).unwrap_or_default();
    for (letter, byte) in address.sun_path.iter_mut().zip(path) {
        *letter = (*byte).cast_signed() as c_char;
    }
    let length = offset_of!(sockaddr_un, sun_path) + path.len();
    Ok((address, socklen_t::try_from(length).unwrap_or_default()))
}

/// Makes a socket call with the address of the kernel socket behind one of the pool.
fn with_kernel_address<N: From<i8>>(
    endpoint: &SocketEndpoint,
    call: impl FnOnce(*const sockaddr, socklen_t) -> N,
) -> N {
    match address(&endpoint.path) {
        Ok((address, length)) => call((&raw const address).cast(), length),
        Err(errno) => number(Err(errno)),
    }
}

/// Makes a socket call to an address, which may name a socket of the pool.
///
/// # Safety
/// `address` has `length` bytes.
unsafe fn send_to_address<N: From<i8> + PartialOrd>(
    address: *const sockaddr,
    length: socklen_t,
    call: impl FnOnce(*const sockaddr, socklen_t) -> N,
) -> N {
    // SAFETY: guaranteed by the caller.
    let Some(path) = (unsafe { address_path(address, length) }) else { return call(address, length) };
    // SAFETY: a nul-terminated string.
    let Some(arg) = (unsafe { classify::path(path.as_ptr()) }) else { return call(address, length) };
    match run(|process| process.listener(arg.into())) {
        Err(errno) => number(Err(errno)),
        Ok(endpoint) => {
            let outcome = with_kernel_address(&endpoint, call);
            if outcome < N::from(0) && crate::call::errno() == Some(Errno::NOENT) {
                // The socket's owner was on another host, or bound it before the node started.
                return number(Err(Errno::CONNREFUSED));
            }
            outcome
        }
    }
}

/// Makes a socket call that returns an address. If the address is of a kernel socket behind one of
/// the pool, the program gets the name that was bound.
///
/// # Safety
/// `into` has space for `length` bytes; `length` is set to the address's length.
unsafe fn receive_address<N: From<i8> + PartialOrd>(
    into: *mut sockaddr,
    length: *mut socklen_t,
    call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> N,
) -> N {
    // SAFETY: guaranteed by the caller; `whole` has space for any address.
    unsafe {
        let room = load(length).ok().filter(|room| !into.is_null() && room.cast_signed() >= 0);
        let Some(room) = room.filter(|room| writable(into.cast(), *room as usize).is_ok()) else {
            return call(into, length);
        };
        let mut whole: sockaddr_storage = std::mem::zeroed();
        let mut address_length = WHOLE_BYTES;
        let outcome = call((&raw mut whole).cast(), &raw mut address_length);
        if outcome >= N::from(0)
            && let Err(errno) = store(copy_address(&whole, address_length, into, room), length)
        {
            return number(Err(errno));
        }
        outcome
    }
}

/// Size of a buffer for any address, bytes.
#[expect(clippy::cast_possible_truncation, reason = "128")]
const WHOLE_BYTES: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

/// Copies as much of an address as fits, with its name in the pool if it has one, and returns its
/// full length.
///
/// # Safety
/// `into` has space for `room` bytes.
unsafe fn copy_address(
    whole: &sockaddr_storage,
    address_length: socklen_t,
    into: *mut sockaddr,
    room: socklen_t,
) -> socklen_t {
    let whole: *const sockaddr_storage = whole;
    // SAFETY: `whole` has `address_length` bytes; the rest is guaranteed by the caller.
    unsafe {
        let path = address_path(whole.cast(), address_length.min(WHOLE_BYTES))
            .filter(|path| SocketEndpoint::is_kernel_path(path.to_bytes()));
        let bound = path.and_then(|path| run(|process| process.bound_name(path.to_bytes())).ok());
        if let Some((bound, address_length)) = bound.and_then(|bound| address(&bound).ok()) {
            copy_out(as_bytes(&raw const bound, address_length), into.cast(), room as usize);
            return address_length;
        }
        copy_out(as_bytes(whole, address_length.min(WHOLE_BYTES)), into.cast(), room as usize);
    }
    address_length
}

/// Returns the bytes of an address.
///
/// # Safety
/// It has `length` bytes, and outlives the result.
unsafe fn as_bytes<'a, T>(address: *const T, length: socklen_t) -> &'a [u8] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(address.cast(), length as usize) }
}

symbols! {
    /// bind(2): creates a name in the pool, and binds a socket of this host behind it.
    fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: the program's socket address.
        unsafe {
            let Some(path) = address_path(address, length) else { return next(socket, address, length) };
            let Some(arg) = classify::path(path.as_ptr()) else { return next(socket, address, length) };
            match run(|process| process.socket(arg.into())) {
                Err(errno) => zero(Err(errno)),
                Ok(endpoint) => {
                    // Without this record, queries show the kernel's path instead of the name.
                    let _ = endpoint.record_name(&path);
                    let bound = with_kernel_address(&endpoint, |address, length| next(socket, address, length));
                    if bound != 0 {
                        remove_name(arg);
                    }
                    bound
                }
            }
        }
    }

    /// connect(2).
    fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int | __connect {
        // SAFETY: the program's socket address.
        unsafe { send_to_address(address, length, |address, length| next(socket, address, length)) }
    }

    /// sendto(2).
    fn sendto(socket: c_int, from: *const c_void, bytes: size_t, flags: c_int, address: *const sockaddr, length: socklen_t) -> ssize_t {
        // SAFETY: the program's socket address.
        unsafe { send_to_address(address, length, |address, length| next(socket, from, bytes, flags, address, length)) }
    }

    /// sendmsg(2).
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the program's message; a copy of it gets another address.
        unsafe {
            if load(message).is_err() { return next(socket, message, flags) }
            send_to_address((*message).msg_name.cast(), (*message).msg_namelen, |address, length| {
                let mut sent = *message;
                (sent.msg_name, sent.msg_namelen) = (address.cast_mut().cast(), length);
                next(socket, &raw const sent, flags)
            })
        }
    }

    /// getsockname(2).
    fn getsockname(socket: c_int, into: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: the program's buffer.
        unsafe { receive_address(into, length, |into, length| next(socket, into, length)) }
    }

    /// getpeername(2).
    fn getpeername(socket: c_int, into: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: the program's buffer.
        unsafe { receive_address(into, length, |into, length| next(socket, into, length)) }
    }

    /// accept(2).
    fn accept(socket: c_int, into: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: the program's buffer.
        unsafe { receive_address(into, length, |into, length| next(socket, into, length)) }
    }

    /// accept4(2).
    fn accept4(socket: c_int, into: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        // SAFETY: the program's buffer.
        unsafe { receive_address(into, length, |into, length| next(socket, into, length, flags)) }
    }

    /// recvfrom(2).
    fn recvfrom(socket: c_int, into: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> ssize_t {
        // SAFETY: the program's buffer.
        unsafe { receive_address(from, length, |from, length| next(socket, into, bytes, flags, from, length)) }
    }

    /// recvfrom(2) in programs built with `_FORTIFY_SOURCE`.
    fn __recvfrom_chk(socket: c_int, into: *mut c_void, bytes: size_t, most: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> ssize_t {
        // SAFETY: the program's buffer.
        unsafe { receive_address(from, length, |from, length| next(socket, into, bytes, most, flags, from, length)) }
    }

    /// recvmsg(2).
    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the program's message; a copy of it has space for any address.
        unsafe {
            if load(message).is_err() { return next(socket, message, flags) }
            receive_address((*message).msg_name.cast(), &raw mut (*message).msg_namelen, |from, address_length| {
                let mut got = *message;
                (got.msg_name, got.msg_namelen) = (from.cast(), *address_length);
                let outcome = next(socket, &raw mut got, flags);
                if outcome >= 0 {
                    *address_length = got.msg_namelen;
                    ((*message).msg_controllen, (*message).msg_flags) = (got.msg_controllen, got.msg_flags);
                }
                outcome
            })
        }
    }
}

/// Removes the name of a socket that could not be bound, and preserves `errno`.
fn remove_name(arg: PoolPath<'_>) {
    let why = crate::call::errno();
    // If this fails, a name without a listener remains.
    let _: c_int = number(run(|process| process.unlink(arg.into(), at(0)).map(|()| 0)));
    if let Some(why) = why {
        set_errno(why);
    }
}

#[cfg(test)]
#[path = "sockets_test.rs"]
mod tests;
