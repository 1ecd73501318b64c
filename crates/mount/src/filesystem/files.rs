//! Operations on open files: create, open, read, write, close.

use std::sync::Arc;

use fuse_transport::{FuseOp, FuseReply};
use placement::FileId;
use rustix::{fs::OFlags, io::Errno};
use vfs::Handle;
use wire::{LockOwner, LockStyle, OpenFlags, WritePlace};

use super::{FuseFs, RequestContext, names::new_mode};
use crate::{kernel_state::can_map, translate};

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
                self.serve("create", made, reply, self.created(flags));
            }
            FuseOp::Tmpfile { flags, mode, umask } => {
                let linkable = !OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
                let flags = OpenFlags { exclusive: false, ..self.open_flags(flags) };
                let made = vfs.create_unnamed(file, new_mode(mode, umask), context.owner, flags, linkable);
                self.serve("tmpfile", made, reply, self.created(flags));
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

    /// Replies with a file that was created and opened.
    fn created(&self, flags: OpenFlags) -> impl FnOnce(FuseReply, (wire::Attributes, Handle)) + Send + use<> {
        let (kernel, cache_policy) = (Arc::clone(&self.kernel), self.cache_policy);
        let in_flight = kernel.begin_lookup();
        move |reply, (mut found, handle)| {
            let opened = kernel.register_open(found.file, handle, flags);
            found.cacheable &= opened.backing.is_none() || !can_map(flags);
            kernel.add_lookup(found.file);
            drop(in_flight);
            if !reply.created(&cache_policy.entry(&found), opened) {
                kernel.undo_open(found.file, handle);
                kernel.forget_lookups(found.file, 1);
            }
        }
    }
}
