//! What a user may do, by mode, owner, ACL and capabilities: what the kernel checks for a mount. It is a help against mistakes, no guard: who has the pool's
//! token may do all.

use crate::Who;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
pub use wire::credentials::{READ, RUN, WRITE};
use wire::{Attributes, Kind, SET_GROUP_ID, credentials::STICKY};

/// What is to be looked at to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not, whatever an ACL says.
    Denied,
    /// It depends on its access ACL, if it has one.
    ByAcl,
}

/// Whether a user may do all of `wants` (bits of [`READ`], [`WRITE`], [`RUN`]), as far as it is seen without an ACL
/// (`path_resolution(7)`, `acl(5)`).
pub fn judge(of: &Attributes, who: &Who, wants: u32) -> Verdict {
    if wants == 0 {
        return Verdict::Allowed;
    }
    if who.uid == of.owner.uid {
        return decided(of, who, wants, (of.mode >> 6) & 7);
    }
    let (group, others) = ((of.mode >> 3) & 7, of.mode & 7);
    if overrides(of, who, wants) {
        return Verdict::Allowed;
    }
    // An ACL gives nobody more than the group's bits, which are its mask, or than the others' bits.
    if (group | others) & wants != wants {
        return Verdict::Denied;
    }
    Verdict::ByAcl
}

/// The same for whom [`judge`] left to the ACL; `acl` is its value as the kernel encodes it, none where there is none.
pub fn judge_by(of: &Attributes, acl: Option<&[u8]>, who: &Who, wants: u32) -> bool {
    let bits = match acl.and_then(|acl| acl_bits(acl, of, who, wants)) {
        Some(bits) => bits,
        None if who.is_in(of.owner.gid) => (of.mode >> 3) & 7,
        None => of.mode & 7,
    };
    bits & wants == wants
}

fn decided(of: &Attributes, who: &Who, wants: u32, bits: u32) -> Verdict {
    if bits & wants == wants || overrides(of, who, wants) { Verdict::Allowed } else { Verdict::Denied }
}

/// Whether capabilities allow what the bits do not.
fn overrides(of: &Attributes, who: &Who, wants: u32) -> bool {
    let directory = of.kind == Kind::Directory;
    let reads = if directory { READ | RUN } else { READ };
    if wants & !reads == 0 && who.can(CapabilitySet::DAC_READ_SEARCH) {
        return true;
    }
    // Nobody runs what nobody may run.
    let runs = wants & RUN != 0 && !directory && of.mode & 0o111 == 0;
    !runs && who.can(CapabilitySet::DAC_OVERRIDE)
}

/// What an ACL gives a user (acl(5), "access check algorithm"); none for an ACL that cannot be read.
fn acl_bits(acl: &[u8], of: &Attributes, who: &Who, wants: u32) -> Option<u32> {
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
    if let Some((_, bits, _)) = entries().find(|(tag, _, id)| *tag == 0x02 && *id == who.uid) {
        return Some(bits & mask);
    }
    let mut groups = entries().filter(|(tag, _, id)| match tag {
        0x04 => who.is_in(of.owner.gid),
        0x08 => who.is_in(*id),
        _ => false,
    });
    let first = groups.next();
    match first {
        None => of_tag(0x20),
        // One group must allow it all.
        Some(first) => std::iter::once(first)
            .chain(groups)
            .map(|(_, bits, _)| bits & mask)
            .find(|bits| bits & wants == wants)
            .or(Some(0)),
    }
}

/// Whether an entry of a directory may be removed or renamed by who may write the directory: in one with the sticky bit, by its owner and the entry's. Of
/// whom nothing keeps, neither needs to be looked at.
pub fn may_remove(directory: Option<&Attributes>, entry: Option<&Attributes>, who: &Who) -> Result<(), Errno> {
    let Some((directory, entry)) = directory.zip(entry) else { return Ok(()) };
    let free = directory.mode & STICKY == 0 || who.uid == entry.owner.uid || who.uid == directory.owner.uid;
    if free || who.can(CapabilitySet::FOWNER) { Ok(()) } else { Err(Errno::PERM) }
}

/// Whether it is the owner, or one who acts as such.
pub fn owns(of: &Attributes, who: &Who) -> bool {
    who.uid == of.owner.uid || who.can(CapabilitySet::FOWNER)
}

/// The mode that chmod(2) sets: without the set-group-id bit, where the group is another's.
///
/// # Errors
/// `EPERM` for who does not own it.
pub fn new_mode(of: &Attributes, who: &Who, mode: u32) -> Result<u32, Errno> {
    if !owns(of, who) {
        return Err(Errno::PERM);
    }
    let keeps = who.is_in(of.owner.gid) || who.can(CapabilitySet::FSETID);
    Ok(mode & 0o7777 & if keeps { !0 } else { !SET_GROUP_ID })
}

/// Whether chown(2) may give it to these.
pub fn may_give(of: &Attributes, who: &Who, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    if who.can(CapabilitySet::CHOWN) {
        return Ok(());
    }
    let owner = who.uid == of.owner.uid;
    let user_stays = uid.is_none_or(|uid| owner && uid == of.owner.uid);
    let own_group = gid.is_none_or(|gid| owner && (gid == of.owner.gid || who.is_in(gid)));
    if user_stays && own_group { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
#[path = "access_test.rs"]
mod access_test;
