//! `io_uring`, which lets the kernel open files and move bytes without calling any function. It is
//! refused as on a kernel without it, and reported once. Programs fall back if it is missing, or
//! report the reason.
//!
//! Rings that a program sets up by its own system call instructions are not detected, as in a
//! statically linked liburing.

use crate::call::set_errno;
use crate::start::report_once;
use libc::c_int;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;

static REPORTED: AtomicBool = AtomicBool::new(false);

/// Refuses a ring: returns -1 with `errno` set to `ENOSYS`.
pub(super) fn refuse() -> c_int {
    report_once(&REPORTED, "io_uring is refused (ENOSYS): what a program opens by it would not be seen here");
    set_errno(Errno::NOSYS);
    -1
}

/// Defines liburing's setup functions, which make system calls by their own instructions, to fail.
/// They ignore their arguments, so none is declared.
macro_rules! refused {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            refuse();
            -Errno::NOSYS.raw_os_error()
        }
    )*};
}

refused! {
    /// `io_uring_queue_init(3)`.
    io_uring_queue_init;
    /// `io_uring_queue_init_params(3)`.
    io_uring_queue_init_params;
    /// `io_uring_queue_init_mem(3)`.
    io_uring_queue_init_mem;
    /// `io_uring_setup(2)`.
    io_uring_setup;
}
