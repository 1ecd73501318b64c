//! The ioctls of `/dev/fuse`: cloning a connection, and registering backing files.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use rustix::ioctl::{IoctlOutput, Opcode, Setter, ioctl, opcode};

/// The ioctl group, `FUSE_DEV_IOC_MAGIC`.
const GROUP: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(GROUP, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(GROUP, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(GROUP, 2);

/// The argument of `BACKING_OPEN`: `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// The `BACKING_OPEN` ioctl, which takes a `BackingMap` and returns an id.
struct OpenBacking(BackingMap);

// SAFETY: the opcode is a write of exactly this structure, which lives as long as the call; the
// output is the call's return value.
unsafe impl rustix::ioctl::Ioctl for OpenBacking {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<Self::Output> {
        Ok(output)
    }
}

/// Makes `fresh`, a newly opened `/dev/fuse`, a second descriptor of the connection of `device`.
pub(crate) fn clone_into(fresh: impl AsFd, device: BorrowedFd<'_>) -> io::Result<()> {
    let number = u32::try_from(device.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: CLONE reads one u32 through its pointer, the number of an open descriptor, and keeps
    // no pointer.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }?;
    Ok(())
}

/// Registers a backing file for passthrough.
pub(crate) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: see `OpenBacking`; the kernel takes its own reference to the file.
    let id = unsafe { ioctl(device, OpenBacking(map)) }?;
    u32::try_from(id).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Removes the registration of a backing file. Opens that use it are not affected.
pub(crate) fn close_backing(device: BorrowedFd<'_>, id: u32) -> io::Result<()> {
    // SAFETY: BACKING_CLOSE reads one u32 through its pointer and keeps no pointer.
    unsafe { ioctl(device, Setter::<BACKING_CLOSE, u32>::new(id)) }?;
    Ok(())
}
