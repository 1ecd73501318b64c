//! Tests of the permission checks against `path_resolution(7)` and `acl(5)`, spelled out for all
//! modes and many users.

use super::{AccessDecision, EXECUTE, READ, WRITE, check_acl, check_chown, check_mode, check_sticky, new_mode};
use crate::{Caller, Errno};
use placement::FileId;
use rustix::thread::CapabilitySet;
use wire::{Attributes, Kind, Owner, Timestamp};

const OWNER: Owner = Owner { uid: 10, gid: 100 };

fn file(kind: Kind, mode: u32) -> Attributes {
    let never = Timestamp::default();
    Attributes {
        file: FileId(7),
        kind,
        size: 0,
        allocated: 0,
        mode,
        links: 1,
        owner: OWNER,
        accessed: never,
        modified: never,
        changed: never,
        created: never,
        version: 0,
        extent: None,
        cacheable: false,
    }
}

/// The owner, a member of the group by its primary or by a supplementary group, and a stranger;
/// each without capabilities and with each capability that matters.
fn users() -> Vec<Caller> {
    let ids = [(10, 1, vec![]), (11, 100, vec![]), (11, 1, vec![5, 100]), (11, 1, vec![5])];
    let rights =
        [CapabilitySet::empty(), CapabilitySet::DAC_READ_SEARCH, CapabilitySet::DAC_OVERRIDE, CapabilitySet::all()];
    ids.iter().flat_map(|(uid, gid, groups)| rights.map(|capable| Caller::new(*uid, *gid, groups, capable))).collect()
}

/// Returns the shift to the mode bits that apply to a user without capabilities.
fn class(caller: &Caller) -> u32 {
    if caller.uid == OWNER.uid {
        6
    } else if caller.is_in(OWNER.gid) {
        3
    } else {
        0
    }
}

/// Encodes an ACL as the kernel does: tag, bits, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn allowed(of: &Attributes, acl: Option<&[u8]>, caller: &Caller, wants: u32) -> bool {
    match check_mode(of, caller, wants) {
        AccessDecision::Allowed => true,
        AccessDecision::Denied => false,
        AccessDecision::ByAcl => check_acl(of, acl, caller, wants),
    }
}

#[test]
fn every_mode_gives_every_user_the_bits_of_its_class_and_what_its_rights_add() {
    for (kind, mode) in
        [Kind::File, Kind::Directory].into_iter().flat_map(|kind| (0..0o1000).map(move |mode| (kind, mode)))
    {
        let of = file(kind, mode);
        for caller in users() {
            for wants in 0..8 {
                let by_mode = (mode >> class(&caller)) & wants == wants;
                let is_directory = kind == Kind::Directory;
                let searches = caller.can(CapabilitySet::DAC_READ_SEARCH)
                    && wants & WRITE == 0
                    && (is_directory || wants & EXECUTE == 0);
                let runs = wants & EXECUTE == 0 || is_directory || mode & 0o111 != 0;
                let expected = by_mode || searches || (caller.can(CapabilitySet::DAC_OVERRIDE) && runs);
                assert_eq!(allowed(&of, None, &caller, wants), expected, "{kind:?} {mode:o} {caller:?} wants {wants}");
            }
        }
    }
}

#[test]
fn an_acl_decides_by_the_user_then_by_any_group_that_gives_all_then_by_the_others() {
    let nobody = |uid, gid, groups: &[u32]| Caller::new(uid, gid, groups, CapabilitySet::empty());
    // Owner, user 11, user 12, group, group 200, mask, others. The mode's group bits are the mask.
    let value = acl(&[(1, 6, 0), (2, 6, 11), (2, 7, 12), (4, 4, 0), (8, 2, 200), (0x10, 6, 0), (0x20, 0, 0)]);
    let of = file(Kind::File, 0o660);
    let may = |caller: &Caller, wants| allowed(&of, Some(&value), caller, wants);
    assert!(may(&nobody(11, 1, &[]), READ | WRITE), "a named user has its bits");
    assert!(!may(&nobody(12, 1, &[]), EXECUTE), "and no more than the mask");
    assert!(may(&nobody(13, 100, &[]), READ), "the group has its own");
    assert!(may(&nobody(13, 100, &[200]), WRITE), "a named group too");
    assert!(!may(&nobody(13, 100, &[200]), READ | WRITE), "two groups that each give a half give nothing");
    assert!(!may(&nobody(13, 1, &[]), READ), "others have theirs");
    assert!(!may(&nobody(11, 1, &[]), EXECUTE), "nobody has what neither mask nor others have");
}

#[test]
fn an_acl_that_cannot_be_read_leaves_the_mode() {
    let (of, member) = (file(Kind::File, 0o640), Caller::new(11, 100, &[], CapabilitySet::empty()));
    for value in [&b""[..], b"\x01\0\0\0", b"\x02\0\0"] {
        assert!(allowed(&of, Some(value), &member, READ) && !allowed(&of, Some(value), &member, WRITE), "{value:?}");
    }
}

#[test]
fn in_a_sticky_directory_only_its_owner_and_the_entrys_remove() {
    let directory = |uid| Attributes { owner: Owner { uid, gid: 1 }, ..file(Kind::Directory, 0o1777) };
    let entry = |uid| Attributes { owner: Owner { uid, gid: 1 }, ..file(Kind::File, 0o666) };
    let caller = Caller::new(5, 1, &[], CapabilitySet::empty());
    assert_eq!(check_sticky(Some(&directory(5)), Some(&entry(6)), &caller), Ok(()));
    assert_eq!(check_sticky(Some(&directory(6)), Some(&entry(5)), &caller), Ok(()));
    assert_eq!(check_sticky(Some(&directory(6)), Some(&entry(6)), &caller), Err(Errno::PERM));
    assert_eq!(
        check_sticky(Some(&directory(6)), Some(&entry(6)), &Caller::new(5, 1, &[], CapabilitySet::FOWNER)),
        Ok(())
    );
    let free = Attributes { mode: 0o777, ..directory(6) };
    assert_eq!(check_sticky(Some(&free), Some(&entry(6)), &caller), Ok(()));
}

#[test]
fn the_owner_changes_a_mode_and_keeps_set_group_id_only_in_its_own_group() {
    let of = file(Kind::File, 0o644);
    let owner = |groups: &[u32]| Caller::new(10, 1, groups, CapabilitySet::empty());
    assert_eq!(new_mode(&of, &owner(&[100]), 0o2755), Ok(0o2755));
    assert_eq!(new_mode(&of, &owner(&[]), 0o2755), Ok(0o755));
    assert_eq!(new_mode(&of, &Caller::new(11, 100, &[], CapabilitySet::empty()), 0o600), Err(Errno::PERM));
}

#[test]
fn the_owner_gives_a_file_to_its_own_groups_and_to_no_other_user() {
    let of = file(Kind::File, 0o644);
    let owner = Caller::new(10, 1, &[7], CapabilitySet::empty());
    assert_eq!(check_chown(&of, &owner, None, Some(7)), Ok(()));
    assert_eq!(check_chown(&of, &owner, Some(10), Some(100)), Ok(()));
    assert_eq!(check_chown(&of, &owner, None, Some(8)), Err(Errno::PERM));
    assert_eq!(check_chown(&of, &owner, Some(11), None), Err(Errno::PERM));
    assert_eq!(check_chown(&of, &Caller::new(11, 1, &[], CapabilitySet::CHOWN), Some(12), Some(8)), Ok(()));
}
