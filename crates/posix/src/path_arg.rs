//! Path arguments of a program's calls.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// Start of a path.
#[derive(Debug, Clone, Copy)]
pub enum PathBase<'a> {
    /// The pool's root.
    Root,
    /// The working directory.
    Cwd,
    /// The directory that is open as this descriptor.
    Descriptor(BorrowedFd<'a>),
    /// The file of any kind that is open as this descriptor: the system's `/proc/self/fd/N`.
    Magic(BorrowedFd<'a>),
}

/// Path in the pool.
#[derive(Debug, Clone, Copy)]
pub struct PathArg<'a> {
    /// Start.
    pub base: PathBase<'a>,
    /// Rest of the path; leading slashes are ignored.
    pub path: &'a [u8],
}

/// One path argument of a call that takes two, of which the other may be outside the pool.
#[derive(Debug, Clone, Copy)]
pub enum PathOperand<'a> {
    /// Path whose text leads into the pool; a symlink below may still lead to the host.
    Pool(PathArg<'a>),
    /// Path of the host, relative to this directory.
    Host(BorrowedFd<'a>, &'a CStr),
}
