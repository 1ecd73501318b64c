//! Inherited descriptors of the pool.
//!
//! A program that opened files of the pool tells its children, by an environment variable, on which
//! devices its descriptors lie. A program without the variable checks nothing. A program with it
//! compares the devices of its descriptors once, at the start, and asks a node for the meaning of
//! one when it needs it.

use crate::call::run;
use crate::classify::{self, borrow};
use crate::signal_safe::{List, ListGuard};
use posix::FdKind;
use rustix::fs::{OFlags, fcntl_get_seals, fcntl_getfl, fstat};
use std::ffi::c_int;
use std::os::fd::BorrowedFd;

/// Devices on which descriptors of this process lie.
static KNOWN: List<u64> = List::new();

/// Records the device of a descriptor, for programs that this one starts.
pub fn record_device(descriptor: BorrowedFd<'_>) {
    let Ok(found) = fstat(descriptor) else { return };
    let mut known = known();
    if known.contains(&found.st_dev) {
        return;
    }
    known.push(found.st_dev);
    let text = known.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    crate::environment::set_devices(text.as_bytes());
}

/// Finds the inherited descriptors that lie on the given devices.
pub fn find(given: &[u8]) {
    let devices: Vec<u64> = given.split(|byte| *byte == b',').filter_map(number).collect();
    known().clone_from(&devices);
    crate::environment::inherit_devices(given);
    let Ok(mut directory) =
        rustix::fs::open(c"/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, 0.into())
            .and_then(|directory| rustix::fs::Dir::read_from(&directory))
    else {
        return;
    };
    while let Some(Ok(entry)) = directory.read() {
        let Some(descriptor) = number(entry.file_name().to_bytes()).and_then(|found| c_int::try_from(found).ok())
        else {
            continue;
        };
        let found = fstat(borrow(descriptor)).map(|found| found.st_dev);
        if found.is_ok_and(|device| devices.contains(&device)) {
            let remote = is_placeholder(borrow(descriptor));
            classify::record_inherited(descriptor, remote);
            if remote {
                crate::stream::sync_standard(descriptor);
            }
        }
    }
}

/// Locks the list of devices, also over a fork.
pub fn known() -> ListGuard<'static, u64> {
    KNOWN.lock()
}

/// Returns whether a descriptor is a placeholder for a file: it is sealed against writing, and open
/// for writing only, so that seeking is all it permits.
fn is_placeholder(descriptor: BorrowedFd<'_>) -> bool {
    let sealed = fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(rustix::fs::SealFlags::WRITE));
    sealed && fcntl_getfl(descriptor).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::WRONLY)
}

/// Asks a node for the kind of a descriptor; `None` if it is not of the pool or no node can be
/// asked.
pub fn identify(descriptor: c_int) -> Option<FdKind> {
    run(|process| process.adopt(borrow(descriptor), |byte| owns_lock(descriptor, byte))).ok()
}

/// Returns whether no open file description other than the descriptor's own holds a lock on a byte.
fn owns_lock(descriptor: c_int, byte: u64) -> bool {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or(0);
    lock.l_start = i64::try_from(byte).unwrap_or(i64::MAX);
    lock.l_len = 1;
    // SAFETY: the kernel's call, not this library's `fcntl`, which only knows locks of the pool;
    // the structure is local.
    let outcome = unsafe { libc::syscall(libc::SYS_fcntl, descriptor, libc::F_OFD_GETLK, &raw mut lock) };
    outcome == 0 && c_int::from(lock.l_type) == libc::F_UNLCK
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
