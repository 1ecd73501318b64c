//! Credentials of a user, for permission checks on the directories of a path.

use crate::Owner;
use serde::{Deserialize, Serialize};

/// Permission to read a file, or to list a directory.
pub const READ: u32 = 4;
/// Permission to write a file, or to change a directory's entries.
pub const WRITE: u32 = 2;
/// Permission to execute a file, or to search a directory.
pub const RUN: u32 = 1;
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
    #[serde(deserialize_with = "crate::bounded::few")]
    pub groups: Vec<u32>,
    /// Access that the operation needs in the last directory.
    pub needs: Needs,
}

/// Access that an operation needs in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Needs {
    /// Look up a name.
    Pass,
    /// Create a name.
    Make,
    /// Remove a name, perhaps one of another user.
    Remove,
}

impl Credentials {
    /// Maximum number of supplementary groups in a message. For a user with more, the client checks
    /// directory by directory.
    pub const GROUPS_MAX: usize = crate::bounded::PARTS_MAX;

    /// Returns true if the mode bits alone grant this user all of `wants` ([`READ`], [`WRITE`],
    /// [`RUN`]). False does not mean that access is denied: an ACL may grant more to users other
    /// than the owner, and capabilities may allow it.
    pub fn surely_may(&self, wants: u32, (mode, owner): (u32, Owner), has_acl: bool) -> bool {
        let bits = match owner {
            Owner { uid, .. } if uid == self.uid => mode >> 6,
            _ if has_acl => return false,
            Owner { gid, .. } if gid == self.gid || self.groups.contains(&gid) => mode >> 3,
            _ => mode,
        };
        bits & wants == wants
    }

    /// Returns true if the mode bits alone allow the operation in this directory. In a directory
    /// with the sticky bit, only its owner may certainly remove names.
    pub fn surely_does(&self, needs: Needs, folder: (u32, Owner), has_acl: bool) -> bool {
        let wants = if needs == Needs::Pass { RUN } else { RUN | WRITE };
        let others = needs == Needs::Remove && folder.0 & STICKY != 0 && folder.1.uid != self.uid;
        !others && self.surely_may(wants, folder, has_acl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec(), needs: Needs::Pass }
    }

    #[test]
    fn bits_of_the_owner_of_a_group_and_of_others_count_for_these_alone() {
        let owner = Owner { uid: 1, gid: 10 };
        let may = |user: &Credentials, wants, mode| user.surely_may(wants, (mode, owner), false);
        for (who, shift) in
            [(user(1, 10, &[10]), 6), (user(2, 10, &[]), 3), (user(2, 9, &[8, 10]), 3), (user(2, 9, &[8]), 0)]
        {
            for bits in 0..8 {
                for wants in 1..8 {
                    assert_eq!(may(&who, wants, bits << shift), bits & wants == wants, "{who:?} {bits} {wants}");
                    assert!(!may(&who, wants, 0o777 & !(7 << shift)), "no others' bits");
                }
            }
        }
    }

    #[test]
    fn an_acl_leaves_it_open_for_all_but_the_owner() {
        let folder = (0o777, Owner { uid: 1, gid: 10 });
        assert!(user(1, 9, &[]).surely_may(7, folder, true));
        assert!(!user(2, 10, &[]).surely_may(1, folder, true));
    }

    #[test]
    fn in_a_folder_with_the_sticky_bit_only_its_owner_surely_removes() {
        let folder = (0o1777, Owner { uid: 1, gid: 10 });
        for needs in [Needs::Pass, Needs::Make, Needs::Remove] {
            assert!(user(1, 9, &[]).surely_does(needs, folder, false));
            assert_eq!(user(2, 9, &[]).surely_does(needs, folder, false), needs != Needs::Remove);
            let closed = (0o755, folder.1);
            assert_eq!(user(2, 9, &[]).surely_does(needs, closed, false), needs == Needs::Pass);
        }
    }
}
