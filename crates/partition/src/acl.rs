//! Group, permissions and placement of new inodes. An inode starts with its directory's default
//! ACL, in place of the umask.

use bytes::Bytes;
use wire::{Acl, Acls, InheritedAttributes, Mode, NewInode, NewKind, Owner, SET_GROUP_ID};

/// The permission bits of all classes.
const ALL: u32 = 0o777;

/// Applies inherited attributes to a new inode: group and set-group-id bit, default ACL or else
/// umask, placement.
///
/// The resulting mode has no umask.
pub fn inherit(inherited: &InheritedAttributes, new: NewInode) -> NewInode {
    let directory = matches!(new.kind, NewKind::Directory);
    let owner = Owner { gid: inherited.group.unwrap_or(new.owner.gid), ..new.owner };
    let bit = if directory && inherited.group.is_some() { SET_GROUP_ID } else { 0 };
    let (mode, acls) = match &new.kind {
        NewKind::Symlink(_) => (new.mode.bits, None),
        _ => permissions(&inherited.default_acl, new.mode, directory),
    };
    let placing = match &new.kind {
        NewKind::File | NewKind::Directory => new.placing().or(inherited.placing).boxed(),
        _ => None,
    };
    NewInode { mode: Mode::from(mode | bit), owner, acls, placing, ..new }
}

/// Returns the bits and ACLs that follow from a directory's default ACL, or the bits that the umask
/// leaves.
fn permissions(default_acl: &Bytes, mode: Mode, directory: bool) -> (u32, Option<Box<Acls>>) {
    let Ok(Some(default)) = Acl::decode(default_acl) else { return (mode.bits & !(mode.umask & ALL), None) };
    let access = default.at_most(mode.bits);
    let bits = mode.bits & !ALL | access.bits();
    let acls = Acls {
        access: if access.is_only_bits() { Bytes::new() } else { access.encode() },
        default: if directory { default_acl.clone() } else { Bytes::new() },
    };
    let some = !acls.access.is_empty() || !acls.default.is_empty();
    (bits, some.then(|| Box::new(acls)))
}
