//! Opening files: by name, with creation, or without a name (`O_TMPFILE`).

use crate::access::{READ, WRITE};
use crate::fd_table::{OpenDescription, inode_of};
use crate::path_key::{PathKey, hint};
use crate::resolve::{Destination, LastComponent, LastMode, MODIFY_ANY, ResolvedDirectory, ResolvedPath};
use crate::{Caller, Errno, PathArg, PathBase, PosixProcess};
use client::{ProgramOpen, WalkedPath};
use placement::FileId;
use rustix::fs::OFlags;
use rustix::thread::CapabilitySet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use wire::{Attributes, DirAccess, ExtentRequest, Kind, Mode, Name, NewInode, NewKind, OpenFlags, Owner, Refusal};

/// Attempts to open a name that appears or disappears meanwhile.
const TRIES: u32 = 16;
/// Permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdKind {
    /// Descriptor of the file's extent: the kernel reads and writes its bytes.
    Local,
    /// Placeholder for a file: its bytes are read and written by requests, its offset is kept by
    /// the kernel.
    Remote,
    /// Placeholder for a directory.
    Directory,
    /// Location alone (`O_PATH`), of any kind of file.
    Path,
}

/// Result of open(2).
#[derive(Debug)]
pub enum OpenOutcome {
    /// Descriptor of a file of the pool.
    Pool(OwnedFd, FdKind),
    /// Path of the host, reached through a symlink or standing for a fifo. The kernel opens it, and
    /// may block.
    Host(CString),
}

/// Result of one attempt to open a name.
enum OpenAttempt {
    Opened(ProgramOpen),
    /// Fifo, with the path of the kernel's fifo behind it.
    Fifo(CString),
    /// The name appeared or disappeared meanwhile: retry.
    Retry,
}

impl PosixProcess {
    /// open(2).
    ///
    /// # Errors
    /// As open(2); `ENXIO` for sockets and devices, and for fifos if no node is on this host.
    pub fn open(&self, arg: PathArg<'_>, flags: OFlags, mode: u32) -> Result<OpenOutcome, Errno> {
        let caller = Caller::effective();
        if flags.contains(OFlags::PATH) {
            return self.open_path(&caller, arg, flags);
        }
        if flags.contains(OFlags::TMPFILE) {
            return self.open_unnamed(&caller, arg, flags, mode);
        }
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        self.wait(async {
            if let Some((opened, names)) = self.open_cached(&caller, arg, flags, mode).await? {
                return self.record_open(opened, names, flags);
            }
            for _ in 0..TRIES {
                let last_mode = match flags {
                    _ if flags.contains(OFlags::CREATE | OFlags::EXCL) => self.name_mode(&caller),
                    _ if flags.contains(OFlags::NOFOLLOW) => LastMode::NoFollow,
                    // Refused later because of the slash, so a symlink need not be followed.
                    _ if flags.contains(OFlags::CREATE) && arg.path.ends_with(b"/") => self.name_mode(&caller),
                    _ => LastMode::Follow,
                };
                let resolved = match self.resolve(&caller, arg, last_mode).await? {
                    Destination::Pool(resolved) => resolved,
                    Destination::Host(path) => return Ok(OpenOutcome::Host(path)),
                };
                let names = resolved.names();
                match self.open_resolved(&caller, resolved, flags, mode).await? {
                    OpenAttempt::Opened(opened) => return self.record_open(opened, names, flags),
                    OpenAttempt::Fifo(path) => return Ok(OpenOutcome::Host(path)),
                    OpenAttempt::Retry => {}
                }
            }
            Err(Errno::AGAIN)
        })
    }

    /// Opens the file at a resolved path, or creates it.
    async fn open_resolved(
        &self,
        caller: &Caller,
        resolved: ResolvedPath,
        flags: OFlags,
        mode: u32,
    ) -> Result<OpenAttempt, Errno> {
        let making = flags.contains(OFlags::CREATE);
        if making && resolved.slash && matches!(resolved.last, LastComponent::Name(_)) {
            return Err(Errno::ISDIR);
        }
        let Some(found) = resolved.found else {
            if making && flags.contains(OFlags::EXCL) && !matches!(resolved.last, LastComponent::Name(_)) {
                return Err(Errno::EXIST);
            }
            if !making {
                return Err(Errno::NOENT);
            }
            return self.create_file(caller, &resolved, flags, mode).await;
        };
        if making && flags.contains(OFlags::EXCL) {
            return Err(Errno::EXIST);
        }
        if making && found.kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        resolved.existing()?;
        self.check_open(caller, &found, flags).await?;
        if found.kind == Kind::Fifo {
            return self.fifo(found.file).map(OpenAttempt::Fifo);
        }
        match self.open_with_descriptor(found.file, pool_flags(caller, flags)).await {
            Ok(opened) => Ok(OpenAttempt::Opened(opened)),
            Err(Refusal::NotFound(_)) => Ok(OpenAttempt::Retry),
            Err(refusal) => Err(crate::errno(&refusal)),
        }
    }

    /// Makes the checks of open(2) on an existing file.
    async fn check_open(&self, caller: &Caller, found: &Attributes, flags: OFlags) -> Result<(), Errno> {
        let pool_flags = pool_flags(caller, flags);
        match found.kind {
            Kind::Symlink if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            Kind::Symlink => return Err(Errno::LOOP),
            Kind::Directory if pool_flags.write || pool_flags.truncate => return Err(Errno::ISDIR),
            Kind::Directory => {}
            _ if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            Kind::File | Kind::Fifo => {}
            _ => return Err(Errno::NXIO),
        }
        let wants =
            if pool_flags.read { READ } else { 0 } | if pool_flags.write || pool_flags.truncate { WRITE } else { 0 };
        self.resolver(caller).check_access(found, wants).await?;
        if flags.contains(OFlags::NOATIME) && !crate::access::is_owner(found, caller) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    async fn create_file(
        &self,
        caller: &Caller,
        resolved: &ResolvedPath,
        flags: OFlags,
        mode: u32,
    ) -> Result<OpenAttempt, Errno> {
        self.resolver(caller).check_modify(&resolved.directory).await?;
        let name = resolved.name(Errno::ISDIR, Errno::ISDIR)?;
        let (inode, directory) =
            (NewInode::new(NewKind::File, self.mode(mode), owner(caller)), resolved.directory.file);
        let made = self.client.open_with_fd(pool_flags(caller, flags), |client| {
            let inode = inode.clone();
            async move { client.create(directory, name, inode, true, ExtentRequest::Any).await }
        });
        match made.await {
            Ok(opened) => Ok(OpenAttempt::Opened(opened)),
            Err(Refusal::Exists(_)) if !flags.contains(OFlags::EXCL) => Ok(OpenAttempt::Retry),
            Err(refusal) => Err(crate::errno(&refusal)),
        }
    }

    /// Opens a file, or creates it, with one message each, if the path cache knows its directory.
    /// Returns the open and the names that lead to it; `None` if the cache has no valid entry or
    /// the path must be resolved step by step.
    async fn open_cached(
        &self,
        caller: &Caller,
        arg: PathArg<'_>,
        flags: OFlags,
        mode: u32,
    ) -> Result<Option<(ProgramOpen, Vec<Vec<u8>>)>, Errno> {
        let Some((start, key, path)) = self.cached_path(arg)? else { return Ok(None) };
        let (making, exclusive) = (flags.contains(OFlags::CREATE), flags.contains(OFlags::CREATE | OFlags::EXCL));
        let opened = if exclusive {
            Err(Errno::NOENT)
        } else {
            self.open_existing_cached((&path, &key.last), caller, flags).await
        };
        let result = match opened {
            Err(Errno::NOENT) if making => {
                let made = self.create_cached((&path, &key.last), caller, flags, mode).await?;
                if made.is_none() {
                    self.path_cache.remove(&key.directory); // the entry may be stale, and no other code would notice
                }
                made
            }
            opened => opened?,
        };
        let last = key.last.as_bytes().to_vec();
        Ok(result.map(|opened| (opened, start.names.into_iter().chain(key.directories()).chain([last]).collect())))
    }

    /// Returns the start directory, the cache key and the cached path to the last name's directory.
    pub(crate) fn cached_path(
        &self,
        arg: PathArg<'_>,
    ) -> Result<Option<(ResolvedDirectory, PathKey, Arc<WalkedPath>)>, Errno> {
        if matches!(arg.base, PathBase::Magic(_)) || arg.path.is_empty() || self.is_too_long(arg) {
            return Ok(None);
        }
        let start = self.start(arg.base)?;
        let key = PathKey::parse(start.file, arg.path).filter(|key| !key.slash);
        Ok(key.and_then(|key| self.path_cache.get(&key.directory).map(|path| (start, key, path))))
    }

    async fn open_existing_cached(
        &self,
        (path, last): (&WalkedPath, &Name),
        caller: &Caller,
        flags: OFlags,
    ) -> Result<Option<ProgramOpen>, Errno> {
        const BYPASS: CapabilitySet = CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE);
        let looks = flags.intersects(OFlags::NOATIME | OFlags::DIRECTORY);
        let Some(traversal) = caller.traversal_check(DirAccess::Lookup, BYPASS).filter(|_| !looks) else {
            return Ok(None);
        };
        let (wanted, traversal) = (pool_flags(caller, flags), &traversal);
        let opened = self.client.try_open_with_fd(wanted, |client| async move {
            client.open_at_hint(hint(path, traversal), last, wanted).await
        });
        opened.await.map_err(|refusal| crate::errno(&refusal))
    }

    async fn create_cached(
        &self,
        (path, last): (&WalkedPath, &Name),
        caller: &Caller,
        flags: OFlags,
        mode: u32,
    ) -> Result<Option<ProgramOpen>, Errno> {
        let Some(traversal) = caller.traversal_check(DirAccess::Create, MODIFY_ANY) else { return Ok(None) };
        let (inode, traversal) = (NewInode::new(NewKind::File, self.mode(mode), owner(caller)), &traversal);
        let made = self.client.try_open_with_fd(pool_flags(caller, flags), |client| {
            let inode = inode.clone();
            async move { client.create_at_hint(hint(path, traversal), last, inode).await }
        });
        match made.await {
            // The file was created meanwhile, and is opened by the slow path.
            Err(Refusal::Exists(_)) if !flags.contains(OFlags::EXCL) => Ok(None),
            made => made.map_err(|refusal| crate::errno(&refusal)),
        }
    }

    /// Creates an unnamed file in the given directory (`O_TMPFILE`).
    fn open_unnamed(&self, caller: &Caller, arg: PathArg<'_>, flags: OFlags, mode: u32) -> Result<OpenOutcome, Errno> {
        let pool_flags = pool_flags(caller, flags);
        if !pool_flags.write {
            return Err(Errno::INVAL);
        }
        self.wait(async {
            let resolved = match self.resolve(caller, arg, LastMode::Follow).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return Ok(OpenOutcome::Host(path)),
            };
            let found = *resolved.existing()?;
            if found.kind != Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            self.resolver(caller).check_access(&found, WRITE | crate::EXECUTE).await?;
            let inode = NewInode::new(NewKind::File, self.mode(mode), owner(caller));
            let linkable = !flags.contains(OFlags::EXCL);
            let made = self.client.open_with_fd(pool_flags, |client| {
                let inode = inode.clone();
                async move { client.create_unnamed(found.file, None, inode, linkable).await }
            });
            let opened = made.await.map_err(|refusal| crate::errno(&refusal))?;
            self.record_open(opened, resolved.names(), flags)
        })
    }

    /// Opens a location (`O_PATH`), of any kind of file. Its descriptor gives no access to bytes.
    fn open_path(&self, caller: &Caller, arg: PathArg<'_>, flags: OFlags) -> Result<OpenOutcome, Errno> {
        self.wait(async {
            let resolved = match self
                .resolve(
                    caller,
                    arg,
                    if flags.contains(OFlags::NOFOLLOW) { LastMode::NoFollow } else { LastMode::Follow },
                )
                .await?
            {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return Ok(OpenOutcome::Host(path)),
            };
            let found = *resolved.existing()?;
            if flags.contains(OFlags::DIRECTORY) && found.kind != Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            let opened = self.open_with_descriptor(found.file, OpenFlags::default()).await;
            self.record_open(opened.map_err(|refusal| crate::errno(&refusal))?, resolved.names(), flags)
        })
    }

    /// Opens a file or directory, with a descriptor for it.
    fn open_with_descriptor(
        &self,
        file: FileId,
        flags: OpenFlags,
    ) -> impl Future<Output = Result<ProgramOpen, Refusal>> {
        self.client.open_with_fd(flags, move |client| async move {
            if flags.use_extent { client.open_for_program(file, flags).await } else { client.open(file, flags).await }
        })
    }

    /// Opens a file by its id, and obtains a descriptor for it.
    pub(crate) async fn open_by_id(
        &self,
        file: FileId,
        flags: OpenFlags,
        names: Vec<Vec<u8>>,
    ) -> Result<(Arc<OpenDescription>, OwnedFd), Errno> {
        let opened = self.open_with_descriptor(file, flags).await;
        describe_open(opened.map_err(|refusal| crate::errno(&refusal))?, names)
    }

    /// Records the open under its descriptor's number.
    fn record_open(&self, opened: ProgramOpen, names: Vec<Vec<u8>>, flags: OFlags) -> Result<OpenOutcome, Errno> {
        use rustix::io::{FdFlags, fcntl_setfd};
        let (open, descriptor) = describe_open(opened, names)?;
        // The descriptor arrives with close-on-exec set.
        if !flags.contains(OFlags::CLOEXEC) {
            fcntl_setfd(&descriptor, FdFlags::empty())?;
        }
        let kind = open.visible_kind();
        self.table.add(crate::process::number(&descriptor), open);
        Ok(OpenOutcome::Pool(descriptor, kind))
    }

    pub(crate) fn mode(&self, mode: u32) -> Mode {
        Mode { bits: mode & PERMISSIONS, umask: self.umask() }
    }
}

/// Makes the table entry of a descriptor.
fn describe_open(
    ProgramOpen { descriptor, lease, .. }: ProgramOpen,
    names: Vec<Vec<u8>>,
) -> Result<(Arc<OpenDescription>, OwnedFd), Errno> {
    let inode = inode_of(descriptor.as_fd()).ok_or(Errno::BADF)?;
    Ok((Arc::new(OpenDescription::new(&lease, names, inode)), descriptor))
}

/// Returns the owner of a new file.
pub(crate) fn owner(caller: &Caller) -> Owner {
    Owner { uid: caller.uid, gid: caller.gid }
}

/// Converts the flags of open(2) to those of the pool.
fn pool_flags(caller: &Caller, flags: OFlags) -> OpenFlags {
    let access = flags & OFlags::RWMODE;
    OpenFlags {
        read: access != OFlags::WRONLY,
        write: access == OFlags::WRONLY || access == OFlags::RDWR,
        append: flags.contains(OFlags::APPEND),
        truncate: flags.contains(OFlags::TRUNC),
        exclusive: flags.contains(OFlags::EXCL),
        use_extent: true,
        kill_set_id: flags.contains(OFlags::TRUNC) && !caller.can(CapabilitySet::FSETID),
    }
}
