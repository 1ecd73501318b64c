//! Extended attributes, including ACLs, and the permissions to read and set them (xattr(7)).

use crate::access::{READ, WRITE, is_owner};
use crate::resolve::{Destination, LastMode};
use crate::{Caller, Errno, PathArg, PosixProcess};
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
pub enum XattrTarget<'a> {
    /// File at the end of a path.
    Path {
        /// The path.
        arg: PathArg<'a>,
        /// True if a symlink at the end is followed.
        follow: bool,
    },
    /// Open file.
    Descriptor(BorrowedFd<'a>),
}

impl PosixProcess {
    /// getxattr(2).
    ///
    /// # Errors
    /// As getxattr(2), except `ERANGE`: the whole value is returned.
    pub fn xattr(&self, target: XattrTarget<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check_name(name)?;
        let caller = Caller::effective();
        self.wait(async {
            let found = self.xattr_target(&caller, target).await?;
            if name.starts_with(b"user.") {
                if !matches!(found.kind, Kind::File | Kind::Directory) {
                    return Err(Errno::NODATA);
                }
                self.resolver(&caller).check_access(&found, READ).await?;
            } else if name.starts_with(b"trusted.") && !caller.can(CapabilitySet::SYS_ADMIN) {
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
    pub fn xattrs(&self, target: XattrTarget<'_>) -> Result<Vec<u8>, Errno> {
        let caller = Caller::effective();
        self.wait(async {
            let found = self.xattr_target(&caller, target).await?;
            let names = self.client.xattrs(found.file).await.map_err(|refusal| crate::errno(&refusal))?;
            let trusted = caller.can(CapabilitySet::SYS_ADMIN);
            let shown = names.iter().filter(|name| trusted || !name.starts_with(b"trusted."));
            Ok(shown.flat_map(|name| name.iter().copied().chain([0])).collect())
        })
    }

    /// setxattr(2).
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(
        &self,
        target: XattrTarget<'_>,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        check_name(name)?;
        if is_acl(name) && is_empty_acl(value) {
            let removed = self.remove_xattr(target, name);
            return if removed == Err(Errno::NODATA) { Ok(()) } else { removed };
        }
        let mode = match flags {
            XattrFlags::CREATE => XattrMode::Create,
            XattrFlags::REPLACE => XattrMode::Replace,
            _ if flags.is_empty() => XattrMode::Set,
            _ if flags == XattrFlags::CREATE | XattrFlags::REPLACE => {
                // The attribute must both exist and not exist, so the call fails either way.
                return self.xattr(target, name).and(Err(Errno::EXIST));
            }
            _ => return Err(Errno::INVAL),
        };
        let caller = Caller::effective();
        self.wait(async {
            let found = self.xattr_target(&caller, target).await?;
            self.check_set(&caller, &found, name).await?;
            let kill = !caller.is_in(found.owner.gid) && !caller.can(CapabilitySet::FSETID);
            let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            self.client.set_xattr(found.file, name, value, mode, kill).await.map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// removexattr(2).
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, target: XattrTarget<'_>, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let caller = Caller::effective();
        self.wait(async {
            let found = self.xattr_target(&caller, target).await?;
            self.check_set(&caller, &found, name).await?;
            let removed = self.client.remove_xattr(found.file, Bytes::copy_from_slice(name)).await;
            removed.map_err(|refusal| crate::errno(&refusal))
        })
    }

    async fn check_set(&self, caller: &Caller, found: &Attributes, name: &[u8]) -> Result<(), Errno> {
        if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
            return if caller.can(CapabilitySet::SYS_ADMIN) { Ok(()) } else { Err(Errno::PERM) };
        }
        if is_acl(name) {
            return if is_owner(found, caller) { Ok(()) } else { Err(Errno::PERM) };
        }
        if !matches!(found.kind, Kind::File | Kind::Directory) {
            return Err(Errno::PERM);
        }
        if found.kind == Kind::Directory && found.mode & STICKY != 0 && !is_owner(found, caller) {
            return Err(Errno::PERM);
        }
        self.resolver(caller).check_access(found, WRITE).await
    }

    async fn xattr_target(&self, caller: &Caller, target: XattrTarget<'_>) -> Result<Attributes, Errno> {
        match target {
            XattrTarget::Descriptor(descriptor) => {
                self.check_not_path_only(descriptor)?;
                self.stat_open(descriptor).await
            }
            XattrTarget::Path { arg, follow } => {
                match self.resolve(caller, arg, if follow { LastMode::Follow } else { LastMode::NoFollow }).await? {
                    Destination::Pool(resolved) => resolved.existing().copied(),
                    // Attributes of a file outside the pool are not accessible through a symlink of
                    // the pool.
                    Destination::Host(_) => Err(Errno::OPNOTSUPP),
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
fn is_empty_acl(value: &[u8]) -> bool {
    value.is_empty() || value == ACL_VERSION
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(Errno::RANGE) } else { Ok(()) }
}
