//! The function syscall(2), for programs that make system calls by number.

use super::{attributes, descriptors, dir, names, open, processes, read_write, rings, symbols};
use crate::call::set_errno;
use crate::classify::kind;
use libc::{c_int, c_long, c_uint};
use rustix::io::Errno;
use std::ptr::{with_exposed_provenance as read, with_exposed_provenance_mut as write};

/// Converts a register to an address.
#[expect(clippy::cast_possible_truncation, reason = "both have the width of a register")]
fn at(register: c_long) -> usize {
    register.cast_unsigned() as usize
}

/// Converts a register to a 32-bit number.
#[expect(clippy::cast_possible_truncation, reason = "the system takes the lower half, too")]
fn int(register: c_long) -> c_int {
    register as c_int
}

fn uint(register: c_long) -> c_uint {
    int(register).cast_unsigned()
}

symbols! {
    /// syscall(2). Calls that may refer to files of the pool go to the functions for them; all
    /// others go to the kernel.
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
        // SAFETY: the program passes the registers that the call of this number takes.
        unsafe {
            c_long::from(match number {
                libc::SYS_openat => open::openat(int(a), read(at(b)), int(c), uint(d)),
                libc::SYS_statx => attributes::statx(int(a), read(at(b)), int(c), uint(d), write(at(e))),
                libc::SYS_newfstatat => attributes::fstatat(int(a), read(at(b)), write(at(c)), int(d)),
                libc::SYS_faccessat => attributes::faccessat(int(a), read(at(b)), int(c), 0),
                libc::SYS_faccessat2 => attributes::faccessat(int(a), read(at(b)), int(c), int(d)),
                libc::SYS_renameat2 => names::renameat2(int(a), read(at(b)), int(c), read(at(d)), uint(e)),
                libc::SYS_unlinkat => names::unlinkat(int(a), read(at(b)), int(c)),
                libc::SYS_mkdirat => names::mkdirat(int(a), read(at(b)), uint(c)),
                libc::SYS_linkat => names::linkat(int(a), read(at(b)), int(c), read(at(d)), int(e)),
                libc::SYS_symlinkat => names::symlinkat(read(at(a)), int(b), read(at(c))),
                libc::SYS_fchmodat => attributes::fchmodat(int(a), read(at(b)), uint(c), 0),
                libc::SYS_fchownat => attributes::fchownat(int(a), read(at(b)), uint(c), uint(d), int(e)),
                libc::SYS_execveat => processes::execveat(int(a), read(at(b)), read(at(c)), read(at(d)), int(e)),
                libc::SYS_close => descriptors::close(int(a)),
                libc::SYS_close_range => descriptors::close_range(uint(a), uint(b), int(c)),
                libc::SYS_dup3 => descriptors::dup3(int(a), int(b), int(c)),
                libc::SYS_read => return read_write::read(int(a), write(at(b)), at(c)) as c_long,
                libc::SYS_write => return read_write::write(int(a), read(at(b)), at(c)) as c_long,
                libc::SYS_getdents64 => return dir::getdents64(int(a), write(at(b)), at(c)) as c_long,
                libc::SYS_pread64 => return read_write::pread(int(a), write(at(b)), at(c), d) as c_long,
                libc::SYS_pwrite64 => return read_write::pwrite(int(a), read(at(b)), at(c), d) as c_long,
                libc::SYS_readv => return read_write::readv(int(a), read(at(b)), int(c)) as c_long,
                libc::SYS_writev => return read_write::writev(int(a), read(at(b)), int(c)) as c_long,
                libc::SYS_lseek => return read_write::lseek(int(a), b, int(c)),
                libc::SYS_ftruncate => read_write::ftruncate(int(a), b),
                libc::SYS_fallocate => read_write::fallocate(int(a), int(b), c, d),
                libc::SYS_fsync => read_write::fsync(int(a)),
                libc::SYS_fdatasync => read_write::fdatasync(int(a)),
                libc::SYS_fstat => attributes::fstat(int(a), write(at(b))),
                libc::SYS_statfs => attributes::statfs(read(at(a)), write(at(b))),
                libc::SYS_fstatfs => attributes::fstatfs(int(a), write(at(b))),
                libc::SYS_fchmod => attributes::fchmod(int(a), uint(b)),
                libc::SYS_fchmodat2 => attributes::fchmodat(int(a), read(at(b)), uint(c), int(d)),
                libc::SYS_fchown => attributes::fchown(int(a), uint(b), uint(c)),
                // Without a path the kernel takes the descriptor, not the C library's function.
                libc::SYS_utimensat if b == 0 && d == 0 && kind(int(a)).is_some() => attributes::futimens(int(a), read(at(c))),
                libc::SYS_utimensat if b != 0 => attributes::utimensat(int(a), read(at(b)), read(at(c)), int(d)),
                libc::SYS_readlinkat => return names::readlinkat(int(a), read(at(b)), write(at(c)), at(d)) as c_long,
                libc::SYS_mknodat => names::mknodat(int(a), read(at(b)), uint(c), u64::from(uint(d))),
                libc::SYS_chdir => names::chdir(read(at(a))),
                libc::SYS_fchdir => names::fchdir(int(a)),
                libc::SYS_dup => descriptors::dup(int(a)),
                libc::SYS_flock => descriptors::flock(int(a), int(b)),
                libc::SYS_ioctl => descriptors::ioctl(int(a), b.cast_unsigned(), c.cast_unsigned()),
                libc::SYS_io_uring_setup => rings::refuse(),
                libc::SYS_copy_file_range => {
                    return read_write::copy_file_range(int(a), write(at(b)), int(c), write(at(d)), at(e), uint(f)) as c_long;
                }
                // The C library has no function for it, and programs fall back if the kernel lacks
                // it.
                libc::SYS_openat2 if crate::classify::path_at(int(a), read(at(b))).is_some() => {
                    set_errno(Errno::NOSYS);
                    -1
                }
                _ => return next(number, a, b, c, d, e, f),
            })
        }
    }
}

#[cfg(test)]
#[path = "syscall_test.rs"]
mod tests;
