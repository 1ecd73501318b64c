//! Tests of extended attributes.

use crate::pool_test::{CREATE, TestPool, at, without_capabilities};
use crate::{Errno, XattrTarget};
use rustix::fs::{AtFlags, OFlags, XattrFlags};
use std::os::fd::AsFd;

const SET: XattrFlags = XattrFlags::empty();
const ACL: &[u8] = b"system.posix_acl_access";

fn followed(path: &str) -> XattrTarget<'_> {
    XattrTarget::Path { arg: at(path), follow: true }
}

fn unfollowed(path: &str) -> XattrTarget<'_> {
    XattrTarget::Path { arg: at(path), follow: false }
}

#[test]
fn an_attribute_is_created_replaced_or_set_as_the_flags_say() {
    let pool = TestPool::start();
    pool.make("f", b"");
    let (create, replace) = (XattrFlags::CREATE, XattrFlags::REPLACE);
    let set = |value: &[u8], flags| pool.process.set_xattr(followed("f"), b"user.a", value, flags);
    assert_eq!(set(b"0", create | replace), Err(Errno::NODATA));
    assert_eq!(set(b"0", replace), Err(Errno::NODATA));
    assert_eq!(set(b"1", create), Ok(()));
    assert_eq!(set(b"2", create), Err(Errno::EXIST));
    assert_eq!(set(b"2", create | replace), Err(Errno::EXIST));
    assert_eq!(set(b"2", XattrFlags::from_bits_retain(4)), Err(Errno::INVAL));
    assert_eq!(pool.process.xattr(followed("f"), b"user.a"), Ok(b"1".to_vec()));
    assert_eq!(set(b"", replace), Ok(()));
    assert_eq!(pool.process.xattr(followed("f"), b"user.a"), Ok(vec![]), "an empty value is a value");
    assert_eq!(pool.process.remove_xattr(followed("f"), b"user.a"), Ok(()));
    assert_eq!(pool.process.remove_xattr(followed("f"), b"user.a"), Err(Errno::NODATA));
}

#[test]
fn a_name_has_1_to_255_bytes() {
    let pool = TestPool::start();
    pool.make("f", b"");
    let (longest, too_long) = ([&b"user."[..], &[b'a'; 250]].concat(), [&b"user."[..], &[b'a'; 251]].concat());
    for name in [&b""[..], &too_long] {
        assert_eq!(pool.process.xattr(followed("f"), name), Err(Errno::RANGE));
        assert_eq!(pool.process.set_xattr(followed("f"), name, b"", SET), Err(Errno::RANGE));
        assert_eq!(pool.process.remove_xattr(followed("f"), name), Err(Errno::RANGE));
    }
    assert_eq!(pool.process.set_xattr(followed("f"), &longest, b"x", SET), Ok(()));
    assert_eq!(pool.process.xattrs(followed("f")), Ok([&longest[..], b"\0"].concat()));
}

#[test]
fn a_symlink_has_no_user_attributes_of_its_own() {
    let pool = TestPool::start();
    pool.make("f", b"");
    pool.symlink("f", "link");
    pool.process.set_xattr(followed("link"), b"user.a", b"x", SET).unwrap();
    assert_eq!(pool.process.xattr(followed("f"), b"user.a"), Ok(b"x".to_vec()));
    assert_eq!(pool.process.xattr(unfollowed("link"), b"user.a"), Err(Errno::NODATA));
    assert_eq!(pool.process.set_xattr(unfollowed("link"), b"user.a", b"x", SET), Err(Errno::PERM));
    assert_eq!(pool.process.remove_xattr(unfollowed("link"), b"user.a"), Err(Errno::PERM));
    assert_eq!(pool.process.xattr(followed("none"), b"user.a"), Err(Errno::NOENT));
    pool.symlink_to_host("out", b"");
    assert_eq!(pool.process.xattr(followed("out"), b"user.a"), Err(Errno::OPNOTSUPP), "it is not of the pool");
}

#[test]
fn a_descriptor_stands_for_its_file_unless_it_is_a_location() {
    let pool = TestPool::start();
    let (file, location) = (pool.open("f", CREATE).unwrap(), pool.open("f", OFlags::PATH).unwrap());
    let (file, location) = (XattrTarget::Descriptor(file.as_fd()), XattrTarget::Descriptor(location.as_fd()));
    assert_eq!(pool.process.set_xattr(file, b"user.a", b"x", SET), Ok(()));
    assert_eq!(pool.process.xattr(followed("f"), b"user.a"), Ok(b"x".to_vec()));
    assert_eq!(pool.process.xattr(location, b"user.a"), Err(Errno::BADF));
    assert_eq!(pool.process.xattrs(location), Err(Errno::BADF));
}

#[test]
fn user_attributes_follow_the_mode_and_trusted_ones_are_for_administrators() {
    let pool = TestPool::start();
    pool.make("f", b"");
    pool.process.set_xattr(followed("f"), b"user.a", b"x", SET).unwrap();
    // Refused to a user who is no administrator already here.
    let trusts = pool.process.set_xattr(followed("f"), b"trusted.a", b"y", SET).is_ok();
    if trusts {
        assert_eq!(pool.process.xattr(followed("f"), b"trusted.a"), Ok(b"y".to_vec()));
        assert_eq!(pool.process.xattrs(followed("f")).unwrap().len(), b"user.a\0trusted.a\0".len());
    }
    without_capabilities(|| {
        let set = |name: &[u8]| pool.process.set_xattr(followed("f"), name, b"z", SET);
        assert_eq!((set(b"trusted.a"), set(b"security.a")), (Err(Errno::PERM), Err(Errno::PERM)));
        assert_eq!(pool.process.xattr(followed("f"), b"trusted.a"), Err(Errno::NODATA));
        assert_eq!(pool.process.xattrs(followed("f")), Ok(b"user.a\0".to_vec()));
        pool.process.chmod(at("f"), 0o400, AtFlags::empty()).unwrap();
        assert_eq!(
            (set(b"user.a"), pool.process.remove_xattr(followed("f"), b"user.a")),
            (Err(Errno::ACCESS), Err(Errno::ACCESS))
        );
        pool.process.chmod(at("f"), 0o200, AtFlags::empty()).unwrap();
        assert_eq!((set(b"user.a"), pool.process.xattr(followed("f"), b"user.a")), (Ok(()), Err(Errno::ACCESS)));
    });
}

#[test]
fn an_acl_without_entries_is_none_and_removing_it_twice_is_no_error() {
    let pool = TestPool::start();
    pool.make("f", b"");
    let set = |value: &[u8]| pool.process.set_xattr(followed("f"), ACL, value, SET);
    // Owner, user 7, group, mask, others; see acl(5).
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 6, u32::MAX), (0x02, 4, 7), (0x04, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let encoded = entries
        .iter()
        .flat_map(|(tag, bits, id)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
    let acl: Vec<u8> = 2_u32.to_le_bytes().into_iter().chain(encoded).collect();
    for empty in [&b""[..], b"\x02\0\0\0"] {
        set(&acl).unwrap();
        assert_eq!(pool.process.xattr(followed("f"), ACL).as_deref(), Ok(&acl[..]));
        assert_eq!(
            pool.process.stat(at("f"), AtFlags::empty()).unwrap().mode,
            0o100_640,
            "the mask shows as the group"
        );
        assert_eq!((set(empty), set(empty)), (Ok(()), Ok(())));
        assert_eq!(pool.process.xattr(followed("f"), ACL), Err(Errno::NODATA));
    }
    let (other_version, half_an_entry, owner_alone) = (b"\x01\0\0\0", &acl[..acl.len() - 1], &acl[..12]);
    assert_eq!(set(other_version), Err(Errno::OPNOTSUPP));
    assert_eq!((set(half_an_entry), set(owner_alone)), (Err(Errno::INVAL), Err(Errno::INVAL)));
}
