//! Calls on names: create, rename, link, read a symlink, remove.

use crate::access;
use crate::open::owner;
use crate::path_key::hint;
use crate::resolve::{Destination, LastComponent, LastMode, MODIFY_ANY, ResolvedPath};
use crate::{Caller, Errno, PathArg, PathBase, PathOperand, PosixProcess};
use bytes::Bytes;
use placement::FileId;
use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::thread::CapabilitySet;
use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use wire::{
    Attributes, DirAccess, ExtentRequest, Kind, Name, NewInode, NewKind, RenameFrom, RenameMode, RenameTo,
    TARGET_BYTES_MAX,
};

/// Mode of symlinks, which have no permissions of their own.
const LINK_MODE: u32 = 0o777;

fn is_directory(file: &Attributes) -> bool {
    file.kind == Kind::Directory
}

/// Location of a path operand: in the pool, with the information `T` about it, or on the host.
enum ResolvedOperand<'a, T> {
    Pool(T),
    Host(BorrowedFd<'a>, Cow<'a, CStr>),
}

impl PosixProcess {
    /// mkdir(2).
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, arg: PathArg<'_>, mode: u32) -> Result<(), Errno> {
        let caller = Caller::effective();
        self.wait(async {
            let resolved = match self.resolve(&caller, arg, self.name_mode(&caller)).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return rustix::fs::mkdir(path, mode.into()),
            };
            let name = self.new_name(&caller, &resolved).await?;
            // The node adds the set-group-id bit if the parent directory has it.
            let mode = self.mode(mode & 0o1777);
            let made = self.client.make_directory(resolved.directory.file, name, mode, owner(&caller)).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// mknod(2) and mkfifo(3).
    ///
    /// # Errors
    /// As mknod(2).
    pub fn mknod(&self, arg: PathArg<'_>, mode: u32, device: u32) -> Result<(), Errno> {
        let caller = Caller::effective();
        let (kind, special) = match FileType::from_raw_mode(mode) {
            _ if mode & 0o170_000 == 0 => (NewKind::File, false),
            FileType::RegularFile => (NewKind::File, false),
            FileType::Fifo => (NewKind::Node(Kind::Fifo), false),
            FileType::Socket => (NewKind::Node(Kind::Socket), false),
            FileType::CharacterDevice => (NewKind::Node(Kind::CharDevice(device)), true),
            FileType::BlockDevice => (NewKind::Node(Kind::BlockDevice(device)), true),
            FileType::Directory => return Err(Errno::PERM),
            _ => return Err(Errno::INVAL),
        };
        if special && !caller.can(CapabilitySet::MKNOD) {
            return Err(Errno::PERM);
        }
        self.wait(async {
            let resolved = match self.resolve(&caller, arg, self.name_mode(&caller)).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => {
                    let kind = FileType::from_raw_mode(mode);
                    return rustix::fs::mknodat(rustix::fs::CWD, path, kind, (mode & 0o7777).into(), device.into());
                }
            };
            let name = self.new_file_name(&caller, &resolved).await?;
            let inode = NewInode::new(kind, self.mode(mode), owner(&caller));
            let made = self.client.create(resolved.directory.file, name, inode, false, ExtentRequest::None).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// symlink(2).
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, text: &[u8], arg: PathArg<'_>) -> Result<(), Errno> {
        match text.len() {
            0 => return Err(Errno::NOENT),
            1..=TARGET_BYTES_MAX => {}
            _ => return Err(Errno::NAMETOOLONG),
        }
        let caller = Caller::effective();
        self.wait(async {
            let resolved = match self.resolve(&caller, arg, self.name_mode(&caller)).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return rustix::fs::symlink(text, path),
            };
            let name = self.new_file_name(&caller, &resolved).await?;
            let inode = NewInode::new(NewKind::Symlink(Bytes::copy_from_slice(text)), LINK_MODE, owner(&caller));
            let made = self.client.create(resolved.directory.file, name, inode, false, ExtentRequest::None).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// readlink(2).
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self, arg: PathArg<'_>) -> Result<Vec<u8>, Errno> {
        let caller = Caller::effective();
        self.wait(async {
            let found = match (arg.base, arg.path.is_empty()) {
                (PathBase::Magic(descriptor), true) => return Ok(self.path_text(&self.table.get(descriptor)?.names)),
                (PathBase::Descriptor(descriptor), true) => self.stat_open(descriptor).await?,
                _ => match self.resolve(&caller, arg, LastMode::NoFollow).await? {
                    Destination::Pool(resolved) => *resolved.existing()?,
                    Destination::Host(path) => {
                        return rustix::fs::readlink(path, Vec::<u8>::new()).map(std::ffi::CString::into_bytes);
                    }
                },
            };
            if found.kind != Kind::Symlink {
                return Err(Errno::INVAL);
            }
            self.client.read_link(found.file).await.map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// unlink(2), and rmdir(2) with `REMOVEDIR`.
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn unlink(&self, arg: PathArg<'_>, flags: AtFlags) -> Result<(), Errno> {
        crate::check_flags(flags, AtFlags::REMOVEDIR)?;
        let caller = Caller::effective();
        let directory = flags.contains(AtFlags::REMOVEDIR);
        self.wait(async {
            if !directory && self.unlink_cached(&caller, arg).await? {
                return Ok(());
            }
            let resolved = match self.resolve(&caller, arg, self.name_mode(&caller)).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return rustix::fs::unlinkat(rustix::fs::CWD, path, flags),
            };
            let name = match (directory, &resolved.last) {
                (_, LastComponent::Name(name)) => name,
                (true, LastComponent::Dot)
                    if resolved.directory.names.is_empty() && resolved.directory.file == FileId::ROOT =>
                {
                    return Err(Errno::BUSY);
                }
                (true, LastComponent::Dot) => return Err(Errno::INVAL),
                (true, LastComponent::DotDot) => return Err(Errno::NOTEMPTY),
                (false, _) => return Err(Errno::ISDIR),
            };
            if resolved.slash && !directory {
                // Only a directory may have a trailing slash, and unlink(2) does not remove
                // directories.
                return Err(resolved.existing().map_or_else(|errno| errno, |_| Errno::ISDIR));
            }
            let resolver = self.resolver(&caller);
            // A missing entry is reported before a denied permission.
            let looks = resolved.slash || !resolver.can_modify_any();
            let found = if looks { Some(resolved.found.as_ref().ok_or(Errno::NOENT)?) } else { None };
            let above = resolver.check_modify(&resolved.directory).await?;
            access::check_sticky(above.as_ref(), found, &caller)?;
            let removed = if directory {
                self.client.remove_directory(resolved.directory.file, name).await
            } else {
                self.client.unlink(resolved.directory.file, name).await
            };
            removed.map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// Unlinks a non-directory in one message if the path cache knows its directory. Returns
    /// whether that was done.
    async fn unlink_cached(&self, caller: &Caller, arg: PathArg<'_>) -> Result<bool, Errno> {
        let Some((_, key, path)) = self.cached_path(arg)? else { return Ok(false) };
        let Some(traversal) = caller.traversal_check(DirAccess::Remove, MODIFY_ANY) else { return Ok(false) };
        let removed = self.client.unlink_at_hint(hint(&path, &traversal), &key.last).await;
        let removed = removed.map_err(|refusal| crate::errno(&refusal))?;
        if !removed {
            self.path_cache.remove(&key.directory);
        }
        Ok(removed)
    }

    /// link(2). `SYMLINK_FOLLOW` follows a symlink at the end of the old path; `EMPTY_PATH` links
    /// an open file.
    ///
    /// # Errors
    /// As linkat(2).
    pub fn link(&self, old: PathOperand<'_>, new: PathOperand<'_>, flags: AtFlags) -> Result<(), Errno> {
        crate::check_flags(flags, AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH)?;
        let caller = Caller::effective();
        let last_mode = if flags.contains(AtFlags::SYMLINK_FOLLOW) { LastMode::Follow } else { LastMode::NoFollow };
        self.wait(async {
            let linked = match old {
                PathOperand::Pool(PathArg { base: PathBase::Descriptor(descriptor), path: b"" })
                    if flags.contains(AtFlags::EMPTY_PATH) =>
                {
                    ResolvedOperand::Pool(self.stat_open(descriptor).await?)
                }
                _ => match self.resolve_operand(&caller, old, last_mode).await? {
                    ResolvedOperand::Pool(resolved) => ResolvedOperand::Pool(*resolved.existing()?),
                    ResolvedOperand::Host(directory, path) => ResolvedOperand::Host(directory, path),
                },
            };
            let (linked, resolved) = match (linked, self.resolve_operand(&caller, new, self.name_mode(&caller)).await?) {
                (ResolvedOperand::Pool(linked), ResolvedOperand::Pool(resolved)) => (linked, resolved),
                (ResolvedOperand::Host(directory, path), ResolvedOperand::Host(new_directory, new_path)) => {
                    return rustix::fs::linkat(directory, &*path, new_directory, &*new_path, flags);
                }
                _ => return Err(Errno::XDEV),
            };
            let name = self.new_file_name(&caller, &resolved).await?;
            if linked.kind == Kind::Directory {
                // An existing name is reported before the refusal to link a directory.
                let taken =
                    matches!(self.resolve_operand(&caller, new, LastMode::NoFollow).await?, ResolvedOperand::Pool(resolved) if resolved.found.is_some());
                return Err(if taken { Errno::EXIST } else { Errno::PERM });
            }
            let made = self.client.link(linked.file, resolved.directory.file, name).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// rename(2) and renameat2(2).
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn rename(&self, old: PathOperand<'_>, new: PathOperand<'_>, flags: RenameFlags) -> Result<(), Errno> {
        let caller = Caller::effective();
        let mode = match flags {
            _ if flags.is_empty() => RenameMode::Replace,
            RenameFlags::NOREPLACE => RenameMode::NoReplace,
            RenameFlags::EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let taken = if mode == RenameMode::NoReplace { Errno::EXIST } else { Errno::BUSY };
        self.wait(async {
            if self.rename_cached(&caller, (old, new), mode).await? {
                return Ok(());
            }
            let last_mode = self.name_mode(&caller);
            let (from, to) = match (
                self.resolve_operand(&caller, old, last_mode).await?,
                self.resolve_operand(&caller, new, last_mode).await?,
            ) {
                (ResolvedOperand::Pool(from), ResolvedOperand::Pool(to)) => (from, to),
                (ResolvedOperand::Host(directory, path), ResolvedOperand::Host(new_directory, new_path)) => {
                    return rustix::fs::renameat_with(directory, &*path, new_directory, &*new_path, flags);
                }
                _ => return Err(Errno::XDEV),
            };
            let (old_name, new_name) = (from.name(Errno::BUSY, Errno::BUSY)?.clone(), to.name(taken, taken)?.clone());
            if from.slash || to.slash || !self.resolver(&caller).can_modify_any() {
                let found = self.check_rename_names(&caller, &from, &to, mode).await?;
                if let Err(errno) = self.check_rename_access(&caller, (&from, &to), &found, mode).await {
                    return Err(self.ancestor_error(&from, &to).await?.unwrap_or(errno));
                }
            }
            let old = RenameFrom { parent: from.directory.file, name: old_name };
            let new = RenameTo { parent: to.directory.file, name: new_name };
            let renamed = self.client.rename(old, new, mode).await.map_err(|refusal| crate::errno(&refusal));
            match renamed {
                Err(Errno::ISDIR) => {}
                // An existing name is reported before a move of a directory into itself.
                Err(Errno::INVAL) if mode == RenameMode::NoReplace => {
                    let is_taken = self.resolver(&caller).look_up(&to).await.is_ok();
                    return Err(if is_taken { Errno::EXIST } else { Errno::INVAL });
                }
                renamed => return renamed,
            }
            let to = ResolvedPath { found: self.resolver(&caller).look_up(&to).await.ok(), ..to };
            Err(self.ancestor_error(&from, &to).await?.unwrap_or(Errno::ISDIR))
        })
    }

    /// Renames an entry within its directory in one message if the path cache knows the directory.
    /// Returns whether that was done. What the node refuses is left to the slow path, which knows
    /// the error that comes first.
    async fn rename_cached(
        &self,
        caller: &Caller,
        (old, new): (PathOperand<'_>, PathOperand<'_>),
        mode: RenameMode,
    ) -> Result<bool, Errno> {
        let (PathOperand::Pool(old), PathOperand::Pool(new)) = (old, new) else { return Ok(false) };
        let (Ok(Some((_, from, path))), Ok(Some((_, to, _)))) = (self.cached_path(old), self.cached_path(new)) else {
            return Ok(false);
        };
        let traversal = caller.traversal_check(DirAccess::Remove, MODIFY_ANY);
        let Some(traversal) = traversal.filter(|_| from.directory == to.directory) else { return Ok(false) };
        let renamed = self.client.rename_at_hint(hint(&path, &traversal), &from.last, &to.last, mode).await;
        match renamed.map_err(|refusal| crate::errno(&refusal)) {
            Err(
                Errno::NOENT
                | Errno::EXIST
                | Errno::ISDIR
                | Errno::NOTDIR
                | Errno::NOTEMPTY
                | Errno::INVAL
                | Errno::STALE,
            ) => Ok(false),
            renamed => renamed,
        }
    }

    /// Makes the checks of rename(2) on names, which precede permissions. Returns the attributes of
    /// the entry that moves and of the entry that has the new name.
    async fn check_rename_names(
        &self,
        caller: &Caller,
        from: &ResolvedPath,
        to: &ResolvedPath,
        mode: RenameMode,
    ) -> Result<(Attributes, Option<Attributes>), Errno> {
        let resolver = self.resolver(caller);
        let moved = match from.found {
            Some(found) => found,
            None => resolver.look_up(from).await?,
        };
        let replaced = match to.found {
            Some(_) if mode == RenameMode::NoReplace => return Err(Errno::EXIST),
            None if mode == RenameMode::NoReplace && resolver.look_up(to).await.is_ok() => return Err(Errno::EXIST),
            None if mode == RenameMode::Exchange => Some(resolver.look_up(to).await?),
            found => found,
        };
        // A trailing slash is valid after a directory, or after the new name of one.
        let wrong = match mode {
            RenameMode::Exchange => to.slash && !replaced.as_ref().is_some_and(is_directory),
            _ => to.slash && !is_directory(&moved),
        };
        if wrong || from.slash && !is_directory(&moved) { Err(Errno::NOTDIR) } else { Ok((moved, replaced)) }
    }

    /// Makes the checks of rename(2) on directories and on the kind of the entries.
    async fn check_rename_access(
        &self,
        caller: &Caller,
        (from, to): (&ResolvedPath, &ResolvedPath),
        found: &(Attributes, Option<Attributes>),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        let (moved, replaced) = found;
        let resolver = self.resolver(caller);
        let old_above = resolver.check_modify(&from.directory).await?;
        access::check_sticky(old_above.as_ref(), Some(moved), caller)?;
        let new_above = resolver.check_modify(&to.directory).await?;
        access::check_sticky(new_above.as_ref(), replaced.as_ref(), caller)?;
        match replaced.as_ref().filter(|_| mode == RenameMode::Replace).map(is_directory) {
            Some(false) if is_directory(moved) => return Err(Errno::NOTDIR),
            Some(true) if !is_directory(moved) => return Err(Errno::ISDIR),
            _ => {}
        }
        // A directory that moves to another parent changes its `..` entry, which needs write
        // permission on it.
        if from.directory.file != to.directory.file {
            let exchanged = replaced.as_ref().filter(|_| mode == RenameMode::Exchange);
            for directory in [Some(moved), exchanged].into_iter().flatten().filter(|found| is_directory(found)) {
                resolver.check_access(directory, access::WRITE).await?;
            }
        }
        Ok(())
    }

    /// Returns the error that precedes every permission error: `EINVAL` if a directory would move
    /// into itself, `ENOTEMPTY` if it would replace one of its ancestors.
    async fn ancestor_error(&self, from: &ResolvedPath, to: &ResolvedPath) -> Result<Option<Errno>, Errno> {
        let is_in = async |directory: FileId, above: &Option<Attributes>| {
            let Some(above) = above.as_ref().filter(|above| is_directory(above)) else { return Ok(false) };
            let mut at = directory;
            while at != above.file && at != FileId::ROOT {
                at = self.client.parent(at).await.map_err(|refusal| crate::errno(&refusal))?;
            }
            Ok(at == above.file)
        };
        if is_in(to.directory.file, &from.found).await? {
            return Ok(Some(Errno::INVAL));
        }
        Ok(is_in(from.directory.file, &to.found).await?.then_some(Errno::NOTEMPTY))
    }

    /// Resolves one path operand of a call that takes two.
    async fn resolve_operand<'a>(
        &self,
        caller: &Caller,
        operand: PathOperand<'a>,
        last_mode: LastMode,
    ) -> Result<ResolvedOperand<'a, ResolvedPath>, Errno> {
        Ok(match operand {
            PathOperand::Host(directory, path) => ResolvedOperand::Host(directory, Cow::Borrowed(path)),
            PathOperand::Pool(arg) => match self.resolve(caller, arg, last_mode).await? {
                Destination::Pool(resolved) => ResolvedOperand::Pool(resolved),
                Destination::Host(path) => ResolvedOperand::Host(rustix::fs::CWD, Cow::Owned(path)),
            },
        })
    }

    /// Returns the name of a new entry, which may have a trailing slash. Fails if it exists or may
    /// not be created.
    async fn new_name<'a>(&self, caller: &Caller, resolved: &'a ResolvedPath) -> Result<&'a Name, Errno> {
        let name = resolved.name(Errno::EXIST, Errno::EXIST)?;
        if resolved.found.is_some() {
            return Err(Errno::EXIST);
        }
        self.resolver(caller).check_modify(&resolved.directory).await?;
        Ok(name)
    }

    /// Returns the name of a new entry that is not a directory, and may have no trailing slash.
    pub(crate) async fn new_file_name<'a>(
        &self,
        caller: &Caller,
        resolved: &'a ResolvedPath,
    ) -> Result<&'a Name, Errno> {
        if resolved.slash && resolved.found.is_none() {
            return Err(Errno::NOENT);
        }
        self.new_name(caller, resolved).await
    }
}
