//! ACLs, checked against a literal reading of acl(5).

use crate::acl::inherit;
use bytes::{Buf, BufMut, Bytes};
use proptest::prelude::*;
use wire::{Acl, AclError, InheritedAttributes, Mode, NewInode, NewKind, Owner, SET_GROUP_ID};

/// Kernel codes: owner, user, owning group, group, mask, others.
const TAGS: [u16; 6] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20];

/// Tag, permissions, id.
type Line = (u16, u16, u32);

fn encoded(lines: &[Line]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in lines {
        bytes.put_u16_le(*tag);
        bytes.put_u16_le(*permissions);
        bytes.put_u32_le(*id);
    }
    bytes
}

fn lines_of(mut bytes: &[u8]) -> Vec<Line> {
    assert_eq!(bytes.get_u32_le(), 2);
    let mut lines = Vec::new();
    while bytes.has_remaining() {
        lines.push((bytes.get_u16_le(), bytes.get_u16_le(), bytes.get_u32_le()));
    }
    lines
}

fn count(lines: &[Line], tag: u16) -> usize {
    lines.iter().filter(|line| line.0 == tag).count()
}

/// "A valid ACL contains exactly one entry with each of the `ACL_USER_OBJ`, `ACL_GROUP_OBJ`, and
/// `ACL_OTHER` tag types. [..] An ACL that contains entries of `ACL_USER` or `ACL_GROUP` tag types
/// must contain exactly one entry of the `ACL_MASK` tag type."
fn is_valid(lines: &[Line]) -> bool {
    let [owner, user, owning_group, group, mask, other] = TAGS.map(|tag| count(lines, tag));
    let named = user + group > 0;
    owner == 1
        && owning_group == 1
        && other == 1
        && mask <= 1
        && (!named || mask == 1)
        && lines.is_sorted_by_key(|line| line.0)
        && lines.iter().all(|line| line.1 <= 7)
}

/// A caller.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Other,
}

/// Returns the permissions that acl(5) grants a caller in at most one group.
fn allowed(lines: &[Line], caller: Caller) -> u16 {
    let find = |tag: u16, id: Option<u32>| {
        lines.iter().find(|line| line.0 == tag && id.is_none_or(|id| line.2 == id)).map(|line| line.1)
    };
    let masked = |permissions: u16| permissions & find(TAGS[4], None).unwrap_or(7);
    let other = || find(TAGS[5], None).unwrap();
    match caller {
        Caller::Owner => find(TAGS[0], None).unwrap(),
        Caller::User(id) => find(TAGS[1], Some(id)).map_or_else(other, masked),
        Caller::OwningGroup => masked(find(TAGS[2], None).unwrap()),
        Caller::Group(id) => find(TAGS[3], Some(id)).map_or_else(other, masked),
        Caller::Other => other(),
    }
}

fn any_lines() -> impl Strategy<Value = Vec<Line>> {
    let line = (0_usize..6, 0_u16..9, 1_u32..4).prop_map(|(tag, permissions, id)| (TAGS[tag], permissions, id));
    let some = prop::collection::vec(line, 0..7);
    (some, any::<bool>()).prop_map(|(mut lines, sorted)| {
        if sorted {
            lines.sort_by_key(|line| line.0);
        }
        lines
    })
}

/// Generates valid ACLs with at most one entry for each name.
fn valid_lines() -> impl Strategy<Value = Vec<Line>> {
    let names = || prop::collection::btree_map(1_u32..4, 0_u16..8, 0..3);
    let three = (0_u16..8, 0_u16..8, 0_u16..8, 0_u16..8);
    (three, names(), names(), any::<bool>()).prop_map(|((owner, group, other, mask), users, groups, masked)| {
        let mut lines = vec![(TAGS[0], owner, u32::MAX)];
        lines.extend(users.iter().map(|(id, permissions)| (TAGS[1], *permissions, *id)));
        lines.push((TAGS[2], group, u32::MAX));
        lines.extend(groups.iter().map(|(id, permissions)| (TAGS[3], *permissions, *id)));
        if masked || !users.is_empty() || !groups.is_empty() {
            lines.push((TAGS[4], mask, u32::MAX));
        }
        lines.push((TAGS[5], other, u32::MAX));
        lines
    })
}

fn everybody() -> Vec<Caller> {
    let named = (1..5).flat_map(|id| [Caller::User(id), Caller::Group(id)]);
    [Caller::Owner, Caller::OwningGroup, Caller::Other].into_iter().chain(named).collect()
}

fn made(inherited: &InheritedAttributes, kind: NewKind, mode: Mode) -> NewInode {
    inherit(inherited, NewInode::new(kind, mode, Owner { uid: 1, gid: 2 }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn exactly_the_valid_lists_are_taken(lines in any_lines()) {
        let decoded = Acl::decode(&encoded(&lines));
        prop_assert_eq!(matches!(decoded, Ok(Some(_))), is_valid(&lines), "{:?}", decoded);
        prop_assert_eq!(decoded == Ok(None), lines.is_empty());
    }

    #[test]
    fn a_list_comes_back_as_it_was_set(lines in valid_lines()) {
        let acl = Acl::decode(&encoded(&lines)).unwrap().unwrap();
        prop_assert_eq!(lines_of(&acl.encode()), lines.clone());
        let extended = lines.iter().any(|line| [TAGS[1], TAGS[3], TAGS[4]].contains(&line.0));
        prop_assert_eq!(acl.is_only_bits(), !extended);
    }

    /// The bits stand for the owner, the mask (or the group, without one) and the others.
    #[test]
    fn chmod_sets_what_the_bits_show_and_nothing_else(lines in valid_lines(), bits in 0_u32..0o1000) {
        let acl = Acl::decode(&encoded(&lines)).unwrap().unwrap().with_bits(bits);
        prop_assert_eq!(acl.bits(), bits);
        let after = lines_of(&acl.encode());
        let class = if count(&lines, TAGS[4]) > 0 { TAGS[4] } else { TAGS[2] };
        for (before, after) in lines.iter().zip(&after) {
            let shown = [TAGS[0], class, TAGS[5]].contains(&before.0);
            prop_assert!(shown || before == after);
            prop_assert_eq!((before.0, before.2), (after.0, after.2));
        }
    }

    /// "The access ACL of the new object is the default ACL of the directory, restricted by the
    /// mode parameter."
    #[test]
    fn what_is_made_allows_what_the_default_list_and_the_mode_allow(
        lines in valid_lines(), bits in 0_u32..0o1000, umask in 0_u32..0o1000, directory in any::<bool>(),
    ) {
        let default = Bytes::from(encoded(&lines));
        let kind = if directory { NewKind::Directory } else { NewKind::File };
        let new = made(&InheritedAttributes { group: None, default_acl: default.clone(), ..InheritedAttributes::default() }, kind, Mode { bits, umask });
        let acls = new.acls.unwrap_or_default();
        prop_assert_eq!(&acls.default, if directory { &default } else { &acls.access[..0].to_vec().into() });
        let only_bits = vec![
            (TAGS[0], u16::try_from(new.mode.bits >> 6 & 7).unwrap(), 0),
            (TAGS[2], u16::try_from(new.mode.bits >> 3 & 7).unwrap(), 0),
            (TAGS[5], u16::try_from(new.mode.bits & 7).unwrap(), 0),
        ];
        let access = if acls.access.is_empty() { only_bits } else { lines_of(&acls.access) };
        let masked = count(&lines, TAGS[4]) > 0;
        for caller in everybody() {
            let class = match caller {
                Caller::Owner => bits >> 6,
                Caller::Other => bits,
                Caller::User(id) if !lines.iter().any(|line| line.0 == TAGS[1] && line.2 == id) => bits,
                Caller::Group(id) if !lines.iter().any(|line| line.0 == TAGS[3] && line.2 == id) => bits,
                _ => bits >> 3,
            } & 7;
            let expected = u32::from(allowed(&lines, caller)) & class;
            prop_assert_eq!(u32::from(allowed(&access, caller)), expected, "{:?} {:?} masked {}", caller, access, masked);
        }
        if !acls.access.is_empty() {
            prop_assert_eq!(Acl::decode(&acls.access).unwrap().unwrap().bits(), new.mode.bits & 0o777);
        }
    }

    #[test]
    fn without_a_default_list_the_umask_counts(bits in 0_u32..0o10000, umask in 0_u32..0o1000) {
        let new = made(&InheritedAttributes::default(), NewKind::File, Mode { bits, umask });
        prop_assert_eq!((new.mode, new.acls), (Mode::from(bits & !umask), None));
    }
}

#[test]
fn another_version_and_torn_bytes_are_told_apart() {
    let mut bytes = encoded(&[(TAGS[0], 7, 0), (TAGS[2], 5, 0), (TAGS[5], 5, 0)]);
    assert!(Acl::decode(&bytes).unwrap().unwrap().is_only_bits());
    assert_eq!(Acl::decode(&bytes[..bytes.len() - 1]), Err(AclError::Form));
    assert_eq!(Acl::decode(&bytes[..3]), Err(AclError::Form));
    bytes[0] = 3;
    assert_eq!(Acl::decode(&bytes), Err(AclError::Version));
}

#[test]
fn a_set_group_id_directory_gives_its_group_and_to_directories_the_bit() {
    let inherited =
        InheritedAttributes { group: Some(77), default_acl: Bytes::new(), ..InheritedAttributes::default() };
    let file = made(&inherited, NewKind::File, Mode::from(0o2755));
    assert_eq!((file.owner.gid, file.mode.bits), (77, 0o2755), "the kernel has decided about a file's own bit");
    let directory = made(&inherited, NewKind::Directory, Mode { bits: 0o777, umask: 0o22 });
    assert_eq!((directory.owner.gid, directory.mode.bits), (77, 0o755 | SET_GROUP_ID));
    let link = made(&inherited, NewKind::Symlink(Bytes::from_static(b"t")), Mode { bits: 0o777, umask: 0o77 });
    assert_eq!((link.owner.gid, link.mode.bits), (77, 0o777), "links have no permissions of their own");
}
