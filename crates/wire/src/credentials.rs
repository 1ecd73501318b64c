//! Who goes along a path, where the folders on it are to be asked whether they let that user through.

use crate::Owner;
use serde::{Deserialize, Serialize};

/// To read it, or list it.
pub const READ: u32 = 4;
/// To write it, or change its entries.
pub const WRITE: u32 = 2;
/// To run it, or walk through it.
pub const RUN: u32 = 1;
/// Of a folder's mode: who may write there removes only what is his, unless the folder is.
pub const STICKY: u32 = 0o1000;

/// A user as the system sees one who asks, without what capabilities allow. Whoever has the pool's token may say anything here: it keeps from mistakes,
/// as permissions of a pool do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further groups.
    #[serde(deserialize_with = "crate::bounded::few")]
    pub groups: Vec<u32>,
    /// What is to be done in the last folder.
    pub needs: Needs,
}

/// What is done in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Needs {
    /// A name is looked up.
    Pass,
    /// A name is made.
    Make,
    /// A name is removed, perhaps another's.
    Remove,
}

impl Credentials {
    /// More groups are not said: what is asked for such a user is asked folder by folder.
    pub const GROUPS_MAX: usize = crate::bounded::PARTS_MAX;

    /// Whether the permission bits alone show that this user may do all of `wants` ([`READ`], [`WRITE`], [`RUN`]). That they do not show it does not mean that
    /// it may not: an ACL may say more of others than the owner, and capabilities may allow it.
    pub fn surely_may(&self, wants: u32, (mode, owner): (u32, Owner), has_acl: bool) -> bool {
        let bits = match owner {
            Owner { uid, .. } if uid == self.uid => mode >> 6,
            _ if has_acl => return false,
            Owner { gid, .. } if gid == self.gid || self.groups.contains(&gid) => mode >> 3,
            _ => mode,
        };
        bits & wants == wants
    }

    /// The same of a folder, for what is to be done in it; in one with the sticky bit nothing is removed surely but by its owner.
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
