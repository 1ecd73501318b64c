//! The FUSE frontend: maps each operation of the kernel to operations of the pool.
//!
//! Each operation translates its arguments, calls [`Vfs`] and translates the result. `park.rs` does
//! the waiting, `errno.rs` the refusals and their log messages. This file has the shared parts; the
//! operations are in the modules below, by topic. The kernel checks permissions
//! (`default_permissions`).
//!
//! An operation answered with `ENOSYS` is sent once by the kernel and never again. So fsync
//! succeeds at no cost: a write is in the pool when it returns, and nothing is on a disk. Opening a
//! directory is not answered with it; see [`Face::dispatch`].

mod attributes;
mod files;
mod locks;
mod names;
mod space;
mod xattrs;

use std::sync::Arc;

use fuse_transport::{FuseOp, FuseOpen, FuseReply, FuseRequest, Handler};
use placement::FileId;
use rustix::io::Errno;
use vfs::Vfs;
use wire::{Attributes, Outcome, Owner};

use crate::{
    ended::Ended,
    known::Known,
    manners::Manners,
    park::{Call, OnSignal, Parking, Queue},
    traffic::Counters,
    translate,
};

/// Handler of the kernel's requests for one pool.
pub(crate) struct Face {
    pub(crate) vfs: Vfs,
    pub(crate) manners: Manners,
    /// State that this kernel caches and holds open.
    pub(crate) known: Arc<Known>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) counters: Arc<Counters>,
    /// Set when the kernel has ended the session.
    pub(crate) ended: Arc<Ended>,
}

/// Request context: the inode and the caller.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// The inode of the request; for an operation on a name, the directory.
    inode: FileId,
    /// Owner of an inode that the request creates.
    owner: Owner,
}

impl Handler for Face {
    fn handle(&self, request: FuseRequest<'_>, reply: FuseReply) {
        let caller =
            Caller { inode: translate::file(request.inode), owner: Owner { uid: request.uid, gid: request.gid } };
        self.dispatch(caller, &request.operation, reply);
    }

    fn forget(&self, inode: u64, lookups: u64) {
        self.known.lost(translate::file(inode), lookups);
    }

    fn on_close(&self) {
        self.parking.run("end", self.vfs.end_session());
        self.ended.set();
    }
}

/// Ioctl commands to get an inode's flags (`FS_IOC_GETFLAGS`), to get them with more attributes
/// (`FS_IOC_FSGETXATTR`), and to set either. No flag is supported: all read as zero, and setting
/// any is refused.
const GET_FLAGS: u32 = 0x8008_6601;
const GET_FLAGS_WITH_MORE: u32 = 0x801c_581f;
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_WITH_MORE: u32 = 0x401c_5820;
/// Length of the longest reply to these commands, bytes (`struct fsxattr`).
const FLAGS_BYTES_MAX: usize = 28;

/// Replies to an ioctl(2).
fn ioctl(command: u32, data: &[u8], out_size: u32, reply: FuseReply) {
    let room = usize::try_from(out_size).unwrap_or(usize::MAX).min(FLAGS_BYTES_MAX);
    match command {
        GET_FLAGS | GET_FLAGS_WITH_MORE => reply.ioctl(0, &[0; FLAGS_BYTES_MAX][..room]),
        SET_FLAGS | SET_FLAGS_WITH_MORE if data.iter().all(|byte| *byte == 0) => reply.ioctl(0, &[]),
        SET_FLAGS | SET_FLAGS_WITH_MORE => reply.error(Errno::OPNOTSUPP.raw_os_error()),
        _ => reply.error(Errno::NOTTY.raw_os_error()),
    }
}

impl Face {
    /// Passes the operation to the module of its topic below.
    fn dispatch(&self, caller: Caller, operation: &FuseOp<'_>, reply: FuseReply) {
        use FuseOp as O;
        match *operation {
            O::Lookup { .. }
            | O::Readlink
            | O::Symlink { .. }
            | O::Mknod { .. }
            | O::Mkdir { .. }
            | O::Unlink { .. }
            | O::Rmdir { .. }
            | O::Rename { .. }
            | O::Link { .. }
            | O::Readdir { .. } => self.names(caller, operation, reply),
            O::Getattr { .. } | O::Setattr(_) | O::Statx { .. } => self.attributes(caller, operation, reply),
            O::Open { .. }
            | O::Create { .. }
            | O::Tmpfile { .. }
            | O::Read { .. }
            | O::Write { .. }
            | O::Release { .. }
            | O::Flush { .. } => self.files(caller, operation, reply),
            O::Setxattr { .. } | O::Getxattr { .. } | O::Listxattr { .. } | O::Removexattr { .. } => {
                self.xattrs(caller, operation, reply);
            }
            O::Getlk { .. } | O::Setlk { .. } => self.locks(caller, operation, reply),
            O::Fallocate { .. } | O::Lseek { .. } | O::CopyFileRange { .. } | O::Statfs => {
                self.space(caller, operation, reply);
            }
            // The kernel would cache listings by itself if it were told that opening a directory
            // needs no request. It would use a listing as long as the directory's time is
            // unchanged, and miss names that were created within one tick of the clock.
            O::Opendir { .. } => drop(reply.opened(FuseOpen::default())),
            // A write is in the pool when it returns.
            O::Releasedir { .. } | O::Syncfs => reply.done(),
            O::Ioctl { command, data, out_size, .. } => ioctl(command, data, out_size, reply),
            // fsync, access (the kernel checks it), poll (always ready), and unknown operations.
            _ => reply.error(Errno::NOSYS.raw_os_error()),
        }
    }

    /// Replies with the result of `future`. A signal to the caller cancels it while it waits.
    fn serve<T: Send + 'static>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: FuseReply,
        answer: impl FnOnce(FuseReply, T) + Send + 'static,
    ) {
        self.parking.serve(Call { operation, on_signal: OnSignal::GiveUp, queue: Queue::Pool }, future, reply, answer);
    }

    /// Replies when `future` has completed; a signal to the caller does not cancel it.
    fn complete(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
        reply: FuseReply,
    ) {
        self.carry_through(operation, future, reply, |reply: FuseReply, ()| reply.done());
    }

    /// Replies with the result of `future`; a signal to the caller does not cancel it.
    fn carry_through<T: Send + 'static>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: FuseReply,
        answer: impl FnOnce(FuseReply, T) + Send + 'static,
    ) {
        self.parking.serve(Call { operation, on_signal: OnSignal::GoOn, queue: Queue::Pool }, future, reply, answer);
    }

    /// Replies with an entry that the kernel may cache.
    fn entry(&self) -> impl FnOnce(FuseReply, Attributes) + Send + use<> {
        let (known, manners) = (Arc::clone(&self.known), self.manners);
        let look = known.looks();
        move |reply, found| {
            known.gained(found.file);
            drop(look);
            if !reply.entry(&manners.entry(&found)) {
                known.lost(found.file, 1);
            }
        }
    }
}
