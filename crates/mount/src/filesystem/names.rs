//! Operations on names: lookup, create, rename, remove, list.

use std::sync::Arc;

use fuse_transport::{FuseEntry, FuseOp, FuseReply};
use placement::FileId;
use wire::{Mode, Name, Object, Outcome, Refusal, RenameFrom, RenameMode, RenameTo};

use super::{FuseFs, RequestContext, counted};
use crate::{errno, listing, translate};

/// A rename request of the kernel.
struct Rename<'a> {
    from: (FileId, &'a [u8]),
    to: (FileId, &'a [u8]),
    flags: u32,
}

impl Rename<'_> {
    /// The pool's arguments for this rename, or a refusal if they are invalid.
    fn arguments(&self) -> Outcome<(RenameFrom, RenameTo, RenameMode)> {
        let from = RenameFrom { parent: self.from.0, name: Name::new(self.from.1)? };
        let to = RenameTo { parent: self.to.0, name: Name::new(self.to.1)? };
        Ok((from, to, translate::rename_mode(self.flags)?))
    }
}

impl FuseFs {
    pub(super) fn names(&self, context: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
        let (vfs, parent, owner) = (&self.vfs, context.inode, context.owner);
        match *operation {
            FuseOp::Lookup { name } => self.lookup(parent, name, reply),
            FuseOp::Readlink => {
                self.serve("readlink", vfs.read_link(parent), reply, |reply, target| reply.data(&target));
            }
            FuseOp::Symlink { name, target } => {
                self.serve("symlink", vfs.make_symlink(parent, name, target, owner), reply, self.entry());
            }
            FuseOp::Mknod { name, mode, umask, device } => match translate::node_kind(mode, device) {
                Ok(kind) => {
                    let made = vfs.make_node(parent, name, kind, new_mode(mode, umask), owner);
                    self.serve("mknod", made, reply, self.entry());
                }
                Err(refusal) => reply.error(errno::log_and_map("mknod", &refusal).raw_os_error()),
            },
            FuseOp::Mkdir { name, mode, umask } => {
                let made = vfs.make_directory(parent, name, new_mode(mode, umask), owner);
                self.serve("mkdir", made, reply, self.entry());
            }
            FuseOp::Unlink { name } => self.complete("unlink", vfs.unlink(parent, name), reply),
            FuseOp::Rmdir { name } => self.complete("rmdir", vfs.remove_directory(parent, name), reply),
            FuseOp::Rename { name, new_parent, new_name, flags } => {
                let to = (translate::file(new_parent), new_name);
                self.rename(&Rename { from: (parent, name), to, flags }, reply);
            }
            FuseOp::Link { inode, new_name } => self.link(translate::file(inode), (parent, new_name), reply),
            FuseOp::Readdir { offset, size, plus, .. } => self.readdir(parent, offset, size, plus, reply),
            _ => unreachable!("only operations on names come here"),
        }
    }

    /// Looks a name up. The kernel may cache that a name does not exist, if it gets invalidations.
    fn lookup(&self, parent: FileId, name: &[u8], reply: FuseReply) {
        if name == b"." || name == b".." {
            return self.lookup_by_inode(parent, name == b"..", reply);
        }
        let (found, again, name) = (self.vfs.lookup(parent, name), self.vfs.clone(), name.to_vec());
        let found = counted(Arc::clone(&self.kernel), found, |found| found.file, move |_| again.lookup(parent, &name));
        if !self.cache_policy.caches_absence() {
            return self.serve("lookup", found, reply, self.counted_entry());
        }
        let found = async move {
            match found.await {
                Err(Refusal::NotFound(Object::Entry { .. })) => Ok(None),
                other => other.map(Some),
            }
        };
        let (present, absent) = (self.counted_entry(), FuseEntry::absent(self.cache_policy.name_ttl()));
        self.serve("lookup", found, reply, move |reply, found| match found {
            Some(found) => present(reply, found),
            None => drop(reply.entry(&absent)),
        });
    }

    /// Resolves a file handle whose inode the kernel has forgotten (`open_by_handle_at`): finds the
    /// file by its number, which is never reused, or a directory's parent.
    fn lookup_by_inode(&self, file: FileId, parent_of: bool, reply: FuseReply) {
        let vfs = self.vfs.clone();
        let ask = move || {
            let vfs = vfs.clone();
            async move {
                let file = if parent_of { vfs.parent(file).await? } else { file };
                vfs.stat(file).await
            }
        };
        let found = counted(Arc::clone(&self.kernel), ask(), |found| found.file, move |_| ask());
        self.serve("lookup", found, reply, self.counted_entry());
    }

    /// Adds a hard link. A file that exists but has lost its last name cannot be linked, as on a
    /// local file system. That is refused with ENOENT, not ESTALE, since another lookup would not
    /// help.
    fn link(&self, file: FileId, (parent, name): (FileId, &[u8]), reply: FuseReply) {
        let (linked, vfs) = (self.vfs.link(file, parent, name), self.vfs.clone());
        let linked = async move {
            match linked.await {
                Err(Refusal::NotFound(Object::File(gone))) if gone == file && vfs.stat(file).await.is_ok() => {
                    Err(Refusal::NotFound(Object::Text(format!("a name of file {file}"))))
                }
                linked => linked,
            }
        };
        self.serve("link", linked, reply, self.entry());
    }

    fn rename(&self, rename: &Rename<'_>, reply: FuseReply) {
        match rename.arguments() {
            Ok((from, to, mode)) => self.complete("rename", self.vfs.rename(from, to, mode), reply),
            Err(refusal) => reply.error(errno::log_and_map("rename", &refusal).raw_os_error()),
        }
    }

    fn readdir(&self, directory: FileId, offset: u64, size: u32, plus: bool, reply: FuseReply) {
        if plus {
            // Called before the pool is asked: later invalidations then wait until this listing has
            // arrived.
            let lasting = self.kernel.begin_listing();
            let page = listing::read_full(self.vfs.clone(), directory, offset);
            let (kernel, cache_policy) = (Arc::clone(&self.kernel), self.cache_policy);
            let in_flight = kernel.begin_lookup();
            self.serve("readdir", page, reply, move |reply, page| {
                listing::send_full(reply, &page, (size, lasting), &cache_policy, (&kernel, &in_flight));
                drop(in_flight);
            });
        } else {
            let page = listing::read_plain(self.vfs.clone(), directory, offset);
            self.serve("readdir", page, reply, move |reply, page| listing::send_plain(reply, &page, size));
        }
    }
}

/// Mode of a new inode. The directory decides whether the umask applies.
pub(super) fn new_mode(mode: u32, umask: u32) -> Mode {
    Mode { bits: mode & translate::PERMISSIONS, umask: umask & translate::PERMISSIONS }
}
