//! Files that are opened: by name, made, or without a name.

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

/// A name that comes and goes while it is opened is tried so often.
const TRIES: u32 = 16;
/// The permissions among a mode's bits.
const PERMISSIONS: u32 = 0o7777;

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of the file's extent: its bytes are the kernel's business.
    Local,
    /// It stands in for a file: its bytes are asked for, its offset is the kernel's.
    Remote,
    /// It stands in for a folder.
    Folder,
    /// A place alone (`O_PATH`), of whatever kind.
    Place,
}

/// What open(2) brought.
#[derive(Debug)]
pub enum Opening {
    /// Something of the pool.
    Pool(OwnedFd, Kind),
    /// A path of the host, where a link led, or of a fifo: the system opens it, and may wait.
    Host(CString),
}

/// What to do with a name that was looked up.
enum Found {
    Opened(Given),
    /// A fifo, which the system has at this path.
    Fifo(CString),
    /// It came or went meanwhile.
    Again,
}

impl Process {
    /// open(2).
    ///
    /// # Errors
    /// As open(2); `ENXIO` for sockets and devices, and for fifos where no node is on this host.
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
                    // Refused, wherever a link leads.
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

    /// Opens what is at a spot, or makes it.
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

    /// What open(2) checks of what is there.
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

    /// Opens what is in a folder that was walked to before, or makes it there, in one message each; none where that is not known, not so any more, or
    /// to be looked at more closely. With it go its names.
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
                    self.ways.forget(&way); // perhaps, and nobody else would find that out
                }
                made
            }
            opened => opened?,
        };
        let last = way.last.as_bytes().to_vec();
        Ok(given.map(|given| (given, start.names.into_iter().chain(way.folders()).chain([last]).collect())))
    }

    /// Where a way leads that was walked before, and where it begins.
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
            // It has come meanwhile, and may be opened.
            Err(Refusal::Exists(_)) if !flags.contains(OFlags::EXCL) => Ok(None),
            made => made.map_err(|refusal| crate::errno(&refusal)),
        }
    }

    /// A file without a name, in the folder that is said (`O_TMPFILE`).
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

    /// `O_PATH`: a place, of whatever kind, whose bytes nobody gets by it.
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

    /// Opens a file or a folder, with its descriptor.
    fn opened(&self, file: FileId, flags: OpenFlags) -> impl Future<Output = Result<Given, Refusal>> {
        self.client.with_descriptor(flags, move |client| async move {
            if flags.whole { client.open_for_program(file, flags).await } else { client.open(file, flags).await }
        })
    }

    /// Opens a file by its number, and gets a descriptor for it.
    pub(crate) async fn obtained(
        &self,
        file: FileId,
        flags: OpenFlags,
        names: Vec<Vec<u8>>,
    ) -> Result<(Arc<Open>, OwnedFd), Errno> {
        let given = self.opened(file, flags).await;
        noted(given.map_err(|refusal| crate::errno(&refusal))?, names)
    }

    /// Notes what was opened, under its descriptor's number.
    fn keep(&self, given: Given, names: Vec<Vec<u8>>, flags: OFlags) -> Result<Opening, Errno> {
        use rustix::io::{FdFlags, fcntl_setfd};
        let (open, descriptor) = noted(given, names)?;
        // It has come closed on exec.
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

/// What is to be known of a descriptor.
fn noted(Given { descriptor, marked, .. }: Given, names: Vec<Vec<u8>>) -> Result<(Arc<Open>, OwnedFd), Errno> {
    let inode = inode_of(descriptor.as_fd()).ok_or(Errno::BADF)?;
    Ok((Arc::new(Open::new(&marked, names, inode)), descriptor))
}

/// Whose something new is.
pub(crate) fn owner(who: &Who) -> Owner {
    Owner { uid: who.uid, gid: who.gid }
}

/// The flags of open(2) that matter to the pool.
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
