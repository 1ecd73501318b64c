//! Sockets with a name in the pool: bound and connected to.

use super::symbols;
use crate::guard::{at, done, number, set_errno, zero};
use crate::ours::{self, Said};
use libc::{AF_UNIX, c_char, c_int, sockaddr, sockaddr_un, socklen_t};
use posix::Meeting;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::offset_of;

/// The path that an address names, if it names one.
///
/// # Safety
/// An address of so many bytes.
unsafe fn named(address: *const sockaddr, length: socklen_t) -> Option<CString> {
    let length = length as usize;
    // SAFETY: the caller's address; a path ends with it, or with a nul before.
    unsafe {
        if address.is_null()
            || length <= offset_of!(sockaddr_un, sun_path)
            || c_int::from((*address).sa_family) != AF_UNIX
        {
            return None;
        }
        let length = length.min(size_of::<sockaddr_un>()) - offset_of!(sockaddr_un, sun_path);
        let path = (&raw const (*address.cast::<sockaddr_un>()).sun_path).cast::<u8>();
        let path = std::slice::from_raw_parts(path, length).split(|byte| *byte == 0).next()?;
        if path.is_empty() { None } else { CString::new(path).ok() }
    }
}

/// The address of the system's own socket.
fn address(of: &CStr) -> Result<(sockaddr_un, socklen_t), Errno> {
    // SAFETY: a structure of numbers, for which zero is a value.
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

/// Tells the system of a socket of ours.
fn told(meeting: &Meeting, call: impl FnOnce(*const sockaddr, socklen_t) -> c_int) -> c_int {
    match address(&meeting.path) {
        Ok((address, length)) => call((&raw const address).cast(), length),
        Err(errno) => zero(Err(errno)),
    }
}

symbols! {
    /// bind(2): a name in the pool, and behind it a socket of this host.
    fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: the program's address.
        unsafe {
            let Some(path) = named(address, length) else { return next(socket, address, length) };
            let Some(said) = ours::path(path.as_ptr()) else { return next(socket, address, length) };
            match done(|process| process.socket(said.into())) {
                Err(errno) => zero(Err(errno)),
                Ok(meeting) => {
                    let bound = told(&meeting, |address, length| next(socket, address, length));
                    if bound != 0 {
                        unmade(said);
                    }
                    bound
                }
            }
        }
    }

    /// connect(2).
    fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int | __connect {
        // SAFETY: the program's address.
        unsafe {
            let Some(path) = named(address, length) else { return next(socket, address, length) };
            let Some(said) = ours::path(path.as_ptr()) else { return next(socket, address, length) };
            match done(|process| process.listener(said.into())) {
                Err(errno) => zero(Err(errno)),
                Ok(meeting) => {
                    let outcome = told(&meeting, |address, length| next(socket, address, length));
                    if outcome != 0 && crate::guard::errno() == Some(Errno::NOENT) {
                        // Whoever was bound to it was on another host, or before its node began.
                        return zero(Err(Errno::CONNREFUSED));
                    }
                    outcome
                }
            }
        }
    }
}

/// Takes away the name of a socket that could not be bound, and keeps `errno`.
fn unmade(said: Said<'_>) {
    let why = crate::guard::errno();
    // What stays is a name that nobody listens at.
    let _: c_int = number(done(|process| process.unlink(said.into(), at(0)).map(|()| 0)));
    if let Some(why) = why {
        set_errno(why);
    }
}
