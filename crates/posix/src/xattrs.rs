//! Extended attributes, including ACLs, and the permissions to read and set them (xattr(7)).

use crate::access::{READ, WRITE, owns};
use crate::walk::{End, Place};
use crate::{Errno, Process, Said, Who};
use bytes::Bytes;
use rustix::fs::XattrFlags;
use rustix::thread::CapabilitySet;
use std::os::fd::BorrowedFd;
use wire::credentials::STICKY;
use wire::{Attributes, Kind, XattrMode};

const NAME_BYTES_MAX: usize = 255;
/// First bytes of an encoded ACL.
const ACL_VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// File that a call refers to.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    /// File at the end of a path.
    Path {
        /// The path.
        said: Said<'a>,
        /// True if a symlink at the end is followed.
        follow: bool,
    },
    /// Open file.
    Descriptor(BorrowedFd<'a>),
}

impl Process {
    /// getxattr(2).
    ///
    /// # Errors
    /// As getxattr(2), except `ERANGE`: the whole value is returned.
    pub fn xattr(&self, whose: Whose<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check(name)?;
        let who = Who::now();
        self.wait(async {
            let found = self.meant_by(&who, whose).await?;
            if name.starts_with(b"user.") {
                if !matches!(found.kind, Kind::File | Kind::Directory) {
                    return Err(Errno::NODATA);
                }
                self.walker(&who).may(&found, READ).await?;
            } else if name.starts_with(b"trusted.") && !who.can(CapabilitySet::SYS_ADMIN) {
                return Err(Errno::NODATA);
            }
            let value = self.client.xattr(found.file, Bytes::copy_from_slice(name)).await;
            value.map(Into::into).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// listxattr(2): the names, each with its terminating nul.
    ///
    /// # Errors
    /// As listxattr(2), except `ERANGE`.
    pub fn xattrs(&self, whose: Whose<'_>) -> Result<Vec<u8>, Errno> {
        let who = Who::now();
        self.wait(async {
            let found = self.meant_by(&who, whose).await?;
            let names = self.client.xattrs(found.file).await.map_err(|refusal| crate::errno(&refusal))?;
            let trusted = who.can(CapabilitySet::SYS_ADMIN);
            let shown = names.iter().filter(|name| trusted || !name.starts_with(b"trusted."));
            Ok(shown.flat_map(|name| name.iter().copied().chain([0])).collect())
        })
    }

    /// setxattr(2).
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(&self, whose: Whose<'_>, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        check(name)?;
        if is_acl(name) && removes(value) {
            let removed = self.remove_xattr(whose, name);
            return if removed == Err(Errno::NODATA) { Ok(()) } else { removed };
        }
        let mode = match flags {
            XattrFlags::CREATE => XattrMode::Create,
            XattrFlags::REPLACE => XattrMode::Replace,
            _ if flags.is_empty() => XattrMode::Set,
            _ if flags == XattrFlags::CREATE | XattrFlags::REPLACE => {
                // The attribute must both exist and not exist, so the call fails either way.
                return self.xattr(whose, name).and(Err(Errno::EXIST));
            }
            _ => return Err(Errno::INVAL),
        };
        let who = Who::now();
        self.wait(async {
            let found = self.meant_by(&who, whose).await?;
            self.may_set(&who, &found, name).await?;
            let kill = !who.is_in(found.owner.gid) && !who.can(CapabilitySet::FSETID);
            let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            self.client.set_xattr(found.file, name, value, mode, kill).await.map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// removexattr(2).
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, whose: Whose<'_>, name: &[u8]) -> Result<(), Errno> {
        check(name)?;
        let who = Who::now();
        self.wait(async {
            let found = self.meant_by(&who, whose).await?;
            self.may_set(&who, &found, name).await?;
            let removed = self.client.remove_xattr(found.file, Bytes::copy_from_slice(name)).await;
            removed.map_err(|refusal| crate::errno(&refusal))
        })
    }

    async fn may_set(&self, who: &Who, found: &Attributes, name: &[u8]) -> Result<(), Errno> {
        if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
            return if who.can(CapabilitySet::SYS_ADMIN) { Ok(()) } else { Err(Errno::PERM) };
        }
        if is_acl(name) {
            return if owns(found, who) { Ok(()) } else { Err(Errno::PERM) };
        }
        if !matches!(found.kind, Kind::File | Kind::Directory) {
            return Err(Errno::PERM);
        }
        if found.kind == Kind::Directory && found.mode & STICKY != 0 && !owns(found, who) {
            return Err(Errno::PERM);
        }
        self.walker(who).may(found, WRITE).await
    }

    async fn meant_by(&self, who: &Who, whose: Whose<'_>) -> Result<Attributes, Errno> {
        match whose {
            Whose::Descriptor(descriptor) => {
                self.reaches(descriptor)?;
                self.stat_open(descriptor).await
            }
            Whose::Path { said, follow } => {
                match self.walk(who, said, if follow { End::Follow } else { End::Look }).await? {
                    Place::Pool(spot) => spot.there().copied(),
                    // Attributes of a file outside the pool are not accessible through a symlink of
                    // the pool.
                    Place::Host(_) => Err(Errno::OPNOTSUPP),
                }
            }
        }
    }
}

fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

/// Returns whether a value is an ACL without entries. Setting one removes the ACL, as in the
/// kernel; acl(5) has no empty ACL.
fn removes(value: &[u8]) -> bool {
    value.is_empty() || value == ACL_VERSION
}

fn check(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(Errno::RANGE) } else { Ok(()) }
}
