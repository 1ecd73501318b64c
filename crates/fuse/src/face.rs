//! The face itself: every operation of the kernel, said in words of the pool.
//!
//! An operation is one line of translation on each side of a call of [`Vfs`]; waiting, refusing and logging are `park.rs` and
//! `errno.rs`. Permissions are the kernel's work (`default_permissions`), and so are locks, as long as a pool has one mount.
//!
//! What is answered with `ENOSYS` the kernel asks once and never again: flush and fsync then succeed at no cost (a write is in
//! the pool when it returns, and nothing is on a disk), extended attributes and fallocate are "not supported", lseek for holes
//! and `copy_file_range` fall back to the kernel's own ways.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use vfs::{Handle, Vfs};
use wire::{Attributes, Changes, NAME_BYTES_MAX, Name, Outcome, RenameFrom, RenameMode, RenameTo};

use crate::{
    buffers::Buffers,
    ended::Ended,
    errno, listing,
    park::{Call, Parking, Refuse},
    traffic::Counters,
    translate::{attributes, file, node_kind, open_flags, owner, rename_mode, time_change},
};

/// The largest request, bytes; the kernel's own limit (256 pages) unless an administrator raised it.
pub(crate) const REQUEST_BYTES: u32 = 1 << 20;
/// Requests that the kernel sends on its own (read-ahead) before it waits for answers: enough to keep every thread busy.
const BACKGROUND_MAX: u16 = 64;
/// The unit in which statfs counts, bytes.
const STATFS_BLOCK_BYTES: u32 = 4096;
/// What the kernel is asked to do.
///
/// Not among them: the writeback cache. It would hold bytes back that another process of the run already expects in the pool,
/// and would hide a full pool until the file is closed.
const CAPABILITIES: [InitFlags; 9] = [
    // Read-ahead does not wait for one answer before the next question.
    InitFlags::FUSE_ASYNC_READ,
    // More than a page in one write.
    InitFlags::FUSE_BIG_WRITES,
    // Requests of 1 MiB instead of 128 KiB.
    InitFlags::FUSE_MAX_PAGES,
    // Lookups in one directory side by side.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Attributes come with a listing ...
    InitFlags::FUSE_DO_READDIRPLUS,
    // ... where the caller looks at them.
    InitFlags::FUSE_READDIRPLUS_AUTO,
    // An open that truncates is one request.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // A link's target never changes.
    InitFlags::FUSE_CACHE_SYMLINKS,
    // A file changed beside the mount loses its cached pages.
    InitFlags::FUSE_AUTO_INVAL_DATA,
];
/// File ids are never reused, so one generation is enough.
const GENERATION: Generation = Generation(0);

/// What of the options the operations need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// How long the kernel may keep names and attributes.
    pub(crate) cache_for: Duration,
    /// Whether files opened only for writing bypass the page cache.
    pub(crate) direct_writes: bool,
}

/// The operations over one pool.
pub(crate) struct Face {
    pub(crate) vfs: Vfs,
    pub(crate) manners: Manners,
    pub(crate) parking: Parking,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Arc<Counters>,
    /// Told when the kernel has let go.
    pub(crate) ended: Arc<Ended>,
}

impl Face {
    /// Answers with what comes of `future`, which is dropped if its caller is killed while it waits.
    fn serve<T, R, A>(
        &self,
        (operation, request): (&'static str, &Request),
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: R,
        answer: A,
    ) where
        T: Send + 'static,
        R: Refuse,
        A: FnOnce(R, T) + Send + 'static,
    {
        self.parking.serve(Call { operation, caller: Some(request.pid()) }, future, reply, answer);
    }

    /// Answers when `future` is through, which it is whatever becomes of its caller: a close on the way out of a killed
    /// process must still close, and a rename is not left half done.
    fn complete(
        &self,
        operation: &'static str,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
        reply: ReplyEmpty,
    ) {
        self.parking.serve(Call { operation, caller: None }, future, reply, |reply: ReplyEmpty, ()| reply.ok());
    }

    /// Answers with an entry that the kernel may keep.
    fn entry(&self) -> impl FnOnce(ReplyEntry, Attributes) + Send + use<> {
        let ttl = self.manners.cache_for;
        move |reply, found| reply.entry(&ttl, &attributes(&found), GENERATION)
    }

    /// Answers with attributes that the kernel may keep.
    fn attributes(&self) -> impl FnOnce(ReplyAttr, Attributes) + Send + use<> {
        let ttl = self.manners.cache_for;
        move |reply, found| reply.attr(&ttl, &attributes(&found))
    }

    /// How the kernel treats an open file. Never a flush at close: nothing is held back.
    ///
    /// Files opened only for writing go past the page cache: that saves a copy and the second home of every temporary. Such a
    /// file cannot be mapped through that descriptor anyway, and the kernel drops cached pages that a direct write overlaps.
    /// All others keep what is cached from open to open: the kernel knows of every change through this mount, and finds one
    /// beside it by the time of the last change.
    fn open_manners(&self, flags: i32) -> FopenFlags {
        let only_writes = OpenFlags(flags).acc_mode() == OpenAccMode::O_WRONLY;
        let cache = if only_writes && self.manners.direct_writes {
            FopenFlags::FOPEN_DIRECT_IO
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        };
        cache | FopenFlags::FOPEN_NOFLUSH
    }
}

/// A rename in words of the pool, or what is wrong with it.
fn rename_words(
    (parent, name): (INodeNo, &OsStr),
    (new_parent, new_name): (INodeNo, &OsStr),
    flags: RenameFlags,
) -> Outcome<(RenameFrom, RenameTo, RenameMode)> {
    let from = RenameFrom { parent: file(parent), name: Name::new(name.as_bytes())? };
    let to = RenameTo { parent: file(new_parent), name: Name::new(new_name.as_bytes())? };
    Ok((from, to, rename_mode(flags)?))
}

impl Filesystem for Face {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in CAPABILITIES {
            // A kernel that cannot do one of these works without it.
            config.add_capabilities(flag).ok();
        }
        config.set_max_write(REQUEST_BYTES).ok();
        // The kernel offers what its read-ahead is set to; more is asked for at the device (mount.rs).
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES) {
            config.set_max_readahead(most).ok();
        }
        config.set_max_background(BACKGROUND_MAX).ok();
        Ok(())
    }

    fn destroy(&mut self) {
        self.ended.set();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.vfs.lookup(file(parent), name.as_bytes());
        self.serve(("lookup", request), found, reply, self.entry());
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {
        // File ids are never reused, so nothing is counted here.
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.serve(("stat", request), self.vfs.stat(file(inode)), reply, self.attributes());
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            accessed: accessed.map(time_change),
            modified: modified.map(time_change),
            kill_set_id: false,
        };
        self.serve(("change", request), self.vfs.change(file(inode), changes), reply, self.attributes());
    }

    fn readlink(&self, request: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.vfs.read_link(file(inode));
        self.serve(("readlink", request), target, reply, |reply: ReplyData, target| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (operation, owner) = ("mknod", owner(request));
        match node_kind(mode, device) {
            Ok(kind) => {
                let made = self.vfs.make_node(file(parent), name.as_bytes(), kind, mode & 0o7777, owner);
                self.serve((operation, request), made, reply, self.entry());
            }
            Err(refusal) => reply.error(errno::tell(operation, &refusal)),
        }
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = self.vfs.make_directory(file(parent), name.as_bytes(), mode & 0o7777, owner(request));
        self.serve(("mkdir", request), made, reply, self.entry());
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.complete("unlink", self.vfs.unlink(file(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.complete("rmdir", self.vfs.remove_directory(file(parent), name.as_bytes()), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let made = self.vfs.make_symlink(file(parent), name.as_bytes(), target, owner(request));
        self.serve(("symlink", request), made, reply, self.entry());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        match rename_words((parent, name), (new_parent, new_name), flags) {
            Ok((from, to, mode)) => self.complete("rename", self.vfs.rename(from, to, mode), reply),
            Err(refusal) => reply.error(errno::tell("rename", &refusal)),
        }
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        // What link(2) names for a file system without hard links.
        reply.error(Errno::EPERM);
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let manners = self.open_manners(flags.0);
        let opened = self.vfs.open(file(inode), open_flags(flags.0));
        self.serve(("open", request), opened, reply, move |reply: ReplyOpen, handle| {
            reply.opened(FileHandle(handle.0), manners);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let manners = self.open_manners(flags);
        let made = self.vfs.create(file(parent), name.as_bytes(), mode & 0o7777, owner(request), open_flags(flags));
        let ttl = self.manners.cache_for;
        self.serve(("create", request), made, reply, move |reply: ReplyCreate, (found, handle)| {
            reply.created(&ttl, &attributes(&found), GENERATION, FileHandle(handle.0), manners);
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.counters.read(size);
        let bytes = self.vfs.read(Handle(handle.0), offset, size);
        self.serve(("read", request), bytes, reply, |reply: ReplyData, bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.counters.write(data.len());
        let written = self.vfs.write(Handle(handle.0), offset, self.buffers.copy(data));
        self.serve(("write", request), written, reply, ReplyWrite::written);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.complete("close", self.vfs.close(Handle(handle.0)), reply);
    }

    fn readdir(&self, request: &Request, inode: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        let piece = listing::plain(self.vfs.clone(), file(inode), offset);
        self.serve(("readdir", request), piece, reply, listing::send_plain);
    }

    fn readdirplus(&self, request: &Request, inode: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let piece = listing::full(self.vfs.clone(), file(inode), offset);
        let ttl = self.manners.cache_for;
        self.serve(("readdir", request), piece, reply, move |reply, piece| listing::send_full(reply, piece, &ttl));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let usage = self.vfs.usage();
        let block = u64::from(STATFS_BLOCK_BYTES);
        let free = usage.capacity.saturating_sub(usage.used) / block;
        // Inodes take their room from the same memory: as many are free as fit if each took a block.
        reply.statfs(
            usage.capacity / block,
            free,
            free,
            usage.files.saturating_add(free),
            free,
            STATFS_BLOCK_BYTES,
            u32::try_from(NAME_BYTES_MAX).expect("a name's length fits"),
            STATFS_BLOCK_BYTES,
        );
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
