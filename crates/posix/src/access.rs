//! Permission checks by mode, owner, ACL and capabilities, as the kernel makes them for a mount.
//! They prevent mistakes and are no security boundary: any process that has the pool's token may do
//! everything.

use crate::Caller;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
pub use wire::credentials::{EXECUTE, READ, WRITE};
use wire::{Acl, Attributes, Kind, SET_GROUP_ID, credentials::STICKY};

/// Result of a permission check that has not read the ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    /// Permitted.
    Allowed,
    /// Denied, whatever an ACL says.
    Denied,
    /// Decided by the access ACL if the file has one, else by the mode.
    ByAcl,
}

/// Checks whether a user may do all of `wants` (bits of [`READ`], [`WRITE`], [`EXECUTE`]), without
/// reading an ACL (`path_resolution(7)`, `acl(5)`).
pub fn check_mode(file: &Attributes, caller: &Caller, wants: u32) -> AccessDecision {
    if wants == 0 {
        return AccessDecision::Allowed;
    }
    if caller.uid == file.owner.uid {
        return decide(file, caller, wants, (file.mode >> 6) & 7);
    }
    let (group, others) = ((file.mode >> 3) & 7, file.mode & 7);
    if overrides(file, caller, wants) {
        return AccessDecision::Allowed;
    }
    // An ACL grants no more than its mask, which is the mode's group bits, or than the others'
    // bits.
    if (group | others) & wants != wants {
        return AccessDecision::Denied;
    }
    AccessDecision::ByAcl
}

/// Decides a check that [`check_mode`] left to the ACL. `acl` is the ACL in the kernel's encoding,
/// `None` if the file has none.
pub fn check_acl(file: &Attributes, acl: Option<&[u8]>, caller: &Caller, wants: u32) -> bool {
    if let Some(acl) = acl.and_then(|acl| Acl::decode(acl).ok().flatten()) {
        return acl.grants(caller.uid, |group| caller.is_in(group), file.owner.gid, wants);
    }
    let bits = if caller.is_in(file.owner.gid) { file.mode >> 3 } else { file.mode };
    bits & wants == wants
}

fn decide(file: &Attributes, caller: &Caller, wants: u32, bits: u32) -> AccessDecision {
    if bits & wants == wants || overrides(file, caller, wants) {
        AccessDecision::Allowed
    } else {
        AccessDecision::Denied
    }
}

/// Returns whether capabilities permit an access that the mode bits deny.
fn overrides(file: &Attributes, caller: &Caller, wants: u32) -> bool {
    let directory = file.kind == Kind::Directory;
    let reads = if directory { READ | EXECUTE } else { READ };
    if wants & !reads == 0 && caller.can(CapabilitySet::DAC_READ_SEARCH) {
        return true;
    }
    // No capability permits running a file that has no execute bit at all.
    let runs = wants & EXECUTE != 0 && !directory && file.mode & 0o111 == 0;
    !runs && caller.can(CapabilitySet::DAC_OVERRIDE)
}

/// Checks whether a user who may write a directory may remove or rename an entry of it. In a
/// directory with the sticky bit only the directory's owner and the entry's owner may. `None`
/// attributes mean that the caller's capabilities make the check unnecessary.
pub fn check_sticky(directory: Option<&Attributes>, entry: Option<&Attributes>, caller: &Caller) -> Result<(), Errno> {
    let Some((directory, entry)) = directory.zip(entry) else { return Ok(()) };
    let free = directory.mode & STICKY == 0 || caller.uid == entry.owner.uid || caller.uid == directory.owner.uid;
    if free || caller.can(CapabilitySet::FOWNER) { Ok(()) } else { Err(Errno::PERM) }
}

/// Returns whether the user owns the file or has `CAP_FOWNER`.
pub fn is_owner(file: &Attributes, caller: &Caller) -> bool {
    caller.uid == file.owner.uid || caller.can(CapabilitySet::FOWNER)
}

/// Returns the mode that chmod(2) sets. The set-group-id bit is cleared if the user is not in the
/// file's group and lacks `CAP_FSETID`.
///
/// # Errors
/// `EPERM` if the user does not own the file.
pub fn new_mode(file: &Attributes, caller: &Caller, mode: u32) -> Result<u32, Errno> {
    if !is_owner(file, caller) {
        return Err(Errno::PERM);
    }
    let keeps = caller.is_in(file.owner.gid) || caller.can(CapabilitySet::FSETID);
    Ok(mode & 0o7777 & if keeps { !0 } else { !SET_GROUP_ID })
}

/// Checks whether chown(2) may set this owner and group.
pub fn check_chown(file: &Attributes, caller: &Caller, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    if caller.can(CapabilitySet::CHOWN) {
        return Ok(());
    }
    let owner = caller.uid == file.owner.uid;
    let user_stays = uid.is_none_or(|uid| owner && uid == file.owner.uid);
    let own_group = gid.is_none_or(|gid| owner && (gid == file.owner.gid || caller.is_in(gid)));
    if user_stays && own_group { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
#[path = "access_test.rs"]
mod access_test;
