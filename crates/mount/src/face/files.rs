//! Operations on open files: create, open, read, write, close.

use std::sync::Arc;

use fuse_transport::{FuseOp, FuseReply};
use placement::FileId;
use rustix::{fs::OFlags, io::Errno};
use vfs::Handle;
use wire::{LockOwner, LockStyle, OpenFlags, WritePlace};

use super::{Caller, Face, names::new_mode};
use crate::{known::can_map, translate};

impl Face {
    pub(super) fn files(&self, caller: Caller, operation: &FuseOp<'_>, reply: FuseReply) {
        let (vfs, file) = (&self.vfs, caller.inode);
        match *operation {
            FuseOp::Open { flags, kill_set_id } => {
                let flags = OpenFlags { kill_set_id, ..self.open_flags(flags) };
                self.open(file, flags, reply);
            }
            FuseOp::Create { name, flags, mode, umask, kill_set_id } => {
                let flags = OpenFlags { kill_set_id, ..self.open_flags(flags) };
                let made = vfs.create(file, name, new_mode(mode, umask), caller.owner, flags);
                self.serve("create", made, reply, self.created(flags));
            }
            FuseOp::Tmpfile { flags, mode, umask } => {
                let linkable = !OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
                let flags = OpenFlags { exclusive: false, ..self.open_flags(flags) };
                let made = vfs.create_unnamed(file, new_mode(mode, umask), caller.owner, flags, linkable);
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
                self.known.leave(file);
                self.complete("close", vfs.close(Handle(handle)), reply);
            }
            // No data is buffered. But a process that closes any descriptor of a file loses its
            // locks on that file.
            FuseOp::Flush { lock_owner, .. } if self.manners.pool_locks => {
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
        OpenFlags { use_extent: self.known.passes_through(), ..translate::open_flags(flags) }
    }

    fn open(&self, file: FileId, flags: OpenFlags, reply: FuseReply) {
        let known = Arc::clone(&self.known);
        // Not cancelled by signals: an open that was cancelled after it succeeded would stay open
        // for ever.
        self.carry_through("open", self.vfs.open(file, flags), reply, move |reply, handle| {
            if !reply.opened(known.enter(file, handle, flags)) {
                known.undo(file, handle);
            }
        });
    }

    /// Replies with a file that was created and opened.
    fn created(&self, flags: OpenFlags) -> impl FnOnce(FuseReply, (wire::Attributes, Handle)) + Send + use<> {
        let (known, manners) = (Arc::clone(&self.known), self.manners);
        let look = known.looks();
        move |reply, (mut found, handle)| {
            let opened = known.enter(found.file, handle, flags);
            found.cacheable &= opened.backing.is_none() || !can_map(flags);
            known.gained(found.file);
            drop(look);
            if !reply.created(&manners.entry(&found), opened) {
                known.undo(found.file, handle);
                known.lost(found.file, 1);
            }
        }
    }
}
