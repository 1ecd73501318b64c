//! Open files: made, opened, read, written, closed.

use std::sync::Arc;

use kernel::{Operation, Reply};
use placement::FileId;
use rustix::{fs::OFlags, io::Errno};
use vfs::Handle;
use wire::{LockOwner, LockStyle, OpenFlags, WritePlace};

use super::{Caller, Face, names::new_mode};
use crate::{known::can_map, translate};

impl Face {
    pub(super) fn files(&self, caller: Caller, operation: &Operation<'_>, reply: Reply) {
        let (vfs, file) = (&self.vfs, caller.inode);
        match *operation {
            Operation::Open { flags, kill_set_id } => {
                let flags = OpenFlags { kill_set_id, ..self.open_flags(flags) };
                self.open(file, flags, reply);
            }
            Operation::Create { name, flags, mode, umask, kill_set_id } => {
                let flags = OpenFlags { kill_set_id, ..self.open_flags(flags) };
                let made = vfs.create(file, name, new_mode(mode, umask), caller.owner, flags);
                self.serve("create", made, reply, self.created(flags));
            }
            Operation::Tmpfile { flags, mode, umask } => {
                let linkable = !OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
                let flags = OpenFlags { exclusive: false, ..self.open_flags(flags) };
                let made = vfs.create_unnamed(file, new_mode(mode, umask), caller.owner, flags, linkable);
                self.serve("tmpfile", made, reply, self.created(flags));
            }
            // A program reads, past the kernel's cache; else the kernel fills it.
            Operation::Read { handle, offset, size, lock_owner: Some(_), .. } => {
                self.counters.read(size);
                self.serve("read", vfs.read(Handle(handle), offset, size), reply, |reply, bytes| reply.data(&bytes));
            }
            Operation::Read { handle, offset, size, .. } => {
                self.counters.read(size);
                let read = vfs.read_to_cache(Handle(handle), offset, size);
                self.serve("read", read, reply, |reply, bytes| reply.data(&bytes));
            }
            Operation::Write { handle, offset, data, from_cache: true, .. } => {
                self.counters.write(data.len());
                let written = vfs.write_back(Handle(handle), offset, data.keep());
                self.serve("write", written, reply, Reply::written);
            }
            Operation::Write { handle, offset, data, flags, kill_set_id, .. } => {
                self.counters.write(data.len());
                let append = translate::open_flags(flags).append;
                let place = if append { WritePlace::End } else { WritePlace::At(offset) };
                let written = vfs.write_placed(Handle(handle), place, data.keep(), kill_set_id);
                self.serve("write", written, reply, Reply::written);
            }
            Operation::Release { handle, .. } => {
                self.known.leave(file);
                self.complete("close", vfs.close(Handle(handle)), reply);
            }
            // Nothing is held back; but a process that closes any descriptor of a file loses its locks there.
            Operation::Flush { lock_owner, .. } if self.manners.pool_locks => {
                self.complete(
                    "flush",
                    vfs.unlock_all(file, LockOwner::Session(lock_owner), LockStyle::EVERYWHERE),
                    reply,
                );
            }
            Operation::Flush { .. } => reply.error(Errno::NOSYS.raw_os_error()),
            _ => unreachable!("only operations on open files come here"),
        }
    }

    /// Who can pass a file through can use a whole one.
    fn open_flags(&self, flags: u32) -> OpenFlags {
        OpenFlags { whole: self.known.passes_through(), ..translate::open_flags(flags) }
    }

    fn open(&self, file: FileId, flags: OpenFlags, reply: Reply) {
        let known = Arc::clone(&self.known);
        // Carried through: an open that was given up after it came about would stay open for ever.
        self.carry_through("open", self.vfs.open(file, flags), reply, move |reply, handle| {
            if !reply.opened(known.enter(file, handle, flags)) {
                known.undo(file, handle);
            }
        });
    }

    /// Answers with a file that was made and opened.
    fn created(&self, flags: OpenFlags) -> impl FnOnce(Reply, (wire::Attributes, Handle)) + Send + use<> {
        let (known, manners) = (Arc::clone(&self.known), self.manners);
        let look = known.looks();
        move |reply, (mut found, handle)| {
            let opened = known.enter(found.file, handle, flags);
            found.lasting &= opened.backing.is_none() || !can_map(flags);
            known.gained(found.file);
            drop(look);
            if !reply.created(&manners.entry(&found), opened) {
                known.undo(found.file, handle);
                known.lost(found.file, 1);
            }
        }
    }
}
