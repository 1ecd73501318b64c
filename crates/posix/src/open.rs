//! Opening files: by name, with creation, or without a name (`O_TMPFILE`).

use crate::access::{READ, WRITE};
use crate::table::{Open, inode_of};
use crate::walk::{CHANGES_ANY, End, Folder, Last, Place, Spot};
use crate::ways::Way;
use crate::{Base, Errno, Process, Said, Who};
use client::Given;
use placement::FileId;
use rustix::fs::OFlags;
use rustix::thread::CapabilitySet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use wire::{Attributes, Kind as Node, Mode, Needs, NewInode, NewKind, OpenFlags, Owner, Refusal, Wish};

/// Attempts to open a name that appears or disappears meanwhile.
const TRIES: u32 = 16;
/// Permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Descriptor of the file's extent: the kernel reads and writes its bytes.
    Local,
    /// Placeholder for a file: its bytes are read and written by requests, its offset is kept by
    /// the kernel.
    Remote,
    /// Placeholder for a directory.
    Folder,
    /// Location alone (`O_PATH`), of any kind of file.
    Place,
}

/// Result of open(2).
#[derive(Debug)]
pub enum Opening {
    /// Descriptor of a file of the pool.
    Pool(OwnedFd, Kind),
    /// Path of the host, reached through a symlink or standing for a fifo. The kernel opens it, and
    /// may block.
    Host(CString),
}

/// Result of one attempt to open a name.
enum Found {
    Opened(Given),
    /// Fifo, with the path of the kernel's fifo behind it.
    Fifo(CString),
    /// The name appeared or disappeared meanwhile: retry.
    Again,
}

impl Process {
    /// open(2).
    ///
    /// # Errors
    /// As open(2); `ENXIO` for sockets and devices, and for fifos if no node is on this host.
    pub fn open(&self, said: Said<'_>, flags: OFlags, mode: u32) -> Result<Opening, Errno> {
        let who = Who::now();
        if flags.contains(OFlags::PATH) {
            return self.open_path(&who, said, flags);
        }
        if flags.contains(OFlags::TMPFILE) {
            return self.open_unnamed(&who, said, flags, mode);
        }
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        self.wait(async {
            if let Some((given, names)) = self.open_there(&who, said, flags, mode).await? {
                return self.keep(given, names, flags);
            }
            for _ in 0..TRIES {
                let end = match flags {
                    _ if flags.contains(OFlags::CREATE | OFlags::EXCL) => self.to_name(&who),
                    _ if flags.contains(OFlags::NOFOLLOW) => End::Look,
                    // Refused later because of the slash, so a symlink need not be followed.
                    _ if flags.contains(OFlags::CREATE) && said.path.ends_with(b"/") => self.to_name(&who),
                    _ => End::Follow,
                };
                let spot = match self.walk(&who, said, end).await? {
                    Place::Pool(spot) => spot,
                    Place::Host(path) => return Ok(Opening::Host(path)),
                };
                let names = spot.names();
                match self.open_spot(&who, spot, flags, mode).await? {
                    Found::Opened(given) => return self.keep(given, names, flags),
                    Found::Fifo(path) => return Ok(Opening::Host(path)),
                    Found::Again => {}
                }
            }
            Err(Errno::AGAIN)
        })
    }

    /// Opens the file at a resolved path, or creates it.
    async fn open_spot(&self, who: &Who, spot: Spot, flags: OFlags, mode: u32) -> Result<Found, Errno> {
        let making = flags.contains(OFlags::CREATE);
        if making && spot.slash && matches!(spot.last, Last::Name(_)) {
            return Err(Errno::ISDIR);
        }
        let Some(found) = spot.found else {
            if making && flags.contains(OFlags::EXCL) && !matches!(spot.last, Last::Name(_)) {
                return Err(Errno::EXIST);
            }
            if !making {
                return Err(Errno::NOENT);
            }
            return self.make(who, &spot, flags, mode).await;
        };
        if making && flags.contains(OFlags::EXCL) {
            return Err(Errno::EXIST);
        }
        if making && found.kind == Node::Directory {
            return Err(Errno::ISDIR);
        }
        spot.there()?;
        self.may_open(who, &found, flags).await?;
        if found.kind == Node::Fifo {
            return self.fifo(found.file).map(Found::Fifo);
        }
        match self.opened(found.file, pool_flags(who, flags)).await {
            Ok(given) => Ok(Found::Opened(given)),
            Err(Refusal::NotFound(_)) => Ok(Found::Again),
            Err(refusal) => Err(crate::errno(&refusal)),
        }
    }

    /// Makes the checks of open(2) on an existing file.
    async fn may_open(&self, who: &Who, found: &Attributes, flags: OFlags) -> Result<(), Errno> {
        let pool_flags = pool_flags(who, flags);
        match found.kind {
            Node::Symlink if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            Node::Symlink => return Err(Errno::LOOP),
            Node::Directory if pool_flags.write || pool_flags.truncate => return Err(Errno::ISDIR),
            Node::Directory => {}
            _ if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            Node::File | Node::Fifo => {}
            _ => return Err(Errno::NXIO),
        }
        let wants =
            if pool_flags.read { READ } else { 0 } | if pool_flags.write || pool_flags.truncate { WRITE } else { 0 };
        self.walker(who).may(found, wants).await?;
        if flags.contains(OFlags::NOATIME) && !crate::access::owns(found, who) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    async fn make(&self, who: &Who, spot: &Spot, flags: OFlags, mode: u32) -> Result<Found, Errno> {
        self.walker(who).may_change(&spot.folder).await?;
        let name = spot.name(Errno::ISDIR, Errno::ISDIR)?;
        let (inode, folder) = (NewInode::new(NewKind::File, self.mode(mode), owner(who)), spot.folder.file);
        let made = self.client.with_descriptor(pool_flags(who, flags), |client| {
            let inode = inode.clone();
            async move { client.create(folder, name, inode, true, Wish::Wanted).await }
        });
        match made.await {
            Ok(given) => Ok(Found::Opened(given)),
            Err(Refusal::Exists(_)) if !flags.contains(OFlags::EXCL) => Ok(Found::Again),
            Err(refusal) => Err(crate::errno(&refusal)),
        }
    }

    /// Opens a file, or creates it, with one message each, if the path cache knows its directory.
    /// Returns the open and the names that lead to it; `None` if the cache has no valid entry or
    /// the path must be resolved step by step.
    async fn open_there(
        &self,
        who: &Who,
        said: Said<'_>,
        flags: OFlags,
        mode: u32,
    ) -> Result<Option<(Given, Vec<Vec<u8>>)>, Errno> {
        let Some((start, way, directory)) = self.way_there(said)? else { return Ok(None) };
        let (making, alone) = (flags.contains(OFlags::CREATE), flags.contains(OFlags::CREATE | OFlags::EXCL));
        let opened = if alone { Err(Errno::NOENT) } else { self.open_at((&way, directory), who, flags).await };
        let given = match opened {
            Err(Errno::NOENT) if making => {
                let made = self.make_at((&way, directory), who, flags, mode).await?;
                if made.is_none() {
                    self.ways.forget(&way); // the entry may be stale, and no other code would notice
                }
                made
            }
            opened => opened?,
        };
        let last = way.last.as_bytes().to_vec();
        Ok(given.map(|given| (given, start.names.into_iter().chain(way.folders()).chain([last]).collect())))
    }

    /// Returns the start directory, the cache key and the cached directory of a path.
    pub(crate) fn way_there(&self, said: Said<'_>) -> Result<Option<(Folder, Way, FileId)>, Errno> {
        if matches!(said.base, Base::Magic(_)) || said.path.is_empty() || self.is_too_long(said) {
            return Ok(None);
        }
        let start = self.start(said.base)?;
        let way = Way::of(start.file, said.path).filter(|way| !way.slash);
        Ok(way.and_then(|way| self.ways.known(&way).map(|directory| (start, way, directory))))
    }

    async fn open_at(
        &self,
        (way, directory): (&Way, FileId),
        who: &Who,
        flags: OFlags,
    ) -> Result<Option<Given>, Errno> {
        const FREE: CapabilitySet = CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE);
        let looks = flags.intersects(OFlags::NOATIME | OFlags::DIRECTORY);
        let Some(going) = who.going(Needs::Pass, FREE).filter(|_| !looks) else { return Ok(None) };
        let (wanted, going) = (pool_flags(who, flags), &going);
        let opened = self.client.with_descriptor_if(wanted, |client| async move {
            client.open_below(way.below(directory, going), &way.last, wanted).await
        });
        opened.await.map_err(|refusal| crate::errno(&refusal))
    }

    async fn make_at(
        &self,
        (way, directory): (&Way, FileId),
        who: &Who,
        flags: OFlags,
        mode: u32,
    ) -> Result<Option<Given>, Errno> {
        let Some(going) = who.going(Needs::Make, CHANGES_ANY) else { return Ok(None) };
        let (inode, going) = (NewInode::new(NewKind::File, self.mode(mode), owner(who)), &going);
        let made = self.client.with_descriptor_if(pool_flags(who, flags), |client| {
            let inode = inode.clone();
            async move { client.create_below(way.below(directory, going), &way.last, inode).await }
        });
        match made.await {
            // The file was created meanwhile, and is opened by the slow path.
            Err(Refusal::Exists(_)) if !flags.contains(OFlags::EXCL) => Ok(None),
            made => made.map_err(|refusal| crate::errno(&refusal)),
        }
    }

    /// Creates an unnamed file in the given directory (`O_TMPFILE`).
    fn open_unnamed(&self, who: &Who, said: Said<'_>, flags: OFlags, mode: u32) -> Result<Opening, Errno> {
        let pool_flags = pool_flags(who, flags);
        if !pool_flags.write {
            return Err(Errno::INVAL);
        }
        self.wait(async {
            let spot = match self.walk(who, said, End::Follow).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => return Ok(Opening::Host(path)),
            };
            let found = *spot.there()?;
            if found.kind != Node::Directory {
                return Err(Errno::NOTDIR);
            }
            self.walker(who).may(&found, WRITE | crate::RUN).await?;
            let inode = NewInode::new(NewKind::File, self.mode(mode), owner(who));
            let linkable = !flags.contains(OFlags::EXCL);
            let made = self.client.with_descriptor(pool_flags, |client| {
                let inode = inode.clone();
                async move { client.create_unnamed(found.file, None, inode, linkable).await }
            });
            let given = made.await.map_err(|refusal| crate::errno(&refusal))?;
            self.keep(given, spot.names(), flags)
        })
    }

    /// Opens a location (`O_PATH`), of any kind of file. Its descriptor gives no access to bytes.
    fn open_path(&self, who: &Who, said: Said<'_>, flags: OFlags) -> Result<Opening, Errno> {
        self.wait(async {
            let spot = match self
                .walk(who, said, if flags.contains(OFlags::NOFOLLOW) { End::Look } else { End::Follow })
                .await?
            {
                Place::Pool(spot) => spot,
                Place::Host(path) => return Ok(Opening::Host(path)),
            };
            let found = *spot.there()?;
            if flags.contains(OFlags::DIRECTORY) && found.kind != Node::Directory {
                return Err(Errno::NOTDIR);
            }
            let given = self.opened(found.file, OpenFlags::default()).await;
            self.keep(given.map_err(|refusal| crate::errno(&refusal))?, spot.names(), flags)
        })
    }

    /// Opens a file or directory, with a descriptor for it.
    fn opened(&self, file: FileId, flags: OpenFlags) -> impl Future<Output = Result<Given, Refusal>> {
        self.client.with_descriptor(flags, move |client| async move {
            if flags.whole { client.open_for_program(file, flags).await } else { client.open(file, flags).await }
        })
    }

    /// Opens a file by its id, and obtains a descriptor for it.
    pub(crate) async fn obtained(
        &self,
        file: FileId,
        flags: OpenFlags,
        names: Vec<Vec<u8>>,
    ) -> Result<(Arc<Open>, OwnedFd), Errno> {
        let given = self.opened(file, flags).await;
        noted(given.map_err(|refusal| crate::errno(&refusal))?, names)
    }

    /// Records the open under its descriptor's number.
    fn keep(&self, given: Given, names: Vec<Vec<u8>>, flags: OFlags) -> Result<Opening, Errno> {
        use rustix::io::{FdFlags, fcntl_setfd};
        let (open, descriptor) = noted(given, names)?;
        // The descriptor arrives with close-on-exec set.
        if !flags.contains(OFlags::CLOEXEC) {
            fcntl_setfd(&descriptor, FdFlags::empty())?;
        }
        let kind = open.shown();
        self.table.add(crate::process::number(&descriptor), open);
        Ok(Opening::Pool(descriptor, kind))
    }

    pub(crate) fn mode(&self, mode: u32) -> Mode {
        Mode { bits: mode & PERMISSIONS, umask: self.umask() }
    }
}

/// Makes the table entry of a descriptor.
fn noted(Given { descriptor, marked, .. }: Given, names: Vec<Vec<u8>>) -> Result<(Arc<Open>, OwnedFd), Errno> {
    let inode = inode_of(descriptor.as_fd()).ok_or(Errno::BADF)?;
    Ok((Arc::new(Open::new(&marked, names, inode)), descriptor))
}

/// Returns the owner of a new file.
pub(crate) fn owner(who: &Who) -> Owner {
    Owner { uid: who.uid, gid: who.gid }
}

/// Converts the flags of open(2) to those of the pool.
fn pool_flags(who: &Who, flags: OFlags) -> OpenFlags {
    let way = flags & OFlags::RWMODE;
    OpenFlags {
        read: way != OFlags::WRONLY,
        write: way == OFlags::WRONLY || way == OFlags::RDWR,
        append: flags.contains(OFlags::APPEND),
        truncate: flags.contains(OFlags::TRUNC),
        exclusive: flags.contains(OFlags::EXCL),
        whole: true,
        kill_set_id: flags.contains(OFlags::TRUNC) && !who.can(CapabilitySet::FSETID),
    }
}
