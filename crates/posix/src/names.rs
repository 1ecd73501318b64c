//! Calls on names: create, rename, link, read a symlink, remove.

use crate::access;
use crate::open::owner;
use crate::walk::{CHANGES_ANY, End, Last, Place, Spot};
use crate::{Base, Errno, Process, Said, Side, Who};
use bytes::Bytes;
use placement::FileId;
use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::thread::CapabilitySet;
use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use wire::{
    Attributes, Kind, Name, Needs, NewInode, NewKind, RenameFrom, RenameMode, RenameTo, TARGET_BYTES_MAX, Wish,
};

/// Mode of symlinks, which have no permissions of their own.
const LINK_MODE: u32 = 0o777;

fn is_folder(of: &Attributes) -> bool {
    of.kind == Kind::Directory
}

/// Location of a path operand: in the pool, with the information `T` about it, or on the host.
enum Reached<'a, T> {
    Pool(T),
    Host(BorrowedFd<'a>, Cow<'a, CStr>),
}

impl Process {
    /// mkdir(2).
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, said: Said<'_>, mode: u32) -> Result<(), Errno> {
        let who = Who::now();
        self.wait(async {
            let spot = match self.walk(&who, said, self.to_name(&who)).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => return rustix::fs::mkdir(path, mode.into()),
            };
            let name = self.new_name(&who, &spot).await?;
            // The node adds the set-group-id bit if the parent directory has it.
            let mode = self.mode(mode & 0o1777);
            let made = self.client.make_directory(spot.folder.file, name, mode, owner(&who)).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// mknod(2) and mkfifo(3).
    ///
    /// # Errors
    /// As mknod(2).
    pub fn mknod(&self, said: Said<'_>, mode: u32, device: u32) -> Result<(), Errno> {
        let who = Who::now();
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
        if special && !who.can(CapabilitySet::MKNOD) {
            return Err(Errno::PERM);
        }
        self.wait(async {
            let spot = match self.walk(&who, said, self.to_name(&who)).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => {
                    let kind = FileType::from_raw_mode(mode);
                    return rustix::fs::mknodat(rustix::fs::CWD, path, kind, (mode & 0o7777).into(), device.into());
                }
            };
            let name = self.new_file_name(&who, &spot).await?;
            let inode = NewInode::new(kind, self.mode(mode), owner(&who));
            let made = self.client.create(spot.folder.file, name, inode, false, Wish::No).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// symlink(2).
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, text: &[u8], said: Said<'_>) -> Result<(), Errno> {
        match text.len() {
            0 => return Err(Errno::NOENT),
            1..=TARGET_BYTES_MAX => {}
            _ => return Err(Errno::NAMETOOLONG),
        }
        let who = Who::now();
        self.wait(async {
            let spot = match self.walk(&who, said, self.to_name(&who)).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => return rustix::fs::symlink(text, path),
            };
            let name = self.new_file_name(&who, &spot).await?;
            let inode = NewInode::new(NewKind::Symlink(Bytes::copy_from_slice(text)), LINK_MODE, owner(&who));
            let made = self.client.create(spot.folder.file, name, inode, false, Wish::No).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// readlink(2).
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self, said: Said<'_>) -> Result<Vec<u8>, Errno> {
        let who = Who::now();
        self.wait(async {
            let found = match (said.base, said.path.is_empty()) {
                (Base::Magic(descriptor), true) => return Ok(self.text(&self.table.get(descriptor)?.names)),
                (Base::Descriptor(descriptor), true) => self.stat_open(descriptor).await?,
                _ => match self.walk(&who, said, End::Look).await? {
                    Place::Pool(spot) => *spot.there()?,
                    Place::Host(path) => {
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
    pub fn unlink(&self, said: Said<'_>, flags: AtFlags) -> Result<(), Errno> {
        crate::only(flags, AtFlags::REMOVEDIR)?;
        let who = Who::now();
        let folder = flags.contains(AtFlags::REMOVEDIR);
        self.wait(async {
            if !folder && self.unlink_there(&who, said).await? {
                return Ok(());
            }
            let spot = match self.walk(&who, said, self.to_name(&who)).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => return rustix::fs::unlinkat(rustix::fs::CWD, path, flags),
            };
            let name = match (folder, &spot.last) {
                (_, Last::Name(name)) => name,
                (true, Last::Dot) if spot.folder.names.is_empty() && spot.folder.file == FileId::ROOT => {
                    return Err(Errno::BUSY);
                }
                (true, Last::Dot) => return Err(Errno::INVAL),
                (true, Last::DotDot) => return Err(Errno::NOTEMPTY),
                (false, _) => return Err(Errno::ISDIR),
            };
            if spot.slash && !folder {
                // Only a directory may have a trailing slash, and unlink(2) does not remove
                // directories.
                return Err(spot.there().map_or_else(|errno| errno, |_| Errno::ISDIR));
            }
            let walker = self.walker(&who);
            // A missing entry is reported before a denied permission.
            let looks = spot.slash || !walker.changes_any();
            let found = if looks { Some(spot.found.as_ref().ok_or(Errno::NOENT)?) } else { None };
            let above = walker.may_change(&spot.folder).await?;
            access::may_remove(above.as_ref(), found, &who)?;
            let removed = if folder {
                self.client.remove_directory(spot.folder.file, name).await
            } else {
                self.client.unlink(spot.folder.file, name).await
            };
            removed.map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// Unlinks a non-directory in one message if the path cache knows its directory. Returns
    /// whether that was done.
    async fn unlink_there(&self, who: &Who, said: Said<'_>) -> Result<bool, Errno> {
        let Some((_, way, directory)) = self.way_there(said)? else { return Ok(false) };
        let Some(going) = who.going(Needs::Remove, CHANGES_ANY) else { return Ok(false) };
        let removed = self.client.unlink_below(way.below(directory, &going), &way.last).await;
        let removed = removed.map_err(|refusal| crate::errno(&refusal))?;
        if !removed {
            self.ways.forget(&way);
        }
        Ok(removed)
    }

    /// link(2). `SYMLINK_FOLLOW` follows a symlink at the end of the old path; `EMPTY_PATH` links
    /// an open file.
    ///
    /// # Errors
    /// As linkat(2).
    pub fn link(&self, old: Side<'_>, new: Side<'_>, flags: AtFlags) -> Result<(), Errno> {
        crate::only(flags, AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH)?;
        let who = Who::now();
        let end = if flags.contains(AtFlags::SYMLINK_FOLLOW) { End::Follow } else { End::Look };
        self.wait(async {
            let linked = match old {
                Side::Pool(Said { base: Base::Descriptor(descriptor), path: b"" })
                    if flags.contains(AtFlags::EMPTY_PATH) =>
                {
                    Reached::Pool(self.stat_open(descriptor).await?)
                }
                _ => match self.reached(&who, old, end).await? {
                    Reached::Pool(spot) => Reached::Pool(*spot.there()?),
                    Reached::Host(folder, path) => Reached::Host(folder, path),
                },
            };
            let (linked, spot) = match (linked, self.reached(&who, new, self.to_name(&who)).await?) {
                (Reached::Pool(linked), Reached::Pool(spot)) => (linked, spot),
                (Reached::Host(folder, path), Reached::Host(new_folder, new_path)) => {
                    return rustix::fs::linkat(folder, &*path, new_folder, &*new_path, flags);
                }
                _ => return Err(Errno::XDEV),
            };
            let name = self.new_file_name(&who, &spot).await?;
            if linked.kind == Kind::Directory {
                // An existing name is reported before the refusal to link a directory.
                let taken =
                    matches!(self.reached(&who, new, End::Look).await?, Reached::Pool(spot) if spot.found.is_some());
                return Err(if taken { Errno::EXIST } else { Errno::PERM });
            }
            let made = self.client.link(linked.file, spot.folder.file, name).await;
            made.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// rename(2) and renameat2(2).
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn rename(&self, old: Side<'_>, new: Side<'_>, flags: RenameFlags) -> Result<(), Errno> {
        let who = Who::now();
        let mode = match flags {
            _ if flags.is_empty() => RenameMode::Replace,
            RenameFlags::NOREPLACE => RenameMode::NoReplace,
            RenameFlags::EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let taken = if mode == RenameMode::NoReplace { Errno::EXIST } else { Errno::BUSY };
        self.wait(async {
            let end = self.to_name(&who);
            let (from, to) = match (self.reached(&who, old, end).await?, self.reached(&who, new, end).await?) {
                (Reached::Pool(from), Reached::Pool(to)) => (from, to),
                (Reached::Host(folder, path), Reached::Host(new_folder, new_path)) => {
                    return rustix::fs::renameat_with(folder, &*path, new_folder, &*new_path, flags);
                }
                _ => return Err(Errno::XDEV),
            };
            let (old_name, new_name) = (from.name(Errno::BUSY, Errno::BUSY)?.clone(), to.name(taken, taken)?.clone());
            if from.slash || to.slash || !self.walker(&who).changes_any() {
                let found = self.may_be_named(&who, &from, &to, mode).await?;
                if let Err(errno) = self.may_move(&who, (&from, &to), &found, mode).await {
                    return Err(self.within(&from, &to).await?.unwrap_or(errno));
                }
            }
            let old = RenameFrom { parent: from.folder.file, name: old_name };
            let new = RenameTo { parent: to.folder.file, name: new_name };
            let renamed = self.client.rename(old, new, mode).await.map_err(|refusal| crate::errno(&refusal));
            if renamed != Err(Errno::ISDIR) {
                return renamed;
            }
            let there = Spot { found: self.walker(&who).look_up(&to).await.ok(), ..to };
            Err(self.within(&from, &there).await?.unwrap_or(Errno::ISDIR))
        })
    }

    /// Makes the checks of rename(2) on names, which precede permissions. Returns the attributes of
    /// the entry that moves and of the entry that has the new name.
    async fn may_be_named(
        &self,
        who: &Who,
        from: &Spot,
        to: &Spot,
        mode: RenameMode,
    ) -> Result<(Attributes, Option<Attributes>), Errno> {
        let walker = self.walker(who);
        let moved = match from.found {
            Some(found) => found,
            None => walker.look_up(from).await?,
        };
        let replaced = match to.found {
            Some(_) if mode == RenameMode::NoReplace => return Err(Errno::EXIST),
            None if mode == RenameMode::Exchange => Some(walker.look_up(to).await?),
            found => found,
        };
        // A trailing slash is valid after a directory, or after the new name of one.
        let wrong = match mode {
            RenameMode::Exchange => to.slash && !replaced.as_ref().is_some_and(is_folder),
            _ => to.slash && !is_folder(&moved),
        };
        if wrong || from.slash && !is_folder(&moved) { Err(Errno::NOTDIR) } else { Ok((moved, replaced)) }
    }

    /// Makes the checks of rename(2) on directories and on the kind of the entries.
    async fn may_move(
        &self,
        who: &Who,
        (from, to): (&Spot, &Spot),
        found: &(Attributes, Option<Attributes>),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        let (moved, replaced) = found;
        let walker = self.walker(who);
        let old_above = walker.may_change(&from.folder).await?;
        access::may_remove(old_above.as_ref(), Some(moved), who)?;
        let new_above = walker.may_change(&to.folder).await?;
        access::may_remove(new_above.as_ref(), replaced.as_ref(), who)?;
        match replaced.as_ref().filter(|_| mode == RenameMode::Replace).map(is_folder) {
            Some(false) if is_folder(moved) => return Err(Errno::NOTDIR),
            Some(true) if !is_folder(moved) => return Err(Errno::ISDIR),
            _ => {}
        }
        // A directory that moves to another parent changes its `..` entry, which needs write
        // permission on it.
        if from.folder.file != to.folder.file {
            let exchanged = replaced.as_ref().filter(|_| mode == RenameMode::Exchange);
            for folder in [Some(moved), exchanged].into_iter().flatten().filter(|found| is_folder(found)) {
                walker.may(folder, access::WRITE).await?;
            }
        }
        Ok(())
    }

    /// Returns the error that precedes every permission error: `EINVAL` if a directory would move
    /// into itself, `ENOTEMPTY` if it would replace one of its ancestors.
    async fn within(&self, from: &Spot, to: &Spot) -> Result<Option<Errno>, Errno> {
        let is_in = async |folder: FileId, above: &Option<Attributes>| {
            let Some(above) = above.as_ref().filter(|above| is_folder(above)) else { return Ok(false) };
            let mut at = folder;
            while at != above.file && at != FileId::ROOT {
                at = self.client.parent(at).await.map_err(|refusal| crate::errno(&refusal))?;
            }
            Ok(at == above.file)
        };
        if is_in(to.folder.file, &from.found).await? {
            return Ok(Some(Errno::INVAL));
        }
        Ok(is_in(from.folder.file, &to.found).await?.then_some(Errno::NOTEMPTY))
    }

    /// Resolves one path operand of a call that takes two.
    async fn reached<'a>(&self, who: &Who, side: Side<'a>, end: End) -> Result<Reached<'a, Spot>, Errno> {
        Ok(match side {
            Side::Host(folder, path) => Reached::Host(folder, Cow::Borrowed(path)),
            Side::Pool(said) => match self.walk(who, said, end).await? {
                Place::Pool(spot) => Reached::Pool(spot),
                Place::Host(path) => Reached::Host(rustix::fs::CWD, Cow::Owned(path)),
            },
        })
    }

    /// Returns the name of a new entry, which may have a trailing slash. Fails if it exists or may
    /// not be created.
    async fn new_name<'a>(&self, who: &Who, spot: &'a Spot) -> Result<&'a Name, Errno> {
        let name = spot.name(Errno::EXIST, Errno::EXIST)?;
        if spot.found.is_some() {
            return Err(Errno::EXIST);
        }
        self.walker(who).may_change(&spot.folder).await?;
        Ok(name)
    }

    /// Returns the name of a new entry that is not a directory, and may have no trailing slash.
    pub(crate) async fn new_file_name<'a>(&self, who: &Who, spot: &'a Spot) -> Result<&'a Name, Errno> {
        if spot.slash && spot.found.is_none() {
            return Err(Errno::NOENT);
        }
        self.new_name(who, spot).await
    }
}
