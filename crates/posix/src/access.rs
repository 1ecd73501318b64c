//! Permission checks by mode, owner, ACL and capabilities, as the kernel makes them for a mount.
//! They prevent mistakes and are no security boundary: any process that has the pool's token may do
//! everything.

use crate::Caller;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
pub use wire::credentials::{EXECUTE, READ, WRITE};
use wire::{Attributes, Kind, SET_GROUP_ID, credentials::STICKY};

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
    let bits = match acl.and_then(|acl| acl_bits(acl, file, caller, wants)) {
        Some(bits) => bits,
        None if caller.is_in(file.owner.gid) => (file.mode >> 3) & 7,
        None => file.mode & 7,
    };
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

/// Returns the bits that an ACL grants a user (acl(5), "access check algorithm"), or `None` if the
/// ACL cannot be decoded.
fn acl_bits(acl: &[u8], file: &Attributes, caller: &Caller, wants: u32) -> Option<u32> {
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    let entries = acl.strip_prefix(&VERSION)?;
    let entries = || {
        entries.chunks_exact(8).map(|entry| {
            let short = |at: usize| u32::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
            (short(0), short(2), u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]))
        })
    };
    let of_tag = |wanted: u32| entries().find(|(tag, ..)| *tag == wanted).map(|(_, bits, _)| bits);
    let mask = of_tag(0x10).unwrap_or(7);
    if let Some((_, bits, _)) = entries().find(|(tag, _, id)| *tag == 0x02 && *id == caller.uid) {
        return Some(bits & mask);
    }
    let mut groups = entries().filter(|(tag, _, id)| match tag {
        0x04 => caller.is_in(file.owner.gid),
        0x08 => caller.is_in(*id),
        _ => false,
    });
    let first = groups.next();
    match first {
        None => of_tag(0x20),
        // A single group entry must grant all of `wants`.
        Some(first) => std::iter::once(first)
            .chain(groups)
            .map(|(_, bits, _)| bits & mask)
            .find(|bits| bits & wants == wants)
            .or(Some(0)),
    }
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
