//! The face itself: every operation of the kernel, said in words of the pool.
//!
//! An operation is one line of translation on each side of a call of [`Vfs`]; waiting, refusing and logging are `park.rs` and
//! `errno.rs`. Here is what all of them share; the operations are in the modules below, by topic. Permissions are the kernel's
//! work (`default_permissions`).
//!
//! What is answered with `ENOSYS` the kernel asks once and never again: fsync then succeeds at no cost (a write is in the pool
//! when it returns, and nothing is on a disk). Opening a directory is not among them: see there.

mod attributes;
mod files;
mod locks;
mod names;
mod space;
mod xattrs;

use std::sync::Arc;

use kernel::{Opened, Operation, Reply, Request, Serve};
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

/// The operations over one pool.
pub(crate) struct Face {
    pub(crate) vfs: Vfs,
    pub(crate) manners: Manners,
    /// What this kernel knows and holds open.
    pub(crate) known: Arc<Known>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) counters: Arc<Counters>,
    /// Told when the kernel has let go.
    pub(crate) ended: Arc<Ended>,
}

/// Who asks, and about what.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// The inode that it is about; for names the directory.
    inode: FileId,
    /// Whose a new file is.
    owner: Owner,
}

impl Serve for Face {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let caller =
            Caller { inode: translate::file(request.inode), owner: Owner { uid: request.uid, gid: request.gid } };
        self.dispatch(caller, &request.operation, reply);
    }

    fn forget(&self, inode: u64, lookups: u64) {
        self.known.lost(translate::file(inode), lookups);
    }

    fn ended(&self) {
        self.parking.run("end", self.vfs.end());
        self.ended.set();
    }
}

/// Questions about an inode's flags (`FS_IOC_GETFLAGS`), also with more (`FS_IOC_FSGETXATTR`), and orders to set them. There are none, and any is refused.
const GET_FLAGS: u32 = 0x8008_6601;
const GET_FLAGS_WITH_MORE: u32 = 0x801c_581f;
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_WITH_MORE: u32 = 0x401c_5820;
/// Of the longest answer to them, bytes (`struct fsxattr`).
const FLAGS_BYTES_MAX: usize = 28;

/// What ioctl(2) does.
fn ioctl(command: u32, data: &[u8], out_size: u32, reply: Reply) {
    let room = usize::try_from(out_size).unwrap_or(usize::MAX).min(FLAGS_BYTES_MAX);
    match command {
        GET_FLAGS | GET_FLAGS_WITH_MORE => reply.ioctl(0, &[0; FLAGS_BYTES_MAX][..room]),
        SET_FLAGS | SET_FLAGS_WITH_MORE if data.iter().all(|byte| *byte == 0) => reply.ioctl(0, &[]),
        SET_FLAGS | SET_FLAGS_WITH_MORE => reply.error(Errno::OPNOTSUPP.raw_os_error()),
        _ => reply.error(Errno::NOTTY.raw_os_error()),
    }
}

impl Face {
    /// By topic: each of the modules below takes its own.
    fn dispatch(&self, caller: Caller, operation: &Operation<'_>, reply: Reply) {
        use Operation as O;
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
            // A kernel that is told that opening a directory is nothing to us keeps listings by itself, and takes one for what is
            // there as long as the directory's time is the same: names that came within the clock's tick would be missing.
            O::Opendir { .. } => drop(reply.opened(Opened::default())),
            // A write is in the pool when it returns.
            O::Releasedir { .. } | O::Syncfs => reply.done(),
            O::Ioctl { command, data, out_size, .. } => ioctl(command, data, out_size, reply),
            // fsync, access (the kernel checks), poll (always ready), and what is not known.
            _ => reply.error(Errno::NOSYS.raw_os_error()),
        }
    }

    /// Answers with what comes of `future`, which is given up when its caller takes a signal while it waits.
    fn serve<T: Send + 'static>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: Reply,
        answer: impl FnOnce(Reply, T) + Send + 'static,
    ) {
        self.parking.serve(Call { operation, on_signal: OnSignal::GiveUp, queue: Queue::Pool }, future, reply, answer);
    }

    /// Answers when `future` is through, which it is whatever becomes of its caller.
    fn complete(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
        reply: Reply,
    ) {
        self.carry_through(operation, future, reply, |reply: Reply, ()| reply.done());
    }

    /// Answers with what comes of `future`, which is carried through whatever becomes of its caller.
    fn carry_through<T: Send + 'static>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: Reply,
        answer: impl FnOnce(Reply, T) + Send + 'static,
    ) {
        self.parking.serve(Call { operation, on_signal: OnSignal::GoOn, queue: Queue::Pool }, future, reply, answer);
    }

    /// Answers with an entry that the kernel may keep.
    fn entry(&self) -> impl FnOnce(Reply, Attributes) + Send + use<> {
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
