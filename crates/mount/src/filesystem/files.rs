//! Operations on open files: create, open, read, write, close.

use std::sync::Arc;

use fuse_transport::{FuseOp, FuseReply};
use placement::FileId;
use rustix::{fs::OFlags, io::Errno};
use vfs::Handle;
use wire::{Attributes, LockOwner, LockStyle, OpenFlags, Outcome, WritePlace};

use super::{FuseFs, RequestContext, counted, names::new_mode};
use crate::{
    kernel_state::{UnansweredOpen, can_map},
    translate,
};

impl FuseFs {
    pub(super) fn files(&self, context: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
        let (vfs, file) = (&self.vfs, context.inode);
        match *operation {
            FuseOp::Open { flags, kill_set_id } => {
                let flags = OpenFlags { kill_set_id, ..self.open_flags(flags) };
                self.open(file, flags, reply);
            }
            FuseOp::Create { name, flags, mode, umask, kill_set_id } => {
                let flags = OpenFlags { kill_set_id, ..self.open_flags(flags) };
                let made = vfs.create(file, name, new_mode(mode, umask), context.owner, flags);
                self.serve("create", self.counted_open(made), reply, self.created(flags));
            }
            FuseOp::Tmpfile { flags, mode, umask } => {
                let linkable = !OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
                let flags = OpenFlags { exclusive: false, ..self.open_flags(flags) };
                let made = vfs.create_unnamed(file, new_mode(mode, umask), context.owner, flags, linkable);
                self.serve("tmpfile", self.counted_open(made), reply, self.created(flags));
            }
            // A read with a lock owner comes from a program and bypasses the page cache; any other
            // fills the cache.
            FuseOp::Read { handle, offset, size, lock_owner: Some(_), .. } => {
                self.counters.read(size);
                self.serve("read", vfs.read(Handle(handle), offset, size), reply, |reply, bytes| reply.data(&bytes));
            }
            FuseOp::Read { handle, offset, size, .. } => {
                self.counters.read(size);
                let read = vfs.read_to_cache(Handle(handle), offset, size);
                self.serve("read", read, reply, |reply, bytes| reply.data(&bytes));
            }
            FuseOp::Write { handle, offset, data, from_cache: true, .. } => {
                self.counters.write(data.len());
                let written = vfs.write_back(Handle(handle), offset, data.to_bytes());
                self.serve("write", written, reply, FuseReply::written);
            }
            FuseOp::Write { handle, offset, data, flags, kill_set_id, .. } => {
                self.counters.write(data.len());
                let append = translate::open_flags(flags).append;
                let place = if append { WritePlace::End } else { WritePlace::At(offset) };
                let written = vfs.write_placed(Handle(handle), place, data.to_bytes(), kill_set_id);
                self.serve("write", written, reply, FuseReply::written);
            }
            FuseOp::Release { handle, .. } => {
                self.kernel.register_release(file);
                self.complete("close", vfs.close(Handle(handle)), reply);
            }
            // No data is buffered. But a process that closes any descriptor of a file loses its
            // locks on that file.
            FuseOp::Flush { lock_owner, .. } if self.cache_policy.pool_locks => {
                self.complete(
                    "flush",
                    vfs.unlock_all(file, LockOwner::Session(lock_owner), LockStyle::EVERYWHERE),
                    reply,
                );
            }
            FuseOp::Flush { .. } => reply.error(Errno::NOSYS.raw_os_error()),
            _ => unreachable!("only operations on open files come here"),
        }
    }

    /// Flags of an open. Asks for an extent file if files can be passed through.
    fn open_flags(&self, flags: u32) -> OpenFlags {
        OpenFlags { use_extent: self.kernel.supports_passthrough(), ..translate::open_flags(flags) }
    }

    fn open(&self, file: FileId, flags: OpenFlags, reply: FuseReply) {
        let kernel = Arc::clone(&self.kernel);
        // Not cancelled by signals: an open that was cancelled after it succeeded would stay open
        // for ever.
        self.serve_to_completion("open", self.vfs.open(file, flags), reply, move |reply, handle| {
            if !reply.opened(kernel.register_open(file, handle, flags)) {
                kernel.undo_open(file, handle);
            }
        });
    }

    /// The answer of `made`, which creates and opens a file, with its lookup counted. The file may
    /// have existed before.
    fn counted_open<M: Future<Output = Outcome<(Attributes, Handle)>>>(
        &self,
        made: M,
    ) -> impl Future<Output = Outcome<(Attributes, UnansweredOpen)>> + use<M> {
        let (kernel, vfs) = (Arc::clone(&self.kernel), self.vfs.clone());
        let owner = Arc::clone(&kernel);
        let made = async move { made.await.map(|(found, handle)| (found, UnansweredOpen::new(owner, handle))) };
        let stat = move |(found, open): (Attributes, _)| {
            let stat = vfs.stat(found.file);
            // The file is open, which is answered even if there are no newer attributes.
            async move { Ok((stat.await.unwrap_or(found), open)) }
        };
        counted(kernel, made, |(found, _)| found.file, stat)
    }

    /// Replies with a file that was created and opened, and whose lookup is counted.
    fn created(&self, flags: OpenFlags) -> impl FnOnce(FuseReply, (Attributes, UnansweredOpen)) + Send + use<> {
        let (kernel, cache_policy) = (Arc::clone(&self.kernel), self.cache_policy);
        move |reply, (mut found, open)| {
            let Some(handle) = open.into_handle() else { return };
            let opened = kernel.register_open(found.file, handle, flags);
            found.cacheable &= opened.backing.is_none() || !can_map(flags);
            if !reply.created(&cache_policy.entry(&found), opened) {
                kernel.undo_open(found.file, handle);
                kernel.forget_lookups(found.file, 1);
            }
        }
    }
}
