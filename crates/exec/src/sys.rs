//! Unsafe system calls: waiting for the end of a process, reaping it, and reading its resource
//! usage.
#![expect(unsafe_code, reason = "wait4 and getrusage fill C structures; tokio trusts us with descriptors")]

use crate::launch::ResourceUsage;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Returns a descriptor that becomes and stays readable when the child `pid` has ended.
pub fn exit_fd(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let end = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    // SAFETY: an `OwnedFd` stays open until it is dropped, and is always the same descriptor.
    let registered = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) };
    Ok(registered?)
}

/// Reaps the child `pid`; `None` if it has not ended.
pub fn reap(pid: Pid) -> io::Result<Option<(ExitStatus, ResourceUsage)>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for writes during the call; a zeroed rusage is valid.
    let (reaped, usage) = unsafe {
        let reaped = libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
        (reaped, usage.assume_init())
    };
    match reaped {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some((ExitStatus::from_raw(status), usage_from(&usage)))),
    }
}

fn usage_from(usage: &libc::rusage) -> ResourceUsage {
    let rss_max = bytes(usage.ru_maxrss);
    let hidden = rss_max <= self_rss_max();
    ResourceUsage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        rss_max: if hidden { None } else { Some(rss_max) },
        memory_peak: None,
    }
}

/// Maximum resident memory of this process in bytes: the count of a child starts with it.
fn self_rss_max() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for writes; a zeroed rusage is valid if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    bytes(usage.ru_maxrss)
}

fn bytes(kibibytes: libc::c_long) -> u64 {
    u64::try_from(kibibytes).unwrap_or(0) << 10
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}
