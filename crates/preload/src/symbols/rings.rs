//! `io_uring`, by which programs have the kernel open and move files past every function: refused as on a kernel without it, and said once. Programs do without it
//! where it is not there, or are told why they do not.
//!
//! What it does not see: rings that are set up by instructions of the program's own, as liburing does it that is linked statically.

use crate::guard::set_errno;
use crate::start::say_once;
use libc::c_int;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;

static SAID: AtomicBool = AtomicBool::new(false);

/// What who wants a ring is told, by `errno`.
pub(super) fn refused() -> c_int {
    say_once(&SAID, "io_uring is refused (ENOSYS): what a program opens by it would not be seen here");
    set_errno(Errno::NOSYS);
    -1
}

/// Refuses what liburing's functions do, whose own calls are instructions. Their arguments are not looked at, so none is named.
macro_rules! refused {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            refused();
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
