//! Credentials of a user, for permission checks on the directories of a path.

use crate::Owner;
use serde::{Deserialize, Serialize};

/// Permission to read a file, or to list a directory.
pub const READ: u32 = 4;
/// Permission to write a file, or to change a directory's entries.
pub const WRITE: u32 = 2;
/// Permission to execute a file, or to search a directory.
pub const EXECUTE: u32 = 1;
/// Sticky bit of a directory: a user may remove only entries of its own, unless it owns the
/// directory.
pub const STICKY: u32 = 0o1000;

/// User and groups of the calling process, without its capabilities. Any client that has the pool's
/// token can claim any credentials: like all permissions in a pool, they protect from mistakes, not
/// from attacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    #[serde(deserialize_with = "crate::decode_limits::bounded_vec")]
    pub groups: Vec<u32>,
    /// Access that the operation needs in the last directory.
    pub access: DirAccess,
}

/// Access that an operation needs in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DirAccess {
    /// Look up a name.
    Lookup,
    /// Create a name.
    Create,
    /// Remove a name, perhaps one of another user.
    Remove,
}

impl Credentials {
    /// Maximum number of supplementary groups in a message. For a user with more, the client checks
    /// directory by directory.
    pub const GROUPS_MAX: usize = crate::decode_limits::PARTS_MAX;

    /// Returns true if the mode bits alone grant this user all of `wanted` ([`READ`], [`WRITE`],
    /// [`EXECUTE`]). False does not mean that access is denied: an ACL may grant more to users
    /// other than the owner, and capabilities may allow it.
    pub fn mode_grants(&self, wanted: u32, (mode, owner): (u32, Owner), has_acl: bool) -> bool {
        let bits = match owner {
            Owner { uid, .. } if uid == self.uid => mode >> 6,
            _ if has_acl => return false,
            Owner { gid, .. } if gid == self.gid || self.groups.contains(&gid) => mode >> 3,
            _ => mode,
        };
        bits & wanted == wanted
    }

    /// Returns true if the mode bits alone allow the operation in this directory. In a directory
    /// with the sticky bit, only its owner may certainly remove names.
    pub fn mode_allows(&self, access: DirAccess, directory: (u32, Owner), has_acl: bool) -> bool {
        let wanted = if access == DirAccess::Lookup { EXECUTE } else { EXECUTE | WRITE };
        let others = access == DirAccess::Remove && directory.0 & STICKY != 0 && directory.1.uid != self.uid;
        !others && self.mode_grants(wanted, directory, has_acl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec(), access: DirAccess::Lookup }
    }

    #[test]
    fn bits_of_the_owner_of_a_group_and_of_others_count_for_these_alone() {
        let owner = Owner { uid: 1, gid: 10 };
        let may = |user: &Credentials, wanted, mode| user.mode_grants(wanted, (mode, owner), false);
        for (caller, shift) in
            [(user(1, 10, &[10]), 6), (user(2, 10, &[]), 3), (user(2, 9, &[8, 10]), 3), (user(2, 9, &[8]), 0)]
        {
            for bits in 0..8 {
                for wanted in 1..8 {
                    assert_eq!(
                        may(&caller, wanted, bits << shift),
                        bits & wanted == wanted,
                        "{caller:?} {bits} {wanted}"
                    );
                    assert!(!may(&caller, wanted, 0o777 & !(7 << shift)), "no others' bits");
                }
            }
        }
    }

    #[test]
    fn an_acl_leaves_it_open_for_all_but_the_owner() {
        let directory = (0o777, Owner { uid: 1, gid: 10 });
        assert!(user(1, 9, &[]).mode_grants(7, directory, true));
        assert!(!user(2, 10, &[]).mode_grants(1, directory, true));
    }

    #[test]
    fn in_a_directory_with_the_sticky_bit_only_its_owner_surely_removes() {
        let directory = (0o1777, Owner { uid: 1, gid: 10 });
        for access in [DirAccess::Lookup, DirAccess::Create, DirAccess::Remove] {
            assert!(user(1, 9, &[]).mode_allows(access, directory, false));
            assert_eq!(user(2, 9, &[]).mode_allows(access, directory, false), access != DirAccess::Remove);
            let closed = (0o755, directory.1);
            assert_eq!(user(2, 9, &[]).mode_allows(access, closed, false), access == DirAccess::Lookup);
        }
    }
}
