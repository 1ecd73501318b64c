//! The FUSE frontend: maps each operation of the kernel to operations of the pool.
//!
//! Each operation translates its arguments, calls [`Vfs`] and translates the result. `deferred.rs`
//! does the waiting, `errno.rs` the refusals and their log messages. This file has the shared
//! parts; the operations are in the modules below, by topic. The kernel checks permissions
//! (`default_permissions`).
//!
//! An operation answered with `ENOSYS` is sent once by the kernel and never again. So fsync
//! succeeds at no cost: a write is in the pool when it returns, and nothing is on a disk. Opening a
//! directory is not answered with it; see [`FuseFs::dispatch`].

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
use tokio::task::yield_now;
use vfs::Vfs;
use wire::{Attributes, Outcome, Owner};

use crate::{
    cache_policy::CachePolicy,
    deferred::{DeferredReplies, OnSignal, RequestOptions, WaitQueue},
    kernel_state::KernelState,
    metrics::Counters,
    shutdown::ShutdownSignal,
    translate,
};

/// Handler of the kernel's requests for one pool.
pub(crate) struct FuseFs {
    pub(crate) vfs: Vfs,
    pub(crate) cache_policy: CachePolicy,
    /// State that this kernel caches and holds open.
    pub(crate) kernel: Arc<KernelState>,
    pub(crate) deferred: Arc<DeferredReplies>,
    pub(crate) counters: Arc<Counters>,
    /// Set when the kernel has ended the session.
    pub(crate) shutdown: Arc<ShutdownSignal>,
}

/// Request context: the inode and the caller.
#[derive(Debug, Clone, Copy)]
struct RequestContext {
    /// The inode of the request; for an operation on a name, the directory.
    inode: FileId,
    /// Owner of an inode that the request creates.
    owner: Owner,
}

impl Handler for FuseFs {
    fn handle(&self, request: FuseRequest<'_>, reply: FuseReply) {
        let context = RequestContext {
            inode: translate::file(request.inode),
            owner: Owner { uid: request.uid, gid: request.gid },
        };
        self.dispatch(context, &request.operation, reply);
    }

    fn forget(&self, inode: u64, lookups: u64) {
        self.kernel.forget_lookups(translate::file(inode), lookups);
    }

    fn on_close(&self) {
        self.deferred.run("end", self.vfs.end_session());
        self.shutdown.set();
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

impl FuseFs {
    /// Passes the operation to the module of its topic below.
    fn dispatch(&self, context: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
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
            | O::Readdir { .. } => self.names(context, operation, reply),
            O::Getattr { .. } | O::Setattr(_) | O::Statx { .. } => self.attributes(context, operation, reply),
            O::Open { .. }
            | O::Create { .. }
            | O::Tmpfile { .. }
            | O::Read { .. }
            | O::Write { .. }
            | O::Release { .. }
            | O::Flush { .. } => self.files(context, operation, reply),
            O::Setxattr { .. } | O::Getxattr { .. } | O::Listxattr { .. } | O::Removexattr { .. } => {
                self.xattrs(context, operation, reply);
            }
            O::Getlk { .. } | O::Setlk { .. } => self.locks(context, operation, reply),
            O::Fallocate { .. } | O::Lseek { .. } | O::CopyFileRange { .. } | O::Statfs => {
                self.space(context, operation, reply);
            }
            // The kernel would cache listings by itself if the reply said that opening a directory
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
        self.deferred.serve(
            RequestOptions { operation, on_signal: OnSignal::Cancel, queue: WaitQueue::Pool },
            future,
            reply,
            answer,
        );
    }

    /// Replies when `future` has completed; a signal to the caller does not cancel it.
    fn complete(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
        reply: FuseReply,
    ) {
        self.serve_to_completion(operation, future, reply, |reply: FuseReply, ()| reply.done());
    }

    /// Replies with the result of `future`; a signal to the caller does not cancel it.
    fn serve_to_completion<T: Send + 'static>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: FuseReply,
        answer: impl FnOnce(FuseReply, T) + Send + 'static,
    ) {
        self.deferred.serve(
            RequestOptions { operation, on_signal: OnSignal::Complete, queue: WaitQueue::Pool },
            future,
            reply,
            answer,
        );
    }

    /// Replies with an entry that the kernel may cache, of an inode that the kernel cannot have
    /// forgotten: it is new, or the kernel holds it.
    fn entry(&self) -> impl FnOnce(FuseReply, Attributes) + Send + use<> {
        let (answer, kernel) = (self.counted_entry(), Arc::clone(&self.kernel));
        let in_flight = kernel.begin_lookup();
        move |reply, found| {
            kernel.add_lookup(found.file);
            drop(in_flight);
            answer(reply, found);
        }
    }

    /// Replies with an entry that the kernel may cache, whose lookup is counted.
    fn counted_entry(&self) -> impl FnOnce(FuseReply, Attributes) + Send + use<> {
        let (kernel, cache_policy) = (Arc::clone(&self.kernel), self.cache_policy);
        move |reply, found| {
            if !reply.entry(&cache_policy.entry(&found)) {
                kernel.forget_lookups(found.file, 1);
            }
        }
    }
}

/// The answer of `first`, with the lookup of its inode counted. While a forget report overlaps, the
/// former answer is passed to `again`, which asks the pool again.
///
/// That has no limit of its own: a report ends, and another one of the same inode needs a kernel
/// that has learned of the inode and forgotten it since the round before.
async fn counted<T, F: Future<Output = Outcome<T>>>(
    kernel: Arc<KernelState>,
    first: impl Future<Output = Outcome<T>>,
    file: fn(&T) -> FileId,
    again: impl Fn(T) -> F,
) -> Outcome<T> {
    let mut in_flight = kernel.begin_lookup();
    let mut answer = first.await?;
    while let Err(next) = kernel.count_lookup(file(&answer), &in_flight) {
        in_flight = next;
        // The report may be a task of the same thread.
        yield_now().await;
        answer = again(answer).await?;
    }
    Ok(answer)
}
