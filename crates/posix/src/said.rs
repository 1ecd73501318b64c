//! A path as a program says it.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// Where a path starts.
#[derive(Debug, Clone, Copy)]
pub enum Base<'a> {
    /// At the pool's root.
    Root,
    /// At the working directory.
    Here,
    /// At what is open as this descriptor.
    Descriptor(BorrowedFd<'a>),
    /// At what is open as this descriptor, whatever it is: the system's `/proc/self/fd/N`.
    Magic(BorrowedFd<'a>),
}

/// A path of the pool.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// Where it starts.
    pub base: Base<'a>,
    /// The rest; slashes in front of it mean nothing.
    pub path: &'a [u8],
}

/// A name in a call that takes two: the other may be elsewhere.
#[derive(Debug, Clone, Copy)]
pub enum Side<'a> {
    /// Its text leads into the pool; from there on a link may lead to the host.
    Pool(Said<'a>),
    /// Of the host: from this folder on.
    Host(BorrowedFd<'a>, &'a CStr),
}
